"""What clients ask of a bucket that nobody configured, and what they cannot set yet."""

from tests.support.s3signer import Outgoing
from tests.wire.s3.fixture import S3Case


class ReadTests(S3Case):
    """Reads of configurations that were never written."""

    def setUp(self) -> None:
        """Have a bucket with one object."""
        super().setUp()
        self.bucket = self.makeBucket()
        self.s3.put_object(Bucket=self.bucket, Key="k", Body=b"x")

    def test_emptyDocuments(self) -> None:
        """Location, versioning, logging and notifications are empty documents."""
        self.assertIsNone(self.s3.get_bucket_location(Bucket=self.bucket)["LocationConstraint"])
        self.assertNotIn("Status", self.s3.get_bucket_versioning(Bucket=self.bucket))
        self.assertNotIn("LoggingEnabled", self.s3.get_bucket_logging(Bucket=self.bucket))
        quiet = self.s3.get_bucket_notification_configuration(Bucket=self.bucket)
        self.assertEqual(set(quiet), {"ResponseMetadata"})
        self.assertNotIn("Status", self.s3.get_bucket_accelerate_configuration(Bucket=self.bucket))
        payer = self.s3.get_bucket_request_payment(Bucket=self.bucket)
        self.assertEqual(payer["Payer"], "BucketOwner")

    def test_owner(self) -> None:
        """The ACL of bucket and object gives the owner full control, and nobody else anything."""
        owner = self.s3.list_buckets()["Owner"]
        for found in (
            self.s3.get_bucket_acl(Bucket=self.bucket),
            self.s3.get_object_acl(Bucket=self.bucket, Key="k"),
        ):
            self.assertEqual(found["Owner"]["ID"], owner["ID"])
            self.assertEqual(
                [(grant["Grantee"]["ID"], grant["Permission"]) for grant in found["Grants"]],
                [(owner["ID"], "FULL_CONTROL")],
            )

    def test_neverSet(self) -> None:
        """Each other configuration is missing under the name that S3 has for that."""
        for call, code in (
            ("get_bucket_policy", "NoSuchBucketPolicy"),
            ("get_bucket_tagging", "NoSuchTagSet"),
            ("get_bucket_cors", "NoSuchCORSConfiguration"),
            ("get_bucket_lifecycle_configuration", "NoSuchLifecycleConfiguration"),
            ("get_object_lock_configuration", "ObjectLockConfigurationNotFoundError"),
            ("get_bucket_encryption", "ServerSideEncryptionConfigurationNotFoundError"),
            ("get_bucket_website", "NoSuchWebsiteConfiguration"),
            ("get_public_access_block", "NoSuchPublicAccessBlockConfiguration"),
            ("get_bucket_replication", "ReplicationConfigurationNotFoundError"),
            ("get_bucket_ownership_controls", "OwnershipControlsNotFoundError"),
        ):
            self.assertRefused(404, code, getattr(self.s3, call), Bucket=self.bucket)

    def test_ownership(self) -> None:
        """The ownership that a bucket was created with is shown."""
        name = self.makeName()
        self.s3.create_bucket(Bucket=name, ObjectOwnership="BucketOwnerEnforced")
        found = self.s3.get_bucket_ownership_controls(Bucket=name)["OwnershipControls"]
        self.assertEqual(found, {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]})
        self.assertRefused(
            400,
            "InvalidArgument",
            self.impatient().create_bucket,
            Bucket=self.makeName(),
            ObjectOwnership="Everybody",
        )

    def test_objectTags(self) -> None:
        """An object has no tags."""
        self.assertEqual(self.s3.get_object_tagging(Bucket=self.bucket, Key="k")["TagSet"], [])

    def test_missingBucket(self) -> None:
        """The configuration of a bucket that is not there is not that of an unconfigured one."""
        for call in ("get_bucket_location", "get_bucket_versioning", "get_bucket_policy"):
            self.assertRefused(404, "NoSuchBucket", getattr(self.s3, call), Bucket=self.makeName())

    def test_unknownParameterIgnored(self) -> None:
        """Parameters that mean nothing, such as the SDKs' C{x-id}, change nothing."""
        answer = self.sendSigned(Outgoing("PUT", f"/{self.bucket}/id?x-id=PutObject", {}, b"y"))
        self.assertEqual(answer.status, 200, answer)
        self.assertHolds(self.bucket, "id", b"y")
        answer = self.sendSigned(Outgoing("GET", f"/{self.bucket}/id?x-id=GetObject&zzz=1"))
        self.assertEqual((answer.status, answer.body), (200, b"y"))


class WriteTests(S3Case):
    """Nothing that is not built is accepted in silence."""

    def test_configurationWrites(self) -> None:
        """Each write of a configuration is 501 C{NotImplemented}."""
        bucket = self.makeBucket()
        client = self.impatient()
        for call, arguments in (
            (
                "put_bucket_versioning",
                {"VersioningConfiguration": {"Status": "Enabled", "MFADelete": "Enabled"}},
            ),
            ("put_bucket_acl", {"ACL": "log-delivery-write"}),
            (
                "put_bucket_website",
                {"WebsiteConfiguration": {"IndexDocument": {"Suffix": "index.html"}}},
            ),
        ):
            self.assertRefused(
                501, "NotImplemented", getattr(client, call), Bucket=bucket, **arguments
            )
        self.assertNotIn("Status", self.s3.get_bucket_versioning(Bucket=bucket))

    def test_objectSettings(self) -> None:
        """A put that asks for a redirect is not a plain put."""
        bucket = self.makeBucket()
        client = self.impatient()
        asked = {"Bucket": bucket, "Key": "k", "WebsiteRedirectLocation": "/elsewhere"}
        self.assertRefused(501, "NotImplemented", client.put_object, Body=b"x", **asked)
        self.assertMissing(bucket, "k")


