"""UDP: its options."""

from collections.abc import Mapping
from typing import Any, TypedDict

from attrs import field, frozen
from attrs.converters import optional

from storagegate.core.options import (
    Hook,
    OptionError,
    readFunction,
    readHostname,
    readNumber,
    readPort,
    readSize,
)

# What UDP can carry at all.
_MAX_PACKET_SIZE = 65_507


def _packetSize(value: Any) -> int:
    return readNumber(readSize(value), 64, _MAX_PACKET_SIZE, "bytes")


@frozen(kw_only=True)
class UDPOptions:
    """
    How services are called over UDP.

    @ivar port: Where; 0 takes a free one.
    @ivar hostname: The interface, in place of that of all wires.
    @ivar maxPacketSize: Bytes of an answer's datagram; what passes everywhere in one piece.
    @ivar parseMessage: C{(bytes)} gives the message.
    @ivar formatResponse: C{(result, type)} gives bytes; C{type} is C{response}, C{error},
        C{stream} or C{stream_end}.
    @ivar routeMessage: C{(message)} gives a mapping of C{service}, C{method}, C{request} and
        C{messageId}.
    """

    port: int = field(default=9103, converter=readPort)
    hostname: str | None = field(default=None, converter=optional(readHostname))
    maxPacketSize: int = field(default=1200, converter=_packetSize)
    parseMessage: Hook | None = field(default=None, converter=optional(readFunction))
    formatResponse: Hook | None = field(default=None, converter=optional(readFunction))
    routeMessage: Hook | None = field(default=None, converter=optional(readFunction))

    @staticmethod
    def flattened(given: Mapping[str, Any]) -> dict[str, Any]:
        """
        Return the options of C{configureUDP}, whose C{protocol} may hold some of the hooks.

        @raise OptionError: If C{protocol} is no mapping.
        """
        options = dict(given)
        protocol = options.pop("protocol", {})
        if not isinstance(protocol, Mapping):
            raise OptionError("the option udp.protocol is a mapping of functions")
        return {**options, **protocol}


class UDPOptionsDict(TypedDict, total=False):
    """The keywords of L{UDPOptions}."""

    port: int
    hostname: str | None
    maxPacketSize: int | str
    parseMessage: Hook | None
    formatResponse: Hook | None
    routeMessage: Hook | None


class UDPConfigurationDict(UDPOptionsDict, total=False):
    """The keywords of C{configureUDP}."""

    protocol: Mapping[str, Hook]
