"""
The gRPC package: a server and a client whose handlers run in the reactor thread.

The public names are imported on first use.
"""

import os
from typing import TYPE_CHECKING

from storagegate.core import lazyExports

# By default, gRPC restarts its threads in every fork of the process. They abort the child once the
# descriptors that they wait on are closed, as happens before it runs a program. grpc reads the
# variable when it is first imported; an existing value is kept.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

EXPORTS = (
    "storagegate.rpc.call:Call",
    "storagegate.core.context:CallContext",
    "storagegate.rpc.converters:ConversionError",
    "storagegate.core.parameters:Depends",
    "storagegate.core.errors:GrpcError",
    "storagegate.core.parameters:Header",
    "storagegate.core.ratelimit:MemoryRateLimitStore",
    "storagegate.rpc.protos:ProtoError",
    "storagegate.core.ratelimit:SharedRateLimitStore",
    "storagegate.core.sharedtable:SharedTable",
    "storagegate.rpc.middleware:authentication",
    "storagegate.rpc.client:createGrpcClient",
    "storagegate.rpc.codec:dictToMessage",
    "storagegate.rpc.middleware:errorHandler",
    "storagegate.rpc.protos:loadProto",
    "storagegate.rpc.codec:messageToDict",
    "storagegate.rpc.protos:protoPath",
    "storagegate.rpc.middleware:rateLimit",
    "storagegate.rpc.middleware:requestLog",
)

if TYPE_CHECKING:
    from storagegate.core.context import CallContext as CallContext
    from storagegate.core.errors import GrpcError as GrpcError
    from storagegate.core.parameters import Depends as Depends
    from storagegate.core.parameters import Header as Header
    from storagegate.core.ratelimit import MemoryRateLimitStore as MemoryRateLimitStore
    from storagegate.core.ratelimit import SharedRateLimitStore as SharedRateLimitStore
    from storagegate.core.sharedtable import SharedTable as SharedTable
    from storagegate.rpc.call import Call as Call
    from storagegate.rpc.client import createGrpcClient as createGrpcClient
    from storagegate.rpc.codec import dictToMessage as dictToMessage
    from storagegate.rpc.codec import messageToDict as messageToDict
    from storagegate.rpc.converters import ConversionError as ConversionError
    from storagegate.rpc.middleware import authentication as authentication
    from storagegate.rpc.middleware import errorHandler as errorHandler
    from storagegate.rpc.middleware import rateLimit as rateLimit
    from storagegate.rpc.middleware import requestLog as requestLog
    from storagegate.rpc.protos import ProtoError as ProtoError
    from storagegate.rpc.protos import loadProto as loadProto
    from storagegate.rpc.protos import protoPath as protoPath
else:
    __getattr__, __dir__ = lazyExports(__name__, EXPORTS)

__all__ = [
    "Call",
    "CallContext",
    "ConversionError",
    "Depends",
    "GrpcError",
    "Header",
    "MemoryRateLimitStore",
    "ProtoError",
    "SharedRateLimitStore",
    "SharedTable",
    "authentication",
    "createGrpcClient",
    "dictToMessage",
    "errorHandler",
    "loadProto",
    "messageToDict",
    "protoPath",
    "rateLimit",
    "requestLog",
]
