"""The gate: which credentials open it, and how each of the others is refused."""

import time
from collections.abc import Mapping

from botocore.auth import HmacV1QueryAuth, S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as Keys
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.accounts import ANONYMOUS, AccessKeyStore
from storagegate.s3.auth.authenticator import (
    Authenticated,
    S3Authenticator,
    isUnsigned,
    rejectFormClaim,
)
from storagegate.s3.auth.sigv4 import SignatureSource
from storagegate.s3.errors import S3Error
from tests.objects.test_accounts_credentials import issuedKeys

KEY, SECRET, REGION = "ROOTKEY", "rootsecret-rootsecret", "us-east-1"
PATH = b"/bucket/key"


def signed(
    key: str = KEY, secret: str = SECRET, headers: Mapping[str, str] = {}, presign: bool = False
) -> tuple[bytes, dict[bytes, bytes]]:
    """Let botocore sign a GET of the path; give its query and headers."""
    request = AWSRequest("GET", "http://host" + PATH.decode(), dict(headers))
    signer = S3SigV4QueryAuth if presign else S3SigV4Auth
    signer(Keys(key, secret), "s3", REGION).add_auth(request)
    prepared = request.prepare()
    query = prepared.url.partition("?")[2].encode()
    sent = {name.lower().encode(): str(value).encode() for name, value in request.headers.items()}
    return query, {b"host": b"host", **sent}


def signedOlder(path: str = PATH.decode(), secret: str = SECRET) -> bytes:
    """Let botocore presign a GET with version 2; give its query."""
    request = AWSRequest("GET", "http://host" + path)
    HmacV1QueryAuth(Keys(KEY, secret), expires=60).add_auth(request)
    query: str = request.url.partition("?")[2]
    return query.encode()


