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

from storagegate.console.call import ConsoleCall
from storagegate.console.objects import receive
from storagegate.console.paging import MOST, checkLimit
from storagegate.console.uploadfields import attributesOf
from storagegate.core.errors import codedError
from storagegate.core.options import parseDecimal
from storagegate.objects.checksums import DEFAULT_ALGORITHM
from storagegate.objects.errors import UploadNotFound
from storagegate.objects.multipart import OBJECT_LIMIT, CompletedPart
from storagegate.objects.names import checkKey
from storagegate.storage.errors import NoSuchUpload
from storagegate.storage.records import MultipartUpload, Part

_PART_BYTES = 8 << 20
"""The size of parts, unless there would be more than L{_MOST_PARTS}."""

_MOST_PARTS = 10_000

_FILE_SIZE = "storagegate-file-size"

_FILE_MODIFIED = "storagegate-file-modified-ms"


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
    upload = await call.services.multipart.create(caller, bucket, key, attributes, "", "")
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
    after = ("", "")
    if query.after:
        key, uploadId = _parseId(query.after)
        after = (key.decode(), uploadId)
    found, _, last = await call.services.multipart.uploads(
        caller, bucket, query.prefix, "", after, limit
    )
    items = [UploadView(**_view(each)) for each in found]
    return UploadPage(items, None if last is None else items[-1].id)


async def showUpload(call: ConsoleCall, query: PartPageQuery) -> UploadRecord:
    """Describe an upload, with a page of its parts."""
    limit = checkLimit(query.limit)
    upload = await _find(call, "ListParts")
    found = await call.services.multipart.parts(upload, query.after, limit + 1)
    shown = [_partView(each) for each in found[:limit]]
    return UploadRecord(
        **_view(upload),
        contentType=upload.attributes.contentType,
        items=shown,
        next=shown[-1].number if len(found) > limit else None,
    )


async def abortUpload(call: ConsoleCall) -> None:
    """Abort an upload and remove its parts."""
    await call.services.multipart.abort(await _find(call, "AbortMultipartUpload"))


async def putPart(call: ConsoleCall) -> PartView:
    """Store the body as a part, replacing any part with the same number."""
    try:
        number = parseDecimal(call.params["number"], _MOST_PARTS)
    except ValueError:
        number = 0
    if not number:
        raise codedError("INVALID_ARGUMENT", f"The part number must be from 1 to {_MOST_PARTS}")
    upload = await _find(call, "UploadPart")
    algorithm = upload.checksumAlgorithm or DEFAULT_ALGORITHM
    ingested = await receive(call, algorithm, 0)
    return _partView(await call.services.multipart.putPart(upload, number, ingested))


async def completeUpload(call: ConsoleCall, body: UploadCompletion) -> CompletedUpload:
    """Complete an upload; a repeated completion returns the same result."""
    multipart = call.services.multipart
    named = [CompletedPart(each.number, each.etag.strip('"'), {}) for each in body.parts]
    try:
        upload = await _find(call, "CompleteMultipartUpload")
        if not named:
            named = await _allParts(call, upload)
        record = await multipart.complete(_withoutFile(upload), named, declaredSize=body.size)
    except (UploadNotFound, NoSuchUpload):
        bucket, key, uploadId = call.params["bucket"], *_parseId(call.params["id"])
        caller = call.caller("CompleteMultipartUpload", "write", bucket, key)
        done = await multipart.completed(caller, bucket, key, uploadId, named)
        if done is None:
            raise
        record = done
    return CompletedUpload(
        key=record.key.decode(),
        size=record.size,
        etag=record.etag,
        versionId=record.versionId,
        modifiedMs=record.modifiedMs,
    )


async def _allParts(call: ConsoleCall, upload: MultipartUpload) -> list[CompletedPart]:
    named: list[CompletedPart] = []
    after = 0
    while page := await call.services.multipart.parts(upload, after, MOST):
        named += [CompletedPart(each.number, each.etag, {}) for each in page]
        after = page[-1].number
    if not named:
        raise codedError("INVALID_ARGUMENT", "The upload has no parts yet")
    return named


async def _find(call: ConsoleCall, operation: str) -> MultipartUpload:
    """Look up the upload of a request."""
    bucket = call.params["bucket"]
    key, uploadId = _parseId(call.params["id"])
    call.note(key=key.decode())
    caller = call.caller(operation, "write", bucket, key)
    return await call.services.multipart.upload(caller, bucket, key, uploadId)


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


def _withoutFile(upload: MultipartUpload) -> MultipartUpload:
    """Return the upload without the metadata of its file."""
    kept = {
        name: value
        for name, value in upload.attributes.metadata.items()
        if name not in (_FILE_SIZE, _FILE_MODIFIED)
    }
    return replace(upload, attributes=replace(upload.attributes, metadata=kept))


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
