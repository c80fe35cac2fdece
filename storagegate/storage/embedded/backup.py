"""
C{storagegate backup}: a consistent copy of the data while the daemon serves.

The copy is a snapshot as of a read transaction of the catalog. Blobs never change, but a blob that
later loses its last reference is removed, so each blob is first linked under a second name::

    1  link the blobs that the catalog references        blobs/ab/cd/ID -> TARGET/blobs/ab/cd/ID
    2  begin the read transaction, and link the blobs added since
    3  if a blob was missing, repeat step 2 with a new transaction; existing links stay
    4  if attempts keep failing, repeat with the write lock, under which no reference ends
    5  copy the catalog in the same read transaction, and end it
    6  copy the blobs that this copy references, then the other files

The WAL cannot be shortened during the transaction, so the transaction lasts only for steps 2 to 5.
If the target is on another file system, the links and the first copy of the catalog are in
C{DATA/backup-hold}. The blobs are copied from there, and the directory is removed at the end.
C{catalog.sqlite} gets its name last, when everything is on disk: a directory that has one is
complete.

The copy has an empty WAL beside each database. If it is copied by hand over the directory of a
killed daemon, the empty WAL replaces the old one, which SQLite would replay. See L{logbinding}.
"""

import fcntl
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import groupby
from time import monotonic

import msgspec
from attrs import define, field
from msgspec import Struct

from storagegate.core.files import readSmallFile
from storagegate.storage.embedded import refcounts
from storagegate.storage.embedded.connections import Durability, Purpose, connect, readSecret
from storagegate.storage.embedded.fsck import Progress, check, noProgress
from storagegate.storage.embedded.groupcommit import QueuedMutation, runTogether
from storagegate.storage.embedded.logbinding import makeIncarnation
from storagegate.storage.errors import StoreError
from storagegate.storage.files import (
    Files,
    createPrivate,
    makeDirectory,
    replaceFile,
    syncDirectory,
    syncFileSystem,
)
from storagegate.storage.identity import MARKER, storeId
from storagegate.storage.layout import MASTER_KEYS, SESSIONS, BlobLayout
from storagegate.storage.sqlite import leave, readOnlyURI
from storagegate.version import __version__

CATALOG = "catalog.sqlite"
"""The name of the catalog's file."""

_KEYS = ("root-credentials", "affinity-secret")
"""Files with keys that belong to the data."""

RESTORED_KEYS = (*_KEYS, MASTER_KEYS)
"""The same, and the master keys, which a backup has only if the operator wants it."""

_HOLD = "backup-hold"
_MANIFEST = "backup.json"
_MANIFEST_BYTES = 64 * 1024
_SUFFIX = ".sqlite"

_PAGE = 2_000
"""Ids per page."""

_ROUNDS = 4
"""Attempts without the lock; an attempt fails if blobs are removed faster than they are linked."""

# Writers wait five seconds for the lock before they are refused.
_LOCK_SECONDS = 3.0

_BATCH = 500
"""Ids per query of the catalog."""

_SPARE_BYTES = 256 * 1024 * 1024
"""Disk space that the first copy of the catalog leaves for the daemon."""

Report = Callable[[str], object]


class Manifest(Struct, kw_only=True):
    """
    The manifest of a backup.

    @ivar version: The version of the program that made the backup.
    @ivar madeMs: When the backup was made, in ms since the epoch.
    @ivar store: The id of the store.
    @ivar blobs: The number of blobs.
    @ivar bytes: The total size of the blobs.
    @ivar isCluster: Whether the backup is of a store over several machines.
    """

    version: str
    madeMs: int
    store: str
    blobs: int
    bytes: int
    isCluster: bool = False


def writeManifest(directory: str, manifest: Manifest) -> None:
    """Write the manifest of a backup."""
    text = msgspec.json.format(msgspec.json.encode(manifest))
    replaceFile(os.path.join(directory, _MANIFEST), text + b"\n")


