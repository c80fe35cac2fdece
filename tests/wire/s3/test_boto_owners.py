"""Who a bucket is expected to belong to, and what a narrow key may see."""

from attrs import evolve

from tests.support.clients import ROOT, Account
from tests.support.s3signer import Outgoing
from tests.support.selection import long
from tests.wire.s3.fixture import S3Case
from tests.wire.s3.forms import formRequest


class ExpectedOwnerTests(S3Case):
    """C{x-amz-expected-bucket-owner} and its kin."""

    def setUp(self) -> None:
        """Have a bucket, an object, and the id of their owner."""
        super().setUp()
        self.bucket = self.makeBucket()
        self.s3.put_object(Bucket=self.bucket, Key="k", Body=b"x")
        self.owner = self.s3.list_buckets()["Owner"]["ID"]

    def test_everyKindOfRoute(self) -> None:
        """The owner may be named anywhere; where another one is, nothing is done."""
        copied = {"x-amz-copy-source": f"{self.bucket}/k"}
        for method, target, headers, status in (
            ("GET", f"/{self.bucket}", {}, 200),
            ("HEAD", f"/{self.bucket}", {}, 200),
            ("GET", f"/{self.bucket}?acl", {}, 200),
            ("GET", f"/{self.bucket}?policy", {}, 404),
            ("GET", f"/{self.bucket}/k", {}, 200),
            ("PUT", f"/{self.bucket}/new", {}, 200),
            ("PUT", f"/{self.bucket}/copy", copied, 200),
            ("POST", f"/{self.bucket}/new?uploads", {}, 200),
            ("DELETE", f"/{self.bucket}/new", {}, 204),
        ):
            outgoing = Outgoing(method, target, headers)
            wrong = outgoing.adding(x_amz_expected_bucket_owner="0" * 64)
            self.assertEqual(self.sendSigned(wrong).status, 403, outgoing)
            right = outgoing.adding(x_amz_expected_bucket_owner=self.owner)
            self.assertEqual(self.sendSigned(right).status, status, outgoing)

    def test_account(self) -> None:
        """The owner may be named as in ARNs; a name that no account has is refused as such."""
        outgoing = Outgoing("GET", f"/{self.bucket}/k")
        code = "InvalidBucketOwnerAWSAccountID"
        for account in (self.daemonAccount(), ROOT):
            signer = evolve(self.signer, account=account)
            for owner, status, expected in (
                ("root", 200, ""),
                ("owners", 403, "AccessDenied"),
                ("0" * 12, 403, "AccessDenied"),
                ("a" * 64, 403, "AccessDenied"),
                ("a" * 63, 400, code),
                ("0" * 13, 400, code),
                ("junk", 400, code),
                ("", 400, code),
            ):
                if account is not ROOT and status == 200:
                    status, expected = 403, "AccessDenied"
                named = outgoing.adding(x_amz_expected_bucket_owner=owner)
                answer = self.send(signer.sign(named))
                self.assertEqual((answer.status, answer.code or ""), (status, expected), owner)
        # A request without credentials does not learn which accounts exist.
        for owner in ("owners", "junk"):
            named = outgoing.adding(x_amz_expected_bucket_owner=owner)
            self.assertAnswer(self.send(named), 400, code)
        headers = {"x-amz-copy-source": f"{self.bucket}/k"}
        copy = Outgoing("PUT", f"/{self.bucket}/copy", headers)
        for owner, status in (("root", 200), ("owners", 403), ("junk", 400)):
            named = copy.adding(x_amz_source_expected_bucket_owner=owner)
            self.assertEqual(self.sendSigned(named).status, status, owner)

    def daemonAccount(self) -> Account:
        """Return a key of the account C{owners}, which has no rights here."""
        return self.issueKey("owners")

    def test_source(self) -> None:
        """The owner of a copy's source may be named too."""
        for owner, status in (("0" * 64, 403), (self.owner, 200)):
            headers = {
                "x-amz-copy-source": f"{self.bucket}/k",
                "x-amz-source-expected-bucket-owner": owner,
            }
            answer = self.sendSigned(Outgoing("PUT", f"/{self.bucket}/copy", headers))
            self.assertEqual(answer.status, status, answer)

    def test_form(self) -> None:
        """A form's request may name the owner as well."""
        form = self.s3.generate_presigned_post(self.bucket, "form")
        outgoing = formRequest(self.bucket, form["fields"], b"file")
        wrong = outgoing.adding(x_amz_expected_bucket_owner="0" * 64)
        self.assertAnswer(self.send(wrong), 403, "AccessDenied")
        self.assertMissing(self.bucket, "form")
        self.assertEqual(self.send(outgoing).status, 204)

    def test_missingBucket(self) -> None:
        """A bucket that is not there belongs to nobody: 404."""
        outgoing = Outgoing("GET", f"/{self.makeName()}/k")
        answer = self.sendSigned(outgoing.adding(x_amz_expected_bucket_owner=self.owner))
        self.assertAnswer(answer, 404, "NoSuchBucket")


