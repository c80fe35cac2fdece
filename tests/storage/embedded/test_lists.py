"""Lists against a naive list in Python, and at what cost."""

from sqlite3 import Connection

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded import lists
from storagegate.storage.embedded.groupcommit import runTogether
from storagegate.storage.ranges import ObjectRange, UploadRange
from tests.contract.catalogcase import inlineRecord, uploadOf
from tests.storage.embedded.memory import CREATE_UPLOAD, change, memoryCatalog, putOf
from tests.support.selection import rounds

# Few characters, so that keys collide with prefixes, delimiters and each other.
TEXT = st.text(alphabet="ab/-\0é\U0010ffff", max_size=5)
DELIMITER = st.sampled_from(["", "/", "-", "--", "a/", "é", "\0", "\U0010ffff"])
LIMIT = st.integers(min_value=0, max_value=6)


def fill(connection: Connection, *keys: str) -> None:
    """Store objects in C{b}, and such that must never be listed with them in C{a} and C{c}."""
    records = [inlineRecord(key.encode(), b"") for key in keys]
    records += [inlineRecord(b"a", b"", bucket=bucket) for bucket in ("a", "c")]
    runTogether(connection, [putOf(record) for record in records])


def places(
    keys: set[tuple[str, str]], prefix: str, delimiter: str, after: tuple[str, str]
) -> list[tuple[str, str, bool]]:
    """List all that comes after a place: key or group, id, and whether it is a group."""
    found = set()
    for key, identity in keys:
        if not key.startswith(prefix):
            continue
        place = (key, identity, False)
        rest = key[len(prefix) :]
        if delimiter and delimiter in rest:
            place = (prefix + rest[: rest.index(delimiter)] + delimiter, "", True)
        # A group is left out if it is what the last page ended with, or has no key behind that.
        if place[2]:
            isAfter = key > after[0] and place[0] != after[0]
        else:
            isAfter = (key, identity) > after if after[1] else key > after[0]
        if isAfter or after == ("", ""):
            found.add(place)
    return sorted(found)


class ObjectListTests(SynchronousTestCase):
    """Lists of objects."""

    @settings(max_examples=rounds(50, 250), deadline=None)
    @given(st.sets(TEXT, max_size=14), TEXT, DELIMITER, TEXT, LIMIT)
    def test_asNaively(
        self, keys: set[str], prefix: str, delimiter: str, after: str, limit: int
    ) -> None:
        """Any page of any bucket is what a list of all its keys says."""
        connection = memoryCatalog()
        self.addCleanup(connection.close)
        fill(connection, *keys)
        listed = ObjectRange("b", prefix.encode(), delimiter.encode(), after.encode(), limit)
        page = lists.listObjects(connection, listed)
        wanted = places({(key, "") for key in keys}, prefix, delimiter, (after, ""))
        first = wanted[:limit]
        self.assertEqual([each.key for each in page.objects], [k for k, _, g in first if not g])
        self.assertEqual(list(page.prefixes), [k for k, _, g in first if g])
        more = 0 < limit < len(wanted)
        self.assertEqual(page.last, first[-1][0] if more else None)

    @settings(max_examples=rounds(20, 100), deadline=None)
    @given(st.sets(TEXT.filter(bool), max_size=14), TEXT, DELIMITER, st.integers(1, 4))
    def test_pagesMakeTheWhole(
        self, keys: set[str], prefix: str, delimiter: str, limit: int
    ) -> None:
        """Whatever the size of the pages, together they are the list, with nothing twice."""
        connection = memoryCatalog()
        self.addCleanup(connection.close)
        fill(connection, *keys)
        seen: list[str] = []
        after: str | None = ""
        while after is not None:
            listed = ObjectRange("b", prefix.encode(), delimiter.encode(), after.encode(), limit)
            page = lists.listObjects(connection, listed)
            part = sorted([*(each.key for each in page.objects), *page.prefixes])
            seen += part
            self.assertTrue(page.last is None or page.last == part[-1])
            after = page.last
        wanted = places({(key, "") for key in keys}, prefix, delimiter, ("", ""))
        self.assertEqual(seen, [place[0] for place in wanted])

    def test_costFollowsTheAnswer(self) -> None:
        """A page of groups looks at a few keys of each group, however many it has."""
        connection = memoryCatalog()
        self.addCleanup(connection.close)
        fill(connection, *(f"{group}/{n:04}" for group in "xyz" for n in range(2000)))
        ticks = [0]

        def tick() -> None:
            ticks[0] += 1

        connection.set_progress_handler(tick, 100)
        page = lists.listObjects(connection, ObjectRange("b", b"", b"/", b"", 1000))
        connection.set_progress_handler(None, 0)
        self.assertEqual(page.prefixes, ("x/", "y/", "z/"))
        # Looking at each of the 6,000 keys would take well over 100 times 100 steps.
        self.assertLess(ticks[0], 20)


class UploadListTests(SynchronousTestCase):
    """Lists of uploads."""

    @settings(max_examples=rounds(30, 150), deadline=None)
    @given(
        st.sets(st.tuples(TEXT, st.sampled_from("123")), max_size=12),
        TEXT,
        DELIMITER,
        st.tuples(TEXT, st.sampled_from(["", "1", "2", "3"])),
        LIMIT,
    )
    def test_asNaively(
        self,
        uploads: set[tuple[str, str]],
        prefix: str,
        delimiter: str,
        after: tuple[str, str],
        limit: int,
    ) -> None:
        """Any page is what a list of all uploads says."""
        connection = memoryCatalog()
        self.addCleanup(connection.close)
        change(connection, CREATE_UPLOAD, *(uploadOf(k.encode(), i) for k, i in uploads))
        listed = UploadRange(
            "b", prefix.encode(), delimiter.encode(), after[0].encode(), limit, after[1]
        )
        page = lists.listUploads(connection, listed)
        wanted = places(uploads, prefix, delimiter, after)
        first = wanted[:limit]
        self.assertEqual(
            [(each.key.decode(), each.uploadId) for each in page.uploads],
            [(key, identity) for key, identity, group in first if not group],
        )
        self.assertEqual(page.prefixes, [key for key, _, group in first if group])
        more = 0 < limit < len(wanted)
        self.assertEqual(page.last, first[-1][:2] if more else None)

    def test_markerInGroup(self) -> None:
        """A key in a group and an id, which no page ends with, go on behind that very key."""
        connection = memoryCatalog()
        self.addCleanup(connection.close)
        change(connection, CREATE_UPLOAD, uploadOf(b"a/", "1"), uploadOf(b"c", "1"))
        page = lists.listUploads(connection, UploadRange("b", b"", b"/", b"a/", 10, "1"))
        self.assertEqual(([each.key for each in page.uploads], page.prefixes), ([b"c"], []))
