"""GetObject, HeadObject and GetObjectAttributes."""

from attrs import frozen

from storagegate.core.scalars import parseDecimal
from storagegate.s3 import documents
from storagegate.s3.errors import S3Error
from storagegate.s3.headers import checksumHeaders, objectHeaders, override
from storagegate.s3.listing import parsePartsPage
from storagegate.s3.multipart import PART_COUNT
from storagegate.s3.ranges import evaluateRead, parseRange
from storagegate.s3.reading import openBlob, segmentsOf
from storagegate.s3.routes.call import Call, Pairs
from storagegate.storage.errors import DamagedBlob
from storagegate.storage.records import ObjectRecord

_TRIES = 3
"""A reader that loses its object to an overwrite looks again this often."""


@frozen
class Slice:
    """
    What part of an object an answer carries.

    @ivar extra: Headers that come with it.
    """

    code: int
    start: int
    length: int
    extra: Pairs = ()


def _sliceOf(call: Call, record: ObjectRecord) -> Slice:
    """
    Find which bytes are asked for.

    @raise S3Error: C{InvalidRange}, C{InvalidPartNumber}, C{InvalidRequest}.
    """
    wanted = call.headers.get(b"range")
    if "partNumber" in call.query:
        if wanted is not None:
            raise S3Error(
                "InvalidRequest",
                "Cannot specify both Range header and partNumber query parameter",
            )
        return _partSlice(record, call.query["partNumber"])
    found = parseRange(wanted, record.size) if wanted is not None else None
    if found is None:
        return Slice(200, 0, record.size)
    return _partial(record, found.start, found.length)


def _partial(record: ObjectRecord, start: int, length: int, extra: Pairs = ()) -> Slice:
    value = b"bytes %d-%d/%d" % (start, start + length - 1, record.size)
    return Slice(206, start, length, ((b"Content-Range", value), *extra))


def _partSlice(record: ObjectRecord, text: str) -> Slice:
    try:
        number = parseDecimal(text, PART_COUNT)
    except ValueError:
        number = 0
    if number < 1:
        fields = {"ArgumentName": "partNumber", "ArgumentValue": text}
        raise S3Error("InvalidArgument", fields=fields)
    parts = record.attributes.parts
    if not parts and number == 1:
        return _partial(record, 0, record.size) if record.size else Slice(200, 0, 0)
    if number > len(parts):
        raise S3Error("InvalidPartNumber")
    start = sum(part.size for part in parts[: number - 1])
    count = ((b"x-amz-mp-parts-count", b"%d" % len(parts)),)
    return _partial(record, start, parts[number - 1].size, count)


def _headersOf(call: Call, record: ObjectRecord, piece: Slice) -> list[tuple[bytes, bytes]]:
    headers = objectHeaders(record)
    headers += piece.extra
    # A partial answer must not carry the whole object's checksum: clients check what they got.
    if piece.code == 200 and call.headers.get(b"x-amz-checksum-mode", b"").upper() == b"ENABLED":
        headers += checksumHeaders(record.attributes.checksum)
    if call.query:
        headers = override(headers, call.query)
    return headers


def _find(call: Call) -> ObjectRecord:
    return call.services.objects.object(
        call.identity, call.bucket, call.key, call.query.get("versionId")
    )


def _judge(call: Call, record: ObjectRecord) -> bool:
    """
    Judge the conditional headers.

    @return: Whether the client's copy is still fresh (a 304).
    @raise S3Error: C{PreconditionFailed}.
    """
    return evaluateRead(call.headers, record.etag, record.modifiedMs)


async def headObject(call: Call) -> None:
    """Answer with an object's headers."""
    record = _find(call)
    if _judge(call, record):
        call.answer(304, objectHeaders(record))
        return
    piece = _sliceOf(call, record)
    headers = _headersOf(call, record, piece)
    headers.append((b"Content-Length", b"%d" % piece.length))
    call.answer(piece.code, headers)


async def getObject(call: Call) -> None:
    """Answer with an object's bytes, or a run of them."""
    for _ in range(_TRIES):
        record = _find(call)
        if _judge(call, record):
            call.answer(304, objectHeaders(record))
            return
        piece = _sliceOf(call, record)
        try:
            await _send(call, record, piece)
            return
        except DamagedBlob:
            # Overwritten or deleted between the look-up and the opening: look again.
            if call.request.started or call.services.objects.sameObject(record):
                raise
    raise S3Error("OperationAborted")


async def _send(call: Call, record: ObjectRecord, piece: Slice) -> None:
    headers = _headersOf(call, record, piece)
    inline = record.content.inline
    if inline is not None:
        whole = piece.length == len(inline)
        end = piece.start + piece.length
        call.answer(piece.code, headers, inline if whole else inline[piece.start : end])
        return
    request, store = call.request, call.services.store
    for segment in segmentsOf(record.content, piece.start, piece.length):
        async with openBlob(store, segment.blob) as handle:
            if handle.size < segment.offset + segment.length:
                raise DamagedBlob(segment.blob)
            if not request.started:
                call.begin(piece.code, headers, piece.length)
            await request.sendFile(handle.fd, segment.offset, segment.length, store.run)
    if request.started:
        request.finish()
    else:
        call.answer(piece.code, headers)


async def getObjectAttributes(call: Call) -> None:
    """Answer with the attributes that the request names."""
    record = _find(call)
    named = call.headers.get(b"x-amz-object-attributes", b"").decode("latin-1")
    wanted = documents.parseAttributeNames(named)
    page = parsePartsPage(call.headers)
    body = documents.objectAttributes(record, wanted, page)
    call.answer(200, [(b"Last-Modified", documents.httpDate(record.modifiedMs))], body)
