"""
Checks that a catalog and the blobs beside it belong to the same store.

The id of a store is a digest of its catalog's secret. C{blobs/store-id} holds it too, so that the
blobs do not look like garbage if the catalog is lost or replaced by another.
"""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256

from storagegate.storage.errors import StoreError, StoreFull
from storagegate.storage.files import Files, unlinkIfThere
from storagegate.storage.layout import DISK_FULL, BlobLayout, SyncGroup, isBlobId
from storagegate.storage.sqlite import CatalogUnusable

MARKER = "store-id"
"""The name of the file that holds the id."""

UNFINISHED = "restore-unfinished"
"""The directory of an unfinished restore."""

_LENGTH = 32

KnownBlobs = Callable[[Sequence[str]], Collection[str]]


class ForeignBlobs(StoreError):
    """The blobs do not belong to the catalog; the message is one line for the operator."""


def storeId(secret: bytes) -> str:
    """Return the id of the store whose catalog has this secret."""
    return sha256(b"storagegate store id\0" + secret).hexdigest()[:_LENGTH]


def listShards(layout: BlobLayout, files: Files) -> Iterator[tuple[str, list[str]]]:
    """
    Yield each directory of blobs with its names, including files at higher levels. Blocks.

    @param files: The operating system's calls.
    """
    for first in sorted(files.names(layout.blobs)):
        path = os.path.join(layout.blobs, first)
        if not os.path.isdir(path):
            if first != MARKER:
                yield layout.blobs, [first]
            continue
        for second in sorted(files.names(path)):
            shard = os.path.join(path, second)
            if not os.path.isdir(shard):
                yield path, [second]
                continue
            yield shard, sorted(files.names(shard))


def refuseLostCatalog(layout: BlobLayout, files: Files) -> None:
    """
    Refuse to create a catalog beside existing blobs or during a restore. Blocks.

    @param files: The operating system's calls.
    @raise CatalogUnusable: C{catalog.sqlite} is absent or empty, and the directory holds the blobs
        of a store or an unfinished restore.
    """
    path = os.path.join(layout.data, "catalog.sqlite")
    with suppress(FileNotFoundError):
        if os.stat(path).st_size:
            return
    if os.path.isdir(os.path.join(layout.data, UNFINISHED)):
        raise CatalogUnusable(
            f"{layout.data} contains an unfinished restore: empty it, then restore again"
        )
    with suppress(FileNotFoundError):
        if _readMarker(layout, files) or any(map(_ids, _names(layout, files))):
            raise CatalogUnusable(
                f"{path} is gone, but the store's blobs are there: put the catalog back, from a"
                " backup for instance, or see storagegate recover"
            )


def findForeignBlobs(
    layout: BlobLayout, files: Files, secret: bytes, known: KnownBlobs
) -> str | None:
    """
    Return why the blobs do not belong to a catalog; L{None} if they do. Blocks.

    A store of an earlier version has no file with the id; one blob that the catalog knows is
    sufficient proof.

    @param known: Returns the subset of ids that the catalog has.
    @param secret: The catalog's secret.
    @param files: The operating system's calls.
    """
    marker = _readMarker(layout, files)
    if marker == storeId(secret):
        return None
    if marker:
        return f"catalog.sqlite is of store {storeId(secret)}, {layout.blobs} of store {marker}"
    isEmpty = True
    staged = set(files.names(layout.staging))
    for names in _names(layout, files):
        ids = _ids(names)
        if known(ids):
            return None
        isEmpty = isEmpty and staged.issuperset(ids)
    return None if isEmpty else f"catalog.sqlite references none of the blobs in {layout.blobs}"


def claimBlobs(
    layout: BlobLayout, files: Files, syncs: SyncGroup, secret: bytes, known: KnownBlobs
) -> None:
    """
    Check that the blobs belong to the catalog, and write the missing id beside them. Blocks.

    @param secret: The catalog's secret.
    @param syncs: Makes the id durable.
    @param files: The operating system's calls.
    @param known: Returns the subset of ids that the catalog has.
    @raise ForeignBlobs: The blobs belong to another store.
    """
    if (problem := findForeignBlobs(layout, files, secret, known)) is not None:
        raise ForeignBlobs(f"{problem}; nothing was changed: restore the matching catalog")
    path = os.path.join(layout.blobs, MARKER)
    if os.path.exists(path):
        return
    draft = os.path.join(layout.staging, MARKER)
    try:
        unlinkIfThere(files, draft)
        fd = files.create(draft)
        try:
            files.write(fd, [storeId(secret).encode() + b"\n"])
            syncs.syncFile(fd)
        finally:
            files.close(fd)
        # The link makes the file atomic: after a power cut it is absent or has the whole id.
        files.link(draft, path)
        syncs.syncDirectory(layout.blobs)
        unlinkIfThere(files, draft)
    except (OSError, StoreFull) as error:
        if isinstance(error, OSError) and error.errno not in DISK_FULL:
            raise
        # The next start with free disk space writes it.
        unlinkIfThere(files, draft)


def _readMarker(layout: BlobLayout, files: Files) -> str:
    try:
        fd = files.openForReading(os.path.join(layout.blobs, MARKER))
    except FileNotFoundError:
        return ""
    try:
        return files.read(fd, 2 * _LENGTH, 0).decode("ascii", "replace").strip()
    finally:
        files.close(fd)


def _names(layout: BlobLayout, files: Files) -> Iterator[list[str]]:
    return (names for _, names in listShards(layout, files))


def _ids(names: Sequence[str]) -> list[str]:
    return list(filter(isBlobId, names))
