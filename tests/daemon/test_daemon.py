"""The daemon's start, reload and stop, with parts that open nothing."""

from pathlib import Path

from twisted.internet.defer import Deferred

from storagegate.cluster.counts import Counts
from storagegate.daemon.config import Configuration, ConfigurationError, load
from storagegate.daemon.daemon import Daemon
from storagegate.daemon.service import ProcessSetup
from storagegate.objects.issuedkeys import KeyPair
from storagegate.storage.errors import StoreError
from tests.cluster.test_counts import MemoryCounts
from tests.support.log import LogCase
from tests.support.parts import FakeParts

ROOMS_OFF = dict.fromkeys(("http", "grpc", "tcp", "udp"), "off")


class DaemonCase(LogCase):
    """What the cases of this file share."""

    def setUp(self) -> None:
        """Make parts and a data directory's name."""
        super().setUp()
        self.parts = FakeParts()
        self.data = self.mktemp()
        self.pidFile = Path(self.mktemp())
        self.pidFile.write_text("1")
        self.twistdOptions = {"pidfile": str(self.pidFile)}
        self.next: Configuration | ConfigurationError | None = None

    def configuration(self, **flags: str) -> Configuration:
        """Make a configuration."""
        return load({"data": self.data, **ROOMS_OFF, **flags}, {})

    def daemon(self, **flags: str) -> Daemon:
        """Make a daemon that is not started; C{self.next} is what it reads on a reload."""

        def reload() -> Configuration:
            assert self.next is not None
            if isinstance(self.next, ConfigurationError):
                raise self.next
            return self.next

        configuration, reactor = self.configuration(**flags), self.parts.reactor
        setup = ProcessSetup(configuration, reload, reactor, self.parts, self.twistdOptions)
        return Daemon(setup)

    def started(self, **flags: str) -> Daemon:
        """Make a daemon that runs."""
        daemon = self.daemon(**flags)
        daemon.privilegedStartService()
        daemon.startService()
        return daemon

    def exitLine(self, start: object) -> str:
        """Give the line with which a start ends the process."""
        assert callable(start)
        error = self.assertRaises(SystemExit, start)
        line = str(error.code)
        self.assertEqual(len(line.splitlines()), 1)
        return line


class StartTests(DaemonCase):
    """What is done before the first request, and in which order."""

    def test_order(self) -> None:
        """Listeners are bound before privileges are shed, the store is opened after."""
        daemon = self.daemon()
        daemon.privilegedStartService()
        self.assertEqual(
            self.parts.events,
            [
                "process tuned",
                "listen tcp:9000:interface=127.0.0.1",
                "listen tcp:9001:interface=127.0.0.1",
            ],
        )
        self.assertFalse(Path(self.data).exists())
        daemon.startService()
        self.assertEqual(self.parts.events[3:], ["store opened", "heap frozen"])
        options, directory = self.parts.opened[0]
        self.assertEqual(options.durability, "full")
        self.assertEqual(directory, str(Path(self.data).absolute()))

    def test_lines(self) -> None:
        """The log says where each listener is and where the data lies."""
        self.started()
        self.assertIn("listening name=s3 address=127.0.0.1:9000", self.logged())
        self.assertIn("listening name=admin address=127.0.0.1:9001", self.logged())
        self.assertIn(f"data directory={Path(self.data).absolute()}", self.logged())

    def test_off(self) -> None:
        """A listener that is off is not opened."""
        self.started(s3="off", admin="off")
        self.assertEqual(self.parts.sites, [])
        self.assertFalse([line for line in self.logged() if line.startswith("listening")])

    def test_signals(self) -> None:
        """Signals are taken at once."""
        self.daemon().privilegedStartService()
        self.assertEqual(self.parts.theSignals.installed, 1)

    def test_taken(self) -> None:
        """A listener that cannot be opened stops the start with one line that names it."""
        self.parts.refused.add("tcp:9001:interface=127.0.0.1")
        line = self.exitLine(self.daemon().privilegedStartService)
        self.assertIn("name=admin", line)
        self.assertIn("tcp:9001:interface=127.0.0.1", line)
        self.assertIn("Address in use", line)

    def test_pidFile(self) -> None:
        """A start that is refused leaves no number of a process behind; a running one keeps it."""
        self.started()
        self.assertTrue(self.pidFile.exists())
        self.parts.storeError = StoreError("no")
        self.assertRaises(SystemExit, self.started)
        self.assertFalse(self.pidFile.exists())

    def test_late(self) -> None:
        """A listener that is not open when the daemon has to serve stops the start."""
        self.parts.pending.add("tcp:9000:interface=127.0.0.1")
        self.assertIn("name=s3", self.exitLine(self.daemon().privilegedStartService))

    def test_storeRefused(self) -> None:
        """A store that cannot be opened stops the start with one line."""
        self.parts.storeError = StoreError("another daemon\nhas this data")
        daemon = self.daemon()
        daemon.privilegedStartService()
        self.assertEqual(
            self.exitLine(daemon.startService),
            "storagegate: cannot open the data: another daemon has this data",
        )

    def test_noDirectory(self) -> None:
        """A data directory that cannot be made stops the start with one line."""
        Path(self.data).write_text("a file")
        daemon = self.daemon()
        daemon.privilegedStartService()
        self.assertIn(self.data, self.exitLine(daemon.startService))
        self.assertNotIn("store opened", self.parts.events)


