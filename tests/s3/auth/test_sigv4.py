"""Signatures: Amazon's own examples, and every way to be refused."""

from hashlib import sha256
from urllib.parse import quote, unquote_to_bytes

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from storagegate.s3.auth import sigv4
from storagegate.s3.auth.sigv4 import KEY_LIMIT, SigningKeys, canonicalPath, canonicalQuery
from tests.s3.examples import (
    ACCESS_KEY,
    CREDENTIAL,
    EMPTY_SHA256,
    HOST,
    NOW,
    PRESIGNED_SIGNATURE,
    RANGE_NAMES,
    RANGE_SIGNATURE,
    REGION,
    SCOPE,
    SECRET,
    TIMESTAMP,
    S3Case,
    authorization,
    check,
    presigned,
    rangeGet,
    signedGet,
    withHeader,
    without,
)


class PublishedExampleTests(S3Case):
    """The examples of the S3 API reference."""

    def test_getObject(self) -> None:
        """A GET with a range is accepted."""
        check(rangeGet())

    def test_putObject(self) -> None:
        """A PUT of a key that has to be escaped, with its Date in C{Date}, is accepted."""
        headers = {
            b"host": HOST,
            b"date": b"Fri, 24 May 2013 00:00:00 GMT",
            b"x-amz-date": TIMESTAMP.encode(),
            b"x-amz-storage-class": b"REDUCED_REDUNDANCY",
            b"x-amz-content-sha256": sha256(b"Welcome to Amazon S3.").hexdigest().encode(),
            b"authorization": authorization(
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
                "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
            ),
        }
        check(sigv4.SignedRequest(b"PUT", b"/test$file.text", b"", headers))
        check(sigv4.SignedRequest(b"PUT", b"/test%24file.text", b"", headers))

    def test_lifecycle(self) -> None:
        """A subresource without a value is accepted, with its equals sign or without."""
        signature = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        check(signedGet(signature, query=b"lifecycle"))
        check(signedGet(signature, query=b"lifecycle="))

    def test_listObjects(self) -> None:
        """The order of parameters does not matter."""
        signature = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        check(signedGet(signature, query=b"max-keys=2&prefix=J"))
        check(signedGet(signature, query=b"prefix=J&max-keys=2"))

    def test_presigned(self) -> None:
        """A presigned URL is accepted until its last second, and not after."""
        check(presigned())
        check(presigned(), NOW + 86400)
        error = self.refused("AccessDenied", 403, check, presigned(), NOW + 86401)
        self.assertEqual(error.message, "Request has expired")
        self.assertEqual(error.fields["Expires"], "2013-05-25T00:00:00Z")

    def test_signingKey(self) -> None:
        """What comes back is the key that chunks are signed with."""
        key = SigningKeys().find(SECRET, "20130524", REGION, "s3")
        self.assertEqual(check(rangeGet()).secret, key.secret)


