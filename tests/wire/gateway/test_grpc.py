"""Services of the gateway over gRPC, called by grpcio's client, which learns them by reflection."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from grpc_status import rpc_status
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from storagegate.core.definitions import DefinitionError
from storagegate.core.errors import ServiceError
from storagegate.gateway.host import ErrorHook
from storagegate.gateway.transports.grpc import GRPCOptions
from storagegate.gateway.transports.grpc.listener import GRPCTransport
from tests.support.gateway import TOKEN, Boom, makeHost
from tests.wire.rpc.support import RPCCase

TIMEOUT = 45

PROTO = """
syntax = "proto3";
package shop;
message Text { string text = 1; }
message Texts { repeated string texts = 1; }
service Front {
  rpc Say (Text) returns (Text);
  rpc Collect (stream Text) returns (Texts);
  rpc Missing (Text) returns (Text);
}
"""


class Caller:
    """Calls methods by their names, in a thread; messages are dictionaries."""

    def __init__(self, port: int) -> None:
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._pool = DescriptorPool(ProtoReflectionDescriptorDatabase(self.channel))

    def __call__(
        self, service: str, method: str, *requests: Any, timeout: float = TIMEOUT, **metadata: str
    ) -> Any:
        """Give the response, or a list of them; or the error's status name, text and details."""
        found = self._pool.FindServiceByName(service).FindMethodByName(method)
        request, response = GetMessageClass(found.input_type), GetMessageClass(found.output_type)
        kind = "stream_" if found.client_streaming else "unary_"
        kind += "stream" if found.server_streaming else "unary"
        call = getattr(self.channel, kind)(
            f"/{service}/{method}", request.SerializeToString, response.FromString
        )
        messages = [ParseDict(each, request()) for each in requests or ({},)]
        given = iter(messages) if found.client_streaming else messages[0]
        entries = tuple((key.replace("_", "-"), value) for key, value in metadata.items())
        try:
            answer = call(given, timeout=timeout, metadata=entries)
            if found.server_streaming:
                return [MessageToDict(each) for each in answer]
            return MessageToDict(answer)
        except grpc.RpcError as error:
            status = rpc_status.from_call(error)
            details = (
                [each.type_url.rpartition(".")[2] for each in status.details] if status else []
            )
            return error.code().name, error.details(), details


class AdapterCase(RPCCase):
    """A gateway's gRPC listener."""

    async def serve(
        self,
        options: GRPCOptions | None = None,
        transformError: ErrorHook | None = None,
        services: Iterable[Any] = (),
    ) -> None:
        """Serve the fixture."""
        host, self.probe = makeHost(self.reactor, services, transformError, reactor=self.reactor)
        options = options or GRPCOptions(reflection=True)
        self.adapter = GRPCTransport(host, options)
        for service in host.invoker.services.values():
            self.adapter.add(service)
        port = await self.adapter.open("127.0.0.1:0")
        self.addCleanup(self.adapter.close, 0)
        caller = await deferToThread(Caller, port.getHost().port)
        self.addCleanup(lambda: deferToThread(caller.channel.close))
        self.caller = caller

    def ask(self, *arguments: Any, **more: Any) -> Deferred[Any]:
        """Call a method in a thread."""
        return deferToThread(self.caller, *arguments, **more)