class RootTests(DaemonCase):
    """The root key pair."""

    def test_generated(self) -> None:
        """The first start makes a pair and shows it with the commands for aws-cli, once."""
        self.started()
        _store, _options, root = self.parts.sites[0].resource
        self.assertEqual(len(self.parts.shown), 1)
        self.assertIn(root.secretKey, self.parts.shown[0])
        self.assertIn("aws configure set endpoint_url http://127.0.0.1:9000", self.parts.shown[0])
        self.started()
        self.assertEqual(self.parts.sites[0].resource[2], root)
        self.assertEqual(len(self.parts.shown), 1)
        # A log file is often open to others.
        self.assertEqual([line for line in self.logged() if root.secretKey in line], [])

    def test_configured(self) -> None:
        """A configured pair is used; no file of a pair is made and nothing is shown."""
        self.started(accessKey="root", secretKey="geheimnis")
        self.assertEqual(self.parts.sites[0].resource[2], KeyPair("root", "geheimnis"))
        self.assertEqual([path.name for path in Path(self.data).iterdir()], ["listeners.json"])
        self.assertNotIn("geheimnis", "".join(self.logged()))

    def test_damaged(self) -> None:
        """A damaged file stops the start before the store is opened."""
        Path(self.data).mkdir()
        (Path(self.data) / "root-credentials").write_text("")
        daemon = self.daemon()
        daemon.privilegedStartService()
        error = self.assertRaises(SystemExit, daemon.startService)
        self.assertIn("root-credentials", str(error.code))
        self.assertNotIn("store opened", self.parts.events)


