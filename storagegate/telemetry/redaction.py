"""
What must not be in a log, taken out of text that others wrote.

Our own lines do not name secrets. But an exception's message, the line of a library or what a
user's handler prints may hold whatever a client has sent. So everything on its way into the log
passes here: secrets that are known are replaced wherever they stand, others by what they look like.
"""

import base64
import re
from collections.abc import Iterable
from functools import cache
from urllib.parse import quote

from msgspec import json

HIDDEN = "***"
"""What stands in the place of a secret."""

SHORT = 8
"""A known secret that is shorter is replaced as a word only, or it would tear words apart."""

_HINTS = (
    *("secret", "token", "passw", "pwd", "auth", "cookie", "sign", "key", "bearer", "basic"),
    *("eyj", "://", "aws", "jwt", "credential", "session"),
)
"""One of these is in every text that a shape below may match: a look for them costs little."""

_NAME = (
    r"(?:secret(?:[-_]?access)?[-_]?key|secret|passw(?:or)?d|pwd|passphrase|token|signature|"
    r"api[-_]?key|private[-_]?key|jwt|session[-_]?id)"
)
"""The end of a name whose value is a secret."""

_FIELD = r"(?:(?:proxy-)?authorization|(?:set-)?cookie2?)"
"""Header fields of which the whole value is hidden."""

_QUOTED = r"""(?:"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?)"""
_BARE = r"""[^\s,;&)}\]"'#]"""

# No pattern begins with what it may look through a long text for: each stands on its own words.
_SHAPES = (
    # The file of a key.
    (
        r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)[\s\S]*?(?:(?=-----END )|\Z)",
        rf"\1{HIDDEN}",
    ),
    # "name": "value", ('name', 'value'), {b'name': [b'value']}, as JSON and Python write them;
    # in a text within a text the quotes have backslashes.
    (
        rf"""(\\*["'](?:[\w.-]{{0,40}}{_NAME}|{_FIELD})\\*["']\s*[:,=]\s*[\[(]?\s*b?)"""
        rf"""(?:\\+"(?:[^"\\]|\\+[^"\\])*\\+"|{_QUOTED}|{_BARE}+)""",
        rf"\1{HIDDEN}",
    ),
    # name=value, as queries, repr() and logfmt write them.
    (rf"({_NAME}=)(?:b?{_QUOTED}|{_BARE}+)", rf"\1{HIDDEN}"),
    # Authorization: value, to the line's end.
    (rf"""(\b{_FIELD}\s*[:=]\s*)[^\r\n"']+""", rf"\1{HIDDEN}"),
    # X-Api-Key: value, password: value; a word behind "token:" is more often a word.
    (
        rf"({_NAME}:\s*)(?:b?{_QUOTED}|(?=\S{{0,64}}[\d/+=_]){_BARE}{{6,}})",
        rf"\1{HIDDEN}",
    ),
    (r"(\bBearer\s+)[\w.~+/=:-]{4,}", rf"\1{HIDDEN}"),
    # Base64 has capitals or digits; the words that follow "basic" in a sentence have none.
    (r"(\bBasic\s+)(?=\S{0,64}(?-i:[A-Z0-9=]))[\w+/=-]{4,}", rf"\1{HIDDEN}"),
    # The signature of version 2 stands behind the access key.
    (r"(\bAWS [\w-]{3,128}:)\S+", rf"\1{HIDDEN}"),
    # A JSON Web Token begins with {" in Base64.
    (r"\beyJ[\w-]{5,}(?:\.[\w-]*){1,4}", HIDDEN),
    # https://user:password@host
    (r"""(://[^\s/:@"']{0,256}:)[^\s/@"']{1,256}@""", rf"\1{HIDDEN}@"),
)
"""Patterns with what takes the place of a match."""


@cache
def _shapes() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Compile the patterns, once there is a line that one of them may match."""
    return tuple(
        (re.compile(pattern, re.IGNORECASE | re.ASCII), replacement)
        for pattern, replacement in _SHAPES
    )


class Redactor:
    """Takes secrets out of text; what it knows may grow at any time."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.hide(*secrets)

    def hide(self, *secrets: str) -> None:
        """Learn secrets: from now on they are replaced wherever they stand."""
        new = {secret for secret in secrets if secret} - self._known
        if not new:
            return
        self._known |= new
        # The longest first: one may be the beginning of another.
        forms = sorted({form for each in self._known for form in _forms(each)}, key=_longest)
        self._pattern = re.compile("|".join(forms))

    def redact(self, text: str) -> str:
        """Give a text without secrets."""
        if self._pattern is not None:
            text = self._pattern.sub(HIDDEN, text)
        lowered = text.lower()
        if any(hint in lowered for hint in _HINTS):
            for pattern, replacement in _shapes():
                text = pattern.sub(replacement, text)
        return text


def _longest(form: str) -> tuple[int, str]:
    return -len(form), form


def _forms(secret: str) -> set[str]:
    """Give the patterns of a secret in the forms that it travels in."""
    plain = {secret, json.encode(secret).decode()[1:-1], repr(secret)[1:-1]}
    plain |= {quote(secret, safe=safe, errors="replace") for safe in ("", "/")}
    plain.add(base64.b64encode(secret.encode("utf-8", "surrogatepass")).decode())
    if len(secret) >= SHORT:
        return {re.escape(form) for form in plain}
    return {rf"(?<!\w){re.escape(form)}(?!\w)" for form in plain}
