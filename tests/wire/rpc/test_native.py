"""
The native engine does what the engine on grpc core does: their cases are the same.

Cases that differ are here in full, with what the specification wants.
"""

import socket
import ssl
import subprocess
from typing import Any

import grpc
from hyperframe.frame import DataFrame, WindowUpdateFrame
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from storagegate import server
from storagegate.core.options import OptionError
from tests.support.h2client import PREFACE, H2Client, H2Stream, framed
from tests.support.nativeengine import OnNativeEngine, casesWith
from tests.support.rpcroutes import textService
from tests.support.selection import long
from tests.wire.rpc import (
    test_addresses,
    test_application,
    test_backpressure,
    test_calls,
    test_cancellation,
    test_churn,
    test_clientwithserver,
    test_connectionoptions,
    test_connections,
    test_generated,
    test_health,
    test_hostileusers,
    test_interop,
    test_malformed,
    test_messageoptions,
    test_middleware,
    test_midmessage,
    test_misuse,
    test_reflection,
    test_stopping,
    test_tls,
    test_typed,
    test_users,
)
from tests.wire.rpc.optioncase import ECHO, HOLD
from tests.wire.rpc.support import RPCCase
from tests.wire.rpc.test_malformed import (
    INTERNAL,
    MESSAGE,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    besides,
    bodied,
    having,
    headed,
)

_MODULES = (
    test_addresses,
    test_application,
    test_backpressure,
    test_calls,
    test_cancellation,
    test_churn,
    test_clientwithserver,
    test_connectionoptions,
    test_connections,
    test_generated,
    test_health,
    test_hostileusers,
    test_interop,
    test_malformed,
    test_messageoptions,
    test_middleware,
    test_midmessage,
    test_misuse,
    test_reflection,
    test_stopping,
    test_tls,
    test_typed,
    test_users,
)

_OTHERS = ("SettlingTests", "PeriodTests")
"""The classes whose reactor has other time than its connections, which only grpc core allows."""


class NativeClientTests(OnNativeEngine, test_tls.ClientTests):
    """Who gets in."""

    async def test_several(self) -> None:
        """A client gets the certificate whose algorithm it knows; two of one are an error."""
        cert, key = self.authority.issue(file="rsa", isRSA=True)
        port = await self.serveTLS(cert=[self.cert, cert], key=[self.key, key])

        def shown(ciphers: str) -> bytes:
            context = ssl.create_default_context(cafile=str(self.authority.path))
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            context.set_ciphers(ciphers)
            context.set_alpn_protocols(["h2"])
            with (
                socket.create_connection(("127.0.0.1", port), 20) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as secured,
            ):
                return secured.getpeercert(binary_form=True) or b""

        for ciphers, path in (("ECDHE+aECDSA", self.cert), ("ECDHE+aRSA", cert)):
            wanted = ssl.PEM_cert_to_DER_cert(path.read_text())
            self.assertEqual(await deferToThread(shown, ciphers), wanted)
        self.assertEqual(await self.call(port, self.authority.path), grpc.StatusCode.OK)
        app = server.grpc().withOptions(
            tls={"cert": [self.cert] * 2, "key": [self.key] * 2}, grpc={"health": False}
        )
        error = self.assertRaises(OptionError, app.listen, 0)
        self.assertIn("keys of different algorithms", str(error))

    async def test_protocols(self) -> None:
        """A client that offers only HTTP/1.1 gets the alert of RFC 7301; none is needed."""
        port = await self.serveTLS()

        async def shake(*words: str) -> str:
            found = await deferToThread(
                subprocess.run,
                ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", *words],
                input=b"",
                capture_output=True,
                timeout=60,
            )
            return (found.stdout + found.stderr).decode()

        self.assertIn("alert number 120", await shake("-alpn", "http/1.1"))
        self.assertIn("ALPN protocol: h2", await shake("-alpn", "foo,h2"))
        shown = await shake()
        self.assertIn("No ALPN negotiated", shown)
        self.assertIn("Verification", shown)


