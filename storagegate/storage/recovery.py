"""
What a crash leaves in C{staging/}, judged against the catalog.

A name there is of a blob that the catalog has committed (then only the name goes), or of one that
it has not (then the blob goes too). Nothing else can be left over: see
L{storagegate.storage.blobs.writer}.
"""

from collections.abc import Callable, Collection, Sequence

from attrs import define
from twisted.logger import Logger

from storagegate.storage.blobids import isBlobId
from storagegate.storage.blobs.fsync import SyncGroup
from storagegate.storage.blobs.layout import BlobLayout, Shards
from storagegate.storage.files import Files, unlinkIfThere
from storagegate.storage.interfaces import IBlobStore, ICatalog

_BATCH = 500
"""Ids in one question to the catalog."""

_UNCONFIRMED_SECONDS = 24 * 3600.0
"""An upload that has written nothing for a day is not in progress any more."""

_log = Logger()


@define
class Swept:
    """
    What a sweep did.

    @ivar settled: First names of committed blobs that were taken away.
    @ivar removed: Uploads that never were committed.
    @ivar restored: Committed blobs that had only their first name left.
    """

    settled: int = 0
    removed: int = 0
    restored: int = 0


def sweepStaging(
    layout: BlobLayout,
    files: Files,
    shards: Shards,
    durability: SyncGroup,
    known: Callable[[Sequence[str]], Collection[str]],
) -> Swept:
    """
    Clear C{staging/}, in which nobody else may be writing.

    Blocks. Names that are no blob's are left alone.

    @param known: Says which of these ids the catalog has.
    """
    names = sorted(name for name in files.names(layout.staging) if isBlobId(name))
    swept = Swept()
    for start in range(0, len(names), _BATCH):
        batch = names[start : start + _BATCH]
        committed = known(batch)
        _removeBlobs(layout, files, durability, [b for b in batch if b not in committed])
        for blob in batch:
            if blob not in committed:
                swept.removed += 1
            elif _restore(layout, files, shards, durability, blob):
                swept.restored += 1
            else:
                swept.settled += 1
            unlinkIfThere(files, layout.stagingPath(blob))
    if names:
        _tell(swept)
    return swept


def sweepLeft(
    layout: BlobLayout,
    files: Files,
    durability: SyncGroup,
    owners: Collection[bytes],
    known: Callable[[Sequence[str]], Collection[str]],
    named: Callable[[Sequence[str]], Collection[str]],
) -> Swept:
    """
    Clear from C{staging/} what processes have left that died, while others go on.

    As L{sweepStaging}, but nothing is restored, for no power was cut; and a blob that lost its last
    reference is left to those who reclaim it, for somebody may still read it.

    @param owners: What the ids of those processes end with.
    @param named: Says which of these ids an object or a part names.
    """
    ends = tuple(owner.hex() for owner in owners)
    names = sorted(n for n in files.names(layout.staging) if isBlobId(n) and n.endswith(ends))
    swept = Swept()
    for start in range(0, len(names), _BATCH):
        batch = names[start : start + _BATCH]
        committed = known(batch)
        unknown = [blob for blob in batch if blob not in committed]
        _removeBlobs(layout, files, durability, unknown)
        swept.removed += len(unknown)
        settled = named(batch)
        swept.settled += len(settled)
        for blob in (*unknown, *settled):
            unlinkIfThere(files, layout.stagingPath(blob))
    if names:
        _tell(swept)
    return swept


async def removeUnconfirmed(
    catalog: ICatalog, blobs: IBlobStore, olderThanSeconds: float = _UNCONFIRMED_SECONDS
) -> Swept:
    """
    Remove blobs that were written and never committed, while others are; settle those that were.

    @param olderThanSeconds: Longer than an upload may last.
    @raise StoreError: One of the two cannot be asked, or written, now.
    @raise OSError: The disk refuses.
    """
    left = await blobs.unconfirmed(olderThanSeconds)
    swept = Swept()
    for start in range(0, len(left), _BATCH):
        batch = left[start : start + _BATCH]
        known = await catalog.knownBlobs(batch)
        unknown = [blob for blob in batch if blob not in known]
        blobs.settle(sorted(known))
        await blobs.discard(unknown)
        swept.settled += len(known)
        swept.removed += len(unknown)
    if left:
        _tell(swept)
    return swept


def _tell(swept: Swept) -> None:
    _log.info(
        "swept staging: {swept.settled} settled, {swept.removed} removed,"
        " {swept.restored} restored",
        swept=swept,
    )


def _removeBlobs(
    layout: BlobLayout, files: Files, durability: SyncGroup, blobs: Sequence[str]
) -> None:
    """Remove what was linked but never committed, durably: its first name goes next."""
    shards = {layout.shard(blob) for blob in blobs if unlinkIfThere(files, layout.path(blob))}
    for shard in sorted(shards):
        durability.syncDirectory(shard)


def _restore(
    layout: BlobLayout, files: Files, shards: Shards, durability: SyncGroup, blob: str
) -> bool:
    """
    Link a committed blob again if only its first name is there.

    That happens without fsyncs: a power cut may keep the commit and lose the link.
    """
    try:
        files.sizeOf(layout.path(blob))
    except FileNotFoundError:
        pass
    else:
        return False
    shards.ensure(blob)
    files.link(layout.stagingPath(blob), layout.path(blob))
    durability.syncDirectory(layout.shard(blob))
    return True
