"""The Storage service, and S3 beside it, on a store whose two halves are reached over a network."""

from tests.contract.delayedcatalog import DELAYED
from tests.contract.rangedblobs import RANGED
from tests.services import test_objects, test_objectstreams, test_objectstreams_watch
from tests.support.selection import long


class RemoteBucketTests(test_objects.BucketTests):
    """Buckets."""

    catalogName, blobsName = DELAYED, RANGED


class RemoteObjectTests(test_objects.ObjectTests):
    """Objects."""

    catalogName, blobsName = DELAYED, RANGED


class RemoteListingTests(test_objects.ListingTests):
    """Lists."""

    catalogName, blobsName = DELAYED, RANGED


class RemotePolicyTests(test_objects.PolicyTests):
    """Policies of keys."""

    catalogName, blobsName = DELAYED, RANGED


@long("each call waits for a network")
class RemoteReadTests(test_objectstreams.ReadTests):
    """Reads, each chunk of which is compared with its checksum."""

    catalogName, blobsName = DELAYED, RANGED
    jobsOfFive = 5


@long("each call waits for a network")
class RemoteVerifiedReadTests(test_objectstreams.VerifiedReadTests):
    """Reads that are compared with what was written."""

    catalogName, blobsName = DELAYED, RANGED


@long("each call waits for a network")
class RemoteWriteTests(test_objectstreams.WriteTests):
    """Writes."""

    catalogName, blobsName = DELAYED, RANGED


@long("each call waits for a network")
class RemoteWatchTests(test_objectstreams_watch.WatchTests):
    """Watches of buckets."""

    catalogName, blobsName = DELAYED, RANGED
