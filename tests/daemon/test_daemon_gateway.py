"""The gateway's part in the daemon's start and stop, with parts that open nothing."""

from pathlib import Path

from twisted.internet.defer import Deferred, fail

from storagegate.daemon.config import ConfigurationError
from storagegate.objects.issuedkeys import KeyPair
from tests.daemon.test_daemon import DaemonCase


class GatewayStartTests(DaemonCase):
    """Which port is opened when, and what is said."""

    def test_gateway(self) -> None:
        """
        The room is made before any port is open; HTTP, UDP and TCP are bound with the others; gRPC,
        which listens as it binds, after the store; then come the services that need the store.
        """
        self.started(http="tcp:8080", tcp="tcp:9102", udp="127.0.0.1:1", grpc="127.0.0.1:2")
        directory = Path(self.data).absolute()
        self.assertEqual(
            self.parts.events,
            [
                "process tuned",
                "gateway room",
                "listen tcp:9000:interface=127.0.0.1",
                "listen tcp:9001:interface=127.0.0.1",
                "listen tcp:8080",
                "listen 127.0.0.1:1",
                "listen tcp:9102",
                "store opened",
                "listen 127.0.0.1:2",
                f"gateway attached us-east-1 {directory}",
                "heap frozen",
            ],
        )
        for name in ("http", "tcp", "udp", "grpc"):
            self.assertIn(f"listening name={name} address=127.0.0.1:50051", self.logged())

    def test_badService(self) -> None:
        """A service that cannot be loaded stops the start with one line, and no port is opened."""
        self.parts.roomError = ConfigurationError("service: x:y: cannot import x")
        line = self.exitLine(self.daemon(http="tcp:8080").privilegedStartService)
        self.assertIn("x:y: cannot import x", line)
        self.assertEqual(self.parts.events, ["process tuned", "gateway room"])

    def test_gatewayTaken(self) -> None:
        """A port that is taken stops the start with one line, and the store stays closed."""
        for name, place, start in (
            ("http", "tcp:8080", "privilegedStartService"),
            ("grpc", "127.0.0.1:50051", "startService"),
        ):
            self.setUp()
            self.parts.refused.add(place)
            daemon = self.daemon(**{name: place})
            if start == "startService":
                daemon.privilegedStartService()
            line = self.exitLine(getattr(daemon, start))
            self.assertIn(f"cannot listen name={name} endpoint={place}", line)
            self.assertNotIn("store opened", self.parts.events)


class GatewayStopTests(DaemonCase):
    """The orderly stop."""

    def test_together(self) -> None:
        """All listeners get the grace at the same time; the store waits for the last of them."""
        daemon = self.started(grpc="127.0.0.1:50051")
        self.parts.sites[0].drained = Deferred()
        self.parts.theRoom.ended = Deferred()
        stopping = daemon.stopService()
        self.assertEqual((self.parts.sites[0].grace, self.parts.theRoom.grace), (30, 30))
        self.parts.sites[0].drained.callback(None)
        self.assertNotIn("store closed", self.parts.events)
        self.parts.theRoom.ended.callback(None)
        self.successResultOf(stopping)
        self.assertIn("store closed", self.parts.events)

    def test_grpcFails(self) -> None:
        """A listener that does not close in order is logged, and the store is closed."""
        daemon = self.started(grpc="127.0.0.1:50051")
        self.parts.theRoom.ended = fail(RuntimeError("no"))
        self.successResultOf(daemon.stopService())
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertIn("store closed", self.parts.events)


class GatewayReloadTests(DaemonCase):
    """SIGHUP."""

    def test_root(self) -> None:
        """Another root key pair reaches the gateway as it reaches S3."""
        daemon = self.started(tcp="tcp:9102")
        self.next = self.configuration(tcp="tcp:9102", accessKey="root", secretKey="geheimnis")
        daemon.reload()
        self.assertEqual(self.parts.theRoom.root, KeyPair("root", "geheimnis"))
