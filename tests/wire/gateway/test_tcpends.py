"""How TCP connections end over real sockets, and floods and slow readers."""

import os
import socket
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from storagegate.gateway.messages.session import CALLS_OF_A_CONNECTION
from tests.support.memory import residentMemory
from tests.support.selection import long
from tests.wire.gateway.tcpcase import PlainClient, TCPCase, written
from tests.wire.gateway.test_websocket import KERNEL_BYTES


class EndTests(TCPCase):
    """How connections end."""

    async def test_halfClosed(self) -> None:
        """Who shuts the writing side gets every answer, and then the end."""

        def work(client: PlainClient) -> Any:
            client.send(1, {"service": "Bulk", "method": "held", "id": 1})
            client.call("count", id=2, data={"to": 200})
            client.socket.shutdown(socket.SHUT_WR)
            found = [client.frame()]
            while found[-1][0] != 5:
                found.append(client.frame())
            self.reactor.callFromThread(self.mayAnswer.callback, None)
            # It may have been asked meanwhile whether it is there.
            last = client.frame()
            while last[0] == 6:
                last = client.frame()
            return [each for each in found if each[0] != 6], last, client.rest()

        found, last, rest = await self.run_(work)
        numbers = [(4, {"id": 2, "data": {"number": number}}) for number in range(200)]
        self.assertEqual(found, [*numbers, (5, {"id": 2})])
        self.assertEqual(last, (2, {"id": 1, "data": {}}))
        self.assertEqual(rest, b"")

    @long("takes seconds")
    async def test_gone(self) -> None:
        """Who closes with a silent call in flight is noticed, though it looks half closed."""

        def work(client: PlainClient) -> None:
            client.call("slow", id=1)
            client.send(6, b"")
            client.frame()

        await self.run_(work)
        await self.until(lambda: self.probe.cancelled == ["slow"])
        await self.until(lambda: self.adapter.connections == 0)

    @long("takes seconds")
    async def test_goneUnread(self) -> None:
        """Who closes while it is not read, for all the calls it has in flight, is noticed."""

        def work(client: PlainClient) -> None:
            for number in range(CALLS_OF_A_CONNECTION + 5):
                client.call("slow", id=number)

        await self.run_(work)
        await self.until(lambda: len(self.probe.cancelled) >= CALLS_OF_A_CONNECTION)
        await self.until(lambda: self.adapter.connections == 0)
        self.assertEqual(self.adapter.listener.calls, 0)

    @long("takes seconds")
    async def test_halfClosedLong(self) -> None:
        """Who shuts the writing side and waits is asked whether it is there, and answered."""

        def work(client: PlainClient) -> Any:
            client.send(1, {"service": "Bulk", "method": "held", "id": 1})
            client.socket.shutdown(socket.SHUT_WR)
            found = [client.frame() for _ in range(2)]
            self.reactor.callFromThread(self.mayAnswer.callback, None)
            while found[-1][0] == 6:
                found.append(client.frame())
            return found, client.rest()

        found, rest = await self.run_(work)
        self.assertEqual({type for type, _ in found[:-1]}, {6})
        self.assertEqual(found[-1], (2, {"id": 1, "data": {}}))
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

    def others(self) -> Deferred[list[Any]]:
        """Give the answers to 300 calls of another client."""

        def work(client: PlainClient) -> list[Any]:
            answers = []
            for _ in range(300):
                client.call("echo")
                answers.append(client.frame())
            return answers

        return self.run_(work)

    async def test_slowReaders(self) -> None:
        """Endless streams that nobody reads cost no memory, stop, and leave others alone."""
        self.assertEqual(await self.others(), [(2, {})] * 300)
        before = residentMemory(os.getpid())
        clients = [await deferToThread(PlainClient, self.port) for _ in range(20)]
        for client in clients:
            self.addCleanup(client.close)
            request = {"service": "Bulk", "method": "endless"}
            await deferToThread(client.send, 1, request)
        await self.until(lambda: all(each._isFull for each in self.adapter._connections))
        self.assertEqual(await self.others(), [(2, {})] * 300)
        self.assertLess(residentMemory(os.getpid()) - before, 60_000_000)
        # A producer that had not stopped would have given some in each turn of the reactor.
        self.assertLess(self.given * 65536, 20 * KERNEL_BYTES)
        for client in clients:
            client.close()
        await self.until(lambda: len(self.closed) == 20)

    @long("takes seconds")
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
