"""
Authentication of S3 requests: the scheme, the identity, and the verification of the body.

Authentication precedes the look-up of the operation, so no operation can omit it. C{docs/s3.rst}
documents the order of the checks and the choice between 400, 401 and 403.

When SDKs presign a URL, they move its C{x-amz-} headers (C{x-amz-meta-*}, C{x-amz-acl},
C{x-amz-checksum-*}) into the query, in any case. The parameters are signed there and mean the same
as the headers, except for the checksum of a body: aws-sdk-js has no body yet and signs the checksum
of an empty one.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from types import ModuleType

from msgspec import Struct
from msgspec.structs import replace

from storagegate.auth.keyheaders import ACCESS_HEADER, SECRET_HEADER
from storagegate.objects.accounts import ANONYMOUS, AccessKeyStore, AccountKey, Identity, Signing
from storagegate.objects.attributes import isFieldText
from storagegate.objects.checksums import DEFAULT_ALGORITHM, PUT_LIMIT, BodyExpectation
from storagegate.objects.documents.fields import CHECKSUM_HEADERS, contentMD5
from storagegate.objects.errors import InvalidToken
from storagegate.s3.auth import sigv4
from storagegate.s3.auth.sigv4 import SignatureSource, SignedRequest
from storagegate.s3.checksums import expectedChecksum
from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.s3.names import bucketOfHost, parseQuery

_TOKEN = "x-amz-security-token"
_TOKEN_HEADER = _TOKEN.encode()

# Parameters of the signature itself, and the SDK's declaration of a checksum, which the user of a
# URL does not know of and may omit.
_NOT_HEADERS = frozenset(
    {
        "x-amz-algorithm",
        "x-amz-content-sha256",
        "x-amz-credential",
        "x-amz-date",
        "x-amz-expires",
        "x-amz-sdk-checksum-algorithm",
        _TOKEN,
        "x-amz-signature",
        "x-amz-signedheaders",
    }
)
_CHECKSUMS = frozenset(header.decode() for header in CHECKSUM_HEADERS.values())
FIELD_NAME = re.compile(r"x-amz-[!#$%&'*+.^_`|~0-9a-z-]+", re.ASCII)
"""The names of Amazon's header fields, in lower case, of parameters and form fields."""


def _older() -> ModuleType:
    """Return the module of signature version 2, loaded with the first query or form."""
    from storagegate.s3.auth import sigv2

    return sigv2


def withQueryHeaders(
    query: Mapping[str, str],
    headers: Mapping[bytes, bytes],
    without: frozenset[str] = _NOT_HEADERS | _CHECKSUMS,
) -> Mapping[bytes, bytes]:
    """
    Add the headers in a query to the headers of the request, which take precedence.

    @param query: Decoded values by name.
    @param headers: Values by lower-case name.
    @param without: Lower-case names of parameters that are not headers.
    @raise S3Error: C{InvalidArgument} for a value that is invalid in a header, or a repeated name.
    """
    found: dict[bytes, bytes] = {}
    for name, value in query.items():
        lower = name.lower()
        if not lower.startswith("x-amz-") or lower in without:
            continue
        field = lower.encode()
        if FIELD_NAME.fullmatch(lower) is None or not isFieldText(value) or field in found:
            raise invalidArgument(name, value, "The parameter cannot be used as a header")
        found[field] = value.encode()
    return {**found, **headers} if found else headers


_CHALLENGE = ((b"WWW-Authenticate", b'StorageKey realm="storagegate"'),)


# A client sends the same fields with each request, which usually rely on the signed payload.
@lru_cache(maxsize=64)
def _declares(names: tuple[bytes, ...]) -> bool:
    """Return whether the header fields of these names declare a checksum of the body."""
    return any(b"checksum" in name or name in (b"x-amz-trailer", b"content-md5") for name in names)


_KINDS = {
    SignatureSource.HEADER: "REST-HEADER",
    SignatureSource.QUERY: "REST-QUERY-STRING",
    SignatureSource.FORM: "POST",
}


