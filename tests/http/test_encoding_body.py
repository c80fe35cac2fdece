"""A streamed body on its way through an encoder, with threads that work when they are told to."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from storagegate.http.encoding import INLINE_SIZE, EncodedBody, IBodyEncoder
from storagegate.net.http.interfaces import ClientLost
from storagegate.net.http.message import READY

LARGE = b"L" * (INLINE_SIZE + 1)


class Broken(Exception):
    """What an encoder raises here."""


@implementer(IBodyEncoder)
class Spelling:
    """Keeps what it is fed until it is flushed."""

    flushes = False

    def __init__(self) -> None:
        self.kept = b""

    def feed(self, chunk: bytes) -> bytes:
        """Keep a chunk, or break."""
        if chunk.startswith(b"!"):
            raise Broken()
        self.kept += b"[%d]" % len(chunk)
        return b""

    def flush(self) -> bytes:
        """Give what is kept."""
        kept, self.kept = self.kept, b""
        return kept

    def finish(self) -> bytes:
        """Give what is kept, and the end."""
        return self.flush() + b"."


class EncodedBodyTests(SynchronousTestCase):
    """The queue."""

    def setUp(self) -> None:
        """Make a body, a wire that takes everything, and a thread."""
        self.encoder = Spelling()
        self.sent: list[bytes] = []
        self.jobs: list[tuple[Callable[[], Any], Deferred[Any]]] = []
        self.lost = False
        self.body = EncodedBody(self.encoder, self.send, self.delay)

    def send(self, data: bytes) -> Any:
        """Be the wire."""
        if self.lost:
            failing: Deferred[None] = Deferred()
            failing.errback(ClientLost())
            return failing
        self.sent.append(data)
        return READY

    def delay(self, function: Callable[[], Any]) -> Deferred[Any]:
        """Be the threads: remember the job."""
        done: Deferred[Any] = Deferred()
        self.jobs.append((function, done))
        return done

    def work(self) -> None:
        """Do the oldest job."""
        function, done = self.jobs.pop(0)
        try:
            result = function()
        except Broken as error:
            done.errback(error)
        else:
            done.callback(result)

    def test_small(self) -> None:
        """Small pieces are encoded at once, and are sent when the encoder gives them."""
        self.assertIs(self.body.write(b"abc"), READY)
        self.assertEqual(self.sent, [])
        self.body.flush()
        self.assertEqual(self.sent, [b"[3]"])
        self.assertEqual(self.jobs, [])

    def test_flushes(self) -> None:
        """An encoder that flushes sends each piece as it is written."""
        self.encoder.flushes = True
        self.body.write(b"abc")
        self.body.write(b"d")
        self.assertEqual(self.sent, [b"[3]", b"[1]"])

    def test_large(self) -> None:
        """A large piece goes through a thread, and what comes after it waits its turn."""
        first, second = self.body.write(LARGE), self.body.write(b"abc")
        last = self.body.finish()
        self.assertEqual((self.sent, len(self.jobs)), ([], 1))
        self.work()
        self.successResultOf(first)
        self.assertNoResult(second)
        self.work()
        self.work()
        self.successResultOf(second)
        self.successResultOf(last)
        self.assertEqual(b"".join(self.sent), b"[%d][3]." % len(LARGE))

    def test_manySmall(self) -> None:
        """As many small pieces as make a large one let the reactor turn, though nothing is sent."""
        piece = b"s" * (INLINE_SIZE // 4)
        for _ in range(3):
            for _ in range(4):
                self.assertIs(self.body.write(piece), READY)
            waits = self.body.write(piece)
            self.assertNoResult(waits)
            self.work()
            self.successResultOf(waits)
        self.assertEqual(self.sent, [])

    def test_broken(self) -> None:
        """When an encoder breaks in a thread, those whose pieces cannot be sent are told."""
        waiting = [self.body.write(b"!" + LARGE), self.body.write(b"a"), self.body.finish()]
        self.work()
        for each in waiting:
            self.failureResultOf(each, Broken)
        self.assertEqual((self.sent, self.jobs), ([], []))

    def test_afterAFailure(self) -> None:
        """After a piece that broke nothing is sent, and there is no end: a gap is no whole."""
        ready = self.body.write(b"!" + LARGE)
        self.work()
        self.failureResultOf(ready, Broken)
        self.assertRaises(Broken, self.body.write, b"more")
        self.failureResultOf(self.body.finish(), Broken)
        self.assertEqual(self.sent, [])

    def test_afterASmallFailure(self) -> None:
        """So it is if the piece was encoded at once."""
        self.assertRaises(Broken, self.body.write, b"!")
        self.assertRaises(Broken, self.body.write, b"more")
        self.failureResultOf(self.body.finish(), Broken)
        self.assertEqual(self.sent, [])

    def test_lost(self) -> None:
        """A lost client releases those who wait, without an error; the next piece raises it."""
        self.encoder.flushes = True
        waiting = [self.body.write(LARGE), self.body.write(b"a")]
        self.lost = True
        self.work()
        for each in waiting:
            self.successResultOf(each)
        self.assertEqual((self.sent, self.jobs), ([], []))
        self.encoder.flushes = False
        self.failureResultOf(self.body.write(b"a"), ClientLost)
        self.failureResultOf(self.body.write(LARGE), ClientLost)
        self.failureResultOf(self.body.finish(), ClientLost)
