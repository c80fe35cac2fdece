"""The daemon while its machine's clock is set, by libfaketime."""

import json
import os
import sys
from base64 import b64encode
from collections.abc import Mapping
from hashlib import md5
from pathlib import Path
from threading import Event
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.clients import ROOT, Account, runTool
from tests.support.contention import Stopwatch
from tests.support.daemon import Daemon, daemonEnvironment
from tests.support.faketime import MISSING, FakeTime
from tests.support.s3signer import Answer, Outgoing, exchange
from tests.support.selection import long, soak
from tests.wire.daemon.test_notify import Manager
from tests.wire.s3.fixture import ENVIRONMENT, eventually, runKeys

HOUR = 3600
DAY = 24 * HOUR

pause = Event()
"""An event that is never set. The daemon keeps its own time, which the test has to wait for."""


@long("runs libfaketime")
class SetBackTests(SynchronousTestCase):
    """Set back by an hour."""

    skip = MISSING or None

    def setUp(self) -> None:
        """Start a daemon under a manager."""
        data = Path(self.mktemp()).absolute()
        self.clock = FakeTime(data.with_suffix(".clock"))
        self.manager = Manager(f"@storagegate-clock-{os.getpid()}-{id(self)}")
        self.addCleanup(self.manager.close)
        watched = {"NOTIFY_SOCKET": self.manager.place, "WATCHDOG_USEC": "400000"}
        environment = {**ENVIRONMENT, **self.clock.environment, **watched}
        self.daemon = Daemon(data, environment=environment)
        self.addCleanup(self.daemon.kill)
        self.daemon.start()
        self.account = Account("SETBACKKEY", "secret-of-set-back")

    def status(self) -> int:
        """Give the status of a request of the account, by its pair, which has no date."""
        request = Outgoing("GET", "/", self.account.plainHeaders())
        return exchange(self.daemon.address(), request).status

    def keys(self, *arguments: str, stdin: str = "") -> None:
        """Run a command for keys, beside the daemon and by the machine's clock."""
        runKeys(*arguments, *self.daemon.storeArguments, stdin=stdin)

    def assertSoon(self, status: int) -> None:
        """Check that requests of the account have a status within seconds."""
        watch = Stopwatch()
        self.assertTrue(eventually(lambda: self.status() == status))
        self.assertLess(watch.seconds(), 5)

    def create(self) -> None:
        """Issue the key of the account."""
        named = ("--account", "someone", "--access-key", self.account.accessKey)
        self.keys("create", *named, "--secret-stdin", stdin=f"{self.account.secretKey}\n")

    def test_timers(self) -> None:
        """Keys are issued and revoked within a second, and the watchdog is fed, as before."""
        self.create()
        self.assertTrue(eventually(lambda: self.status() == 200))
        self.clock.set(-HOUR)
        self.keys("revoke", "--access-key", self.account.accessKey)
        self.assertSoon(401)
        self.create()
        self.assertSoon(200)
        self.manager.waiting()
        self.assertTrue(self.manager.hears(2))
        self.assertEqual(self.manager.next(), ["WATCHDOG=1"])


