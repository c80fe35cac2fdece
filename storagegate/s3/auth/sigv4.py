"""
Signature version 4 (AWS, "Authenticating Requests"): the claims of requests, URLs and forms, and
their verification::

    string to sign    = "AWS4-HMAC-SHA256" LF timestamp LF scope LF sha256(canonical request)
    signature         = HMAC-SHA256(signing key, string to sign), in hexadecimal
    canonical request = method LF path LF query LF *(name ":" value LF) LF names LF payload-hash
    credential        = access-key "/" scope
    scope             = YYYYMMDD "/" region "/" service "/aws4_request"
    names             = name *(";" name)
    payload-hash      = 64 hexadecimal digits / "UNSIGNED-PAYLOAD" / "STREAMING-" ...

    header: AWS4-HMAC-SHA256 Credential=<credential>, SignedHeaders=<names>, Signature=<hex>
    query:  X-Amz-Algorithm X-Amz-Credential X-Amz-Date X-Amz-Expires X-Amz-SignedHeaders
            X-Amz-Signature and, if the payload is signed too, X-Amz-Content-Sha256 in any case
    form:   x-amz-algorithm x-amz-credential x-amz-date x-amz-signature policy
            signature = HMAC-SHA256(signing key, policy as sent)
    date:   20130524T000000Z

S3's variant: the path is encoded once and never normalised, because C{//}, C{.} and C{..} are parts
of keys. Each piece is decoded once and re-encoded by one rule, so that a client may use any
encoding of a character.
"""

import hmac
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from hashlib import sha256
from secrets import token_hex
from sys import intern
from urllib.parse import quote_from_bytes, unquote_to_bytes

from msgspec import Struct

from storagegate.core.hmacs import prepareKey
from storagegate.core.options import parseDecimal
from storagegate.net.http.ranges import parseHttpDate, utcSeconds
from storagegate.objects.dates import isoSeconds
from storagegate.s3.errors import S3Error, invalidArgument

TERMINATOR = "aws4_request"
ALGORITHM = "AWS4-HMAC-SHA256"
_OLDER_SCHEME = "AWS"

UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
STREAMING_SIGNED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
STREAMING_SIGNED_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
STREAMING_UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
STREAMING = frozenset({STREAMING_SIGNED, STREAMING_SIGNED_TRAILER, STREAMING_UNSIGNED_TRAILER})
"""The payloads with an C{aws-chunked} body."""
UNSIGNED = frozenset({UNSIGNED_PAYLOAD, STREAMING_UNSIGNED_TRAILER})
"""The payloads that no signature covers."""

_PAYLOADS = {name.encode(): name for name in (*STREAMING, UNSIGNED_PAYLOAD)}

_NOT_BUILT = frozenset(
    {"STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER"}
)
_SHA256 = re.compile(r"[0-9A-Fa-f]{64}", re.ASCII)
_DATE = re.compile(r"[0-9]{8}", re.ASCII)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_TOKEN_HEADER = b"x-amz-security-token"
REGION_FIELD = b"x-amz-bucket-region"
"""The response header with the region of a bucket."""

GLOBAL_REGION = "us-east-1"
"""The region for which SDKs sign calls to services without regions, such as IAM."""

SKEW_LIMIT = 900
"""Tolerated skew of a client's clock, in seconds: S3's own 15 minutes."""


_AMZ_DATE = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})T([0-9]{2})([0-9]{2})([0-9]{2})Z", re.ASCII)


def parseAmzDate(text: str) -> int | None:
    """Parse C{20130524T000000Z} to seconds since the epoch; L{None} if it is malformed."""
    # Checked before the cache, which must not keep long texts.
    return _amzSeconds(text) if len(text) == len("20130524T000000Z") else None


# Requests of one second carry the same text; 0.1 microseconds instead of 1.5.
@lru_cache(maxsize=256)
def _amzSeconds(text: str) -> int | None:
    match = _AMZ_DATE.fullmatch(text)
    return None if match is None else utcSeconds(*map(int, match.groups()))


