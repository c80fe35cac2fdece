"""
The bench's service on grpcio's server of threads.

    python grpcserver_app.py PORT
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

THREADS = 10
"""As the examples of grpcio have it."""

_protos, services = grpc.protos_and_services("echo.proto")


class Echo(services.EchoServicer):
    """The service."""

    def Once(self, request: Any, context: Any) -> Any:
        """Answer what was asked."""
        return request

    def Repeat(self, request: Any, context: Any) -> Iterator[Any]:
        """Answer it as often as it says."""
        for _ in range(request.copies):
            yield request

    def Chat(self, notes: Iterator[Any], context: Any) -> Iterator[Any]:
        """Answer each one."""
        yield from notes


def main(port: int) -> None:
    """Serve until the end."""
    server = grpc.server(ThreadPoolExecutor(THREADS))
    services.add_EchoServicer_to_server(Echo(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(int(sys.argv[1]))
