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

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from math import ceil

from storagegate.s3.errors import fromStoreError, invalidArgument
from storagegate.s3.xml.writer import isoTimestamp
from storagegate.storage.errors import BucketNotLocked
from storagegate.storage.records import (
    RETENTION_MODES,
    UNLOCKED,
    Bucket,
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

HOLDS = {"ON": True, "OFF": False}
"""Whether a legal hold is on, by its status."""

_DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?",
    re.ASCII,
)

LAST_SECOND = 253402300799
"""9999-12-31T23:59:59Z, in seconds since the epoch: the last date that can be written."""


def parseDate(text: str) -> float:
    """
    Parse an ISO 8601 date, or seconds since the epoch.

    @return: Seconds since the epoch.
    @raise ValueError: The text is not a date.
    """
    if text.isascii() and text.isdigit() and len(text) <= 12:
        return float(text)
    if _DATE.fullmatch(text) is None:
        raise ValueError(f"{text!a:.80} is no date")
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"{text!a:.80} is no date") from None


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


def parseUntil(text: str) -> int:
    """
    Parse the date of a retention; return milliseconds since the epoch, rounded up to seconds.

    @raise ValueError: The text is not an ISO 8601 date.
    """
    seconds = ceil(parseDate(text))
    if text.isdigit() or seconds > LAST_SECOND:
        raise ValueError(f"{text!a:.80} is no date of a retention")
    return seconds * 1000


def checkLock(bucket: Bucket, lock: ObjectLock, nowMs: int) -> None:
    """
    Check that the lock that a request names is valid in a bucket.

    @param nowMs: Milliseconds since the epoch.
    @raise S3Error: C{InvalidRequest} without object lock, C{InvalidArgument} for a date that is not
        in the future.
    """
    if lock is UNLOCKED:
        return
    requireLock(bucket)
    if lock.mode and lock.untilMs <= nowMs:
        message = "The retain until date must be in the future!"
        raise invalidArgument(UNTIL.decode(), isoTimestamp(lock.untilMs), message)


def requireLock(bucket: Bucket) -> None:
    """
    Reject a request about locks in a bucket without object lock.

    @raise S3Error: C{InvalidRequest}.
    """
    if not bucket.lockEnabled:
        raise fromStoreError(BucketNotLocked())


def lockHeaders(lock: ObjectLock) -> list[tuple[bytes, bytes]]:
    """Return the headers of a lock for a read of its object."""
    headers = []
    if lock.mode:
        headers.append((MODE, lock.mode.encode("ascii")))
        headers.append((UNTIL, isoTimestamp(lock.untilMs).encode("ascii")))
    if lock.legalHold is not None:
        headers.append((LEGAL_HOLD, b"ON" if lock.legalHold else b"OFF"))
    return headers
