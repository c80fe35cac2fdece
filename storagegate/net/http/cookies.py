"""
Cookies: parsing of C{Cookie}, serialisation of C{Set-Cookie}, and signed values.

The grammar, RFC 6265 section 4::

    Cookie     = pair *( ";" pair )
    Set-Cookie = pair *( "; " attribute )
    pair       = name "=" value
    value      = percent-encoded text, perhaps in quotes

    signed     = value "." signature
    signature  = base64 of HMAC-SHA256( secret, value ), without "="
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from hmac import compare_digest
from hmac import new as newHMAC
from urllib.parse import quote, unquote

from storagegate.net.http.ranges import formatHttpDate

COOKIE_BYTES = 4096
"""Maximum length of a cookie: RFC 6265 section 6.1 guarantees no more, and no browser stores
more."""

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
_DOMAIN = re.compile(
    r"\.?[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*",
    re.ASCII | re.IGNORECASE,
)
_PATH = re.compile(r"[\x20-:<-~]*")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")

# Characters that encodeURIComponent leaves unescaped, in addition to letters and digits.
_PLAIN = "-_.!~*'()"

_SAME_SITE = {"strict": "Strict", "lax": "Lax", "none": "None"}
_PRIORITY = {"low": "Low", "medium": "Medium", "high": "High"}


def parseCookies(header: str) -> dict[str, str]:
    """
    Parse a Cookie header.

    The first of two cookies with one name applies, as browsers send the one with the longer path
    first. A pair over 4096 characters is ignored; a value with malformed escapes stays unchanged.

    @param header: The value of the field, decoded as Latin-1 or UTF-8.
    """
    cookies: dict[str, str] = {}
    for pair in header.split(";"):
        name, equals, value = pair.partition("=")
        name = name.strip(" \t")
        if not equals or len(pair) > COOKIE_BYTES or name in cookies:
            continue
        value = value.strip(" \t")
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        cookies[name] = value
        if "%" in value and not _BAD_ESCAPE.search(value):
            with suppress(UnicodeDecodeError):
                cookies[name] = unquote(value, errors="strict")
    return cookies


def serializeCookie(
    name: str,
    value: str,
    *,
    path: str | None = "/",
    domain: str | None = None,
    maxAge: float | None = None,
    expires: float | datetime | None = None,
    httpOnly: bool = False,
    secure: bool = False,
    sameSite: bool | str | None = None,
    priority: str | None = None,
    partitioned: bool = False,
) -> str:
    """
    Return the value of a Set-Cookie header.

    @param name: A token of RFC 6265; other names raise L{ValueError}.
    @param value: Any text; it is percent-encoded.
    @param path: The C{Path}; C{None} or an empty string omits it, so that the browser derives it.
    @param domain: The C{Domain}; C{None} omits it, so that the cookie is only for this host.
    @param maxAge: Milliseconds, rounded down to seconds. C{Expires} is not derived from it.
    @param expires: Seconds since the epoch, or an aware C{datetime}.
    @param httpOnly: Whether the cookie is hidden from scripts of a page.
    @param secure: Whether it is sent only over HTTPS.
    @param sameSite: C{True} or C{"strict"}, C{"lax"}, C{"none"} (which has to be C{secure}).
    @param priority: C{"low"}, C{"medium"} or C{"high"}.
    @param partitioned: Whether it is stored separately for each top-level site.
    @raise ValueError: If a part is invalid, or the cookie exceeds 4096 bytes.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"not the name of a cookie: {name!r}")
    parts = [f"{name}={quote(value, safe=_PLAIN)}"]
    if maxAge is not None:
        parts.append(f"Max-Age={_seconds(maxAge)}")
    if domain:
        if not _DOMAIN.fullmatch(domain):
            raise ValueError(f"not the domain of a cookie: {domain!r}")
        parts.append(f"Domain={domain}")
    if path:
        if not _PATH.fullmatch(path):
            raise ValueError(f"not the path of a cookie: {path!r}")
        parts.append(f"Path={path}")
    if expires is not None:
        parts.append(f"Expires={_date(expires)}")
    flags = {"HttpOnly": httpOnly, "Secure": secure, "Partitioned": partitioned}
    parts.extend(flag for flag, on in flags.items() if on)
    if priority:
        parts.append(f"Priority={_word('priority', priority, _PRIORITY)}")
    if sameSite:
        site = _word("sameSite", "strict" if sameSite is True else sameSite, _SAME_SITE)
        if site == "None" and not secure:
            raise ValueError("a cookie with sameSite none has to be secure: browsers refuse others")
        parts.append(f"SameSite={site}")
    cookie = "; ".join(parts)
    if len(cookie) > COOKIE_BYTES:
        raise ValueError(f"the cookie {name} has {len(cookie)} bytes; {COOKIE_BYTES} are allowed")
    return cookie


def _seconds(ms: float) -> int:
    try:
        return int(ms // 1000)
    except (OverflowError, ValueError):
        raise ValueError(f"not the maxAge of a cookie: {ms!r}") from None


def _date(expires: float | datetime) -> str:
    try:
        seconds = expires.timestamp() if isinstance(expires, datetime) else expires
        return formatHttpDate(int(seconds)).decode("ascii")
    except (OverflowError, ValueError, OSError):
        raise ValueError(f"not the time that a cookie expires at: {expires!r}") from None


def _word(option: str, value: str, words: dict[str, str]) -> str:
    word = words.get(value.lower())
    if word is None:
        raise ValueError(f"{option} of a cookie is one of {', '.join(words)}, not {value!r}")
    return word


def signValue(value: str, secret: str | bytes) -> str:
    """
    Append a signature to a value, as C{cookie-signature} does.

    @param value: Any text; it stays readable before the signature.
    @param secret: The key of HMAC-SHA256; text is encoded as UTF-8.
    """
    key = secret.encode() if isinstance(secret, str) else secret
    signature = newHMAC(key, value.encode("utf-8", "surrogatepass"), sha256).digest()
    return f"{value}.{b64encode(signature).decode('ascii').rstrip('=')}"


def unsignValue(signed: str, secrets: str | bytes | Sequence[str | bytes]) -> str | None:
    """
    Return the value if it was signed with one of the secrets, otherwise C{None}.

    Every secret is tried, in constant time, so that timing reveals nothing about the match.

    @param signed: A result of L{signValue}, as returned by the client.
    @param secrets: One key, or the current key and former ones.
    """
    if isinstance(secrets, str | bytes):
        secrets = (secrets,)
    value = signed.rpartition(".")[0]
    given = signed.encode("utf-8", "surrogatepass")
    found = False
    for secret in secrets:
        expected = signValue(value, secret).encode("utf-8", "surrogatepass")
        found = compare_digest(given, expected) or found
    return value if found else None
