"""Signature version 2 against an independent signer: what botocore signs, and nothing else."""

import string
import time
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from botocore.auth import HmacV1PostAuth, HmacV1QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from storagegate.s3.auth.authenticator import withQueryHeaders
from storagegate.s3.auth.sigv2 import (
    SUBRESOURCES,
    isPresigned,
    isSignedForm,
    parseFormClaim,
    parseQueryClaim,
    verifyForm,
    verifyQuery,
)
from storagegate.s3.auth.sigv4 import SignedRequest
from storagegate.s3.names import parseQuery
from storagegate.s3.operations import OPERATIONS
from tests.s3.examples import ACCESS_KEY, SECRET, S3Case
from tests.support.selection import rounds

CREDENTIALS = Credentials(ACCESS_KEY, SECRET)

METHODS = st.sampled_from(["GET", "PUT", "HEAD", "DELETE", "POST"])
KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
VALUES = st.text(string.printable[:95], min_size=1, max_size=30)
SIGNED_NAMES = st.sampled_from(
    ["versionId", "uploadId", "partNumber", "response-content-type", "response-expires", "acl"]
)
QUERIES = st.dictionaries(SIGNED_NAMES | st.just("prefix"), VALUES, max_size=4)
METADATA = st.dictionaries(
    st.text(string.ascii_lowercase + string.digits + "-", min_size=1, max_size=10).map(
        "x-amz-meta-{}".format
    ),
    VALUES,
    max_size=4,
)
CONTENT = st.fixed_dictionaries(
    {}, optional={"Content-Type": st.just("text/plain"), "Content-MD5": st.just("abc=")}
)


def signed(
    method: str = "GET",
    key: str = "key",
    query: Mapping[str, str] = {},
    headers: Mapping[str, str] = {},
    expires: int = 60,
) -> SignedRequest:
    """Let botocore presign a request; give what the server sees of it."""
    url = f"http://127.0.0.1:9000/bucket/{quote(key, safe='/~')}"
    if query:
        url += "?" + "&".join(f"{n}={quote(v, safe='-_.~')}" for n, v in query.items())
    request = AWSRequest(method, url, headers=dict(headers))
    HmacV1QueryAuth(CREDENTIALS, expires=expires).add_auth(request)
    parts = urlsplit(request.url)
    sent = {name.lower().encode(): value.encode() for name, value in headers.items()}
    return SignedRequest(method.encode(), parts.path.encode(), parts.query.encode(), sent)


def check(request: SignedRequest, secret: str | None = SECRET) -> None:
    """Verify a request as the gate does."""
    query = parseQuery(request.queryString)
    hoisted = replace(request, headers=withQueryHeaders(query, request.headers))
    verifyQuery(parseQueryClaim(query), hoisted, secret, time.time())


