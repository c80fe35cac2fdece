"""What of TLS to instances stops the start of the daemon."""

from pathlib import Path

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from tests.support.daemon import DaemonFailed
from tests.support.daemonprocess import DaemonProcess


class RefusalTests(TestCase):
    """A file that is not there."""

    timeout = 120

    async def refusal(self, workers: str) -> None:
        """Check that the daemon says what is wrong in one line, and opens nothing."""
        from twisted.internet import reactor

        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        file = folder / "storagegate.toml"
        file.write_text(
            "[gateway.discovery.services.Orders]\ninstances = []\n"
            '[gateway.discovery.services.Orders.tls]\ncaFile = "/nowhere/ca.pem"\n'
        )
        daemon = DaemonProcess(reactor)
        http = "tcp:0:interface=127.0.0.1"
        given = ("--config", str(file), "--workers", workers, "--http", http)
        starting = daemon.start(folder / "data", *given)
        await self.assertFailure(Deferred.fromCoroutine(starting), DaemonFailed)
        self.assertIn(
            "gateway.discovery: the option services.Orders.tls.caFile: "
            "/nowhere/ca.pem: No such file or directory",
            daemon.log,
        )
        self.assertNotRegex(daemon.log, "listening|Traceback")
        self.assertEqual(daemon.code, 1)

    async def test_alone(self) -> None:
        """One process finds out by itself."""
        await self.refusal("1")

    async def test_workers(self) -> None:
        """Of several, no worker is started for that."""
        await self.refusal("2")
