"""
Media types: parsing and matching of Content-Type, and the types of files.

Matching follows C{type-is}, which Express and its parsers use. The types of files come from a
table, never from the machine, so that responses do not depend on C{/etc/mime.types}.

C{Content-Disposition} of a response (RFC 6266)::

    attachment; filename="plans.pdf"
    attachment; filename="p?ns.pdf"; filename*=UTF-8''p%C3%A9ns.pdf

The second parameter (RFC 8187) is added if the first cannot represent the name; every browser of
the last ten years prefers it.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from types import MappingProxyType
from urllib.parse import quote

from msgspec import Struct

OCTETS = "application/octet-stream"
"""The type of unknown content."""

# A type and its subtype, RFC 6838 section 4.2.
_TYPE = re.compile(
    r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}", re.ASCII | re.IGNORECASE
)

# The value in quotes or bare; junk after it is ignored.
_findParameters = re.compile(
    r";[ \t]*+([^;=\"\s]*+)[ \t]*=[ \t]*+(?:\"((?:[^\"\\]|\\.)*+)\"|([^;\"]*+))[^;]*+"
).finditer

_ESCAPE = re.compile(r"\\(.)")
_SPECIAL = re.compile(r'["\\]')

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_SHORT_TYPES = {"urlencoded": "application/x-www-form-urlencoded", "multipart": "multipart/*"}

# Types that the standard library's table lacks, has outdated, or changes with the version of
# Python.
_BETTER_TYPES = {
    "apng": "image/apng",
    "appcache": "text/cache-manifest",
    "atom": "application/atom+xml",
    "avif": "image/avif",
    "br": "application/x-brotli",
    "bz2": "application/x-bzip2",
    "cjs": "application/node",
    "conf": "text/plain",
    "def": "text/plain",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "epub": "application/epub+zip",
    "flac": "audio/flac",
    "geojson": "application/geo+json",
    "gz": "application/gzip",
    "ics": "text/calendar",
    "ini": "text/plain",
    "js": "text/javascript",
    "json5": "application/json5",
    "jsonld": "application/ld+json",
    "jxl": "image/jxl",
    "list": "text/plain",
    "log": "text/plain",
    "m4a": "audio/mp4",
    "m4v": "video/mp4",
    "map": "application/json",
    "markdown": "text/markdown",
    "md": "text/markdown",
    "mjs": "text/javascript",
    "mkv": "video/matroska",
    "mpd": "application/dash+xml",
    "oga": "audio/ogg",
    "ogg": "audio/ogg",
    "ogv": "video/ogg",
    "opus": "audio/ogg",
    "otf": "font/otf",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "rar": "application/vnd.rar",
    "rss": "application/rss+xml",
    "rtf": "application/rtf",
    "text": "text/plain",
    "toml": "application/toml",
    "ttf": "font/ttf",
    "wav": "audio/wav",
    "weba": "audio/webm",
    "webp": "image/webp",
    "woff": "font/woff",
    "woff2": "font/woff2",
    "xhtml": "application/xhtml+xml",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xml": "application/xml",
    "yaml": "text/yaml",
    "yml": "text/yaml",
    "zst": "application/zstd",
    "7z": "application/x-7z-compressed",
}


@cache
def _types() -> dict[str, str]:
    """Return the table, built on first use, as an idle server does not need it."""
    from mimetypes import MimeTypes

    # Only the standard library's built-in types, without the machine's files.
    known = MimeTypes().types_map[True]
    return {**{extension[1:]: type for extension, type in known.items()}, **_BETTER_TYPES}


# Types other than text/* that are UTF-8 text, as in mime-types.
_TEXTUAL = frozenset(
    ("application/json", "application/javascript", "application/manifest+json", "application/node")
)


class ContentType(Struct, frozen=True):
    """
    A Content-Type.

    @ivar type: Type and subtype in lower case; if malformed, the text before the first semicolon.
    @ivar parameters: Values by name in lower case; the first of a repeated name.
    """

    type: str
    parameters: MappingProxyType[str, str]

    @property
    def charset(self) -> str | None:
        """Return the charset in lower case, or C{None}."""
        return self.parameters.get("charset", "").lower() or None


def parseContentType(value: str) -> ContentType:
    """Parse a Content-Type leniently; malformed parameters are ignored."""
    kind, semicolon, _ = value.partition(";")
    parameters: dict[str, str] = {}
    if semicolon:
        for match in _findParameters(value, len(kind)):
            name, quoted, bare = match.groups()
            if quoted is not None:
                bare = _ESCAPE.sub(r"\1", quoted)
            parameters.setdefault(name.lower(), bare.rstrip(" \t"))
    return ContentType(kind.strip(" \t").lower(), MappingProxyType(parameters))


def matchesType(value: str | None, wanted: str | Sequence[str]) -> str | None:
    """
    Return the type that a Content-Type matches.

    @param value: The field's value, with or without parameters; C{None} if it is absent.
    @param wanted: One or several of: a type; one with wildcards (C{text/*}, C{*/*+json}); a suffix
        (C{+json}); an extension (C{json}); C{urlencoded}; C{multipart}.
    @return: The first match, as written in C{wanted}; the actual type for a wildcard or a suffix,
        or if C{wanted} is empty. C{None} if nothing matches.
    """
    if not value:
        return None
    actual = value.partition(";")[0].strip(" \t").lower()
    if not _TYPE.fullmatch(actual):
        return None
    if not wanted:
        return actual
    for name in (wanted,) if isinstance(wanted, str) else wanted:
        if _matches(actual, _expand(name)):
            return actual if name.startswith("+") or "*" in name else name
    return None


def isToolDefault(headers: Mapping[bytes, bytes]) -> bool:
    """
    Return whether a Content-Type is one that tools such as curl send by default.

    Pages of any origin may send these types without a preflight, but browsers then send C{Origin}.

    @param headers: The header fields of a request, names in lower case.
    """
    kind = headers.get(b"content-type", b"").lower()
    isDefault = kind in (b"application/x-www-form-urlencoded", b"text/plain")
    return isDefault and b"origin" not in headers


def lookupType(name: str) -> str | None:
    """
    Return the type for an extension.

    @param name: An extension with or without its dot, or a file's name or path.
    """
    base = name.replace("\\", "/").rpartition("/")[2]
    stem, dot, extension = base.rpartition(".")
    if dot and not stem and base != name:
        # The last part of the path is a dotfile without an extension.
        return None
    return _types().get(extension.lower())


# An application uses a few types; parsing one takes 2 microseconds.
_remembering = lru_cache(maxsize=256)


@_remembering
def withCharset(value: str) -> str:
    """Add C{charset=utf-8} to a text Content-Type without a charset."""
    parsed = parseContentType(value)
    textual = parsed.type.startswith("text/") or parsed.type in _TEXTUAL
    return f"{value}; charset=utf-8" if textual and "charset" not in parsed.parameters else value


@_remembering
def withUTF8(value: str) -> str:
    """
    Return a Content-Type with its charset replaced by C{charset=utf-8}; other parameters stay.
    """
    if value.endswith("; charset=utf-8"):
        return value
    parsed = parseContentType(value)
    if "charset" not in parsed.parameters:
        return f"{value}; charset=utf-8"
    field = parsed.type
    for name, each in parsed.parameters.items():
        if name != "charset":
            quoted = each if _TOKEN.fullmatch(each) else '"' + _SPECIAL.sub(r"\\\g<0>", each) + '"'
            field += f"; {name}={quoted}"
    return f"{field}; charset=utf-8"


def contentTypeOf(name: str) -> str:
    """
    Return the Content-Type of a file or an extension, with its charset if it is text.

    @return: L{OCTETS} if the type is unknown.
    """
    return withCharset(lookupType(name) or OCTETS)


def _expand(name: str) -> str:
    """Expand a wanted type; return an empty string for an unknown one."""
    if name.startswith("+"):
        return f"*/*{name}".lower()
    if "/" in name:
        return name.lower()
    return _SHORT_TYPES.get(name) or lookupType(name) or ""


def _matches(actual: str, expected: str) -> bool:
    kind, _, subtype = actual.partition("/")
    wantedKind, slash, wantedSubtype = expected.partition("/")
    if not slash or wantedKind not in ("*", kind):
        return False
    if wantedSubtype.startswith("*+"):
        return subtype.endswith(wantedSubtype[1:])
    return wantedSubtype in ("*", subtype)


_ESCAPE_LOOKALIKE = re.compile(r"%[0-9A-Fa-f]{2}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NOT_PLAIN = re.compile(r"[^\x20-\x7e]")

# Characters that RFC 8187 leaves unescaped, in addition to letters and digits.
_ATTRIBUTE_SAFE = "!#$&+-.^_`|~"


def contentDisposition(filename: str | None = None, kind: str = "attachment") -> str:
    """
    Make a C{Content-Disposition}.

    @param filename: The name to offer; only the last part of a path is used, as clients ignore the
        rest.
    @param kind: C{attachment} or C{inline}.
    @raise ValueError: If the name has a control character, or the kind is not a token.
    """
    if not _TOKEN.fullmatch(kind):
        raise ValueError(f"{kind!r} is not a kind of disposition")
    if filename is None:
        return kind
    if _CONTROL.search(filename):
        raise ValueError("a file name has a control character")
    name = filename.rpartition("/")[2]
    plain = _SPECIAL.sub(r"\\\g<0>", _NOT_PLAIN.sub("?", name))
    field = f'{kind}; filename="{plain}"'
    # Some clients decode escapes in the plain parameter; the extended one is unambiguous.
    if not _NOT_PLAIN.search(name) and not _ESCAPE_LOOKALIKE.search(name):
        return field
    # A file name of undecodable bytes has lone surrogates, which UTF-8 cannot encode.
    return f"{field}; filename*=UTF-8''{quote(name, _ATTRIBUTE_SAFE, errors='replace')}"
