"""
Conversion between protobuf messages and the dictionaries that handlers see.

The keys are the JSON names of the fields (C{createdAt}); results of handlers may also use the proto
names. Types are converted as in protobuf's JSON mapping
(U{https://protobuf.dev/programming-guides/json/}), with these differences:

  - An integer of any width is an C{int}, and a floating-point number a C{float}, including infinity
    and NaN. A 32-bit float is the exact number that was sent, C{0.10000000149011612}.
  - C{bytes} are C{bytes}; map keys have their proto type.
  - An enum is its name, or an C{int} if the number has no name, also for the closed enums of
    proto2; results may use either.
  - Absent fields are omitted, and C{None} in a result means absent: it is a value only for
    C{google.protobuf.Value} and C{NullValue}. A field with presence is included if it was set.
  - C{google.protobuf.Any} of a type that is not in the message's pool keeps its bytes.
  - An extension is under its full name in brackets, C{[package.name]}; a group is a message.
  - Fields that the message's definition does not have are dropped. If they are kept, each message
    that has some has them as bytes under L{UNKNOWN}.

A result may be a message or contain messages.

The conversion of a message is compiled on first use: one function for each direction and field. A
reader takes protobuf's value and the depth of the message that holds it; a setter takes that
message, the handler's value and the depth. A type may contain itself: its functions look up their
fields in tables, which are filled after the functions of all reachable types exist.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any

from attrs import define, field, frozen
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from msgspec import Struct

from storagegate.rpc.converters import (
    ANY,
    FIELD_MASK,
    NAIVE_TIMESTAMP,
    TIMESTAMP,
    WELL_KNOWN,
    ConversionError,
    Converter,
    MessageForm,
    NoType,
    Put,
    Reader,
    ScalarConverter,
    anyConverter,
    asList,
    asMapping,
    asStep,
    checkBytes,
    checkDepth,
    copyInto,
    enumConverter,
    fillOrCopy,
    maskConverter,
    notA,
    quoted,
    scalarConverter,
    unencodable,
    wrapperConverter,
)
from storagegate.rpc.flatmessages import (
    Decode,
    Encode,
    FlatField,
    flatDecoder,
    flatEncoder,
    flatFields,
)
from storagegate.rpc.openenums import OpenTypes, openTypes

PIECE = 16 * 1024
"""The size of a piece of a large message in bytes; protobuf parses it in 1 ms."""


def cutMessage(wire: bytes) -> Iterator[bytes]:
    """
    Split a message between its fields into pieces that merge to the whole.

    A malformed rest is in the last piece, which protobuf rejects.
    """
    begin = at = 0
    try:
        while at < len(wire):
            kind = wire[at] & 7
            while wire[at] & 0x80:
                at += 1
            at += 1
            if kind == 2:
                size = shift = 0
                while wire[at] & 0x80 and shift < 35:
                    size |= (wire[at] & 0x7F) << shift
                    shift += 7
                    at += 1
                at += 1 + (size | wire[at] << shift)
            elif kind == 0:
                while wire[at] & 0x80:
                    at += 1
                at += 1
            elif kind in (1, 5):
                at += 8 if kind == 1 else 4
            else:
                break
            if at - begin >= PIECE and at <= len(wire):
                yield wire[begin:at]
                begin = at
    except IndexError:
        pass
    yield wire[begin:]


class _Types(Struct, frozen=True):
    """
    The converters of the types of fields.

    @ivar converterOf: Returns the converter of a message type.
    @ivar scalarOf: Returns the converter of a scalar or enum field.
    """

    converterOf: Callable[[Descriptor], Converter]
    scalarOf: Callable[[FieldDescriptor], ScalarConverter]


class FieldSetter(Struct, frozen=True):
    """
    The setter of a field.

    @ivar name: Its name in the proto.
    @ivar exact: Values of exactly this type are set directly; protobuf checks their range.
    @ivar put: C{put(message, value, depth)} sets any other value.
    @ivar takesNone: Whether C{None} is a value rather than an absent field.
    """

    name: str
    exact: type
    put: Put
    takesNone: bool = False


def _fieldReader(field: FieldDescriptor, types: _Types) -> Reader | None:
    """Return the reader of a field; C{None} if the handler gets protobuf's value."""
    message = field.message_type
    if message is None:
        scalar = types.scalarOf(field).read
        if not field.is_repeated:
            return None if scalar is None else lambda value, depth: scalar(value)
        if scalar is None:
            # A slice is a list, and takes a third of the time of list().
            return lambda value, depth: value[:]
        return lambda value, depth: [scalar(item) for item in value]
    if isMap(field):
        return _mapReader(message.fields_by_name["value"], types)
    read = _converterIn(field, message, types).read
    if field.is_repeated:
        return _messageListReader(read)

    def reader(value: Any, depth: int) -> Any:
        checkDepth(depth)
        return read(value, depth + 1)

    return reader