def formatAmzDate(seconds: int) -> str:
    """Format seconds since the epoch as C{20130524T000000Z}."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%dT%H%M%SZ")


class SignatureSource(Enum):
    """The location of a claim, which decides the wording of errors."""

    HEADER = "header"
    QUERY = "query"
    FORM = "form"

    def malformed(self, detail: str) -> S3Error:
        """
        Make the error for an invalid credential.

        @param detail: The problem, as the end of a sentence.
        """
        return S3Error(*self._codeAndText(detail))

    def wrongRegion(self, claimed: str, region: str) -> S3Error:
        """
        Make the error for a credential of another region, which names the right one: SDKs read it
        from the header after a HEAD.

        @param claimed: The region in the credential.
        """
        detail = f"the region '{claimed}' is wrong; expecting '{region}'"
        headers = [(REGION_FIELD, region.encode())]
        return S3Error(*self._codeAndText(detail), fields={"Region": region}, headers=headers)

    def _codeAndText(self, detail: str) -> tuple[str, str]:
        if self is SignatureSource.HEADER:
            text = f"The authorization header is malformed; {detail}"
            return "AuthorizationHeaderMalformed", text
        if self is SignatureSource.QUERY:
            text = f"Error parsing the X-Amz-Credential parameter; {detail}"
            return "AuthorizationQueryParametersError", text
        return "InvalidArgument", detail


class SignatureScope(Struct, frozen=True):
    """
    The part that a client's claims share all day: its credential and the signed headers.

    @ivar date: C{YYYYMMDD}.
    @ivar signedHeaders: Lower-case names, sorted.
    @ivar signsHost: Whether the signed headers include C{host}, as they must.
    @ivar signsToken: Whether the signed headers include the token of a temporary key.
    @ivar text: The scope in the string to sign.
    @ivar template: A canonical request as a C{%} template, for method, path, query, the values of
        the signed headers, and the hash of the payload.
    """

    accessKey: str
    date: str
    region: str
    service: str
    signedHeaders: tuple[bytes, ...]
    signsHost: bool
    signsToken: bool
    text: str
    template: bytes

    @classmethod
    def of(
        cls, credential: tuple[str, str, str, str], signedHeaders: tuple[bytes, ...]
    ) -> "SignatureScope":
        """
        Make the scope of a credential and signed headers.

        @param credential: From L{parseCredential}.
        @param signedHeaders: From L{parseSignedHeaders}.
        """
        accessKey, date, region, service = credential
        text = f"{date}/{region}/{service}/{TERMINATOR}"
        # Interned: a thousand keys share these texts, which stay in the processor's cache.
        date, region, service, text = map(intern, (date, region, service, text))
        names, template = _template(signedHeaders)
        signsHost, signsToken = b"host" in names, _TOKEN_HEADER in names
        return cls(accessKey, date, region, service, names, signsHost, signsToken, text, template)


@lru_cache(maxsize=64)
def _template(signedHeaders: tuple[bytes, ...]) -> tuple[tuple[bytes, ...], bytes]:
    """Make the template of a canonical request; return it with its header names."""
    names = [name.replace(b"%", b"%%") for name in signedHeaders]
    lines = [b"%b", b"%b", b"%b", *[name + b":%b" for name in names], b"", b";".join(names)]
    return signedHeaders, b"\n".join([*lines, b"%b"])


class SignatureParams(Struct, frozen=True, eq=False):
    """
    The claim of a request, URL or form: its signer and signature. L{verify} proves it.

    A C{Struct}, because each request makes one, in a third of the time of other classes.

    @ivar timestamp: Time of the signature, C{20130524T000000Z}.
    @ivar seconds: Time of the signature, in seconds since the epoch.
    @ivar payloadHash: A SHA-256 in hexadecimal as sent (in either case), or one of the constants of
        this module.
    @ivar expires: Seconds for which a presigned URL is valid; 0 otherwise.
    """

    source: SignatureSource
    scope: SignatureScope
    signature: str
    timestamp: str
    seconds: int
    payloadHash: str
    expires: int = 0

    @property
    def accessKey(self) -> str:
        """The claimed access key."""
        return self.scope.accessKey


def parseCredential(text: str, source: SignatureSource) -> tuple[str, str, str, str]:
    """
    Parse a credential.

    @param text: C{access-key/YYYYMMDD/region/service/aws4_request}.
    @return: Access key, date, region and service. The region may be empty.
    @raise S3Error: The form or the date is invalid; worded for the source.
    """
    # Split from the right, because an access key may contain slashes.
    parts = text.rsplit("/", 4)
    if len(parts) != 5 or not all((*parts[:2], *parts[3:])):
        specimen = f'"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/{TERMINATOR}"'
        raise source.malformed(f"the Credential is mal-formed; expecting {specimen}.")
    accessKey, date, region, service, terminator = parts
    if terminator != TERMINATOR:
        detail = f'incorrect terminal "{terminator}". This endpoint uses "{TERMINATOR}".'
        raise source.malformed(detail)
    if not _DATE.fullmatch(date):
        raise source.malformed(
            f'incorrect date format "{date}". '
            'This date in the credential must be in the format "yyyyMMdd".'
        )
    return accessKey, date, region, service


def parseSignedHeaders(text: str, source: SignatureSource) -> tuple[bytes, ...]:
    """
    Parse a list of signed headers into sorted lower-case names.

    @param text: Names separated by semicolons.
    @raise S3Error: A name is invalid or repeated; worded for the source.
    """
    names = text.lower().split(";")
    if len(set(names)) != len(names) or not all(map(_TOKEN.fullmatch, names)):
        raise source.malformed("the SignedHeaders are mal-formed.")
    return tuple(name.encode() for name in sorted(names))


def parsePayloadHash(value: bytes) -> str:
    """
    Parse C{x-amz-content-sha256}.

    @param value: The value of the header.
    @raise S3Error: C{InvalidArgument} for values that S3 does not define, C{NotImplemented} for the
        elliptic curve variants.
    """
    text = _PAYLOADS.get(value)
    if text is not None:
        return text
    text = value.decode("latin-1").strip()
    if _SHA256.fullmatch(text) or text == UNSIGNED_PAYLOAD or text in STREAMING:
        return text
    if text in _NOT_BUILT:
        raise S3Error("NotImplemented")
    known = ", ".join([UNSIGNED_PAYLOAD, *sorted(STREAMING)])
    message = f"x-amz-content-sha256 must be {known} or a valid sha256 value."
    raise invalidArgument("x-amz-content-sha256", text, message)


# The scopes of clients by the part of C{Authorization} before the signature, which stays the same
# all day.
_scopes: dict[str, SignatureScope] = {}
_MAX_SCOPES = 2048
# A thousand keys, each with different signed headers for GET and PUT; some 2 KB each.
_MAX_BEGINNING = 1024


def parseHeaderClaim(headers: Mapping[bytes, bytes]) -> SignatureParams:
    """
    Parse the claim of an C{Authorization} header.

    @param headers: Values by lower-case name.
    @raise S3Error: C{AccessDenied} if the header or a date is absent, C{InvalidArgument} for
        another scheme, C{AuthorizationHeaderMalformed} if it cannot be parsed.
    """
    text = headers.get(b"authorization", b"").decode("latin-1").strip()
    beginning, _, signature = text.rpartition("Signature=")
    scope = _scopes.get(beginning)
    if scope is None or len(signature) != 64 or not text.isascii():
        scope = None
        credential, names, signature = _headerComponents(text)
    timestamp, seconds = _time(headers)
    payloadHash = headers.get(b"x-amz-content-sha256")
    if payloadHash is None:
        message = "Missing required header for this request: x-amz-content-sha256"
        raise S3Error("InvalidRequest", message)
    if scope is None:
        scope = SignatureScope.of(
            parseCredential(credential, SignatureSource.HEADER),
            parseSignedHeaders(names, SignatureSource.HEADER),
        )
        if len(beginning) <= _MAX_BEGINNING and text == beginning + "Signature=" + signature:
            if len(_scopes) >= _MAX_SCOPES:
                _scopes.clear()
            _scopes[beginning] = scope
    return SignatureParams(
        SignatureSource.HEADER, scope, signature, timestamp, seconds, parsePayloadHash(payloadHash)
    )


def _headerComponents(text: str) -> tuple[str, str, str]:
    """Return credential, names and signature of an C{Authorization} header."""
    if not text:
        raise S3Error("AccessDenied")
    scheme, space, rest = text.partition(" ")
    if space and scheme == _OLDER_SCHEME:
        message = "The authorization mechanism you have provided is not supported. "
        raise S3Error("InvalidRequest", f"{message}Please use {ALGORITHM}.")
    message = ""
    if not space or not text.isascii():
        message = "Authorization header is invalid -- one and only one ' ' (space) required."
    elif scheme != ALGORITHM:
        message = "Unsupported Authorization Type"
    if message:
        # The value is not repeated: with another scheme it may be a password.
        raise S3Error("InvalidArgument", message, fields={"ArgumentName": "Authorization"})
    pieces = [piece.strip().partition("=") for piece in rest.split(",", 3)]
    found = {name: value for name, _, value in pieces}
    credential, names, signature = (
        found.get(name, "") for name in ("Credential", "SignedHeaders", "Signature")
    )
    if not (credential and names and signature) or len(pieces) != 3:
        raise SignatureSource.HEADER.malformed(
            "the authorization header requires three components: "
            "Credential, SignedHeaders, and Signature."
        )
    return credential, names, signature


def _time(headers: Mapping[bytes, bytes]) -> tuple[str, int]:
    amzDate = headers.get(b"x-amz-date")
    date = headers.get(b"date", b"") if amzDate is None else amzDate
    timestamp = date.decode("latin-1").strip()
    seconds = parseAmzDate(timestamp)
    if seconds is None and amzDate is None:
        # Mail programs, and so Python's formatdate, write UTC like this.
        seconds = parseHttpDate(re.sub(rb"[+-]0000$", b"GMT", date.rstrip()))
        timestamp = "" if seconds is None else formatAmzDate(seconds)
    if seconds is None:
        text = "AWS authentication requires a valid Date or x-amz-date header"
        raise S3Error("AccessDenied", text)
    return timestamp, seconds


EXPIRES_LIMIT = 604_800
"""Longest validity of a presigned URL, in seconds: a week, the lifetime of its signing key."""

_ALGORITHM = b"X-Amz-Algorithm"
_CREDENTIAL = b"X-Amz-Credential"
_TIMESTAMP = b"X-Amz-Date"
_EXPIRES = b"X-Amz-Expires"
_SIGNED_HEADERS = b"X-Amz-SignedHeaders"
_SIGNATURE = b"X-Amz-Signature"
_CONTENT_SHA256 = b"X-Amz-Content-Sha256"
_REQUIRED = (_ALGORITHM, _CREDENTIAL, _TIMESTAMP, _EXPIRES, _SIGNED_HEADERS, _SIGNATURE)
_MARKS = frozenset({_ALGORITHM, _CREDENTIAL, _SIGNATURE})


def isPresigned(queryString: bytes) -> bool:
    """
    Return whether a query carries a claim, complete or not.

    @param queryString: The raw query, without the question mark.
    """
    if queryString.find(b"X-Amz-") < 0:
        return False
    return any(pair.partition(b"=")[0] in _MARKS for pair in queryString.split(b"&"))


def parseQueryClaim(queryString: bytes, headers: Mapping[bytes, bytes]) -> SignatureParams:
    """
    Parse the claim of a presigned URL.

    @param queryString: The raw query, without the question mark.
    @param headers: Values by lower-case name, which may include the payload's hash.
    @raise S3Error: C{AuthorizationQueryParametersError} if a parameter is missing, repeated or
        malformed.
    """
    found = _parameters(queryString)
    if not all(found.get(name) for name in _REQUIRED):
        raise S3Error("AuthorizationQueryParametersError")
    if found[_ALGORITHM] != ALGORITHM:
        raise _badQuery(f'X-Amz-Algorithm only supports "{ALGORITHM}"')
    credential = parseCredential(found[_CREDENTIAL], SignatureSource.QUERY)
    seconds = parseAmzDate(found[_TIMESTAMP])
    if seconds is None:
        form = "yyyyMMdd'T'HHmmss'Z'"
        raise _badQuery(f'X-Amz-Date must be in the ISO8601 Long Format "{form}"')
    return SignatureParams(
        SignatureSource.QUERY,
        SignatureScope.of(
            credential, parseSignedHeaders(found[_SIGNED_HEADERS], SignatureSource.QUERY)
        ),
        found[_SIGNATURE],
        found[_TIMESTAMP],
        seconds,
        _queryPayload(found, headers),
        _expires(found[_EXPIRES]),
    )


def _badQuery(message: str) -> S3Error:
    return S3Error("AuthorizationQueryParametersError", message)


def _parameters(queryString: bytes) -> dict[bytes, str]:
    found: dict[bytes, str] = {}
    for pair in queryString.split(b"&"):
        name, _, value = pair.partition(b"=")
        if name.lower() == b"x-amz-content-sha256":  # an SDK's header, moved here unchanged
            name = _CONTENT_SHA256
        if name in _REQUIRED or name == _CONTENT_SHA256:
            text = decodeComponent(value).decode("latin-1")
            if name in found:
                raise _badQuery(f"{name.decode()} must not be given more than once")
            if not text.isascii():
                raise _badQuery(f"{name.decode()} is not valid")
            found[name] = text
    return found


def _queryPayload(found: Mapping[bytes, str], headers: Mapping[bytes, bytes]) -> str:
    declared = [headers[b"x-amz-content-sha256"]] if b"x-amz-content-sha256" in headers else []
    if _CONTENT_SHA256 in found:
        declared.append(found[_CONTENT_SHA256].encode())
    if not declared:
        return UNSIGNED_PAYLOAD
    payloadHash = parsePayloadHash(declared[0])
    if parsePayloadHash(declared[-1]) != payloadHash:
        raise _badQuery("X-Amz-Content-Sha256 is not the x-amz-content-sha256 header")
    return payloadHash


def _expires(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise _badQuery("X-Amz-Expires should be a number")
    if digits != text:
        raise _badQuery("X-Amz-Expires must be non-negative")
    try:
        expires = parseDecimal(digits, EXPIRES_LIMIT)
    except ValueError:
        raise _badQuery(
            "X-Amz-Expires must be less than a week (in seconds); that is, the given "
            f"X-Amz-Expires must be less than {EXPIRES_LIMIT} seconds"
        ) from None
    if expires == 0:
        raise _badQuery("X-Amz-Expires must be at least one second")
    return expires


_UNRESERVED = rb"A-Za-z0-9._~-"
# Upper-case escapes of bytes that must be escaped; %2F is excluded. The patterns are possessive:
# otherwise a long path that does not match would take exponential time.
_ESCAPES = rb"%(?:[0189A-F][0-9A-F]|2[0-9A-C]|3[A-F]|40|5[B-E]|60|7[B-DF])"
_CANONICAL_PATH = re.compile(rb"(?:[/" + _UNRESERVED + rb"]++|" + _ESCAPES + rb")*+")
_CANONICAL_COMPONENT = re.compile(rb"(?:[" + _UNRESERVED + rb"]++|%2F|" + _ESCAPES + rb")*+")
_UNRESERVED_BYTES = b"".join(re.findall(b"[" + _UNRESERVED + b"]", bytes(range(128))))
_SIGNS = b"=&" * 100
"""The separators of a query's names and values; longer queries are rare."""


