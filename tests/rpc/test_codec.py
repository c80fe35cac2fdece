"""Messages as dictionaries: keys, presence, oneofs, messages in them, and what is refused."""

from types import MappingProxyType
from typing import Any, ClassVar

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct

from storagegate.rpc.codec import PIECE, MessageCodec, codecOf, cutMessage
from storagegate.rpc.converters import ConversionError
from tests.rpc.conversioncase import ConversionCase
from tests.rpc.conversionprotos import (
    EDITION,
    POOL,
    PROTO2,
    PROTO3,
    codec,
    compilePool,
    messageClass,
)
from tests.support.selection import long

SCALARS, PRESENCE, CHOICE = codec("kinds.Scalars"), codec("kinds.Presence"), codec("kinds.Choice")
TREE, KNOWN, RENAMED = codec("kinds.Tree"), codec("kinds.Known"), codec("kinds.Renamed")


class KeyTests(ConversionCase):
    """Under which names fields are known."""

    def test_camelCase(self) -> None:
        """Handlers see the names of JSON, also those that the proto sets by hand."""
        self.assertBothWays(TREE, {"leafName": "x"}, {"leaf_name": "x"})
        self.assertBothWays(
            RENAMED, {"outer": "x", "plain": "y"}, {"inner_name": "x", "plain": "y"}
        )

    def test_ownNames(self) -> None:
        """Results may have the names of the proto."""
        value = {"leaf_name": "x", "left_tree": {"leaf_name": "y"}}
        decoded = TREE.decode(TREE.encode(value))
        self.assertEqual(decoded, {"leafName": "x", "leftTree": {"leafName": "y"}})
        self.assertEqual(RENAMED.decode(RENAMED.encode({"inner_name": "x"})), {"outer": "x"})

    def test_bothNames(self) -> None:
        """A field that is given twice is refused, in either order."""
        for value in ({"leafName": "x", "leaf_name": "y"}, {"leaf_name": "y", "leafName": "x"}):
            self.assertRefused(TREE, value, "leaf_name", "is also given as leafName")

    def test_unknown(self) -> None:
        """A key that is no field is refused and named, whatever it is."""
        for key, path in (
            ("nope", "nope"),
            ("innerName", "innerName"),
            ("", "''"),
            (5, "5"),
            (None, "None"),
            ("a\nb", "'a\\nb'"),
            ("\ud800", "'\\ud800'"),
        ):
            self.assertRefused(RENAMED, {key: 1}, path, "is not a field of kinds.Renamed")
        self.assertRefused(
            TREE, {"many": [{}, {"nope": None}]}, "many[1].nope", "is not a field of kinds.Tree"
        )

    def test_mappings(self) -> None:
        """Any mapping is a message, nested ones too."""
        value = MappingProxyType({"leftTree": MappingProxyType({"leafName": "x"})})
        self.assertEqual(TREE.decode(TREE.encode(value)), {"leftTree": {"leafName": "x"}})

    def test_noMapping(self) -> None:
        """What is no mapping is no message; bytes are not passed through."""
        for value, shown in (
            (b"\x0a\x01x", "b'\\n\\x01x'"),
            ("x", "'x'"),
            ([], "a list"),
            (None, "None"),
            (5, "5"),
        ):
            self.assertRefused(TREE, value, "", f"is a mapping (kinds.Tree), not {shown}")
        self.assertRefused(TREE, {"leftTree": 5}, "leftTree", "is a mapping (kinds.Tree), not 5")


