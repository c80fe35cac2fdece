"""The events of a client's channel on their way to the reactor."""

import queue
from collections.abc import Callable
from typing import Any

from attrs import frozen
from twisted.trial.unittest import SynchronousTestCase

from storagegate.rpc.engine.client import ChannelPoller


@frozen
class _Event:
    """One that the channel tells of."""

    tag: Any


class _Reactor:
    """Keeps what other threads want from it until the test lets it turn."""

    def __init__(self) -> None:
        self._calls: queue.Queue[tuple[Callable[..., Any], Any]] = queue.Queue()

    def callFromThread(self, f: Callable[..., Any], *arguments: Any) -> None:
        """Keep a call."""
        self._calls.put((f, arguments))

    def turn(self) -> None:
        """Make the next call; there has to be one soon."""
        f, arguments = self._calls.get(timeout=45)
        f(*arguments)


class ChannelPumpTests(SynchronousTestCase):
    """The pump, with a queue in place of a channel."""

    timeout = 60

    def setUp(self) -> None:
        """Make one."""
        self.reactor = _Reactor()
        self.events: queue.Queue[_Event] = queue.Queue()
        self.told: list[Any] = []
        self.pump = ChannelPoller(
            self.reactor,
            lambda: self.events.get(timeout=45),
            lambda tag: self.events.put(_Event(tag)),
            lambda: self.told.append("shut"),
            lambda: self.told.append("ended"),
        )

    def finish(self) -> None:
        """Stop, with nothing under way."""
        self.pump.stop()
        self.reactor.turn()
        self.assertEqual(self.told[-2:], ["shut", "ended"])

    def test_unused(self) -> None:
        """One that has expected nothing ends at once."""
        self.pump.stop()
        self.assertEqual(self.told, ["shut", "ended"])

    def test_heap(self) -> None:
        """Events arrive in their order."""
        self.pump.expect(3)
        for number in range(3):
            self.events.put(_Event(lambda event, number=number: self.told.append(number)))
        while len(self.told) < 3:
            self.reactor.turn()
        self.assertEqual(self.told, [0, 1, 2])
        self.finish()

    def test_raises(self) -> None:
        """What does not understand its event is logged, and the others are told."""
        self.pump.expect(2)
        self.events.put(_Event(lambda event: 1 // 0))
        self.events.put(_Event(lambda event: self.told.append(event)))
        while not self.told:
            self.reactor.turn()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.finish()

    def test_waitsForAll(self) -> None:
        """It ends when nothing is expected any more, not before."""
        self.pump.expect(2)
        self.pump.stop()
        for number in range(2):
            self.events.put(_Event(lambda event, number=number: self.told.append(number)))
            self.reactor.turn()
        self.reactor.turn()
        self.assertEqual(self.told, [0, 1, "shut", "ended"])

    def test_nothing(self) -> None:
        """Events that tell nothing are passed over."""
        self.pump.expect(1)
        self.events.put(_Event(None))
        self.events.put(_Event(lambda event: self.told.append("told")))
        self.reactor.turn()
        self.assertEqual(self.told, ["told"])
        self.finish()
