"""The client of a gateway over real sockets: the same contract on every transport."""

import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.protocol import DatagramProtocol, Factory, Protocol
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from storagegate import ServiceError, createGatewayClient, createProtocolGateway
from storagegate.gateway.client import RemoteGateway
from storagegate.gateway.messages.frames import END, ITEM, encodeFrame
from tests.support.certificates import Authority
from tests.support.gateway import TOKEN, Probe, guarded
from tests.support.selection import long

FORMS: tuple[tuple[str, str], ...] = (
    ("http", ""),
    ("ws", "json"),
    ("ws", "binary"),
    ("ws", "msgpack"),
    ("tcp", "frames"),
    ("tcp", "lines"),
    ("udp", ""),
    ("grpc", ""),
    ("grpc", "native"),
)
"""The schemes and formats, or engines, that a client has."""

WIRES = {"http": "http", "ws": "http", "tcp": "tcp", "udp": "udp", "grpc": "grpc"}

STREAMED = ("http", "ws", "tcp", "grpc")
"""The schemes with a connection."""


class ClientCase(TestCase):
    """A gateway on all transports, and its clients."""

    timeout = 60

    async def setUp(self) -> None:  # type: ignore[override]
        """Serve."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.probe = Probe(self.reactor)
        self.gateway = self.makeGateway(port=0, tcp={"port": 0}, udp={"port": 0})
        self.ports = await self.gateway.listen(reactor=self.reactor)
        self.addCleanup(self.gateway.stop, 0)

    def makeGateway(self, **options: Any) -> Any:
        """Make a gateway with the services."""
        gateway = createProtocolGateway(grpc={"port": 0, "reflection": True}, **options)
        validate = {"validate": lambda key, context: key == TOKEN and {"sub": "ann"}}
        gateway.configureAuthentication(providers={"apikey": validate})
        gateway.addService(self.probe.definition()).addService(guarded(self.probe))
        return gateway

    def url(self, scheme: str) -> str:
        """Return the URL of a listener."""
        return f"{scheme}://127.0.0.1:{self.ports[WIRES[scheme]].getHost().port}"

    def client(self, scheme: str, format: str = "", **options: Any) -> RemoteGateway:
        """Make a client, which is closed at the end."""
        given: Any = {"format": format} if format else {}
        if format == "native":
            given = {"grpcEngine": format}
        client = createGatewayClient(self.url(scheme), reactor=self.reactor, **given, **options)
        self.addCleanup(client.close)
        return client

    async def everywhere(self, check: Callable[[RemoteGateway], Awaitable[None]]) -> None:
        """Run a check with each client, and report all that fail."""
        failed: dict[str, BaseException] = {}
        for form in FORMS:
            try:
                await check(self.client(*form))
            except Exception as error:
                failed["/".join(form)] = error
        self.assertEqual(failed, {})

    async def code(self, call: Any) -> str:
        """Return the code of a call that fails."""
        try:
            found = await call
        except ServiceError as error:
            return error.code
        raise AssertionError(f"the call returned {found!r}")

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait, turn by turn, until a condition is true."""
        while not condition():
            await deferLater(self.reactor, 0.001)


