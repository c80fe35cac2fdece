"""Servers in a few lines: what a script begins with."""

from typing import TYPE_CHECKING

# Imported by the functions: a script that uses one of them does not load the other.
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