class CanonicalTests(S3Case):
    """The canonical form."""

    def test_pathIsNotNormalised(self) -> None:
        """C{//}, C{.} and C{..} are parts of keys."""
        self.assertEqual(canonicalPath(b"/b//a/./../c/"), b"/b//a/./../c/")

    def test_pathIsEncodedOnce(self) -> None:
        """Any spelling of a key has one canonical form, and a plus is a plus."""
        self.assertEqual(canonicalPath(b"/b/a%20b%2Bc+d%7e%252F"), b"/b/a%20b%2Bc%2Bd~%252F")
        self.assertEqual(canonicalPath("/b/ä".encode()), b"/b/%C3%A4")
        self.assertEqual(canonicalPath(b"/b/%c3%a4"), b"/b/%C3%A4")

    def test_everyByte(self) -> None:
        """Each byte has one canonical spelling, which is Python's with capitals."""
        for byte in range(256):
            raw = bytes([byte])
            path = quote(raw, safe="/").encode()
            query = quote(raw, safe="").encode()
            for spelling in (b"%%%02x" % byte, b"%%%02X" % byte):
                self.assertEqual(canonicalPath(b"/a" + spelling + b"b"), b"/a" + path + b"b")
                self.assertEqual(canonicalQuery(b"a=" + spelling), b"a=" + query)
            self.assertEqual(canonicalPath(raw), path)

    def test_longPath(self) -> None:
        """A path that is all but canonical is encoded in no time."""
        path = b"/" + b"a" * 8000
        self.assertEqual(canonicalPath(path + b"!"), path + b"%21")

    def test_query(self) -> None:
        """Parameters are sorted by name and then value, and a plus is a space."""
        self.assertEqual(
            canonicalQuery(b"b=2&a=z&&a=%61&c+d=e+f%2b"), b"a=a&a=z&b=2&c%20d=e%20f%2B"
        )

    def test_signatureIsLeftOut(self) -> None:
        """Only the signature itself is not signed; an escaped twin is."""
        self.assertEqual(
            canonicalQuery(b"X-Amz-Signature=1&X%2DAmz-Signature=2"), b"X-Amz-Signature=2"
        )

    def test_shortQueries(self) -> None:
        """A query of one parameter, or without values and with more signs than it needs."""
        for raw, canonical in {
            b"versionId=aZ3_-bcd": b"versionId=aZ3_-bcd",
            b"acl": b"acl=",
            b"=x": b"=x",
            b"=": b"=",
            b"&": b"",
            b"&&a=1&": b"a=1",
            b"a&b=c=d": b"a=&b=c%3Dd",
            b"a=b=c": b"a=b%3Dc",
            b"a=1&a-b=2&a=0": b"a=0&a=1&a-b=2",
            b"X-Amz-Signature=1": b"",
            b"X-Amz-Signature": b"",
            b"X-Amz-Signature2=1": b"X-Amz-Signature2=1",
            b"a=1&X-Amz-Signature=1": b"a=1",
            b"&".join(b"a=1" for _ in range(150)): b"&".join(b"a=1" for _ in range(150)),
        }.items():
            self.assertEqual(canonicalQuery(raw), canonical, raw)

    @given(st.lists(st.sampled_from([b"a", b"B", b"-", b"=", b"&", b"%3D", b"%2b", b"+", b"\xe9"])))
    def test_anyQuery(self, pieces: list[bytes]) -> None:
        """The canonical form is that of the definition."""
        raw = b"".join(pieces)
        pairs = [pair.partition(b"=") for pair in raw.split(b"&") if pair]
        decoded = sorted(
            tuple(
                quote(unquote_to_bytes(part.replace(b"+", b" ")), safe="").encode()
                for part in (name, value)
            )
            for name, _, value in pairs
        )
        self.assertEqual(canonicalQuery(raw), b"&".join(b"=".join(pair) for pair in decoded))

    def test_headerSpaces(self) -> None:
        """Space around a value and runs of it within are of no account."""
        check(withHeader(rangeGet(), b"range", b"  bytes=0-9 "))

    def test_unsignedHeaders(self) -> None:
        """Headers of others may come and go."""
        check(withHeader(rangeGet(), b"user-agent", b"x"))


class TamperingTests(S3Case):
    """What was signed cannot be changed."""

    def test_anyPart(self) -> None:
        """Another method, path, query or header is refused, and the answer shows why."""
        for request in (
            rangeGet(method=b"PUT"),
            rangeGet(path=b"/test.tx"),
            rangeGet(path=b"/Test.txt"),
            rangeGet(path=b"//test.txt"),
            rangeGet(queryString=b"acl"),
            rangeGet(queryString=b"X%2DAmz-Signature=1"),
            withHeader(rangeGet(), b"range", b"bytes=0-8"),
            without(rangeGet(), b"range"),
            withHeader(rangeGet(), b"x-amz-content-sha256", b"UNSIGNED-PAYLOAD"),
            withHeader(rangeGet(), b"x-amz-date", b"20130524T000001Z"),
        ):
            error = self.refused("SignatureDoesNotMatch", 403, check, request)
            self.assertEqual(error.fields["AWSAccessKeyId"], ACCESS_KEY)
            self.assertEqual(error.fields["SignatureProvided"], RANGE_SIGNATURE)
            self.assertTrue(error.fields["StringToSign"].startswith("AWS4-HMAC-SHA256\n20130524T"))
            self.assertIn("\nhost:examplebucket", error.fields["CanonicalRequest"])
            self.assertNotIn(SECRET, repr(error.fields) + error.message)

    def test_signature(self) -> None:
        """A signature that is cut, in capitals or none at all is a wrong one."""
        for signature in (RANGE_SIGNATURE[:-1], RANGE_SIGNATURE.upper(), "x"):
            request = signedGet(signature, b"/test.txt")
            self.refused("SignatureDoesNotMatch", 403, check, request)

    def test_presigned(self) -> None:
        """No parameter of a presigned URL can be changed or added."""
        for request in (
            presigned(Expires="86401"),
            presigned(Signature=PRESIGNED_SIGNATURE[::-1]),
            presigned(**{"Content-Sha256": EMPTY_SHA256.decode()}),
            presigned(Credential=SCOPE.replace("AKIA", "akia")),
            replace(presigned(), method=b"PUT"),
            replace(presigned(), path=b"/test.txt%20"),
            replace(presigned(), queryString=presigned().queryString + b"&versionId=1"),
            replace(presigned(), queryString=presigned().queryString + b"&X%2DAmz-Expires=9"),
        ):
            self.refused("SignatureDoesNotMatch", 403, check, request)

    def test_wrongSecret(self) -> None:
        """Another secret makes another signature."""
        self.refused("SignatureDoesNotMatch", 403, check, rangeGet(), NOW, SECRET.lower())

    def test_unknownKey(self) -> None:
        """An unknown key is refused as such, be the signature what it may."""
        error = self.refused("InvalidAccessKeyId", 403, check, rangeGet(), NOW, None)
        self.assertEqual(error.fields, {"AWSAccessKeyId": ACCESS_KEY})