class ReloadTests(DaemonCase):
    """SIGHUP."""

    def test_applied(self) -> None:
        """Region, domain, root keys and the grace are applied while serving."""
        daemon = self.started()
        self.next = self.configuration(
            region="eu",
            s3Domain="s3.example",
            accessKey="root",
            secretKey="geheimnis",
            shutdownGraceSeconds="7",
        )
        daemon.reload()
        store, options, root = self.parts.sites[0].resource
        self.assertIs(store, self.parts.theStore)
        self.assertEqual((options.region, options.domain), ("eu", "s3.example"))
        self.assertEqual(root, KeyPair("root", "geheimnis"))
        self.assertIn("configuration reloaded", self.logged())
        self.successResultOf(daemon.stopService())
        self.assertEqual(self.parts.sites[0].grace, 7)

    def test_needsRestart(self) -> None:
        """What cannot be changed while serving is named."""
        daemon = self.started()
        self.next = self.configuration(durability="os", admin="off")
        daemon.reload()
        self.assertIn("needs a restart: durability", self.logged())
        self.assertIn("needs a restart: admin", self.logged())
        self.assertNotIn("needs a restart: region", self.logged())

    def test_s3NeedsRestart(self) -> None:
        """Options of S3 that need a restart are not applied before, as the log says."""
        daemon = self.started()
        path = Path(self.mktemp())
        path.write_text('[gateway]\ntrustedProxies = "10.0.0.0/8"\n')
        self.next = self.configuration(
            config=str(path), lifecycleDaySeconds="5", region="eu", requireSignedPayload="true"
        )
        daemon.reload()
        for name in ("lifecycleDaySeconds", "gateway"):
            self.assertIn(f"needs a restart: {name}", self.logged())
        _, options, _ = self.parts.sites[0].resource
        self.assertEqual((options.trustedProxies, options.lifecycleDaySeconds), (False, 86400))
        self.assertEqual((options.region, options.requireSignedPayload), ("eu", True))

    def test_published(self) -> None:
        """Commands find the open listeners and the console also if the file has others by now."""
        daemon = self.started()
        path = Path(self.data) / "listeners.json"
        before = path.read_text()
        for admin in ("off", "ssl:9001:privateKey=key.pem:certKey=cert.pem"):
            self.next = self.configuration(admin=admin, region="eu")
            self.next.values["console"] = False  # type: ignore[index]
            daemon.reload()
            self.assertIn("needs a restart: admin", self.logged())
            self.assertEqual(path.read_text(), before.replace("us-east-1", "eu"))

    def test_otherData(self) -> None:
        """Another data directory needs a restart; until then the root pair is the one in use."""
        daemon = self.started()
        [*_, root] = self.parts.sites[0].resource
        other = Path(self.mktemp())
        self.next = self.configuration(data=str(other))
        daemon.reload()
        self.assertIn("needs a restart: data", self.logged())
        self.assertEqual(self.parts.sites[0].resource[2], root)
        self.assertFalse(other.exists())

    def test_refused(self) -> None:
        """A bad file is one line of the log; the old configuration stays."""
        daemon = self.started(region="eu")
        before = self.parts.sites[0].resource
        self.next = ConfigurationError("region (file x.toml): no")
        daemon.reload()
        self.assertIn("reload refused: region (file x.toml): no", self.logged())
        self.assertIs(self.parts.sites[0].resource, before)

    def test_damagedCredentials(self) -> None:
        """A damaged file of the root pair refuses the whole reload."""
        daemon = self.started()
        (Path(self.data) / "root-credentials").write_text("")
        before = self.parts.sites[0].resource
        self.next = self.configuration(shutdownGraceSeconds="7")
        daemon.reload()
        self.assertTrue([line for line in self.logged() if line.startswith("reload refused")])
        self.assertIs(self.parts.sites[0].resource, before)
        self.successResultOf(daemon.stopService())
        self.assertEqual(self.parts.sites[0].grace, 30)

    def test_whileStopping(self) -> None:
        """A daemon that stops does not reload."""
        daemon = self.started()
        self.parts.sites[0].drained = Deferred()
        stopping = daemon.stopService()
        daemon.reload()
        self.assertNotIn("configuration reloaded", self.logged())
        self.parts.sites[0].drained.callback(None)
        self.successResultOf(stopping)


class StopTests(DaemonCase):
    """The orderly stop."""

    def test_order(self) -> None:
        """No new connections, then drain, then close the store; the admin listener goes last."""
        daemon = self.started()
        self.parts.events.clear()
        self.successResultOf(daemon.stopService())
        self.assertEqual(
            self.parts.events,
            [
                "tcp:9000:interface=127.0.0.1 stopped listening",
                "site draining",
                "store closed",
                "tcp:9001:interface=127.0.0.1 stopped listening",
                "site draining",
            ],
        )

    def test_retired(self) -> None:
        """
        A daemon that another process replaces stops once, and does not report that the service
        ends; one that stops for good does.
        """
        for stop, status in (
            (lambda daemon: daemon.drainAndExit(2), "ok"),
            (Daemon.stopNow, "draining"),
        ):
            daemon = self.started()
            site = self.parts.sites[-2]
            site.drained = Deferred()
            before = self.parts.reactor.stopped
            stop(daemon)
            daemon.stopNow()
            self.assertEqual(self.parts.reactor.stopped, before + 1)
            stopping = daemon.stopService()
            self.assertEqual(daemon.readiness().status, status)
            site.drained.callback(None)
            self.successResultOf(stopping)

    def test_waits(self) -> None:
        """The store is open as long as something is in flight, and its end is waited for."""
        daemon = self.started()
        self.parts.sites[0].drained = Deferred()
        self.parts.theStore.closed = Deferred()
        stopping = daemon.stopService()
        self.assertNotIn("store closed", self.parts.events)
        self.parts.sites[0].drained.callback(None)
        self.assertIn("store closed", self.parts.events)
        self.assertNoResult(stopping)
        self.parts.theStore.closed.callback(None)
        self.successResultOf(stopping)

    def test_counts(self) -> None:
        """What nodes count together has its connection until the store is closed, not longer."""
        server = MemoryCounts()
        self.parts._counts = counts = Counts(lambda reactor: server, self.parts.reactor)
        counts.open()
        daemon = self.started()
        self.parts.theStore.closed = Deferred()
        stopping = daemon.stopService()
        self.assertEqual(server.closed, 0)
        self.parts.theStore.closed.callback(None)
        self.successResultOf(stopping)
        self.assertEqual(server.closed, 1)

    def test_closesTheStoreInAnyCase(self) -> None:
        """A listener that does not end in order does not keep the store from its own end."""
        daemon = self.started()
        self.parts.sites[0].drained = Deferred()
        stopping = daemon.stopService()
        self.parts.sites[0].drained.errback(ValueError("no end"))
        self.successResultOf(stopping)
        self.assertIn("store closed", self.parts.events)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_storeFails(self) -> None:
        """A store that fails at its end is logged, and the daemon ends."""
        daemon = self.started()
        self.parts.theStore.closed = Deferred()
        self.parts.theStore.closed.errback(ValueError("no end"))
        self.successResultOf(daemon.stopService())
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.assertIn("stopped", self.logged())


