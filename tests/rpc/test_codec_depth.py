"""Nesting is bounded both ways, at the same depth as on the wire."""

from collections.abc import Callable
from typing import Any

from storagegate.rpc.converters import ConversionError
from tests.rpc.conversioncase import ConversionCase
from tests.rpc.conversionprotos import codec, messageClass

ANY = codec("google.protobuf.Any")
TREE, STRUCT, VALUE = (
    codec("kinds.Tree"),
    codec("google.protobuf.Struct"),
    codec("google.protobuf.Value"),
)
LIMIT = 100
REASON = "is nested deeper than 100 levels"
TYPE = "type.googleapis.com/kinds.Tree"

Wrap = Callable[[Any], Any]


def nested(wrap: Wrap, count: int, core: Any) -> Any:
    """Put a value into others, one after another."""
    for _ in range(count):
        core = wrap(core)
    return core


class DepthTests(ConversionCase):
    """The limit itself."""

    def assertLimit(self, codec: Any, build: Callable[[int], Any], most: int) -> None:
        """Check that values nest so deep and come back, and no deeper."""
        value = build(most)
        self.assertEqual(codec.decode(codec.encode(value)), value)
        for count in (most + 1, 10_000):
            error = self.assertRaises(ConversionError, codec.encode, build(count))
            self.assertEqual(error.reason, REASON)
            self.assertLess(len(error.path), 300)

    def test_messages(self) -> None:
        """Messages in messages, alone and in lists, are a level each."""
        for wrap in (lambda core: {"leftTree": core}, lambda core: {"many": [core]}):
            self.assertLimit(TREE, lambda count, wrap=wrap: nested(wrap, count, {}), LIMIT)

    def test_maps(self) -> None:
        """Maps are two each: the entry is a message, too."""
        self.assertLimit(
            TREE, lambda count: nested(lambda core: {"named": {"a": core}}, count, {}), 50
        )
        tags = {"tags": {"a": "b"}}
        self.assertLimit(
            TREE, lambda count: nested(lambda core: {"leftTree": core}, count, tags), 99
        )

    def test_any(self) -> None:
        """Messages of any type are a level each, though protobuf reads each of them anew."""

        def wrap(core: Any) -> Any:
            return {"anyValue": {"@type": TYPE, **core}}

        self.assertLimit(TREE, lambda count: nested(wrap, count, {}), 50)
        self.assertLimit(ANY, lambda count: {"@type": TYPE, **nested(wrap, count, {})}, 49)

    def test_structs(self) -> None:
        """Lists of JSON are two levels, dictionaries three."""
        self.assertLimit(VALUE, lambda count: nested(lambda core: [core], count, "x"), 50)
        self.assertLimit(VALUE, lambda count: nested(lambda core: {"a": core}, count, "x"), 33)
        self.assertLimit(STRUCT, lambda count: nested(lambda core: {"a": core}, count, {}), 33)

    def test_circle(self) -> None:
        """A value that holds itself is too deep, and that is found at once."""
        tree: dict[str, Any] = {}
        tree["many"] = [tree, tree, tree]
        self.assertRaises(ConversionError, TREE.encode, tree)
        items: list[Any] = []
        items.extend([items, items])
        self.assertRaises(ConversionError, VALUE.encode, items)

    def test_wire(self) -> None:
        """Bytes that nest deeper are refused; protobuf's parser is the first to see it."""
        wire = b""
        for count in range(120):
            if count <= LIMIT:
                self.assertEqual(
                    TREE.decode(wire), nested(lambda core: {"leftTree": core}, count, {})
                )
            else:
                self.assertUnreadable(TREE, wire, "", "is not a valid kinds.Tree message")
            length = len(wire)
            prefix = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
            wire = b"\x12" + prefix + wire

    def test_anyWire(self) -> None:
        """What protobuf's parser does not see, for it ends at an Any, is refused here."""
        packed = messageClass("google.protobuf.Any")(type_url=TYPE)
        for count in range(120):
            wire = packed.SerializeToString()
            if count < 50:
                self.assertEqual(ANY.encode(ANY.decode(wire)), wire)
            else:
                error = self.assertRaises(ConversionError, ANY.decode, wire)
                self.assertEqual(error.reason, REASON)
            tree = messageClass("kinds.Tree")(any_value=packed)
            value = tree.SerializeToString()
            packed = messageClass("google.protobuf.Any")(type_url=TYPE, value=value)

    def test_builtMessage(self) -> None:
        """A message that was built in memory is read so deep and refused deeper, of any kind."""
        tree, value = TREE.messageClass, VALUE.messageClass
        cases: tuple[tuple[Any, Any, Callable[[Any], Any], int], ...] = (
            (TREE, tree, lambda tree: tree.left_tree, 100),
            (TREE, tree, lambda tree: tree.many.add(), 100),
            (TREE, tree, lambda tree: tree.named["a"], 50),
            (VALUE, value, lambda value: value.list_value.values.add(), 50),
            (VALUE, value, lambda value: value.struct_value.fields["a"], 33),
        )
        for each, kind, step, most in cases:
            root = kind()
            part = nested(step, most, root)
            part.SetInParent()
            each.toDict(root)
            step(part).SetInParent()
            error = self.assertRaises(ConversionError, each.toDict, root)
            self.assertEqual(error.reason, REASON)
