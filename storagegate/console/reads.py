"""Object contents: reads with conditions and ranges, and the header fields of the console."""

from functools import partial
from urllib.parse import quote

from attrs import frozen

from storagegate.console.call import ConsoleCall, ConsoleCaller
from storagegate.console.guard import FIELDS
from storagegate.core.errors import ServiceError
from storagegate.http.conditional import isFresh, preconditionFails
from storagegate.net.http.message import checkedFields, encodeLines
from storagegate.net.http.ranges import ByteRange, formatHttpDate, parseRangeSpecs
from storagegate.objects.access.context import describeLock
from storagegate.objects.contents import TRIES, sendSegments
from storagegate.objects.encryption.requests import describeEncryption
from storagegate.objects.errors import ConditionFailed
from storagegate.objects.lifecycle import Calendar, findExpiration
from storagegate.storage.errors import CorruptBlob, StoreBusy
from storagegate.storage.records import Bucket, ObjectRecord

SANDBOX = (
    "sandbox; default-src 'none'; img-src 'self' data:; media-src 'self'; "
    "style-src 'unsafe-inline'; frame-ancestors 'self'"
)
"""The content security policy of object contents: no scripts, and nothing loaded from elsewhere."""

_PREVIEWED = ("image/", "text/", "audio/", "video/")