def _converterIn(field: FieldDescriptor, message: Descriptor, types: _Types) -> Converter:
    """Return the converter of the messages of a field; a field mask is for those beside it."""
    if message.full_name == FIELD_MASK:
        return maskConverter(field.containing_type)
    return types.converterOf(message)


def isMap(field: FieldDescriptor) -> bool:
    """Return whether a field of messages is a map."""
    if field.is_extension:
        return False
    # The options of the entry say so, too, but their class takes 0.6 MB.
    holder: Any = GetMessageClass(field.containing_type)  # type: ignore[arg-type]
    return hasattr(getattr(holder(), field.name), "GetEntryClass")


def _messageListReader(read: Reader) -> Reader:
    def reader(value: Any, depth: int) -> Any:
        checkDepth(depth)
        items: list[Any] = []
        try:
            for item in value:
                items.append(read(item, depth + 1))
        except ConversionError as error:
            raise error.within(f"[{len(items)}]") from None
        return items

    return reader


def _mapReader(field: FieldDescriptor, types: _Types) -> Reader:
    """Return the reader of a map; C{field} is the field of its values."""
    if field.message_type is None:
        # Read by keys: protobuf's items() takes more than twice as long.
        scalar = types.scalarOf(field).read
        if scalar is None:
            return lambda value, depth: {key: value[key] for key in value}
        return lambda value, depth: {key: scalar(value[key]) for key in value}
    read = types.converterOf(field.message_type).read

    def reader(value: Any, depth: int) -> Any:
        checkDepth(depth + 1)
        items = {}
        for key in value:
            try:
                items[key] = read(value[key], depth + 2)
            except ConversionError as error:
                raise error.within(f"[{quoted(key)}]") from None
        return items

    return reader


def _fieldSetter(field: FieldDescriptor, types: _Types) -> FieldSetter:
    """Return the setter of a field."""
    message, name = field.message_type, field.name
    exact: type = NoType
    takesNone = False
    if message is None:
        scalar = types.scalarOf(field)
        if field.is_repeated:
            put = _listPut(name, scalar)
        else:
            put, exact, takesNone = _scalarPut(name, scalar), scalar.exact, scalar.takesNone
    elif isMap(field):
        put = _mapPut(name, message, types)
    elif field.is_repeated:
        put = _messageListPut(name, _converterIn(field, message, types).fill)
    else:
        put = _messagePut(name, _converterIn(field, message, types).fill)
        takesNone = message.full_name == "google.protobuf.Value"
    oneof = field.containing_oneof
    # An optional field of proto3 has a synthetic oneof to itself.
    if oneof is not None and len(oneof.fields) > 1:
        return FieldSetter(name, NoType, _oneofPut(oneof.name, put), takesNone)
    return FieldSetter(name, exact, put, takesNone)


def _scalarPut(name: str, scalar: ScalarConverter) -> Put:
    check = scalar.check

    def put(message: Any, value: Any, depth: int) -> None:
        setattr(message, name, check(value))

    return put


def _oneofPut(oneof: str, inner: Put) -> Put:
    """Refuse a second member of a oneof before it replaces the first."""

    def put(message: Any, value: Any, depth: int) -> None:
        other = message.WhichOneof(oneof)
        if other is not None:
            raise ConversionError(
                "", f"cannot be set beside {other}: only one field of {oneof} can"
            )
        inner(message, value, depth)

    return put


def _listPut(name: str, scalar: ScalarConverter) -> Put:
    exact, check = {scalar.exact}, scalar.check

    def checked(items: Any) -> list[Any]:
        result: list[Any] = []
        try:
            for item in items:
                result.append(check(item))
        except ConversionError as error:
            raise error.within(f"[{len(result)}]") from None
        return result

    def put(message: Any, value: Any, depth: int) -> None:
        items = asList(value)
        if not exact.issuperset(map(type, items)):
            items = checked(items)
        try:
            getattr(message, name).extend(items)
        except ValueError:
            # An item is out of range or has an unpaired surrogate: the check finds its index.
            checked(items)
            raise

    return put


