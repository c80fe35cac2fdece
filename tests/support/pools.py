"""Work pools without threads, for tests that control when work happens."""

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
    Runs every job immediately, in the caller's thread.

    @ivar jobs: The number of jobs.
    """

    def __init__(self) -> None:
        self.jobs = 0

    def run(self, function: Callable[..., T], *args: Any) -> Deferred[T]:
        """Run a job now."""
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
    Holds jobs until L{go}.

    @ivar waiting: The waiting jobs.
    @ivar busy: Whether L{run} refuses.
    """

    def __init__(self) -> None:
        self.waiting: list[HeldJob] = []
        self.busy = False

    def run(self, function: Callable[..., T], *args: Any) -> Deferred[T]:
        """Hold a job for later, or refuse it."""
        if self.busy:
            return fail(StoreBusy("busy"))
        return self.runAnyway(function, *args)

    def runAnyway(self, function: Callable[..., T], *args: Any) -> Deferred[T]:
        """Hold a job for later."""
        job = HeldJob(function, args)
        self.waiting.append(job)
        return job.deferred

    def go(self, count: int = 1) -> None:
        """Run the oldest jobs."""
        for _ in range(count):
            job = self.waiting.pop(0)
            maybeDeferred(job.function, *job.args).chainDeferred(job.deferred)

    def goAll(self) -> None:
        """Run jobs until none are left."""
        while self.waiting:
            self.go()
