"""
Messages of gRPC from Python types.

A class is one message of its name in the package of its service, wherever it is used. A property is
a field with presence, under its name in snake case::

    Python                          proto
    str, Literal["a", "b"]          string
    UUID, Decimal, date, time       string
    int                             int64
    int within 32 bits              int32, or uint32 from 0 on
    float, bool, bytes              double, bool, bytes
    datetime, timedelta             google.protobuf.Timestamp, google.protobuf.Duration
    Color(Enum)                     enum Color, with COLOR_UNSPECIFIED = 0
    Note                            Note
    X | None                        optional X
    shape: Circle | Square          oneof shape { Circle shape_circle = 1; ... }
    list[X], set[X], tuple[X, ...]  repeated X
    dict[str, X], dict[int, X]      map<string, X>, map<int64, X>
    dict[str, Any], dict            google.protobuf.Struct
    Any                             google.protobuf.Value
    tuple[X, Y]                     google.protobuf.ListValue

Protobuf has no list in a list, no optional list and no union in a list. There, and for a whole
result that is no class, the value is the only field of a message of its own: C{NoteList},
C{Int64Map}, C{OptionalNote}, C{CircleOrSquare}.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, Flag
from typing import Any, get_origin

from attrs import define, field, frozen
from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from msgspec import NODEFAULT, Struct, inspect

from storagegate.core.definitions import DefinitionError
from storagegate.core.resultshapes import fieldsInOrder, modelName
from storagegate.rpc.protonames import (
    fieldNames,
    givePresence,
    jsonName,
    pascalCase,
    snakeCase,
    unique,
)
from storagegate.rpc.typeforms import (
    BUFFER,
    DURATION,
    PLAIN,
    VALUE,
    VALUES,
    Choice,
    ChoiceNode,
    Fits,
    ItemsNode,
    MessageNode,
    Node,
    PropertyNode,
    ValuesNode,
    WrappedChoiceNode,
    WrappedNode,
    enumLeaf,
    settle,
)

WELL_KNOWN_FILES = (
    struct_pb2.DESCRIPTOR,
    wrappers_pb2.DESCRIPTOR,
    timestamp_pb2.DESCRIPTOR,
    duration_pb2.DESCRIPTOR,
)
"""The files that generated messages may import."""

_HOMES = {
    ".google.protobuf.Timestamp": timestamp_pb2.DESCRIPTOR.name,
    ".google.protobuf.Duration": duration_pb2.DESCRIPTOR.name,
}
"""The files of the types that a generated file imports only if it uses them."""

_MODELS = (
    inspect.DataclassType,
    inspect.StructType,
    inspect.TypedDictType,
    inspect.NamedTupleType,
)
_LISTS = (inspect.ListType, inspect.SetType, inspect.FrozenSetType, inspect.VarTupleType)

_INT32, _UINT32 = 2**31 - 1, 2**32 - 1


class Kind(Struct, frozen=True):
    """
    The protobuf type of a value.

    @ivar type: Its number in a descriptor.
    @ivar word: Its name in the names of messages and fields around it.
    @ivar fits: Whether a value for msgspec is one of this type.
    @ivar typeName: The full name of a message or an enum, with a dot before it.
    @ivar node: Converts the values.
    """

    type: int
    word: str
    fits: Fits
    typeName: str = ""
    node: Node = PLAIN


def _has(*types: type) -> Fits:
    return lambda value: type(value) in types


_isText, _isWhole, _isMapping = _has(str), _has(int), _has(dict)
_isNumber, _isList, _isBytes = _has(float, int), _has(list, tuple), _has(bytes, str)

_STRING = Kind(FieldDescriptorProto.TYPE_STRING, "String", _isText)
_INTEGERS = {
    name: Kind(getattr(FieldDescriptorProto, f"TYPE_{name.upper()}"), name, _isWhole)
    for name in ("Int32", "Uint32", "Int64")
}


def _message(name: str, fits: Fits, node: Node = PLAIN) -> Kind:
    return Kind(FieldDescriptorProto.TYPE_MESSAGE, name, fits, f".google.protobuf.{name}", node)


_STRUCT, _LIST = _message("Struct", _isMapping), _message("ListValue", _isList)
_VALUE = _message("Value", lambda value: True)

_SCALARS: Mapping[type, Kind] = {
    inspect.AnyType: _VALUE,
    inspect.NoneType: _VALUE,
    inspect.BoolType: Kind(FieldDescriptorProto.TYPE_BOOL, "Bool", _has(bool)),
    inspect.FloatType: Kind(FieldDescriptorProto.TYPE_DOUBLE, "Double", _isNumber),
    inspect.BytesType: Kind(FieldDescriptorProto.TYPE_BYTES, "Bytes", _has(bytes)),
    inspect.ByteArrayType: Kind(FieldDescriptorProto.TYPE_BYTES, "Bytes", _isBytes, node=BUFFER),
    inspect.MemoryViewType: Kind(FieldDescriptorProto.TYPE_BYTES, "Bytes", _isBytes, node=BUFFER),
    inspect.DateTimeType: _message("Timestamp", _isText),
    inspect.TimeDeltaType: _message("Duration", _isText, DURATION),
    inspect.TupleType: _LIST,
    **dict.fromkeys(
        (
            inspect.StrType,
            inspect.UUIDType,
            inspect.DecimalType,
            inspect.DateType,
            inspect.TimeType,
        ),
        _STRING,
    ),
}
"""The types of values without parts, by the class that describes them."""


@frozen(eq=False)
class KnownType:
    """
    A message or an enum of a package.

    @ivar source: The class, or the text that names the parts of a message around a value.
    @ivar kind: Its type.
    @ivar file: The name of the file that defines it.
    """

    source: Any
    kind: Kind | None
    file: str


@define(eq=False)
class PackageTypes:
    """
    The messages and enums of one package.

    @ivar name: The name of the package; may be empty.
    @ivar types: The messages and enums by their names.
    @ivar documents: The documented object, or the text, by the full name of an element.
    @ivar fixed: The full names of the enums whose numbers are the values of their members.
    """

    name: str
    types: dict[str, KnownType] = field(factory=dict)
    documents: dict[str, Any] = field(factory=dict)
    fixed: set[str] = field(factory=set)

    def fullName(self, name: str) -> str:
        """Return the full name of a message or an enum."""
        return f"{self.name}.{name}" if self.name else name


class TypeBuilder:
    """
    Adds the messages of types to a file.

    @ivar where: The place of the type in the service, for errors.
    """

    def __init__(self, package: PackageTypes, file: FileDescriptorProto) -> None:
        """
        @param package: The types of other files, which are imported.
        """
        self.where = ""
        self._package = package
        self._file = file
        self._made: dict[str, KnownType] = {}
        self._nodes: list[MessageNode] = []

    def names(self) -> set[str]:
        """Return the names that the package has."""
        return {*self._package.types, *self._made}

    def reserve(self, name: str) -> None:
        """Add the name of a message that is not made from a type."""
        self._made[name] = KnownType(None, None, self._file.name)

    def top(self, model: Any, where: str) -> Kind:
        """
        Return the type of a whole request or response.

        @raise DefinitionError: If the type cannot be a message.
        @raise TypeError: If msgspec cannot describe the type.
        """
        self.where = where
        info = _bare(inspect.type_info(model))
        if isinstance(info, _MODELS):
            return self._model(info)
        members, isOptional = _members(info)
        if len(members) == 1 and isOptional:
            return self._optional(members[0])
        kind = self._single(info)
        if kind.typeName and kind.type == FieldDescriptorProto.TYPE_MESSAGE:
            return kind
        raise DefinitionError(f"{where} is no message: {model!r}")

    def finish(self) -> None:
        """Add the new types to the package."""
        settle(self._nodes)
        self._package.types.update(self._made)

    # Types

    def _single(self, info: Any) -> Kind:
        """Return the type of one value, which is neither repeated nor a map."""
        info = _bare(info)
        members, isOptional = _members(info)
        if len(members) > 1:
            return self._union(members)
        if isOptional and members:
            return self._optional(members[0])
        found = _SCALARS.get(type(info))
        if found is not None:
            return self._imported(found)
        if isinstance(info, inspect.IntType):
            return _integer(info)
        if isinstance(info, inspect.LiteralType):
            return _STRING if isinstance(info.values[0], str) else _INTEGERS["Int64"]
        if isinstance(info, inspect.EnumType):
            return self._enum(info.cls)
        if isinstance(info, _MODELS):
            return self._model(info)
        if isinstance(info, _LISTS):
            return self._wrapped(info, "List", list)
        if isinstance(info, inspect.DictType):
            return _STRUCT if _isLoose(info) else self._wrapped(info, "Map", dict)
        kind = getattr(info, "cls", type(info)).__name__
        raise DefinitionError(f"{self.where} has a {kind}, which gRPC cannot carry")

    def _imported(self, kind: Kind) -> Kind:
        home = _HOMES.get(kind.typeName)
        if home is not None and home not in self._file.dependency:
            self._file.dependency.append(home)
        return kind

    def _known(self, name: str, source: Any) -> Kind | None:
        """
        Return the type of this name; C{None} if it is new.

        @raise DefinitionError: If another class has the name.
        """
        known = self._made.get(name) or self._package.types.get(name)
        if known is None:
            return None
        if known.kind is None or known.source != source:
            raise DefinitionError(
                f"{self.where} uses {_describe(source)}, and {_describe(known.source)} is also the"
                f" message {self._package.fullName(name)}: rename one of them"
            )
        if known.file != self._file.name and known.file not in self._file.dependency:
            self._file.dependency.append(known.file)
        return known.kind

    def _add(self, name: str, source: Any, fits: Fits, node: Node, isEnum: bool = False) -> Kind:
        kind = Kind(
            FieldDescriptorProto.TYPE_ENUM if isEnum else FieldDescriptorProto.TYPE_MESSAGE,
            name,
            fits,
            f".{self._package.fullName(name)}",
            node,
        )
        self._made[name] = KnownType(source, kind, self._file.name)
        return kind

    def _model(self, info: Any) -> Kind:
        name = pascalCase(modelName(info.cls))
        known = self._known(name, info.cls)
        if known is not None:
            return known
        origin = get_origin(info.cls) or info.cls
        tag, tagField = getattr(info, "tag", None), getattr(info, "tag_field", None)
        isArray = isinstance(info, inspect.NamedTupleType) or getattr(info, "array_like", False)
        node = MessageNode(tag=None if tagField is None else (tagField, tag), isArray=isArray)
        fits: Fits = _isMapping
        if isArray:
            fits = _isList
        elif tagField is not None:
            fits = lambda value: type(value) is dict and value.get(tagField) == tag  # noqa: E731
        self._nodes.append(node)
        # Before its fields: a class may contain itself.
        kind = self._add(name, info.cls, fits, node)
        message = self._file.message_type.add(name=name)
        where, self.where = self.where, name
        fields = list(info.fields) if isArray else fieldsInOrder(origin, info.fields)
        _Fields(self, message, name).add(node, fields)
        self.where = where
        full = self._package.fullName(name)
        self._package.documents[full] = origin
        for each in fields:
            text = _description(each.type)
            if text:
                self._package.documents[f"{full}.{each.encode_name}"] = text
        return kind

    def _enum(self, cls: Any) -> Kind:
        if issubclass(cls, Flag):
            # A combination of members is no member.
            return _INTEGERS["Int64"]
        name = pascalCase(cls.__name__)
        known = self._known(name, cls)
        if known is not None:
            return known
        full = self._package.fullName(name)
        members: list[Enum] = list(cls)
        isText = any(isinstance(each.value, str) for each in members)
        isFixed = not isText and all(-_INT32 <= each.value <= _INT32 for each in members)
        prefix = snakeCase(name).upper()
        names = {f"{prefix}_{snakeCase(each.name).upper()}": each.value for each in members}
        if len(names) < len(members):
            raise DefinitionError(f"{cls.__qualname__} has members of the same name in capitals")
        numbers = dict(names) if isFixed else {each: n for n, each in enumerate(names, 1)}
        zero = f"{prefix}_UNSPECIFIED"
        if 0 not in numbers.values():
            if zero in names:
                raise DefinitionError(f"{zero} is the number 0, which is no member of {name}")
            numbers[zero] = 0
        if isFixed:
            self._package.fixed.add(full)
        # The first one of proto3 is 0.
        made = self._file.enum_type.add(name=name)
        for each, number in sorted(numbers.items(), key=lambda item: item[1] != 0):
            made.value.add(name=each, number=number)
        self._package.documents[full] = cls
        fits = _isText if isText else _isWhole
        return self._add(name, cls, fits, enumLeaf(full, names), isEnum=True)

    def _union(self, members: Sequence[Any]) -> Kind:
        """Return the type of a union that is no field: a message with a oneof."""
        kinds = [self._single(each) for each in members]
        words = [each.word for each in kinds]
        name = "Or".join(words)
        known = self._known(name, name)
        if known is not None:
            return known
        message = self._file.message_type.add(name=name)
        fields = _Fields(self, message, name)
        node = WrappedChoiceNode(fields.oneof(VALUE, kinds, isPrefixed=False))
        return self._add(name, name, _isMapping, node)

    def _optional(self, info: Any) -> Kind:
        """Return the type of an optional value that is no field."""
        kind = self._single(info)
        return self._around(f"Optional{kind.word}", VALUE, info, lambda: None)

    def _wrapped(self, info: Any, suffix: str, absent: Callable[[], Any]) -> Kind:
        """Return the type of a list or mapping that is no field."""
        if suffix == "List":
            word = self._single(info.item_type).word
        else:
            key = self._key(info.key_type)
            word = ("" if key.word == "String" else key.word) + self._single(info.value_type).word
        return self._around(word + suffix, VALUES, info, absent)

    def _around(self, name: str, key: str, info: Any, absent: Callable[[], Any]) -> Kind:
        known = self._known(name, name)
        if known is not None:
            return known
        message = self._file.message_type.add(name=name)
        node = _Fields(self, message, name).addOnly(key, info)
        fits: Fits = _isMapping if absent is dict else _isList
        return self._add(name, name, fits, WrappedNode(key, node, absent))

    def _key(self, info: Any) -> Kind:
        """
        Return the type of the keys of a map.

        @raise DefinitionError: If a map cannot have them.
        """
        info = _bare(info)
        if isinstance(info, inspect.EnumType):
            isText = any(isinstance(each.value, str) for each in info.cls)
            return _STRING if isText else _INTEGERS["Int64"]
        kind = self._single(info)
        if kind.typeName == ".google.protobuf.Timestamp":
            return _STRING
        if kind.type not in (_STRING.type, *(each.type for each in _INTEGERS.values())):
            raise DefinitionError(
                f"{self.where} has a mapping whose keys are neither text nor integers"
            )
        return kind


class _Fields:
    """The fields of one message."""

    def __init__(self, builder: TypeBuilder, message: DescriptorProto, name: str) -> None:
        self._builder = builder
        self._message = message
        self._name = name
        self._taken: set[str] = set()

    def add(self, node: MessageNode, properties: Iterable[Any]) -> None:
        """Add the fields of a class."""
        properties = list(properties)
        names = fieldNames([each.encode_name for each in properties], self._name)
        self._taken = {*names.values(), *names}
        proto: dict[str, str] = {}
        for key, name in names.items():
            snake = snakeCase(name)
            isFree = snake == name or snake not in self._taken
            proto[key] = snake if isFree else name
            self._taken.add(proto[key])
        for each in properties:
            key = each.encode_name
            part = self._property(key, proto[key], each)
            node.properties.append(part)
        givePresence(self._message)

    def addOnly(self, key: str, info: Any) -> Node:
        """Add the only field of a message around a value."""
        found, _ = self._field(key, key, info)
        givePresence(self._message)
        return found

    def _property(self, key: str, name: str, property: Any) -> PropertyNode:
        info = _bare(property.type)
        members, isOptional = _members(info)
        if len(members) > 1:
            kinds = [self._builder._single(each) for each in members]
            return PropertyNode(key, self.oneof(name, kinds))
        inner = _bare(members[0]) if members else info
        if isOptional and _isRepeated(inner):
            # A repeated field cannot be absent.
            kind = self._builder._single(inner)
            self._singular(key, name, kind)
            return PropertyNode(key, kind.node)
        node, absent = self._field(key, name, inner)
        hasDefault = property.default is not NODEFAULT or property.default_factory is not NODEFAULT
        isNeeded = property.required and not hasDefault
        return PropertyNode(key, node, absent if isNeeded else None)

    def _field(self, key: str, name: str, info: Any) -> tuple[Node, Callable[[], Any] | None]:
        """Add a field; return how its values are converted, and what an absent one means."""
        if isinstance(info, _LISTS):
            kind = self._builder._single(info.item_type)
            made = self._singular(key, name, kind)
            made.label = FieldDescriptorProto.LABEL_REPEATED
            return (PLAIN if kind.node is PLAIN else ItemsNode(kind.node)), list
        if isinstance(info, inspect.DictType) and not _isLoose(info):
            return self._map(key, name, info), dict
        kind = self._builder._single(info)
        self._singular(key, name, kind)
        return kind.node, None

    def _map(self, key: str, name: str, info: Any) -> Node:
        keys, values = self._builder._key(info.key_type), self._builder._single(info.value_type)
        entry = self._message.nested_type.add(name=f"{pascalCase(name)}Entry")
        entry.options.map_entry = True
        for number, part, kind in ((1, "key", keys), (2, "value", values)):
            entry.field.add(
                name=part,
                number=number,
                label=FieldDescriptorProto.LABEL_OPTIONAL,
                type=kind.type,
                type_name=kind.typeName or None,
                json_name=part,
            )
        full = f".{self._builder._package.fullName(self._name)}.{entry.name}"
        made = self._singular(key, name, Kind(FieldDescriptorProto.TYPE_MESSAGE, "", _isText, full))
        made.label = FieldDescriptorProto.LABEL_REPEATED
        hasNumbers = keys.type != _STRING.type
        isPlain = values.node is PLAIN and not hasNumbers
        return PLAIN if isPlain else ValuesNode(values.node, hasNumbers)

    def oneof(self, name: str, kinds: Sequence[Kind], isPrefixed: bool = True) -> ChoiceNode:
        """
        Add the fields of a union.

        @param isPrefixed: Whether the names of the fields begin with the name of the union.
        """
        index = len(self._message.oneof_decl)
        self._message.oneof_decl.add(name=name)
        choices = []
        for kind in kinds:
            word = snakeCase(kind.word)
            field = unique(f"{name}_{word}" if isPrefixed else word, self._taken)
            key = jsonName(field)
            if key in self._taken and key != field:
                raise DefinitionError(f"{self._name} has {key!r}, which is a member of {name!r}")
            self._taken.update((field, key))
            self._singular(key, field, kind).oneof_index = index
            choices.append(Choice(key, kind.node, kind.fits))
        # An integer is also a number: the member that is exact comes first.
        choices.sort(key=lambda each: each.fits is _isNumber)
        return ChoiceNode(tuple(choices))

    def _singular(self, key: str, name: str, kind: Kind) -> FieldDescriptorProto:
        return self._message.field.add(
            name=name,
            # Handlers see the name in Python, even if it is not an identifier.
            json_name=key,
            number=len(self._message.field) + 1,
            label=FieldDescriptorProto.LABEL_OPTIONAL,
            type=kind.type,
            type_name=kind.typeName or None,
        )


# Descriptions of types


def _bare(info: Any) -> Any:
    while isinstance(info, inspect.Metadata):
        info = info.type
    return info


def _description(info: Any) -> str:
    """Return the description of a property from its annotations."""
    while isinstance(info, inspect.Metadata):
        text = (info.extra_json_schema or {}).get("description")
        if text:
            return str(text)
        info = info.type
    return ""


def _members(info: Any) -> tuple[list[Any], bool]:
    """Return the members of a union without C{None}, and whether C{None} is one."""
    if isinstance(info, inspect.LiteralType):
        values = [each for each in info.values if each is not None]
        texts = tuple(each for each in values if isinstance(each, str))
        numbers = tuple(each for each in values if not isinstance(each, str))
        parts: list[Any] = [inspect.LiteralType(each) for each in (texts, numbers) if each]
        return parts, len(values) < len(info.values)
    if not isinstance(info, inspect.UnionType):
        return [info], False
    members: list[Any] = []
    isOptional = False
    for each in info.types:
        bare = _bare(each)
        if isinstance(bare, inspect.NoneType):
            isOptional = True
        elif isinstance(bare, inspect.LiteralType):
            found, isNull = _members(bare)
            members += found
            isOptional = isOptional or isNull
        else:
            members.append(bare)
    return members, isOptional


def _isLoose(info: Any) -> bool:
    """Return whether a mapping has any values, or keys of any type."""
    return isinstance(_bare(info.value_type), inspect.AnyType)


def _isRepeated(info: Any) -> bool:
    return isinstance(info, _LISTS) or (isinstance(info, inspect.DictType) and not _isLoose(info))


def _integer(info: Any) -> Kind:
    low = info.ge if info.gt is None else info.gt + 1
    high = info.le if info.lt is None else info.lt - 1
    if low is not None and high is not None:
        if low >= -_INT32 - 1 and high <= _INT32:
            return _INTEGERS["Int32"]
        if low >= 0 and high <= _UINT32:
            return _INTEGERS["Uint32"]
    return _INTEGERS["Int64"]


def _describe(source: Any) -> str:
    if source is None:
        return "a schema"
    if isinstance(source, str):
        return f"a message {source} around a value"
    origin = get_origin(source) or source
    return f"the class {origin.__module__}.{origin.__qualname__}"
