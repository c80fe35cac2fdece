"""Starts with blobs on a network: what is wrong is said in one line."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate.storage.cluster.blobs import rados, s3, shared
from storagegate.storage.cluster.blobs.pieces import MARKER
from storagegate.storage.cluster.blobs.remote import checkPieces, claimPieces
from storagegate.storage.cluster.blobs.s3 import BucketPieces
from storagegate.storage.errors import StoreBusy, StoreError
from storagegate.storage.identity import ForeignBlobs
from storagegate.storage.threadpool import BoundedThreadPool
from tests.contract.remoteblobs import STORE
from tests.support.ceph import runningCluster
from tests.support.certificates import Authority
from tests.support.clients import ROOT
from tests.support.contention import Stopwatch
from tests.support.daemon import Daemon
from tests.support.ports import heldPort
from tests.support.selection import long
from tests.support.upstreams3 import Upstream, credentials, ownServer, rcloneServer


class StartCase(TestCase):
    """A pool of threads."""

    def setUp(self) -> None:
        """Start it."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.pool = BoundedThreadPool(reactor)
        self.addCleanup(self.pool.stop)

    async def refused(self, error: type[Exception], call: Callable[..., Any], *args: Any) -> str:
        """Make a call, which must fail with one line; return that."""
        watch = Stopwatch()
        with self.assertRaises(error) as caught:
            result = call(*args)
            if not isinstance(result, Deferred):
                result = Deferred.fromCoroutine(result)
            await result
        text = str(caught.exception)
        self.assertTrue(text)
        self.assertNotIn("\n", text)
        self.assertLess(watch.seconds(), 15.0)
        return text


@long("starts Ceph")
class RadosStartTests(StartCase):
    """Pools."""

    async def test_wrong(self) -> None:
        """A wrong pool, configuration, user or cluster is named."""
        cluster = await deferToThread(runningCluster)
        absent = Path(self.mktemp()).absolute()
        absent.write_text(f"[global]\nmon host = v1:127.0.0.1:{heldPort(self)}\n")
        for text, word in (
            (f"rados:absent?conf={cluster.configuration}", "absent"),
            ("rados:blobs?conf=/nowhere/ceph.conf", "/nowhere/ceph.conf"),
            (f"rados:blobs?conf={absent}", "cluster"),
            ("rados:blobs?pool=x", "pool"),
        ):
            found = await self.refused(
                StoreError, deferToThread, rados.openPieces, text, self.reactor, self.pool
            )
            self.assertIn(word, found)

    async def test_excluded(self) -> None:
        """A client that the cluster has excluded is replaced by a new one."""
        cluster = await deferToThread(runningCluster)
        await deferToThread(cluster.makePool, "excluded")
        text = f"rados:excluded?conf={cluster.configuration}"
        pieces = await deferToThread(rados.openPieces, text, self.reactor, self.pool)
        self.addCleanup(pieces.close)
        await claimPieces(pieces, STORE)
        address = await deferToThread(cluster.addressOf, pieces._connection.cluster)
        await deferToThread(cluster.exclude, address)
        old = pieces._connection
        with self.assertRaises(StoreBusy):
            for _ in range(1000):
                await pieces.put(os.urandom(8).hex(), 0, [b"bytes"], True)
        end = self.reactor.seconds() + 60
        while pieces._connection is old:
            self.assertLess(self.reactor.seconds(), end)
            await deferToThread(lambda: None)
        await pieces.put("after", 0, [b"bytes"], True)
        self.assertEqual((await pieces.get("after", 0, 9)).body, b"bytes")


