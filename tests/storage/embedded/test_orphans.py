"""Blobs that no catalog names are copied, with what can be known of them."""

import json
import os
from hashlib import md5
from pathlib import Path

from storagegate.storage.files import Files
from tests.cli.test_main import ScriptCase
from tests.support.stores import StoreDriver, fastDirectory


class RecoverTests(ScriptCase):
    """C{storagegate recover} on a store with two large objects."""

    def setUp(self) -> None:
        self.data = Path(fastDirectory(self))
        self.target = Path(fastDirectory(self))
        self.driver = StoreDriver(str(self.data), Files())
        self.driver.createBucket("b")
        self.bodies = {b"a": b"first" * 100, b"b": b"second" * 100}
        for key, body in self.bodies.items():
            self.driver.put("b", key, body)
        self.driver.close()
        self.blobs = self.driver.blobFiles()[0]

    def recover(self) -> tuple[int, str, str]:
        """Run the command."""
        return self.script("recover", "--data", str(self.data), "--to", str(self.target))

    def assertRecovered(self, bodies: list[bytes]) -> None:
        """The target has these bytes, and an index of them."""
        lines = [json.loads(line) for line in (self.target / "blobs.jsonl").open()]
        self.assertEqual(len(os.listdir(self.target)), len(bodies) + 1)
        found = {line["md5"]: line for line in lines}
        self.assertEqual(set(found), {md5(body).hexdigest() for body in bodies})
        for body in bodies:
            line = found[md5(body).hexdigest()]
            self.assertEqual((self.target / line["blob"]).read_bytes(), body)
            self.assertEqual(line["bytes"], len(body))
            self.assertRegex(line["modified"], r"^[0-9-]{10}T[0-9:]{8}Z$")
            self.assertEqual(len(line["crc32c"]), 8)

    def test_catalogLost(self) -> None:
        """Without a catalog, or with one that is broken, all blobs are copied, and stay."""
        for content in (None, b"", b"no database" * 1000):
            (self.data / "catalog.sqlite").unlink(missing_ok=True)
            if content is not None:
                (self.data / "catalog.sqlite").write_bytes(content)
            code, output, errors = self.recover()
            self.assertEqual((code, errors), (0, ""))
            self.assertIn("2 blobs with 1100 bytes were copied", output)
            self.assertRecovered(list(self.bodies.values()))
            self.assertEqual(self.driver.blobFiles()[0], self.blobs)
            self.target = Path(fastDirectory(self))

    def test_named(self) -> None:
        """What the catalog names is no orphan."""
        code, output, _ = self.recover()
        self.assertEqual(code, 0)
        self.assertIn("0 blobs with 0 bytes", output)
        self.assertRecovered([])
        orphan = "ab" * 16
        shard = self.data / "blobs" / "ab" / "ab"
        shard.mkdir(parents=True)
        (shard / orphan).write_bytes(b"orphan")
        self.target = Path(fastDirectory(self))
        self.recover()
        self.assertRecovered([b"orphan"])

    def test_refused(self) -> None:
        """An open store, a target with files and one within the data are refused in one line."""
        self.driver.open()
        code, _, errors = self.recover()
        self.assertEqual((code, errors.count("\n")), (1, 1))
        self.assertIn("is in use by another process", errors)
        self.driver.close()
        self.target.mkdir()
        (self.target / "notes").write_text("mine")
        self.assertIn("is not empty", self.recover()[2])
        self.target = self.data / "staging" / "copy"
        self.assertIn("is inside the data directory", self.recover()[2])
        self.data = self.target
        self.assertIn("contains no store", self.recover()[2])

    def test_commandsNameTheLoss(self) -> None:
        """The other commands do not say that a store whose catalog is lost is none."""
        (self.data / "catalog.sqlite").unlink()
        for command in (("fsck", "--repair"), ("keys", "list")):
            code, _, errors = self.script(*command, "--data", str(self.data))
            self.assertEqual((code, errors.count("\n")), (1, 1))
            self.assertIn("catalog.sqlite is gone, but the store's blobs are there", errors)
        self.assertEqual(self.driver.blobFiles()[0], self.blobs)
