"""
The wrappers and C{google.protobuf.FieldMask}.

A wrapper is its bare value, there whenever it is set. A field mask is its paths in one string, in
the names that handlers see: C{"name,address.zipCode"}.
"""

import re
from typing import Any

from google.protobuf.descriptor import Descriptor

from storagegate.rpc.conversionerrors import ConversionError, quoted, wrongType
from storagegate.rpc.forms import Form
from storagegate.rpc.scalarforms import checkString, scalarForm

_WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)

# What comes back when it is turned into the other form and again into this one.
_PATH = re.compile(r"(?:[^A-Z_,]|_[a-z])+")
_HANDLERS_PATH = re.compile(r"[^_,]+")
_UNDERSCORE = re.compile(r"_([a-z])")
_CAPITAL = re.compile(r"[A-Z]")


def wrapperForm(descriptor: Descriptor) -> Form | None:
    """Give the form of a wrapper; C{None} if the message is none."""
    if descriptor.full_name not in _WRAPPERS:
        return None
    check = scalarForm(descriptor.fields_by_name["value"]).check

    def read(message: Any, depth: int) -> Any:
        return message.value

    def fill(message: Any, value: Any, depth: int) -> None:
        message.value = check(value)

    return Form(read, fill)


def _readMask(message: Any, depth: int) -> str:
    paths = message.paths[:]
    for path in paths:
        if not _PATH.fullmatch(path):
            raise ConversionError("", f"has the path {quoted(path)}, which has no name in handlers")
    return _UNDERSCORE.sub(lambda match: match[1].upper(), ",".join(paths))


def _fillMask(message: Any, value: Any, depth: int) -> None:
    text = checkString(value)
    for path in text.split(",") if text else ():
        if not _HANDLERS_PATH.fullmatch(path):
            raise wrongType("paths such as name,address.zipCode", value)
        message.paths.append(_CAPITAL.sub(lambda match: "_" + match[0].lower(), path))


WELL_KNOWN_FORMS = {"google.protobuf.FieldMask": Form(_readMask, _fillMask)}
"""The forms by the message's full name."""
