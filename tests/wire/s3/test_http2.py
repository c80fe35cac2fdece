"""S3 over HTTP/2: streams of one connection that end badly, compete, or belong to others."""

import os
import socket
from base64 import b64encode
from collections.abc import Sequence
from zlib import crc32

import h2.config
import h2.connection
import h2.events
from attrs import define, field

from tests.support.clients import ROOT, Account
from tests.support.http2 import headers
from tests.support.s3signer import (
    ANSWER_SECONDS,
    SIGNED_CHUNKS_TRAILER,
    UNSIGNED_TRAILER,
    Answer,
    Outgoing,
    unsignedChunks,
)
from tests.support.selection import long
from tests.wire.s3.fixture import S3Case, eventually, leftovers, runKeys

LARGE = os.urandom(1 << 20) * 4
"""More than all windows and buffers hold."""

_ANY = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")]

_CONNECTION = {"host", "connection", "transfer-encoding"}


@define(eq=False)
class _Stream:
    """
    What a stream has received.

    @ivar reset: The code of RST_STREAM.
    """

    heads: list[dict[str, str]] = field(factory=list)
    body: bytearray = field(factory=bytearray)
    isEnded: bool = False
    reset: int | None = None


class Connection:
    """
    A connection with prior knowledge.

    @ivar grants: Whether received bytes are granted again.
    @ivar streams: The streams by number.
    """

    def __init__(self, address: tuple[str, int], grants: bool = True) -> None:
        self.grants = grants
        self.streams: dict[int, _Stream] = {}
        self.isClosed = False
        self._socket = socket.create_connection(address, ANSWER_SECONDS)
        self.core = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.core.initiate_connection()
        self.flush()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *exception: object) -> None:
        self._socket.close()

    def flush(self) -> None:
        """Send what the core has encoded."""
        self._socket.sendall(self.core.data_to_send())

    def begin(self, outgoing: Outgoing, isEnded: bool = False) -> int:
        """Send the head of a request; return its stream."""
        number: int = self.core.get_next_available_stream_id()
        fields = {name.lower(): value for name, value in outgoing.headers.items()}
        host = fields.get("host", "{}:{}".format(*self._socket.getpeername()[:2]))
        head = [
            (":method", outgoing.method),
            (":scheme", "http"),
            (":authority", host),
            (":path", outgoing.target),
        ]
        head += [pair for pair in fields.items() if pair[0] not in _CONNECTION]
        self.streams[number] = _Stream()
        self.core.send_headers(number, head, end_stream=isEnded)
        self.flush()
        return number

    def send(self, number: int, body: bytes, isEnded: bool = False) -> None:
        """Send a part of a body as the windows allow."""
        stream = self.streams[number]
        view = memoryview(body)
        while view and not (stream.isEnded or stream.reset is not None or self.isClosed):
            room = min(
                self.core.local_flow_control_window(number), self.core.max_outbound_frame_size
            )
            if room:
                self.core.send_data(number, bytes(view[:room]))
                view = view[room:]
                self.flush()
            else:
                self.receive()
        if isEnded and not view and stream.reset is None:
            self.core.end_stream(number)
            self.flush()

    def requestRaw(self, block: bytes) -> int:
        """Send a request without a body as this header block; return its stream."""
        number: int = self.core.get_next_available_stream_id()
        self.streams[number] = _Stream()
        # The core only notes that the stream is open.
        self.core.send_headers(number, _ANY, end_stream=True)
        self.core.data_to_send()
        self._socket.sendall(headers(number, block))
        return number

    def request(self, outgoing: Outgoing) -> int:
        """Send a whole request; return its stream."""
        sized = outgoing.adding(content_length=str(len(outgoing.body)))
        number = self.begin(sized, not outgoing.body)
        if outgoing.body:
            self.send(number, outgoing.body, True)
        return number

    def answer(self, number: int) -> Answer:
        """Wait for the end of a response."""
        stream = self.streams[number]
        while not stream.isEnded:
            assert stream.reset is None and not self.isClosed, (stream.reset, self.isClosed)
            self.receive()
        head = stream.heads[-1]
        return Answer(int(head[":status"]), head, bytes(stream.body))

    def exchange(self, outgoing: Outgoing) -> Answer:
        """Send a request and wait for its response."""
        return self.answer(self.request(outgoing))

    def receive(self) -> None:
        """Process what arrives next."""
        data = self._socket.recv(1 << 16)
        if not data:
            self.isClosed = True
            return
        for event in self.core.receive_data(data):
            if isinstance(event, h2.events.ConnectionTerminated):
                self.isClosed = True
            stream = self.streams.get(getattr(event, "stream_id", None) or 0)
            if stream is None:
                continue
            if isinstance(
                event, h2.events.ResponseReceived | h2.events.InformationalResponseReceived
            ):
                stream.heads.append(dict(event.headers))
            elif isinstance(event, h2.events.DataReceived):
                stream.body += event.data
                if self.grants:
                    self.core.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id
                    )
            elif isinstance(event, h2.events.StreamEnded):
                stream.isEnded = True
            elif isinstance(event, h2.events.StreamReset):
                stream.reset = int(event.error_code)
        self.flush()


