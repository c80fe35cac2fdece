"""Services in the gateway's form behind a gRPC server, on a wire in memory."""

from collections.abc import AsyncIterable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.core.definitions import readService
from storagegate.core.errors import codedError
from storagegate.rpc.call import Call
from storagegate.rpc.gatewayform import contextOf, implementService
from tests.support.rpcroutes import textService
from tests.support.rpcwire import FakeServerCall

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


def context(*metadata: tuple[str, Any], **options: Any) -> Any:
    """Give the context of a call."""
    wire = FakeServerCall("/pkg.Users/Get", metadata, **options)
    return contextOf(Call(wire, "pkg.Users", "Get"), "Users")


class ContextTests(SynchronousTestCase):
    """What a handler is told of its call."""

    def test_names(self) -> None:
        """The service has its name on all wires, not the one of gRPC; the method its bare name."""
        told = context()
        self.assertEqual((told.protocol, told.service, told.method), ("grpc", "Users", "Get"))

    def test_client(self) -> None:
        """The client has an address and a port, of either version of IP, or a socket's path."""
        for wire, address, port in (
            ("ipv4:127.0.0.1:5000", "127.0.0.1", 5000),
            ("ipv6:[2001:db8::1]:6000", "2001:db8::1", 6000),
            ("unix:/run/s:7", "unix:/run/s:7", 0),
        ):
            client = context(address=wire).client
            self.assertEqual((client.address, client.port), (address, port))
        self.assertEqual(context(address="ipv4:1.2.3.4:5").client.id, "1.2.3.4:5")

    def test_headers(self) -> None:
        """Headers are the first text of each name; what is bytes is none."""
        told = context(("a", "1"), ("user-agent", "x/1"), ("a", "2"), ("b-bin", b"3"))
        self.assertEqual(told.headers, {"a": "1", "user-agent": "x/1"})
        self.assertEqual(told.client.userAgent, "x/1")
        self.assertIsNone(context().client.userAgent)

    def test_deadline(self) -> None:
        """The deadline is there when the client has one."""
        self.assertEqual(context(deadline=12.5).metadata, {"deadline": 12.5})
        self.assertEqual(context().metadata, {})

    def test_tracing(self) -> None:
        """A call belongs to its caller's trace, or begins one."""
        told = context(("traceparent", f"00-{TRACE}-{SPAN}-01"))
        self.assertEqual((told.tracing.traceId, told.tracing.spanId), (TRACE, SPAN))
        self.assertTrue(told.tracing.sampled)
        for metadata in ((), (("traceparent", "nonsense"),)):
            self.assertRegex(context(*metadata).tracing.traceId, r"\A[0-9a-f]{32}\Z")

    def test_user(self) -> None:
        """The user is the one that a middleware has found."""
        call = Call(FakeServerCall(), "a", "b")
        self.assertIsNone(contextOf(call, "a").authentication)
        call.user = {"id": 1}
        self.assertEqual(contextOf(call, "a").authentication, {"id": 1})


async def _upper(request: str, context: Any) -> str:
    return f"{context.method} {request.upper()}"


def _later(request: str, context: Any) -> Deferred[str]:
    later: Deferred[str] = Deferred()
    later.callback(request * 2)
    return later


async def _letters(request: str, context: Any) -> Any:
    for letter in request:
        yield letter


async def _join(requests: AsyncIterable[str], context: Any) -> str:
    return "".join([request async for request in requests])


async def _each(requests: AsyncIterable[str], context: Any) -> Any:
    async for request in requests:
        yield request + context.service


def _refuse(request: str, context: Any) -> str:
    raise codedError("ALREADY_EXISTS", "is there")


METHODS = {
    "Upper": _upper,
    "Later": _later,
    "Plain": lambda request, context: request,
    "Letters": _letters,
    "Join": _join,
    "Each": _each,
    "Refuse": _refuse,
    "Elsewhere": _upper,
}

KINDS = {"Letters": "server", "Join": "client", "Each": "bidirectional"}


class ImplementationTests(SynchronousTestCase):
    """Handlers of C{(request, context)} as what answers calls."""

    def setUp(self) -> None:
        """Make a service that has all methods but one, and one that nobody implements."""
        kinds = {name: KINDS.get(name, "none") for name in METHODS if name != "Elsewhere"}
        self.service = textService("pkg.Text", **kinds, Missing="none")
        self.definition = readService({"name": "Text", "methods": METHODS})

    def call(self, method: str, *messages: bytes, **shapes: Any) -> FakeServerCall:
        """Have a call answered."""
        implementation = implementService(self.definition, self.service, shapes)
        app = server.grpc().addService(definition=self.service, implementation=implementation)
        wire = FakeServerCall(f"/pkg.Text/{method}")
        wire.arrive(*messages, None)
        app._accept(app.settings, wire)
        return wire

    def test_kinds(self) -> None:
        """Handlers of every kind get the request, or the stream of them, and the context."""
        for method, messages, expected in (
            ("Upper", [b"a"], [b"Upper A"]),
            ("Later", [b"a"], [b"aa"]),
            ("Plain", [b"a"], [b"a"]),
            ("Letters", [b"ab"], [b"a", b"b"]),
            ("Join", [b"a", b"b"], [b"ab"]),
            ("Each", [b"a", b"b"], [b"aText", b"bText"]),
        ):
            wire = self.call(method, *messages)
            self.assertEqual((wire.messages, wire.status), (expected, (0, "", [])), method)

    def test_errors(self) -> None:
        """What a service reports has its status."""
        wire = self.call("Refuse", b"a")
        self.assertEqual(wire.status, (6, "is there", []))

    def test_common(self) -> None:
        """What only one of the two has is left out."""
        names = implementService(self.definition, self.service)
        self.assertEqual(sorted(names), sorted(METHODS.keys() - {"Elsewhere"}))
        self.assertEqual((self.call("Missing", b"").status or ())[0], 12)

    def test_shapes(self) -> None:
        """A result that the proto cannot carry is made one that it can, whichever way it came."""
        for method in ("Upper", "Later", "Plain", "Join"):
            wire = self.call(method, b"a", **{method: lambda result: result + "!"})
            self.assertEqual(wire.messages[0][-1:], b"!", method)

    def test_shapedErrors(self) -> None:
        """An error is not shaped."""
        wire = self.call("Refuse", b"a", Refuse=lambda result: "no error")
        self.assertEqual((wire.status or ())[0], 6)