class AclTests(S3Case):
    """ACLs of an object whose account is the bucket's."""

    def setUp(self) -> None:
        """Have a bucket with one object, and the owner."""
        super().setUp()
        self.bucket = self.makeBucket()
        self.s3.put_object(Bucket=self.bucket, Key="k", Body=b"x")
        self.owner = self.s3.list_buckets()["Owner"]["ID"]
        self.target = {"Bucket": self.bucket, "Key": "k"}

    def policy(self, grantee: str, permission: str) -> dict[str, object]:
        """Write an ACL with one grant."""
        grant = {"Grantee": {"ID": grantee, "Type": "CanonicalUser"}, "Permission": permission}
        return {"Owner": {"ID": self.owner}, "Grants": [grant]}

    def test_same(self) -> None:
        """An ACL that changes nothing is taken: canned, as a document, as a header, at a copy."""
        copy = {"Bucket": self.bucket, "Key": "copy", "CopySource": f"{self.bucket}/k"}
        own = {"GrantFullControl": f'id="{self.owner}"'}
        policy = {"AccessControlPolicy": self.policy(self.owner, "FULL_CONTROL")}
        canned = {"ACL": "private"}
        for arguments in (canned, own, policy):
            self.s3.put_bucket_acl(Bucket=self.bucket, **arguments)
            self.s3.put_object_acl(**self.target, **arguments)
        for arguments in (canned, own, {"ACL": "bucket-owner-full-control"}):
            self.s3.put_object(**self.target, Body=b"x", **arguments)
            self.s3.copy_object(**copy, **arguments)
            self.s3.create_multipart_upload(**self.target, **arguments)
        self.s3.create_bucket(Bucket=self.makeName(), **own)

    def test_other(self) -> None:
        """One that gives more, or less, is kept; one to an account that there is not is refused."""
        client = self.impatient()
        for arguments, permissions in (
            ({"ACL": "public-read"}, ["READ", "FULL_CONTROL"]),
            ({"AccessControlPolicy": self.policy(self.owner, "READ")}, ["READ"]),
            ({"AccessControlPolicy": {"Owner": {"ID": self.owner}, "Grants": []}}, []),
            ({"GrantReadACP": f'id="{self.owner}"'}, ["READ_ACP"]),
        ):
            client.put_object_acl(**self.target, **arguments)
            grants = self.s3.get_object_acl(**self.target).get("Grants", [])
            self.assertEqual([each["Permission"] for each in grants], permissions)
        for arguments in (
            {"GrantFullControl": f'id="{"a" * 64}"'},
            {"AccessControlPolicy": self.policy("a" * 64, "FULL_CONTROL")},
        ):
            invalid = (400, "InvalidArgument", client.put_object_acl)
            self.assertRefused(*invalid, **self.target, **arguments)
        self.assertEqual(len(self.s3.get_object_acl(**self.target)["Grants"]), 1)

    def test_invalid(self) -> None:
        """A canned ACL that does not exist and a document that is none are 400."""
        for query in ("", "?acl"):
            sent = Outgoing("PUT", f"/{self.bucket}/k{query}", {"x-amz-acl": "public-ready"}, b"")
            self.assertAnswer(self.sendSigned(sent), 400, "InvalidArgument")
        for body, code in (
            (b"", "MissingSecurityHeader"),
            (b"<AccessControlPolicy>", "MalformedACLError"),
            (b"<Other/>", "MalformedACLError"),
        ):
            sent = Outgoing("PUT", f"/{self.bucket}/k?acl", {}, body)
            self.assertAnswer(self.sendSigned(sent), 400, code)
        self.assertRefused(
            404,
            "NoSuchKey",
            self.s3.put_object_acl,
            Bucket=self.bucket,
            Key="absent",
            ACL="private",
        )


class NameTests(S3Case):
    """Names that no bucket may have."""

    def test_everyRule(self) -> None:
        """Each rule of bucket names refuses with C{InvalidBucketName}."""
        for name in (
            "ab",
            "a" * 64,
            "Upper",
            "under_score",
            "-first",
            "last-",
            ".first",
            "last.",
            "two..dots",
            "dot.-hyphen",
            "hyphen-.dot",
            "192.168.5.4",
            "xn--name",
            "sthree-name",
            "amzn-s3-demo-name",
            "name-s3alias",
            "name--ol-s3",
            "name--x-s3",
            "name.mrap",
            "b%C3%BCcket",
            "..",
        ):
            answer = self.sendSigned(Outgoing("PUT", f"/{name}"))
            self.assertAnswer(answer, 400, "InvalidBucketName")
