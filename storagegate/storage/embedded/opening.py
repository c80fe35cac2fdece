"""
Opens the store of one machine.

A single process locks the data directory itself. If several processes serve the directory, their
parent prepares the store (L{prepareStore}) and keeps the lock.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from storagegate.storage.backends import DEFAULT_BLOBS, DEFAULT_CATALOG
from storagegate.storage.clock import StoreClock
from storagegate.storage.embedded import refcounts
from storagegate.storage.embedded.connections import (
    Durability,
    buryUnseenCommits,
    opened,
    prepare,
    readSecret,
    replayLog,
)
from storagegate.storage.embedded.logbinding import renewIncarnation
from storagegate.storage.embedded.node import EmbeddedNode
from storagegate.storage.embedded.recovery import sweepStaging
from storagegate.storage.embedded.reserve import Reserve
from storagegate.storage.files import DirectoryLock, FailStopLatch, Files
from storagegate.storage.identity import claimBlobs, refuseLostCatalog
from storagegate.storage.layout import BlobLayout, SyncGroup
from storagegate.storage.records import INLINE_LIMIT
from storagegate.storage.scrub import BYTES_PER_SECOND
from storagegate.storage.store import ObjectStore

if TYPE_CHECKING:
    # A single process does not need this module.
    from storagegate.storage.embedded.processgroup import ProcessGroup
    from storagegate.storage.embedded.sharedmemory import ProcessGroupConfig


def openStore(
    directory: str,
    reactor: Any,
    *,
    durability: str = "full",
    files: Files | None = None,
    random: Callable[[int], bytes] = os.urandom,
    scrubBytesPerSecond: int = BYTES_PER_SECOND,
    verifyReads: bool = False,
    sharing: "ProcessGroupConfig | None" = None,
    inlineLimit: int = INLINE_LIMIT,
    clock: StoreClock | None = None,
    lock: DirectoryLock | None = None,
    catalog: str = DEFAULT_CATALOG,
    blobs: str = DEFAULT_BLOBS,
    options: Mapping[str, Any] | None = None,
) -> ObjectStore:
    """
    Open a store, creating it if it does not exist. Blocks; call it before the reactor runs.

    Files left in C{staging/} by a crash are removed first.

    @param directory: The data directory.
    @param reactor: See L{ObjectStore.open}; so are all parameters without a line here.
    @param sharing: The other processes that serve the same store. Their parent has called
        L{prepareStore} and keeps the lock.
    @param lock: The lock of the data directory if this process already holds it. The store releases
        it, unless C{sharing} is given: then the caller keeps it.
    @raise StoreLocked: Another process has it open.
    @raise StoreError: The store cannot be used; one line gives the reason.
    @raise OSError: The operating system reported a disk error.
    """
    files = files or Files()
    with ExitStack() as entered:
        group = _enter(entered, directory, reactor, files, durability, sharing, lock)
        return ObjectStore.open(
            directory,
            reactor,
            node=partial(EmbeddedNode, group=group),
            catalog=catalog,
            blobs=blobs,
            options=options,
            durability=durability,
            files=files,
            random=random,
            scrubBytesPerSecond=scrubBytesPerSecond,
            verifyReads=verifyReads,
            inlineLimit=inlineLimit,
            clock=clock,
            latch=FailStopLatch(directory) if group is None else group.latch,
            catalogState=None if group is None else group.catalogState,
            owner=b"" if group is None else group.owner,
            observers=None if group is None else group.observers,
            resources=entered.pop_all(),
        )


def prepareStore(
    directory: str,
    *,
    durability: str = "full",
    files: Files | None = None,
    lock: DirectoryLock | None = None,
) -> DirectoryLock:
    """
    Prepare a store for several processes, each of which calls L{openStore}. Blocks.

    The store is created if it does not exist, and files left by a crash are removed.

    @param files: The operating system's calls, or a replacement.
    @param directory: The data directory.
    @param durability: See L{openStore}.
    @param lock: The lock of the directory if the caller already holds it.
    @return: The lock. The processes inherit its descriptor; no other process can open the store
        until the caller and all of them have exited.
    @raise StoreLocked: Another process has it open.
    @raise StoreError: The store cannot be used; one line gives the reason.
    @raise OSError: The operating system reported a disk error.
    """
    files = files or Files()
    path = os.path.join(directory, "catalog.sqlite")
    kind = Durability(durability)
    with ExitStack() as taken:
        lock = _lock(directory, files, durability, lock)
        taken.callback(lock.release)
        layout = BlobLayout(directory)
        refuseLostCatalog(layout, files)
        prepare(path, kind)
        latch = FailStopLatch(directory)
        with opened(path, kind, latch) as connection:
            renewIncarnation(connection, path, kind is Durability.FULL)
            Reserve(os.path.join(directory, "reserve")).ensure()
            known = partial(refcounts.knownBlobs, connection)
            syncs = SyncGroup(files, latch, kind is Durability.FULL)
            settle = partial(buryUnseenCommits, connection, latch)
            claimBlobs(layout, files, syncs, readSecret(connection), known)
            sweepStaging(layout, files, syncs, known, settle)
        os.set_inheritable(lock.descriptor, True)
        taken.pop_all()
        return lock


def _lock(
    directory: str, files: Files, durability: str, taken: DirectoryLock | None
) -> DirectoryLock:
    """
    Lock a store, create its directories with access for their owner only, and replay the log left
    by a crash. This precedes all other work on the store.

    @param taken: The lock if this process already holds it.
    """
    layout = BlobLayout(directory)
    syncs = SyncGroup(files, FailStopLatch(), durability == "full")
    parent = os.path.dirname(os.path.abspath(directory))
    with ExitStack() as releasing:
        if taken is None:
            os.makedirs(parent, exist_ok=True)
            with suppress(FileExistsError):
                files.makeDirectory(directory)
            taken = DirectoryLock.take(directory)
        releasing.callback(taken.release)
        for path in (layout.blobs, layout.staging):
            with suppress(FileExistsError):
                files.makeDirectory(path)
        # Existing directories may stem from a start whose sync failed.
        for path in (parent, directory):
            syncs.syncDirectory(path)
        replayLog(directory, Durability(durability))
        releasing.pop_all()
    return taken


def _enter(
    opened: ExitStack,
    directory: str,
    reactor: Any,
    files: Files,
    durability: str,
    sharing: "ProcessGroupConfig | None",
    lock: DirectoryLock | None,
) -> "ProcessGroup | None":
    """Lock a store, or join the processes that serve it, until C{opened} is closed."""
    if sharing is None:
        opened.callback(_lock(directory, files, durability, lock).release)
        return None
    from storagegate.storage.embedded.processgroup import ProcessGroup

    group = ProcessGroup(sharing, reactor, directory)
    opened.callback(group.leave)
    group.recover(directory, files, durability)
    return group
