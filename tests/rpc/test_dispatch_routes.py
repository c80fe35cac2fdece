"""Handlers beside what they answer: how a service is said, and what its handlers take."""

from collections.abc import AsyncIterable
from functools import partial
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.definitions import DefinitionError, ServiceDefinition, ServiceMethod
from storagegate.rpc.protos import RPCService, loadProto
from storagegate.rpc.routes import Routes, implementedRoutes, serviceRoutes
from storagegate.rpc.schemaprotos import serviceFromSchemas
from tests.support.log import LogCase
from tests.support.protofiles import writeFiles
from tests.support.resultforms import NAME, SECRET, StoredUser, User
from tests.support.rpcroutes import textService

PROTO = """
syntax = "proto3";
package {package};
message {message} {{}}
service Echo {{
  rpc Say ({message}) returns ({message});
  rpc More ({message}) returns ({message});
}}
"""


def echo(request: Any) -> Any:
    """Give the request back."""
    return request


def read(service: Any = None, rest: Any = None, **named: Any) -> tuple[RPCService, Routes]:
    """Read a service."""
    return serviceRoutes(service, rest, named, serviceFromSchemas)


class FormTests(SynchronousTestCase):
    """How a service is said."""

    def setUp(self) -> None:
        """Make a service that is loaded."""
        self.loaded = textService("pkg.Text", Get="none")

    def test_byName(self) -> None:
        """A name and its methods come by keyword, in a mapping, or one after the other."""
        methods = {"echo": echo}
        for given, named in (
            ((None, methods), {"name": "A"}),
            (({"methods": methods}, None), {"name": "A"}),
            (({"name": "A", "methods": methods}, None), {}),
            (("A", {"methods": methods}), {}),
            (("A", methods), {}),
            ((ServiceDefinition("A", {"echo": ServiceMethod(echo)}), None), {}),
        ):
            service, routes = read(*given, **named)
            self.assertEqual((service.name, list(routes)), ("A", ["/A/echo"]))

    def test_methodOfThatName(self) -> None:
        """A service may have a method that is called C{methods}."""
        _, routes = read("A", {"methods": echo, "more": echo})
        self.assertEqual(list(routes), ["/A/methods", "/A/more"])

    def test_loaded(self) -> None:
        """So do a loaded service and its implementation."""
        handlers = {"Get": echo}
        for given, named in (
            ((), {"definition": self.loaded, "implementation": handlers}),
            (({"definition": self.loaded, "implementation": handlers},), {}),
            ((self.loaded, handlers), {}),
            ((self.loaded,), {"implementation": handlers}),
        ):
            service, routes = read(*given, **named)
            self.assertIs(service, self.loaded)
            self.assertIs(routes["/pkg.Text/Get"].handler, echo)

    def test_refused(self) -> None:
        """What is neither is refused."""
        for given in ((5,), ("A", 5), ("A",), (None,), ({"definition": "pkg.Text"},), ([echo],)):
            self.assertRaises(DefinitionError, read, *given)

    def test_gatewayOnly(self) -> None:
        """What only a gateway does with a service is refused, and not left out in silence."""
        for more, method in (
            ({"authentication": {"required": True}}, {}),
            ({"authentication": {"authorize": echo}}, {}),
            ({"rateLimit": {"requests": 1, "window": 1000}}, {}),
            ({"middleware": [echo]}, {}),
            ({}, {"authentication": True}),
            ({}, {"rateLimit": {"requests": 1, "window": 1000}}),
        ):
            methods = {"echo": {"handler": echo, **method}}
            error = self.assertRaises(DefinitionError, read, {"methods": methods, **more}, name="A")
            for word in {**more, **method}:
                self.assertIn(word, str(error))

    def test_gatewayNothing(self) -> None:
        """What would do nothing in a gateway either is no reason to refuse."""
        nothing = {"authentication": {"required": False}, "middleware": [], "rateLimit": None}
        _, routes = read({"methods": {"echo": echo}, **nothing}, name="A")
        self.assertEqual(list(routes), ["/A/echo"])