class QueryTests(S3Case):
    """Presigned URLs."""

    @settings(max_examples=rounds(30, 150), deadline=None)
    @given(METHODS, KEYS, QUERIES, METADATA, CONTENT)
    def test_accepted(
        self,
        method: str,
        key: str,
        query: dict[str, str],
        metadata: dict[str, str],
        content: dict[str, str],
    ) -> None:
        """Any method, key, subresource, metadata and content headers are accepted."""
        request = signed(method, key, query, {**metadata, **content})
        self.assertTrue(isPresigned(request.queryString))
        check(request)

    @settings(max_examples=rounds(12, 60), deadline=None)
    @given(METADATA)
    def test_metadataInTheQuery(self, metadata: dict[str, str]) -> None:
        """botocore repeats the metadata in the query, and there it may stay."""
        request = signed("PUT", headers=metadata)
        check(replace(request, headers={}))

    @settings(max_examples=rounds(20, 100), deadline=None)
    @given(KEYS, KEYS)
    def test_otherKey(self, key: str, other: str) -> None:
        """A signature for one key is good for no other."""
        assume(key != other)
        path = f"/bucket/{quote(other, safe='/~')}".encode()
        request = replace(signed("PUT", key), path=path)
        self.refused("SignatureDoesNotMatch", 403, check, request)

    @settings(max_examples=rounds(20, 100), deadline=None)
    @given(QUERIES, SIGNED_NAMES, VALUES)
    def test_otherSubresource(self, query: dict[str, str], name: str, value: str) -> None:
        """No subresource can be changed, added or taken away."""
        assume(query.get(name) != value)
        request = signed("GET", query=query)
        pairs = [pair for pair in request.queryString.split(b"&") if pair]
        kept = [pair for pair in pairs if pair.partition(b"=")[0] != name.encode()]
        changed = b"&".join([*kept, f"{name}={quote(value, safe='')}".encode()])
        tampered = [changed, b"&".join(kept)] if name in query else [changed]
        for queryString in tampered:
            request = replace(request, queryString=queryString)
            self.refused("SignatureDoesNotMatch", 403, check, request)

    def test_hiddenSubresource(self) -> None:
        """No subresource can be hidden in the value of another: both queries have one text."""
        for query, hidden in (
            ({"response-content-type": "text/plain", "versionId": "1"}, b"&versionId=1"),
            ({"response-expires": "a", "tagging": ""}, b"&tagging="),
        ):
            request = signed("GET", query=query)
            check(request)
            parts = request.queryString.split(b"&")
            value = next(part for part in parts if part.startswith(b"response-"))
            kept = [part for part in parts if part != value and b"&" + part != hidden]
            joined = b"&".join([*kept, value + quote(hidden, safe="").encode()])
            tampered = replace(request, queryString=joined)
            self.assertNotIn(hidden, b"&" + joined)
            self.refused("InvalidArgument", 400, check, tampered)
        ampersand = {"response-content-disposition": 'attachment; filename="a&b"'}
        check(signed("GET", query=ampersand))

    @settings(max_examples=rounds(12, 60), deadline=None)
    @given(METADATA, VALUES)
    def test_otherMetadata(self, metadata: dict[str, str], value: str) -> None:
        """No metadata can be changed or added, neither as a header nor in the query."""
        name = "x-amz-meta-a"
        assume(metadata.get(name, "").strip() != value.strip() and value.strip())
        request = signed("PUT", headers=metadata)
        header = replace(request, headers={**request.headers, name.encode(): value.encode()})
        self.refused("SignatureDoesNotMatch", 403, check, header)
        if name not in metadata:
            moved = request.queryString + f"&X-Amz-Meta-A={quote(value, safe='')}".encode()
            query = replace(request, queryString=moved)
            self.refused("SignatureDoesNotMatch", 403, check, query)

    def test_changed(self) -> None:
        """Another method, type, digest, expiry or signature is refused."""
        request = signed("PUT", headers={"Content-Type": "text/plain"})
        query = request.queryString
        for changed in (
            replace(request, method=b"GET"),
            replace(request, headers={}),
            replace(request, headers={b"content-type": b"text/html"}),
            replace(request, headers={**request.headers, b"content-md5": b"abc="}),
            replace(request, queryString=query.replace(b"Expires=", b"Expires=1")),
            replace(request, queryString=query.replace(b"Signature=", b"Signature=x")),
        ):
            error = self.refused("SignatureDoesNotMatch", 403, check, changed)
            text = error.fields["StringToSign"]
            self.assertTrue(text.startswith(changed.method.decode() + "\n"), text)

    def test_everySelectorIsSigned(self) -> None:
        """What chooses the operation cannot be added, not even what no client signs."""
        for name in ("acl", "attributes", "retention", "torrent", "%61cl", "legal-hold="):
            request = signed("GET")
            request = replace(request, queryString=request.queryString + b"&" + name.encode())
            self.refused("SignatureDoesNotMatch", 403, check, request)

    def test_everyOperation(self) -> None:
        """A selector that chooses an operation is signed, of every operation."""
        selectors = {row.selector.partition("&")[0].encode() for row in OPERATIONS.values()}
        self.assertEqual(selectors - SUBRESOURCES - {b""}, set())

    def test_plusIsASpace(self) -> None:
        """A plus sign is signed as what it is read as: the two spellings do not change places."""
        request = signed("GET", query={"response-expires": "a b"})
        check(replace(request, queryString=request.queryString.replace(b"a%20b", b"a+b")))
        request = signed("GET", query={"response-expires": "a+b"})
        other = request.queryString.replace(b"a%2Bb", b"a+b")
        self.refused("SignatureDoesNotMatch", 403, check, replace(request, queryString=other))

    def test_keys(self) -> None:
        """A wrong secret and an unknown key each have their code; the secret is not told."""
        error = self.refused("SignatureDoesNotMatch", 403, check, signed(), SECRET[1:])
        self.assertEqual(error.fields["AWSAccessKeyId"], ACCESS_KEY)
        self.assertNotIn(SECRET[1:], str(error.fields))
        self.refused("InvalidAccessKeyId", 403, check, signed(), None)

    def test_times(self) -> None:
        """An expired URL is told so; what is missing or no time is 403 as well."""
        error = self.refused("AccessDenied", 403, check, signed(expires=-1))
        self.assertEqual(error.message, "Request has expired")
        for name in ("AWSAccessKeyId", "Signature", "Expires"):
            query = "&".join(f"{n}=1" for n in ("AWSAccessKeyId", "Signature", "Expires"))
            for raw in (query.replace(f"{name}=1", f"{name}="), query.replace(f"{name}=1", "")):
                self.refused("AccessDenied", 403, parseQueryClaim, parseQuery(raw.encode()))
        for text in ("abc", "-1", "+1", "1_0", "1e9", "9" * 30, "1.5", "Fri, 01 Jan 2100"):
            query = {"AWSAccessKeyId": "A", "Signature": "s", "Expires": text}
            error = self.refused("AccessDenied", 403, parseQueryClaim, query)
            self.assertIn("seconds since epoch", error.message)

    def test_presigned(self) -> None:
        """Either mark makes a query presigned, and nothing that only looks like one."""
        for query in (b"AWSAccessKeyId=a", b"a=b&Signature", b"Signature=x&Expires=1"):
            self.assertTrue(isPresigned(query), query)
        for query in (b"", b"Expires=1", b"X-Amz-Signature=1", b"signature=1", b"a=Signature"):
            self.assertFalse(isPresigned(query), query)


