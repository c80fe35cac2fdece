"""Reflection, asked by the messages and the client of other packages."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha import reflection_pb2 as v1alpha
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from grpclib.reflection.v1 import reflection_pb2 as v1
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.definitions import readService
from storagegate.core.errors import GRPC_STATUSES
from storagegate.rpc.health import HEALTH
from storagegate.rpc.protos import LoadedProto, RPCService, loadProto
from storagegate.rpc.reflection import reflectionServices
from storagegate.rpc.schemaprotos import serviceFromSchemas
from tests.rpc.describing import described

SHOP = """
syntax = "proto2";
package shop;
import "goods.proto";
import "google/protobuf/timestamp.proto";
service Orders {
  rpc Place(Order) returns (Receipt);
  rpc Follow(Receipt) returns (stream Order);
}
message Order {
  repeated goods.Item items = 1;
  oneof payment { string card = 2; bool cash = 3; }
  message Place { optional string street = 1; }
  extensions 100 to 200;
}
message Receipt { optional google.protobuf.Timestamp at = 1; optional goods.Kind kind = 2; }
"""

GOODS = """
syntax = "proto2";
package goods;
import "units.proto";
enum Kind { FOOD = 1; TOOL = 2; }
message Item { optional units.Weight weight = 1; optional Kind kind = 2; }
"""

UNITS = """
syntax = "proto2";
package units;
message Weight { optional int64 grams = 1; }
"""

GIFTS = """
syntax = "proto2";
package gifts;
import "shop.proto";
extend shop.Order { optional string ribbon = 150; }
message Card { extend shop.Order { optional Card card = 120; } optional string text = 1; }
"""

NOT_FOUND = GRPC_STATUSES["NOT_FOUND"]


class Asking:
    """The call of a client that asks some questions."""

    def __init__(self, requests: Iterable[dict[str, Any]]) -> None:
        self._requests = iter(requests)

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        for request in self._requests:
            yield request


def answer(service: RPCService, implementation: Any, questions: Iterable[bytes]) -> list[bytes]:
    """Answer messages with messages, as a server does."""
    (method,) = service.methods.values()
    call = Asking(map(method.request.decode, questions))
    found: list[bytes] = []

    async def run() -> None:
        async for each in getattr(implementation, method.name)(call):
            found.append(method.response.encode(each))

    Deferred.fromCoroutine(run()).addErrback(lambda failure: failure.raiseException())
    return found


def channelTo(offered: Iterable[tuple[RPCService, Any]]) -> Any:
    """Make as much of a grpcio channel as its client of reflection needs."""
    byPath = {f"/{service.name}/ServerReflectionInfo": (service, it) for service, it in offered}

    def stub(path: str, **options: Any) -> Callable[[Iterable[Any]], Iterator[Any]]:
        def ask(questions: Iterable[Any]) -> Iterator[Any]:
            wires = map(options["request_serializer"], questions)
            return map(options["response_deserializer"], answer(*byPath[path], wires))

        return ask

    return SimpleNamespace(stream_stream=stub)


class ReflectionCase(SynchronousTestCase):
    """A server of some services."""

    def setUp(self) -> None:
        """Serve a shop, a service without a file, and health."""
        self.services: dict[str, RPCService] = {}
        self.offered = reflectionServices(lambda: self.services)
        probe = serviceFromSchemas(readService({"name": "Probe", "methods": {"echo": print}}))
        self.gifts = self.load(
            "gifts", {"shop": SHOP, "goods": GOODS, "units": UNITS, "gifts": GIFTS}
        )
        self.serve(self.gifts["shop.Orders"], probe, HEALTH)
        self.serve(*(service for service, implementation in self.offered))

    def serve(self, *services: RPCService) -> None:
        """Add services."""
        self.services.update((service.name, service) for service in services)

    def load(self, name: str, files: dict[str, str]) -> LoadedProto:
        """Write files to a folder and load one of them."""
        folder = Path(self.mktemp())
        folder.mkdir()
        for fileName, text in files.items():
            (folder / f"{fileName}.proto").write_text(text)
        return loadProto(folder / f"{name}.proto")

    def ask(self, *questions: Any, **question: Any) -> Any:
        """Ask questions of v1, or one that is made of its fields, and give what is answered."""
        if question:
            questions = (v1.ServerReflectionRequest(**question),)
        service, implementation = self.offered[0]
        wires = [each.SerializeToString() for each in questions]
        found = [
            v1.ServerReflectionResponse.FromString(wire)
            for wire in answer(service, implementation, wires)
        ]
        self.assertEqual(len(found), len(questions))
        return found[0] if question else found

    def files(self, **question: Any) -> list[FileDescriptorProto]:
        """Ask a question that is answered with files."""
        found = self.ask(**question)
        self.assertEqual(found.WhichOneof("message_response"), "file_descriptor_response")
        return [
            FileDescriptorProto.FromString(wire)
            for wire in found.file_descriptor_response.file_descriptor_proto
        ]

    def assertNotFound(self, **question: Any) -> None:
        """The question is answered with an error, which says that there is no such thing."""
        found = self.ask(**question)
        self.assertEqual(found.WhichOneof("message_response"), "error_response")
        self.assertEqual(found.error_response.error_code, NOT_FOUND)
        self.assertIn("not found", found.error_response.error_message)


class ReflectionTests(ReflectionCase):
    """The questions and their answers."""

    def test_services(self) -> None:
        """All services are listed by their full names, sorted, reflection among them."""
        found = self.ask(list_services="*")
        self.assertEqual(
            [service.name for service in found.list_services_response.service],
            [
                "Probe",
                "grpc.health.v1.Health",
                "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection",
                "shop.Orders",
            ],
        )

    def test_emptyQuestion(self) -> None:
        """The list is asked for by the field's presence: what it says does not matter."""
        self.assertTrue(self.ask(list_services="").HasField("list_services_response"))

    def test_laterService(self) -> None:
        """A service that is added later is shown from then on."""
        more = self.load(
            "more",
            {
                "more": 'syntax="proto3"; package more; message M {}'
                "service Late { rpc Go(M) returns (M); }"
            },
        )
        self.assertNotFound(file_containing_symbol="more.Late")
        self.serve(more.Late)
        self.assertEqual(self.files(file_containing_symbol="more.Late")[0].name, "more.proto")
        names = [each.name for each in self.ask(list_services="").list_services_response.service]
        self.assertIn("more.Late", names)

    def test_file(self) -> None:
        """A file comes first, then all that it imports and they import in turn, each once."""
        found = self.files(file_by_filename="shop.proto")
        self.assertEqual(found[0].name, "shop.proto")
        self.assertEqual(
            sorted(file.name for file in found[1:]),
            ["goods.proto", "google/protobuf/timestamp.proto", "units.proto"],
        )

    def test_order(self) -> None:
        """From the last to the first, each file comes after all that it imports."""
        for name in ("shop.proto", "gifts.proto", "schemas/Probe.proto"):
            pool = DescriptorPool()
            for file in reversed(self.files(file_by_filename=name)):
                pool.Add(file)
            self.assertEqual(pool.FindFileByName(name).name, name)

    def test_content(self) -> None:
        """The files are those that were loaded."""
        for file in self.files(file_by_filename="gifts.proto"):
            expected = FileDescriptorProto()
            self.gifts.file.pool.FindFileByName(file.name).CopyToProto(expected)
            self.assertEqual(file, expected)

    def test_symbols(self) -> None:
        """A file is found by everything in it that has a full name."""
        for symbol, name in (
            ("shop.Orders", "shop.proto"),
            ("shop.Orders.Place", "shop.proto"),
            ("shop.Order", "shop.proto"),
            ("shop.Order.items", "shop.proto"),
            ("shop.Order.payment", "shop.proto"),
            ("shop.Order.Place", "shop.proto"),
            ("shop.Order.Place.street", "shop.proto"),
            ("goods.Kind", "goods.proto"),
            ("goods.TOOL", "goods.proto"),
            ("units.Weight", "units.proto"),
            ("gifts.ribbon", "gifts.proto"),
            ("gifts.Card", "gifts.proto"),
            ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
            ("Probe", "schemas/Probe.proto"),
            ("Probe.echo", "schemas/Probe.proto"),
            ("grpc.health.v1.HealthCheckResponse.ServingStatus", "grpc/health/v1/health.proto"),
            ("grpc.reflection.v1.ServerReflection", "grpc/reflection/v1/reflection.proto"),
        ):
            self.assertEqual(self.files(file_containing_symbol=symbol)[0].name, name, symbol)

    def test_missing(self) -> None:
        """The response for an absent or unserved definition is an error."""
        for symbol in ("shop", "shop.Nothing", "shop.Orders.Nothing", ".shop.Orders", "", "Ordêrs"):
            self.assertNotFound(file_containing_symbol=symbol)
        for name in ("nothing.proto", "shop", "", "../shop.proto", "google/protobuf/any.proto"):
            self.assertNotFound(file_by_filename=name)

    def test_goesOn(self) -> None:
        """An error does not end the call: the next question is answered, in its turn."""
        question = v1.ServerReflectionRequest
        found = self.ask(
            question(file_containing_symbol="nothing"),
            question(list_services=""),
            question(),
            question(file_by_filename="units.proto"),
        )
        kinds = [each.WhichOneof("message_response") for each in found]
        self.assertEqual(
            [kind.removesuffix("_response") for kind in kinds],
            ["error", "list_services", "error", "file_descriptor"],
        )

    def test_nothingAsked(self) -> None:
        """A message that asks for nothing, or for something unknown, is an invalid argument."""
        found = self.ask(v1.ServerReflectionRequest(host="a"))[0]
        self.assertEqual(found.error_response.error_code, GRPC_STATUSES["INVALID_ARGUMENT"])

    def test_echo(self) -> None:
        """Each answer has the question that it answers, and the host that was named."""
        questions = [
            v1.ServerReflectionRequest(host="example.org", file_by_filename="nothing.proto"),
            v1.ServerReflectionRequest(
                file_containing_extension={"containing_type": "shop.Order", "extension_number": 150}
            ),
            v1.ServerReflectionRequest(host="example.com", list_services=""),
        ]
        for question, found in zip(questions, self.ask(*questions), strict=True):
            self.assertEqual(found.original_request, question)
            self.assertEqual(found.valid_host, question.host)

    def test_extension(self) -> None:
        """An extension is found by its number, wherever it is defined."""
        for number in (120, 150):
            asked = {"containing_type": "shop.Order", "extension_number": number}
            found = self.files(file_containing_extension=asked)
            self.assertEqual(found[0].name, "gifts.proto")

    def test_noExtension(self) -> None:
        """Another number, or another message, has none."""
        for name, number in (("shop.Order", 121), ("shop.Receipt", 150), ("shop.No", 150)):
            asked = {"containing_type": name, "extension_number": number}
            self.assertNotFound(file_containing_extension=asked)
        self.assertNotFound(file_containing_extension={})

    def test_extensionNumbers(self) -> None:
        """The numbers of a message's extensions are listed in their order, also if it has none."""
        for name, numbers in (("shop.Order", [120, 150]), ("shop.Receipt", [])):
            found = self.ask(all_extension_numbers_of_type=name).all_extension_numbers_response
            self.assertEqual(found.base_type_name, name)
            self.assertEqual(list(found.extension_number), numbers)
        self.assertNotFound(all_extension_numbers_of_type="shop.Nothing")
        self.assertNotFound(all_extension_numbers_of_type="goods.Kind")


