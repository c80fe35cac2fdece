"""Definitions of services are read once, and what is wrong in them is named."""

import functools
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.definitions import (
    DefinitionError,
    RateLimit,
    ServiceAuthentication,
    ServiceDefinition,
    ServiceMethod,
    readService,
    streamingOf,
)


def echo(request: Any, context: Any) -> Any:
    """Answer."""
    return request


async def wrap(request: Any, context: Any, next: Any) -> Any:
    """Go on."""
    return await next(request, context)


class ReadTests(SynchronousTestCase):
    """What is read."""

    def test_short(self) -> None:
        """The value of a method may be its handler."""
        service = readService({"methods": {"echo": echo}}, "Echo")
        self.assertEqual(service, ServiceDefinition("Echo", {"echo": ServiceMethod(echo)}))
        method = service.methods["echo"]
        self.assertEqual(
            (method.streaming, method.input, method.output, method.authentication),
            ("none", None, None, None),
        )
        self.assertEqual(service.authentication, ServiceAuthentication(False, (), None))

    def test_whole(self) -> None:
        """Every field arrives."""
        schema = {"type": "object", "properties": {}}
        service = readService(
            {
                "name": "users.UserService",
                "methods": {
                    "GetUser": {
                        "handler": echo,
                        "input": schema,
                        "output": schema,
                        "streaming": "server",
                        "authentication": False,
                        "rateLimit": {"requests": 1, "window": 2},
                    }
                },
                "middleware": [wrap],
                "authentication": {
                    "required": True,
                    "methods": ["jwt", "apikey", "oauth"],
                    "authorize": echo,
                },
                "rateLimit": {"requests": 3, "window": 4},
            }
        )
        self.assertEqual(
            service,
            ServiceDefinition(
                "users.UserService",
                {"GetUser": ServiceMethod(echo, "server", schema, schema, False, RateLimit(1, 2))},
                (wrap,),
                ServiceAuthentication(True, ("jwt", "apikey", "oauth"), echo),
                RateLimit(3, 4),
            ),
        )

    def test_values(self) -> None:
        """What is a value already is taken as it is."""
        authentication, limit = ServiceAuthentication(True), RateLimit(1, 2)
        method = ServiceMethod(echo)
        service = readService(
            {
                "name": "Echo",
                "methods": {"echo": method},
                "authentication": authentication,
                "rateLimit": limit,
            }
        )
        self.assertIs(service.methods["echo"], method)
        self.assertIs(service.authentication, authentication)
        self.assertIs(service.rateLimit, limit)
        self.assertIs(readService(service), service)

    def test_name(self) -> None:
        """The name that is given goes before the one in the definition, whatever its form."""
        mapping = {"name": "Echo", "methods": {"echo": echo}}
        for definition in (mapping, readService(mapping)):
            self.assertEqual(readService(definition).name, "Echo")
            self.assertEqual(readService(definition, "Other").name, "Other")

    def test_middleware(self) -> None:
        """Middleware is one function, or several from anything that gives them."""
        for value in (wrap, [wrap], (wrap,), iter([wrap]), (each for each in [wrap])):
            service = readService({"name": "Echo", "methods": {"echo": echo}, "middleware": value})
            self.assertEqual(service.middleware, (wrap,))

    def test_streams(self) -> None:
        """A method says whether its requests and its responses are streams."""
        for streaming, requests, responses in (
            ("none", False, False),
            ("client", True, False),
            ("server", False, True),
            ("bidirectional", True, True),
        ):
            method = ServiceMethod(echo, streaming)
            self.assertEqual(
                (method.streamsRequests, method.streamsResponses), (requests, responses)
            )


class KindTests(SynchronousTestCase):
    """How a function streams."""

    def test_functions(self) -> None:
        """The four kinds are read from functions that show them."""

        async def unary(request: Any, context: Any) -> Any: ...

        async def client(requests: AsyncIterable[Any], context: Any) -> Any: ...

        async def client2(requests: AsyncIterator[Any]) -> Any: ...

        async def client3(requests: AsyncGenerator[Any, None]) -> Any: ...

        async def client4(requests: "AsyncIterable[dict[str, Any]]") -> Any: ...

        async def server(request: Any, context: Any) -> Any:
            yield 1

        async def both(requests: AsyncIterable[Any], context: Any) -> Any:
            yield 1

        for function, kind in (
            (echo, "none"),
            (unary, "none"),
            (client, "client"),
            (client2, "client"),
            (client3, "client"),
            (client4, "client"),
            (server, "server"),
            (both, "bidirectional"),
            (functools.partial(server, context=None), "server"),
            (dict, "none"),
            (lambda: None, "none"),
        ):
            self.assertEqual(streamingOf(function), kind, function)

    def test_objects(self) -> None:
        """So are they from methods, and from objects that can be called."""

        class Service:
            async def both(self, requests: AsyncIterable[Any]) -> Any:
                yield 1

            async def __call__(self, request: Any) -> Any:
                yield 1

        self.assertEqual(streamingOf(Service().both), "bidirectional")
        self.assertEqual(streamingOf(Service()), "server")

    def test_wrapped(self) -> None:
        """A decorator that keeps the function's name keeps its kind."""

        async def server(request: Any) -> Any:
            yield 1

        @functools.wraps(server)
        def decorated(*args: Any) -> Any:
            return server(*args)

        self.assertEqual(streamingOf(decorated), "server")

    def test_said(self) -> None:
        """What the definition says goes before what the function shows."""
        service = readService(
            {"name": "Echo", "methods": {"echo": {"handler": echo, "streaming": "client"}}}
        )
        self.assertEqual(service.methods["echo"].streaming, "client")