class SignedRequest(Struct, frozen=True, eq=False):
    """
    The signed parts of a request.

    @ivar path: The raw path, with escapes.
    @ivar queryString: The raw query, without the question mark.
    @ivar headers: Values by lower-case name; repeated values are joined with C{,}, without a space.
    """

    method: bytes
    path: bytes
    queryString: bytes
    headers: Mapping[bytes, bytes]


def canonicalRequest(request: SignedRequest, scope: SignatureScope, payloadHash: str) -> bytes:
    """
    Return the canonical form of a request.

    @param scope: The scope of the claim. A signed header that the request lacks has an empty value.
    @param payloadHash: The payload hash as sent.
    """
    headers = request.headers
    values = [headers.get(name, b"") for name in scope.signedHeaders]
    joined = b"".join(values)
    if joined.find(b" ") >= 0 or joined.find(b"\t") >= 0:
        values = [b" ".join(value.split()) for value in values]
    return scope.template % (
        request.method,
        canonicalPath(request.path),
        canonicalQuery(request.queryString) if request.queryString else b"",
        *values,
        payloadHash.encode(),
    )


def canonicalPath(path: bytes) -> bytes:
    """Encode a raw path by S3's rule: only unreserved characters and slashes stay unescaped."""
    # SDKs send canonical paths: 0.2 microseconds instead of 2.
    if _CANONICAL_PATH.fullmatch(path):
        return path
    return quote_from_bytes(unquote_to_bytes(path), safe="/").encode()


