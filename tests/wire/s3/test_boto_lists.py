"""Lists of many keys, in pages and in groups, in both versions; versions; deletes of many."""

from functools import cache
from typing import Any

from tests.support.clients import botoClient
from tests.support.selection import long, rounds
from tests.wire.s3.bulk import fillBucket
from tests.wire.s3.fixture import S3Case

KEYS = sorted(
    [f"plain/{number:05d}" for number in range(rounds(2_000, 2_000, soak=8_000))]
    + [f"group-{number % 100:02d}/sub/{number:05d}" for number in range(rounds(980, 980, 1_980))]
    + [f"top-{number:02d}" for number in range(20)]
)
GROUPS = sorted({key.partition("/")[0] + "/" for key in KEYS if "/" in key})


@cache
def filledBucket(address: tuple[str, int]) -> str:
    """Make, once a run, the bucket that holds L{KEYS}."""
    name = "thousands-of-keys"
    botoClient("http://{}:{}".format(*address)).create_bucket(Bucket=name)
    fillBucket(address, name, KEYS)
    return name


@long("makes thousands of objects")
class ThousandsOfKeysTests(S3Case):
    """A bucket of 3,000 keys; 10,000 in a soak."""

    def setUp(self) -> None:
        """Have the bucket."""
        super().setUp()
        self.bucket = filledBucket(self.address)

    def pages(self, operation: str, **arguments: Any) -> list[dict[str, Any]]:
        """Walk over all pages of a list."""
        paginator = self.s3.get_paginator(operation)
        return list(paginator.paginate(Bucket=self.bucket, **arguments))

    @long("takes seconds")
    def test_everyKeyOnce(self) -> None:
        """All pages together hold every key once, in order, in both versions of the list."""
        for operation in ("list_objects_v2", "list_objects"):
            pages = self.pages(operation)
            self.assertEqual(
                [len(page["Contents"]) for page in pages], [1000] * (len(KEYS) // 1000), operation
            )
            found = [entry["Key"] for page in pages for entry in page["Contents"]]
            self.assertTrue(found == KEYS, operation)

    @long("takes seconds")
    def test_entries(self) -> None:
        """An entry tells size, ETag, class and time."""
        entry = self.pages("list_objects_v2", PaginationConfig={"MaxItems": 1})[0]["Contents"][0]
        head = self.s3.head_object(Bucket=self.bucket, Key=KEYS[0])
        self.assertEqual(entry["Key"], KEYS[0])
        self.assertEqual(entry["Size"], len(KEYS[0]))
        self.assertEqual(entry["ETag"], head["ETag"])
        self.assertEqual(entry["StorageClass"], "STANDARD")
        self.assertEqual(entry["LastModified"].replace(microsecond=0), head["LastModified"])

    @long("takes seconds")
    def test_groups(self) -> None:
        """With a delimiter each group stands once, among the keys that are in none, over pages."""
        for operation in ("list_objects_v2", "list_objects"):
            pages = self.pages(operation, Delimiter="/", PaginationConfig={"PageSize": 7})
            groups = [group["Prefix"] for page in pages for group in page.get("CommonPrefixes", [])]
            keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
            self.assertEqual(groups, GROUPS, operation)
            self.assertEqual(keys, [key for key in KEYS if "/" not in key], operation)
            for page in pages[:-1]:
                entries = page.get("CommonPrefixes", []) + page.get("Contents", [])
                self.assertEqual(len(entries), 7)

    @long("takes seconds")
    def test_prefix(self) -> None:
        """A prefix keeps what begins with it, also together with a delimiter."""
        wanted = [key for key in KEYS if key.startswith("group-07/")]
        found = self.s3.list_objects_v2(Bucket=self.bucket, Prefix="group-07/")
        self.assertEqual([entry["Key"] for entry in found["Contents"]], wanted)
        self.assertEqual(found["KeyCount"], len(wanted))
        inside = self.s3.list_objects_v2(Bucket=self.bucket, Prefix="group-07/", Delimiter="/")
        self.assertEqual(inside["CommonPrefixes"], [{"Prefix": "group-07/sub/"}])
        self.assertNotIn("Contents", inside)
        nothing = self.s3.list_objects_v2(Bucket=self.bucket, Prefix="zzz")
        self.assertEqual((nothing["KeyCount"], nothing["IsTruncated"]), (0, False))

    def test_startAfter(self) -> None:
        """A list starts strictly after C{StartAfter} (V2) and C{Marker} (V1), there or not."""
        for start in (KEYS[500], KEYS[500] + "\x01"):
            second = self.s3.list_objects_v2(Bucket=self.bucket, StartAfter=start, MaxKeys=2)
            first = self.s3.list_objects(Bucket=self.bucket, Marker=start, MaxKeys=2)
            for found in (second, first):
                self.assertEqual([entry["Key"] for entry in found["Contents"]], KEYS[501:503])

    @long("takes seconds")
    def test_fetchOwner(self) -> None:
        """Owners stand in V2 when asked for, and always in V1."""
        asked = self.s3.list_objects_v2(Bucket=self.bucket, MaxKeys=1, FetchOwner=True)
        self.assertTrue(asked["Contents"][0]["Owner"]["ID"])
        unasked = self.s3.list_objects_v2(Bucket=self.bucket, MaxKeys=1)
        self.assertNotIn("Owner", unasked["Contents"][0])
        first = self.s3.list_objects(Bucket=self.bucket, MaxKeys=1)
        self.assertEqual(first["Contents"][0]["Owner"], asked["Contents"][0]["Owner"])

    @long("takes seconds")
    def test_maxKeys(self) -> None:
        """0 keys is an empty list, more than 1000 is 1000."""
        none = self.s3.list_objects_v2(Bucket=self.bucket, MaxKeys=0)
        self.assertEqual((none["KeyCount"], none["IsTruncated"]), (0, False))
        many = self.s3.list_objects_v2(Bucket=self.bucket, MaxKeys=1_000_000)
        self.assertEqual((many["KeyCount"], many["MaxKeys"]), (1000, 1000))

    @long("takes seconds")
    def test_versions(self) -> None:
        """Every object of the bucket is listed as its latest version C{null}."""
        pages = self.pages("list_object_versions")
        found = [entry for page in pages for entry in page["Versions"]]
        self.assertTrue([entry["Key"] for entry in found] == KEYS)
        self.assertEqual(
            {(entry["VersionId"], entry["IsLatest"]) for entry in found}, {("null", True)}
        )
        grouped = self.s3.list_object_versions(Bucket=self.bucket, Delimiter="/", MaxKeys=5)
        self.assertEqual([group["Prefix"] for group in grouped["CommonPrefixes"]], GROUPS[:5])
        self.assertTrue(grouped["IsTruncated"])


class DeleteTests(S3Case):
    """Deletes of many objects, and by version."""

    @long("takes seconds")
    def test_emptyABucket(self) -> None:
        """A bucket is emptied as tools do it: list versions, delete many by version id."""
        bucket = self.makeBucket()
        keys = [f"k{number:04d}" for number in range(1_200)]
        fillBucket(self.address, bucket, keys)
        for page in self.s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
            entries = [
                {"Key": entry["Key"], "VersionId": entry["VersionId"]} for entry in page["Versions"]
            ]
            done = self.s3.delete_objects(Bucket=bucket, Delete={"Objects": entries})
            self.assertNotIn("Errors", done)
            self.assertEqual(len(done["Deleted"]), len(entries))
        self.s3.delete_bucket(Bucket=bucket)

    def test_deleteMany(self) -> None:
        """What is there and what is not are both reported deleted; C{Quiet} reports nothing."""
        bucket = self.makeBucket()
        fillBucket(self.address, bucket, ["a", "b", "c<&>\u00fc", "kept"])
        objects = [{"Key": key} for key in ("a", "c<&>\u00fc", "never there")]
        done = self.s3.delete_objects(Bucket=bucket, Delete={"Objects": objects})
        self.assertEqual(
            {entry["Key"] for entry in done["Deleted"]}, {"a", "c<&>\u00fc", "never there"}
        )
        quiet = self.s3.delete_objects(
            Bucket=bucket, Delete={"Objects": [{"Key": "b"}], "Quiet": True}
        )
        self.assertNotIn("Deleted", quiet)
        left = self.s3.list_objects_v2(Bucket=bucket)
        self.assertEqual([entry["Key"] for entry in left["Contents"]], ["kept"])

    def test_versionIds(self) -> None:
        """C{null} names the object of an unversioned bucket; the id of another store is none."""
        bucket = self.makeBucket()
        self.s3.put_object(Bucket=bucket, Key="k", Body=b"x")
        found = self.s3.get_object(Bucket=bucket, Key="k", VersionId="null")
        self.assertEqual(found["Body"].read(), b"x")
        self.assertRefused(
            400,
            "InvalidArgument",
            self.s3.get_object,
            Bucket=bucket,
            Key="k",
            VersionId="3sL4kqtJlcpXroDTDmJ.rmSpXd3dIbrHY",
        )
        self.s3.delete_object(Bucket=bucket, Key="k", VersionId="null")
        self.assertMissing(bucket, "k")
