"""Calls through a gateway in front: what clients of it see that those of the instance do not."""

import json
from http.client import HTTPConnection
from typing import Any

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase
from websockets.sync.client import connect

from storagegate.core.context import RequestContext
from storagegate.gateway.gateway import ProtocolGateway


class ForwardedTests(TestCase):
    """Three instances, and a gateway in front of them."""

    timeout = 60

    async def setUp(self) -> None:
        """Serve."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.contexts: list[RequestContext] = []
        self.ports = [await self.serveInstance(name) for name in "abc"]

    async def serveInstance(self, name: str) -> int:
        """Serve an instance that tells its name."""

        async def who(request: Any, context: RequestContext) -> Any:
            self.contexts.append(context)
            return {"name": name}

        async def turned(request: Any, context: RequestContext) -> Any:
            return {"data": request["data"][::-1]}

        data = {"type": "string", "contentEncoding": "base64"}
        schema = {"type": "object", "properties": {"data": data}}
        gateway = ProtocolGateway(protocols=["http"], port=0)
        methods = {"who": who, "turned": {"handler": turned, "input": schema, "output": schema}}
        gateway.addService("Probe", methods=methods)
        ports = await gateway.listen(reactor=self.reactor)
        self.addCleanup(gateway.stop, 0)
        port: int = ports["http"].getHost().port
        return port

    async def serve(self, routing: Any, *definitions: Any) -> int:
        """Serve the gateway in front; give the port of HTTP and WebSocket."""
        front = ProtocolGateway(protocols=["http", "websocket"], port=0)
        for definition in definitions:
            front.addService(definition)
        instances = [{"host": "127.0.0.1", "port": port} for port in self.ports]
        front.configureServiceDiscovery(
            services={"Probe": {"instances": instances}}, routing=routing
        )
        ports = await front.listen(reactor=self.reactor)
        self.addCleanup(front.stop, 0)
        port: int = ports["http"].getHost().port
        return port

    async def ask(
        self, port: int, headers: dict[str, str], method: str = "who", request: Any = None
    ) -> tuple[Any, str | None]:
        """Call over HTTP; give the result, and the cookie that was set."""

        def call() -> tuple[Any, str | None]:
            connection = HTTPConnection("127.0.0.1", port, timeout=45)
            body = json.dumps(request or {})
            connection.request("POST", f"/api/Probe/{method}", body, headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
            connection.close()
            return answer["data"], response.getheader("Set-Cookie")

        return await deferToThread(call)

    async def test_cookie(self) -> None:
        """A browser without a session comes back to the instance that its first call went to."""
        port = await self.serve({"http": {"sticky_sessions": True}})
        first, cookie = await self.ask(port, {})
        assert cookie is not None
        headers = {"Cookie": cookie.partition(";")[0]}
        for _ in range(4):
            self.assertEqual(await self.ask(port, headers), (first, None))
        others = {(await self.ask(port, {}))[0]["name"] for _ in range(3)}
        self.assertEqual(others, set("abc"))

    async def test_connection(self) -> None:
        """All calls of one WebSocket go to one instance."""
        port = await self.serve({"websocket": {"connection_affinity": True}})

        def call() -> set[str]:
            with connect(f"ws://127.0.0.1:{port}/ws", open_timeout=45) as socket:
                found = set()
                for id in range(6):
                    message = {"id": id, "service": "Probe", "method": "who", "data": {}}
                    socket.send(json.dumps(message))
                    found.add(json.loads(socket.recv(timeout=45))["data"]["name"])
                return found

        for _ in range(3):
            self.assertEqual(len(await deferToThread(call)), 1)

    async def test_trace(self) -> None:
        """The trace, its state, the deadline and the caller's address go on."""
        port = await self.serve({})
        trace = "0af7651916cd43dd8448eb211c80319c"
        headers = {
            "traceparent": f"00-{trace}-b7ad6b7169203331-01",
            "tracestate": "vendor=1",
            "X-Deadline-Ms": "50000",
            "X-Forwarded-For": "192.0.2.1",
        }
        await self.ask(port, headers)
        [context] = self.contexts
        self.assertEqual(
            (context.tracing.traceId, context.tracing.state, context.tracing.sampled),
            (trace, "vendor=1", True),
        )
        self.assertEqual(context.headers["x-forwarded-for"], "192.0.2.1, 127.0.0.1")
        self.assertTrue(0 < int(context.headers["x-deadline-ms"]) <= 50_000)

    async def test_bytes(self) -> None:
        """Bytes are bytes in front, where a schema says so, and the same bytes behind."""
        seen = []

        async def note(request: Any, context: Any, next: Any) -> Any:
            result = await next(request, context)
            seen.append((request["data"], result["data"]))
            return result

        data = {"type": "string", "contentEncoding": "base64"}
        schema = {"type": "object", "properties": {"data": data}}
        method = {"handler": lambda request: None, "input": schema, "output": schema}
        local = {"name": "Probe", "methods": {"turned": method}, "middleware": [note]}
        port = await self.serve({}, local)
        result, _ = await self.ask(port, {}, "turned", {"data": "AAEC"})
        self.assertEqual(result, {"data": "AgEA"})
        self.assertEqual(seen, [(b"\0\1\2", b"\2\1\0")])