def canonicalQuery(queryString: bytes) -> bytes:
    """
    Encode and sort a raw query, without its signature.

    C{+} is a space, as in the parsed parameters: S3 accepts C{a+b} if C{a%20b} was signed.
    """
    # SDKs mostly send plain queries: checking all bytes at once halves the time.
    signs = queryString.translate(None, _UNRESERVED_BYTES)
    if signs == b"=" and not queryString.startswith(_SIGNATURE):
        return queryString
    isPlain = len(signs) % 2 == 1 and signs == _SIGNS[: len(signs)]
    # Only the literal name is the signature; an escaped variant is an ordinary parameter.
    pairs = [
        parts
        for pair in queryString.split(b"&")
        if pair and (parts := pair.partition(b"="))[0] != _SIGNATURE
    ]
    if not isPlain:
        pairs = [(_encoded(name), b"=", _encoded(value)) for name, _, value in pairs]
    pairs.sort()
    return b"&".join([name + b"=" + value for name, _, value in pairs])


def decodeComponent(raw: bytes) -> bytes:
    """
    Decode the escapes of a query's name or value.

    @param raw: The raw text; C{+} is a space.
    """
    return unquote_to_bytes(raw.replace(b"+", b" "))


def _encoded(raw: bytes) -> bytes:
    if _CANONICAL_COMPONENT.fullmatch(raw):
        return raw
    return quote_from_bytes(decodeComponent(raw), safe="").encode()


