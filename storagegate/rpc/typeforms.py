"""
Conversion between the values of a message and those of the Python type that it was made from.

A codec sees a message as a dictionary of its fields; msgspec sees a value of a type as plain JSON
values and bytes. The two differ where a type has no single field for a value::

    type                        in the message              for msgspec
    timedelta                   "1.500s"                    "PT1.500S"
    Color.RED                   "COLOR_RED"                 the member's value, "red"
    shape: Circle | Square      {"shapeCircle": {...}}      {"shape": {"type": "Circle", ...}}
    a list in a list            {"values": [...]}           [...]
    an empty list               absent                      []
    a named tuple               {"x": 1, "y": 2}            [1, 2]

A conversion is compiled once for each direction. A part that is the same in both forms has none, so
a message of text, numbers and lists is not visited at all.
"""

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

from attrs import define, field, frozen
from google.protobuf.message import Message
from msgspec import Struct, ValidationError, convert

from storagegate.rpc.codec import MessageCodec
from storagegate.rpc.converters import ConversionError, quoted, wrongType
from storagegate.rpc.flatmessages import Decode, Encode

Convert = Callable[[Any], Any]
"""Returns a value in the other form."""


class Node:
    """A part of a type."""

    def function(self, isReading: bool) -> Convert | None:
        """
        Return the conversion in one direction; C{None} if both forms are the same.

        @param isReading: Whether to convert values of a message to values for msgspec.
        """
        return None

    def parts(self) -> Iterable["Node"]:
        """Return the parts of this part."""
        return ()


PLAIN = Node()
"""The part that is the same in both forms."""


@frozen(eq=False)
class Leaf(Node):
    """A value without parts, with its conversion in each direction."""

    reads: Convert | None
    writes: Convert | None

    def function(self, isReading: bool) -> Convert | None:
        """Return the conversion in one direction."""
        return self.reads if isReading else self.writes


@frozen(eq=False)
class ItemsNode(Node):
    """A list."""

    item: Node

    def parts(self) -> Iterable[Node]:
        """Return the part of the items."""
        return (self.item,)

    def function(self, isReading: bool) -> Convert | None:
        """Return the conversion of each item."""
        convertItem = self.item.function(isReading)
        if convertItem is None:
            return None
        each = convertItem

        def convertItems(values: Any) -> Any:
            items: list[Any] = []
            try:
                for value in values:
                    items.append(each(value))
            except ConversionError as error:
                raise error.within(f"[{len(items)}]") from None
            return items

        return convertItems


@frozen(eq=False)
class ValuesNode(Node):
    """
    A mapping.

    @ivar hasNumbers: Whether its keys are integers, which msgspec sees as text.
    """

    value: Node
    hasNumbers: bool = False

    def parts(self) -> Iterable[Node]:
        """Return the part of the values."""
        return (self.value,)

    def function(self, isReading: bool) -> Convert | None:
        """Return the conversion of each value."""
        convertValue = self.value.function(isReading)
        # A converted request may have integers.
        isNumbered = self.hasNumbers and not isReading
        if convertValue is None and not isNumbered:
            return None
        each = convertValue or _same

        def convertValues(values: Any) -> Any:
            found = {}
            for key, value in values.items():
                try:
                    found[int(key) if isNumbered else key] = each(value)
                except ConversionError as error:
                    raise error.within(f"[{quoted(key)}]") from None
            return found

        return convertValues


Fits = Callable[[Any], bool]
"""Returns whether a value for msgspec is one of a member of a union."""


class Choice(Struct, frozen=True):
    """
    A member of a union, which is a field of the message.

    @ivar key: The key of the field.
    @ivar fits: Whether a value is one of this member.
    """

    key: str
    node: Node
    fits: Fits


@frozen(eq=False)
class ChoiceNode(Node):
    """The members of a union."""

    choices: tuple[Choice, ...]

    def parts(self) -> Iterable[Node]:
        """Return the parts of the members."""
        return [each.node for each in self.choices]


class PropertyNode(Struct, frozen=True):
    """
    A property of a type.

    @ivar key: The key of the property, which is the key of its field unless it is a union.
    @ivar absent: Makes the value of a property without a default whose field is absent if it is
        empty; C{None} if an absent field is an absent property.
    """

    key: str
    node: Node
    absent: Callable[[], Any] | None = None


