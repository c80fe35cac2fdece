"""
C{storagegate restore}: makes a data directory from a backup, atomically.

The backup is only read, so it may be on a read-only medium. The copy is written to a directory with
a temporary name, checked and synced there, and then renamed::

    1  copy the catalog, and migrate the copy              DIR.restore-unfinished/
    2  check that the catalog is sound and each blob exists with its size; otherwise stop
    3  copy the blobs that it references, and the other files
    4  check the copy as fsck does
    5  sync, rename to DIR, sync

If the parent of DIR is not writable or DIR is a mount point, the copy is in
C{DIR/restore-unfinished}, and step 5 moves its entries up, C{catalog.sqlite} last. Until then a
daemon refuses to start in DIR.
"""

import errno
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime

from attrs import define, field

from storagegate.storage.embedded import refcounts
from storagegate.storage.embedded.backup import (
    CATALOG,
    RESTORED_KEYS,
    BackupError,
    Report,
    copyOthers,
    emptyDirectory,
    makeShard,
    readManifest,
)
from storagegate.storage.embedded.connections import Durability, Purpose, connect, prepare
from storagegate.storage.embedded.fsck import Progress, check, noProgress
from storagegate.storage.embedded.logbinding import hasFrames, makeIncarnation
from storagegate.storage.files import (
    Files,
    createPrivate,
    makeDirectory,
    syncDirectory,
    syncFileSystem,
)
from storagegate.storage.identity import UNFINISHED
from storagegate.storage.layout import BlobLayout

_PAGE = 500
"""Rows per page."""

_CANNOT_MAKE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})

_MOST_PROBLEMS = 100
"""The most lines about missing blobs; further ones are only counted."""


def restore(
    source: str,
    to: str,
    verify: bool,
    report: Report,
    *,
    isPartial: bool = False,
    files: Files | None = None,
    progress: Progress = noProgress,
) -> int:
    """
    Make a data directory from a backup. Blocks.

    @param source: The backup, which is not changed.
    @param to: An empty or nonexistent directory. If the copy fails, it is left unchanged.
    @param verify: Whether to read every byte of the copy and compare it with its checksum.
    @param report: Called with one line for each problem, and with the result.
    @param isPartial: Whether to restore a backup with missing or damaged blobs.
    @param files: The operating system's calls, or a replacement.
    @param progress: Called with the number of copied blobs and the total.
    @return: The number of problems in the copy: 0 unless C{isPartial}.
    @raise StoreError: Nothing was restored; one line gives the reason.
    @raise OSError: The operating system reported a disk error.
    """
    backup, target = os.path.realpath(source), os.path.realpath(to)
    _refuseIncomplete(source, backup)
    if f"{target}/".startswith(f"{backup}/") or f"{backup}/".startswith(f"{target}/"):
        raise BackupError(f"{source} and {to} must not contain each other")
    if os.path.lexists(target) and not os.path.isdir(target):
        raise BackupError(f"{to} is not a directory")
    if os.path.isdir(target) and set(os.listdir(target)) - {UNFINISHED}:
        raise BackupError(f"{to} is not empty")
    makeDirectory(os.path.dirname(target))
    with _reading(source, backup), _drafting(target) as draft:
        copying = _Restore(
            BlobLayout(backup),
            BlobLayout(draft),
            files or Files(),
            report,
            progress,
            isPartial,
        )
        problems = copying.run(verify)
        syncFileSystem(draft)
        _place(draft, target)
    manifest = readManifest(backup)
    made = "by an earlier version"
    if manifest is not None:
        at = datetime.fromtimestamp(manifest.madeMs / 1000, UTC).isoformat(" ", "seconds")
        made = f"by storagegate {manifest.version} at {at}"
    report(f"restored {copying.counted} to {to}, from a backup made {made}")
    return problems


def _refuseIncomplete(source: str, backup: str) -> None:
    """
    Refuse a directory that is not a complete backup of a store on one machine.

    @raise BackupError: The message is one line with the reason.
    """
    manifest = readManifest(backup)
    if manifest is not None and manifest.isCluster:
        raise BackupError(
            f"{source} is the backup of a cluster: restore it with --config, and without --to"
        )
    path = os.path.join(backup, CATALOG)
    if not os.path.isfile(path) or not os.path.getsize(path):
        raise BackupError(f"{source} is not a complete backup: it has no {CATALOG}")
    logs = [name for name in os.listdir(backup) if name.endswith("-wal")]
    if any(hasFrames(os.path.join(backup, name)) for name in logs):
        raise BackupError(
            f"{source} was opened after the backup and not closed: run storagegate fsck --data"
            f" {source} first"
        )


