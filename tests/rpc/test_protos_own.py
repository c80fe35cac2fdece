"""The messages of storagegate's own files, number by number."""

import subprocess
import sys
from pathlib import Path

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from twisted.trial.unittest import SynchronousTestCase

from storagegate.rpc.protos import RPCService, loadedService, loadProto, ourProto, protoPath
from tests.support.modules import CHECKOUT

RPCS = """
GetUser             user.GetUserRequest     user.User                        none
CreateUser          user.CreateUserRequest  user.User                        none
UpdateUser          user.UpdateUserRequest  user.User                        none
DeleteUser          user.DeleteUserRequest  user.DeleteUserResponse          none
ListUsers           user.ListUsersRequest   user.User                        server
SearchUsers         user.SearchUsersRequest user.User                        server
CreateMultipleUsers user.CreateUserRequest  user.CreateMultipleUsersResponse client
ChatWithUsers       user.ChatMessage        user.ChatMessage                 bidirectional
StreamUserUpdates   google.protobuf.Struct  google.protobuf.Struct           server
UploadUserData      google.protobuf.Struct  google.protobuf.Struct           client
Chat                google.protobuf.Struct  google.protobuf.Struct           bidirectional
StreamData          google.protobuf.Struct  google.protobuf.Struct           bidirectional
"""

TIME = "google.protobuf.Timestamp"

MESSAGES = {
    "User": f"id string 1; name string 2; email string 3; phone string 4; address user.Address 5; "
    f"roles repeated string 6; created_at {TIME} 7; updated_at {TIME} 8",
    "Address": "street string 1; city string 2; state string 3; zip_code string 4; "
    "country string 5",
    "GetUserRequest": "id string 1",
    "CreateUserRequest": "name string 1; email string 2; phone string 3; address user.Address 4; "
    "roles repeated string 5",
    "UpdateUserRequest": "id string 1; name optional string 2; email optional string 3; "
    "phone optional string 4; address optional user.Address 5; roles repeated string 6",
    "DeleteUserRequest": "id string 1",
    "DeleteUserResponse": "success bool 1",
    "ListUsersRequest": "page int32 1; limit int32 2; sort_by string 3; sort_order string 4",
    "SearchUsersRequest": "query string 1; fields repeated string 2; limit int32 3",
    "CreateMultipleUsersResponse": "count int32 1; users repeated user.User 2",
    "ChatMessage": f"user_id string 1; message string 2; timestamp {TIME} 3",
}

TYPES = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
}

GENERATED = "import user_pb2; print(user_pb2.DESCRIPTOR.serialized_pb.hex())"

LOADED = """
import sys
from storagegate.rpc.protos import ourProto
from storagegate.rpc.reflection import reflectionServices

definitions = [definition for definition, _ in reflectionServices(dict)]
definitions += ourProto("storage.proto").services.values()
for definition in definitions:
    for method in definition.methods.values():
        assert method.request.encode({}) == b""
        assert method.response.encode({}) == b""
late = ("grpc_tools", "google.protobuf.descriptor_pb2")
print(ourProto("user.proto").UserService.name, *[name for name in late if name in sys.modules])
"""


def fieldsOf(message: Descriptor) -> str:
    """Write a message's fields as the tables above have them."""
    proto = FileDescriptorProto()
    message.file.CopyToProto(proto)
    (own,) = (each for each in proto.message_type if each.name == message.name)
    lines = []
    for field, source in zip(message.fields, own.field, strict=True):
        rule = "optional " if source.proto3_optional else ""
        rule = "repeated " if field.is_repeated else rule
        kind = TYPES.get(field.type) or field.message_type.full_name
        lines.append(f"{field.name} {rule}{kind} {field.number}")
    return "; ".join(lines)


def rpcsOf(service: RPCService) -> list[list[str]]:
    """Write a service's methods as the table above has them."""
    return [
        [name, method.request.fullName, method.response.fullName, method.streaming]
        for name, method in service.methods.items()
    ]


class FileTests(SynchronousTestCase):
    """All of them."""

    def test_syntax(self) -> None:
        """They are in proto3."""
        paths = sorted(protoPath().glob("*.proto"))
        self.assertEqual([path.stem for path in paths], ["health", "reflection", "storage", "user"])
        for path in paths:
            file = FileDescriptorProto()
            loadProto(path).file.CopyToProto(file)
            self.assertEqual(file.syntax, "proto3", path)


