"""Blobs in a bucket: the contract on our own daemon and rclone's server, and faults."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate.storage.cluster.blobs.s3 import BucketPieces
from storagegate.storage.errors import StoreBusy
from tests.contract.blobs import MIB, SlowResponse, load, store
from tests.contract.remoteblobs import RemoteCase, RemoteContract
from tests.contract.remotefaults import AwayContract, FaultContract, Faults
from tests.contract.remoteprocesses import ProcessContract
from tests.support.clients import ROOT
from tests.support.faultyproxy import FaultyProxy
from tests.support.selection import long
from tests.support.upstreams3 import Upstream, credentials, ownServer, rcloneServer


class BucketCase(RemoteCase):
    """A bucket of its own."""

    start: Callable[[], Upstream]

    async def setUp(self: Any) -> None:
        """Start the server with the first test."""
        self.upstream = await deferToThread(type(self).start)
        self.address = await deferToThread(self.upstream.newBucket)
        await super().setUp()

    def openPieces(self: Any) -> BucketPieces:
        """Connect."""
        from twisted.internet import reactor

        return BucketPieces(self.address, reactor, self.pool, credentials())

    def url(self: Any) -> tuple[str, Mapping[str, str]]:
        """Name the bucket."""
        address = self.address
        variables = {
            "AWS_ACCESS_KEY_ID": ROOT.accessKey,
            "AWS_SECRET_ACCESS_KEY": ROOT.secretKey,
        }
        return f"s3:{self.upstream.url}/{address.bucket}/{address.prefix}", variables

    async def names(self: Any) -> set[str]:
        """List the objects of the bucket."""
        return await deferToThread(self.upstream.names, self.address)


class OwnServerTests(BucketCase, RemoteContract, ProcessContract, TestCase):
    """The contract, where the bucket is another daemon's."""

    start = staticmethod(ownServer)


class RcloneTests(BucketCase, RemoteContract, ProcessContract, TestCase):
    """The contract, where the bucket is rclone's."""

    start = staticmethod(rcloneServer)

    @long("takes seconds")
    async def test_twoProcesses(self) -> None:
        """See L{ProcessContract.test_twoProcesses}."""
        await super().test_twoProcesses()


class ProxiedCase(BucketCase):
    """A bucket of our own daemon, behind a proxy that fails."""

    start = staticmethod(ownServer)

    async def setUp(self: Any) -> None:
        """Start the proxy."""
        upstream = await deferToThread(ownServer)
        self.proxy = FaultyProxy(int(upstream.url.rpartition(":")[2]))
        self.addCleanup(self.proxy.refuse)
        await super().setUp()

    def openPieces(self: Any) -> BucketPieces:
        """Connect to the proxy."""
        from twisted.internet import reactor

        address = evolve(self.address, host=f"127.0.0.1:{self.proxy.port}")
        return BucketPieces(address, reactor, self.pool, credentials())

    async def fill(self: Any) -> None:
        """Have every write of a file fail."""
        self.upstream.full.touch()
        self.addCleanup(self.upstream.full.unlink, missing_ok=True)

    async def free(self: Any) -> None:
        """Let files be written."""
        self.upstream.full.unlink()


@long("takes a second or more")
class LateAnswersTests(ProxiedCase, FaultContract, TestCase):
    """What happens while the server carries all out, and its answers do not come."""

    async def goAway(self: Any) -> None:
        """Keep what the server sends."""
        self.proxy.holdsAnswers = True

    async def comeBack(self: Any) -> None:
        """Pass it on."""
        self.proxy.release()


@long("takes a second or more")
class LateRequestsTests(ProxiedCase, AwayContract, TestCase):
    """What happens while requests do not reach the server, which has them all later."""

    async def goAway(self: Any) -> None:
        """Keep what the client sends."""
        self.proxy.holdsRequests = True

    async def comeBack(self: Any) -> None:
        """Pass it on, though the client has gone."""
        self.proxy.release()


@long("takes a second or more")
class RefusedTests(ProxiedCase, AwayContract, TestCase):
    """What happens while nothing listens."""

    async def goAway(self: Any) -> None:
        """Drop all connections, and accept none."""
        await self.proxy.refuse()

    async def comeBack(self: Any) -> None:
        """Accept them again."""
        self.proxy.accept()


class CutTests(ProxiedCase, Faults, TestCase):
    """Connections that break in the middle."""

    @long("takes a second or more")
    async def test_read(self: Any) -> None:
        """An answer that is cut off is asked for again, or the read fails; no byte is wrong."""
        body = os.urandom(6 * MIB)
        content = await store(self.blobs, body)
        [segment] = content.segments
        for cutAfter in (1, 300, 1000, 70_000, MIB, MIB + 500, 3 * MIB):
            self.proxy.cutAfter = cutAfter
            response = SlowResponse()
            handle = await self.blobs.open(segment)
            try:
                await handle.sendTo(response, 0, len(body))
            except StoreBusy:
                self.assertTrue(body.startswith(response.body))
            else:
                self.assertTrue(response.body == body)
            handle.close()
        self.assertEqual(self.proxy.cuts, 7)
        self.assertTrue(await load(self.blobs, content) == body)

    @long("takes a second or more")
    async def test_write(self: Any) -> None:
        """An upload whose acknowledgement is cut off is stored once, or fails and is removed."""
        kept = []
        for cutAfter in (1, 50, 120, 200, 260):
            self.proxy.cutAfter = cutAfter
            body = os.urandom(5 * MIB)
            try:
                kept.append((await store(self.blobs, body), body))
            except StoreBusy:
                continue
        self.assertGreater(self.proxy.cuts, 0)
        self.proxy.cutAfter = None
        for content, body in kept:
            self.assertTrue(await load(self.blobs, content) == body)
        await self.onlyThese([content for content, _ in kept])
