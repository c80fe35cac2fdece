"""TCP over real sockets, with clients that know nothing of Twisted."""

import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from threading import Thread
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SkipTest, TestCase

from storagegate.gateway.options import TCPOptions
from storagegate.gateway.session import CALLS_OF_A_CONNECTION
from storagegate.gateway.tcpadapter import TCPAdapter
from tests.support.certificates import Authority
from tests.support.gateway import makeHost
from tests.support.memory import residentMemory

PATIENCE = 20.0


class PlainClient:
    """A client of plain blocking sockets; everything here runs in a thread."""

    def __init__(self, port: int, **options: Any) -> None:
        self.socket: Any = socket.create_connection(("127.0.0.1", port), PATIENCE, **options)

    def send(self, type: int, payload: Any) -> None:
        """Send a frame."""
        self.socket.sendall(written(type, payload))

    def call(self, method: str, **more: Any) -> None:
        """Send a request for a method of C{Probe}."""
        self.send(1, {"service": "Probe", "method": method, **more})

    def frame(self) -> tuple[int, Any]:
        """Read a frame."""
        version, type, length = struct.unpack(">BBI", self._exactly(6))
        if version != 1:
            raise AssertionError(f"version {version}")
        payload = self._exactly(length)
        return type, json.loads(payload) if payload else None

    def rest(self) -> bytes:
        """Read to the end."""
        found = b""
        while data := self.socket.recv(65536):
            found += data
        return found

    def close(self) -> None:
        """Close."""
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            data = self.socket.recv(size - len(found))
            if not data:
                raise AssertionError(f"closed after {found!r}")
            found += data
        return found


