"""What no honest client sends: each is refused, or is harmless, and the server goes on."""

import os
import socket
import ssl
import zlib
from collections.abc import Callable, Iterable
from typing import Any

from hyperframe.frame import HeadersFrame
from twisted.internet.threads import deferToThread

from tests.support.h2client import H2Client, H2Stream, framed
from tests.support.memory import forgetPeak, peakMemory, residentMemory
from tests.support.selection import long
from tests.wire.rpc.optioncase import BIGS, ECHO, HOLD, WAIT, OptionCase, struct

INVALID_ARGUMENT, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED = 3, 4, 8
UNIMPLEMENTED, INTERNAL = 12, 13

PROTOCOL_ERROR = 1
"""Of HTTP/2, RFC 9113 section 7."""
HTTP2_INTERNAL = 2

MESSAGE = struct(text="hello")

Use = Callable[[H2Client], H2Stream]

USUAL = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", ECHO),
    (":authority", "localhost"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
)


def without(name: str) -> list[tuple[str, str]]:
    """Give the usual headers without one of them."""
    return [(key, value) for key, value in USUAL if key != name]


def having(name: str, value: str) -> list[tuple[str, str]]:
    """Give the usual headers with one of them changed."""
    return [(key, value if key == name else old) for key, old in USUAL]


def besides(name: str, value: str) -> list[tuple[str, str]]:
    """Give the usual headers and one more."""
    return [*USUAL, (name, value)]


def headed(headers: Iterable[tuple[str, str]]) -> Use:
    """Make a call with all of its headers given."""

    def use(client: H2Client) -> H2Stream:
        stream = client.begin("", headers=headers)
        client.sendMessage(stream, MESSAGE, isLast=True)
        return client.finish(stream)

    return use


def bodied(body: bytes, path: str = ECHO, metadata: Any = ()) -> Use:
    """Make a call with all of its body given."""

    def use(client: H2Client) -> H2Stream:
        stream = client.begin(path, metadata)
        client.sendData(stream, body, isLast=True)
        return client.finish(stream)

    return use


class MalformedCase(OptionCase):
    """A server that is asked, after each attack, whether it still answers."""

    async def setUp(self) -> None:
        """Serve."""
        self.port = await self.serve()
        self.handled = 0

    def echo(self, request: Any, call: Any) -> Any:
        """Give the request back."""
        self.handled += 1
        return super().echo(request, call)

    async def attack(self, use: Use) -> H2Stream:
        """Make a call, and a good one after it on a new connection."""
        stream = await self.within(self.port, use)
        good = await self.within(self.port, lambda client: client.call(ECHO, MESSAGE))
        self.assertEqual((good.status, good.messages), (0, [(False, MESSAGE)]))
        self.handled -= 1
        return stream