class CallTests(ClientCase):
    """Calls, in every form."""

    async def test_kinds(self) -> None:
        """Each kind of streaming has its results, in order."""

        async def check(client: RemoteGateway) -> None:
            texts = [{"text": "a"}, {"text": "b"}]
            self.assertEqual(await client.call("Probe", "askNone", texts[0]), {"text": "A"})
            served = [each async for each in client.call("Probe", "askServer", texts[0])]
            self.assertEqual(served, [{"text": "hello"}, {"text": "A"}])
            joined = await client.call("Probe", "askClient", requests=texts)
            self.assertEqual(joined, {"text": "A B"})
            chatted = client.call("Probe", "askBidirectional", requests=texts)
            found = [each["text"] async for each in chatted]
            self.assertEqual(found, ["hello", "A", "B"])

        await self.everywhere(check)

    async def test_conversation(self) -> None:
        """A request of a stream may depend on a reply: both directions run at the same time."""

        async def check(client: RemoteGateway) -> None:
            turns: list[Deferred[str]] = [Deferred() for _ in range(3)]

            async def requests() -> AsyncIterator[dict[str, str]]:
                for turn in turns[:-1]:
                    yield {"text": await turn + "!"}

            call = client.call("Probe", "askBidirectional", requests=requests())
            found = []
            async for each in call:
                found.append(each["text"])
                turns[len(found) - 1].callback(each["text"])
            self.assertEqual(found, ["hello", "HELLO!", "HELLO!!"])

        await self.everywhere(check)

    async def test_concurrent(self) -> None:
        """Calls of one client run at the same time, and each gets its own reply."""

        async def check(client: RemoteGateway) -> None:
            late = client.call("Probe", "askNone", {"text": "a", "mode": "hang"})
            self.assertEqual(await client.call("Probe", "askNone", {"text": "b"}), {"text": "B"})
            calls = [client.call("Probe", "askNone", {"text": str(n)}) for n in range(20)]
            self.assertEqual([await each for each in calls], [{"text": str(n)} for n in range(20)])
            late.cancel()

        await self.everywhere(check)

    async def test_errors(self) -> None:
        """The error of a call has its code, its message and its details."""

        async def check(client: RemoteGateway) -> None:
            with self.assertRaises(ServiceError) as caught:
                await client.call("Probe", "askNone", {"mode": "x"})
            error = caught.exception
            self.assertIn(error.code, ("VALIDATION_ERROR", "INVALID_ARGUMENT"))
            self.assertEqual((error.message, error.statusCode), ("text is required", 400))
            unknown = await self.code(client.call("Probe", "nothing"))
            self.assertIn(unknown, ("NOT_FOUND", "UNIMPLEMENTED"))
            self.assertEqual(await client.call("Probe", "askNone", {"text": "a"}), {"text": "A"})

        await self.everywhere(check)

    async def test_credentials(self) -> None:
        """The API key of the client or of a call is sent as its transport carries it."""

        async def check(client: RemoteGateway) -> None:
            call = ("Guarded", "askNone", {"text": "a"})
            self.assertEqual(await self.code(client.call(*call)), "UNAUTHENTICATED")
            self.assertEqual(await client.call(*call, apiKey=TOKEN), {"text": "A"})

        await self.everywhere(check)
        for form in FORMS:
            client = self.client(*form, apiKey=TOKEN)
            self.assertEqual(await client.call("Guarded", "askNone", {"text": "a"}), {"text": "A"})
            refused = client.call("Guarded", "askNone", {"text": "a"}, apiKey="")
            self.assertEqual(await self.code(refused), "UNAUTHENTICATED")

    async def test_deadline(self) -> None:
        """A call ends with its deadline, in the client and in the server."""

        async def check(client: RemoteGateway) -> None:
            hanging = {"text": "a", "mode": "hang"}
            # On a busy machine a short deadline may pass before the handler has begun.
            for deadline in (50, 1000, 15_000):
                begun, ended = len(self.probe.hung), len(self.probe.cancelled)
                call = client.call("Probe", "askNone", hanging, deadlineMs=deadline)
                self.assertEqual(await self.code(call), "DEADLINE_EXCEEDED")
                if len(self.probe.hung) > begun:
                    await self.until(lambda ended=ended: len(self.probe.cancelled) > ended)
                    return
            self.fail("no handler has begun")

        await self.everywhere(check)

    async def test_cancel(self) -> None:
        """A cancelled call is cancelled in the server; the client can be used further."""

        async def check(client: RemoteGateway) -> None:
            for kind in ("Server", "Bidirectional"):
                before = len(self.probe.hung), len(self.probe.cancelled)
                hanging = {"text": "a", "mode": "hang"}
                requests = {"requests": [hanging]} if kind == "Bidirectional" else {"data": hanging}
                async with client.call("Probe", f"ask{kind}", **requests) as call:
                    self.assertEqual(await anext(call), {"text": "hello"})
                    await self.until(lambda before=before: len(self.probe.hung) > before[0])
                await self.until(lambda before=before: len(self.probe.cancelled) > before[1])
                self.assertEqual(await self.code(call), "CANCELLED")
            self.assertEqual(await client.call("Probe", "askNone", {"text": "a"}), {"text": "A"})

        await self.everywhere(check)

    async def test_brokenRequests(self) -> None:
        """An error of the caller's stream ends the call, and is raised in its consumer."""

        async def requests() -> AsyncIterator[dict[str, str]]:
            yield {"text": "a"}
            raise KeyError("no more")

        async def check(client: RemoteGateway) -> None:
            with self.assertRaises(KeyError):
                await client.call("Probe", "askClient", requests=requests())

        await self.everywhere(check)

    async def test_misused(self) -> None:
        """A stream of results cannot be awaited, and unsendable data are refused."""

        async def check(client: RemoteGateway) -> None:
            with self.assertRaises(TypeError):
                await client.call("Probe", "askServer", {"text": "a"})
            with self.assertRaises((ValueError, ServiceError)):
                await client.call("Probe", "askNone", {"text": {1, 2}})
            self.assertEqual(await client.call("Probe", "askNone", {"text": "a"}), {"text": "A"})

        await self.everywhere(check)

    async def test_metadata(self) -> None:
        """Header fields are sent where a transport has them, and refused elsewhere."""
        trace = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
        for scheme, format in FORMS:
            client = self.client(scheme, format)
            found = await client.call("Probe", "whoami", metadata=trace)
            self.assertEqual(found["traceId"], "1" * 32, scheme)
            own = await self.code(client.call("Probe", "whoami", metadata={"Host": "evil"}))
            self.assertEqual(own, "INVALID_ARGUMENT", scheme)

    async def test_closed(self) -> None:
        """Closing a client ends its calls."""

        async def check(client: RemoteGateway) -> None:
            before = len(self.probe.hung)
            call = client.call("Probe", "askNone", {"text": "a", "mode": "hang"})
            await self.until(lambda: len(self.probe.hung) > before)
            await client.close()
            self.assertIn(await self.code(call), ("UNAVAILABLE", "CANCELLED"))

        await self.everywhere(check)


