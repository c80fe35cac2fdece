"""Messages that are made from types."""

import datetime
import enum
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from msgspec import Meta, Struct
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.definitions import DefinitionError, readService
from storagegate.core.typeschemas import TypeSchema, documentOf
from storagegate.rpc.codec import codecOf
from storagegate.rpc.converters import ConversionError
from storagegate.rpc.prototext import protoText
from storagegate.rpc.schemaprotos import GeneratedMessages
from storagegate.rpc.testing import RPCTestClient
from tests.support.everytype import METHODS, NOTE, SERVICE, Color, Note, NoteId, Tag, makeServer

T = TypeVar("T")


@dataclass
class Page(Generic[T]):
    """Some items."""

    items: list[T]


class Spare:
    """Holds a class whose name another one has."""

    @dataclass
    class Tag:
        """Another tag."""

        id: int


def textOf(**methods: Any) -> str:
    """Write the file of a service without comments."""
    generated = GeneratedMessages()
    generated.add(readService({"name": "Probe", "methods": methods}))
    return protoText(generated.files(""), {})


class FieldTests(SynchronousTestCase):
    """The fields of a class."""

    def setUp(self) -> None:
        """Make the service with every type."""
        self.generated = GeneratedMessages()
        self.service = self.generated.add(readService({"name": SERVICE, "methods": METHODS}))
        self.schema = TypeSchema(Note, documentOf(Note))

    def test_types(self) -> None:
        """Each type is the field that the documentation names, under a name in snake case."""
        text = protoText(self.generated.files("notes.v1"), {})
        begin = text.index("message Note {") + len("message Note {\n")
        lines = text[begin : text.index("\n}", begin)].splitlines()
        self.assertEqual(
            [line.strip() for line in lines],
            [
                "optional int64 id = 1;",
                "optional string text = 2;",
                "optional Color color = 3;",
                "optional Priority priority = 4;",
                "optional google.protobuf.Timestamp made = 5;",
                "optional google.protobuf.Duration took = 6;",
                "optional string key = 7;",
                "optional string price = 8;",
                "optional string day = 9;",
                "optional string kind = 10;",
                "oneof shape {",
                "Circle shape_circle = 11;",
                "Square shape_square = 12;",
                "}",
                "optional bytes raw = 13;",
                "optional int32 small = 14;",
                "optional uint32 port = 15;",
                "optional double ratio = 16;",
                "optional bool is_open = 17;",
                "repeated Tag tags = 18;",
                "repeated Int64List grid = 19;",
                "map<string, Tag> by_name = 20;",
                "map<int64, DurationList> by_number = 21;",
                "map<string, string> by_color = 22;",
                "optional Point point = 23;",
                "optional Stamp stamp = 24;",
                "optional google.protobuf.Value anything = 25;",
                "optional google.protobuf.Struct loose = 26;",
                "oneof either {",
                "int64 either_int64 = 27;",
                "string either_string = 28;",
                "}",
                "repeated CircleOrSquare shapes = 29;",
                "repeated OptionalInt64 gaps = 30;",
                "optional google.protobuf.ListValue pair = 31;",
                "repeated Note children = 32;",
                "optional StringList maybe = 33;",
                "optional Tag parent = 34;",
                "repeated Color colors = 35;",
            ],
        )

    def test_values(self) -> None:
        """A value of every type goes through its message and comes back equal."""
        codec = self.service.methods["Echo"].request
        wire = codec.encode(self.schema.check(NOTE))
        self.assertEqual(self.schema.read(codec.decode(wire)), NOTE)
        self.assertEqual(self.schema.read(codec.decodeLarge(wire)), NOTE)
        message = codec.messageClass.FromString(wire)
        self.assertEqual(codec.encode(message), wire)
        self.assertEqual(self.schema.read(codec.toDict(message)), NOTE)
        self.assertEqual(codec.toMessage(self.schema.check(NOTE)), message)
        self.assertEqual(self.schema.read(codec.normalize(message)), NOTE)

    def test_seen(self) -> None:
        """A client without the types sees the values of the messages."""
        codec = self.service.methods["Echo"].request
        wire = codec.encode(self.schema.check(NOTE))
        seen = codecOf(codec.messageClass).decode(wire)
        expected = {
            "color": "COLOR_DARK_BLUE",
            "priority": "PRIORITY_HIGH",
            "made": "2026-01-02T03:04:05.678901Z",
            "took": "-86398.500s",
            "key": "00000000-0000-0000-0000-000000000002",
            "price": "1.10",
            "shapeSquare": {"side": 1.5},
            "grid": [{"values": [1]}, {}, {"values": [2, 3]}],
            "byNumber": {7: {"values": ["3600s"]}},
            "byColor": {"red": "warm"},
            "point": {"x": 3, "y": 0},
            "stamp": {"createdAt": "2026-01-01T00:00:00Z"},
            "eitherString": "seven",
            "shapes": [{"circle": {"radius": 1.0}}, {"square": {"side": 2.0, "label": "q"}}],
            "gaps": [{"value": 1}, {}],
            "maybe": {},
            "isOpen": False,
        }
        self.assertEqual({key: seen[key] for key in expected}, expected)
        self.assertNotIn("tags", seen)

    def test_refused(self) -> None:
        """A value that the type does not have is an error that names its field."""
        codec = self.service.methods["Echo"].request
        messageClass: Any = codec.messageClass
        for fields, text in (
            ({"color": 9}, "color: is a member of notes.v1.Color, not 9"),
            ({"color": 0}, "color: is a member of notes.v1.Color, not 'COLOR_UNSPECIFIED'"),
            ({"children": [{"colors": [7]}]}, "children[0].colors[0]: is a member of"),
        ):
            wire = messageClass(**fields).SerializeToString()
            error = self.assertRaises(ConversionError, codec.decode, wire)
            self.assertTrue(str(error).startswith(text), error)
        for value, text in (
            ({"color": "green"}, "color: is a member of notes.v1.Color, not 'green'"),
            ({"took": "soon"}, "took: is a length of time, not 'soon'"),
            ({"shape": 5}, "shape: is none of the declared values"),
        ):
            error = self.assertRaises(ConversionError, codec.encode, value)
            self.assertEqual(str(error), text)

    def test_plain(self) -> None:
        """A message of plain values keeps the codec without conversions."""
        codec = self.service.methods["Get"].request
        self.assertIs(type(codec), type(codecOf(codec.messageClass)))

    def test_results(self) -> None:
        """A result that is no class has a message around it."""
        for name, value in (("Tags", [{"name": "a"}]), ("Tags", []), ("Find", None)):
            codec = self.service.methods[name].response
            self.assertEqual(codec.decode(codec.encode(value)), value)

    def test_calls(self) -> None:
        """Handlers have instances, and callers in memory the plain values of the type."""
        client = RPCTestClient(makeServer())
        self.assertEqual(
            self.schema.read(client.call(f"{SERVICE}/Echo", self.schema.check(NOTE))), NOTE
        )


