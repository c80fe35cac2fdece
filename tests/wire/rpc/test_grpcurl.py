"""grpcurl, which knows of a service only what reflection tells."""

import json
import re
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate import GrpcError, server
from storagegate.net.tls import readTLS
from tests.support.certificates import Authority
from tests.support.grpcurl import GrpcurlFailed, grpcurl
from tests.support.selection import long

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}, "text": {"type": "string"}}}

SERVICE = "shop.Numbers"

_STATUS = 64
"""What grpcurl adds to the status of a call for its exit code."""

INVALID_ARGUMENT, DEADLINE_EXCEEDED = 3, 4


class Numbers:
    """
    Handlers of all kinds.

    @ivar cancelled: The number of handlers that were cancelled.
    """

    def __init__(self) -> None:
        self.cancelled = 0

    def double(self, request: Any, call: Any) -> Any:
        """Answer a request, and give its metadata back."""
        if "n" not in request:
            raise GrpcError("INVALID_ARGUMENT", "which number?")
        call.sendMetadata({"x-given": call.metadata.get("x-given") or "none"})
        return {"n": 2 * request["n"], "text": request.get("text", "")}

    async def countdown(self, request: Any) -> AsyncIterator[Any]:
        """Count down."""
        for n in range(request["n"], 0, -1):
            yield {"n": n}

    async def total(self, requests: AsyncIterable[Any]) -> Any:
        """Sum up."""
        return {"n": sum([request["n"] async for request in requests])}

    async def running(self, requests: AsyncIterable[Any]) -> AsyncIterator[Any]:
        """Sum up as the numbers come."""
        n = 0
        async for request in requests:
            n += request["n"]
            yield {"n": n}

    async def never(self, request: Any) -> Any:
        """Wait until it is cancelled."""
        try:
            await Deferred()
        finally:
            self.cancelled += 1

    def methods(self) -> dict[str, Any]:
        """Return the definitions of the methods."""
        kinds = {"countdown": "server", "total": "client", "running": "bidirectional"}
        names = ("double", "countdown", "total", "running", "never")
        return {
            name: {
                "handler": getattr(self, name),
                "streaming": kinds.get(name, "none"),
                "input": NUMBER,
                "output": NUMBER,
            }
            for name in names
        }


