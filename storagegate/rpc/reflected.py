"""
Learning from a server itself what its services are.

The reflection service gives files as C{FileDescriptorProto}: those that define a service, and those
that they import, in any number of answers. It is asked in version 1 and, where a server does not
have that, in its forerunner, which is the same but for the name.
"""

import importlib
from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from twisted.internet.defer import Deferred

from storagegate.core.errors import GRPC_STATUSES, GrpcError
from storagegate.rpc.clientcall import CallOptions, ClientCall
from storagegate.rpc.definitions import RPCMethod, RPCService, serviceOf
from storagegate.rpc.standards import reflectionService
from storagegate.rpc.wire import IClientEngine

# A large company's services have some hundred files; past this somebody means harm.
_MAX_FILES = 2000
_MAX_BYTES = 32 * 1024 * 1024
_MAX_SERVICES = 1000

# These are part of protobuf itself: what they mean here does not depend on a server.
_WELL_KNOWN = "google/protobuf/"


class ReflectionError(Exception):
    """What a server tells of its services cannot be used."""


async def learnServices(
    engine: IClientEngine, deadline: float, names: Iterable[str] = ()
) -> dict[str, RPCService]:
    """
    Ask a server for services.

    @param deadline: When to give up, in seconds since 1970.
    @param names: Their full names; none for all, but those that gRPC itself has defined.
    @raise GrpcError: If it does not answer, or has no reflection.
    @raise ReflectionError: If it does not know a service, or its answers make no sense.
    """
    options = CallOptions(deadline=deadline)
    try:
        return await _Inquiry(engine, "v1", options).learn(tuple(names))
    except GrpcError as error:
        if error.status != GRPC_STATUSES["UNIMPLEMENTED"]:
            raise
    return await _Inquiry(engine, "v1alpha", options).learn(tuple(names))


class _Inquiry:
    """One conversation with a server's reflection."""

    def __init__(self, engine: IClientEngine, version: str, options: CallOptions) -> None:
        (method,) = reflectionService(version).methods.values()
        self._files: dict[str, FileDescriptorProto] = {}
        self._bytes = 0
        self._asked: Deferred[Any] = Deferred()
        self._call = ClientCall(engine, method.name, self._questions(), options)
        self._begin(method)

    def _begin(self, method: RPCMethod) -> None:
        self._call.begin(method)
        self._answers = aiter(self._call)
