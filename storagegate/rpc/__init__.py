"""
The gRPC room: a server and a client whose handlers run in the reactor thread.

The public names are imported when they are first asked for.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storagegate.rpc.call import Call as Call
    from storagegate.rpc.client import createGrpcClient as createGrpcClient
    from storagegate.rpc.protos import loadProto as loadProto

# By itself gRPC starts its threads anew in every fork of the process. They are in the way of what
# follows: once the descriptors they wait on are closed, as before any program is run, they abort
# the child. It is read when grpc is first imported; whoever has set it knows why.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

_MIDDLEWARE = "storagegate.rpc.middleware."

_HOMES = {
    "Call": "storagegate.rpc.call",
    "ConversionError": "storagegate.rpc.conversion",
    "GrpcError": "storagegate.core.errors",
    "MemoryRateLimitStore": "storagegate.core.ratestores",
    "ProtoError": "storagegate.rpc.compiling",
    "SharedRateLimitStore": "storagegate.core.sharedrates",
    "SharedTable": "storagegate.core.sharedtable",
    "authentication": _MIDDLEWARE + "authentication",
    "createGrpcClient": "storagegate.rpc.client",
    "errorHandler": _MIDDLEWARE + "errors",
    "loadProto": "storagegate.rpc.protos",
    "protoPath": "storagegate.rpc.protos",
    "rateLimit": _MIDDLEWARE + "ratelimit",
    "requestLog": _MIDDLEWARE + "requestlog",
}

__all__ = [
    "Call",
    "ConversionError",
    "GrpcError",
    "MemoryRateLimitStore",
    "ProtoError",
    "SharedRateLimitStore",
    "SharedTable",
    "authentication",
    "createGrpcClient",
    "errorHandler",
    "loadProto",
    "protoPath",
    "rateLimit",
    "requestLog",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
