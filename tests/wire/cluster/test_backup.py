"""The backup of a cluster beside nodes that serve, and a cluster that is made of it."""

import json
import os
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp
from threading import Event
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.cluster.backup import restore
from storagegate.cluster.options import ClusterOptions
from storagegate.storage.errors import StoreError
from tests.support.clients import ROOT, Account, botoClient
from tests.support.cluster import Cluster
from tests.support.daemon import Daemon, daemonEnvironment
from tests.support.http import request
from tests.support.programs import needProgram
from tests.support.selection import long
from tests.support.upstreams3 import ownServer
from tests.wire.s3.fixture import eventually
from tests.wire.storage.test_backup import WINDOW, WRITERS, Writer, bodyOf

LARGE = 3_000_000
"""More than one piece of an upload, on any store of blobs."""

HEADERS = {"x-storage-access-key": ROOT.accessKey, "x-storage-secret-key": ROOT.secretKey}


class BackupCase(SynchronousTestCase):
    """What the cases of this file share."""

    timeout = 120

    def setUp(self) -> None:
        """Name a directory for the backup."""
        self.place = Path(mkdtemp(prefix="backup-", dir=Path.cwd()))
        self.addCleanup(shutil.rmtree, self.place)
        self.copy = self.place / "copy"

    def cluster(self, blobs: str = "", isInitialised: bool = True) -> Cluster:
        """Make a cluster."""
        made = Cluster(blobs, isInitialised=isInitialised)
        self.addCleanup(made.close)
        return made

    def upstream(self) -> str:
        """Return a place for blobs in another S3 server."""
        address = ownServer().newBucket()
        return f"s3:http://{address.host}/{address.bucket}/blobs"

    def succeed(self, cluster: Cluster, *arguments: str) -> str:
        """Run a command that succeeds."""
        code, text = cluster.command(*arguments)
        self.assertEqual(code, 0, text)
        return text

    def fail_(self, cluster: Cluster, *arguments: str) -> str:
        """Run a command that is refused; return its last line."""
        code, text = cluster.command(*arguments)
        self.assertEqual(code, 1, text)
        self.assertNotIn("Traceback", text)
        return text.splitlines()[-1]

    def put(self, node: Daemon, name: str) -> None:
        """Store an object that is a blob."""
        self.assertEqual(
            request(node.address(), "PUT", f"/bucket/{name}", bodyOf(name), HEADERS)[0], 200
        )

    def get(self, node: Daemon, name: str) -> tuple[int, bytes]:
        """Read an object."""
        return request(node.address(), "GET", f"/bucket/{name}", None, HEADERS)