class Authenticated(Struct, frozen=True, eq=False):
    """
    The result of authentication.

    @ivar payloadHash: A SHA-256 in hexadecimal, or one of the constants of C{sigv4}.
    @ivar claim: The verified claim of version 4; L{None} for every other scheme.
    @ivar signingKey: The key that may also sign the chunks of the body.
    @ivar source: The location of the credentials.
    """

    identity: Identity
    payloadHash: str = sigv4.UNSIGNED_PAYLOAD
    claim: sigv4.SignatureParams | None = None
    signingKey: sigv4.SigningKey | None = None
    source: SignatureSource = SignatureSource.HEADER

    @property
    def signing(self) -> Signing | None:
        """The signature for policy conditions."""
        kind = _KINDS[self.source]
        if self.claim is not None:
            return Signing("AWS4-HMAC-SHA256", kind, self.claim.seconds)
        # Plain keys and anonymous requests have the source HEADER, where version 2 is not accepted.
        return None if self.source is SignatureSource.HEADER else Signing("AWS", kind)

    @property
    def streaming(self) -> bool:
        """Whether the body is C{aws-chunked}."""
        return self.payloadHash in sigv4.STREAMING

    def bodyExpectation(
        self,
        headers: Mapping[bytes, bytes],
        contentLength: int | None,
        algorithm: str = DEFAULT_ALGORITHM,
        limit: int = PUT_LIMIT,
        turn: Callable[[], Awaitable[object]] | None = None,
    ) -> BodyExpectation:
        """
        Collect the declarations of a request about its body.

        @param headers: Values by lower-case name.
        @param contentLength: The parsed C{Content-Length}, used if the header is present.
        @param algorithm: The checksum to compute if the request names none.
        @param limit: Largest size of the decoded body, in bytes.
        @param turn: Waits until others were served, during a body of many small chunks.
        @raise S3Error: C{MissingContentLength}, C{EntityTooLarge}, C{InvalidDigest},
            C{InvalidRequest}, before any byte is read.
        """
        streaming = self.streaming
        if streaming:
            # Imported late: most bodies are not chunked, and an idle daemon stays small.
            from storagegate.s3.chunked import AwsChunkedDecoder, makeDecoder, parseDecodedLength

            length = parseDecodedLength(headers.get(b"x-amz-decoded-content-length"))
        elif contentLength is None or b"content-length" not in headers:
            raise S3Error("MissingContentLength")
        else:
            length = contentLength
        if length > limit:
            fields = {"ProposedSize": str(length), "MaxSizeAllowed": str(limit)}
            raise S3Error("EntityTooLarge", fields=fields)
        isDeclared = _declares(tuple(headers))
        checksum = expectedChecksum(headers) if isDeclared else None
        decoder = None
        if streaming:
            names: tuple[bytes, ...] = ()
            if checksum is not None and checksum.value is None:
                names = (CHECKSUM_HEADERS[checksum.algorithm],)
            if self.claim is not None and self.signingKey is not None:
                decoder = makeDecoder(self.claim, self.signingKey, length, names)
            elif self.payloadHash == sigv4.STREAMING_UNSIGNED_TRAILER:
                decoder = AwsChunkedDecoder(length, None, names)
            else:
                raise S3Error("InvalidRequest", "Signed chunks need a signed request")
        payloadHash = self.payloadHash.lower() if len(self.payloadHash) == 64 else None
        md5 = contentMD5(headers) if isDeclared else None
        return BodyExpectation(length, md5, payloadHash, checksum, algorithm, decoder, limit, turn)


_ANONYMOUS = Authenticated(ANONYMOUS)


def _tooMany() -> S3Error:
    return S3Error(
        "InvalidArgument",
        "Only one auth mechanism allowed; only one of the signature in the query or in the form, "
        "the Authorization header and the plain key headers should be specified",
    )


def isUnsigned(queryString: bytes, headers: Mapping[bytes, bytes]) -> bool:
    """
    Return whether a request has no credentials outside its body.

    @param queryString: The raw query, without the question mark.
    @param headers: Values by lower-case name.
    """
    return not (
        headers.get(b"authorization", b"").strip()
        or ACCESS_HEADER in headers
        or SECRET_HEADER in headers
        or sigv4.isPresigned(queryString)
        or _older().isPresigned(queryString)
    )


def _rejectToken(names: Iterable[str]) -> None:
    """
    Reject the token of a temporary key where a scheme has no place for it.

    @param names: The names of the parameters or fields of a request, in any case.
    @raise S3Error: C{InvalidToken}.
    """
    if any(name.lower() == _TOKEN for name in names):
        raise S3Error("InvalidToken")


def _tokenOf(claim: sigv4.SignatureParams, request: SignedRequest) -> str | None:
    """
    Return the token of a temporary key in the header or the query of a request, which the signature
    covers there; L{None} for none.

    @raise InvalidToken: There are several.
    """
    isPresigned = claim.source is SignatureSource.QUERY
    query = parseQuery(request.queryString) if isPresigned else {}
    tokens = [value for name, value in query.items() if name.lower() == _TOKEN]
    if claim.scope.signsToken:
        tokens.append(request.headers.get(_TOKEN_HEADER, b"").decode("latin-1"))
    if len(tokens) > 1:
        raise InvalidToken()
    return tokens[0] if tokens else None


def rejectFormClaim(fields: Mapping[str, str]) -> None:
    """
    Reject credentials in a form's fields if the request has other credentials.

    @param fields: Values by lower-case name.
    @raise S3Error: C{InvalidArgument}: more than one scheme claims the request; C{InvalidToken}.
    """
    _rejectToken(fields)
    if sigv4.isSignedForm(fields) or _older().isSignedForm(fields):
        raise _tooMany()