class AuthenticatorTests(SynchronousTestCase):
    """Every scheme, right and wrong; DESIGN's table of 400, 401 and 403."""

    def setUp(self) -> None:
        """Make a gate with one key."""
        credentials = AccessKeyStore(issuedKeys(), KEY, SECRET)
        self.gate = S3Authenticator(credentials, REGION, time.time)

    def enter(self, headers: Mapping[bytes, bytes], query: bytes = b"") -> Authenticated:
        """Come to the gate."""
        return self.gate.authenticate(b"GET", PATH, query, headers)

    def refused(self, headers: Mapping[bytes, bytes], query: bytes = b"") -> tuple[int, str]:
        """How a request is refused."""
        with self.assertRaises(S3Error) as caught:
            self.enter(headers, query)
        self.error = caught.exception
        return self.error.status, self.error.code

    def test_opens(self) -> None:
        """The header signature, the presigned query and the plain headers each open it."""
        query, headers = signed(presign=True)
        plain = {b"x-storage-access-key": KEY.encode(), b"x-storage-secret-key": SECRET.encode()}
        for found, source in (
            (self.enter(signed()[1]), SignatureSource.HEADER),
            (self.enter(headers, query), SignatureSource.QUERY),
            (self.enter({}, signedOlder()), SignatureSource.QUERY),
            (self.enter(plain), SignatureSource.HEADER),
        ):
            self.assertEqual((found.identity.accessKey, found.source), (KEY, source))

    def test_none(self) -> None:
        """No credentials, or an empty Authorization, are an anonymous request."""
        self.assertIs(self.enter({}).identity, ANONYMOUS)
        self.assertIs(self.enter({b"authorization": b"  "}).identity, ANONYMOUS)
        self.assertIsNone(self.enter({}).signing)
        self.assertTrue(isUnsigned(b"", {b"authorization": b""}))

    def test_unreadable(self) -> None:
        """An Authorization that cannot be read, or of another scheme, is 400 InvalidArgument."""
        for value in (b"Bearer x", b"AWS", b"\xff", b"AWS4-HMAC-SHA256"):
            status, code = self.refused({b"authorization": value})
            self.assertEqual((status, code), (400, "InvalidArgument"), value)
        older = self.refused({b"authorization": b"AWS key:signature"})
        self.assertEqual(older, (400, "InvalidRequest"))

    def test_two(self) -> None:
        """Two schemes at once are 400 InvalidArgument, in every pair."""
        query, presigned = signed(presign=True)
        _, header = signed()
        plain = {b"x-storage-access-key": KEY.encode(), b"x-storage-secret-key": SECRET.encode()}
        for headers, raw in (
            ({**header, **plain}, b""),
            ({**presigned, **plain}, query),
            (header, query),
            (header, signedOlder()),
            ({}, query + b"&" + signedOlder()),
            (plain, signedOlder()),
            (plain, b"Signature=x"),
        ):
            self.assertEqual(self.refused(headers, raw), (400, "InvalidArgument"))

    def test_plainHeaders(self) -> None:
        """Half of the plain scheme, an unknown key, a wrong secret: 401 with a challenge."""
        access, secret = b"x-storage-access-key", b"x-storage-secret-key"
        cases = [
            ({access: KEY.encode()}, "SignatureDoesNotMatch"),
            ({secret: SECRET.encode()}, "InvalidAccessKeyId"),
            ({access: b"WHO", secret: SECRET.encode()}, "InvalidAccessKeyId"),
            ({access: KEY.encode(), secret: b"wrong"}, "SignatureDoesNotMatch"),
            ({access: KEY.encode(), secret: SECRET.encode() + b"x"}, "SignatureDoesNotMatch"),
        ]
        for headers, code in cases:
            self.assertEqual(self.refused(headers), (401, code), headers)
            challenge = (b"WWW-Authenticate", b'StorageKey realm="storagegate"')
            self.assertIn(challenge, self.error.headers)
            self.assertNotIn(SECRET, str(self.error) + str(self.error.fields))

    def test_signatures(self) -> None:
        """An unknown key and a wrong secret in a signature are 403 with S3's codes."""
        self.assertEqual(self.refused(signed(key="WHO")[1]), (403, "InvalidAccessKeyId"))
        self.assertEqual(self.refused(signed(secret="no")[1]), (403, "SignatureDoesNotMatch"))
        query, headers = signed(secret="no", presign=True)
        self.assertEqual(self.refused(headers, query), (403, "SignatureDoesNotMatch"))
        older = signedOlder(secret="no")
        self.assertEqual(self.refused({}, older), (403, "SignatureDoesNotMatch"))
        unknown = older.replace(KEY.encode(), b"WHO")
        self.assertEqual(self.refused({}, unknown), (403, "InvalidAccessKeyId"))

    def test_olderVirtualHost(self) -> None:
        """Version 2 signs the bucket also where the host names it."""
        credentials = AccessKeyStore(issuedKeys(), KEY, SECRET)
        gate = S3Authenticator(credentials, REGION, time.time, "s3.test")
        query = signedOlder()
        headers = {b"host": b"bucket.s3.test:9000"}
        found = gate.authenticate(b"GET", b"/key", query, headers)
        self.assertEqual(found.identity.accessKey, KEY)
        with self.assertRaises(S3Error):
            gate.authenticate(b"GET", b"/key", query, {b"host": b"other.s3.test"})

    def test_olderPayload(self) -> None:
        """A payload hash that version 2 signed is the body's; without one it is unsigned."""
        self.assertEqual(self.enter({}, signedOlder()).payloadHash, "UNSIGNED-PAYLOAD")
        request = AWSRequest("GET", "http://host" + PATH.decode())
        request.headers["x-amz-content-sha256"] = "0" * 64
        HmacV1QueryAuth(Keys(KEY, SECRET), expires=60).add_auth(request)
        query = request.url.partition("?")[2].encode()
        headers = {b"x-amz-content-sha256": b"0" * 64}
        expectation = self.enter(headers, query).bodyExpectation({b"content-length": b"1"}, 1)
        self.assertEqual(expectation.payloadHash, "0" * 64)

    def test_signedChunksNeedASigner(self) -> None:
        """The plain headers cannot vouch for signed chunks, but may send unsigned ones."""
        plain = {b"x-storage-access-key": KEY.encode(), b"x-storage-secret-key": SECRET.encode()}
        kind = b"x-amz-content-sha256"
        streaming = {**plain, kind: b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}
        self.assertEqual(self.refused(streaming), (400, "InvalidRequest"))
        found = self.gate.authenticate(b"PUT", PATH, b"", streaming)
        sent = {b"x-amz-decoded-content-length": b"1"}
        with self.assertRaises(S3Error):
            found.bodyExpectation(sent, None)
        unsigned = {**plain, kind: b"STREAMING-UNSIGNED-PAYLOAD-TRAILER"}
        found = self.gate.authenticate(b"PUT", PATH, b"", unsigned)
        decoder = found.bodyExpectation(sent, None).decoder
        assert decoder is not None
        self.assertEqual(decoder.feed(b"1\r\na\r\n0\r\n\r\n"), [b"a"])

    def test_bodyLength(self) -> None:
        """A body must declare its length, and not more than its limit."""
        plain = {b"x-storage-access-key": KEY.encode(), b"x-storage-secret-key": SECRET.encode()}
        found = self.enter(plain)
        for headers, length, code in (
            ({}, 0, "MissingContentLength"),
            ({}, None, "MissingContentLength"),
            ({b"content-length": b"3"}, 3, "EntityTooLarge"),
        ):
            with self.assertRaises(S3Error) as caught:
                found.bodyExpectation(headers, length, limit=2)
            self.assertEqual(caught.exception.code, code)
        self.assertEqual(found.bodyExpectation({b"content-length": b"3"}, 3).length, 3)

    def test_forms(self) -> None:
        """A form without a signature is anonymous, unless it has a policy, which must be signed."""
        for fields in ({}, {"key": "k"}):
            found = self.gate.authenticateForm(fields)
            self.assertTrue(found.identity.isAnonymous)
            self.assertIsNone(found.signing)
        for fields, code in (
            ({"policy": "e30="}, "AccessDenied"),
            ({"policy": ""}, "AccessDenied"),
            ({"x-amz-signature": "0"}, "AccessDenied"),
            ({"signature": "0"}, "AccessDenied"),
            ({"x-amz-security-token": "t"}, "InvalidToken"),
        ):
            with self.assertRaises(S3Error) as caught:
                self.gate.authenticateForm(fields)
            self.assertEqual(caught.exception.code, code)

    def test_formSchemes(self) -> None:
        """A form that is signed in both versions, or besides other credentials, is one too many."""
        four = {"policy": "e30=", "x-amz-signature": "0"}
        two = {"policy": "e30=", "awsaccesskeyid": KEY, "signature": "0"}
        with self.assertRaises(S3Error) as caught:
            self.gate.authenticateForm({**four, **two})
        self.assertEqual(caught.exception.code, "InvalidArgument")
        for fields in (four, two):
            with self.assertRaises(S3Error) as caught:
                rejectFormClaim(fields)
            self.assertEqual(caught.exception.code, "InvalidArgument")
        rejectFormClaim({"key": "k", "policy": "e30="})
