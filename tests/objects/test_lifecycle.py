"""Life cycles: when something is due, and what becomes of a page of versions."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.dates import isoTimestamp
from storagegate.objects.lifecycle import (
    Calendar,
    Due,
    Judge,
    LifecycleRule,
    Place,
    findAbort,
    findExpiration,
    searchedPrefix,
)
from storagegate.storage.records import ExpiryRow

DAY = 24 * 3600 * 1000
CALENDAR = Calendar()
RULE = LifecycleRule("r", True, days=2)


class DueTests(SynchronousTestCase):
    """When something is due."""

    @given(st.integers(0, 10**14), st.integers(1, 10_000))
    def test_days(self, sinceMs: int, days: int) -> None:
        """It is midnight; so many whole days lie between, and less than one more."""
        found = CALENDAR.after(sinceMs, days)
        self.assertEqual(found % DAY, 0)
        self.assertTrue(days * DAY < found - sinceMs <= (days + 1) * DAY)

    def test_shortDays(self) -> None:
        """A day may be of another length."""
        self.assertEqual(Calendar(2000).after(5000, 1), 8000)
        self.assertEqual(Calendar(2000, lambda dateMs: dateMs + 3000).after(5000, 1), 12000)

    def test_longDays(self) -> None:
        """What is due after the year 9999 is due at its end: no response can show a later date."""
        longest = CALENDAR.after(0, 2**31 - 1)
        self.assertEqual(CALENDAR.after(0, 3_000_000), longest)
        self.assertEqual(isoTimestamp(longest), "9999-12-31T23:59:59.000Z")

    def find(self, *rules: LifecycleRule, **named: Any) -> Due | None:
        """Find when an object of one byte expires that was written at the epoch."""
        values = {"key": "a/k", "size": 1, "tags": "x=1&y=2%20", "modifiedMs": 0} | named
        return findExpiration(rules, CALENDAR, **values)

    def test_first(self) -> None:
        """The first of all that match decides."""
        early = replace(RULE, id="early", days=1)
        date = LifecycleRule("date", True, dateMs=DAY)
        self.assertEqual(self.find(RULE, early), Due(2 * DAY, "early"))
        self.assertEqual(self.find(RULE, date, early), Due(DAY, "date"))
        self.assertIsNone(self.find(replace(RULE, isEnabled=False)))
        self.assertIsNone(self.find(LifecycleRule("r", True, noncurrentDays=1, abortDays=1)))

    def test_filters(self) -> None:
        """All conditions must hold."""
        for conditions, holds in (
            ({"prefix": "a/"}, True),
            ({"prefix": "b"}, False),
            ({"tags": {"x": "1"}}, True),
            ({"tags": {"x": "1", "y": "2 "}}, True),
            ({"tags": {"x": "2"}}, False),
            ({"tags": {"z": "1"}}, False),
            ({"greaterThan": 0, "lessThan": 2}, True),
            ({"greaterThan": 1}, False),
            ({"lessThan": 1}, False),
        ):
            found = self.find(replace(RULE, **conditions))  # type: ignore[arg-type]
            self.assertEqual(found is not None, holds, conditions)
        self.assertIsNone(self.find(replace(RULE, tags={"x": "1"}), tags=""))

    def test_uploads(self) -> None:
        """Uploads have rules of their own."""
        rules = [RULE, LifecycleRule("abort", True, prefix="a", abortDays=1)]
        self.assertEqual(findAbort(rules, CALENDAR, "ab", 1), Due(2 * DAY, "abort"))
        self.assertIsNone(findAbort(rules, CALENDAR, "b", 1))

    def test_prefix(self) -> None:
        """What all keys begin with that rules may remove."""
        self.assertIsNone(searchedPrefix([replace(RULE, isEnabled=False)]))
        self.assertIsNone(searchedPrefix([LifecycleRule("r", True, abortDays=1)]))
        for prefixes, expected in (
            (["a/b"], "a/b"),
            (["a/b", "a/c", "a/"], "a/"),
            (["a", "b"], ""),
            (["a", None], ""),
        ):
            rules = [replace(RULE, prefix=prefix) for prefix in prefixes]
            self.assertEqual(searchedPrefix(rules), expected)


def row(key: str, sequence: int, **more: Any) -> ExpiryRow:
    """Make a row of an object that was written at the epoch and is current."""
    values = {
        "versionId": f"v{sequence}",
        "isDeleteMarker": 0,
        "size": 1,
        "modifiedMs": 0,
        "noncurrentMs": None,
        "tags": "",
        "retainUntilMs": None,
        "legalHold": None,
    }
    return ExpiryRow(key, sequence, **(values | more))


class JudgeTests(SynchronousTestCase):
    """What becomes of a page."""

    def judge(
        self,
        rows: list[ExpiryRow],
        *rules: LifecycleRule,
        place: Place | None = None,
        nowMs: int = 10 * DAY,
    ) -> tuple[list[tuple[str, str | None]], int]:
        """Judge rows; give key and version of what is removed, and how many are kept."""
        found = Judge(rules, CALENDAR, 7, nowMs).page(rows, place)
        last = rows[-1]
        self.assertEqual((found.place or Place("", 0, 0))[:2], (last.key, last.sequence))
        for each in found.expired:
            self.assertEqual(each.expiry.generation, 7)
        return [(each.key.decode(), each.versionId) for each in found.expired], found.kept

    def test_current(self) -> None:
        """A current object is deleted as a client would, without an id, once it is due."""
        rows = [row("a", 1), row("b", 2, modifiedMs=9 * DAY)]
        self.assertEqual(self.judge(rows, RULE), ([("a", None)], 0))
        self.assertEqual(self.judge(rows, RULE, nowMs=3 * DAY - 1), ([], 0))
        self.assertEqual(self.judge(rows, RULE, nowMs=3 * DAY), ([("a", None)], 0))

    def test_noncurrent(self) -> None:
        """Versions that are not current go by the time since when they are not."""
        old = LifecycleRule("r", True, noncurrentDays=1, newer=2)
        rows = [row("k", 9), *(row("k", n, noncurrentMs=0) for n in range(8, 3, -1))]
        expected = [("k", "v6"), ("k", "v5"), ("k", "v4")]
        self.assertEqual(self.judge(rows, old), (expected, 0))
        self.assertEqual(self.judge(rows[2:], old, place=Place("k", 8, 1)), (expected, 0))
        self.assertEqual(self.judge(rows[2:], old, place=Place("j", 8, 9))[0], expected[1:])
        late = [row("k", 1, noncurrentMs=9 * DAY)]
        self.assertEqual(self.judge(late, replace(old, newer=None)), ([], 0))

    def test_newer(self) -> None:
        """As newer ones count those that stay: what another rule removes does not."""
        tagged = LifecycleRule("tagged", True, tags={"x": "1"}, noncurrentDays=1)
        old = LifecycleRule("old", True, noncurrentDays=1, newer=2)
        rows = [row("k", n, noncurrentMs=0, tags="x=1" if n > 7 else "") for n in range(9, 3, -1)]
        expected = [("k", f"v{n}") for n in (9, 8, 5, 4)]
        self.assertEqual(self.judge(rows, tagged, old), (expected, 0))
        held = [row("k", 10, noncurrentMs=0, legalHold=1), *rows]
        expected.insert(2, ("k", "v6"))
        self.assertEqual(self.judge(held, tagged, old), (expected, 0))

    def test_marker(self) -> None:
        """A delete marker goes once no other version of its key is left."""
        rule = LifecycleRule("r", True, markers=True)
        alone = [row("a", 3, isDeleteMarker=1)]
        over = [row("b", 2, isDeleteMarker=1), row("b", 1, noncurrentMs=0)]
        self.assertEqual(self.judge(over + alone, rule), ([("a", "v3")], 0))
        self.assertEqual(self.judge(alone, RULE), ([("a", "v3")], 0))
        self.assertEqual(self.judge(alone, RULE, nowMs=DAY), ([], 0))
        self.assertEqual(self.judge(alone, replace(RULE, tags={"a": "b"})), ([], 0))
        self.assertEqual(self.judge(alone, LifecycleRule("r", True, noncurrentDays=1)), ([], 0))

    def test_locked(self) -> None:
        """What is locked is kept, but may lie below a marker."""
        old = LifecycleRule("r", True, noncurrentDays=1)
        for lock, isKept in (
            ({"retainUntilMs": 10 * DAY + 1}, True),
            ({"retainUntilMs": 10 * DAY}, False),
            ({"retainUntilMs": 1, "legalHold": 1}, True),
            ({"legalHold": 0}, False),
        ):
            held = [row("k", 1, noncurrentMs=0, **lock)]
            self.assertEqual(self.judge(held, old), ([], 1) if isKept else ([("k", "v1")], 0))
            current = [row("k", 1, **lock)]
            self.assertEqual(self.judge(current, RULE), ([("k", None)], 0))
