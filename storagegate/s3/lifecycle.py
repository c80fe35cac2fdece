"""
The life cycle of objects: the rules of a bucket, and when something is due by them.

A rule counts whole days, each from midnight UTC: what was written on the first of a month and
expires after a day is due at the beginning of the third. Source: "Lifecycle configuration elements"
in the Amazon S3 User Guide.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple
from urllib.parse import quote

from msgspec import Struct

from storagegate.net.http.ranges import formatHttpDate
from storagegate.s3.dates import LAST_SECOND
from storagegate.s3.tags import decodeTags
from storagegate.storage.records import Expiry, ExpiryRow

LIFECYCLE = "lifecycle"
"""The name of the setting of a bucket that holds its rules."""

DAY_SECONDS = 86400
"""A day; tests have shorter ones."""

Form = Literal["prefix", "filter", "and"]


class LifecycleRule(Struct, frozen=True, omit_defaults=True):
    """
    A rule: which objects it is about, and what becomes of them.

    @ivar form: How the document has the filter: as C{Prefix} of the rule itself, which is the old
        form, as C{Filter} with one condition or none, or with C{And}.
    @ivar prefix: L{None} if the document has none.
    @ivar tags: Which the object must have.
    @ivar greaterThan: The object has more bytes than this.
    @ivar lessThan: The object has fewer.
    @ivar days: After so many days a current object is deleted.
    @ivar dateMs: From this date on, in milliseconds since the epoch.
    @ivar markers: Whether delete markers without other versions are removed; L{None} if the
        document does not say so.
    @ivar noncurrentDays: After so many days, since it ceased to be current, a version is removed.
    @ivar newer: Only where the key has so many noncurrent versions that are newer.
    @ivar abortDays: After so many days an upload is aborted.
    """

    id: str
    isEnabled: bool
    form: Form = "filter"
    prefix: str | None = None
    tags: Mapping[str, str] = {}
    greaterThan: int | None = None
    lessThan: int | None = None
    days: int | None = None
    dateMs: int | None = None
    markers: bool | None = None
    noncurrentDays: int | None = None
    newer: int | None = None
    abortDays: int | None = None

    @property
    def hasSize(self) -> bool:
        """Whether it is about objects of some sizes only."""
        return self.greaterThan is not None or self.lessThan is not None

    def isAbout(self, key: str, size: int, tags: str) -> bool:
        """
        Return whether an object passes the filter.

        @param tags: Of the object, encoded.
        """
        if self.prefix and not key.startswith(self.prefix):
            return False
        if self.greaterThan is not None and size <= self.greaterThan:
            return False
        if self.lessThan is not None and size >= self.lessThan:
            return False
        return not self.tags or (bool(tags) and self.tags.items() <= decodeTags(tags).items())

    def isAboutMarker(self, key: str) -> bool:
        """Return whether a delete marker passes the filter: it has no size and no tags."""
        return not self.tags and not self.hasSize and key.startswith(self.prefix or "")


class Calendar(Struct, frozen=True):
    """
    The days of rules.

    @ivar dayMs: Milliseconds of a day.
    """

    dayMs: int = DAY_SECONDS * 1000

    def after(self, sinceMs: int, days: int) -> int:
        """
        Return when so many days, which begin at the next midnight, are over; the end of the year
        9999 for all that is later.
        """
        return min((sinceMs // self.dayMs + 1 + days) * self.dayMs, LAST_SECOND * 1000)

    def expiration(self, rule: LifecycleRule, modifiedMs: int) -> int | None:
        """Return when a rule deletes a current object; L{None} if it does not."""
        if rule.dateMs is not None:
            return rule.dateMs
        return None if rule.days is None else self.after(modifiedMs, rule.days)


class Due(NamedTuple):
    """When something is due, in milliseconds since the epoch, and by which rule."""

    atMs: int
    ruleId: str


def findExpiration(
    rules: Iterable[LifecycleRule],
    calendar: Calendar,
    key: str,
    size: int,
    tags: str,
    modifiedMs: int,
) -> Due | None:
    """
    Find when a current object is deleted first.

    @param tags: Of the object, encoded.
    """
    found = None
    for rule in rules:
        if rule.isEnabled and rule.isAbout(key, size, tags):
            atMs = calendar.expiration(rule, modifiedMs)
            if atMs is not None and (found is None or atMs < found.atMs):
                found = Due(atMs, rule.id)
    return found


def findAbort(
    rules: Iterable[LifecycleRule], calendar: Calendar, key: str, startedMs: int
) -> Due | None:
    """Find when an upload is aborted."""
    found = None
    for rule in rules:
        if rule.isEnabled and rule.abortDays is not None and key.startswith(rule.prefix or ""):
            atMs = calendar.after(startedMs, rule.abortDays)
            if found is None or atMs < found.atMs:
                found = Due(atMs, rule.id)
    return found


def expirationField(due: Due) -> tuple[bytes, bytes]:
    """Return C{x-amz-expiration}."""
    date = formatHttpDate(due.atMs // 1000)
    return b"x-amz-expiration", b'expiry-date="%b", rule-id="%b"' % (date, _quoted(due.ruleId))


def abortFields(due: Due) -> list[tuple[bytes, bytes]]:
    """Return C{x-amz-abort-date} and C{x-amz-abort-rule-id}."""
    return [
        (b"x-amz-abort-date", formatHttpDate(due.atMs // 1000)),
        (b"x-amz-abort-rule-id", _quoted(due.ruleId)),
    ]


def _quoted(ruleId: str) -> bytes:
    return quote(ruleId, safe="").encode("ascii")


class Place(NamedTuple):
    """
    The last row of a page, and what the next page has to know of its key.

    @ivar newer: How many of the key's noncurrent versions have been seen and stay.
    """

    key: str
    sequence: int
    newer: int


class Expired(NamedTuple):
    """A row that is to be removed; C{versionId} is L{None} for a current object."""

    key: bytes
    versionId: str | None
    expiry: Expiry


class Judgement(NamedTuple):
    """
    What a page of rows is to become.

    @ivar kept: How many rows are due and locked.
    @ivar place: L{None} for a page without rows.
    """

    expired: Sequence[Expired]
    kept: int
    place: Place | None


class Judge(Struct, frozen=True):
    """The rules of a bucket at one generation of its settings, and a time."""

    rules: Sequence[LifecycleRule]
    calendar: Calendar
    generation: int
    nowMs: int

    def page(self, rows: Sequence[ExpiryRow], place: Place | None) -> Judgement:
        """
        Judge a page of rows. Any thread.

        @param rows: By key, of each key the newest first.
        @param place: Where the page before ended; L{None} if this is the first.
        """
        rules = [rule for rule in self.rules if rule.isEnabled]
        key, newer = (place.key, place.newer) if place is not None else (None, 0)
        expired: list[Expired] = []
        kept = 0
        for index, row in enumerate(rows):
            if row.key != key:
                key, newer = row.key, 0
            found = None
            if row.noncurrentMs is not None:
                found = self._noncurrent(rules, row, newer)
            elif row.isDeleteMarker:
                # At the end of a page the transaction looks.
                if index + 1 == len(rows) or rows[index + 1].key != key:
                    found = self._marker(rules, row)
            else:
                due = findExpiration(
                    rules, self.calendar, row.key, row.size, row.tags, row.modifiedMs
                )
                if due is not None and due.atMs <= self.nowMs:
                    found = Expired(row.key.encode(), None, self._seen(row))
            isKept = found is not None and bool(found.versionId) and row.lock.isActive(self.nowMs)
            kept += isKept
            if found is not None and not isKept:
                expired.append(found)
            elif row.noncurrentMs is not None:
                newer += 1
        end = Place(rows[-1].key, rows[-1].sequence, newer) if rows else None
        return Judgement(expired, kept, end)

    def _seen(self, row: ExpiryRow, newer: int = 0, isOnly: bool = False) -> Expiry:
        return Expiry(row.sequence, row.noncurrentMs, row.tags, self.generation, newer, isOnly)

    def _noncurrent(
        self, rules: Iterable[LifecycleRule], row: ExpiryRow, newer: int
    ) -> Expired | None:
        assert row.noncurrentMs is not None
        for rule in rules:
            if (
                rule.noncurrentDays is not None
                and newer >= (rule.newer or 0)
                and self.calendar.after(row.noncurrentMs, rule.noncurrentDays) <= self.nowMs
                and self._passes(rule, row)
            ):
                return Expired(row.key.encode(), row.versionId, self._seen(row, rule.newer or 0))
        return None

    def _passes(self, rule: LifecycleRule, row: ExpiryRow) -> bool:
        if row.isDeleteMarker:
            return rule.isAboutMarker(row.key)
        return rule.isAbout(row.key, row.size, row.tags)

    def _marker(self, rules: Iterable[LifecycleRule], row: ExpiryRow) -> Expired | None:
        for rule in rules:
            if not rule.isAboutMarker(row.key):
                continue
            atMs = self.calendar.expiration(rule, row.modifiedMs)
            if rule.markers or (atMs is not None and atMs <= self.nowMs):
                return Expired(row.key.encode(), row.versionId, self._seen(row, isOnly=True))
        return None


def searchedPrefix(rules: Iterable[LifecycleRule]) -> str | None:
    """
    Return what the keys of all versions begin with that rules may remove; L{None} if there are none
    of them.
    """
    prefixes = [
        rule.prefix or ""
        for rule in rules
        if rule.isEnabled
        and (rule.days or rule.dateMs is not None or rule.markers or rule.noncurrentDays)
    ]
    if not prefixes:
        return None
    # All others lie between these two.
    first, last = min(prefixes), max(prefixes)
    length = next((i for i, each in enumerate(first) if last[i] != each), len(first))
    return first[:length]
