"""
The matrix: five wires, four ways to stream, and whatever can happen to a call.

Every cell is one call by a client that has nothing in common with the gateway. What is expected is
the same on all wires, but that gRPC says it by its own names.
"""

import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate.auth.throttle import DELAY_SECONDS, FREE_FAILURES
from storagegate.core.definitions import STREAMING
from storagegate.core.errors import ServiceError
from storagegate.gateway.gateway import createProtocolGateway
from storagegate.gateway.transports.registry import transportNames
from tests.support.gateway import FORBIDDEN, TOKEN, Boom, Probe, guarded
from tests.support.gatewayanswers import Answer
from tests.support.gatewayclients import CLIENTS
from tests.support.owngatewayclient import URLS, OwnClient
from tests.support.selection import long

GRPC_STATUSES = {
    "VALIDATION_ERROR": "INVALID_ARGUMENT",
    "RATE_LIMITED": "RESOURCE_EXHAUSTED",
    "INTERNAL_ERROR": "INTERNAL",
    # Of a service or method that is not there.
    "NOT_FOUND": "UNIMPLEMENTED",
}
"""What gRPC calls the codes; others it calls the same."""

GREETING = {"text": "hello"}

Asking = Callable[..., Deferred[Answer]]


def forgiving() -> dict[str, Any]:
    """Make a service whose handlers catch what is wrong with their requests, and go on."""

    async def client(requests: AsyncIterable[Any], context: Any) -> dict[str, Any]:
        try:
            return {"text": "".join([each["text"] async for each in requests])}
        except ServiceError:
            await Deferred()
            return {"text": "went on"}

    async def bidirectional(requests: AsyncIterable[Any], context: Any) -> AsyncIterator[Any]:
        with contextlib.suppress(ServiceError):
            async for each in requests:
                yield each
        yield {"text": "went on"}

    schema = {"type": "object", "properties": {"text": {"type": "string", "maxLength": 2}}}
    methods = {
        f"ask{handler.__name__.capitalize()}": {
            "handler": handler,
            "streaming": handler.__name__,
            "input": schema,
            "output": schema,
        }
        for handler in (client, bidirectional)
    }
    return {"name": "Forgiving", "methods": methods}


class MatrixCase(TestCase):
    """A gateway on all wires, and a client of each."""

    timeout = 60
    wires: tuple[str, ...] = transportNames()

    async def setUp(self) -> None:
        """Serve the fixture over all wires, and connect to each."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        free = {"port": 0}
        gateway = createProtocolGateway(
            port=0, tcp=free, udp=free, grpc={"port": 0, "reflection": True}
        )
        users = {TOKEN: {"sub": "ann"}, FORBIDDEN: {"sub": "bob"}}
        validate = {"validate": lambda key, context: users.get(key)}
        gateway.configureAuthentication(providers={"apikey": validate})
        self.probe = Probe(self.reactor)
        gateway.addService(self.probe.definition()).addService(guarded(self.probe))
        gateway.addService(forgiving())
        for service in self.services():
            gateway.addService(service)
        ports = await gateway.listen(reactor=self.reactor)
        self.addCleanup(gateway.stop, 0)
        self.gateway, self.ports = gateway, ports
        self.clients: dict[str, Any] = {}
        for wire in self.wires:
            client = await deferToThread(self.makeClient, wire, ports[wire].getHost().port)
            self.addCleanup(deferToThread, client.close)
            self.clients[wire] = client

    def makeClient(self, wire: str, port: int) -> Any:
        """Make a client, in a thread."""
        return CLIENTS[wire](port)

    def services(self) -> list[dict[str, Any]]:
        """Give the further services of the gateway."""
        return []

    async def everywhere(self, check: Callable[[str, str], Awaitable[None]]) -> None:
        """Run a check in each cell; tell of all that fail, not only of the first."""
        failed: dict[str, BaseException] = {}
        for wire in self.wires:
            for kind in STREAMING:
                try:
                    await check(wire, kind)
                except Exception as error:
                    failed[f"{wire} {kind}"] = error
        self.assertEqual(failed, {})

    def ask(
        self, wire: str, kind: str, *requests: Any, to: str = "Probe.ask", **more: Any
    ) -> Deferred[Answer]:
        """Call the method of a kind in a thread, to its end."""
        service, _, method = to.partition(".")
        begin = self.clients[wire].begin
        given = (service, f"{method}{kind.capitalize()}", kind, requests)
        return deferToThread(lambda: begin(*given, **more).finish())

    def refused(
        self, wire: str, answer: Answer, code: str, message: str, values: tuple[Any, ...] = ()
    ) -> None:
        """Check what a call that ended badly was told."""
        if wire == "grpc":
            code = GRPC_STATUSES.get(code, code)
        assert answer.problem is not None, answer
        found = (answer.problem.code, answer.problem.message, answer.values)
        self.assertEqual(found, (code, message, list(values)))

    def greeted(self, kind: str) -> tuple[Any, ...]:
        """Give what a handler has sent before it looks at requests."""
        return (GREETING,) if kind in ("server", "bidirectional") else ()

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait, turn by turn, until something is so."""
        while not condition():
            turned: Deferred[None] = Deferred()
            self.reactor.callLater(0.001, turned.callback, None)
            await turned


