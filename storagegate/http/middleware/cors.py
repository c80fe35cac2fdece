"""
Cross-origin resource sharing (Fetch standard, section 3.3).

A preflight is an OPTIONS request with C{Access-Control-Request-Method}; this middleware answers it.
Any other request gets its headers and is passed on.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from storagegate.core.invoker import adaptHandler
from storagegate.core.options import takesMapping
from storagegate.core.task import resolveThen
from storagegate.http.dispatch import MiddlewareHandler
from storagegate.http.fields import checkFields
from storagegate.http.options import AllowedOrigin

METHODS = ("GET", "HEAD", "PUT", "PATCH", "POST", "DELETE")

# Section 3.2: a scheme, a host and an optional port, or "null"; no comma or space. Only these bytes
# are ever reflected.
_ORIGIN = re.compile(r"[!-+\--~]+")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TOKENS = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z, ]+")

Fields = tuple[tuple[str, str], ...]


@takesMapping
def cors(
    origin: AllowedOrigin = "*",
    methods: str | Sequence[str] = METHODS,
    credentials: bool = False,
    allowedHeaders: str | Sequence[str] | None = None,
    exposedHeaders: str | Sequence[str] | None = None,
    maxAge: int | None = None,
    *,
    preflightContinue: bool = False,
    optionsSuccessStatus: int = 204,
) -> MiddlewareHandler:
    """
    Make middleware that allows requests from pages of other origins.

    @param origin: C{"*"} for all origins; an origin; a pattern (which is searched, so anchor it); a
        list of origins and patterns; C{True} for the origin of each request; C{False} for none; or
        a function of C{(origin, req)} that returns C{True}, C{False} or an origin, or an awaitable
        of one.
    @param credentials: Whether pages may send cookies. Never together with C{"*"}.
    @param allowedHeaders: The fields that a page may send; C{None} for the fields that it requests.
    @param exposedHeaders: Response fields that a page may read in addition to the standard ones.
    @param maxAge: The number of seconds that a browser may cache a preflight.
    @param preflightContinue: Whether to pass preflights on, with their headers.
    @param optionsSuccessStatus: The status of the response to a preflight.
    @raise ValueError: If an option has an invalid value.
    @raise TypeError: If an option has the wrong type.
    """
    if not isinstance(credentials, bool):
        raise TypeError("credentials is True or False")
    if optionsSuccessStatus not in range(200, 300):
        raise ValueError("optionsSuccessStatus is a status from 200 to 299")
    if origin is False:
        return lambda req, res, next: next()
    always: Fields = (("Access-Control-Allow-Credentials", "true"),) if credentials else ()
    exposed = _names("exposedHeaders", exposedHeaders)
    if exposed:
        always += (("Access-Control-Expose-Headers", exposed),)
    preflight: Fields = (("Access-Control-Allow-Methods", _names("methods", methods) or ""),)
    if allowedHeaders is not None:
        allowed = _names("allowedHeaders", allowedHeaders)
        preflight += (("Access-Control-Allow-Headers", allowed),) if allowed else ()
    if maxAge is not None:
        if isinstance(maxAge, bool) or not isinstance(maxAge, int) or maxAge < -1:
            raise ValueError(f"cors: maxAge is a number of seconds, not {maxAge!r}")
        preflight += (("Access-Control-Max-Age", str(maxAge)),)
    sharer = _Sharer(
        allow=_readOrigin(origin, credentials),
        always=checkFields(always),
        preflight=checkFields(preflight),
        reflectsHeaders=allowedHeaders is None,
        preflightStatus=None if preflightContinue else optionsSuccessStatus,
    )
    return sharer.share


Allow = Callable[[str, Any], Any]
"""Returns the origin to allow for a request's C{Origin} (C{""} if absent), C{""} for none; or an
awaitable of it."""


@frozen
class _Sharer:
    """One set of rules; C{preflightStatus} is C{None} if preflights are passed on."""

    allow: str | Allow
    always: Any
    preflight: Any
    reflectsHeaders: bool
    preflightStatus: int | None

    def share(self, req: Any, res: Any, next: Any) -> Any:
        """Handle a request."""
        allow = self.allow
        if isinstance(allow, str):
            return self._respond(req, res, next, allow)
        return resolveThen(
            allow(req.get("origin") or "", req),
            lambda origin: self._respond(req, res, next, origin),
        )

    def _respond(self, req: Any, res: Any, next: Any, origin: str) -> Any:
        if origin:
            res.header("Access-Control-Allow-Origin", origin)
        if self.allow != "*":
            res.vary("Origin")
        res.setChecked(self.always)
        if req.method != "OPTIONS" or req.get("access-control-request-method") is None:
            return next()
        res.setChecked(self.preflight)
        if self.reflectsHeaders:
            res.vary("Access-Control-Request-Headers")
            wanted = req.get("access-control-request-headers")
            if wanted and _TOKENS.fullmatch(wanted):
                res.header("Access-Control-Allow-Headers", wanted)
        if self.preflightStatus is None:
            return next()
        res.status(self.preflightStatus)
        # Without it some browsers wait for a body.
        res.header("Content-Length", "0")
        return res.end()


# The options


def _readOrigin(origin: Any, credentials: bool) -> str | Allow:
    """Return the constant origin to send, or a function that chooses it."""
    if isinstance(origin, str):
        if origin == "*" and credentials:
            raise ValueError(
                'cors: browsers refuse credentials with origin "*"; name the origins, '
                "or use origin=True if every site may act for your users"
            )
        if not _ORIGIN.fullmatch(origin):
            raise ValueError(f"cors: {origin!r} is not an origin")
        return origin
    if origin is True:
        return lambda requested, req: _reflect(requested)
    if callable(origin):
        return _byFunction(origin, credentials)
    rules = [origin] if isinstance(origin, re.Pattern) else origin
    if not isinstance(rules, list | tuple | set | frozenset):
        raise TypeError(f"cors: origin cannot be {origin!r}")
    return _byRules(rules)


def _reflect(requested: str) -> str:
    return requested if _ORIGIN.fullmatch(requested) else ""


def _byRules(rules: Any) -> Allow:
    for rule in rules:
        if not isinstance(rule, str | re.Pattern):
            raise TypeError(f"cors: origin contains strings and patterns, not {rule!r}")
        if rule == "*" or (isinstance(rule, str) and not _ORIGIN.fullmatch(rule)):
            raise ValueError(f'cors: {rule!r} is not an origin; for all origins use origin="*"')
        if isinstance(rule, re.Pattern) and not isinstance(rule.pattern, str):
            raise TypeError("cors: a pattern for origins matches text, not bytes")
    names = frozenset(rule for rule in rules if isinstance(rule, str))
    patterns = tuple(rule for rule in rules if isinstance(rule, re.Pattern))

    def allow(requested: str, req: Any) -> str:
        if requested in names or any(pattern.search(requested) for pattern in patterns):
            return _reflect(requested)
        return ""

    return allow


def _byFunction(function: Callable[..., Any], credentials: bool) -> Allow:
    decide = adaptHandler(function, "origin", "origin", "req")

    def allow(requested: str, req: Any) -> Any:
        return resolveThen(decide(requested, req), lambda result: read(requested, result))

    def read(requested: str, result: Any) -> str:
        if result is True:
            return _reflect(requested)
        if not result:
            return ""
        if not isinstance(result, str) or (result == "*" and credentials):
            raise TypeError(f"cors: the function for origin returned {result!r}")
        return result

    return allow


def _names(option: str, value: str | Sequence[str] | None) -> str:
    """Read names, separated by commas or in a list."""
    if value is None:
        return ""
    names = value.split(",") if isinstance(value, str) else list(value)
    names = [name.strip() for name in names if name.strip()]
    for name in names:
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"cors: {option} cannot contain {name!r}")
    return ",".join(names)
