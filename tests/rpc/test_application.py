"""The application: what may be added, where it listens, and what is refused. No port is opened."""

from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.core.context import REQUEST_SECONDS
from storagegate.core.definitions import DefinitionError
from storagegate.core.options import OptionError
from storagegate.net.forwarded import compileTrust
from storagegate.rpc.application import GRPCServer
from storagegate.rpc.call import Call
from storagegate.rpc.protos import loadProto
from tests.support.rpccallcase import Boom
from tests.support.rpcwire import FakeServerCall

PROTO = """
syntax = "proto3";
package {package};
message Text {{ string text = 1; }}
service Echo {{ rpc Say (Text) returns (Text); rpc Never (Text) returns (Text); }}
"""


class AddTests(SynchronousTestCase):
    """The forms of addService."""

    def setUp(self) -> None:
        """Make an application, and a proto whose package no other test has."""
        self.app = server.grpc()
        self.package = f"p{abs(hash(self.id()))}"
        self.path = Path(self.mktemp()).with_suffix(".proto")
        self.path.write_text(PROTO.format(package=self.package))

    def loaded(self) -> Any:
        """Load the proto."""
        return loadProto(self.path)

    def answer(self, path: str, request: bytes = b"") -> FakeServerCall:
        """Let a call be answered."""
        call = FakeServerCall(path)
        call.arrive(request, None)
        self.app._router.accept(self.app.settings.callLimits(100), call)
        return call

    def test_forms(self) -> None:
        """A service comes by keywords, as a mapping, or by name and mapping."""
        methods = {"echo": {"handler": lambda request: request}}
        self.app.addService(name="A", methods=methods)
        self.app.addService({"name": "B", "methods": methods})
        self.app.addService("C", {"methods": methods})
        self.app.addService("D", methods)
        self.app.addService(name="E", methods={"echo": lambda request: request})
        self.assertEqual(list(self.app.services), ["A", "B", "C", "D", "E"])
        for name in self.app.services:
            self.assertEqual(self.answer(f"/{name}/echo").messages, [b""])

    def test_definition(self) -> None:
        """A definition comes with its implementation, in its words or in camelCase."""
        for name in ("Say", "say"):
            self.app = server.grpc()
            self.app.addService(
                definition=self.loaded().Echo, implementation={name: lambda call: call.request}
            )
            call = self.answer(f"/{self.package}.Echo/Say", b"\x0a\x01a")
            self.assertEqual(call.messages, [b"\x0a\x01a"])

    def test_definitionMapping(self) -> None:
        """Both may be in one mapping; the implementation may be an object."""

        class Echo:
            def say(self, call: Any) -> dict[str, Any]:
                return {"text": "x" + call.request["text"]}

        self.app.addService({"definition": self.loaded().Echo, "implementation": Echo()})
        call = self.answer(f"/{self.package}.Echo/Say", b"\x0a\x01a")
        self.assertEqual(call.messages, [b"\x0a\x02xa"])

    def test_missing(self) -> None:
        """A method without an implementation is UNIMPLEMENTED, and said when it is added."""
        self.app.addService(definition=self.loaded().Echo, implementation={})
        call = self.answer(f"/{self.package}.Echo/Never")
        assert call.status is not None
        self.assertEqual(call.status[0], 12)

    def test_loadedMessages(self) -> None:
        """A service by its name alone has the messages of a proto that was loaded."""
        self.loaded()
        self.app.addService(
            name=f"{self.package}.Echo", methods={"Say": lambda request: {"text": request["text"]}}
        )
        call = self.answer(f"/{self.package}.Echo/Say", b"\x0a\x01a")
        self.assertEqual(call.messages, [b"\x0a\x01a"])

    def test_call(self) -> None:
        """A handler with two parameters gets the call."""
        seen: list[Any] = []

        def handler(request: Any, call: Any) -> Any:
            seen.append((call.method, call.service))
            return request

        self.app.addService(name="A", methods={"echo": handler})
        self.answer("/A/echo")
        self.assertEqual(seen, [("echo", "A")])

    def test_ownDefault(self) -> None:
        """A second parameter with a default is the handler's own."""
        self.app.addService(name="A", methods={"echo": lambda request, times=2: {"n": times}})
        self.assertEqual(len(self.answer("/A/echo").messages), 1)

    def test_twice(self) -> None:
        """Two services of one name are an error that names it."""
        self.app.addService(name="A", methods={"echo": lambda request: request})
        error = self.assertRaises(
            DefinitionError, self.app.addService, name="A", methods={"e": lambda request: request}
        )
        self.assertEqual(str(error), "the service A is already defined")
        self.assertEqual(len(self.answer("/A/echo").messages), 1)

    def test_refused(self) -> None:
        """What is no service is refused with a word about what is wrong."""
        for arguments, word in (
            ({"name": "A"}, "no methods"),
            ({"name": "A", "methods": {}}, "no methods"),
            ({"methods": {"echo": print}}, "has a name"),
            ({"name": "A", "methods": {"echo": 5}}, "A.echo"),
            ({"name": "A", "methods": {"echo": {"handler": None}}}, "no handler"),
            ({"name": "A", "methods": {"echo": {"handler": print, "kind": 1}}}, "'kind'"),
            ({"name": "A", "methods": {"echo": lambda: 1}}, "(request)"),
            ({"name": "A", "methods": {"echo": lambda a, b, c: 1}}, "(request)"),
            ({"definition": 5}, "loaded proto"),
            ({"definition": self.loaded().Echo, "implementation": {"X": print}}, "'X'"),
            ({"definition": self.loaded().Echo, "implementation": {"Say": 5}}, "not a function"),
        ):
            given: dict[str, Any] = dict(arguments)  # type: ignore[call-overload]
            error = self.assertRaises(DefinitionError, self.app.addService, **given)
            self.assertIn(word, str(error))
        self.assertEqual(self.app.services, {})


