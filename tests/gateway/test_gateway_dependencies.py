"""Dependencies of a gateway's methods, the same as of routes and gRPC handlers."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase

from storagegate import GrpcError, ServiceError, createProtocolGateway, server
from storagegate.core.definitions import DefinitionError
from storagegate.gateway import CallContext, Depends, GatewayContext, Header
from storagegate.gateway.testing import GatewayClient
from storagegate.http.testing import Client
from storagegate.rpc.testing import RPCTestClient


@dataclass
class User:
    """Who calls."""

    name: str


@dataclass
class Text:
    """A request and a response."""

    text: str


def pool() -> Iterator[list[str]]:
    """Make a pool of the application."""
    made = ["made"]
    POOLS.append(made)
    yield made
    made.append("ended")


POOLS: list[list[str]] = []


async def currentUser(
    context: CallContext[User],
    users: Annotated[list[str], Depends(pool, scope="application")],
    xTenant: Annotated[int, Header(ge=1)] = 1,
) -> User:
    """Return the user of a call over any transport."""
    if context.token is None:
        raise ServiceError("UNAUTHENTICATED", "Log in first", 401, grpcCode="UNAUTHENTICATED")
    context.user = User(f"{context.token} {context.protocol} {xTenant} {context.client.address}")
    return context.user


class OneLoginTests(SynchronousTestCase):
    """One function is the login of all front ends."""

    def setUp(self) -> None:
        """Make the three of them, with one container."""
        POOLS.clear()
        self.app, self.rpc = server.http(), server.grpc()
        self.gateway = createProtocolGateway(protocols=["http", "tcp", "websocket", "grpc"])
        self.rpc.dependencies = self.gateway.dependencies = self.app.dependencies

        async def greet(
            request: Text, context: GatewayContext[User], user: User = Depends(currentUser)
        ) -> Text:
            self.users = [context.user, user]
            return Text(f"{request.text} {user.name}")

        async def greetOverGRPC(request: Text, user: User = Depends(currentUser)) -> Text:
            return Text(f"{request.text} {user.name}")

        @self.app.post("/greet")
        async def greetOverHTTP(body: Text, user: User = Depends(currentUser)) -> Text:
            return Text(f"{body.text} {user.name}")

        self.gateway.addService("Greeter", {"methods": {"greet": greet}})
        self.rpc.addService("Greeter", {"methods": {"greet": greetOverGRPC}})

    def test_all(self) -> None:
        """Each front end gives it token, metadata, protocol and address, and one pool."""
        fields = {"authorization": "Bearer ada", "x-tenant": "7"}
        request = {"text": "hi"}
        web = Client(self.app).post("/greet", json=request, headers=fields)
        self.assertEqual(web.json(), {"text": "hi ada http 7 127.0.0.1"})
        rpc = RPCTestClient(self.rpc).call("Greeter/greet", request, metadata=fields)
        self.assertEqual(rpc["text"], "hi ada grpc 7 127.0.0.1")
        clients = GatewayClient(self.gateway)
        tcp = clients.connect("tcp").call("Greeter", "greet", request, token="ada")
        self.assertEqual(tcp["text"], "hi ada tcp 1 127.0.0.1")
        self.assertIs(*self.users)
        http = clients.connect("http").post("/api/Greeter/greet", json=request, headers=fields)
        self.assertEqual(http.json()["data"]["text"], "hi ada http 7 127.0.0.1")
        self.assertEqual(POOLS, [["made"]])
        self.successResultOf(self.app.close())
        self.assertEqual(POOLS, [["made", "ended"]])

    def test_refused(self) -> None:
        """Each answers its error, and that of a wrong header, in its own form."""
        request = {"text": "hi"}
        response = Client(self.app).post("/greet", json=request)
        self.assertEqual((response.status, response.json()["error"]), (401, "UNAUTHENTICATED"))
        call = RPCTestClient(self.rpc).call
        error = self.assertRaises(GrpcError, call, "Greeter/greet", request)
        self.assertEqual(error.statusName, "UNAUTHENTICATED")
        tcp = GatewayClient(self.gateway).connect("tcp")
        refused = self.assertRaises(ServiceError, tcp.call, "Greeter", "greet", request)
        self.assertEqual(refused.code, "UNAUTHENTICATED")
        fields = {"authorization": "Bearer ada", "x-tenant": "0"}
        error = self.assertRaises(GrpcError, call, "Greeter/greet", request, metadata=fields)
        self.assertEqual(error.statusName, "INVALID_ARGUMENT")
        self.assertIn("x-tenant expected int >= 1", error.message)

    def test_overrides(self) -> None:
        """An override of the common container is one for all."""
        self.rpc.overrides[currentUser] = lambda: User("test")
        request = {"text": "hi"}
        self.assertEqual(Client(self.app).post("/greet", json=request).json()["text"], "hi test")
        tcp = GatewayClient(self.gateway).connect("tcp")
        self.assertEqual(tcp.call("Greeter", "greet", request)["text"], "hi test")


class MethodTests(SynchronousTestCase):
    """Methods of every kind."""

    def setUp(self) -> None:
        """Make a log."""
        self.log: list[str] = []

    def connection(self) -> Iterator[str]:
        """Give a connection, which has to be closed."""
        self.log.append("open")
        try:
            yield "c"
        except Exception as error:
            self.log.append(type(error).__name__)
            raise
        finally:
            self.log.append("closed")

    async def slowConnection(self) -> AsyncIterator[str]:
        """Give one that takes time to close."""
        self.log.append("open")
        try:
            yield "c"
        finally:
            await deferLater(self.clients.clock, 1)
            self.log.append("closed")

    def connect(self, **methods: Any) -> Any:
        """Serve methods, and connect a client over TCP."""
        gateway = createProtocolGateway(protocols=["tcp"])
        gateway.addService("S", {"methods": methods})
        self.clients = GatewayClient(gateway)
        return self.clients.connect("tcp")

    def test_end(self) -> None:
        """A dependency ends after the answer, with the error of the handler if there is one."""

        def plain(request: Any, a: str = Depends(self.connection)) -> dict[str, str]:
            self.log.append("handler")
            return {"a": a}

        async def fail(request: Any, context: Any, a: str = Depends(self.connection)) -> None:
            await deferLater(self.clients.clock, 1)
            raise ServiceError("NOT_FOUND", "no", 404)

        tcp = self.connect(plain=plain, fail=fail)
        self.assertEqual(tcp.call("S", "plain", {}), {"a": "c"})
        self.assertEqual(self.log, ["open", "handler", "closed"])
        self.log.clear()
        call = tcp.start("S", "fail", {})
        self.assertEqual(self.log, ["open"])
        self.clients.advance(1)
        self.assertRaises(ServiceError, lambda: call.result)
        self.assertEqual(self.log, ["open", "ServiceError", "closed"])

    def test_streams(self) -> None:
        """One of a stream ends with the stream, also when the client cancels it."""

        async def count(
            request: Any, a: Annotated[str, Depends(self.connection)], more: int = 0
        ) -> AsyncIterator[dict[str, Any]]:
            for number in range(3):
                yield {"a": a, "number": number}
                await deferLater(self.clients.clock, 1)

        tcp = self.connect(count=count)
        call = tcp.start("S", "count", {})
        self.assertEqual(self.log, ["open"])
        self.clients.advance(3)
        self.assertEqual([each["number"] for each in call.items], [0, 1, 2])
        self.assertEqual(self.log, ["open", "closed"])
        self.log.clear()
        call = tcp.start("S", "count", {})
        call.cancel()
        self.clients.advance(1)
        self.assertEqual(self.log[-1], "closed")

    def test_droppedStream(self) -> None:
        """It also ends if middleware fails and the stream is never begun."""

        async def count(
            request: Any, a: Annotated[str, Depends(self.slowConnection)]
        ) -> AsyncIterator[dict[str, Any]]:
            yield {"a": a}

        async def refuse(request: Any, context: Any, next: Any) -> Any:
            await next(request, context)
            raise ServiceError("NOT_FOUND", "no", 404)

        gateway = createProtocolGateway(protocols=["tcp"])
        gateway.addService("S", {"methods": {"count": count}, "middleware": [refuse]})
        self.clients = GatewayClient(gateway)
        call = self.clients.connect("tcp").start("S", "count", {})
        self.clients.advance(1)
        self.assertRaises(ServiceError, lambda: call.result)
        self.assertEqual(self.log, ["open", "closed"])

    def test_requestStream(self) -> None:
        """A stream of requests is passed as ever."""

        async def total(
            requests: AsyncIterator[Any], a: str = Depends(self.connection)
        ) -> dict[str, Any]:
            return {"total": sum([each["n"] async for each in requests]), "a": a}

        tcp = self.connect(total=total)
        call = tcp.start("S", "total")
        call.send({"n": 1})
        call.send({"n": 2})
        call.end()
        self.assertEqual(call.result, {"total": 3, "a": "c"})

    def test_wrong(self) -> None:
        """A parameter without a source is refused when the service is added."""

        def unknown(
            request: Any, context: Any, more: int, a: str = Depends(self.connection)
        ) -> None: ...
        def none(a: str = Depends(self.connection)) -> None: ...

        def asks(page: int) -> int:
            return page

        def nested(request: Any, a: int = Depends(asks)) -> None: ...

        for method, text in (
            (unknown, "without a source: more"),
            (none, "takes its request as its first"),
            (nested, "page of .*asks has no source"),
        ):
            error = self.assertRaises(DefinitionError, self.connect, m=method)
            self.assertRegex(str(error), text)
