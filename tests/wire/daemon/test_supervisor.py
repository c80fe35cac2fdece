"""What the process that watches over workers binds, and when."""

import socket

from twisted.trial.unittest import SynchronousTestCase

from storagegate.daemon.config import ConfigurationError, load
from storagegate.daemon.service import ProcessSetup
from storagegate.daemon.supervisor import Supervisor
from tests.support.parts import FakeParts


class StartTests(SynchronousTestCase):
    """The two steps of a start, between which C{twistd} becomes the user that it stays."""

    def test_first(self) -> None:
        """What is wrong with a service or an option is said before any port is opened."""
        parts = FakeParts()
        parts.roomError = ConfigurationError("service: there is no such thing")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            place = f"tcp:{taken.getsockname()[1]}:interface=127.0.0.1"
            flags = {"s3": place, "workers": "2", "service": "a:B", "data": self.mktemp()}
            configuration = load(flags, {})
            setup = ProcessSetup(configuration, lambda: configuration, parts.reactor, parts)
            supervisor = Supervisor(setup)
            refused = self.assertRaises(SystemExit, supervisor.privilegedStartService)
        self.assertEqual(str(refused.code), "storagegate: service: there is no such thing")

    def test_grpc(self) -> None:
        """
        The port of gRPC is bound as the user that the workers are: the kernel shares a port that
        several processes bind among processes of one user only.
        """
        parts = FakeParts()
        off = dict.fromkeys(("s3", "admin", "http", "tcp", "udp"), "off")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            place = f"127.0.0.1:{taken.getsockname()[1]}"
            flags = {**off, "grpc": place, "workers": "2", "data": self.mktemp()}
            configuration = load(flags, {})
            setup = ProcessSetup(configuration, lambda: configuration, parts.reactor, parts)
            supervisor = Supervisor(setup)
            supervisor.privilegedStartService()
            refused = self.assertRaises(SystemExit, supervisor.startService)
        self.assertIn(f"cannot listen name=grpc endpoint={place}", str(refused.code))
