"""
Removal of secrets from log text.

The daemon's own lines contain no secrets, but the message of an exception, a library's log line or
the output of a user's handler may hold anything sent by a client. Known secrets are replaced
everywhere, others by their shape.
"""

import base64
import re
from collections.abc import Iterable
from functools import cache
from urllib.parse import quote

from msgspec import json

HIDDEN = "***"
"""The replacement for a secret."""

SHORT = 8
"""A known secret shorter than this is replaced only as a whole word."""

_HINTS = (
    "secret",
    "token",
    "passw",
    "passphrase",
    "pwd",
    "auth",
    "cookie",
    "sign",
    "key",
    "bearer",
    "basic",
    "eyj",
    "://",
    "aws",
    "jwt",
    "credential",
    "session",
)
"""Every text that a shape may match contains one of these, and searching for them is cheap."""

_SHORT_TEXT = 256
"""Length up to which one combined search is used: for an object key, it takes a third of the
time."""

_hint = re.compile("|".join(map(re.escape, _HINTS))).search

_NAME = (
    r"(?:secret(?:[-_]?access)?[-_]?key|secret|passw(?:or)?d|pwd|passphrase|token|signature|"
    r"api[-_]?key|private[-_]?key|customer[-_]?key|jwt|session[-_]?id)"
)
"""The end of a name whose value is a secret."""

_ENDS = ("secret", "key", "word", "wd", "phrase", "token", "signature", "jwt", "id")
"""The ends of these names."""

_FIELD = r"(?:(?:proxy-)?authorization|(?:set-)?cookie2?)"
"""Header fields whose whole value is hidden."""

_QUOTED = r"""(?:"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?)"""
_BARE = r"""[^\s,;&)}\]"'#]"""

# No pattern begins with a repetition that can begin anywhere, so each takes linear time.
_SHAPES = (
    # A private key file.
    (
        r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)[\s\S]*?(?:(?=-----END )|\Z)",
        rf"\1{HIDDEN}",
        ("-----begin ",),
    ),
    # "name": "value", ('name', 'value'), {b'name': [b'value']}, (key='name', value='value'), as
    # JSON and Python write them; quotes in nested text have backslashes.
    (
        rf"""(["'](?:[\w.-]{{0,40}}{_NAME}|{_FIELD})\\*["']\s*[:,=]\s*(?:[\[(]\s*|value=)?b?)"""
        rf"""(?:\\+"(?:[^"\\]|\\+[^"\\])*\\+"|{_QUOTED}|{_BARE}+)""",
        rf"\1{HIDDEN}",
        ('"', "'"),
    ),
    # name=value, as queries, repr() and logfmt write them.
    (rf"({_NAME}=)(?:b?{_QUOTED}|{_BARE}+)", rf"\1{HIDDEN}", tuple(f"{end}=" for end in _ENDS)),
    # Authorization: value, to the line's end.
    (
        rf"""(\b{_FIELD}\s*[:=]\s*)[^\r\n"']+""",
        rf"\1{HIDDEN}",
        ("authorization", "cookie"),
    ),
    # X-Api-Key: value, password: value; "token:" is often followed by an ordinary word.
    (
        rf"({_NAME}:\s*)(?:b?{_QUOTED}|(?=\S{{0,64}}[\d/+=_]){_BARE}{{6,}})",
        rf"\1{HIDDEN}",
        tuple(f"{end}:" for end in _ENDS),
    ),
    (r"(\bBearer\s+)[\w.~+/=:-]{4,}", rf"\1{HIDDEN}", ("bearer",)),
    # Base64 has capitals or digits; the word after "basic" in a sentence has neither.
    (r"(\bBasic\s+)(?=\S{0,64}(?-i:[A-Z0-9=]))[\w+/=-]{4,}", rf"\1{HIDDEN}", ("basic",)),
    # A version 2 signature follows the access key.
    (r"(\bAWS [\w-]{3,128}:)\S+", rf"\1{HIDDEN}", ("aws ",)),
    # A JSON Web Token begins with {" in Base64. The pattern starts at the beginning of a run of
    # characters: if it started at each eyJ, a run of 64 KB without a dot would take seconds.
    (
        r"(?<![\w-])(?=[\w-]*\.)([\w-]*?)\beyJ[\w-]{5,}(?:\.[\w-]*){1,4}",
        rf"\1{HIDDEN}",
        ("eyj",),
    ),
    # https://user:password@host
    (r"""(://[^\s/:@"']{0,256}:)[^\s/@"']{1,256}@""", rf"\1{HIDDEN}@", ("://",)),
)
"""
Patterns, their replacements, and texts in lower case of which every match has one. To search for
these first takes 1 us in place of 30: an object's key may well have the word "key" in it.
"""

_hasMark = re.compile(r"[\s=:,]").search
"""Finds a character that every shape contains, except a JSON Web Token. Few keys have one."""


def _isHinted(lowered: str) -> bool:
    if len(lowered) <= _SHORT_TEXT:
        return _hint(lowered) is not None
    return any(hint in lowered for hint in _HINTS)


@cache
def _shapes() -> tuple[tuple[re.Pattern[str], str, tuple[str, ...]], ...]:
    """Compile the patterns on first use."""
    return tuple(
        (re.compile(pattern, re.IGNORECASE | re.ASCII), replacement, needed)
        for pattern, replacement, needed in _SHAPES
    )


class Redactor:
    """Removes secrets from text; known secrets may be added at any time."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """@param secrets: The secrets known now; empty ones are ignored."""
        self._known: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        # The length of the shortest secret; no form of one is shorter.
        self._shortest = 0
        self.hide(*secrets)

    def hide(self, *secrets: str) -> None:
        """
        Add known secrets, which are replaced everywhere.

        @param secrets: In plain text; empty ones are ignored.
        """
        new = {secret for secret in secrets if secret} - self._known
        if not new:
            return
        self._known |= new
        self._shortest = min(map(len, self._known))
        forms = {form for each in self._known for form in _forms(each)}
        # The longest first, as one may be the prefix of another.
        self._pattern = re.compile("|".join(sorted(forms, key=lambda form: (-len(form), form))))

    def redact(self, text: str) -> str:
        """
        Return a text with secrets replaced.

        @param text: A line of the log, or a part of one.
        """
        known = self._pattern
        if known is not None and len(text) >= self._shortest and known.search(text) is not None:
            text = known.sub(HIDDEN, text)
        lowered = text.lower()
        if _hasMark(lowered) is None and "eyj" not in lowered:
            return text
        if _isHinted(lowered):
            for pattern, replacement, needed in _shapes():
                if any(each in lowered for each in needed):
                    text = pattern.sub(replacement, text)
        return text


def _forms(secret: str) -> set[str]:
    """Return the patterns for a secret in plain text, URLs, JSON and Base64."""
    plain = {secret, json.encode(secret).decode()[1:-1], repr(secret)[1:-1]}
    plain |= {quote(secret, safe=safe, errors="replace") for safe in ("", "/")}
    plain.add(base64.b64encode(secret.encode("utf-8", "surrogatepass")).decode())
    if len(secret) >= SHORT:
        return {re.escape(form) for form in plain}
    return {rf"(?<!\w){re.escape(form)}(?!\w)" for form in plain}
