"""
Media types: reading a Content-Type, comparing it with what is wanted, knowing a file's type.

Comparison is that of C{type-is}, which Express and its parsers use. The types of files come from a
table, never from the machine: what a server says must not depend on its C{/etc/mime.types}.

C{Content-Disposition} of a response (RFC 6266)::

    attachment; filename="plans.pdf"
    attachment; filename="p?ns.pdf"; filename*=UTF-8''p%C3%A9ns.pdf

The second parameter (RFC 8187) is added where the first cannot hold the name; every browser of the
last ten years prefers it.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from types import MappingProxyType
from urllib.parse import quote

from msgspec import Struct

OCTETS = "application/octet-stream"
"""The type of what nothing is known of."""

# A type and its subtype, RFC 6838 section 4.2.
_TYPE = re.compile(
    r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}", re.ASCII | re.IGNORECASE
)

# The value in quotes or bare; junk after it is passed over.
_findParameters = re.compile(
    r";[ \t]*+([^;=\"\s]*+)[ \t]*=[ \t]*+(?:\"((?:[^\"\\]|\\.)*+)\"|([^;\"]*+))[^;]*+"
).finditer

_ESCAPE = re.compile(r"\\(.)")
_SPECIAL = re.compile(r'["\\]')

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_SHORT_TYPES = {"urlencoded": "application/x-www-form-urlencoded", "multipart": "multipart/*"}

# Where the standard library's table is silent, dated, or changes with Python's version.
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
    """Return the table, made when it is first needed: an idle server has no use for it."""
    from mimetypes import MimeTypes

    # Of the standard library only what is compiled in, not what it read from the machine.
    known = MimeTypes().types_map[True]
    return {**{extension[1:]: type for extension, type in known.items()}, **_BETTER_TYPES}


# Types beside text/* that are text in UTF-8, as C{mime-types} has them.
_TEXTUAL = frozenset(
    ("application/json", "application/javascript", "application/manifest+json", "application/node")
)


class ContentType(Struct, frozen=True):
    """
    A Content-Type.

    @ivar type: Type and subtype in lower case; the text before the first semicolon if it is none.
    @ivar parameters: Values by name in lower case; of one that came twice, the first.
    """

    type: str
    parameters: MappingProxyType[str, str]

    @property
    def charset(self) -> str | None:
        """Return the charset in lower case, C{None} if there is none."""
        return self.parameters.get("charset", "").lower() or None


def parseContentType(value: str) -> ContentType:
    """Read a Content-Type, leniently: parameters that are malformed are passed over."""
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
    Return which of some types a Content-Type is.

    @param value: The field's value, with or without parameters; C{None} if it is absent.
    @param wanted: One or several of: a type; one with wildcards (C{text/*}, C{*/*+json}); a suffix
        (C{+json}); an extension (C{json}); C{urlencoded}; C{multipart}.
    @return: The first that matches, as it is written in C{wanted}; the type itself for a wildcard
        or a suffix, and where nothing is wanted. C{None} if nothing matches.
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
    Return whether a Content-Type is one that tools such as curl send where none is named.

    Pages of any origin may send these as well without a preflight, but browsers then name the
    origin.

    @param headers: The header fields of a request, names in lower case.
    """
    kind = headers.get(b"content-type", b"").lower()
    isDefault = kind in (b"application/x-www-form-urlencoded", b"text/plain")
    return isDefault and b"origin" not in headers


def lookupType(name: str) -> str | None:
    """
    Return the type that an extension stands for.

    @param name: An extension with or without its dot, or a file's name or path.
    """
    base = name.replace("\\", "/").rpartition("/")[2]
    stem, dot, extension = base.rpartition(".")
    if dot and not stem and base != name:
        # A path whose last part is a dotfile: it has no extension.
        return None
    return _types().get(extension.lower())


# An application names a few types; reading one takes 2 microseconds.
_remembering = lru_cache(maxsize=256)


@_remembering
def withCharset(value: str) -> str:
    """Add C{charset=utf-8} to a Content-Type that is text and has none."""
    parsed = parseContentType(value)
    textual = parsed.type.startswith("text/") or parsed.type in _TEXTUAL
    return f"{value}; charset=utf-8" if textual and "charset" not in parsed.parameters else value


@_remembering
def withUTF8(value: str) -> str:
    """Return a Content-Type with C{charset=utf-8} instead of its own; other parameters stay."""
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

    @return: L{OCTETS} if nothing is known of it.
    """
    return withCharset(lookupType(name) or OCTETS)


def _expand(name: str) -> str:
    """Write a wanted type in full; the empty string if there is no such."""
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

# What RFC 8187 lets stand for itself, besides letters and digits.
_ATTRIBUTE_SAFE = "!#$&+-.^_`|~"


def contentDisposition(filename: str | None = None, kind: str = "attachment") -> str:
    """
    Write a C{Content-Disposition}.

    @param filename: The name to offer; of a path only the last part is used, for no client would
        take the rest.
    @param kind: C{attachment} or C{inline}.
    @raise ValueError: If the name has a control character, or the kind is no token.
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
    # Some clients decode an escape in the plain parameter; the other says that it is meant.
    if not _NOT_PLAIN.search(name) and not _ESCAPE_LOOKALIKE.search(name):
        return field
    # A file name of undecodable bytes has lone surrogates, which UTF-8 cannot write.
    return f"{field}; filename*=UTF-8''{quote(name, _ATTRIBUTE_SAFE, errors='replace')}"