def checkPayloadSigned(
    authenticated: Authenticated, contentLength: int | None, secure: bool
) -> None:
    """
    Reject a body that an intermediary could have changed.

    Plain headers, presigned URLs and forms do not sign the body.

    @param authenticated: The authenticated request.
    @param contentLength: L{None} if no length is declared.
    @param secure: Whether the connection is TLS, which protects the body itself.
    @raise S3Error: C{AccessDenied}.
    """
    signed = authenticated.claim is not None and authenticated.payloadHash not in sigv4.UNSIGNED
    if not (signed or secure or contentLength == 0):
        raise S3Error("AccessDenied", "Without TLS the payload of a request must be signed here")


def _payloadHash(method: bytes, headers: Mapping[bytes, bytes]) -> str:
    """Return the payload hash of a request whose scheme does not require one."""
    declared = headers.get(b"x-amz-content-sha256")
    if declared is None:
        return sigv4.UNSIGNED_PAYLOAD
    payloadHash = sigv4.parsePayloadHash(declared)
    if payloadHash in sigv4.STREAMING:
        _requireBody(method)
    return payloadHash


def _requireBody(method: bytes) -> None:
    """Reject a payload in chunks of a request without a body."""
    if method not in (b"PUT", b"POST"):
        text = f"A {method.decode('latin-1')} request cannot have a payload in chunks."
        raise S3Error("InvalidRequest", text)