class HTTP2Case(S3Case):
    """Tests with connections of their own."""

    def connect(self, grants: bool = True) -> Connection:
        """Open a connection."""
        connection = Connection(self.address, grants)
        self.addCleanup(connection.__exit__)
        return connection

    def put(self, bucket: str, body: bytes, key: str = "k", **more: str) -> Outgoing:
        """Make a signed request that stores an object."""
        return self.signer.sign(Outgoing("PUT", f"/{bucket}/{key}", body=body).adding(**more))


class IdentityTests(HTTP2Case):
    """Requests of several keys on one connection."""

    def ask(self, connection: Connection, accounts: Sequence[Account], path: str) -> list[int]:
        """Send one request of each, pipelined; return the statuses."""
        numbers = [
            connection.request(Outgoing("GET", path, each.plainHeaders())) for each in accounts
        ]
        return [connection.answer(number).status for number in numbers]

    @long("issues several keys")
    def test_mixed(self) -> None:
        """
        Each request has its own identity, though its header block is the same as before but for
        the credentials, which the client keeps in its table, and has none without them.
        """
        bucket = self.makeBucket()
        self.s3.put_object(Bucket=bucket, Key="k", Body=b"secret")
        stranger = self.issueKey("stranger")
        nobody = Account("", "")
        wrong = Account(ROOT.accessKey, stranger.secretKey)
        statuses = {ROOT: 200, stranger: 403, nobody: 403, wrong: 401}
        accounts = [ROOT, stranger, nobody, ROOT, wrong, stranger, ROOT, nobody]
        connection = self.connect()
        for _ in range(5):
            for path in (f"/{bucket}/k", f"/{bucket}"):
                numbers = []
                for each in accounts:
                    fields = {} if each is nobody else each.plainHeaders()
                    numbers.append(connection.request(Outgoing("GET", path, fields)))
                for number, each in zip(numbers, accounts, strict=True):
                    answer = connection.answer(number)
                    if answer.status == 200:
                        self.assertIs(each, ROOT)
                    expected = statuses[each]
                    self.assertEqual(answer.status, expected, each)
                    self.assertEqual(b"secret" in answer.body, each is ROOT and path[-2:] == "/k")

    @long("issues a key")
    def test_sameBlock(self) -> None:
        """The same bytes of a header block are another identity when the table has changed."""
        bucket = self.makeBucket()
        stranger = self.issueKey("sameblock")
        connection = self.connect()
        host = self.host.encode()
        begin = b"\x82\x86\x84\x01" + bytes([len(host)]) + host
        newest = begin + b"\xbf\xbe"

        def inserting(account: Account) -> bytes:
            fields = [each.encode() for pair in account.plainHeaders().items() for each in pair]
            strings = [bytes([len(each)]) + each for each in fields]
            return (
                begin + b"\x40" + b"\x40".join([strings[0] + strings[1], strings[2] + strings[3]])
            )

        for _ in range(2):
            for account in (ROOT, stranger):
                blocks = [inserting(account), newest, newest, newest]
                numbers = [connection.requestRaw(block) for block in blocks]
                for number in numbers:
                    answer = connection.answer(number)
                    self.assertEqual(answer.status, 200)
                    self.assertEqual(bucket.encode() in answer.body, account is ROOT)

    @long("issues a key")
    def test_revoked(self) -> None:
        """A key that is revoked is refused on the connections that it has used."""
        account = self.issueKey("leaving")
        connection = self.connect()
        request = Outgoing("GET", "/", account.plainHeaders())
        for _ in range(3):
            self.assertEqual(connection.exchange(request).status, 200)
        self.revokeKey(account)
        self.assertTrue(eventually(lambda: connection.exchange(request).status == 401))
        root = Outgoing("GET", "/", ROOT.plainHeaders())
        self.assertEqual(connection.exchange(root).status, 200)
        self.assertEqual(connection.exchange(request).status, 401)

    def revokeKey(self, account: Account) -> None:
        """Revoke a key."""
        runKeys("revoke", *self.daemon.storeArguments, "--access-key", account.accessKey)

    def test_signatures(self) -> None:
        """A signature is of its own request: another path or method with it is refused."""
        bucket = self.makeBucket()
        connection = self.connect()
        signed = self.put(bucket, b"body")
        self.assertEqual(connection.exchange(signed).status, 200)
        for moved in (
            signed.replacing("/k", "/other"),
            Outgoing("DELETE", signed.target, signed.headers),
        ):
            self.assertEqual(connection.exchange(moved).status, 403)
        self.assertHolds(bucket, "k", b"body")
        self.assertMissing(bucket, "other")


