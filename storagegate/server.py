"""Entry points for scripts: servers in a few lines, and several of them in one program."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Union

from storagegate.serving import currentWorker

# Imported in the functions: a script that uses one of them does not load the other.
if TYPE_CHECKING:
    from storagegate.gateway.gateway import ProtocolGateway
    from storagegate.http.application import Application
    from storagegate.rpc.application import GRPCServer
    from storagegate.serving.group import ServerGroup

Server = Union["Application", "GRPCServer", "ProtocolGateway"]
"""A server that L{serve} accepts."""


def http() -> "Application":
    """Make an HTTP application."""
    from storagegate.http.application import Application

    return Application()


def grpc() -> "GRPCServer":
    """Make a gRPC application."""
    from storagegate.rpc.application import GRPCServer

    return GRPCServer()


def serve(*servers: "Server | tuple[Server, int | str]") -> "ServerGroup":
    """
    Combine servers that one program opens and closes together::

        serve(app, rpc, gateway).run(workers=2)
        serve((app, 3000), (rpc, "0.0.0.0:50051")).run()

    In a program that runs the reactor itself, C{await serve(app, rpc).listen()} opens all of them,
    and C{close()} drains all of them.

    @param servers: Applications, gRPC servers and gateways. Each listens at the address of its
        options, or in a pair at the given one: a port, C{HOST:PORT}, C{unix:PATH} or an endpoint
        string. A gateway takes its addresses from its options only.
    @raise TypeError: If one of them is no server.
    @raise ValueError: If an address is invalid, or there is no server.
    """
    from storagegate.serving.group import makeGroup

    return makeGroup(*servers)


def broadcast(topic: str, payload: Any) -> None:
    """
    Send a message to the other workers of this program; does nothing without workers.

    @param topic: Selects the functions registered with L{subscribe}.
    @param payload: Any value that JSON can represent.
    @raise ValueError: The payload has more than 16 MiB as JSON.
    """
    worker = currentWorker()
    if worker is not None:
        worker.link.broadcast(topic, payload)


def subscribe(topic: str, callback: Callable[[Any], object]) -> None:
    """
    Register a function for the messages of the other workers of this program.

    @param topic: The topic that they pass to L{broadcast}.
    @param callback: Called with the payload of each message, in the reactor thread.
    """
    worker = currentWorker()
    if worker is not None:
        worker.link.subscribe(topic, callback)
