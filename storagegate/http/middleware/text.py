"""Bodies of text."""

import codecs
from collections.abc import Callable
from typing import Any

from storagegate.http.bodies import BodyOptions, BodyParser, Wanted, decodeText

# Python's codecs for what browsers know. Looking up what a client names would import modules and
# keep every name for ever; UTF-7 hides markup.
_CODECS = """
    utf-8 utf-16 utf-16-be utf-16-le utf-32 utf-32-be utf-32-le ascii
    iso8859-1 iso8859-2 iso8859-3 iso8859-4 iso8859-5 iso8859-6 iso8859-7 iso8859-8 iso8859-9
    iso8859-10 iso8859-11 iso8859-13 iso8859-14 iso8859-15 iso8859-16
    cp866 cp874 cp932 cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258
    koi8-r koi8-u mac-roman mac-cyrillic
    big5 big5hkscs euc-jp euc-kr gb2312 gbk gb18030 shift_jis iso2022_jp
"""

# What they are called on the wire, where that is not the codec's own name.
_NAMES = {
    "utf8": "utf-8",
    "utf-16be": "utf-16-be",
    "utf-16le": "utf-16-le",
    "utf-32be": "utf-32-be",
    "utf-32le": "utf-32-le",
    "us-ascii": "ascii",
    "latin1": "iso8859-1",
    "ibm866": "cp866",
    "windows-31j": "cp932",
    "macintosh": "mac-roman",
    "x-mac-cyrillic": "mac-cyrillic",
    "big5-hkscs": "big5hkscs",
    "sjis": "shift_jis",
    "x-sjis": "shift_jis",
    "iso-2022-jp": "iso2022_jp",
}


def _findCharsets() -> dict[str, str]:
    charsets = dict(_NAMES)
    for codec in _CODECS.split():
        # Imported now: later it would be in the middle of a request.
        codecs.lookup(codec)
        charsets[codec] = codec
        charsets[codec.replace("iso8859-", "iso-8859-")] = codec
        charsets[codec.replace("cp", "windows-")] = codec
    return charsets


CHARSETS = _findCharsets()
"""The charsets of text that can be read, in lower case, and their codecs."""


def text(
    type: Wanted = "text/plain",
    limit: int | str = "100kb",
    defaultCharset: str = "utf-8",
    inflate: bool = True,
    verify: Callable[[Any, Any, bytes, str | None], Any] | None = None,
) -> Callable[..., Any]:
    """
    Make middleware that decodes bodies into C{req.body}, as C{str}.

    What is malformed in the charset becomes U+FFFD; a byte order mark is dropped. Errors: those of
    L{json<storagegate.http.middleware.json.json>}.

    @param type: The media type, several, or C{(req) -> bool}.
    @param limit: How long a body may be once inflated, in bytes or text.
    @param defaultCharset: That of a body which names none.
    @param inflate: Whether to take bodies with a Content-Encoding.
    @param verify: Called C{(req, res, body, charset)} before decoding; refuses by raising.
    @raise ValueError: If the limit is no size, or the charset is not known.
    """
    default = defaultCharset.lower()
    if default not in CHARSETS:
        raise ValueError(f"the option defaultCharset is no charset that is known: {defaultCharset}")
    options = BodyOptions(limit=limit, type=type, inflate=inflate, verify=verify)
    return BodyParser(options, _parse, CHARSETS, default).handle


def _parse(body: bytes, codec: str) -> str:
    return decodeText(body, codec, "replace")
