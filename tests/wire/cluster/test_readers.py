"""Readers beside the collector: of another node, stopped, and for long."""

import hashlib
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any

from tests.support.clients import ROOT
from tests.support.cluster import Cluster
from tests.support.daemon import Daemon
from tests.support.selection import long, rounds
from tests.wire.cluster.case import ClusterCase, ask, put
from tests.wire.s3.bulk import objectTarget

BUCKET = "readers"

LEASE_SECONDS = 9
"""The reader's node keeps its lease although a busy machine stops it for half of this time."""

SIZE = rounds(48, 48, soak=5 << 10) << 20
"""More than the sockets between a client and a node hold."""

READ_SECONDS = rounds(0, 0, soak=150)
"""How long the reader takes beyond the time that garbage waits anyway: beyond a minute a node names
what it reads."""

_CHUNK = 1 << 20


@long("starts a cluster")
class ReaderTests(ClusterCase):
    """An object is removed while a client reads it."""

    def setUp(self) -> None:
        """Start two nodes, and put a large object."""
        super().setUp()
        self.cluster: Cluster = self.makeCluster(options={"leaseSeconds": LEASE_SECONDS})
        self.reader, self.other = self.startNodes(self.cluster)
        self.cluster.client(self.reader).create_bucket(Bucket=BUCKET)
        self.word = self.random.randbytes(_CHUNK)
        self.digest = self._upload()

    def _upload(self) -> str:
        digest = hashlib.sha256()
        connection = HTTPConnection(*self.other.address(), timeout=60)

        def body() -> Any:
            for _ in range(SIZE // _CHUNK):
                digest.update(self.word)
                yield self.word

        headers = {**ROOT.plainHeaders(), "Content-Length": str(SIZE)}
        connection.request("PUT", objectTarget(BUCKET, "large"), body(), headers)
        self.assertEqual(connection.getresponse().status, 200)
        connection.close()
        return digest.hexdigest()

    def _open(self, node: Daemon) -> HTTPResponse:
        connection = HTTPConnection(*node.address(), timeout=60)
        self.addCleanup(connection.close)
        connection.request("GET", objectTarget(BUCKET, "large"), headers=ROOT.plainHeaders())
        response = connection.getresponse()
        self.assertEqual(response.status, 200)
        self.assertEqual(response.read(_CHUNK), self.word)
        return response

    def _blobs(self) -> int:
        [(count,)] = self.cluster.rows("SELECT count(*) FROM blobs")
        return int(count)

    def _remove(self) -> None:
        answer = ask(self.other, "DELETE", objectTarget(BUCKET, "large"))
        self.assertEqual(answer.status, 204)

    def test_removed(self) -> None:
        """Its blob stays until the reader of another node has it whole, and goes then."""
        response = self._open(self.reader)
        self._remove()
        digest = hashlib.sha256(self.word)
        # The leases are renewed several times, so only the reader keeps the blob.
        self.letPass(2 * LEASE_SECONDS)
        self.assertEqual(self._blobs(), 1)
        pause = READ_SECONDS / (SIZE / _CHUNK)
        while chunk := response.read(_CHUNK):
            digest.update(chunk)
            self.letPass(pause)
        self.assertEqual(digest.hexdigest(), self.digest)
        self.waitFor(lambda: self._blobs() == 0, "the blob stays")
        self.settle(self.cluster.conninfos[0])
        self.assertAgreement(self.cluster)

    def test_stopped(self) -> None:
        """A node that is stopped keeps nothing; its reader gets right bytes, or an end."""
        response = self._open(self.reader)
        self._remove()
        self.cluster.suspend(self.reader)
        self.waitFor(lambda: self._blobs() == 0, "the blob stays")
        self.cluster.resume(self.reader)
        found = _CHUNK
        try:
            while chunk := response.read(_CHUNK):
                self.assertEqual(chunk, (self.word * 2)[found % _CHUNK :][: len(chunk)])
                found += len(chunk)
        except (OSError, HTTPException):
            pass
        self.assertLess(found, SIZE)
        self.waitFor(lambda: put(self.reader, BUCKET, "k", b"x").status == 200, "no service")
        self.settle(self.cluster.conninfos[0])
        self.assertAgreement(self.cluster)
