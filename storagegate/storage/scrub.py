"""
Detection of corrupt blobs, by a slow background scrub and during reads.

A disk reports a bad sector only when it is read. Without a scrub, damage to a blob that is not read
for a year could stay unnoticed until the last good copy elsewhere is deleted.

The catalog stores a checksum of each whole blob. A verified read of a whole blob computes the
checksum while sending, and sends the last piece after comparing it. A part of a blob is sent after
the whole blob has been compared, which costs an additional read of the whole blob.

Over a network, a second read may return different bytes from the first. If the piece store does not
verify each range itself (see L{storagegate.storage.chunksums}), the checksum of the sent
bytes is combined with the checksums of the bytes before and after them.

A mark of corruption is not permanent: a reader that finds the whole blob intact clears it.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, field
from msgspec import Struct
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from storagegate.core.files import combineCRC32C
from storagegate.storage.blobinterfaces import IBlobReader, IBlobStore
from storagegate.storage.blobwriter import BlobChecksum
from storagegate.storage.errors import CorruptBlob, StoreBusy, StoreError, StoreReadOnly
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.mutations import ClearCorrupt, MarkCorrupt
from storagegate.storage.periodic import PeriodicTask
from storagegate.storage.records import BlobRow, InlinePosition, Segment


def checkBlob(size: int, crc: int | None, foundSize: int, foundCrc: int) -> str | None:
    """
    Compare a blob with its row.

    @param crc: The CRC-32C in the row; L{None} to compare only the sizes.
    @param size: The size in the row.
    @param foundSize: The actual size of the blob.
    @param foundCrc: The actual CRC-32C.
    @return: The problem, or L{None}.
    """
    if foundSize != size:
        return f"has {foundSize} bytes, not {size}"
    if crc is not None and foundCrc != crc:
        return "differs from the bytes that were written"
    return None


@define(eq=False)
class CorruptionLog:
    """
    Records corrupt blobs, so that their bytes are not sent again. Reactor thread.

    @ivar _onCorrupt: Called with corrupt blobs, which must not be opened again.
    @ivar _onRight: Called with blobs that are intact again and may be opened.
    """

    _log = Logger()

    _catalog: ICatalog
    _onCorrupt: Callable[[Sequence[str]], object]
    _onRight: Callable[[Sequence[str]], object] = lambda blobs: None

    async def add(self, row: BlobRow, problem: str) -> None:
        """
        Mark a blob as corrupt, until it is deleted, and log it.

        @param problem: The problem, as the end of a sentence.
        @param row: The row of the blob, which may have been deleted in the meantime.
        @raise StoreError: The catalog could not record it.
        """
        # A blob deleted in the meantime is not corrupt.
        if row.id in await self._catalog.referenced([row.id]):
            self._onCorrupt([row.id])
            await self.record(row, problem)

    async def record(self, row: BlobRow, problem: str) -> None:
        """
        Log a mark, and store it in the catalog.

        @param problem: The problem, as the end of a sentence.
        @param row: The row of a marked blob.
        @raise StoreError: The catalog could not record it.
        """
        self._log.critical("blob {blob} {problem}", blob=row.id, problem=problem)
        await self._catalog.commit(MarkCorrupt(row.id))

    async def remove(self, blob: str) -> None:
        """
        Clear the mark of a blob that was read whole and is intact.

        @raise StoreError: The catalog could not record it.
        """
        self._log.info("blob {blob} is correct again", blob=blob)
        self._onRight([blob])
        await self._catalog.commit(ClearCorrupt(blob))


BYTES_PER_SECOND = 8 * 1024 * 1024
"""A terabyte in a day and a half, at a few hundredths of a disk's read rate."""

PAUSE_SECONDS = 7 * 24 * 3600.0
"""Pause between rounds: a week, in which a second copy elsewhere usually stays intact."""

_RETRY_SECONDS = 3600.0
"""Pause after a round that an error has ended: a busy store must not stay unread for a week."""

_START_SECONDS = 60.0
"""Delay before the first round: a starting daemon has more urgent reads."""

_PIECE = 1024 * 1024
"""Bytes per read, so that no pool thread is occupied for long."""

_PAGE = 500
"""Rows per page."""

_INLINE_PAGE = 64
"""Inline objects per page: at most 4 MiB."""

_MOST_NOTED = 1000
"""Corrupt inline objects up to which L{Scrubber.noteObject} adds more."""


