"""Reflection of a server that listens, asked by clients that have no files of it."""

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from grpclib.reflection.v1 import reflection_pb2 as v1
from twisted.internet.threads import deferToThread

from storagegate import server
from storagegate.rpc.protos import loadProto, protoPath
from tests.wire.rpc.support import RPCCase

V1 = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"

SECONDS = 45
"""After which a client gives up, and the test fails."""

TEXT = {"type": "object", "properties": {"text": {"type": "string"}, "count": {"type": "integer"}}}


class ReflectionTests(RPCCase):
    """A server with a service of a file and one of schemas, and a client in a thread."""

    async def setUp(self) -> None:  # type: ignore[override]
        """Serve them."""
        super().setUp()
        self.app = server.grpc().withOptions(grpc={"reflection": True})
        users = loadProto(protoPath() / "user.proto").UserService
        getUser = {"GetUser": lambda call: {"id": call.request["id"], "name": "Ann"}}
        self.app.addService(definition=users, implementation=getUser)
        echo = {"handler": lambda request: request, "input": TEXT, "output": TEXT}
        self.app.addService(name="shop.Probe", methods={"echo": echo})
        port = await self.listen(self.app)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.addCleanup(deferToThread, self.channel.close)

    def ask(self, questions: Iterable[Any]) -> list[Any]:
        """Ask some questions of v1 in one call; in a thread."""
        call = self.channel.stream_stream(
            V1,
            request_serializer=v1.ServerReflectionRequest.SerializeToString,
            response_deserializer=v1.ServerReflectionResponse.FromString,
        )
        return list(call(iter(questions), timeout=SECONDS))

    def call(self, service: str, method: str, request: dict[str, Any]) -> Any:
        """Call a method with nothing but what reflection tells; in a thread."""
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(self.channel))
        described = pool.FindServiceByName(service).methods_by_name[method]
        stub = self.channel.unary_unary(
            f"/{service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(described.output_type).FromString,
        )
        return stub(GetMessageClass(described.input_type)(**request), timeout=SECONDS)

    async def test_services(self) -> None:
        """Both versions list the same services, those of the server itself among them."""
        database = ProtoReflectionDescriptorDatabase(self.channel)
        listed = await deferToThread(lambda: list(database.get_services()))
        (found,) = await deferToThread(self.ask, [v1.ServerReflectionRequest(list_services="")])
        self.assertEqual(listed, [each.name for each in found.list_services_response.service])
        self.assertEqual(
            listed,
            [
                "grpc.health.v1.Health",
                "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection",
                "shop.Probe",
                "user.UserService",
            ],
        )

    async def test_callLoaded(self) -> None:
        """A client without any file calls a service that has one."""
        user = await deferToThread(self.call, "user.UserService", "GetUser", {"id": "7"})
        self.assertEqual(MessageToDict(user), {"id": "7", "name": "Ann"})

    async def test_callSchemas(self) -> None:
        """And one whose messages are made from its schemas, absent and empty values told apart."""
        request = {"text": "", "count": 2**60}
        found = await deferToThread(self.call, "shop.Probe", "echo", request)
        self.assertEqual((found.text, found.HasField("text"), found.count), ("", True, 2**60))

    async def test_errorsInStream(self) -> None:
        """What is not found is an answer, and the stream goes on to its own end."""
        questions = [
            v1.ServerReflectionRequest(host="h", file_containing_symbol="shop.Nothing"),
            v1.ServerReflectionRequest(file_by_filename="nothing.proto"),
            v1.ServerReflectionRequest(file_containing_symbol="shop.Probe.echo"),
        ] * 20
        found = await deferToThread(self.ask, questions)
        self.assertEqual([each.original_request for each in found], questions)
        codes = [each.error_response.error_code for each in found]
        self.assertEqual(codes, [5, 5, 0] * 20)

    async def test_off(self) -> None:
        """Without the option there is no reflection."""
        port = await self.listen(server.grpc())
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            database = ProtoReflectionDescriptorDatabase(channel)
            asked = deferToThread(lambda: list(database.get_services()))
            error = await self.assertFailure(asked, grpc.RpcError)
        self.assertEqual(error.code(), grpc.StatusCode.UNIMPLEMENTED)
