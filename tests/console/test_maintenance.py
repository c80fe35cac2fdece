"""Maintenance, the doctor, the configuration and its reload, by the API."""

import os
import sqlite3
import time
from contextlib import closing
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.daemon.consoleview import tableOptions
from tests.console.fixture import ConsoleCase
from tests.support.daemon import Daemon
from tests.support.selection import long
from tests.wire.s3.fixture import eventually, makeDaemon, ownDirectory, runStoragegate

_FILE = """
region = "eu-test-1"
heldBytes = "128mb"
[gateway.monitoring.logging]
level = "info"
"""


class TableTests(SynchronousTestCase):
    """Options of the tables of the file."""

    def test_secrets(self) -> None:
        """Texts that may be secrets are hidden, by their name, a name above, or what they are."""
        table = {
            "port": 1,
            "text": "shown",
            "jwtSecret": "s1",
            "tokens": {"of": ["s2", 3]},
            "services": [{"url": "http://u:s4@host/", "name": "a"}],
            "catalog": ["host=x password=s5"],
            "list": ["x", True],
        }
        found = dict(tableOptions("gateway", table))
        hidden = "***"
        self.assertEqual(
            found,
            {
                "gateway.port": 1,
                "gateway.text": "shown",
                "gateway.jwtSecret": hidden,
                "gateway.tokens.of": [hidden, 3],
                "gateway.services[0].url": hidden,
                "gateway.services[0].name": "a",
                "gateway.catalog": [hidden],
                "gateway.list": ["x", True],
            },
        )


class OwnDaemonCase(ConsoleCase):
    """Tests of a daemon of their own, with a file."""

    flags: tuple[str, ...] = ()

    def startDaemon(self) -> Daemon:
        """Start it, until the test ends."""
        directory = ownDirectory("maintenance")
        self.file = directory / "storagegate.toml"
        self.file.write_text(_FILE)
        daemon = makeDaemon(directory / "data", "--config", str(self.file), *self.flags)
        self.addCleanup(daemon.kill)
        return daemon.start()

    def configuration(self) -> dict[str, Any]:
        """Return the keys by name."""
        return {each["key"]: each for each in self.call("GET", "config").json}