@contextmanager
def _reading(source: str, backup: str) -> Iterator[None]:
    """
    Prevent daemons from starting on the backup.

    @raise BackupError: A daemon serves it.
    """
    try:
        descriptor = os.open(os.path.join(backup, "lock"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError(f"{source} is in use by another process") from None
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _drafting(target: str) -> Iterator[str]:
    """
    Yield an empty directory for the copy; remove it if the copy fails.

    @raise BackupError: Another process restores to the same directory.
    """
    draft = f"{target}.{UNFINISHED}"
    isInside = os.path.ismount(target)
    if not isInside:
        try:
            os.makedirs(draft, 0o700, exist_ok=True)
        except OSError as error:
            if error.errno not in _CANNOT_MAKE or not os.path.isdir(target):
                raise
            isInside = True
    if isInside:
        draft = os.path.join(target, UNFINISHED)
        os.makedirs(draft, 0o700, exist_ok=True)
    descriptor = os.open(draft, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError(f"another process restores to {target}") from None
        os.fchmod(descriptor, 0o700)
        # Remove the remains of a killed restore.
        emptyDirectory(draft)
        try:
            yield draft
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    finally:
        os.close(descriptor)


def _place(draft: str, target: str) -> None:
    """Durably rename a complete, durable copy to its target."""
    if os.path.dirname(draft) != target:
        # The rename replaces an empty directory.
        os.rename(draft, target)
        syncDirectory(os.path.dirname(target))
        return
    names = sorted(os.listdir(draft), key=lambda name: name == CATALOG)
    moved: list[str] = []
    try:
        for name in names:
            if name == CATALOG:
                syncDirectory(target)
            os.rename(os.path.join(draft, name), os.path.join(target, name))
            moved.append(name)
    except BaseException:
        for name in moved:
            os.rename(os.path.join(target, name), os.path.join(draft, name))
        raise
    os.rmdir(draft)
    syncDirectory(target)


@define(eq=False)
class _Restore:
    """
    One restore of one backup.

    @ivar counted: A summary of the copied data, as text.
    """

    _source: BlobLayout
    _target: BlobLayout
    _files: Files
    _report: Report
    _progress: Progress
    _isPartial: bool
    _problems: int = field(default=0, init=False)
    counted: str = field(default="", init=False)

    def run(self, verify: bool) -> int:
        """Make the copy and check it; return the number of problems."""
        catalog = os.path.join(self._target.data, CATALOG)
        self._files.copy(os.path.join(self._source.data, CATALOG), catalog)
        prepare(catalog, Durability.OS)
        try:
            with closing(connect(catalog, Durability.OS, Purpose.WRITER)) as connection:
                self._compare(connection)
                os.close(
                    createPrivate(os.path.join(self._target.data, makeIncarnation(connection)))
                )
                self._copyBlobs(connection)
        except sqlite3.DatabaseError as error:
            raise BackupError(f"the catalog of the backup is damaged: {error}") from error
        self._files.makeDirectory(self._target.staging)
        copy = self._files.copy
        copyOthers(self._files, self._source, self._target, copy, RESTORED_KEYS)
        found = check(self._target.data, False, verify, self._report)
        self._refuse(found)
        return found

    def _compare(self, connection: sqlite3.Connection) -> None:
        """Check that the backup is complete before copying anything large."""
        rows = connection.execute("PRAGMA integrity_check(1)").fetchall()
        if rows != [("ok",)]:
            raise BackupError(f"the catalog of the backup is damaged: {rows[0][0]}")
        for blob, size in _blobsOf(connection):
            try:
                found = self._files.size(self._source.path(blob))
            except FileNotFoundError:
                self._problem(f"blob {blob} is not in the backup")
            else:
                if found != size:
                    self._problem(f"blob {blob} has {found} bytes in the backup, not {size}")
        self._refuse(self._problems)

    def _problem(self, text: str) -> None:
        self._problems += 1
        if self._problems <= _MOST_PROBLEMS and not self._isPartial:
            self._report(text)

    def _refuse(self, problems: int) -> None:
        if problems and not self._isPartial:
            raise BackupError(
                f"nothing was restored, for the backup has {problems} problems; --partial restores"
                " what there is"
            )

    def _copyBlobs(self, connection: sqlite3.Connection) -> None:
        execute: Callable[[str], sqlite3.Cursor] = connection.execute
        [(total,)] = execute("SELECT count(*) FROM blobs WHERE refs > 0").fetchall()
        self._files.makeDirectory(self._target.blobs)
        done = size = 0
        for blob, _ in _blobsOf(connection):
            makeShard(self._files, self._target.shard(blob))
            with suppress(FileNotFoundError):
                size += self._files.copy(self._source.path(blob), self._target.path(blob))
                done += 1
            self._progress(done, total)
        [(objects,)] = execute("SELECT count(*) FROM objects").fetchall()
        [(buckets,)] = execute("SELECT count(*) FROM buckets").fetchall()
        self.counted = f"{objects} objects of {buckets} buckets, {done} blobs with {size} bytes"


def _blobsOf(connection: sqlite3.Connection) -> Iterator[tuple[str, int]]:
    """Yield id and size of each referenced blob."""
    after = ""
    while rows := refcounts.blobRows(connection, after, _PAGE):
        after = rows[-1].id
        for row in rows:
            if row.refs:
                yield row.id, row.size
