"""Mailboxes and topics."""

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.errors import ServiceError
from storagegate.core.streams import ROOM, BoundedStream, PubSub


class MailboxTests(SynchronousTestCase):
    """One mailbox."""

    def setUp(self) -> None:
        """Make one for a hundred messages."""
        self.box = BoundedStream(100)

    def get(self) -> Deferred[Any]:
        """Begin to read a message."""
        return Deferred.fromCoroutine(self.box.get())

    def wait(self) -> Deferred[None]:
        """Begin to wait until much was read."""
        return Deferred.fromCoroutine(self.box.untilRead())

    def test_order(self) -> None:
        """Messages come out as they went in; who reads first waits."""
        reading = self.get()
        self.assertNoResult(reading)
        for number in range(3):
            self.box.put(number)
        self.assertEqual(self.successResultOf(reading), 0)
        self.assertEqual([self.successResultOf(self.get()) for _ in range(2)], [1, 2])

    def test_end(self) -> None:
        """After the end there is what waited, then nothing; and nothing can be added."""
        self.box.put(1)
        self.box.end()
        self.box.put(2)
        self.assertTrue(self.box.isOver)
        self.assertEqual(self.successResultOf(self.get()), 1)
        self.assertIsNone(self.successResultOf(self.get()))
        self.assertIsNone(self.successResultOf(self.get()))

    def test_endWakes(self) -> None:
        """An end reaches a reader that waits, with its error; the first end stands."""
        reading = self.get()
        self.box.end(ValueError("x"))
        self.box.end()
        self.failureResultOf(reading, ValueError)

    def test_full(self) -> None:
        """A reader for whom too much waits gets an error in its place."""
        for number in range(101):
            self.assertFalse(self.box.isOver)
            self.box.put(number)
        error = self.failureResultOf(self.get(), ServiceError).value
        self.assertEqual((error.code, error.statusCode, error.grpcStatus), ("RATE_LIMITED", 429, 8))

    def test_cancelled(self) -> None:
        """A reader that is cancelled loses nothing for the next."""
        reading = self.get()
        reading.cancel()
        self.failureResultOf(reading, CancelledError)
        self.box.put(1)
        self.assertEqual(self.successResultOf(self.get()), 1)

    def test_untilRead(self) -> None:
        """Who has put much waits until most of it was read, or the end."""
        self.successResultOf(self.wait())
        for number in range(70):
            self.box.put(number)
        waiting = self.wait()
        for _ in range(6):
            self.successResultOf(self.get())
            self.assertNoResult(waiting)
        self.successResultOf(self.get())
        self.successResultOf(waiting)
        self.box.put(70)
        waiting = self.wait()
        self.assertNoResult(waiting)
        self.box.end()
        self.successResultOf(waiting)


class TopicsTests(SynchronousTestCase):
    """Who is told of what."""

    def test_tell(self) -> None:
        """All who have joined a topic are told, nobody else, and nobody who has left."""
        topics = PubSub()
        one, other, apart = topics.join("a"), topics.join("a"), topics.join("b")
        self.assertEqual(len(topics), 3)
        topics.tell("a", [1, 2])
        topics.leave("a", other)
        topics.tell("a", [3])
        topics.tell("c", [4])
        self.assertEqual([self.read(box) for box in (one, other, apart)], [[1, 2, 3], [1, 2], []])
        topics.leave("a", one)
        topics.leave("b", apart)
        self.assertEqual(len(topics), 0)
        self.assertEqual(topics._boxes, {})

    def test_close(self) -> None:
        """When a topic ends, so do its mailboxes."""
        topics = PubSub()
        one, apart = topics.join("a"), topics.join("b")
        topics.close("a")
        topics.close("c")
        self.assertEqual((one.isOver, apart.isOver), (True, False))

    def test_slow(self) -> None:
        """One that does not read is ended, the others are told everything."""
        topics = PubSub()
        slow, quick = topics.join("a"), topics.join("a")
        for number in range(ROOM + 1):
            topics.tell("a", [number])
            self.assertEqual(self.read(quick), [number])
        self.failureResultOf(Deferred.fromCoroutine(slow.get()), ServiceError)

    def read(self, box: BoundedStream) -> list[Any]:
        """Read what waits."""
        box.put("end")
        items: list[Any] = []
        while (item := self.successResultOf(Deferred.fromCoroutine(box.get()))) not in (
            "end",
            None,
        ):
            items.append(item)
        return items
