"""Entry points for scripts: servers in a few lines."""

from typing import TYPE_CHECKING

# Imported in the functions: a script that uses one of them does not load the other.
if TYPE_CHECKING:
    from storagegate.http.application import Application
    from storagegate.rpc.application import GRPCServer


def http() -> "Application":
    """Make an HTTP application."""
    from storagegate.http.application import Application

    return Application()


def grpc() -> "GRPCServer":
    """Make a gRPC application."""
    from storagegate.rpc.application import GRPCServer

    return GRPCServer()