class PresenceTests(ConversionCase):
    """What is there and what is not."""

    def test_absent(self) -> None:
        """Scalars at their default, empty lists, empty maps and absent messages are left out."""
        for each in (SCALARS, PRESENCE, CHOICE, TREE, KNOWN, codec("kinds.Lists")):
            self.assertEqual(each.decode(b""), {})
        defaults = {"int32Field": 0, "doubleField": 0.0, "boolField": False, "stringField": ""}
        self.assertEqual(SCALARS.encode({**defaults, "bytesField": b"", "colorField": "RED"}), b"")
        self.assertEqual(TREE.encode({"many": [], "named": {}, "tags": {}}), b"")

    def test_setToDefault(self) -> None:
        """A field with presence is there when it is set, also to its default."""
        self.assertBothWays(
            PRESENCE,
            {"aNumber": 0, "aText": "", "aFlag": False, "aColor": "RED", "someBytes": b""},
            {"a_number": 0, "a_text": "", "a_flag": False, "a_color": 0, "some_bytes": b""},
        )

    def test_shortMessage(self) -> None:
        """A message of few plain fields is read like a longer one: in order, without what is 0."""
        filler = " ".join(f"int32 filler{number} = {number};" for number in range(20, 30))
        fields = "string from = 9; bool Clear = 2; int64 many = 4; bytes raw = 1;"
        text = 'syntax = "proto3"; package short; '
        text += f"message Short {{ {fields} }} message Long {{ {fields} {filler} }}"
        pool = compilePool(short=text)
        values: list[dict[str, Any]] = [
            {},
            {"raw": b"\0", "Clear": True, "many": -1, "from": "x"},
            {"many": 1 << 62, "from": "\0"},
        ]
        for name in ("short.Short", "short.Long"):
            each = codecOf(messageClass(name, pool))
            for value in values:
                decoded = each.decode(each.encode({"raw": b"", "Clear": False, **value}))
                self.assertEqual(list(decoded.items()), list(value.items()))

    def test_negativeZero(self) -> None:
        """C{-0.0} is not the default, though it equals it."""
        pool = compilePool(zero='syntax = "proto3"; package zero; message Zero { double a = 1; }')
        each = codecOf(messageClass("zero.Zero", pool))
        self.assertEqual(str(each.decode(each.encode({"a": -0.0}))), "{'a': -0.0}")
        self.assertEqual(each.decode(each.encode({"a": 0.0})), {})

    def test_emptyMessage(self) -> None:
        """A message without any field set is there, too."""
        self.assertBothWays(TREE, {"leftTree": {}}, {"left_tree": messageClass("kinds.Tree")()})
        self.assertEqual(
            TREE.decode(TREE.encode({"leftTree": {"leafName": None}})), {"leftTree": {}}
        )

    def test_none(self) -> None:
        """C{None} is absent, for every kind of field."""
        for each in (SCALARS, PRESENCE, CHOICE, TREE, codec("kinds.Lists"), codec("kinds.Maps")):
            for field in each.messageClass.DESCRIPTOR.fields:
                if field.name != "null_choice":
                    self.assertEqual(each.encode({field.json_name: None}), b"", field.full_name)

    def test_noneInside(self) -> None:
        """C{None} is no item of a list and no value of a map: it would be lost."""
        lists, maps = codec("kinds.Lists"), codec("kinds.Maps")
        self.assertRefused(lists, {"names": ["a", None]}, "names[1]", "is a string, not None")
        reason = "is a mapping (kinds.Tree), not None"
        self.assertRefused(lists, {"trees": [None]}, "trees[0]", reason)
        self.assertRefused(maps, {"labels": {"a": None}}, "labels['a']", "is a string, not None")
        self.assertRefused(maps, {"trees": {"a": None}}, "trees['a']", reason)

    def test_fieldless(self) -> None:
        """A method that gives nothing may return C{None}, if its message has no field."""
        empty = codec("google.protobuf.Empty")
        self.assertEqual(empty.encode(None), b"")
        self.assertEqual(empty.encode({}), b"")
        self.assertEqual(empty.decode(b""), {})
        self.assertRefused(empty, {"a": 1}, "a", "is not a field of google.protobuf.Empty")


