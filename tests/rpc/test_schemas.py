"""Messages that are made from schemas."""

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.definitions import DefinitionError, readService
from storagegate.rpc.codec import codecOf
from storagegate.rpc.protos import RPCService
from storagegate.rpc.schemaprotos import serviceFromSchemas

BYTES = {"type": "string", "contentEncoding": "base64"}

# A property, with the type of its field.
PROPERTIES: dict[str, tuple[Any, str]] = {
    "text": ({"type": "string"}, "string"),
    "whole": ({"type": "integer", "minimum": 1, "required": True}, "int64"),
    "number": ({"type": "number"}, "double"),
    "flag": ({"type": "boolean"}, "bool"),
    "raw": (BYTES, "bytes"),
    "nested": ({"type": "object", "properties": {"x": {"type": "string"}}}, "Nested"),
    "untyped": ({"properties": {"x": {"type": "string"}}}, "Untyped"),
    "free": ({"type": "object"}, "google.protobuf.Struct"),
    "empty": ({"type": "object", "properties": {}}, "google.protobuf.Struct"),
    "texts": ({"type": "array", "items": {"type": "string"}}, "repeated string"),
    "raws": ({"type": "array", "items": BYTES}, "repeated bytes"),
    "rows": (
        {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        "repeated Rows",
    ),
    "frees": ({"type": "array", "items": {"type": "object"}}, "repeated google.protobuf.Struct"),
    "list": ({"type": "array"}, "repeated google.protobuf.Value"),
    "tuple": ({"type": "array", "items": [{}, {}]}, "repeated google.protobuf.Value"),
    "grid": (
        {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        "repeated google.protobuf.ListValue",
    ),
    "nothing": ({"type": "null"}, "google.protobuf.Value"),
    "either": ({"type": ["string", "null"]}, "google.protobuf.Value"),
    "any": ({}, "google.protobuf.Value"),
    "odd": ({"type": "message"}, "google.protobuf.Value"),
    "truth": (True, "google.protobuf.Value"),
}

TYPES = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_BYTES: "bytes",
}

VALUES = {
    "string": "a",
    "integer": 5,
    "number": 0.5,
    "boolean": True,
    "null": None,
}

SCHEMAS = st.recursive(
    st.sampled_from(sorted(VALUES)).map(lambda kind: {"type": kind}),
    lambda inner: (
        st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.builds(
            lambda properties: {"type": "object", "properties": properties},
            st.dictionaries(st.text(min_size=1, max_size=6), inner, max_size=4),
        )
    ),
    max_leaves=10,
)


def handler(request: Any) -> Any:
    """Stand for a method."""


def service(name: str = "Probe", **methods: Any) -> RPCService:
    """Make a service of methods, each the mapping but for its handler."""
    made = {key: {"handler": handler, **value} for key, value in methods.items()}
    return serviceFromSchemas(readService({"name": name, "methods": made}))


def messageOf(properties: Any, package: str = "") -> Any:
    """Make the message class of some properties."""
    schema = {"type": "object", "properties": properties}
    return service(f"{package}Probe", echo={"input": schema}).methods["echo"].request.messageClass


def typeOf(field: FieldDescriptor) -> str:
    """Write a field's type as the table above has it."""
    kind = TYPES.get(field.type) or field.message_type.full_name
    return ("repeated " if field.is_repeated else "") + kind.removeprefix("ProbeEchoRequest.")


def example(schema: Any) -> Any:
    """Give a value that a schema allows."""
    if schema["type"] == "array":
        return [example(schema["items"])]
    if schema["type"] == "object":
        return {key: example(each) for key, each in schema["properties"].items()}
    return VALUES[schema["type"]]


class FieldTests(SynchronousTestCase):
    """The fields of a message."""

    def test_types(self) -> None:
        """Each kind of property has its type, and they are numbered in their order."""
        fields = messageOf({key: schema for key, (schema, _) in PROPERTIES.items()}).DESCRIPTOR
        self.assertEqual(
            [(each.name, typeOf(each), each.number) for each in fields.fields],
            [(key, kind, n) for n, (key, (_, kind)) in enumerate(PROPERTIES.items(), 1)],
        )

    def test_presence(self) -> None:
        """Every field that is no list is C{optional}, also those of messages in messages."""
        message = messageOf({key: schema for key, (schema, _) in PROPERTIES.items()}).DESCRIPTOR
        file = FileDescriptorProto()
        message.file.CopyToProto(file)
        (top,) = file.message_type
        for each in (top, *top.nested_type):
            for field in each.field:
                single = field.label != field.LABEL_REPEATED
                self.assertEqual(field.proto3_optional, single, field.name)
        self.assertEqual(
            {each.name for each in message.oneofs},
            {f"_{each.name}" for each in message.fields if each.has_presence},
        )

    def test_told(self) -> None:
        """An empty value that was sent is told from one that was not."""
        cls = messageOf({"text": {"type": "string"}, "whole": {"type": "integer"}})
        got = cls.FromString(cls(text="", whole=None).SerializeToString())
        self.assertEqual((got.HasField("text"), got.HasField("whole")), (True, False))

    def test_names(self) -> None:
        """Properties keep their names for handlers; a field's is like it where it cannot be it."""
        names = {
            "id": "id",
            "created_at": "created_at",
            "userId": "userId",
            "user-id": "user_id_2",
            "2fa": "_2fa",
            "größe": "gr__e",
            "a b": "a_b",
            "a.b": "a_b_2",
            "_": "_",
            "@": "__2",
            "From": "From",
        }
        fields = messageOf({key: {"type": "string"} for key in names}).DESCRIPTOR.fields
        self.assertEqual({each.json_name: each.name for each in fields}, names)
        self.assertEqual([each.number for each in fields], list(range(1, len(names) + 1)))

    def test_nestedNames(self) -> None:
        """A message in a message is never called as one of its fields, or as another one."""
        inner = {"type": "object", "properties": {"x": {"type": "string"}}}
        message = messageOf({"line": inner, "Line": inner, "3d": inner, "_Line2": inner})
        fields = message.DESCRIPTOR.fields
        self.assertEqual(
            [each.message_type.name for each in fields], ["Line2", "Line3", "M3d", "Line22"]
        )

    def test_clash(self) -> None:
        """Two properties that are the same in camelCase are an error that names both."""
        for one, two in (("created_at", "createdAt"), ("a_b", "a__b"), ("x_1", "x1")):
            properties = {one: {"type": "string"}, "other": {}, two: {"type": "string"}}
            error = self.assertRaises(DefinitionError, messageOf, properties)
            self.assertEqual(
                str(error),
                f"the input of Probe.echo has {one!r} and {two!r}, "
                "which are the same name in camelCase",
            )

    def test_badNames(self) -> None:
        """A property without a name, or with what is none, is an error."""
        for key in ("", "a\0b", 5):
            error = self.assertRaises(DefinitionError, messageOf, {key: {}})
            self.assertIn(f"has a property {key!r}", str(error))
        error = self.assertRaises(DefinitionError, messageOf, ["name"])
        self.assertIn("the properties of the input of Probe.echo", str(error))

    def test_depth(self) -> None:
        """Objects may be in each other 64 deep; a schema without an end is an error, too."""
        schema: dict[str, Any] = {"type": "string"}
        for _ in range(63):
            schema = {"type": "object", "properties": {"x": schema}}
        self.assertTrue(messageOf({"x": schema}))
        deeper = {"type": "object", "properties": {"x": schema}}
        endless: dict[str, Any] = {"type": "object"}
        endless["properties"] = {"x": endless}
        for each in (deeper, endless):
            error = self.assertRaises(DefinitionError, messageOf, {"x": each})
            self.assertIn("is more than 64 objects deep", str(error))

    def test_width(self) -> None:
        """More properties than a message can have are an error."""
        error = self.assertRaises(
            DefinitionError, messageOf, {f"p{number}": {} for number in range(20000)}
        )
        self.assertTrue(str(error).startswith("Probe cannot be a gRPC service: "), error)

    @given(st.dictionaries(st.text(min_size=1, max_size=8), SCHEMAS, max_size=6))
    def test_anySchema(self, properties: dict[str, Any]) -> None:
        """A message of any schema carries what the schema allows, under the schema's names."""
        try:
            cls = messageOf(properties)
        except DefinitionError as error:
            self.assertRegex(str(error), "same name in camelCase|which is not a valid name")
            return
        value = example({"type": "object", "properties": properties})
        codec = codecOf(cls)
        self.assertEqual(codec.decode(codec.encode(value)), value)


class ServiceTests(SynchronousTestCase):
    """The service around the messages."""

    def test_literally(self) -> None:
        """The service and its methods have their names as given, with a package or without."""
        for name in ("Probe", "a.b.Orders", "snake_case"):
            made = service(name, echo={}, GetUser={}, get_user={})
            self.assertEqual(made.name, name)
            self.assertEqual(
                [each.path for each in made.methods.values()],
                [f"/{name}/echo", f"/{name}/GetUser", f"/{name}/get_user"],
            )
            self.assertEqual(made.file.package, name.rpartition(".")[0])

    def test_kinds(self) -> None:
        """Each method streams as its definition says."""
        kinds = ("none", "client", "server", "bidirectional")
        made = service(**{kind: {"streaming": kind} for kind in kinds})
        self.assertEqual(tuple(each.streaming for each in made.methods.values()), kinds)

    def test_loose(self) -> None:
        """Without a schema, or one that says nothing, anything goes that is an object."""
        for schema in (None, {}, {"type": "object"}, {"properties": {}}, {"required": ["a"]}):
            method = service(echo={"input": schema, "output": schema}).methods["echo"]
            for codec in (method.request, method.response):
                self.assertEqual(codec.fullName, "google.protobuf.Struct")

    def test_noObject(self) -> None:
        """A list or a scalar travels in the well-known message for it."""
        for schema, name, value in (
            ({"type": "array", "items": {"type": "string"}}, "ListValue", ["a"]),
            ({"type": "string"}, "StringValue", ""),
            ({"type": "integer"}, "Int64Value", 2**53 + 1),
            ({"type": "number"}, "DoubleValue", 0.5),
            ({"type": "boolean"}, "BoolValue", False),
            (BYTES, "BytesValue", b"\xff"),
            ({"type": ["object", "null"]}, "Value", None),
        ):
            codec = service(echo={"output": schema}).methods["echo"].response
            self.assertEqual(codec.fullName, f"google.protobuf.{name}")
            self.assertEqual(codec.decode(codec.encode(value)), value)

    def test_messageNames(self) -> None:
        """Messages are named after service and method; where that is taken, with a number."""
        schema = {"type": "object", "properties": {"x": {"type": "string"}}}
        both = {"input": schema, "output": schema}
        made = service("a.Probe", echo=both, Echo=both, echoRequest={"input": schema})
        names = [[m.request.fullName, m.response.fullName] for m in made.methods.values()]
        self.assertEqual(
            names,
            [
                ["a.ProbeEchoRequest", "a.ProbeEchoResponse"],
                ["a.ProbeEchoRequest2", "a.ProbeEchoResponse2"],
                ["a.ProbeEchoRequestRequest", "google.protobuf.Struct"],
            ],
        )

    def test_badNames(self) -> None:
        """A name that gRPC cannot have is an error that shows it."""
        for name in ("a..b", ".a", "a.", "2a", "a-b", "größe"):
            error = self.assertRaises(DefinitionError, service, name, echo={})
            self.assertIn(f"the service {name!r} cannot be served", str(error))
        for name in ("get-user", "a.b", "2a"):
            error = self.assertRaises(DefinitionError, service, **{name: {}})
            self.assertIn(f"the method {f'Probe.{name}'!r} cannot be served", str(error))

    def test_file(self) -> None:
        """Its file stands for itself: a name of its own, and what it needs among its imports."""
        made = service("a.Probe", echo={"input": {"type": "object", "properties": {"x": {}}}})
        self.assertEqual(made.file.name, "schemas/a.Probe.proto")
        self.assertEqual(
            [each.name for each in made.file.dependencies],
            ["google/protobuf/struct.proto", "google/protobuf/wrappers.proto"],
        )
        self.assertIsNot(made.file.pool, service("a.Probe", echo={}).file.pool)
