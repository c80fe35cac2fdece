"""The cases of the gateway: 64 calls in flight over each transport, and the invoker alone."""

from attrs import evolve

from bench.cases import FLOOR, OURS, Asked, Case, Load, Server
from bench.gateway import peers
from bench.gateway.recipe import GRPC_CALL, HTTP, TCP, UDP, WEBSOCKET, storagegate
from bench.grpc.peers import AIO
from bench.grpc.recipe import askHTTP2
from bench.loads import selfMeasured
from bench.peers import ourVersion
from bench.processes import Running

_QUICK = (64,)


def _invoke(running: Running, connections: int, seconds: float) -> Load:
    return Load(selfMeasured("bench.gateway.invoker"))


CASES = (
    Case(
        "gateway/http",
        "a call over HTTP",
        (storagegate("http"), peers.MOLECULER),
        HTTP,
        "calls",
        quick=_QUICK,
        asked=(Asked("moleculer", 1.5),),
    ),
    Case(
        "gateway/websocket",
        "a call over a WebSocket",
        (storagegate("websocket"), peers.WEBSOCKET_FLOOR, peers.AUTOBAHN, peers.WS),
        WEBSOCKET,
        "calls",
        quick=_QUICK,
        asked=(Asked("autobahn", 0.8), Asked(FLOOR, 0.65)),
    ),
    Case(
        "gateway/grpc",
        "a call over gRPC",
        (evolve(storagegate("grpc"), ask=askHTTP2), AIO),
        GRPC_CALL,
        "calls",
        quick=_QUICK,
    ),
    Case(
        "gateway/tcp",
        "a call over TCP",
        (storagegate("tcp"), peers.TCP_FLOOR, peers.TWISTED_TCP),
        TCP,
        "calls",
        quick=_QUICK,
        asked=(Asked("twisted", 0.7), Asked(FLOOR, 0.75)),
    ),
    Case(
        "gateway/udp",
        "a call over UDP",
        (storagegate("udp"), peers.UDP_FLOOR, peers.TWISTED_UDP),
        UDP,
        "calls",
        quick=_QUICK,
        asked=(Asked("twisted", 0.5), Asked(FLOOR, 0.5)),
    ),
    # A call takes at most half of what the bare echo of a frame takes.
    Case(
        "gateway/invoker",
        "a call without a transport: rate limit, API key, schemas, middleware, metrics",
        (Server(OURS, None, version=ourVersion, isOurs=True),),
        _invoke,
        "calls",
        connections=(1,),
        quick=(1,),
        asked=(Asked("twisted", 2, case="gateway/tcp", otherConnections=64),),
    ),
)