class NativeHeaderTests(OnNativeEngine, test_malformed.HeaderTests):
    """Headers, of which the engine refuses more than grpc core."""

    async def test_methods(self) -> None:
        """Only POST makes calls; others have the status of HTTP for that."""
        for method in ("GET", "PUT", "OPTIONS", "post"):
            stream = await self.attack(headed(having(":method", method)))
            self.assertEqual((stream.status, self.handled), (None, 0))
            fields = stream.trailers
            self.assertEqual((fields[":status"], fields["allow"]), ("405", "POST"))
        await self.assertReset(having(":method", ""))

    async def test_contentType(self) -> None:
        """A content type that is not gRPC's is refused by HTTP."""
        for value in ("text/html", "application/grpc-web", "application/grpcx", ""):
            stream = await self.attack(headed(having("content-type", value)))
            self.assertEqual((stream.status, stream.trailers[":status"]), (None, "415"))
        for value in ("application/grpc+proto", "application/grpc;a=b"):
            stream = await self.within(self.port, headed(having("content-type", value)))
            self.assertEqual(stream.status, 0)

    async def test_paths(self) -> None:
        """A path that is not exactly a method's is UNIMPLEMENTED, and one that is none is reset."""
        for path in (f"/{ECHO}", f"{ECHO}/", f"{ECHO}?x=1", "/", "//", "/../Probe/echo"):
            await self.assertRefused(having(":path", path), UNIMPLEMENTED)
        for path in ("", "*", ECHO[1:], "/a\r\nb", "/\x00"):
            await self.assertReset(having(":path", path))

    async def test_values(self) -> None:
        """A deadline, an encoding or base64 that is none ends the call."""
        for name, value, status in (
            ("grpc-timeout", "abc", INTERNAL),
            ("grpc-timeout", "-1S", INTERNAL),
            ("grpc-timeout", "", INTERNAL),
            ("x-bin", "!!!!", INTERNAL),
            ("grpc-encoding", "br", UNIMPLEMENTED),
            ("grpc-encoding", "snappy", UNIMPLEMENTED),
        ):
            await self.assertRefused(besides(name, value), status)

    async def test_encodings(self) -> None:
        """The refusal of an encoding names those that are accepted."""
        stream = await self.attack(headed(besides("grpc-encoding", "br")))
        self.assertEqual(stream.trailers["grpc-accept-encoding"], "identity,gzip,deflate")

    async def test_malformed(self) -> None:
        """What HTTP/2 forbids, or a proxy could turn into other requests, is reset."""
        for name, value in (
            ("X-Upper", "a"),
            ("x y", "a"),
            ("", "a"),
            (":foo", "a"),
            ("x-a", "a\x00b"),
            ("x-a", "a\r\nb: c"),
            ("connection", "close"),
            ("transfer-encoding", "chunked"),
            ("te", "gzip"),
            ("content-length", "5"),
            ("content-length", "+5"),
        ):
            await self.assertReset(besides(name, value))

    async def test_harmless(self) -> None:
        """Other fields are no more than metadata."""
        for name, value in (
            ("x-a", "\u00ff"),
            ("grpc-status", "5"),
            ("x-bin", "//79"),
            ("x-bin", "//79,AA"),
            ("grpc-accept-encoding", ",x"),
        ):
            stream = await self.attack(headed(besides(name, value)))
            self.assertEqual((stream.status, stream.messages), (0, [(False, MESSAGE)]), name)


class NativeBodyTests(OnNativeEngine, test_malformed.BodyTests):
    """Messages, where grpc core runs a handler without its request."""

    async def test_cut(self) -> None:
        """A stream that ends within a message is INTERNAL, and no handler runs."""
        for body in (b"\0", b"\0\0\0", b"\0\0\0\0\x10abc"):
            stream = await self.attack(bodied(body))
            self.assertEqual(stream.status, INTERNAL)
        stream = await self.attack(bodied(b"\0\xff\xff\xff\xffabc"))
        self.assertEqual((stream.status, self.handled), (RESOURCE_EXHAUSTED, 0))

    async def test_cutLater(self) -> None:
        """So is one that ends within a later message."""
        for path in (ECHO, HOLD):
            stream = await self.attack(bodied(framed(MESSAGE) + b"\0\0", path))
            self.assertEqual((stream.status, self.handled), (INTERNAL, 0))

    async def test_flags(self) -> None:
        """A flag that is neither 0 nor 1 is INTERNAL; so is 1 without an encoding."""
        for flag in (1, 2, 0xFF):
            body = bytes([flag]) + framed(MESSAGE)[1:]
            for path in (ECHO, HOLD):
                stream = await self.attack(bodied(body, path))
                self.assertEqual((stream.status, self.handled), (INTERNAL, 0))

    async def test_cutWhileHandled(self) -> None:
        """A handler that has read messages is cancelled, and its client has the status."""

        def use(client: H2Client) -> H2Stream:
            stream = client.begin(HOLD)
            client.sendMessage(stream, MESSAGE)
            client.readUntil(lambda: len(stream.messages) == 2)
            client.sendData(stream, b"\0\0\0", isLast=True)
            return client.finish(stream)

        stream = await self.attack(use)
        self.assertEqual((stream.status, len(stream.messages)), (INTERNAL, 2))
        self.assertEqual(self.app.activeCalls, 0)


