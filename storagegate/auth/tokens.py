"""Tokens: extraction and form, the cache of verified tokens, and the provider of API keys."""

import hmac
import json
import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from hashlib import sha256
from inspect import iscoroutinefunction
from typing import Any, Protocol, TypeVar

from attrs import AttrsInstance, field, frozen
from attrs.converters import optional
from twisted.logger import Logger

from storagegate.core.cache import TTLCache
from storagegate.core.context import RequestContext
from storagegate.core.invoker import CallCredentials, adaptHandler
from storagegate.core.options import OptionError, makeOptions, readFieldName

_Options = TypeVar("_Options", bound=AttrsInstance)

EXTRACT = "is a plain function, or a mapping of protocols to such functions"
"""The values that L{readExtract} accepts, for error messages."""

# A JSON object begins with a brace, followed by a quotation mark, a space or a line end.
_JWT = re.compile(r"e[wy][\w-]*\.[\w-]*\.[\w-]*", re.ASCII)

# The scheme name is case-insensitive, and followed by spaces (RFC 9110 section 11.4).
_BEARER = re.compile(r"bearer(?: +|\Z)", re.IGNORECASE)


def bearerToken(value: str) -> str:
    """Return the token of an C{Authorization} field; its scheme is optional."""
    value = value.strip()
    scheme = _BEARER.match(value)
    return value if scheme is None else value[scheme.end() :]


class TokenError(ValueError):
    """A token is invalid; the reason, which never quotes the token, is for the log only."""


class TokenProvider(Protocol):
    """Verifies one kind of token."""

    def recognises(self, context: RequestContext, credentials: CallCredentials) -> str | None:
        """Return the token or key for this provider; C{None} if the call has none."""

    def verify(self, token: str, context: RequestContext) -> Any:
        """
        Verify a token.

        @return: The user, or an awaitable of it; a falsy value refuses the token.
        """


def unverified(token: str, part: int) -> Mapping[str, Any]:
    """
    Decode a part of a JSON Web Token without verifying it, only to choose its provider.

    @param part: 0 for the header, 1 for the claims.
    @return: The decoded part; empty if it is malformed.
    """
    text = token.split(".")[part]
    try:
        # PyJWT uses the same parser, so both read the same value of a duplicate name.
        value = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def extracted(extract: Any, protocol: str, credentials: CallCredentials) -> str | None:
    """
    Return the token of a call; C{None} if it has none.

    @param extract: The configured function, see L{readExtract}; C{None} uses the token of the
        credentials.
    @param protocol: The transport of the call.
    """
    function = extract.get(protocol) if isinstance(extract, Mapping) else extract
    if function is None:
        return credentials.token
    try:
        token = function(credentials.native)
    except (LookupError, AttributeError, TypeError):
        # A function that indexes a message fails if the message has no token.
        return None
    return token if isinstance(token, str) and token else None


def extractedJWT(extract: Any, protocol: str, credentials: CallCredentials) -> str | None:
    """
    Return the token of a call as L{extracted} does, if it is a JSON Web Token: three parts, the
    first of them a JSON object. API keys with dots have another form.

    @param extract: See L{readExtract}.
    @param protocol: The transport of the call.
    """
    token = extracted(extract, protocol, credentials)
    return token if token is not None and _JWT.fullmatch(token) else None


def readOptions(options: type[_Options], given: Any, provider: str) -> _Options:
    """
    Read the options of a provider.

    @param options: The class of the options.
    @param provider: The name of the provider, for errors.
    @raise OptionError: An option is unknown, invalid or unsafe.
    """
    name = f"authentication.providers.{provider}"
    if not isinstance(given, Mapping):
        raise OptionError(f"the option {name} is a mapping")
    return makeOptions(options, given, f"{name}.")


def readExtract(value: Any) -> Any:
    """
    Read a function C{(native)} that extracts the token, or a mapping of protocols to such
    functions.

    C{native} is the request, message or call of the transport.
    """
    functions = value.values() if isinstance(value, Mapping) else [value]
    for function in functions:
        if not callable(function) or iscoroutinefunction(function):
            raise ValueError(EXTRACT)
    return dict(value) if isinstance(value, Mapping) else value


def noteKind(log: Logger, logged: set[str], error: Exception) -> None:
    """
    Log an exception of a provider; only the first of its class gets a visible level.

    The exception may be a bug of the provider, while invalid tokens are routine. Its text and
    traceback are not logged, because they may quote the token.

    @param logged: The names of classes that have been logged.
    """
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    if kind in logged:
        log.debug("a token was rejected by {kind}", kind=kind)
    else:
        logged.add(kind)
        log.warn("verify raised {kind}; from now on this is logged at debug level", kind=kind)