class MatrixTests(MatrixCase):
    """Each case, in all twenty cells."""

    async def test_ok(self) -> None:
        """The results come, in order, and the stream ends."""

        async def check(wire: str, kind: str) -> None:
            texts = ("a", "b") if kind in ("client", "bidirectional") else ("a",)
            answer = await self.ask(wire, kind, *({"text": text} for text in texts))
            expected: dict[str, list[Any]] = {
                "none": [{"text": "A"}],
                "server": [GREETING, {"text": "A"}],
                "client": [{"text": "A B"}],
                "bidirectional": [GREETING, {"text": "A"}, {"text": "B"}],
            }
            self.assertEqual(answer, Answer(expected[kind]))

        await self.everywhere(check)

    async def test_forgiven(self) -> None:
        """A bad item ends the call, also of a handler that catches the error."""
        items = ({"text": "a"}, {"text": "too long"}, {"text": "b"})

        async def check(wire: str, kind: str) -> None:
            if kind in ("client", "bidirectional"):
                answer = await self.ask(wire, kind, *items, to="Forgiving.ask")
                assert answer.problem is not None, answer
                code = GRPC_STATUSES["VALIDATION_ERROR"] if wire == "grpc" else "VALIDATION_ERROR"
                self.assertEqual(answer.problem.code, code)
                self.assertEqual(answer.values, [{"text": "a"}][: kind == "bidirectional"])

        await self.everywhere(check)

    async def test_validation(self) -> None:
        """A request that does not fit the schema is refused, and where is said."""

        async def check(wire: str, kind: str) -> None:
            answer = await self.ask(wire, kind, {"mode": "x"})
            # The items of a stream are looked at when the handler asks for them.
            begun = self.greeted(kind) if kind == "bidirectional" else ()
            self.refused(wire, answer, "VALIDATION_ERROR", "text is required", begun)
            assert answer.problem is not None
            self.assertEqual(answer.problem.violations, ("text",))

        await self.everywhere(check)

    async def test_unknownService(self) -> None:
        """A service that is not there is not found."""

        async def check(wire: str, kind: str) -> None:
            answer = await self.ask(wire, kind, {"text": "a"}, to="Nothing.ask")
            self.notThere(wire, answer, "Unknown service: Nothing")

        await self.everywhere(check)

    async def test_unknownMethod(self) -> None:
        """Nor is a method."""

        async def check(wire: str, kind: str) -> None:
            answer = await self.ask(wire, kind, {"text": "a"}, to="Probe.none")
            self.notThere(wire, answer, f"Unknown method: Probe.none{kind.capitalize()}")

        await self.everywhere(check)

    def notThere(self, wire: str, answer: Answer, message: str) -> None:
        """Check what is said of what is not there; gRPC has its own words for it."""
        if wire == "grpc":
            assert answer.problem is not None
            message = answer.problem.message
        self.refused(wire, answer, "NOT_FOUND", message)

    async def test_unauthenticated(self) -> None:
        """Without a token, or with a bad one, a guarded method cannot be called."""

        async def check(wire: str, kind: str) -> None:
            for token, message in (
                (None, "Authentication is required"),
                ("nobody", "Invalid token"),
            ):
                request = {"text": "a"}
                answer = await self.ask(wire, kind, request, to="Guarded.ask", token=token)
                self.refused(wire, answer, "UNAUTHENTICATED", message)
            answer = await self.ask(wire, kind, {"text": "a"}, to="Guarded.ask", token=TOKEN)
            self.assertIsNone(answer.problem)

        await self.everywhere(check)

    @long("takes seconds")
    async def test_guessesAreSlowed(self) -> None:
        """All wires count bad tokens together: after a hundred each is refused late."""
        guess = {"to": "Guarded.ask", "token": "guess"}
        for _ in range(FREE_FAILURES):
            await self.ask("tcp", "none", {"text": "a"}, **guess)

        async def check(wire: str, kind: str) -> None:
            began = self.reactor.seconds()
            answer = await self.ask(wire, kind, {"text": "a"}, **guess)
            self.refused(wire, answer, "UNAUTHENTICATED", "Invalid token")
            self.assertGreater(self.reactor.seconds() - began, 0.8 * DELAY_SECONDS)
            answer = await self.ask(wire, kind, {"text": "a"}, to="Guarded.ask", token=TOKEN)
            self.assertIsNone(answer.problem)

        await self.everywhere(check)

    async def test_forbidden(self) -> None:
        """Whoever is known may be refused all the same."""

        async def check(wire: str, kind: str) -> None:
            request = {"text": "a"}
            answer = await self.ask(wire, kind, request, to="Guarded.ask", token=FORBIDDEN)
            self.refused(wire, answer, "PERMISSION_DENIED", "You may not call this method")

        await self.everywhere(check)

    async def test_rateLimited(self) -> None:
        """Two calls are served, the third is told when to come again: all wires count together."""
        for kind in STREAMING:
            for wire in ("udp", "tcp"):
                answer = await self.ask(wire, kind, {"text": "a"}, to="Probe.limited")
                self.assertIsNone(answer.problem)

        async def check(wire: str, kind: str) -> None:
            answer = await self.ask(wire, kind, {"text": "a"}, to="Probe.limited")
            self.refused(wire, answer, "RATE_LIMITED", "Too many calls")
            assert answer.problem is not None
            assert answer.problem.retryAfterMs is not None
            self.assertTrue(0 < answer.problem.retryAfterMs <= 60_000)

        await self.everywhere(check)

    async def test_unforeseen(self) -> None:
        """What nobody foresaw is logged, and no client learns of it."""

        async def check(wire: str, kind: str) -> None:
            answer = await self.ask(wire, kind, {"text": "a", "mode": "boom"})
            self.refused(wire, answer, "INTERNAL_ERROR", "Internal error", self.greeted(kind))
            self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)

        await self.everywhere(check)

    async def test_cancel(self) -> None:
        """A client that gives up ends the handler, and can call again."""

        async def check(wire: str, kind: str) -> None:
            begin = self.clients[wire].begin
            name = f"ask{kind.capitalize()}"
            hanging = [{"text": "a", "mode": "hang"}]
            begun = await deferToThread(begin, "Probe", name, kind, hanging, isOpen=True)
            await self.until(lambda: self.probe.hanging)
            await deferToThread(begun.cancel)
            await self.until(lambda: self.probe.cancelled)
            self.assertEqual(self.probe.cancelled, [name])
            self.probe.cancelled.clear()
            again = await self.ask(wire, kind, {"text": "a"})
            self.assertEqual((again.problem, again.values[-1]), (None, {"text": "A"}))

        await self.everywhere(check)

    async def test_deadline(self) -> None:
        """At its deadline a call ends, for the client and for the handler."""

        async def check(wire: str, kind: str) -> None:
            hanging, greeted = {"text": "a", "mode": "hang"}, list(self.greeted(kind))
            first = len(self.probe.hung)
            # On a busy machine a short deadline may pass before the handler has got so far.
            for deadline in (50, 1000, 15_000):
                begun = len(self.probe.hung)
                answer = await self.ask(wire, kind, hanging, deadlineMs=deadline)
                assert answer.problem is not None
                self.assertEqual(answer.problem.code, "DEADLINE_EXCEEDED")
                if len(self.probe.hung) > begun and answer.values == greeted:
                    break
            self.assertEqual(answer.values, greeted)
            # Of those before, some may have begun late.
            await self.until(lambda: len(self.probe.cancelled) >= len(self.probe.hung) - first)
            self.assertEqual(set(self.probe.cancelled), {f"ask{kind.capitalize()}"})
            self.probe.cancelled.clear()

        await self.everywhere(check)


@long("the matrix again")
class OwnClientTests(MatrixTests):
    """The same answers by the client of the package; tests of gRPC have other names for codes."""

    wires = tuple(URLS)

    def makeClient(self, wire: str, port: int) -> Any:
        """Make a client of the package."""
        return OwnClient(self.reactor, wire, port)
