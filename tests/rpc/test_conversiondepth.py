"""Nesting is bounded both ways, at the same depth as on the wire."""

from collections.abc import Callable
from typing import Any

from storagegate.rpc.conversion import ConversionError
from tests.rpc.conversioncase import ConversionCase
from tests.rpc.conversionprotos import codec, messageClass

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
                self.assertUnreadable(TREE, wire, "", "is no kinds.Tree message")
            length = len(wire)
            prefix = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
            wire = b"\x12" + prefix + wire

    def test_anyWire(self) -> None:
        """What protobuf's parser does not see, for it ends at an Any, is refused here."""
        wire = b""
        for _ in range(120):
            inner = messageClass("google.protobuf.Any")(type_url=TYPE, value=wire)
            wire = messageClass("kinds.Tree")(any_value=inner).SerializeToString()
        error = self.assertRaises(ConversionError, TREE.decode, wire)
        self.assertEqual(error.reason, REASON)

    def test_builtMessage(self) -> None:
        """A message that was built deeper in memory is refused, of any kind."""
        for step in (
            lambda tree: tree.left_tree,
            lambda tree: tree.many.add(),
            lambda tree: tree.named["a"],
        ):
            root: Any = messageClass("kinds.Tree")()
            tree = root
            for _ in range(LIMIT + 1):
                tree = step(tree)
                tree.leaf_name = "x"
            error = self.assertRaises(ConversionError, TREE.toDict, root)
            self.assertEqual(error.reason, REASON)
        for step in (
            lambda value: value.list_value.values.add(),
            lambda value: value.struct_value.fields["a"],
        ):
            root = messageClass("google.protobuf.Value")()
            value = root
            for _ in range(LIMIT + 1):
                value = step(value)
                value.bool_value = True
            error = self.assertRaises(ConversionError, VALUE.toDict, root)
            self.assertEqual(error.reason, REASON)
