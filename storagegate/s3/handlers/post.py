"""PostObject: a browser's upload form."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from storagegate.core.addresses import SCHEMES
from storagegate.net.http.message import ChannelRequest
from storagegate.objects.attributes import isFieldText
from storagegate.objects.checksums import PUT_LIMIT, BodyExpectation, ingest
from storagegate.objects.documents.buckets import readTagging
from storagegate.objects.documents.fields import (
    KEPT,
    METADATA_PREFIX,
    STORAGE_CLASS,
    TAGGING,
    attributesFrom,
    contentMD5,
    writeCondition,
)
from storagegate.objects.locks import checkLock
from storagegate.objects.names import checkKey
from storagegate.objects.tags import OBJECT_TAGS, checkedTags, encodeTags
from storagegate.s3.acls import listIn
from storagegate.s3.attributes import LIST_FIELDS, WRITE_FIELDS
from storagegate.s3.auth.authenticator import FIELD_NAME, rejectFormClaim
from storagegate.s3.auth.sigv4 import UNSIGNED_PAYLOAD, SignatureSource
from storagegate.s3.checksums import expectedChecksum
from storagegate.s3.encryption import requestedEncryption, writtenEncryption
from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.s3.request import XML, Pairs, S3Request, rejectUnsupported, versionHeaders
from storagegate.s3.xml import documents
from storagegate.s3.xml.reader import readDocument
from storagegate.storage.records import ObjectRecord

if TYPE_CHECKING:
    # Its library is loaded with the first form: most servers never receive one.
    from storagegate.s3.postform import PostForm

_STATUSES = {"200": 200, "201": 201, "204": 204}


def openForm(request: ChannelRequest) -> "PostForm | None":
    """Open the form in a request's body; return L{None} if the body is not a form."""
    from storagegate.s3.postform import PostForm, formBoundary

    boundary = formBoundary(request.headers.get(b"content-type", b""))
    return PostForm(request.body, boundary) if boundary is not None else None


_OF_OBJECT = WRITE_FIELDS | {TAGGING, STORAGE_CLASS}
"""Headers that only form fields may set; other object headers of the request are refused."""

_OF_CLIENT = frozenset({b"host", b"referer", b"user-agent", b"x-amz-content-sha256"})
"""Headers that no form field may set."""


async def postObject(call: S3Request, form: "PostForm") -> None:
    """
    Store the file of an authenticated form.

    @param form: The form at its start, or after its fields.
    """
    from storagegate.s3.postform import SizeLimits, checkPolicy

    if call.authenticated.payloadHash != UNSIGNED_PAYLOAD:
        # No client signs forms like this, and an unverified payload hash must not be accepted.
        raise S3Error("InvalidRequest", "The payload of a form cannot be signed")
    head = await form.readHead()
    text = head.fields.get("key", "").replace("${filename}", head.fileName)
    if not text:
        raise invalidArgument("key", "", "Bucket POST must contain a field named 'key'.")
    key = text.encode()
    checkKey(key)
    if call.request.handlerState is not None:
        call.request.handlerState.key = key
    limits = SizeLimits()
    if call.authenticated.source is SignatureSource.FORM:
        fields = {**head.fields, "key": text}
        limits = checkPolicy(head.fields["policy"], fields, call.bucket, time.time())
    else:
        rejectFormClaim(head.fields)
    call.identity.authorise("write", call.bucket, key)
    # Fields describe the object as the headers of a PUT do.
    headers = {name.encode("utf-8", "replace"): text.encode() for name, text in head.fields.items()}
    _renameFields(headers)
    rejectUnsupported(headers, call.identity.account, WRITE_FIELDS)
    _rejectLists(call.headers)
    rejectUnsupported(call.headers, call.identity.account)
    # Only the form describes the object, and only the request describes the client. The policy of
    # the form covers all other fields, so no header replaces one of them.
    described = {name: value for name, value in headers.items() if name not in _OF_CLIENT}
    named = {name: value for name, value in call.headers.items() if name not in _OF_OBJECT}
    call.headers = {**named, **described}
    await call.checkOwner(call.bucket, b"x-amz-expected-bucket-owner")
    objects = call.services.objects
    condition = writeCondition(call.headers)
    bucket, owner = await objects.checkWrite(
        call, call.bucket, key, condition, acl=listIn(call.headers, call.services.accounts)
    )
    requested = requestedEncryption(call)
    _checkStored(headers)
    attributes = attributesFrom(headers)
    checkLock(bucket, attributes.lock, objects.nowMs())
    expectation = BodyExpectation(
        md5=contentMD5(headers),
        checksum=expectedChecksum(headers),
        limit=min(limits.largest, PUT_LIMIT),
    )
    store = call.services.store
    objectKey = await objects.keyForWrite(bucket, key, requested)
    ingested = await ingest(
        form, expectation, store.blobs, store.inlineLimit, call.bucket, objectKey
    )
    try:
        limits.check(ingested.content.size)
    except S3Error:
        if ingested.sink is not None:
            call.services.store.abort(ingested.sink)
        raise
    record = await objects.putObject(owner, call.bucket, key, ingested, attributes, condition)
    encryption = writtenEncryption(record.attributes.encryption, requested)
    _respond(call, head.fields, record, [*versionHeaders(record), *encryption])


