"""The invoker: the one road of a call, step by step."""

import contextlib
import gc
from collections.abc import AsyncIterator
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed

from storagegate.core.context import RequestContext
from storagegate.core.definitions import DefinitionError
from storagegate.core.errors import ServiceError, codedError
from storagegate.core.invoker import ANONYMOUS
from tests.support.invoking import BAD, GOOD, Boom, InvokerCase, drain, requests


class OrderTests(InvokerCase):
    """Which step comes when."""

    def test_order(self) -> None:
        """Limit, authentication, validation, authorisation, middleware, handler, measuring."""

        async def middleware(request: Any, context: RequestContext, next: Any) -> Any:
            self.steps.append("middleware")
            result = await next(request, context)
            self.steps.append("middleware after")
            return result

        def authorize(user: Any, method: str, request: Any) -> bool:
            self.steps.append(f"authorize {user} {method} {request}")
            return True

        self.add(
            service={
                "middleware": [middleware],
                "authentication": {"required": True, "methods": ["jwt"], "authorize": authorize},
            }
        )
        self.assertEqual(self.call({"a": 1}, GOOD), {"a": 1})
        self.assertEqual(
            self.steps,
            [
                "began",
                "authenticate ('jwt',)",
                "authorize {'sub': 'ann'} echo {'a': 1}",
                "middleware",
                "handler",
                "middleware after",
                "ended",
            ],
        )

    def test_limitFirst(self) -> None:
        """A call over the limit costs no authentication."""
        self.add(rateLimit={"requests": 1, "window": 1000}, authentication=True)
        self.refused({}, BAD)
        self.steps.clear()
        self.assertEqual(self.refused({}, BAD).code, "RATE_LIMITED")
        self.assertEqual(self.steps, ["began", "ended"])

    def test_validBeforeAuthorise(self) -> None:
        """authorize sees only valid requests; an anonymous caller sees no validation errors."""
        schema = {"type": "object", "properties": {"id": {"type": "string", "required": True}}}
        asked: list[Any] = []
        self.add(
            input=schema,
            service={
                "authentication": {
                    "required": True,
                    "authorize": lambda user, method, request: asked.append(request),
                }
            },
        )
        self.assertEqual(self.refused({}, ANONYMOUS).code, "UNAUTHENTICATED")
        self.assertEqual(self.refused({}, GOOD).code, "VALIDATION_ERROR")
        self.assertEqual(asked, [])
        self.assertEqual(self.refused({"id": "x"}, GOOD).code, "PERMISSION_DENIED")


class LookUpTests(InvokerCase):
    """Finding a method."""

    def test_unknown(self) -> None:
        """What is not there is NOT_FOUND, and UNIMPLEMENTED where there are gRPC's codes."""
        self.add()
        for service, method in (("No", "echo"), ("Probe", "no")):
            error = self.assertRaises(ServiceError, self.invoker.find, service, method)
            self.assertEqual(
                (error.code, error.statusCode, error.grpcStatus), ("NOT_FOUND", 404, 12)
            )
        self.assertEqual(self.steps, [])

    def test_twice(self) -> None:
        """Two services of one name are an error, and the first one stays."""
        self.add()
        self.assertRaises(DefinitionError, self.add)
        self.assertEqual(self.call({"a": 1}), {"a": 1})

    def test_badSchema(self) -> None:
        """A schema that is none is an error that names the method; nothing is added."""
        error = self.assertRaises(DefinitionError, self.add, input={"type": "wat"})
        self.assertIn("the input of Probe.echo", str(error))
        self.assertEqual(self.invoker.services, {})