class EnumTests(SynchronousTestCase):
    """Enumerations."""

    def messageOf(self, kind: Any) -> str:
        """Write the file of a class with one field."""

        @dataclass
        class Holder:
            """Holds a member."""

            value: kind

        async def handler(holder: Holder) -> None: ...

        handler.__annotations__["holder"] = Holder
        return textOf(Take=handler)

    def test_numbers(self) -> None:
        """Texts are numbered from 1 on; integers are their own numbers, and 0 comes first."""

        class Level(enum.IntEnum):
            HIGH = 9
            NONE = 0

        self.assertIn("RED = 1;\n  COLOR_DARK_BLUE = 2;", self.messageOf(Color))
        self.assertIn("  LEVEL_NONE = 0;\n  LEVEL_HIGH = 9;\n}", self.messageOf(Level))

    def test_flags(self) -> None:
        """Flags are integers, because a combination of members is no member."""

        class Access(enum.IntFlag):
            READ = 1
            WRITE = 2

        self.assertIn("optional int64 value = 1;", self.messageOf(Access))

    def test_clash(self) -> None:
        """Members that have one name in capitals are an error."""

        class Odd(enum.Enum):
            aB = "1"
            a_b = "2"

        error = self.assertRaises(DefinitionError, self.messageOf, Odd)
        self.assertIn("has members of the same name in capitals", str(error))


