"""
Where a token is, and what it looks like: what the providers of authentication share.

Tokens that were good a moment ago: to check one again costs more than most calls do.

API keys, each of which the user's own function knows.
"""

import hmac
import json
import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from hashlib import sha256
from inspect import iscoroutinefunction
from typing import Any, Protocol

from attrs import field, frozen
from attrs.converters import optional
from twisted.logger import Logger

from storagegate.core.cache import TTLCache
from storagegate.core.context import RequestContext
from storagegate.core.invoker import CallCredentials, adaptHandler
from storagegate.core.options import OptionError, makeOptions, readFieldName

EXTRACT = "is a plain function, or a mapping of protocols to such functions"
"""What L{readExtract} takes, as errors say it."""

# A JSON object begins with a brace and a quotation mark or a space, or a brace and a line's end.
_JWT = re.compile(r"e[wy][\w-]*\.[\w-]*\.[\w-]*", re.ASCII)


# The scheme's name is in any case, and one blank follows it or several (RFC 9110 section 11.4).
_BEARER = re.compile(r"bearer(?: +|\Z)", re.IGNORECASE)


def bearerToken(value: str) -> str:
    """Give the token of an C{Authorization} field or entry, which may come without its scheme."""
    value = value.strip()
    scheme = _BEARER.match(value)
    return value if scheme is None else value[scheme.end() :]


class TokenError(ValueError):
    """A token is not good; the reason, which quotes nothing of it, is for the log alone."""


class TokenProvider(Protocol):
    """Who knows one kind of token."""

    def recognises(self, context: RequestContext, credentials: CallCredentials) -> str | None:
        """Give the token or key that this provider decides about; C{None} if there is none."""

    def verify(self, token: str, context: RequestContext) -> Any:
        """
        Find out whose it is.

        @return: The user, or something to wait for that gives it. What is falsy is nobody.
        """


def looksLikeJWT(token: str) -> bool:
    """
    Tell whether a token has the three parts of a JSON Web Token, the first of them a JSON object.

    Keys with dots in them are none.
    """
    return _JWT.fullmatch(token) is not None


def unverified(token: str, part: int) -> Mapping[str, Any]:
    """
    Read what a JSON Web Token says and nobody has checked: good for choosing who checks it.

    @param part: 0 for the header, 1 for the claims.
    @return: Nothing if it cannot be read.
    """
    text = token.split(".")[part]
    try:
        # The parser that PyJWT uses: of a name that comes twice both take the same value.
        value = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def extracted(extract: Any, protocol: str, credentials: CallCredentials) -> str | None:
    """
    Give the token: from the wire's place for it, or by asking the user's own function.

    @param extract: See L{readExtract}.
    """
    function = extract.get(protocol) if isinstance(extract, Mapping) else extract
    if function is None:
        return credentials.token
    try:
        token = function(credentials.native)
    except (LookupError, AttributeError, TypeError):
        # Functions that look for a token in a message fail where it has none.
        return None
    return token if isinstance(token, str) and token else None


def readExtract(value: Any) -> Any:
    """
    Read who finds the token: C{(native)}, or a mapping of protocols to such functions.

    C{native} is the request, message or call of the wire.
    """
    functions = value.values() if isinstance(value, Mapping) else [value]
    for function in functions:
        if not callable(function) or iscoroutinefunction(function):
            raise ValueError(EXTRACT)
    return dict(value) if isinstance(value, Mapping) else value


def noteKind(log: Logger, told: set[str], error: Exception) -> None:
    """
    Log an exception of whoever verifies tokens, if it is the first of its kind.

    It may be a mistake in the verifier, so it is seen; bad tokens are an everyday thing, so it is
    not seen again. Neither its text nor its traceback is told: they may quote the token.

    @param told: The kinds that were seen.
    """
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    if kind in told:
        log.debug("a token was refused by {kind}", kind=kind)
    else:
        told.add(kind)
        log.warn("verify raised {kind}; from now on this is told at debug level", kind=kind)


MAX_CHECKED = 1024
"""Tokens of one provider; each costs about 200 bytes, and nobody gets in without a good one."""


class VerifiedTokenCache:
    """
    Remembers which tokens were good, by their digests: the tokens themselves are kept nowhere.

    To find one takes a tenth of the time of checking it.
    """

    def __init__(self, leeway: float, now: Callable[[], float] = time.time) -> None:
        """
        @param leeway: How long after its end a token is good, in seconds.
        @param now: Gives seconds since 1970.
        """
        self._leeway = leeway
        self._checked: TTLCache[bytes, Any] = TTLCache(MAX_CHECKED, now)

    def claims(self, token: str, key: Any, check: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """
        Give the claims of a token, which are the caller's own.

        @param key: What it is checked with; what was good with another one is not.
        @param check: Gives them, or raises.
        """
        digest = sha256(token.encode("utf-8", "surrogatepass")).digest()
        if self._checked.get(digest) is key:
            return dict(unverified(token, 1))
        claims = check()
        self._checked.put(digest, key, int(claims["exp"]) + self._leeway)
        return claims


HEADER = "x-api-key"
"""Where adapters look for C{CallCredentials.apiKey}; another field is looked up in the context."""


class APIKeyProvider:
    """
    Knows API keys by asking the user's function.

    On HTTP and gRPC a key has a place of its own; elsewhere it stands where a token would.

    @ivar header: The name of that place, as it was written.
    """

    def __init__(
        self, validate: Callable[..., Any], header: str = HEADER, extract: Any = None
    ) -> None:
        """
        @param validate: C{(apiKey, context)}, plain or C{async}: gives the user.
        @param header: The name of the field.
        @param extract: See L{readExtract}.
        """
        self._validate = adaptHandler(validate, "apikey.validate", "apiKey", "context")
        self.header = header
        self._extract = extract

    def recognises(self, context: RequestContext, credentials: CallCredentials) -> str | None:
        """Give the key."""
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
        """Ask whose it is."""
        return self._validate(token, context)


def staticKeys(keys: Mapping[str, Any]) -> Callable[[str, RequestContext], Any]:
    """
    Make a C{validate} of known keys, each with its user.

    Every key is compared, each in constant time: how long it takes tells nothing.

    @raise ValueError: If a key is empty, or its user is nobody.
    """
    if not all(keys) or not all(keys.values()):
        raise ValueError("every key has text and a user")
    # Digests, because keys of different lengths are not compared in constant time.
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

    @ivar validate: C{(apiKey, context)}, plain or C{async}: gives the user, or C{None}.
    @ivar header: The field of HTTP and the metadata of gRPC that a key is in.
    @ivar extractToken: Finds the key elsewhere in the request, message or call of a wire; a
        mapping has one such function for each protocol.
    """

    validate: Callable[..., Any] = field(converter=_readValidate)
    header: str = field(default="X-API-Key", converter=readFieldName)
    extractToken: Any = field(default=None, converter=optional(readExtract))


def readAPIKey(given: Any) -> APIKeyProvider:
    """
    Read the options of the provider C{apikey}, see L{APIKeyOptions}.

    @raise OptionError: If there is no such option, or its value is none.
    """
    name = "authentication.providers.apikey"
    if not isinstance(given, Mapping):
        raise OptionError(f"the option {name} is a mapping")
    options = makeOptions(APIKeyOptions, given, f"{name}.")
    return APIKeyProvider(options.validate, options.header, options.extractToken)