class OneofTests(ConversionCase):
    """One of several."""

    def test_members(self) -> None:
        """The member that is set is there, also with its default value."""
        for value, wire in (
            ({"textChoice": ""}, {"text_choice": ""}),
            ({"textChoice": "x"}, {"text_choice": "x"}),
            ({"numberChoice": 0}, {"number_choice": 0}),
            ({"colorChoice": "RED"}, {"color_choice": 0}),
            ({"choice": {}}, {"choice": CHOICE.messageClass()}),
            ({"nullChoice": None}, {"null_choice": 0}),
            ({"choice": {"numberChoice": 0}, "beside": "y"}, None),
        ):
            if wire is not None:
                self.assertBothWays(CHOICE, value, wire)
            self.assertEqual(CHOICE.decode(CHOICE.encode(value)), value)

    def test_two(self) -> None:
        """Two members at once are refused, rather than that one of them is lost."""
        for value, path, other in (
            ({"textChoice": "x", "numberChoice": 1}, "numberChoice", "text_choice"),
            ({"numberChoice": 0, "textChoice": ""}, "textChoice", "number_choice"),
            ({"choice": {}, "text_choice": ""}, "text_choice", "choice"),
            ({"textChoice": "", "choice": {}}, "choice", "text_choice"),
        ):
            reason = f"cannot be set beside {other}: only one field of one can"
            self.assertRefused(CHOICE, value, path, reason)

    def test_othersAbsent(self) -> None:
        """The other members may be C{None}."""
        value = {"textChoice": None, "numberChoice": 1, "choice": None}
        self.assertEqual(CHOICE.decode(CHOICE.encode(value)), {"numberChoice": 1})


class PassingTests(ConversionCase):
    """Messages in the place of dictionaries."""

    def test_same(self) -> None:
        """A message of the class is taken as it is."""
        message = messageClass("kinds.Tree")(leaf_name="x")
        self.assertIs(TREE.toMessage(message), message)
        self.assertEqual(TREE.encode(message), message.SerializeToString())
        self.assertEqual(TREE.toDict(message), {"leafName": "x"})

    def test_otherPool(self) -> None:
        """A message of the same name from another pool is written anew."""
        pool = compilePool(kinds=PROTO3, old=PROTO2, fresh=EDITION)
        foreign = messageClass("kinds.Tree", pool)(leaf_name="x")
        self.assertIsNot(type(foreign), TREE.messageClass)
        self.assertIs(type(TREE.toMessage(foreign)), TREE.messageClass)
        for value in (
            foreign,
            {"leftTree": foreign},
            {"many": [foreign]},
            {"named": {"a": foreign}},
        ):
            self.assertIn(b"x", TREE.encode(value))
        self.assertEqual(TREE.toDict(foreign), {"leafName": "x"})

    def test_otherMessage(self) -> None:
        """A message of another name is refused."""
        other = messageClass("kinds.Choice")(text_choice="x")
        reason = "is a kinds.Tree, not a kinds.Choice"
        self.assertRefused(TREE, other, "", reason)
        self.assertRefused(TREE, {"leftTree": other}, "leftTree", reason)
        self.assertRefused(TREE, {"many": [{}, other]}, "many[1]", reason)
        self.assertRaises(ConversionError, TREE.toDict, other)

    def test_otherShape(self) -> None:
        """A message of the same name whose bytes mean something else is refused."""
        pool = compilePool(other='syntax = "proto3"; package kinds; message Tree { bytes a = 1; }')
        foreign = messageClass("kinds.Tree", pool)(a=b"\xff")
        self.assertRefused(TREE, foreign, "", "is not a valid kinds.Tree message")

    def test_nested(self) -> None:
        """Messages may stand in dictionaries, well-known ones too."""
        tree = messageClass("kinds.Tree")(leaf_name="x")
        value = {"leftTree": tree, "many": [tree, {}], "named": {"a": tree}}
        plain = {"leafName": "x"}
        expected = {"leftTree": plain, "many": [plain, {}], "named": {"a": plain}}
        self.assertEqual(TREE.decode(TREE.encode(value)), expected)
        moment = messageClass("google.protobuf.Timestamp")(seconds=5)
        struct = messageClass("google.protobuf.Struct")()
        struct["a"] = [1]
        decoded = KNOWN.decode(KNOWN.encode({"createdAt": moment, "structValue": struct}))
        self.assertEqual(decoded, {"createdAt": "1970-01-01T00:00:05Z", "structValue": {"a": [1]}})


