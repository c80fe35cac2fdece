"""
Whose pages may connect: the C{Origin} that a browser sends with a WebSocket's handshake.

Two origins are the same if scheme, host and port are (RFC 6454 section 5). A client that sends
none is no browser, and is let in; C{null}, which any sandboxed page can send, never is.
"""

import re
from collections.abc import Iterable

from attrs import frozen

from storagegate.core.options import parseDecimal

_DEFAULT_PORTS = {"http": 80, "https": 443}

# RFC 6454 section 6.2, with the case that browsers have lowered already. A host has no characters
# that would end it, and an IPv6 address has brackets.
_HOST = r"(?P<host>\[[0-9a-f:.]{2,45}\]|[^\s/?#@:\[\]\\*]{1,253})(?::(?P<port>[0-9]{1,5}))?"
_ORIGIN = re.compile(rf"(?P<scheme>[a-z][a-z0-9+.-]{{0,40}})://{_HOST}")
_AUTHORITY = re.compile(_HOST)

ANY = "*"
"""Among the allowed origins: everybody's pages."""


@frozen
class Origin:
    """
    Where a page is from.

    @ivar port: C{None} where the scheme has no port.
    """

    scheme: str
    host: str
    port: int | None


def parseOrigin(text: str) -> Origin | None:
    """Read an origin; C{None} if it is none, or C{null}."""
    found = _ORIGIN.fullmatch(text.lower())
    if found is None:
        return None
    scheme = found["scheme"]
    return Origin(scheme, found["host"], _port(found["port"], scheme))


class OriginRule:
    """Says which origins may connect."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        """
        @param allowed: Origins such as C{https://example.com}; C{*} for all of them; none for the
            host's own pages.
        @raise ValueError: If one is no origin.
        """
        self._isOpen = False
        self._allowed: set[Origin] = set()
        for text in allowed:
            origin = parseOrigin(text)
            if text == ANY:
                self._isOpen = True
            elif origin is None:
                raise ValueError(f"has {text!r}, which is no origin such as https://example.com")
            else:
                self._allowed.add(origin)

    def admits(self, origin: str | None, host: str, secure: bool) -> bool:
        """
        Say whether a page may connect.

        @param origin: The field of that name, if there was one.
        @param host: The field C{Host}.
        @param secure: Whether the connection is encrypted.
        """
        if origin is None:
            return True
        page = parseOrigin(origin)
        if page is None:
            return False
        if self._isOpen or self._allowed:
            return self._isOpen or page in self._allowed
        return _isOwn(page, host, secure)


def _isOwn(page: Origin, host: str, secure: bool) -> bool:
    """Say whether a page is from the host that it connects to."""
    found = _AUTHORITY.fullmatch(host.lower())
    # A proxy may have taken the encryption off, but nobody puts it on for a page that has none.
    schemes = ("https",) if secure else ("http", "https")
    if found is None or page.scheme not in schemes:
        return False
    return (page.host, page.port) == (found["host"], _port(found["port"], page.scheme))


def _port(digits: str | None, scheme: str) -> int | None:
    if digits is None:
        return _DEFAULT_PORTS.get(scheme)
    return parseDecimal(digits.encode("ascii"), 99_999)
