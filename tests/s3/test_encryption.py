"""Encryption in headers: every combination against a second opinion, and each rule by itself."""

from base64 import b64encode
from collections.abc import Mapping
from hashlib import md5
from typing import Any

from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.encryption.requests import (
    SSE_C,
    SSE_KMS,
    SSE_S3,
    CustomerKey,
    RequestedEncryption,
    checkKeySent,
)
from storagegate.objects.errors import InvalidRequest
from storagegate.s3.encryption import (
    encryptionHeaders,
    objectKey,
    requestedEncryption,
    sourceKey,
    uploadKey,
    writtenEncryption,
)
from storagegate.s3.errors import S3Error
from storagegate.storage.records import ObjectEncryption

KIND = b"x-amz-server-side-encryption"
KEY_ID = KIND + b"-aws-kms-key-id"
CONTEXT = KIND + b"-context"
BUCKET_KEY = KIND + b"-bucket-key-enabled"
ALGORITHM = KIND + b"-customer-algorithm"
KEY = KIND + b"-customer-key"
KEY_MD5 = KIND + b"-customer-key-md5"

SECRET = bytes(range(32))
DIGEST = b64encode(md5(SECRET, usedforsecurity=False).digest())
CUSTOMER = {ALGORITHM: b"AES256", KEY: b64encode(SECRET), KEY_MD5: DIGEST}
PAIRS = b64encode(b'{"team": "blue"}')

SEALED = ObjectEncryption(SSE_C, "wrapped")
NAMED = ObjectEncryption(SSE_KMS, "wrapped", "1", "arn:aws:kms:a:1:key/main", PAIRS.decode(), True)
OWN = ObjectEncryption(SSE_S3, "wrapped", "1", bucketKeyEnabled=True)


@frozen
class Connection:
    """The parts of a request that decide on keys in clear text."""

    clientHost: str = "127.0.0.1"
    secure: bool = False


@frozen
class Services:
    """The part of the services that decides on keys in clear text."""

    customerKeysOverHTTP: bool = False


@frozen
class Call:
    """The parts of an S3 request that name an encryption."""

    headers: Mapping[bytes, bytes]
    request: Connection = Connection()
    services: Services = Services()


def requested(headers: Mapping[bytes, bytes], **more: Any) -> RequestedEncryption | None:
    """Parse the encryption of a write."""
    call: Any = Call(headers, **more)
    return requestedEncryption(call)


def expected(headers: Mapping[bytes, bytes]) -> Any:
    """Return the kind that headers name, C{None} for none, or the code of the error."""
    customer = [name for name in CUSTOMER if name in headers]
    if customer:
        if len(customer) < 3 or any(headers[name] != CUSTOMER[name] for name in customer):
            return "InvalidArgument"
        others = {KIND, KEY_ID, CONTEXT} & headers.keys()
        return "InvalidArgument" if others else SSE_C
    if headers.get(BUCKET_KEY, b"true") not in (b"true", b"false", b"TRUE"):
        return "InvalidArgument"
    kind = headers.get(KIND)
    if kind == b"aws:kms:dsse":
        return "NotImplemented"
    if kind == b"aws:kms":
        return SSE_KMS if headers.get(CONTEXT, PAIRS) == PAIRS else "InvalidArgument"
    if KEY_ID in headers or CONTEXT in headers or kind not in (None, b"AES256"):
        return "InvalidArgument"
    return None if kind is None else SSE_S3


VALUES = {
    KIND: [b"AES256", b"aws:kms", b"aws:kms:dsse", b"aes256", b"AES", b""],
    KEY_ID: [b"main", b"arn:aws:kms:a:1:key/main", b""],
    CONTEXT: [
        PAIRS,
        b"e30",
        b64encode(b"[]"),
        b64encode(b'{"a": 1}'),
        b64encode(b'{"a": ' * 990),
        b64encode(b"[" * 5000),
        b"",
    ],
    BUCKET_KEY: [b"true", b"false", b"TRUE", b"1"],
    ALGORITHM: [b"AES256", b"AES", b"aws:kms"],
    KEY: [b64encode(SECRET), b64encode(SECRET[:31]), b64encode(bytes(33)), b"not Base64", b""],
    KEY_MD5: [DIGEST, b64encode(bytes(16)), DIGEST[:-2], b""],
}