def readManifest(directory: str) -> Manifest | None:
    """Read the manifest of a backup; L{None} for a backup by an earlier version, which has none."""
    try:
        text = readSmallFile(os.path.join(directory, _MANIFEST), _MANIFEST_BYTES)
        return msgspec.json.decode(text, type=Manifest)
    except (OSError, ValueError):
        return None


class BackupError(StoreError):
    """No copy was made; the message is one line with the reason."""


def backup(
    data: str,
    to: str,
    verify: bool,
    report: Report,
    files: Files | None = None,
    progress: Progress = noProgress,
) -> int:
    """
    Copy a store, which may be in use, and check the copy. Blocks.

    @param to: An empty or nonexistent directory. If the copy fails, it is emptied again.
    @param verify: Whether to read every byte of the copy and compare it with its checksum.
    @param report: Called with one line for each step and each problem.
    @param data: The data directory of the store.
    @param files: The operating system's calls, or a replacement.
    @param progress: Called with the number of checked blobs of the copy and the total.
    @return: The number of problems in the copy.
    @raise BackupError: There is nothing to copy, the target is unsuitable, or the copy failed.
    """
    source, target = os.path.realpath(data), os.path.realpath(to)
    if not os.path.exists(os.path.join(source, CATALOG)):
        raise BackupError(f"{data} contains no store; the daemon creates one when it starts")
    if f"{target}/".startswith(f"{source}/"):
        raise BackupError(f"{to} is inside the data directory")
    makeEmptyTarget(to)
    try:
        _Backup(BlobLayout(source), BlobLayout(target), files or Files(), report).run()
    except BaseException:
        emptyDirectory(target)
        raise
    problems = check(target, False, verify, report, progress=progress)
    _voidLogs(target)
    report(f"the copy has {problems} problems" if problems else "the copy was verified")
    return problems


def makeEmptyTarget(to: str) -> None:
    """
    Create the directory of a copy, unless it exists and is empty.

    @raise BackupError: The directory is not empty.
    """
    target = os.path.realpath(to)
    if os.path.isdir(target) and os.listdir(target):
        raise BackupError(f"{to} is not empty")
    makeDirectory(target, 0o700)


def _voidLogs(target: str) -> None:
    """Create an empty WAL and an empty WAL index beside each database."""
    for name in os.listdir(target):
        if name.endswith(_SUFFIX):
            for end in ("-wal", "-shm"):
                with suppress(FileExistsError):
                    os.close(createPrivate(os.path.join(target, f"{name}{end}")))
    syncDirectory(target)