class CoverageTests(S3Case):
    """Headers that have to be signed."""

    def test_unsignedAmzHeader(self) -> None:
        """An C{x-amz-} header that nobody signed is refused and named."""
        for request in (rangeGet(), presigned()):
            request = withHeader(request, b"x-amz-acl", b"public-read")
            error = self.refused("AccessDenied", 403, check, request)
            self.assertEqual(error.fields, {"HeadersNotSigned": "x-amz-acl"})

    def test_hostNotSigned(self) -> None:
        """A signature that is good for any host is refused."""
        names = RANGE_NAMES.replace("host;", "")
        value = authorization(RANGE_SIGNATURE, names)
        unsigned = withHeader(rangeGet(), b"authorization", value)
        for request in (unsigned, presigned(SignedHeaders="range")):
            error = self.refused("AccessDenied", 403, check, request)
            self.assertEqual(error.fields, {"HeadersNotSigned": "host"})


class TimeTests(S3Case):
    """Clocks."""

    def test_skew(self) -> None:
        """A clock may be wrong by 15 minutes, either way, and no second more."""
        for ahead in (-840, 840, -900, 900):
            check(rangeGet(), NOW + ahead)
        for ahead in (-960, 960, -901, 901):
            error = self.refused("RequestTimeTooSkewed", 403, check, rangeGet(), NOW + ahead)
            self.assertEqual(error.fields["MaxAllowedSkewMilliseconds"], "900000")

    def test_presignedInTheFuture(self) -> None:
        """A presigned URL is good from the moment of its date on, as clocks go."""
        check(presigned(), NOW - 900)
        self.refused("AccessDenied", 403, check, presigned(), NOW - 960)

    def test_scopeOfAnotherDay(self) -> None:
        """A signature of another day than the request's is refused."""
        credential = CREDENTIAL.replace("20130524", "20130523")
        request = signedGet(RANGE_SIGNATURE, credential=credential)
        error = self.refused("SignatureDoesNotMatch", 403, check, request)
        self.assertIn("Date in Credential scope", error.message)
        request = presigned(Credential=SCOPE.replace("20130524", "20130525"))
        self.refused("SignatureDoesNotMatch", 403, check, request)

    def test_dateHeader(self) -> None:
        """C{Date} is read where there is no C{x-amz-date}, in all ways to write it."""
        request = without(rangeGet(), b"x-amz-date")
        self.refused("AccessDenied", 403, check, request)
        day = b"Fri, 24 May 2013 00:00:00 "
        for value in (day + b"GMT", day + b"-0000", day + b"+0000", b"20130524T000000Z"):
            claim = sigv4.parseHeaderClaim(withHeader(request, b"date", value).headers)
            self.assertEqual((claim.timestamp, claim.seconds), (TIMESTAMP, NOW))
        other = withHeader(request, b"date", day + b"-0100")
        self.refused("AccessDenied", 403, check, other)

    def test_badDate(self) -> None:
        """A date that is none is refused, and C{Date} does not stand in for it."""
        for value in (b"", b"20130524", b"20131324T000000Z", b"20130524T000000z", b"\xff" * 16):
            request = withHeader(rangeGet(), b"x-amz-date", value)
            request = withHeader(request, b"date", TIMESTAMP.encode())
            self.refused("AccessDenied", 403, check, request)


class SigningKeysTests(S3Case):
    """The memory of signing keys."""

    def test_bounded(self) -> None:
        """It forgets the oldest, and derives it again the same."""
        keys = SigningKeys()
        first = keys.find(SECRET, "0", REGION, "s3")
        for day in range(1, KEY_LIMIT + 1):
            keys.find(SECRET, str(day), REGION, "s3")
        self.assertEqual(len(keys._keys), KEY_LIMIT)
        self.assertEqual(keys.find(SECRET, "0", REGION, "s3").secret, first.secret)

    def test_decoy(self) -> None:
        """Unknown keys share a secret that no one can know, another in each process."""
        one, other = SigningKeys(), SigningKeys()
        scope = ("20130524", REGION, "s3")
        self.assertEqual(one.find(None, *scope).secret, one.find(None, *scope).secret)
        self.assertNotEqual(one.find(None, *scope).secret, other.find(None, *scope).secret)
