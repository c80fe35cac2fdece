"""What a request says of its body, and the reading of it."""

from attrs import evolve

from storagegate.core.options import parseDecimal
from storagegate.s3.checksums import contentMD5, expectedChecksum, headerName
from storagegate.s3.chunked import parseDecodedLength
from storagegate.s3.errors import S3Error
from storagegate.s3.ingest import (
    DEFAULT_ALGORITHM,
    PUT_LIMIT,
    BodyExpectation,
    IngestedBody,
    gather,
    ingest,
)
from storagegate.s3.request import S3Request
from storagegate.storage.records import INLINE_LIMIT, WriteCondition


def _decodedLength(call: S3Request, limit: int) -> int:
    """
    Find how many bytes the body has after decoding.

    @raise S3Error: C{MissingContentLength}, C{EntityTooLarge}: before a byte is read.
    """
    if call.authenticated.streaming:
        length = parseDecodedLength(call.headers.get(b"x-amz-decoded-content-length"))
    elif b"content-length" in call.headers:
        length = parseDecimal(call.headers[b"content-length"], 1 << 63)
    else:
        raise S3Error("MissingContentLength")
    if length > limit:
        fields = {"ProposedSize": str(length), "MaxSizeAllowed": str(limit)}
        raise S3Error("EntityTooLarge", fields=fields)
    return length


def expectationOf(
    call: S3Request, algorithm: str = DEFAULT_ALGORITHM, limit: int = PUT_LIMIT
) -> BodyExpectation:
    """
    Gather what the request says of its body.

    @param algorithm: The checksum to compute where the request names none.
    """
    headers, authenticated = call.headers, call.authenticated
    length = _decodedLength(call, limit)
    checksum = expectedChecksum(headers)
    decoder = None
    if authenticated.streaming:
        trailing = checksum is not None and checksum.value is None
        names = (headerName(checksum.algorithm),) if checksum is not None and trailing else ()
        decoder = authenticated.decoder(length, names)
    return BodyExpectation(
        length=length,
        md5=contentMD5(headers),
        payloadHash=authenticated.sha256,
        checksum=checksum,
        algorithm=algorithm,
        decoder=decoder,
        limit=limit,
    )


async def receiveBody(
    call: S3Request, expectation: BodyExpectation, inlineLimit: int = INLINE_LIMIT
) -> IngestedBody:
    """Take in the bytes of an object or a part."""
    objects = call.services.objects
    return await ingest(
        call.request.body,
        expectation,
        lambda limit: objects.sink(expectation.length, limit),
        inlineLimit,
    )


async def readDocument(call: S3Request, checked: bool = True) -> bytes:
    """
    Read a request's document, up to the limit of its operation.

    @param checked: Whether the request's checksum headers are the document's.
    @raise S3Error: C{MaxMessageLengthExceeded}, C{BadDigest} and the like.
    """
    if b"content-length" not in call.headers and not call.authenticated.streaming:
        return b""
    try:
        expectation = expectationOf(call, limit=call.operation.documentLimit)
        if not checked:
            expectation = evolve(expectation, checksum=None)
        return await gather(call.request.body, expectation)
    except S3Error as error:
        if error.code == "EntityTooLarge":
            raise S3Error("MaxMessageLengthExceeded") from error
        raise


def writeCondition(call: S3Request) -> WriteCondition:
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
    etags: tuple[str, ...] = ()
    if match is not None:
        etags = tuple(each.strip().strip('"') for each in match.decode("latin-1").split(","))
    return WriteCondition(absent is not None, etags)
