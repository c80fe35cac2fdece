"""Ids of blobs on one machine: 32 hexadecimal digits."""

import os
import re
from collections.abc import Callable

BLOBS_A_SHARD = 256
"""Blobs in a row with one directory; more would make single directories large on small stores."""

_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)


def isBlobId(name: str) -> bool:
    """Return whether a name is one that a blob can have."""
    return _ID.fullmatch(name) is not None


class BlobIds:
    """
    Makes ids, a few hundred in a row with the same first four digits.

    Those name the directory of a blob's file: making it, and syncing it, then serve them all.

    @param random: C{os.urandom} or what replaces it.
    @param owner: What all ids end with: by it the files of a process that died are told from those
        of others.
    """

    def __init__(self, random: Callable[[int], bytes] = os.urandom, owner: bytes = b"") -> None:
        self._random = random
        self._owner = owner.hex()
        self._own = 14 - len(owner)
        self._shard = ""
        self._left = 0

    def new(self) -> str:
        """Make an id that no blob has had. Reactor thread."""
        if not self._left:
            self._shard = self._random(2).hex()
            self._left = BLOBS_A_SHARD
        self._left -= 1
        return self._shard + self._random(self._own).hex() + self._owner
