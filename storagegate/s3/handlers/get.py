"""GetObject, HeadObject and GetObjectAttributes."""

from functools import partial

from attrs import frozen
from twisted.internet.defer import Deferred

from storagegate.net.http.ranges import ByteRange
from storagegate.s3.conditions import NotModified, evaluateRead, parseRange, rangeHolds
from storagegate.s3.errors import S3Error
from storagegate.s3.headers import checksumHeaders, httpDate, objectHeaders, override
from storagegate.s3.objects import segmentsOf
from storagegate.s3.pagination import parseAttributes, parsePartNumber
from storagegate.s3.request import Pairs, S3Request
from storagegate.s3.xml import documents
from storagegate.storage.records import Content, ObjectRecord


@frozen
class ResponseRange:
    """
    What part of an object an answer carries.

    @ivar extra: Headers that come with it.
    """

    code: int
    start: int
    length: int
    extra: Pairs = ()


def _sliceOf(call: S3Request, record: ObjectRecord) -> ResponseRange:
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
        return _partSlice(call, record)
    if wanted is not None and not rangeHolds(call.headers, record.etag, record.modifiedMs):
        wanted = None
    found = parseRange(wanted, record.size)
    return _partial(record, found) if found is not None else ResponseRange(200, 0, record.size)


def _partial(record: ObjectRecord, found: ByteRange, extra: Pairs = ()) -> ResponseRange:
    value = found.contentRange(record.size)
    return ResponseRange(206, found.first, found.length, ((b"Content-Range", value), *extra))


def _partSlice(call: S3Request, record: ObjectRecord) -> ResponseRange:
    number = parsePartNumber(call.query)
    parts = record.attributes.parts
    if not parts and number == 1:
        return _run(record, 0, record.size)
    if number > len(parts):
        raise S3Error("InvalidPartNumber")
    start = sum(part.size for part in parts[: number - 1])
    part = parts[number - 1]
    extra = [(b"x-amz-mp-parts-count", b"%d" % len(parts))]
    if _wantsChecksum(call):
        extra += checksumHeaders(part.checksum)[:1]
    return _run(record, start, part.size, extra)


def _wantsChecksum(call: S3Request) -> bool:
    return call.headers.get(b"x-amz-checksum-mode", b"").upper() == b"ENABLED"


def _run(record: ObjectRecord, start: int, length: int, extra: Pairs = ()) -> ResponseRange:
    """A part as a slice; an empty one has no range that could name it."""
    if not length:
        return ResponseRange(200, start, 0, extra)
    return _partial(record, ByteRange(start, start + length - 1), extra)


def _headersOf(
    call: S3Request, record: ObjectRecord, piece: ResponseRange
) -> list[tuple[bytes, bytes]]:
    headers = objectHeaders(record)
    headers += piece.extra
    # A partial answer must not carry the whole object's checksum: clients check what they got.
    if piece.code == 200 and not piece.extra and _wantsChecksum(call):
        headers += checksumHeaders(record.attributes.checksum)
    if call.query:
        headers = override(headers, call.query)
    return headers


async def _find(call: S3Request) -> ObjectRecord:
    return await call.services.objects.object(
        call.identity, call.bucket, call.key, call.query.get("versionId")
    )


def _isFresh(call: S3Request, record: ObjectRecord) -> bool:
    """
    Judge the conditional headers; where the client's copy is fresh, answer so.

    @raise S3Error: C{PreconditionFailed}.
    """
    try:
        evaluateRead(call.headers, record.etag, record.modifiedMs)
    except NotModified:
        call.answer(304, objectHeaders(record))
        return True
    return False


async def headObject(call: S3Request) -> None:
    """Answer with an object's headers."""
    record = await _find(call)
    if _isFresh(call, record):
        return
    piece = _sliceOf(call, record)
    headers = _headersOf(call, record, piece)
    headers.append((b"Content-Length", b"%d" % piece.length))
    call.answer(piece.code, headers)


async def getObject(call: S3Request) -> None:
    """Answer with an object's bytes, or a run of them."""
    record = await _find(call)
    if _isFresh(call, record):
        return
    piece = _sliceOf(call, record)
    headers = _headersOf(call, record, piece)
    inline = record.content.inline
    if inline is None:
        await _sendSegments(call, record.content, piece, headers)
    elif piece.length == len(inline):
        call.answer(piece.code, headers, inline)
    else:
        call.answer(piece.code, headers, inline[piece.start : piece.start + piece.length])


def _sendPiece(
    call: S3Request, piece: ResponseRange, headers: Pairs, chunk: bytes
) -> Deferred[None] | None:
    """Send bytes of the body; the head goes before the first of them."""
    if not call.request.started:
        call.begin(piece.code, headers, piece.length)
    return call.request.send(chunk)


async def _sendSegments(
    call: S3Request, content: Content, piece: ResponseRange, headers: Pairs
) -> None:
    request, store = call.request, call.services.store
    # An overwrite or a delete in the meantime must not take the blobs from under this answer.
    hold = store.hold(content)
    try:
        for segment in segmentsOf(content, piece.start, piece.length):
            if store.verifier is not None:
                await store.verifier.read(segment, partial(_sendPiece, call, piece, headers))
                continue
            handle = await store.blobs.open(segment)
            try:
                if not request.started:
                    call.begin(piece.code, headers, piece.length)
                await handle.sendTo(request, segment.offset, segment.length)
            finally:
                handle.release()
    finally:
        hold.release()
    if request.started:
        request.finish()
    else:
        call.answer(piece.code, headers)


async def getObjectAttributes(call: S3Request) -> None:
    """Answer with the attributes that the request names."""
    record = await _find(call)
    query = parseAttributes(call.headers)
    if _isFresh(call, record):
        return
    attributes = record.attributes
    body = documents.objectAttributes(
        query,
        record.etag,
        record.size,
        attributes.storageClass,
        attributes.checksum,
        attributes.parts,
    )
    call.document(body, [(b"Last-Modified", httpDate(record.modifiedMs))])
