"""Serve the application: C{python -m notes [HTTP] [GRPC] [WORKERS]}."""

import sys

from storagegate import server

from .app import makeApplication
from .calls import makeServer


def main(http: str = "127.0.0.1:3000", grpc: str = "127.0.0.1:50051", workers: str = "2") -> None:
    """Serve until the process is stopped."""
    app, rpc = makeApplication(), makeServer()
    rpc.dependencies = app.dependencies
    server.serve((app, http), (rpc, grpc)).run(workers=int(workers))


if __name__ == "__main__":
    main(*sys.argv[1:])