class FlowTests(ClientCase):
    """Large results."""

    def makeGateway(self, **options: Any) -> Any:
        """Add a service that streams without end."""
        self.sent = 0

        async def flood(request: Any, context: Any) -> AsyncIterator[dict[str, str]]:
            while True:
                self.sent += 1
                yield {"text": "x" * 10_000}

        async def large(request: Any, context: Any) -> dict[str, str]:
            return {"text": "x" * request["size"]}

        text = {"type": "object", "properties": {"text": {"type": "string"}}}
        size = {"type": "object", "properties": {"size": {"type": "integer"}}}
        methods = {
            "flood": {"handler": flood, "streaming": "server", "output": text},
            "large": {"handler": large, "input": size, "output": text},
        }
        gateway = super().makeGateway(**options)
        return gateway.addService({"name": "Flow", "methods": methods})

    async def test_slowReader(self) -> None:
        """A reader that pauses makes the server wait; the client buffers a bounded part."""
        for scheme in STREAMED:
            self.sent = 0
            async with self.client(scheme).call("Flow", "flood") as call:
                await anext(call)
                before = -1
                while before != self.sent:
                    before = self.sent
                    await deferLater(self.reactor, 0.05)
                # 10 KB each: the buffers of the sockets and both ends hold a few megabytes.
                self.assertLess(self.sent, 2000, scheme)
                for _ in range(before + 100):
                    self.assertEqual(len((await anext(call))["text"]), 10_000)

    async def test_tooLarge(self) -> None:
        """A response over the limit ends its call alone where the transport permits it."""
        for scheme in STREAMED:
            client = self.client(scheme, maxMessageBytes=100_000)
            code = await self.code(client.call("Flow", "large", {"size": 200_000}))
            self.assertEqual(code, "RESPONSE_TOO_LARGE", scheme)
            small = await client.call("Flow", "large", {"size": 50_000})
            self.assertEqual(len(small["text"]), 50_000, scheme)