class S3Authenticator:
    """Authenticates requests. Synchronous; must run in the reactor thread."""

    def __init__(
        self,
        credentials: AccessKeyStore,
        region: str,
        now: Callable[[], float],
        s3Domain: str | None = None,
    ) -> None:
        """
        @param region: The only region that signatures may name.
        @param now: Returns seconds since the epoch.
        @param s3Domain: The domain below which host names are buckets, which version 2 signs.
        """
        self.region = region
        self._s3Domain = s3Domain
        self._credentials = credentials
        self._now = now
        self._keys = sigv4.SigningKeys()

    def authenticate(
        self, method: bytes, path: bytes, queryString: bytes, headers: Mapping[bytes, bytes]
    ) -> Authenticated:
        """
        Authenticate a request.

        @param path: The raw path, with escapes.
        @param queryString: The raw query, without the question mark.
        @param headers: Values by lower-case name.
        @return: The result; with the anonymous identity if there are no credentials.
        @raise S3Error: The credentials are invalid.
        """
        authorization = headers.get(b"authorization", b"").strip()
        presigned = older = False
        if queryString:
            presigned, older = sigv4.isPresigned(queryString), _older().isPresigned(queryString)
        plain = ACCESS_HEADER in headers or SECRET_HEADER in headers
        if plain + presigned + older + bool(authorization) > 1:
            raise _tooMany()
        if plain:
            return self._byPlainHeaders(method, headers)
        request = SignedRequest(method, path, queryString, headers)
        if older:
            return self._byOlderQuery(request)
        if authorization:
            claim = sigv4.parseHeaderClaim(headers)
        elif presigned:
            claim = sigv4.parseQueryClaim(queryString, headers)
        else:
            return _ANONYMOUS
        # Most requests take one of these two paths, which avoid function calls.
        token = credential = None
        if presigned or claim.scope.signsToken:
            if not presigned:
                sent = headers.get(_TOKEN_HEADER, b"")
                credential = self._credentials.sessions.recall(claim.accessKey, sent)
            if credential is None:
                token = _tokenOf(claim, request)
        if credential is None:
            if token is None:
                credential = self._credentials.find(claim.accessKey)
            else:
                credential = self._findTemporary(claim.accessKey, token)
        secret = None if credential is None else credential.secretKey
        key = sigv4.verify(claim, request, secret, self.region, self._now(), self._keys)
        assert credential is not None, "verify raises for an unknown key"
        if token is not None and not credential.isTemporary:
            raise InvalidToken()
        credential.isUsed = True
        if claim.payloadHash in sigv4.STREAMING:
            _requireBody(method)
        return Authenticated(credential.identity, claim.payloadHash, claim, key, claim.source)

    def authenticateCall(self, sent: SignedRequest, service: str, body: bytes) -> Authenticated:
        """
        Authenticate a call in Amazon's query protocol, whose signature covers its body, although no
        header declares the hash.

        @param sent: The request, signed in its header or its query.
        @param service: The service that the signature must name.
        @raise S3Error: As L{authenticate}.
        """
        presigned = sigv4.isPresigned(sent.queryString)
        if presigned and sent.headers.get(b"authorization", b"").strip():
            raise _tooMany()
        digest = sha256(body).hexdigest().encode()
        headers = {**sent.headers, b"x-amz-content-sha256": digest}
        if presigned:
            claim = sigv4.parseQueryClaim(sent.queryString, headers)
        else:
            claim = sigv4.parseHeaderClaim(headers)
        token = _tokenOf(claim, sent)
        credential = self._findTemporary(claim.accessKey, token)
        secret = None if credential is None else credential.secretKey
        sigv4.verify(claim, sent, secret, self.region, self._now(), self._keys, service)
        return Authenticated(
            _proven(credential, token), claim.payloadHash, claim, source=claim.source
        )

    def authenticateForm(self, fields: Mapping[str, str]) -> Authenticated:
        """
        Authenticate a browser form by its fields. C{postform} evaluates its policy.

        @param fields: Values by lower-case name: all fields before the file.
        @return: The result; with the anonymous identity if no field belongs to a signature.
        @raise S3Error: As L{authenticate}; C{AccessDenied} for an unsigned policy.
        """
        return self._byForm(fields)

    def _byForm(self, fields: Mapping[str, str]) -> Authenticated:
        isNewer = sigv4.isSignedForm(fields)
        if not isNewer and "policy" not in fields and not _older().isSignedForm(fields):
            _rejectToken(fields)
            return _ANONYMOUS
        # The policy of a form covers each field, so also the token.
        token = fields.get(_TOKEN)
        if _older().isSignedForm(fields):
            if isNewer:
                raise _tooMany()
            older = _older().parseFormClaim(fields)
            credential = self._findTemporary(older.accessKey, token)
            secret = None if credential is None else credential.secretKey
            _older().verifyForm(older, fields["policy"], secret)
            return Authenticated(_proven(credential, token), source=SignatureSource.FORM)
        claim = sigv4.parseFormClaim(fields)
        credential = self._findTemporary(claim.accessKey, token)
        secret = None if credential is None else credential.secretKey
        sigv4.verifyForm(claim, fields["policy"], secret, self.region, self._keys)
        return Authenticated(_proven(credential, token), claim=claim, source=SignatureSource.FORM)

    def _findTemporary(self, accessKey: str, token: str | None) -> AccountKey | None:
        """
        Look up a key, which may be temporary. Another key with a token is refused after its
        signature is verified.

        @param token: L{None} without one.
        @raise InvalidToken: The token is not the one of this key.
        @raise ExpiredToken: The session has expired.
        """
        found = self._credentials.find(accessKey)
        if found is None and token:
            found = self._credentials.sessions.find(accessKey, token)
        return found

    def _byOlderQuery(self, sent: SignedRequest) -> Authenticated:
        query = parseQuery(sent.queryString)
        # Version 2 signs the moved headers as headers, not as query parameters.
        request = replace(
            sent, headers=withQueryHeaders(query, sent.headers, _NOT_HEADERS - {_TOKEN})
        )
        if self._s3Domain is not None:
            bucket = bucketOfHost(sent.headers.get(b"host", b""), self._s3Domain)
            if bucket is not None:
                request = replace(request, path=b"/" + bucket.encode() + sent.path)
        claim = _older().parseQueryClaim(query)
        signed = request.headers.get(_TOKEN_HEADER)
        token = None if signed is None else signed.decode("latin-1")
        credential = self._findTemporary(claim.accessKey, token)
        secret = None if credential is None else credential.secretKey
        _older().verifyQuery(claim, request, secret, self._now())
        payloadHash = _payloadHash(request.method, request.headers)
        identity = _proven(credential, token)
        return Authenticated(identity, payloadHash, source=SignatureSource.QUERY)

    def _byPlainHeaders(self, method: bytes, headers: Mapping[bytes, bytes]) -> Authenticated:
        accessKey = headers.get(ACCESS_HEADER, b"").decode("latin-1")
        secret = headers.get(SECRET_HEADER, b"")
        identity = self._credentials.prove(accessKey, secret) if accessKey and secret else None
        if identity is None:
            isUnknown = bool(secret) and self._credentials.find(accessKey) is None
            code = "InvalidAccessKeyId" if isUnknown else "SignatureDoesNotMatch"
            raise S3Error(code, status=401, headers=_CHALLENGE)
        _rejectToken(name.decode("latin-1") for name in headers)
        return Authenticated(identity, _payloadHash(method, headers))


def _proven(credential: AccountKey | None, token: str | None = None) -> Identity:
    """
    Return the identity that a signature has proved.

    @param token: The token of the request, which only a temporary key has.
    @raise InvalidToken: The key is not temporary.
    """
    assert credential is not None, "a verification raises for an unknown key"
    if token is not None and not credential.isTemporary:
        raise InvalidToken()
    credential.isUsed = True
    return credential.identity