class OldTests(ConversionCase):
    """What proto2 and editions have besides."""

    PLAIN, NEEDS = codec("old.Plain"), codec("old.Needs")

    def test_presence(self) -> None:
        """Every field of proto2 has presence; its default is not put in."""
        self.assertBothWays(self.PLAIN, {"withDefault": 7}, {"with_default": 7})
        self.assertBothWays(self.PLAIN, {"text": ""}, {"text": ""})
        self.assertEqual(self.PLAIN.decode(b""), {})

    def test_groups(self) -> None:
        """A group is a message under the name of its field."""
        value = {"text": "x", "box": {"width": 3}, "item": [{"name": "a"}, {}]}
        wire = {"text": "x", "box": {"width": 3}, "item": [{"name": "a"}, {}]}
        self.assertBothWays(self.PLAIN, value, wire)
        self.assertRefused(
            self.PLAIN, {"item": [{}, {"x": 1}]}, "item[1].x", "is not a field of old.Plain.Item"
        )

    def test_extensions(self) -> None:
        """An extension is under its full name in brackets."""
        value = {
            "text": "x",
            "[old.extra]": 5,
            "[old.more_sizes]": ["LARGE", "SMALL"],
            "[old.needs]": {"aName": "n"},
            "[old.all_needs]": [{"aName": "a"}, {"aName": "b", "inner": {"aName": "c"}}],
            "[old.words]": "many",
            "[old.Holder.held]": {"a": 1},
        }
        message: Any = self.PLAIN.toMessage(value)
        self.assertEqual(message.Extensions[POOL.FindExtensionByName("old.extra")], 5)
        self.assertEqual(self.PLAIN.decode(self.PLAIN.encode(value)), value)
        for key in ("extra", "old.extra", "[old.extra", "[old.other]", "[old.Plain]", "[]"):
            self.assertRefused(self.PLAIN, {key: 5}, key, "is not a field of old.Plain")
        needs = codec("old.Needs")
        self.assertRefused(needs, {"[old.extra]": 5}, "[old.extra]", "is not a field of old.Needs")
        for value, path, reason in (
            ({"[old.extra]": "x"}, "[old.extra]", "a whole number"),
            ({"[old.more_sizes]": ["LARGE", "HUGE"]}, "[old.more_sizes][1]", None),
            ({"[old.all_needs]": [{"aName": 1}]}, "[old.all_needs][0].aName", "is a string, not 1"),
        ):
            error = self.assertRaises(ConversionError, self.PLAIN.encode, value)
            self.assertEqual(error.path, path)
            if reason is not None:
                self.assertIn(reason, error.reason)

    CLOSED = (
        b"\x20\x63"
        b"\x40\x01\x40\x63\x40\x02"
        b"\x4a\x05\x0a\x01a\x10\x63\x4a\x05\x0a\x01b\x10\x01"
        b"\x52\x0c\x01\x63\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
        b"\xa8\x06\x63\xa8\x06\x02"
    )
    """A C{Plain} whose closed enums have numbers without a name."""

    NUMBERS: ClassVar[dict[str, Any]] = {
        "size": 99,
        "sizes": ["SMALL", 99, "LARGE"],
        "namedKinds": {"a": 99, "b": "ONE"},
        "packed": ["SMALL", 99, -1],
        "[old.more_sizes]": [99, "LARGE"],
    }
    """The value that handlers see."""

    def test_closedEnums(self) -> None:
        """A number of a closed enum that has no name is the number, at its place in a list."""
        for keepsUnknown in (False, True):
            plain = MessageCodec(self.PLAIN.messageClass, keepsUnknown)
            self.assertEqual(plain.decode(self.CLOSED), self.NUMBERS)
            self.assertEqual(plain.decodeLarge(self.CLOSED), self.NUMBERS)
            # Protobuf's own messages keep these numbers apart.
            parsed = self.PLAIN.messageClass.FromString(self.CLOSED)
            behind = {
                "sizes": ["SMALL", "LARGE", 99],
                "[old.more_sizes]": ["LARGE", 99],
            }
            self.assertEqual(plain.toDict(parsed), {**self.NUMBERS, **behind})

    def test_closedEnumsReturned(self) -> None:
        """Numbers without a name can be sent, and protobuf reads the message that it was sent."""
        wire = self.PLAIN.encode(self.NUMBERS)
        self.assertEqual(self.PLAIN.decode(wire), self.NUMBERS)
        parse = self.PLAIN.messageClass.FromString
        self.assertEqual(parse(wire), parse(self.CLOSED))
        message = self.PLAIN.toMessage(self.NUMBERS)
        self.assertIs(type(message), self.PLAIN.messageClass)
        self.assertEqual(message, parse(self.CLOSED))
        self.assertEqual(self.PLAIN.encode(message), parse(self.CLOSED).SerializeToString())
        for size in (1 << 31, -(1 << 31) - 1, "HUGE", 1.5, True):
            error = self.assertRaises(ConversionError, self.PLAIN.encode, {"sizes": [1, size]})
            self.assertEqual(error.path, "sizes[1]")
            self.assertIn("is a name of old.Size, not", error.reason)

    def test_closedEnumsExtended(self) -> None:
        """An extension whose file is loaded after the first message is read as one."""
        pool = compilePool(old=PROTO2)
        each = codecOf(messageClass("old.Plain", pool))
        wire = b"\x20\x63" + b"\xf8\x08\x07"
        self.assertEqual(each.decode(wire), {"size": 99})
        many = codecOf(messageClass("old.Many", pool))
        twice = b"\x0a\x03\xf8\x08\x07" * 2
        self.assertEqual(many.decode(twice), {"plain": [{}] * 2})
        file = FileDescriptorProto(name="later.proto", package="later", dependency=["old.proto"])
        file.extension.add(name="more", number=143, type=5, label=1, extendee=".old.Plain")
        pool.AddSerializedFile(file.SerializeToString())
        # Both are parsed before the file is loaded for the first of them.
        self.assertEqual(many.decode(twice), {"plain": [{"[later.more]": 7}] * 2})
        self.assertEqual(each.decode(wire), {"size": 99, "[later.more]": 7})
        self.assertEqual(each.decode(each.encode({"[later.more]": 7})), {"[later.more]": 7})

    def test_closedEnumsInside(self) -> None:
        """A type of an open file that contains closed enums, and an Any, have the numbers, too."""
        uses = codec("kinds.Uses")
        value = {"plain": {"sizes": [99, "LARGE"]}, "color": "RED"}
        self.assertEqual(uses.decode(uses.encode(value)), {"plain": value["plain"]})
        packed = {"anyValue": {"@type": "type.googleapis.com/old.Plain", "sizes": [99, "LARGE"]}}
        for each in (uses, TREE):
            self.assertEqual(each.decode(each.encode(packed)), packed)
        # A number without a name is a value of a required field, as on the wire.
        needs = codec("old.NeedsSize")
        self.assertEqual(needs.decode(b"\x08\x63"), {"size": 99})
        self.assertEqual(needs.encode({"size": 99}), b"\x08\x63")
        self.assertRefused(needs, {}, "size", "is required")

    def test_unknown(self) -> None:
        """Fields that the definition lacks are dropped, or kept as bytes where they were."""
        newer = codec("old.Newer")
        value = {"text": "a", "later": 7, "inner": {"text": "b", "later": 8}}
        wire = newer.encode(value)
        older = codec("old.Older")
        self.assertEqual(older.decode(wire), {"text": "a", "inner": {"text": "b"}})
        keeping = MessageCodec(older.messageClass, keepsUnknown=True)
        kept = keeping.decode(wire)
        later = {"@unknown": b"\x90\x03\x08"}
        self.assertEqual(
            kept, {"text": "a", "@unknown": b"\x90\x03\x07", "inner": {"text": "b", **later}}
        )
        self.assertEqual(newer.decode(keeping.encode(kept)), value)
        wrong = {"@unknown": b""}
        self.assertRefused(older, wrong, "@unknown", "is not a field of old.Older")
        self.assertRefused(keeping, {"@unknown": "x"}, "@unknown", "is bytes, not 'x'")
        self.assertRefused(
            keeping, {"@unknown": b"\xff"}, "@unknown", "is not a valid old.Older message"
        )

    def test_required(self) -> None:
        """A required field that is missing is named."""
        self.assertRefused(self.NEEDS, {}, "a_name", "is required")
        value = {"aName": "x", "more": [{"aName": "y"}, {"inner": {"aName": "z"}}]}
        self.assertRefused(self.NEEDS, value, "more[1].a_name", "is required")

    def test_badText(self) -> None:
        """Text that is not UTF-8, which proto2 lets through, is refused."""
        for wire, path in (
            (b"\x0a\x02\xff\xfe", "text"),
            (b"\x12\x01a\x12\x02\xff\xfe", "texts"),
            (b"\x1a\x07\x0a\x01a\x12\x02\xff\xfe", "labels"),
        ):
            self.assertUnreadable(self.PLAIN, wire, path, "is not UTF-8 text")
        wire = b"\x1a\x07\x0a\x02\xff\xfe\x12\x01a"
        self.assertUnreadable(self.PLAIN, wire, "labels", "has a key that is not UTF-8 text")

    def test_edition(self) -> None:
        """A message that is only framed as groups are is a message."""
        framed = codec("fresh.Framed")
        value = {"inner": {"explicit": 0}, "explicit": 0, "address": {"street": "s"}}
        self.assertEqual(framed.decode(framed.encode({**value, "implicit": 0})), value)


