"""The shared table behaves like a dictionary whose entries end, and keeps within its memory."""

import os
from threading import Thread
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.sharedtable import WAYS, SharedTable

NOW = 1_700_000_000.0

KEYS = tuple(f"key {number}".encode() for number in range(8))

STEPS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(KEYS), st.binary(max_size=20), st.integers(1, 20)),
    st.tuples(st.just("remove"), st.sampled_from(KEYS)),
    st.tuples(st.just("leave"), st.sampled_from(KEYS)),
    st.tuples(st.just("clock"), st.integers(-10, 10)),
)


class TableCase(SynchronousTestCase):
    """What the cases of this file share."""

    def setUp(self) -> None:
        """Choose a time."""
        self.clock = Clock()
        self.clock.rightNow = NOW

    def table(self, rows: int = 64, size: int = 20) -> SharedTable:
        """Make a table on the clock."""
        fd = SharedTable.make("test", rows, size)
        self.addCleanup(os.close, fd)
        table = SharedTable(fd, self.clock.seconds)
        self.addCleanup(table.close)
        return table

    def write(self, table: SharedTable, key: bytes, record: bytes, seconds: float) -> None:
        """Put a record in."""
        table.change(key, lambda old, until, now: (record, now + seconds))


class ModelTests(TableCase):
    """Held against a dictionary."""

    @given(st.lists(STEPS, max_size=40))
    def test_model(self, steps: list[tuple[Any, ...]]) -> None:
        """
        Whatever is written, taken out and ended, every process sees what a dictionary would have;
        what began in the future is not there.
        """
        self.clock.rightNow = NOW
        fd = SharedTable.make("test", 64, 20)
        tables = [SharedTable(fd, self.clock.seconds) for _ in range(2)]
        model: dict[bytes, tuple[bytes, float, float]] = {}
        for number, (step, *more) in enumerate(steps):
            if step == "clock":
                self.clock.rightNow += more[0]
                continue
            self.step(tables[number % 2], model, step, *more)
            now = self.clock.seconds()
            live = {
                key: (kept, end) for key, (kept, began, end) in model.items() if began <= now < end
            }
            self.assertEqual([tables[0].read(key) for key in KEYS], [live.get(key) for key in KEYS])
            self.assertEqual(len(tables[1]), len(live))
        for table in tables:
            table.close()
        os.close(fd)

    def step(self, table: SharedTable, model: Any, step: str, key: bytes, *more: Any) -> None:
        """Do the same to a table and to its model."""
        now = self.clock.seconds()
        known = model.get(key)
        if known is not None and not known[1] <= now < known[2]:
            known = None
        change = {
            "write": lambda: (more[0], now + more[1]),
            "remove": lambda: (b"", 0.0),
            "leave": lambda: None,
        }[step]()
        seen: list[Any] = []

        def act(record: bytes | None, until: float, at: float) -> Any:
            seen.append((record, until, at))
            return change

        self.assertEqual(table.change(key, act), change)
        self.assertEqual(seen, [(None, 0.0, now) if known is None else (known[0], known[2], now)])
        if change is not None:
            model[key] = (change[0], now if known is None else known[1], change[1])