KEY_LIMIT = 4096
"""Cached signing keys: one per secret and day, about 600 bytes each."""


class SigningKey:
    """
    A key that signs for one day, region and service.

    @ivar secret: The 32 bytes of the key.
    """

    __slots__ = ("_inner", "_outer", "secret")

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self._inner, self._outer = prepareKey(secret)

    def sign(self, stringToSign: bytes) -> str:
        """Return the signature of a string: 64 lower-case hexadecimal digits."""
        # As hmacs.authenticate, without a call.
        inner = self._inner.copy()
        inner.update(stringToSign)
        outer = self._outer.copy()
        outer.update(inner.digest())
        signature: str = outer.hexdigest()
        return signature


class SigningKeys:
    """
    A cache of signing keys, derived once per secret and day. Must be used in the reactor thread.

    A derivation takes 8 microseconds, the rest of the verification 6.
    """

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str, str, str], SigningKey] = {}
        # The secret of unknown access keys, so that their refusal takes as long as the refusal of
        # any wrong signature.
        self._decoy = token_hex(20)

    def find(self, secret: str | None, date: str, region: str, service: str) -> SigningKey:
        """
        Return the key for a scope.

        @param secret: The secret key; L{None} for an unknown access key.
        @param date: C{YYYYMMDD}.
        @param region: The region of the scope.
        @param service: The service of the scope.
        """
        scope = (self._decoy if secret is None else secret, date, region, service)
        key = self._keys.get(scope)
        if key is None:
            if len(self._keys) >= KEY_LIMIT:
                del self._keys[next(iter(self._keys))]
            key = self._keys[scope] = deriveSigningKey(*scope)
        return key