class WireTests(ConversionCase):
    """Bytes that are none of the message's."""

    def test_noMessage(self) -> None:
        """They are refused with the message's name."""
        for wire in (b"\xff", b"\x0a", b"\x0a\x05abc", b"\x0a\x02\xff\xfe"):
            self.assertUnreadable(TREE, wire, "", "is not a valid kinds.Tree message")
        error = self.assertRaises(ConversionError, TREE.decode, b"\xff")
        self.assertEqual(str(error), "is not a valid kinds.Tree message")

    def test_unknownFields(self) -> None:
        """Fields that a newer client sends are left out."""
        wire = PRESENCE.encode({"aNumber": 1}) + b"\xa2\x06\x01x"
        self.assertEqual(PRESENCE.decode(wire), {"aNumber": 1})


class CodecTests(ConversionCase):
    """The codecs themselves."""

    def test_cached(self) -> None:
        """A class has one codec, which knows its class and its name."""
        tree = messageClass("kinds.Tree")
        self.assertIs(codecOf(tree), codecOf(tree))
        self.assertIs(TREE.messageClass, tree)
        self.assertEqual(TREE.fullName, "kinds.Tree")

    def test_toMessage(self) -> None:
        """A dictionary is made a message of the class."""
        message = TREE.toMessage({"leafName": "x"})
        self.assertIsInstance(message, Message)
        self.assertEqual(message, messageClass("kinds.Tree")(leaf_name="x"))

    def test_longChain(self) -> None:
        """Types that lead to types that lead to types are compiled, as many as protobuf takes."""
        texts = [f"message M{n} {{ M{n + 1} next = 1; }}" for n in range(400)]
        pool = compilePool(chain="\n".join(['syntax = "proto3";', *texts, "message M400 {}"]))
        chain = codecOf(messageClass("M0", pool))
        self.assertEqual(chain.decode(chain.encode({"next": {"next": {}}})), {"next": {"next": {}}})


