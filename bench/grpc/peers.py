"""The servers and clients that ours are compared with."""

from bench import peers
from bench.grpc.recipe import APPS, LIBRARIES, PROTO, asClient, withHTTP2

AIO = withHTTP2(peers.pythonPeer("grpc.aio", "grpc", LIBRARIES, APPS / "grpcaio_app.py"))
GRPCLIB = withHTTP2(
    peers.pythonPeer("grpclib", "grpc", ("grpclib", "h2", "protobuf"), APPS / "grpclib_app.py")
)
NODE = withHTTP2(
    peers.nodePeer(
        "grpc-js", ("@grpc/grpc-js", "@grpc/proto-loader"), APPS / "grpcjs.mjs", str(PROTO)
    )
)

AIO_CLIENT = asClient(peers.pythonPeer("grpc.aio", "grpc", LIBRARIES, APPS / "client_grpcaio.py"))
NODE_CLIENT = asClient(
    peers.nodePeer(
        "grpc-js",
        ("@grpc/grpc-js", "@grpc/proto-loader"),
        APPS / "client_grpcjs.mjs",
        str(PROTO),
    )
)