class HandlerTests(InvokerCase):
    """Handlers of all kinds."""

    def test_kinds(self) -> None:
        """A plain function, a coroutine, and a Deferred give a result; the context is optional."""

        async def coroutine(request: Any, context: RequestContext) -> str:
            return "r"

        for handler in (
            lambda request, context: "r",
            lambda request: "r",
            coroutine,
            lambda request, context: succeed("r"),
        ):
            self.setUp()
            self.add(handler)
            self.assertEqual(self.call(), "r")

    def test_context(self) -> None:
        """A handler sees who calls."""
        self.add(lambda request, context: context.authentication)
        self.assertEqual(self.call({}, GOOD), {"sub": "ann"})

    def test_unforeseen(self) -> None:
        """An unexpected exception is logged, and its text stays here."""

        def handler(request: Any) -> None:
            raise Boom("secret")

        self.add(handler)
        error = self.refused()
        self.assertEqual((error.code, error.statusCode), ("INTERNAL_ERROR", 500))
        self.assertNotIn("secret", error.message)
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)
        self.assertEqual(self.tokens.errors, ["INTERNAL_ERROR"])

    def test_badResult(self) -> None:
        """A result that does not fit its schema is the service's mistake."""
        self.add(lambda request: {"id": 5}, output={"properties": {"id": {"type": "string"}}})
        self.assertEqual(self.refused().code, "INTERNAL_ERROR")
        [failure] = self.flushLoggedErrors(ValueError)
        self.assertIn("Probe.echo", str(failure.value))

    def test_cancel(self) -> None:
        """A call that is cancelled cancels its handler, and counts as that."""
        seen: list[str] = []

        async def handler(request: Any) -> None:
            try:
                await Deferred()
            except CancelledError:
                seen.append("cancelled")
                raise

        self.add(handler)
        running = self.begin()
        running.cancel()
        error = self.failureResultOf(running).value
        assert isinstance(error, ServiceError)
        self.assertEqual((error.code, seen), ("CANCELLED", ["cancelled"]))
        self.assertEqual(self.tokens.errors, ["CANCELLED"])

    def test_seconds(self) -> None:
        """Calls are measured, to the end of a stream."""
        waited: Deferred[None] = Deferred()

        async def handler(request: Any) -> AsyncIterator[int]:
            await waited
            yield 1

        self.add(handler)
        running = Deferred.fromCoroutine(drain(self.call()))
        self.clock.advance(2)
        waited.callback(None)
        self.assertEqual(self.successResultOf(running), [1])
        self.assertEqual(self.tokens.seconds, [2])

    def test_middleware(self) -> None:
        """Middleware may change the request, answer itself, and refuse."""

        def changes(request: Any, context: RequestContext, next: Any) -> Any:
            return next({**request, "b": 2}, context)

        async def keeps(request: Any, context: RequestContext, next: Any) -> Any:
            return await next()

        async def answers(request: Any, context: RequestContext, next: Any) -> Any:
            if "answer" in request:
                return "answered"
            if "refuse" in request:
                raise codedError("PERMISSION_DENIED", "no")
            return await next(request, context)

        self.add(service={"middleware": [changes, keeps, answers]})
        self.assertEqual(self.call({"a": 1}), {"a": 1, "b": 2})
        self.assertEqual(self.call({"answer": 1}), "answered")
        self.assertEqual(self.refused({"refuse": 1}).code, "PERMISSION_DENIED")