class Dropper(Protocol):
    """A server that closes each connection once it has received something."""

    def dataReceived(self, data: bytes) -> None:
        """Close."""
        transport: Any = self.transport
        transport.abortConnection()


class ReconnectTests(ClientCase):
    """Lost connections, and retries."""

    async def test_reconnects(self) -> None:
        """After the server was restarted, the next call connects again."""
        for scheme, format in (("ws", "json"), ("tcp", "frames"), ("http", "")):
            wire = WIRES[scheme]
            client = self.client(scheme, format)
            self.assertEqual(await client.call("Probe", "askNone", {"text": "a"}), {"text": "A"})
            before = len(self.probe.hung)
            lost = client.call("Probe", "askNone", {"text": "a", "mode": "hang"})
            await self.until(lambda before=before: len(self.probe.hung) > before)
            port = self.ports[wire].getHost().port
            await self.gateway.stop(0)
            self.assertIn(await self.code(lost), ("UNAVAILABLE", "CANCELLED"), scheme)
            fixed = {"tcp": {"port": port if wire == "tcp" else 0}, "udp": {"port": 0}}
            self.gateway = self.makeGateway(port=port if wire == "http" else 0, **fixed)
            self.ports = await self.gateway.listen(reactor=self.reactor)
            self.addCleanup(self.gateway.stop, 0)
            self.assertEqual(await client.call("Probe", "askNone", {"text": "b"}), {"text": "B"})

    async def test_retries(self) -> None:
        """Idempotent calls are repeated, others are not: the server may have received them."""
        made: list[Any] = []
        factory = Factory.forProtocol(Dropper)
        build = factory.buildProtocol
        factory.buildProtocol = lambda address: made.append(address) or build(address)  # type: ignore
        factory.noisy = False
        endpoint = serverFromString(self.reactor, "tcp:0:interface=127.0.0.1")
        port = await endpoint.listen(factory)
        self.addCleanup(port.stopListening)
        for scheme in ("http", "tcp"):
            url = f"{scheme}://127.0.0.1:{port.getHost().port}"
            client = createGatewayClient(url, reactor=self.reactor, retries=3)
            self.addCleanup(client.close)
            for isIdempotent, attempts in ((False, 1), (True, 4)):
                made.clear()
                call = client.call("Probe", "echo", isIdempotent=isIdempotent)
                self.assertEqual(await self.code(call), "UNAVAILABLE")
                self.assertEqual(len(made), attempts, scheme)

    @long("takes seconds")
    async def test_unreachable(self) -> None:
        """A call that no server has received is repeated, until the server listens."""
        with contextlib.closing(socket.socket()) as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        for scheme in ("http", "ws", "tcp"):
            url = f"{scheme}://127.0.0.1:{port}"
            client = createGatewayClient(url, reactor=self.reactor, retries=10)
            self.addCleanup(client.close)
            call = client.call("Probe", "askNone", {"text": "a"})
            await deferLater(self.reactor, 0.02)
            options = {"port": port} if scheme != "tcp" else {"port": 0}
            tcp = {"port": port if scheme == "tcp" else 0}
            gateway = self.makeGateway(**options, tcp=tcp, udp={"port": 0})
            await gateway.listen(reactor=self.reactor)
            try:
                self.assertEqual(await call, {"text": "A"}, scheme)
            finally:
                await client.close()
                await gateway.stop(0)


