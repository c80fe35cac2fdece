"""Routes with plain text messages, for tests of call handling."""

from collections.abc import Callable
from typing import Any

from storagegate.rpc.converters import ConversionError
from storagegate.rpc.protos import RPCMethod, RPCService
from storagegate.rpc.routes import GRPCRoute


class TextCodec:
    """A codec for text messages; other data raises a conversion error."""

    pool = None

    def decode(self, wire: bytes) -> str:
        """Decode a message."""
        try:
            return wire.decode()
        except UnicodeDecodeError:
            raise ConversionError("name", "is no text") from None

    decodeLarge = decode

    def encode(self, value: Any) -> bytes:
        """Encode a message."""
        if not isinstance(value, str):
            raise ConversionError("name", "is no text")
        return value.encode()

    def decoder(self) -> Callable[[bytes], str]:
        """Return the decoder of a stream."""
        return self.decode

    def encoder(self) -> Callable[[Any], bytes]:
        """Return the encoder of a stream."""
        return self.encode


def textMethod(name: str = "Method", streaming: str = "none", service: str = "test.Service") -> Any:
    """Make a method."""
    codec: Any = TextCodec()
    return RPCMethod(name, f"/{service}/{name}", streaming, codec, codec)


def textService(name: str = "test.Service", **methods: str) -> RPCService:
    """Make a service from method names and their kinds of streaming."""
    file: Any = None
    return RPCService(
        name, {key: textMethod(key, kind, name) for key, kind in methods.items()}, file
    )


def textRoute(answer: Callable[..., Any] | None, streaming: str = "none") -> GRPCRoute:
    """Make a route to a handler of the call."""
    service = textService(Method=streaming)
    return GRPCRoute(service, service.methods["Method"], answer)