def _messagePut(name: str, fill: Put) -> Put:
    def put(message: Any, value: Any, depth: int) -> None:
        checkDepth(depth)
        part = getattr(message, name)
        # Mark an empty message as present, too.
        part.SetInParent()
        fillOrCopy(fill, part, value, depth + 1)

    return put


def _messageListPut(name: str, fill: Put) -> Put:
    def put(message: Any, value: Any, depth: int) -> None:
        checkDepth(depth)
        target = getattr(message, name)
        for index, item in enumerate(asList(value)):
            try:
                fillOrCopy(fill, target.add(), item, depth + 1)
            except ConversionError as error:
                raise error.within(f"[{index}]") from None

    return put


def _mapPut(name: str, entry: Descriptor, types: _Types) -> Put:
    checkKey = types.scalarOf(entry.fields_by_name["key"]).check
    field = entry.fields_by_name["value"]
    if field.message_type is None:
        check, levels = types.scalarOf(field).check, 1

        def setItem(target: Any, key: Any, item: Any, depth: int) -> None:
            target[key] = check(item)

    else:
        fill, levels = types.converterOf(field.message_type).fill, 2

        def setItem(target: Any, key: Any, item: Any, depth: int) -> None:
            fillOrCopy(fill, target[key], item, depth)

    def put(message: Any, value: Any, depth: int) -> None:
        items = asMapping(value, "a mapping")
        if not items:
            return
        checkDepth(depth + levels - 1)
        target = getattr(message, name)
        for itemKey, item in items.items():
            try:
                try:
                    key = checkKey(itemKey)
                except ConversionError as error:
                    raise ConversionError("", f"the key {error.reason}") from None
                setItem(target, key, item, depth + levels)
            except ConversionError as error:
                raise error.within(f"[{quoted(itemKey)}]") from None

    return put


def _extensionSetter(field: FieldDescriptor, types: _Types) -> FieldSetter:
    """Return the setter of an extension."""
    if field.message_type is None:
        scalar = types.scalarOf(field)
        check, takesNone = scalar.check, scalar.takesNone

        def put(message: Any, value: Any, depth: int) -> None:
            message.Extensions[field] = check(value)

        def add(message: Any, value: Any, depth: int) -> None:
            message.Extensions[field].append(check(value))

    else:
        fill, takesNone = types.converterOf(field.message_type).fill, False

        def put(message: Any, value: Any, depth: int) -> None:
            checkDepth(depth)
            part = message.Extensions[field]
            part.SetInParent()
            fillOrCopy(fill, part, value, depth + 1)

        def add(message: Any, value: Any, depth: int) -> None:
            checkDepth(depth)
            fillOrCopy(fill, message.Extensions[field].add(), value, depth + 1)

    def putList(message: Any, value: Any, depth: int) -> None:
        for index, item in enumerate(asList(value)):
            try:
                add(message, item, depth)
            except ConversionError as error:
                raise error.within(f"[{index}]") from None

    if field.is_repeated:
        return FieldSetter(field.full_name, NoType, putList)
    return FieldSetter(field.full_name, NoType, put, takesNone)


UNKNOWN = "@unknown"
"""The key of the fields that the definition of a message does not have."""


def _unknownFields(message: Any) -> bytes:
    """Return the fields of a message, not of its parts, that its definition does not have."""
    rest = type(message)()
    rest.CopyFrom(message)
    for each, _ in message.ListFields():
        if each.is_extension:
            rest.ClearExtension(each)
        else:
            rest.ClearField(each.name)
    wire: bytes = rest.SerializePartialToString()
    return wire


def _putUnknown(message: Any, value: Any, depth: int) -> None:
    try:
        message.MergeFromString(checkBytes(value))
    except DecodeError:
        raise notA(message.DESCRIPTOR.full_name) from None