class StreamTests(InvokerCase):
    """Streams both ways."""

    def taken(self, results: Any) -> Any:
        """Take all of a stream that is there at once."""
        return self.successResultOf(Deferred.fromCoroutine(drain(results)))

    def test_server(self) -> None:
        """Generators of both kinds and lists are streams."""

        async def generate(request: Any) -> AsyncIterator[int]:
            yield 1
            yield 2

        for handler in (generate, lambda request: [1, 2], lambda request: iter((1, 2))):
            self.setUp()
            self.add(handler, streaming="server")
            self.assertEqual(self.taken(self.call()), [1, 2])
            self.assertEqual(self.tokens.errors, [None])

    def test_noStream(self) -> None:
        """A single thing where a stream is due is the service's mistake."""
        self.add(lambda request: {"a": 1}, streaming="server")
        failure = self.failureResultOf(Deferred.fromCoroutine(drain(self.call())))
        self.assertEqual(failure.value.code, "INTERNAL_ERROR")
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)

    def test_client(self) -> None:
        """Every item of a client's stream is checked."""

        async def handler(requests: Any) -> list[int]:
            return [request["n"] async for request in requests]

        schema = {"properties": {"n": {"type": "integer"}}}
        self.add(handler, streaming="client", input=schema)
        self.assertEqual(self.call(requests({"n": 1}, {"n": 2})), [1, 2])
        error = self.refused(requests({"n": 1}, {"n": "x"}))
        self.assertEqual((error.code, error.details[0]["path"]), ("VALIDATION_ERROR", "n"))

    def test_caught(self) -> None:
        """A handler that catches the error of its requests does not go on."""
        schema = {"properties": {"n": {"type": "integer"}}}
        steps: list[str] = []

        async def skip(requests: Any) -> None:
            with contextlib.suppress(ServiceError):
                async for _ in requests:
                    pass
            steps.append("caught")

        async def returns(requests: Any) -> str:
            await skip(requests)
            return "well"

        async def fails(requests: Any) -> str:
            await skip(requests)
            raise codedError("NOT_FOUND", "another error")

        async def waits(requests: Any) -> str:
            await skip(requests)
            try:
                await Deferred()
            finally:
                await succeed(None)
                steps.append("cleaned")
            return "well"

        async def yields(requests: Any) -> AsyncIterator[int]:
            yield 1
            await skip(requests)
            yield 2

        async def waitsToYield(requests: Any) -> AsyncIterator[int]:
            await waits(requests)
            yield 2

        async def fromOther(requests: Any, context: Any, next: Any) -> Any:
            with contextlib.suppress(ServiceError):
                return await next(requests, context)

        for handler in (returns, fails, waits, yields, waitsToYield):
            for middleware in ((), (fromOther,)):
                steps.clear()
                self.setUp()
                isStream = handler in (yields, waitsToYield)
                kind = "bidirectional" if isStream else "client"
                service = {"middleware": middleware}
                self.add(handler, streaming=kind, input=schema, service=service)
                items = requests({"n": 1}, {"n": "x"})
                if isStream:
                    taking = Deferred.fromCoroutine(drain(self.call(items)))
                    error = self.failureResultOf(taking).value
                else:
                    error = self.refused(items)
                self.assertEqual(error.code, "VALIDATION_ERROR", handler)
                self.assertEqual(self.tokens.errors, ["VALIDATION_ERROR"])
                cleaned = ["cleaned"] if handler in (waits, waitsToYield) else []
                self.assertEqual(steps, ["caught", *cleaned])

    def test_timeout(self) -> None:
        """A handler that stops waiting for a request goes on."""

        async def handler(requests: Any) -> str:
            waiting = Deferred.fromCoroutine(anext(requests))
            waiting.cancel()
            with contextlib.suppress(CancelledError):
                await waiting
            return "well"

        async def never() -> AsyncIterator[Any]:
            yield await Deferred()

        self.add(handler, streaming="client")
        self.assertEqual(self.call(never()), "well")

    def test_clientAuthorise(self) -> None:
        """authorize of a client's stream is asked once, and sees no request."""
        asked: list[Any] = []

        def authorize(user: Any, method: str, request: Any) -> bool:
            asked.append(request)
            return True

        self.add(
            lambda requests: "r",
            streaming="client",
            service={"authentication": {"authorize": authorize}},
        )
        self.call(requests(1, 2))
        self.assertEqual(asked, [None])

    def test_failure(self) -> None:
        """An error in the middle of a stream ends it, as what it is."""

        async def handler(request: Any) -> AsyncIterator[int]:
            yield 1
            raise codedError("NOT_FOUND", "no more")

        self.add(handler)
        failure = self.failureResultOf(Deferred.fromCoroutine(drain(self.call())))
        self.assertEqual(failure.value.code, "NOT_FOUND")
        self.assertEqual(self.tokens.errors, ["NOT_FOUND"])

    def test_left(self) -> None:
        """A stream that is closed closes its handler at once, and counts as cancelled."""
        seen: list[str] = []

        async def handler(request: Any) -> AsyncIterator[int]:
            try:
                yield 1
                yield 2
            finally:
                seen.append("closed")

        self.add(handler)
        results = self.call()

        async def takeOne() -> None:
            async for _ in results:
                break
            await results.aclose()

        self.successResultOf(Deferred.fromCoroutine(takeOne()))
        self.assertEqual(seen, ["closed"])
        self.assertEqual(self.tokens.errors, ["CANCELLED"])

    def test_badItem(self) -> None:
        """Every item of a response is checked."""
        self.add(
            lambda request: [{"n": 1}, {"n": "x"}],
            streaming="server",
            output={"properties": {"n": {"type": "integer"}}},
        )
        failure = self.failureResultOf(Deferred.fromCoroutine(drain(self.call())))
        self.assertEqual(failure.value.code, "INTERNAL_ERROR")
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)


class GarbageTests(InvokerCase):
    """What a call leaves behind."""

    def test_noCycles(self) -> None:
        """A call that has ended is freed at once, without the collector."""

        async def handler(requests: Any) -> AsyncIterator[int]:
            async for request in requests:
                yield request

        self.add(handler, streaming="bidirectional")

        class Request(dict[str, Any]):
            pass

        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        self.successResultOf(
            Deferred.fromCoroutine(drain(self.call(requests(Request(), Request()))))
        )
        self.assertEqual([each for each in gc.get_objects() if isinstance(each, Request)], [])
