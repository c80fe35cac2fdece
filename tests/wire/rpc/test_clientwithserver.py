"""Our client against our server."""

from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from storagegate.core.errors import GrpcError
from storagegate.rpc.application import GRPCServer
from storagegate.rpc.client import createGrpcClient
from storagegate.rpc.middleware import requestLog
from tests.support.grpctap import listenTapped
from tests.wire.rpc.clientcase import until


class TogetherTests(TestCase):
    """Both ends in one reactor."""

    timeout = 60

    async def setUp(self) -> None:
        """Serve."""
        self.begun = self.cancelled = 0
        self.app = GRPCServer().withOptions(grpc={"reflection": True, "compression": "gzip"})
        self.app.addService(
            name="Probe",
            methods={
                "echo": self.echo,
                "fail": self.refuse,
                "wait": self.wait,
                "count": {"handler": self.count, "streaming": "server"},
                "gather": {"handler": self.gather, "streaming": "client"},
                "mirror": {"handler": self.mirror, "streaming": "bidirectional"},
            },
        )

    async def connect(self, place: int | str = 0, **options: Any) -> Any:
        """Listen, and make a client that learns what there is."""
        port = await self.app.listen(place, "127.0.0.1", reactor=reactor)
        self.addCleanup(self.app.stop, 0)
        address = f"127.0.0.1:{port.getHost().port}" if place == 0 else str(place)
        client = createGrpcClient(address, "insecure", **options)
        self.addCleanup(client.close)
        return client

    def echo(self, request: Any) -> Any:
        """Answer with the same."""
        return request

    async def refuse(self, request: Any) -> Any:
        """Refuse."""
        raise GrpcError("INVALID_ARGUMENT", "bad", [{"path": "a.b", "message": "is wrong"}])

    async def wait(self, request: Any) -> Any:
        """Wait for nothing."""
        self.begun += 1
        try:
            await Deferred()
        finally:
            self.cancelled += 1

    async def count(self, request: Any) -> Any:
        """Count."""
        for number in range(request["to"]):
            yield {"number": number}

    async def gather(self, requests: Any) -> Any:
        """Take them all."""
        return {"all": [request["text"] async for request in requests]}

    async def mirror(self, requests: Any) -> Any:
        """Give back each."""
        async for request in requests:
            yield request

    async def test_kinds(self) -> None:
        """All kinds of calls, with services learned by version 1 of reflection."""
        client = await self.connect()
        self.assertEqual(
            await client.echo(text="ä", deep={"a": [1, None]}),
            {"text": "ä", "deep": {"a": [1, None]}},
        )
        self.assertEqual([each["number"] async for each in client.count(to=1000)], [*range(1000)])
        texts = [{"text": str(number)} for number in range(100)]
        self.assertEqual(await client.gather(texts), {"all": [str(n) for n in range(100)]})
        self.assertEqual([each async for each in client.mirror(texts)], texts)
        self.assertEqual(list(client.services), ["Probe"])

    async def test_learning(self) -> None:
        """Learning is a call that ends in order, for a server that logs its calls."""
        lines: list[str] = []
        self.app.use(requestLog("{path} {status}", write=lines.append))
        client = await self.connect()
        await client.ready()
        await until(lambda: bool(lines))
        self.assertEqual(lines, ["/grpc.reflection.v1.ServerReflection/ServerReflectionInfo OK"])

    async def test_details(self) -> None:
        """The details of an error are what the handler said."""
        client = await self.connect()
        error = await self.assertFailure(client.fail().deferred(), GrpcError)
        self.assertEqual(error.details, [{"path": "a.b", "message": "is wrong"}])

    async def test_cancel(self) -> None:
        """A call that is given up cancels its handler, and a deadline does."""
        client = await self.connect()
        await client.ready()
        call = client.wait()
        await until(lambda: self.begun)
        call.cancel()
        await until(lambda: self.cancelled == 1)
        # On a busy machine a short deadline may pass before the handler has begun.
        deadline = 30
        while self.begun == 1:
            waiting = client.wait(deadlineMs=deadline).deferred()
            error = await self.assertFailure(waiting, GrpcError)
            self.assertEqual(error.statusName, "DEADLINE_EXCEEDED")
            deadline *= 4
        # More than one may have begun late, when its client had given it up.
        await until(lambda: self.cancelled == self.begun)

    async def test_compressed(self) -> None:
        """A client that compresses is understood."""
        client = await self.connect(options={"compression": "gzip"})
        self.assertEqual(await client.echo(text="x" * 100_000), {"text": "x" * 100_000})

    async def test_compressedCalls(self) -> None:
        """A call says how its requests are compressed."""
        port = await self.app.listen(0, "127.0.0.1", reactor=reactor)
        self.addCleanup(self.app.stop, 0)
        tap, relay = listenTapped(reactor, port.getHost().port)
        address = f"127.0.0.1:{relay.getHost().port}"  # type: ignore[attr-defined]
        for own, given, flag in (
            (None, "gzip", 1),
            (None, "deflate", 1),
            (None, None, 0),
            ("gzip", "identity", 0),
            ("gzip", None, 1),
        ):
            client: Any = createGrpcClient(address, "insecure", options={"compression": own})
            await client.ready()
            step = f"{own}-{given}"
            for method, kind in (
                ("echo", {"text": "x" * 9000}),
                ("gather", [{"text": "x" * 9000}]),
            ):
                metadata = {"x-step": f"{step}-{method}"}
                await client[method](kind, compression=given, metadata=metadata)
                found = tap.find("x-step", f"{step}-{method}")[0].flags
                self.assertEqual(found, [flag], (step, method))
            await client.close()
        await relay.stopListening()
        with self.assertRaises(ValueError):
            client.echo({}, compression="zip")

    async def test_requestsLater(self) -> None:
        """The requests of a stream begin to run once the caller has the call."""
        client = await self.connect()
        await client.ready()
        seen: list[Any] = []

        def requests() -> Any:
            seen.append(call)
            yield {"text": "a"}

        async def later() -> Any:
            for request in requests():
                yield request

        for make in (requests, later):
            call = client.gather(make())
            self.assertEqual(seen, [])
            self.assertEqual(await call, {"all": ["a"]})
            self.assertEqual(seen, [call])
            seen.clear()

    async def test_unix(self) -> None:
        """A UNIX socket is an address as well."""
        path = f"unix:{self.mktemp()[-60:].replace('/', '_')}"
        client = await self.connect(path)
        self.assertEqual(await client.echo(text="x"), {"text": "x"})
