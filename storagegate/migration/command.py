"""C{storagegate cluster migrate}: migrates a store, and guides the operator."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from threading import Thread
from typing import Any, TypeVar

import psycopg
from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.threads import blockingCallFromThread

from storagegate.cluster.blobcopier import (
    BlobCopier,
    BlobEnd,
    FileEnd,
    PieceEnd,
    RenamedEnd,
)
from storagegate.cluster.initialisation import openPieces
from storagegate.cluster.options import ClusterOptions
from storagegate.cluster.tables import MigrationError, Row
from storagegate.migration.bucketsource import BucketSource
from storagegate.migration.buckettarget import BucketTarget
from storagegate.migration.embedded import EmbeddedEnd
from storagegate.migration.engine import Migration, Outcome
from storagegate.migration.interfaces import IMigrationEnd
from storagegate.migration.lease import MigrationLease
from storagegate.migration.marks import FOLLOWING, OPENED
from storagegate.migration.shared import SharedEnd
from storagegate.net.endpoints import chooseReactor
from storagegate.storage.cluster.blobs.pieces import MARKER, IPieceStore, MissingPiece
from storagegate.storage.cluster.blobs.remote import checkPieces, claimPieces, readMarker
from storagegate.storage.errors import StoreBusy
from storagegate.storage.identity import storeId
from storagegate.storage.threadpool import BoundedThreadPool

T = TypeVar("T")

_STOPPED = 130


@define(eq=False)
class _Mover:
    """
    Moves blobs. Methods block, and must run outside of the reactor thread.

    @ivar _claimed: The blobs of the target cluster, which takes over the store's identity; C{None}
        if the target is not a cluster.
    @ivar _checked: Blob stores with the catalogs that they must belong to.
    """

    _reactor: Any
    _copier: BlobCopier
    _target: IMigrationEnd
    _claimed: IPieceStore | None = None
    _checked: Sequence[tuple[IPieceStore, IMigrationEnd]] = ()

    def clear(self) -> None:
        """Undo the claim of C{cluster init}."""
        if self._claimed is not None:
            self._wait(self._clear, self._claimed, storeId(self._target.secret()))

    def claim(self) -> None:
        """Claim the target cluster's blob store, or check that blob stores match their catalogs."""
        if self._claimed is not None:
            self._wait(claimPieces, self._claimed, storeId(self._target.secret()))
        for pieces, end in self._checked:
            self._wait(checkPieces, pieces, storeId(end.secret()))

    def copy(self, rows: Sequence[Row]) -> list[str]:
        """Copy blobs."""
        failed: list[str] = self._wait(self._copier.copy, rows)
        return failed

    def remove(self, blobs: Sequence[str]) -> None:
        """Remove blobs from the target."""
        self._wait(self._copier.remove, blobs)

    async def _clear(self, pieces: IPieceStore, store: str) -> None:
        with suppress(MissingPiece):
            if await readMarker(pieces) == store:
                await pieces.remove(MARKER)

    def _wait(self, act: Callable[..., Any], *values: object) -> Any:
        return blockingCallFromThread(self._reactor, Deferred.fromCoroutine, act(*values))


def move(
    options: ClusterOptions,
    directory: str,
    isTarget: bool,
    reactor: Any,
    report: Callable[[str], object],
    root: tuple[str, str] | None = None,
    onStep: Callable[[str], object] = lambda name: None,
    **settings: Any,
) -> Outcome:
    """
    Move a store from a data directory to a cluster, or back. Blocks; must run outside of the
    reactor thread, while the reactor runs.

    @param options: The cluster.
    @param directory: The data directory as an absolute path.
    @param isTarget: Whether the cluster is the target.
    @param report: Called with each line for the operator.
    @param root: The root key pair of the data directory's store, if known.
    @param onStep: See L{Migration}.
    @param settings: Further arguments of L{Migration}.
    @raise StoreError: If the migration fails; the text gives the reason in one line.
    """
    with ExitStack() as stack:
        cluster = SharedEnd.connect(options.catalog, root)
        stack.callback(cluster.close)
        opened = EmbeddedEnd.openSource if isTarget else EmbeddedEnd.openTarget
        single = opened(directory)
        stack.callback(single.close)
        pieces = _openPieces(stack, options, reactor)
        pool = blockingCallFromThread(reactor, BoundedThreadPool, reactor)
        stack.callback(_closeInReactor, reactor, pool.stop)
        files: BlobEnd = FileEnd(single.layout, pool)
        objects: BlobEnd = PieceEnd(pieces)
        source: IMigrationEnd = single if isTarget else cluster
        target: IMigrationEnd = cluster if isTarget else single
        copier = BlobCopier(*((files, objects) if isTarget else (objects, files)), reactor)
        if isTarget:
            mover = _Mover(reactor, copier, target, pieces)
        else:
            mover = _Mover(reactor, copier, target, None, [(pieces, target)])
        what = "the daemon" if isTarget else "all nodes"

        def ready() -> None:
            report(f"ready: stop {what} of {source.name} now")

        try:
            return Migration(source, target, mover, report, onStep, **settings).run(ready)
        except psycopg.Error as error:
            raise StoreBusy(f"{cluster.name}: {' '.join(str(error).split())}") from error


