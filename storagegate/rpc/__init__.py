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

_HOMES = {
    "Call": "storagegate.rpc.call",
    "ConversionError": "storagegate.rpc.codec",
    "GrpcError": "storagegate.core.errors",
    "MemoryRateLimitStore": "storagegate.core.ratelimit",
    "ProtoError": "storagegate.rpc.protos",
    "SharedRateLimitStore": "storagegate.core.ratelimit",
    "SharedTable": "storagegate.core.sharedtable",
    "authentication": "storagegate.rpc.middleware",
    "createGrpcClient": "storagegate.rpc.client",
    "errorHandler": "storagegate.rpc.middleware",
    "loadProto": "storagegate.rpc.protos",
    "protoPath": "storagegate.rpc.protos",
    "rateLimit": "storagegate.rpc.middleware",
    "requestLog": "storagegate.rpc.middleware",
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