@long("starts a cluster")
class RoundTripTests(BackupCase):
    """A backup under load, restored into another database and another place."""

    def test_files(self) -> None:
        """With blobs in files."""
        self.roundTrip("", "")

    def test_s3(self) -> None:
        """With blobs in another S3 server."""
        self.roundTrip(self.upstream(), self.upstream())

    def roundTrip(self, blobs: str, otherBlobs: str) -> None:
        """
        Back a cluster up while objects come and go, restore it, and compare: the objects of one
        moment, with versions, uploads and keys; the restored cluster goes on.
        """
        cluster = self.cluster(blobs)
        nodes = cluster.start(2)
        s3 = cluster.client(nodes[0])
        s3.create_bucket(Bucket="bucket")
        s3.create_bucket(Bucket="versions")
        s3.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
        versions = [
            s3.put_object(Bucket="versions", Key="k", Body=b"v%d" % number * 40_000)["VersionId"]
            for number in range(3)
        ]
        s3.put_object(Bucket="bucket", Key="large", Body=os.urandom(1 << 10) * (LARGE >> 10))
        large = s3.get_object(Bucket="bucket", Key="large")["Body"].read()
        upload = s3.create_multipart_upload(Bucket="bucket", Key="parts")["UploadId"]
        named = {"Bucket": "bucket", "Key": "parts", "UploadId": upload}
        part = s3.upload_part(**named, PartNumber=1, Body=b"p" * 100_000)["ETag"]
        for number in range(10):
            self.put(nodes[0], f"kept-{number}")
        key = self.succeed(cluster, "keys", "create", "--account", "bob")
        bob = Account(*re.findall(r"=(\S+)$", key, re.MULTILINE))
        writers = [Writer(nodes[each % 2].address(), each, HEADERS) for each in range(WRITERS)]
        for writer in writers:
            writer.start()
            self.addCleanup(writer.end)
        for writer in writers:
            self.assertTrue(writer.warm.wait(60), writer.error)
        before = [writer.done for writer in writers]
        text = self.succeed(cluster, "backup", "--to", str(self.copy))
        after = [writer.done for writer in writers]
        self.assertRegex(
            text, r"\Acatalog copied, (\d+) blobs referenced\n\1 blobs copied and verified"
        )
        for writer in writers:
            writer.end()
            self.assertIsNone(writer.error)
        # Nothing that comes later is in it, and the lease is gone.
        self.put(nodes[0], "later")
        s3.delete_object(Bucket="bucket", Key="kept-0")
        self.assertTrue(
            eventually(lambda: not cluster.rows("SELECT FROM leases WHERE node = 'backup'"))
        )
        self.private()
        other = self.cluster(otherBlobs, isInitialised=False)
        text = self.succeed(other, "restore", "--from", str(self.copy), "--verify")
        self.assertRegex(text, r"restored the catalog, and (\d+) of \1 blobs\n\Z")
        self.assertEqual(self.succeed(other, "cluster", "fsck", "--verify"), "0 problems\n")
        [node] = other.start()
        names = {
            each["Key"]
            for page in botoClient(node.url())
            .get_paginator("list_objects_v2")
            .paginate(Bucket="bucket")
            for each in page.get("Contents", ())
        }
        self.assertEqual(
            {each for each in names if not each.startswith("w")},
            {*(f"kept-{number}" for number in range(10)), "large"},
        )
        for writer, least, most in zip(writers, before, after, strict=True):
            own = sorted(int(each.rpartition("-")[2]) for each in names if writer.prefix in each)
            self.assertEqual(own, list(range(own[0], own[0] + len(own))))
            self.assertIn(len(own), (WINDOW, WINDOW + 1))
            self.assertTrue(least - 1 <= own[-1] <= most, (least, own, most))
        for name in names - {"large"}:
            self.assertEqual(self.get(node, name), (200, bodyOf(name)))
        new = other.client(node)
        self.assertEqual(new.get_object(Bucket="bucket", Key="large")["Body"].read(), large)
        for number, version in enumerate(versions):
            found = new.get_object(Bucket="versions", Key="k", VersionId=version)
            self.assertEqual(found["Body"].read(), b"v%d" % number * 40_000)
        new.complete_multipart_upload(
            **named, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part}]}
        )
        self.assertEqual(
            new.get_object(Bucket="bucket", Key="parts")["Body"].read(), b"p" * 100_000
        )
        botoClient(node.url(), bob).list_buckets()
        self.goesOn(other, node)

    def goesOn(self, cluster: Cluster, node: Daemon) -> None:
        """See that a restored cluster writes under new ids, and collects what it removes."""
        [(newest,)] = cluster.rows("SELECT max(id) FROM leases")
        self.assertGreater(newest, 1 << 20)
        before = {each for (each,) in cluster.rows("SELECT id FROM blobs")}
        self.put(node, "new")
        added = {each for (each,) in cluster.rows("SELECT id FROM blobs")} - before
        self.assertEqual(len(added), 1)
        s3 = cluster.client(node)
        for name in ("new", "kept-1"):
            s3.delete_object(Bucket="bucket", Key=name)
        self.assertTrue(
            eventually(lambda: cluster.rows("SELECT count(*) FROM blobs")[0][0] == len(before) - 1)
        )

    def private(self) -> None:
        """See that only the owner reads a backup."""
        for directory, _, names in os.walk(self.copy):
            self.assertEqual(stat.S_IMODE(os.stat(directory).st_mode), 0o700)
            for name in names:
                mode = os.stat(os.path.join(directory, name)).st_mode
                self.assertEqual(stat.S_IMODE(mode), 0o600, name)


