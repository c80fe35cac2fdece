"""
The messages of a pool, each compiled to a pair of functions when it is first met.

A type may hold itself: its functions look their fields up in tables that are filled after all types
that it reaches have their functions.
"""

from typing import Any

from attrs import define, field
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from storagegate.rpc.anyform import anyForm
from storagegate.rpc.conversionerrors import ConversionError, asStep
from storagegate.rpc.fieldforms import Writer, fieldReader, fieldWriter, isGroup
from storagegate.rpc.forms import Form, Put, Reader, asMapping
from storagegate.rpc.structs import STRUCT_FORMS
from storagegate.rpc.timeforms import TIME_FORMS
from storagegate.rpc.wellknown import WELL_KNOWN_FORMS, wrapperForm

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
    writers: dict[str, Writer] = field(factory=dict)
    own: dict[str, str] = field(factory=dict)


@define(eq=False)
class MessageForms:
    """The forms of messages that lie in one pool."""

    _forms: dict[Any, Form] = field(factory=dict)
    _unfinished: list[_Tables] = field(factory=list)

    def of(self, descriptor: Descriptor) -> Form:
        """Give the form of a message; compiled once, with all that it may hold."""
        form = self._forms.get(descriptor)
        if form is None:
            form = self._begin(descriptor)
            # One after another, not one within another: a chain of types may be long.
            while self._unfinished:
                self._finish(self._unfinished.pop())
        return form

    def _begin(self, descriptor: Descriptor) -> Form:
        form = self._forms.get(descriptor)
        if form is not None:
            return form
        fullName = descriptor.full_name
        form = _BARE.get(fullName) or wrapperForm(descriptor)
        if form is None and fullName == "google.protobuf.Any":
            form = anyForm(descriptor.file.pool, self.of)
        if form is None:
            tables = _Tables(descriptor)
            form = Form(_reader(tables), _filler(tables), isBare=False)
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


def _byOwnName(tables: _Tables, name: Any, value: Any) -> Writer:
    """Find the field that goes by its name in the proto."""
    key = tables.own.get(name)
    if key is None:
        raise ConversionError(asStep(name), f"is no field of {tables.descriptor.full_name}")
    if key in value:
        raise ConversionError(name, f"is given as {key}, too")
    return tables.writers[key]
