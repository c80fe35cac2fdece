"""
C{google.protobuf.Any}: a message of any type, and which one::

    {"@type": "type.googleapis.com/user.User", "id": "1", "createdAt": ...}
    {"@type": "type.googleapis.com/google.protobuf.Duration", "value": "1.500s"}
    {"@type": "type.googleapis.com/of.no.type.we.know", "value": b"..."}
"""

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from storagegate.rpc.conversionerrors import (
    DEPTH_LIMIT,
    ConversionError,
    asStep,
    quoted,
    tooDeep,
)
from storagegate.rpc.forms import Form, asMapping, notA, serialize
from storagegate.rpc.scalarforms import checkBytes, checkString

_TYPE, _VALUE = "@type", "value"


def anyForm(pool: DescriptorPool, formOf: Callable[[Descriptor], Form]) -> Form:
    """Make the form of the class C{Any} of a pool; types are looked for in the same one."""

    def find(url: str) -> Descriptor | None:
        try:
            return pool.FindMessageTypeByName(url.rpartition("/")[2])
        except KeyError:
            return None

    def read(message: Any, depth: int) -> dict[str, Any]:
        url, wire = message.type_url, message.value
        if not url and not wire:
            return {}
        descriptor = find(url)
        if descriptor is None:
            return {_TYPE: url, _VALUE: wire}
        if depth >= DEPTH_LIMIT:
            raise tooDeep()
        try:
            inner = GetMessageClass(descriptor).FromString(wire)
        except DecodeError:
            raise notA(descriptor.full_name) from None
        form = formOf(descriptor)
        if not form.isBare:
            return {_TYPE: url, **form.read(inner, depth + 1)}
        try:
            return {_TYPE: url, _VALUE: form.read(inner, depth + 1)}
        except ConversionError as error:
            raise error.within(_VALUE) from None

    def fill(message: Any, value: Any, depth: int) -> None:
        fields = dict(asMapping(value, "a mapping with @type"))
        if not fields:
            return
        if _TYPE not in fields:
            raise ConversionError("", "has no @type")
        try:
            url = message.type_url = checkString(fields.pop(_TYPE))
        except ConversionError as error:
            raise error.within(_TYPE) from None
        descriptor = find(url)
        if descriptor is None:
            # Only its bytes can stand for what nobody here knows; none are an empty message.
            fields.setdefault(_VALUE, b"")
            message.value = _onlyValue(fields, url, checkBytes)
            return
        if depth >= DEPTH_LIMIT:
            raise tooDeep()
        inner: Message = GetMessageClass(descriptor)()
        form = formOf(descriptor)
        if not form.isBare:
            form.fill(inner, fields, depth + 1)
        else:
            _onlyValue(fields, url, lambda plain: form.fill(inner, plain, depth + 1))
        message.value = serialize(inner)

    return Form(read, fill)


def _onlyValue(fields: dict[Any, Any], url: str, take: Callable[[Any], Any]) -> Any:
    """Take the value of a type that has no fields to show, if nothing is beside it."""
    if _VALUE not in fields:
        raise ConversionError("", f"has no value, as {quoted(url)} needs")
    value = fields.pop(_VALUE)
    for key in fields:
        raise ConversionError(asStep(key), f"is no field of {quoted(url)}")
    try:
        return take(value)
    except ConversionError as error:
        raise error.within(_VALUE) from None
