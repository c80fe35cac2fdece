"""What an application needs of the world around it: threads and time."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from attrs import field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.threads import deferToThreadPool

T = TypeVar("T")


@frozen
class Runtime:
    """
    The world around an application.

    @ivar clock: For delays; its time has no meaning of its own.
    @ivar run: Calls C{run(function, *arguments) -> Deferred} in a thread.
    @ivar now: The time in seconds since 1970.
    """

    clock: IReactorTime
    run: Callable[..., Deferred[Any]]
    now: Callable[[], float] = field(default=time.time)


def reactorRuntime(reactor: Any) -> Runtime:
    """
    Make the runtime of an application on a real reactor.

    Jobs wait in the reactor's own thread pool. They are bounded by the requests that a listener
    lets in, each of which waits for its own.
    """

    def run(function: Callable[..., T], *arguments: Any) -> Deferred[T]:
        return deferToThreadPool(reactor, reactor.getThreadPool(), function, *arguments)

    return Runtime(reactor, run)
