"""What the forms of values have in common: a pair of functions, one for each direction."""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen
from google.protobuf.message import DecodeError, EncodeError, Message

from storagegate.rpc.conversionerrors import ConversionError, wrongType

Reader = Callable[[Any, int], Any]
"""C{read(value, depth)} gives the handler's value of protobuf's; depth is the holder's."""

Put = Callable[[Any, Any, int], None]
"""C{put(message, value, depth)} puts a handler's value into a message that is so deep."""


@frozen
class Form:
    """
    How one class of messages looks to handlers.

    @ivar read: C{read(message, depth)} gives a message's plain value.
    @ivar fill: C{fill(message, value, depth)} puts a plain value into a new message.
    @ivar isBare: Whether that value is something else than a dictionary of the message's fields.
    """

    read: Reader
    fill: Put
    isBare: bool = True


def asMapping(value: Any, expected: str) -> Mapping[Any, Any]:
    """
    Take a value that has to be a mapping.

    @param expected: What it is to be, for the error.
    @raise ConversionError: If it is none.
    """
    # A Struct counts as a mapping, of messages in turn: those are copied, never read item by item.
    if isinstance(value, dict | Mapping) and not isinstance(value, Message):
        return value
    raise wrongType(expected, value)


def asList(value: Any) -> list[Any] | tuple[Any, ...]:
    """
    Take a value that has to be a list.

    @raise ConversionError: If it is none. A string is none, nor is what can be read only once.
    """
    if isinstance(value, list | tuple):
        return value
    raise wrongType("a list", value)


def copyInto(message: Message, value: Message) -> None:
    """
    Copy a message into a new one of the same name, which may be another pool's.

    @raise ConversionError: If it has another name, or its bytes are no such message.
    """
    wanted, given = message.DESCRIPTOR, value.DESCRIPTOR
    if given is wanted:
        message.CopyFrom(value)
    elif given.full_name == wanted.full_name:
        try:
            message.MergeFromString(value.SerializePartialToString())
        except DecodeError:
            raise notA(wanted.full_name) from None
    else:
        raise ConversionError("", f"is a {wanted.full_name}, not a {given.full_name}")


def fillOrCopy(fill: Put, part: Any, value: Any, depth: int) -> None:
    """Put a value into a new part of a message: a plain one, or a message to copy."""
    if isinstance(value, Message):
        copyInto(part, value)
    else:
        fill(part, value, depth)


def serialize(message: Any) -> bytes:
    """
    Give a message's bytes.

    @raise ConversionError: If a required field of proto2 is missing.
    """
    try:
        wire: bytes = message.SerializeToString()
    except EncodeError:
        missing = message.FindInitializationErrors()
        if missing:
            raise ConversionError(missing[0], "is required") from None
        reason = f"cannot be written as a {message.DESCRIPTOR.full_name} message"
        raise ConversionError("", reason) from None
    return wire


def notA(fullName: str) -> ConversionError:
    """Make the error for bytes that are no message of a class."""
    return ConversionError("", f"is no {fullName} message")
