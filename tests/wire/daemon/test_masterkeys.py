"""Master keys of a real daemon: their file, Vault, commands, readiness and backups."""

import json
import shutil
import stat
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from botocore.exceptions import ClientError
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.encryption.masterkeys.keyfile import createKeyFile, readKeyFile
from tests.support.clients import botoClient
from tests.support.contention import Stopwatch
from tests.support.daemon import Daemon, daemonEnvironment
from tests.support.openbao import OpenBao
from tests.support.selection import long
from tests.wire.s3.fixture import ENVIRONMENT, makeDaemon, ownDirectory

BODY = b"plain text that no file may have " * 3000
SSE_S3 = {"ServerSideEncryption": "AES256"}


def kms(name: str) -> dict[str, str]:
    """Return the arguments for an encryption with a named master key."""
    return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": name}


class MasterKeyCase(SynchronousTestCase):
    """A daemon with a data directory of its own."""

    variables: dict[str, str] = {}

    def setUp(self) -> None:
        """Start the daemon, with one bucket."""
        self.directory = ownDirectory("masterkeys")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.data = self.directory / "data"
        self.keyFile = self.data / "master-keys"
        self.daemon = self.serve(self.data)
        self.s3.create_bucket(Bucket="one")

    def serve(self, data: Path) -> Daemon:
        """Start a daemon on a data directory."""
        daemon = makeDaemon(data, **self.variables)
        self.addCleanup(daemon.kill)
        return daemon.start()

    @property
    def s3(self) -> Any:
        """A client of the daemon, which does not retry."""
        return botoClient(self.daemon.url(), patient=False)

    def put(self, key: str, bucket: str = "one", **more: str) -> None:
        """Store an object."""
        self.s3.put_object(Bucket=bucket, Key=key, Body=BODY, **more)

    def get(self, key: str, bucket: str = "one") -> bytes:
        """Read an object."""
        found: bytes = self.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        return found

    def refused(self, code: str, act: Callable[..., Any], *arguments: Any, **more: Any) -> None:
        """Check the code of a refused request."""
        with self.assertRaises(ClientError) as caught:
            act(*arguments, **more)
        self.assertEqual(caught.exception.response["Error"]["Code"], code)

    def readiness(self) -> tuple[int, Any]:
        """Return the status and the document of C{/readyz}."""
        status, text = self.page("/readyz")
        return status, json.loads(text)

    def page(self, path: str) -> tuple[int, str]:
        """Read a page of the admin listener."""
        try:
            with urlopen(self.daemon.url("admin") + path, timeout=60) as response:
                return response.status, response.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def script(self, *words: str, expected: int = 0, data: Path | None = None) -> Any:
        """Run a command on the data directory; return the object that it prints."""
        # A process of its own: with Vault, the command runs the reactor.
        command = [sys.executable, "-m", "storagegate", *words]
        done = subprocess.run(
            [*command, "--data", str(data or self.data), "--json"],
            env=daemonEnvironment({**ENVIRONMENT, **self.variables}),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        self.assertEqual(done.returncode, expected, done)
        self.errors, self.printed = done.stderr, done.stdout
        return json.loads(self.printed) if expected == 0 else None

    def within(self, seconds: float, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        watch = Stopwatch()
        while not holds():
            self.assertLess(watch.seconds(), seconds, "it took too long")
            threading.Event().wait(0.05)

    def canPut(self, **more: str) -> bool:
        """Return whether an object can be stored."""
        try:
            self.put("probe", **more)
        except ClientError:
            return False
        return True

    def secrets(self) -> list[str]:
        """Return the forms in which keys of the file could leak."""
        file = readKeyFile(str(self.keyFile))
        assert file is not None
        keys = [version.key for key in file.keys for version in key.versions]
        return [form for key in keys for form in (b64encode(key).decode(), key.hex(), repr(key))]


@long("starts daemons")
class FileTests(MasterKeyCase):
    """Keys in their file."""

    def test_life(self) -> None:
        """The file is made at first need; commands change it while the daemon runs."""
        self.put("plain")
        self.assertFalse(self.keyFile.exists())
        self.assertEqual(self.script("masterkeys", "list")["masterKeys"], [])
        self.put("a", **SSE_S3)
        self.assertEqual(stat.S_IMODE(self.keyFile.stat().st_mode), 0o600)
        self.script("masterkeys", "create", "photos")
        self.put("b", **kms("photos"))
        self.refused("KMS.NotFoundException", self.put, "c", **kms("absent"))
        self.script("masterkeys", "create", "photos", expected=1)
        self.script("masterkeys", "disable", "photos")
        self.within(3, lambda: not self.canPut(**kms("photos")))
        self.refused("KMS.DisabledException", self.put, "c", **kms("photos"))
        self.put("c", **SSE_S3)
        self.script("masterkeys", "enable", "photos")
        self.within(3, lambda: self.canPut(**kms("photos")))
        # A rotation changes no object; a rewrap finds each key of a bucket once.
        self.script("masterkeys", "rotate", "photos")
        self.script("masterkeys", "rotate")
        found = self.script("masterkeys", "rewrap")
        self.assertEqual((found["rewrapped"], found["current"], found["failed"]), (2, 0, []))
        found = self.script("masterkeys", "rewrap")
        self.assertEqual((found["rewrapped"], found["current"]), (0, 2))
        self.assertEqual([self.get(key) for key in "abc"], [BODY] * 3)
        # Without a daemon, in the data directory.
        self.assertEqual(self.daemon.stop(), 0)
        self.script("masterkeys", "rotate", "photos")
        found = self.script("masterkeys", "rewrap")
        self.assertEqual((found["rewrapped"], found["current"]), (1, 1))
        self.daemon.start()
        self.assertEqual([self.get(key) for key in "abc"], [BODY] * 3)
        listed = self.script("masterkeys", "list")["masterKeys"]
        self.assertEqual(
            [(each["name"], each["versions"]) for each in listed], [("default", 2), ("photos", 3)]
        )

    def test_hidden(self) -> None:
        """Neither log nor page nor command shows a key; the metrics count the calls."""
        self.put("a", **SSE_S3)
        self.put("b", **SSE_S3)
        shown = [self.page("/metrics")[1]]
        self.assertIn(
            'storagegate_master_key_calls_total{operation="wrap",result="ok"} 1', shown[0]
        )
        self.assertRegex(shown[0], r"storagegate_bucket_key_cache_hits_total \d*[1-9]")
        secrets = self.secrets()
        self.keyFile.write_bytes(self.keyFile.read_bytes()[:-20])
        self.within(3, lambda: not self.canPut(**SSE_S3))
        self.within(12, lambda: "warnings" in self.readiness()[1])
        shown += [self.page("/readyz")[1], self.page("/metrics")[1]]
        for words in (("status",), ("config", "show")):
            self.script(*words)
            shown.append(self.printed)
        self.script("masterkeys", "list", expected=1)
        shown += [self.errors, self.daemon.log]
        self.assertIn("damaged", self.errors)
        for secret in secrets:
            self.assertFalse([text for text in shown if secret in text])

    def test_lost(self) -> None:
        """Without its keys a store starts; plain objects work, encrypted ones are unavailable."""
        self.put("plain")
        self.put("a", **SSE_S3)
        self.assertEqual(self.daemon.stop(), 0)
        kept = self.keyFile.read_bytes()
        self.keyFile.unlink()
        self.daemon.start()
        self.within(5, lambda: "warnings" in self.readiness()[1])
        status, found = self.readiness()
        self.assertEqual((status, found["status"]), (200, "ok"))
        self.assertIn("missing", found["warnings"]["masterKeys"])
        self.assertIn("missing", self.script("status")["warnings"]["masterKeys"])
        self.assertEqual(self.get("plain"), BODY)
        self.put("other")
        self.refused("ServiceUnavailable", self.get, "a")
        self.refused("ServiceUnavailable", self.put, "b", **SSE_S3)
        self.refused("ServiceUnavailable", self.put, "b", **kms("default"))
        self.script("masterkeys", "create", "photos", expected=1)
        self.assertFalse(self.keyFile.exists())
        for damaged, mode in ((kept[:100], 0o600), (b"", 0o600), (kept, 0o644)):
            self.keyFile.write_bytes(damaged)
            self.keyFile.chmod(mode)
            self.refused("ServiceUnavailable", self.get, "a")
            self.refused("ServiceUnavailable", self.put, "b", **SSE_S3)
            self.assertEqual(self.keyFile.read_bytes(), damaged)
        self.keyFile.chmod(0o600)
        self.assertEqual(self.get("a"), BODY)
        self.within(12, lambda: "warnings" not in self.readiness()[1])

    def test_foreign(self) -> None:
        """The file of another store, as of a wrong path, seals nothing, and is named."""
        self.put("a", **SSE_S3)
        kept = self.keyFile.read_bytes()
        self.keyFile.unlink()
        createKeyFile(str(self.keyFile))
        self.assertEqual(self.daemon.stop(), 0)
        self.daemon.start()
        self.within(5, lambda: "warnings" in self.readiness()[1])
        self.assertIn("another store", self.readiness()[1]["warnings"]["masterKeys"])
        self.s3.create_bucket(Bucket="two")
        for bucket in ("one", "two"):
            self.refused("ServiceUnavailable", self.put, "b", bucket, **SSE_S3)
        self.refused("ServiceUnavailable", self.get, "a")
        self.script("masterkeys", "rewrap", expected=1)
        self.put("plain", "two")
        self.keyFile.write_bytes(kept)
        self.assertEqual(self.get("a"), BODY)
        self.put("b", "two", **SSE_S3)
        self.within(12, lambda: "warnings" not in self.readiness()[1])
        self.assertEqual(self.script("masterkeys", "rewrap")["current"], 2)

    def test_backup(self) -> None:
        """A backup takes the keys only if it is told to, and says that it has not."""
        self.put("plain")
        without = self.directory / "without"
        found = self.script("backup", "--to", str(without))
        self.assertNotIn("master", str(found["lines"]))
        self.put("a", **SSE_S3)
        shutil.rmtree(without)
        found = self.script("backup", "--to", str(without))
        self.assertIn("--with-keys", str(found["lines"]))
        self.assertFalse((without / "master-keys").exists())
        whole = self.directory / "whole"
        self.script("backup", "--to", str(whole), "--with-keys")
        self.assertEqual((whole / "master-keys").read_bytes(), self.keyFile.read_bytes())
        self.assertEqual(stat.S_IMODE((whole / "master-keys").stat().st_mode), 0o600)
        self.assertEqual(self.daemon.stop(), 0)
        for source in (whole, without):
            to = self.directory / f"restored-{source.name}"
            self.script("restore", "--from", str(source), "--to", str(to))
            self.daemon = self.serve(to)
            self.assertEqual(self.get("plain"), BODY)
            if source is whole:
                self.assertEqual(self.get("a"), BODY)
            else:
                self.refused("ServiceUnavailable", self.get, "a")
            self.daemon.stop()

    def test_underLoad(self) -> None:
        """Keys that are rotated, disabled and rewrapped under load lose no acknowledged object."""
        self.script("masterkeys", "create", "photos")
        writers = [Writer(self, f"w{number}", kms("photos")) for number in range(2)]
        for _ in range(3):
            self.script("masterkeys", "rotate", "photos")
            self.script("masterkeys", "rewrap")
            self.script("masterkeys", "disable", "photos")
            threading.Event().wait(0.5)
            self.script("masterkeys", "enable", "photos")
            threading.Event().wait(0.5)
        for writer in writers:
            writer.end()
            self.assertLessEqual(writer.codes, {"KMS.DisabledException"})
            self.assertTrue(writer.stored)
            for key in writer.stored:
                self.assertEqual(self.get(key), BODY)


class Writer(threading.Thread):
    """
    Stores objects until it is ended.

    @ivar stored: The keys of the acknowledged objects.
    @ivar codes: The codes of the refused ones.
    """

    def __init__(self, case: MasterKeyCase, name: str, encryption: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self.stored: list[str] = []
        self.codes: set[str] = set()
        self._case = case
        self._prefix = name
        self._encryption = encryption
        self._isEnding = threading.Event()
        self.start()

    def end(self) -> None:
        """End after the object in progress."""
        self._isEnding.set()
        self.join()

    def run(self) -> None:
        """Store objects."""
        number = 0
        while not self._isEnding.wait(0.01):
            number += 1
            key = f"{self._prefix}-{number}"
            try:
                self._case.put(key, **self._encryption)
            except ClientError as error:
                self.codes.add(error.response["Error"]["Code"])
            else:
                self.stored.append(key)


@long("starts OpenBao and daemons")
class VaultTests(MasterKeyCase):
    """Keys in OpenBao."""

    def setUp(self) -> None:
        """Start OpenBao, and a daemon that uses it."""
        self.bao = OpenBao()
        self.addCleanup(self.bao.close)
        self.variables = {
            "STORAGEGATE_VAULT_ADDRESS": self.bao.url,
            "STORAGEGATE_VAULT_TOKEN": self.bao.newToken("1h"),
            "STORAGEGATE_VAULT_CA_FILE": self.bao.caFile,
        }
        super().setUp()

    def test_calls(self) -> None:
        """
        Two calls make and prove the key of a bucket, and one opens it after a restart, for all
        objects.
        """
        self.within(10, lambda: "run storagegate" in str(self.readiness()))
        self.script("masterkeys", "create")
        self.within(5, lambda: "warnings" not in self.readiness()[1])
        self.s3.create_bucket(Bucket="two")
        for bucket in ("one", "two"):
            for number in range(20):
                self.put(f"k{number}", bucket, **kms("storagegate"))
        self.assertEqual(self.bao.requests("transit/encrypt/"), 2)
        self.assertEqual(self.bao.requests("transit/decrypt/"), 2)
        self.assertEqual(self.daemon.stop(), 0)
        self.daemon.start()
        for bucket in ("one", "two"):
            for number in range(20):
                self.assertEqual(self.get(f"k{number}", bucket), BODY)
        self.assertEqual(self.bao.requests("transit/decrypt/"), 4)
        self.assertEqual(self.bao.requests("transit/encrypt/"), 2)
        self.assertFalse(self.keyFile.exists())
        # Commands use the transit engine, too.
        self.script("masterkeys", "create", "photos")
        self.script("masterkeys", "rotate")
        [photos, default] = self.script("masterkeys", "list")["masterKeys"]
        self.assertEqual((photos["name"], default["versions"]), ("photos", 2))
        self.assertEqual(self.script("masterkeys", "rewrap")["rewrapped"], 2)
        self.assertEqual(self.script("masterkeys", "rewrap")["current"], 2)
        self.assertEqual(self.get("k1"), BODY)
        self.script("backup", "--to", str(self.directory / "b"), "--with-keys", expected=2)
        shown = self.script("config", "show")
        self.assertNotIn(self.variables["STORAGEGATE_VAULT_TOKEN"], str(shown))
        self.script("masterkeys", "disable", "photos")
        self.refused("KMS.DisabledException", self.put, "c", **kms("photos"))

    def test_away(self) -> None:
        """While Vault is away, open keys serve; after a restart requests wait for it with 503."""
        self.script("masterkeys", "create")
        self.put("plain")
        self.put("a", **SSE_S3)
        self.s3.create_bucket(Bucket="two")
        writer = Writer(self, "w", SSE_S3)
        self.bao.stop()
        threading.Event().wait(0.5)
        # The key of the first bucket is open, the second has none.
        self.assertEqual(self.get("a"), BODY)
        self.refused("ServiceUnavailable", self.put, "x", "two", **SSE_S3)
        writer.end()
        self.assertEqual(writer.codes, set())
        self.assertEqual(self.daemon.stop(), 0)
        self.daemon.start()
        self.within(10, lambda: "masterKeys" in self.readiness()[1].get("warnings", {}))
        self.assertEqual(self.readiness()[0], 200)
        self.assertEqual(self.get("plain"), BODY)
        self.put("plain2")
        self.refused("ServiceUnavailable", self.get, "a")
        self.refused("ServiceUnavailable", self.put, "x", **SSE_S3)
        writer = Writer(self, "v", SSE_S3)
        self.bao.start()
        self.within(10, lambda: "warnings" not in self.readiness()[1])
        self.within(10, lambda: bool(writer.stored))
        writer.end()
        self.assertLessEqual(writer.codes, {"ServiceUnavailable"})
        self.assertTrue(writer.stored)
        for key in ("a", *writer.stored):
            self.assertEqual(self.get(key), BODY)

    def test_underLoad(self) -> None:
        """Keys that are rotated, rewrapped and deleted under load lose no other object."""
        self.daemon.stop()
        # An open key of a bucket would hide what happens to its master key.
        self.variables["STORAGEGATE_KEY_CACHE_SECONDS"] = "1"
        self.daemon = self.serve(self.data)
        self.script("masterkeys", "create")
        self.script("masterkeys", "create", "photos")
        writers = [Writer(self, f"w{number}", SSE_S3) for number in range(2)]
        lost = Writer(self, "photos", kms("photos"))
        for version in (2, 3):
            for name in ("photos", "storagegate"):
                self.script("masterkeys", "rotate", name)
            self.assertEqual(self.script("masterkeys", "rewrap")["failed"], [])
            for name in ("photos", "storagegate"):
                # Nothing is wrapped under an earlier version any more.
                versions = {"min_decryption_version": version}
                self.bao.call("POST", f"transit/keys/{name}/config", versions)
            threading.Event().wait(1.5)
        self.assertEqual(lost.codes, set())
        self.bao.call("POST", "transit/keys/photos/config", {"deletion_allowed": True})
        self.bao.call("DELETE", "transit/keys/photos")
        self.within(10, lambda: not self.canPut(**kms("photos")))
        self.within(10, lambda: bool(lost.codes))
        threading.Event().wait(1.5)
        for writer in (*writers, lost):
            writer.end()
        self.assertEqual(lost.codes, {"KMS.NotFoundException"})
        self.refused("KMS.NotFoundException", self.get, lost.stored[0])
        for writer in writers:
            self.assertEqual(writer.codes, set())
            for key in writer.stored:
                self.assertEqual(self.get(key), BODY)
        self.daemon.stop()
        for path in (each for each in self.data.rglob("*") if each.is_file()):
            self.assertNotIn(BODY[:32], path.read_bytes(), path)
