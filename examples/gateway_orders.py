r"""
One service on five transports; gRPC, TCP and UDP use the ports after the HTTP port.

    python examples/gateway_orders.py 3000

HTTP: a result, a configured route, a stream as lines of JSON, and the OpenAPI description:

    curl -d '{"item": "tea"}' http://127.0.0.1:3000/api/Orders/create
    curl http://127.0.0.1:3000/orders/1
    curl -X POST http://127.0.0.1:3000/api/Orders/list
    curl http://127.0.0.1:3000/api/openapi.json

WebSocket, in the console of a browser that shows http://127.0.0.1:3000/orders/1:

    socket = new WebSocket("ws://127.0.0.1:3000/ws"); socket.onmessage = (e) => console.log(e.data)
    socket.send('{"id": 1, "service": "Orders", "method": "create", "data": {"item": "tea"}}')

gRPC, with a client that uses reflection; TCP, one message a line; UDP, one frame a datagram:

    grpcurl -plaintext -d '{"item": "tea"}' 127.0.0.1:3001 Orders/create
    echo '{"id": 1, "service": "Orders", "method": "list"}' | nc -w 1 127.0.0.1 3002
    printf '\1\1\0\0\0\072%s' '{"id":1,"service":"Orders","method":"get","data":{"id":1}}' |
        nc -u -w 1 127.0.0.1 3003
"""

import sys
from typing import Any

from twisted.internet import defer, task

from storagegate import ServiceError, createProtocolGateway

ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "item": {"type": "string", "minLength": 1}},
}
ROUTES = {"GET /orders/:id": "Orders.get"}
orders: list[dict[str, Any]] = []


async def create(request: Any, context: Any) -> Any:
    """Take a validated request, return a result; the context has the caller and the transport."""
    orders.append({"id": len(orders) + 1, "item": request["item"]})
    print(f"{context.protocol}: {request['item']}", flush=True)
    return orders[-1]


async def find(request: Any, context: Any) -> Any:
    """Fail with a code, a message and a status; each transport has its own error format."""
    if not 1 <= request["id"] <= len(orders):
        raise ServiceError("NOT_FOUND", f"There is no order {request['id']}", 404)
    return orders[request["id"] - 1]


async def everything(request: Any, context: Any) -> Any:
    """Return a stream: it pauses while the client does not read."""
    for order in orders:
        yield order


methods = {
    "create": {"handler": create, "input": {**ORDER, "required": ["item"]}, "output": ORDER},
    "get": {"handler": find, "input": {**ORDER, "required": ["id"]}, "output": ORDER},
    "list": {"handler": everything, "output": ORDER},
}


async def main(reactor: Any, first: str = "3000") -> None:
    port = [int(first) + offset if int(first) else 0 for offset in range(4)]
    gateway = createProtocolGateway(port=port[0], http={"routes": ROUTES})
    gateway.configureGRPC(port=port[1], reflection=True).configureTCP(port=port[2])
    gateway.configureUDP(port=port[3]).addService("Orders", methods=methods)
    for wire, listening in (await gateway.listen(reactor=reactor)).items():
        print(f"{wire} listening on 127.0.0.1:{listening.getHost().port}", flush=True)
    reactor.addSystemEventTrigger("before", "shutdown", gateway.stop, 1000)
    await defer.Deferred[None]()


task.react(main, sys.argv[1:])
