"""The cases of gRPC: servers by one connection of h2load, and clients by calls in flight."""

from bench.cases import Asked, Case
from bench.grpc.peers import AIO, AIO_CLIENT, GRPCLIB, NODE, NODE_CLIENT
from bench.grpc.recipe import (
    COPIES,
    NATIVE,
    NATIVE_CLIENT,
    OUR_CLIENT,
    OURS,
    Call,
    ClientLoad,
    withHTTP2,
)

_SERVER = withHTTP2(OURS)
_CLIENTS = (NATIVE_CLIENT, OUR_CLIENT, AIO_CLIENT, NODE_CLIENT)
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
    Case(
        "grpc/client-unary",
        "unary calls of a client",
        _CLIENTS,
        ClientLoad("once"),
        "calls",
        quick=(64,),
    ),
    Case(
        "grpc/client-server",
        "streams of 1,000 responses, read by a client",
        _CLIENTS,
        ClientLoad("repeat"),
        "messages",
        connections=(4,),
        quick=(4,),
    ),
    Case(
        "grpc/client-bidi",
        "1,000 messages there and back on a stream of a client",
        _CLIENTS,
        ClientLoad("chat"),
        "messages",
        connections=(4,),
        quick=(4,),
    ),
)
