"""
Keeps a thousand streams open on one connection: C{python -m tests.support.streamsoak}.

It reads its L{Plan} from standard input as JSON. Each slot has one stream at a time and begins
another when it has ended: a long one of S3, of the gateway or of gRPC, or short requests, some of
which the client resets. Contents are compared; the counts are printed as a line of JSON.
"""

import asyncio
import contextlib
import hashlib
import json
import random
import ssl
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

import msgspec
from botocore.auth import UNSIGNED_PAYLOAD, S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from google.protobuf.struct_pb2 import Struct as StructMessage
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import ProtocolError

from tests.support.h2client import framed

SERVICE = """
from twisted.internet.task import deferLater

def pause(seconds):
    from twisted.internet import reactor

    return deferLater(reactor, seconds)

async def echo(request, context):
    return request

async def ticks(request, context):
    for number in range(int(request["count"])):
        yield {"number": number}
        await pause(request["seconds"])

async def total(requests, context):
    return {"count": len([request async for request in requests])}

async def chat(requests, context):
    async for request in requests:
        yield request

Soak = {"name": "Soak", "methods": {
    "echo": {"handler": echo},
    "ticks": {"handler": ticks, "streaming": "server"},
    "total": {"handler": total, "streaming": "client"},
    "chat": {"handler": chat, "streaming": "bidirectional"},
}}
"""
"""The module C{soakservice} of the daemon, whose service is C{soakservice:Soak}."""

BASE = "/_api/Soak"
"""The path of the service on the S3 listener."""

BUCKET = "soak"

LARGE = bytes(range(256)) * 4096
"""The object C{large}, of a mebibyte."""

_KEYS = 40
"""Keys that uploads replace again and again."""


class Plan(msgspec.Struct, frozen=True):
    """
    What the client does.

    @ivar port: The port of the listener, with TLS.
    @ivar authority: The file of the certificate authority.
    @ivar accessKey: The key pair for S3.
    @ivar seconds: For how long new streams are begun.
    @ivar streams: How many streams are kept open, by the name of the activity in L{ACTIVITIES}.
    @ivar pace: The mean time between two messages of a long stream, in seconds.
    """

    port: int
    authority: str
    accessKey: str
    secretKey: str
    seconds: float
    streams: dict[str, int]
    pace: float


class Reset(Exception):
    """The server reset a stream; the argument is the code."""


class Frames(NamedTuple):
    """An event of a stream: DATA that it has received, with the bytes to grant again."""

    body: bytes
    granted: int


class Stream:
    """
    A stream.

    @ivar fields: The response's fields, and its trailers.
    """

    def __init__(self, connection: "Connection", number: int) -> None:
        self._connection = connection
        self.number = number
        self.fields: dict[str, str] = {}
        self.events: asyncio.Queue[Any] = asyncio.Queue()

    async def send(self, data: bytes, *, isLast: bool = False) -> None:
        """Send DATA, as the windows allow, unless the server has ended the stream."""
        core = self._connection.core
        while self.number in self._connection.streams:
            room = min(core.local_flow_control_window(self.number), core.max_outbound_frame_size)
            if data and not room:
                await self._connection.waitForWindow()
                continue
            piece, data = data[:room], data[room:]
            core.send_data(self.number, piece, end_stream=isLast and not data)
            self._connection.flush()
            if not data:
                return

    async def read(self, pause: float = 0.0) -> bytes | None:
        """
        Return the next DATA; C{None} at the end of the stream.

        @param pause: Seconds to wait before the bytes are granted again.
        @raise Reset: If the server has reset the stream.
        """
        found = await self.events.get()
        if isinstance(found, Exception):
            raise found
        if found is None:
            return None
        if pause:
            await asyncio.sleep(pause)
        self._connection.grant(self.number, found.granted)
        body: bytes = found.body
        return body

    async def readAll(self, pause: float = 0.0) -> bytes:
        """Return the rest of the body."""
        pieces = []
        while (piece := await self.read(pause)) is not None:
            pieces.append(piece)
        return b"".join(pieces)

    async def readMessage(self, before: bytes = b"") -> tuple[bytes, bytes]:
        """
        Return the next message of gRPC.

        @param before: Bytes that were read already.
        @return: The message, and the bytes after it.
        @raise AssertionError: If the stream ends before.
        """
        while len(before) < 5 or len(before) - 5 < int.from_bytes(before[1:5], "big"):
            piece = await self.read()
            if piece is None:
                raise AssertionError(f"no message: {self.fields!r:.200}")
            before += piece
        size = int.from_bytes(before[1:5], "big")
        return before[5 : 5 + size], before[5 + size :]

    def reset(self) -> None:
        """Reset the stream."""
        self._connection.reset(self.number)