@define(eq=False)
class Scrubber:
    """
    Rereads all blobs in rounds. All methods: reactor thread.

    A round starts at a random id, so that a daemon that restarts often still covers all blobs
    without recording its progress.

    @ivar _clock: Measures the pauses.
    @ivar _report: Receives corrupt blobs.
    @ivar _random: C{os.urandom} or a replacement.
    @ivar bytesRead: The number of bytes reread.
    @ivar rounds: The number of completed rounds.
    @ivar corruptObjects: Bucket and key of each inline object that the last round found corrupt, or
        a read since then.
    """

    _log = Logger()

    _catalog: ICatalog
    _blobs: IBlobStore
    _clock: IReactorTime
    _report: CorruptionLog
    _bytesPerSecond: int = BYTES_PER_SECOND
    _pauseSeconds: float = PAUSE_SECONDS
    _random: Callable[[int], bytes] = os.urandom
    _task: PeriodicTask = field(init=False)
    bytesRead: int = field(default=0, init=False)
    rounds: int = field(default=0, init=False)
    corruptObjects: frozenset[tuple[str, bytes]] = field(factory=frozenset, init=False)

    @_task.default
    def _makeTask(self) -> PeriodicTask:
        return PeriodicTask("the scrubber", self._clock)

    @property
    def problem(self) -> str | None:
        """Why the scrubber has stopped; L{None} while it runs."""
        return self._task.problem

    def start(self) -> None:
        """Scrub in rounds until L{stop}. Call once."""
        self._task.start(self._rounds)

    async def stop(self) -> None:
        """Stop, after the current pool job has finished."""
        await self._task.stop()

    async def scrub(self) -> None:
        """Read all blobs and all inline objects once."""
        begin = self._random(16).hex()
        await self._between(begin, "g")
        await self._between("", begin)
        await self._inline()

    def noteObject(self, bucket: str, key: bytes) -> None:
        """Note an inline object that a read has found corrupt, until a round ends."""
        name = (bucket, key)
        if name in self.corruptObjects or len(self.corruptObjects) >= _MOST_NOTED:
            return
        self._log.critical("object {bucket}/{key!r} is damaged", bucket=bucket, key=key)
        self.corruptObjects |= {name}

    async def _rounds(self) -> None:
        await self._task.pause(_START_SECONDS)
        while not self._task.isStopping:
            pause = self._pauseSeconds
            try:
                await self.scrub()
            except (StoreError, OSError) as error:
                self._log.error("the round was aborted: {error}", error=str(error))
                pause = min(pause, _RETRY_SECONDS)
            await self._task.pause(pause)

    async def _between(self, after: str, last: str) -> None:
        """Check the blobs after one id and up to another."""
        while not self._task.isStopping:
            rows = await self._catalog.blobRows(after, _PAGE)
            for row in rows:
                if row.id > last or self._task.isStopping:
                    return
                if row.refs:
                    await self._check(row)
            if not rows:
                return
            after = rows[-1].id

    async def _inline(self) -> None:
        """Check the inline objects."""
        corrupt: set[tuple[str, bytes]] = set()
        position: InlinePosition | None = None
        while not self._task.isStopping:
            page = await self._catalog.checkInline(position, _INLINE_PAGE)
            for bucket, key in page.damaged:
                self._log.critical("object {bucket}/{key!r} is damaged", bucket=bucket, key=key)
            corrupt.update(page.damaged)
            self.bytesRead += page.bytesRead
            await self._task.pause(page.bytesRead / self._bytesPerSecond)
            position = page.next
            if position is None:
                self.rounds += 1
                self.corruptObjects = frozenset(corrupt)
                return

    async def _check(self, row: BlobRow) -> None:
        try:
            problem = await self._read(row)
            if problem is not None and self._blobs.isRemote:
                # A single wrong response from a network does not prove corruption.
                problem = await readProblem(self._blobs, row)
        except CorruptBlob:
            problem = "is missing"
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}"
        # If no blob can be read, this one may be intact.
        if problem is not None and not any(self._blobs.health().values()):
            await self._report.add(row, problem)
        elif problem is None and row.id in self._blobs.corrupt and not self._task.isStopping:
            await self._report.remove(row.id)

    async def _read(self, row: BlobRow) -> str | None:
        """Read a blob at the configured rate; return its problem, or L{None}."""
        blob = await self._blobs.openUncached(row.id)
        offset, crc = 0, BlobChecksum()
        try:
            while not self._task.isStopping:
                count = await blob.digest([crc], offset, _PIECE)
                if not count:
                    return checkBlob(row.size, row.crc, offset, crc.value)
                offset += count
                self.bytesRead += count
                await self._task.pause(count / self._bytesPerSecond)
            return None
        finally:
            blob.close()


_REEXAMINE_SECONDS = 10.0
"""Interval between rereads of a corrupt blob: each reads the whole blob."""

