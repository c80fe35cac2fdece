"""
What a store is put together from, opened in the order that its promises need.

A process that is alone takes the data directory's lock. Where several serve it, whoever starts them
has done once what comes before all of them, and keeps the lock.
"""

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import frozen
from twisted.internet.interfaces import IDelayedCall

from storagegate.storage.blobs.durability import Durability, Latch
from storagegate.storage.blobs.filesystem import FileBlobs
from storagegate.storage.blobs.layout import BlobLayout
from storagegate.storage.blobs.shards import Shards
from storagegate.storage.catalog import ledger
from storagegate.storage.catalog.connections import Durability as CatalogDurability
from storagegate.storage.catalog.connections import Purpose, connect, prepare
from storagegate.storage.catalog.faults import CatalogUnusable
from storagegate.storage.catalog.reserve import Reserve
from storagegate.storage.catalog.sqlite import SQLiteCatalog
from storagegate.storage.damage import DamageReport
from storagegate.storage.files import Files
from storagegate.storage.lock import DirectoryLock
from storagegate.storage.pool import WorkPool
from storagegate.storage.reclaim import Reclaimer
from storagegate.storage.scrub import Scrubber
from storagegate.storage.sharing import Sharing
from storagegate.storage.sweep import sweepStaging
from storagegate.storage.verifying import VerifyingReader

if TYPE_CHECKING:
    # A process that is alone has no use for it.
    from storagegate.storage.company import Company


@frozen
class StoreOptions:
    """
    How a store works.

    @ivar durability: C{"full"}, or C{"os"} for no fsyncs.
    @ivar random: C{os.urandom} or what replaces it.
    @ivar scrubBytesPerSecond: How fast blobs are read again in the background.
    @ivar verifyReads: Whether there is a verifier.
    """

    durability: str
    random: Callable[[int], bytes]
    scrubBytesPerSecond: int
    verifyReads: bool


@frozen
class Pieces:
    """
    What a store is made of.

    @ivar catchUp: The reclaimer will look for what an earlier process left.
    @ivar space: Bytes free on the disk, and all of its bytes.
    @ivar closing: What is undone, blocking, at the very end.
    @ivar company: The other processes, where there may be some.
    """

    catalog: SQLiteCatalog
    blobs: FileBlobs
    pool: WorkPool
    reclaimer: Reclaimer
    catchUp: IDelayedCall
    scrubber: Scrubber
    verifier: VerifyingReader | None
    space: Callable[[], tuple[int, int]]
    closing: ExitStack
    company: "Company | None"


def openPieces(
    directory: str, reactor: Any, files: Files, options: StoreOptions, sharing: Sharing | None
) -> Pieces:
    """
    Open everything; see L{storagegate.storage.store.ObjectStore.open}. Blocks.

    @raise StoreError: It cannot be used; one line says why.
    @raise OSError: The disk refuses.
    """
    layout = BlobLayout(directory)
    durable = options.durability == "full"
    path = os.path.join(directory, "catalog.sqlite")
    with ExitStack() as opened:
        company = _join(opened, sharing, reactor, directory)
        latch = Latch() if company is None else company.latch
        syncs = Durability(files, latch, durable)
        if company is None:
            _makeDirectories(layout, files, syncs)
            opened.callback(DirectoryLock.take(directory).release)
        else:
            company.takeOver(path, layout, files, syncs, durable)
        pool = WorkPool(reactor)
        owner = b"" if company is None else company.owner
        blobs = FileBlobs(layout, pool, files, latch, durable, options.random, owner)
        reclaimer = Reclaimer(
            lambda ids: _discard(blobs, company, ids),
            lambda ids: catalog.forgetBlobs(ids),
            lambda after, limit: catalog.garbage(after, limit),
            None if company is None else company.neighbours,
        )
        commons = None if company is None else company.commons
        catalog = SQLiteCatalog(
            path, reactor, pool.run, options.durability, reclaimer.reclaim, commons
        )
        catalog.open()
        if company is None:
            shards = Shards(layout, files, syncs, options.random)
            sweepStaging(layout, files, shards, syncs, catalog.knownBlobs)
        blobs.markDamaged(catalog.damagedBlobs())
        report = DamageReport(catalog, lambda ids: _markDamaged(blobs, company, ids))
        scrubber = Scrubber(
            catalog, layout, files, pool, reactor, report, options.scrubBytesPerSecond
        )
        return Pieces(
            catalog,
            blobs,
            pool,
            reclaimer,
            _begin(reactor, scrubber, reclaimer, company),
            scrubber,
            VerifyingReader(catalog, blobs, files, pool, report) if options.verifyReads else None,
            lambda: files.space(directory),
            opened.pop_all(),
            company,
        )


def prepareStore(directory: str, durability: str, files: Files) -> DirectoryLock:
    """
    Make a store ready for several processes; see
    L{storagegate.storage.store.ObjectStore.prepare}. Blocks.

    @raise StoreError: The store cannot be used; one line says why.
    @raise OSError: The disk refuses.
    """
    layout = BlobLayout(directory)
    syncs = Durability(files, Latch(), durability == "full")
    _makeDirectories(layout, files, syncs)
    path = os.path.join(directory, "catalog.sqlite")
    kind = CatalogDurability(durability)
    with ExitStack() as taken:
        lock = DirectoryLock.take(directory)
        taken.callback(lock.release)
        prepare(path, kind)
        try:
            with closing(connect(path, kind, Purpose.WRITER)) as connection:
                Reserve(os.path.join(directory, "reserve")).ensure()
                shards = Shards(layout, files, syncs)
                sweepStaging(layout, files, shards, syncs, partial(ledger.knownBlobs, connection))
        except sqlite3.DatabaseError as error:
            raise CatalogUnusable(f"{path} cannot be opened: {error}") from error
        os.set_inheritable(lock.descriptor, True)
        taken.pop_all()
        return lock


def _makeDirectories(layout: BlobLayout, files: Files, durability: Durability) -> None:
    """Make the directories, which only their owner may enter."""
    os.makedirs(os.path.dirname(os.path.abspath(layout.data)), exist_ok=True)
    for path in (layout.data, layout.blobs, layout.staging):
        try:
            files.makeDirectory(path)
        except FileExistsError:
            continue
        durability.syncDirectory(os.path.dirname(path) or ".")


def _join(
    opened: ExitStack, sharing: Sharing | None, reactor: Any, directory: str
) -> "Company | None":
    """Find the other processes, if there may be any."""
    if sharing is None:
        return None
    from storagegate.storage.company import Company

    company = Company(sharing, reactor, directory)
    opened.callback(company.leave)
    return company


def _begin(
    reactor: Any, scrubber: Scrubber, reclaimer: Reclaimer, company: "Company | None"
) -> IDelayedCall:
    """Begin what goes on in the background, in one process for all."""
    if company is None or company.isFirst:
        scrubber.start()
    # Not now, for that would start a thread, and a process may fork before it serves.
    catchUp: IDelayedCall = reactor.callLater(0, reclaimer.catchUp)
    if company is not None and not company.catchesUp:
        catchUp.cancel()
    return catchUp


async def _discard(blobs: FileBlobs, company: "Company | None", ids: Sequence[str]) -> None:
    """Remove blobs everywhere."""
    await blobs.discard(ids)
    if company is not None:
        company.tellGone(ids)


def _markDamaged(blobs: FileBlobs, company: "Company | None", ids: Sequence[str]) -> None:
    """Have these blobs opened no more anywhere."""
    blobs.markDamaged(ids)
    if company is not None:
        company.tellDamaged(ids)