class Connection:
    """
    The connection.

    @ivar streams: The open streams by number.
    @ivar most: The largest number of them.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.core = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.core.initiate_connection()
        # The windows of the streams are what this client is slow with.
        self.core.increment_flow_control_window(2**30)
        self.streams: dict[int, Stream] = {}
        self.most = 0
        self.greeted = asyncio.Event()
        self.terminated: ConnectionTerminated | None = None
        self._windows = asyncio.Event()
        self._ended = asyncio.Event()
        self.flush()

    def flush(self) -> None:
        """Send what the core has."""
        self._writer.write(self.core.data_to_send())

    async def waitForWindow(self) -> None:
        """Wait until a window has grown."""
        await self._windows.wait()

    def grant(self, number: int, size: int) -> None:
        """Grant bytes of a stream again."""
        with contextlib.suppress(ProtocolError):
            self.core.acknowledge_received_data(size, number)
        self.flush()

    def reset(self, number: int) -> None:
        """Reset a stream, unless it has ended."""
        if self.streams.pop(number, None) is not None:
            self.core.reset_stream(number, ErrorCodes.CANCEL)
            self.flush()
            self._ended.set()

    async def begin(self, fields: Iterable[tuple[str, str]], *, isLast: bool) -> Stream:
        """Open a stream, when the server allows one more."""
        while self.core.open_outbound_streams >= self.core.remote_settings.max_concurrent_streams:
            self._ended.clear()
            await self._ended.wait()
        number = self.core.get_next_available_stream_id()
        stream = self.streams[number] = Stream(self, number)
        if self.terminated is not None:
            raise AssertionError("the connection has ended")
        self.core.send_headers(number, list(fields), end_stream=isLast)
        self.flush()
        self.most = max(self.most, len(self.streams))
        return stream

    async def run(self) -> None:
        """Read until the server closes."""
        while data := await self._reader.read(1 << 16):
            for event in self.core.receive_data(data):
                self._received(event)
            self.flush()
            await self._writer.drain()

    def _received(self, event: Event) -> None:
        if isinstance(event, RemoteSettingsChanged):
            self.greeted.set()
        elif isinstance(event, WindowUpdated):
            self._windows.set()
            self._windows = asyncio.Event()
        elif isinstance(event, ConnectionTerminated):
            self.terminated = event
        else:
            stream = self.streams.get(getattr(event, "stream_id", 0) or 0)
            if stream is not None:
                self._streamReceived(stream, event)
            elif isinstance(event, DataReceived):
                # It was reset meanwhile.
                self.grant(event.stream_id or 0, event.flow_controlled_length or 0)

    def _streamReceived(self, stream: Stream, event: Event) -> None:
        if isinstance(event, DataReceived):
            stream.events.put_nowait(Frames(event.data or b"", event.flow_controlled_length or 0))
        elif isinstance(event, ResponseReceived | TrailersReceived):
            stream.fields.update(event.headers or ())
        elif isinstance(event, StreamEnded):
            self.streams.pop(stream.number, None)
            self._ended.set()
            stream.events.put_nowait(None)
        elif isinstance(event, StreamReset):
            self.streams.pop(stream.number, None)
            self._ended.set()
            stream.events.put_nowait(Reset(event.error_code))


class _Signer(S3SigV4Auth):
    """Signs requests without their bodies."""

    def payload(self, request: Any) -> str:
        """Return what stands for the hash of the body."""
        return UNSIGNED_PAYLOAD


def _struct(**values: Any) -> bytes:
    message = StructMessage()
    message.update(values)
    return bytes(message.SerializeToString())


class Client:
    """
    The activities.

    @ivar counts: How often each has ended, and how.
    """

    def __init__(self, plan: Plan, connection: Connection) -> None:
        self.plan = plan
        self.connection = connection
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._random = random.Random(33)
        self._authority = f"localhost:{plan.port}"
        self._signer = _Signer(Credentials(plan.accessKey, plan.secretKey), "s3", "us-east-1")
        self._end = time.monotonic() + plan.seconds

    # Requests

    async def _begin(
        self, method: str, path: str, fields: Iterable[tuple[str, str]] = (), *, isLast: bool
    ) -> Stream:
        head = [
            (":method", method),
            (":scheme", "https"),
            (":authority", self._authority),
            (":path", path),
        ]
        return await self.connection.begin([*head, *fields], isLast=isLast)

    async def _s3(self, method: str, path: str, *, isLast: bool = True, length: int = 0) -> Stream:
        request: Any = AWSRequest(method, f"https://{self._authority}{path}")
        self._signer.add_auth(request)
        fields = [(name.lower(), value) for name, value in request.headers.items()]
        if length:
            fields.append(("content-length", str(length)))
        return await self._begin(method, path, fields, isLast=isLast)

    async def _call(self, method: str) -> Stream:
        fields = [("te", "trailers"), ("content-type", "application/grpc")]
        return await self._begin("POST", f"/Soak/{method}", fields, isLast=False)

    def _pause(self) -> Awaitable[None]:
        return asyncio.sleep(self._random.uniform(0.5, 1.5) * self.plan.pace)

    def _length(self) -> int:
        """Return the number of messages of a long stream."""
        return self._random.randint(2, 20)

    def _checkStatus(self, stream: Stream, expected: str = "200") -> None:
        self._check(stream.fields.get(":status") == expected, stream.fields)

    def _check(self, isRight: bool, found: object) -> None:
        if not isRight:
            raise AssertionError(f"{found!r:.600}")

    def _checkCall(self, stream: Stream) -> None:
        self._check(stream.fields.get("grpc-status") == "0", stream.fields)

    # Activities

    async def events(self) -> None:
        """Read server-sent events of the gateway to their end, or leave before it."""
        count, isLeaving = self._length(), self._random.random() < 0.4
        fields = [("content-type", "application/json"), ("accept", "text/event-stream")]
        stream = await self._begin("POST", f"{BASE}/ticks", fields, isLast=False)
        request = {"count": count, "seconds": self.plan.pace}
        await stream.send(json.dumps(request).encode(), isLast=True)
        read = b""
        while (piece := await stream.read()) is not None:
            read += piece
            if isLeaving and read.count(b"data:") > count // 2:
                stream.reset()
                return
        self._checkStatus(stream)
        self._check(b'"number":%d' % (count - 1) in read, read)

    async def lines(self) -> None:
        """Send lines to the gateway, and read them again."""
        fields = [("content-type", "application/x-ndjson")]
        stream = await self._begin("POST", f"{BASE}/chat", fields, isLast=False)
        sent = b""
        for number in range(self._length()):
            line = b'{"number":%d}\n' % number
            sent += line
            await stream.send(line)
            await self._pause()
        await stream.send(b"", isLast=True)
        read = await stream.readAll()
        self._checkStatus(stream)
        found = [json.loads(line).get("data") for line in read.splitlines()]
        self._check([x for x in found if x] == [json.loads(x) for x in sent.splitlines()], read)

    async def chat(self) -> None:
        """Talk over gRPC, one message at a time; some calls are cancelled."""
        stream = await self._call("chat")
        rest = b""
        for number in range(self._length()):
            message = _struct(number=number, text="x" * 100)
            await stream.send(framed(message))
            answer, rest = await stream.readMessage(rest)
            self._check(StructMessage.FromString(answer)["number"] == number, answer)
            await self._pause()
        if self._random.random() < 0.3:
            stream.reset()
            return
        await stream.send(b"", isLast=True)
        await stream.readAll()
        self._checkCall(stream)

    async def watch(self) -> None:
        """Read a stream of gRPC, with a deadline that some reach."""
        count = self._length()
        isLate = self._random.random() < 0.2
        timeout = int(self.plan.pace * count * (500 if isLate else 10_000)) + 1
        fields = [("te", "trailers"), ("content-type", "application/grpc")]
        fields.append(("grpc-timeout", f"{timeout}m"))
        stream = await self._begin("POST", "/Soak/ticks", fields, isLast=False)
        await stream.send(framed(_struct(count=count, seconds=self.plan.pace)), isLast=True)
        await stream.readAll()
        status = stream.fields.get("grpc-status")
        self._check(status == ("4" if isLate else "0"), stream.fields)

    async def collect(self) -> None:
        """Send a stream of gRPC."""
        stream = await self._call("total")
        count = self._length()
        for number in range(count):
            await stream.send(framed(_struct(number=number)))
            await self._pause()
        await stream.send(b"", isLast=True)
        answer, _ = await stream.readMessage()
        await stream.readAll()
        self._check(StructMessage.FromString(answer)["count"] == count, answer)
        self._checkCall(stream)

    async def upload(self) -> None:
        """Upload an object in small pieces; some uploads are given up."""
        pieces = [self._random.randbytes(1024 * self._random.randint(4, 32)) for _ in range(8)]
        body = b"".join(pieces)
        path = f"/{BUCKET}/key{self._random.randrange(_KEYS)}"
        stream = await self._s3("PUT", path, isLast=False, length=len(body))
        isLeaving = self._random.random() < 0.2
        for number, piece in enumerate(pieces):
            if isLeaving and number == 5:
                stream.reset()
                return
            await stream.send(piece, isLast=number == len(pieces) - 1)
            await self._pause()
        await stream.readAll()
        self._checkStatus(stream)
        digest = hashlib.md5(body, usedforsecurity=False).hexdigest()
        self._check(stream.fields["etag"] == f'"{digest}"', stream.fields)

    async def download(self) -> None:
        """Download a large object slowly; some downloads are given up."""
        stream = await self._s3("GET", f"/{BUCKET}/large")
        isLeaving = self._random.random() < 0.3
        read = b""
        while (piece := await stream.read(self.plan.pace / 16)) is not None:
            read += piece
            if isLeaving and len(read) > len(LARGE) // 3:
                stream.reset()
                return
        self._checkStatus(stream)
        self._check(read == LARGE, len(read))

    async def requests(self) -> None:
        """Make a short request."""
        await self._random.choice(self._short)(self)
        await self._pause()

    async def _list(self) -> None:
        stream = await self._s3("GET", f"/{BUCKET}?list-type=2")
        self._check(b"<Key>large</Key>" in await stream.readAll(), stream.fields)

    async def _part(self) -> None:
        stream = await self._s3("GET", f"/{BUCKET}/small")
        self._check(await stream.readAll() == LARGE[:4096], stream.fields)

    async def _absent(self) -> None:
        stream = await self._s3("GET", f"/{BUCKET}/none")
        await stream.readAll()
        self._checkStatus(stream, "404")

    async def _unsigned(self) -> None:
        stream = await self._begin("GET", f"/{BUCKET}/large", isLast=True)
        await stream.readAll()
        self._checkStatus(stream, "403")

    async def _unary(self) -> None:
        stream = await self._call("echo")
        message = _struct(text="hello")
        await stream.send(framed(message), isLast=True)
        answer, _ = await stream.readMessage()
        await stream.readAll()
        self._check(answer == message, answer)
        self._checkCall(stream)

    async def _unknown(self) -> None:
        stream = await self._call("none")
        await stream.send(b"", isLast=True)
        await stream.readAll()
        self._check(stream.fields.get("grpc-status") == "12", stream.fields)

    async def _post(self) -> None:
        fields = [("content-type", "application/json")]
        stream = await self._begin("POST", f"{BASE}/echo", fields, isLast=False)
        await stream.send(b'{"a":1}', isLast=True)
        answer = await stream.readAll()
        self._check(json.loads(answer) == {"data": {"a": 1}}, answer)

    async def _resetAtOnce(self) -> None:
        (await self._s3("GET", f"/{BUCKET}/large")).reset()

    async def _resetCall(self) -> None:
        (await self._call("echo")).reset()

    _short = (
        _list,
        _part,
        _absent,
        _unsigned,
        _unary,
        _unknown,
        _post,
        _resetAtOnce,
        _resetCall,
    )

    # The run

    async def run(self) -> None:
        """Keep the streams open until the time is over."""
        await self.connection.greeted.wait()
        await self._prepare()
        slots = [name for name, count in self.plan.streams.items() for _ in range(count)]
        await asyncio.gather(*[self._slot(name) for name in slots])

    async def _prepare(self) -> None:
        await (await self._s3("PUT", f"/{BUCKET}")).readAll()
        for key, body in (("large", LARGE), ("small", LARGE[:4096])):
            stream = await self._s3("PUT", f"/{BUCKET}/{key}", isLast=False, length=len(body))
            await stream.send(body, isLast=True)
            await stream.readAll()
            self._checkStatus(stream)

    async def _slot(self, name: str) -> None:
        # They begin within a pace, so that the server is not flooded.
        await asyncio.sleep(self._random.uniform(0, self.plan.pace))
        while time.monotonic() < self._end:
            try:
                await ACTIVITIES[name](self)
            except (Reset, ProtocolError, AssertionError, LookupError, ValueError) as error:
                self.counts[f"{name} failed"] += 1
                if len(self.wrong) < 20:
                    self.wrong.append(f"{name}: {type(error).__name__} {error}")
                if self.connection.terminated is not None:
                    return
                await self._pause()
            else:
                self.counts[name] += 1


ACTIVITIES: dict[str, Callable[[Client], Awaitable[None]]] = {
    "events": Client.events,
    "lines": Client.lines,
    "chat": Client.chat,
    "watch": Client.watch,
    "collect": Client.collect,
    "upload": Client.upload,
    "download": Client.download,
    "requests": Client.requests,
}


class Report(msgspec.Struct, frozen=True):
    """
    What the client has seen.

    @ivar counts: How often each activity has ended well, and failed.
    @ivar wrong: The first failures.
    @ivar open: The number of open streams, sampled each second after the first pace.
    @ivar most: The largest number of open streams.
    @ivar cpuSeconds: The client's own CPU time.
    """

    counts: dict[str, int]
    wrong: list[str]
    open: list[int]
    most: int
    cpuSeconds: float


async def _main(plan: Plan) -> Report:
    context = ssl.create_default_context(cafile=plan.authority)
    context.set_alpn_protocols(["h2"])
    reader, writer = await asyncio.open_connection("localhost", plan.port, ssl=context)
    connection = Connection(reader, writer)
    client = Client(plan, connection)
    reading = asyncio.ensure_future(connection.run())
    counted: list[int] = []

    async def count() -> None:
        await asyncio.sleep(plan.pace)
        while time.monotonic() < client._end:
            counted.append(len(connection.streams))
            await asyncio.sleep(1)

    counting = asyncio.ensure_future(count())
    running = asyncio.ensure_future(client.run())
    await asyncio.wait((running, reading), return_when=asyncio.FIRST_COMPLETED)
    wrong = list(client.wrong)
    if reading.done():
        wrong.append(f"the connection ended: {connection.terminated} {reading}")
        running.cancel()
    for task in (running, counting):
        with contextlib.suppress(asyncio.CancelledError):
            await task
    writer.close()
    reading.cancel()
    return Report(dict(client.counts), wrong, counted, connection.most, time.process_time())


if __name__ == "__main__":
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
    print(msgspec.json.encode(asyncio.run(_main(plan))).decode())
