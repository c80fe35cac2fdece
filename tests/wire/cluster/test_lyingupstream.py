"""A cluster whose blobs are in a bucket of a server that lies, as its clients see it."""

import atexit
import os
import re
from functools import cache
from typing import Any

from attrs import evolve
from botocore.exceptions import ClientError
from twisted.trial.unittest import SynchronousTestCase

from tests.support.cluster import Cluster
from tests.support.http import request
from tests.support.lyingupstream import LyingUpstream, Reply, Sent, flipped, html, notFound
from tests.support.patroni import until
from tests.support.selection import long

BODY = os.urandom(300_000)


@cache
def runningCluster() -> tuple[LyingUpstream, Cluster]:
    """Start the server and two nodes, which run until the end."""
    upstream = LyingUpstream().start()
    cluster = Cluster(f"s3:http://127.0.0.1:{upstream.port}/bucket/blobs")
    atexit.register(cluster.close)
    cluster.start(2)
    cluster.client(cluster.nodes[0]).create_bucket(Bucket="box")
    return upstream, cluster


@long("starts a cluster")
class LyingUpstreamTests(SynchronousTestCase):
    """Two nodes."""

    def setUp(self) -> None:
        """Believe the server again afterwards."""
        self.upstream, self.cluster = runningCluster()
        nodes = self.cluster.nodes[:2]
        self.clients = [self.cluster.client(node, patient=False) for node in nodes]
        self.addCleanup(self.lie, lambda sent, reply: reply)

    def lie(self, change: Any) -> None:
        """Change the answers of the server."""
        self.upstream.change = change

    def assertCode(self, code: int, call: Any, **named: Any) -> None:
        """Check the status of an error response."""
        with self.assertRaises(ClientError) as caught:
            call(**named)
        found = caught.exception.response["ResponseMetadata"]["HTTPStatusCode"]
        self.assertEqual(found, code)

    def blobOf(self, key: str) -> str:
        """Return the blob of an object."""
        [(blob,)] = self.cluster.rows(
            "SELECT segments::json -> 0 ->> 0 FROM objects WHERE key = %s", key.encode()
        )
        return str(blob)

    def page(self, node: int, path: str) -> tuple[int, str]:
        """Get a page of the admin listener."""
        status, body = request(self.cluster.nodes[node].address("admin"), "GET", path)
        return status, body.decode()

    def test_unconfirmed(self) -> None:
        """An upload that the server does not confirm is 503 in all forms, counted, logged once."""
        client = self.clients[0]
        begun = client.create_multipart_upload(Bucket="box", Key="parts")["UploadId"]
        self.lie(lambda sent, reply: html(sent, reply) if sent.method == "PUT" else reply)
        for _ in range(2):
            self.assertCode(503, client.put_object, Bucket="box", Key="k", Body=BODY)
        part = {"Bucket": "box", "Key": "parts", "UploadId": begun, "PartNumber": 1, "Body": BODY}
        self.assertCode(503, client.upload_part, **part)
        self.lie(lambda sent, reply: reply)
        self.assertCode(404, client.get_object, Bucket="box", Key="k")
        found = re.search(
            r"^storagegate_store_unconfirmed_writes_total (\S+)$",
            self.page(0, "/metrics")[1],
            re.MULTILINE,
        )
        assert found is not None
        self.assertGreaterEqual(float(found[1]), 3)
        self.assertEqual(self.cluster.nodes[0].log.count("did not confirm an upload"), 1)

    def test_wrongBit(self) -> None:
        """A wrong bit of one answer reaches no client."""
        self.clients[0].put_object(Bucket="box", Key="bit", Body=BODY)
        blob, lies = self.blobOf("bit"), []

        def change(sent: Sent, reply: Reply) -> Reply:
            if sent.method == "GET" and blob in sent.key and not lies:
                lies.append(1)
                return evolve(reply, body=flipped(reply.body, 9))
            return reply

        self.lie(change)
        for client, range in ((self.clients[0], "bytes=0-"), (self.clients[1], "bytes=7-70000")):
            lies.clear()
            found = client.get_object(Bucket="box", Key="bit", Range=range)["Body"].read()
            self.assertTrue(BODY[7:70001] in found)
            self.assertTrue(lies)

    def test_notFound(self) -> None:
        """404 of something else is 503, on the health page, too; no object becomes damaged."""
        client = self.clients[0]
        client.put_object(Bucket="box", Key="there", Body=BODY)
        self.lie(notFound)
        self.assertCode(503, client.put_object, Bucket="box", Key="new", Body=BODY)
        self.assertCode(503, client.get_object, Bucket="box", Key="there")
        until(lambda: self.page(0, "/readyz")[0] == 503)
        self.assertIn("404", self.page(0, "/readyz")[1])
        path = self.cluster.configuration()
        code, text = self.cluster.command("cluster", "init", path=path)
        self.assertEqual((code, text.count("\n")), (1, 1), text)
        self.lie(lambda sent, reply: reply)
        until(lambda: self.page(0, "/readyz")[0] == 200)
        self.assertEqual(client.get_object(Bucket="box", Key="there")["Body"].read(), BODY)
        self.assertEqual(self.cluster.rows("SELECT id FROM blobs WHERE damaged"), [])

    def test_putBack(self) -> None:
        """
        A blob that was lost is damage. When it is put back, the fsck takes the mark away, in the
        catalog and in all nodes.
        """
        self.clients[0].put_object(Bucket="box", Key="lost", Body=BODY)
        key = f"blobs/{self.blobOf('lost')}"
        kept = self.upstream.objects.pop(key)
        for client in self.clients:
            self.assertCode(500, client.get_object, Bucket="box", Key="lost")
        until(lambda: self.cluster.rows("SELECT count(*) FROM blobs WHERE damaged") == [(1,)])
        for node in (0, 1):
            self.assertIn("corrupt", self.page(node, "/readyz")[1])
        self.upstream.objects[key] = kept
        code, text = self.cluster.command("cluster", "fsck", "--verify")
        self.assertEqual(code, 0, text)
        self.assertIn("is correct: it is served again", text)
        for node, client in enumerate(self.clients):
            until(lambda node=node: "corrupt" not in self.page(node, "/readyz")[1])
            self.assertEqual(client.get_object(Bucket="box", Key="lost")["Body"].read(), BODY)

    def test_unnamed(self) -> None:
        """An object that was not removed stays garbage; one that no row names is listed."""
        stray = "f" * 32
        self.upstream.objects[f"blobs/{stray}"] = (b"left", {})
        self.clients[0].put_object(Bucket="box", Key="gone", Body=BODY)
        blob = self.blobOf("gone")
        self.lie(lambda sent, reply: html(sent, reply) if sent.method == "DELETE" else reply)
        self.clients[0].delete_object(Bucket="box", Key="gone")
        row = "SELECT refs FROM blobs WHERE id = %s"
        until(lambda: any("a removal with 200" in self.page(node, "/readyz")[1] for node in (0, 1)))
        until(lambda: self.cluster.rows(row, blob) == [(0,)])
        code, text = self.cluster.command("cluster", "fsck", "--verify")
        self.assertIn(f"object {stray} of 4 bytes is not referenced by any row\n1 problem\n", text)
        self.assertEqual(code, 1)
        del self.upstream.objects[f"blobs/{stray}"]
        self.lie(lambda sent, reply: reply)
        until(lambda: self.cluster.rows(row, blob) == [])

    def test_otherPrefix(self) -> None:
        """Neither init nor a node takes another place than that of the catalog's blobs."""
        before = set(self.upstream.objects)
        wrong = f"s3:http://127.0.0.1:{self.upstream.port}/bucket/blosb"
        path = self.cluster.configuration(blobs=wrong)
        code, text = self.cluster.command("cluster", "init", path=path)
        self.assertEqual(code, 1)
        self.assertRegex(text, r"\Astoragegate: bucket bucket/blosb at \S+ has no store-id: .*\n\Z")
        self.assertIn("the blobs of the catalog are elsewhere", text)
        node = self.cluster.node(configuration=path)
        node.launch()
        self.assertEqual(node.wait(30), 1)
        self.cluster.nodes.remove(node)
        self.assertIn("the blobs of the catalog are elsewhere", node.log)
        self.assertEqual({key for key in self.upstream.objects if "blosb" in key}, set())
        self.assertLessEqual(before, set(self.upstream.objects))
