"""A gateway in a group."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate.gateway.gateway import createProtocolGateway
from storagegate.gateway.serving import GatewayFront


class FrontTests(SynchronousTestCase):
    """Its listeners."""

    def test_listeners(self) -> None:
        """Each transport is shared in its own way; a guest has the listener of its carrier."""
        gateway = createProtocolGateway(port=1).configureGRPC(port=2)
        gateway.configureUDP(port=3).configureTCP(port=4)
        found = [
            (each.name, each.endpoint, each.sharing) for each in GatewayFront(gateway).listeners()
        ]
        expected = [
            ("http", "tcp:1:interface=127.0.0.1", "stream"),
            ("grpc", "127.0.0.1:2", "reuseport"),
            ("udp", "127.0.0.1:3", "datagram"),
            ("tcp", "tcp:4:interface=127.0.0.1", "stream"),
        ]
        self.assertEqual(found, expected)

    def test_relocate(self) -> None:
        """The address of a transport can be set, in the form of its listener."""
        front = GatewayFront(createProtocolGateway(protocols=["http", "grpc"]))
        front.relocate("http", "0.0.0.0:1")
        front.relocate("grpc", "2")
        found = [each.endpoint for each in front.listeners()]
        self.assertEqual(found, ["tcp:1:interface=0.0.0.0", "127.0.0.1:2"])
        self.assertEqual([front.accepts(each) for each in ("http", "tcp")], [True, False])
        self.assertEqual(front.memory, {})
