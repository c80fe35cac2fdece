"""What one read of a UDP port takes and sends, with datagrams in memory."""

from twisted.internet.task import Clock

from storagegate.gateway.messages.frames import (
    HEADER_LENGTH,
    PING,
    PONG,
    RESPONSE,
    decodeFrame,
    encodeFrame,
)
from storagegate.gateway.transports.udp.listener import READ_SIZE
from storagegate.net.scheduling import (
    PAUSE_SECONDS,
    SLICE_SECONDS,
    CPUContention,
    InputScheduler,
)
from tests.gateway.udpcase import SOURCE, FakeTransport, UDPCase

PAYLOAD = 10
"""Bytes of what a ping has."""


class _Incoming(FakeTransport):
    """Has datagrams to be read, and notes how many had been read when each was sent."""

    def __init__(self, datagrams: list[bytes], clock: Clock, seconds: float) -> None:
        super().__init__()
        self.datagrams = datagrams
        self.taken = 0
        self.takenBefore: list[int] = []
        self.isReading = True
        self._clock, self._seconds = clock, seconds

    def recvfrom(self, size: int) -> tuple[bytes, tuple[str, int]]:
        """Receive, which takes some time."""
        if self.taken == len(self.datagrams):
            raise BlockingIOError
        self._clock.advance(self._seconds)
        self.taken += 1
        return self.datagrams[self.taken - 1], SOURCE

    def stopReading(self) -> None:
        """Have no further reads."""
        self.isReading = False

    def startReading(self) -> None:
        """Have reads again."""
        self.isReading = True

    def sendto(self, datagram: bytes, address: tuple[str, int]) -> None:
        """Send."""
        self.takenBefore.append(self.taken)
        super().sendto(datagram, address)


class ReadTests(UDPCase):
    """One read."""

    def read(self, count: int, seconds: float = 0.0) -> list[int]:
        """Read pings once, each in so many seconds; give how many were read before each reply."""
        payloads = [b"%0*d" % (PAYLOAD, number) for number in range(count)]
        pings = [encodeFrame(PING, payload) for payload in payloads]
        self.incoming = _Incoming(pings, self.clock, seconds)
        self.adapter.transport = self.incoming  # type: ignore[assignment]
        self.adapter._port = self.incoming
        self.adapter._read()
        sent = self.incoming.sent
        pongs = [(encodeFrame(PONG, payload), SOURCE) for payload in payloads[: len(sent)]]
        self.assertEqual(sent, pongs)
        return self.incoming.takenBefore

    def test_together(self) -> None:
        """The replies to datagrams that are read together follow them, in their order."""
        self.assertEqual(self.read(3), [3, 3, 3])
        self.assertEqual(self.read(0), [])

    def test_bounded(self) -> None:
        """No more than 32 replies are held back."""
        self.assertEqual(self.read(40), [32] * 32 + [40] * 8)

    def test_slice(self) -> None:
        """
        A read ends with the second datagram that comes when its slice of time is over, or with four
        KiB: others come first.
        """
        self.assertEqual(self.read(5, SLICE_SECONDS), [2, 2])
        self.assertEqual(len(self.read(1000)), READ_SIZE // (HEADER_LENGTH + PAYLOAD))

    def test_pause(self) -> None:
        """
        A process that waits for a CPU pauses after a read that takes its whole slice, until the
        listener leaves.
        """
        contention = CPUContention(self.clock.seconds, self.clock.seconds, lambda: 0.0)
        self.adapter.listener.scheduler = InputScheduler(self.clock, contention)
        self.read(1)
        self.assertTrue(self.incoming.isReading)
        for isLeaving in (False, True):
            self.clock.advance(0.1)
            self.read(5, SLICE_SECONDS)
            self.assertFalse(self.incoming.isReading)
            self.adapter._isLeaving = isLeaving
            self.clock.advance(PAUSE_SECONDS)
            self.assertEqual(self.incoming.isReading, not isLeaving)

    def test_sentLater(self) -> None:
        """What is sent between reads goes out at once."""
        self.read(1)
        self.call("slow", data={"seconds": 0.5})
        self.clock.advance(0.5)
        [(datagram, _)] = self.incoming.sent[1:]
        self.assertEqual(decodeFrame(datagram, 1000).type, RESPONSE)

    def test_notTaken(self) -> None:
        """A reply that the system does not take is dropped and counted, and the next is sent."""
        self.incoming = _Incoming([encodeFrame(PING, b"")] * 2, self.clock, 0.0)
        self.incoming.error = OSError(1, "not permitted")
        self.adapter.transport = self.incoming  # type: ignore[assignment]
        self.adapter._port = self.incoming
        self.adapter._read()
        self.assertEqual(self.adapter.dropped["send 1"], 2)
