"""
Between protobuf messages and the dictionaries that handlers see.

The keys are the fields' names in JSON (C{createdAt}); in what a handler gives they may be the names
in the proto as well. What protobuf's JSON mapping says of a type holds here
(U{https://protobuf.dev/programming-guides/json/}), with what Python can say better than JSON:

  - An integer of any width is an C{int}, a floating point number a C{float}, also where it is
    infinite or none; C{float} of 32 bits is the number of the wire, C{0.10000000149011612}.
  - C{bytes} are C{bytes}; the keys of a map are what the proto says.
  - An enum is its name, a number that has none is an C{int}; results may have either.
  - What is absent is left out, and C{None} in a result is absent: only C{google.protobuf.Value} and
    C{NullValue} have it as a value. A field with presence is there whenever it was set.
  - C{google.protobuf.Any} of a type that the message's pool does not have keeps its bytes.

Extensions and groups of proto2 are left out. A result may be a message, or have messages in it.

Maps: dictionaries whose keys are what the proto says, each of them looked at.

The fields of a message, one function for each direction and kind, made once per field.

A reader gets protobuf's value and the depth of the message that holds it; a writer gets that
message, the handler's value and the depth.

The messages of a pool, each compiled to a pair of functions when it is first met.

A type may hold itself: its functions look their fields up in tables that are filled after all types
that it reaches have their functions.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from attrs import define, field, frozen
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from storagegate.rpc.converters import (
    DEPTH_LIMIT,
    ConversionError,
    Converter,
    NoType,
    Put,
    Reader,
    ScalarForm,
    asList,
    asMapping,
    asStep,
    copyInto,
    fillOrCopy,
    notA,
    quoted,
    scalarForm,
    serialize,
    tooDeep,
)
from storagegate.rpc.wellknown import (
    STRUCT_FORMS,
    TIME_FORMS,
    WELL_KNOWN_FORMS,
    anyForm,
    wrapperForm,
)

_SetItem = Callable[[Any, Any, Any, int], None]


def mapReader(entry: Descriptor, formOf: Callable[[Descriptor], Converter]) -> Reader:
    """Make the reader of a map from the message that its entries are."""
    value = entry.fields_by_name["value"]
    if value.message_type is not None:
        return _entryReader(formOf(value.message_type).read)
    return _scalarReader(scalarForm(value).read)


def mapPut(name: str, entry: Descriptor, formOf: Callable[[Descriptor], Converter]) -> Put:
    """Make what sets a map."""
    key, value = scalarForm(entry.fields_by_name["key"]), entry.fields_by_name["value"]
    if value.message_type is None:
        setItem, levels = _scalarSetter(scalarForm(value)), 1
    else:
        setItem, levels = _messageSetter(formOf(value.message_type).fill), 2

    def put(message: Any, value: Any, depth: int) -> None:
        items = asMapping(value, "a mapping")
        if not items:
            return
        if depth + levels > DEPTH_LIMIT:
            raise tooDeep()
        target = getattr(message, name)
        for itemKey, item in items.items():
            try:
                setItem(target, _checkedKey(itemKey, key), item, depth + levels)
            except ConversionError as error:
                raise error.within(f"[{quoted(itemKey)}]") from None

    return put


def _checkedKey(key: Any, scalar: ScalarForm) -> Any:
    try:
        return scalar.check(key)
    except ConversionError as error:
        raise ConversionError("", f"the key {error.reason}") from None


def _scalarSetter(scalar: ScalarForm) -> Callable[[Any, Any, Any, int], None]:
    check = scalar.check

    def setItem(target: Any, key: Any, item: Any, depth: int) -> None:
        target[key] = check(item)

    return setItem


def _messageSetter(fill: Put) -> Callable[[Any, Any, Any, int], None]:
    def setItem(target: Any, key: Any, item: Any, depth: int) -> None:
        fillOrCopy(fill, target[key], item, depth)

    return setItem


def _scalarReader(read: Callable[[Any], Any] | None) -> Reader:
    # By keys: protobuf's items() takes more than twice the time.
    if read is None:
        return lambda value, depth: {key: value[key] for key in value}
    return lambda value, depth: {key: read(value[key]) for key in value}


def _entryReader(read: Reader) -> Reader:
    def reader(value: Any, depth: int) -> Any:
        if depth + 1 >= DEPTH_LIMIT:
            raise tooDeep()
        items = {}
        for key in value:
            try:
                items[key] = read(value[key], depth + 2)
            except ConversionError as error:
                raise error.within(f"[{quoted(key)}]") from None
        return items

    return reader


@frozen
class FieldSetter:
    """
    How a field is set.

    @ivar name: Its name in the proto.
    @ivar exact: Values of exactly this type are set as they are; protobuf checks their range.
    @ivar put: C{put(message, value, depth)} sets any other one.
    @ivar takesNone: Whether C{None} is a value, not an absent one.
    """

    name: str
    exact: type
    put: Put
    takesNone: bool = False


def isGroup(field: FieldDescriptor) -> bool:
    """Tell proto2's groups, which are not converted, from messages that are only framed as one."""
    message = field.message_type
    if message is None or field.type != FieldDescriptor.TYPE_GROUP:
        return False
    return bool(field.name == message.name.lower())


