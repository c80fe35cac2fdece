"""The budget of bytes that are held for requests not yet called."""

import os

from attrs import define
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.errors import ServiceError
from storagegate.core.heldbytes import HeldBuffer, HeldBytes
from tests.support.memory import residentMemory


@define(eq=False)
class Holder:
    """
    An incomplete request.

    @ivar mayEnd: Whether it can be refused.
    """

    name: str
    budget: HeldBytes
    refused: list[tuple[str, str]]
    mayEnd: bool = True

    def refuseHeld(self, error: ServiceError) -> None:
        """Note the refusal."""
        if self.mayEnd:
            self.refused.append((self.name, error.code))
            self.budget.update(self, 0)


class HeldBufferTests(SynchronousTestCase):
    """The bytes of an incomplete message."""

    def test_take(self) -> None:
        """All bytes come back in their order, whatever the pieces were, and are forgotten."""
        content = bytes(range(256)) * 4096
        for size in (1000, 32 * 1024, 100_000, 256 * 1024, 300_000, len(content)):
            buffer = HeldBuffer()
            for at in range(0, len(content), size):
                buffer.append(content[at : at + size])
            self.assertEqual(buffer.size, len(content))
            self.assertEqual(buffer.take(), content)
            self.assertEqual((buffer.size, buffer.take()), (0, b""))

    def test_again(self) -> None:
        """A block that is used again shows nothing of the message before."""
        buffer = HeldBuffer()
        buffer.append(b"a" * 600_000)
        buffer.clear()
        buffer.append(b"b" * 40_000)
        self.assertEqual(buffer.take(), b"b" * 40_000)

    def test_tiny(self) -> None:
        """Pieces of one byte are joined, not kept in an object each."""
        buffer = HeldBuffer()
        for _ in range(5000):
            buffer.append(b"x")
        self.assertLess(len(buffer._chunks), 1024)
        self.assertEqual(buffer.take(), b"x" * 5000)

    def test_returned(self) -> None:
        """The memory of a refused message returns to the system, but for a few blocks."""
        mib = 1 << 20
        before = residentMemory(os.getpid())
        buffers = [HeldBuffer() for _ in range(16)]
        for _ in range(32):
            for each in buffers:
                # Cut down as the reads of a socket are.
                each.append(bytes(bytearray(100_000))[:65_536])
        self.assertGreater(residentMemory(os.getpid()) - before, 24 * mib)
        for each in buffers:
            each.clear()
        self.assertLess(residentMemory(os.getpid()) - before, 8 * mib)


class HeldBytesTests(SynchronousTestCase):
    """A budget of 800 bytes."""

    def setUp(self) -> None:
        """Make the budget."""
        self.clock = Clock()
        self.budget = HeldBytes(800, self.clock.seconds)
        self.refused: list[tuple[str, str]] = []

    def hold(self, name: str, size: int, mayEnd: bool = True, group: object = None) -> Holder:
        """Make a holder that has so many bytes."""
        holder = Holder(name, self.budget, self.refused, mayEnd)
        self.budget.update(holder, size, group)
        return holder

    def test_within(self) -> None:
        """Up to the limit all are held, and what is complete is forgotten."""
        first, second = self.hold("a", 500), self.hold("b", 300)
        self.budget.update(first, 100)
        self.assertEqual((self.budget.total, self.refused), (400, []))
        for each in (first, second, first):
            self.budget.update(each, 0)
        self.assertEqual((self.budget.total, self.budget._shares), (0, {}))

    def test_onRefused(self) -> None:
        """After requests were refused, once, the process may return memory."""
        calls: list[int] = []
        self.budget.onRefused = lambda: calls.append(self.budget.total)
        self.hold("a", 500)
        self.assertEqual(calls, [])
        self.hold("b", 400)
        self.assertEqual(calls, [400])

    def test_complete(self) -> None:
        """Nothing is entered for what is complete at once."""
        self.hold("a", 0)
        self.assertEqual(self.budget._shares, {})

    def test_largest(self) -> None:
        """Of those that began together the largest are refused, until an eighth is free."""
        for name, size in (("a", 100), ("b", 200), ("c", 150), ("d", 300)):
            self.hold(name, size)
        self.hold("e", 60)
        self.assertEqual(self.refused, [("d", "RESOURCE_EXHAUSTED")])
        self.assertEqual((self.budget.total, self.budget.refused), (510, 1))
        self.hold("f", 291)
        self.assertEqual([name for name, _ in self.refused], ["d", "f"])

    def test_slowest(self) -> None:
        """One that has come for long is refused before a larger one that comes fast."""
        self.hold("slow", 200)
        self.clock.advance(30)
        self.hold("fast", 601)
        self.assertEqual([name for name, _ in self.refused], ["slow"])

    def test_groups(self) -> None:
        """Many small requests of a group are refused before a larger one of another."""
        self.hold("large", 100, group="a")
        self.hold("alone", 90)
        for number in range(8):
            self.hold(str(number), 70 + number % 2, group="b")
        for limit, names in ((700, ["1", "3"]), (300, ["5", "7", "0", "2", "4"])):
            self.refused.clear()
            self.budget.limit = limit
            self.hold("last", 1, group="c")
            self.assertEqual([name for name, _ in self.refused], names)
        self.budget.limit = 100
        self.hold("more", 1, group="c")
        self.assertEqual([name for name, _ in self.refused][-2:], ["large", "alone"])

    def test_growing(self) -> None:
        """The age of a request is that of its first byte, however often it grows."""
        slow = self.hold("slow", 1)
        for size in range(2, 112):
            self.clock.advance(1)
            self.budget.update(slow, size)
        self.hold("fast", 695)
        self.assertEqual([name for name, _ in self.refused], ["slow"])

    def test_stubborn(self) -> None:
        """What cannot be refused any more counts, and the next one is refused in its place."""
        self.hold("a", 700, mayEnd=False)
        self.hold("b", 101)
        self.assertEqual([name for name, _ in self.refused], ["b"])
        self.assertEqual((self.budget.total, self.budget.refused), (700, 1))

    def test_amortised(self) -> None:
        """Holders are searched once for an eighth of the limit, not for each byte."""
        self.budget = HeldBytes(8_000_000, self.clock.seconds)
        searches = 0
        original = self.budget._refuse

        def refuse() -> None:
            nonlocal searches
            searches += 1
            original()

        self.budget._refuse = refuse  # type: ignore[method-assign]
        holders = [self.hold(str(number), 8_000) for number in range(1000)]
        self.assertEqual((searches, self.budget.total), (0, 8_000_000))
        for each in holders:
            for size in range(8_001, 9_000):
                share = self.budget._shares.get(each)
                if share is not None:
                    self.budget.update(each, size)
        self.assertLess(searches, 3)

    def test_limit(self) -> None:
        """A limit that is lowered holds from the next byte on."""
        first = self.hold("a", 500)
        self.budget.limit = 400
        self.budget.update(first, 501)
        self.assertEqual([name for name, _ in self.refused], ["a"])