def _rejectLists(headers: Mapping[bytes, bytes]) -> None:
    """
    Reject an ACL in the headers of a request, which the policy of its form does not cover.

    @param headers: Values by lower-case name.
    @raise S3Error: C{NotImplemented}, naming the header.
    """
    for name in sorted(LIST_FIELDS & headers.keys()):
        raise S3Error("NotImplemented", fields={"Header": name.decode()})


def _renameFields(fields: dict[bytes, bytes]) -> None:
    """Rename the fields C{acl} and C{tagging} to the equivalent headers."""
    document = fields.pop(b"tagging", b"")
    if document.strip():
        if TAGGING in fields:
            raise invalidArgument("tagging", "", "Two sets of tags in one form")
        fields[TAGGING] = encodeTags(
            checkedTags(readTagging(readDocument(document, "Tagging")), OBJECT_TAGS)
        ).encode()
    acl = fields.pop(b"acl", None)
    if acl is not None:
        if b"x-amz-acl" in fields:
            raise invalidArgument("acl", acl.decode("utf-8", "replace"), "Two ACLs in one form")
        fields[b"x-amz-acl"] = acl


def _checkStored(fields: Mapping[bytes, bytes]) -> None:
    """
    Check that responses can carry the stored fields. Unlike a header, a field of a form may have
    any characters, such as line ends.

    @raise S3Error: C{InvalidArgument}.
    """
    for name, value in fields.items():
        isMetadata = name.startswith(METADATA_PREFIX)
        if isMetadata or name in KEPT or name == b"content-type":
            text = value.decode()
            if not isFieldText(text) or (
                isMetadata and FIELD_NAME.fullmatch(name.decode()) is None
            ):
                raise invalidArgument(name.decode(), text, "The field cannot be used as a header")


async def rejectNonForm(call: S3Request) -> None:
    """Reject a POST to a bucket that is not a form, with S3's error C{PreconditionFailed}."""
    await call.services.objects.bucket(call, call.bucket)
    raise S3Error(
        "PreconditionFailed",
        fields={"Condition": "Bucket POST must be of the enclosure-type multipart/form-data"},
    )


def _respond(call: S3Request, fields: Mapping[str, str], record: ObjectRecord, more: Pairs) -> None:
    """
    Send the response that the form requests: a redirect, a document, or an empty response.

    @param more: The headers of the version and its encryption.
    """
    etag = b'"%b"' % record.etag.encode("ascii")
    key = record.key.decode()
    target = fields.get("success_action_redirect", fields.get("redirect", ""))
    if target and urlsplit(target).scheme in SCHEMES:
        result = urlencode({"bucket": record.bucket, "key": key, "etag": f'"{record.etag}"'})
        parts = urlsplit(target)
        parts = parts._replace(query=f"{parts.query}&{result}" if parts.query else result)
        redirect = quote(urlunsplit(parts), safe="%/:=&?~#+!$,;'@()*[]")
        headers = [(b"Location", redirect.encode("ascii")), (b"ETag", etag)]
        call.respond(303, [*headers, *more])
        return
    status = _STATUSES.get(fields.get("success_action_status", ""), 204)
    location = call.location(record.key)
    headers = [(b"ETag", etag), (b"Location", location.encode()), *more]
    if status == 201:
        body = documents.postResponse(location, record.bucket, key, record.etag)
        call.respond(201, [XML, *headers], body)
    else:
        call.respond(status, headers)
