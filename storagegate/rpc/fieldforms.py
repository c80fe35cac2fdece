"""
The fields of a message, one function for each direction and kind, made once per field.

A reader gets protobuf's value and the depth of the message that holds it; a writer gets that
message, the handler's value and the depth.
"""

from collections.abc import Callable
from typing import Any

from attrs import frozen
from google.protobuf.descriptor import FieldDescriptor

from storagegate.rpc.conversionerrors import (
    DEPTH_LIMIT,
    ConversionError,
    tooDeep,
)
from storagegate.rpc.forms import Form, Put, Reader, asList, fillOrCopy
from storagegate.rpc.mapforms import mapPut, mapReader
from storagegate.rpc.scalarforms import NoType, ScalarForm, scalarForm


@frozen
class Writer:
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


def fieldReader(field: FieldDescriptor, formOf: Callable[[Any], Form]) -> Reader | None:
    """Make the reader of a field; C{None} where protobuf's value is the handler's."""
    message = field.message_type
    if message is None:
        scalar = scalarForm(field)
        return _listReader(scalar.read) if field.is_repeated else _plainReader(scalar.read)
    if message.GetOptions().map_entry:
        return mapReader(message, formOf)
    read = formOf(message).read
    return _messageListReader(read) if field.is_repeated else _messageReader(read)


def fieldWriter(field: FieldDescriptor, formOf: Callable[[Any], Form]) -> Writer:
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
        return Writer(name, NoType, _onlyOne(oneof.name, put), takesNone)
    return Writer(name, exact, put, takesNone)


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
