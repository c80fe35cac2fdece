"""The core of HTTP/2: streams that end in their own callbacks, and the turns of its owner."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http2 import frames
from storagegate.net.http2.frames import frame, resetStream, windowUpdate
from storagegate.net.http2.interfaces import ErrorCode
from tests.support.http2 import END, OK, POST, TRAILERS, Peer, data, headers, readFrames

PRIORITY = frame(frames.PRIORITY, 0, 1, bytes(5))
OPEN = headers(1, POST, frames.END_HEADERS)


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.peer = Peer().greet()


class CallbackTests(_Case):
    """Streams that end in their own callbacks"""

    def react(self, name: str, reaction: Any, *wire: bytes) -> list[tuple[int, int]]:
        """Let each stream react to an event; return the resets."""

        def on(stream: Any, event: Any) -> None:
            if event[0] == name:
                reaction(stream)

        self.peer.on = on
        return self.peer.resets(*wire)

    def test_reset(self) -> None:
        """A reset in any callback is sent once, and not heard."""
        for number, (name, wire) in enumerate(
            [
                ("head", lambda number: headers(number)),
                ("head", lambda number: headers(number, POST, 4) + data(number, b"a", END)),
                ("data", lambda number: headers(number, POST, 4) + data(number, b"a") * 2),
                ("data", lambda number: headers(number, POST, 4) + data(number, b"a", END)),
                ("trailers", lambda number: headers(number, POST, 4) + headers(number, TRAILERS)),
            ]
        ):
            at = 2 * number + 1
            self.assertEqual(self.react(name, lambda each: each.reset(), wire(at)), [(at, 8)])
            self.assertEqual(self.peer.core.streams, {})
            self.assertNotIn("lost", self.peer.opened[at].names())
            self.assertIsNone(self.peer.core.failure)

    def test_answer(self) -> None:
        """A whole response in any callback ends the stream once."""
        for at, name, wire in (
            (1, "head", headers(1)),
            (3, "data", headers(3, POST, 4) + data(3, b"a", END)),
            (5, "trailers", headers(5, POST, 4) + headers(5, TRAILERS)),
        ):
            resets = self.react(name, lambda each: each.sendWhole(OK, b"ok"), wire)
            self.assertEqual(resets, [])
            self.assertEqual(self.peer.core.streams, {})
            self.assertEqual(self.peer.opened[at].names()[-1], name)

    def test_answerBeforeEnd(self) -> None:
        """A response to the first DATA stops the rest, which is not heard."""
        resets = self.react(
            "data", lambda each: each.sendWhole(OK, b"ok"), OPEN, data(1, b"a"), data(1, b"b", END)
        )
        self.assertEqual(resets, [(1, 0)])
        self.assertEqual(self.peer.opened[1].names(), ["head", "data"])

    def test_exception(self) -> None:
        """An exception of a stream ends it alone, with INTERNAL_ERROR; it hears of its end."""

        def fault(stream: Any) -> None:
            raise ZeroDivisionError

        for at, name, wire in (
            (1, "head", headers(1)),
            (3, "data", headers(3, POST, 4) + data(3, b"a") * 2),
            (5, "trailers", headers(5, POST, 4) + headers(5, TRAILERS)),
        ):
            resets = self.react(name, fault, wire)
            self.assertEqual(resets, [(at, ErrorCode.INTERNAL_ERROR)])
            self.assertEqual(self.peer.opened[at].names()[-1], "lost")
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(self.peer.core.streams, {})
        self.assertIsNone(self.peer.core.failure)

    def test_exceptionAfterEnd(self) -> None:
        """An exception after the response, or after a reset, sends nothing more."""

        def answer(stream: Any) -> None:
            stream.sendWhole(OK, b"ok")
            raise ZeroDivisionError

        def reset(stream: Any) -> None:
            stream.reset()
            raise ZeroDivisionError

        self.assertEqual(self.react("head", answer, headers(1)), [])
        self.assertEqual(self.react("head", reset, headers(3)), [(3, ErrorCode.CANCEL)])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)

    def test_exceptionOfLost(self) -> None:
        """An exception of C{lost} ends nothing else, and is logged."""

        def fault(stream: Any) -> None:
            raise ZeroDivisionError

        resets = self.react(
            "lost", fault, OPEN, headers(3), resetStream(1, 8), windowUpdate(3, 0), headers(5)
        )
        self.assertEqual(resets, [(3, ErrorCode.PROTOCOL_ERROR)])
        self.peer.core.lose(Exception("gone"))
        self.assertEqual(self.peer.opened[5].names(), ["head", "lost"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 3)

    def test_exceptionOfOpening(self) -> None:
        """A stream that cannot be made is reset."""

        def fail(core: Any, number: int) -> Any:
            raise ZeroDivisionError

        self.peer.core._openStream = fail
        self.assertEqual(self.peer.resets(headers(1)), [(1, ErrorCode.INTERNAL_ERROR)])
        self.assertEqual(self.peer.resets(headers(3)), [(3, ErrorCode.INTERNAL_ERROR)])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)

    def test_exceptionOfPause(self) -> None:
        """An exception when a writer may go on ends its stream."""
        self.peer.feed(headers(1))
        stream = self.peer.opened[1]
        stream.sendHead(OK)
        stream.sendData(bytes(65_537))
        self.assertTrue(stream.isPaused)
        stream.on = lambda stream, event: 1 // 0
        self.peer.sent()
        self.assertEqual(self.peer.sent()[-1].kind, frames.RST_STREAM)
        self.assertEqual(stream.names()[-1], "lost")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)

    def test_lose(self) -> None:
        """A callback that loses the connection is the last one."""
        core = self.peer.core
        self.react("head", lambda each: core.lose(Exception("gone")), headers(1), headers(3))
        self.assertEqual(list(self.peer.opened), [1])
        self.assertEqual(self.peer.opened[1].names(), ["head", "lost"])

    def test_othersReset(self) -> None:
        """A stream that hears of the loss of the connection may reset the others."""
        self.peer.feed(headers(1), headers(3))
        self.peer.opened[1].on = lambda stream, event: self.peer.opened[3].reset()
        self.peer.core.lose(Exception("gone"))
        self.assertEqual(self.peer.opened[3].names(), ["head"])
        self.assertEqual(self.peer.core.streams, {})

    def test_sendAfterEnd(self) -> None:
        """Nothing is sent on a stream that has ended."""
        peer = self.peer
        peer.feed(headers(1), headers(3))
        peer.opened[1].sendWhole(OK, b"ok")
        peer.opened[3].reset()
        peer.sent()
        for number in (1, 3):
            stream = peer.opened[number]
            stream.sendHead(OK)
            stream.sendWhole(OK, b"again")
            stream.sendWhole(OK, b"")
            stream.sendData(b"more")
            stream.sendData(b"", True)
            stream.sendTrailers(TRAILERS)
            stream.take(100_000)
            stream.setWindow(2**20)
            stream.reset()
        self.assertEqual(peer.sent(), [])

    def test_sendAfterQueuedEnd(self) -> None:
        """Nothing is queued behind the end of a stream that waits for a window."""
        peer = Peer().greet({frames.INITIAL_WINDOW_SIZE: 0})
        peer.feed(headers(1))
        stream = peer.opened[1]
        stream.sendHead(OK)
        stream.sendData(b"body")
        stream.sendTrailers(TRAILERS)
        stream.sendData(b"more")
        stream.sendData(b"", True)
        stream.sendTrailers(OK)
        peer.sent()
        sent = peer.feed(windowUpdate(1, 100))
        self.assertEqual([each.payload for each in sent], [b"body", TRAILERS])


class TurnTests(_Case):
    """The turns of the owner"""

    def test_turn(self) -> None:
        """Input that is left when the turn is over is handled with the next."""
        peer = Peer(isOver=lambda handled: handled >= 2)
        peer.core.receive(frames.PREFACE + frames.settings({}) + headers(1) + headers(3))
        self.assertEqual(list(peer.opened), [1])
        self.assertTrue(peer.core.hasInput)
        peer.core.receive(headers(5)[:12])
        self.assertEqual(list(peer.opened), [1, 3])
        self.assertFalse(peer.core.hasInput)
        self.assertTrue(peer.core.isInFrame)

    def test_longFrameAtTurn(self) -> None:
        """A frame that is too long is refused in the next turn, although its end never comes."""
        peer = Peer(isOver=lambda handled: True).greet()
        while peer.core.hasInput:
            peer.feed()
        peer.feed(headers(1, POST, 4), b"\xff\xff\xff\0\0\0\0\0\x01hello")
        self.assertTrue(peer.core.hasInput)
        self.assertEqual(peer.failure(), ErrorCode.FRAME_SIZE_ERROR)
        self.assertFalse(peer.core.hasInput)

    def test_flushes(self) -> None:
        """The owner is asked for a flush outside of input only."""
        peer = self.peer
        peer.on = lambda stream, event: stream.sendWhole(OK, b"ok")
        flushes = peer.flushes
        peer.feed(headers(1))
        self.assertEqual(peer.flushes, flushes)
        peer.on = None
        peer.feed(headers(3))
        peer.opened[3].sendHead(OK)
        self.assertEqual(peer.flushes, flushes + 1)
        self.assertTrue(peer.core.hasOutput)
        self.assertEqual(len(readFrames(peer.core.takeOutput(0))), 1)
        self.assertFalse(peer.core.hasOutput)

    def test_progress(self) -> None:
        """Progress is what does work, in both directions."""
        peer = self.peer
        before = peer.core.progress
        peer.feed(PRIORITY, frame(frames.PING, 0, 0, bytes(8)), windowUpdate(0, 5))
        self.assertEqual(peer.core.progress, before)
        peer.feed(OPEN)
        peer.feed(data(1, b"a"))
        self.assertEqual(peer.core.progress, before + 2)
        peer.opened[1].sendHead(OK)
        peer.opened[1].sendData(b"abc")
        peer.sent()
        self.assertEqual(peer.core.progress, before + 3)
