"""Calls on all transports are gone when they have ended, without a garbage collector."""

import json
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from weakref import ref

import grpc
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from websockets.sync.client import connect

from storagegate.core.definitions import STREAMING
from storagegate.gateway.transports.registry import transportNames
from tests.support.garbage import findCycles, withoutCollector
from tests.support.gateway import Boom
from tests.support.gatewayclients import CLIENTS
from tests.support.owngatewayclient import URLS, OwnClient
from tests.support.selection import long
from tests.support.wsclient import FIELDS
from tests.wire.gateway.test_matrix import MatrixCase

ROWS = ["x" * 20] * 10_000
"""Makes a request longer than what is parsed in the reactor thread."""

Check = Callable[[str, str], Awaitable[None]]


class LifetimeCase(MatrixCase):
    """Finds what is left of calls."""

    async def setUp(self) -> None:  # type: ignore[override]
        """See which contexts of calls live."""
        await super().setUp()
        self.alive: list[Callable[[], Any]] = []
        self.gateway.invoker.observers.append(self)

    def callStarted(self, context: Any) -> None:
        """See when it is gone."""
        self.alive.append(ref(context))

    def callEnded(self, context: Any, error: Any, seconds: float) -> None:
        """Do nothing."""

    async def assertFreed(self, check: Check, wires: Sequence[str] | None = None) -> None:
        """Run a check in each cell; what is left of a call is freed, by its last reference."""
        found: dict[str, Any] = {}
        for wire in self.wires if wires is None else wires:
            for kind in STREAMING:
                # What is made once only: compiled schemas, imported modules.
                await check(wire, kind)
                await deferLater(self.reactor, 0.02)
                self.alive.clear()
                with withoutCollector(self):
                    await check(wire, kind)
                    await deferLater(self.reactor, 0.02)
                    left = sum(each() is not None for each in self.alive)
                    cycles = findCycles()
                if left or cycles:
                    found[f"{wire} {kind}"] = left, cycles
        self.maxDiff = None
        self.assertEqual(found, {})


class LifetimeTests(LifetimeCase):
    """No call, no message and no request is part of a reference cycle when it has ended."""

    @long("takes seconds")
    async def test_success(self) -> None:
        """After a result."""

        async def check(wire: str, kind: str) -> None:
            answer = await self.ask(wire, kind, {"text": "a"})
            self.assertIsNone(answer.problem)

        await self.assertFreed(check)

    @long("takes seconds")
    async def test_validation(self) -> None:
        """After a request that does not fit its schema."""

        async def check(wire: str, kind: str) -> None:
            answer = await self.ask(wire, kind, {"mode": "x"})
            self.assertIsNotNone(answer.problem)

        await self.assertFreed(check)

    @long("takes seconds")
    async def test_refused(self) -> None:
        """After a call without a token, and one of a method that is not there."""

        async def check(wire: str, kind: str) -> None:
            for name in ("Guarded.ask", "Probe.none"):
                answer = await self.ask(wire, kind, {"text": "a"}, to=name)
                self.assertIsNotNone(answer.problem)

        await self.assertFreed(check)

    @long("takes seconds")
    async def test_failure(self) -> None:
        """After an error of a handler."""

        async def check(wire: str, kind: str) -> None:
            await self.ask(wire, kind, {"text": "a", "mode": "boom"})
            self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)

        await self.assertFreed(check)

    @long("takes seconds")
    async def test_cancel(self) -> None:
        """After a call that its client has given up."""

        async def check(wire: str, kind: str) -> None:
            begin = self.clients[wire].begin
            name = f"ask{kind.capitalize()}"
            hanging = [{"text": "a", "mode": "hang"}]
            begun = await deferToThread(begin, "Probe", name, kind, hanging, isOpen=True)
            await self.until(lambda: self.probe.hanging)
            await deferToThread(begun.cancel)
            await self.until(lambda: self.probe.cancelled)
            self.probe.cancelled.clear()

        await self.assertFreed(check)

    @long("takes seconds")
    async def test_deadline(self) -> None:
        """After a deadline."""

        async def check(wire: str, kind: str) -> None:
            answer = await self.ask(wire, kind, {"text": "a", "mode": "hang"}, deadlineMs=60)
            assert answer.problem is not None
            self.assertEqual(answer.problem.code, "DEADLINE_EXCEEDED")
            await self.until(lambda: not self.probe.hanging)

        await self.assertFreed(check)


class OwnClientTests(LifetimeTests):
    """Nor are the calls of the client of the package."""

    wires = tuple(URLS)

    def makeClient(self, wire: str, port: int) -> Any:
        """Make a client of the package."""
        return OwnClient(self.reactor, wire, port)


class LostLifetimeTests(LifetimeCase):
    """The same after lost connections and large input."""

    @long("takes seconds")
    async def test_abort(self) -> None:
        """After a connection that is lost while a call waits."""

        async def check(wire: str, kind: str) -> None:
            client = await deferToThread(CLIENTS[wire], self.ports[wire].getHost().port)
            name = f"ask{kind.capitalize()}"
            hanging = [{"text": "a", "mode": "hang"}]
            begun = await deferToThread(client.begin, "Probe", name, kind, hanging, isOpen=True)
            await self.until(lambda: self.probe.hanging)
            await deferToThread(begun.cancel if wire == "http" else client.close)
            await self.until(lambda: self.probe.cancelled)
            self.probe.cancelled.clear()

        # A datagram has no connection to lose.
        await self.assertFreed(check, [wire for wire in transportNames() if wire != "udp"])

    @long("takes seconds")
    async def test_large(self) -> None:
        """After requests that are read in a thread, and of which that cannot be read."""

        async def check(wire: str, kind: str) -> None:
            # Messages of gRPC have no further fields.
            large = {"text": "x" * 200_000} if wire == "grpc" else {"text": "a", "rows": ROWS}
            await self.ask(wire, kind, large)
            await deferToThread(self.sendBroken, wire)

        await self.assertFreed(check, ["http", "websocket", "tcp", "grpc"])

    def sendBroken(self, wire: str) -> None:
        """Send a long message that is no JSON, and half of one; then hang up."""
        address = self.ports[wire].getHost()
        if wire == "grpc":
            with grpc.insecure_channel(f"127.0.0.1:{address.port}") as channel:
                call = channel.unary_unary("/Probe/askNone")
                self.assertRaises(grpc.RpcError, call, b"\xff" * 200_000, timeout=60)
            return
        text = json.dumps({"text": "a", "rows": ROWS}).encode()[:-1]
        if wire == "websocket":
            with connect(f"ws://127.0.0.1:{address.port}/ws") as client:
                client.send([text[:100_000].decode(), text[100_000:].decode()])
                client.recv(60)
            with socket.create_connection(("127.0.0.1", address.port)) as plain:
                fields = (b"%b: %b" % field for field in FIELDS.items())
                plain.sendall(b"\r\n".join((b"GET /ws HTTP/1.1", *fields, b"", b"")))
                plain.recv(1000)
                plain.sendall(struct.pack("!BBQ4s", 0x01, 0xFF, len(text), b"abcd") + text)
                plain.sendall(struct.pack("!BBQ4s", 0x00, 0xFF, len(text), b"abcd") + text[:9999])
            return
        for part in (text, text[:-10_000]):
            with socket.create_connection(("127.0.0.1", address.port)) as plain:
                if wire == "tcp":
                    plain.sendall(struct.pack("!BBI", 1, 1, len(text)) + part)
                else:
                    head = (
                        b"POST /api/Probe/askNone HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
                    )
                    plain.sendall(head % len(text) + part)
                if part is text:
                    plain.recv(10_000)
