"""
Reads every blob again, slowly, and says which have rotted.

A disk tells of a bad sector when it is read; a blob that nobody reads for a year would hide its
damage until the last good copy elsewhere is gone.
"""

import os
from collections.abc import Callable

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from storagegate.storage.blobs.layout import BlobLayout
from storagegate.storage.blobs.staging import checksumOf
from storagegate.storage.catalog.ledger import BlobRow, IBlobLedger, InlinePosition
from storagegate.storage.damage import DamageReport, verdict
from storagegate.storage.errors import StoreError
from storagegate.storage.files import Files
from storagegate.storage.pool import IWorkPool

BYTES_PER_SECOND = 8 * 1024 * 1024
"""A terabyte in a day and a half, at a few hundredths of what one disk reads."""

PAUSE_SECONDS = 7 * 24 * 3600.0
"""Between rounds: a week, in which a second copy elsewhere will mostly still be good."""

_START_SECONDS = 60.0
"""Before the first round: a daemon that starts has more urgent reads to make."""

_PIECE = 1024 * 1024
"""Bytes read in one job: no thread of the pool is kept for long."""

_PAGE = 500
"""Rows read at a time."""

_INLINE_PAGE = 64
"""Objects read at a time that have their bytes in the catalog: 4 MiB at most."""


def readPiece(files: Files, fd: int, offset: int, crc: int) -> tuple[int, int]:
    """
    Read on in a blob. Blocks; may run in a pool thread.

    @param crc: The CRC of what is before C{offset}.
    @return: How many bytes were there, none at the end, and the CRC with them.
    """
    piece = files.read(fd, _PIECE, offset)
    # What is hot for readers must not be pushed out of memory by what nobody asked for.
    files.dropCache(fd, offset, len(piece))
    return len(piece), checksumOf(piece, crc)


class Scrubber:
    """
    Goes round all blobs. All methods: reactor thread.

    A round begins at a random id. Ids are random, so a daemon that is restarted often still gets
    everywhere, and nothing needs to be remembered.

    @param clock: Where the pauses are made.
    @param report: Told of blobs that are damaged.
    @ivar bytesRead: How many bytes have been read again.
    @ivar rounds: How often everything has been.
    @ivar damagedObjects: Bucket and key of the small objects that the last round found damaged.
    """

    _log = Logger()

    def __init__(
        self,
        catalog: IBlobLedger,
        layout: BlobLayout,
        files: Files,
        pool: IWorkPool,
        clock: IReactorTime,
        report: DamageReport,
        bytesPerSecond: int = BYTES_PER_SECOND,
        pauseSeconds: float = PAUSE_SECONDS,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._catalog = catalog
        self._layout = layout
        self._files = files
        self._pool = pool
        self._clock = clock
        self._report = report
        self._bytesPerSecond = bytesPerSecond
        self._pauseSeconds = pauseSeconds
        self._random = random
        self._running: Deferred[None] | None = None
        self._delay: Deferred[None] | None = None
        self._stopping = False
        self.bytesRead = 0
        self.rounds = 0
        self.damagedObjects: frozenset[tuple[str, bytes]] = frozenset()

    def start(self) -> None:
        """Scrub, round after round, until L{stop}. Once."""
        self._running = Deferred.fromCoroutine(self._rounds())

    def stop(self) -> Deferred[None]:
        """
        Scrub no more.

        @return: Fires when no job is left in the pool.
        """
        self._stopping = True
        if self._delay is not None:
            self._delay.cancel()
        if self._running is None:
            return succeed(None)
        stopped: Deferred[None] = Deferred()
        self._running.addBoth(lambda _: stopped.callback(None))
        return stopped

    async def scrub(self) -> None:
        """Go round once."""
        begin = self._random(16).hex()
        await self._between(begin, "g")
        await self._between("", begin)
        await self._inline()

    async def _rounds(self) -> None:
        await self._pause(_START_SECONDS)
        while not self._stopping:
            try:
                await self.scrub()
            except (StoreError, OSError) as error:
                self._log.error("the round was broken off: {error}", error=str(error))
            await self._pause(self._pauseSeconds)

    async def _between(self, after: str, last: str) -> None:
        """Check the blobs behind one id, up to another."""
        while not self._stopping:
            rows = await self._catalog.blobRows(after, _PAGE)
            for row in rows:
                if row.id > last or self._stopping:
                    return
                if row.refs:
                    await self._check(row)
            if not rows:
                return
            after = rows[-1].id

    async def _inline(self) -> None:
        """Check the objects whose bytes are in the catalog."""
        damaged: set[tuple[str, bytes]] = set()
        position: InlinePosition | None = None
        while not self._stopping:
            page = await self._catalog.checkInline(position, _INLINE_PAGE)
            for bucket, key in page.damaged:
                self._log.critical("object {bucket}/{key!r} is damaged", bucket=bucket, key=key)
            damaged.update(page.damaged)
            self.bytesRead += page.bytesRead
            await self._pause(page.bytesRead / self._bytesPerSecond)
            position = page.next
            if position is None:
                self.rounds += 1
                self.damagedObjects = frozenset(damaged)
                return

    async def _check(self, row: BlobRow) -> None:
        try:
            problem = await self._read(row)
        except FileNotFoundError:
            problem = "is missing"
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}"
        if problem is not None:
            await self._report.add(row, problem)

    async def _read(self, row: BlobRow) -> str | None:
        """Read a blob at the rate that is allowed; say what is wrong with it."""
        path = self._layout.path(row.id)
        fd = await self._pool.run(self._files.openForReading, path)
        offset = crc = 0
        try:
            while not self._stopping:
                count, crc = await self._pool.run(readPiece, self._files, fd, offset, crc)
                if not count:
                    return verdict(row.size, row.crc, offset, crc)
                offset += count
                self.bytesRead += count
                await self._pause(count / self._bytesPerSecond)
            return None
        finally:
            await self._pool.runAnyway(self._files.close, fd)

    async def _pause(self, seconds: float) -> None:
        if self._stopping or not seconds:
            return
        self._delay = deferLater(self._clock, seconds)
        try:
            await self._delay
        except CancelledError:
            pass
        finally:
            self._delay = None
