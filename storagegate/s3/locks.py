"""
Object lock in headers of requests and in form fields::

    x-amz-object-lock-mode              = "GOVERNANCE" / "COMPLIANCE"
    x-amz-object-lock-retain-until-date = date        ISO 8601, in the future
    x-amz-object-lock-legal-hold        = "ON" / "OFF"
    x-amz-bypass-governance-retention   = "true"

A retention always has both a mode and a date. L{storagegate.storage.embedded.objectlocks} applies
the default of the bucket and decides whether a version is locked, when it is written.
L{storagegate.s3.xml.reader} parses the documents.
"""

from collections.abc import Mapping

from storagegate.objects.dates import parseUntil
from storagegate.objects.locks import HOLDS
from storagegate.s3.errors import invalidArgument
from storagegate.storage.records import (
    RETENTION_MODES,
    UNLOCKED,
    ObjectLock,
)

MODE = b"x-amz-object-lock-mode"
UNTIL = b"x-amz-object-lock-retain-until-date"
LEGAL_HOLD = b"x-amz-object-lock-legal-hold"

LOCK_FIELDS = frozenset({MODE, UNTIL, LEGAL_HOLD})
"""The headers that set the lock of a written object."""

BUCKET_FIELD = b"x-amz-bucket-object-lock-enabled"
"""The header that enables the object lock of a new bucket."""

BYPASS = b"x-amz-bypass-governance-retention"
"""The header that requests to bypass a retention in governance mode."""


def bypasses(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a request asks to bypass a retention in governance mode."""
    return BYPASS in headers and headers[BYPASS].strip().lower() == b"true"


def enablesLock(headers: Mapping[bytes, bytes]) -> bool:
    """
    Return whether a request enables object lock for a new bucket.

    @raise S3Error: C{InvalidArgument}.
    """
    text = headers.get(BUCKET_FIELD, b"false").decode("latin-1").strip()
    if text.lower() not in ("true", "false"):
        raise invalidArgument(BUCKET_FIELD.decode(), text)
    return text.lower() == "true"


def lockFrom(headers: Mapping[bytes, bytes]) -> ObjectLock:
    """
    Parse the lock that a write sets on its object.

    @param headers: Values by lower-case name.
    @raise S3Error: C{InvalidArgument} for a mode without a date, a date without a mode, or an
        invalid value.
    """
    named = {name: headers[name].decode("latin-1").strip() for name in LOCK_FIELDS & headers.keys()}
    if not named:
        return UNLOCKED
    hold = named.get(LEGAL_HOLD)
    if hold is not None and hold not in HOLDS:
        raise invalidArgument(
            LEGAL_HOLD.decode(), hold, "Legal Hold must be either of 'ON' or 'OFF'"
        )
    legalHold = None if hold is None else HOLDS[hold]
    mode, until = named.get(MODE), named.get(UNTIL)
    if mode is None and until is None:
        return ObjectLock(legalHold=legalHold)
    if mode is None or until is None:
        message = (
            "x-amz-object-lock-retain-until-date and x-amz-object-lock-mode must both be supplied"
        )
        name = UNTIL if until is None else MODE
        raise invalidArgument(name.decode(), "", message)
    if mode not in RETENTION_MODES:
        raise invalidArgument(MODE.decode(), mode, "Unknown wormMode directive.")
    try:
        return ObjectLock(mode, parseUntil(until), legalHold)
    except ValueError:
        message = "The retain until date must be provided in ISO 8601 format"
        raise invalidArgument(UNTIL.decode(), until, message) from None


def lockHeaders(lock: ObjectLock) -> list[tuple[bytes, bytes]]:
    """Return the headers of a lock for a read of its object."""
    # Only locked objects and policies need the module.
    from storagegate.objects.access.context import describeLock

    return list(describeLock(lock).items())
