"""
The gateway: one service definition, answered over HTTP, WebSocket, gRPC, UDP and TCP.

The public names are imported on first use.
"""

from typing import TYPE_CHECKING

from storagegate.core import lazyExports

EXPORTS = (
    "storagegate.core.context:CallContext",
    "storagegate.core.parameters:Depends",
    "storagegate.core.context:GatewayContext",
    "storagegate.core.parameters:Header",
    "storagegate.gateway.gateway:ProtocolGateway",
    "storagegate.gateway.gateway:createProtocolGateway",
)

if TYPE_CHECKING:
    from storagegate.core.context import CallContext as CallContext
    from storagegate.core.context import GatewayContext as GatewayContext
    from storagegate.core.parameters import Depends as Depends
    from storagegate.core.parameters import Header as Header
    from storagegate.gateway.gateway import ProtocolGateway as ProtocolGateway
    from storagegate.gateway.gateway import createProtocolGateway as createProtocolGateway
else:
    __getattr__, __dir__ = lazyExports(__name__, EXPORTS)

__all__ = [
    "CallContext",
    "Depends",
    "GatewayContext",
    "Header",
    "ProtocolGateway",
    "createProtocolGateway",
]
