"""Where middleware takes part in a response that others give."""

from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import fail
from zope.interface import Attribute, Interface, implementer


class IBodyEncoder(Interface):
    """
    Applies a content coding to a body, piece by piece.

    Its methods may be called in any thread, but never two at a time.
    """

    flushes: bool = Attribute("Whether every piece that is written should leave at once.")

    def feed(chunk: bytes) -> bytes:
        """Encode a piece; what can be sent of it so far."""

    def flush() -> bytes:
        """Give what is left of all pieces so far."""

    def finish() -> bytes:
        """Give the end."""


ChooseEncoder = Callable[[int | None], IBodyEncoder | None]


class ResponseHooks:
    """
    The callbacks of one response. Each is called once.

    @ivar holds: What the end of the response waits for.
    """

    __slots__ = ("_beforeHead", "_choosers", "holds")

    def __init__(self) -> None:
        self._beforeHead: list[Callable[[], Any]] = []
        self._choosers: list[ChooseEncoder] = []
        self.holds: list[Callable[[], Awaitable[Any] | None]] = []

    def addBeforeHead(self, callback: Callable[[], Any]) -> None:
        """Call C{callback} before the head is made, the last that was added first."""
        self._beforeHead.append(callback)

    def addChooser(self, choose: ChooseEncoder) -> None:
        """Let C{choose} encode the body."""
        self._choosers.append(choose)

    def runBeforeHead(self) -> None:
        """Call those that want to see the head before it is made."""
        callbacks = self._beforeHead
        while callbacks:
            callbacks.pop()()

    def chooseEncoder(self, length: int | None) -> IBodyEncoder | None:
        """
        Give what encodes the body.

        The last that was added is asked first. If several want to, each encodes what the one
        before it gives, whose length nobody knows.
        """
        choosers, self._choosers = self._choosers, []
        chosen: IBodyEncoder | None = None
        for choose in reversed(choosers):
            encoder = choose(length)
            if encoder is not None:
                chosen = encoder if chosen is None else _EncoderPair(chosen, encoder)
                length = None
        return chosen

    def startHolds(self) -> list[Awaitable[Any]]:
        """Call those that want the end to wait, and give what there is to wait for."""
        holds, self.holds = self.holds, []
        waiting = [_started(hold) for hold in holds]
        return [awaitable for awaitable in waiting if awaitable is not None]


@implementer(IBodyEncoder)
class _EncoderPair:
    """An encoder after another."""

    def __init__(self, first: IBodyEncoder, second: IBodyEncoder) -> None:
        self._first = first
        self._second = second
        self.flushes = first.flushes or second.flushes

    def feed(self, chunk: bytes) -> bytes:
        return self._second.feed(self._first.feed(chunk))

    def flush(self) -> bytes:
        return self._second.feed(self._first.flush()) + self._second.flush()

    def finish(self) -> bytes:
        return self._second.feed(self._first.finish()) + self._second.finish()


def _started(hold: Callable[[], Awaitable[Any] | None]) -> Awaitable[Any] | None:
    """Call one; what it raises, whoever waits gets, so that the others are called too."""
    try:
        return hold()
    except Exception as error:
        return fail(error)


async def waitForAll(waiting: list[Awaitable[Any]]) -> None:
    """
    Wait for all, also for those after one that fails: one may have a session to keep.

    @raise Exception: The first failure.
    """
    first: Exception | None = None
    for awaitable in waiting:
        try:
            await awaitable
        except Exception as error:
            first = first or error
    if first is not None:
        raise first
