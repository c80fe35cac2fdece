"""
C{storagegate backup}: a copy of the data of one moment, while the daemon serves.

The moment is a read transaction of the catalog. Blobs never change, but one that loses its last
reference after that moment is removed, so each gets a second name first::

    1  read what the catalog names, and link it          blobs/ab/cd/ID -> TARGET/blobs/ab/cd/ID
    2  was a blob gone: again, with a later moment; links that exist stay
    3  gone again: once more with the catalog's write lock, under which no reference ends
    4  copy the catalog out of the same read transaction, then the other files

Where the target is another file system, the links are in C{DATA/backup-hold}, the blobs are copied
from there, and the directory goes at the end. C{catalog.sqlite} comes last of all, under its name
when everything is on the disk: a directory that has one is complete.
"""

import ctypes
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import groupby
from time import monotonic

from attrs import define, field

from storagegate.storage.blobs.layout import BlobLayout
from storagegate.storage.catalog import refcounts
from storagegate.storage.catalog.connections import Durability, Purpose, connect
from storagegate.storage.catalog.writer import Mutation, runTogether
from storagegate.storage.errors import StoreError
from storagegate.storage.files import Files, makeDirectory
from storagegate.storage.fsck import Progress, check, noProgress
from storagegate.storage.identity import MARKER
from storagegate.storage.sqlite import leave, readOnlyURI

_CATALOG = "catalog.sqlite"
_KEYS = "root-credentials"
_HOLD = "backup-hold"
_SUFFIX = ".sqlite"

_PAGE = 2_000
"""Ids read together."""

_ROUNDS = 4
"""Attempts without the lock; where one fails, blobs are removed faster than they are linked."""

# Writers wait five seconds for the lock before they are refused.
_LOCK_SECONDS = 3.0

_BATCH = 500
"""Ids in one query of the catalog."""

Report = Callable[[str], object]


class BackupError(StoreError):
    """There is no copy; the text is one line with the reason."""


