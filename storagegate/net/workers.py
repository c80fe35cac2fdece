"""
Worker processes on shared sockets, and their supervisor.

The supervisor binds the sockets and never serves. Workers are spawned with exec, because libraries
with threads do not survive a fork, and inherit the sockets as descriptors. A worker that dies is
replaced immediately, with increasing delays if it happens repeatedly. In a L{WorkerPool.roll} each
worker in turn gets a successor, and ends once the successor serves, so that connections are always
accepted.
"""

import os
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import count
from random import uniform
from typing import Any

from attrs import define, evolve, field, frozen
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.core.backoff import Backoff
from storagegate.net.ipc import (
    CONTROL,
    ControlProtocol,
    Message,
    WorkerSetup,
    adopt,
    encode,
    readBlocking,
    setupMessage,
)

START_SECONDS = 60.0
"""Timeout for a worker to serve; it takes one second on a machine that is not overloaded."""

_LOOK_SECONDS = 0.2
"""Interval at which a starting pool checks for a stop."""


class WorkerFailed(Exception):
    """A worker could not start; the text is one line."""


@frozen
class WorkerCommand:
    """
    The command of the workers.

    @ivar command: The executable and its arguments.
    @ivar descriptors: Inherited descriptors in addition to the standard ones and the pair: the
        number in the worker, and the number here.
    @ivar own: Descriptors of each worker alone, by index.
    @ivar setup: The first message to every worker.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    descriptors: Mapping[int, int]
    own: Sequence[Mapping[int, int]]
    setup: WorkerSetup


class _WorkerProcess(ProcessProtocol):
    """
    One process.

    @ivar isRetired: Whether a successor takes its place.
    @ivar hasLeft: Whether its successor may read exclusive input.
    @ivar silences: Pings since its last message.
    """

    def __init__(self, owner: "WorkerPool", index: int, control: socket.socket) -> None:
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
        """Pass on the output."""
        self.owner.output(data)

    errReceived = outReceived

    def listen(self) -> None:
        """Let the reactor receive messages."""
        adopt(self.owner.clock, self.raw, self.control)

    def waitForStart(self, end: float, isUnwanted: Callable[[], bool]) -> bool:
        """
        Wait until the worker serves, before the reactor runs.

        @param end: The deadline, by C{time.monotonic()}.
        @param isUnwanted: Returns whether to stop waiting.
        @return: Whether the worker serves.
        @raise WorkerFailed: If it does not serve, and C{isUnwanted} is false.
        """
        while not self.owner.waitForMessage(self.raw):
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
            # The reactor collects the status later.
            found = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
            status = "exit code unknown"
            if found is not None:
                kind = "exit code" if found.si_code == os.CLD_EXITED else "signal"
                status = f"{kind} {found.si_status}"
            raise WorkerFailed(f"a worker exited during its start: {status}")
        if message["kind"] == "failed":
            raise WorkerFailed(message["reason"])
        self.raw.setblocking(False)
        self._received(message)
        return True

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
        """Cancel the timers, and notify the pool."""
        self.isReady = False
        for timer in self.timers:
            if timer.active():
                timer.cancel()
        if not self.started.called:
            self.started.errback(WorkerFailed(self.reason or f"a worker exited: {reason.value}"))
            # Handled by its waiter, or logged by the owner.
            self.started.addErrback(lambda _: None)
        self.owner.workerEnded(self, reason)
        self.ended.callback(None)

    def killAfter(self, seconds: float) -> None:
        """Kill the process after a delay, unless it has ended."""
        self.timers.append(self.owner.clock.callLater(seconds, self.kill, "KILL"))

    def kill(self, name: str) -> None:
        """Send a signal, unless the process has ended."""
        with suppress(ProcessExitedAlready):
            self.process.signalProcess(name)


ANSWER_SECONDS = 1.0
"""Timeout for a worker's reply to a question, short enough for an interactive page."""

IDLE_GRACE_SECONDS = 2.0
"""Time that a replaced worker keeps idle connections open: the next response tells an active client
to reconnect, so that no request is lost to a close."""

HANG_SECONDS = 60.0
"""A worker whose reactor has been blocked for this long is killed and replaced: by then its clients
have given up. A call should compute for milliseconds at a time."""

_SIGNS = 6
"""Number of consecutive pings without an answer before a worker is killed: setting the clock, or
suspending the supervisor, must not kill workers."""