def fieldReader(field: FieldDescriptor, formOf: Callable[[Any], Converter]) -> Reader | None:
    """Make the reader of a field; C{None} where protobuf's value is the handler's."""
    message = field.message_type
    if message is None:
        scalar = scalarForm(field)
        return _listReader(scalar.read) if field.is_repeated else _plainReader(scalar.read)
    if message.GetOptions().map_entry:
        return mapReader(message, formOf)
    read = formOf(message).read
    return _messageListReader(read) if field.is_repeated else _messageReader(read)


def fieldWriter(field: FieldDescriptor, formOf: Callable[[Any], Converter]) -> FieldSetter:
    """Make the writer of a field."""
    message, name = field.message_type, field.name
    exact: type = NoType
    takesNone = False
    if message is None:
        scalar = scalarForm(field)
        takesNone = scalar.takesNone and not field.is_repeated
        if field.is_repeated:
            put = _listPut(name, scalar)
        else:
            put = _plainPut(name, scalar.check)
            exact = scalar.exact
    elif message.GetOptions().map_entry:
        put = mapPut(name, message, formOf)
    elif field.is_repeated:
        put = _messageListPut(name, formOf(message).fill)
    else:
        put = _messagePut(name, formOf(message).fill)
        takesNone = message.full_name == "google.protobuf.Value"
    oneof = field.containing_oneof
    # An optional field of proto3 is alone in one that was made for it.
    if oneof is not None and len(oneof.fields) > 1:
        return FieldSetter(name, NoType, _onlyOne(oneof.name, put), takesNone)
    return FieldSetter(name, exact, put, takesNone)


def _plainReader(read: Callable[[Any], Any] | None) -> Reader | None:
    if read is None:
        return None
    return lambda value, depth: read(value)


def _listReader(read: Callable[[Any], Any] | None) -> Reader:
    if read is None:
        # A slice is a list, in a third of the time that list() takes.
        return lambda value, depth: value[:]
    return lambda value, depth: [read(item) for item in value]


def _messageReader(read: Reader) -> Reader:
    def reader(value: Any, depth: int) -> Any:
        if depth >= DEPTH_LIMIT:
            raise tooDeep()
        return read(value, depth + 1)

    return reader


def _messageListReader(read: Reader) -> Reader:
    def reader(value: Any, depth: int) -> Any:
        if depth >= DEPTH_LIMIT:
            raise tooDeep()
        items: list[Any] = []
        try:
            for item in value:
                items.append(read(item, depth + 1))
        except ConversionError as error:
            raise error.within(f"[{len(items)}]") from None
        return items

    return reader


def _plainPut(name: str, check: Callable[[Any], Any]) -> Put:
    def put(message: Any, value: Any, depth: int) -> None:
        setattr(message, name, check(value))

    return put


def _onlyOne(oneof: str, inner: Put) -> Put:
    """Refuse a second member of a oneof, before it takes the place of the first."""

    def put(message: Any, value: Any, depth: int) -> None:
        other = message.WhichOneof(oneof)
        if other is not None:
            raise ConversionError("", f"is given beside {other}; {oneof} is only one of them")
        inner(message, value, depth)

    return put