class FormTests(S3Case):
    """Browser forms."""

    def fields(self, policy: dict[str, object]) -> dict[str, str]:
        """Let botocore sign a form."""
        request = AWSRequest("POST", "http://127.0.0.1:9000/bucket")
        request.context["s3-presign-post-policy"] = policy
        HmacV1PostAuth(CREDENTIALS).add_auth(request)
        made = request.context["s3-presign-post-fields"]
        return {name.lower(): value for name, value in made.items()}

    def verify(self, fields: dict[str, str], secret: str | None = SECRET) -> None:
        """Verify a form as the gate does."""
        verifyForm(parseFormClaim(fields), fields["policy"], secret)

    @settings(max_examples=rounds(12, 60), deadline=None)
    @given(st.dictionaries(KEYS, KEYS, max_size=4))
    def test_accepted(self, condition: dict[str, str]) -> None:
        """Whatever the policy is, its signature is right, and another policy's is not."""
        fields = self.fields({"conditions": [condition]})
        self.assertTrue(isSignedForm(fields))
        self.verify(fields)
        other = b64encode(b'{"conditions": []}').decode()
        forged = {**fields, "policy": other}
        self.refused("SignatureDoesNotMatch", 403, self.verify, forged)

    def test_refused(self) -> None:
        """A wrong secret, an unknown key and a form that lacks a field are refused."""
        fields = self.fields({})
        self.refused("SignatureDoesNotMatch", 403, self.verify, fields, SECRET[1:])
        self.refused("InvalidAccessKeyId", 403, self.verify, fields, None)
        self.refused("AccessDenied", 403, parseFormClaim, {**fields, "policy": ""})
        for name in ("awsaccesskeyid", "signature"):
            error = self.refused("InvalidArgument", 400, parseFormClaim, {**fields, name: ""})
            self.assertEqual(error.fields["ArgumentName"], name)
        self.assertFalse(isSignedForm({"policy": "e30=", "x-amz-signature": "0"}))
