"""Claims: what an C{Authorization} header and a presigned URL may be."""

from msgspec.structs import replace

from storagegate.s3.auth import sigv4
from tests.s3.examples import (
    ACCESS_KEY,
    CREDENTIAL,
    EMPTY_SHA256,
    NAMES,
    RANGE_NAMES,
    RANGE_SIGNATURE,
    SCOPE,
    S3Case,
    authorization,
    check,
    presigned,
    rangeGet,
    withHeader,
    without,
)


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
        for value in (b"garbage", b"Basic c2VjcmV0", b"AWS4-HMAC-SHA256"):
            message = self.refusedHeader("InvalidArgument", 400, value)
            self.assertNotIn("c2VjcmV0", message)
        self.refusedHeader("InvalidRequest", 400, b"AWS AKID:c2VjcmV0")
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
            request = replace(
                presigned(), queryString=request.queryString + f"&X-Amz-{name}".encode()
            )
            self.refused("AuthorizationQueryParametersError", 400, check, request)

    def test_twice(self) -> None:
        """No parameter may come twice."""
        for pair in presigned().queryString.split(b"&"):
            request = replace(presigned(), queryString=presigned().queryString + b"&" + pair)
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
        request = replace(request, queryString=query)
        self.refused("AuthorizationQueryParametersError", 400, check, request)

    def payload(self, request: sigv4.SignedRequest) -> str:
        """Read the payload's hash of a presigned request."""
        claim = sigv4.parseQueryClaim(request.queryString, request.headers)
        self.assertIs(claim.source, sigv4.SignatureSource.QUERY)
        return claim.payloadHash
