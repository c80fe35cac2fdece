"""
The removal of files that a crash has left in C{staging/}.

A name there belongs to a blob that the catalog has committed (then only the name is removed), or to
one that it has not (then the blob is removed too). A crash leaves no other files: see
L{storagegate.storage.blobs.writer}.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from attrs import define
from twisted.logger import Logger

from storagegate.storage.blobinterfaces import IBlobStore
from storagegate.storage.blobs.layout import BlobLayout, Shards, SyncGroup, isBlobId
from storagegate.storage.clock import StoreClock
from storagegate.storage.errors import StoreFull
from storagegate.storage.files import Files, unlinkIfThere
from storagegate.storage.interfaces import ICatalog

_BATCH = 500
"""Ids in one query of the catalog."""

_UNCONFIRMED_SECONDS = 24 * 3600.0
"""An upload that has written nothing for a day has ended."""

_log = Logger()


@define
class Swept:
    """
    The counts of one sweep.

    @ivar settled: First names of committed blobs that were removed.
    @ivar removed: Uploads that never were committed.
    @ivar restored: Committed blobs that had only their first name left.
    """

    settled: int = 0
    removed: int = 0
    restored: int = 0

    def log(self) -> None:
        """Write one line, if anything was swept."""
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
    Remove all names in C{staging/}; no process may be writing there. Blocks.

    Names that are no ids of blobs stay. So do all if the disk has no space for a commit.

    @param syncs: Makes directories durable.
    @param known: Returns those of the ids that the catalog has.
    @param settle: Makes a commit that overwrites an unseen one, which may name a blob that
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
    Remove the names in C{staging/} of processes that died, while others are writing. Blocks.

    As L{sweepStaging}, but nothing is restored, for no power was cut; and a blob that lost its last
    reference is left to the garbage collector, for another process may still read it.

    @param syncs: Makes directories durable.
    @param owners: The bytes that the ids of those processes end with.
    @param known: Returns those of the ids that the catalog has.
    @param named: Returns those of the ids that have references.
    @param settle: See L{sweepStaging}. It is called in any case, for garbage is removed after this.
    @raise StoreReadOnly: Writing has stopped; nothing more is removed.
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
) -> Swept:
    """
    Remove blobs that were written and never committed, and confirm those that were committed.

    @param olderThanSeconds: Longer than an upload may last.
    @param clock: While it is not trusted nothing is removed: an upload in progress may seem old.
    @param catalog: Decides which blobs were committed.
    @param blobs: Lists those that were never confirmed, and confirms or removes them.
    @raise StoreError: The catalog or the blobs cannot be read, or written, now.
    @raise OSError: The disk refuses.
    """
    swept = Swept()
    if clock is not None and clock.isStepped:
        return swept
    for batch in _batches(await blobs.unconfirmed(olderThanSeconds)):
        known = await catalog.knownBlobs(batch)
        unknown = [blob for blob in batch if blob not in known]
        blobs.confirm(sorted(known))
        await blobs.remove(unknown)
        swept.settled += len(known)
        swept.removed += len(unknown)
    swept.log()
    return swept


def _settled(settle: Callable[[], object]) -> bool:
    """Overwrite an unseen commit; return whether that was possible."""
    try:
        settle()
    except StoreFull as error:
        _log.error("staging was not swept: {error}", error=str(error))
        return False
    return True


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    ids = sorted(names)
    for start in range(0, len(ids), _BATCH):
        yield ids[start : start + _BATCH]


def _removeBlobs(layout: BlobLayout, files: Files, syncs: SyncGroup, blobs: Sequence[str]) -> None:
    """Remove blobs that were linked but never committed, durably, before their first names."""
    syncs.check()
    shards = {layout.shard(blob) for blob in blobs if unlinkIfThere(files, layout.path(blob))}
    for shard in sorted(shards):
        syncs.syncDirectory(shard)


def _restore(layout: BlobLayout, files: Files, shards: Shards, syncs: SyncGroup, blob: str) -> bool:
    """
    Link a committed blob again if it has only its first name.

    That happens without fsyncs: a power cut may keep the commit and lose the link.
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
