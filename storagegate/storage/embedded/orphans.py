"""
C{storagegate recover}: copies the blobs that the catalog does not reference, with all that can be
learned from their bytes.

Names, types and metadata of objects, and the bytes of small objects, exist only in the catalog.
Each line of C{blobs.jsonl} has properties by which a client may identify a large object::

    {"blob": "<id>", "bytes": 5242880, "modified": "2026-01-31T12:00:00Z",
     "md5": "<hex, the ETag of an object of one request>", "crc32c": "<base64>"}
"""

import os
import shutil
import sqlite3
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from hashlib import md5
from typing import Any

import msgspec

from storagegate.core.files import crc32c
from storagegate.storage.embedded import refcounts
from storagegate.storage.embedded.connections import Durability, Purpose, connect
from storagegate.storage.errors import StoreError
from storagegate.storage.files import DirectoryLock, Files, makeDirectory
from storagegate.storage.identity import KnownBlobs, listShards
from storagegate.storage.layout import BlobLayout, isBlobId
from storagegate.storage.sqlite import leave

INDEX = "blobs.jsonl"
"""The name of the file with one line per blob."""

_PIECE = 1024 * 1024
"""Bytes per read."""


class NothingRecovered(StoreError):
    """The blobs were not copied; the message is one line with the reason."""


def recover(data: str, to: str, report: Callable[[str], object]) -> int:
    """
    Copy all blobs of a closed store that its catalog does not reference. Blocks; changes no blob.

    @param to: An empty or nonexistent directory.
    @param report: Called with one line for each problem, and one with the counts.
    @param data: The data directory; its catalog may be lost.
    @return: How many blobs could not be copied.
    @raise NothingRecovered: There are no blobs, or the target cannot be used.
    @raise StoreLocked: The store is open.
    """
    layout, files, target = BlobLayout(data), Files(), os.path.abspath(to)
    if not os.path.isdir(layout.blobs):
        raise NothingRecovered(f"{data} contains no store")
    if f"{os.path.realpath(target)}/".startswith(f"{os.path.realpath(data)}/"):
        raise NothingRecovered(f"{to} is inside the data directory")
    if os.path.isdir(target) and os.listdir(target):
        raise NothingRecovered(f"{to} is not empty")
    copied = size = failed = 0
    with ExitStack() as stack:
        stack.callback(DirectoryLock.take(data).release)
        known = _openCatalog(stack, os.path.join(data, "catalog.sqlite"), report)
        makeDirectory(target, 0o700)
        index = stack.enter_context(open(os.path.join(target, INDEX), "xb"))
        for shard, names in listShards(layout, files):
            ids = list(filter(isBlobId, names))
            for blob in sorted(set(ids).difference(known(ids))):
                try:
                    found = _copy(os.path.join(shard, blob), os.path.join(target, blob))
                except OSError as error:
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(target, blob))
                    failed += 1
                    report(f"cannot copy blob {blob}: {error.strerror or error}")
                    continue
                copied += 1
                size += found["bytes"]
                index.write(msgspec.json.encode({"blob": blob, **found}) + b"\n")
        index.flush()
        os.fsync(index.fileno())
    report(f"{copied} blobs with {size} bytes were copied to {to}; {INDEX} lists them")
    return failed


def _openCatalog(stack: ExitStack, path: str, report: Callable[[str], object]) -> KnownBlobs:
    """Return a read-only look-up in a catalog; without a catalog no blob is known."""

    def none(ids: Sequence[str]) -> frozenset[str]:
        return frozenset()

    if not os.path.exists(path) or not os.path.getsize(path):
        report(f"{path} is missing: the blobs have no names")
        return none
    try:
        connection = connect(path, Durability.FULL, Purpose.POOL)
        stack.callback(leave, connection)
        refcounts.knownBlobs(connection, [])
    except sqlite3.DatabaseError as error:
        report(f"cannot read {path}: {error}; the blobs have no names")
        return none
    return partial(refcounts.knownBlobs, connection)


def _copy(source: str, target: str) -> dict[str, Any]:
    """
    Copy a file durably; return its properties. It is not linked, because a blob must never change.
    """
    digest, crc, size = md5(usedforsecurity=False), 0, 0
    with open(source, "rb") as blob, open(target, "xb", opener=_private) as copy:
        while piece := blob.read(_PIECE):
            digest.update(piece)
            crc = crc32c(piece, crc)
            size += len(piece)
            copy.write(piece)
        copy.flush()
        os.fsync(copy.fileno())
        modified = os.stat(blob.fileno()).st_mtime
    shutil.copystat(source, target)
    return {
        "bytes": size,
        "modified": datetime.fromtimestamp(int(modified), UTC).isoformat().replace("+00:00", "Z"),
        "md5": digest.hexdigest(),
        "crc32c": b64encode(crc.to_bytes(4, "big")).decode(),
    }


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
