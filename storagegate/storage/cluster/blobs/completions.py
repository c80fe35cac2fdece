"""Delivers results from threads of a foreign library to the reactor."""

import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from select import select
from threading import Lock
from typing import Any, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.storage.errors import StoreBusy

T = TypeVar("T")

Call = tuple[Callable[..., Any], tuple[object, ...], dict[str, object]]

_POLL_SECONDS = 0.001


@implementer(IReactorFromThreads)
@define(eq=False)
class CompletionQueue:
    """
    Runs calls in the reactor thread, with one wake-up for all calls since the last.

    @ivar _reactor: The reactor that is woken.
    """

    _log = Logger()

    _reactor: IReactorFromThreads
    _calls: SimpleQueue[Call] = field(factory=SimpleQueue, init=False)
    _lock: Lock = field(factory=Lock, init=False)
    _isWoken: bool = field(default=False, init=False)

    def post(self, deferred: Deferred[Any], result: object) -> None:
        """
        Fire a Deferred, unless it has been cancelled. Any thread.

        @param result: The result, or an exception to fail with.
        """
        self.callFromThread(_fire, deferred, result)

    def callFromThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None:
        """See C{IReactorFromThreads}. Any thread."""
        self._calls.put((callable, args, kwargs))
        with self._lock:
            wake, self._isWoken = not self._isWoken, True
        if wake:
            self._reactor.callFromThread(self._deliver)

    def wait(self, deferred: Deferred[T], seconds: float) -> T:
        """
        Block until a Deferred has fired, running calls that arrive meanwhile. Call in the reactor
        thread before the reactor runs.

        @param seconds: The timeout.
        @raise StoreBusy: The timeout expired.
        """
        outcome: list[Any] = []
        deferred.addBoth(outcome.append)
        deadline = time.monotonic() + seconds
        while not outcome:
            try:
                call = self._calls.get_nowait()
            except Empty:
                if time.monotonic() > deadline:
                    raise StoreBusy(f"no response within {seconds:g} s") from None
                # Not a get with a timeout: if a signal interrupts it when its time is over, CPython
                # goes on with a negative timeout, which stands for none.
                # libfaketime, with which tests set the clock, makes C{time.sleep} fail.
                select((), (), (), _POLL_SECONDS)
            else:
                _make(call)
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()
        result: T = outcome[0]
        return result

    def _deliver(self) -> None:
        with self._lock:
            self._isWoken = False
        # Calls that arrive while these run cause another wake-up.
        for _ in range(self._calls.qsize()):
            try:
                call = self._calls.get_nowait()
            except Empty:
                break
            try:
                _make(call)
            except Exception:
                self._log.failure("a call from a thread failed")


def _make(call: Call) -> None:
    function, args, named = call
    function(*args, **named)


def _fire(deferred: Deferred[Any], result: object) -> None:
    if deferred.called:
        # The Deferred was cancelled and has already fired.
        return
    if isinstance(result, BaseException):
        deferred.errback(result)
    else:
        deferred.callback(result)