class HeaderTests(MalformedCase):
    """Headers."""

    async def assertReset(self, headers: Iterable[tuple[str, str]]) -> None:
        """The stream is reset, and no handler runs."""
        stream = await self.attack(headed(headers))
        self.assertIn(stream.resetCode, (PROTOCOL_ERROR, HTTP2_INTERNAL), headers)
        self.assertEqual(self.handled, 0)

    async def assertRefused(self, headers: Iterable[tuple[str, str]], *statuses: int) -> None:
        """The call ends with a status, and no handler runs."""
        stream = await self.attack(headed(headers))
        self.assertIn(stream.status, statuses, headers)
        self.assertEqual(self.handled, 0)

    @long("takes a second or more")
    async def test_missing(self) -> None:
        """Without C{te} (no browser can send it) or a pseudo-header there is no call."""
        for name in ("te", ":method", ":scheme", ":path", ":authority"):
            await self.assertReset(without(name))

    async def test_methods(self) -> None:
        """Only POST makes calls."""
        for method in ("GET", "PUT"):
            await self.assertReset(having(":method", method))
        for method in ("OPTIONS", "post", ""):
            await self.assertRefused(having(":method", method), INTERNAL)

    async def test_paths(self) -> None:
        """A path that is not exactly a method's is UNIMPLEMENTED, whatever is in it."""
        for path in (
            f"/{ECHO}",
            ECHO[1:],
            f"{ECHO}/",
            f"{ECHO}?x=1",
            ECHO.lower().replace("p", "q"),
            "",
            "*",
            "/",
            "//",
            "/é/x",
            "/a\r\nb",
            "/\x00",
            "/../Probe/echo",
            "/" + "x" * 5000,
        ):
            await self.assertRefused(having(":path", path), UNIMPLEMENTED)

    @long("takes seconds")
    async def test_values(self) -> None:
        """A deadline, an encoding, a name or base64 that is none ends the call."""
        for name, value in (
            ("grpc-timeout", "abc"),
            ("grpc-timeout", "-1S"),
            ("grpc-timeout", ""),
            ("grpc-encoding", "br"),
            ("grpc-encoding", "snappy"),
            ("x-bin", "!!!!"),
            ("X-Upper", "a"),
            ("x y", "a"),
            ("", "a"),
            (":foo", "a"),
        ):
            await self.assertRefused(besides(name, value), INTERNAL)

    async def test_farDeadline(self) -> None:
        """A deadline in ten thousand years is one, and so is one that has passed."""
        stream = await self.attack(headed(besides("grpc-timeout", "99999999H")))
        self.assertEqual(stream.status, 0)
        stream = await self.attack(headed(besides("grpc-timeout", "0m")))
        self.assertEqual(stream.status, DEADLINE_EXCEEDED)

    async def test_harmless(self) -> None:
        """What HTTP/2 or gRPC forbids, and the library lets pass, is no more than metadata."""
        for name, value in (
            ("x-a", "a\x01b"),
            ("x-a", "a\x00b"),
            ("x-a", "a\r\nb: c"),
            ("x-a", "\u00ff"),
            ("connection", "close"),
            ("content-length", "5"),
            ("grpc-status", "5"),
            ("content-type", "text/html"),
            ("x-bin", "//79"),
            ("grpc-accept-encoding", ",\x7f"),
        ):
            stream = await self.attack(headed(besides(name, value)))
            self.assertEqual((stream.status, stream.messages), (0, [(False, MESSAGE)]), name)

    async def test_rawBytes(self) -> None:
        """Metadata that is no text reaches handlers as some text, and bytes as bytes."""
        seen = []

        def use(client: H2Client) -> H2Stream:
            stream = client.begin(ECHO, [(b"x-raw", b"\xff\xfe"), (b"x-raw-bin", "//79")])  # type: ignore[list-item]
            client.sendMessage(stream, MESSAGE, isLast=True)
            return client.finish(stream)

        async def look(call: Any, next: Any) -> Any:
            seen.append(call.metadata.getMap())
            return await next()

        self.app.use(look)
        stream = await self.within(self.port, use)
        self.assertEqual(stream.status, 0)
        self.assertIsInstance(seen[0]["x-raw"], str)
        self.assertEqual(seen[0]["x-raw-bin"], b"\xff\xfe\xfd")