class RoomTests(TableCase):
    """What does not fit."""

    def test_full(self) -> None:
        """In a full bucket the record that ends first leaves for a new one."""
        table = self.table(rows=WAYS)
        for number in range(WAYS):
            self.write(table, b"%d" % number, b"x", 100 + (number - 5) ** 2)
        self.write(table, b"new", b"y", 1)
        self.assertEqual(len(table), WAYS)
        self.assertIsNone(table.read(b"5"))
        self.assertEqual(table.read(b"new"), (b"y", self.clock.seconds() + 1))

    def test_nothingToTakeOut(self) -> None:
        """Removing an absent record replaces no other."""
        table = self.table(rows=WAYS)
        for number in range(WAYS):
            self.write(table, b"%d" % number, b"x", 10)
        self.write(table, b"other", b"", -1)
        self.assertEqual(len(table), WAYS)

    def test_ended(self) -> None:
        """Where something has ended, a new record takes its row, and nothing leaves."""
        table = self.table(rows=WAYS)
        for number in range(WAYS):
            self.write(table, b"%d" % number, b"x", 1 if number == 9 else 100)
        self.clock.advance(1)
        self.write(table, b"new", b"y", 1)
        self.assertEqual(
            [number for number in range(WAYS) if table.read(b"%d" % number) is None], [9]
        )

    def test_clockSetBack(self) -> None:
        """Records of a time to come leave first: they do not hold the place of those of now."""
        table = self.table(rows=WAYS)
        self.write(table, b"now", b"x", 10)
        self.clock.rightNow += 3600
        for number in range(WAYS):
            self.write(table, b"later %d" % number, b"x", 100)
        self.clock.rightNow -= 3600
        for number in range(WAYS):
            self.write(table, b"%d" % number, b"x", 10)
        self.assertEqual(len(table), WAYS)
        self.assertTrue(all(table.read(b"%d" % number) for number in range(WAYS)))

    def test_many(self) -> None:
        """A table with twice the rows keeps nearly all of what is put in, whatever the keys."""
        table = self.table(rows=2000, size=8)
        for number in range(1000):
            self.write(table, b"key %d" % number, b"%d" % number, 60)
        self.assertGreater(len(table), 990)
        kept = {table.read(b"key %d" % number) for number in range(1000)}
        self.assertEqual(len(kept - {None}), len(table))

    def test_large(self) -> None:
        """A record that is too large is refused, and what was there stays."""
        table = self.table()
        self.write(table, b"a", b"x" * 20, 10)
        self.assertRaises(ValueError, self.write, table, b"a", b"x" * 21, 10)
        self.assertEqual(table.read(b"a"), (b"x" * 20, self.clock.seconds() + 10))

    def test_failing(self) -> None:
        """When an act fails nothing changes, and the next one finds the bucket free."""
        table = self.table()
        self.write(table, b"a", b"x", 10)

        def fail(old: Any, until: float, now: float) -> Any:
            raise KeyError

        self.assertRaises(KeyError, table.change, b"a", fail)
        self.write(table, b"a", b"y", 10)
        self.assertEqual(table.read(b"a"), (b"y", self.clock.seconds() + 10))


class PlaceTests(TableCase):
    """Keys and memory."""

    def test_keyed(self) -> None:
        """Two tables put the same keys at different places: clients cannot choose a bucket."""
        found = []
        for _ in range(2):
            table = self.table(rows=4096, size=8)
            self.write(table, b"key", b"12345678", 10)
            found.append(table._memory.find(b"12345678"))
        self.assertNotEqual(*found)

    def test_unused(self) -> None:
        """Memory is taken up by what is used of it."""
        fd = SharedTable.make("test", 1_000_000, 8)
        self.addCleanup(os.close, fd)
        table = SharedTable(fd)
        self.addCleanup(table.close)
        table.read(b"key")
        self.write(table, b"key", b"x", 10)
        self.assertGreater(os.fstat(fd).st_size, 40_000_000)
        self.assertLess(os.fstat(fd).st_blocks * 512, 100_000)

    def test_sealed(self) -> None:
        """No process can truncate the memory that others have mapped."""
        table = self.table()
        self.assertRaises(PermissionError, os.ftruncate, table.fd, 0)

    def test_refused(self) -> None:
        """Sizes that cannot be, and memory without a table, are refused."""
        for rows, size in ((0, 8), (-1, 8), (8, 0), (1 << 40, 8), (8, 1 << 40)):
            self.assertRaises(ValueError, SharedTable.make, "test", rows, size)
        for length in (0, 100, 4096, 100_000):
            fd = os.memfd_create("test")
            self.addCleanup(os.close, fd)
            os.ftruncate(fd, length)
            self.assertRaises(ValueError, SharedTable, fd)

    def test_threads(self) -> None:
        """Another thread may not use it: the locks would not keep it out."""
        table = self.table()
        raised: list[BaseException] = []

        def use() -> None:
            try:
                table.read(b"key")
            except AssertionError as error:
                raised.append(error)

        thread = Thread(target=use)
        thread.start()
        thread.join()
        self.assertEqual(len(raised), 1)
