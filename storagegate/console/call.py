"""A request to the API, as its handler receives it."""

from collections.abc import Callable, Mapping
from time import time
from typing import TYPE_CHECKING, Any, Final

from attrs import define, evolve, field, frozen

from storagegate.core.errors import codedError
from storagegate.objects.accounts import ROLES, AccountKey, Identity
from storagegate.objects.names import checkKey

if TYPE_CHECKING:
    from storagegate.console.operations import APIOperation
    from storagegate.console.services import ConsoleServices
    from storagegate.console.sessions import ConsoleSession
    from storagegate.http.request import HTTPRequest
    from storagegate.http.response import HTTPResponse

ANSWERED: Final = object()
"""The result of a handler that has already responded."""


def readKey(text: str) -> bytes:
    """
    Return the key of an object in UTF-8.

    @raise ServiceError: C{INVALID_ARGUMENT}: the key is empty.
    @raise KeyTooLong: The key is too long.
    """
    if not text:
        raise codedError("INVALID_ARGUMENT", "The key must not be empty")
    key = text.encode()
    checkKey(key)
    return key


def placesFor(role: str, most: int) -> int:
    """
    Return how many of some slots one key may use. An administrator may use all; any other key
    leaves a quarter to others.

    @param most: The slots for all keys.
    """
    return most if ROLES.index(role) >= ROLES.index("admin") else most * 3 // 4


@frozen
class Principal:
    """
    The identity of a request, from the current keys.

    @ivar key: The key, which was valid when the request began.
    @ivar session: L{None} for a request with a key pair in its headers.
    """

    key: AccountKey
    session: "ConsoleSession | None"

    @property
    def identity(self) -> Identity:
        """The account and the rights of the key."""
        return self.key.identity

    @property
    def role(self) -> str:
        """The administration role: one of L{ROLES<storagegate.objects.principals.ROLES>}."""
        return self.key.role

    def has(self, role: str) -> bool:
        """Return whether the principal has a role, or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)


@define(eq=False)
class ConsoleCall:
    """
    A request to an operation.

    @ivar params: The decoded parameters of the path.
    @ivar principal: L{None} if the operation requires no session.
    @ivar isLogged: Whether the log has its line.
    """

    request: "HTTPRequest"
    response: "HTTPResponse"
    operation: "APIOperation"
    params: Mapping[str, str]
    services: "ConsoleServices"
    principal: Principal | None
    isLogged: bool = field(default=False, init=False)
    _noted: dict[str, Any] = field(factory=dict, init=False)

    @property
    def who(self) -> Principal:
        """The principal of an operation that requires a session."""
        assert self.principal is not None
        return self.principal

    @property
    def address(self) -> str:
        """The address of the client."""
        return self.request.ip

    @property
    def key(self) -> bytes:
        """
        The parameter C{key} in UTF-8.

        @raise ServiceError: C{INVALID_ARGUMENT}: the key is empty.
        @raise KeyTooLong: The key is too long.
        """
        return readKey(self.params["key"])

    def require(self, role: str) -> None:
        """
        Refuse a principal whose role is lower.

        @raise ServiceError: C{PERMISSION_DENIED}.
        """
        if not self.who.has(role):
            raise codedError("PERMISSION_DENIED", f"This requires the role {role}", {"role": role})

    def note(self, **more: Any) -> None:
        """Add fields to the log line of a change; never secrets."""
        self._noted.update(more)

    @property
    def noted(self) -> Mapping[str, Any]:
        """The fields that the handler has added to the log line."""
        return self._noted

    def caller(
        self, name: str, access: str, bucket: str = "", key: bytes = b"", prefix: str | None = None
    ) -> "ConsoleCaller":
        """
        Check an access against the policy of the key; return the caller for all further decisions,
        as the S3 listener does.

        @param name: Amazon's name of the operation.
        @param access: C{"read"}, C{"write"}, C{"list"} or C{"admin"}.
        @param bucket: Empty for the service itself.
        @param key: Empty if the access concerns the bucket or the service.
        @param prefix: The prefix of a list; L{None} for other operations.
        @raise AccessDenied: The policy does not grant it.
        """
        if self.services.store.admit is not None:
            self.services.store.admit()
        identity = self.who.identity
        identity.authorise(access, bucket, key, prefix)
        return ConsoleCaller(identity, name, self.request, prefix)


def copierOf(writer: "ConsoleCaller", bucket: str, key: bytes) -> "ConsoleCaller":
    """
    Return the caller of a copy.

    @param writer: The caller that writes its target.
    @param bucket: The bucket of its source; C{key} is the key.
    """
    return evolve(writer, operationName="CopyObject", copySource=f"/{bucket}/{key.decode()}")


@define(eq=False)
class ConsoleCaller:
    """
    A request to the console in the domain: a L{Caller}.

    @ivar named: What the request names, under the names of policies.
    @ivar tags: The tags that the request gives to its object.
    @ivar copySource: The source of a copy, as C{/bucket/key}; L{None} for none.
    """

    identity: Identity
    operationName: str
    _request: "HTTPRequest"
    _prefix: str | None
    clock: Callable[[], float] = time
    named: Mapping[bytes, bytes] = field(factory=dict)
    tags: Mapping[str, str] = field(factory=dict)
    copySource: str | None = None

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        return self.clock()

    @property
    def address(self) -> str:
        """The address of the client."""
        return self._request.ip

    @property
    def secure(self) -> bool:
        """Whether the connection is TLS."""
        return self._request.secure

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """What the request names, under the names of policies."""
        return self.named

    @property
    def query(self) -> Mapping[str, str]:
        """The query that a bucket policy can check: the prefix of a list."""
        return {} if self._prefix is None else {"prefix": self._prefix}

    @property
    def signing(self) -> None:
        """Always L{None}: requests to the console are not signed."""
        return

    @property
    def tlsVersion(self) -> str | None:
        """The version of TLS; L{None} without TLS."""
        return "1.2" if self.secure else None

    @property
    def requestTags(self) -> Mapping[str, str]:
        """The tags that the request gives to its object."""
        return self.tags