_REEXAMINED = 4
"""The most blobs that are reexamined concurrently."""


@define(eq=False)
class Reexamination:
    """
    Rereads blobs that are marked as corrupt when a reader requests them. Reactor thread.

    A backup may have restored the bytes, or a network may have returned wrong bytes, so a mark
    alone does not justify refusing a blob.
    """

    _catalog: ICatalog
    _blobs: IBlobStore
    _clock: IReactorTime
    _report: CorruptionLog
    _running: int = field(default=0, init=False)
    # When each marked blob was last read. There are few.
    _readAt: dict[str, float] = field(factory=dict, init=False)

    def examine(self, blob: str) -> Deferred[bool]:
        """
        Read a marked blob whole, and clear its mark if it is intact.

        @return: Whether it is intact. False also if it was read a few seconds ago or too many
            others are being read.
        """
        now = self._clock.seconds()
        self._readAt = {
            each: at for each, at in self._readAt.items() if now - at < _REEXAMINE_SECONDS
        }
        if blob in self._readAt or self._running >= _REEXAMINED:
            return succeed(False)
        self._readAt[blob] = now
        self._running += 1
        return Deferred.fromCoroutine(self._examine(blob)).addBoth(self._ended)

    def _ended(self, result: Any) -> Any:
        self._running -= 1
        return result

    async def _examine(self, blob: str) -> bool:
        try:
            row: BlobRow | None = await self._catalog.blobRow(blob)
            if row is None or await readProblem(self._blobs, row) is not None:
                return False
            await self._report.remove(blob)
        except StoreReadOnly:
            # The bytes are intact, although the mark stays in the catalog.
            return True
        except OSError:
            return False
        return True


async def readProblem(blobs: IBlobStore, row: BlobRow) -> str | None:
    """
    Read a blob whole, as fast as possible.

    @return: The blob's problem, or L{None}.
    @raise OSError: It cannot be read.
    @raise StoreBusy: The blobs cannot be reached now.
    """
    try:
        reader = await blobs.openUncached(row.id)
    except CorruptBlob:
        return "is missing"
    crc = BlobChecksum()
    try:
        count = await reader.digest([crc], 0, reader.size)
    except CorruptBlob as error:
        return str(error)
    finally:
        reader.close()
    return checkBlob(row.size, row.crc, count, crc.value)


PIECE = 256 * 1024
"""Bytes per read from this machine; each response holds as many in memory."""

Sink = Callable[[bytes], Deferred[None] | None]
"""Receives a piece. A returned Deferred must fire before the next call."""


async def _send(sink: Sink, piece: bytes) -> None:
    """Send a piece, and wait until the next may be sent."""
    sent = sink(piece)
    if sent is not None:
        await sent


_RANGE_MOST = 8 << 20
"""Ranges of larger blobs without chunk checksums are not verified."""


@define(eq=False)
class _HeldSink:
    """
    Forwards each chunk when the next one arrives, and so holds back the last.

    @ivar crc: The checksum of all chunks.
    @ivar isSent: Whether any chunk was forwarded.
    """

    _sink: Sink
    crc: BlobChecksum = field(factory=BlobChecksum, init=False)
    isSent: bool = field(default=False, init=False)
    held: bytes = field(default=b"", init=False)

    def send(self, chunk: bytes) -> Deferred[None] | None:
        """See L{ByteSink.send<storagegate.storage.blobinterfaces.ByteSink.send>}."""
        self.crc.update(chunk)
        held, self.held = self.held, chunk
        if not held:
            return None
        self.isSent = True
        return self._sink(held)

    async def sendFile(self, *arguments: Any) -> None:
        """Never called: the bytes come over a network."""
        raise NotImplementedError


class _PlainSink(Struct, frozen=True):
    """Adapts a function that receives chunks to the interface of a response."""

    send: Sink

    async def sendFile(self, *arguments: Any) -> None:
        """Never called: the bytes come over a network."""
        raise NotImplementedError


