"""
Compression of responses.

The decisions for a response, in this order, as Express's C{compression} makes them:

 1. Responses that the filter rejects stay unchanged; by default, types that do not compress.
 2. Responses with C{Cache-Control: no-transform} stay unchanged.
 3. All others get C{Vary: Accept-Encoding}, encoded or not.
 4. Bodies below the threshold, already encoded bodies, partial bodies (206: the client joins them
    with unencoded parts) and responses to HEAD are not encoded.
 5. The client's q-values choose the coding; equal ones are ranked C{br}, C{zstd}, C{gzip},
    C{deflate}. A client that accepts none of them gets the plain body.

An encoded response has other bytes than the plain one: a strong ETag becomes weak, and
C{Accept-Ranges} is removed, as ranges are served only of the plain body.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from attrs import frozen
from zope.interface import classImplements

from storagegate.core.options import parseSize, takesMapping
from storagegate.http.contenttypes import parseContentType
from storagegate.http.dispatch import MiddlewareHandler
from storagegate.http.encoding import CODINGS, LEVELS, BodyEncoder, IBodyEncoder, makeEncoder
from storagegate.http.negotiation import preferredEncodings

# The encoders' module is below the response, and does not import its interface.
classImplements(BodyEncoder, IBodyEncoder)

_OFFERED = (*CODINGS, "identity")

_EVENTS = "text/event-stream"

_TEXT_SUFFIXES = ("+json", "+text", "+xml")

# In addition to text/* and the suffixes: other text types, and uncompressed formats.
# application/octet-stream is omitted, as most files of unknown type are already compressed.
_COMPRESSIBLE = frozenset(
    (
        "application/ecmascript",
        "application/javascript",
        "application/json",
        "application/json5",
        "application/postscript",
        "application/rtf",
        "application/toml",
        "application/vnd.ms-fontobject",
        "application/wasm",
        "application/x-javascript",
        "application/x-ns-proxy-autoconfig",
        "application/x-sh",
        "application/x-tar",
        "application/x-www-form-urlencoded",
        "application/xml",
        "application/xml-dtd",
        "application/yaml",
        "font/otf",
        "font/ttf",
        "image/bmp",
        "image/vnd.microsoft.icon",
        "image/x-icon",
        "message/rfc822",
        "model/gltf-binary",
    )
)

Filter = Callable[[Any, Any], bool]


@lru_cache(maxsize=256)
def compressible(contentType: str) -> bool:
    """
    Return whether bodies of a Content-Type compress well.

    @param contentType: The value of the field; parameters are ignored.
    """
    kind = parseContentType(contentType).type
    return kind.startswith("text/") or kind.endswith(_TEXT_SUFFIXES) or kind in _COMPRESSIBLE


def shouldCompress(req: Any, res: Any) -> bool:
    """Return whether a response's type compresses well: the default filter of L{compression}."""
    contentType = res.get("Content-Type")
    return isinstance(contentType, str) and compressible(contentType)


@takesMapping
def compression(
    threshold: int | str = 1024, level: int = -1, filter: Filter | None = None
) -> MiddlewareHandler:
    """
    Make middleware that compresses responses.

    @param threshold: The minimum size of a body to compress, in bytes or as C{"1kb"}. A body of
        unknown length is always compressed.
    @param level: From 0 (stored) to 9 (smallest), or -1 for the default: 6 for C{gzip} and
        C{deflate}, 3 for C{zstd}. C{br} always has quality 4.
    @param filter: C{filter(req, res)} returns whether a response may be compressed; replaces
        L{shouldCompress}.
    @raise ValueError: If C{threshold} is not a size, or C{level} not a number from -1 to 9.
    """
    if isinstance(level, bool) or not isinstance(level, int) or level not in LEVELS:
        raise ValueError(f"the level of compression is a number from -1 to 9, not {level!r}")
    if not isinstance(threshold, int | str):
        raise ValueError(f"the threshold of compression is a size, not {threshold!r}")
    rules = _Rules(parseSize(threshold), level, filter or shouldCompress)

    def compress(req: Any, res: Any, next: Any) -> Any:
        res.beforeHead(partial(rules.describeUnmodified, req, res))
        res.encodeBody(partial(rules.chooseEncoder, req, res))
        return next()

    return compress


@frozen
class _Rules:
    """The options of one C{compression()}."""

    threshold: int
    level: int
    filter: Filter

    def chooseEncoder(self, req: Any, res: Any, length: int | None) -> BodyEncoder | None:
        """Choose an encoder for a response, and set its fields."""
        if not self._mayVary(req, res):
            return None
        res.vary("Accept-Encoding")
        # An empty body is never compressed, even with a threshold of 0.
        if length is not None and length < max(self.threshold, 1):
            return None
        if res.statusCode == 206 or _isEncoded(res) or req.method == "HEAD":
            return None
        coding = _negotiate(req)
        if coding is None:
            return None
        res.header("Content-Encoding", coding)
        res.remove("Accept-Ranges")
        _weakenETag(res)
        flushes = parseContentType(res.get("Content-Type") or "").type == _EVENTS
        return makeEncoder(coding, self.level, length, flushes)

    def describeUnmodified(self, req: Any, res: Any) -> None:
        """
        Give a 304 the Vary and the ETag that the 200 would have (RFC 9110 section 15.4.5).

        The length of the body is unknown; a weak ETag is correct in either case.
        """
        if res.statusCode == 304 and self._mayVary(req, res):
            res.vary("Accept-Encoding")
            if _negotiate(req) is not None and not _isEncoded(res):
                _weakenETag(res)

    def _mayVary(self, req: Any, res: Any) -> bool:
        caching = res.get("Cache-Control") or ""
        directives = (caching if isinstance(caching, str) else ",".join(caching)).split(",")
        isFixed = "no-transform" in [each.strip().lower() for each in directives]
        return bool(self.filter(req, res)) and not isFixed


def _isEncoded(res: Any) -> bool:
    return (res.get("Content-Encoding") or "identity") != "identity"


def _negotiate(req: Any) -> str | None:
    """Return the coding that the client prefers; C{None} for the plain body."""
    preferred = preferredEncodings(req.get("accept-encoding"), _OFFERED, CODINGS)
    return preferred[0] if preferred and preferred[0] != "identity" else None


def _weakenETag(res: Any) -> None:
    etag = res.get("ETag")
    if isinstance(etag, str) and not etag.startswith("W/"):
        res.header("ETag", f"W/{etag}")
