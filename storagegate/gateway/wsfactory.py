"""What makes WebSockets: Autobahn's factory, with its options set."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from autobahn.twisted.websocket import WebSocketServerFactory
from autobahn.websocket.compress import PerMessageDeflateOffer, PerMessageDeflateOfferAccept
from twisted.internet.interfaces import IReactorTime

from storagegate.gateway.wsaround import Quiet
from storagegate.gateway.wshandshake import Handshake
from storagegate.gateway.wswire import CLOSE_SECONDS, Wire

# Memory of a compressor: 16 KiB instead of 256 KiB, for each of ten thousand connections.
_WINDOW_BITS = 11
_MEMORY_LEVEL = 4


class WireFactory(WebSocketServerFactory):
    """Makes wires, all with the same options."""

    log = Quiet()

    def __init__(
        self,
        clock: IReactorTime,
        maxMessageSize: int,
        compresses: bool,
        onLost: Callable[[Wire], None],
    ) -> None:
        """
        @param compresses: Whether permessage-deflate is agreed to.
        @param onLost: Called when the connection of a wire is gone.
        """
        super().__init__(server="", reactor=clock)
        self.onLost = onLost
        self.clock = clock
        # Else it is the process's reactor that Autobahn asks for timers.
        self._batched_timer = SimpleNamespace(call_later=clock.callLater)
        self.setProtocolOptions(
            # Versions before the RFC have no clients any more.
            versions=[13],
            maxMessagePayloadSize=maxMessageSize,
            failByDrop=False,
            # The whole handshake is here when a wire is made.
            openHandshakeTimeout=0,
            closeHandshakeTimeout=CLOSE_SECONDS,
            perMessageCompressionAccept=_acceptDeflate if compresses else None,
        )

    def makeWire(self, handshake: Handshake) -> Wire:
        """Make a wire for a connection."""
        wire = Wire(handshake)
        wire.factory = self
        return wire


def _acceptDeflate(offers: list[Any]) -> Any:
    for offer in offers:
        if isinstance(offer, PerMessageDeflateOffer):
            bits = offer.request_max_window_bits
            return PerMessageDeflateOfferAccept(
                offer,
                window_bits=min(bits, _WINDOW_BITS) if bits else _WINDOW_BITS,
                mem_level=_MEMORY_LEVEL,
            )
    return None
