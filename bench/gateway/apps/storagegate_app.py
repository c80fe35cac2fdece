"""
The bench's service on storagegate's gateway, over one wire.

    python storagegate_app.py PORT WIRE PROTO [CONNECTIONS]

C{CONNECTIONS} is how many it has at most, of one address too, where the default is not enough.
"""

import sys
from typing import Any

from storagegate.gateway.gateway import createProtocolGateway

TEXT = {"type": "object", "properties": {"text": {"type": "string", "required": True}}}


async def echo(request: Any, context: Any) -> Any:
    """Return the request."""
    return request


def main(port: int, wire: str, proto: str, connections: str = "") -> None:
    """Serve until the end."""
    options: dict[str, dict[str, int]] = {}
    if wire not in ("http", "websocket"):
        options[wire] = {"port": port}
        if connections:
            most = int(connections)
            options[wire] |= {"maxConnections": most, "maxConnectionsPerAddress": most}
    gateway = createProtocolGateway(protocols=[wire], port=port, **options)
    if wire == "grpc":
        names = {"bench.Echo": "Echo"}
        gateway.configureGRPC(protoFiles=[proto], services=names, methodMapping={"Once": "echo"})
    method = {"handler": echo, "input": TEXT, "output": TEXT}
    gateway.addService("Echo", {"methods": {"echo": method}})
    gateway.run()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
