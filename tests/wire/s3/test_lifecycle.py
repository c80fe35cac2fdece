"""Life cycles: boto3, aws-cli and s3cmd set rules, and a daemon of short days obeys them."""

import json
from email.utils import parsedate_to_datetime
from typing import Any

from tests.support.clients import awsEnvironment, botoClient, runTool
from tests.support.documents import DOCS, codeBlocks
from tests.support.programs import needProgram
from tests.support.s3signer import Outgoing, Signer, exchange
from tests.support.selection import long, soak
from tests.wire.s3.fixture import S3Case, eventually, makeDaemon, ownDirectory

Rule = dict[str, Any]

RULES: list[Rule] = [
    {
        "ID": "logs & such",
        "Status": "Enabled",
        "Filter": {"Prefix": "logs/"},
        "Expiration": {"Days": 3},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2},
    },
    {
        "ID": "both",
        "Status": "Enabled",
        "Filter": {
            "And": {
                "Prefix": "",
                "Tags": [{"Key": "kind", "Value": "draft"}],
                "ObjectSizeGreaterThan": 10,
                "ObjectSizeLessThan": 1000,
            }
        },
        "Expiration": {"Days": 1},
    },
    {
        "ID": "old",
        "Status": "Enabled",
        "Filter": {},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 30, "NewerNoncurrentVersions": 5},
        "Expiration": {"ExpiredObjectDeleteMarker": True},
    },
    {
        "ID": "off",
        "Status": "Disabled",
        "Prefix": "",
        "Expiration": {"Days": 1},
    },
]

DAY = 24 * 3600