class UserTests(SynchronousTestCase):
    """C{user.proto}."""

    def test_methods(self) -> None:
        """C{UserService} has its twelve methods, each with its messages and its kind."""
        service = loadProto(protoPath() / "user.proto").UserService
        self.assertEqual(rpcsOf(service), [line.split() for line in RPCS.strip().splitlines()])
        self.assertEqual(service.methods["GetUser"].path, "/user.UserService/GetUser")

    def test_messages(self) -> None:
        """Every message has its fields with their types and numbers, and there is no other."""
        messages = loadProto(protoPath() / "user.proto").file.message_types_by_name
        self.assertEqual({name: fieldsOf(each) for name, each in messages.items()}, MESSAGES)

    def test_presence(self) -> None:
        """An update tells a name that is empty from one that is not there."""
        request = loadProto(protoPath() / "user.proto").UpdateUserRequest
        self.assertFalse(request.FromString(request(id="1").SerializeToString()).HasField("name"))
        told = request.FromString(request(id="1", name="").SerializeToString())
        self.assertTrue(told.HasField("name"))

    def test_generated(self) -> None:
        """What grpcio-tools' own command generates of it describes the same file."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{protoPath()}"]
        command += [f"--python_out={folder}", "user.proto"]
        subprocess.run(command, capture_output=True, check=True)
        result = subprocess.run(
            [sys.executable, "-c", GENERATED], cwd=folder, capture_output=True, check=True
        )
        theirs = FileDescriptorProto.FromString(bytes.fromhex(result.stdout.decode()))
        ours = FileDescriptorProto()
        loadProto(protoPath() / "user.proto").file.CopyToProto(ours)
        for message in ours.message_type:
            for field in message.field:
                # A pool says the name that follows from the field's own, too.
                field.ClearField("json_name")
        self.assertEqual(ours, theirs)

    def test_compiled(self) -> None:
        """The compiled files are what the compiler makes of their sources as they stand."""
        sources = Path(self.mktemp()).absolute()
        sources.mkdir()
        for name in ("user", "storage", "health", "reflection", "reflection.v1alpha"):
            made = Path(self.mktemp()).absolute()
            stem, _, version = name.partition(".")
            source = (protoPath() / f"{stem}.proto").read_text()
            (sources / f"{stem}.proto").write_text(source.replace(".v1;", f".{version or 'v1'};"))
            command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{sources}"]
            command += ["--include_imports", f"--descriptor_set_out={made}", f"{stem}.proto"]
            subprocess.run(command, capture_output=True, check=True)
            files = []
            for path in (made, protoPath() / f"{name}.protoset"):
                # What is imported comes with the compiler, in whatever words its version has.
                files.append(FileDescriptorSet.FromString(path.read_bytes()).file)
            (*_, expected), (*imports, kept) = files
            self.assertEqual(kept, expected)
            self.assertEqual([each.name for each in imports], list(kept.dependency))

    def test_ours(self) -> None:
        """
        The compiled files give the same services as their sources, without a compiler and without
        the classes of descriptors, which take 0.6 MB.
        """
        result = subprocess.run(
            [sys.executable, "-c", LOADED], cwd=CHECKOUT, capture_output=True, check=True, text=True
        )
        self.assertEqual(result.stdout.split(), ["user.UserService"])
        ours = ourProto("user.proto")
        self.assertEqual(
            rpcsOf(ours.UserService), rpcsOf(loadProto(protoPath() / "user.proto").UserService)
        )
        self.assertIs(ourProto("user.proto"), ours)
        self.assertIs(loadedService("user.UserService"), ours.UserService)


class HealthTests(SynchronousTestCase):
    """C{health.proto}."""

    def test_service(self) -> None:
        """It is the health service that every client of gRPC knows."""
        loaded = loadProto(protoPath() / "health.proto")
        every = [f"grpc.health.v1.HealthList{each}" for each in ("Request", "Response")]
        request, response = (
            f"grpc.health.v1.HealthCheck{each}" for each in ("Request", "Response")
        )
        self.assertEqual(loaded.Health.name, "grpc.health.v1.Health")
        self.assertEqual(
            rpcsOf(loaded.Health),
            [
                ["Check", request, response, "none"],
                ["List", *every, "none"],
                ["Watch", request, response, "server"],
            ],
        )

    def test_numbers(self) -> None:
        """Its fields and statuses have the numbers of the protocol."""
        loaded = loadProto(protoPath() / "health.proto")
        request = loaded.HealthCheckRequest(service="a").SerializeToString()
        response = loaded.HealthCheckResponse(status="NOT_SERVING").SerializeToString()
        self.assertEqual((request, response), (b"\x0a\x01a", b"\x08\x02"))
        self.assertEqual(
            dict(loaded.HealthCheckResponse.ServingStatus.items()),
            {"UNKNOWN": 0, "SERVING": 1, "NOT_SERVING": 2, "SERVICE_UNKNOWN": 3},
        )
        every = loaded.HealthListResponse()
        every.statuses["a"].status = 1
        self.assertEqual(every.SerializeToString(), b"\x0a\x07\x0a\x01a\x12\x02\x08\x01")
