"""
Protection against requests that another site makes in the name of a user (CSRF).

A browser sends cookies along with requests that other sites cause. It also says where a request
comes from: C{Sec-Fetch-Site} in every browser since 2023, C{Origin} in older ones, and neither can
be set by a page.
"""

import re
from collections.abc import Iterable
from typing import Any

from storagegate.core.options import OptionError, takesMapping
from storagegate.http.errors import HTTPError
from storagegate.http.layers import MiddlewareHandler

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""RFC 9110 section 9.2.1. What they change is not protected: they must not change anything."""

_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#@\s:]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}


@takesMapping
def sameOrigin(*, allow: Iterable[str] = ()) -> MiddlewareHandler:
    """
    Make the middleware that refuses what another site sent with the cookies of this one.

    GET, HEAD, OPTIONS, requests without a cookie and clients that are no browsers pass. Whether
    C{Origin} and C{Host} have the same scheme is not asked: behind a proxy nobody knows.

    @param allow: Other origins that may, such as C{"https://admin.example.com"}.
    @raise OptionError: If one of them is no origin.
    """
    if isinstance(allow, str):
        raise OptionError("the option allow is a list of origins")
    allowed = frozenset(_readAllowed(origin) for origin in allow)

    def handle(req: Any, res: Any, next: Any) -> Any:
        if req.method not in _SAFE and _isForeign(req.headers, req.host, allowed):
            raise HTTPError(403, "This request comes from another site", code="origin.foreign")
        return next()

    return handle


Origin = tuple[str, str, str]
"""Scheme, host and port, in lower case."""


def parseOrigin(text: str) -> Origin | None:
    """Read an origin (RFC 6454 section 6.2); C{None} for C{null} and whatever else is none."""
    match = _ORIGIN.fullmatch(text.lower())
    if match is None:
        return None
    scheme, host, port = match.groups()
    return scheme, host, port or _DEFAULT_PORTS.get(scheme, "")


def _readAllowed(text: Any) -> Origin:
    origin = parseOrigin(text) if isinstance(text, str) else None
    if origin is None:
        raise OptionError(f"the option allow has {text!r}, which is no scheme://host[:port]")
    return origin


def _isForeign(headers: Any, host: str | None, allowed: frozenset[Origin]) -> bool:
    if headers.get("cookie") is None:
        return False
    site = headers.get("sec-fetch-site")
    if site in ("same-origin", "none"):
        return False
    text = headers.get("origin")
    if text is None:
        return site is not None
    origin = parseOrigin(text)
    if origin is None:
        return True
    if origin in allowed:
        return False
    return site is not None or parseOrigin(f"{origin[0]}://{host}") != origin
