"""
C{Content-Disposition} of a response (RFC 6266)::

    attachment; filename="plans.pdf"
    attachment; filename="p?ns.pdf"; filename*=UTF-8''p%C3%A9ns.pdf

The second parameter (RFC 8187) is there where the first cannot say the name; every browser of the
last ten years takes it first.
"""

import re
from urllib.parse import quote

_PLAIN = re.compile(r"[\x20-\x7e]*")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_QUOTED = re.compile(r'[\\"]')
_NOT_PLAIN = re.compile(r"[^\x20-\x7e]")
_TOKEN = re.compile(r"[!#$%&'*+.0-9A-Z^_`a-z|~-]+")

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
    plain = _QUOTED.sub(r"\\\g<0>", _NOT_PLAIN.sub("?", name))
    field = f'{kind}; filename="{plain}"'
    # Some clients decode an escape in the plain parameter; the other says that it is meant.
    if _PLAIN.fullmatch(name) and not _ESCAPE.search(name):
        return field
    # A file name of undecodable bytes has lone surrogates, which UTF-8 cannot write.
    return f"{field}; filename*=UTF-8''{quote(name, _ATTRIBUTE_SAFE, errors='replace')}"