@define(eq=False)
class _Tables:
    """
    The fields of one message.

    @ivar types: The converters of the types of extensions.
    @ivar keepsUnknown: Whether unknown fields are kept.
    @ivar openExtensions: See L{OpenTypes.loadExtensions}; C{None} for types as they were loaded.
    @ivar readers: The dictionary key and the reader, by field.
    @ivar setters: The setters by key.
    @ivar own: The keys of fields with a different proto name, by that name.
    @ivar plain: The name and key of each field, if all can be read without readers: see
        L{_plainFields}.
    """

    descriptor: Descriptor
    types: _Types
    keepsUnknown: bool
    openExtensions: Callable[[Descriptor], None] | None
    readers: dict[Any, tuple[str, Reader | None]] = field(factory=dict)
    setters: dict[str, FieldSetter] = field(factory=dict)
    own: dict[str, str] = field(factory=dict)
    plain: list[tuple[str, str]] = field(factory=list)

    def reader(self) -> Reader:
        """Return the function that reads a message."""
        find, plain = self.readers.get, self.plain

        def read(message: Message, depth: int) -> dict[str, Any]:
            result = {}
            if plain:
                for name, key in plain:
                    if value := getattr(message, name):
                        result[key] = value
                return result
            key = ""
            try:
                for each, value in message.ListFields():
                    key, reader = find(each) or self._readExtension(each)
                    result[key] = value if reader is None else reader(value, depth)
            except ConversionError as error:
                raise error.within(key) from None
            except UnicodeDecodeError:
                # Only a map key in proto2 gets here.
                raise ConversionError(key, "has a key that is not UTF-8 text") from None
            return result

        def readAll(message: Message, depth: int) -> dict[str, Any]:
            result = read(message, depth)
            if len(UnknownFieldSet(message)):
                result[UNKNOWN] = _unknownFields(message)
            return result

        reader = readAll if self.keepsUnknown else read
        extensions, descriptor = self.openExtensions, self.descriptor
        if extensions is None or not descriptor.is_extendable:
            return reader

        def readExtended(message: Message, depth: int) -> dict[str, Any]:
            if len(UnknownFieldSet(message)):
                # They may be extensions whose file was loaded after the parser's last one.
                extensions(descriptor)
                again = type(message)()
                again.MergeFromString(message.SerializePartialToString())
                message = again
            return reader(message, depth)

        return readExtended

    def _readExtension(self, extension: FieldDescriptor) -> tuple[str, Reader | None]:
        """Add the reader of an extension."""
        found = f"[{extension.full_name}]", _fieldReader(extension, self.types)
        self.readers[extension] = found
        return found

    def filler(self) -> Put:
        """Return the function that fills a message."""
        find, own = self.setters.get, self._byOwnName
        expected = f"a mapping ({self.descriptor.full_name})"

        def fill(message: Message, value: Any, depth: int) -> None:
            if type(value) is not dict:
                value = asMapping(value, expected)
            for key, item in value.items():
                setter = find(key) or own(key, value)
                try:
                    if type(item) is setter.exact:
                        try:
                            setattr(message, setter.name, item)
                        except ValueError:
                            # Out of range or an unpaired surrogate: put() gives the reason.
                            setter.put(message, item, depth)
                    elif item is not None or setter.takesNone:
                        setter.put(message, item, depth)
                except ConversionError as error:
                    raise error.within(key) from None

        return fill

    def _byOwnName(self, name: Any, value: Any) -> FieldSetter:
        """Find a field by its proto name."""
        key = self.own.get(name)
        if key is None:
            setter = self._findExtension(name)
            if setter is None:
                raise ConversionError(
                    asStep(name), f"is not a field of {self.descriptor.full_name}"
                )
            return setter
        if key in value:
            raise ConversionError(name, f"is also given as {key}")
        return self.setters[key]

    def _findExtension(self, name: Any) -> FieldSetter | None:
        """Add the setter of an extension of this message, by its full name in brackets."""
        extension = findExtension(self.descriptor, name)
        if extension is None:
            return None
        setter = self.setters[name] = _extensionSetter(extension, self.types)
        return setter


def findExtension(descriptor: Descriptor, name: Any) -> FieldDescriptor | None:
    """
    Return an extension of a message; C{None} if there is none of that name.

    @param name: Its full name in brackets, C{[package.name]}.
    """
    if not (isinstance(name, str) and name[:1] == "[" and name[-1:] == "]"):
        return None
    try:
        extension: Any = descriptor.file.pool.FindExtensionByName(name[1:-1])
    except KeyError:
        return None
    isOwn = extension.containing_type.full_name == descriptor.full_name
    return extension if isOwn else None