class LoadedTests(LogCase):
    """A service by its name alone, of which a file was loaded."""

    def setUp(self) -> None:
        """Load two files that define it, in a package that no other test has."""
        super().setUp()
        self.name = f"p{abs(hash(self.id()))}.Echo"
        self.load("Old")
        self.load("New")

    def load(self, message: str) -> None:
        """Load a file."""
        package = self.name.removesuffix(".Echo")
        text = PROTO.format(package=package, message=message)
        folder = writeFiles(Path(self.mktemp()), {f"{message}.proto": text})
        loadProto(folder / f"{message}.proto")

    def requests(self, **methods: Any) -> list[str]:
        """Give the names of the messages that methods take."""
        service, _ = read(self.name, methods)
        found = [method.request.fullName for method in service.methods.values()]
        return [name.rpartition(".")[2] for name in found]

    def test_last(self) -> None:
        """It has the messages of the file that was loaded last, and all of its methods."""
        self.assertEqual(self.requests(Say=echo), ["New", "New"])
        self.load("Old")
        self.assertEqual(self.requests(Say=echo), ["Old", "Old"])

    def test_schemas(self) -> None:
        """Where it says itself what its messages are, they are that."""
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        self.assertEqual(self.requests(Say={"handler": echo, "input": schema}), ["EchoSayRequest"])
        self.assertEqual(self.requests(Say={"handler": echo, "output": schema}), ["Struct"])

    def test_others(self) -> None:
        """One with other methods is another service, for names are literal; the log says so."""
        self.assertEqual(self.requests(say=echo), ["Struct"])
        [line] = [line for line in self.logged() if self.name in line]
        self.assertIn("has methods that New.proto does not define", line)


class ImplementationTests(LogCase):
    """Functions of a call."""

    def setUp(self) -> None:
        """Make a service with two methods of one name in camelCase."""
        super().setUp()
        self.service = textService(
            "pkg.Text", Get="none", HTTPGet="none", put_it="none", PutIt="none"
        )

    def implemented(self, implementation: Any) -> dict[str, Any]:
        """Give the methods that have a handler, with it."""
        routes = implementedRoutes(self.service, implementation)
        return {
            route.method.name: route.handler
            for route in routes.values()
            if route.handler is not None
        }

    def test_names(self) -> None:
        """A mapping has names as in the definition or in camelCase."""
        other = partial(echo)
        self.assertEqual(
            self.implemented({"Get": echo, "httpGet": other}).keys(), {"Get", "HTTPGet"}
        )
        self.assertEqual(self.implemented({"put_it": echo, "PutIt": other})["PutIt"], other)

    def test_object(self) -> None:
        """So have the methods of an object; what is not a function answers nothing."""

        class Text:
            put_it = "no function"
            PutIt = None

            def get(self, call: Any) -> None:
                """Answer."""

            def httpGet(self, call: Any) -> None:
                """Answer."""

            def putIt(self, call: Any) -> None:
                """Answer neither of two: that would be a guess."""

        text = Text()
        self.assertEqual(self.implemented(text), {"Get": text.get, "HTTPGet": text.httpGet})

    def test_twice(self) -> None:
        """Two handlers of one method are an error: one of them would never be called."""
        error = self.assertRaises(DefinitionError, self.implemented, {"Get": echo, "get": echo})
        self.assertIn("two handlers for Get", str(error))

    def test_unknown(self) -> None:
        """A handler of no method is an error that names those that there are."""
        for name in ("get_", "GET", "putIt", 5):
            error = self.assertRaises(DefinitionError, self.implemented, {name: echo})
            self.assertIn("Get, HTTPGet", str(error))

    def test_missing(self) -> None:
        """Methods without a handler are told of."""
        self.implemented({"Get": echo, "PutIt": echo})
        expected = [f"not implemented: pkg.Text.{name}" for name in ("HTTPGet", "put_it")]
        self.assertEqual(self.logged(), expected)


