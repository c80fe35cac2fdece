"""Signatures: Amazon's own examples, and every way to be refused."""

from hashlib import sha256

from attrs import evolve

from storagegate.s3 import sigv4
from storagegate.s3.sigv4canonical import canonicalPath, canonicalQuery
from storagegate.s3.sigv4keys import KEY_LIMIT, SigningKeys
from tests.s3.examples import (
    ACCESS_KEY,
    CREDENTIAL,
    EMPTY_SHA256,
    HOST,
    NOW,
    REGION,
    SECRET,
    TIMESTAMP,
    S3Case,
    authorization,
    check,
)

RANGE_SIGNATURE = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
PRESIGNED_SIGNATURE = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
NAMES = "host;x-amz-content-sha256;x-amz-date"
RANGE_NAMES = "host;range;x-amz-content-sha256;x-amz-date"
SCOPE = CREDENTIAL.replace("/", "%2F")


def signedGet(
    signature: str,
    path: bytes = b"/",
    query: bytes = b"",
    names: str = NAMES,
    extra: dict[bytes, bytes] | None = None,
    credential: str = CREDENTIAL,
) -> sigv4.SignedRequest:
    """Make a GET with an C{Authorization} header."""
    headers = {
        b"host": HOST,
        b"x-amz-content-sha256": EMPTY_SHA256,
        b"x-amz-date": TIMESTAMP.encode(),
        b"authorization": authorization(signature, names, credential),
        **(extra or {}),
    }
    return sigv4.SignedRequest(b"GET", path, query, headers)


def rangeGet(**changes: object) -> sigv4.SignedRequest:
    """Make Amazon's GET with a range."""
    request = signedGet(RANGE_SIGNATURE, b"/test.txt", names=RANGE_NAMES)
    headers = {**request.headers, b"range": b"bytes=0-9"}
    return evolve(request, **{"headers": headers, **changes})


def withHeader(request: sigv4.SignedRequest, name: bytes, value: bytes) -> sigv4.SignedRequest:
    """Set a header of a request."""
    return evolve(request, headers={**request.headers, name: value})


def without(request: sigv4.SignedRequest, name: bytes) -> sigv4.SignedRequest:
    """Take a header off a request."""
    return evolve(request, headers={n: v for n, v in request.headers.items() if n != name})


def presigned(**changes: str) -> sigv4.SignedRequest:
    """Make Amazon's presigned URL; a parameter that is changed to an empty text is left out."""
    parameters = {
        "Algorithm": "AWS4-HMAC-SHA256",
        "Credential": SCOPE,
        "Date": TIMESTAMP,
        "Expires": "86400",
        "SignedHeaders": "host",
        "Signature": PRESIGNED_SIGNATURE,
        **changes,
    }
    query = "&".join(f"X-Amz-{name}={value}" for name, value in parameters.items() if value)
    return sigv4.SignedRequest(b"GET", b"/test.txt", query.encode(), {b"host": HOST})


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
        self.assertEqual(check(rangeGet()), SigningKeys().find(SECRET, "20130524", REGION, "s3"))


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
            evolve(presigned(), method=b"PUT"),
            evolve(presigned(), path=b"/test.txt%20"),
            evolve(presigned(), queryString=presigned().queryString + b"&versionId=1"),
            evolve(presigned(), queryString=presigned().queryString + b"&X%2DAmz-Expires=9"),
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
        """C{Date} is read where there is no C{x-amz-date}, in both ways to write it."""
        request = without(rangeGet(), b"x-amz-date")
        self.refused("AccessDenied", 403, check, request)
        for value in (b"Fri, 24 May 2013 00:00:00 GMT", b"20130524T000000Z"):
            claim = sigv4.parseHeaderClaim(withHeader(request, b"date", value).headers)
            self.assertEqual((claim.timestamp, claim.seconds), (TIMESTAMP, NOW))

    def test_badDate(self) -> None:
        """A date that is none is refused, and C{Date} does not stand in for it."""
        for value in (b"", b"20130524", b"20131324T000000Z", b"20130524T000000z", b"\xff" * 16):
            request = withHeader(rangeGet(), b"x-amz-date", value)
            request = withHeader(request, b"date", TIMESTAMP.encode())
            self.refused("AccessDenied", 403, check, request)