class NarrowKeyTests(S3Case):
    """What keys with patterns see in lists, and may post."""

    def setUp(self) -> None:
        """Have an account with two buckets."""
        super().setUp()
        self.full = self.impatient(self.issueKey("narrow"))
        self.names = [self.makeName("narrow-a"), self.makeName("narrow-b")]
        for name in self.names:
            self.full.create_bucket(Bucket=name)
        self.full.put_object(Bucket=self.names[0], Key="doc/a", Body=b"x")
        self.full.put_object(Bucket=self.names[0], Key="doc/a.secret", Body=b"x")

    @long("takes seconds")
    def test_buckets(self) -> None:
        """A key for some buckets is told of no other."""
        client = self.impatient(self.issueKey("narrow", "--bucket", "narrow-a*"))
        listed = [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]
        self.assertIn(self.names[0], listed)
        self.assertNotIn(self.names[1], listed)

    @long("takes seconds")
    def test_lists(self) -> None:
        """A list that could show what the pattern does not match is refused in every form."""
        client = self.impatient(self.issueKey("narrow", "--prefix", "doc/?"))
        named = {"Bucket": self.names[0]}
        self.assertEqual(client.get_object(**named, Key="doc/a")["Body"].read(), b"x")
        for call in (
            client.list_objects,
            client.list_objects_v2,
            client.list_object_versions,
            client.list_multipart_uploads,
        ):
            self.assertRefused(403, "AccessDenied", call, **named, Prefix="doc/a")

    @long("takes seconds")
    def test_prefix(self) -> None:
        """A key with a prefix reads, writes and lists what lies below it, and nothing else."""
        client = self.impatient(self.issueKey("narrow", "--prefix", "doc/"))
        named = {"Bucket": self.names[0]}
        client.put_object(**named, Key="doc/b/c", Body=b"y")
        self.assertEqual(client.get_object(**named, Key="doc/b/c")["Body"].read(), b"y")
        self.assertEqual(client.list_objects_v2(**named, Prefix="doc/")["KeyCount"], 3)
        for key in ("doc", "other"):
            self.assertRefused(403, "AccessDenied", client.put_object, **named, Key=key)
        self.assertRefused(403, "AccessDenied", client.list_objects_v2, **named)

    @long("takes seconds")
    def test_forms(self) -> None:
        """A form is narrowed like its signer's key, also where C{${filename}} makes the key."""
        account = self.issueKey("narrow", "--prefix", "doc/*")
        client = self.impatient(account)
        for key, filename, status in (
            ("doc/new", "f", 204),
            ("${filename}", "held", 403),
            ("other", "f", 403),
        ):
            form = client.generate_presigned_post(
                self.names[0], key, Conditions=[["starts-with", "$key", ""]]
            )
            answer = self.send(formRequest(self.names[0], form["fields"], b"file", filename))
            self.assertEqual(answer.status, status, (key, answer))