_CONDITIONS = (b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since")

_REPLACED = frozenset({"content-disposition", "cache-control"})
"""Stored fields that the console replaces by its own."""


def disposition(key: bytes, kind: str) -> str:
    """
    Return an ASCII C{Content-Disposition} with the last segment of a key as file name.

    @param kind: C{attachment} or C{inline}.
    """
    name = key.decode().rstrip("/").rpartition("/")[2]
    shown = "".join(each if each.isprintable() else "_" for each in name) or "object"
    return f"{kind}; filename*=UTF-8''{quote(shown, safe='')}"


def isPreviewed(contentType: str) -> bool:
    """Return whether a browser may display a content type; it downloads any other."""
    bare = contentType.partition(";")[0].strip().lower()
    return bare.startswith(_PREVIEWED) or bare == "application/pdf"


@frozen
class _ObjectRead:
    """
    A read of an object.

    @ivar kind: C{attachment} or C{inline}.
    """

    call: ConsoleCall
    caller: ConsoleCaller
    bucket: str
    key: bytes
    versionId: str | None
    kind: str

    async def find(self) -> tuple[Bucket, ObjectRecord]:
        """Look up the object."""
        objects = self.call.services.objects
        return await objects.object(self.caller, self.bucket, self.key, self.versionId)

    async def respond(self, bucket: Bucket, record: ObjectRecord) -> None:
        """Respond with the object, whose content is held."""
        request = self.call.request.raw
        fields = await self._fields(bucket, record)
        sent = {name: request.headers[name] for name in _CONDITIONS if name in request.headers}
        etag = f'"{record.etag}"'
        modified = formatHttpDate(record.modifiedMs // 1000).decode()
        if preconditionFails(sent, etag, modified):
            raise ConditionFailed()
        if isFresh(sent, etag, modified):
            request.respondWith(304, fields, b"")
            return
        code, start, length = 200, 0, record.size
        wanted = _range(request.headers.get(b"range"), record.size)
        if wanted is not None:
            code, start, length = 206, wanted.first, wanted.length
            fields += b"Content-Range: %b\r\n" % wanted.contentRange(record.size)
        if self.call.request.method == "HEAD":
            request.respondWith(code, fields, b"", length)
            return
        opened = await self.call.services.objects.contentOf(bucket, record)
        if opened.isInline:
            request.respondWith(code, fields, opened.inline(start, length))
        else:
            begin = partial(request.begin, code, checkedFields(fields), length)
            if not await sendSegments(
                self.call.services.store, opened, start, length, request, begin
            ):
                request.respondWith(code, fields, b"")

    async def _fields(self, bucket: Bucket, record: ObjectRecord) -> bytes:
        """Return the encoded fields of the response, which also have what S3's reads have."""
        attributes = record.attributes
        common = {**FIELDS, "Content-Security-Policy": SANDBOX, "X-Frame-Options": "SAMEORIGIN"}
        found: list[tuple[bytes, bytes]] = [
            *((name.encode(), value.encode()) for name, value in common.items()),
            (b"ETag", b'"%b"' % record.etag.encode("ascii")),
            (b"Last-Modified", formatHttpDate(record.modifiedMs // 1000)),
            (b"Content-Type", attributes.contentType.encode("latin-1")),
            (b"Accept-Ranges", b"bytes"),
        ]
        for name, value in attributes.headers.items():
            if name not in _REPLACED:
                found.append((name.title().encode("ascii"), value.encode("latin-1")))
        for name, value in attributes.metadata.items():
            found.append((b"x-amz-meta-" + name.encode("latin-1"), value.encode("latin-1")))
        objects = self.call.services.objects
        if attributes.tags:
            access = await objects.accessOf(bucket)
            if access.mayReadTags(self.caller, bucket, record, self.versionId):
                count = attributes.tags.count("&") + 1
                found.append((b"x-amz-tagging-count", b"%d" % count))
        found += describeLock(attributes.lock).items()
        if attributes.storageClass != "STANDARD":
            found.append((b"x-amz-storage-class", attributes.storageClass.encode("ascii")))
        if attributes.encryption is not None:
            found += describeEncryption(attributes.encryption).items()
        shown = disposition(self.key, self.kind)
        found += [(b"Content-Disposition", shown.encode("ascii")), (b"Cache-Control", b"no-store")]
        if bucket.versioning:
            found.append((b"x-amz-version-id", record.versionId.encode("ascii")))
        if bucket.generation and self.versionId is None:
            rules = (await objects.settings.find(bucket)).lifecycle
            key = record.key.decode()
            calendar = Calendar(corrected=self.call.services.store.correctedMs)
            due = findExpiration(
                rules, calendar, key, record.size, attributes.tags, record.modifiedMs
            )
            if due is not None:
                date = formatHttpDate(due.atMs // 1000)
                rule = quote(due.ruleId, safe="").encode("ascii")
                text = b'expiry-date="%b", rule-id="%b"' % (date, rule)
                found.append((b"x-amz-expiration", text))
        return encodeLines(found)


def _range(value: bytes | None, size: int) -> ByteRange | None:
    """
    Read a C{Range}: of several ranges, or none that is valid, the whole object is sent.

    @raise ServiceError: C{InvalidRange}: the range contains no byte of the object.
    """
    specs = None if value is None else parseRangeSpecs(value)
    if specs is None or len(specs) != 1:
        return None
    found = specs[0].within(size)
    if found is None:
        raise ServiceError("InvalidRange", "The requested range is not satisfiable", 416)
    return found


async def sendObject(
    call: ConsoleCall,
    bucket: str,
    key: bytes,
    versionId: str | None = None,
    isPreview: bool = False,
) -> None:
    """
    Respond with the content of an object, or a range of it.

    @param isPreview: Whether the browser may display the object, if its type permits it.
    @raise DomainError: The object does not exist, or the caller may not read it.
    """
    caller = call.caller("GetObject", "read", bucket, key)
    kind = "attachment"
    if isPreview:
        _, record = await call.services.objects.object(caller, bucket, key, versionId)
        if isPreviewed(record.attributes.contentType):
            kind = "inline"
    read = _ObjectRead(call, caller, bucket, key, versionId, kind)
    for attempt in range(TRIES):
        found, record = await read.find()
        # An overwrite or a delete in the meantime must not remove the blobs of this response.
        isInline = record.content.inline is not None
        hold = None if isInline else call.services.store.hold(record.content)
        try:
            await read.respond(found, record)
            return
        except CorruptBlob:
            if call.request.raw.started:
                raise
            # The blobs may have been removed before the hold, by an overwrite.
            _, again = await read.find()
            if again.content == record.content:
                raise
            if attempt + 1 == TRIES:
                message = f"the object was replaced {TRIES} times while it was read"
                raise StoreBusy(message) from None
        finally:
            if hold is not None:
                hold.release()
