"""The three ways in which requests that are none are sent."""

from collections.abc import Callable, Sequence

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
"""A good request, which nobody may see behind a bad one."""

Cut = Callable[[bytes], Sequence[bytes]]
"""Gives the pieces in which something is sent."""

# A case of 20 kB byte by byte takes a second and shows nothing that its first kilobytes do not.
_SINGLE_BYTES = 300


def byByte(wire: bytes) -> list[bytes]:
    """Cut into bytes, the rest of a long one into pieces of an odd size."""
    pieces = [wire[index : index + 1] for index in range(min(len(wire), _SINGLE_BYTES))]
    return pieces + [wire[index : index + 997] for index in range(_SINGLE_BYTES, len(wire), 997)]


class ThreeWays:
    """Replays a corpus whole, byte by byte, and with something behind it."""

    async def replay(self, cut: Cut) -> None:
        """Send each case in its pieces, and see what comes back."""
        raise NotImplementedError

    async def test_whole(self) -> None:
        """Each is refused when it comes in one piece."""
        await self.replay(lambda wire: [wire])

    async def test_byByte(self) -> None:
        """Each is refused when it comes byte by byte."""
        await self.replay(byByte)

    async def test_trailing(self) -> None:
        """Each is refused, and a request that follows it is not served."""
        await self.replay(lambda wire: [wire + SMUGGLED])