class NativeMisuseTests(OnNativeEngine, test_misuse.MisuseTests):
    """Handlers that make mistakes."""

    async def test_blocks(self) -> None:
        """A handler that blocks the reactor makes others wait, and nothing worse."""
        client = self.connect()

        def run() -> list[int | None]:
            calls = [client.begin(self.path(each)) for each in ("Blocks", "Unary")]
            for call in calls:
                client.sendMessage(call, b"", isLast=True)
            self.service.mayGoOn.set()
            return [client.finish(call).status for call in calls]

        self.assertEqual(await deferToThread(run), [0, 0])
        await self.assertServes()

    async def test_badTrailers(self) -> None:
        """Trailers that cannot be sent are INTERNAL, instead of no answer."""
        client = self.connect()
        call = await deferToThread(
            lambda: client.call(self.path("BadTrailers"), b"", metadata=[("grpc-timeout", "20S")])
        )
        self.assertEqual(call.status, INTERNAL)
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)
        await self.assertServes()


class NativeTLSEndTests(OnNativeEngine, test_tls.TLSCase):
    """The end of a connection with TLS."""

    async def test_announced(self) -> None:
        """A client that breaks the protocol gets the reason, and the end by TLS."""
        port = await self.serveTLS()
        context = ssl.create_default_context(cafile=str(self.authority.path))
        context.set_alpn_protocols(["h2"])

        def run() -> bytes:
            plain = socket.create_connection(("127.0.0.1", port), 20)
            with context.wrap_socket(
                plain, server_hostname="localhost", suppress_ragged_eofs=False
            ) as client:
                # A stream of the wrong parity, after the preface and SETTINGS.
                client.sendall(PREFACE + bytes(3) + b"\x04" + bytes(5))
                client.sendall(bytes(3) + b"\x01\x05" + (2).to_bytes(4, "big"))
                received = b""
                # Raises an error if the end is not announced.
                while data := client.recv(65_536):
                    received += data
                return received

        self.assertIn(b"wrong parity", await deferToThread(run))


class NativeStopTests(OnNativeEngine, test_stopping.StopCase):
    """A server that stops, as its clients see it."""

    @long("waits for a client that answers no ping")
    async def test_late(self) -> None:
        """
        A call that was sent before the client heard of the end is answered; GOAWAY comes twice.
        """
        port = await self.listen(self.app)
        client = H2Client(port)
        self.addCleanup(client.close)
        await deferToThread(client.call, "/test.Service/Unary", b"")
        stopping = self.app.stop(test_stopping.LONG_MS)

        def use() -> tuple[int | None, list[int]]:
            first = client.goAway()
            assert first is not None
            # The client has not answered the server's ping.
            stream = client.begin("/test.Service/Unary")
            client.sendMessage(stream, b"", isLast=True)
            client.finish(stream)
            client.readToEnd()
            lasts = [
                each.last_stream_id for each in client.frames if hasattr(each, "last_stream_id")
            ]
            return stream.status, lasts

        client.isSilent = True
        status, lasts = await deferToThread(use)
        self.assertEqual((status, lasts), (0, [2**31 - 1, 3]))
        await stopping

    async def test_refusedAfterwards(self) -> None:
        """A call after the last GOAWAY is not accepted, and those before it end."""
        port = await self.listen(self.app)
        client = H2Client(port)
        self.addCleanup(client.close)
        slow = client.begin("/test.Service/Slow")
        client.sendMessage(slow, b"", isLast=True)
        await self.opened(1)
        stopping = self.app.stop(test_stopping.LONG_MS)

        def heard() -> H2Stream:
            client.readUntil(lambda: sum(hasattr(f, "last_stream_id") for f in client.frames) == 2)
            late = client.begin("/test.Service/Unary")
            client.sendMessage(late, b"", isLast=True)
            return late

        late = await deferToThread(heard)
        await deferLater(self.reactor, 0.05)
        self.service.letGo()
        await deferToThread(client.readToEnd)
        self.assertEqual((slow.status, late.status, late.messages), (0, None, []))
        await stopping

    @long("waits for a client that reads nothing")
    async def test_slowReader(self) -> None:
        """A client that reads slowly gets all of its last response, and then the end."""
        big = 12 << 20
        app = server.grpc().withOptions(grpc={"health": False, "maxSendMessageLength": -1})
        definition = textService(Unary="none")
        app.addService(definition=definition, implementation={"unary": lambda call: "x" * big})
        port = await self.listen(app)
        client = H2Client(port, settings={4: 2**31 - 1})
        self.addCleanup(client.close)
        client.send(WindowUpdateFrame(0, window_increment=2**30))
        stream = client.begin("/test.Service/Unary")
        client.sendMessage(stream, b"", isLast=True)
        while not app.connections or app.activeCalls:
            await deferLater(self.reactor, 0.01)
        stopping = app.stop(test_stopping.LONG_MS)
        await deferLater(self.reactor, 1.5)

        def read() -> int:
            received = 0
            client.isSilent = True
            while (frame := client.read()) is not None:
                if isinstance(frame, DataFrame):
                    received += len(frame.data)
                    stream.body = b""
            return received

        self.assertGreater(await deferToThread(read), big)
        self.assertEqual(stream.status, 0)
        await stopping

    async def test_underLoad(self) -> None:
        """No call of a busy client is lost to a server that another one replaces."""
        port = await self.listen(self.makeShared())
        found: list[grpc.StatusCode] = []
        isOver = False

        def load() -> None:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                unary = channel.unary_unary("/test.Service/Unary")
                while not isOver:
                    found.append(unary.future(b"", timeout=30).code())

        loads = [deferToThread(load) for _ in range(4)]
        for _ in range(5):
            other = self.makeShared()
            before = self.app
            self.app = other
            await other.listen(port, "127.0.0.1", reactor=self.reactor)
            await before.stop(test_stopping.LONG_MS)
            await deferLater(self.reactor, 0.05)
        isOver = True
        for each in loads:
            await each
        self.assertGreater(len(found), 20)
        self.assertEqual(set(found), {grpc.StatusCode.OK})

    def makeShared(self) -> Any:
        """Make an application that shares its port."""
        self.app = self.make().withOptions(grpc={"reusePort": True})
        self.addCleanup(self.app.stop, 0)
        return self.app


