"""A value that comes later, for any number of those who want it."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from twisted.internet.defer import Deferred, fail, succeed

T = TypeVar("T")


class Later(Generic[T]):
    """
    Something that is known at some time, and stays so.

    In contrast to a Deferred it can be waited for again and again, and nobody has to take its
    error.
    """

    __slots__ = ("_error", "_isKnown", "_value", "_waiting")

    def __init__(self) -> None:
        self._isKnown = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._waiting: list[Deferred[T]] = []

    @property
    def isKnown(self) -> bool:
        """Tell whether it is there, or has failed."""
        return self._isKnown

    def set(self, value: T) -> None:
        """Give the value; only the first one counts."""
        if not self._isKnown:
            self._isKnown, self._value = True, value
            for waiting in self._release():
                waiting.callback(value)

    def fail(self, error: BaseException) -> None:
        """Give the error in place of a value; only the first one counts."""
        if not self._isKnown:
            self._isKnown, self._error = True, error
            for waiting in self._release():
                waiting.errback(error)

    def _release(self) -> list[Deferred[T]]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def wait(self, cancel: Callable[[], object] | None = None) -> Deferred[T]:
        """
        Wait for it.

        @param cancel: Called if whoever waits cancels that.
        """
        if self._error is not None:
            return fail(self._error)
        if self._isKnown:
            return succeed(cast(T, self._value))

        def cancelled(deferred: Deferred[Any]) -> None:
            if deferred in self._waiting:
                self._waiting.remove(deferred)
            if cancel is not None:
                cancel()

        waiting: Deferred[T] = Deferred(cancelled)
        self._waiting.append(waiting)
        return waiting
