"""The promises of L{IConsoleRecords}, mixed into a case for each implementation."""

from typing import Any

from zope.interface.verify import verifyObject

from storagegate.storage.consolerecords import ConsoleRecord, IConsoleRecords, RecordLimits

NOW_MS = 1_700_000_000_000
LATER_MS = NOW_MS + 60_000


def record(
    id: str,
    kind: str = "session",
    owner: str = "key",
    expiresMs: int = LATER_MS,
    document: bytes = b"{}",
) -> ConsoleRecord:
    """Make a record."""
    return ConsoleRecord(kind, id, owner, expiresMs, document)


class ConsoleRecordsContract:
    """
    Mix into a trial C{TestCase} whose C{setUp} sets C{self.stores}: two stores of two processes
    that share their records.
    """

    stores: Any

    async def put(self, number: int, *added: ConsoleRecord, **named: Any) -> list[bool]:
        """Add records by one of the stores."""
        limits = RecordLimits(**{**_FIELDS, **named})
        return [await self.stores[number].add(each, limits, NOW_MS) for each in added]

    async def ids(self, kind: str = "session") -> set[str]:
        """Return the ids of the records of a kind, as the second store has them."""
        return {each.id for each in await self.stores[1].records(kind, None)}

    def test_interface(self: Any) -> None:
        """The store has all methods of its interface."""
        for each in self.stores:
            verifyObject(IConsoleRecords, each)

    async def test_shared(self: Any) -> None:
        """A record of one process is found, changed and removed by the other one."""
        first, second = self.stores
        self.assertIsNone(await second.find("session", "a"))
        made = record("a", document=bytes(range(256)))
        self.assertEqual(await self.put(0, made), [True])
        self.assertEqual(await second.find("session", "a"), made)
        self.assertIsNone(await second.find("ticket", "a"))
        changed = record("a", expiresMs=LATER_MS + 1, document=b"")
        self.assertTrue(await second.replace(changed))
        self.assertEqual(await first.find("session", "a"), changed)
        await second.remove("session", "a")
        self.assertIsNone(await first.find("session", "a"))
        await second.remove("session", "a")

    async def test_gone(self: Any) -> None:
        """Replacing a record that was removed does not bring it back."""
        await self.put(0, record("a"))
        await self.stores[1].remove("session", "a")
        self.assertFalse(await self.stores[0].replace(record("a")))
        self.assertIsNone(await self.stores[0].find("session", "a"))

    async def test_forward(self: Any) -> None:
        """The expiry moves forward only: the clocks of processes differ."""
        await self.put(0, record("a"))
        await self.stores[0].replace(record("a", expiresMs=LATER_MS - 1, document=b"2"))
        self.assertEqual(await self.stores[1].find("session", "a"), record("a", document=b"2"))

    async def test_once(self: Any) -> None:
        """An id is stored once, by the first process."""
        self.assertEqual(await self.put(0, record("a")), [True])
        self.assertEqual(await self.put(1, record("a", owner="other", document=b"2")), [False])
        self.assertEqual(await self.stores[1].find("session", "a"), record("a"))

    async def test_listed(self: Any) -> None:
        """The records of a kind are listed, of all owners or of one."""
        await self.put(0, record("a"), record("b", owner="other"), record("c", "ticket"))
        self.assertEqual(await self.ids(), {"a", "b"})
        self.assertEqual(
            await self.stores[1].records("session", "other"), [record("b", owner="other")]
        )
        self.assertEqual(await self.stores[1].records("session", "none"), [])

    async def test_owned(self: Any) -> None:
        """The records that a removed record owns are removed, but none of its own kind."""
        await self.put(0, record("a"), record("same", owner="a"))
        await self.put(0, record("t", "ticket", "a"), record("u", "ticket", "b"))
        await self.stores[1].remove("session", "a")
        self.assertEqual((await self.ids(), await self.ids("ticket")), ({"same"}, {"u"}))

    async def test_expired(self: Any) -> None:
        """Adding a record removes the expired records of all kinds."""
        await self.put(0, record("a", expiresMs=NOW_MS), record("b", "ticket", expiresMs=NOW_MS))
        self.assertEqual((await self.ids(), await self.ids("ticket")), (set(), {"b"}))
        await self.put(1, record("c"))
        self.assertEqual((await self.ids(), await self.ids("ticket")), ({"c"}, set()))

    async def test_most(self: Any) -> None:
        """A record above the total evicts the ones that expire first, with what they own."""
        await self.put(0, *(record(str(n), expiresMs=LATER_MS + n) for n in range(4)))
        await self.put(0, record("t", "ticket", "0"), record("u", "ticket", "3"))
        self.assertEqual(await self.put(1, record("new"), most=3), [True])
        self.assertEqual(await self.ids(), {"2", "3", "new"})
        self.assertEqual(await self.ids("ticket"), {"u"})

    async def test_mostOfOwner(self: Any) -> None:
        """A record above the limit of its owner evicts records of this owner only."""
        await self.put(0, record("other", owner="other", expiresMs=NOW_MS + 1))
        await self.put(0, *(record(str(n), expiresMs=LATER_MS + n) for n in range(4)))
        self.assertEqual(await self.put(1, record("new"), mostOfOwner=2), [True])
        self.assertEqual(await self.ids(), {"3", "new", "other"})

    async def test_mostBytesOfOwner(self: Any) -> None:
        """So does a record whose document exceeds the bytes of its owner."""
        await self.put(0, record("other", owner="other", document=bytes(100)))
        added = [record(str(n), expiresMs=LATER_MS + n, document=bytes(40)) for n in range(3)]
        await self.put(0, *added)
        await self.put(1, record("new", document=bytes(20)), mostBytesOfOwner=100)
        self.assertEqual(await self.ids(), {"1", "2", "new", "other"})
        await self.put(1, record("large", document=bytes(100)), mostBytesOfOwner=100)
        self.assertEqual(await self.ids(), {"large", "other"})

    async def test_refused(self: Any) -> None:
        """Without eviction, a record above the total is refused until one has expired."""
        await self.put(0, record("a", expiresMs=NOW_MS + 1), record("b"))
        self.assertEqual(await self.put(1, record("c"), most=2, evicts=False), [False])
        self.assertEqual(await self.ids(), {"a", "b"})
        limits = RecordLimits(**{**_FIELDS, "most": 2, "evicts": False})
        self.assertTrue(await self.stores[1].add(record("c"), limits, NOW_MS + 1))
        self.assertEqual(await self.ids(), {"b", "c"})


_FIELDS = {"most": 1000, "mostOfOwner": 1000, "mostBytesOfOwner": 1 << 20}
