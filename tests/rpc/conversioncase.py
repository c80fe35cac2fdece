"""What tests of conversion ask of a codec."""

from collections.abc import Mapping
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.rpc.codec import MessageCodec
from storagegate.rpc.converters import ConversionError


class ConversionCase(SynchronousTestCase):
    """Assertions on both directions."""

    def assertBothWays(self, codec: MessageCodec, value: Any, wire: Mapping[str, Any]) -> None:
        """
        Check that a value and a message are each other's conversion.

        @param wire: What protobuf itself says of the message's fields.
        """
        message = codec.messageClass(**wire)
        self.assertEqual(codec.toMessage(value), message)
        decoded = codec.decode(codec.encode(value))
        self.assertEqual(decoded, value)
        self.assertEqual(codec.toDict(message), value)
        self.assertSameTypes(decoded, value)

    def assertSameTypes(self, one: Any, other: Any) -> None:
        """Check the types of two equal values, for 1 is True and 1.0 to Python."""
        self.assertIs(type(one), type(other), f"{one!r} {other!r}")
        if isinstance(one, dict):
            for key in one:
                self.assertSameTypes(one[key], other[key])
            self.assertEqual({type(key) for key in one}, {type(key) for key in other})
        if isinstance(one, list):
            for left, right in zip(one, other, strict=True):
                self.assertSameTypes(left, right)

    def assertRefused(self, codec: MessageCodec, value: Any, path: str, reason: str) -> None:
        """Check that a value is refused, where, and in which words."""
        error = self.assertRaises(ConversionError, codec.encode, value)
        self.assertEqual((error.path, error.reason), (path, reason))

    def assertUnreadable(self, codec: MessageCodec, wire: Any, path: str, reason: str) -> None:
        """Check that a message, given or as bytes, has no form for handlers."""
        data = wire if isinstance(wire, bytes) else wire.SerializeToString()
        error = self.assertRaises(ConversionError, codec.decode, data)
        self.assertEqual((error.path, error.reason), (path, reason))
