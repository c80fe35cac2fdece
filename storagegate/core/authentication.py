"""
Who calls: the providers that know tokens and keys, and which of them each wire may use.

    readAuthentication({
        "providers": {
            "jwt": {"secret": "...", "algorithms": ["HS256"]},
            "apikey": {"validate": validate},
        },
        "rules": {"http": ["jwt", "apikey"], "tcp": ["apikey"]},
    })

The providers of a wire are tried in the order of its rule; the first that recognises what the
client sent decides. What none recognises is no authentication at all.
"""

import hmac
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from twisted.logger import Logger

from storagegate.core.context import RequestContext
from storagegate.core.errors import ServiceError, codedError
from storagegate.core.hooks import requestHook
from storagegate.core.invocation import CallCredentials
from storagegate.core.optionvalues import OptionError

PROTOCOLS = ("http", "websocket", "grpc", "udp", "tcp")

DEFAULT_RULES: Mapping[str, tuple[str, ...]] = {
    "http": ("jwt", "apikey", "oauth"),
    "websocket": ("jwt", "apikey"),
    "grpc": ("jwt", "apikey"),
    "udp": ("apikey",),
    "tcp": ("apikey",),
}

MAX_TOKEN_LENGTH = 8 * 1024
"""Characters of a token or key: as long as a header may be; longer ones are not looked at."""

INVALID = "Invalid token"
"""All that a client is told of a bad token: a reason would help to make a better one."""

_log = Logger()


class Provider(Protocol):
    """Who knows one kind of token."""

    def recognises(self, context: RequestContext, credentials: CallCredentials) -> str | None:
        """Give the token or key that this provider decides about; C{None} if there is none."""

    def verify(self, token: str, context: RequestContext) -> Any:
        """
        Find out whose it is.

        @return: The user, or something to wait for that gives it. What is falsy is nobody.
        """


class Authentication:
    """
    Authenticates calls by the rules of their wires.

    @ivar providers: By name.
    @ivar rules: The names of the providers of each wire, in their order.
    @ivar ownKeys: By service, what takes the place of the provider C{apikey} for it.
    """

    def __init__(
        self, providers: Mapping[str, Provider], rules: Mapping[str, tuple[str, ...]]
    ) -> None:
        self.providers = providers
        self.rules = rules
        self.ownKeys: dict[str, Provider] = {}

    def authenticate(
        self, context: RequestContext, credentials: CallCredentials, methods: tuple[str, ...] = ()
    ) -> Any:
        """
        Find out who calls.

        @param methods: The providers that the service allows; empty for those of the wire.
        @return: The user, C{None} if no provider recognised the credentials, or something to wait
            for.
        @raise ServiceError: C{UNAUTHENTICATED} if one did and they are not good.
        """
        for name in self.rules.get(context.protocol, ()):
            provider = self.providers.get(name)
            if name == "apikey":
                provider = self.ownKeys.get(context.service, provider)
            if provider is None or (methods and name not in methods):
                continue
            token = provider.recognises(context, credentials)
            if token is None:
                continue
            if len(token) > MAX_TOKEN_LENGTH:
                raise codedError("UNAUTHENTICATED", INVALID)
            return self._decided(provider, token, context)
        return None

    def _decided(self, provider: Provider, token: str, context: RequestContext) -> Any:
        try:
            user = provider.verify(token, context)
        except Exception as error:
            raise _refused(error) from None
        if hasattr(user, "__await__"):
            return _awaited(user)
        return _admitted(user)


async def _awaited(waiting: Any) -> Any:
    try:
        user = await waiting
    except Exception as error:
        raise _refused(error) from None
    return _admitted(user)


def _admitted(user: Any) -> Any:
    if not user:
        raise codedError("UNAUTHENTICATED", INVALID)
    return user


def _refused(error: Exception) -> ServiceError:
    """Give what callers are told; an outage is another thing than a bad token."""
    if isinstance(error, ServiceError):
        return error
    if not isinstance(error, ValueError):
        _log.failure("a token could not be verified")
    return codedError("UNAUTHENTICATED", INVALID)


class APIKeyProvider:
    """
    Knows API keys by asking the user's function.

    On HTTP and gRPC a key has a place of its own; elsewhere it stands where a token would.
    """

    def __init__(
        self, validate: Callable[..., Any], header: str = "X-API-Key", extract: Any = None
    ) -> None:
        """
        @param validate: C{(apiKey, context)}, plain or C{async}: gives the user.
        @param header: The name of the field.
        """
        self._validate = requestHook(validate, "apikey.validate", "apiKey", "context")
        self._header = header.lower()
        self._extract = extract

    def recognises(self, context: RequestContext, credentials: CallCredentials) -> str | None:
        """Give the key."""
        if self._extract is not None:
            return extracted(self._extract, context.protocol, credentials)
        if context.protocol in ("http", "grpc"):
            if self._header == "x-api-key":
                return credentials.apiKey
            return context.headers.get(self._header)
        return credentials.token

    def verify(self, token: str, context: RequestContext) -> Any:
        """Ask whose it is."""
        return self._validate(token, context)


def staticKeys(keys: Mapping[str, Any]) -> Callable[[str, RequestContext], Any]:
    """
    Make a C{validate} of known keys, each with its user.

    Every key is compared, each in constant time: how long it takes tells nothing.
    """
    known = [(key.encode(), user) for key, user in keys.items()]

    def validate(apiKey: str, context: RequestContext) -> Any:
        found = None
        given = apiKey.encode()
        for key, user in known:
            if hmac.compare_digest(key, given):
                found = user
        return found

    return validate


def extracted(extract: Any, protocol: str, credentials: CallCredentials) -> str | None:
    """
    Ask the user's own function where the token is.

    @param extract: C{(native)}, or a mapping of protocols to such functions.
    """
    function = extract.get(protocol) if isinstance(extract, Mapping) else extract
    if function is None:
        return credentials.token
    try:
        token = function(credentials.native)
    except (KeyError, IndexError, AttributeError, TypeError):
        # Functions that look for a token in a message fail where it has none.
        return None
    return token if isinstance(token, str) and token else None


def readRules(given: Any) -> dict[str, tuple[str, ...]]:
    """
    Read which providers each wire may use; one that is not named keeps its default.

    @raise OptionError: If a name is none.
    """
    rules = dict(DEFAULT_RULES)
    if not isinstance(given, Mapping):
        raise OptionError("the option authentication.rules is a mapping of protocols to lists")
    for protocol, names in given.items():
        if protocol not in PROTOCOLS:
            raise OptionError(f"there is no protocol authentication.rules.{protocol}")
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise OptionError(f"the option authentication.rules.{protocol} is a list")
        rules[protocol] = tuple(names)
        for name in rules[protocol]:
            if name not in DEFAULT_RULES["http"]:
                raise OptionError(f"authentication.rules.{protocol} names {name!r:.40}")
    return rules
