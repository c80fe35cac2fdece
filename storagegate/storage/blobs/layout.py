"""
Where a blob's file is.

::

    DATA/blobs/ab/cd/abcd...    the blob, under its id: 32 hexadecimal digits
    DATA/staging/abcd...        its first name, until the catalog has committed it
"""

import os
import re

from attrs import frozen

_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)


def isBlobId(name: str) -> bool:
    """Say whether a name is one that a blob can have."""
    return _ID.fullmatch(name) is not None


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