class NativeSettlingTests(OnNativeEngine, RPCCase):
    """C{stop} with C{settleMs}: no response has to wait."""

    async def test_settles(self) -> None:
        """Calls are accepted and answered meanwhile, then the connection ends."""
        app = server.grpc().withOptions(grpc={"health": False})
        app.addService("Probe", {"echo": lambda request: request})
        port = await self.listen(app)
        with H2Client(port) as client:
            await deferToThread(client.call, "/Probe/echo", b"")
            stopping = app.stop(60_000, 200)
            stream = await deferToThread(client.call, "/Probe/echo", b"")
            self.assertEqual(stream.status, 0)
            self.assertNoResult(stopping)
            await deferToThread(client.readToEnd)
            await stopping


class NativeLoadTests(OnNativeEngine, test_stopping.LoadTests):
    """A server that stops under load."""

    test_stuck = long("takes two seconds")(test_stopping.LoadTests.test_stuck)

    async def test_waitingCalls(self) -> None:
        """Calls that were sent before a server stops are answered, also if it reads them later."""
        port = await self.listen(self.app)
        clients = [H2Client(port) for _ in range(6)]
        for client in clients:
            self.addCleanup(client.close)
            await deferToThread(client.call, "/test.Service/Unary", b"")
        calls = []
        for client in clients:
            for _ in range(40):
                stream = client.begin("/test.Service/Unary")
                client.sendMessage(stream, b"", isLast=True)
                calls.append((client, stream))
        stopping = self.app.stop(test_stopping.LONG_MS)
        statuses = [(await deferToThread(each.finish, stream)).status for each, stream in calls]
        await stopping
        self.assertEqual(statuses, [0] * 240)


class NativeListenTests(OnNativeEngine, test_application.ListenTests):
    """C{listen}."""

    async def test_stop(self) -> None:
        """A call in flight ends in the grace; a new one then finds no port."""
        goOn: Deferred[None] = Deferred()

        async def wait(request: Any) -> Any:
            await goOn
            return {"done": True}

        self.app.addService(name="Probe", methods={"wait": {"handler": wait}})
        self.port = await self.listen(self.app)
        answer = Deferred.fromCoroutine(self.unary("/Probe/wait"))
        while not self.app.activeCalls:
            await deferLater(self.reactor, 0.001)
        stopped = self.app.stop(graceMs=20_000)
        await deferLater(self.reactor, 0.05)
        status, _details = await self.refused("/Probe/wait")
        self.assertEqual(status, "UNAVAILABLE")
        goOn.callback(None)
        self.assertEqual(await answer, {"done": True})
        await stopped


globals().update(casesWith(OnNativeEngine, "Native", _MODULES, __name__, {*_OTHERS, *globals()}))
