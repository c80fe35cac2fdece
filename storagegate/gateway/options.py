"""
The options of a gateway and its transports.

They are read once. Sizes are bytes or text such as C{"1mb"}; hooks are functions, plain or
C{async}. The options of a transport stand under its name; its row in the registry names their
class.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from attrs import evolve, field, frozen

from storagegate.core.options import (
    OptionError,
    changeOptions,
    readHostname,
    readPort,
    readTexts,
    readWord,
)
from storagegate.gateway.transports.registry import (
    TransportName,
    findTransport,
    loadReference,
    transportNames,
    transports,
)
from storagegate.net.forwarded import TrustedProxies, compileTrust

if TYPE_CHECKING:
    from storagegate.gateway.transports.grpc import GRPCOptions, GRPCOptionsDict
    from storagegate.gateway.transports.http import HTTPOptions, HTTPOptionsDict
    from storagegate.gateway.transports.tcp import TCPOptions, TCPOptionsDict
    from storagegate.gateway.transports.udp import UDPOptions, UDPOptionsDict
    from storagegate.gateway.transports.websocket import WebSocketOptions, WebSocketOptionsDict

_COMMON = ("protocols", "port", "hostname", "trustedProxies")
"""The options that belong to no transport."""


def _protocols(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = readTexts(value)
    for name in names:
        readWord(name, transportNames())
    return tuple(dict.fromkeys(names))


@frozen(kw_only=True)
class GatewayOptions:
    """
    Every option of C{createProtocolGateway}.

    In addition, each transport has a flag such as C{enableHTTP} and a group of options, see L{of}.

    @ivar protocols: The transports to enable, see L{enabled}.
    @ivar port: The port of HTTP and WebSocket.
    @ivar hostname: The interface of all transports.
    @ivar trustedProxies: The proxies whose C{X-Forwarded-For} HTTP, WebSocket and gRPC trust, see
        L{compileTrust<storagegate.net.forwarded.compileTrust>}.
    @ivar switches: The transports that a flag enables or disables, by name.
    @ivar groups: The options of transports, by name, where they differ from the defaults.
    """

    protocols: tuple[str, ...] | None = field(default=None, converter=_protocols)
    port: int = field(default=8080, converter=readPort)
    hostname: str = field(default="127.0.0.1", converter=readHostname)
    trustedProxies: Any = field(default=False)
    switches: Mapping[str, bool] = field(factory=dict)
    groups: Mapping[str, Any] = field(factory=dict)

    @trustedProxies.validator
    def _checkTrust(self, attribute: Any, value: Any) -> None:
        compileTrust(value)

    def of(self, name: str) -> Any:
        """
        Return the options of a transport.

        @param name: A transport.
        @raise KeyError: If there is no transport of that name.
        """
        found = self.groups.get(name)
        return loadReference(findTransport(name).options)() if found is None else found

    @property
    def enabled(self) -> tuple[str, ...]:
        """
        Return the names of the enabled transports.

        The base is C{protocols} if given; otherwise no transport if a flag enables one, or else
        all. Then each flag adds or removes its transport.
        """
        names = transportNames()
        base: tuple[str, ...] = names
        if self.protocols is not None:
            base = self.protocols
        elif any(self.switches.values()):
            base = ()
        return tuple(name for name in names if self.switches.get(name, name in base))


class GatewayOptionsDict(TypedDict, total=False):
    """The keywords of L{GatewayOptions}."""

    protocols: "Sequence[TransportName] | None"
    port: int
    hostname: str
    trustedProxies: TrustedProxies
    enableHTTP: bool | None
    enableWebSocket: bool | None
    enableGRPC: bool | None
    enableUDP: bool | None
    enableTCP: bool | None
    http: "HTTPOptionsDict | HTTPOptions"
    websocket: "WebSocketOptionsDict | WebSocketOptions"
    grpc: "GRPCOptionsDict | GRPCOptions"
    udp: "UDPOptionsDict | UDPOptions"
    tcp: "TCPOptionsDict | TCPOptions"


def readOptions(before: GatewayOptions, changes: Mapping[str, Any]) -> GatewayOptions:
    """
    Change some options. Options of a transport that are not named keep their values.

    @raise OptionError: If an option is unknown or its value invalid.
    """
    flags = {row.flag: row.name for row in transports()}
    common: dict[str, Any] = {}
    switches, groups = dict(before.switches), dict(before.groups)
    for name, value in changes.items():
        if name in flags:
            switches.pop(flags[name], None)
            if value is not None:
                if not isinstance(value, bool):
                    raise OptionError(f"the option {name} is True or False")
                switches[flags[name]] = value
        elif name in transportNames():
            old = before.of(name)
            if isinstance(value, Mapping):
                value = changeOptions(old, value, f"{name}.")
            elif not isinstance(value, type(old)):
                raise OptionError(f"the option {name} is a mapping of options")
            groups.pop(name, None)
            if value != type(value)():
                # Keep only non-defaults, so that given and implied defaults compare equal.
                groups[name] = value
        elif name in _COMMON:
            common[name] = value
        else:
            known = sorted((*_COMMON, *flags, *transportNames()))
            raise OptionError(f"there is no option {name}; there are {known}")
    return evolve(changeOptions(before, common), switches=switches, groups=groups)
