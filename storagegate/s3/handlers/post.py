"""PostObject: a browser's upload form."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from attrs import evolve

from storagegate.core.httpurls import SCHEMES
from storagegate.net.http.message import ChannelRequest
from storagegate.s3.auth.authenticator import refuseFormClaim
from storagegate.s3.auth.sigv4 import UNSIGNED_PAYLOAD, SignatureSource
from storagegate.s3.checksums import contentMD5, expectedChecksum
from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.s3.headers import attributesFrom, rejectUnsupported
from storagegate.s3.ingest import PUT_LIMIT, BodyExpectation, ingest
from storagegate.s3.names import checkKey
from storagegate.s3.operation import XML
from storagegate.s3.postform import SizeLimits, checkPolicy
from storagegate.s3.request import S3Request
from storagegate.s3.xml import documents
from storagegate.storage.records import INLINE_LIMIT, ObjectRecord

if TYPE_CHECKING:
    # Its library comes with the first form: most servers never see a browser's.
    from storagegate.s3.postform import FormHead, PostForm

_STATUSES = {"200": 200, "201": 201, "204": 204}


def openForm(request: ChannelRequest) -> "PostForm | None":
    """Begin to read the form that a request carries; L{None} where its body is none."""
    from storagegate.s3.postform import PostForm, formBoundary

    boundary = formBoundary(request.headers.get(b"content-type", b""))
    return PostForm(request.body, boundary) if boundary is not None else None


def _keyOf(head: "FormHead") -> bytes:
    """
    The key that a form asks for, C{${filename}} filled in.

    @raise S3Error: C{InvalidArgument}, C{KeyTooLongError}.
    """
    text = head.fields.get("key", "").replace("${filename}", head.fileName)
    if not text:
        raise invalidArgument("key", "", "Bucket POST must contain a field named 'key'.")
    key = text.encode()
    checkKey(key)
    return key


def _asHeaders(fields: Mapping[str, str]) -> dict[bytes, bytes]:
    """The fields that say of the object what headers say of it in a PUT."""
    return {name.encode("utf-8", "replace"): value.encode() for name, value in fields.items()}


async def postObject(call: S3Request, form: "PostForm") -> None:
    """Store the file of a form whose signature was found right."""
    if call.authenticated.payloadHash != UNSIGNED_PAYLOAD:
        # Nobody signs a form so; to take it unread would break what its signature says.
        raise S3Error("InvalidRequest", "The payload of a form cannot be signed")
    head = await form.readHead()
    key = _keyOf(head)
    limits = SizeLimits()
    if call.authenticated.source is SignatureSource.FORM:
        fields = {**head.fields, "key": key.decode()}
        limits = checkPolicy(head.fields["policy"], fields, call.bucket, time.time())
    else:
        refuseFormClaim(head.fields)
    await call.services.objects.authoriseAccess(call.identity, "write", call.bucket, key)
    await call.checkOwner(call.bucket, b"x-amz-expected-bucket-owner")
    await call.services.objects.bucket(call.identity, call.bucket)
    record = await _store(call, form, key, _asHeaders(head.fields), limits)
    _answer(call, head.fields, record)


async def rejectNonForm(call: S3Request) -> None:
    """
    Refuse a POST to a bucket that is no form.

    @raise S3Error: C{PreconditionFailed}, as S3.
    """
    raise S3Error(
        "PreconditionFailed",
        fields={"Condition": "Bucket POST must be of the enclosure-type multipart/form-data"},
    )


async def _store(
    call: S3Request,
    form: "PostForm",
    key: bytes,
    headers: Mapping[bytes, bytes],
    limits: SizeLimits,
) -> ObjectRecord:
    rejectUnsupported(headers)
    attributes = attributesFrom(headers)
    objects = call.services.objects
    expectation = BodyExpectation(
        md5=contentMD5(headers),
        checksum=expectedChecksum(headers),
        limit=min(limits.largest, PUT_LIMIT),
    )
    received = await ingest(
        form, expectation, lambda limit: objects.sink(None, limit), INLINE_LIMIT
    )
    try:
        limits.check(received.content.size)
    except S3Error:
        if received.sink is not None:
            call.services.store.abandon(received.sink)
        raise
    attributes = evolve(attributes, checksum=received.checksum)
    return await objects.putObject(call.identity, call.bucket, key, received, attributes)


def _answer(call: S3Request, fields: Mapping[str, str], record: ObjectRecord) -> None:
    """Answer as the form asks for: a redirect, a document, or nothing."""
    etag = b'"%b"' % record.etag.encode("ascii")
    key = record.key.decode()
    target = fields.get("success_action_redirect", fields.get("redirect", ""))
    if target and urlsplit(target).scheme in SCHEMES:
        facts = urlencode({"bucket": record.bucket, "key": key, "etag": f'"{record.etag}"'})
        parts = urlsplit(target)
        parts = parts._replace(query=f"{parts.query}&{facts}" if parts.query else facts)
        location = quote(urlunsplit(parts), safe="%/:=&?~#+!$,;'@()*[]")
        call.answer(303, [(b"Location", location.encode("ascii")), (b"ETag", etag)])
        return
    status = _STATUSES.get(fields.get("success_action_status", ""), 204)
    where = call.location(record.key)
    headers = [(b"ETag", etag), (b"Location", where.encode())]
    if status == 201:
        body = documents.postResponse(where, record.bucket, key, record.etag)
        call.answer(201, [XML, *headers], body)
    else:
        call.answer(status, headers)