@long("runs grpcurl")
class GrpcurlTests(TestCase):
    """A server of its own port, with grpc core as its engine, without TLS."""

    timeout = 120
    engine = "grpcio"
    isSecure = False
    isShared = False

    async def setUp(self) -> None:  # type: ignore[override]
        """Serve."""
        from twisted.internet import reactor

        self.numbers = Numbers()
        rpc = server.grpc().withOptions(grpc={"reflection": True, "engine": self.engine})
        rpc.addService(SERVICE, self.numbers.methods())
        self.options = ["-plaintext"]
        tls = None
        if self.isSecure:
            authority = Authority(Path(self.mktemp()).absolute())
            cert, key = authority.issue()
            tls = {"cert": str(cert), "key": str(key)}
            self.options = ["-cacert", str(authority.path)]
        listening: Any
        if self.isShared:
            app = server.http().useRPC(rpc)
            app.tls = readTLS(tls)
            listening = await app.listen(0, "127.0.0.1", reactor=reactor)
            self.addCleanup(app.close, 0)
        else:
            rpc.withOptions(tls=tls)
            listening = await rpc.listen(0, "127.0.0.1", reactor=reactor)
            self.addCleanup(rpc.stop, 0)
        self.address = f"localhost:{listening.getHost().port}"

    async def ask(self, *arguments: str, given: str = "") -> str:
        """Run grpcurl; the address comes before a verb or a method, which is the last."""
        *options, last = arguments
        return await deferToThread(
            grpcurl, *self.options, *options, self.address, *last.split(), given=given
        )

    async def call(self, method: str, *options: str, given: str = "") -> list[Any]:
        """Call a method; return its responses, of which 64-bit integers are texts."""
        text = await self.ask(*options, f"{SERVICE}/{method}", given=given)
        found = []
        decoder = json.JSONDecoder()
        while text := text.strip():
            value, end = decoder.raw_decode(text)
            found.append(int(value["n"]))
            text = text[end:]
        return found

    async def failure(self, method: str, *options: str) -> int:
        """Return the status of a call that fails."""
        error = await self.assertFailure(
            Deferred.fromCoroutine(self.ask(*options, f"{SERVICE}/{method}")), GrpcurlFailed
        )
        code: int = error.code
        return code - _STATUS

    async def test_described(self) -> None:
        """Services, methods and messages are listed and described."""
        listed = (await self.ask("list")).splitlines()
        self.assertEqual(
            listed,
            [
                "grpc.health.v1.Health",
                "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection",
                SERVICE,
            ],
        )
        methods = (await self.ask(f"list {SERVICE}")).splitlines()
        self.assertEqual(sorted(methods), [f"{SERVICE}.{n}" for n in sorted(Numbers().methods())])
        text = await self.ask(f"describe {SERVICE}")
        self.assertRegex(text, r"rpc running \( stream \.\S+ \) returns \( stream \.\S+ \)")
        [message] = re.findall(r"rpc double \( \.(\S+) \)", text)
        self.assertIn("int64 n = 1", await self.ask(f"describe {message}"))

    async def test_kinds(self) -> None:
        """Calls of all four kinds, with messages from the command and from standard input."""
        self.assertEqual(await self.call("double", "-d", '{"n": 21}'), [42])
        self.assertEqual(await self.call("double", "-d", "@", given='{"n": 21}'), [42])
        self.assertEqual(await self.call("countdown", "-d", '{"n": 3}'), [3, 2, 1])
        given = "\n".join(json.dumps({"n": n}) for n in range(1, 101))
        self.assertEqual(await self.call("total", "-d", "@", given=given), [5050])
        self.assertEqual(await self.call("total", "-d", "@"), [0])
        running = await self.call("running", "-d", "@", given=given)
        self.assertEqual((len(running), running[-1]), (100, 5050))
        self.assertEqual(await self.call("running", "-d", "@"), [])

    async def test_metadata(self) -> None:
        """Metadata of 7,000 bytes comes and goes."""
        value = "v" * 7_000
        text = await self.ask(
            "-v", "-H", f"x-given: {value}", "-d", '{"n": 1}', f"{SERVICE}/double"
        )
        self.assertIn(f"x-given: {value}", text)
        self.assertIn("Sent 1 request and received 1 response", text)

    async def test_long(self) -> None:
        """A message of almost 4 MiB goes both ways."""
        text = "x" * ((4 << 20) - 100)
        given = json.dumps({"n": 1, "text": text})
        found = await self.ask(
            "-max-msg-sz", str(5 << 20), "-d", "@", f"{SERVICE}/double", given=given
        )
        self.assertEqual(json.loads(found)["text"], text)

    async def test_failures(self) -> None:
        """A status and a deadline are the exit code, and a handler that is late is cancelled."""
        self.assertEqual(await self.failure("double", "-d", "{}"), INVALID_ARGUMENT)
        self.assertEqual(await self.failure("never", "-max-time", "0.3"), DEADLINE_EXCEEDED)
        while not self.numbers.cancelled:
            await deferToThread(lambda: None)
        error = await self.assertFailure(
            Deferred.fromCoroutine(self.ask(f"{SERVICE}/absent")), GrpcurlFailed
        )
        self.assertIn('does not include a method named "absent"', error.text)

    async def test_health(self) -> None:
        """The health service answers."""
        found = json.loads(await self.ask("grpc.health.v1.Health/Check"))
        self.assertEqual(found, {"status": "SERVING"})


class SecureGrpcurlTests(GrpcurlTests):
    """The same, with TLS."""

    isSecure = True


class NativeGrpcurlTests(GrpcurlTests):
    """The native engine."""

    engine = "native"


class SecureNativeGrpcurlTests(NativeGrpcurlTests):
    """The native engine, with TLS."""

    isSecure = True


class SharedGrpcurlTests(GrpcurlTests):
    """The port of an HTTP application."""

    isShared = True


class SecureSharedGrpcurlTests(SharedGrpcurlTests):
    """The port of an HTTP application, with TLS."""

    isSecure = True
