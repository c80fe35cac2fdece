"""
S3 over a store that is reached over a network: look-ups come back late and out of order, and bytes
come late and by ranges.
"""

from tests.support.selection import long
from tests.wire.s3 import test_boto_multipart, test_boto_objects, test_freshness

REMOTE = ("tests.contract.delayedcatalog", "tests.contract.rangedblobs")


@long("takes seconds")
class DelayedFreshnessTests(test_freshness.FreshnessTests):
    """Readers beside a constant writer, where only the look-ups are late: leases come too late."""

    backEnds = REMOTE[:1]
    rounds = 100


@long("takes seconds")
class RemoteFreshnessTests(test_freshness.FreshnessTests):
    """Readers beside a constant writer."""

    backEnds = REMOTE
    rounds = 100


class RemoteBucketTests(test_boto_objects.BucketTests):
    """Buckets."""

    backEnds = REMOTE


class RemoteSizeTests(test_boto_objects.SizeTests):
    """Bodies of all sizes."""

    backEnds = REMOTE


class RemoteReadTests(test_boto_objects.ReadTests):
    """Ranges and conditions."""

    backEnds = REMOTE


class RemoteCopyTests(test_boto_objects.CopyTests):
    """Copies."""

    backEnds = REMOTE


@long("each call waits for a network")
class RemoteMultipartTests(test_boto_multipart.MultipartTests):
    """Uploads in parts."""

    backEnds = REMOTE
