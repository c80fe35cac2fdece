"""Maps: dictionaries whose keys are what the proto says, each of them looked at."""

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import Descriptor

from storagegate.rpc.conversionerrors import DEPTH_LIMIT, ConversionError, quoted, tooDeep
from storagegate.rpc.forms import Form, Put, Reader, asMapping, fillOrCopy
from storagegate.rpc.scalarforms import ScalarForm, scalarForm

_SetItem = Callable[[Any, Any, Any, int], None]


def mapReader(entry: Descriptor, formOf: Callable[[Descriptor], Form]) -> Reader:
    """Make the reader of a map from the message that its entries are."""
    value = entry.fields_by_name["value"]
    if value.message_type is not None:
        return _messageReader(formOf(value.message_type).read)
    return _scalarReader(scalarForm(value).read)


def mapPut(name: str, entry: Descriptor, formOf: Callable[[Descriptor], Form]) -> Put:
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


def _messageReader(read: Reader) -> Reader:
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