def backup(
    data: str,
    to: str,
    verify: bool,
    report: Report,
    files: Files | None = None,
    progress: Progress = noProgress,
) -> int:
    """
    Copy a store that may be in use, and check the copy. Blocks.

    @param to: A directory that is empty or does not exist; when the copy fails, it is empty again.
    @param verify: Whether every byte of the copy is read and compared with its checksum.
    @param report: Called with one line for each step and each problem.
    @param data: The data directory of the store.
    @param files: The operating system's calls, or a replacement.
    @param progress: Called with the number of the blobs of the copy that were checked, and of all.
    @return: How many problems the copy has.
    @raise BackupError: If there is nothing to copy, the target is none, or it cannot be done.
    """
    source, target = os.path.realpath(data), os.path.realpath(to)
    if not os.path.exists(os.path.join(source, _CATALOG)):
        raise BackupError(f"{data} holds no store; the daemon makes one when it starts")
    if f"{target}/".startswith(f"{source}/"):
        raise BackupError(f"{to} lies in the data directory")
    if os.path.isdir(target) and os.listdir(target):
        raise BackupError(f"{to} is not empty")
    makeDirectory(target, 0o700)
    try:
        _Backup(BlobLayout(source), BlobLayout(target), files or Files(), report).run()
    except BaseException:
        _empty(target)
        raise
    problems = check(target, False, verify, report, progress=progress)
    report(f"the copy has {problems} problems" if problems else "the copy was checked")
    return problems


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
        with (
            self._holding() as hold,
            self._connect(Purpose.POOL) as reader,
        ):
            self._pin(reader, hold)
            if hold is self._target:
                self._prune(reader)
            else:
                self._copyBlobs(reader, hold)
            draft = self._copyCatalog(reader)
        self._copyOthers()
        _syncFileSystem(self._target.data)
        os.rename(draft, os.path.join(self._target.data, _CATALOG))
        _syncFileSystem(self._target.data)

    @contextmanager
    def _holding(self) -> Iterator[BlobLayout]:
        """Yield the layout for second names: the target, or a directory beside the blobs."""
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
            # Names that a killed copy has left.
            _empty(holdPath)
            try:
                self._files.makeDirectory(BlobLayout(holdPath).blobs)
                yield BlobLayout(holdPath)
            finally:
                shutil.rmtree(holdPath)
        finally:
            os.close(descriptor)

    def _canLink(self) -> bool:
        """Return whether a file of the store can have a second name in the target."""
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
        """Begin a read transaction whose blobs are all held."""
        before: set[str] = set()
        for self._rounds in range(1, _ROUNDS + 1):
            reader.execute("BEGIN")
            gone = self._link(reader, hold)
            # A blob that is missing at both moments is damage, and no race.
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
        """Link all blobs with references; return those that were gone."""
        gone: set[str] = set()
        for ids in self._named(reader):
            for shard, group in groupby(ids, hold.shard):
                self._makeShard(shard)
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
                    "blobs come and go faster than they can be held; try when less is written"
                )
        return gone

    def _makeShard(self, shard: str) -> None:
        if not os.path.isdir(shard):
            for path in (os.path.dirname(shard), shard):
                with suppress(FileExistsError):
                    self._files.makeDirectory(path)

    def _named(self, reader: sqlite3.Connection) -> Iterator[list[str]]:
        after = ""
        while ids := refcounts.listBlobs(reader, after, _PAGE, True):
            yield ids
            after = ids[-1]

    def _prune(self, reader: sqlite3.Connection) -> None:
        """Remove links of blobs that had references at an earlier moment only."""
        blobs = 0
        for directory, _, names in os.walk(self._target.blobs):
            for start in range(0, len(names), _BATCH):
                batch = names[start : start + _BATCH]
                # After one round no other blob was linked.
                named = batch if self._rounds == 1 else refcounts.knownBlobs(reader, batch, True)
                blobs += len(named)
                for blob in set(batch).difference(named):
                    self._files.unlink(os.path.join(directory, blob))
        self._report(f"{blobs} blobs linked")

    def _copyBlobs(self, reader: sqlite3.Connection, hold: BlobLayout) -> None:
        blobs = 0
        for ids in self._named(reader):
            for blob in ids:
                self._makeShard(self._target.shard(blob))
                try:
                    _copyFile(hold.path(blob), self._target.path(blob))
                except FileNotFoundError:
                    # It was missing before: the check reports it.
                    continue
                blobs += 1
        self._report(f"{blobs} blobs copied")

    def _copyCatalog(self, reader: sqlite3.Connection) -> str:
        """Copy the catalog of the pinned moment without its garbage; return the path."""
        draft = os.path.join(self._target.data, f"{_CATALOG}.draft")
        _copyDatabase(reader, draft)
        with closing(connect(draft, Durability.FULL, Purpose.WRITER)) as copy:
            while garbage := refcounts.listBlobs(copy, "", _PAGE, False):
                runTogether(copy, [Mutation(refcounts.forgetBlobs, garbage)])
        return draft

    def _copyOthers(self) -> None:
        """Copy other files of the data directory: databases such as the users', and the key."""
        for name in sorted(os.listdir(self._source.data)):
            path = os.path.join(self._source.data, name)
            if name.endswith(_SUFFIX) and name != _CATALOG:
                with closing(sqlite3.connect(readOnlyURI(path), uri=True)) as other:
                    _copyDatabase(other, os.path.join(self._target.data, name))
            elif name == _KEYS:
                _copyFile(path, os.path.join(self._target.data, name))
        with suppress(FileNotFoundError):
            shutil.copy(os.path.join(self._source.blobs, MARKER), self._target.blobs)

    @contextmanager
    def _connect(self, purpose: Purpose) -> Iterator[sqlite3.Connection]:
        path = os.path.join(self._source.data, _CATALOG)
        connection = connect(path, Durability.FULL, purpose)
        try:
            yield connection
        finally:
            leave(connection)


def _copyFile(source: str, target: str) -> None:
    """Copy a file to a new one that only its owner may read."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    shutil.copyfile(source, target)


def _copyDatabase(connection: sqlite3.Connection, target: str) -> None:
    """Copy a database as its connection sees it: that of its transaction, if it has one."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(sqlite3.connect(target)) as copy:
        connection.backup(copy)


def _empty(directory: str) -> None:
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def _syncFileSystem(directory: str) -> None:
    """Make everything on a file system durable: one call where there may be a million files."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), directory)
    finally:
        os.close(descriptor)
