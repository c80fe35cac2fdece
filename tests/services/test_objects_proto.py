"""The Storage service: its proto and its schemas say the same."""

from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from storagegate.rpc.protos import RPCService, loadProto, protoPath
from storagegate.rpc.schemaprotos import serviceFromSchemas
from tests.services.objectcase import BIG, StorageCase, upload

_STRUCT = "google.protobuf.Struct"


def jsonName(field: FieldDescriptor) -> str:
    """Give the name that handlers see."""
    return str(field.json_name or field.name)


def fieldsOf(message: Descriptor) -> dict[str, Any]:
    """Write down a message: by name the number, the type, what is in it, and how often."""
    found: dict[str, Any] = {}
    for field in message.fields:
        inner: Any = field.type
        if field.message_type is not None:
            isMap = field.message_type.GetOptions().map_entry
            isLoose = isMap or field.message_type.full_name == _STRUCT
            # A schema of any names has a map in a proto, and a Struct where there is none.
            inner = "map" if isLoose else fieldsOf(field.message_type)
            found[jsonName(field)] = (field.number, inner, field.is_repeated and not isMap)
        else:
            found[jsonName(field)] = (field.number, inner, field.is_repeated)
    return found


def topOf(message: Descriptor) -> dict[str, Any]:
    """Write down a whole request or response; without properties, it is an empty one."""
    return {} if message.full_name == _STRUCT else fieldsOf(message)


def messagesOf(service: RPCService) -> dict[str, Any]:
    """Write down the messages of all methods."""
    found = service.file.pool.FindServiceByName(service.name)
    return {
        method.name: (
            service.methods[method.name].streaming,
            topOf(method.input_type),
            topOf(method.output_type),
        )
        for method in found.methods
    }


class ProtoTests(StorageCase):
    """C{storage.proto}."""

    def setUp(self) -> None:
        """Load it."""
        super().setUp()
        self.proto = loadProto(protoPath() / "storage.proto").Storage

    def test_agrees(self) -> None:
        """Each method streams alike, and each field has one name, number and type in both."""
        self.assertEqual(self.proto.name, "storagegate.Storage")
        made = messagesOf(serviceFromSchemas(self.definition))
        self.assertEqual(messagesOf(self.proto), made)
        self.assertEqual(list(made), list(self.definition.methods))

    def test_presence(self) -> None:
        """Single fields tell empty from absent: a length of 0 is not the rest of an object."""
        for message in self.proto.file.message_types_by_name.values():
            for field in message.fields:
                if not field.is_repeated:
                    self.assertTrue(field.has_presence, field.full_name)

    async def test_messages(self) -> None:
        """What comes out of the proto's messages is a request, and results go into them."""
        await self.through("CreateBucket", {"bucket": "box"})
        items = await self.through("PutObject", upload("box", "k", BIG[:100], metadata={"a": "b"}))
        self.assertEqual(items["metadata"], {"a": "b"})
        self.assertEqual(items["size"], 100)
        head = await self.through("HeadObject", {"bucket": "box", "key": "k"})
        self.assertEqual(head, items)
        listed = await self.through("ListObjects", {"bucket": "box", "maxKeys": 5})
        self.assertEqual([each["key"] for each in listed["objects"]], ["k"])
        self.assertEqual((await self.through("ListBuckets", {}))["buckets"][0]["name"], "box")
        read = await self.through("GetObject", {"bucket": "box", "key": "k", "length": 7})
        self.assertEqual(read[1]["chunk"], BIG[:7])
        none = await self.through("GetObject", {"bucket": "box", "key": "k", "length": 0})
        self.assertEqual(len(none), 1)

    async def through(self, method: str, request: Any) -> Any:
        """Call a method with what its messages make of a request; give what they make of it."""
        rpc = self.proto.methods[method]

        def sent(value: Any) -> Any:
            return rpc.request.decode(rpc.request.encode(value))

        def got(value: Any) -> Any:
            return rpc.response.decode(rpc.response.encode(value))

        if rpc.streaming == "client":
            items = [sent(item) async for item in request]

            async def again() -> Any:
                for item in items:
                    yield item

            return got(await self.call(method, again()))
        result = await self.call(method, sent(request))
        if rpc.streaming == "none":
            return got(result)
        return [got(item) async for item in result]