def moveBucket(
    options: ClusterOptions,
    bucket: str,
    to: ClusterOptions,
    reactor: Any,
    report: Callable[[str], object],
    onStep: Callable[[str], object] = lambda name: None,
    **settings: Any,
) -> Outcome:
    """
    Move a bucket from one cluster to another. Both clusters keep serving other buckets. Blocks;
    must run outside of the reactor thread, while the reactor runs.

    @param options: The source cluster.
    @param to: The target cluster.
    @param report: Called with each line for the operator.
    @param onStep: See L{Migration}.
    @param settings: Further arguments of L{Migration}.
    @raise StoreError: If the migration fails; the text gives the reason in one line.
    """
    with ExitStack() as stack:
        try:
            source, target = _bucketEnds(stack, options, bucket, to)
            opened = target.mark()
            if opened is None or opened.state != OPENED:
                source.check()
            if opened is None and source.mark() is None and not target.isEmpty():
                raise MigrationError(f"{target.name} exists already")
            lease = MigrationLease(target.conninfo, to.leaseSeconds)
            stack.callback(lease.end)
            target.fillFrom(source, lease)
            theirs = _openPieces(stack, options, reactor)
            ours = _openPieces(stack, to, reactor)
            copies = RenamedEnd(PieceEnd(ours, lease.check), target.idOf)
            copier = BlobCopier(PieceEnd(theirs), copies, reactor)
            mover = _Mover(reactor, copier, target, None, [(theirs, source), (ours, target)])

            def ready() -> None:
                report("ready: the bucket takes no writes until the switch")

            return Migration(source, target, mover, report, onStep, **settings).run(ready)
        except psycopg.Error as error:
            raise StoreBusy(f"a catalog: {' '.join(str(error).split())}") from error


def _bucketEnds(
    stack: ExitStack, options: ClusterOptions, bucket: str, to: ClusterOptions
) -> tuple[BucketSource, BucketTarget]:
    """Connect to both clusters, and lock the bucket against other runs."""
    source = BucketSource.connectTo(options.catalog, bucket)
    stack.callback(source.close)
    target = BucketTarget.connectTo(to.catalog, bucket)
    stack.callback(target.close)
    if source.secret() == target.secret():
        raise MigrationError("both configurations name the same cluster")
    source.reserve()
    target.reserve()
    return source, target


def abandonBucket(options: ClusterOptions, bucket: str, to: ClusterOptions) -> None:
    """
    Abandon the migration of a bucket: the target removes the copied data. Blocks.

    @raise MigrationError: If the bucket has moved already, or is not being migrated.
    """
    with ExitStack() as stack:
        source, target = _bucketEnds(stack, options, bucket, to)
        mine, theirs = source.mark(), target.mark()
        if mine is None or mine.state != FOLLOWING:
            state = (
                "is not being migrated"
                if mine is None
                else "has been migrated, or is the target of a migration"
            )
            raise MigrationError(f"{source.name} {state}")
        if theirs is not None:
            if theirs.id != mine.id:
                raise MigrationError(f"{target.name} is part of another migration")
            target.undo()
        source.abandon()


def _openPieces(stack: ExitStack, options: ClusterOptions, reactor: Any) -> IPieceStore:
    pieces: IPieceStore = blockingCallFromThread(reactor, openPieces, options, reactor)
    stack.callback(_closeInReactor, reactor, pieces.close)
    return pieces


def _closeInReactor(reactor: Any, close: Callable[[], Any]) -> None:
    blockingCallFromThread(reactor, close)


def abandon(options: ClusterOptions, directory: str, isTarget: bool) -> None:
    """
    Abandon a migration: its source stops noting changes. Blocks.

    @param directory: The data directory as an absolute path.
    @param isTarget: Whether the cluster was the target.
    @raise MigrationError: If the source has moved already, or is not being migrated.
    """
    source: IMigrationEnd
    if isTarget:
        source = EmbeddedEnd.openSource(directory)
    else:
        source = SharedEnd.connect(options.catalog)
    with closing(source):
        mark = source.mark()
        if mark is None or mark.state != FOLLOWING:
            state = (
                "is not being migrated"
                if mark is None
                else "has been migrated, or is the target of a migration"
            )
            raise MigrationError(f"{source.name} {state}")
        source.abandon()


def runInReactor(function: Callable[[Any], T]) -> T | None:
    """
    Call a function with the running reactor, in a separate thread.

    @return: The result; C{None} if a signal has stopped the reactor.
    @raise Exception: The exception of the function.
    """
    running: Any = chooseReactor(None)
    outcomes: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            outcomes.append(function(running))
        except BaseException as error:
            errors.append(error)
        running.callFromThread(_stop, running)

    # The thread may be killed at any point: its durable state is sufficient to continue.
    thread = Thread(target=work, daemon=True)
    running.callWhenRunning(thread.start)
    running.run()
    if errors:
        raise errors[0]
    return outcomes[0] if outcomes else None


def _stop(reactor: Any) -> None:
    if reactor.running:
        reactor.stop()


def run(act: Callable[[Any, Callable[[str], object]], Outcome], pause: str) -> int:
    """
    Move a store, printing lines for the operator.

    @param act: Moves the store, given a running reactor and a function that prints a line.
    @param pause: The service that is interrupted between the end of the source and the switch, for
        the report.
    @return: The exit code.
    @raise StoreError: If the migration fails; the text gives the reason in one line.
    """

    def report(line: str) -> None:
        print(line, flush=True)

    outcome = runInReactor(lambda reactor: act(reactor, report))
    if outcome is None:
        report("interrupted: run the command again to continue")
        return _STOPPED
    perSecond = outcome.rows / outcome.seconds if outcome.seconds else 0.0
    if outcome.verified:
        report(
            f"switched: {outcome.rows} rows copied ({perSecond:.0f}/s), {outcome.rounds} rounds,"
            f" {outcome.verified} rows verified, {outcome.downSeconds:.2f} s without {pause}"
        )
    return 0