class ParameterTests(SynchronousTestCase):
    """What handlers of a name and methods take: the request, and the call if they want it."""

    def given(self, handler: Any, streaming: str | None = None) -> Any:
        """Give what a handler is called with."""
        method = {"handler": handler, "streaming": streaming}
        _, routes = read("A", {"echo": method})
        answer = routes["/A/echo"].handler
        assert answer is not None

        class TheCall:
            request, requests = "request", "requests"

        self.call: Any = TheCall()
        return answer(self.call)

    def test_request(self) -> None:
        """One parameter is the request, whatever its name, and more of a handler's own stay."""
        for handler in (
            lambda request: (request,),
            lambda call: (call,),
            lambda request, times=2: (request, times)[:1],
            lambda request, *, more=1: (request,),
            partial(lambda own, request: (request,), 5),
        ):
            self.assertEqual(self.given(handler), ("request",))

    def test_call(self) -> None:
        """Two are the request and the call; so is a default under its name, and any number."""
        for handler in (
            lambda request, call: (request, call),
            lambda a, b: (a, b),
            lambda request, call=None: (request, call),
            lambda request, context=None: (request, context),
            lambda *both: both,
        ):
            self.assertEqual(self.given(handler), ("request", self.call))

    def test_requests(self) -> None:
        """A stream of requests comes in the request's place."""
        for streaming in ("client", "bidirectional"):
            self.assertEqual(self.given(lambda requests: (requests,), streaming), ("requests",))
            given = self.given(lambda requests, call: (requests, call), streaming)
            self.assertEqual(given, ("requests", self.call))

    def test_method(self) -> None:
        """The method of an object does not count its object."""

        class Service:
            def one(self, request: Any) -> Any:
                return (request,)

            def two(self, request: Any, call: Any) -> Any:
                return (request, call)

            def __call__(self, request: Any) -> Any:
                return (request,)

        service = Service()
        self.assertEqual(self.given(service.one), ("request",))
        self.assertEqual(self.given(service.two), ("request", self.call))
        self.assertEqual(self.given(service), ("request",))

    def test_refused(self) -> None:
        """What takes nothing, or more than there is, is an error when it is added."""
        for handler in (lambda: 1, lambda a, b, c: 1, lambda *, request: 1):
            error = self.assertRaises(DefinitionError, self.given, handler)
            self.assertIn("(request, call)", str(error))

    def test_kinds(self) -> None:
        """How a method streams is read from its function where it can be, else it is said."""

        async def stream(request: Any) -> Any:
            yield request

        async def upload(requests: AsyncIterable[Any]) -> Any:
            return requests

        async def chat(requests: AsyncIterable[Any], call: Any) -> Any:
            yield requests

        async def unary(request: Any) -> Any:
            return request

        methods = {"s": stream, "u": upload, "c": chat, "n": unary, "e": echo}
        said = {"said": {"handler": unary, "streaming": "client"}}
        service, _ = read("A", {**methods, **said})
        self.assertEqual(
            [method.streaming for method in service.methods.values()],
            ["server", "client", "bidirectional", "none", "none", "client"],
        )


class ResultTests(SynchronousTestCase):
    """What a declared output hides in an application of gRPC."""

    def test_forms(self) -> None:
        """A further member stays here, of each result and item; an undeclared kind is an error."""

        async def items(request: Any) -> Any:
            yield {"name": "Ada", "password": SECRET}

        methods = {
            "One": {"handler": lambda request: StoredUser("Ada"), "output": User},
            "Plain": {"handler": lambda request: {"name": "Ada", "p": SECRET}, "output": NAME},
            "Wrong": {"handler": lambda request: {"name": [SECRET]}, "output": NAME},
            "Items": {"handler": items, "output": NAME, "streaming": "server"},
        }
        _, routes = read("Users", {"methods": methods})

        class TheCall:
            request: Any = None

        async def collected(results: Any) -> list[Any]:
            return [each async for each in results]

        def answer(name: str) -> Any:
            found: Any = routes[f"/Users/{name}"].handler
            assert found is not None
            result = found(TheCall())
            if not hasattr(result, "__await__"):
                result = collected(result)
            return self.successResultOf(Deferred.fromCoroutine(result))

        self.assertEqual(answer("One"), {"name": "Ada", "done": False, "level": 5})
        self.assertEqual(answer("Plain"), {"name": "Ada"})
        self.assertEqual(answer("Items"), [{"name": "Ada"}])
        error = self.assertRaises(AssertionError, answer, "Wrong")
        self.assertIn("'path': 'name'", str(error))
        self.assertNotIn(SECRET, str(error))
