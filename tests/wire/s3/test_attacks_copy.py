"""Attacks through what a request refers to: sources of copies, other accounts, other keys."""

from tests.support.clients import ROOT, Account
from tests.support.s3signer import Answer, Outgoing, Signer
from tests.support.selection import long
from tests.wire.s3.attacks import AttackCase
from tests.wire.s3.fixture import S3Case, eventually, runKeys


class CopySourceTests(AttackCase):
    """What C{x-amz-copy-source} may name."""

    def setUp(self) -> None:
        """Give somebody else a bucket and an object."""
        super().setUp()
        self.tenant = self.issueKey("tenant")
        self.theirs = self.impatient(self.tenant)
        self.theirBucket = self.makeName("theirs")
        self.theirs.create_bucket(Bucket=self.theirBucket)
        self.theirs.put_object(Bucket=self.theirBucket, Key="own", Body=b"their own")

    def copyAs(self, account: Account, source: str, query: str = "") -> Answer:
        """Copy into the tenant's bucket."""
        return self.send(
            Outgoing(
                "PUT",
                f"/{self.theirBucket}/stolen{query}",
                {**account.plainHeaders(), "x-amz-copy-source": source},
            )
        )

    @long("takes a second or more")
    def test_ownSource(self) -> None:
        """The tenant may copy what is his, in every spelling that clients have for it."""
        for source in ("{}/own", "/{}/own", "{}%2Fown", "/{}%2Fown", "%2F{}%2Fown", "{}/%6Fwn"):
            source = source.format(self.theirBucket)
            self.assertEqual(self.copyAs(self.tenant, source).status, 200)

    def test_otherBucket(self) -> None:
        """Nobody copies from a bucket that he may not read, whole or as a part."""
        made = self.theirs.create_multipart_upload(Bucket=self.theirBucket, Key="stolen")
        upload = f"?partNumber=1&uploadId={made['UploadId']}"
        for source in (
            f"{self.bucket}/held",
            f"/{self.bucket}/held",
            f"{self.bucket}%2Fheld",
            f"%2F{self.bucket}%2Fheld",
            f"{self.bucket}/held?versionId=null",
        ):
            for query in ("", upload):
                answer = self.copyAs(self.tenant, source, query)
                self.assertRejected(answer, (403,), (source, query))
        self.theirs.abort_multipart_upload(
            Bucket=self.theirBucket, Key="stolen", UploadId=made["UploadId"]
        )
        found = self.theirs.list_objects_v2(Bucket=self.theirBucket)
        self.assertEqual([entry["Key"] for entry in found["Contents"]], ["own"])

    @long("takes a second or more")
    def test_traversal(self) -> None:
        """A path in a source is a key: no spelling of C{..} leads into another bucket."""
        for path in (
            f"../{self.bucket}/held",
            f"..%2F{self.bucket}%2Fheld",
            f"%2e%2e%2f{self.bucket}%2fheld",
            f"..%252F{self.bucket}%252Fheld",
            f"x/../../{self.bucket}/held",
        ):
            answer = self.copyAs(self.tenant, f"{self.theirBucket}/{path}")
            self.assertAnswer(answer, 404, "NoSuchKey")

    def test_malformed(self) -> None:
        """A source that names no object is 400."""
        for source in ("", "/", "bucketonly", "//", "%zz/x", f"{self.theirBucket}/%ff"):
            answer = self.copyAs(self.tenant, source)
            self.assertRejected(answer, (400,), source)

    @long("takes seconds")
    def test_otherAccount(self) -> None:
        """A bucket of another account is closed to reads, lists, writes and deletes."""
        for method, target in (
            ("GET", f"/{self.bucket}"),
            ("HEAD", f"/{self.bucket}"),
            ("GET", f"/{self.bucket}?uploads="),
            ("GET", f"/{self.bucket}?versions="),
            ("GET", f"/{self.bucket}?location="),
            ("GET", self.target()),
            ("HEAD", self.target()),
            ("GET", self.target(query="attributes=")),
            ("GET", self.target(query="acl=")),
            ("PUT", self.target("new")),
            ("DELETE", self.target()),
            ("POST", self.target("new", "uploads=")),
            ("DELETE", f"/{self.bucket}"),
        ):
            answer = self.send(Outgoing(method, target, self.tenant.plainHeaders()))
            self.assertEqual(answer.status, 403, (method, target, answer))
        self.assertUntouched()
        again = self.send(Outgoing("PUT", f"/{self.bucket}", self.tenant.plainHeaders()))
        self.assertAnswer(again, 409, "BucketAlreadyExists")
        theirs = [bucket["Name"] for bucket in self.theirs.list_buckets()["Buckets"]]
        self.assertEqual([name for name in theirs if not name.startswith("theirs")], [])