@define(eq=False)
class VerifyingReader:
    """
    Reads segments of blobs and verifies them. Methods: reactor thread.

    If a network store verifies each range with checksums that it stores with the bytes, nothing
    else is done. Bytes of the other network stores (RADOS, shared files, and objects of an S3
    bucket without such checksums) are compared with the catalog's checksum: a whole blob while it
    is sent, and a range together with the rest of its blob, if the blob is not larger than
    L{_RANGE_MOST} or C{verifyReads} is set.

    @ivar _isForced: Whether C{verifyReads} is set, so that all reads are compared with the catalog.
    """

    _log = Logger()

    _catalog: ICatalog
    _blobs: IBlobStore
    _report: CorruptionLog
    _isForced: bool = True

    async def read(self, segment: Segment, sink: Sink) -> None:
        """
        Send a segment, piece by piece.

        @param sink: Receives pieces of at most 256 KiB from this machine, or 1 MiB from a network.
        @raise CorruptBlob: The blob is corrupt; C{sink} has not received the last piece.
        @raise StoreBusy: A response was wrong and a reread was right, but part of the wrong
            response was already sent.
        """
        if self._blobs.isRemote:
            reader = await self._blobs.open(segment)
            try:
                await self._readRemote(reader, segment, sink)
            finally:
                reader.close()
            return
        row: BlobRow | None = await self._catalog.blobRow(segment.blob)
        if row is None:
            raise CorruptBlob(f"blob {segment.blob} is unknown")
        reader = await self._blobs.open(segment)
        try:
            if segment.length == row.size:
                await self._compare(reader, row, sink)
            else:
                await self._compare(reader, row, lambda piece: None)
                await self._send(reader, segment, sink)
        finally:
            reader.close()

    async def _readRemote(self, reader: IBlobReader, segment: Segment, sink: Sink) -> None:
        offset, length = segment.offset, segment.length
        isPart = length < reader.size
        if not self._isForced and (reader.isVerified or (isPart and reader.size > _RANGE_MOST)):
            await reader.sendTo(_PlainSink(sink), offset, length)
            return
        # The row is needed only at the end.
        looking = Deferred.fromCoroutine(self._catalog.blobRow(segment.blob))
        try:
            held = _HeldSink(sink)
            crc = await self._sendHeld(reader, segment, held)
            row: BlobRow | None = await looking
        except BaseException:
            looking.addErrback(lambda failure: None).cancel()
            raise
        if row is None:
            raise CorruptBlob(f"blob {segment.blob} is unknown")
        problem = checkBlob(row.size, row.crc, reader.size, crc)
        if problem is not None and not held.isSent:
            # The response may be wrong rather than the blob.
            held = _HeldSink(sink)
            crc = await self._sendHeld(reader, segment, held)
            problem = checkBlob(row.size, row.crc, reader.size, crc)
        if problem is None:
            await _send(sink, held.held)
            return
        if held.isSent and await readProblem(self._blobs, row) is None:
            raise StoreBusy(f"a response with blob {segment.blob} was wrong")
        raise await self._corruption(row, problem)

    async def _sendHeld(self, reader: IBlobReader, segment: Segment, held: _HeldSink) -> int:
        """Send a segment except for its last chunk; return the checksum of the whole blob."""
        end = segment.offset + segment.length
        before, after = BlobChecksum(), BlobChecksum()
        if segment.offset:
            await reader.digest([before], 0, segment.offset)
        if end < reader.size:
            await reader.digest([after], end, reader.size - end)
        await reader.sendTo(held, segment.offset, segment.length)
        crc = combineCRC32C(before.value, held.crc.value, segment.length)
        return combineCRC32C(crc, after.value, reader.size - end)

    async def _compare(self, reader: IBlobReader, row: BlobRow, sink: Sink) -> None:
        """Read and send a whole blob; send its last piece only if the checksum matches."""
        problem = checkBlob(row.size, None, reader.size, 0)
        crc, offset, piece = BlobChecksum(), 0, b""
        while problem is None and offset < row.size:
            if piece:
                await _send(sink, piece)
            try:
                piece = await reader.read(offset, min(PIECE, row.size - offset), [crc])
            except OSError as error:
                problem = f"cannot be read: {error.strerror or error}"
            else:
                offset += len(piece)
                if not piece or offset == row.size:
                    problem = checkBlob(row.size, row.crc, offset, crc.value)
        if problem is not None:
            raise await self._corruption(row, problem)
        await _send(sink, piece)

    async def _send(self, reader: IBlobReader, segment: Segment, sink: Sink) -> None:
        """Read and send a part of a blob that has just been verified."""
        offset, end = segment.offset, segment.offset + segment.length
        while offset < end:
            piece = await reader.read(offset, min(PIECE, end - offset))
            if not piece:
                raise CorruptBlob(f"blob {segment.blob} has become shorter")
            await _send(sink, piece)
            offset += len(piece)

    async def _corruption(self, row: BlobRow, problem: str) -> CorruptBlob:
        """Report a corrupt blob; return the error for its reader."""
        try:
            await self._report.add(row, problem)
        except StoreError as error:
            # The read must fail even if the catalog cannot record the corruption.
            self._log.error("cannot record damage: {error}", error=str(error))
        return CorruptBlob(f"blob {row.id} {problem}")
