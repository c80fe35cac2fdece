"""Middleware and the details of errors on the wire, read by grpcio and grpcio-status."""

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.struct_pb2 import Struct
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from storagegate import GrpcError, ServiceError, server
from storagegate.rpc import authentication, errorHandler, rateLimit, requestLog
from storagegate.rpc.status import MAX_DETAILS, MESSAGE_LENGTH
from tests.wire.rpc.support import RPCCase

ECHO = "/Echo/"
TOKEN = (("authorization", "Bearer secret"),)
TIMEOUT = 20


class ValidationError(Exception):
    """Stands for any library's."""

    details = ({"path": "email", "message": "is no email"}, {"path": "id", "message": "is bad"})


def unary(name: str, **options: Any) -> Callable[[grpc.Channel], Any]:
    """Make a call of one request; it gives the response, or the error."""

    def call(channel: grpc.Channel) -> Any:
        method = channel.unary_unary(ECHO + name, Struct.SerializeToString, Struct.FromString)
        try:
            return dict(method(Struct(), **{"timeout": TIMEOUT, **options}))
        except grpc.RpcError as error:
            return error

    return call


def streaming(name: str, **options: Any) -> Callable[[grpc.Channel], Any]:
    """Make a call with a stream of responses; it gives how many came, and the status."""

    def call(channel: grpc.Channel) -> Any:
        method = channel.unary_stream(ECHO + name, Struct.SerializeToString, Struct.FromString)
        stream = method(Struct(), **{"timeout": TIMEOUT, **options})
        count = 0
        try:
            for _ in stream:
                count += 1
        except grpc.RpcError:
            pass
        return count, stream.code().name

    return call


class MiddlewareCase(RPCCase):
    """A server with middleware and a service that fails in every way."""

    async def serve(self, *middleware: Any, **methods: Any) -> None:
        """Serve methods behind middleware."""
        app = server.grpc()
        for each in middleware:
            app.use(each)
        self.port = await self.listen(app.addService(name="Echo", methods=methods))

    async def ask(self, call: Callable[[grpc.Channel], Any]) -> Any:
        """Make a call in a thread of its own."""

        def connect() -> Any:
            with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
                return call(channel)

        return await deferToThread(connect)

    async def status(self, call: Callable[[grpc.Channel], Any]) -> str:
        """Make a call, and give what its status says."""
        error = await self.ask(call)
        if isinstance(error, grpc.RpcError):
            return f"{error.code().name}: {error.details()}"
        return f"OK: {error}"


def echo(request: Any, call: Any) -> Any:
    """Say who calls."""
    return {"user": call.user}


async def count(request: Any, call: Any) -> Any:
    """Count to three."""
    for number in range(3):
        yield {"n": number}


def failing(error: Callable[[], BaseException]) -> Callable[[Any], Any]:
    """Make a handler that raises."""

    def fail(request: Any) -> Any:
        raise error()

    return fail