def deriveSigningKey(secret: str, date: str, region: str, service: str) -> SigningKey:
    """
    Derive the key that signs for one day, region and service.

    @param secret: The secret of the access key.
    @param date: C{YYYYMMDD}.
    """
    key = b"AWS4" + secret.encode()
    for part in (date, region, service, TERMINATOR):
        key = hmac.digest(key, part.encode(), "sha256")
    return SigningKey(key)


def sameSignature(left: str, right: str) -> bool:
    """
    Compare two signatures in constant time.

    @param right: The client's signature, of any characters.
    """
    return hmac.compare_digest(left.encode(), right.encode())


def verify(
    claim: SignatureParams,
    request: SignedRequest,
    secret: str | None,
    region: str,
    now: float,
    keys: SigningKeys,
    service: str = "s3",
) -> SigningKey:
    """
    Verify a claim.

    @param secret: The secret of the claimed access key. L{None} if the key does not exist: the
        signature is computed anyway, so that the refusal takes as long.
    @param region: The only region of this server.
    @param now: Seconds since the epoch.
    @param service: The service that the claim must name.
    @return: The signing key, which may also sign the chunks of the body.
    @raise S3Error: For another service or region, an invalid time, an unsigned header, an unknown
        key (C{InvalidAccessKeyId}) or a wrong signature (C{SignatureDoesNotMatch}).
    """
    scope = claim.scope
    _checkScope(claim, region, service)
    _checkTime(claim, now)
    headers, signed = request.headers, scope.signedHeaders
    unsigned = [name for name in headers if name[:6] == b"x-amz-" and name not in signed]
    if unsigned or not scope.signsHost:
        raise _notSigned(unsigned if scope.signsHost else [*unsigned, b"host"])
    canonical = canonicalRequest(request, scope, claim.payloadHash)
    digest = sha256(canonical).hexdigest()
    stringToSign = f"{ALGORITHM}\n{claim.timestamp}\n{scope.text}\n{digest}"
    return _prove(claim, stringToSign, secret, keys, canonical)


