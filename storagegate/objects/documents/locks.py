"""ObjectLockConfiguration, Retention and LegalHold."""

import re

from storagegate.objects.dates import isoTimestamp, parseUntil
from storagegate.objects.documents.tree import Document, group, pairs
from storagegate.objects.errors import InvalidArgument, MalformedDocument, UnsupportedFeature
from storagegate.objects.locks import HOLDS
from storagegate.storage.records import (
    RETENTION_MODES,
    UNLOCKED,
    DefaultRetention,
    ObjectLock,
)

_YEARS_LIMIT = 100
_DAYS_LIMIT = 36500
"""Days of the longest default retention: Amazon's limit, a hundred years."""

_PERIOD = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_RETENTION = frozenset(("Mode", "RetainUntilDate", "EventHold", "EventHoldDuration"))


def readLockConfiguration(document: Document) -> DefaultRetention | None:
    """
    Read the default retention of the rule, if there is one.

    @raise MalformedDocument: The document has another form.
    @raise InvalidArgument: The period is not positive, or exceeds a hundred years.
    @raise UnsupportedFeature: The document requests event holds.
    """
    members = document.byName(("ObjectLockEnabled", "Rule"))
    enabled = members.get("ObjectLockEnabled")
    if enabled is None or enabled.text.strip() != "Enabled":
        raise MalformedDocument()
    rule = members.get("Rule")
    if rule is None:
        return None
    if [each.name for each in rule.members] != ["DefaultRetention"]:
        raise MalformedDocument()
    retention = rule.members[0]
    fields = {each.name: each.text.strip() for each in retention.members}
    if "DefaultEventHold" in fields:
        raise UnsupportedFeature()
    if (
        len(fields) != 2
        or len(retention.members) != 2
        or fields.get("Mode") not in RETENTION_MODES
        or fields.keys().isdisjoint(("Days", "Years"))
    ):
        raise MalformedDocument()
    if "Days" in fields:
        return DefaultRetention(fields["Mode"], days=_period("Days", fields["Days"], _DAYS_LIMIT))
    years = _period("Years", fields["Years"], _YEARS_LIMIT)
    return DefaultRetention(fields["Mode"], years=years)


def _period(name: str, text: str, limit: int) -> int:
    if _PERIOD.fullmatch(text) is None:
        raise MalformedDocument()
    number = int(text)
    if number <= 0:
        message = "Default retention period must be a positive integer value."
        raise InvalidArgument(message, name=name, value=text)
    if number > limit:
        raise InvalidArgument("Default retention period is too large.", name=name, value=text)
    return number


def writeLockConfiguration(default: DefaultRetention | None) -> Document:
    """Write the configuration of a bucket with object lock."""
    members = list(pairs(ObjectLockEnabled="Enabled"))
    if default is not None:
        period = pairs(Days=default.days or None, Years=None if default.days else default.years)
        retention = group("DefaultRetention", (*pairs(Mode=default.mode), *period))
        members.append(group("Rule", [retention], isList=True))
    return group("ObjectLockConfiguration", members)


def readRetention(document: Document) -> ObjectLock:
    """
    Read a retention; an empty document lifts it.

    @return: A lock without a legal hold.
    @raise MalformedDocument: The document has another form.
    @raise UnsupportedFeature: The document requests event holds.
    """
    fields = document.texts(_RETENTION)
    if not fields:
        return UNLOCKED
    if not fields.keys().isdisjoint(("EventHold", "EventHoldDuration")):
        raise UnsupportedFeature()
    mode = fields.get("Mode", "")
    if mode not in RETENTION_MODES:
        raise MalformedDocument()
    try:
        return ObjectLock(mode, parseUntil(fields.get("RetainUntilDate", "")))
    except ValueError:
        raise MalformedDocument() from None


def writeRetention(lock: ObjectLock) -> Document:
    """Write a retention."""
    return group("Retention", pairs(Mode=lock.mode, RetainUntilDate=isoTimestamp(lock.untilMs)))


def readLegalHold(document: Document) -> bool:
    """
    Return whether a legal hold is on.

    @raise MalformedDocument: The document has another form.
    """
    status = document.texts(("Status",)).get("Status", "")
    if status not in HOLDS:
        raise MalformedDocument()
    return HOLDS[status]


def writeLegalHold(isOn: bool) -> Document:
    """Write a legal hold."""
    return group("LegalHold", pairs(Status="ON" if isOn else "OFF"))