MAX_CHECKED = 1024
"""Cached tokens per provider; each takes about 200 bytes, and only valid tokens are cached."""


class VerifiedTokenCache:
    """
    A cache of verified tokens by digest; the tokens themselves are not stored.

    A look-up takes a tenth of the time of a verification, which costs more than most calls.
    """

    def __init__(self, leeway: float, now: Callable[[], float] = time.time) -> None:
        """
        @param leeway: How long a token remains valid after its expiry, in seconds.
        @param now: Returns seconds since 1970.
        """
        self._leeway = leeway
        self._checked: TTLCache[bytes, Any] = TTLCache(MAX_CHECKED, now)

    def claims(self, token: str, key: Any, check: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """
        Return the claims of a token, in a new mapping.

        @param key: The key that verifies the token; entries of other keys are ignored.
        @param check: Verifies the token, and returns the claims.
        """
        digest = sha256(token.encode("utf-8", "surrogatepass")).digest()
        if self._checked.get(digest) is key:
            return dict(unverified(token, 1))
        claims = check()
        self._checked.put(digest, key, int(claims["exp"]) + self._leeway)
        return claims


HEADER = "x-api-key"
"""The field of C{CallCredentials.apiKey}; other fields are looked up in the context."""


class APIKeyProvider:
    """
    The provider C{apikey}: keys that a configured function verifies.

    A key has its own header field; a message without fields carries it in place of the token.

    @ivar header: The name of that field, as configured.
    """

    def __init__(
        self, validate: Callable[..., Any], header: str = HEADER, extract: Any = None
    ) -> None:
        """
        @param validate: C{(apiKey, context)}, plain or C{async}: returns the user.
        @param header: The name of the field.
        @param extract: See L{readExtract}.
        """
        self._validate = adaptHandler(validate, "apikey.validate", "apiKey", "context")
        self.header = header
        self._extract = extract

    def recognises(self, context: RequestContext, credentials: CallCredentials) -> str | None:
        """Return the API key of the call."""
        if self._extract is not None:
            key = extracted(self._extract, context.protocol, credentials)
        elif not credentials.hasFields:
            key = credentials.token
        elif self.header.lower() == HEADER:
            key = credentials.apiKey
        else:
            key = context.headers.get(self.header.lower())
        return key or None

    def verify(self, token: str, context: RequestContext) -> Any:
        """Return the user of the key."""
        return self._validate(token, context)


def staticKeys(keys: Mapping[str, Any]) -> Callable[[str, RequestContext], Any]:
    """
    Make a C{validate} function for known keys.

    All keys are compared, each in constant time, so the time reveals nothing.

    @param keys: The users by key.
    @raise ValueError: A key is empty, or its user is falsy.
    """
    if not all(keys) or not all(keys.values()):
        raise ValueError("every key has text and a user")
    # Digests, because the comparison is constant-time only for equal lengths.
    known = [(sha256(key.encode()).digest(), user) for key, user in keys.items()]

    def validate(apiKey: str, context: RequestContext) -> Any:
        found = None
        given = sha256(apiKey.encode("utf-8", "surrogatepass")).digest()
        for digest, user in known:
            if hmac.compare_digest(digest, given):
                found = user
        return found

    return validate


def _readValidate(value: Any) -> Any:
    try:
        adaptHandler(value, "validate", "apiKey", "context")
    except TypeError:
        raise ValueError("is a function of (apiKey, context)") from None
    return value


@frozen
class APIKeyOptions:
    """
    The options of the provider C{apikey}.

    @ivar validate: C{(apiKey, context)}, plain or C{async}: returns the user, or C{None}.
    @ivar header: The HTTP header field or gRPC metadata key that carries the API key.
    @ivar extractToken: Extracts the key from the request, message or call of a transport; a mapping
        has one such function per protocol.
    """

    validate: Callable[..., Any] = field(converter=_readValidate)
    header: str = field(default="X-API-Key", converter=readFieldName)
    extractToken: Any = field(default=None, converter=optional(readExtract))


def readAPIKey(given: Any) -> APIKeyProvider:
    """Read the options of the provider C{apikey}, see L{APIKeyOptions}."""
    options = readOptions(APIKeyOptions, given, "apikey")
    return APIKeyProvider(options.validate, options.header, options.extractToken)