@define(eq=False)
class _Backup:
    """One copy of one store."""

    _source: BlobLayout
    _target: BlobLayout
    _files: Files
    _report: Report
    _rounds: int = field(default=0, init=False)

    def run(self) -> None:
        """Make the copy."""
        for path in (self._target.blobs, self._target.staging):
            self._files.makeDirectory(path)
        with self._holding() as hold:
            with self._connect(Purpose.POOL) as reader:
                # Most of the work happens outside the transaction.
                self._link(reader, hold)
                self._pin(reader, hold)
                draft = self._copyCatalog(reader, hold)
            binding = self._finishCatalog(draft)
            with closing(connect(draft, Durability.FULL, Purpose.WRITER)) as copy:
                if hold is self._target:
                    self._prune(copy)
                else:
                    self._copyBlobs(copy, hold)
                manifest = _describe(copy)
            final = os.path.join(self._target.data, f"{CATALOG}.draft")
            if draft != final:
                self._files.copy(draft, final)
        copyOthers(self._files, self._source, self._target, _copyOpenDatabase)
        os.close(createPrivate(os.path.join(self._target.data, binding)))
        writeManifest(self._target.data, manifest)
        syncFileSystem(self._target.data)
        os.rename(final, os.path.join(self._target.data, CATALOG))
        syncFileSystem(self._target.data)

    @contextmanager
    def _holding(self) -> Iterator[BlobLayout]:
        """Yield the layout for the links: the target, or a directory beside the blobs."""
        if self._canLink():
            yield self._target
            return
        holdPath = os.path.join(self._source.data, _HOLD)
        makeDirectory(holdPath, 0o700)
        descriptor = os.open(holdPath, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BackupError("another backup is running") from None
            # Remove links left by a killed backup.
            emptyDirectory(holdPath)
            try:
                self._files.makeDirectory(BlobLayout(holdPath).blobs)
                yield BlobLayout(holdPath)
            finally:
                shutil.rmtree(holdPath)
        finally:
            os.close(descriptor)

    def _canLink(self) -> bool:
        """Return whether files of the store can be hard-linked into the target."""
        first = os.path.join(self._source.data, f"backup-{os.getpid()}")
        second = os.path.join(self._target.data, "probe")
        self._files.close(self._files.create(first))
        try:
            self._files.link(first, second)
        except OSError:
            return False
        finally:
            self._files.unlink(first)
        self._files.unlink(second)
        return True

    def _pin(self, reader: sqlite3.Connection, hold: BlobLayout) -> None:
        """Begin a read transaction all of whose blobs are linked."""
        before: set[str] = set()
        for self._rounds in range(1, _ROUNDS + 1):
            reader.execute("BEGIN")
            gone = self._link(reader, hold)
            # A blob missing in both attempts is damage, not a race.
            if gone <= before:
                return
            before = gone
            reader.execute("ROLLBACK")
        self._rounds += 1
        with self._connect(Purpose.WRITER) as writer:
            writer.execute("BEGIN IMMEDIATE")
            try:
                reader.execute("BEGIN")
                self._link(reader, hold, monotonic() + _LOCK_SECONDS)
            finally:
                writer.execute("ROLLBACK")

    def _link(
        self, reader: sqlite3.Connection, hold: BlobLayout, deadline: float | None = None
    ) -> set[str]:
        """Link all referenced blobs; return the missing ones."""
        gone: set[str] = set()
        for ids in self._named(reader):
            for shard, group in groupby(ids, hold.shard):
                makeShard(self._files, shard)
                have = set(self._files.names(shard))
                for blob in group:
                    if blob in have:
                        continue
                    try:
                        self._files.link(self._source.path(blob), hold.path(blob))
                    except FileNotFoundError:
                        gone.add(blob)
            if deadline is not None and monotonic() > deadline:
                raise BackupError(
                    "blobs are written and removed too fast to hold them;"
                    " retry when there are fewer writes"
                )
        return gone

    def _named(self, reader: sqlite3.Connection) -> Iterator[list[str]]:
        after = ""
        while ids := refcounts.listBlobs(reader, after, _PAGE, True):
            yield ids
            after = ids[-1]

    def _prune(self, copy: sqlite3.Connection) -> None:
        """Remove links of blobs that were referenced only in an earlier attempt."""
        blobs = 0
        for directory, _, names in os.walk(self._target.blobs):
            for start in range(0, len(names), _BATCH):
                batch = names[start : start + _BATCH]
                named = refcounts.knownBlobs(copy, batch, True)
                blobs += len(named)
                for blob in set(batch).difference(named):
                    self._files.unlink(os.path.join(directory, blob))
        self._report(f"{_counted(copy)} copied, {blobs} blobs linked")

    def _copyBlobs(self, copy: sqlite3.Connection, hold: BlobLayout) -> None:
        blobs = 0
        for ids in self._named(copy):
            for blob in ids:
                makeShard(self._files, self._target.shard(blob))
                try:
                    self._files.copy(hold.path(blob), self._target.path(blob))
                except FileNotFoundError:
                    # The blob was missing before; the check reports it.
                    continue
                blobs += 1
        self._report(f"{_counted(copy)} and {blobs} blobs copied")

    def _copyCatalog(self, reader: sqlite3.Connection, hold: BlobLayout) -> str:
        """Copy the catalog from the pinned transaction, and end that; return the path."""
        # Copy to the store's disk if it has the space, because another disk may be slow.
        [(pages,)] = reader.execute("PRAGMA page_count").fetchall()
        [(pageBytes,)] = reader.execute("PRAGMA page_size").fetchall()
        free, _ = self._files.space(hold.data)
        near = hold if free > pages * pageBytes + _SPARE_BYTES else self._target
        draft = os.path.join(near.data, f"{CATALOG}.draft")
        _copyDatabase(reader, draft)
        reader.execute("ROLLBACK")
        return draft

    def _finishCatalog(self, draft: str) -> str:
        """Remove garbage rows from a copy; return the name of the file that binds its log."""
        with closing(connect(draft, Durability.FULL, Purpose.WRITER)) as copy:
            while garbage := refcounts.listBlobs(copy, "", _PAGE, False):
                runTogether(copy, [QueuedMutation(refcounts.forgetBlobs, garbage)])
            return makeIncarnation(copy)

    @contextmanager
    def _connect(self, purpose: Purpose) -> Iterator[sqlite3.Connection]:
        path = os.path.join(self._source.data, CATALOG)
        connection = connect(path, Durability.FULL, purpose)
        try:
            yield connection
        finally:
            leave(connection)


def _describe(copy: sqlite3.Connection) -> Manifest:
    """Return the manifest for a catalog."""
    [(blobs, size)] = copy.execute(
        "SELECT count(*), coalesce(sum(size), 0) FROM blobs WHERE refs > 0"
    ).fetchall()
    return Manifest(
        version=__version__,
        madeMs=int(time.time() * 1000),
        store=storeId(readSecret(copy)),
        blobs=blobs,
        bytes=size,
    )


def makeShard(files: Files, shard: str) -> None:
    """Create the directory of a shard, unless it exists."""
    if not os.path.isdir(shard):
        for path in (os.path.dirname(shard), shard):
            with suppress(FileExistsError):
                files.makeDirectory(path)


def copyOthers(
    files: Files,
    source: BlobLayout,
    target: BlobLayout,
    copyDatabase: Callable[[str, str], object],
    keys: Sequence[str] = _KEYS,
) -> None:
    """
    Copy the other files of a data directory: further databases such as users, keys, and the store
    id. Sessions are not copied: a restored session would be one that was signed out.

    @param files: The operating system's calls.
    @param source: A data directory or a backup.
    @param target: The copy.
    @param copyDatabase: Called with the paths of a database and its copy.
    @param keys: The names of files with keys that are copied.
    """
    for name in sorted(os.listdir(source.data)):
        path, copied = os.path.join(source.data, name), os.path.join(target.data, name)
        if name.endswith(_SUFFIX) and name not in (CATALOG, SESSIONS):
            copyDatabase(path, copied)
        elif name in keys:
            files.copy(path, copied)
    with suppress(FileNotFoundError):
        files.copy(os.path.join(source.blobs, MARKER), os.path.join(target.blobs, MARKER))


def _copyOpenDatabase(path: str, target: str) -> None:
    """Copy a database that other processes may have open."""
    with closing(sqlite3.connect(readOnlyURI(path), uri=True)) as connection:
        _copyDatabase(connection, target)


def _counted(copy: sqlite3.Connection) -> str:
    """Describe the content of a catalog. Small objects have no blob."""
    [(objects,)] = copy.execute("SELECT count(*) FROM objects").fetchall()
    [(buckets,)] = copy.execute("SELECT count(*) FROM buckets").fetchall()
    return f"{objects} objects of {buckets} buckets"


def _copyDatabase(connection: sqlite3.Connection, target: str) -> None:
    """Copy a database as its connection sees it, within its transaction if there is one."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(sqlite3.connect(target)) as copy:
        connection.backup(copy)


def emptyDirectory(directory: str) -> None:
    """Remove everything in a directory."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
