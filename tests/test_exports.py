"""The public names of the package, and what importing it costs."""

import ast
import json
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import storagegate
import storagegate.gateway
import storagegate.http
import storagegate.rpc
from storagegate.core import exportedName
from tests.support.modules import CHECKOUT, parse

PUBLIC = [
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

GRPC = [
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

GATEWAY = [
    "CallContext",
    "Depends",
    "GatewayContext",
    "Header",
    "ProtocolGateway",
    "createProtocolGateway",
]

FRAMEWORK = [
    "Application",
    "Body",
    "CallContext",
    "Cookie",
    "Depends",
    "File",
    "Form",
    "HTTPError",
    "HTTPRequest",
    "HTTPResponse",
    "Header",
    "Headers",
    "MemoryRateLimitStore",
    "MemorySessionStore",
    "Next",
    "Path",
    "Query",
    "Request",
    "Response",
    "RouteHandler",
    "Router",
    "SQLiteSessionStore",
    "Session",
    "SharedRateLimitStore",
    "SharedTable",
    "UploadedFile",
    "WebSocket",
    "WebSocketClosed",
    "compression",
    "cors",
    "json",
    "openapi",
    "rateLimit",
    "raw",
    "requestLog",
    "sameOrigin",
    "securityHeaders",
    "session",
    "staticFiles",
    "text",
    "upload",
    "urlencoded",
]

# What only a room or a listener needs, and what would install a reactor.
HEAVY = ("twisted", "grpc", "sqlite3", "awscrt", "httptools", "autobahn", "msgspec", "asyncio")


class ExportTests(SynchronousTestCase):
    """The names."""

    def test_names(self) -> None:
        """The public names are these, and each is there."""
        self.assertEqual(sorted(storagegate.__all__), PUBLIC)
        self.assertEqual(dir(storagegate), PUBLIC)
        for name in PUBLIC:
            self.assertIsNotNone(getattr(storagegate, name))

    def test_framework(self) -> None:
        """The framework's public names are these, and each is there."""
        self.assertEqual(sorted(storagegate.http.__all__), FRAMEWORK)
        self.assertEqual(dir(storagegate.http), FRAMEWORK)
        for name in FRAMEWORK:
            self.assertTrue(callable(getattr(storagegate.http, name)))

    def test_grpc(self) -> None:
        """The public names of the gRPC room are these, and each is there."""
        self.assertEqual(sorted(storagegate.rpc.__all__), GRPC)
        self.assertEqual(dir(storagegate.rpc), GRPC)
        for name in GRPC:
            self.assertTrue(callable(getattr(storagegate.rpc, name)))

    def test_gateway(self) -> None:
        """The gateway's public names are these, and each is there."""
        self.assertEqual(sorted(storagegate.gateway.__all__), GATEWAY)
        self.assertEqual(dir(storagegate.gateway), GATEWAY)
        for name in GATEWAY:
            self.assertTrue(callable(getattr(storagegate.gateway, name)))

    def test_types(self) -> None:
        """A type checker sees each name as what it is: an import of its own, and nothing else."""
        for package in (storagegate, storagegate.gateway, storagegate.http, storagegate.rpc):
            assert package.__file__ is not None
            (guarded,) = [
                node for node in parse(Path(package.__file__)).body if isinstance(node, ast.If)
            ]
            self.assertEqual(ast.unparse(guarded.test), "TYPE_CHECKING")
            imported = {}
            for node in guarded.body:
                assert isinstance(node, ast.ImportFrom)
                (alias,) = node.names
                self.assertEqual(alias.asname, alias.name)
                imported[alias.name] = f"{node.module}:{alias.name}"
            listed = {exportedName(export): export for export in package.EXPORTS}
            if "server" in listed:
                self.assertEqual(listed.pop("server"), imported.pop("server").replace(":", "."))
            self.assertEqual(imported, listed)
            self.assertEqual({*package.__all__} - {"__version__", "server"}, set(listed))

    def test_unknown(self) -> None:
        """A name that is not public is an error that says so."""
        for module in (storagegate, storagegate.gateway, storagegate.http, storagegate.rpc):
            error = self.assertRaises(AttributeError, getattr, module, "Nothing")
            self.assertIn("'Nothing'", str(error))

    def test_light(self) -> None:
        """Importing the package loads none of what its rooms need."""
        script = "import json, sys, storagegate; json.dump(sorted(sys.modules), sys.stdout)"
        result = subprocess.run(
            [sys.executable, "-c", script], cwd=CHECKOUT, capture_output=True, check=True
        )
        loaded = json.loads(result.stdout)
        self.assertIn("storagegate", loaded)
        for heavy in HEAVY:
            self.assertNotIn(heavy, loaded)
