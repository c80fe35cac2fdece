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
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from attrs import field, frozen
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from storagegate.rpc.conversionerrors import ConversionError
from storagegate.rpc.forms import Form, copyInto, notA, serialize
from storagegate.rpc.messageforms import MessageForms

__all__ = ["ConversionError", "MessageCodec", "codecOf"]

_POOLS = 64
"""Pools whose forms are kept: one for each loaded proto or client that learnt by reflection."""

_CODECS = 4096
"""Codecs that are kept: more than the messages of any application; another one is made anew."""


@lru_cache(_POOLS)
def _formsOf(pool: DescriptorPool) -> MessageForms:
    return MessageForms()


def _formOf(messageClass: type[Message]) -> Form:
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