class BodyTests(MalformedCase):
    """Messages."""

    async def test_count(self) -> None:
        """No request, or several, where there has to be one are UNIMPLEMENTED."""
        stream = await self.attack(lambda client: client.call(ECHO))
        self.assertEqual((stream.status, self.handled), (UNIMPLEMENTED, 0))
        other = struct(text="other")
        for path in (ECHO, WAIT, BIGS):
            stream = await self.attack(lambda client, path=path: client.call(path, MESSAGE, other))
            self.assertEqual((stream.status, stream.messages), (UNIMPLEMENTED, []), path)
            self.assertIn("exactly one request", stream.trailers["grpc-message"])
        self.assertEqual(self.handled, 0)

    async def test_countOfConnection(self) -> None:
        """A method that got one request over a connection answers before the end of requests."""

        def use(client: H2Client) -> list[H2Stream]:
            wrong, right = client.call(ECHO, MESSAGE, MESSAGE), client.call(ECHO, MESSAGE)
            early = client.begin(ECHO)
            client.sendData(early, framed(MESSAGE))
            client.finish(early)
            return [wrong, right, early]

        found = await self.within(self.port, use)
        self.assertEqual([each.status for each in found], [UNIMPLEMENTED, 0, 0])
        self.assertEqual(self.handled, 2)

    async def test_cut(self) -> None:
        """A request that is cut off by its stream's end is none."""
        for body in (b"\0\0\0", b"\0\0\0\0\x10abc", b"\0\0\xff\xff\xffabc"):
            stream = await self.attack(bodied(body))
            self.assertIn(stream.status, (UNIMPLEMENTED, RESOURCE_EXHAUSTED))
        self.assertEqual(self.handled, 0)

    async def test_garbage(self) -> None:
        """Bytes that are no message are INVALID_ARGUMENT, the first or a later one of a stream."""
        stream = await self.attack(bodied(framed(b"\xff\xff\xff")))
        self.assertEqual((stream.status, self.handled), (INVALID_ARGUMENT, 0))
        stream = await self.attack(bodied(framed(MESSAGE) + framed(b"\xff"), HOLD))
        self.assertEqual(stream.status, INVALID_ARGUMENT)

    async def test_deep(self) -> None:
        """A message that is nested deeper than any real one is INVALID_ARGUMENT."""
        value = b"\x08\x00"
        while len(value) < 100_000:
            # A value that is a list of one value.
            value = b"\x32" + _sized(b"\x0a" + _sized(value))
        body = b"\x0a" + _sized(b"\x0a\x01a\x12" + _sized(value))
        stream = await self.attack(bodied(framed(body)))
        self.assertEqual((stream.status, self.handled), (INVALID_ARGUMENT, 0))

    async def test_length(self) -> None:
        """A length that cannot be sent is refused when it is read."""
        stream = await self.attack(bodied(b"\0\xff\xff\xff\xffabc"))
        self.assertEqual((stream.status, self.handled), (RESOURCE_EXHAUSTED, 0))

    async def test_compressed(self) -> None:
        """A message that says that it is compressed has to be so, as its call has said."""
        body = framed(b"abc", isCompressed=True)
        for metadata in ([], [("grpc-encoding", "identity")], [("grpc-encoding", "gzip")]):
            stream = await self.attack(bodied(body, metadata=metadata))
            self.assertEqual((stream.status, self.handled), (INTERNAL, 0))

    @long("takes seconds")
    async def test_bomb(self) -> None:
        """A message that inflates to a thousand times its size is refused, and takes no memory."""
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(2000)) + packer.flush()
        self.assertLess(len(bomb), 4 << 20)
        forgetPeak(os.getpid())
        before = residentMemory(os.getpid())
        stream = await self.attack(
            bodied(framed(bomb, isCompressed=True), metadata=[("grpc-encoding", "gzip")])
        )
        self.assertEqual((stream.status, self.handled), (RESOURCE_EXHAUSTED, 0))
        self.assertLess(peakMemory(os.getpid()) - before, 50 << 20)

    async def test_secondHeaders(self) -> None:
        """A second block of headers that ends nothing ends the call."""

        def use(client: H2Client) -> H2Stream:
            stream = client.begin(HOLD)
            block = client._encoder.encode(USUAL)
            client.send(HeadersFrame(stream.number, data=block, flags=["END_HEADERS"]))
            return client.finish(stream)

        stream = await self.attack(use)
        self.assertNotEqual(stream.status, 0)


def _sized(value: bytes) -> bytes:
    """Put the length before bytes, as protobuf has it."""
    length, head = len(value), b""
    while length >= 0x80:
        head += bytes([length & 0x7F | 0x80])
        length >>= 7
    return head + bytes([length]) + value


class OtherProtocolTests(MalformedCase):
    """What is no HTTP/2."""

    def spoken(self, data: bytes) -> bytes:
        """Say something; give all that is answered, up to the end of the connection. Blocks."""
        with socket.create_connection(("127.0.0.1", self.port), 20) as connection:
            connection.sendall(data)
            if not data:
                connection.shutdown(socket.SHUT_WR)
            answer = b""
            try:
                while piece := connection.recv(65_536):
                    answer += piece
            except ConnectionResetError:
                pass
            return answer

    async def test_other(self) -> None:
        """HTTP/1.1, TLS, noise, a wrong preface and nothing at all are hung up on at once."""
        for data in (
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
            bytes(1000),
            b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
            b"",
        ):
            answer = await deferToThread(self.spoken, data)
            self.assertNotIn(b"HTTP/1.1 200", answer)
            await self.attack(lambda client: client.call(ECHO, MESSAGE))

    async def test_tls(self) -> None:
        """A client that speaks TLS to a port in the clear fails, and the server goes on."""
        with self.assertRaises(OSError):
            await self.within(
                self.port,
                lambda client: client.call(ECHO, MESSAGE),
                context=ssl._create_unverified_context(),
            )
        await self.attack(lambda client: client.call(ECHO, MESSAGE))
