"""What is written of the framework, held against its code."""

import ast
import re
from typing import Any
from unittest import TestResult

from attrs import fields
from twisted.trial.unittest import SynchronousTestCase

from storagegate import http, server
from storagegate.core.options import OptionError
from storagegate.http.errors import MissingResponse
from storagegate.http.middleware.upload import Upload, UploadLimits
from storagegate.http.options import ApplicationOptions, RouterOptions
from storagegate.http.router import RouteInfo, Router
from storagegate.http.sessions import CookieOptions, Session
from storagegate.http.testing import Client
from tests.support.documents import DOCS, literal, runBlocks, table
from tests.support.signatures import attributeDefaults, defaults, firstWords, publicNames

FRAMEWORK = DOCS / "http.rst"
MIDDLEWARE = DOCS / "middleware.rst"

# What each kind of value may be, and something near it that it may not.
KINDS: dict[str, tuple[Any, Any]] = {
    "wire": (None, {"port": 1}),
    "wires": ({}, {"lines": {"port": 1}}),
    "flag": (True, 1),
    "mapping": ({}, []),
    "milliseconds": (1500, "1500"),
    "number": (1000, "8080"),
    "secret": (["new", "old"], ""),
    "size": ("1kb", "1 stone"),
    "text": ("::1", 1),
    "trust": (["10.0.0.0/8", "loopback"], "somebody"),
    "views": (str, "/no/directory"),
    "websockets": ({"maxConnections": 7}, {"maxConnections": 0}),
}

# What an application is made of, and no user's business.
PARTS = {
    "addLayer",
    "connections",
    "allLayers",
    "dropLayers",
    "endpoint",
    "gateways",
    "index",
    "join",
    "layers",
    "paramHandlers",
    "ports",
    "reloader",
    "trust",
}


class OptionTests(SynchronousTestCase):
    """The options of an application, and of everything else that has some."""

    def test_application(self) -> None:
        """The table has exactly the options of C{withOptions}, in their order, with defaults."""
        expected = []
        for name, default in attributeDefaults(ApplicationOptions):
            expected.append([f"``{name}``", default])
            if name == "development":
                expected += [["``development.hmr``", "``False``"]]
                expected += [["``development.console``", "``False``"]]
        rows = table(FRAMEWORK, "Options")
        self.assertEqual([[name, default] for name, _, default, _ in rows], expected)

    def test_values(self) -> None:
        """Each option takes the values that the table says, and refuses others by its name."""
        for cell, kind, _, _ in table(FRAMEWORK, "Options"):
            name, _, part = literal(cell).partition(".")
            good, bad = KINDS[kind]
            server.http().withOptions(**{name: {part: good} if part else good})
            options = {name: {part: bad} if part else bad}
            error = self.assertRaises(OptionError, server.http().withOptions, **options)
            self.assertIn(literal(cell), str(error))

    def test_router(self) -> None:
        """The table has the options of a router."""
        self.checkOptions(FRAMEWORK, "Router", attributeDefaults(RouterOptions))

    def test_middleware(self) -> None:
        """Every middleware has a table of exactly its options, in their order, with defaults."""
        tables = re.findall(r"csv-table:: Options of (\w+)", MIDDLEWARE.read_text())
        modules = {name for name in http.__all__ if name[0].islower()}
        self.assertEqual(set(tables), modules)
        for name in tables:
            self.checkOptions(MIDDLEWARE, f"Options of {name}", defaults(getattr(http, name)))

    def test_nested(self) -> None:
        """So have the options inside of options."""
        self.checkOptions(MIDDLEWARE, "Limits of upload", attributeDefaults(UploadLimits))
        self.checkOptions(MIDDLEWARE, "Cookie of session", attributeDefaults(CookieOptions))

    def checkOptions(self, page: Any, title: str, expected: list[list[str]]) -> None:
        """Hold a table of options against the code."""
        rows = [[literal(row[0]), row[1]] for row in table(page, title)]
        self.assertEqual(rows, expected, title)


