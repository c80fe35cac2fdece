"""Whether a port can be had."""

import socket

from twisted.internet.error import CannotListenError
from twisted.trial.unittest import SynchronousTestCase

from storagegate.rpc.application import checkAddress


class PlaceTests(SynchronousTestCase):
    """Ports of this machine."""

    def refused(self, host: str, port: int, isShared: bool = False) -> str:
        """Give the reason why a port cannot be had."""
        error = self.assertRaises(CannotListenError, checkAddress, host, port, isShared)
        return str(error)

    def test_free(self) -> None:
        """A free port passes, again and again: it is not kept open."""
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
        for _ in range(2):
            checkAddress("127.0.0.1", port, False)
        with socket.create_server(("127.0.0.1", port)):
            pass

    def test_any(self) -> None:
        """Port 0 can always be had, by the name of a host as well, and on all interfaces."""
        for host in ("127.0.0.1", "localhost", "0.0.0.0"):
            checkAddress(host, 0, False)

    def test_left(self) -> None:
        """One that was left a moment ago, with connections, can be had again."""
        with socket.create_server(("127.0.0.1", 0)) as other:
            place = other.getsockname()
            with socket.create_connection(place) as client:
                # The end that closes first waits for stray packets, RFC 9293 section 3.6.1.
                other.accept()[0].close()
                self.assertEqual(client.recv(1), b"")
        checkAddress(*place, False)

    def test_taken(self) -> None:
        """A taken port fails with the reason; on all interfaces, too."""
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            for host in ("127.0.0.1", "0.0.0.0"):
                said = self.refused(host, port)
                self.assertIn("Address already in use", said)
                self.assertIn(f"{host}:{port}", said)

    def test_shared(self) -> None:
        """A shared port passes if it is shared here, too, and only then."""
        with socket.create_server(("127.0.0.1", 0), reuse_port=True) as other:
            port = other.getsockname()[1]
            checkAddress("127.0.0.1", port, True)
            self.refused("127.0.0.1", port, False)
        with socket.create_server(("127.0.0.1", 0)) as other:
            self.refused("127.0.0.1", other.getsockname()[1], True)

    def test_noPlace(self) -> None:
        """An address of another machine, and a name of none, cannot be had."""
        self.assertIn("Cannot assign", self.refused("192.0.2.1", 0))
        self.assertIn("300.300.300.300", self.refused("300.300.300.300", 0))