class AuthenticationTests(MiddlewareCase):
    """Tokens on the wire."""

    async def test_tokens(self) -> None:
        """A call without a valid token is refused; with one, the user is known."""
        middleware = authentication({"secret": "ann"}.get, ["free"])
        await self.serve(middleware, echo=echo, count=count, free=echo)
        missing = "UNAUTHENTICATED: Missing authorization"
        self.assertEqual(await self.status(unary("echo")), missing)
        self.assertEqual(
            await self.status(unary("echo", metadata=(("authorization", "Bearer bad"),))),
            "UNAUTHENTICATED: Invalid token",
        )
        self.assertEqual(await self.ask(unary("echo", metadata=TOKEN)), {"user": "ann"})
        self.assertEqual(await self.ask(unary("free")), {"user": None})
        self.assertEqual(await self.ask(streaming("count")), (0, "UNAUTHENTICATED"))
        self.assertEqual(await self.ask(streaming("count", metadata=TOKEN)), (3, "OK"))

    async def test_later(self) -> None:
        """A verifier that waits lets streams and single calls through as well."""

        async def verify(token: str, call: Any) -> Any:
            waiting: Deferred[None] = Deferred()
            self.reactor.callLater(0, waiting.callback, None)
            await waiting
            return token == "secret" and call.method

        await self.serve(authentication(verify), echo=echo, count=count)
        self.assertEqual(await self.ask(unary("echo", metadata=TOKEN)), {"user": "echo"})
        self.assertEqual(await self.ask(streaming("count", metadata=TOKEN)), (3, "OK"))
        self.assertEqual(await self.ask(streaming("count")), (0, "UNAUTHENTICATED"))

    async def test_health(self) -> None:
        """A probe without a token gets the health of a server that refuses other calls."""
        from grpc_health.v1 import health_pb2, health_pb2_grpc

        await self.serve(authentication(lambda token: None), echo=echo)

        def probe(channel: grpc.Channel) -> Any:
            request = health_pb2.HealthCheckRequest()
            return health_pb2_grpc.HealthStub(channel).Check(request, timeout=TIMEOUT).status

        self.assertEqual(await self.ask(probe), health_pb2.HealthCheckResponse.SERVING)


