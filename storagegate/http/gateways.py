"""
The wires of gateways that an application opens beside its own port.

A gateway is whatever stands under C{gateway} in the options C{websocket}, C{grpc}, C{udp} and
C{tcp}: this room knows none by name.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from twisted.internet.defer import Deferred

from storagegate.http.options import Options

WIRES = ("websocket", "grpc", "udp", "tcp")


def configureGateways(options: Mapping[str, Any]) -> None:
    """
    Tell gateways what their groups say.

    @raise OptionError: If there is no such option, or its value is none.
    """
    for wire in WIRES:
        group = options.get(wire)
        if group is not None:
            given = {name: value for name, value in group.items() if name != "gateway"}
            group["gateway"].configureFor({wire: given})


def openGateways(options: Options, reactor: Any) -> Deferred[Any]:
    """
    Open the wires that have ports of their own.

    @return: Fails with C{CannotListenError} if a place is taken.
    """

    async def openEach() -> None:
        for gateway, wires in _gateways(options):
            await gateway.openFor([wire for wire in wires if wire != "websocket"], reactor)

    return Deferred.fromCoroutine(openEach())


def closeGateways(options: Options, graceMs: int) -> list[Deferred[None]]:
    """Close them, and the WebSockets."""
    return [gateway.stop(graceMs) for gateway, _ in _gateways(options)]


def _gateways(options: Options) -> Iterator[tuple[Any, list[str]]]:
    """Give each gateway with its wires."""
    found: dict[int, tuple[Any, list[str]]] = {}
    for wire in WIRES:
        group = getattr(options, wire)
        if group is not None:
            gateway = group["gateway"]
            found.setdefault(id(gateway), (gateway, []))[1].append(wire)
    yield from found.values()