@long("starts Ceph")
class BucketStartTests(StartCase):
    """Buckets."""

    def opened(self, address: Any, pair: Any = None) -> BucketPieces:
        """Make a client of a bucket."""
        pieces = BucketPieces(address, self.reactor, self.pool, pair or credentials())
        self.addCleanup(pieces.close)
        return pieces

    async def test_wrong(self) -> None:
        """A wrong bucket, key pair, address or URL is named."""
        from awscrt import auth

        upstream = await deferToThread(ownServer)
        address = await deferToThread(upstream.newBucket)
        wrong = auth.AwsCredentialsProvider.new_static(ROOT.accessKey, "not the secret")
        closed = f"127.0.0.1:{heldPort(self)}"
        for pieces, word in (
            (self.opened(evolve(address, bucket="absent")), "NoSuchBucket"),
            (self.opened(address, wrong), "403"),
            (self.opened(evolve(address, host=closed)), closed),
        ):
            for check in (checkPieces, claimPieces):
                self.assertIn(word, await self.refused(StoreBusy, check, pieces, STORE))
        with self.assertRaises(StoreError):
            s3.openPieces("s3:bucket", self.reactor, self.pool)

    async def test_notInitialised(self) -> None:
        """A store that was never claimed, as an empty mount, is refused, and stays as it is."""
        upstream = await deferToThread(ownServer)
        address = await deferToThread(upstream.newBucket)
        directory = os.path.abspath(self.mktemp())
        os.makedirs(directory)
        files = shared.openPieces(f"files:{directory}", self.reactor)
        self.addCleanup(files.close)
        for pieces in (files, self.opened(address)):
            found = await self.refused(ForeignBlobs, checkPieces, pieces, STORE)
            self.assertIn(MARKER, found)
        self.assertEqual(os.listdir(directory), [])
        self.assertEqual(await deferToThread(upstream.names, address), set())

    async def test_removedBucket(self) -> None:
        """A bucket that is removed while it is used is no bucket of missing blobs."""
        upstream = await deferToThread(ownServer)
        address = await deferToThread(upstream.newBucket)
        pieces = self.opened(evolve(address, bucket=address.bucket + "-gone"))
        for operation in (
            pieces.get("blob", 0, 1),
            pieces.put("blob", 0, [b"bytes"], True),
            pieces.remove("blob"),
        ):
            with self.assertRaises(StoreBusy):
                await operation

    async def test_secure(self) -> None:
        """TLS is used with the authorities that are named, and refused with others."""
        authority = Authority(Path(self.mktemp()).absolute())
        other = Authority(Path(self.mktemp()).absolute(), "other")
        certificate, key = authority.issue()
        daemon = Daemon(
            Path(self.mktemp()).absolute() / "data",
            "--s3",
            f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}",
            environment={
                "STORAGEGATE_ACCESS_KEY": ROOT.accessKey,
                "STORAGEGATE_SECRET_KEY": ROOT.secretKey,
            },
        )
        self.addCleanup(deferToThread, daemon.kill)
        await deferToThread(daemon.start)
        host, port = daemon.address()
        address = s3.BucketAddress(
            f"{host}:{port}", True, "secure", authorities=str(authority.path)
        )
        upstream = Upstream(f"https://{host}:{port}")
        await deferToThread(upstream.makeBucket, "secure", str(authority.path))
        pieces = self.opened(address)
        await claimPieces(pieces, STORE)
        body = os.urandom(3 << 20)
        await pieces.put("blob", 0, [body], True)
        self.assertTrue(
            (await pieces.get("blob", 1 << 20, 1 << 20)).body == body[1 << 20 : 2 << 20]
        )
        distrusts = self.opened(evolve(address, authorities=str(other.path)))
        await self.refused(StoreBusy, checkPieces, distrusts, STORE)

    async def test_region(self) -> None:
        """Requests are signed for the region that the URL names; a wrong one is refused."""
        other = "eu-central-2"
        upstream = await deferToThread(rcloneServer)
        address = evolve(await deferToThread(upstream.newBucket), region=other)
        await claimPieces(self.opened(address), STORE)
        upstream = await deferToThread(ownServer)
        address = evolve(await deferToThread(upstream.newBucket), region=other)
        found = await self.refused(StoreBusy, claimPieces, self.opened(address), STORE)
        self.assertIn("AuthorizationHeaderMalformed", found)