def _listPut(name: str, scalar: ScalarForm) -> Put:
    exact, check = {scalar.exact}, scalar.check

    def put(message: Any, value: Any, depth: int) -> None:
        items = asList(value)
        if not exact.issuperset(map(type, items)):
            items = _checked(items, check)
        try:
            getattr(message, name).extend(items)
        except ValueError:
            # Out of range, or half a character: this finds it, and says where it is.
            _checked(items, check)
            raise

    return put


def _checked(items: Any, check: Callable[[Any], Any]) -> list[Any]:
    checked: list[Any] = []
    try:
        for item in items:
            checked.append(check(item))
    except ConversionError as error:
        raise error.within(f"[{len(checked)}]") from None
    return checked


def _messagePut(name: str, fill: Put) -> Put:
    def put(message: Any, value: Any, depth: int) -> None:
        if depth >= DEPTH_LIMIT:
            raise tooDeep()
        part = getattr(message, name)
        # An empty message is there, too.
        part.SetInParent()
        fillOrCopy(fill, part, value, depth + 1)

    return put


def _messageListPut(name: str, fill: Put) -> Put:
    def put(message: Any, value: Any, depth: int) -> None:
        if depth >= DEPTH_LIMIT:
            raise tooDeep()
        target = getattr(message, name)
        for index, item in enumerate(asList(value)):
            try:
                fillOrCopy(fill, target.add(), item, depth + 1)
            except ConversionError as error:
                raise error.within(f"[{index}]") from None

    return put


_BARE = {**STRUCT_FORMS, **TIME_FORMS, **WELL_KNOWN_FORMS}


@define(eq=False)
class _Tables:
    """
    What the functions of one message look up.

    @ivar readers: The key in dictionaries and the reader, by field.
    @ivar writers: The writers by key.
    @ivar own: The keys of fields that may go by their own names, too.
    """

    descriptor: Descriptor
    readers: dict[Any, tuple[str, Reader | None]] = field(factory=dict)
    writers: dict[str, FieldSetter] = field(factory=dict)
    own: dict[str, str] = field(factory=dict)


@define(eq=False)
class MessageConverters:
    """The forms of messages that lie in one pool."""

    _forms: dict[Any, Converter] = field(factory=dict)
    _unfinished: list[_Tables] = field(factory=list)

    def of(self, descriptor: Descriptor) -> Converter:
        """Give the form of a message; compiled once, with all that it may hold."""
        form = self._forms.get(descriptor)
        if form is None:
            form = self._begin(descriptor)
            # One after another, not one within another: a chain of types may be long.
            while self._unfinished:
                self._finish(self._unfinished.pop())
        return form

    def _begin(self, descriptor: Descriptor) -> Converter:
        form = self._forms.get(descriptor)
        if form is not None:
            return form
        fullName = descriptor.full_name
        form = _BARE.get(fullName) or wrapperForm(descriptor)
        if form is None and fullName == "google.protobuf.Any":
            form = anyForm(descriptor.file.pool, self.of)
        if form is None:
            tables = _Tables(descriptor)
            form = Converter(_reader(tables), _filler(tables), isBare=False)
            self._unfinished.append(tables)
        self._forms[descriptor] = form
        return form

    def _finish(self, tables: _Tables) -> None:
        for each in tables.descriptor.fields:
            if isGroup(each):
                continue
            key = each.json_name
            tables.readers[each] = key, fieldReader(each, self._begin)
            tables.writers[key] = fieldWriter(each, self._begin)
            if each.name != key:
                tables.own[each.name] = key


def _reader(tables: _Tables) -> Reader:
    find = tables.readers.get

    def read(message: Message, depth: int) -> dict[str, Any]:
        result = {}
        key = ""
        try:
            for each, value in message.ListFields():
                found = find(each)
                if found is None:
                    # An extension or a group.
                    continue
                key, reader = found
                result[key] = value if reader is None else reader(value, depth)
        except ConversionError as error:
            raise error.within(key) from None
        except UnicodeDecodeError:
            # Only a key of a map in proto2 gets here.
            raise ConversionError(key, "has a key that is no text in UTF-8") from None
        return result

    return read


