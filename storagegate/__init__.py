"""
storagegate: a durable S3 server, an HTTP framework, a gRPC server and a gateway, on Twisted.

The public names are imported when they are first asked for: importing the package loads neither a
reactor nor a database.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storagegate import server as server
    from storagegate.core.errors import GrpcError as GrpcError
    from storagegate.core.errors import ServiceError as ServiceError
    from storagegate.gateway.gateway import ProtocolGateway as ProtocolGateway
    from storagegate.gateway.gateway import createProtocolGateway as createProtocolGateway
    from storagegate.rpc.client import createGrpcClient as createGrpcClient
    from storagegate.rpc.protos import loadProto as loadProto
    from storagegate.s3.resource import S3Resource as S3Resource
    from storagegate.storage.store import ObjectStore as ObjectStore

__version__ = "0.1.0"

_HOMES = {
    "GrpcError": "storagegate.core.errors",
    "ObjectStore": "storagegate.storage.store",
    "ProtocolGateway": "storagegate.gateway.gateway",
    "S3Resource": "storagegate.s3.resource",
    "ServiceError": "storagegate.core.errors",
    "createGrpcClient": "storagegate.rpc.client",
    "createProtocolGateway": "storagegate.gateway.gateway",
    "loadProto": "storagegate.rpc.protos",
}

__all__ = [
    "GrpcError",
    "ObjectStore",
    "ProtocolGateway",
    "S3Resource",
    "ServiceError",
    "__version__",
    "createGrpcClient",
    "createProtocolGateway",
    "loadProto",
    "server",
]


def __getattr__(name: str) -> object:
    if name == "server":
        return import_module("storagegate.server")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
