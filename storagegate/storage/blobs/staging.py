"""
A blob on its way to the disk.

The order is the promise: bytes, fsync, second name under C{blobs/}, fsync of the directory; then
the catalog commits; only then does the first name go. So whatever a crash leaves behind has its
name in C{staging/}, and no start ever has to search C{blobs/}.
"""

from collections.abc import Sequence
from functools import partial

from twisted.logger import Logger

from storagegate.core.crcs import crc32c
from storagegate.net.writing import Buffer, writeAll
from storagegate.storage.blobs.durability import Durability, Latch, storeError
from storagegate.storage.blobs.layout import BlobLayout
from storagegate.storage.blobs.shards import Shards
from storagegate.storage.files import Files, unlinkIfThere


def checksumOf(buffer: Buffer, before: int = 0) -> int:
    """
    Return the CRC that a blob is checked by: CRC32C, 59 GB/s here and whole in an SQLite integer.

    @param before: The CRC of the bytes before these.
    """
    return crc32c(buffer, before)


class StagingFile:
    """
    One blob being written. Every method blocks and runs in a pool thread, one at a time.

    @ivar blob: Its id.
    @ivar crc: The CRC of what was written so far.
    """

    _log = Logger()

    def __init__(
        self,
        blob: str,
        layout: BlobLayout,
        files: Files,
        shards: Shards,
        durability: Durability,
        latch: Latch,
    ) -> None:
        self.blob = blob
        self.crc = 0
        self._layout = layout
        self._files = files
        self._shards = shards
        self._durability = durability
        self._latch = latch
        self._fd = -1
        self._made = False
        self._linked = False

    def append(self, buffers: Sequence[Buffer]) -> None:
        """
        Write more bytes.

        @raise StoreError: Or L{OSError} where the store has no word for it. L{remove} it then.
        """
        self._latch.check()
        try:
            if not self._made:
                self._fd = self._files.create(self._layout.stagingPath(self.blob))
                self._made = True
            for buffer in buffers:
                self.crc = checksumOf(buffer, self.crc)
            writeAll(partial(self._files.write, self._fd), buffers)
        except OSError as error:
            raise storeError(error) from error

    def commit(self, buffers: Sequence[Buffer]) -> None:
        """
        Write the last bytes and make the blob durable under its id.

        @raise StoreError: As L{append}.
        """
        self.append(buffers)
        try:
            self._durability.syncFile(self._fd)
            self._close()
            self._shards.ensure(self.blob)
            self._link()
            self._durability.syncDirectory(self._layout.shard(self.blob))
        except OSError as error:
            raise storeError(error) from error

    def remove(self) -> None:
        """
        Take away whatever was written. What cannot be taken away is logged, and is found in
        C{staging/} at the next start.
        """
        try:
            self._close()
            # In this order: the name in staging/ is what the next start looks for.
            if self._linked:
                unlinkIfThere(self._files, self._layout.path(self.blob))
                self._linked = False
            if self._made:
                unlinkIfThere(self._files, self._layout.stagingPath(self.blob))
                self._made = False
        except OSError as error:
            self._log.error(
                "upload {blob} was not removed: {error}", blob=self.blob, error=str(error)
            )

    def _link(self) -> None:
        # A link that fails may have been made all the same; one that was in the way is not ours.
        self._linked = True
        try:
            self._files.link(self._layout.stagingPath(self.blob), self._layout.path(self.blob))
        except FileExistsError:
            self._linked = False
            raise

    def _close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._files.close(fd)
