"""Master keys of a cluster: one file for all nodes, rewraps through a node, and backups."""

import json
from typing import Any

from botocore.exceptions import ClientError
from twisted.trial.unittest import SynchronousTestCase

from tests.support.cluster import Cluster
from tests.support.daemon import Daemon
from tests.support.selection import long

BODY = b"plain text" * 9000
SSE_S3 = {"ServerSideEncryption": "AES256"}


@long("starts a cluster")
class MasterKeyTests(SynchronousTestCase):
    """Two nodes that share the file."""

    def setUp(self) -> None:
        """Start the nodes without the file, and make a bucket."""
        self.cluster = Cluster()
        self.addCleanup(self.cluster.close)
        self.file = self.cluster.directory / "shared-master-keys"
        self.variables = {"STORAGEGATE_MASTER_KEYS": str(self.file)}
        self.nodes = [self.cluster.node(environment=self.variables) for _ in range(2)]
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.waitForListeners()
        self.client(0).create_bucket(Bucket="bucket")

    def client(self, node: int) -> Any:
        """Return a client of a node."""
        return self.cluster.client(self.nodes[node], patient=False)

    def get(self, node: int) -> bytes:
        """Read the object from a node."""
        found: bytes = self.client(node).get_object(Bucket="bucket", Key="k")["Body"].read()
        return found

    def command(self, *words: str, expected: int = 0) -> str:
        """Run a command with the configuration of the cluster."""
        code, text = self.cluster.command(*words, environment=self.variables)
        self.assertEqual(code, expected, text)
        return text

    def remote(self, node: Daemon, *words: str) -> Any:
        """Run a command over the API of a node; return the object that it prints."""
        return json.loads(self.command(*words, "--json", "--url", node.url("admin")))

    def test_shared(self) -> None:
        """
        No node makes the file. When a command has, all nodes open each other's objects; a rewrap
        goes through a node, and a backup has the keys if it is told to.
        """
        with self.assertRaises(ClientError) as caught:
            self.client(0).put_object(Bucket="bucket", Key="k", Body=BODY, **SSE_S3)
        self.assertEqual(caught.exception.response["Error"]["Code"], "ServiceUnavailable")
        self.assertFalse(self.file.exists())
        self.command("masterkeys", "create")
        self.client(0).put_object(Bucket="bucket", Key="k", Body=BODY, **SSE_S3)
        self.assertEqual([self.get(0), self.get(1)], [BODY, BODY])
        self.command("masterkeys", "rotate")
        found = self.remote(self.nodes[0], "masterkeys", "rewrap")
        self.assertEqual((found["rewrapped"], found["failed"]), (1, []))
        found = self.remote(self.nodes[1], "masterkeys", "rewrap")
        self.assertEqual((found["rewrapped"], found["current"]), (0, 1))
        self.assertEqual([self.get(0), self.get(1)], [BODY, BODY])
        listed = self.remote(self.nodes[1], "masterkeys", "list")["masterKeys"]
        self.assertEqual([each["versions"] for each in listed], [2])
        self.assertIn("--url", self.command("masterkeys", "rewrap", expected=1))
        without, whole = self.cluster.directory / "without", self.cluster.directory / "whole"
        text = self.command("backup", "--to", str(without))
        self.assertIn("1 bucket needs them", text)
        self.assertFalse((without / "master-keys").exists())
        self.command("backup", "--to", str(whole), "--with-keys")
        self.assertEqual((whole / "master-keys").read_bytes(), self.file.read_bytes())
        # The restore puts them back, but never over another file.
        kept = self.file.read_bytes()
        self.file.unlink()
        other = Cluster(isInitialised=False)
        self.addCleanup(other.close)
        code, text = other.command("restore", "--from", str(whole), environment=self.variables)
        self.assertEqual(code, 0, text)
        self.assertEqual(self.file.read_bytes(), kept)
        node = other.node(environment=self.variables).start()
        body = other.client(node).get_object(Bucket="bucket", Key="k")["Body"].read()
        self.assertEqual(body, BODY)