class CallTests(AdapterCase):
    """Calls of the fixture."""

    async def test_kinds(self) -> None:
        """All four kinds are there, with messages made of schemas or any structure."""
        await self.serve()
        self.assertEqual(await self.ask("Probe", "echo", {"a": [1]}), {"a": [1.0]})
        self.assertEqual(await self.ask("Probe", "checked", {"text": "a"}), {"text": "a"})
        numbers = await self.ask("Probe", "count", {"to": 2})
        self.assertEqual(numbers, [{"number": "0"}, {"number": "1"}])
        texts = await self.ask("Probe", "collect", {"text": "a"}, {"text": "b"})
        self.assertEqual(texts, {"texts": ["a", "b"]})
        answers = await self.ask("Probe", "chat", {"text": "a"})
        self.assertEqual(answers, [{"text": "A"}, {"text": "goodbye"}])

    async def test_errors(self) -> None:
        """Each error has its status, and its details travel."""
        await self.serve()
        asked = "as asked"
        for arguments, expected in (
            (("checked", {}), ("INVALID_ARGUMENT", "text is required", ["BadRequest"])),
            (("private",), ("UNAUTHENTICATED", "Authentication is required", [])),
            (("fail", {"code": "X", "statusCode": 409}), ("ALREADY_EXISTS", asked, [])),
            (
                ("fail", {"code": "X", "details": {"a": 1}}),
                ("INVALID_ARGUMENT", "as asked", ["Struct"]),
            ),
            (("fail",), ("INTERNAL", "Internal error", [])),
        ):
            self.assertEqual(await self.ask("Probe", *arguments), expected)
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)

    async def test_access(self) -> None:
        """authorization and x-api-key say who calls; authorize and limits hold."""
        await self.serve()
        for metadata in (
            {"authorization": f"Bearer {TOKEN}"},
            {"authorization": TOKEN},
            {"x_api_key": TOKEN},
        ):
            known = await self.ask("Probe", "private", {}, **metadata)
            self.assertEqual((known["user"], known["protocol"]), ({"sub": "ann"}, "grpc"))
            self.assertEqual(known["hasDeadline"], True)
        refused = await self.ask("Guarded", "echo", {"forbidden": True}, x_api_key=TOKEN)
        self.assertEqual(refused[0], "PERMISSION_DENIED")
        for _ in range(2):
            self.assertEqual(await self.ask("Probe", "limited", {}), {})
        limited = await self.ask("Probe", "limited", {})
        self.assertEqual((limited[0], limited[2]), ("RESOURCE_EXHAUSTED", ["RetryInfo"]))

    async def test_unknown(self) -> None:
        """What is not there is UNIMPLEMENTED."""
        await self.serve()

        def call() -> str:
            method = self.caller.channel.unary_unary("/Probe/nothing")
            try:
                method(b"", timeout=TIMEOUT)
            except grpc.RpcError as error:
                return str(error.code().name)
            return "OK"

        self.assertEqual(await deferToThread(call), "UNIMPLEMENTED")

    async def test_deadline(self) -> None:
        """At its deadline a call is cancelled, and so is its handler."""
        await self.serve()
        # On a busy machine a short deadline may pass before the handler has begun.
        for timeout in (0.05, 1, 15):
            late = await self.ask("Probe", "slow", {}, timeout=timeout)
            self.assertEqual(late[0], "DEADLINE_EXCEEDED")
            if self.probe.begun:
                break
        # More than one may have begun late, when its client had given it up.
        self.assertEqual(set(self.probe.begun), {"slow"})
        while self.probe.cancelled != self.probe.begun:
            await self.turn()

    def turn(self) -> Deferred[None]:
        """Wait for the reactor's next turn."""
        turned: Deferred[None] = Deferred()
        self.reactor.callLater(0.001, turned.callback, None)
        return turned


class HookTests(AdapterCase):
    """What configureGRPC changes."""

    def proto(self) -> str:
        """Write the proto."""
        path = Path(self.mktemp()).absolute().with_suffix(".proto")
        path.write_text(PROTO)
        return str(path)

    def options(self, **more: Any) -> GRPCOptions:
        """Serve the fixture as a proto's service."""
        return GRPCOptions(
            reflection=True,
            protoFiles=[self.proto()],
            services={"shop.Front": "Probe"},
            methodMapping={"Say": "echo"},
            **more,
        )

    async def test_mapping(self) -> None:
        """A service has a proto's name, methods and messages."""
        await self.serve(self.options())
        self.assertEqual(await self.ask("shop.Front", "Say", {"text": "a"}), {"text": "a"})
        collected = await self.ask("shop.Front", "Collect", {"text": "a"}, {"text": "b"})
        self.assertEqual(collected, {"texts": ["a", "b"]})
        missing = await self.ask("shop.Front", "Missing", {})
        self.assertEqual(missing[0], "UNIMPLEMENTED")

    async def test_transforms(self) -> None:
        """Requests and results may be changed, items of streams too, at once or later."""
        seen: list[str] = []

        def request(request: Any, method: str) -> Any:
            seen.append(method)
            return {"text": request["text"] + "?"}

        async def response(result: Any, method: str) -> Any:
            return {key: value + value for key, value in result.items()}

        await self.serve(self.options(transformRequest=request, transformResponse=response))
        self.assertEqual(await self.ask("shop.Front", "Say", {"text": "a"}), {"text": "a?a?"})
        collected = await self.ask("shop.Front", "Collect", {"text": "a"}, {"text": "b"})
        self.assertEqual(collected, {"texts": ["a?", "b?", "a?", "b?"]})
        self.assertEqual(seen, ["Probe.echo", "Probe.collect", "Probe.collect"])

    async def test_transformError(self) -> None:
        """An error may be changed: into another one, or into a code and a message."""
        hooks: tuple[Callable[..., Any], ...] = (
            lambda error, protocol: ServiceError("Y", f"{protocol}: {error.message}", 404),
            lambda error, protocol: {"code": 5, "message": f"{protocol}: {error.message}"},
        )
        for hook in hooks:
            await self.serve(transformError=hook)
            failed = await self.ask("Probe", "fail", {"code": "X"})
            self.assertEqual(failed[:2], ("NOT_FOUND", "grpc: as asked"))

    async def test_wrong(self) -> None:
        """Names that are none, and kinds that differ, are errors before anything is served."""
        host, _ = makeHost(self.reactor)
        options = GRPCOptions(services={"shop.Front": "Probe"})
        self.assertRaises(DefinitionError, GRPCTransport, host, options)
        differs = GRPCOptions(
            protoFiles=[self.proto()],
            services={"shop.Front": "Probe"},
            methodMapping={"Say": "count"},
        )
        adapter = GRPCTransport(host, differs)
        error = self.assertRaises(DefinitionError, adapter.add, host.invoker.services["Probe"])
        self.assertIn("Probe.count has the streaming server", str(error))
