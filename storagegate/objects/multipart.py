"""Multipart uploads: creation, parts, completion and abortion."""

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import frozen
from msgspec.structs import replace

from storagegate.objects import errors
from storagegate.objects.checksums import (
    COMPOSITE,
    DEFAULT_ALGORITHM,
    IngestedBody,
    checksumKind,
    compositeChecksum,
    encodeDigest,
    fullObjectChecksum,
    multipartETag,
    newHasher,
)
from storagegate.objects.contents import digest, rewrite, segmentsOf
from storagegate.objects.locks import checkLock
from storagegate.objects.pagination import UPLOAD_ID_BYTES
from storagegate.objects.service import UNCONDITIONAL, ObjectService
from storagegate.storage.errors import BlobsElsewhere
from storagegate.storage.mutations import AbortUpload, CreateUpload
from storagegate.storage.records import (
    Attributes,
    Checksum,
    Content,
    MultipartUpload,
    ObjectRecord,
    Part,
    PartSummary,
    WriteCondition,
)

if TYPE_CHECKING:
    from storagegate.objects.access.acl import RequestedList
    from storagegate.objects.access.context import Caller

PART_MINIMUM = 5 << 20
"""Smallest part except for the last: S3's own limit."""

OBJECT_LIMIT = 5 << 40
"""The largest object: S3's own 5 TiB."""


_Uploads = tuple[list[MultipartUpload], list[str], tuple[str, str] | None]


@frozen
class CompletedPart:
    """
    A part that a completion names.

    @ivar etag: The ETag without quotation marks.
    @ivar checksums: Checksums in Base64 by algorithm, such as C{CRC32}.
    """

    number: int
    etag: str
    checksums: Mapping[str, str]


