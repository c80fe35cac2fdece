"""
The frames that a peer may send without doing work.

Each kind of them fills a leaky bucket. A client that does nothing unusual never fills one, however
fast it works: frames that it sends in reaction to DATA are free.
"""

from storagegate.net.http2.interfaces import ConnectionFailure, ErrorCode, HTTP2Limits

# WINDOW_UPDATE and PING frames that are free: these, and three for each DATA frame that was sent,
# because its receiver grants both windows again and measures the delay. A client of gRPC grants
# them for each message instead, of which a frame may have hundreds.
_FREE_FRAMES = 200
_FREE_PER_DATA = 3
_BYTES_PER_FREE = 16
_MOST_FREE = 8192

# Frames of a response that may cross the reset of its stream by a client: its head, an empty DATA
# frame, its trailers and a reset of the server.
_PER_RESET = 4


class _LeakyBucket:
    """
    Events of one kind.

    @ivar level: How many are not forgiven yet.
    """

    __slots__ = ("_capacity", "_rate", "_text", "level")

    def __init__(self, capacity: int, rate: int, text: str) -> None:
        self._capacity = capacity
        self._rate = rate
        self._text = text
        self.level = 0.0

    def add(self) -> None:
        self.level += 1
        if self.level > self._capacity:
            raise ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, self._text)

    def leak(self, seconds: float) -> None:
        self.level = max(0.0, self.level - self._rate * seconds)


class FrameAllowance:
    """The allowance of one connection. Charges raise L{ConnectionFailure} once it is used up."""

    __slots__ = ("_control", "_crossing", "_free", "_resets", "_sent", "_sentBytes")

    def __init__(self, limits: HTTP2Limits) -> None:
        self._control = _LeakyBucket(
            limits.control, limits.controlRate, "too many frames that do no work"
        )
        self._resets = _LeakyBucket(limits.resets, limits.resetRate, "too many resets")
        self._free = _FREE_FRAMES
        self._crossing = self._sent = self._sentBytes = 0

    def chargeControl(self) -> None:
        """Charge a frame that does no work."""
        self._control.add()

    def expectCrossing(self) -> None:
        """Expect frames that cross a reset of ours."""
        self._crossing += _PER_RESET

    def chargeCrossing(self) -> None:
        """Charge a frame of a closed stream, unless it may have crossed our reset."""
        if self._crossing > 0:
            self._crossing -= 1
        else:
            self._control.add()

    def chargeReset(self) -> None:
        """Charge the early end of a stream that the peer has caused."""
        self._resets.add()

    def chargeReaction(self, sent: int, sentBytes: int) -> None:
        """
        Charge a frame that is expected in reaction to DATA.

        @param sent: How many DATA frames were sent on the connection.
        @param sentBytes: How many bytes they had.
        """
        if sent != self._sent:
            free = (sent - self._sent) * _FREE_PER_DATA
            free += (sentBytes - self._sentBytes) // _BYTES_PER_FREE
            self._free = min(self._free + free, _MOST_FREE)
            self._sent, self._sentBytes = sent, sentBytes
        if self._free > 0:
            self._free -= 1
        else:
            self._control.add()

    def forgive(self, seconds: float) -> None:
        """
        Forgive some of what was charged.

        @param seconds: The time since the last call.
        """
        self._control.leak(seconds)
        self._resets.leak(seconds)
