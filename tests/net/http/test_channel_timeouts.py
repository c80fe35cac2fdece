"""The watch over connections."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http.channel import checkAllTimeouts


class Connection:
    """A connection that keeps what it is told, and leaves when it is dropped."""

    def __init__(self, everybody: "dict[Connection, None]", isBroken: bool = False) -> None:
        self.told: list[float] = []
        self._everybody = everybody
        self._isBroken = isBroken
        everybody[self] = None

    def checkTimeouts(self, now: float) -> None:
        """Take note of the time."""
        self.told.append(now)
        if self._isBroken:
            raise ZeroDivisionError

    def abort(self) -> None:
        """Leave."""
        del self._everybody[self]


class TickTests(SynchronousTestCase):
    """Connections that are told the time."""

    def test_broken(self) -> None:
        """One that fails is dropped and told of, and those after it are looked at all the same."""
        everybody: dict[Connection, None] = {}
        first = Connection(everybody)
        broken = Connection(everybody, isBroken=True)
        last = Connection(everybody)
        checkAllTimeouts(everybody, 1.0)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(list(everybody), [first, last])
        checkAllTimeouts(everybody, 2.0)
        self.assertEqual((first.told, broken.told, last.told), ([1.0, 2.0], [1.0], [1.0, 2.0]))
