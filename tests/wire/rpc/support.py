"""A gRPC server in the reactor that runs the tests, which is gone when a test ends."""

from typing import Any

from twisted.trial.unittest import TestCase

from storagegate import server
from storagegate.rpc.protos import loadProto
from tests.support.interop.cases import PROTO
from tests.support.interop.service import InteropService


class RPCCase(TestCase):
    """A test with real servers."""

    timeout = 60

    def setUp(self) -> None:
        """Take the reactor that runs the tests."""
        from twisted.internet import reactor

        self.reactor: Any = reactor

    async def listen(self, app: Any) -> int:
        """Serve an application on a free port of this machine; give the port."""
        port = await app.listen(0, "127.0.0.1", reactor=self.reactor)
        self.addCleanup(app.stop, 0)
        return int(port.getHost().port)

    async def serveInterop(self, **options: Any) -> int:
        """Serve what the interoperability cases call."""
        app = server.grpc().withOptions(grpc={"compression": "gzip", "health": False, **options})
        definition = loadProto(str(PROTO)).TestService
        app.addService(definition=definition, implementation=InteropService(self.reactor))
        return await self.listen(app)