@long("starts a cluster")
class HoldTests(BackupCase):
    """What the nodes keep for a backup."""

    def setUp(self) -> None:
        """Make a cluster whose blobs are copied by a command that waits."""
        super().setUp()
        self.made = self.cluster()
        [self.node] = self.made.start()
        self.s3 = self.made.client(self.node)
        self.s3.create_bucket(Bucket="bucket")
        for number in range(5):
            self.put(self.node, f"kept-{number}")
        self.blobs = self.made.directory / "blobs"
        self.gate = self.place / "gate"
        self.threads = ThreadPoolExecutor(1)
        self.addCleanup(self.threads.shutdown)
        self.addCleanup(self.gate.touch)
        # Ends with the test even if the directory is removed before it has seen the gate.
        waits = f"[ -d {self.place} ] && [ ! -e {self.gate} ]"
        wait = f"touch {self.place}/waits; while {waits}; do sleep 0.05; done"
        self.command = f"{wait}; [ -d {self.place} ] && cp -a {self.blobs} {self.place}/blobs"

    def begin(self) -> "Future[tuple[int, str]]":
        """Begin a backup, and wait until its command waits."""
        done = self.threads.submit(
            self.made.command, "backup", "--to", str(self.copy), "--blobs-with", self.command
        )
        self.assertTrue(eventually(lambda: (self.place / "waits").exists() or done.done()))
        self.assertFalse(done.done(), done.done() and done.result())
        return done

    def bytesThere(self) -> int:
        """Count the blobs of the store."""
        return sum(len(names) for _, _, names in os.walk(self.blobs))

    def test_kept(self) -> None:
        """
        Blobs whose objects are removed while the operator's command copies them are kept until it
        has ended; the list has each of them, and the restored cluster, too.
        """
        done = self.begin()
        before = self.bytesThere()
        for number in range(5):
            self.s3.delete_object(Bucket="bucket", Key=f"kept-{number}")
        # Some rounds of the collector, and more than the lease of a node.
        Event().wait(3)
        self.assertEqual(self.bytesThere(), before)
        self.gate.touch()
        code, text = done.result(60)
        self.assertEqual(code, 0, text)
        self.assertTrue(eventually(lambda: self.bytesThere() == before - 5))
        names = (self.copy / "blobs.txt").read_text().split()
        self.assertEqual(len(names), 5)
        self.assertFalse((self.copy / "blobs").exists())
        other = self.cluster(isInitialised=False)
        line = self.fail_(other, "restore", "--from", str(self.copy))
        self.assertIn("nothing was restored, for 5 blobs are missing", line)
        shutil.copytree(self.place / "blobs", other.directory / "blobs", dirs_exist_ok=True)
        self.succeed(other, "restore", "--from", str(self.copy), "--verify")
        [node] = other.start()
        for number in range(5):
            name = f"kept-{number}"
            self.assertEqual(self.get(node, name), (200, bodyOf(name)))

    def endGroup(self, number: int) -> None:
        """End what a command that was killed has left."""
        try:
            os.killpg(number, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def test_lost(self) -> None:
        """Where nodes have ended the lease there is no backup, and one line says why."""
        done = self.begin()
        self.made.rows("UPDATE leases SET alive = false WHERE node = 'backup' RETURNING id")
        self.gate.touch()
        code, text = done.result(60)
        self.assertEqual(code, 1, text)
        self.assertIn("start again", text.splitlines()[-1])
        self.assertEqual(list(self.copy.iterdir()), [])

    def test_commandFails(self) -> None:
        """A command that fails is no backup."""
        self.command = "exit 3"
        line = self.fail_(self.made, "backup", "--to", str(self.copy), "--blobs-with", self.command)
        self.assertIn("ended with code 3", line)
        self.assertEqual(list(self.copy.iterdir()), [])

    def test_killed(self) -> None:
        """A backup that is killed has no backup.json, and is refused; SIGTERM leaves nothing."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            shutil.rmtree(self.copy, ignore_errors=True)
            (self.place / "waits").unlink(missing_ok=True)
            running = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "storagegate",
                    "backup",
                    "--to",
                    str(self.copy),
                    "--blobs-with",
                    self.command,
                    "--config",
                    str(self.made.configuration()),
                ],
                env=daemonEnvironment(self.made.environment()),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self.addCleanup(self.endGroup, running.pid)
            self.assertTrue(eventually(lambda: (self.place / "waits").exists()))
            running.send_signal(number)
            self.assertNotEqual(running.wait(60), 0)
            if number == signal.SIGTERM:
                self.assertEqual(list(self.copy.iterdir()), [])
        other = self.cluster(isInitialised=False)
        line = self.fail_(other, "restore", "--from", str(self.copy))
        self.assertIn("not a complete backup: it has no backup.json", line)


@long("starts a cluster")
class DifferenceTests(BackupCase):
    """What a restored cluster has that is not of the backup, or lacks."""

    def test_rotten(self) -> None:
        """
        Beside blobs that were not lost, bytes that have changed in the backup do not replace them.
        """
        lost = self.cluster()
        [node] = lost.start()
        lost.client(node).create_bucket(Bucket="bucket")
        self.put(node, "kept")
        self.succeed(lost, "backup", "--to", str(self.copy))
        node.stop()
        [blob] = [each for each in self.copy.glob("blobs/*/*/*") if each.is_file()]
        blob.write_bytes(bytes(blob.stat().st_size))
        made = self.cluster(lost.blobs, isInitialised=False)
        self.succeed(made, "restore", "--from", str(self.copy), "--verify")
        [node] = made.start()
        self.assertEqual(self.get(node, "kept"), (200, bodyOf("kept")))

    def test_sessions(self) -> None:
        """A restored cluster has no sessions of the console: they may have been ended since."""
        cluster = self.cluster()
        cluster.rows("INSERT INTO consolerecords VALUES ('session', 'x', 'y', 1, '') RETURNING id")
        self.succeed(cluster, "backup", "--to", str(self.copy))
        self.assertEqual((self.copy / "catalog" / "consolerecords.copy").read_bytes(), b"")
        made = self.cluster(isInitialised=False)
        self.succeed(made, "restore", "--from", str(self.copy))
        self.assertEqual(made.rows("SELECT id FROM consolerecords"), [])


@long("takes a second or more")
class InterruptedTests(SynchronousTestCase):
    """A backup that is interrupted while it waits for the catalog."""

    def setUp(self) -> None:
        """Make a configuration whose catalog does not answer."""
        self.place = Path(mkdtemp(prefix="backup-", dir=Path.cwd()))
        self.addCleanup(shutil.rmtree, self.place)
        self.catalog = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(self.catalog.close)
        port = self.catalog.getsockname()[1]
        self.configuration = self.place / "storagegate.toml"
        self.configuration.write_text(
            f'data = "{self.place / "data"}"\n[cluster]\nblobs = "files:{self.place}"\n'
            f'catalog = ["host=127.0.0.1 port={port}"]\n'
        )
        self.copies = self.place / "copies"
        self.copies.mkdir()

    def interrupted(self, *arguments: str) -> tuple[int, str]:
        """Interrupt a command when it waits, unless it has ended; return its code and its error."""
        command = [sys.executable, "-m", "storagegate", *arguments]
        running = subprocess.Popen(
            [*command, "--config", str(self.configuration)],
            env=daemonEnvironment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(running.kill)
        waits = lambda: bool(select.select([self.catalog], [], [], 0)[0])  # noqa: E731
        self.assertTrue(eventually(lambda: waits() or running.poll() is not None))
        running.send_signal(signal.SIGINT)
        _, text = running.communicate(timeout=60)
        return running.returncode, text

    def test_full(self) -> None:
        """A directory with other files keeps them: the command refuses it, and never empties it."""
        (self.copies / "yesterday").mkdir()
        code, text = self.interrupted("backup", "--to", str(self.copies))
        self.assertEqual((code, text), (1, f"storagegate: {self.copies} is not empty\n"))
        self.assertEqual([each.name for each in self.copies.iterdir()], ["yesterday"])

    def test_code(self) -> None:
        """The exit code says that it was interrupted, and not that it failed."""
        code, text = self.interrupted("backup", "--to", str(self.copies))
        self.assertEqual((code, text), (130, "storagegate: interrupted: no backup was made\n"))
        self.assertEqual([*self.copies.iterdir()], [])


@long("starts a cluster")
class SyncedTests(BackupCase):
    """Blobs that are copied by another program, as the page of the documentation has it."""

    def test_aws(self) -> None:
        """C{aws s3 sync} copies the blobs of the list, and back to another place."""
        aws = needProgram("aws")
        places = [self.upstream(), self.upstream()]
        sync = f"{aws} --endpoint-url {ownServer().url} s3 sync --quiet"
        old, new = (each.replace(f"s3:{ownServer().url}/", "s3://") for each in places)
        cluster = self.cluster(places[0])
        [node] = cluster.start()
        cluster.client(node).create_bucket(Bucket="bucket")
        self.put(node, "kept")
        command = f"{sync} {old} {self.place}/blobs"
        self.succeed(cluster, "backup", "--to", str(self.copy), "--blobs-with", command)
        other = self.cluster(places[1], isInitialised=False)
        subprocess.run(
            f"{sync} {self.place}/blobs {new}",
            shell=True,
            check=True,
            env={**os.environ, **cluster.environment(), "AWS_DEFAULT_REGION": "us-east-1"},
        )
        self.succeed(other, "restore", "--from", str(self.copy), "--verify")
        [node] = other.start()
        self.assertEqual(self.get(node, "kept"), (200, bodyOf("kept")))


@long("starts a cluster")
class RefusalTests(BackupCase):
    """What is not restored, and leaves the database empty."""

    def setUp(self) -> None:
        """Make a backup."""
        super().setUp()
        self.made = self.cluster()
        [node] = self.made.start()
        self.made.client(node).create_bucket(Bucket="bucket")
        for number in range(3):
            self.put(node, f"kept-{number}")
        self.succeed(self.made, "backup", "--to", str(self.copy))
        self.other = self.cluster(isInitialised=False)

    def refused(self) -> str:
        """Return the line of a restore that is refused."""
        return self.fail_(self.other, "restore", "--from", str(self.copy))

    def refusedAtOnce(self, cluster: Cluster) -> str:
        """Return the line of a restore that is refused before the first blob is looked for."""
        options = ClusterOptions(**cluster.options)
        error = self.assertRaises(StoreError, restore, options, str(self.copy), self.fail, object())
        self.assertNotIn("\n", str(error))
        return str(error)

    def test_all(self) -> None:
        """
        A database that is not empty, a backup that is damaged in any file, and one of another kind:
        one line each; then the backup that is whole is restored.
        """
        self.assertIn("the catalog is not empty", self.refusedAtOnce(self.made))
        damages: list[tuple[str, Callable[[Path], object], str]] = [
            (
                "catalog/objects.copy",
                lambda path: path.write_bytes(b""),
                "objects.copy has changed since",
            ),
            ("catalog/blobs.copy", lambda path: path.unlink(), "damaged: blobs.copy"),
            ("blobs.list", lambda path: path.write_text("x"), "blobs.list has changed since"),
            ("catalog.json", lambda path: path.write_text("{"), "not a complete backup"),
            ("backup.json", lambda path: path.unlink(), "it has no backup.json"),
        ]
        for name, damage, text in damages:
            with self.subTest(name=name):
                whole = (self.copy / name).read_bytes()
                damage(self.copy / name)
                self.assertIn(text, self.refusedAtOnce(self.other))
                (self.copy / name).write_bytes(whole)
        blob = (self.copy / "blobs.list").read_text().split()[0]
        path = self.copy / "blobs" / blob[:2] / blob[2:4] / blob
        whole = path.read_bytes()
        for content in (None, whole[:-1] + b"!"):
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_bytes(content)
            self.assertIn("nothing was restored, for 1 blobs", self.refused())
        path.write_bytes(whole)
        self.assertEqual(
            self.other.rows("SELECT count(*) FROM pg_tables WHERE tablename = 'objects'"), [(0,)]
        )
        self.succeed(self.other, "restore", "--from", str(self.copy), "--verify")
        self.assertEqual(self.other.rows("SELECT count(*) FROM objects"), [(3,)])
        # It is a cluster now.
        self.assertIn("the catalog is not empty", self.refusedAtOnce(self.other))

    def test_kinds(self) -> None:
        """The backup of a cluster is not restored to a directory, nor the other way round."""
        line = self.fail_(
            self.other, "restore", "--from", str(self.copy), "--to", str(self.place / "data")
        )
        self.assertIn("is the backup of a cluster", line)
        manifest: dict[str, Any] = json.loads((self.copy / "backup.json").read_text())
        self.assertTrue(manifest["isCluster"])
        manifest["isCluster"] = False
        (self.copy / "backup.json").write_text(json.dumps(manifest))
        self.assertIn("is the backup of a data directory", self.refusedAtOnce(self.other))
