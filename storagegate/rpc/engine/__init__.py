"""
The engines that carry gRPC calls, and the check of the installed grpcio.

One engine of servers and one of clients drive grpc core through private names of grpcio. They are
checked before the first of these in a process: if one is missing, or behaves differently, the
native engine takes over.
"""

import os
from functools import cache
from typing import Any

from twisted.logger import Logger

from storagegate.core.heldbytes import HeldBytes
from storagegate.rpc.interfaces import IClientEngine, MessageByteCounter

ENGINES = ("grpcio", "native")
"""The engines of servers and clients: grpc core, and the project's own HTTP/2."""

ENGINE_VARIABLE = "STORAGEGATE_GRPC_ENGINE"
"""The environment variable that once selected an engine, which the option C{grpc.engine} does."""

KNOWN_GRPCIO = "1.85.3"
"""The newest grpcio that the engine was tested with."""

_NEEDED = (
    "Channel",
    "CompletionQueue",
    "InitialMetadataFlags",
    "ReceiveInitialMetadataOperation",
    "ReceiveStatusOnClientOperation",
    "Server",
    "StatusCode",
    "auth_context",
    "channelz_get_server_sockets",
    "channelz_get_servers",
)
"""The private names of grpcio that L{privateNamesProblem} does not call."""


_log = Logger()


class EngineError(ValueError):
    """The installed grpcio, or the environment, does not fit the engine."""


class UnusableGrpcioError(EngineError):
    """The installed grpcio does not fit the engine."""


def privateNamesProblem() -> str | None:
    """
    Check the private names of grpcio that the engine uses.

    @return: The missing or different names; C{None} if the engine can be used.
    """
    try:
        from grpc._cython import cygrpc

        missing = [name for name in _NEEDED if not hasattr(cygrpc, name)]
        if missing:
            return f"no {', '.join(missing)}"
        cygrpc.ReceiveMessageOperation(0)
        cygrpc.ReceiveCloseOnServerOperation(0)
        cygrpc.SendCloseFromClientOperation(0)
        cygrpc.SendInitialMetadataOperation((), 0)
        cygrpc.SendMessageOperation(b"", cygrpc.WriteFlag.buffer_hint)
        cygrpc.SendStatusFromServerOperation((), 0, "", 0)
        queue = cygrpc.CompletionQueue()
        # Check an event of each kind that the queue itself produces.
        if queue.poll(0).completion_type != cygrpc.CompletionType.queue_timeout:
            return "another CompletionQueue"
        queue.shutdown()
        if queue.poll(0).completion_type != cygrpc.CompletionType.queue_shutdown:
            return "another CompletionQueue"
    except Exception as error:
        return f"other private names: {error}"
    return None


@cache
def checkEngine() -> None:
    """
    Check once that the engine can be used in this process.

    @raise EngineError: If L{ENGINE_VARIABLE} names another engine, or grpcio lacks a private name.
    """
    name = os.environ.get(ENGINE_VARIABLE, "")
    if name not in ("", "native"):
        raise EngineError(f"unset {ENGINE_VARIABLE}: there is no engine {name:.40} of gRPC")
    problem = privateNamesProblem()
    if problem is not None:
        import grpc

        version = getattr(grpc, "__version__", "of an unknown version")
        raise UnusableGrpcioError(
            f"grpcio {version} does not work with this version of storagegate, because it has"
            f" {problem}: install an older one, such as grpcio=={KNOWN_GRPCIO}"
        )


def _chooseEngine(name: str, instead: str) -> str:
    """
    Return the engine to use.

    @param name: The wanted engine.
    @param instead: The start of the log line if grpcio cannot be used.
    @raise EngineError: If the environment names another engine.
    """
    if name == "grpcio":
        try:
            checkEngine()
        except UnusableGrpcioError as error:
            _log.warn("{instead}: {error}", instead=instead, error=str(error))
            return "native"
    return name


def makeServerEngine(
    reactor: Any, options: Any, traffic: MessageByteCounter, budget: HeldBytes
) -> Any:
    """
    Make the engine of a server.

    @param reactor: The reactor that accepts calls; provides C{IReactorFromThreads} and
        C{IReactorTime}.
    @param options: L{GRPCServerOptions<storagegate.rpc.options.GRPCServerOptions>}.
    @param traffic: Counts the bytes of messages.
    @param budget: Counts the bytes of incomplete messages.
    @return: An L{IServerEngine<storagegate.rpc.interfaces.IServerEngine>}. Where grpcio cannot be
        used, the native engine.
    @raise EngineError: If the environment names another engine.
    """
    if _chooseEngine(options.engine, "the native engine serves gRPC") == "native":
        from storagegate.rpc.engine.native.server import NativeServer

        return NativeServer(reactor, options, traffic, budget)
    # Imported late: the module needs the names that were checked.
    from storagegate.rpc.engine.server import GrpcioServer

    return GrpcioServer(reactor, options.channelArguments(), traffic)


def makeClientEngine(target: str, tls: Any, options: Any, reactor: Any) -> IClientEngine:
    """
    Make the engine of a client; it connects on first use.

    @param target: The server, as a gRPC target.
    @param tls: L{GRPCClientTLS<storagegate.rpc.credentials.GRPCClientTLS>}; C{None} for plain text.
    @param options: L{GRPCServerOptions<storagegate.rpc.options.GRPCServerOptions>}.
    @param reactor: The reactor that makes calls; see L{makeServerEngine}.
    @return: Where grpcio cannot be used, the native engine.
    @raise EngineError: If the environment names another engine.
    @raise ValueError: If the certificates cannot be used.
    """
    if _chooseEngine(options.engine, "the native engine makes gRPC calls") == "native":
        from storagegate.rpc.engine.native.channel import NativeChannel

        return NativeChannel(target, tls, options, reactor)
    from storagegate.rpc.engine.client import ChannelEngine, channelArguments

    return ChannelEngine(target, tls, channelArguments(options, tls), reactor)
