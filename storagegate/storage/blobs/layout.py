"""
Where a blob's file is.

::

    DATA/blobs/ab/cd/abcd...    the blob, under its id: 32 hexadecimal digits
    DATA/staging/abcd...        its first name, until the catalog has committed it

The directories of blobs, which the ids name.
"""

import os

from attrs import frozen

from storagegate.storage.blobs.fsync import SyncGroup
from storagegate.storage.files import Files


@frozen
class BlobLayout:
    """
    The paths below one data directory.

    @ivar data: The data directory.
    """

    data: str

    @property
    def blobs(self) -> str:
        """The directory of the shards."""
        return os.path.join(self.data, "blobs")

    @property
    def staging(self) -> str:
        """The directory of the first names."""
        return os.path.join(self.data, "staging")

    def shard(self, blob: str) -> str:
        """Return the directory that holds a blob."""
        return os.path.join(self.data, "blobs", blob[:2], blob[2:4])

    def path(self, blob: str) -> str:
        """Return the path of a blob."""
        return os.path.join(self.data, "blobs", blob[:2], blob[2:4], blob)

    def stagingPath(self, blob: str) -> str:
        """Return the path of a blob's first name."""
        return os.path.join(self.data, "staging", blob)


_KNOWN_LIMIT = 4096
"""Directories remembered as there; forgetting one costs a C{mkdir} and an fsync."""


class Shards:
    """Makes the directories of blobs."""

    def __init__(self, layout: BlobLayout, files: Files, durability: SyncGroup) -> None:
        self._layout = layout
        self._files = files
        self._durability = durability
        # Added to and cleared as a whole from any thread; an entry lost costs a second mkdir.
        self._known: set[str] = set()

    def ensure(self, blob: str) -> None:
        """
        See that a blob's directory is there, durably.

        A directory that this process did not see durable may be one that a crash would take
        away, or that another thread has made but not synced: its parent is synced here as well.
        Blocks; may run in a pool thread.
        """
        shard = self._layout.shard(blob)
        parent = os.path.dirname(shard)
        for path in (parent, shard):
            if path not in self._known:
                try:
                    self._files.makeDirectory(path)
                except FileExistsError:
                    pass
                self._durability.syncDirectory(os.path.dirname(path))
                if len(self._known) >= _KNOWN_LIMIT:
                    self._known.clear()
                self._known.add(path)