class UploadTests(HTTP2Case):
    """Uploads that do not end as they should."""

    def assertKept(self, bucket: str) -> None:
        """Check that the object is the old one, and that nothing of the upload is left."""
        self.assertHolds(bucket, "k", b"old")
        self.assertTrue(eventually(lambda: not leftovers(self.daemon)))

    def begun(self, **more: str) -> tuple[str, Connection, int]:
        """Have an object that an upload in progress shall replace."""
        bucket = self.makeBucket()
        self.s3.put_object(Bucket=bucket, Key="k", Body=b"old")
        connection = self.connect()
        head = self.put(bucket, LARGE, **more).adding(content_length=str(len(LARGE)))
        number = connection.begin(head)
        connection.send(number, LARGE[: len(LARGE) // 2])
        return bucket, connection, number

    def test_reset(self) -> None:
        """An upload that is reset stores nothing, and its connection goes on."""
        bucket, connection, number = self.begun()
        connection.core.reset_stream(number)
        connection.flush()
        self.assertKept(bucket)
        self.assertEqual(connection.exchange(self.put(bucket, b"new")).status, 200)
        self.assertHolds(bucket, "k", b"new")

    def test_short(self) -> None:
        """An upload that ends before its length is an error, and stores nothing."""
        bucket, connection, number = self.begun()
        connection.core.end_stream(number)
        connection.flush()
        stream = connection.streams[number]
        while stream.reset is None and not stream.isEnded:
            connection.receive()
        if stream.heads:
            self.assertGreaterEqual(int(stream.heads[-1][":status"]), 400)
        self.assertKept(bucket)

    def test_connectionLost(self) -> None:
        """A connection that is closed ends its uploads, also after GOAWAY."""
        for saysGoodbye in (False, True):
            bucket, connection, _ = self.begun()
            if saysGoodbye:
                connection.core.close_connection()
                connection.flush()
            connection.__exit__()
            self.assertKept(bucket)

    def test_wrongDigest(self) -> None:
        """A body that is not the signed one stores nothing."""
        bucket, connection, number = self.begun()
        rest = bytearray(LARGE[len(LARGE) // 2 :])
        rest[-1] ^= 1
        connection.send(number, bytes(rest), True)
        self.assertEqual(connection.answer(number).status, 400)
        self.assertKept(bucket)

    def test_trailers(self) -> None:
        """Checksums after chunks are verified, signed and unsigned; a wrong one stores nothing."""
        bucket = self.makeBucket()
        self.s3.put_object(Bucket=bucket, Key="k", Body=b"old")
        connection = self.connect()
        chunks = [LARGE[:100_000], LARGE[:8192]]
        whole = b"".join(chunks)
        for isRight in (False, True):
            crc = b64encode((crc32(whole) ^ (not isRight)).to_bytes(4, "big"))
            trailer = b"x-amz-checksum-crc32:" + crc
            for kind in (UNSIGNED_TRAILER, SIGNED_CHUNKS_TRAILER):
                bare = Outgoing("PUT", f"/{bucket}/k").adding(
                    content_encoding="aws-chunked",
                    x_amz_decoded_content_length=str(len(whole)),
                    x_amz_trailer="x-amz-checksum-crc32",
                )
                signed = self.signer.sign(bare, kind)
                if kind == UNSIGNED_TRAILER:
                    body = unsignedChunks(chunks, trailer + b"\r\n")
                else:
                    body = b"".join(self.signer.chunkFrames(signed, chunks, trailer))
                answer = connection.exchange(Outgoing("PUT", signed.target, signed.headers, body))
                self.assertEqual(answer.status, 200 if isRight else 400, answer)
                self.assertHolds(bucket, "k", whole if isRight else b"old")

    def test_expect(self) -> None:
        """100 Continue comes before a body that is wanted, and a refusal instead of one."""
        bucket = self.makeBucket()
        connection = self.connect()
        length = str(len(LARGE))
        head = self.put(bucket, LARGE).adding(content_length=length, expect="100-continue")
        for outgoing, status in (
            (head, "100"),
            (head.resigned("Signature=", "Signature=0"), "403"),
        ):
            number = connection.begin(outgoing)
            stream = connection.streams[number]
            while not stream.heads:
                connection.receive()
            self.assertEqual(stream.heads[0][":status"], status)
            if status == "100":
                connection.send(number, LARGE, True)
                self.assertEqual(connection.answer(number).status, 200)
        self.assertHolds(bucket, "k", LARGE)


class ConditionTests(HTTP2Case):
    """Conditional writes of parallel streams."""

    def test_one(self) -> None:
        """Of parallel writes of a new object exactly one succeeds, whatever the size."""
        for size in (100, 200_000):
            bucket = self.makeBucket()
            connection = self.connect()
            bodies = [bytes([65 + number]) * size for number in range(16)]
            numbers = [
                connection.request(self.put(bucket, body, if_none_match="*")) for body in bodies
            ]
            statuses = [connection.answer(number).status for number in numbers]
            self.assertEqual(sorted(set(statuses)), [200, 412])
            self.assertEqual(statuses.count(200), 1)
            self.assertHolds(bucket, "k", bodies[statuses.index(200)])

    def test_chain(self) -> None:
        """Of parallel writes on one ETag exactly one succeeds."""
        bucket = self.makeBucket()
        etag = self.s3.put_object(Bucket=bucket, Key="k", Body=b"old")["ETag"]
        connection = self.connect()
        bodies = [b"%d" % number for number in range(16)]
        numbers = [connection.request(self.put(bucket, body, if_match=etag)) for body in bodies]
        statuses = [connection.answer(number).status for number in numbers]
        self.assertEqual((statuses.count(200), statuses.count(412)), (1, 15))
        self.assertHolds(bucket, "k", bodies[statuses.index(200)])


class DownloadTests(HTTP2Case):
    """Downloads whose client does not read."""

    def blobs(self) -> set[str]:
        """Return the names of all blobs."""
        return {each.name for each in (self.daemon.data / "blobs").rglob("*") if each.is_file()}

    @long("counts the files of a store, which nodes of a cluster do not have")
    def test_pausedAndReset(self) -> None:
        """A paused download holds its blob until it is reset or lost, sealed or not."""
        bucket = self.makeBucket()
        self.s3.put_object(Bucket=bucket, Key="first", Body=b"1", ServerSideEncryption="aws:kms")
        for isLost in (False, True):
            before = self.blobs()
            self.s3.put_object(Bucket=bucket, Key="plain", Body=LARGE)
            self.s3.put_object(Bucket=bucket, Key="kms", Body=LARGE, ServerSideEncryption="aws:kms")
            made = self.blobs() - before
            connection = self.connect(grants=False)
            numbers = [
                connection.request(self.signer.sign(Outgoing("GET", f"/{bucket}/{key}")))
                for key in ("plain", "kms")
                for _ in range(10)
            ]
            while not all(each.heads for each in connection.streams.values()):
                connection.receive()
            for key in ("plain", "kms"):
                self.s3.delete_object(Bucket=bucket, Key=key)
            self.assertEqual(len(made & self.blobs()), 2)
            if isLost:
                connection.__exit__()
            else:
                for number in numbers:
                    connection.core.reset_stream(number)
                connection.flush()
            self.assertTrue(eventually(lambda made=made: not made & self.blobs()))

    def test_replacedWhilePaused(self) -> None:
        """A paused download goes on with the bytes that it began with, though they are deleted."""
        bucket = self.makeBucket()
        for key, more in (("plain", {}), ("kms", {"ServerSideEncryption": "aws:kms"})):
            self.s3.put_object(Bucket=bucket, Key=key, Body=LARGE, **more)
            connection = self.connect(grants=False)
            number = connection.request(self.signer.sign(Outgoing("GET", f"/{bucket}/{key}")))
            while len(connection.streams[number].body) < 65535:
                connection.receive()
            self.s3.put_object(Bucket=bucket, Key=key, Body=b"new")
            self.s3.delete_object(Bucket=bucket, Key=key)
            connection.grants = True
            connection.core.acknowledge_received_data(65535, number)
            connection.flush()
            self.assertTrue(connection.answer(number).body == LARGE)