_PLAIN_FIELDS = 8
"""Beyond this number of fields, listing the set fields is faster than reading each field."""

_FLOATS = (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT)


def _plainFields(descriptor: Descriptor, readers: Mapping[Any, Any]) -> list[tuple[str, str]]:
    """
    Return the name and key of each field of a short message whose falsy fields are absent.

    Protobuf's list of set fields creates objects, which takes half of the time of reading such a
    message.

    @return: An empty list if the message has other fields: fields with presence, floats (C{-0.0} is
        falsy but set), or fields with a reader.
    """
    fields = sorted(readers, key=lambda each: each.number)
    if descriptor.is_extendable or len(fields) > _PLAIN_FIELDS:
        return []
    for each in fields:
        isSingle = not (each.is_repeated or each.has_presence or each.type in _FLOATS)
        if not isSingle or readers[each][1] is not None:
            return []
    return [(each.name, readers[each][0]) for each in fields]


@define(eq=False)
class MessageConverters:
    """
    The converters of the messages of one pool.

    @ivar _open: The types, if they are those with open enums; C{None} for types as they were
        loaded.
    @ivar _keepsUnknown: Whether unknown fields are kept.
    @ivar _takesNaive: Whether a C{datetime} without a zone is in UTC; otherwise it is refused.
    """

    _open: OpenTypes | None = None
    _keepsUnknown: bool = False
    _takesNaive: bool = False
    _converters: dict[Any, Converter] = field(factory=dict)
    _unfinished: list[_Tables] = field(factory=list)

    def of(self, descriptor: Descriptor) -> Converter:
        """Return the converter of a message, compiled once, with all types that it may contain."""
        converter = self._begin(descriptor)
        types = _Types(self._begin, self._scalarOf)
        # In a loop, not recursively: a chain of types may be long.
        while self._unfinished:
            tables = self._unfinished.pop()
            for each in tables.descriptor.fields:
                key = each.json_name
                tables.readers[each] = key, _fieldReader(each, types)
                tables.setters[key] = _fieldSetter(each, types)
                if each.name != key:
                    tables.own[each.name] = key
            tables.plain += _plainFields(tables.descriptor, tables.readers)
            if self._keepsUnknown:
                tables.setters[UNKNOWN] = FieldSetter("", NoType, _putUnknown)
        return converter

    def _begin(self, descriptor: Descriptor) -> Converter:
        converter = self._converters.get(descriptor)
        if converter is not None:
            return converter
        fullName = descriptor.full_name
        converter = WELL_KNOWN.get(fullName) or wrapperConverter(descriptor)
        if fullName == TIMESTAMP and self._takesNaive:
            converter = NAIVE_TIMESTAMP
        if converter is None and fullName == ANY:
            converter = anyConverter([descriptor.file.pool], self._formOf)
        if converter is None:
            load = None
            if self._open is not None:
                load = self._open.loadExtensions
                load(descriptor)
            types = _Types(self.of, self._scalarOf)
            tables = _Tables(descriptor, types, self._keepsUnknown, load)
            converter = Converter(tables.reader(), tables.filler(), isBare=False)
            self._unfinished.append(tables)
        self._converters[descriptor] = converter
        return converter

    def _scalarOf(self, field: FieldDescriptor) -> ScalarConverter:
        enum = self.enumOf(field)
        return scalarConverter(field) if enum is None else enumConverter(enum)

    def enumOf(self, field: FieldDescriptor) -> EnumDescriptor | None:
        """Return the enum of a field, whose type may be C{int32}; C{None} if it has none."""
        opened = None if self._open is None else self._open.enums.get(field.full_name)
        return field.enum_type if opened is None else opened

    def _formOf(self, descriptor: Descriptor) -> MessageForm:
        """Return how a message in an C{Any} is converted."""
        if self._open is None:
            return _formOf(descriptor, self._keepsUnknown, self._takesNaive)
        return _messageForm(descriptor, self)


_POOLS = 64
"""
How many pools have cached converters: one for each loaded proto or client that uses reflection.
"""


@lru_cache(_POOLS)
def detailConverter(pool: DescriptorPool | None) -> Converter:
    """
    Return the converter of an C{Any} in the details of an error.

    @param pool: The descriptor pool of the service, in which types are looked up before the default
        pool; C{None} for the default pool alone.
    """
    pools = [Default()] if pool is None else [pool, Default()]
    return anyConverter(pools, lambda found: _formOf(found, False, False))


