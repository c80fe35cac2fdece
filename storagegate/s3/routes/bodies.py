"""What a request says of its body, and the reading of it."""

from storagegate.core.scalars import parseDecimal
from storagegate.s3 import checksums
from storagegate.s3.chunked import AwsChunkedDecoder
from storagegate.s3.errors import S3Error
from storagegate.s3.routes.call import Call
from storagegate.s3.upload import PUT_LIMIT, Expectation, Received, gather, receive
from storagegate.storage.records import INLINE_LIMIT, WriteCondition


def _decodedLength(call: Call, limit: int) -> int:
    """
    Find how many bytes the body has after decoding.

    @raise S3Error: C{MissingContentLength}, C{EntityTooLarge}: before a byte is read.
    """
    if call.authenticated.streaming:
        declared = call.headers.get(b"x-amz-decoded-content-length")
    else:
        declared = call.headers.get(b"content-length")
    if declared is None:
        raise S3Error("MissingContentLength")
    try:
        length = parseDecimal(declared, 1 << 62)
    except ValueError as error:
        raise S3Error("InvalidArgument", "A length is not a number.") from error
    if length > limit:
        fields = {"ProposedSize": str(length), "MaxSizeAllowed": str(limit)}
        raise S3Error("EntityTooLarge", fields=fields)
    return length


def expectationOf(call: Call, algorithm: str = "CRC64NVME", limit: int = PUT_LIMIT) -> Expectation:
    """
    Gather what the request says of its body.

    @param algorithm: The checksum to compute where the request names none.
    """
    headers, authenticated = call.headers, call.authenticated
    length = _decodedLength(call, limit)
    decoder = None
    trailer = None
    if authenticated.streaming:
        trailer = checksums.declaredTrailer(headers) if authenticated.trailing else None
        decoder = AwsChunkedDecoder(length, authenticated.signer, authenticated.trailing)
    return Expectation(
        length=length,
        md5=checksums.contentMD5(headers),
        sha256=authenticated.sha256,
        checksum=checksums.declared(headers),
        trailer=trailer,
        trailerHeader=checksums.headerName(trailer) if trailer else b"",
        algorithm=algorithm,
        decoder=decoder,
        limit=limit,
    )


async def receiveBody(
    call: Call, expectation: Expectation, inlineLimit: int = INLINE_LIMIT
) -> Received:
    """Take in the bytes of an object or a part."""
    objects = call.services.objects
    return await receive(
        call.request.body,
        expectation,
        lambda limit: objects.sink(expectation.length, limit),
        inlineLimit,
    )


async def readDocument(call: Call) -> bytes:
    """
    Read a request's document, up to the limit of its operation.

    @raise S3Error: C{MaxMessageLengthExceeded}, C{BadDigest} and the like.
    """
    limit = call.operation.bodyLimit
    if b"content-length" not in call.headers and not call.authenticated.streaming:
        return b""
    try:
        return await gather(call.request.body, expectationOf(call, limit=limit))
    except S3Error as error:
        if error.code == "EntityTooLarge":
            raise S3Error("MaxMessageLengthExceeded") from error
        raise


def writeCondition(call: Call) -> WriteCondition:
    """
    Read the conditions of a write.

    @raise S3Error: C{NotImplemented} for C{If-None-Match} with anything but C{*}, as S3.
    """
    headers = call.headers
    absent = headers.get(b"if-none-match")
    match = headers.get(b"if-match")
    if absent is None and match is None:
        return WriteCondition()
    if absent is not None and absent.strip() != b"*":
        raise S3Error("NotImplemented", fields={"Header": "If-None-Match"})
    etags = ()
    if match is not None:
        etags = tuple(each.strip().strip('"') for each in match.decode("latin-1").split(","))
    return WriteCondition(absent is not None, etags)