class RequestTests(SynchronousTestCase):
    """The encryption of a write."""

    @given(st.fixed_dictionaries({}, optional={n: st.sampled_from(v) for n, v in VALUES.items()}))
    def test_everyCombination(self, headers: dict[bytes, bytes]) -> None:
        """Any headers have the kind or the error that the rules give them."""
        try:
            found = requested(headers)
        except S3Error as error:
            self.assertEqual(error.code, expected(headers), headers)
            for value in (SECRET, b64encode(SECRET), SECRET[:31]):
                self.assertNotIn(value.decode("latin-1"), f"{error}{error.fields}")
        else:
            self.assertEqual(None if found is None else found.kind, expected(headers), headers)

    def test_kept(self) -> None:
        """A master key, a context and a bucket key are kept as they came."""
        self.assertIsNone(requested({}))
        self.assertIsNone(requested({BUCKET_KEY: b"true"}))
        self.assertEqual(requested({KIND: b"AES256"}), RequestedEncryption(SSE_S3))
        headers = {KIND: b"aws:kms", KEY_ID: b"arn:a/main", CONTEXT: PAIRS, BUCKET_KEY: b"True"}
        wanted = RequestedEncryption(SSE_KMS, "arn:a/main", PAIRS.decode(), True)
        self.assertEqual(requested(headers), wanted)
        key = CustomerKey(SECRET, DIGEST.decode())
        self.assertEqual(requested(CUSTOMER), RequestedEncryption(SSE_C, customerKey=key))
        self.assertNotIn(repr(SECRET)[2:-1], repr(requested(CUSTOMER)))

    def test_contexts(self) -> None:
        """A context that is no object of texts is refused, however deep it is."""
        for value in VALUES[CONTEXT]:
            try:
                found = requested({KIND: b"aws:kms", CONTEXT: value})
            except S3Error as error:
                self.assertEqual((error.code, value == PAIRS), ("InvalidArgument", False))
            else:
                self.assertEqual((found is not None, value), (True, PAIRS))

    def test_clearText(self) -> None:
        """A key may cross a network only with TLS, or if the operator permits it."""
        remote = Connection("192.0.2.1")
        for connection, services, allowed in (
            (Connection(), Services(), True),
            (Connection("::1"), Services(), True),
            (Connection("127.8.0.1"), Services(), True),
            (Connection("::ffff:127.0.0.1"), Services(), True),
            (Connection("::ffff:192.0.2.1"), Services(), False),
            # A UNIX socket.
            (Connection(""), Services(), True),
            (remote, Services(), False),
            (Connection("fe80::1%eth0"), Services(), False),
            (remote, Services(customerKeysOverHTTP=True), True),
            (Connection("192.0.2.1", secure=True), Services(), True),
        ):
            for headers in (CUSTOMER, {ALGORITHM: b"AES256"}):
                try:
                    requested(headers, request=connection, services=services)
                    code = ""
                except S3Error as error:
                    code = error.code
                complete = "" if headers is CUSTOMER else "InvalidArgument"
                self.assertEqual(code, complete if allowed else "InvalidRequest", connection)
            named = requested({KIND: b"AES256"}, request=connection, services=services)
            self.assertEqual(named, RequestedEncryption(SSE_S3))


class KeyTests(SynchronousTestCase):
    """The key of an object, an upload or a source that exists."""

    def test_present(self) -> None:
        """A key is sent if it is needed, and only then."""
        source = {
            name.replace(b"x-amz-", b"x-amz-copy-source-"): CUSTOMER[name] for name in CUSTOMER
        }
        for parse, headers in ((objectKey, CUSTOMER), (uploadKey, CUSTOMER), (sourceKey, source)):
            sent: Any = Call(headers)
            bare: Any = Call({})
            found = parse(sent, SEALED)
            assert found is not None
            self.assertEqual(found.key, SECRET)
            self.assertRaises(InvalidRequest, parse, bare, SEALED)
            for encryption in (None, OWN, NAMED):
                self.assertIsNone(parse(bare, encryption))
                self.assertRaises(InvalidRequest, parse, sent, encryption)

    def test_kinds(self) -> None:
        """Only a request that makes an object names a kind."""
        for name, values in list(VALUES.items())[:4]:
            for parse in (objectKey, uploadKey):
                for encryption in (None, OWN, NAMED, SEALED):
                    call: Any = Call({name: values[0], **CUSTOMER})
                    error = self.assertRaises(S3Error, parse, call, encryption)
                    self.assertEqual(error.code, "InvalidArgument")
                    self.assertEqual(error.fields["ArgumentName"], name.decode())

    def test_messages(self) -> None:
        """The errors of uploads tell what its creation named."""
        key = CustomerKey(SECRET, DIGEST.decode())
        for encryption, sent, start in (
            (SEALED, None, "The multipart upload initiate requested"),
            (OWN, key, "The multipart upload initiate did not"),
        ):
            error = self.assertRaises(InvalidRequest, checkKeySent, encryption, sent, True)
            self.assertTrue(error.message.startswith(start), error.message)


class ResponseTests(SynchronousTestCase):
    """The encryption in a response."""

    def test_kinds(self) -> None:
        """Each kind is named by the headers that S3 has for it."""
        key = CustomerKey(SECRET, DIGEST.decode())
        self.assertEqual(encryptionHeaders(None), [])
        self.assertEqual(encryptionHeaders(OWN), [(KIND, b"AES256")])
        named = [(KIND, b"aws:kms"), (KEY_ID, b"arn:aws:kms:a:1:key/main"), (BUCKET_KEY, b"true")]
        self.assertEqual(encryptionHeaders(NAMED), named)
        digest = (KIND + b"-customer-key-MD5", DIGEST)
        self.assertEqual(encryptionHeaders(SEALED, key), [(ALGORITHM, b"AES256"), digest])
        self.assertEqual(encryptionHeaders(SEALED), [(ALGORITHM, b"AES256")])

    def test_context(self) -> None:
        """Only the request that sent a context reads it back."""
        wanted = RequestedEncryption(SSE_KMS, "main", PAIRS.decode())
        self.assertIn((CONTEXT, PAIRS), writtenEncryption(NAMED, wanted))
        self.assertEqual(writtenEncryption(NAMED, None), encryptionHeaders(NAMED))
