"""The URL of a standard request, taken apart."""

import re
from urllib.parse import quote

from attrs import frozen

_ABSOLUTE = re.compile(r"(https?)://([^/?#]*)([^#]*)", re.IGNORECASE | re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_AUTHORITY = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[\w\-.~%!$&'()*+,;=]+)(?::[0-9]{0,5})?", re.ASCII)

# What may stand in a path or query as it is; the percent sign, for what is encoded already.
_SAFE = "/?%:@!$&'()*+,;=-._~[]|^\\`{}"

_DEFAULT_HOST = "localhost"


@frozen
class TargetURL:
    """
    Where a request goes.

    @ivar secure: Whether by C{https}.
    @ivar authority: Host and perhaps port.
    @ivar target: Path and query, encoded, and otherwise as they were given: dot segments stay, so
        that a server can be tried with them.
    """

    secure: bool
    authority: str
    target: str

    def __str__(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.target}"


def parseURL(url: str) -> TargetURL:
    """
    Take a URL apart; a path alone is one on C{http://localhost}. A fragment is dropped.

    @raise ValueError: If it is none that a request can be made to.
    """
    if not isinstance(url, str):
        raise ValueError(f"a URL is text, not {type(url).__name__}")
    if _CONTROL.search(url):
        raise ValueError("a URL holds no control characters")
    if url.startswith("/"):
        return TargetURL(False, _DEFAULT_HOST, encodeTarget(url.partition("#")[0]))
    match = _ABSOLUTE.match(url)
    if match is None:
        raise ValueError(f"{url!r} is neither an http or https URL nor a path")
    scheme, authority, target = match.groups()
    if not authority.isascii():
        authority = authority.encode("idna").decode("ascii")
    if not _AUTHORITY.fullmatch(authority):
        raise ValueError(f"the host of {url!r} is malformed, or holds a user name")
    if not target.startswith("/"):
        target = "/" + target
    return TargetURL(scheme.lower() == "https", authority.lower(), encodeTarget(target))


def encodeTarget(target: str) -> str:
    """Percent-encode what may not go over the wire as it is; escapes that are there stay."""
    return quote(target, safe=_SAFE)