class LargeTests(ConversionCase):
    """Messages that are decoded in pieces."""

    def test_pieces(self) -> None:
        """They are cut between fields, also where a field is longer than a piece."""
        value = {f"key {n}": [n, "x" * 30, {"a": None}] for n in range(2000)}
        value["long"] = ["y" * 3 * PIECE]
        struct = codecOf(Struct)
        wire = struct.encode(value)
        pieces = list(cutMessage(wire))
        self.assertGreater(len(pieces), 5)
        self.assertEqual(b"".join(pieces), wire)
        self.assertEqual(struct.decodeLarge(wire), value)

    @long("takes seconds")
    def test_malformed(self) -> None:
        """Whatever is cut or changed is decoded, or refused, as in one go."""
        struct = codecOf(Struct)
        wire = struct.encode({f"key {n}": n for n in range(3000)})
        changed = [wire[:at] for at in range(len(wire) - 40, len(wire))]
        for byte in (0, 3, 0x0B, 0x7F, 0x80, 0xFF):
            changed += [
                wire[:at] + bytes([byte]) + wire[at + 1 :] for at in range(PIECE, PIECE + 40)
            ]
            changed.append(wire + bytes([byte]) * 100)
        for each in changed:
            self.assertEqual(b"".join(cutMessage(each)), each)
            outcomes = []
            for decode in (struct.decode, struct.decodeLarge):
                try:
                    outcomes.append(decode(each))
                except ConversionError as error:
                    outcomes.append(str(error))
            self.assertEqual(*outcomes)