def _filler(tables: _Tables) -> Put:
    find = tables.writers.get
    expected = f"a mapping ({tables.descriptor.full_name})"

    def fill(message: Message, value: Any, depth: int) -> None:
        if type(value) is not dict:
            value = asMapping(value, expected)
        for key, item in value.items():
            writer = find(key) or _byOwnName(tables, key, value)
            try:
                if type(item) is writer.exact:
                    try:
                        setattr(message, writer.name, item)
                    except ValueError:
                        # Out of range, or half a character: this says which.
                        writer.put(message, item, depth)
                elif item is not None or writer.takesNone:
                    writer.put(message, item, depth)
            except ConversionError as error:
                raise error.within(key) from None

    return fill


def _byOwnName(tables: _Tables, name: Any, value: Any) -> FieldSetter:
    """Find the field that goes by its name in the proto."""
    key = tables.own.get(name)
    if key is None:
        raise ConversionError(asStep(name), f"is no field of {tables.descriptor.full_name}")
    if key in value:
        raise ConversionError(name, f"is given as {key}, too")
    return tables.writers[key]


_POOLS = 64
"""Pools whose forms are kept: one for each loaded proto or client that learnt by reflection."""

_CODECS = 4096
"""Codecs that are kept: more than the messages of any application; another one is made anew."""


@lru_cache(_POOLS)
def _formsOf(pool: DescriptorPool) -> MessageConverters:
    return MessageConverters()


def _formOf(messageClass: type[Message]) -> Converter:
    descriptor: Any = messageClass.DESCRIPTOR
    return _formsOf(descriptor.file.pool).of(descriptor)


@frozen(eq=False)
class MessageCodec:
    """
    The conversion of one class of messages, compiled.

    @ivar messageClass: The class.
    @ivar fullName: The message's name with its package, C{user.User}.
    """

    messageClass: type[Message]
    fullName: str = field(init=False)
    _parse: Callable[[bytes], Message] = field(init=False, repr=False)
    _read: Callable[[Any, int], Any] = field(init=False, repr=False)
    _fill: Callable[[Any, Any, int], None] = field(init=False, repr=False)

    @fullName.default
    def _nameIt(self) -> str:
        return self.messageClass.DESCRIPTOR.full_name

    @_parse.default
    def _findParser(self) -> Callable[[bytes], Message]:
        return self.messageClass.FromString

    @_read.default
    def _compileReader(self) -> Callable[[Any, int], Any]:
        return _formOf(self.messageClass).read

    @_fill.default
    def _compileFiller(self) -> Callable[[Any, Any, int], None]:
        return _formOf(self.messageClass).fill

    def decode(self, wire: bytes) -> Any:
        """
        Give the dictionary of a message's bytes.

        A type that is something else in JSON is that here: a C{google.protobuf.StringValue} is a
        string.

        @raise ConversionError: If the bytes are no such message, or it has a value that there is
            no form for, such as a moment in the year 10000.
        """
        try:
            message = self._parse(wire)
        except DecodeError:
            raise notA(self.fullName) from None
        return self._read(message, 0)

    def encode(self, value: Any) -> bytes:
        """
        Give a message's bytes.

        @param value: A mapping, or a message of this name. C{None} will do for a message without
            any field.
        @raise ConversionError: If the value does not fit the message.
        """
        return serialize(self.toMessage(value))

    def toDict(self, message: Message) -> Any:
        """
        Give the dictionary of a message.

        @raise ConversionError: See L{decode}; also for a message of another name.
        """
        return self._read(self.toMessage(message), 0)

    def toMessage(self, value: Any) -> Message:
        """
        Give a message: the one given, if it is of this class.

        @param value: See L{encode}.
        @raise ConversionError: If the value does not fit the message.
        """
        if type(value) is self.messageClass:
            return value
        message = self.messageClass()
        if isinstance(value, Message):
            copyInto(message, value)
        elif value is not None or self.messageClass.DESCRIPTOR.fields:
            self._fill(message, value, 0)
        return message


@lru_cache(_CODECS)
def codecOf(messageClass: type[Message]) -> MessageCodec:
    """Give the codec of a class of messages, the same one each time."""
    return MessageCodec(messageClass)
