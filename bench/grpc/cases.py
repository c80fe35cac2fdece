"""The cases of gRPC: one connection of h2load, with several calls in flight."""

from bench.cases import Asked, Case
from bench.grpc.peers import AIO, GRPCLIB, NODE
from bench.grpc.recipe import COPIES, NATIVE, OURS, Call, withHTTP2

_SERVER = withHTTP2(OURS)
_ALL = (_SERVER, withHTTP2(NATIVE), AIO, GRPCLIB, NODE)

CASES = (
    Case(
        "grpc/unary",
        "unary calls",
        _ALL,
        Call("Once"),
        "calls",
        connections=(64, 1),
        quick=(64,),
        asked=(
            Asked("grpc.aio", 1.15),
            Asked("grpc-js", 2.5, ours=NATIVE.name),
            Asked("grpc.aio", 5, ours=NATIVE.name),
        ),
    ),
    Case(
        "grpc/server",
        "streams of 1,000 responses",
        _ALL,
        Call("Repeat", answered=COPIES),
        "messages",
        connections=(4,),
        quick=(4,),
        asked=(Asked("grpc.aio", 1.5), Asked("grpc-js", 2, ours=NATIVE.name)),
    ),
    Case(
        "grpc/bidi",
        "1,000 messages there and back on a stream",
        _ALL,
        Call("Chat", sent=COPIES, answered=COPIES),
        "messages",
        connections=(4,),
        quick=(4,),
        asked=(Asked("grpc-js", 1.8, ours=NATIVE.name),),
    ),
    Case(
        "grpc/open300",
        "unary calls beside 300 open streams",
        _ALL,
        Call("Once", held=300),
        "calls",
        quick=(64,),
        # Memory that one round made a server take is still there in the next one.
        isFresh=True,
        asked=(
            Asked("", 100, figure="p99Ms", text="p99 in ms", isMost=True),
            Asked("", 40, figure="grownMegabytes", text="memory of the streams in MB", isMost=True),
        ),
    ),
)
