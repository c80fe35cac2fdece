"""One worker process as its supervisor sees it."""

import os
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from storagegate.net.workerwire import (
    ControlProtocol,
    Message,
    WorkerSetup,
    adopt,
    readBlocking,
)

START_SECONDS = 60.0
"""How long a worker may take until it serves; it takes one on a machine that is not at its end."""


_LOOK_SECONDS = 0.2
"""How long a stop waits that comes while workers start."""


class WorkerFailed(Exception):
    """A worker could not start; the text is its one line."""


@frozen
class Program:
    """
    What the workers run.

    @ivar command: The executable and its arguments.
    @ivar environment: Its variables.
    @ivar descriptors: What it inherits besides the standard ones and the pair: the number there,
        and the number here. Sockets that only one worker has are in C{own}.
    @ivar own: The same for each worker by its index.
    @ivar setup: What all of them are told.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    descriptors: Mapping[int, int]
    own: Sequence[Mapping[int, int]]
    setup: WorkerSetup


class WorkerOwner(Protocol):
    """
    Who watches over a worker.

    @ivar clock: The whole reactor.
    @ivar output: Takes what the worker writes.
    """

    clock: Any
    output: Callable[[bytes], object]

    def received(self, worker: "WorkerProcess", message: Message) -> None:
        """Take a message."""

    def workerEnded(self, worker: "WorkerProcess", reason: Failure) -> None:
        """Take note of the end of the process."""


class WorkerProcess(ProcessProtocol):
    """
    One process.

    @ivar hasLeft: Whether its successor may read what only one process can.
    @ivar silences: How many times it was asked for a sign of life since it gave the last one.
    """

    def __init__(self, owner: WorkerOwner, index: int, control: socket.socket) -> None:
        self.owner = owner
        self.index = index
        self.isReady = False
        self.isRetired = self.hasLeft = False
        self.reason: str | None = None
        self.started: Deferred[None] = Deferred()
        self.ended: Deferred[None] = Deferred()
        self.born = owner.clock.seconds()
        self.silences = 0
        self.timers: list[IDelayedCall] = []
        self.process: Any = None
        self.raw = control
        self.control = ControlProtocol(self._received, lambda: None)

    def outReceived(self, data: bytes) -> None:
        """Pass the output on."""
        self.owner.output(data)

    errReceived = outReceived

    def listen(self) -> None:
        """Take messages by the reactor."""
        adopt(self.owner.clock, self.raw, self.control)

    def waitForStart(self, end: float, isUnwanted: Callable[[], bool]) -> bool:
        """
        Wait until it serves, before the reactor runs.

        @param end: Until when, by C{time.monotonic()}.
        @param isUnwanted: Tells whether to wait no longer.
        @return: Whether it serves.
        @raise WorkerFailed: If it does not, and nobody said to wait no longer.
        """
        while not select.select([self.raw], [], [], _LOOK_SECONDS)[0]:
            if isUnwanted():
                return False
            if time.monotonic() >= end:
                raise WorkerFailed(f"no worker was ready in {START_SECONDS:.0f} s")
        try:
            message = readBlocking(self.raw)
        except OSError:
            message = None
        if isUnwanted():
            return False
        if message is None:
            raise WorkerFailed(f"a worker ended while it started: {self._describeEnd()}")
        if message["kind"] == "failed":
            raise WorkerFailed(message["reason"])
        self.raw.setblocking(False)
        self._received(message)
        return True

    def _describeEnd(self) -> str:
        """Say how it has ended; the end stays there for the reactor to see."""
        found = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        if found is None or found.si_code == os.CLD_EXITED:
            return "exit code unknown" if found is None else f"exit code {found.si_status}"
        return f"signal {found.si_status}"

    def _received(self, message: Message) -> None:
        self.silences = 0
        kind = message["kind"]
        if kind == "ready":
            self.isReady = True
            if not self.started.called:
                self.started.callback(None)
        elif kind == "failed":
            self.reason = message["reason"]
        elif kind != "pong":
            self.owner.received(self, message)

    def processEnded(self, reason: Failure) -> None:
        """Take note of its end."""
        self.isReady = False
        for timer in self.timers:
            if timer.active():
                timer.cancel()
        if not self.started.called:
            self.started.errback(WorkerFailed(self.reason or f"a worker ended: {reason.value}"))
            # Whoever waited has it; where nobody did, the owner logs it.
            self.started.addErrback(lambda _: None)
        self.owner.workerEnded(self, reason)
        self.ended.callback(None)

    def killAfter(self, seconds: float) -> None:
        """Kill it, unless it has ended by then."""
        self.timers.append(self.owner.clock.callLater(seconds, self.kill, "KILL"))

    def kill(self, name: str) -> None:
        """Send a signal, unless it has ended."""
        with suppress(ProcessExitedAlready):
            self.process.signalProcess(name)