def _prove(
    claim: SignatureParams,
    stringToSign: str,
    secret: str | None,
    keys: SigningKeys,
    canonical: bytes | None = None,
) -> SigningKey:
    """Compare the signature, and return the signing key."""
    scope = claim.scope
    signingKey = keys.find(secret, scope.date, scope.region, scope.service)
    matches = sameSignature(signingKey.sign(stringToSign.encode()), claim.signature)
    if secret is None:
        raise unknownKey(claim.accessKey)
    if not matches:
        raise wrongSignature(claim.accessKey, claim.signature, stringToSign, canonical)
    return signingKey


def _checkScope(claim: SignatureParams, region: str, service: str = "s3") -> None:
    scope = claim.scope
    if scope.service != service:
        detail = f'incorrect service "{scope.service}". This endpoint belongs to "{service}".'
        raise claim.source.malformed(detail)
    # SDKs sign calls to services without regions for Amazon's first one, minio-py for none.
    if scope.region != region and (service == "s3" or scope.region not in ("", GLOBAL_REGION)):
        raise claim.source.wrongRegion(scope.region, region)
    if not claim.timestamp.startswith(scope.date):
        raise S3Error(
            "SignatureDoesNotMatch",
            f"Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date "
            f"from HTTP: '{scope.date}' != '{claim.timestamp[:8]}'.",
        )


def _checkTime(claim: SignatureParams, now: float) -> None:
    ahead = claim.seconds - now
    if claim.source is not SignatureSource.QUERY:
        if abs(ahead) > SKEW_LIMIT:
            fields = {
                "RequestTime": claim.timestamp,
                "ServerTime": isoSeconds(int(now)),
                "MaxAllowedSkewMilliseconds": str(SKEW_LIMIT * 1000),
            }
            raise S3Error("RequestTimeTooSkewed", fields=fields)
    elif ahead > SKEW_LIMIT:
        raise S3Error("AccessDenied", "Request is not yet valid")
    elif now > claim.seconds + claim.expires:
        fields = {
            "X-Amz-Expires": str(claim.expires),
            "Expires": isoSeconds(claim.seconds + claim.expires),
            "ServerTime": isoSeconds(int(now)),
        }
        raise S3Error("AccessDenied", "Request has expired", fields=fields)


