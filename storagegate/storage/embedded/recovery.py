"""
Removal of files that a crash has left in C{staging/}.

If the catalog has committed the blob of a staging name, only the name is removed; otherwise the
blob is removed, too. A crash leaves no other files: see L{storagegate.storage.blobwriter}.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from attrs import define
from twisted.logger import Logger

from storagegate.storage.blobinterfaces import IBlobStore
from storagegate.storage.clock import StoreClock
from storagegate.storage.errors import StoreFull
from storagegate.storage.files import Files, unlinkIfThere
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.layout import BlobLayout, Shards, SyncGroup, isBlobId

_BATCH = 500
"""Ids per query of the catalog."""

_UNCONFIRMED_SECONDS = 24 * 3600.0
"""An upload that has written nothing for a day is considered ended."""

_log = Logger()


@define
class Swept:
    """
    The counts of one sweep.

    @ivar settled: The number of staging names of committed blobs that were removed.
    @ivar removed: The number of removed uploads that were never committed.
    @ivar restored: The number of committed blobs that had only their staging name left.
    """

    settled: int = 0
    removed: int = 0
    restored: int = 0

    def log(self) -> None:
        """Log one line if anything was swept."""
        if self != Swept():
            _log.info(
                "swept staging: {swept.settled} settled, {swept.removed} removed,"
                " {swept.restored} restored",
                swept=self,
            )


def sweepStaging(
    layout: BlobLayout,
    files: Files,
    syncs: SyncGroup,
    known: Callable[[Sequence[str]], Collection[str]],
    settle: Callable[[], object],
) -> Swept:
    """
    Remove all names in C{staging/}. No process may be writing there. Blocks.

    Names that are not blob ids stay. All names stay if the disk has no space for a commit.

    @param syncs: Makes directories durable.
    @param known: Returns the subset of ids that the catalog has.
    @param settle: Makes a commit that overwrites an unseen commit, which may name a blob that
        C{known} does not return.
    @param files: The operating system's calls.
    """
    shards = Shards(layout, files, syncs)
    swept = Swept()
    left = list(filter(isBlobId, files.names(layout.staging)))
    if not left or not _settled(settle):
        return swept
    for batch in _batches(left):
        committed = known(batch)
        _removeBlobs(layout, files, syncs, [b for b in batch if b not in committed])
        for blob in batch:
            if blob not in committed:
                swept.removed += 1
            elif _restore(layout, files, shards, syncs, blob):
                swept.restored += 1
            else:
                swept.settled += 1
            unlinkIfThere(files, layout.stagingPath(blob))
    swept.log()
    return swept


def sweepLeft(
    layout: BlobLayout,
    files: Files,
    syncs: SyncGroup,
    owners: Collection[bytes],
    known: Callable[[Sequence[str]], Collection[str]],
    named: Callable[[Sequence[str]], Collection[str]],
    settle: Callable[[], object],
) -> Swept:
    """
    Remove the names of dead processes in C{staging/} while others are writing. Blocks.

    Like L{sweepStaging}, but nothing is restored, because there was no power cut, and a blob
    without references is left to the garbage collector, because another process may still read it.

    @param syncs: Makes directories durable.
    @param owners: The blob id suffixes of the dead processes.
    @param known: Returns the subset of ids that the catalog has.
    @param named: Returns the subset of ids that have references.
    @param settle: See L{sweepStaging}. Always called, because garbage is removed afterwards.
    @raise StoreReadOnly: Writing has stopped, so nothing more is removed.
    """
    ends = tuple(owner.hex() for owner in owners)
    swept = Swept()
    if not _settled(settle):
        return swept
    for batch in _batches(
        name for name in files.names(layout.staging) if isBlobId(name) and name.endswith(ends)
    ):
        committed = known(batch)
        unknown = [blob for blob in batch if blob not in committed]
        _removeBlobs(layout, files, syncs, unknown)
        swept.removed += len(unknown)
        settled = named(batch)
        swept.settled += len(settled)
        for blob in (*unknown, *settled):
            unlinkIfThere(files, layout.stagingPath(blob))
    swept.log()
    return swept


async def removeUnconfirmed(
    catalog: ICatalog,
    blobs: IBlobStore,
    clock: StoreClock | None = None,
    olderThanSeconds: float = _UNCONFIRMED_SECONDS,
) -> Swept | None:
    """
    Remove blobs that were written but never committed, and confirm committed blobs.

    @param olderThanSeconds: Longer than an upload may last.
    @param clock: Nothing is removed while the clock is not trusted, because an upload in progress
        may seem old.
    @param catalog: Decides which blobs were committed.
    @param blobs: Lists unconfirmed blobs, and confirms or removes them.
    @return: L{None} if the clock is not trusted.
    @raise StoreError: The catalog or the blobs cannot be read or written now.
    @raise OSError: The operating system reported a disk error.
    """
    swept = Swept()
    if clock is not None and clock.isStepped:
        return None
    corrected = int if clock is None else clock.corrected
    for batch in _batches(await blobs.unconfirmed(olderThanSeconds, corrected)):
        known = await catalog.knownBlobs(batch)
        unknown = [blob for blob in batch if blob not in known]
        blobs.confirm(sorted(known))
        await blobs.remove(unknown)
        swept.settled += len(known)
        swept.removed += len(unknown)
    swept.log()
    return swept


def _settled(settle: Callable[[], object]) -> bool:
    """Overwrite an unseen commit; return whether that succeeded."""
    try:
        settle()
    except StoreFull as error:
        _log.error("cannot sweep staging: {error}", error=str(error))
        return False
    return True


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    ids = sorted(names)
    for start in range(0, len(ids), _BATCH):
        yield ids[start : start + _BATCH]


def _removeBlobs(layout: BlobLayout, files: Files, syncs: SyncGroup, blobs: Sequence[str]) -> None:
    """Durably remove blobs that were linked but never committed, before their staging names."""
    syncs.check()
    shards = {layout.shard(blob) for blob in blobs if unlinkIfThere(files, layout.path(blob))}
    for shard in sorted(shards):
        syncs.syncDirectory(shard)


def _restore(layout: BlobLayout, files: Files, shards: Shards, syncs: SyncGroup, blob: str) -> bool:
    """
    Relink a committed blob that has only its staging name.

    Without fsyncs, a power cut may keep the commit and lose the link.
    """
    try:
        files.size(layout.path(blob))
    except FileNotFoundError:
        pass
    else:
        return False
    shards.ensure(blob)
    files.link(layout.stagingPath(blob), layout.path(blob))
    syncs.syncDirectory(layout.shard(blob))
    return True
