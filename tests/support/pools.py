"""Work pools without threads, for tests that decide when work happens."""

from collections.abc import Callable
from typing import Any, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred, fail, maybeDeferred
from zope.interface import implementer

from storagegate.storage.errors import StoreBusy
from storagegate.storage.threadpool import IWorkPool

T = TypeVar("T")


@implementer(IWorkPool)
class ImmediatePool:
    """
    Does every job at once, in the caller's thread.

    @ivar jobs: How many jobs there were.
    """

    def __init__(self) -> None:
        self.jobs = 0

    def run(self, function: Callable[..., T], *args: Any) -> Deferred[T]:
        """Do it now."""
        self.jobs += 1
        return maybeDeferred(function, *args)

    runAnyway = run


@define
class HeldJob:
    """A job that waits for the test."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    deferred: Deferred[Any] = field(factory=Deferred)


@implementer(IWorkPool)
class HeldPool:
    """
    Keeps jobs until L{go}.

    @ivar waiting: What has not been done.
    @ivar busy: Whether L{run} refuses.
    """

    def __init__(self) -> None:
        self.waiting: list[HeldJob] = []
        self.busy = False

    def run(self, function: Callable[..., T], *args: Any) -> Deferred[T]:
        """Keep it for later, or refuse."""
        if self.busy:
            return fail(StoreBusy("busy"))
        return self.runAnyway(function, *args)

    def runAnyway(self, function: Callable[..., T], *args: Any) -> Deferred[T]:
        """Keep it for later."""
        job = HeldJob(function, args)
        self.waiting.append(job)
        return job.deferred

    def go(self, count: int = 1) -> None:
        """Do the oldest jobs."""
        for _ in range(count):
            job = self.waiting.pop(0)
            maybeDeferred(job.function, *job.args).chainDeferred(job.deferred)

    def goAll(self) -> None:
        """Do jobs until none is left."""
        while self.waiting:
            self.go()
