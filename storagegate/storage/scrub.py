"""
Reads every blob again, slowly, and says which have rotted.

A disk tells of a bad sector when it is read; a blob that nobody reads for a year would hide its
damage until the last good copy elsewhere is gone.

What becomes of a blob that was found damaged.

Reads of blobs that are compared with what was written, before the reader can take them for whole.

The checksum that the catalog has is one of the whole blob. A whole blob is compared while it goes
out, and its last piece waits for the verdict. A part of a blob goes out after the whole of it has
been compared: such a read costs a second one, of all of the blob.
"""

import os
from collections.abc import Callable, Sequence

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from storagegate.storage.blobs.writer import BlobChecksum
from storagegate.storage.errors import CorruptBlob, StoreError
from storagegate.storage.interfaces import IBlobReader, IBlobStore, ICatalog
from storagegate.storage.records import BlobRow, InlinePosition, Segment


def checkBlob(size: int, crc: int | None, foundSize: int, foundCrc: int) -> str | None:
    """
    Compare a blob with its row.

    @param crc: L{None} where only the sizes are compared.
    @return: What is wrong, or L{None}.
    """
    if foundSize != size:
        return f"has {foundSize} bytes, not {size}"
    if crc is not None and foundCrc != crc:
        return "does not hold the bytes that were written"
    return None


class CorruptionLog:
    """
    Remembers damage, so that nobody is given the bytes again. Reactor thread.

    @param damaged: Told of the blobs, to open them no more.
    """

    _log = Logger()

    def __init__(self, catalog: ICatalog, damaged: Callable[[Sequence[str]], object]) -> None:
        self._catalog = catalog
        self._damaged = damaged

    async def add(self, row: BlobRow, problem: str) -> None:
        """
        Note that a blob is damaged, for good, and tell the operator.

        @raise StoreError: It could not be noted in the catalog.
        """
        # A blob that was deleted meanwhile is not damaged.
        if row.id in await self._catalog.referenced([row.id]):
            self._log.critical("blob {blob} {problem}", blob=row.id, problem=problem)
            self._damaged([row.id])
            await self._catalog.markDamaged(row.id)


BYTES_PER_SECOND = 8 * 1024 * 1024
"""A terabyte in a day and a half, at a few hundredths of what one disk reads."""

PAUSE_SECONDS = 7 * 24 * 3600.0
"""Between rounds: a week, in which a second copy elsewhere will mostly still be good."""

_START_SECONDS = 60.0
"""Before the first round: a daemon that starts has more urgent reads to make."""

_PIECE = 1024 * 1024
"""Bytes read at a time: no thread of the pool is kept for long."""

_PAGE = 500
"""Rows read at a time."""

_INLINE_PAGE = 64
"""Objects read at a time that have their bytes in the catalog: 4 MiB at most."""


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
        catalog: ICatalog,
        blobs: IBlobStore,
        clock: IReactorTime,
        report: CorruptionLog,
        bytesPerSecond: int = BYTES_PER_SECOND,
        pauseSeconds: float = PAUSE_SECONDS,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._catalog = catalog
        self._blobs = blobs
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
        except CorruptBlob:
            problem = "is missing"
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}"
        if problem is not None:
            await self._report.add(row, problem)

    async def _read(self, row: BlobRow) -> str | None:
        """Read a blob at the rate that is allowed; say what is wrong with it."""
        blob = await self._blobs.openToCheck(row.id)
        offset, crc = 0, BlobChecksum()
        try:
            while not self._stopping:
                count = await blob.digest([crc], offset, _PIECE)
                if not count:
                    return checkBlob(row.size, row.crc, offset, crc.value)
                offset += count
                self.bytesRead += count
                await self._pause(count / self._bytesPerSecond)
            return None
        finally:
            blob.release()

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


PIECE = 256 * 1024
"""Bytes read at a time; as many are in memory for each answer under way."""

Take = Callable[[bytes], Deferred[None] | None]
"""Takes a piece; a Deferred is to be waited for before the next."""


def _drop(piece: bytes) -> None:
    """Take a piece that nobody wants."""


async def _wait(taken: Deferred[None] | None) -> None:
    """Wait until the next piece may come."""
    if taken is not None:
        await taken


class VerifyingReader:
    """Reads segments. Methods: reactor thread."""

    _log = Logger()

    def __init__(
        self,
        catalog: ICatalog,
        blobs: IBlobStore,
        report: CorruptionLog,
    ) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._report = report

    async def read(self, segment: Segment, take: Take) -> None:
        """
        Give a segment out, piece by piece.

        @raise CorruptBlob: The blob is not what was written; C{take} has not had the last piece.
        """
        row: BlobRow | None = await self._catalog.blobRow(segment.blob)
        if row is None:
            raise CorruptBlob(f"blob {segment.blob} is not known")
        handle = await self._blobs.open(segment)
        try:
            if segment.length == row.size:
                await self._compare(handle, row, take)
            else:
                await self._compare(handle, row, _drop)
                await self._give(handle, segment, take)
        finally:
            handle.release()

    async def _compare(self, handle: IBlobReader, row: BlobRow, take: Take) -> None:
        """Read a whole blob; keep its last piece back until its checksum is right."""
        problem = checkBlob(row.size, None, handle.size, 0)
        crc, offset, piece = BlobChecksum(), 0, b""
        while problem is None and offset < row.size:
            if piece:
                await _wait(take(piece))
            try:
                piece = await handle.read(offset, min(PIECE, row.size - offset), [crc])
            except OSError as error:
                problem = f"cannot be read: {error.strerror or error}"
            else:
                offset += len(piece)
                if not piece or offset == row.size:
                    problem = checkBlob(row.size, row.crc, offset, crc.value)
        if problem is not None:
            raise await self._damaged(row, problem)
        await _wait(take(piece))

    async def _give(self, handle: IBlobReader, segment: Segment, take: Take) -> None:
        """Read a part of a blob that has just been compared."""
        offset, end = segment.offset, segment.offset + segment.length
        while offset < end:
            piece = await handle.read(offset, min(PIECE, end - offset))
            if not piece:
                raise CorruptBlob(f"blob {segment.blob} has become shorter")
            await _wait(take(piece))
            offset += len(piece)

    async def _damaged(self, row: BlobRow, problem: str) -> CorruptBlob:
        """Report a blob, and make the error for its reader."""
        try:
            await self._report.add(row, problem)
        except StoreError as error:
            # The reader has to know of the damage, whether it could be noted or not.
            self._log.error("damage could not be noted: {error}", error=str(error))
        return CorruptBlob(f"blob {row.id} {problem}")