LEAVE_SECONDS = 1.0
"""Time for a replaced worker, after the grace for idle connections, to report that it has left;
then its successor reads datagrams in any case."""

KILL_SECONDS = 5.0
"""Time after its grace before a worker is killed."""

_STEADY_SECONDS = 10.0
"""A worker that lived this long started successfully; its replacement starts immediately."""

_BACKOFF = Backoff(firstSeconds=1.0, maxSeconds=30.0, jitter=0.0)
"""The delays before a worker that repeatedly dies is started again."""


@define(eq=False)
class _Question:
    """
    A question to the workers.

    @ivar waiting: The workers that have not replied.
    """

    waiting: set[_WorkerProcess]
    timer: IDelayedCall
    replies: list[Any] = field(factory=list)
    result: Deferred[list[Any]] = field(factory=Deferred)


class WorkerPool:
    """
    The workers of one program.

    @ivar clock: The reactor, with all its interfaces.
    @ivar output: Called with the output of workers that do not share this process's output.
    @ivar changed: Called when the number of serving workers has changed.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        program: WorkerCommand,
        *,
        output: Callable[[bytes], object] | None = None,
        changed: Callable[[], object] = lambda: None,
        answer: Callable[[str, Any], Any] = lambda topic, payload: None,
        idleGraceSeconds: float = IDLE_GRACE_SECONDS,
        hangSeconds: float = HANG_SECONDS,
    ) -> None:
        """
        @param output: Called with workers' output; C{None} if workers write to this process's
            standard output.
        @param answer: Called with the topic and payload of a worker's question to this process;
            returns a value that JSON can represent.
        """
        self.clock = reactor
        self.program = program
        self.output: Callable[[bytes], object] = output or (lambda data: None)
        self._relays = output is not None
        self.changed = changed
        self._answer = answer
        self._idleGraceSeconds = idleGraceSeconds
        self._all: list[_WorkerProcess] = []
        # The output of workers that start before the reactor runs.
        self._pipes: list[Any] = []
        self._questions: dict[int, _Question] = {}
        self._ids = count()
        self._crashes = [0] * program.setup.count
        self._replacing: list[IDelayedCall] = []
        self._isStopping = False
        self._isRolling = False
        self._hangSeconds = hangSeconds
        self._watch = LoopingCall(self._lookForHanging)
        self._watch.clock = reactor

    @property
    def ready(self) -> int:
        """Return the number of serving workers that are not retired."""
        return sum(worker.isReady and not worker.isRetired for worker in self._all)

    @property
    def pids(self) -> list[int]:
        """Return the process IDs of the serving workers that are not retired, by index."""
        serving = [each for each in self._all if each.isReady and not each.isRetired]
        return [each.process.pid for each in sorted(serving, key=lambda each: each.index)]

    def start(self, isUnwanted: Callable[[], bool] = lambda: False) -> bool:
        """
        Start all workers and wait until they serve, before the reactor runs.

        @param isUnwanted: Returns whether to stop waiting, because everything is to stop.
        @return: Whether they serve.
        @raise WorkerFailed: If a worker cannot start; the others are killed.
        """
        end = time.monotonic() + START_SECONDS
        try:
            for index in range(self.program.setup.count):
                self._spawn(index)
            if self._relays:
                self._pipes = [
                    pipe for worker in self._all for pipe in worker.process.pipes.values()
                ]
            serves = all(worker.waitForStart(end, isUnwanted) for worker in self._all)
        except WorkerFailed:
            self._isStopping = True
            for worker in self._all:
                worker.kill("KILL")
            raise
        for worker in self._all:
            worker.listen()
        self._watch.start(self._hangSeconds / _SIGNS, now=False)
        self.changed()
        return serves

    def waitForMessage(self, control: socket.socket) -> bool:
        """
        Wait a moment for a message of a worker, before the reactor runs; return whether there is
        one. Meanwhile pass on the output of all workers, which would wait if a pipe were full.
        """
        found, _, _ = select.select([control, *self._pipes], [], [], _LOOK_SECONDS)
        for pipe in found:
            # The reactor handles the end of a pipe.
            if pipe is not control and pipe.doRead() is not None:
                self._pipes.remove(pipe)
        return control in found

    async def roll(self, program: WorkerCommand, graceSeconds: float) -> None:
        """
        Replace every worker, one after another, with one that runs another command.

        @param program: The command of the successors.
        @param graceSeconds: The time for a replaced worker to finish requests in flight; it is
            killed a little later.
        @raise WorkerFailed: If a successor cannot start, or all are stopped in the meantime.
            Earlier workers have then been replaced, the others stay, and later replacements do not
            use C{program}.
        """
        if self._isRolling or self._isStopping:
            raise WorkerFailed("the workers are already being replaced")
        self._isRolling = True
        before, self.program = self.program, program
        try:
            for index in range(program.setup.count):
                await self._succeed(index, graceSeconds)
        except WorkerFailed:
            self.program = before
            raise
        finally:
            self._isRolling = False

    async def _succeed(self, index: int, graceSeconds: float) -> None:
        # Wait for workers retired earlier, so that processes do not pile up.
        going = [each.ended for each in self._all if each.index == index and each.isRetired]
        await gatherResults(going)
        self._checkRolling()
        successor = self._spawnListening(index)
        await successor.started
        self._checkRolling()
        # Only now, as a worker may have ended in the meantime.
        for worker in self._all:
            if worker.index == index and worker is not successor and not worker.isRetired:
                worker.isRetired = True
                worker.killAfter(graceSeconds + KILL_SECONDS)
                limit = self._idleGraceSeconds + LEAVE_SECONDS
                worker.timers.append(self.clock.callLater(limit, self._left, worker))
                worker.control.send({"kind": "retire", "idleGraceSeconds": self._idleGraceSeconds})
        self.changed()

    def _checkRolling(self) -> None:
        if self._isStopping:
            raise WorkerFailed("the workers are stopping")

    def _left(self, worker: _WorkerProcess) -> None:
        """Let the successor of a worker read exclusive input."""
        worker.hasLeft = True
        for each in self._all:
            if each.index == worker.index and not each.isRetired:
                each.control.send({"kind": "enter"})

    def stop(self, graceSeconds: float) -> Deferred[Any]:
        """
        Stop all workers gracefully.

        @param graceSeconds: The time to finish requests in flight; a worker that lives a little
            longer is killed. A worker that does not serve yet is killed immediately.
        @return: Fires when all have ended.
        """
        self._isStopping = True
        if self._watch.running:
            self._watch.stop()
        for call in self._replacing:
            if call.active():
                call.cancel()
        for worker in self._all:
            if not worker.isReady:
                worker.kill("KILL")
            worker.control.send({"kind": "stop"})
            worker.killAfter(graceSeconds + KILL_SECONDS)
        return gatherResults([worker.ended for worker in self._all])

    def abort(self) -> None:
        """Kill all workers. May be called in a signal handler."""
        for worker in self._all:
            worker.kill("KILL")

    def ask(self, topic: str, payload: Any = None) -> Deferred[list[Any]]:
        """Ask every worker; return the replies received in time."""
        number = next(self._ids)
        waiting = {worker for worker in self._all if worker.isReady}
        timer = self.clock.callLater(ANSWER_SECONDS, self._settle, number)
        question = self._questions[number] = _Question(waiting, timer)
        for worker in waiting:
            worker.control.send({"kind": "ask", "id": number, "topic": topic, "payload": payload})
        if not waiting:
            self._settle(number)
        return question.result

    def say(self, topic: str, payload: Any, source: _WorkerProcess | None = None) -> None:
        """Send a message to every worker except its source."""
        for worker in self._all:
            if worker is not source and worker.isReady:
                worker.control.send({"kind": "say", "topic": topic, "payload": payload})

    # For workers

    def received(self, worker: _WorkerProcess, message: Message) -> None:
        """Process a message from a worker."""
        kind = message["kind"]
        if kind == "say":
            self.say(message["topic"], message["payload"], worker)
        elif kind == "ask":
            self.ask(message["topic"], message["payload"]).addCallback(
                lambda values: self._reply(worker, message, values)
            )
        elif kind == "request":
            self._reply(worker, message, [self._answer(message["topic"], message["payload"])])
        elif kind == "left":
            self._left(worker)
        elif kind == "reply":
            question = self._questions.get(message["id"])
            if question is not None and worker in question.waiting:
                question.replies.append(message["value"])
                self._excuse(message["id"], worker)

    def _reply(self, worker: _WorkerProcess, question: Message, values: list[Any]) -> None:
        """Send the replies to a question; none if they are too large together."""
        reply: Message = {"kind": "replies", "id": question["id"], "values": values}
        try:
            worker.control.send(reply)
        except ValueError as error:
            topic = question["topic"]
            self._log.error("replies about {topic}: {error}", topic=topic, error=str(error))
            worker.control.send({**reply, "values": []})

    def workerEnded(self, worker: _WorkerProcess, reason: Failure) -> None:
        """Forget a worker, and replace it unless its end was intended."""
        self._all.remove(worker)
        self._left(worker)
        for number in list(self._questions):
            self._excuse(number, worker)
        if self._isStopping or worker.isRetired:
            return
        text = worker.reason or reason.getErrorMessage()
        self._log.error("worker {index} ended: {reason}", index=worker.index, reason=text)
        self.changed()
        if not self._has(worker.index):
            self._replaceLater(worker.index, self.clock.seconds() - worker.born)

    def _has(self, index: int) -> bool:
        return any(each.index == index and not each.isRetired for each in self._all)

    def _replaceLater(self, index: int, lived: float) -> None:
        crashes = 0 if lived >= _STEADY_SECONDS else self._crashes[index]
        self._crashes[index] = crashes + 1
        delay = _BACKOFF.seconds(crashes - 1, uniform) if crashes else 0.0
        self._replacing = [call for call in self._replacing if call.active()]
        self._replacing.append(self.clock.callLater(delay, self._replace, index))

    def _replace(self, index: int) -> None:
        if self._has(index):
            return
        try:
            worker = self._spawnListening(index)
        except WorkerFailed as error:
            # The system temporarily lacks memory or process IDs.
            self._log.error("worker {index}: {reason}", index=index, reason=error)
            self._replaceLater(index, 0.0)
            return
        # A failure is handled in workerEnded.
        worker.started.addCallbacks(lambda _: self.changed(), lambda _: None)

    def _spawnListening(self, index: int) -> _WorkerProcess:
        worker = self._spawn(index)
        worker.raw.setblocking(False)
        worker.listen()
        timer = self.clock.callLater(START_SECONDS, worker.kill, "KILL")
        worker.timers.append(timer)
        worker.started.addBoth(lambda result: (timer.active() and timer.cancel(), result)[1])
        return worker

    def _spawn(self, index: int) -> _WorkerProcess:
        """
        Spawn a worker, and send its setup.

        @raise WorkerFailed: If the system cannot start it.
        """
        program = self.program
        isNext = any(each.index == index and not each.hasLeft for each in self._all)
        setup = evolve(program.setup, index=index, isNext=isNext)
        output: dict[int, int | str] = {1: "r", 2: "r"} if self._relays else {1: 1, 2: 2}
        inherited = {**output, **program.descriptors, **program.own[index]}
        with ExitStack() as opened:
            try:
                ours, theirs = map(opened.enter_context, socket.socketpair())
                worker = _WorkerProcess(self, index, ours)
                nothing = opened.enter_context(open(os.devnull, "rb"))
                worker.process = self.clock.spawnProcess(
                    worker,
                    program.command[0],
                    list(program.command),
                    dict(program.environment),
                    childFDs={0: nothing.fileno(), CONTROL: theirs.fileno(), **inherited},
                )
            except OSError as error:
                raise WorkerFailed(f"a worker cannot be started: {error}") from error
            opened.pop_all()
            theirs.close()
            nothing.close()
        self._all.append(worker)
        # An early end of the worker is handled like any other.
        with suppress(OSError):
            ours.sendall(encode(setupMessage(setup)))
        return worker

    def _lookForHanging(self) -> None:
        """Kill workers that have been silent for too long, and ping all of them."""
        for worker in self._all:
            worker.silences += worker.isReady
            if worker.silences > _SIGNS:
                self._log.error("worker {index} does not respond: killed", index=worker.index)
                worker.kill("KILL")
            worker.control.send({"kind": "ping"})

    def _excuse(self, number: int, worker: _WorkerProcess) -> None:
        """Stop waiting for a worker's reply."""
        waiting = self._questions[number].waiting
        waiting.discard(worker)
        if not waiting:
            self._settle(number)

    def _settle(self, number: int) -> None:
        question = self._questions.pop(number)
        if question.timer.active():
            question.timer.cancel()
        question.result.callback(question.replies)