_CODECS = 4096
"""How many codecs are cached: more than any application has messages."""


@lru_cache(_POOLS)
def _convertersOf(
    pool: DescriptorPool, isOpen: bool, keepsUnknown: bool, takesNaive: bool
) -> MessageConverters:
    return MessageConverters(openTypes(pool) if isOpen else None, keepsUnknown, takesNaive)


def _formOf(descriptor: Any, keepsUnknown: bool, takesNaive: bool) -> MessageForm:
    """Return how messages of a type are parsed, written and converted."""
    pool = descriptor.file.pool
    opened = openTypes(pool).find(descriptor)
    converters = _convertersOf(pool, opened is not None, keepsUnknown, takesNaive)
    return _messageForm(descriptor if opened is None else opened, converters)


def _messageForm(descriptor: Descriptor, converters: MessageConverters) -> MessageForm:
    # Before the class is used: the converter loads the extensions that a parser needs.
    converter = converters.of(descriptor)
    messageClass: Any = GetMessageClass(descriptor)
    return MessageForm(messageClass, converter, converters.enumOf)


@frozen(eq=False)
class MessageCodec:
    """
    The compiled conversion of one message class.

    @ivar messageClass: The message class.
    @ivar keepsUnknown: Whether fields that the class does not know are kept, under L{UNKNOWN}.
    @ivar takesNaive: Whether a C{datetime} without a zone is in UTC; otherwise it is refused.
    @ivar fullName: The message's name with its package, C{user.User}.
    """

    messageClass: type[Message]
    keepsUnknown: bool = False
    takesNaive: bool = False
    fullName: str = field(init=False)
    _form: MessageForm = field(init=False, repr=False)
    # The class that is parsed and written, which differs if there are closed enums.
    _wireClass: type[Message] = field(init=False, repr=False)
    _parse: Callable[[bytes], Message] = field(init=False, repr=False)
    _read: Callable[[Any, int], Any] = field(init=False, repr=False)
    _fill: Callable[[Any, Any, int], None] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        descriptor: Any = self.messageClass.DESCRIPTOR
        form = _formOf(descriptor, self.keepsUnknown, self.takesNaive)
        for name, value in (
            ("fullName", descriptor.full_name),
            ("_form", form),
            ("_wireClass", form.messageClass),
            ("_parse", form.messageClass.FromString),
            ("_read", form.converter.read),
            ("_fill", form.converter.fill),
        ):
            object.__setattr__(self, name, value)

    @property
    def pool(self) -> Any:
        """The descriptor pool of the message class."""
        descriptor: Any = self.messageClass.DESCRIPTOR
        return descriptor.file.pool

    @cached_property
    def _flatFields(self) -> list[FlatField] | None:
        form = self._form
        if form.converter.isBare or self.keepsUnknown:
            return None
        return flatFields(form.messageClass.DESCRIPTOR, form.enumOf)

    # Generated on first use, which takes half a millisecond.

    @cached_property
    def _encode(self) -> Encode:
        fields, encode = self._flatFields, self._encodeMessage
        return encode if fields is None else flatEncoder(fields, encode)

    @cached_property
    def _decode(self) -> Decode:
        fields, decode = self._flatFields, self._decodeMessage
        return decode if fields is None else flatDecoder(fields, decode)

    def encoder(self) -> Encode:
        """Return L{encode} for many messages, without the call that is between."""
        return self._encode

    def decoder(self) -> Decode:
        """Return L{decode} for many messages, without the call that is between."""
        return self._decode

    def decode(self, wire: bytes) -> Any:
        """
        Decode a message.

        @param wire: The encoded message.
        @return: A dictionary, or the type's JSON value: a C{google.protobuf.StringValue} is a
            string.
        @raise ConversionError: If the bytes do not parse, or the message contains a value that
            cannot be converted, such as a time in the year 10000.
        """
        return self._decode(wire)

    def _decodeMessage(self, wire: bytes) -> Any:
        try:
            message = self._parse(wire)
        except DecodeError:
            raise notA(self.fullName) from None
        return self._read(message, 0)

    def decodeLarge(self, wire: bytes) -> Any:
        """
        Decode a message in pieces, in a thread. Other threads run between the pieces, unless one
        field holds almost everything.

        @raise ConversionError: See L{decode}.
        """
        message = self._wireClass()
        try:
            for piece in cutMessage(wire):
                message.MergeFromString(piece)
        except DecodeError:
            raise notA(self.fullName) from None
        return self._read(message, 0)

    def encode(self, value: Any) -> bytes:
        """
        Encode a message.

        @param value: A mapping, or a message of this name. A message without fields may be C{None}.
        @raise ConversionError: If the value does not fit the message.
        """
        return self._encode(value)

    def _encodeMessage(self, value: Any) -> bytes:
        if type(value) is dict:
            message = self._wireClass()
            self._fill(message, value, 0)
        else:
            message = value if type(value) is self.messageClass else self._toWire(value)
        try:
            return message.SerializeToString()
        except EncodeError:
            raise unencodable(message) from None

    def toDict(self, message: Message) -> Any:
        """
        Convert a message to the form that L{decode} returns.

        @raise ConversionError: See L{decode}; also for a message of another name.
        """
        return self._read(self._toWire(message), 0)

    def normalize(self, value: Any) -> Any:
        """
        Convert a value to the form that a receiver sees: L{decode} of L{encode}, without the bytes.

        @param value: See L{encode}.
        @raise ConversionError: If the value does not fit the message, or lacks a field that proto2
            requires.
        """
        message: Any = self._toWire(value)
        missing = message.FindInitializationErrors()
        if missing:
            raise ConversionError(missing[0], "is required")
        return self._read(message, 0)

    def toMessage(self, value: Any) -> Message:
        """
        Convert a value to a message; a message of this class is returned unchanged.

        @param value: See L{encode}.
        @raise ConversionError: If the value does not fit the message.
        """
        if type(value) is self.messageClass:
            return value
        message = self._toWire(value)
        if self._wireClass is self.messageClass:
            return message
        own = self.messageClass()
        copyInto(own, message)
        return own

    def _toWire(self, value: Any) -> Message:
        """Convert a value to a message of the class on the wire."""
        if type(value) is self._wireClass:
            return value
        message = self._wireClass()
        if isinstance(value, Message):
            copyInto(message, value)
        elif value is not None or self._wireClass.DESCRIPTOR.fields:
            self._fill(message, value, 0)
        return message


