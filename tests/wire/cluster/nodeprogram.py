"""
The program of a node under test: C{twistd}, with requests that stop at named steps, and rules that
can be broken. The product has neither.

The variable C{NODE_STOPS} names a directory. While it has a file C{hold}, each write of a key that
begins with the name of a step waits at that step: C{row/} (all bytes are durable, the catalog knows
nothing), C{commit/} (the transaction is about to be sent), C{answer/} (it is committed). While it
has a file C{bytes}, too, every blob waits before its last bytes are durable. What waits adds a line
to the file C{held}.

The variable C{NODE_BROKEN} names the rules that do not hold, with commas; see L{BREAKS}.
"""

import os
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from storagegate.storage.mutations import (
    CompleteUpload,
    CreateUpload,
    Mutation,
    PutObject,
    PutPart,
    RemoveObjects,
)

POLL_SECONDS = 0.005

STOPS = "NODE_STOPS"
BROKEN = "NODE_BROKEN"
LATE = "NODE_LATE_SECONDS"
"""The time that the sweeper gives to writes of a node that is gone: a killed process has none."""


class Stops:
    """The steps at which requests wait."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def has(self, name: str) -> bool:
        """Return whether there is a file."""
        return (self._directory / name).exists()

    def isHeld(self, step: str, key: bytes) -> bool:
        """Return whether the write of a key waits at a step."""
        return key.startswith(step.encode() + b"/") and self.has("hold")

    def wait(self, what: str, go: Callable[[], object]) -> None:
        """Call a function, in the context of this call, as soon as all are let go."""
        from twisted.internet import reactor

        with open(self._directory / "held", "a") as file:
            file.write(f"{what}\n")
        context = copy_context()

        def look() -> None:
            if self.has("hold"):
                reactor.callLater(POLL_SECONDS, look)  # type: ignore[attr-defined]
            else:
                context.run(go)

        look()

    def later(self, what: str, call: Callable[..., Any], *args: Any) -> Any:
        """Call a function that returns a Deferred as soon as all are let go."""
        result: Deferred[Any] = Deferred()
        self.wait(what, lambda: call(*args).chainDeferred(result))
        return result


def _keyOf(mutation: Mutation[Any]) -> bytes | None:
    """Return the key of an object that a mutation changes; L{None} if it changes none."""
    match mutation:
        case PutObject() | CompleteUpload():
            return mutation.record.key
        case PutPart():
            return mutation.key
        case CreateUpload():
            return mutation.upload.key
        case RemoveObjects() if mutation.entries:
            return mutation.entries[0][0]
    return None


def _install(stops: Stops) -> None:
    from storagegate.storage.blobwriter import BlobWriter
    from storagegate.storage.cluster.catalog import PostgreSQLCatalog
    from storagegate.storage.cluster.writer import Writer

    commit = PostgreSQLCatalog.commit

    def commitLater(self: Any, mutation: Mutation[Any]) -> Any:
        key = _keyOf(mutation)
        if key is not None and stops.isHeld("row", key):
            return stops.later(type(mutation).__name__, commit, self, mutation)
        return commit(self, mutation)

    PostgreSQLCatalog.commit = commitLater  # type: ignore[method-assign]
    finish, send, succeeded = BlobWriter.finish, Writer._send, Writer._succeeded

    def finishLater(self: Any) -> Any:
        return stops.later("bytes", finish, self) if stops.has("bytes") else finish(self)

    def sendLater(self: Any, connection: Any, batch: Any) -> None:
        if not stops.isHeld("commit", batch[0].steps[0][0]):
            send(self, connection, batch)
            return
        # Others go on with the connection meanwhile.
        self._idle.insert(0, connection)

        def again() -> None:
            self._ready.append(batch)
            self._dispatch()

        stops.wait("commit", again)

    def succeedLater(self: Any, batch: Any, *results: Any) -> None:
        if stops.isHeld("answer", batch[0].steps[0][0]):
            stops.wait("answer", lambda: succeeded(self, batch, *results))
        else:
            succeeded(self, batch, *results)

    BlobWriter.finish = finishLater  # type: ignore[method-assign]
    Writer._send = sendLater  # type: ignore[method-assign]
    Writer._succeeded = succeedLater  # type: ignore[method-assign]


def _breakFence() -> None:
    """Commits do not look whether their lease is alive."""
    from storagegate.storage.cluster.writer import Writer

    Writer.isFenced = False


def _breakClock() -> None:
    """The node takes its lease for valid as long as the catalog has not said that it is over."""
    from storagegate.storage.cluster.leases import Leases

    number = property(lambda self: 0 if self.current is None else self.current.number)
    Leases.number = number  # type: ignore[method-assign,assignment]


def _breakGate() -> None:
    """Requests are served without a lease, too."""
    from storagegate.cluster.node import ClusterNode

    ClusterNode.admit = None  # type: ignore[assignment,method-assign]


def _breakRequest() -> None:
    """Requests are carried out under the lease of the moment in which they write."""
    from storagegate.storage.cluster.catalog import PostgreSQLCatalog

    submit = PostgreSQLCatalog._submit

    def submitNow(self: Any, *args: Any) -> Any:
        return Context().run(submit, self, *args)

    PostgreSQLCatalog._submit = submitNow  # type: ignore[method-assign]


def _breakUnknown() -> None:
    """A commit that is not replicated counts as one that is."""
    from storagegate.storage.cluster.connection import Connection

    Connection._noticed = lambda *_: None  # type: ignore[method-assign]


def _breakTimeline() -> None:
    """The first server that is a primary is taken, whatever its timeline."""
    from storagegate.storage.cluster.primary import Primary

    ask = Primary._askAll

    async def askAll(self: Any, make: Any) -> Any:
        found = await ask(self, make)
        return [each and (self.timeline, *each[1:]) for each in found]

    Primary._askAll = askAll  # type: ignore[method-assign]


BREAKS: Mapping[str, Callable[[], None]] = {
    "fence": _breakFence,
    "clock": _breakClock,
    "gate": _breakGate,
    "request": _breakRequest,
    "unknown": _breakUnknown,
    "timeline": _breakTimeline,
}
"""What breaks a rule, by its name."""


def run() -> None:
    """Run C{twistd} with the arguments of the process."""
    from storagegate.storage.cluster.blobs import remote

    if seconds := os.environ.get(LATE):
        # Before the sweeper takes it as its default.
        remote.LATE_SECONDS = float(seconds)
    if directory := os.environ.get(STOPS):
        _install(Stops(Path(directory)))
    for name in filter(None, os.environ.get(BROKEN, "").split(",")):
        BREAKS[name]()
    from twisted.scripts.twistd import run as runTwistd

    runTwistd()


PROGRAM = "from tests.wire.cluster.nodeprogram import run; run()"
"""For L{tests.support.daemon.daemonCommand}."""
