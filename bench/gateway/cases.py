"""The cases of the gateway: 64 calls in flight over each transport."""

from attrs import evolve

from bench.cases import Asked, Case, Server
from bench.gateway import peers
from bench.gateway.recipe import GRPC_CALL, HTTP, TCP, UDP, WEBSOCKET, Transport, storagegate
from bench.grpc.peers import AIO
from bench.grpc.recipe import Call, askHTTP2


def _case(
    name: str, load: Call | Transport, rivals: tuple[Server, ...], asked: tuple[Asked, ...] = ()
) -> Case:
    server = storagegate(name)
    if name == "grpc":
        server = evolve(server, ask=askHTTP2)
    servers = (server, *rivals)
    what = f"a call over {name}"
    return Case(f"gateway/{name}", what, servers, load, "calls", quick=(64,), asked=asked)


CASES = (
    _case("http", HTTP, (peers.MOLECULER,), (Asked("moleculer", 1.5),)),
    _case("websocket", WEBSOCKET, (peers.AUTOBAHN, peers.WS), (Asked("autobahn", 0.8),)),
    _case("grpc", GRPC_CALL, (AIO,)),
    _case("tcp", TCP, (peers.TWISTED_TCP,), (Asked("twisted", 0.7),)),
    _case("udp", UDP, (peers.TWISTED_UDP,), (Asked("twisted", 0.5),)),
)
