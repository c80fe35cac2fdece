"""TCP over real sockets, with clients that know nothing of Twisted."""

import json
import os
import socket
import ssl
import subprocess
from pathlib import Path
from threading import Thread
from typing import Any

from twisted.internet.threads import deferToThread

from tests.support.certificates import Authority
from tests.support.programs import needProgram
from tests.wire.gateway.tcpcase import PATIENCE, PlainClient, TCPCase, written


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
        netcat = needProgram("nc")
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