class NotificationTests(DaemonCase):
    """What the service manager is told, and when."""

    SERVING = "ready: serving s3 127.0.0.1:9000, admin 127.0.0.1:9001"

    def test_whenRunning(self) -> None:
        """Nothing is ready before the reactor runs."""
        self.started()
        self.assertEqual(self.parts.theNotifier.told, [])
        for function in self.parts.reactor.whenRunning:
            function()
        self.assertEqual(self.parts.theNotifier.told, [self.SERVING])

    def test_reload(self) -> None:
        """A reload begins and ends, whether it was refused or not."""
        daemon = self.started()
        for read in (self.configuration(), ConfigurationError("no")):
            self.next = read
            self.parts.theNotifier.told.clear()
            daemon.reload()
            self.assertEqual(self.parts.theNotifier.told, ["reloading", self.SERVING])

    def test_stop(self) -> None:
        """A stop is told when it begins; a daemon that stops is not ready again."""
        daemon = self.started()
        self.parts.sites[0].drained = Deferred()
        stopping = daemon.stopService()
        daemon.reload()
        told = ["stopping: stopping, requests in flight have 30 s"]
        self.assertEqual(self.parts.theNotifier.told, told)
        self.parts.sites[0].drained.callback(None)
        self.successResultOf(stopping)
        self.assertEqual(self.parts.theNotifier.told, [*told, "closed"])


class ReadinessTests(DaemonCase):
    """What C{/readyz} is told."""

    def test_ready(self) -> None:
        """A daemon that runs is ready."""
        readiness = self.started().readiness()
        self.assertEqual((readiness.status, readiness.error), ("ok", None))
        self.assertEqual(readiness.parts, {"catalog": None, "blobs": None})

    def test_storeWrong(self) -> None:
        """A store that takes no writes makes it unavailable, with the reason."""
        daemon = self.started()
        self.parts.theStore.wrong["catalog"] = "an fsync failed"
        readiness = daemon.readiness()
        self.assertEqual(readiness.status, "unavailable")
        self.assertEqual(readiness.error, "catalog: an fsync failed")

    def test_warnings(self) -> None:
        """What is worth a look is told, and the daemon stays ready."""
        daemon = self.started()
        self.parts.theStore.worth["disk"] = "12 MiB are free"
        readiness = daemon.readiness()
        self.assertEqual(readiness.status, "ok")
        self.assertEqual(readiness.warnings, {"disk": "12 MiB are free"})

    def test_draining(self) -> None:
        """A daemon that stops says so, as long as anybody can ask."""
        daemon = self.started()
        self.parts.sites[0].drained = Deferred()
        stopping = daemon.stopService()
        self.assertEqual(daemon.readiness().status, "draining")
        self.parts.sites[0].drained.callback(None)
        self.successResultOf(stopping)
        self.assertEqual(daemon.readiness().status, "draining")

    def test_notStarted(self) -> None:
        """Before the store is open, nothing is ready."""
        self.assertEqual(self.daemon().readiness().status, "unavailable")
