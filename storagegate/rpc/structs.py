"""
C{google.protobuf.Struct}, C{Value} and C{ListValue}: what JSON can say, as plain Python values.

A number is always 64 bits of floating point on the wire. Whole ones come back as C{int} as long as
each of them is told apart from its neighbours there.
"""

import math
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message

from storagegate.rpc.conversionerrors import (
    DEPTH_LIMIT,
    ConversionError,
    asStep,
    tooDeep,
    wrongType,
)
from storagegate.rpc.forms import Form, asList, asMapping
from storagegate.rpc.scalarforms import checkString

_WHOLE = float(1 << 53)
"""From here on not every whole number has a floating point number of its own."""


def _readValue(value: Any, depth: int) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return value.string_value
    if kind == "number_value":
        number = value.number_value
        if -_WHOLE < number < _WHOLE:
            return int(number) if number.is_integer() else number
        if not math.isfinite(number):
            raise wrongType("a number that JSON has", number)
        return number
    if kind == "bool_value":
        return value.bool_value
    if kind == "struct_value":
        if depth >= DEPTH_LIMIT:
            raise tooDeep()
        return _readStruct(value.struct_value, depth + 1)
    if kind == "list_value":
        if depth >= DEPTH_LIMIT:
            raise tooDeep()
        return _readList(value.list_value, depth + 1)
    return None


def _readStruct(struct: Any, depth: int) -> dict[str, Any]:
    fields = struct.fields
    result = {}
    for key in fields:
        # The entry of the map is a level as well.
        if depth + 1 >= DEPTH_LIMIT:
            raise tooDeep()
        try:
            result[key] = _readValue(fields[key], depth + 2)
        except ConversionError as error:
            raise error.within(asStep(key)) from None
    return result


def _readList(values: Any, depth: int) -> list[Any]:
    result: list[Any] = []
    for value in values.values:
        if depth >= DEPTH_LIMIT:
            raise tooDeep()
        try:
            result.append(_readValue(value, depth + 1))
        except ConversionError as error:
            raise error.within(f"[{len(result)}]") from None
    return result


def _fillValue(value: Any, item: Any, depth: int) -> None:
    if isinstance(item, str):
        try:
            value.string_value = item
        except UnicodeEncodeError:
            checkString(item)
            raise
    elif isinstance(item, bool):
        value.bool_value = item
    elif isinstance(item, int | float):
        value.number_value = _asNumber(item)
    elif item is None:
        value.null_value = 0
    elif isinstance(item, list | tuple):
        if depth >= DEPTH_LIMIT:
            raise tooDeep()
        # An empty one is there, too.
        value.list_value.SetInParent()
        _fillList(value.list_value, item, depth + 1)
    elif isinstance(item, Mapping) and not isinstance(item, Message):
        if depth >= DEPTH_LIMIT:
            raise tooDeep()
        value.struct_value.SetInParent()
        _fillStruct(value.struct_value, item, depth + 1)
    else:
        raise wrongType("a value that JSON has", item)


def _asNumber(item: float) -> float:
    try:
        number = float(item)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise wrongType("a number that JSON has", item)
    return number


def _fillStruct(struct: Any, item: Any, depth: int) -> None:
    fields = struct.fields
    for key, value in asMapping(item, "a mapping").items():
        if depth + 1 >= DEPTH_LIMIT:
            raise tooDeep()
        try:
            _fillValue(fields[checkString(key)], value, depth + 2)
        except ConversionError as error:
            raise error.within(asStep(key)) from None


def _fillList(values: Any, item: Any, depth: int) -> None:
    add = values.values.add
    for index, value in enumerate(asList(item)):
        if depth >= DEPTH_LIMIT:
            raise tooDeep()
        try:
            _fillValue(add(), value, depth + 1)
        except ConversionError as error:
            raise error.within(f"[{index}]") from None


STRUCT_FORMS = {
    "google.protobuf.Struct": Form(_readStruct, _fillStruct),
    "google.protobuf.Value": Form(_readValue, _fillValue),
    "google.protobuf.ListValue": Form(_readList, _fillList),
}
"""The forms by the message's full name."""
