"""A gRPC server in a group."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.rpc import MemoryRateLimitStore, rateLimit
from storagegate.rpc.serving import GRPCFront


class FrontTests(SynchronousTestCase):
    """Its listener, and its warnings."""

    def test_listener(self) -> None:
        """Each worker binds its port; the address is that of its options, or a given one."""
        front = GRPCFront(server.grpc().withOptions(port=7, hostname="::1"))
        [own] = front.listeners()
        self.assertEqual((own.name, own.endpoint, own.sharing), ("", "[::1]:7", "reuseport"))
        front.relocate("grpc", 8)
        self.assertEqual(front.listeners()[0].endpoint, "[::1]:8")

    def test_path(self) -> None:
        """Workers cannot share a UNIX socket of gRPC."""
        front = GRPCFront(server.grpc())
        front.relocate("grpc", "unix:/run/notes.sock")
        error = self.assertRaises(ValueError, front.listeners)
        self.assertIn("workers cannot share the UNIX socket of gRPC", str(error))

    def test_rateLimits(self) -> None:
        """Workers share the default store of limits, but not a given store in memory."""
        rpc = server.grpc().use(rateLimit())
        self.assertEqual(list(GRPCFront(rpc).warnings()), [])
        rpc.use(rateLimit(store=MemoryRateLimitStore()))
        [text] = GRPCFront(rpc).warnings()
        self.assertIn("each worker has its own counts of rateLimit", text)
