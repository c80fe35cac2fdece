"""
The client of a gateway, over each of its transports.

The files from the caller to the wire::

    client.py       createGatewayClient(url, ...): options, credentials, calls
    call.py         one call: an awaitable and an asynchronous iterable; deadline, retries
    transports.py   the interface between a call and a transport
    session.py      calls as messages, without input or output: ids, requests, replies
    formats.py      messages as frames, JSON or MessagePack
    connections.py  many calls on one connection, which is made again when it is lost
    http.py, websocket.py, tcp.py, udp.py   one transport each

gRPC is in L{storagegate.gateway.transports.grpc.client}. The table of transports
(L{storagegate.gateway.transports.registry}) names the client of each.

L{storagegate.gateway.testing} drives the same sessions and formats in memory.
"""

from typing import TYPE_CHECKING

from storagegate.core import lazyExports

EXPORTS = (
    "storagegate.gateway.client.call:GatewayCall",
    "storagegate.gateway.client.client:RemoteGateway",
    "storagegate.gateway.client.client:createGatewayClient",
)

if TYPE_CHECKING:
    from storagegate.gateway.client.call import GatewayCall as GatewayCall
    from storagegate.gateway.client.client import RemoteGateway as RemoteGateway
    from storagegate.gateway.client.client import createGatewayClient as createGatewayClient
else:
    __getattr__, __dir__ = lazyExports(__name__, EXPORTS)

__all__ = ["GatewayCall", "RemoteGateway", "createGatewayClient"]