def written(type: int, payload: Any) -> bytes:
    """Write a frame, in words of this file."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return struct.pack(">BBI", 1, type, len(body)) + body


class TCPCase(TestCase):
    """A listener with the services of the fixture."""

    timeout = 60

    async def setUp(self) -> None:
        """Listen."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.closed: list[str] = []
        self.host, self.probe = makeHost(
            self.reactor, [{"name": "Bulk", "methods": {"endless": self.endless}}]
        )
        await self.listen()

    async def endless(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Give 64 KiB for ever."""
        try:
            while True:
                yield "x" * 65536
        finally:
            self.closed.append("endless")

    async def listen(self, **options: Any) -> None:
        """Make a listener with options."""
        self.adapter = TCPAdapter(self.host, TCPOptions(**options), self.reactor)
        self.addCleanup(self.adapter.close, 0)
        self.port = await self.open("tcp:0:interface=127.0.0.1")

    async def open(self, place: str) -> int:
        """Listen at a place; give the port."""
        port: Any = await self.adapter.open(place)
        return getattr(port.getHost(), "port", 0)

    def run_(self, work: Callable[[PlainClient], Any]) -> Deferred[Any]:
        """Let a client work in a thread."""

        def connected() -> Any:
            client = PlainClient(self.port)
            try:
                return work(client)
            finally:
                client.close()

        return deferToThread(connected)

    async def until(self, condition: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + patience
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError("nothing came of it")
            await deferLater(self.reactor, 0.01)


class CallTests(TCPCase):
    """Calls as any client makes them."""

    async def test_kinds(self) -> None:
        """All four kinds of calls, one after the other on a connection."""

        def work(client: PlainClient) -> Any:
            client.call("echo", id=1, data={"a": 1})
            yield client.frame()
            client.call("count", data={"to": 1})
            yield client.frame()
            yield client.frame()
            client.call("collect", id="c")
            client.send(10, {"id": "c", "data": {"text": "x"}})
            client.send(11, {"id": "c"})
            yield client.frame()
            client.call("chat", id=2)
            client.send(10, {"id": 2, "data": {"text": "x"}})
            yield client.frame()
            client.send(11, {"id": 2})
            yield client.frame()
            yield client.frame()

        self.assertEqual(
            await self.run_(lambda client: list(work(client))),
            [
                (2, {"id": 1, "data": {"a": 1}}),
                (4, {"number": 0}),
                (5, {}),
                (2, {"id": "c", "data": {"texts": ["x"]}}),
                (4, {"id": 2, "data": {"text": "X"}}),
                (4, {"id": 2, "data": {"text": "goodbye"}}),
                (5, {"id": 2}),
            ],
        )

    async def test_large(self) -> None:
        """A frame of the whole 16 MiB goes both ways."""
        text = "x" * (16 * 1024 * 1024 - 200)

        def work(client: PlainClient) -> Any:
            client.call("echo", data={"text": text})
            return client.frame()

        self.assertTrue(await self.run_(work) == (2, {"text": text}))

    async def test_pipelined(self) -> None:
        """Ten thousand calls in one go are all answered."""

        def work(client: PlainClient) -> Any:
            one = written(1, {"service": "Probe", "method": "echo", "data": {"a": 1}})
            client.socket.settimeout(PATIENCE)
            sender = Thread(target=client.socket.sendall, args=(one * 10_000,))
            sender.start()
            answers = [client.frame() for _ in range(10_000)]
            sender.join()
            return answers

        self.assertEqual(await self.run_(work), [(2, {"a": 1})] * 10_000)

    async def test_options(self) -> None:
        """keepAlive and noDelay are set on the sockets, or not."""
        for value in (True, False):
            await self.listen(keepAlive=value, noDelay=value)
            client = await deferToThread(PlainClient, self.port)
            await self.until(lambda: self.adapter.connections == 1)
            (connection,) = self.adapter._connections
            handle = connection.transport.getHandle()
            found = (
                handle.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY),
            )
            self.assertEqual([bool(each) for each in found], [value, value])
            client.close()

    async def test_lines(self) -> None:
        """Who begins with a brace speaks JSON by the line."""

        def work(client: PlainClient) -> Any:
            file = client.socket.makefile("rw", newline="\n")
            for id in (1, 2):
                message = {"service": "Probe", "method": "count", "id": id, "data": {"to": 1}}
                print(json.dumps(message), file=file, flush=True)
            client.socket.shutdown(socket.SHUT_WR)
            return [json.loads(line) for line in file]

        expected = [
            answer
            for id in (1, 2)
            for answer in (
                {"id": id, "type": "stream", "data": {"number": 0}},
                {"id": id, "type": "stream_end"},
            )
        ]
        self.assertEqual(await self.run_(work), expected)

    async def test_netcat(self) -> None:
        """A program that copies its input to a socket is a client."""
        netcat = shutil.which("nc") or shutil.which("ncat")
        if netcat is None:
            raise SkipTest("there is no nc")
        command = [netcat, "127.0.0.1", str(self.port)]
        if "-N" in subprocess.run([netcat, "-h"], capture_output=True, text=True).stderr:
            command.insert(1, "-N")
        message = {"service": "Probe", "method": "echo", "id": 1, "data": {"a": 1}}
        done = await deferToThread(
            subprocess.run,
            command,
            input=json.dumps(message).encode() + b"\n",
            capture_output=True,
            timeout=PATIENCE,
        )
        answer = json.loads(done.stdout)
        self.assertEqual((answer["id"], answer["data"]), (1, {"a": 1}))


class PlaceTests(TCPCase):
    """Other places than a port."""

    async def test_unix(self) -> None:
        """A UNIX socket."""
        path = os.path.join("/tmp", f"sg-{os.getpid()}-{id(self)}.sock")
        await self.open(f"unix:{path}")

        def work() -> Any:
            client = PlainClient.__new__(PlainClient)
            client.socket = socket.socket(socket.AF_UNIX)
            client.socket.settimeout(PATIENCE)
            client.socket.connect(path)
            client.call("whoami")
            client.socket.shutdown(socket.SHUT_WR)
            answer = client.frame()
            rest = client.rest()
            client.close()
            return answer, rest

        (type, result), rest = await deferToThread(work)
        self.assertEqual((type, result["address"], rest), (2, path, b""))

    async def test_tls(self) -> None:
        """TLS; one that ends it loses its calls, and a refused one is gone in the end."""
        authority = Authority(Path(self.mktemp()))
        certificate, key = authority.issue()
        where = f"privateKey={key}:certKey={certificate}"
        self.port = await self.open(f"ssl:0:interface=127.0.0.1:{where}")
        context = ssl.create_default_context(cafile=str(authority.path))

        def work(client: PlainClient) -> Any:
            client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
            client.call("echo", id=1)
            answer = client.frame()
            client.call("slow", id=2)
            client.send(9, {"id": 3})
            return answer, client.frame()[1]["id"]

        self.assertEqual(await self.run_(work), ((2, {"id": 1, "data": {}}), 3))
        await self.until(lambda: self.probe.cancelled == ["slow"])

        def refused(client: PlainClient) -> Any:
            client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
            client.socket.sendall(b"\x05")
            return client.frame()[0], client.rest()

        self.assertEqual(await self.run_(refused), (3, b""))
        await self.until(lambda: self.adapter.connections == 0)


class EndTests(TCPCase):
    """How connections end."""

    async def test_halfClosed(self) -> None:
        """Who shuts the writing side gets every answer, and then the end."""

        def work(client: PlainClient) -> Any:
            client.call("slow", id=1, data={"seconds": 0.3})
            client.call("count", id=2, data={"to": 200})
            client.socket.shutdown(socket.SHUT_WR)
            found = [client.frame() for _ in range(202)]
            return found[0], found[-1], client.rest()

        first, last, rest = await self.run_(work)
        self.assertEqual(first, (4, {"id": 2, "data": {"number": 0}}))
        self.assertEqual(last, (2, {"id": 1, "data": {"seconds": 0.3}}))
        self.assertEqual(rest, b"")

    async def test_gone(self) -> None:
        """Who closes with a silent call in flight is noticed, though it looks half closed."""

        def work(client: PlainClient) -> None:
            client.call("slow", id=1)
            client.send(6, b"")
            client.frame()

        await self.run_(work)
        await self.until(lambda: self.probe.cancelled == ["slow"], 10)
        await self.until(lambda: self.adapter.connections == 0)

    async def test_goneUnread(self) -> None:
        """Who closes while it is not read, for all the calls it has in flight, is noticed."""

        def work(client: PlainClient) -> None:
            for number in range(CALLS_OF_A_CONNECTION + 5):
                client.call("slow", id=number)

        await self.run_(work)
        await self.until(lambda: len(self.probe.cancelled) >= CALLS_OF_A_CONNECTION, 10)
        await self.until(lambda: self.adapter.connections == 0)
        self.assertEqual(self.adapter.listener.calls, 0)

    async def test_halfClosedLong(self) -> None:
        """Who shuts the writing side and waits is asked whether it is there, and answered."""

        def work(client: PlainClient) -> Any:
            client.call("slow", id=1, data={"seconds": 3.5})
            client.socket.shutdown(socket.SHUT_WR)
            found = []
            while not found or found[-1][0] != 2:
                found.append(client.frame())
            return found, client.rest()

        found, rest = await self.run_(work)
        self.assertEqual({type for type, _ in found[:-1]}, {6})
        self.assertEqual(found[-1], (2, {"id": 1, "data": {"seconds": 3.5}}))
        self.assertEqual(rest, b"")

    async def test_refused(self) -> None:
        """Who lies about a length, or speaks another protocol, gets one error and the end."""
        before = residentMemory(os.getpid())
        for wire in (b"\x01\x01\xff\xff\xff\xff", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"):

            def work(client: PlainClient, wire: bytes = wire) -> Any:
                client.socket.sendall(wire + b"x" * 500_000)
                return client.frame()[0], client.rest()

            self.assertEqual(await self.run_(work), (3, b""))
        self.assertLess(residentMemory(os.getpid()) - before, 50_000_000)
        await self.until(lambda: self.adapter.connections == 0)

    async def test_stop(self) -> None:
        """A client is told, gets its answer, and then the end."""

        def work(client: PlainClient) -> Any:
            client.call("slow", id=1, data={"seconds": 0.3})
            return client.frame(), client.frame(), client.rest()

        working = self.run_(work)
        await self.until(lambda: self.probe.begun == ["slow"])
        await self.adapter.close(10)
        self.assertEqual(await working, ((12, {}), (2, {"id": 1, "data": {"seconds": 0.3}}), b""))


class FlowTests(TCPCase):
    """Clients that read slowly, and floods."""

    def speed(self) -> Deferred[float]:
        """Measure how many seconds 300 calls of another client take."""

        def work(client: PlainClient) -> float:
            began = time.monotonic()
            for _ in range(300):
                client.call("echo")
                client.frame()
            return time.monotonic() - began

        return self.run_(work)

    async def test_slowReaders(self) -> None:
        """Endless streams that nobody reads cost no memory, and others little time."""
        alone = await self.speed()
        before = residentMemory(os.getpid())
        clients = [await deferToThread(PlainClient, self.port) for _ in range(20)]
        for client in clients:
            self.addCleanup(client.close)
            request = {"service": "Bulk", "method": "endless"}
            await deferToThread(client.send, 1, request)
        await self.until(lambda: all(each._isFull for each in self.adapter._connections))
        besides = await self.speed()
        self.assertLess(residentMemory(os.getpid()) - before, 60_000_000)
        # A producer that had not stopped would take all the time there is.
        self.assertLess(besides, alone * 10 + 2)
        for client in clients:
            client.close()
        await self.until(lambda: len(self.closed) == 20)

    async def test_floodUnread(self) -> None:
        """Who sends calls without end and reads nothing is not read any more."""

        def work(client: PlainClient) -> int:
            one = written(1, {"service": "Probe", "method": "echo", "data": {"t": "x" * 1000}})
            client.socket.settimeout(2)
            sent = 0
            try:
                while sent < 200_000_000:
                    sent += client.socket.send(one * 50)
            except TimeoutError:
                pass
            return sent

        self.assertLess(await self.run_(work), 100_000_000)

    async def test_addressLimit(self) -> None:
        """One address may have so many connections and no more."""
        await self.listen(maxConnectionsPerAddress=3)

        def work() -> Any:
            clients = [PlainClient(self.port) for _ in range(4)]
            error = clients[3].frame()
            rest = clients[3].rest()
            clients[0].call("echo")
            answer = clients[0].frame()
            for client in clients:
                client.close()
            return error[0], error[1]["error"], rest, answer

        self.assertEqual(await deferToThread(work), (3, "UNAVAILABLE", b"", (2, {})))
        await self.until(lambda: self.adapter.connections == 0)
