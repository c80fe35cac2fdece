"""Serve the application: C{python -m notes PORT GRPC_PORT}."""

import sys

from twisted.internet.base import ReactorBase
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import react

from .calls import makeServer
from .web import makeApplication


async def main(reactor: ReactorBase, port: str = "3000", grpcPort: str = "50051") -> None:
    """Serve until the process is stopped."""
    app, rpc = makeApplication(), makeServer()
    # One store and one feed for both.
    rpc.dependencies = app.dependencies
    web, calls = await app.listen(int(port)), await rpc.listen(int(grpcPort))
    print(f"gRPC on 127.0.0.1:{calls.getHost().port}")
    print(f"listening on http://127.0.0.1:{web.getHost().port}", flush=True)

    def close() -> Deferred[list[None]]:
        return gatherResults([app.close(5000), rpc.stop(5000)])

    reactor.addSystemEventTrigger("before", "shutdown", close)
    await Deferred[None]()


if __name__ == "__main__":
    react(main, sys.argv[1:])
