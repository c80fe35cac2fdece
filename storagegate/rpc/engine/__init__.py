"""
The engines that carry gRPC calls, and the choice between them.

The native engine drives grpc core through private names of grpcio. If the installed grpcio lacks
one of them, or one behaves differently, the public but slower C{grpc.aio} is used instead.
"""

import os
from collections.abc import Sequence
from functools import cache
from typing import Any

from twisted.logger import Logger

from storagegate.rpc.interfaces import IClientEngine, MessageByteCounter

ENGINE_VARIABLE = "STORAGEGATE_GRPC_ENGINE"
"""
The environment variable that selects the engine, C{native} or C{aio}; by default it is chosen
automatically.
"""

_NEEDED = (
    "AioServer",
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


def privateNamesProblem() -> str | None:
    """
    Check the private names of grpcio that the native engine uses.

    @return: The missing or different names; C{None} if the native engine can be used.
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
def engineName() -> str:
    """
    Choose the engine of this process, C{native} or C{aio}; a fallback to C{aio} is logged.

    @raise ValueError: If L{ENGINE_VARIABLE} names neither.
    """
    name = os.environ.get(ENGINE_VARIABLE, "")
    if name not in ("", "native", "aio"):
        raise ValueError(f"{ENGINE_VARIABLE} is native or aio, not {name:.40}")
    if name:
        return name
    problem = privateNamesProblem()
    if problem is None:
        return "native"
    import grpc

    version = getattr(grpc, "__version__", "of an unknown version")
    _log.warn(
        "grpcio {version} has {problem}: gRPC runs on its public grpc.aio, which is slower",
        version=version,
        problem=problem,
    )
    return "aio"


def makeServerEngine(
    reactor: Any, arguments: Sequence[tuple[str, Any]], traffic: MessageByteCounter
) -> Any:
    """
    Make the engine of a server.

    @param reactor: The reactor that accepts calls; provides C{IReactorFromThreads} and
        C{IReactorTime}.
    @param arguments: The channel arguments of grpc core.
    @param traffic: Counts the bytes of messages.
    @return: An L{IServerEngine<storagegate.rpc.interfaces.IServerEngine>} with C{bind} and
        C{discard}.
    """
    if engineName() == "native":
        from storagegate.rpc.engine.server import GrpcioServer

        return GrpcioServer(reactor, arguments, traffic)
    from storagegate.rpc.engine.aioserver import AioServer

    return AioServer(reactor, arguments, traffic)


def makeClientEngine(
    target: str, credentials: Any, arguments: Sequence[tuple[str, Any]], reactor: Any
) -> IClientEngine:
    """
    Make the engine of a client; it connects on first use.

    @param target: The server, as a gRPC target.
    @param credentials: C{grpc.ChannelCredentials}; C{None} for plain text.
    @param arguments: The channel arguments.
    @param reactor: The reactor that makes calls; see L{makeServerEngine}.
    """
    if engineName() == "native":
        from storagegate.rpc.engine.client import ChannelEngine

        return ChannelEngine(target, credentials, arguments, reactor)
    from storagegate.rpc.engine.aio import AioChannel

    return AioChannel(target, credentials, arguments, reactor)