class LossyListener(DatagramProtocol):
    """
    A UDP listener that ignores the first datagrams, and then sends given frames.

    @ivar received: The ids of the requests.
    """

    noisy = False

    def __init__(self, ignored: int, frames: list[tuple[int, dict[str, Any]]]) -> None:
        self.received: list[Any] = []
        self._ignored = ignored
        self._frames = frames

    def datagramReceived(self, datagram: bytes, addr: Any) -> None:
        """Reply after some repetitions."""
        id = json.loads(datagram[struct.calcsize(">BBI") :])["id"]
        self.received.append(id)
        if len(self.received) > self._ignored:
            transport: Any = self.transport
            for type, content in self._frames:
                payload = json.dumps({"id": id, **content}).encode()
                transport.write(encodeFrame(type, payload), addr)


class DatagramTests(ClientCase):
    """Losses over UDP."""

    def listen(self, *arguments: Any) -> tuple[LossyListener, RemoteGateway]:
        """Listen, and make a client."""
        listener = LossyListener(*arguments)
        port = self.reactor.listenUDP(0, listener, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        url = f"udp://127.0.0.1:{port.getHost().port}"
        client = createGatewayClient(url, reactor=self.reactor)
        self.addCleanup(client.close)
        return listener, client

    async def test_repeats(self) -> None:
        """A request without a reply is repeated with its id."""
        listener, client = self.listen(1, [(2, {"data": {"text": "A"}})])
        self.assertEqual(await client.call("Probe", "askNone", {"text": "a"}), {"text": "A"})
        self.assertEqual(len(listener.received), 2)
        self.assertEqual(len(set(listener.received)), 1)

    async def test_reordered(self) -> None:
        """Items that overtake others, or follow the end, are put in order."""
        frames = [
            (ITEM, {"seq": 1, "data": "b"}),
            (END, {"seq": 3}),
            (ITEM, {"seq": 2, "data": "c"}),
            (ITEM, {"seq": 0, "data": "a"}),
        ]
        _, client = self.listen(0, frames)
        call = client.call("Probe", "count")
        self.assertEqual([each async for each in call], ["a", "b", "c"])

    @long("waits a second for lost items")
    async def test_lost(self) -> None:
        """A stream that has lost an item fails."""
        _, client = self.listen(0, [(ITEM, {"seq": 1, "data": "b"}), (END, {"seq": 2})])
        call = client.call("Probe", "count", deadlineMs=20_000)
        with self.assertRaises(ServiceError) as caught:
            await anext(call)
        self.assertEqual(caught.exception.message, "Items of the stream were lost")


class TLSTests(ClientCase):
    """TLS on the transports with connections."""

    def makeGateway(self, **options: Any) -> Any:
        """Serve with TLS."""
        self.authority = Authority(Path(self.mktemp()))
        certificate, key = self.authority.issue("localhost")
        tls = {"cert": str(certificate), "key": str(key)}
        options["tcp"] = {"port": 0, "tls": tls}
        return super().makeGateway(**options, http={"tls": tls})

    async def test_verified(self) -> None:
        """The certificate must come from the authority and have the name of the server."""
        for scheme, wire in (("tls", "tcp"), ("https", "http"), ("wss", "http")):
            port = self.ports[wire].getHost().port
            trusted = {"caFile": str(self.authority.path)}
            codes = []
            for host, tls in (
                ("127.0.0.1", {**trusted, "serverName": "localhost"}),
                ("127.0.0.1", {**trusted, "serverName": "other.example"}),
                ("localhost", {}),
                ("127.0.0.1", {"verify": False}),
            ):
                url = f"{scheme}://{host}:{port}"
                client = createGatewayClient(url, reactor=self.reactor, tls=tls, retries=0)
                self.addCleanup(client.close)
                try:
                    codes.append(await client.call("Probe", "askNone", {"text": "a"}))
                except ServiceError as error:
                    codes.append(error.code)
            good = {"text": "A"}
            self.assertEqual(codes, [good, "UNAVAILABLE", "UNAVAILABLE", good], scheme)