class HeaderClaimTests(S3Case):
    """What an C{Authorization} header may be."""

    def refusedHeader(self, code: str, status: int, value: bytes) -> str:
        """Assert that a header is refused and give the sentence."""
        request = withHeader(rangeGet(), b"authorization", value)
        return self.refused(code, status, check, request).message

    def test_absent(self) -> None:
        """None, or an empty one, is a request without credentials."""
        self.refused("AccessDenied", 403, check, without(rangeGet(), b"authorization"))
        self.refusedHeader("AccessDenied", 403, b"  ")

    def test_otherSchemes(self) -> None:
        """Another scheme is a bad argument, and its password is not repeated."""
        for value in (b"garbage", b"Basic c2VjcmV0", b"AWS AKID:c2VjcmV0", b"AWS4-HMAC-SHA256"):
            message = self.refusedHeader("InvalidArgument", 400, value)
            self.assertNotIn("c2VjcmV0", message)
        self.refusedHeader("InvalidArgument", 400, b"AWS4-HMAC-SHA256 \xff")
        self.refusedHeader("InvalidArgument", 400, b"AWS4-ECDSA-P256-SHA256 Credential=x")

    def test_components(self) -> None:
        """All three components, each once, in any order, and no other."""
        good = authorization(RANGE_SIGNATURE, RANGE_NAMES)
        scheme, _, rest = good.partition(b" ")
        parts = rest.split(b",")
        check(withHeader(rangeGet(), b"authorization", scheme + b" " + b", ".join(parts[::-1])))
        for bad in (parts[:2], parts[1:], [*parts, b"X=1"], [parts[0]] * 3, [*parts[:2], b""]):
            value = scheme + b" " + b",".join(bad)
            self.refusedHeader("AuthorizationHeaderMalformed", 400, value)

    def test_wrongScope(self) -> None:
        """Each part of the scope is refused in its own words."""
        seen = set()
        for old, new in (
            ("us-east-1", "eu-west-1"),
            ("us-east-1", "US-EAST-1"),
            ("/s3/", "/ec2/"),
            ("aws4_request", "aws5_request"),
            ("20130524", "2013052x"),
            ("/s3/", "/"),
            (ACCESS_KEY, ""),
        ):
            value = authorization(RANGE_SIGNATURE, RANGE_NAMES, CREDENTIAL.replace(old, new))
            seen.add(self.refusedHeader("AuthorizationHeaderMalformed", 400, value))
        self.assertEqual(len(seen), 6)
        self.assertTrue(
            any(
                text.endswith("the region 'eu-west-1' is wrong; expecting 'us-east-1'")
                for text in seen
            )
        )

    def test_slashInKey(self) -> None:
        """An access key may hold slashes."""
        headers = withHeader(
            rangeGet(), b"authorization", authorization("0", NAMES, f"a/b/{CREDENTIAL}")
        ).headers
        self.assertEqual(sigv4.parseHeaderClaim(headers).accessKey, f"a/b/{ACCESS_KEY}")

    def test_signedHeaders(self) -> None:
        """Names that are none or come twice are refused; their order and case do not matter."""
        check(
            withHeader(
                rangeGet(),
                b"authorization",
                authorization(RANGE_SIGNATURE, "Range;x-amz-date;Host;x-amz-content-sha256"),
            )
        )
        for names in ("host;host", "host;;range", "host;a b", "host;a\tb", "host;"):
            self.refusedHeader(
                "AuthorizationHeaderMalformed", 400, authorization(RANGE_SIGNATURE, names)
            )

    def test_payloadHash(self) -> None:
        """The hash must be there, and be one that S3 knows."""
        request = without(rangeGet(), b"x-amz-content-sha256")
        self.refused("InvalidRequest", 400, check, request)
        for value in (b"", b"STREAMING-", EMPTY_SHA256[1:], b"unsigned-payload"):
            request = withHeader(rangeGet(), b"x-amz-content-sha256", value)
            error = self.refused("InvalidArgument", 400, check, request)
            self.assertEqual(error.fields["ArgumentName"], "x-amz-content-sha256")
        for known in (sigv4.UNSIGNED_PAYLOAD, *sigv4.STREAMING, EMPTY_SHA256.decode().upper()):
            request = withHeader(rangeGet(), b"x-amz-content-sha256", known.encode())
            self.assertEqual(sigv4.parseHeaderClaim(request.headers).payloadHash, known)

    def test_ellipticCurves(self) -> None:
        """Signatures by elliptic curves are not built."""
        value = b"STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"
        request = withHeader(rangeGet(), b"x-amz-content-sha256", value)
        self.refused("NotImplemented", 501, check, request)