class KeyPolicyTests(S3Case):
    """Keys that may do less than their account."""

    def setUp(self) -> None:
        """Have a bucket of an account, and its contents."""
        super().setUp()
        full = self.impatient(self.issueKey("team"))
        self.bucket = self.makeName("team")
        full.create_bucket(Bucket=self.bucket)
        for key in ("public/a", "private/a"):
            full.put_object(Bucket=self.bucket, Key=key, Body=key.encode())

    @long("takes seconds")
    def test_readonly(self) -> None:
        """A read-only key reads, lists, and changes nothing."""
        client = self.impatient(self.issueKey("team", "--policy", "readonly"))
        named = {"Bucket": self.bucket}
        body = client.get_object(**named, Key="public/a")["Body"].read()
        self.assertEqual(body, b"public/a")
        self.assertEqual(client.list_objects_v2(**named)["KeyCount"], 2)
        for call, arguments in (
            (client.put_object, {"Key": "new", "Body": b"x"}),
            (client.delete_object, {"Key": "public/a"}),
            (client.delete_objects, {"Delete": {"Objects": [{"Key": "public/a"}]}}),
            (client.copy_object, {"Key": "new", "CopySource": f"{self.bucket}/public/a"}),
            (client.create_multipart_upload, {"Key": "new"}),
            (client.delete_bucket, {}),
        ):
            self.assertRefused(403, "AccessDenied", call, **named, **arguments)
        self.assertRefused(403, "AccessDenied", client.create_bucket, Bucket=self.makeName("team"))
        self.assertHolds(self.bucket, "public/a", b"public/a")

    @long("takes seconds")
    def test_writeonly(self) -> None:
        """A write-only key stores, and learns nothing: not even by copying to where it may."""
        client = self.impatient(self.issueKey("team", "--policy", "writeonly"))
        named = {"Bucket": self.bucket}
        client.put_object(**named, Key="new", Body=b"x")
        for call, arguments in (
            (client.get_object, {"Key": "public/a"}),
            (client.list_objects_v2, {}),
            (client.list_object_versions, {}),
            (client.copy_object, {"Key": "new", "CopySource": f"{self.bucket}/private/a"}),
        ):
            self.assertRefused(403, "AccessDenied", call, **named, **arguments)

    @long("takes seconds")
    def test_prefix(self) -> None:
        """A key for a prefix sees and changes nothing beside it."""
        client = self.impatient(self.issueKey("team", "--prefix", "public/*"))
        named = {"Bucket": self.bucket}
        client.put_object(**named, Key="public/b", Body=b"x")
        listed = client.list_objects_v2(**named, Prefix="public/")
        self.assertEqual(listed["KeyCount"], 2)
        private = [{"Key": "private/a"}]
        for call, arguments in (
            (client.get_object, {"Key": "private/a"}),
            (client.put_object, {"Key": "private/b", "Body": b"x"}),
            (client.put_object, {"Key": "public", "Body": b"x"}),
            (client.copy_object, {"Key": "public/c", "CopySource": f"{self.bucket}/private/a"}),
            (client.list_objects_v2, {}),
            (client.list_objects_v2, {"Prefix": "private/"}),
            (client.list_objects_v2, {"Prefix": "pub"}),
        ):
            self.assertRefused(403, "AccessDenied", call, **named, **arguments)
        many = client.delete_objects(**named, Delete={"Objects": private})
        self.assertEqual([entry["Code"] for entry in many["Errors"]], ["AccessDenied"])
        self.assertHolds(self.bucket, "private/a", b"private/a")

    @long("takes seconds")
    def test_bucketPattern(self) -> None:
        """A key for some buckets opens no other."""
        client = self.impatient(self.issueKey("team", "--bucket", "elsewhere-*"))
        self.assertRefused(403, "AccessDenied", client.list_objects_v2, Bucket=self.bucket)
        self.assertRefused(
            403, "AccessDenied", client.get_object, Bucket=self.bucket, Key="public/a"
        )

    @long("takes seconds")
    def test_revoked(self) -> None:
        """A revoked key is nobody's within a second or so."""
        account = self.issueKey("leaver")
        probe = Outgoing("GET", "/", account.plainHeaders())
        self.assertEqual(self.send(probe).status, 200)
        runKeys("revoke", *self.daemon.storeArguments, "--access-key", account.accessKey)
        self.assertTrue(eventually(lambda: self.send(probe).status == 401))
        signed = Signer(self.host, account).sign(Outgoing("GET", "/"))
        self.assertAnswer(self.send(signed), 403, "InvalidAccessKeyId")

    @long("takes a second or more")
    def test_rootIsRoot(self) -> None:
        """The root pair opens what any account owns."""
        self.assertHolds(self.bucket, "private/a", b"private/a")
        listed = self.send(Outgoing("GET", f"/{self.bucket}", ROOT.plainHeaders()))
        self.assertIn(b"<Key>private/a</Key>", listed.body)
