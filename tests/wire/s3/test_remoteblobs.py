"""S3 where the bytes are in RADOS, in another S3 server, or on a shared file system."""

import atexit
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from botocore.exceptions import ClientError

from tests.contract.remotebackends import VARIABLE
from tests.support.ceph import cephEnvironment, runningCluster
from tests.support.clients import ROOT
from tests.support.contention import Stopwatch
from tests.support.daemon import Daemon
from tests.support.selection import long
from tests.support.upstreams3 import ownServer
from tests.wire.s3 import test_boto_multipart, test_boto_objects, test_boto_races
from tests.wire.s3.fixture import S3Case, eventually, makeDaemon, ownDirectory

POOL = "daemons"


@cache
def daemonOn(kind: str) -> Daemon:
    """Start a daemon with its blobs in a store of this kind."""
    variables: dict[str, str] = {}
    if kind == "rados":
        cluster = runningCluster()
        cluster.makePool(POOL)
        variables = {VARIABLE: f"rados:{POOL}?conf={cluster.configuration}", **cephEnvironment()}
    elif kind == "s3":
        upstream = ownServer()
        address = upstream.newBucket()
        variables = {
            VARIABLE: f"s3:{upstream.url}/{address.bucket}",
            "AWS_ACCESS_KEY_ID": ROOT.accessKey,
            "AWS_SECRET_ACCESS_KEY": ROOT.secretKey,
        }
    daemon = makeDaemon(
        ownDirectory(kind) / "data", backEnds=("tests.contract.remotebackends",), **variables
    )
    atexit.register(daemon.kill)
    return daemon.start()


class RadosCase(S3Case):
    """A daemon with its blobs in RADOS."""

    def startDaemon(self) -> Daemon:
        """See L{S3Case.startDaemon}."""
        return daemonOn("rados")


class BucketCase(S3Case):
    """A daemon with its blobs in a bucket of another."""

    def startDaemon(self) -> Daemon:
        """See L{S3Case.startDaemon}."""
        return daemonOn("s3")


class SharedCase(S3Case):
    """A daemon with its blobs on a shared file system."""

    def startDaemon(self) -> Daemon:
        """See L{S3Case.startDaemon}."""
        return daemonOn("shared")


@long("starts Ceph")
class RadosSizeTests(RadosCase, test_boto_objects.SizeTests):
    """Bodies of all sizes."""


@long("starts Ceph")
class RadosReadTests(RadosCase, test_boto_objects.ReadTests):
    """Ranges and conditions."""


@long("starts Ceph")
class RadosMultipartTests(RadosCase, test_boto_multipart.MultipartTests):
    """Uploads in parts."""


@long("starts Ceph")
class RadosRaceTests(RadosCase, test_boto_races.RaceTests):
    """Writers and readers at one time."""


@long("starts Ceph")
class BucketSizeTests(BucketCase, test_boto_objects.SizeTests):
    """Bodies of all sizes."""


@long("starts Ceph")
class BucketReadTests(BucketCase, test_boto_objects.ReadTests):
    """Ranges and conditions."""


@long("starts Ceph")
class BucketMultipartTests(BucketCase, test_boto_multipart.MultipartTests):
    """Uploads in parts."""


@long("starts Ceph")
class BucketRaceTests(BucketCase, test_boto_races.RaceTests):
    """Writers and readers at one time."""


@long("starts Ceph")
class SharedSizeTests(SharedCase, test_boto_objects.SizeTests):
    """Bodies of all sizes."""


@long("starts Ceph")
class SharedMultipartTests(SharedCase, test_boto_multipart.MultipartTests):
    """Uploads in parts."""


@long("starts Ceph")
class FaultTests(RadosCase):
    """What clients see while the store of blobs is away, or full."""

    body = b"x" * (1 << 20)

    def test_away(self) -> None:
        """Writes and reads of blobs are answered with 503 in time; small objects go on."""
        bucket = self.makeBucket()
        self.s3.put_object(Bucket=bucket, Key="large", Body=self.body)
        client = self.impatient()
        cluster = runningCluster()
        cluster.pauseStorage()
        self.addCleanup(cluster.resumeStorage)
        with ThreadPoolExecutor(4) as threads:
            watch = Stopwatch()
            calls = [
                threads.submit(self.assertRefused, 503, "SlowDown", call, Bucket=bucket, **named)
                for call, named in (
                    (client.put_object, {"Key": "new", "Body": self.body}),
                    (client.put_object, {"Key": "large", "Body": self.body * 9}),
                    (client.get_object, {"Key": "large"}),
                    (client.get_object, {"Key": "large", "Range": "bytes=5-9"}),
                )
            ]
            self.s3.put_object(Bucket=bucket, Key="small", Body=b"small")
            self.assertHolds(bucket, "small", b"small")
            for call in calls:
                call.result()
            # Five seconds are the daemon's, the others this machine's.
            self.assertLess(watch.seconds(), 10.0)
        self.s3.delete_object(Bucket=bucket, Key="small")
        cluster.resumeStorage()
        self.assertTrue(eventually(self._stores(bucket)))
        self.assertHolds(bucket, "large", self.body)
        self.assertMissing(bucket, "new")

    def test_full(self) -> None:
        """A write that does not fit is answered with 507; reads and deletes go on."""
        bucket = self.makeBucket()
        for key in ("kept", "gone"):
            self.s3.put_object(Bucket=bucket, Key=key, Body=self.body)
        cluster = runningCluster()
        cluster.setFull(True)
        try:
            self.assertRefused(
                507,
                "InsufficientStorage",
                self.impatient().put_object,
                Bucket=bucket,
                Key="new",
                Body=self.body,
            )
            self.assertHolds(bucket, "kept", self.body)
            self.s3.delete_object(Bucket=bucket, Key="gone")
        finally:
            cluster.setFull(False)
        self.assertTrue(eventually(self._stores(bucket)))

    def _stores(self, bucket: str) -> Callable[[], bool]:
        """Say whether an object can be stored."""

        def tries() -> bool:
            try:
                self.impatient().put_object(Bucket=bucket, Key="after", Body=self.body)
            except ClientError:
                return False
            return True

        return tries