class MultipartService:
    """The uploads in progress of one store."""

    def __init__(self, service: ObjectService) -> None:
        """@param service: Looks up the buckets; its store holds the parts."""
        self._service = service
        self._store = service.store
        self._catalog = service.store.catalog

    async def create(
        self,
        caller: "Caller",
        bucket: str,
        key: bytes,
        attributes: Attributes,
        algorithm: str,
        kind: str,
        acl: "RequestedList | None" = None,
    ) -> MultipartUpload:
        """
        Start an upload.

        @param caller: Owns the upload through its account.
        @param key: The name of the object in UTF-8.
        @param algorithm: The checksum algorithm; empty if the client named none.
        @param kind: The checksum kind; empty if the client named none.
        @param acl: The ACL that the request names; L{None} for the private ACL.
        """
        home, owner = await self._service.checkWrite(caller, bucket, key, acl=acl)
        checkLock(home, attributes.lock, self._service.nowMs())
        account = caller.identity.account
        if owner.acl is not None:
            from storagegate.objects.access.acl import encodeList

            # The owner of the object is decided at its completion; until then it is the initiator.
            attributes = replace(attributes, acl=encodeList(owner.acl, account) or "")
        upload = MultipartUpload(
            bucket,
            key,
            secrets.token_hex(UPLOAD_ID_BYTES),
            account,
            self._service.nowMs(),
            attributes,
            algorithm,
            kind,
        )
        await self._catalog.commit(CreateUpload(upload))
        return upload

    async def upload(
        self, caller: "Caller", bucket: str, key: bytes, uploadId: str
    ) -> MultipartUpload:
        """
        Look up an upload.

        @param uploadId: The id from L{create}.
        @raise UploadNotFound: The upload does not exist; also the errors of looking up the bucket.
        """
        found: MultipartUpload | None = await self._catalog.upload(bucket, key, uploadId)
        # The initiator may abort the upload.
        initiator = None if found is None else found.account
        await self._service.bucket(caller, bucket, key, initiator=initiator)
        if found is None:
            raise errors.UploadNotFound(uploadId=uploadId)
        return found

    async def putPart(self, upload: MultipartUpload, number: int, received: IngestedBody) -> Part:
        """
        Store a part, replacing any part with the same number.

        @param upload: An upload in progress, from L{upload}.
        @param number: From 1 to 10,000.
        @param received: The ingested body, without inline content.
        """
        content = received.content
        if content.inline is not None:  # only an empty part is inline: it has no blob
            content = Content(content.size)
        part = Part(
            number, content.size, received.etag, self._service.nowMs(), content, received.checksum
        )
        await self._store.putPart(upload.bucket, upload.key, upload.uploadId, part, received.sink)
        return part

    async def parts(self, upload: MultipartUpload, after: int, limit: int) -> list[Part]:
        """
        List parts by number.

        @param upload: An upload in progress, from L{upload}.
        @param after: List strictly after this number.
        @param limit: Largest number of parts.
        """
        found: list[Part] = await self._catalog.parts(
            upload.bucket, upload.key, upload.uploadId, after, limit
        )
        return found

    async def uploads(
        self,
        caller: "Caller",
        bucket: str,
        prefix: str,
        delimiter: str,
        after: tuple[str, str],
        limit: int,
    ) -> _Uploads:
        """
        List a bucket's uploads in progress.

        @param prefix: Only keys with this prefix.
        @param delimiter: Groups keys by common prefixes; empty for none.
        @param after: Key and upload id; see L{ICatalog.uploads}.
        @param limit: Largest number of uploads and common prefixes.
        """
        await self._service.bucket(caller, bucket)
        key, uploadId = after
        page: _Uploads = await self._catalog.uploads(
            bucket, prefix.encode(), delimiter.encode(), key.encode(), uploadId, limit
        )
        return page

    async def abort(self, upload: MultipartUpload) -> None:
        """Abort an upload and remove its parts."""
        await self._catalog.commit(AbortUpload(upload.bucket, upload.key, upload.uploadId))

    async def complete(
        self,
        upload: MultipartUpload,
        named: Sequence[CompletedPart],
        condition: WriteCondition = UNCONDITIONAL,
        declared: tuple[str, str] | None = None,
        declaredSize: int | None = None,
        declaredKind: str | None = None,
    ) -> ObjectRecord:
        """
        Complete an upload: turn the named parts into the object.

        @param upload: An upload in progress, from L{upload}.
        @param named: The parts that the request names, in its order.
        @param condition: Evaluated in the transaction that writes the object.
        @param declared: Algorithm and Base64 of the whole object's checksum, if the client declared
            it.
        @param declaredSize: Size of the whole object, in bytes, if the client declared it.
        @param declaredKind: The kind of checksum, if the client declared it.
        @raise DomainError: L{InvalidPart<errors.PartMismatch>},
            L{InvalidPartOrder<errors.InvalidPartOrder>}, L{EntityTooSmall<errors.EntityTooSmall>},
            L{EntityTooLarge<errors.EntityTooLarge>}, L{BadDigest<errors.BadDigest>},
            L{InvalidRequest<errors.InvalidRequest>}.
        """
        chosen = _choose(named, await self._allParts(upload))
        if upload.checksumKind == COMPOSITE:
            _checkNamed(upload.checksumAlgorithm, named)
        size = sum(part.size for part in chosen)
        if size > OBJECT_LIMIT:
            raise errors.EntityTooLarge()
        if declaredSize is not None and declaredSize != size:
            raise errors.InvalidRequest("The parts do not add up to x-amz-mp-object-size.")
        checksum = combinedChecksum(upload, chosen)
        if declaredKind is not None and (checksum is None or checksum.kind != declaredKind):
            raise errors.InvalidRequest(
                "The upload was created with another checksum type than the complete request "
                f"names: {declaredKind}",
            )
        if declared is not None:
            algorithm, value = declared
            if checksum is None or checksum.algorithm != algorithm:
                raise errors.BadDigest()
            # The count of a composite checksum may be omitted.
            if value not in (checksum.value, checksum.value.partition("-")[0]):
                raise errors.BadDigest()
        (owner,) = await self._service.ownershipsOf(upload.bucket, [upload])
        record = ObjectRecord(
            upload.bucket,
            upload.key,
            size,
            multipartETag([part.etag for part in chosen]),
            self._service.nowMs(),
            owner.account,
            replace(
                upload.attributes,
                acl=owner.text,
                checksum=checksum,
                parts=tuple(PartSummary(p.number, p.size, p.checksum) for p in chosen),
            ),
            Content(size),
        )
        pairs = [(part.number, part.etag) for part in chosen]
        return await self._store.completeUpload(upload.uploadId, record, pairs, condition)

    async def completed(
        self,
        caller: "Caller",
        bucket: str,
        key: bytes,
        uploadId: str,
        named: Sequence[CompletedPart],
    ) -> ObjectRecord | None:
        """
        Find the version that an earlier completion with these parts has made.

        @param uploadId: The upload id in the repeated request.
        @param named: The parts that the request names, in its order.
        @raise DomainError: The errors of looking up the bucket.
        """
        await self._service.bucket(caller, bucket, key)
        record: ObjectRecord | None
        record = await self._catalog.completed(bucket, key, uploadId)
        if record is None:
            return None
        if [part.number for part in record.attributes.parts] != [each.number for each in named]:
            return None
        try:
            etag = multipartETag([each.etag for each in named])
        except ValueError:
            return None
        return record if record.etag == etag else None

    async def copyPart(
        self, upload: MultipartUpload, number: int, source: ObjectRecord, start: int, length: int
    ) -> Part:
        """
        Store C{length} bytes from C{start} of the source as a part; they are read to compute
        checksums.

        @param upload: The upload, whose checksum algorithm is used if it names one.
        @param number: The part number, from 1 to 10,000.
        @param source: The object as it was looked up.
        @param start: Offset of the first byte in the source.
        @param length: Number of bytes.
        """
        md5 = newHasher("MD5")
        algorithm = upload.checksumAlgorithm or DEFAULT_ALGORITHM
        checksum = newHasher(algorithm)
        await digest(self._store, source.content, start, length, [md5, checksum])
        if source.content.inline is None:
            content = Content(length, segments=segmentsOf(source.content, start, length))
            sink = None
        else:
            # Every part must be a blob.
            sink = self._store.blobs.writer(0, length, upload.bucket)
            try:
                wait = sink.write(source.content.inline[start : start + length])
                if wait is not None:
                    await wait
                content = await sink.finish()
            except BaseException:
                sink.abort()
                raise
        value = Checksum(algorithm, encodeDigest(checksum.digest()))
        etag = md5.digest().hex()
        try:
            return await self.putPart(upload, number, IngestedBody(content, etag, value, sink))
        except BlobsElsewhere:
            args = (self._store, source.content, start, length, upload.bucket)
            content, sink = await rewrite(*args)
        return await self.putPart(upload, number, IngestedBody(content, etag, value, sink))

    async def _allParts(self, upload: MultipartUpload) -> dict[int, Part]:
        found: dict[int, Part] = {}
        after = 0
        while page := await self.parts(upload, after, 1000):
            found.update((part.number, part) for part in page)
            after = page[-1].number
        return found