class MaintenanceTests(OwnDaemonCase):
    """One process."""

    def test_configuration(self) -> None:
        """Each key has its value and origin; secrets are hidden, also from the root pair."""
        found = self.configuration()
        self.assertEqual(
            {name: found[name]["value"] for name in ("region", "heldBytes", "workers", "data")},
            {
                "region": "eu-test-1",
                "heldBytes": 128 << 20,
                "workers": 1,
                "data": str(self.daemon.data),
            },
        )
        self.assertEqual(found["region"]["origin"], f"file {self.file}")
        self.assertEqual(found["data"]["origin"], "flag --data")
        self.assertEqual(found["logLevel"]["origin"], "default")
        self.assertEqual(found["secretKey"]["value"], "***")
        self.assertEqual(found["secretKey"]["origin"], "variable STORAGEGATE_SECRET_KEY")
        self.assertEqual(found["gateway.monitoring.logging.level"]["value"], "info")
        self.assertEqual((found["region"]["sighup"], found["data"]["sighup"]), (True, False))

    def test_reload(self) -> None:
        """A reload applies what it can and names what takes a restart; a wrong file is refused."""
        text = self.file.read_text().replace("eu-test-1", "eu-test-2")
        self.file.write_text('durability = "os"\n' + text)
        found = self.call("POST", "config/reload")
        self.assertEqual(found.status, 200, found)
        self.assertEqual(
            found.json, {"applied": ["region"], "needRestart": ["durability"], "replacing": 0}
        )
        after = self.configuration()
        self.assertEqual(after["region"]["value"], "eu-test-2")
        # It is still what the store was opened with.
        self.assertEqual(after["durability"]["value"], "full")
        self.file.write_text("durability = 7\n")
        refused = self.call("POST", "config/reload")
        self.assertEqual((refused.status, refused.json["error"]), (409, "FAILED_PRECONDITION"))
        self.assertIn("durability", refused.json["message"])
        self.assertEqual(self.configuration()["region"]["value"], "eu-test-2")
        self.daemon.waitForLog("console: reloadConfiguration")

    def test_clock(self) -> None:
        """A clock that was not set is confirmed, and it is noted who did."""
        before = int(time.time() * 1000)
        found = self.call("POST", "clock/confirm").json
        self.assertFalse(found["wasStepped"])
        self.assertTrue(before <= found["nowMs"] <= time.time() * 1000, found)
        self.daemon.waitForLog("console: confirmClock")

    @long("takes seconds")
    def test_doctor(self) -> None:
        """
        The doctor examines this daemon's file. The result of fsck is noted for the daemon that
        starts after it.
        """
        self.file.write_text(_FILE + "[gateway.nonsense]\n")
        found = self.call("POST", "doctor").json
        checks = {each["check"] for each in found["findings"]}
        self.assertIn("configuration", checks)
        wrong = [each["text"] for each in found["findings"] if each["level"] == "problem"]
        self.assertTrue(any("nonsense" in text for text in wrong), found)
        self.assertFalse(found["ok"])
        self.file.write_text(_FILE)
        self._fsck()

    @long("takes seconds")
    def test_damage(self) -> None:
        """Damage is named by bucket and key, with the times of syncs and the last commands."""
        bucket = self.makeBucket()
        self.s3.put_object(Bucket=bucket, Key="d/ü", Body=bytes(2 << 20))
        empty = self.call("GET", "maintenance").json
        self.assertEqual((empty["damaged"], empty["damagedCount"]), ([], 0))
        self.assertEqual((empty["fsck"], empty["backup"], empty["absent"]), (None, None, []))
        kinds = {each["kind"]: each for each in empty["syncs"]}
        self.assertEqual(set(kinds), {"commit", "file", "directory"})
        self.assertGreater(kinds["commit"]["count"], 0)
        self.assertGreater(kinds["commit"]["p99Ms"], 0)
        self.assertGreater(empty["walBytes"], 0)
        target = ownDirectory("copy") / "copy"
        runStoragegate("backup", "--data", self.daemon.data, "--to", target, "--verify")
        backup = self.call("GET", "maintenance").json["backup"]
        self.assertEqual(
            (backup["problems"], backup["to"], backup["verify"]), (0, str(target), True)
        )
        self.assertGreaterEqual(backup["endedMs"], backup["startedMs"])
        self._ticket(bucket)
        self._damage()
        with self.assertRaises(Exception):  # noqa: B017
            self.s3.get_object(Bucket=bucket, Key="d/ü")["Body"].read()
        found = self.call("GET", "maintenance").json
        self.assertEqual(found["damagedCount"], 1)
        [damaged] = found["damaged"]
        self.assertEqual((damaged["bucket"], damaged["key"]), (bucket, "d/ü"))
        self.assertTrue(damaged["blob"])
        self.assertEqual(found["scrub"]["limitPerSecond"], 8 << 20)
        # The read that failed is a traceback.
        self._logStart = len(self.daemon.log)

    def _ticket(self, bucket: str) -> None:
        """A ticket that is used is in no line, neither of the log nor of the access log."""
        halves = self.signIn()
        self.s3.put_object(Bucket=bucket, Key="small", Body=b"x")
        wanted = {"bucket": bucket, "key": "small", "purpose": "download"}
        url = self.send("POST", "tickets", wanted, halves).json["url"]
        self.assertEqual(self.send("GET", url.removeprefix("api/v1/"), None, halves).status, 200)
        self.s3.head_object(Bucket=bucket, Key="small")
        self.daemon.waitForLog('"method":"HeadObject"')
        self.assertNotIn(url.rpartition("/")[2], self.daemon.log)

    def _damage(self) -> None:
        """Make the one blob shorter."""
        with closing(sqlite3.connect(self.daemon.data / "catalog.sqlite")) as catalog:
            [[blob]] = catalog.execute("SELECT id FROM blobs").fetchall()
        [path] = [each for each in (self.daemon.data / "blobs").rglob("*") if blob in each.name]
        os.truncate(path, 10)

    def _fsck(self) -> None:
        self.daemon.stop()
        runStoragegate("fsck", "--data", self.daemon.data)
        self.daemon.start()
        self.admin = self.daemon.address("admin")
        found = self.call("GET", "maintenance").json["fsck"]
        self.assertEqual((found["problems"], found["repair"], found["error"]), (0, False, ""))


class WorkersTests(OwnDaemonCase):
    """Two processes."""

    flags = ("--workers", "2")

    def region(self) -> object:
        """Say which region a worker has."""
        return self.configuration()["region"]["value"]

    @long("takes seconds")
    def test_reload(self) -> None:
        """A reload replaces all workers, whichever is asked, and keeps what they share."""
        before = self.configuration()
        self.assertEqual(before["data"]["origin"], "flag --data")
        text = self.file.read_text().replace("eu-test-1", "eu-test-2")
        self.file.write_text('verifyReads = "true"\n' + text)
        found = self.call("POST", "config/reload").json
        self.assertEqual(
            found, {"applied": ["region"], "needRestart": ["verifyReads"], "replacing": 2}
        )
        self.daemon.waitForLog("2 workers replaced")
        # One that was replaced may have taken a connection before it closed its listener.
        self.assertTrue(eventually(lambda: [self.region() for _ in range(6)] == ["eu-test-2"] * 6))
        self.assertEqual(self.configuration()["verifyReads"]["value"], False)
        self.file.write_text("nonsense = 1\n")
        refused = self.call("POST", "config/reload")
        self.assertEqual((refused.status, refused.json["error"]), (409, "FAILED_PRECONDITION"))
        self.assertTrue(self.call("POST", "doctor").json["findings"])
        self.assertEqual(self.call("POST", "buckets", {"name": self.makeName()}).status, 200)
        found = self.call("GET", "maintenance").json
        self.assertEqual({each["kind"] for each in found["syncs"]}, {"commit", "file", "directory"})