@lru_cache(_CODECS)
def codecOf(
    messageClass: type[Message], keepsUnknown: bool = False, takesNaive: bool = False
) -> MessageCodec:
    """
    Return the cached codec of a message class.

    @param keepsUnknown: Whether fields that the class does not know are kept.
    @param takesNaive: Whether a C{datetime} without a zone is in UTC; otherwise it is refused.
    """
    return MessageCodec(messageClass, keepsUnknown, takesNaive)


def messageToDict(message: Message, keepUnknown: bool = False) -> Any:
    """
    Convert a message to the form that handlers see.

    @param keepUnknown: Whether fields that the message's class does not know are kept, as bytes
        under C{"@unknown"}.
    @return: A dictionary, or the JSON value of a well-known type.
    @raise ConversionError: If the message contains a value that cannot be converted.
    """
    messageClass: Any = type(message)
    return codecOf(messageClass, keepUnknown).toDict(message)


def dictToMessage(
    messageClass: type[Message], value: Any, keepUnknown: bool = False, naive: str = ""
) -> Message:
    """
    Convert a handler's value to a message.

    @param messageClass: The class, such as C{loadProto("user.proto").User}.
    @param value: A mapping of fields, or the JSON value of a well-known type.
    @param keepUnknown: Whether C{"@unknown"} is taken as fields that the class does not know.
    @param naive: C{"utc"} to take a C{datetime} without a zone as UTC; it is refused by default.
    @raise ConversionError: If the value does not fit.
    """
    # The message classes of the type stubs are not hashable.
    hashable: Any = messageClass
    return codecOf(hashable, keepUnknown, readNaive(naive)).toMessage(value)


def readNaive(naive: str) -> bool:
    """
    Return whether a C{datetime} without a zone is in UTC.

    @param naive: C{"utc"}, or nothing.
    @raise ValueError: If it is anything else.
    """
    if naive not in ("", "utc"):
        raise ValueError(f'naive is "utc" or "", not {naive!r}')
    return naive == "utc"
