"""Bounded streams, and publish-subscribe over them."""

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from storagegate.core.errors import ServiceError
from storagegate.core.streams import (
    MAX_ITEMS,
    BoundedStream,
    GuardedRequests,
    PubSub,
    ReadAfterLoss,
    RequestsLost,
)


class BoundedStreamTests(SynchronousTestCase):
    """One stream without a producer that can be paused."""

    def setUp(self) -> None:
        """Make one for a hundred messages."""
        self.box: BoundedStream[Any] = BoundedStream(100)

    def get(self) -> Deferred[Any]:
        """Begin to read a message."""
        return Deferred.fromCoroutine(self.box.get())

    def wait(self) -> Deferred[None]:
        """Begin to wait until much was read."""
        return Deferred.fromCoroutine(self.box.drained())

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
        self.assertTrue(self.box.isEnded)
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
            self.assertFalse(self.box.isEnded)
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

    def test_drained(self) -> None:
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


@implementer(IPushProducer)
class Producer:
    """
    Takes note of what a stream wants.

    @ivar items: Put one by one while the producer is resumed.
    """

    def __init__(self) -> None:
        self.events: list[str] = []
        self.items: list[bytes] = []
        self.stream: BoundedStream[bytes]

    def pauseProducing(self) -> None:
        """Take note."""
        self.events.append("pause")

    def resumeProducing(self) -> None:
        """Take note, and put what is ready."""
        self.events.append("resume")
        while self.items:
            self.stream.put(self.items.pop(0))

    def stopProducing(self) -> None:
        """Never called."""


class BackPressureTests(SynchronousTestCase):
    """A stream whose producer can be paused."""

    def stream(self, **options: Any) -> BoundedStream[bytes]:
        """Make a stream of ten bytes."""
        self.producer = Producer()
        stream: BoundedStream[bytes] = BoundedStream(10, self.producer, sizeOf=len, **options)
        self.producer.stream = stream
        return stream

    def test_paused(self) -> None:
        """The producer is paused once at the limit, and loses nothing that it puts beyond."""
        stream = self.stream()
        for chunk in (b"12345", b"67890", b"ab"):
            stream.put(chunk)
        self.assertEqual((self.producer.events, stream.held), (["pause"], 12))
        reading = Deferred.fromCoroutine(stream.getAll())
        self.assertEqual(self.successResultOf(reading), [b"12345", b"67890", b"ab"])
        self.assertEqual((self.producer.events, stream.held), (["pause"], 0))

    def test_resumed(self) -> None:
        """It is resumed when the consumer begins to wait, and may put items in that call."""
        stream = self.stream()
        reading = Deferred.fromCoroutine(stream.get())
        self.assertNoResult(reading)
        self.assertEqual(self.producer.events, ["resume"])
        stream.put(b"1")
        self.assertEqual(self.successResultOf(reading), b"1")
        self.producer.items = [b"2", b"3"]
        self.assertEqual(
            self.successResultOf(Deferred.fromCoroutine(stream.getAll())), [b"2", b"3"]
        )
        self.assertEqual(self.producer.events, ["resume", "resume"])

    def test_resumeBelow(self) -> None:
        """With C{resumeBelow}, a paused producer is resumed as soon as less is held."""
        stream = self.stream(resumeBelow=10)
        for chunk in (b"12345", b"67890", b"abcde"):
            stream.put(chunk)
        for events in (["pause"], ["pause", "resume"], ["pause", "resume"]):
            self.successResultOf(Deferred.fromCoroutine(stream.get()))
            self.assertEqual(self.producer.events, events)

    def test_fail(self) -> None:
        """A failure drops what is held, and every read raises it."""
        stream = self.stream()
        stream.put(b"1")
        stream.fail(ValueError("x"))
        stream.put(b"2")
        stream.end()
        self.assertEqual((stream.takeAll(), stream.held, stream.isEnded), ([], 0, True))
        for read in (stream.get, stream.getAll):
            self.failureResultOf(Deferred.fromCoroutine(read()), ValueError)

    def test_iterated(self) -> None:
        """A stream is an asynchronous iterator of its items."""

        async def read() -> list[bytes]:
            return [item async for item in stream]

        stream = self.stream()
        reading = Deferred.fromCoroutine(read())
        stream.put(b"1")
        stream.put(b"2")
        stream.end()
        self.assertEqual(self.successResultOf(reading), [b"1", b"2"])
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(stream.getAll())), [])

    def test_oneConsumer(self) -> None:
        """A second consumer is refused while the first one waits."""
        stream = self.stream()
        reading = Deferred.fromCoroutine(stream.get())
        self.failureResultOf(Deferred.fromCoroutine(stream.get()), RuntimeError)
        reading.cancel()
        self.failureResultOf(reading, CancelledError)
        self.assertNoResult(Deferred.fromCoroutine(stream.get()))


