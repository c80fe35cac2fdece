"""
storagegate: a durable S3 server, an HTTP framework, a gRPC server and a gateway, on Twisted.

Public names are imported on first access: importing the package loads neither a reactor nor a
database.
"""

from typing import TYPE_CHECKING

from storagegate.core import lazyExports
from storagegate.version import __version__

EXPORTS = (
    "storagegate.core.errors:GrpcError",
    "storagegate.storage.store:ObjectStore",
    "storagegate.gateway.gateway:ProtocolGateway",
    "storagegate.s3.resource:S3Resource",
    "storagegate.core.errors:ServiceError",
    "storagegate.gateway.client.client:createGatewayClient",
    "storagegate.rpc.client:createGrpcClient",
    "storagegate.gateway.gateway:createProtocolGateway",
    "storagegate.rpc.protos:loadProto",
    "storagegate.server",
)

if TYPE_CHECKING:
    from storagegate import server as server
    from storagegate.core.errors import GrpcError as GrpcError
    from storagegate.core.errors import ServiceError as ServiceError
    from storagegate.gateway.client.client import createGatewayClient as createGatewayClient
    from storagegate.gateway.gateway import ProtocolGateway as ProtocolGateway
    from storagegate.gateway.gateway import createProtocolGateway as createProtocolGateway
    from storagegate.rpc.client import createGrpcClient as createGrpcClient
    from storagegate.rpc.protos import loadProto as loadProto
    from storagegate.s3.resource import S3Resource as S3Resource
    from storagegate.storage.store import ObjectStore as ObjectStore
else:
    __getattr__, __dir__ = lazyExports(__name__, EXPORTS)

__all__ = [
    "GrpcError",
    "ObjectStore",
    "ProtocolGateway",
    "S3Resource",
    "ServiceError",
    "__version__",
    "createGatewayClient",
    "createGrpcClient",
    "createProtocolGateway",
    "loadProto",
    "server",
]