class MemberTests(SynchronousTestCase):
    """The tables of members: none is missing, and none is promised that is not there."""

    def setUp(self) -> None:
        """Make one of each, on a request that has been answered."""
        self.app = server.http()
        self.seen: list[Any] = []

        def see(req: Any, res: Any) -> None:
            self.seen += [req, res]
            res.send("seen")

        self.app.get("/", see)
        self.client = Client(self.app)
        self.client.get("/")

    def check(self, page: Any, title: str, expected: set[str]) -> None:
        """Hold a table of members against the code."""
        names = firstWords(table(page, title))
        self.assertEqual(sorted(names), sorted(expected))

    def test_request(self) -> None:
        """Every member of a request."""
        self.check(FRAMEWORK, "Request", publicNames(self.seen[0]))

    def test_response(self) -> None:
        """Every member of a response."""
        self.check(FRAMEWORK, "Response", publicNames(self.seen[1]))

    def test_application(self) -> None:
        """Every member of a router, and what an application has beside."""
        options = {"caseSensitive", "mergeParams", "strict"}
        registration = publicNames(Router()) - PARTS - options
        self.check(FRAMEWORK, "Registration", registration)
        beside = publicNames(self.app) - registration - PARTS - options
        self.check(FRAMEWORK, "Application", beside)

    def test_client(self) -> None:
        """Every member of the client for tests."""
        self.check(FRAMEWORK, "Client", {"Client", *publicNames(self.client)})

    def test_webSocket(self) -> None:
        """Every member of a WebSocket."""
        self.app.ws("/ws", lambda socket: self.seen.append(socket))
        self.client.webSocket("/ws")
        self.check(FRAMEWORK, "WebSocket", publicNames(self.seen[-1]))

    def test_others(self) -> None:
        """Every member of a route's record, of a way to upload, and of a session."""
        self.check(FRAMEWORK, "RouteInfo", {a.name for a in fields(RouteInfo)})
        methods = {name for name in vars(Upload) if not name.startswith("_")}
        self.check(MIDDLEWARE, "Methods of upload", methods)
        members = {name for name in dir(Session) if not name.startswith("_")} - set(dir(dict))
        self.check(MIDDLEWARE, "Members of a session", members)


class PatternTests(SynchronousTestCase):
    """The table of patterns."""

    def test_rows(self) -> None:
        """Each pattern matches its path, or does not, with the parameters that the table says."""
        rows = table(FRAMEWORK, "Patterns")
        self.assertGreater(len(rows), 10)
        for source, path, params in rows:
            pattern: Any = literal(source)
            if pattern.startswith("re.compile"):
                pattern = re.compile(ast.literal_eval(pattern[len("re.compile(") : -1]))
            app, seen = server.http(), []
            app.get(pattern, lambda req, res, seen=seen: res.end(seen.append(req.params)))
            Client(app).get(literal(path))
            expected = [] if params == "no match" else [ast.literal_eval(literal(params))]
            self.assertEqual(seen, expected, (source, path))


class BlockTests(SynchronousTestCase):
    """The code that the pages show."""

    def test_framework(self) -> None:
        """The tutorial's programs run, and its sessions print what it says."""
        names = runBlocks(FRAMEWORK)
        # The route with the bug, asked twice.
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)
        self.assertEqual(len(self.flushLoggedErrors(MissingResponse)), 1)
        result = TestResult()
        names["UserTests"]("test_unknown").run(result)
        self.assertTrue(result.wasSuccessful(), result.errors)

    def test_middleware(self) -> None:
        """So do those of the middleware."""
        runBlocks(MIDDLEWARE)

    def test_express(self) -> None:
        """So do the ports of Express's and Klein's programs."""
        runBlocks(DOCS / "express.rst")

    def test_fastapi(self) -> None:
        """So do the ports of FastAPI's programs."""
        runBlocks(DOCS / "fastapi.rst")

    def test_typedHandlers(self) -> None:
        """So do those of typed handlers and dependencies."""
        runBlocks(DOCS / "typedhandlers.rst")