class PubSubTests(SynchronousTestCase):
    """Who is told of what."""

    def test_tell(self) -> None:
        """All who have joined a topic are told, nobody else, and nobody who has left."""
        topics = PubSub()
        one, other, apart = topics.subscribe("a"), topics.subscribe("a"), topics.subscribe("b")
        self.assertEqual(len(topics), 3)
        topics.publish("a", [1, 2])
        topics.unsubscribe("a", other)
        topics.publish("a", [3])
        topics.publish("c", [4])
        self.assertEqual([self.read(box) for box in (one, other, apart)], [[1, 2, 3], [1, 2], []])
        topics.unsubscribe("a", one)
        topics.unsubscribe("b", apart)
        self.assertEqual(len(topics), 0)
        self.assertEqual(topics._streams, {})

    def test_close(self) -> None:
        """When a topic ends, so do its mailboxes."""
        topics = PubSub()
        one, apart = topics.subscribe("a"), topics.subscribe("b")
        topics.close("a")
        topics.close("c")
        self.assertEqual((one.isEnded, apart.isEnded), (True, False))

    def test_slow(self) -> None:
        """One that does not read is ended, the others are told everything."""
        topics = PubSub()
        slow, quick = topics.subscribe("a"), topics.subscribe("a")
        for number in range(MAX_ITEMS + 1):
            topics.publish("a", [number])
            self.assertEqual(self.read(quick), [number])
        self.failureResultOf(Deferred.fromCoroutine(slow.get()), ServiceError)

    def read(self, box: BoundedStream[Any]) -> list[Any]:
        """Read what waits."""
        box.put("end")
        items: list[Any] = []
        while (item := self.successResultOf(Deferred.fromCoroutine(box.get()))) not in (
            "end",
            None,
        ):
            items.append(item)
        return items


class LostRequestsTests(SynchronousTestCase):
    """The requests of a call that breaks off."""

    def test_lost(self) -> None:
        """The first read of a lost stream is cancelled; no further one is an end."""
        items: BoundedStream[Any] = BoundedStream()
        requests = GuardedRequests(items)
        items.put(1)
        items.put(2)
        self.assertEqual(self.read(requests), 1)
        items.end()
        items.abandon(RequestsLost())
        self.assertIsInstance(self.read(requests), RequestsLost)
        self.assertIsInstance(self.read(requests), ReadAfterLoss)

    def test_whole(self) -> None:
        """A stream of which all was read has its end, also after the call."""
        items: BoundedStream[Any] = BoundedStream()
        items.put(1, last=True)
        requests = GuardedRequests(items)
        self.assertEqual(self.read(requests), 1)
        items.abandon(RequestsLost())
        self.assertIsInstance(self.read(requests), StopAsyncIteration)

    def test_timeout(self) -> None:
        """A read that its reader gives up loses nothing for the next."""
        items: BoundedStream[Any] = BoundedStream()
        requests = GuardedRequests(items)
        reading = Deferred.fromCoroutine(requests.__anext__())
        reading.cancel()
        self.failureResultOf(reading, CancelledError)
        items.put(1)
        self.assertEqual(self.read(requests), 1)

    def test_generator(self) -> None:
        """A generator that has raised has no end to tell of."""

        async def broken() -> Any:
            yield 1
            raise CancelledError

        requests = GuardedRequests(broken())
        self.assertEqual(self.read(requests), 1)
        self.assertIsInstance(self.read(requests), CancelledError)
        self.assertIsInstance(self.read(requests), ReadAfterLoss)

    def read(self, requests: GuardedRequests) -> Any:
        """Return the next request, or the error in its place."""
        steps = requests.__anext__()
        try:
            steps.send(None)
        except StopIteration as end:
            return end.value
        except BaseException as error:
            return error
        raise AssertionError("the read waits")