class PackageTests(SynchronousTestCase):
    """The messages of a package."""

    def test_shared(self) -> None:
        """A class is one message in all services of a package, and another file imports it."""
        generated = GeneratedMessages()
        one = generated.add(readService({"name": "a.One", "methods": {"Tags": METHODS["Tags"]}}))
        two = generated.add(readService({"name": "a.Two", "methods": {"Find": METHODS["Find"]}}))
        self.assertIs(
            one.methods["Tags"].request.messageClass, two.methods["Find"].request.messageClass
        )
        self.assertIn("schemas/a.One.proto", [each.name for each in two.file.dependencies])
        self.assertEqual(protoText(generated.files("a"), {}).count("message Tag {"), 1)

    def test_twoClasses(self) -> None:
        """Two classes of one name are an error that names both."""

        async def other(tag: Spare.Tag) -> list[Tag]:
            return []

        error = self.assertRaises(DefinitionError, textOf, Other=other)
        self.assertEqual(
            str(error),
            "the output of Probe.Other uses the class tests.support.everytype.Tag, and the class"
            " tests.rpc.test_typeprotos.Spare.Tag is also the message Tag: rename one of them",
        )

    def test_serviceName(self) -> None:
        """A class with the name of the service is an error, too."""

        @dataclass
        class Probe:
            id: int

        async def get(probe: Any) -> None: ...

        get.__annotations__["probe"] = Probe
        error = self.assertRaises(DefinitionError, textOf, Get=get)
        self.assertIn("is also the message Probe: rename one of them", str(error))

    def test_failed(self) -> None:
        """A service that cannot be served leaves nothing behind."""
        generated = GeneratedMessages()

        async def other(tag: Spare.Tag) -> list[Tag]:
            return []

        bad = readService({"name": "Probe", "methods": {"Other": other}})
        self.assertRaises(DefinitionError, generated.add, bad)
        generated.add(readService({"name": "Probe", "methods": {"Tags": METHODS["Tags"]}}))
        self.assertIn("message Tag {\n  optional string name", protoText(generated.files(""), {}))

    def test_generic(self) -> None:
        """A generic class has the names of its arguments, too."""

        async def page(wanted: NoteId) -> Page[Tag]:
            return Page([])

        self.assertIn("rpc List(NoteId) returns (PageTag);", textOf(List=page))

    def test_names(self) -> None:
        """A name that is no identifier keeps its own name in JSON; one that clashes is an error."""

        class Odd(Struct, rename={"one": "a-b", "two": "createdAt"}):
            one: str
            two: str

        async def odd(value: Any) -> None: ...

        odd.__annotations__["value"] = Odd
        text = textOf(Take=odd)
        self.assertIn('optional string a_b = 1 [json_name = "a-b"];', text)
        self.assertIn("optional string created_at = 2;", text)

        class Twice(Struct):
            created_at: str
            createdAt: str

        odd.__annotations__["value"] = Twice
        error = self.assertRaises(DefinitionError, textOf, Take=odd)
        self.assertIn("which are the same name in camelCase", str(error))

    def test_mixed(self) -> None:
        """A service may have types and schemas."""

        async def both(tag: Tag) -> AsyncIterator[Any]:
            yield {}

        schema = {"type": "object", "properties": {"tag": {"type": "string"}}}
        text = textOf(Both={"handler": both, "output": schema})
        self.assertIn("rpc Both(Tag) returns (stream ProbeBothResponse);", text)

    def test_naive(self) -> None:
        """A moment without a zone is refused, with its field."""

        class When(Struct):
            at: datetime.datetime

        async def when(value: Any) -> None: ...

        when.__annotations__["value"] = When
        service = GeneratedMessages().add(readService({"name": "Probe", "methods": {"Take": when}}))
        error = self.assertRaises(
            ConversionError,
            service.methods["Take"].request.encode,
            {"at": "2026-01-02T03:04:05"},
        )
        self.assertTrue(str(error).startswith("at: is a moment such as"), error)

    def test_ranges(self) -> None:
        """Bounds on both sides choose the width of an integer."""

        class Ranges(Struct):
            a: Annotated[int, Meta(ge=0)]
            b: Annotated[int, Meta(gt=-(2**31) - 1, lt=2**31)]
            c: Annotated[int, Meta(ge=0, le=2**31)]
            d: Annotated[int, Meta(ge=-1, le=2**31)]

        async def take(value: Any) -> None: ...

        take.__annotations__["value"] = Ranges
        text = textOf(Take=take)
        for line in ("int64 a = 1;", "int32 b = 2;", "uint32 c = 3;", "int64 d = 4;"):
            self.assertIn(f"optional {line}", text)
