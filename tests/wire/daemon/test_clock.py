"""The daemon while its machine's clock is set, by libfaketime."""

import os
import time
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.clients import Account
from tests.support.daemon import Daemon
from tests.support.faketime import MISSING, FakeTime
from tests.support.s3signer import Outgoing, exchange
from tests.wire.daemon.test_notify import Manager
from tests.wire.s3.fixture import ENVIRONMENT, eventually, runStoragegate

HOUR = 3600


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
        runStoragegate("keys", *arguments, *self.daemon.storeArguments, stdin=stdin)

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
        end = time.monotonic() + 5
        while self.status() == 200 and time.monotonic() < end:
            continue
        self.assertEqual(self.status(), 401)
        self.create()
        while self.status() != 200 and time.monotonic() < end:
            continue
        self.assertEqual(self.status(), 200)
        self.manager.waiting()
        self.assertTrue(self.manager.hears(2))
        self.assertEqual(self.manager.next(), ["WATCHDOG=1"])
