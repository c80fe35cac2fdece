"""
Encryption in header fields and form fields::

    x-amz-server-side-encryption                    = "AES256" / "aws:kms"
    x-amz-server-side-encryption-aws-kms-key-id     = name / ARN that ends in a name
    x-amz-server-side-encryption-context            = Base64 of a JSON object of texts
    x-amz-server-side-encryption-bucket-key-enabled = "true" / "false"
    x-amz-server-side-encryption-customer-algorithm = "AES256"
    x-amz-server-side-encryption-customer-key       = Base64 of 32 bytes
    x-amz-server-side-encryption-customer-key-MD5   = Base64 of the MD5 of these bytes

The key of a copy's source has the last three with the prefix C{x-amz-copy-source-}. As in S3, each
operation decides on access before it parses these fields, so that a policy that requires an
encryption refuses a request with a malformed one.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from hashlib import md5
from hmac import compare_digest
from typing import TYPE_CHECKING

import msgspec

from storagegate.core.addresses import readAddress
from storagegate.net.http.message import encodeLines
from storagegate.objects.encryption.requests import (
    BUCKET_KEY_FIELD,
    KEY_ID_FIELD,
    KIND_FIELD,
    SSE_C,
    SSE_KMS,
    SSE_S3,
    CustomerKey,
    RequestedEncryption,
    checkKeySent,
    describeEncryption,
    isKeyId,
)
from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.storage.records import ObjectEncryption

if TYPE_CHECKING:
    from storagegate.s3.request import S3Request

_CONTEXT = KIND_FIELD + b"-context"
_KIND_FIELDS = (KIND_FIELD, KEY_ID_FIELD, _CONTEXT, BUCKET_KEY_FIELD)

_CUSTOMER = b"server-side-encryption-customer-"
_CUSTOMER_FIELDS = (b"algorithm", b"key", b"key-md5")
_OWN = b"x-amz-" + _CUSTOMER
_SOURCE = b"x-amz-copy-source-" + _CUSTOMER

ENCRYPTION_FIELDS = frozenset({*_KIND_FIELDS, *(_OWN + name for name in _CUSTOMER_FIELDS)})
"""The headers that name the encryption of an object."""

SSE_S3_LINE = b"x-amz-server-side-encryption: AES256\r\n"
"""The encoded header of a response that names SSE-S3."""

_decodePairs = msgspec.json.Decoder(dict[str, str]).decode

_DSSE = b"aws:kms:dsse"
_KEY_BYTES = 32
_CONTEXT_LIMIT = 8192
"""Longest encryption context in bytes, which AWS KMS has too."""


def requestedEncryption(call: "S3Request") -> RequestedEncryption | None:
    """
    Parse the encryption that a write names.

    @return: L{None} if it names none, so that the default of the bucket applies.
    @raise S3Error: C{InvalidArgument}; C{NotImplemented} for C{aws:kms:dsse}; the errors of
        L{customerKey}.
    """
    headers = call.headers
    if ENCRYPTION_FIELDS.isdisjoint(headers):
        return None
    key = customerKey(call)
    kind = headers.get(KIND_FIELD)
    if key is not None:
        if kind is not None or KEY_ID_FIELD in headers or _CONTEXT in headers:
            message = (
                "Server Side Encryption with Customer provided key is incompatible with the "
                "encryption method specified"
            )
            raise invalidArgument(KIND_FIELD.decode(), (kind or b"").decode("latin-1"), message)
        return RequestedEncryption(SSE_C, customerKey=key)
    isEnabled = _flag(headers, BUCKET_KEY_FIELD)
    if kind is not None and kind.strip() == _DSSE:
        raise S3Error("NotImplemented", fields={"Header": KIND_FIELD.decode()})
    name = "" if kind is None else kind.decode("latin-1").strip()
    if kind is not None and name not in (SSE_S3, SSE_KMS):
        message = "The encryption method specified is not supported"
        raise invalidArgument(KIND_FIELD.decode(), name, message)
    if name != SSE_KMS:
        for field in (KEY_ID_FIELD, _CONTEXT):
            if field in headers:
                message = (
                    "Server Side Encryption with AWS KMS managed key requires HTTP header "
                    "x-amz-server-side-encryption : aws:kms"
                )
                raise invalidArgument(KIND_FIELD.decode(), name, message)
        # The bucket key needs a kind: the default of the bucket is used whole.
        return RequestedEncryption(SSE_S3) if name else None
    keyId = headers.get(KEY_ID_FIELD, b"").decode("latin-1").strip()
    if not isKeyId(keyId):
        # Unlike a header, a field of a form may have any characters.
        raise invalidArgument(KEY_ID_FIELD.decode(), keyId)
    return RequestedEncryption(SSE_KMS, keyId, _context(headers), isEnabled)


def _flag(headers: Mapping[bytes, bytes], name: bytes) -> bool | None:
    value = headers.get(name)
    if value is None:
        return None
    text = value.decode("latin-1").strip()
    if text.lower() not in ("true", "false"):
        raise invalidArgument(name.decode(), text)
    return text.lower() == "true"


def _context(headers: Mapping[bytes, bytes]) -> str:
    """Return the encryption context as it came, checked."""
    value = headers.get(_CONTEXT)
    if value is None:
        return ""
    try:
        _decodePairs(b64decode(value, validate=True))
        isMap = True
    except (Base64Error, msgspec.MsgspecError):
        isMap = False
    if not isMap or len(value) > _CONTEXT_LIMIT:
        message = (
            f"The header '{_CONTEXT.decode()}' shall be Base64-encoded UTF-8 string holding JSON "
            "which represents a string-string map"
        )
        raise invalidArgument(_CONTEXT.decode(), value.decode("latin-1"), message)
    return value.decode("ascii")


def customerKey(call: "S3Request", prefix: bytes = _OWN) -> CustomerKey | None:
    """
    Parse the key that a client sends with its request.

    @return: L{None} if the request has none of the three headers.
    @raise S3Error: C{InvalidArgument} for a missing or invalid header; C{InvalidRequest} if the key
        came over a network in clear text.
    """
    headers = call.headers
    algorithm, encoded, digest = (headers.get(prefix + name) for name in _CUSTOMER_FIELDS)
    if algorithm is None and encoded is None and digest is None:
        return None
    if not mayCarryKeys(call):
        raise S3Error(
            "InvalidRequest",
            "Requests specifying Server Side Encryption with Customer provided keys must be made "
            "over a secure connection.",
        )
    provided = "Requests specifying Server Side Encryption with Customer provided keys must provide"
    if algorithm is None:
        raise _invalidKey(prefix, 0, f"{provided} a valid encryption algorithm.")
    if algorithm.strip() != SSE_S3.encode():
        message = "The encryption request you specified is not valid. The valid value is AES256."
        raise _invalidKey(prefix, 0, message, algorithm)
    if encoded is None:
        raise _invalidKey(prefix, 1, f"{provided} an appropriate secret key.")
    if digest is None:
        raise _invalidKey(prefix, 2, f"{provided} the client calculated MD5 of the secret key.")
    try:
        key = b64decode(encoded.strip(), validate=True)
    except Base64Error:
        key = b""
    if len(key) != _KEY_BYTES:
        raise _invalidKey(prefix, 1, "The secret key was invalid for the specified algorithm.")
    expected = b64encode(md5(key, usedforsecurity=False).digest())
    if not compare_digest(digest.strip(), expected):
        message = "The calculated MD5 hash of the key did not match the hash that was provided."
        raise _invalidKey(prefix, 2, message)
    return CustomerKey(key, expected.decode("ascii"))


def _invalidKey(prefix: bytes, field: int, message: str, value: bytes = b"") -> S3Error:
    """Make the error for one of the three headers; it never names a key."""
    name = (prefix + _CUSTOMER_FIELDS[field]).decode()
    return invalidArgument(name, value.decode("latin-1"), message)


def mayCarryKeys(call: "S3Request") -> bool:
    """Return whether clients may send keys over a connection: with TLS, or on this machine."""
    request = call.request
    if request.secure or call.services.customerKeysOverHTTP:
        return True
    # A UNIX socket has no address.
    return not request.clientHost or readAddress(request.clientHost).is_loopback


def objectKey(call: "S3Request", encryption: ObjectEncryption | None) -> CustomerKey | None:
    """
    Parse the client's key of the object that is read.

    @param encryption: The encryption of the object; L{None} for plain bytes.
    @raise S3Error: The errors of L{uploadKey}.
    """
    key = optionalKey(call)
    checkKeySent(encryption, key)
    return key


def sourceKey(call: "S3Request", encryption: ObjectEncryption | None) -> CustomerKey | None:
    """
    Parse the client's key of the source of a copy.

    @param encryption: The encryption of the source; L{None} for plain bytes.
    @raise S3Error: The errors of L{customerKey}.
    @raise InvalidRequest: The key is missing or superfluous.
    """
    key = customerKey(call, _SOURCE)
    checkKeySent(encryption, key)
    return key


def uploadKey(call: "S3Request", encryption: ObjectEncryption | None) -> CustomerKey | None:
    """
    Parse the client's key of the upload whose part is written.

    @param encryption: The encryption of the upload; L{None} for plain bytes.
    @raise S3Error: C{InvalidArgument} for the header of a kind, which only creations name; the
        errors of L{customerKey}.
    @raise InvalidRequest: The key is missing or superfluous.
    """
    key = optionalKey(call)
    checkKeySent(encryption, key, isUpload=True)
    return key


def optionalKey(call: "S3Request") -> CustomerKey | None:
    """
    Parse the client's key for an object or upload that exists, whether or not it is needed.

    @raise S3Error: The errors of L{uploadKey}.
    """
    headers = call.headers
    if ENCRYPTION_FIELDS.isdisjoint(headers):
        return None
    for name in _KIND_FIELDS:
        if name in headers:
            message = f"{name.decode()} header is not supported for this operation."
            raise invalidArgument(name.decode(), headers[name].decode("latin-1"), message)
    return customerKey(call)


def encryptionHeaders(
    encryption: ObjectEncryption | None, key: CustomerKey | None = None
) -> list[tuple[bytes, bytes]]:
    """
    Return the headers of a response that name the encryption of an object or upload.

    @param encryption: L{None} for plain bytes.
    @param key: The client's key in the request.
    """
    if encryption is None:
        return []
    found = list(describeEncryption(encryption).items())
    if encryption.kind == SSE_C and key is not None:
        found.append((_OWN + b"key-MD5", key.md5.encode("ascii")))
    return found


def writtenLines(encryption: ObjectEncryption, requested: RequestedEncryption | None) -> bytes:
    """Return the encoded L{writtenEncryption} of an object."""
    if encryption.kind == SSE_S3:
        return SSE_S3_LINE
    return encodeLines(writtenEncryption(encryption, requested))


def writtenEncryption(
    encryption: ObjectEncryption | None, requested: RequestedEncryption | None
) -> list[tuple[bytes, bytes]]:
    """
    Return L{encryptionHeaders} of an object or upload that a request has made, with the encryption
    context, which is shown to the client that sent it.

    @param requested: The encryption that the request named.
    """
    found = encryptionHeaders(encryption, None if requested is None else requested.customerKey)
    if requested is not None and requested.context:
        found.append((_CONTEXT, requested.context.encode("ascii")))
    return found
