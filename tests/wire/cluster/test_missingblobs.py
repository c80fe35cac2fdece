"""Blobs that are missing or short in the store of a cluster, while the catalog has their rows."""

import os
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError
from twisted.trial.unittest import SynchronousTestCase

from tests.support.cluster import Cluster
from tests.support.http import request
from tests.support.patroni import until
from tests.support.selection import long

BODY = os.urandom(1 << 20)


@long("starts a cluster")
class MissingTests(SynchronousTestCase):
    """Two nodes on a directory."""

    timeout = 120

    def test_missing(self) -> None:
        """
        A blob that is missing or short is a damage that both nodes answer with 500, and mark;
        others are served, and a new write of the key heals it.
        """
        cluster = Cluster()
        self.addCleanup(cluster.close)
        nodes = cluster.start(2)
        clients = [cluster.client(node, patient=False) for node in nodes]
        clients[0].create_bucket(Bucket="box")
        keys = ("missing", "short", "whole")
        for key in keys:
            clients[0].put_object(Bucket="box", Key=key, Body=BODY)
        names = dict(
            cluster.rows("SELECT convert_from(key, 'UTF8'), segments::json -> 0 ->> 0 FROM objects")
        )
        self.blobOf(cluster, names["missing"]).unlink()
        os.truncate(self.blobOf(cluster, names["short"]), 1000)
        for client in clients:
            for key in keys[:2]:
                with self.assertRaises(ClientError) as caught:
                    client.get_object(Bucket="box", Key=key)
                self.assertEqual(caught.exception.response["Error"]["Code"], "InternalError")
            self.assertEqual(self.read(client, "whole"), BODY)
        damaged = "SELECT id FROM blobs WHERE damaged ORDER BY id"
        expected = sorted((names["missing"], names["short"]))
        until(lambda: [id for (id,) in cluster.rows(damaged)] == expected)
        for node in nodes:
            status, body = request(node.address("admin"), "GET", "/readyz")
            self.assertEqual(status, 200, body)
            self.assertIn(b"corrupt", body)
        for key in keys[:2]:
            clients[1].put_object(Bucket="box", Key=key, Body=BODY[::-1])
            for client in clients:
                self.assertEqual(self.read(client, key), BODY[::-1])
        # Their rows go with what is left of them.
        until(lambda: cluster.rows("SELECT count(*) FROM blobs") == [(3,)])
        self.assertEqual(cluster.rows(damaged), [])

    def read(self, client: Any, key: str) -> bytes:
        """Read an object."""
        body: bytes = client.get_object(Bucket="box", Key=key)["Body"].read()
        return body

    def blobOf(self, cluster: Cluster, blob: str) -> Path:
        """Return the file of a blob."""
        directory = Path(cluster.blobs.removeprefix("files:"))
        [path] = directory.rglob(f"{blob}*")
        return path
