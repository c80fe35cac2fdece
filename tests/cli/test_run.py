"""The targets of C{storagegate run}."""

import sys
from types import ModuleType
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.cli.invocation import MISUSED, CommandError
from storagegate.cli.run import loadGroup, readCount
from storagegate.cli.targets import importTarget
from storagegate.gateway.gateway import createProtocolGateway


class TargetTests(SynchronousTestCase):
    """Targets of a module."""

    def setUp(self) -> None:
        """Make the module."""
        self.module: Any = ModuleType("notesmodule")
        sys.modules["notesmodule"] = self.module
        self.addCleanup(sys.modules.pop, "notesmodule")
        self.module.app = server.http()
        self.module.create = lambda: self.module.app
        self.module.number = 7

    def load(self, target: str, **addresses: str) -> Any:
        """Load a group."""
        return loadGroup({"target": target, "addresses": addresses})

    def test_servers(self) -> None:
        """Applications, gRPC servers, gateways, values of serve() and functions are accepted."""
        self.module.rpc = server.grpc()
        self.module.gateway = createProtocolGateway()
        self.module.all = server.serve(self.module.app, self.module.rpc)
        self.module.inner = ModuleType("inner")
        self.module.inner.app = self.module.app
        for target, names in (
            ("app", ["http"]),
            ("rpc", ["grpc"]),
            ("gateway", ["gateway"]),
            ("all", ["http", "grpc"]),
            ("create()", ["http"]),
            ("inner.app", ["http"]),
        ):
            self.assertEqual(list(self.load(f"notesmodule:{target}").fronts), names)

    def test_addresses(self) -> None:
        """A flag sets the address of its listener."""
        group = self.load("notesmodule:app", http="8080")
        [listener] = group.fronts["http"].listeners()
        self.assertEqual(listener.endpoint, "tcp:8080:interface=127.0.0.1")

    def test_errors(self) -> None:
        """Anything else is one line that says what to write."""

        async def later() -> Any:
            return self.module.app

        self.module.later = later
        self.module.withPort = lambda port: self.module.app
        for target, message in (
            ("notesmodule", "notesmodule is not MODULE:APP, as in notes:app"),
            ("notes app:app", "notes app:app is not MODULE:APP, as in notes:app"),
            (
                "./shop/notes.py",
                "./shop/notes.py is not MODULE:APP, such as shop.notes:app, instead",
            ),
            (
                "notes.py:app",
                "notes.py:app is not MODULE:APP, such as notes:app, instead of a file",
            ),
            ("nothere.module:app", "there is no module nothere in /"),
            ("notesmodule:nothing", "notesmodule has no nothing"),
            ("notesmodule:number", "notesmodule:number is a int: no application, gRPC server"),
            ("notesmodule:create", "is a function: write notesmodule:create() to serve its result"),
            ("notesmodule:number()", "notesmodule:number is not a function: omit ()"),
            ("notesmodule:withPort()", "the function needs arguments"),
            ("notesmodule:later()", "the function is asynchronous"),
        ):
            error = self.assertRaises(CommandError, self.load, target)
            self.assertIn(message, str(error))
            self.assertEqual(error.code, MISUSED)
        for addresses, message in (
            ({"grpc": "1"}, "--grpc: there is no grpc listener, only http"),
            ({"http": "here"}, "--http: 'here' is not an address"),
        ):
            error = self.assertRaises(CommandError, self.load, "notesmodule:app", **addresses)
            self.assertIn(message, str(error))

    def test_failedImport(self) -> None:
        """An error inside the module is not hidden."""
        self.assertRaises(ModuleNotFoundError, importTarget, "tests.cli.runbroken:app")

    def test_counts(self) -> None:
        """Numbers are digits, within limits."""
        self.assertEqual([readCount("0"), readCount("30")], [0, 30])
        for text in ("", "-1", "1_0", "4000", "two"):
            self.assertRaises(ValueError, readCount, text)


class ServeTests(SynchronousTestCase):
    """The arguments of C{serve}."""

    def test_addresses(self) -> None:
        """A pair has the address of its server."""
        group = server.serve((server.http(), 3000), (server.grpc(), "0.0.0.0:50051"))
        found = [each.endpoint for front in group.fronts.values() for each in front.listeners()]
        self.assertEqual(found, ["tcp:3000:interface=127.0.0.1", "0.0.0.0:50051"])

    def test_errors(self) -> None:
        """Values that are no servers, no servers at all, and wrong addresses are refused."""
        wrong: Any
        for wrong in (None, "app", server.http, (server.http(),), [server.http()]):
            error = self.assertRaises(TypeError, server.serve, wrong)
            self.assertIn("a server is an application of server.http()", str(error))
        self.assertRaises(ValueError, server.serve)
        self.assertRaises(ValueError, server.serve, (server.http(), "here"))
        error = self.assertRaises(ValueError, server.serve, (createProtocolGateway(), 8080))
        self.assertIn("a gateway takes its addresses from its options", str(error))

    def test_alone(self) -> None:
        """Without workers a broadcast reaches nobody, and its functions stay."""
        server.subscribe("news", self.fail)
        server.broadcast("news", 1)
