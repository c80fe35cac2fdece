"""Where a token is, and what it looks like: what the providers of authentication share."""

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from inspect import iscoroutinefunction
from typing import Any, Protocol

from twisted.logger import Logger

from storagegate.core.context import RequestContext
from storagegate.core.invocation import CallCredentials

PROTOCOLS = ("http", "websocket", "grpc", "udp", "tcp")

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


class Provider(Protocol):
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
    functions = value if isinstance(value, Mapping) else {PROTOCOLS[0]: value}
    for protocol, function in functions.items():
        if protocol not in PROTOCOLS or not callable(function) or iscoroutinefunction(function):
            raise ValueError("is a plain function, or a mapping of protocols to such functions")
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