def _notSigned(names: Sequence[bytes]) -> S3Error:
    return S3Error(
        "AccessDenied",
        "There were headers present in the request which were not signed",
        fields={"HeadersNotSigned": ", ".join(name.decode("latin-1") for name in names)},
    )


def unknownKey(accessKey: str) -> S3Error:
    """Make the error for an unknown access key."""
    return S3Error("InvalidAccessKeyId", fields={"AWSAccessKeyId": accessKey})


# Clients write errors to their logs, so these do not repeat the encryption key of a client.
_CUSTOMER_KEY = re.compile("(encryption-customer-key[:=])[^&\n]+", re.IGNORECASE)


def wrongSignature(
    accessKey: str, signature: str, stringToSign: str, canonical: bytes | None = None
) -> S3Error:
    """
    Make the error for a wrong signature.

    @param signature: The client's signature.
    @param stringToSign: Shown in the error document, as S3 does.
    @param canonical: The canonical request, also shown.
    """
    fields = {
        "AWSAccessKeyId": accessKey,
        "StringToSign": _CUSTOMER_KEY.sub(r"\1***", stringToSign),
        "SignatureProvided": signature,
    }
    if canonical is not None:
        shown = canonical.decode("utf-8", "backslashreplace")
        fields["CanonicalRequest"] = _CUSTOMER_KEY.sub(r"\1***", shown)
    return S3Error("SignatureDoesNotMatch", fields=fields)


_FORM_FIELDS = ("x-amz-signature", "x-amz-algorithm", "x-amz-credential", "x-amz-date")


def isSignedForm(fields: Mapping[str, str]) -> bool:
    """
    Return whether a form carries a claim, complete or not.

    @param fields: Values by lower-case name.
    """
    return any(name in fields for name in _FORM_FIELDS)


def missingField(name: str) -> S3Error:
    """Make the error for a missing required form field."""
    text = f"Bucket POST must contain a field named '{name}'."
    hint = "  If it is specified, please check the order of the fields."
    return invalidArgument(name, "", text + hint)


def parseFormClaim(fields: Mapping[str, str]) -> SignatureParams:
    """
    Parse the claim of a form.

    @param fields: Values by lower-case name.
    @raise S3Error: C{AccessDenied} if the claim or the policy is absent, C{InvalidArgument} if a
        field is absent or cannot be parsed.
    """
    if not fields.get("policy") or not isSignedForm(fields):
        raise S3Error("AccessDenied")
    for name in _FORM_FIELDS:
        if not fields.get(name):
            raise missingField(name)
    if fields["x-amz-algorithm"] != ALGORITHM:
        text = f"Only {ALGORITHM} is supported"
        raise invalidArgument("X-Amz-Algorithm", fields["x-amz-algorithm"], text)
    timestamp = fields["x-amz-date"]
    seconds = parseAmzDate(timestamp)
    if seconds is None:
        text = "X-Amz-Date must be formatted via ISO8601 Long format"
        raise invalidArgument("X-Amz-Date", timestamp, text)
    return SignatureParams(
        SignatureSource.FORM,
        SignatureScope.of(parseCredential(fields["x-amz-credential"], SignatureSource.FORM), ()),
        fields["x-amz-signature"],
        timestamp,
        seconds,
        UNSIGNED_PAYLOAD,
    )


def verifyForm(
    claim: SignatureParams, policyBase64: str, secret: str | None, region: str, keys: SigningKeys
) -> None:
    """
    Verify the claim of a form. The policy limits its validity; see C{postform}.

    @param policyBase64: The raw field C{policy}.
    @param secret: The secret of the claimed access key; L{None} if the key does not exist.
    @raise S3Error: As L{verify}.
    """
    _checkScope(claim, region)
    _prove(claim, policyBase64, secret, keys)
