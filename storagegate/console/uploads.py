"""
Multipart uploads.

The id of an upload includes its key: S3's id, a dot, and the key in URL-safe Base64. A browser
needs nothing else to resume it. Two metadata fields of the upload identify its file, L{_FILE_SIZE}
and L{_FILE_MODIFIED}; the object does not get them.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, Any

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from storagegate.console.call import ConsoleCall, ConsoleCaller
from storagegate.console.objects import receive
from storagegate.console.paging import MOST, checkLimit
from storagegate.console.uploadfields import attributesOf
from storagegate.core.errors import codedError
from storagegate.core.options import parseDecimal
from storagegate.objects.checksums import DEFAULT_ALGORITHM
from storagegate.objects.multipart import OBJECT_LIMIT
from storagegate.objects.names import checkKey
from storagegate.objects.operations import (
    AbortMultipartUpload,
    CompletedPart,
    CompleteMultipartUpload,
    CreateMultipartUpload,
    ListMultipartUploads,
    ListParts,
)
from storagegate.storage.ranges import PartRange, UploadRange
from storagegate.storage.records import MultipartUpload, Part

_PART_BYTES = 8 << 20
"""The size of parts, unless there would be more than L{_MOST_PARTS}."""

_MOST_PARTS = 10_000

_FILE_SIZE = "storagegate-file-size"

_FILE_MODIFIED = "storagegate-file-modified-ms"

_OF_FILE = frozenset({_FILE_SIZE, _FILE_MODIFIED})


class NewUpload(Struct, kw_only=True, forbid_unknown_fields=True):
    """
    An upload to begin.

    @ivar size: Bytes of the whole object, which determine the size of parts.
    @ivar lastModifiedMs: Modification time of the file, which together with the size identifies the
        file.
    """

    key: str
    contentType: str = ""
    size: Annotated[int, Meta(ge=0, le=OBJECT_LIMIT)] = 0
    lastModifiedMs: int | None = None
    metadata: dict[str, str] = field(default_factory=dict)


class UploadView(Struct, kw_only=True):
    """
    An upload in progress.

    @ivar size: Size of the file; L{None}, like the next two, if the upload was begun without it.
    @ivar lastModifiedMs: Modification time of the file.
    @ivar partBytes: The size of each part except for the last.
    """

    id: str
    key: str
    account: str
    startedMs: int
    size: int | None
    lastModifiedMs: int | None
    partBytes: int | None


class UploadsQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """A page of uploads, after the upload with the id C{after}."""

    prefix: str = ""
    after: str = ""
    limit: int = MOST


class UploadPage(Struct):
    """A page; C{next} is the id of the last upload."""

    items: list[UploadView]
    next: str | None


class PartView(Struct):
    """A part."""

    number: int
    size: int
    etag: str
    modifiedMs: int


class PartPageQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """A page of parts with numbers greater than C{after}."""

    after: int = 0
    limit: int = MOST


class UploadRecord(UploadView, kw_only=True):
    """An upload with a page of its parts."""

    contentType: str
    items: list[PartView]
    next: int | None


class NamedPart(Struct, forbid_unknown_fields=True):
    """A part of the completed object."""

    number: int
    etag: str


class UploadCompletion(Struct, kw_only=True, forbid_unknown_fields=True):
    """
    The parts of the completed object.

    @ivar parts: In their order; empty for all stored parts.
    @ivar size: Size of the whole object, if the caller wants it verified.
    """

    parts: list[NamedPart] = field(default_factory=list)
    size: int | None = None


class CompletedUpload(Struct, kw_only=True):
    """The completed object."""

    key: str
    size: int
    etag: str
    versionId: str
    modifiedMs: int


async def createUpload(call: ConsoleCall, body: NewUpload) -> UploadView:
    """Begin an upload."""
    bucket, key = call.params["bucket"], body.key.encode()
    call.note(key=body.key)
    checkKey(key)
    if not key:
        raise codedError("INVALID_ARGUMENT", "The key must not be empty")
    caller = call.caller("CreateMultipartUpload", "write", bucket, key)
    attributes = attributesOf(body.contentType, body.metadata, {})
    file = {_FILE_SIZE: str(body.size)}
    if body.lastModifiedMs is not None:
        file[_FILE_MODIFIED] = str(body.lastModifiedMs)
    attributes = replace(attributes, metadata={**attributes.metadata, **file})
    wanted = CreateMultipartUpload(bucket, key, attributes)
    upload = await call.services.objects.perform(caller, wanted)
    return UploadView(**_view(upload))


def partBytes(size: int) -> int:
    """
    Choose the size of parts in whole MiB.

    @param size: Size of the object, in bytes.
    """
    needed = -(-size // _MOST_PARTS)
    return max(_PART_BYTES, -(-needed // (1 << 20)) << 20)


async def listUploads(call: ConsoleCall, query: UploadsQuery) -> UploadPage:
    """List uploads in progress, by key."""
    limit = checkLimit(query.limit)
    bucket = call.params["bucket"]
    caller = call.caller("ListMultipartUploads", "list", bucket, prefix=query.prefix)
    key, uploadId = _parseId(query.after) if query.after else (b"", "")
    page = UploadRange(bucket, query.prefix.encode(), b"", key, limit, uploadId)
    found = await call.services.objects.perform(caller, ListMultipartUploads(page))
    items = [UploadView(**_view(each)) for each in found.uploads]
    return UploadPage(items, None if found.last is None else items[-1].id)


async def showUpload(call: ConsoleCall, query: PartPageQuery) -> UploadRecord:
    """Describe an upload, with a page of its parts."""
    limit = checkLimit(query.limit)
    caller, bucket, key, uploadId = _named(call, "ListParts")
    page = PartRange(bucket, key, uploadId, query.after, limit + 1)
    upload, found = await call.services.objects.perform(caller, ListParts(page))
    shown = [_partView(each) for each in found[:limit]]
    return UploadRecord(
        **_view(upload),
        contentType=upload.attributes.contentType,
        items=shown,
        next=shown[-1].number if len(found) > limit else None,
    )


async def abortUpload(call: ConsoleCall) -> None:
    """Abort an upload and remove its parts."""
    caller, bucket, key, uploadId = _named(call, "AbortMultipartUpload")
    await call.services.objects.perform(caller, AbortMultipartUpload(bucket, key, uploadId))


async def putPart(call: ConsoleCall) -> PartView:
    """Store the body as a part, replacing any part with the same number."""
    try:
        number = parseDecimal(call.params["number"], _MOST_PARTS)
    except ValueError:
        number = 0
    if not number:
        raise codedError("INVALID_ARGUMENT", f"The part number must be from 1 to {_MOST_PARTS}")
    objects = call.services.objects
    upload = await objects.upload(*_named(call, "UploadPart"))
    algorithm = upload.checksumAlgorithm or DEFAULT_ALGORITHM
    objectKey = await objects.keyForPart(upload)
    ingested = await receive(call, algorithm, 0, objectKey)
    return _partView(await objects.putPart(upload, number, ingested))


async def completeUpload(call: ConsoleCall, body: UploadCompletion) -> CompletedUpload:
    """Complete an upload; a repeated completion returns the same result."""
    caller, bucket, key, uploadId = _named(call, "CompleteMultipartUpload")
    parts = [CompletedPart(each.number, each.etag.strip('"'), {}) for each in body.parts]
    if not parts:
        parts = await _allParts(call, caller, PartRange(bucket, key, uploadId, 0, MOST))
    wanted = CompleteMultipartUpload(bucket, key, uploadId, parts, size=body.size, dropped=_OF_FILE)
    record = await call.services.objects.perform(caller, wanted)
    return CompletedUpload(
        key=record.key.decode(),
        size=record.size,
        etag=record.etag,
        versionId=record.versionId,
        modifiedMs=record.modifiedMs,
    )


async def _allParts(
    call: ConsoleCall, caller: ConsoleCaller, page: PartRange
) -> list[CompletedPart]:
    """Return all stored parts, from the first page on."""
    named: list[CompletedPart] = []
    while parts := (await call.services.objects.perform(caller, ListParts(page))).parts:
        named += [CompletedPart(each.number, each.etag, {}) for each in parts]
        page = replace(page, after=parts[-1].number)
    if not named:
        raise codedError("INVALID_ARGUMENT", "The upload has no parts yet")
    return named


def _named(call: ConsoleCall, operation: str) -> tuple[ConsoleCaller, str, bytes, str]:
    """Return the caller, the bucket, and the key and id of the upload of a request."""
    bucket = call.params["bucket"]
    key, uploadId = _parseId(call.params["id"])
    call.note(key=key.decode())
    return call.caller(operation, "write", bucket, key), bucket, key, uploadId


def _view(upload: MultipartUpload) -> dict[str, Any]:
    """Return the fields of an L{UploadView}."""
    metadata = upload.attributes.metadata
    size = _decimal(metadata.get(_FILE_SIZE))
    return {
        "id": _idOf(upload.key, upload.uploadId),
        "key": upload.key.decode(),
        "account": upload.account,
        "startedMs": upload.startedMs,
        "size": size,
        "lastModifiedMs": _decimal(metadata.get(_FILE_MODIFIED)),
        "partBytes": None if size is None else partBytes(size),
    }


def _decimal(text: str | None) -> int | None:
    """Parse a number, which another S3 client may have set."""
    try:
        return None if text is None else parseDecimal(text, OBJECT_LIMIT)
    except ValueError:
        return None


def _idOf(key: bytes, uploadId: str) -> str:
    return f"{uploadId}.{urlsafe_b64encode(key).decode().rstrip('=')}"


def _parseId(id: str) -> tuple[bytes, str]:
    """
    Return the key and S3's id.

    @raise ServiceError: C{NOT_FOUND}: the id is malformed.
    """
    uploadId, _, encoded = id.partition(".")
    try:
        key = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        key.decode()
    except ValueError:
        key = b""
    if not key or not uploadId:
        raise codedError("NOT_FOUND", "No such upload")
    return key, uploadId


def _partView(part: Part) -> PartView:
    return PartView(part.number, part.size, part.etag, part.modifiedMs)
