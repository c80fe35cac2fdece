"""One request to the API, as its handler sees it."""

from collections.abc import Callable, Mapping
from time import time
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field, frozen

from storagegate.core.errors import codedError
from storagegate.s3.accounts import ROLES, AccountKey, Identity
from storagegate.s3.names import checkKey

if TYPE_CHECKING:
    from storagegate.console.operations import APIOperation
    from storagegate.console.services import ConsoleServices
    from storagegate.console.sessions import ConsoleSession
    from storagegate.http.request import HTTPRequest
    from storagegate.http.response import HTTPResponse

ANSWERED: Final = object()
"""The result of a handler that has responded itself."""


def readKey(text: str) -> bytes:
    """
    Return the key of an object in UTF-8.

    @raise ServiceError: C{INVALID_ARGUMENT}: It is empty.
    @raise S3Error: It is too long.
    """
    if not text:
        raise codedError("INVALID_ARGUMENT", "A key is not empty")
    key = text.encode()
    checkKey(key)
    return key


def placesFor(role: str, most: int) -> int:
    """
    Return how many of some places one key may have: it leaves a quarter to others, but an
    administrator need not.

    @param most: The places of all keys.
    """
    return most if ROLES.index(role) >= ROLES.index("admin") else most * 3 // 4


@frozen
class Principal:
    """
    Who a request acts for, as the keys are at this moment.

    @ivar key: The key, which is valid.
    @ivar session: L{None} for a request with a key pair in its headers.
    """

    key: AccountKey
    session: "ConsoleSession | None"

    @property
    def identity(self) -> Identity:
        """The account and its rights."""
        return self.key.identity

    @property
    def role(self) -> str:
        """One of L{ROLES}."""
        return self.key.role

    def has(self, role: str) -> bool:
        """Return whether the role is this one, or more than it."""
        return ROLES.index(self.role) >= ROLES.index(role)


@define(eq=False)
class ConsoleCall:
    """
    A request.

    @ivar params: Those of the path, decoded.
    @ivar principal: L{None} where the operation takes no session.
    """

    request: "HTTPRequest"
    response: "HTTPResponse"
    operation: "APIOperation"
    params: Mapping[str, str]
    services: "ConsoleServices"
    principal: Principal | None
    _noted: dict[str, Any] = field(factory=dict, init=False)

    @property
    def who(self) -> Principal:
        """The principal of an operation that takes a session."""
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

        @raise ServiceError: C{INVALID_ARGUMENT}: It is empty.
        @raise S3Error: It is too long.
        """
        return readKey(self.params["key"])

    def require(self, role: str) -> None:
        """
        Refuse a principal whose role is less.

        @raise ServiceError: C{PERMISSION_DENIED}.
        """
        if not self.who.has(role):
            raise codedError("PERMISSION_DENIED", f"This takes the role {role}", {"role": role})

    def note(self, **more: Any) -> None:
        """Add to the line of the log; no secrets."""
        self._noted.update(more)

    @property
    def noted(self) -> Mapping[str, Any]:
        """What the handler has noted."""
        return self._noted

    def caller(
        self, name: str, access: str, bucket: str = "", key: bytes = b"", prefix: str | None = None
    ) -> "ConsoleCaller":
        """
        Judge an access by the limits of the key; return the caller for all other decisions, as the
        listener of S3 has it.

        @param name: Amazon's name of the operation.
        @param access: C{"read"}, C{"write"}, C{"list"} or C{"admin"}.
        @param bucket: Empty for the service itself.
        @param key: Empty if the access concerns the bucket or the service.
        @param prefix: That of a list; L{None} for no list.
        @raise S3Error: C{AccessDenied}.
        """
        if self.services.store.admit is not None:
            self.services.store.admit()
        identity = self.who.identity
        identity.authorise(access, bucket, key, prefix)
        return ConsoleCaller(identity, name, self.request, prefix)


@define(eq=False)
class ConsoleCaller:
    """A request to the console, as the domain of S3 sees it: a L{Caller}."""

    identity: Identity
    operationName: str
    _request: "HTTPRequest"
    _prefix: str | None
    clock: Callable[[], float] = time

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
        """None: those of S3 are not sent."""
        return {}

    @property
    def query(self) -> Mapping[str, str]:
        """What a policy may ask of a list."""
        return {} if self._prefix is None else {"prefix": self._prefix}

    @property
    def signing(self) -> None:
        """Nothing is signed."""
        return

    @property
    def tlsVersion(self) -> str | None:
        """The version of TLS; L{None} without."""
        return "1.2" if self.secure else None

    @property
    def requestTags(self) -> Mapping[str, str]:
        """None."""
        return {}