class ConfigurationTests(S3Case):
    """The setting itself, and what responses show of it."""

    def setUp(self) -> None:
        """Make a bucket."""
        super().setUp()
        self.bucket = self.makeBucket()

    def set(self, *rules: Rule) -> None:
        """Set rules."""
        self.s3.put_bucket_lifecycle_configuration(
            Bucket=self.bucket, LifecycleConfiguration={"Rules": list(rules)}
        )

    def test_life(self) -> None:
        """It is read as it was set, replaced as a whole, and removed."""
        read = self.s3.get_bucket_lifecycle_configuration
        self.set(*RULES)
        self.assertEqual(read(Bucket=self.bucket)["Rules"], RULES)
        self.set(RULES[0])
        self.assertEqual(read(Bucket=self.bucket)["Rules"], RULES[:1])
        for _ in range(2):
            gone = self.s3.delete_bucket_lifecycle(Bucket=self.bucket)
            self.assertEqual(gone["ResponseMetadata"]["HTTPStatusCode"], 204)
        self.assertRefused(404, "NoSuchLifecycleConfiguration", read, Bucket=self.bucket)

    def test_refused(self) -> None:
        """What is wrong changes nothing; transitions are not built."""
        self.set(RULES[0])
        base = {"Status": "Enabled", "Filter": {"Prefix": "a"}}
        move = [{"Days": 1, "StorageClass": "GLACIER"}]
        for status, code, wrong in (
            (400, "InvalidArgument", {"Expiration": {"Days": 0}}),
            (400, "InvalidRequest", {}),
            (501, "NotImplemented", {"Transitions": move}),
        ):
            self.assertRefused(
                status,
                code,
                self.impatient().put_bucket_lifecycle_configuration,
                Bucket=self.bucket,
                LifecycleConfiguration={"Rules": [{**base, **wrong}]},
            )
        found = self.s3.get_bucket_lifecycle_configuration(Bucket=self.bucket)
        self.assertEqual(found["Rules"], RULES[:1])

    @long("takes a second or more")
    def test_manyRules(self) -> None:
        """A thousand rules, and no more."""
        rules = [
            {
                "ID": f"rule {number}",
                "Status": "Enabled",
                "Filter": {"Prefix": f"prefix/{number}/"},
                "Expiration": {"Days": number + 1},
            }
            for number in range(1001)
        ]
        self.set(*rules[:1000])
        found = self.s3.get_bucket_lifecycle_configuration(Bucket=self.bucket)
        self.assertEqual(found["Rules"], rules[:1000])
        self.assertRefused(
            400,
            "InvalidRequest",
            self.s3.put_bucket_lifecycle_configuration,
            Bucket=self.bucket,
            LifecycleConfiguration={"Rules": rules},
        )

    @long("takes a second or more")
    def test_others(self) -> None:
        """An account that does not own the bucket neither reads nor sets it."""
        other = self.impatient(self.issueKey("foreign"))
        refuse = self.assertRefused
        for call in ("get_bucket_lifecycle_configuration", "delete_bucket_lifecycle"):
            refuse(403, "AccessDenied", getattr(other, call), Bucket=self.bucket)
        refuse(
            403,
            "AccessDenied",
            other.put_bucket_lifecycle_configuration,
            Bucket=self.bucket,
            LifecycleConfiguration={"Rules": RULES},
        )

    def assertExpires(self, answer: Any, days: int, rule: str) -> None:
        """Check the expiration that a response shows, from the day of the response on."""
        date, _, name = answer["Expiration"].partition(", rule-id=")
        self.assertEqual(name, f'"{rule}"')
        found = parsedate_to_datetime(date.removeprefix('expiry-date="').removesuffix('"'))
        now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        self.assertEqual(found.timestamp() % DAY, 0)
        # Midnight may have passed between the write and the response.
        today = now.timestamp() // DAY
        self.assertIn(found.timestamp() // DAY - today, (days, days + 1))

    def test_expirationShown(self) -> None:
        """Writes and reads say when a rule removes the object, the first of the rules."""
        self.set(*RULES)
        name = {"Bucket": self.bucket, "Key": "logs/a"}
        for answer in (
            self.s3.put_object(**name, Body=b"x"),
            self.s3.get_object(**name),
            self.s3.head_object(**name),
            self.s3.copy_object(**name, CopySource={**name}, MetadataDirective="REPLACE"),
        ):
            self.assertExpires(answer, 4, "logs%20%26%20such")
        answer = self.s3.put_object(**name, Body=b"x" * 11, Tagging="kind=draft&a=b")
        self.assertExpires(answer, 2, "both")
        self.assertNotIn("Expiration", self.s3.put_object(Bucket=self.bucket, Key="b"))
        self.assertNotIn("Expiration", self.s3.head_object(Bucket=self.bucket, Key="b"))

    def test_uploads(self) -> None:
        """Uploads say when they are aborted, and what is made of them when that is removed."""
        self.set(*RULES)
        name = {"Bucket": self.bucket, "Key": "logs/a"}
        begun = self.s3.create_multipart_upload(**name)
        self.assertEqual(begun["AbortRuleId"], "logs%20%26%20such")
        self.assertEqual(begun["AbortDate"].timestamp() % DAY, 0)
        upload = {**name, "UploadId": begun["UploadId"]}
        part = self.s3.upload_part(**upload, PartNumber=1, Body=b"x")
        self.assertEqual(self.s3.list_parts(**upload)["AbortDate"], begun["AbortDate"])
        parts = [{"PartNumber": 1, "ETag": part["ETag"]}]
        done = self.s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        self.assertExpires(done, 4, "logs%20%26%20such")
        other = self.s3.create_multipart_upload(Bucket=self.bucket, Key="b")
        self.assertNotIn("AbortDate", other)

    @long("takes seconds")
    def test_awscli(self) -> None:
        """aws-cli sets and reads rules, also those of the documentation."""
        program, files = needProgram("aws"), self.makeDirectory()

        def aws(*arguments: str) -> str:
            command = [program, "s3api", *arguments, "--bucket", self.bucket]
            return runTool(command, awsEnvironment(self.endpoint, files))

        document = json.dumps({"Rules": RULES})
        aws("put-bucket-lifecycle-configuration", "--lifecycle-configuration", document)
        found = json.loads(aws("get-bucket-lifecycle-configuration"))
        self.assertEqual(found["Rules"], RULES)
        [example] = [
            each.code for each in codeBlocks(DOCS / "s3.rst", "json") if "Days" in each.code
        ]
        aws("put-bucket-lifecycle-configuration", "--lifecycle-configuration", example)
        found = json.loads(aws("get-bucket-lifecycle-configuration"))
        self.assertEqual(found["Rules"], json.loads(example)["Rules"])
        aws("delete-bucket-lifecycle")

    def test_s3cmd(self) -> None:
        """C{s3cmd expire}, which has the old form."""
        s3cmd, target = self.s3cmd(), f"s3://{self.bucket}"
        s3cmd("expire", "--expiry-days=7", "--expiry-prefix=tmp/", target)
        (rule,) = self.s3.get_bucket_lifecycle_configuration(Bucket=self.bucket)["Rules"]
        self.assertEqual((rule["Status"], rule["Expiration"]), ("Enabled", {"Days": 7}))
        self.assertEqual(rule.get("Prefix", rule.get("Filter", {}).get("Prefix")), "tmp/")
        self.assertIn("7", s3cmd("getlifecycle", target))
        s3cmd("expire", "--expiry-date=2040-01-01", target)
        (rule,) = self.s3.get_bucket_lifecycle_configuration(Bucket=self.bucket)["Rules"]
        self.assertEqual(rule["Expiration"]["Date"].year, 2040)
        s3cmd("dellifecycle", target)


@long("takes seconds")
class ScannerTests(S3Case):
    """
    A daemon whose days are two seconds long.

    @cvar flags: Of its command line.
    """

    flags: tuple[str, ...] = ()

    def setUp(self) -> None:
        """Start it."""
        super().setUp()
        self.days = makeDaemon(
            ownDirectory("days") / "data", *self.flags, STORAGEGATE_LIFECYCLE_DAY_SECONDS="2"
        ).start()
        self.addCleanup(self.days.kill)
        self.connect()
        self.s3.create_bucket(Bucket="bbb")

    def connect(self) -> None:
        """Have a client of it."""
        self.address = self.days.address("s3")
        self.s3 = botoClient(self.days.url("s3"))
        self.signer = Signer(self.days.url("s3").partition("://")[2])

    def set(self, *rules: Rule) -> None:
        """Set rules."""
        named = [{"Status": "Enabled", "Filter": {"Prefix": ""}, **rule} for rule in rules]
        self.s3.put_bucket_lifecycle_configuration(
            Bucket="bbb", LifecycleConfiguration={"Rules": named}
        )

    def keys(self) -> list[str]:
        """List the objects."""
        return [each["Key"] for each in self.s3.list_objects_v2(Bucket="bbb").get("Contents", [])]

    def versions(self) -> int:
        """Count versions and delete markers."""
        found = self.s3.list_object_versions(Bucket="bbb")
        return len(found.get("Versions", [])) + len(found.get("DeleteMarkers", []))

    def put(self, *keys: str) -> None:
        """Store objects."""
        for key in keys:
            self.s3.put_object(Bucket="bbb", Key=key, Body=b"x")

    def metrics(self) -> dict[str, float]:
        """Read the metrics of the scanner, those of all workers together."""
        page = exchange(self.days.address("admin"), Outgoing("GET", "/metrics")).body.decode()
        found: dict[str, float] = {}
        for line in page.splitlines():
            name, _, value = line.rpartition(" ")
            name = name.partition("{")[0]
            if name.startswith("storagegate_lifecycle_"):
                name = name.removeprefix("storagegate_lifecycle_")
                found[name] = found.get(name, 0) + float(value)
        return found

    def test_expires(self) -> None:
        """What was there before is removed, with its uploads, and nothing else."""
        self.put("tmp/a", "tmp/b", "kept")
        upload = self.s3.create_multipart_upload(Bucket="bbb", Key="tmp/u")
        self.s3.upload_part(
            Bucket="bbb", Key="tmp/u", UploadId=upload["UploadId"], PartNumber=1, Body=b"x"
        )
        self.s3.create_multipart_upload(Bucket="bbb", Key="kept")
        self.set(
            {
                "Filter": {"Prefix": "tmp/"},
                "Expiration": {"Days": 1},
                "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
            }
        )
        self.assertTrue(eventually(lambda: self.keys() == ["kept"]))

        def uploads() -> list[str]:
            return [e["Key"] for e in self.s3.list_multipart_uploads(Bucket="bbb")["Uploads"]]

        self.assertTrue(eventually(lambda: uploads() == ["kept"]))
        found = self.metrics()
        self.assertEqual((found["removed_total"], found["kept_total"]), (3, 0))
        self.assertLess(found["round_age_seconds"], 60)

    def test_versions(self) -> None:
        """A current object gets a marker, older versions go, and the marker goes at last."""
        self.s3.put_bucket_versioning(Bucket="bbb", VersioningConfiguration={"Status": "Enabled"})
        self.put("k", "k", "k")
        self.set(
            {
                "Expiration": {"Days": 1},
                "NoncurrentVersionExpiration": {"NoncurrentDays": 1, "NewerNoncurrentVersions": 1},
            }
        )
        self.assertTrue(eventually(lambda: not self.keys() and self.versions() == 2))
        self.set(
            {
                "NoncurrentVersionExpiration": {"NoncurrentDays": 1},
                "Expiration": {"ExpiredObjectDeleteMarker": True},
            }
        )
        self.assertTrue(eventually(lambda: not self.versions()))
        self.s3.delete_bucket(Bucket="bbb")

    def test_restart(self) -> None:
        """After the daemon was killed, and after it was stopped, the rules go on."""
        self.set({"Expiration": {"Days": 1}})
        for end in (self.days.kill, self.days.stop):
            self.put(*(f"k{number}" for number in range(20)))
            end()
            self.days.start()
            self.connect()
            self.assertTrue(eventually(lambda: not self.keys()))

    def test_removedRule(self) -> None:
        """Without its rule nothing is removed."""
        self.put("k")
        self.set({"Expiration": {"Days": 1}}, {"Expiration": {"Days": 2}, "Status": "Disabled"})
        self.s3.delete_bucket_lifecycle(Bucket="bbb")
        other = "ccc"
        self.s3.create_bucket(Bucket=other)
        self.s3.put_object(Bucket=other, Key="k", Body=b"x")
        self.s3.put_bucket_lifecycle_configuration(
            Bucket=other,
            LifecycleConfiguration={
                "Rules": [{"Status": "Enabled", "Prefix": "", "Expiration": {"Days": 1}}]
            },
        )
        gone = self.s3.list_objects_v2
        self.assertTrue(eventually(lambda: not gone(Bucket=other)["KeyCount"]))
        self.assertEqual(self.keys(), ["k"])


@soak("the same promises once more")
class WorkersTests(ScannerTests):
    """The same with two processes of which one scans."""

    flags = ("--workers", "2")

    @long("takes seconds")
    def test_restart(self) -> None:
        """See L{ScannerTests.test_restart}."""
        super().test_restart()
