"""Lines on their way into the log, to outputs that are slow, full or broken."""

import threading
from collections.abc import Callable

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.telemetry.log import (
    FAILED_SECONDS,
    FLUSH_BYTES,
    LIMIT_BYTES,
    PROMISED_SECONDS,
    RETRY_SECONDS,
    BufferedLogWriter,
)


class Output:
    """
    Takes as much as there is room for.

    @ivar room: Bytes that it still takes; C{None} for any number.
    @ivar failure: What it raises instead.
    """

    def __init__(self) -> None:
        self.data = b""
        self.writes = 0
        self.room: int | None = None
        self.failure: OSError | None = None

    def write(self, data: memoryview) -> int:
        """Take what there is room for."""
        self.writes += 1
        if self.failure is not None:
            raise self.failure
        taken = bytes(data if self.room is None else data[: self.room])
        if self.room is not None:
            self.room -= len(taken)
        self.data += taken
        return len(taken)


class Reactor(Clock):
    """Remembers what came from other threads."""

    def __init__(self) -> None:
        super().__init__()
        self.fromThread: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def callFromThread(self, function: Callable[..., object], *arguments: object) -> None:
        """Remember a call."""
        self.fromThread.append((function, arguments))


class WriterCase(SynchronousTestCase):
    """What the cases of this file share."""

    def setUp(self) -> None:
        """Make a writer for a reactor that runs."""
        self.output = Output()
        self.reactor = Reactor()
        self.writer = BufferedLogWriter(self.output)
        self.writer.buffer(self.reactor)


class TurnTests(WriterCase):
    """When lines are written."""

    def test_turn(self) -> None:
        """The lines of a turn are written at its end, with one write."""
        self.writer.write(b"one")
        self.writer.write(b"two")
        self.assertEqual(self.output.writes, 0)
        self.reactor.advance(0)
        self.assertEqual((self.output.data, self.output.writes), (b"one\ntwo\n", 1))
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_large(self) -> None:
        """What fills a pipe does not wait for the end of the turn."""
        self.writer.write(b"x" * (FLUSH_BYTES - 1))
        self.assertEqual(len(self.output.data), FLUSH_BYTES)

    def test_urgent(self) -> None:
        """An urgent line does not wait, nor does what came before it."""
        self.writer.write(b"call")
        self.writer.write(b"error", isUrgent=True)
        self.assertEqual(self.output.data, b"call\nerror\n")
        self.output.room = 0
        self.writer.write(b"more", isUrgent=True)
        self.writer.write(b"more", isUrgent=True)
        # Whoever does not read is not asked with each line.
        self.assertEqual(self.output.writes, 2)

    def test_before(self) -> None:
        """Before the reactor runs and after it has stopped, every line is written at once."""
        writer = BufferedLogWriter(self.output)
        writer.write(b"starting")
        self.assertEqual(self.output.data, b"starting\n")
        self.writer.write(b"last turn")
        self.writer.unbuffer()
        self.writer.write(b"stopped")
        self.assertEqual(self.output.data, b"starting\nlast turn\nstopped\n")

    def test_thread(self) -> None:
        """Lines of other threads are written by the reactor's, too."""
        thread = threading.Thread(target=self.writer.write, args=(b"elsewhere",))
        thread.start()
        thread.join()
        self.assertEqual(self.output.data, b"")
        [(function, arguments)] = self.reactor.fromThread
        function(*arguments)
        self.reactor.advance(0)
        self.assertEqual(self.output.data, b"elsewhere\n")

    def test_promise(self) -> None:
        """Lines that are promised are made soon, or before a line that comes later."""
        made: list[bytes] = []

        def make() -> list[bytes]:
            made.append(b"made")
            return [b"one", b"two"]

        self.writer.promise(make)
        self.assertEqual((made, self.output.data), ([], b""))
        self.writer.write(b"three", isUrgent=True)
        self.assertEqual((made, self.output.data), ([b"made"], b"one\ntwo\nthree\n"))
        self.reactor.advance(PROMISED_SECONDS)
        self.writer.promise(make)
        self.reactor.advance(PROMISED_SECONDS)
        self.assertEqual(self.output.data, b"one\ntwo\nthree\none\ntwo\n")
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_promiseBefore(self) -> None:
        """Before the reactor runs and after it has stopped, they are written at once."""
        writer = BufferedLogWriter(self.output)
        writer.promise(lambda: [b"starting"])
        self.writer.promise(lambda: [b"last turn"])
        self.writer.unbuffer()
        self.assertEqual(self.output.data, b"starting\nlast turn\n")

    def test_reentrant(self) -> None:
        """A line that is logged in the middle of a write, as a signal may do, is not lost."""
        write = self.output.write

        def interrupted(data: memoryview) -> int:
            if not self.output.data:
                self.writer.write(b"signal")
            return write(data)

        self.output.write = interrupted  # type: ignore[method-assign]
        self.writer.write(b"line")
        self.reactor.pump([0, 0])
        self.assertEqual(self.output.data, b"line\nsignal\n")


class FullTests(WriterCase):
    """An output that takes no more for now, or never again."""

    def test_pause(self) -> None:
        """What a reader has no room for is kept, in order, and written when it has."""
        self.output.room = 6
        for line in (b"one", b"two", b"three"):
            self.writer.write(line)
        self.reactor.advance(0)
        self.assertEqual(self.output.data, b"one\ntw")
        self.writer.write(b"four")
        self.output.room = None
        self.reactor.advance(RETRY_SECONDS)
        self.assertEqual(self.output.data, b"one\ntwo\nthree\nfour\n")
        self.assertEqual(self.writer.dropped, 0)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_drop(self) -> None:
        """What waits is bounded; lines beyond it are dropped whole and counted."""
        self.output.room = 0
        line = b"x" * 1023
        for _ in range(LIMIT_BYTES // 1024 + 7):
            self.writer.write(line)
        self.assertEqual(self.writer.dropped, 7)
        # It is not asked again with each line.
        self.assertEqual(self.output.writes, 1)
        self.output.room = None
        self.reactor.advance(RETRY_SECONDS)
        self.assertEqual(len(self.output.data), LIMIT_BYTES)
        self.assertTrue(self.output.data.endswith(line + b"\n"))

    def test_promises(self) -> None:
        """Promised lines count like others while nobody reads."""
        self.output.room = 0
        self.writer.write(b"x", isUrgent=True)
        line = b"x" * 1023
        for _ in range(LIMIT_BYTES // 4096 + 1):
            self.writer.promise(lambda: [line] * 4)
        self.assertEqual(self.writer.dropped, 5)
        self.output.room = None
        self.reactor.advance(RETRY_SECONDS)
        self.assertEqual(len(self.output.data), LIMIT_BYTES - 1024 + 2)

    def test_failure(self) -> None:
        """A disk that is full harms nobody, and is tried again."""
        self.output.failure = OSError(28, "No space left on device")
        self.writer.write(b"one")
        self.reactor.advance(0)
        self.output.failure = None
        self.reactor.advance(FAILED_SECONDS)
        self.assertEqual(self.output.data, b"one\n")

    def test_finish(self) -> None:
        """The end of a process waits for a reader, and not for ever."""
        self.output.room = 0
        self.writer.write(b"one")
        self.writer.finish(2 * RETRY_SECONDS)
        self.assertEqual(self.output.data, b"")
        self.output.room = None
        self.writer.finish(0)
        self.assertEqual(self.output.data, b"one\n")