@define(eq=False)
class MessageNode(Node):
    """
    A message that was made from a class.

    @ivar properties: The properties, in their order.
    @ivar tag: The key and the value that mark a member of a tagged union for msgspec.
    @ivar isArray: Whether msgspec sees the properties as a list.
    @ivar isPlain: Whether both forms are the same; valid once L{settle} was called.
    """

    properties: list[PropertyNode] = field(factory=list)
    tag: tuple[str, Any] | None = None
    isArray: bool = False
    isPlain: bool = False
    _reads: Convert | None = None
    _writes: Convert | None = None

    def parts(self) -> Iterable[Node]:
        """Return the parts of the properties."""
        return [each.node for each in self.properties]

    @property
    def differs(self) -> bool:
        """Whether the message itself has two forms, apart from its parts."""
        return (
            self.tag is not None
            or self.isArray
            or any(isinstance(each.node, ChoiceNode) or each.absent for each in self.properties)
        )

    def function(self, isReading: bool) -> Convert | None:
        """Return the conversion of the message."""
        if self.isPlain:
            return None
        return self.read if isReading else self.write

    def read(self, value: Any) -> Any:
        """Convert a message for msgspec."""
        if self._reads is None:
            # With the first message: a class may contain itself.
            self._reads = self._reader()
        return self._reads(value)

    def write(self, value: Any) -> Any:
        """Convert a value of msgspec to a message."""
        if self._writes is None:
            self._writes = self._writer()
        return self._writes(value)

    def _plainParts(self, isReading: bool) -> list[tuple[str, Convert]]:
        return [
            (each.key, found)
            for each in self.properties
            if not isinstance(each.node, ChoiceNode)
            and (found := each.node.function(isReading)) is not None
        ]

    def _choices(self, isReading: bool) -> list[tuple[str, list[tuple[str, Convert, Fits]]]]:
        return [
            (
                each.key,
                [
                    (choice.key, choice.node.function(isReading) or _same, choice.fits)
                    for choice in each.node.choices
                ],
            )
            for each in self.properties
            if isinstance(each.node, ChoiceNode)
        ]

    def _reader(self) -> Convert:
        changed, choices, tag = self._plainParts(True), self._choices(True), self.tag
        absent = [(each.key, each.absent) for each in self.properties if each.absent is not None]
        keys = [each.key for each in self.properties] if self.isArray else None

        def read(value: Any) -> Any:
            found = dict(value)
            for key, convertPart in changed:
                if key in found:
                    found[key] = _within(key, convertPart, found[key])
            for key, members in choices:
                for name, convertMember, _ in members:
                    if name in found:
                        found[key] = _within(name, convertMember, found.pop(name))
                        break
            for key, make in absent:
                if key not in found:
                    found[key] = make()
            if tag is not None:
                found[tag[0]] = tag[1]
            if keys is None:
                return found
            # The properties with defaults come last.
            return [found[key] for key in keys if key in found]

        return read

    def _writer(self) -> Convert:
        changed, choices, tag = self._plainParts(False), self._choices(False), self.tag
        keys = [each.key for each in self.properties] if self.isArray else None

        def write(value: Any) -> Any:
            if not isinstance(value, dict if keys is None else list | tuple):
                raise wrongType("an object", value)
            found = dict(value) if keys is None else dict(zip(keys, value, strict=False))
            if tag is not None:
                found.pop(tag[0], None)
            for key, convertPart in changed:
                if found.get(key) is not None:
                    found[key] = _within(key, convertPart, found[key])
            for key, members in choices:
                item = found.pop(key, None)
                if item is None:
                    continue
                for name, convertMember, fits in members:
                    if fits(item):
                        found[name] = _within(key, convertMember, item)
                        break
                else:
                    raise ConversionError(key, "is none of the declared values")
            return found

        return write


VALUES, VALUE = "values", "value"
"""The keys of the field of a message around a list or mapping, and around any other value."""


@frozen(eq=False)
class WrappedNode(Node):
    """A value that is the only field of a message, such as a list in a list."""

    key: str
    node: Node
    absent: Callable[[], Any] = lambda: None

    def parts(self) -> Iterable[Node]:
        """Return the part of the value."""
        return (self.node,)

    def function(self, isReading: bool) -> Convert | None:
        """Return the conversion of the value and its message."""
        key, inner, absent = self.key, self.node.function(isReading) or _same, self.absent
        if isReading:
            return lambda value: inner(value[key]) if key in value else absent()
        return lambda value: {} if value is None else {key: inner(value)}