class QueryClaimTests(S3Case):
    """What a presigned URL may be."""

    def test_detected(self) -> None:
        """A part of a claim is a claim; its name in a value is not."""
        self.assertTrue(sigv4.isPresigned(b"a=b&X-Amz-Signature=x"))
        self.assertTrue(sigv4.isPresigned(b"X-Amz-Credential"))
        self.assertFalse(sigv4.isPresigned(b"prefix=X-Amz-Signature"))
        self.assertFalse(sigv4.isPresigned(b""))

    def test_missing(self) -> None:
        """Each parameter has to be there and hold something."""
        for name in ("Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature"):
            request = presigned(**{name: ""})
            self.refused("AuthorizationQueryParametersError", 400, check, request)
            request = evolve(
                presigned(), queryString=request.queryString + f"&X-Amz-{name}".encode()
            )
            self.refused("AuthorizationQueryParametersError", 400, check, request)

    def test_twice(self) -> None:
        """No parameter may come twice."""
        for pair in presigned().queryString.split(b"&"):
            request = evolve(presigned(), queryString=presigned().queryString + b"&" + pair)
            self.refused("AuthorizationQueryParametersError", 400, check, request)

    def test_wrongValues(self) -> None:
        """Values that cannot be are refused."""
        for changes in (
            {"Expires": "0"},
            {"Expires": "-1"},
            {"Expires": "604801"},
            {"Expires": "9" * 5000},
            {"Expires": "abc"},
            {"Expires": "1_0"},
            {"Algorithm": "AWS4-HMAC-SHA1"},
            {"Date": "20130524"},
            {"Credential": SCOPE.replace("us-east-1", "eu-west-1")},
            {"Credential": SCOPE.replace("%2Fs3", "%2Fec2")},
            {"Credential": ACCESS_KEY},
            {"Credential": "%C3%A4" + SCOPE},
            {"SignedHeaders": "host%3Bhost"},
        ):
            self.refused("AuthorizationQueryParametersError", 400, check, presigned(**changes))

    def test_longest(self) -> None:
        """A week is allowed; what fails is the signature alone."""
        self.refused("SignatureDoesNotMatch", 403, check, presigned(Expires="604800"))

    def test_payloadHash(self) -> None:
        """The payload is unsigned unless the query or a header says so, and they agree."""
        request = presigned()
        self.assertEqual(self.payload(request), "UNSIGNED-PAYLOAD")
        digest = EMPTY_SHA256.decode()
        self.assertEqual(self.payload(presigned(**{"Content-Sha256": digest})), digest)
        request = withHeader(request, b"x-amz-content-sha256", EMPTY_SHA256)
        self.assertEqual(self.payload(request), digest)
        query = request.queryString + b"&X-Amz-Content-Sha256=UNSIGNED-PAYLOAD"
        request = evolve(request, queryString=query)
        self.refused("AuthorizationQueryParametersError", 400, check, request)

    def payload(self, request: sigv4.SignedRequest) -> str:
        """Read the payload's hash of a presigned request."""
        claim = sigv4.parseQueryClaim(request.queryString, request.headers)
        self.assertTrue(claim.presigned)
        return claim.payloadHash


class SigningKeysTests(S3Case):
    """The memory of signing keys."""

    def test_bounded(self) -> None:
        """It forgets the oldest, and derives it again the same."""
        keys = SigningKeys()
        first = keys.find(SECRET, "0", REGION, "s3")
        for day in range(1, KEY_LIMIT + 1):
            keys.find(SECRET, str(day), REGION, "s3")
        self.assertEqual(len(keys._keys), KEY_LIMIT)
        self.assertEqual(keys.find(SECRET, "0", REGION, "s3"), first)

    def test_decoy(self) -> None:
        """Unknown keys share a secret that no one can know, another in each process."""
        one, other = SigningKeys(), SigningKeys()
        scope = ("20130524", REGION, "s3")
        self.assertEqual(one.find(None, *scope), one.find(None, *scope))
        self.assertNotEqual(one.find(None, *scope), other.find(None, *scope))
