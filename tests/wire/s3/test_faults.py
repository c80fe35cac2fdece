"""Disks that are full, and disks that lie: the daemon says so, and keeps what it has."""

import os
import subprocess
from typing import Any

from botocore.exceptions import ClientError
from twisted.trial.unittest import SkipTest

from tests.support.clients import botoClient
from tests.support.daemon import Daemon
from tests.support.programs import needProgram
from tests.support.s3signer import Outgoing, exchange
from tests.support.selection import long
from tests.support.syncs import endFailing, failSyncs
from tests.wire.s3.fixture import S3Case, eventually, leftovers, makeDaemon, ownDirectory

MIB = 1 << 20


class FullCase(S3Case):
    """
    A store on a small file system in memory.

    @cvar options: How the file system is small.
    """

    options: str

    def setUp(self) -> None:
        """Mount a small file system and start a daemon on it."""
        super().setUp()
        if os.geteuid() != 0:
            raise SkipTest("only root may mount a disk to fill up")
        directory = ownDirectory("full")
        command = ["mount", "-t", "tmpfs", "-o", self.options, "tmpfs", str(directory)]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode != 0:
            raise SkipTest(f"mount is refused: {done.stderr.decode().strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", str(directory)], check=True)
        self.full = makeDaemon(directory / "data")
        self.addCleanup(self.full.kill)
        self.full.start()
        self.client = botoClient(self.full.url(), patient=False)
        self.client.create_bucket(Bucket="full")

    def fill(self, size: int) -> list[str]:
        """Put objects of a size until one is refused for want of room; name those that were not."""
        stored: list[str] = []
        with self.assertRaises(ClientError) as caught:
            while len(stored) < 5000:
                key = f"{size}/{len(stored):05d}"
                self.client.put_object(Bucket="full", Key=key, Body=b"f" * size)
                stored.append(key)
        answer = caught.exception.response
        self.assertEqual(answer["ResponseMetadata"]["HTTPStatusCode"], 507, answer)
        self.assertEqual(answer["Error"]["Code"], "InsufficientStorage")
        return stored

    def hasRoom(self) -> bool:
        """Say whether an object can be stored; files go a moment after their objects."""
        try:
            self.client.put_object(Bucket="full", Key="again", Body=b"a" * 4 * MIB)
        except ClientError:
            return False
        return True

    def listed(self, prefix: str) -> list[dict[str, Any]]:
        """List the objects below a prefix."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket="full", Prefix=prefix)
        return [entry for page in pages for entry in page.get("Contents", [])]


class DiskFullTests(FullCase):
    """24 MiB that fill up."""

    options = "size=24m,nr_inodes=4000"

    @long("takes seconds")
    def test_fullAndFreed(self) -> None:
        """A full disk is 507; nothing partial is there, reads and deletes go on, room is used."""
        stored = self.fill(MIB)
        for _ in range(3):
            self.assertRefused(
                507,
                "InsufficientStorage",
                self.client.put_object,
                Bucket="full",
                Key="over",
                Body=b"o" * 2 * MIB,
            )
        self.assertGreater(len(stored), 5)
        listed = self.client.list_objects_v2(Bucket="full")
        self.assertEqual([entry["Key"] for entry in listed["Contents"]], stored)
        for key in stored:
            found = self.client.get_object(Bucket="full", Key=key)
            self.assertTrue(found["Body"].read() == b"f" * MIB)
        for key in stored[:-1]:
            self.client.delete_object(Bucket="full", Key=key)
        self.assertTrue(eventually(self.hasRoom), "freed room is not used")
        self.assertTrue(eventually(lambda: not leftovers(self.full)), leftovers(self.full))
        self.assertNotIn("Traceback", self.full.log)
        self.full.stop()
        self.full.start()
        found = botoClient(self.full.url()).get_object(Bucket="full", Key=stored[-1])
        self.assertTrue(found["Body"].read() == b"f" * MIB)

    @long("takes seconds")
    def test_catalogFull(self) -> None:
        """Small objects fill the catalog to the last page: it is no different."""
        self.fill(MIB)
        stored = self.fill(8_000)
        self.client.delete_objects(
            Bucket="full",
            Delete={"Objects": [{"Key": entry["Key"]} for entry in self.listed("1048576/")]},
        )
        self.assertTrue(eventually(self.hasRoom), "freed room is not used")
        self.assertEqual([entry["Key"] for entry in self.listed("8000/")], stored)


class InodesFullTests(FullCase):
    """Room without end, but for few files."""

    options = "size=500m,nr_inodes=120"

    @long("takes seconds")
    def test_fullAndFreed(self) -> None:
        """No file more is 507; small objects need none and go on; deletes make room for files."""
        stored = self.fill(70_000)
        self.assertGreater(len(stored), 5)
        self.client.put_object(Bucket="full", Key="small", Body=b"in the row")
        for key in stored:
            self.client.delete_object(Bucket="full", Key=key)
        self.assertTrue(eventually(self.hasRoom), "freed room is not used")
        listed = [entry["Key"] for entry in self.listed("")]
        self.assertEqual(listed, ["again", "small"])
        self.assertNotIn("Traceback", self.full.log)


class FailedSyncTests(S3Case):
    """A disk whose fsync fails once is not believed again before a restart."""

    def setUp(self) -> None:
        """Start a daemon that can be traced, and store something."""
        super().setUp()
        self.strace = needProgram("strace")
        self.failing = makeDaemon(ownDirectory("sync") / "data")
        self.addCleanup(self.failing.kill)
        self.failing.start()
        self.client = botoClient(self.failing.url(), patient=False)
        self.client.create_bucket(Bucket="sync")
        for key, size in (("small", 10), ("large", 300_000)):
            self.client.put_object(Bucket="sync", Key=key, Body=b"k" * size)

    def failSyncs(self) -> "subprocess.Popen[bytes]":
        """Let every fsync of the daemon fail from now on, until the result is ended."""
        log = self.failing.data.parent / "strace.log"
        return failSyncs(self, self.strace, self.failing.pid, log)

    def readiness(self, daemon: Daemon) -> int:
        """Ask whether the daemon is ready."""
        return exchange(daemon.address("admin"), Outgoing("GET", "/readyz")).status

    def refusesWrites(self) -> None:
        """Check that every kind of write is 503, and reads go on."""
        for size in (10, 300_000):
            self.assertRefused(
                503,
                "ServiceUnavailable",
                self.client.put_object,
                Bucket="sync",
                Key="new",
                Body=b"n" * size,
            )
        self.assertRefused(
            503, "ServiceUnavailable", self.client.delete_object, Bucket="sync", Key="small"
        )
        self.assertRefused(
            503, "ServiceUnavailable", self.client.create_bucket, Bucket=self.makeName()
        )
        for key, size in (("small", 10), ("large", 300_000)):
            found = self.client.get_object(Bucket="sync", Key=key)["Body"].read()
            self.assertTrue(found == b"k" * size)
        self.assertEqual(self.readiness(self.failing), 503)

    @long("takes seconds")
    def test_smallObject(self) -> None:
        """The catalog's failed sync makes the store read-only, also when syncs work again."""
        self.failAndRecover(b"n" * 10)

    @long("takes seconds")
    def test_largeObject(self) -> None:
        """A blob's failed sync makes the store read-only, also when syncs work again."""
        self.failAndRecover(b"n" * 300_000)

    def failAndRecover(self, body: bytes) -> None:
        """Fail one write's sync; see the store refuse, tell, and come back after a restart."""
        self.assertEqual(self.readiness(self.failing), 200)
        tracer = self.failSyncs()
        self.assertRefused(
            503, "ServiceUnavailable", self.client.put_object, Bucket="sync", Key="new", Body=body
        )
        self.refusesWrites()
        endFailing(tracer)
        self.refusesWrites()
        self.failing.kill()
        self.failing.start()
        self.assertEqual(self.readiness(self.failing), 200)
        self.client = botoClient(self.failing.url(), patient=False)
        listed = self.client.list_objects_v2(Bucket="sync")
        # Whether the write that failed is there is not known; if it is, it is whole.
        keys = [entry["Key"] for entry in listed["Contents"]]
        self.assertEqual([key for key in keys if key != "new"], ["large", "small"])
        if "new" in keys:
            found = self.client.get_object(Bucket="sync", Key="new")["Body"].read()
            self.assertTrue(found == body)
        self.client.put_object(Bucket="sync", Key="after", Body=body)