class ClientTests(ReflectionCase):
    """The client of grpcio's own package learns what there is."""

    def setUp(self) -> None:
        """Let it ask."""
        super().setUp()
        self.client = ProtoReflectionDescriptorDatabase(channelTo(self.offered))

    def test_services(self) -> None:
        """It learns the names of the services."""
        self.assertEqual(list(self.client.get_services()), sorted(self.services))

    def test_learns(self) -> None:
        """It learns all that is needed to call a method."""
        pool = DescriptorPool(self.client)
        service = pool.FindServiceByName("shop.Orders")
        follow = service.methods_by_name["Follow"]
        self.assertTrue(follow.server_streaming)
        self.assertEqual(
            follow.output_type.fields_by_name["items"].message_type.full_name, "goods.Item"
        )
        order = GetMessageClass(follow.output_type)(items=[{"weight": {"grams": 5}}])
        theirs = self.gifts["shop.Order"].FromString(order.SerializeToString())
        self.assertEqual(theirs.items[0].weight.grams, 5)

    def test_extensions(self) -> None:
        """It learns extensions."""
        self.assertEqual(list(self.client.FindAllExtensionNumbers("shop.Order")), [120, 150])
        found = DescriptorPool(self.client).FindExtensionByName("gifts.Card.card")
        self.assertEqual((found.number, found.containing_type.full_name), (120, "shop.Order"))

    def test_everything(self) -> None:
        """It can load every service that is listed, reflection itself included."""
        pool = DescriptorPool(self.client)
        for name, service in self.services.items():
            theirs = pool.FindServiceByName(name)
            self.assertEqual(list(theirs.methods_by_name), list(service.methods))

    def test_missing(self) -> None:
        """It learns what there is not."""
        self.assertRaises(KeyError, self.client.FindFileContainingSymbol, "shop.Nothing")


class DefinitionTests(SynchronousTestCase):
    """What is said of reflection in descriptors."""

    def test_definitions(self) -> None:
        """The definitions are those of other packages, under the names that gRPC gives them."""
        offered = reflectionServices(dict)
        for (service, _), version, module in zip(
            offered, ("v1", "v1alpha"), (v1, v1alpha), strict=True
        ):
            self.assertEqual(service.name, f"grpc.reflection.{version}.ServerReflection")
            self.assertEqual(service.file.name, f"grpc/reflection/{version}/reflection.proto")
            self.assertEqual(described(service.file), described(module.DESCRIPTOR))
            (method,) = service.methods.values()
            self.assertEqual(method.path, f"/{service.name}/ServerReflectionInfo")
            self.assertEqual(method.streaming, "bidirectional")
