"""
Custom requests, signed with botocore's code and sent unchanged.

A client library would repair the defects that an attack needs. Here a request is a value that can
be signed, changed afterwards, and sent byte for byte.
"""

import hashlib
import hmac
import re
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http.client import HTTPResponse
from urllib.parse import quote, unquote_to_bytes

from attrs import evolve, field, frozen
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support.clients import REGION, ROOT, Account

UNSIGNED = "UNSIGNED-PAYLOAD"
UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
SIGNED_CHUNKS = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
SIGNED_CHUNKS_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"

ANSWER_SECONDS = 60
"""Timeout of an answer, far above the usual time, so that a hang ends."""


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


@frozen
class Outgoing:
    """
    A request before L{exchange} adds the required headers.

    @ivar target: The request target, percent-encoded.
    """

    method: str
    target: str
    headers: Mapping[str, str] = field(factory=dict)
    body: bytes = b""

    def adding(self, **headers: str) -> "Outgoing":
        """Add headers; an underscore in a name stands for a hyphen."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return evolve(self, headers={**self.headers, **named})

    def without(self, *names: str) -> "Outgoing":
        """Remove headers."""
        return evolve(self, headers={n: v for n, v in self.headers.items() if n not in names})

    def resigned(self, old: str, new: str) -> "Outgoing":
        """
        Change the C{Authorization} field.

        @raise AssertionError: If the field does not contain C{old}, so that no attack is
            ineffective.
        """
        value = self.headers["Authorization"]
        assert old in value, (old, value)
        return self.adding(Authorization=value.replace(old, new, 1))

    def replacing(self, old: str, new: str) -> "Outgoing":
        """
        Change the target.

        @raise AssertionError: If the target does not contain C{old}, so that no attack is
            ineffective.
        """
        assert old in self.target, (old, self.target)
        return evolve(self, target=self.target.replace(old, new, 1))


@frozen
class Answer:
    """A complete answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """Return the S3 error code of the document; empty without one."""
        match = re.search(rb"<Code>([A-Za-z0-9]+)</Code>", self.body)
        return match[1].decode() if match else ""


