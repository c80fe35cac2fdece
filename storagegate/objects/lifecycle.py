"""
The lifecycle of objects: the rules of a bucket, and the times at which objects are due.

A rule counts whole days, each from midnight UTC: an object that was written on the first of a month
and expires after a day is due at the beginning of the third. Source: "Lifecycle configuration
elements" in the Amazon S3 User Guide.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from storagegate.objects.dates import LAST_SECOND
from storagegate.objects.tags import decodeTags
from storagegate.storage.records import Expiry, ExpiryRow

LIFECYCLE = "lifecycle"
"""The name of the bucket setting that holds the rules."""

TRANSITION_MINIMUM = "lifecycleTransitionMinimum"
"""The name of the setting with the smallest size of a transition, if it is not the default."""

DAY_SECONDS = 86400
"""Length of a day; tests use shorter days."""

Form = Literal["prefix", "filter", "and"]


class LifecycleRule(Struct, frozen=True, omit_defaults=True):
    """
    A lifecycle rule: its filter and its actions.

    @ivar form: The form of the filter in the document: C{Prefix} of the rule itself, which is the
        old form; C{Filter} with at most one condition; or C{Filter} with C{And}.
    @ivar prefix: L{None} if the document has none.
    @ivar tags: Tags that the object must have.
    @ivar greaterThan: The object must have more bytes.
    @ivar lessThan: The object must have fewer bytes.
    @ivar days: Age in days at which a current object is deleted.
    @ivar dateMs: Date from which current objects are deleted, in milliseconds since the epoch.
    @ivar markers: Whether delete markers without other versions are removed; L{None} if the
        document does not specify it.
    @ivar noncurrentDays: Days after which a version that has ceased to be current is removed.
    @ivar newer: Number of newer noncurrent versions that the key must have for such a removal.
    @ivar abortDays: Days after which an upload is aborted.
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
        """Whether the filter restricts the size of objects."""
        return self.greaterThan is not None or self.lessThan is not None

    def isAbout(self, key: str, size: int, tags: str) -> bool:
        """
        Return whether an object passes the filter.

        @param tags: The encoded tags of the object.
        """
        if self.prefix and not key.startswith(self.prefix):
            return False
        if self.greaterThan is not None and size <= self.greaterThan:
            return False
        if self.lessThan is not None and size >= self.lessThan:
            return False
        return not self.tags or (bool(tags) and self.tags.items() <= decodeTags(tags).items())

    def isAboutMarker(self, key: str) -> bool:
        """Return whether a delete marker passes the filter; it has no size and no tags."""
        return not self.tags and not self.hasSize and key.startswith(self.prefix or "")


def _unchanged(dateMs: int) -> int:
    return dateMs


class Calendar(Struct, frozen=True):
    """
    The calendar of lifecycle rules.

    @ivar dayMs: Length of a day, in milliseconds.
    @ivar corrected: Corrects a date that was given while the clock was behind; see
        L{ObjectStore.correctedMs<storagegate.storage.store.ObjectStore.correctedMs>}.
    """

    dayMs: int = DAY_SECONDS * 1000
    corrected: Callable[[int], int] = _unchanged

    def after(self, sinceMs: int, days: int) -> int:
        """
        Return the time some days after the next midnight, but at most the end of the year 9999.
        """
        midnights = self.corrected(sinceMs) // self.dayMs + 1
        return min((midnights + days) * self.dayMs, LAST_SECOND * 1000)

    def expiration(self, rule: LifecycleRule, modifiedMs: int) -> int | None:
        """Return when a rule deletes a current object; L{None} if it does not."""
        if rule.dateMs is not None:
            return rule.dateMs
        return None if rule.days is None else self.after(modifiedMs, rule.days)


class Due(NamedTuple):
    """The time at which an object is due, in milliseconds since the epoch, and the rule."""

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
    Find the earliest deletion of a current object.

    @param tags: The encoded tags of the object.
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
    """Find the earliest abortion of an upload."""
    found = None
    for rule in rules:
        if rule.isEnabled and rule.abortDays is not None and key.startswith(rule.prefix or ""):
            atMs = calendar.after(startedMs, rule.abortDays)
            if found is None or atMs < found.atMs:
                found = Due(atMs, rule.id)
    return found


class Place(NamedTuple):
    """
    The last row of a page, with the state of its key for the next page.

    @ivar newer: The number of the key's noncurrent versions that have been seen and remain.
    """

    key: str
    sequence: int
    newer: int


class Expired(NamedTuple):
    """A row to remove; C{versionId} is L{None} for a current object."""

    key: bytes
    versionId: str | None
    expiry: Expiry


class Judgement(NamedTuple):
    """
    The result of evaluating a page of rows.

    @ivar kept: The number of rows that are due but locked.
    @ivar place: L{None} for a page without rows.
    """

    expired: Sequence[Expired]
    kept: int
    place: Place | None


class Judge(Struct, frozen=True):
    """Evaluates the rules of a bucket at one generation of its settings and one time."""

    rules: Sequence[LifecycleRule]
    calendar: Calendar
    generation: int
    nowMs: int

    def page(self, rows: Sequence[ExpiryRow], place: Place | None) -> Judgement:
        """
        Evaluate a page of rows. May run in any thread.

        @param rows: Rows by key, newest first within each key.
        @param place: The end of the previous page; L{None} for the first page.
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
                # At the end of a page, the transaction checks this.
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
    """Return the common prefix of all versions that rules may remove; L{None} for no versions."""
    prefixes = [
        rule.prefix or ""
        for rule in rules
        if rule.isEnabled
        and (rule.days or rule.dateMs is not None or rule.markers or rule.noncurrentDays)
    ]
    if not prefixes:
        return None
    # All other prefixes sort between these two.
    first, last = min(prefixes), max(prefixes)
    length = next((i for i, each in enumerate(first) if last[i] != each), len(first))
    return first[:length]
