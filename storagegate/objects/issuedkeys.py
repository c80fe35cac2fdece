"""
Validation of the attributes of issued keys.

Each reader returns its value, or raises C{ValueError} with the expected form; the text omits the
value, which may be a secret.
"""

import re
import secrets
import string
from contextlib import suppress

from attrs import field, frozen

from storagegate.objects.errors import DomainError
from storagegate.objects.names import checkBucketName, checkKey
from storagegate.objects.principals import POLICIES, ROLES

# Long enough for the rules of any client (MinIO: 3), short enough for a header and a log line.
# Leading and trailing spaces would not survive in a header.
_PRINTABLE = re.compile(r"[!-~][ -~]{1,126}[!-~]", re.ASCII)

CREDENTIAL = "3 to 128 printable ASCII characters without space at the ends"
"""The form of either half of a key pair."""

# Names and patterns must fit in one line of a listing.
_NAME_LENGTH = 128
_PATTERN_LENGTH = 1024
_NOTE_LENGTH = 1024

_WILDCARD = re.compile(r"[*?]")

_LATEST_MS = 253_402_300_799_999
"""The end of the year 9999."""


@frozen
class KeyPair:
    """An access key and its secret."""

    accessKey: str
    secretKey: str = field(repr=False)


def generateKeyPair() -> KeyPair:
    """Generate a key pair in the usual S3 form: 20 and 40 characters, safe in a shell."""
    accessAlphabet = string.ascii_uppercase + string.digits
    secretAlphabet = string.ascii_letters + string.digits
    return KeyPair(
        "".join(secrets.choice(accessAlphabet) for _ in range(20)),
        "".join(secrets.choice(secretAlphabet) for _ in range(40)),
    )


def readCredential(value: str) -> str:
    """Validate one half of a key pair."""
    if not _PRINTABLE.fullmatch(value):
        raise ValueError(f"not {CREDENTIAL}")
    return value


def readName(value: str) -> str:
    """Validate the name of an account, or an email address."""
    return _text(value, _NAME_LENGTH)


def readNote(value: str) -> str:
    """Validate a note, which may be empty."""
    return _text(value, _NOTE_LENGTH) if value else value


def readBucketPattern(value: str) -> str:
    """Validate a glob that at least one valid bucket name matches."""
    pattern = _text(value, _PATTERN_LENGTH)
    # A pattern that matches any valid name matches one of these.
    for run in ("", "a", "aaa"):
        with suppress(DomainError):
            checkBucketName(pattern.replace("*", run).replace("?", "a"))
            return pattern
    raise ValueError("no bucket can have a name that matches")


def readKeyPattern(value: str) -> str:
    """Validate a glob that at least one key matches; a text without wildcards is a prefix."""
    text = _text(value, _PATTERN_LENGTH)
    pattern = text if _WILDCARD.search(text) else f"{text}*"
    try:
        checkKey(pattern.replace("*", "").encode())
    except DomainError as error:
        raise ValueError("no key can match: it would be too long") from error
    return pattern


def readPolicy(value: str) -> str:
    """Validate the name of a policy."""
    if value not in POLICIES:
        raise ValueError(f"not one of {', '.join(POLICIES)}")
    return value


def readRole(value: str) -> str:
    """Validate the role of a key: any role except the root pair's."""
    given = ROLES[:-1]
    if value not in given:
        raise ValueError(f"not one of {', '.join(given)}")
    return value


def readExpiry(value: int, nowMs: int) -> int:
    """
    Validate a time of expiry in milliseconds since 1970, or 0 for never.

    @param nowMs: The present; an earlier time would make a key that never works.
    """
    if not 0 <= value <= _LATEST_MS:
        raise ValueError("not a time in milliseconds since 1970, or 0")
    if value and value <= nowMs:
        raise ValueError("not a time in the future")
    return value


def _text(value: str, maximum: int) -> str:
    if not value or not value.isprintable() or len(value) > maximum:
        raise ValueError(f"not 1 to {maximum} printable characters")
    return value