@frozen
class Signer:
    """
    Signs requests of one account to one host.

    @ivar host: The value of the C{Host} field.
    @ivar skewSeconds: The offset of this client's clock.
    """

    host: str
    account: Account = ROOT
    region: str = REGION
    service: str = "s3"
    skewSeconds: int = 0

    def timestamp(self) -> str:
        """Return the time of this client's clock."""
        now = datetime.now(UTC) + timedelta(seconds=self.skewSeconds)
        return now.strftime("%Y%m%dT%H%M%SZ")

    def sign(self, outgoing: Outgoing, payloadHash: str | None = None) -> Outgoing:
        """
        Sign in the C{Authorization} field, covering all present headers.

        @param payloadHash: The stated hash of the body; C{None} for its SHA-256.
        """
        stamp = self.timestamp()
        stated = payloadHash or _sha256(outgoing.body)
        covered = outgoing.adding(host=self.host, x_amz_date=stamp, x_amz_content_sha256=stated)
        auth = S3SigV4Auth(self._credentials(), self.service, self.region)
        request = self._request(covered, stamp)
        text = auth.string_to_sign(request, auth.canonical_request(request))
        signature = auth.signature(text, request)
        names = auth.signed_headers(auth.headers_to_sign(request))
        return covered.adding(
            Authorization=f"AWS4-HMAC-SHA256 Credential={auth.scope(request)}, "
            f"SignedHeaders={names}, Signature={signature}"
        )

    def presign(
        self, outgoing: Outgoing, *, expires: str = "600", hostless: bool = False
    ) -> Outgoing:
        """
        Sign in the query, covering all present headers and C{host}.

        @param hostless: Whether to omit C{host} from an otherwise correct signature.
        """
        stamp = self.timestamp()
        covered = outgoing.adding(host=self.host)
        auth = S3SigV4QueryAuth(self._credentials(), self.service, self.region)
        bare = self._request(covered, stamp)
        names = auth.signed_headers(auth.headers_to_sign(bare))
        parameters = {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": auth.scope(bare),
            "X-Amz-Date": stamp,
            "X-Amz-Expires": expires,
            "X-Amz-SignedHeaders": names.removeprefix("host;") if hostless else names,
        }
        query = "&".join(
            f"{name}={quote(value, safe='-_.~')}" for name, value in parameters.items()
        )
        joint = "&" if "?" in covered.target else "?"
        full = evolve(covered, target=f"{covered.target}{joint}{query}")
        request = self._request(full, stamp)
        canonical = auth.canonical_request(request)
        if hostless:
            canonical = canonical.replace(f"\nhost:{self.host}\n", "\n").replace("\nhost;", "\n")
        signature = auth.signature(auth.string_to_sign(request, canonical), request)
        return evolve(full, target=f"{full.target}&X-Amz-Signature={signature}")

    def signPolicy(self, policy: str, date: str) -> str:
        """Sign the policy of a POST form, which is base64 text, for a day such as C{20260101}."""
        return hmac.new(self._key(date), policy.encode(), hashlib.sha256).hexdigest()

    def chunkFrames(
        self, signed: Outgoing, chunks: Sequence[bytes], trailer: bytes = b""
    ) -> list[bytes]:
        """
        Frame a body as signed chunks, chained to the signature of the head.

        @param signed: A request signed with L{SIGNED_CHUNKS}, or, for a body with a trailer, with
            L{SIGNED_CHUNKS_TRAILER}.
        @param trailer: One line, without the line ending.
        @return: A frame for each chunk, the final frame, and the trailer if given.
        """
        previous = signed.headers["Authorization"].rpartition("=")[2]
        stamp = signed.headers["x-amz-date"]
        frames = []
        for chunk in [*chunks, b""]:
            hashes = (_sha256(b""), _sha256(chunk))
            previous = self._link("PAYLOAD", stamp, previous, *hashes)
            frames.append(b"%x;chunk-signature=%s\r\n" % (len(chunk), previous.encode()) + chunk)
        ended = [frame + b"\r\n" for frame in frames]
        if trailer:
            last = self._link("TRAILER", stamp, previous, _sha256(trailer + b"\n"))
            signature = b"x-amz-trailer-signature:" + last.encode()
            ended[-1:] = [frames[-1], trailer + b"\r\n" + signature + b"\r\n\r\n"]
        return ended

    def _link(self, kind: str, stamp: str, previous: str, *hashes: str) -> str:
        lines = (f"AWS4-HMAC-SHA256-{kind}", stamp, self._scope(stamp), previous, *hashes)
        return hmac.new(self._key(stamp[:8]), "\n".join(lines).encode(), hashlib.sha256).hexdigest()

    def _scope(self, stamp: str) -> str:
        return f"{stamp[:8]}/{self.region}/{self.service}/aws4_request"

    def _key(self, date: str) -> bytes:
        key = b"AWS4" + self.account.secretKey.encode()
        for part in (date, self.region, self.service, "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return key

    def _credentials(self) -> Credentials:
        return Credentials(self.account.accessKey, self.account.secretKey)

    def _request(self, outgoing: Outgoing, stamp: str) -> AWSRequest:
        request = AWSRequest(
            outgoing.method,
            f"http://{self.host}{_canonicalTarget(outgoing.target)}",
            headers=dict(outgoing.headers),
            data=outgoing.body,
        )
        request.context["timestamp"] = stamp
        return request


def _canonicalTarget(target: str) -> str:
    """
    Escape a target in the form that S3 signs.

    botocore signs a target unchanged, because it has escaped it itself; S3 unescapes the received
    target and escapes it again.
    """
    path, mark, query = target.partition("?")
    pairs = [
        "=".join(quote(unquote_to_bytes(each), safe="") for each in pair.split("=", 1))
        for pair in query.split("&")
    ]
    return quote(unquote_to_bytes(path), safe="/") + mark + "&".join(pairs)


def unsignedChunks(chunks: Sequence[bytes], trailer: bytes = b"") -> bytes:
    """Frame a body as unsigned chunks, with trailer lines that end in CRLF."""
    frames = [b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks]
    return b"".join([*frames, b"0\r\n", trailer, b"\r\n"])


def wireBytes(outgoing: Outgoing, host: str) -> bytes:
    """
    Encode a request for the wire.

    C{Content-Length}, C{Host} and C{Connection: close} are added if the request lacks them.
    """
    headers = {name.lower(): value for name, value in outgoing.headers.items()}
    headers.setdefault("host", host)
    headers.setdefault("connection", "close")
    if "transfer-encoding" not in headers:
        headers.setdefault("content-length", str(len(outgoing.body)))
    lines = [f"{outgoing.method} {outgoing.target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + outgoing.body


def exchange(address: tuple[str, int], outgoing: Outgoing, source: str = "127.0.0.1") -> Answer:
    """
    Send a request on a new connection and read the answer.

    An answer before the server has read the body is also read.

    @param source: The loopback address of the client.
    """
    wire = wireBytes(outgoing, f"{address[0]}:{address[1]}")
    with socket.create_connection(address, ANSWER_SECONDS, (source, 0)) as connection:
        try:
            connection.sendall(wire)
        except (BrokenPipeError, ConnectionResetError):
            pass  # The server has answered already, which is the tested case.
        response = HTTPResponse(connection, method=outgoing.method)
        response.begin()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, response.read())