@long("runs libfaketime")
class StepTests(SynchronousTestCase):
    """Set ahead by a year, or behind, with objects that expire and objects that are locked."""

    skip = MISSING or None

    workers = 1

    def setUp(self) -> None:
        """Start a daemon of short days."""
        data = Path(self.mktemp()).absolute()
        self.clock = FakeTime(data.with_suffix(".clock"))
        short = {"STORAGEGATE_LIFECYCLE_DAY_SECONDS": "1"}
        self.daemon = self.makeDaemon(data, {**ENVIRONMENT, **self.clock.environment, **short})
        self.addCleanup(self.daemon.kill)
        self.daemon.start()

    def makeDaemon(self, data: Path, environment: Mapping[str, str]) -> Daemon:
        """Make the daemon."""
        return Daemon(data, "--workers", str(self.workers), environment=environment)

    def send(
        self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] = {}
    ) -> Answer:
        """Send a request with the root pair, which has no date."""
        fields = {**ROOT.plainHeaders(), **headers}
        if body:
            fields["content-md5"] = b64encode(md5(body).digest()).decode()
        return exchange(self.daemon.address(), Outgoing(method, target, fields, body))

    def ready(self) -> tuple[int, Any]:
        """Ask the daemon whether it is ready."""
        found = exchange(self.daemon.address("admin"), Outgoing("GET", "/readyz", {}))
        return found.status, json.loads(found.body)

    def warning(self) -> str:
        """Give the warning of the clock; the daemon is ready in spite of it."""
        status, document = self.ready()
        self.assertEqual((status, document["status"]), (200, "ok"))
        return str(document.get("warnings", {}).get("clock", ""))

    def makeBuckets(self) -> str:
        """Make an object that expires, and a locked version; give its id."""
        self.assertEqual(self.send("PUT", "/expiring").status, 200)
        rule = (
            "<Rule><ID>e</ID><Status>Enabled</Status><Filter/><Expiration><Days>3600</Days>"
            "</Expiration></Rule>"
        )
        document = f"<LifecycleConfiguration>{rule}</LifecycleConfiguration>".encode()
        self.assertEqual(self.send("PUT", "/expiring?lifecycle", document).status, 200)
        self.assertEqual(self.send("PUT", "/expiring/k", b"x").status, 200)
        lock = {"x-amz-bucket-object-lock-enabled": "true"}
        self.assertEqual(self.send("PUT", "/locked", headers=lock).status, 200)
        return self.putLocked()

    def putLocked(self) -> str:
        """Store a version under the default of 30 days; give its id."""
        default = "<DefaultRetention><Mode>COMPLIANCE</Mode><Days>30</Days></DefaultRetention>"
        document = (
            "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>"
            f"<Rule>{default}</Rule></ObjectLockConfiguration>"
        ).encode()
        self.assertEqual(self.send("PUT", "/locked?object-lock", document).status, 200)
        stored = self.send("PUT", "/locked/k", b"x")
        self.assertEqual(stored.status, 200, stored)
        return stored.headers["x-amz-version-id"]

    def confirm(self) -> str:
        """Have the daemon trust the clock, by the command."""
        code = "import sys; from storagegate.cli.main import main; sys.exit(main())"
        command = [
            sys.executable,
            "-c",
            code,
            "clock",
            "confirm",
            "--url",
            self.daemon.url("admin"),
        ]
        return runTool(command, daemonEnvironment(ENVIRONMENT))

    def delete(self, version: str) -> int:
        """Try to remove a locked version."""
        return self.send("DELETE", f"/locked/k?versionId={version}").status

    def test_ahead(self) -> None:
        """
        A year ahead for some seconds: nothing that a date protects is removed, by the life cycle or
        a client, and the daemon says why. An operator's word has it go on.
        """
        version = self.makeBuckets()
        self.assertEqual(self.warning(), "")
        self.clock.set(366 * DAY)
        self.assertEqual({self.delete(version) for _ in range(8)}, {403})
        self.daemon.waitForLog("the clock was set 366 days ahead")
        # Several days of the life cycle's go by.
        pause.wait(3)
        self.assertIn("was set 366 days ahead", self.warning())
        self.assertEqual(self.send("GET", "/expiring/k").status, 200)
        self.clock.set(0)
        self.daemon.waitForLog("the clock was set 366 days back")
        self.assertEqual(self.delete(version), 403)
        self.assertEqual(self.send("GET", "/expiring/k").status, 200)
        self.assertIn("removals by date resume", self.confirm())
        self.assertTrue(eventually(lambda: not self.warning()))
        self.assertEqual(self.delete(version), 403)
        # Confirmed, the date counts.
        self.clock.set(366 * DAY)
        self.daemon.waitForLog("(?s)366 days back.*366 days ahead")
        self.confirm()
        self.assertTrue(eventually(lambda: self.send("GET", "/expiring/k").status == 404))
        self.assertEqual({self.delete(version) for _ in range(8)}, {204})

    def test_start(self) -> None:
        """The same at a start: the catalog has both clocks of before."""
        version = self.makeBuckets()
        self.daemon.stop()
        self.clock.set(366 * DAY)
        self.daemon.start()
        pause.wait(3)
        self.assertEqual(self.send("GET", "/expiring/k").status, 200)
        self.assertEqual(self.delete(version), 403)
        self.assertIn("is 366 days ahead of the newest date in the catalog", self.warning())

    def test_behind(self) -> None:
        """What is locked while the clock is 31 days behind is locked when it is right again."""
        self.makeBuckets()
        self.daemon.stop()
        self.clock.set(-31 * DAY)
        self.daemon.start()
        version = self.putLocked()
        said = self.warning()
        self.daemon.stop()
        self.clock.set(0)
        self.daemon.start()
        self.assertEqual(self.delete(version), 403)
        self.assertEqual(self.warning(), "")
        self.assertIn("is 31 days behind the newest date", said)


@soak("the same promises once more")
class WorkersStepTests(StepTests):
    """The same by two processes of one store."""

    workers = 2

    @long("runs libfaketime")
    def test_ahead(self) -> None:
        """See L{StepTests.test_ahead}."""
        super().test_ahead()
