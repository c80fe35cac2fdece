"""Signatures against an independent signer: what botocore signs is accepted, and nothing else."""

import string
from urllib.parse import quote, urlsplit

from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from storagegate.s3.auth.sigv4 import SignedRequest
from tests.s3.examples import ACCESS_KEY, REGION, SECRET, S3Case, check, claimOf
from tests.support.selection import rounds

CREDENTIALS = Credentials(ACCESS_KEY, SECRET)
BASE = "http://127.0.0.1:9000"

METHODS = st.sampled_from(["GET", "PUT", "HEAD", "DELETE", "POST"])
KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
NAMES = st.text(string.ascii_letters + string.digits + "-._~ +%&=", min_size=1, max_size=12)
QUERIES = st.lists(st.tuples(NAMES, st.one_of(NAMES, KEYS)), max_size=5)
VALUES = st.text(string.printable[:95], min_size=1, max_size=30)
METADATA = st.dictionaries(
    st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=10).map(
        lambda name: f"x-amz-meta-{name.lower()}"
    ),
    VALUES,
    max_size=4,
)


def unsigned(
    method: str, key: str, query: list[tuple[str, str]], headers: dict[str, str]
) -> AWSRequest:
    """Make a request as botocore's serializer would."""
    url = f"{BASE}/bucket/{quote(key, safe='/~')}"
    if query:
        pairs = (f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in query)
        url += "?" + "&".join(pairs)
    return AWSRequest(method, url, headers=dict(headers))


def sent(request: AWSRequest) -> SignedRequest:
    """Give what the server sees of a request."""
    parts = urlsplit(request.url)
    headers = {name.lower().encode(): value.encode() for name, value in request.headers.items()}
    headers.setdefault(b"host", parts.netloc.encode())
    return SignedRequest(
        request.method.encode(), parts.path.encode(), parts.query.encode(), headers
    )


def signed(
    method: str, key: str, query: list[tuple[str, str]], headers: dict[str, str], presign: bool
) -> SignedRequest:
    """Let botocore sign a request."""
    request = unsigned(method, key, query, headers)
    if presign:
        request.data = {}
        S3SigV4QueryAuth(CREDENTIALS, "s3", REGION, expires=60).add_auth(request)
    else:
        request.data = b"data"
        S3SigV4Auth(CREDENTIALS, "s3", REGION).add_auth(request)
    return sent(request)


def moment(request: SignedRequest) -> int:
    """Give the time at which a request was signed."""
    return claimOf(request).seconds


class BotocoreTests(S3Case):
    """Requests signed by botocore."""

    @settings(max_examples=rounds(30, 150), deadline=None)
    @given(METHODS, KEYS, QUERIES, METADATA, st.booleans())
    def test_accepted(
        self,
        method: str,
        key: str,
        query: list[tuple[str, str]],
        headers: dict[str, str],
        presign: bool,
    ) -> None:
        """Any method, key, query and metadata, in the header or presigned, are accepted."""
        request = signed(method, key, query, headers, presign)
        check(request, moment(request))

    @settings(max_examples=rounds(12, 60), deadline=None)
    @given(KEYS, QUERIES)
    def test_otherSpelling(self, key: str, query: list[tuple[str, str]]) -> None:
        """A path whose every byte is escaped, in small letters, is the same path."""
        request = signed("GET", key, query, {}, False)
        path = b"/bucket/" + b"".join(b"%%%02x" % byte for byte in key.encode())
        # A slash is the one character that S3 keeps apart from its escape; here it is one of the
        # key either way, and both are signed as a slash.
        check(replace(request, path=path), moment(request))

    @settings(max_examples=rounds(20, 100), deadline=None)
    @given(KEYS, KEYS, st.booleans())
    def test_otherKey(self, key: str, other: str, presign: bool) -> None:
        """A signature for one key is good for no other."""
        assume(key != other)
        request = signed("PUT", key, [], {}, presign)
        changed = replace(request, path=f"/bucket/{quote(other, safe='/~')}".encode())
        self.refused("SignatureDoesNotMatch", 403, check, changed, moment(request))

    @settings(max_examples=rounds(20, 100), deadline=None)
    @given(QUERIES, NAMES, VALUES)
    def test_otherQuery(self, query: list[tuple[str, str]], name: str, value: str) -> None:
        """No parameter can be added or taken away."""
        request = signed("GET", "key", query, {}, False)
        extra = f"{quote(name, safe='')}={quote(value, safe='')}".encode()
        queries = [b"&".join(filter(None, [request.queryString, extra]))]
        if query:
            queries.append(request.queryString.partition(b"&")[2])
        for changed in queries:
            request = replace(request, queryString=changed)
            self.refused("SignatureDoesNotMatch", 403, check, request, moment(request))

    @settings(max_examples=rounds(20, 100), deadline=None)
    @given(METADATA, VALUES, st.data())
    def test_otherHeader(self, headers: dict[str, str], value: str, data: st.DataObject) -> None:
        """No metadata can be changed, added or taken away."""
        assume(headers)
        request = signed("PUT", "key", [], headers, False)
        name = data.draw(st.sampled_from(sorted(headers)))
        assume(value.split() != headers[name].split())
        kept = {n: v for n, v in request.headers.items() if n != name.encode()}
        for changed in (
            {**kept, name.encode(): value.encode()},
            kept if headers[name].split() else {},
        ):
            if changed:
                tampered = replace(request, headers=changed)
                self.refused("SignatureDoesNotMatch", 403, check, tampered, moment(request))
        added = replace(request, headers={**request.headers, b"x-amz-meta-zz-other": b"1"})
        self.refused("AccessDenied", 403, check, added, moment(request))

    @settings(max_examples=rounds(12, 60), deadline=None)
    @given(st.integers(0, 63), st.sampled_from("0123456789abcdef"), st.booleans())
    def test_otherSignature(self, index: int, digit: str, presign: bool) -> None:
        """No digit of a signature can be changed."""
        request = signed("PUT", "key", [], {}, presign)
        signature = claimOf(request).signature
        forged = signature[:index] + digit + signature[index + 1 :]
        assume(forged != signature)
        old, new = signature.encode(), forged.encode()
        changed = replace(
            request,
            queryString=request.queryString.replace(old, new),
            headers={name: value.replace(old, new) for name, value in request.headers.items()},
        )
        self.refused("SignatureDoesNotMatch", 403, check, changed, moment(request))