class AcceptTests(SynchronousTestCase):
    """Calls that no handler answers."""

    def setUp(self) -> None:
        """Make an application with a service."""
        self.app = self.make()

    def make(self, app: GRPCServer | None = None) -> GRPCServer:
        """Add the service to an application."""
        made = app or server.grpc()
        return made.addService(name="pkg.A", methods={"echo": lambda request: request})

    def statusOf(self, path: str) -> tuple[int, str]:
        """Tell how a call ends."""
        call = FakeServerCall(path)
        self.app._router.accept(self.app.settings.callLimits(100), call)
        assert call.status is not None
        return call.status[0], call.status[1]

    def test_unknown(self) -> None:
        """An unknown method and an unknown service are UNIMPLEMENTED, each with its own words."""
        self.assertEqual(self.statusOf("/pkg.A/no"), (12, "unknown method: /pkg.A/no"))
        self.assertEqual(self.statusOf("/pkg.B/no"), (12, "unknown service: /pkg.B/no"))
        self.assertLess(len(self.statusOf("/" + "x" * 9999)[1]), 300)

    def test_tooMany(self) -> None:
        """Calls over the limit are refused, and there is room again when others have ended."""
        self.app.withOptions(grpc={"maxConcurrentRpcs": 1})
        first = FakeServerCall("/pkg.A/echo")
        self.app._router.accept(self.app.settings.callLimits(100), first)
        self.assertEqual(self.app.activeCalls, 1)
        self.assertEqual(self.statusOf("/pkg.A/echo"), (8, "too many calls at a time"))
        first.arrive(b"")
        self.assertEqual(self.app.activeCalls, 0)
        third = FakeServerCall("/pkg.A/echo")
        third.arrive(b"")
        self.app._router.accept(self.app.settings.callLimits(100), third)
        self.assertEqual(third.messages, [b""])

    def test_oneConnection(self) -> None:
        """A connection that has twice its calls at work is refused more, and no other is."""
        limits = self.app.settings.callLimits(2)

        def begin(address: str) -> FakeServerCall:
            call = FakeServerCall("/pkg.A/echo", address=address)
            self.app._router.accept(limits, call)
            return call

        one, other, unix = "ipv4:127.0.0.1:5000", "ipv4:127.0.0.1:5001", "unix:"
        first, *_ = [begin(one) for _ in range(4)]
        self.assertEqual(begin(one).status, (8, "too many calls at a time on this connection", ()))
        self.assertIsNone(begin(other).status)
        self.assertEqual([begin(unix).status for _ in range(9)], [None] * 9)
        first.arrive(b"")
        self.assertIsNone(begin(one).status)
        self.assertEqual(self.app.activeCalls, 14)

    def test_oneAddress(self) -> None:
        """An address has three quarters of the calls; the rest is for others."""
        for options in ({"maxConcurrentRpcs": 4}, {"maxCallsPerAddress": 3}):
            self.app = self.make().withOptions(grpc=options)
            refusal = 8, "too many calls at a time from this address", ()
            calls = [self.begin(f"ipv4:192.0.2.1:{port}") for port in range(4)]
            self.assertEqual([each.status for each in calls], [None] * 3 + [refusal])
            self.assertIsNone(self.begin("ipv4:192.0.2.2:0").status)
            calls[0].arrive(b"")
            self.assertIsNone(self.begin("ipv4:192.0.2.1:3").status)

    def test_networks(self) -> None:
        """The addresses of one IPv6 network are one; clients of a UNIX socket are not."""
        self.app.withOptions(grpc={"maxCallsPerAddress": 1})
        calls = [self.begin(f"ipv6:[2001:db8::{port}]:{port}") for port in (1, 2)]
        self.assertEqual([each.status is None for each in calls], [True, False])
        self.assertEqual([self.begin("unix:").status for _ in range(3)], [None] * 3)

    def test_proxies(self) -> None:
        """A call that a trusted proxy passes on counts for the client that it names."""
        self.app = self.make(GRPCServer(compileTrust("192.0.2.1")))
        self.app.withOptions(grpc={"maxCallsPerAddress": 1})
        found = [
            self.begin("ipv4:192.0.2.1:5", [("x-forwarded-for", named)]).status is None
            for named in ("198.51.100.1", "198.51.100.2", "9.9.9.9, 198.51.100.2")
        ]
        self.assertEqual(found, [True, True, False])

    def begin(self, address: str, metadata: Any = ()) -> FakeServerCall:
        """Begin a call from an address."""
        call = FakeServerCall("/pkg.A/echo", metadata, address=address)
        self.app._router.accept(self.app.settings.callLimits(100), call)
        return call

    def test_lateRequest(self) -> None:
        """A request has ten minutes to arrive; a stream of them, and a handler, have no limit."""
        self.app.addService(
            "pkg.B",
            {
                "collect": {"handler": lambda request: Deferred(), "streaming": "client"},
                "wait": lambda request: Deferred(),
            },
        )
        calls = {name: FakeServerCall(f"/pkg.{name}") for name in ("A/echo", "B/wait", "B/collect")}
        for call in calls.values():
            self.app._router.accept(self.app.settings.callLimits(100), call)
        calls["B/wait"].arrive(b"")
        router = self.app._router
        for seconds in (0.0, REQUEST_SECONDS - 1):
            router.checkRequests(seconds)
        self.assertEqual([call.status for call in calls.values()], [None] * 3)
        router.checkRequests(REQUEST_SECONDS)
        statuses = [call.status and call.status[:2] for call in calls.values()]
        refusal = (4, "the request was not complete after 600 seconds")
        self.assertEqual(statuses, [refusal, None, None])
        calls["A/echo"].arrive(None)
        self.assertEqual(self.app.activeCalls, 2)

    def test_told(self) -> None:
        """Who asks for it is told of each of these, before it is answered."""
        told: list[tuple[str, str, str, bool]] = []

        def refused(call: Call, error: Exception) -> None:
            told.append((call.service, call.method, str(error), call.cancelled))

        self.app.onRefused = refused
        self.app.withOptions(grpc={"maxConcurrentRpcs": 1})
        self.statusOf("/pkg.A/no")
        self.statusOf("no")
        self.app._router.accept(self.app.settings.callLimits(100), FakeServerCall("/pkg.A/echo"))
        self.statusOf("/pkg.A/echo")
        self.assertEqual(
            told,
            [
                ("pkg.A", "no", "UNIMPLEMENTED: unknown method: /pkg.A/no", False),
                ("", "no", "UNIMPLEMENTED: unknown service: no", False),
                ("pkg.A", "echo", "RESOURCE_EXHAUSTED: too many calls at a time", False),
            ],
        )

    def test_toldInVain(self) -> None:
        """Calls are answered all the same if the observer fails."""

        def refused(call: Call, error: Exception) -> None:
            raise Boom

        self.app.onRefused = refused
        self.assertEqual(self.statusOf("/pkg.A/no"), (12, "unknown method: /pkg.A/no"))
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)


class PlaceTests(SynchronousTestCase):
    """Where an application listens."""

    def test_places(self) -> None:
        """A port, an interface, both as one text, or a socket's path; else the options say."""
        app = server.grpc().withOptions(port=5, hostname="::1")
        for arguments, place in (
            ((None, None), ("::1", 5)),
            ((0, None), ("::1", 0)),
            ((7, "127.0.0.1"), ("127.0.0.1", 7)),
            (("0.0.0.0:8", None), ("0.0.0.0", 8)),
            (("[::]:9", None), ("::", 9)),
            (("unix:/run/x", None), ("unix:/run/x", None)),
        ):
            self.assertEqual(app._address(*arguments), place)

    def test_refused(self) -> None:
        """What is no port is an error that says so."""
        app = server.grpc()
        for port in (-1, 65536, "localhost", "127.0.0.1:x", "127.0.0.1:99999", True):
            self.assertRaises(OptionError, app._address, port, None)

    def test_middleware(self) -> None:
        """What is not a function is no middleware."""
        self.assertRaises(TypeError, server.grpc().use, 5)