class RefusedTests(SynchronousTestCase):
    """What is no definition."""

    def refused(self, definition: Any, *words: str, name: str | None = None) -> None:
        """See that a definition is refused with a message that has these words."""
        error = self.assertRaises(DefinitionError, readService, definition, name)
        for word in words:
            self.assertIn(word, str(error))

    def changed(self, **fields: Any) -> dict[str, Any]:
        """Give a definition with other fields."""
        return {"name": "Echo", "methods": {"echo": echo}, **fields}

    def method(self, **fields: Any) -> dict[str, Any]:
        """Give a definition whose method has other fields."""
        return {"name": "Echo", "methods": {"echo": {"handler": echo, **fields}}}

    def test_services(self) -> None:
        """A service is a mapping with a name and methods, and nothing that is unknown."""
        for definition in (None, 1, "Echo", [echo], echo):
            self.refused(definition, repr(definition))
        for name in ("", None, 1, "a/b", "a b", "a\n"):
            self.refused(self.changed(name=name), repr(name))
        self.refused(self.changed(), "''", name="")
        for methods in (None, {}, [echo], "echo"):
            self.refused(self.changed(methods=methods), "Echo has no methods")
        self.refused(self.changed(ratelimit={}), "'ratelimit'", "rateLimit")

    def test_methods(self) -> None:
        """A method is a function or a mapping with a handler, and has a name."""
        for name in ("", 1, None, "a/b", "a b"):
            self.refused({"name": "Echo", "methods": {name: echo}}, "Echo", repr(name))
        for value in (None, 1, "echo", [echo]):
            self.refused({"name": "Echo", "methods": {"echo": value}}, "Echo.echo")
        for handler in (None, "echo"):
            self.refused(self.method(handler=handler), "Echo.echo has no handler")
        self.refused(self.method(stream="none"), "Echo.echo", "'stream'", "streaming")
        for streaming in ("both", 1, ["client"]):
            self.refused(self.method(streaming=streaming), repr(streaming), "bidirectional")
        for required in (1, "yes", {}):
            self.refused(self.method(authentication=required), "Echo.echo", "True or False")
        self.refused(self.changed(others=1), "Echo.others")
        streaming = {"handler": echo, "streaming": "server"}
        self.refused(self.changed(others=streaming), "Echo.others does not stream")
        for isIdempotent in (1, "yes", None):
            self.refused(self.method(idempotent=isIdempotent), "idempotent of Echo.echo")
        for key in ("input", "output"):
            self.refused(self.method(**{key: "string"}), key, "'string'")

    def test_middleware(self) -> None:
        """Middleware are functions."""
        for value in (1, "wrap", [wrap, None], {"wrap": wrap}):
            self.refused(self.changed(middleware=value), "middleware of Echo")

    def test_authentication(self) -> None:
        """Authentication has three fields, each of its kind."""
        for value, word in (
            (True, "is a mapping"),
            ({"require": True}, "'require'"),
            ({"required": 1}, "authentication.required of Echo"),
            ({"authorize": "admin"}, "authentication.authorize of Echo"),
            ({"methods": ["basic"]}, "'basic'"),
            ({"methods": "jwt"}, "'jwt'"),
            ({"methods": 1}, "authentication.methods of Echo"),
        ):
            self.refused(self.changed(authentication=value), word)

    def test_noAuthentication(self) -> None:
        """Fields that say nothing are as good as none."""
        service = readService(self.changed(authentication={"methods": None}, rateLimit=None))
        self.assertEqual(service.authentication, ServiceAuthentication())

    def test_limits(self) -> None:
        """A rate limit has two positive numbers."""
        for value, word in (
            (5, "is a mapping"),
            ({"requests": 5}, "rateLimit.window"),
            ({"requests": 0, "window": 5}, "rateLimit.requests"),
            ({"requests": 1, "window": -1}, "rateLimit.window"),
            ({"requests": True, "window": 1}, "rateLimit.requests"),
            ({"requests": "5", "window": 1}, "rateLimit.requests"),
            ({"requests": 1, "window": 1, "per": 1}, "'per'"),
        ):
            self.refused(self.changed(rateLimit=value), word, "Echo")
            self.refused(self.method(rateLimit=value), word, "Echo.echo")