@frozen(eq=False)
class WrappedChoiceNode(Node):
    """A union that is a message, because it is an item of a list or mapping, or a whole result."""

    choices: ChoiceNode

    def parts(self) -> Iterable[Node]:
        """Return the parts of the members."""
        return self.choices.parts()

    def function(self, isReading: bool) -> Convert | None:
        """Return the conversion of the member and its message."""
        message = MessageNode([PropertyNode(VALUE, self.choices)])
        if isReading:
            return lambda value: message.read(value).get(VALUE)
        return lambda value: {} if value is None else message.write({VALUE: value})


def settle(made: Iterable[MessageNode]) -> None:
    """
    Decide which messages are the same in both forms.

    @param made: New messages, which may contain each other and settled ones.
    """
    nodes = list(made)
    for node in nodes:
        node.isPlain = True
    isChanged = True
    while isChanged:
        isChanged = False
        for node in nodes:
            if node.isPlain and (node.differs or any(map(_isChanged, node.parts()))):
                node.isPlain, isChanged = False, True


def _isChanged(node: Node) -> bool:
    return node.function(True) is not None or node.function(False) is not None


def _same(value: Any) -> Any:
    return value


def _within(key: str, convertPart: Convert, value: Any) -> Any:
    try:
        return convertPart(value)
    except ConversionError as error:
        raise error.within(key) from None


def _readDuration(value: Any) -> Any:
    sign, length = ("-", value[1:]) if value.startswith("-") else ("", value)
    # ISO 8601 has the unit as a capital.
    return f"{sign}PT{length[:-1]}S"


def _writeDuration(value: Any) -> Any:
    try:
        return convert(value, timedelta)
    except ValidationError:
        raise wrongType("a length of time", value) from None


def _writeBytes(value: Any) -> Any:
    # msgspec writes only bytes themselves as bytes.
    return b64decode(value) if isinstance(value, str) else value


DURATION = Leaf(_readDuration, _writeDuration)
"""A C{timedelta}."""

BUFFER = Leaf(None, _writeBytes)
"""A C{bytearray} or C{memoryview}."""


def enumLeaf(fullName: str, values: Mapping[str, Any]) -> Leaf:
    """
    Make the part of an enumeration.

    @param values: The values of the members by their names in the message.
    """
    names = {value: name for name, value in values.items()}

    def read(value: Any) -> Any:
        if value in values:
            return values[value]
        # A number without a member, or the zero that stands for none.
        raise wrongType(f"a member of {fullName}", value)

    def write(value: Any) -> Any:
        if value in names:
            return names[value]
        raise wrongType(f"a member of {fullName}", value)

    return Leaf(read, write)


@frozen(eq=False)
class TypeCodec(MessageCodec):
    """
    The codec of a message whose values differ from those of the type that it was made from.

    @ivar node: Converts between the two.
    """

    node: Node = PLAIN
    _toPlain: Convert = field(init=False, repr=False)
    _toFields: Convert = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        object.__setattr__(self, "_toPlain", self.node.function(True) or _same)
        object.__setattr__(self, "_toFields", self.node.function(False) or _same)

    def encoder(self) -> Encode:
        """Return L{encode}."""
        return self.encode

    def decoder(self) -> Decode:
        """Return L{decode}."""
        return self.decode

    def decode(self, wire: bytes) -> Any:
        """Decode a message to the values of its type, see L{MessageCodec.decode}."""
        return self._toPlain(super().decode(wire))

    def decodeLarge(self, wire: bytes) -> Any:
        """Decode a message in pieces, in a thread, see L{MessageCodec.decodeLarge}."""
        return self._toPlain(super().decodeLarge(wire))

    def encode(self, value: Any) -> bytes:
        """Encode a value of the type or a message, see L{MessageCodec.encode}."""
        return super().encode(value if isinstance(value, Message) else self._toFields(value))

    def toDict(self, message: Message) -> Any:
        """Convert a message to the form that L{decode} returns."""
        return self._toPlain(super().toDict(message))

    def normalize(self, value: Any) -> Any:
        """Convert a value to the form that a receiver sees, see L{MessageCodec.normalize}."""
        fields = value if isinstance(value, Message) else self._toFields(value)
        return self._toPlain(super().normalize(fields))

    def toMessage(self, value: Any) -> Message:
        """Convert a value of the type to a message, see L{MessageCodec.toMessage}."""
        return super().toMessage(value if isinstance(value, Message) else self._toFields(value))