class LimitTests(MiddlewareCase):
    """Rate limits on the wire."""

    async def test_refused(self) -> None:
        """Over the limit a caller is told in the standard way when to come again."""
        await self.serve(rateLimit(600_000, max=2), echo=echo)
        calls = [await self.ask(unary("echo")) for _ in range(3)]
        self.assertEqual(calls[:2], [{"user": None}] * 2)
        error = calls[2]
        self.assertIs(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertEqual(error.details(), "Too many requests")
        [packed] = rpc_status.from_call(error).details
        info = error_details_pb2.RetryInfo()
        self.assertTrue(packed.Unpack(info))
        self.assertTrue(500 < info.retry_delay.ToTimedelta().total_seconds() <= 600)

    async def test_streams(self) -> None:
        """A stream counts once, whatever is in it."""
        await self.serve(rateLimit(max=2), count=count)
        answers = [await self.ask(streaming("count")) for _ in range(3)]
        self.assertEqual(answers, [(3, "OK"), (3, "OK"), (0, "RESOURCE_EXHAUSTED")])


class DetailTests(MiddlewareCase):
    """Details that another library reads."""

    async def read(self, error: Callable[[], BaseException]) -> Any:
        """Have a handler fail; give the google.rpc.Status that grpcio-status finds."""
        await self.serve(fail=failing(error))
        found = await self.ask(unary("fail"))
        # It refuses details whose code or message is another than the status's.
        return rpc_status.from_call(found)

    async def test_violations(self) -> None:
        """Violations are a BadRequest, in any exception."""
        status = await self.read(lambda: ValidationError("2 problems"))
        self.assertEqual((status.code, status.message), (3, "2 problems"))
        [packed] = status.details
        request = error_details_pb2.BadRequest()
        self.assertTrue(packed.Unpack(request))
        self.assertEqual(
            [(each.field, each.description) for each in request.field_violations],
            [("email", "is no email"), ("id", "is bad")],
        )

    async def test_struct(self) -> None:
        """What a service tells in values of JSON is a Struct."""
        status = await self.read(lambda: ServiceError("TAKEN", "is taken", 409, {"by": ["x"]}))
        self.assertEqual((status.code, status.message), (6, "is taken"))
        struct = Struct()
        self.assertTrue(status.details[0].Unpack(struct))
        self.assertEqual(list(struct["by"]), ["x"])

    async def test_message(self) -> None:
        """A message goes as it is."""
        info = error_details_pb2.ErrorInfo(reason="R", metadata={"a": "b"})
        status = await self.read(lambda: GrpcError("ABORTED", "größer\n", [info]))
        self.assertEqual((status.code, status.message), (10, "größer\n"))
        found = error_details_pb2.ErrorInfo()
        self.assertTrue(status.details[0].Unpack(found))
        self.assertEqual(found, info)

    async def test_none(self) -> None:
        """An error without details has no trailer for them, and an unknown one no text."""
        self.assertIsNone(await self.read(lambda: GrpcError("ABORTED", "no")))
        self.assertIsNone(await self.read(lambda: KeyError("secret")))
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    async def test_longest(self) -> None:
        """The longest message beside the longest details gets through to a client."""
        room = MAX_DETAILS - MESSAGE_LENGTH - 100
        status = await self.read(lambda: GrpcError(9, "é" * 5000, {"a": "x" * room}))
        self.assertEqual(status.message, "é" * (MESSAGE_LENGTH // 2))
        self.assertEqual(len(status.details), 1)

    async def test_tooLong(self) -> None:
        """Details that are too long stay behind; the error does not."""
        status = await self.read(lambda: GrpcError(9, "no", {"a": "x" * 1_000_000}))
        self.assertEqual((status.code, status.message, len(status.details)), (9, "no", 0))

    async def test_halfCharacter(self) -> None:
        """A message that no encoding has is still one."""
        status = await self.read(lambda: GrpcError(9, "a\ud800b", {"a": 1}))
        self.assertEqual(status.message, "a?b")


class LogTests(MiddlewareCase):
    """Lines on calls of a client."""

    def setUp(self) -> None:
        """Keep the lines, and wait for them."""
        super().setUp()
        self.lines: list[str] = []
        self.waiting: Deferred[None] | None = None

    def write(self, line: str) -> None:
        """Keep a line."""
        self.lines.append(line)
        if self.waiting is not None and not self.waiting.called:
            self.waiting.callback(None)

    def log(self) -> Any:
        """Make the middleware."""
        return requestLog("{path} {status}", write=self.write)

    async def test_lines(self) -> None:
        """Each call has its line with the status that its client saw, also behind others."""
        await self.serve(
            self.log(),
            errorHandler(),
            rateLimit(max=3),
            echo=echo,
            count=count,
            fail=failing(lambda: KeyError("secret")),
        )
        seen = [
            (await self.status(unary("echo"))).split(":")[0],
            (await self.ask(streaming("count")))[1],
            (await self.status(unary("fail"))).split(":")[0],
            (await self.status(unary("echo"))).split(":")[0],
        ]
        self.assertEqual(seen, ["OK", "OK", "INTERNAL", "RESOURCE_EXHAUSTED"])
        names = ["echo", "count", "fail", "echo"]
        expected = [f"/Echo/{name} {status}" for name, status in zip(names, seen, strict=True)]
        self.assertEqual(self.lines, expected)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    async def test_deadline(self) -> None:
        """A call whose deadline passes has a line that says so."""
        self.waiting = Deferred()
        begun = []

        async def wait(request: Any) -> Any:
            begun.append(request)
            await Deferred()

        await self.serve(self.log(), wait=wait)
        # On a busy machine a short deadline may pass before the handler has begun.
        for timeout in (0.2, 1, 15):
            status = await self.status(unary("wait", timeout=timeout))
            self.assertIn("DEADLINE_EXCEEDED", status)
            if begun:
                break
        await self.waiting
        self.assertEqual(set(self.lines), {"/Echo/wait DEADLINE_EXCEEDED"})

    async def test_cancelled(self) -> None:
        """So has one that its client gives up."""
        self.waiting = Deferred()

        async def endless(request: Any) -> Any:
            yield {}
            await Deferred()

        await self.serve(self.log(), endless=endless)

        def giveUp(channel: grpc.Channel) -> None:
            method = channel.unary_stream(
                ECHO + "endless", Struct.SerializeToString, Struct.FromString
            )
            stream = method(Struct(), timeout=TIMEOUT)
            next(stream)
            stream.cancel()

        await self.ask(giveUp)
        await self.waiting
        self.assertEqual(self.lines, ["/Echo/endless CANCELLED"])
