"""Copies: a new name (or a part) for bytes that are there already; no byte is written again."""

from collections.abc import Callable

from attrs import evolve, frozen

from storagegate.s3.checksums import newHasher
from storagegate.s3.credentials import Identity
from storagegate.s3.errors import S3Error
from storagegate.s3.multipart import MultipartService
from storagegate.s3.reading import digest, segmentsOf
from storagegate.s3.service import UNCONDITIONAL, ObjectService
from storagegate.s3.upload import DEFAULT_ALGORITHM, Received
from storagegate.storage.errors import ConcurrentChange
from storagegate.storage.interfaces import IBlobSink
from storagegate.storage.records import (
    Attributes,
    Checksum,
    Content,
    ObjectRecord,
    Part,
    Upload,
    WriteCondition,
)

TRIES = 3
"""How often a copy starts over when its source is replaced under it."""


@frozen
class CopyRequest:
    """
    What is asked of a copy.

    @ivar attributes: Those of the new object; L{None} takes over the source's.
    @ivar algorithm: The checksum that the new object must carry; empty keeps the source's.
    """

    bucket: str
    key: bytes
    attributes: Attributes | None = None
    algorithm: str = ""
    condition: WriteCondition = UNCONDITIONAL


class CopyService:
    """Copies within one store."""

    def __init__(self, service: ObjectService, multipart: MultipartService) -> None:
        self._service = service
        self._multipart = multipart
        self._store = service.store

    async def copyCurrent(
        self,
        identity: Identity,
        find: Callable[[], ObjectRecord],
        want: Callable[[ObjectRecord], CopyRequest],
    ) -> ObjectRecord:
        """
        Copy what a name stands for, also where that is replaced meanwhile.

        @param find: Looks the source up, as often as it is needed.
        @param want: Says what is asked of a copy of it.
        @raise S3Error: As L{copyObject}, and whatever C{find} gives.
        """
        for _ in range(TRIES):
            source = find()
            try:
                return await self.copyObject(identity, source, want(source))
            except ConcurrentChange:
                continue
        raise S3Error("OperationAborted")

    async def copyObject(
        self, identity: Identity, source: ObjectRecord, wanted: CopyRequest
    ) -> ObjectRecord:
        """
        Give the source's bytes a second name.

        The ETag stays the source's: it names the same bytes.

        @raise S3Error: C{InvalidRequest} where nothing would change.
        @raise ConcurrentChange: The source was replaced meanwhile.
        """
        if wanted.attributes is None and not wanted.algorithm and _isSelf(source, wanted):
            raise S3Error(
                "InvalidRequest",
                "This copy request is illegal because it is trying to copy an object to itself "
                "without changing the object's metadata or storage class.",
            )
        attributes = wanted.attributes or source.attributes
        checksum = source.attributes.checksum
        if wanted.algorithm and (checksum is None or checksum.algorithm != wanted.algorithm):
            checksum = await self._checksum(source.content, source.size, wanted.algorithm)
        attributes = evolve(attributes, checksum=checksum, parts=source.attributes.parts)
        record = ObjectRecord(
            wanted.bucket,
            wanted.key,
            source.size,
            source.etag,
            self._service.nowMs(),
            identity.account,
            attributes,
            source.content,
        )
        return await self._store.putObject(record, None, wanted.condition)

    async def _checksum(self, content: Content, size: int, algorithm: str) -> Checksum:
        hasher = newHasher(algorithm)
        await digest(self._store, content, 0, size, [hasher])
        return Checksum(algorithm, hasher.base64())

    async def copyPart(
        self, upload: Upload, number: int, source: ObjectRecord, start: int, length: int
    ) -> Part:
        """
        Make C{length} bytes from C{start} of the source a part of an upload.

        The bytes are read once, for the part's MD5 and checksum.
        """
        md5 = newHasher("MD5")
        checksum = newHasher(upload.checksumAlgorithm or DEFAULT_ALGORITHM)
        await digest(self._store, source.content, start, length, [md5, checksum])
        if source.content.inline is None:
            content = Content(length, segments=segmentsOf(source.content, start, length))
            sink = None
        else:
            sink = self._service.sink(length, 0)
            content = await self._fill(sink, source.content.inline[start : start + length])
        value = Checksum(upload.checksumAlgorithm or DEFAULT_ALGORITHM, checksum.base64())
        received = Received(content, md5.digest().hex(), value, sink)
        return await self._multipart.putPart(upload, number, received)

    async def _fill(self, sink: IBlobSink, data: bytes) -> Content:
        """Bytes that lived in the catalog's row become a blob, as every part is one."""
        try:
            wait = sink.write(data)
            if wait is not None:
                await wait
            content: Content = await sink.finish()
        except BaseException:
            sink.abort()
            raise
        return content


def _isSelf(source: ObjectRecord, wanted: CopyRequest) -> bool:
    return source.bucket == wanted.bucket and source.key == wanted.key