def _choose(named: Sequence[CompletedPart], stored: dict[int, Part]) -> list[Part]:
    chosen = []
    previous = 0
    for each in named:
        if each.number <= previous:
            raise errors.InvalidPartOrder()
        previous = each.number
        part = stored.get(each.number)
        checksum = None if part is None else part.checksum
        # A checksum of a different algorithm cannot be compared, so it does not agree.
        known = {} if checksum is None else {checksum.algorithm: checksum.value}
        agrees = each.checksums.items() <= known.items()
        if part is None or part.etag != each.etag or not agrees:
            raise errors.PartMismatch(partNumber=str(each.number), etag=each.etag)
        chosen.append(part)
    for part in chosen[:-1]:
        if part.size < PART_MINIMUM:
            raise errors.EntityTooSmall(
                proposedSize=str(part.size),
                minSize=str(PART_MINIMUM),
                partNumber=str(part.number),
                etag=part.etag,
            )
    return chosen


def _checkNamed(algorithm: str, named: Sequence[CompletedPart]) -> None:
    for each in named:
        if algorithm not in each.checksums:
            raise errors.InvalidRequest(
                f"The upload was created using a {algorithm.lower()} checksum. The complete "
                "request must include the checksum for each part. It was missing for part "
                f"{each.number} in the request.",
            )


def combinedChecksum(upload: MultipartUpload, parts: Sequence[Part]) -> Checksum | None:
    """
    Compute the object's checksum from the checksums of its parts.

    If the upload named no algorithm, parts that share one algorithm are combined anyway; otherwise
    the object gets no checksum.

    @param upload: The upload, whose checksum kind is used if it names one.
    @param parts: The chosen parts, in the order of the object.
    """
    algorithms = {part.checksum.algorithm if part.checksum else "" for part in parts}
    if len(algorithms) != 1 or algorithms == {""}:
        return None
    (algorithm,) = algorithms
    kind = checksumKind(algorithm, upload.checksumKind or None)
    pairs = [(part.checksum.value, part.size) for part in parts if part.checksum is not None]
    if kind == COMPOSITE:
        values = [value for value, _ in pairs]
        return Checksum(algorithm, compositeChecksum(algorithm, values), kind)
    return Checksum(algorithm, fullObjectChecksum(algorithm, pairs), kind)
