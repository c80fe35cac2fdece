"""Jobs by the API."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.console.fixture import ConsoleCase
from tests.support.clients import ROOT, Account
from tests.support.selection import long
from tests.wire.s3.fixture import eventually


class JobTests(ConsoleCase):
    """What is done below a prefix."""

    def fill(self, *keys: str) -> str:
        """Make a bucket with objects."""
        bucket = self.makeBucket()
        for key in keys:
            self.s3.put_object(Bucket=bucket, Key=key, Body=key.encode(), ContentType="a/b")
        return bucket

    def keys(self, bucket: str) -> list[str]:
        """List a bucket."""
        found = self.call("GET", f"buckets/{bucket}/objects").json["objects"]
        return [row[0] for row in found]

    def finish(self, account: Account = ROOT, **wanted: Any) -> dict[str, Any]:
        """Run a job to its end."""
        reply = self.call("POST", "jobs", wanted, account)
        self.assertEqual(reply.status, 200, reply)
        id = reply.json["id"]
        self.assertTrue(eventually(lambda: self.job(id)["state"] != "running"))
        return self.job(id)

    def job(self, id: str) -> dict[str, Any]:
        """Return a job."""
        items = self.call("GET", "jobs").json["items"]
        found: dict[str, Any] = next(each for each in items if each["id"] == id)
        return found

    def test_deletePrefix(self) -> None:
        """All below a prefix is deleted, and nothing else."""
        bucket = self.fill("a/1", "a/2", "b")
        job = self.finish(kind="deletePrefix", bucket=bucket, prefix="a/")
        self.assertEqual((job["state"], job["done"], job["failures"]), ("done", 2, 0))
        self.assertEqual(self.keys(bucket), ["b"])
        self.assertEqual(self.call("DELETE", f"jobs/{job['id']}").status, 204)
        self.assertEqual(self.call("DELETE", f"jobs/{job['id']}").status, 404)

    def test_copyAndMove(self) -> None:
        """Copies keep what they are copies of; a move leaves none of them."""
        bucket, target = self.fill("a/1", "a/ü"), self.makeBucket()
        job = self.finish(
            kind="copyPrefix", bucket=bucket, prefix="a/", toBucket=target, toPrefix="x/"
        )
        self.assertEqual((job["state"], job["done"]), ("done", 2))
        self.assertEqual((self.keys(bucket), self.keys(target)), (["a/1", "a/ü"], ["x/1", "x/ü"]))
        found = self.s3.get_object(Bucket=target, Key="x/ü")
        self.assertEqual((found["ContentType"], found["Body"].read()), ("a/b", "a/ü".encode()))
        job = self.finish(kind="movePrefix", bucket=bucket, prefix="a/", toPrefix="b/")
        self.assertEqual((job["state"], job["failed"]), ("done", []))
        self.assertEqual(self.keys(bucket), ["b/1", "b/ü"])
        within = {"kind": "copyPrefix", "bucket": bucket, "prefix": "b/", "toPrefix": "b/c/"}
        self.assertEqual(self.call("POST", "jobs", within).status, 400)

    def test_encryption(self) -> None:
        """Copies and moves keep the encryption; objects with clients' keys stay where they are."""
        bucket, target = self.makeBucket(), self.makeBucket()
        customer = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": bytes(range(32))}
        for key, more in (("a/kms", {"ServerSideEncryption": "aws:kms"}), ("a/c", customer)):
            self.s3.put_object(Bucket=bucket, Key=key, Body=key.encode(), **more)
        names = {"bucket": bucket, "prefix": "a/"}
        job = self.finish(kind="copyPrefix", **names, toBucket=target, toPrefix="x/")
        self.assertEqual((job["state"], job["failures"]), ("done", 1))
        moved = self.finish(kind="movePrefix", **names, toPrefix="b/")
        self.assertEqual((moved["state"], moved["failures"]), ("done", 1))
        self.assertEqual(self.keys(bucket), ["a/c", "b/kms"])
        for home, key in ((target, "x/kms"), (bucket, "b/kms")):
            found = self.s3.get_object(Bucket=home, Key=key)
            self.assertEqual(found["ServerSideEncryption"], "aws:kms")
            self.assertEqual(found["Body"].read(), b"a/kms")

    def test_abortUploads(self) -> None:
        """Uploads in progress are ended."""
        bucket = self.makeBucket()
        for key in ("a/1", "a/2", "b"):
            self.s3.create_multipart_upload(Bucket=bucket, Key=key)
        job = self.finish(kind="abortUploads", bucket=bucket, prefix="a/")
        self.assertEqual((job["state"], job["done"]), ("done", 2))
        left = self.call("GET", f"buckets/{bucket}/uploads").json["items"]
        self.assertEqual([each["key"] for each in left], ["b"])

    def test_emptyBucket(self) -> None:
        """Versions, delete markers and uploads are gone; then the bucket can be deleted."""
        bucket = self.fill("a/1", "b")
        self.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        self.s3.put_object(Bucket=bucket, Key="a/1", Body=b"new")
        self.s3.delete_object(Bucket=bucket, Key="b")
        self.s3.create_multipart_upload(Bucket=bucket, Key="c")
        wanted = {"kind": "emptyBucket", "bucket": bucket}
        for wrong in ({"prefix": "a/"}, {"toPrefix": "x"}):
            self.assertEqual(self.call("POST", "jobs", {**wanted, **wrong}).status, 400)
        job = self.finish(**wanted)
        self.assertEqual((job["state"], job["done"], job["failures"]), ("done", 5, 0))
        self.assertEqual(self.call("DELETE", f"buckets/{bucket}").status, 204)

    @long("issues several keys")
    def test_emptyRights(self) -> None:
        """A key that may not delete every object is refused at once."""
        bucket = self.fill("a/1")
        for limits in (("--policy", "readonly"), ("--prefix", "a/*"), ("--policy", "writeonly")):
            account = self.issueKey("root", *limits)
            reply = self.call("POST", "jobs", {"kind": "emptyBucket", "bucket": bucket}, account)
            self.assertEqual(reply.status, 403, limits)
        self.assertEqual(self.keys(bucket), ["a/1"])

    def test_emptyLocked(self) -> None:
        """A retention keeps its version, which the job names; all others are deleted."""
        bucket = self.makeName("locked")
        self.s3.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        until = datetime.now(UTC) + timedelta(days=1)
        self.s3.put_object(Bucket=bucket, Key="free", Body=b"1")
        self.s3.put_object(
            Bucket=bucket,
            Key="held",
            Body=b"22",
            ObjectLockMode="GOVERNANCE",
            ObjectLockRetainUntilDate=until,
        )
        job = self.finish(kind="emptyBucket", bucket=bucket)
        self.assertEqual((job["state"], job["done"], job["failures"]), ("done", 2, 1))
        [failed] = job["failed"]
        self.assertEqual(failed["key"], "held")
        self.assertIn("AccessDenied", failed["error"])
        self.assertEqual(self.keys(bucket), ["held"])

    def tags(self, bucket: str, key: str) -> dict[str, str]:
        """Return the tags of an object."""
        found = self.s3.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]
        return {each["Key"]: each["Value"] for each in found}

    def test_tagObjects(self) -> None:
        """Tags are added to the named objects and folders, replace their like, and keep others."""
        bucket = self.fill("a", "b", "c/1", "c/2", "d")
        for key, tagging in (("a", "team=old&stage=prod"), ("d", "kept=1")):
            self.s3.put_object_tagging(
                Bucket=bucket,
                Key=key,
                Tagging={
                    "TagSet": [
                        dict(zip(("Key", "Value"), each.split("="), strict=True))
                        for each in tagging.split("&")
                    ]
                },
            )
        wanted = {"kind": "tagObjects", "bucket": bucket, "tags": {"team": "new", "year": "2026"}}
        job = self.finish(**wanted, keys=["a", "b"], prefixes=["c/"])
        self.assertEqual((job["state"], job["done"], job["failures"]), ("done", 4, 0))
        self.assertEqual((job["tags"], job["named"]), (wanted["tags"], 3))
        self.assertEqual(self.tags(bucket, "a"), {"team": "new", "stage": "prod", "year": "2026"})
        for key in ("b", "c/1", "c/2"):
            self.assertEqual(self.tags(bucket, key), wanted["tags"])
        self.assertEqual(self.tags(bucket, "d"), {"kept": "1"})
        job = self.finish(**{**wanted, "tags": {"all": ""}})
        self.assertEqual((job["done"], job["failures"]), (5, 0))
        self.assertEqual(self.tags(bucket, "d"), {"kept": "1", "all": ""})

    def test_tagFailures(self) -> None:
        """An object that would get too many tags, or is gone, is named; the others are tagged."""
        bucket = self.fill("full", "free")
        full = {f"k{number}": "v" for number in range(10)}
        self.finish(kind="tagObjects", bucket=bucket, keys=["full"], tags=full)
        wanted = {"kind": "tagObjects", "bucket": bucket, "keys": ["absent", "full", "free"]}
        job = self.finish(**wanted, tags={"new": "1", "k0": "w"})
        self.assertEqual((job["state"], job["done"], job["failures"]), ("done", 3, 2))
        absent, tooMany = job["failed"]
        self.assertEqual((absent["key"], tooMany["key"]), ("absent", "full"))
        self.assertIn("NoSuchKey", absent["error"])
        self.assertIn("cannot be greater than 10", tooMany["error"])
        self.assertEqual(self.tags(bucket, "full"), full)
        self.assertEqual(self.tags(bucket, "free"), {"new": "1", "k0": "w"})

    def test_tagsRefused(self) -> None:
        """Tags and names that no job can have are refused before it starts."""
        bucket = self.fill("a")
        wanted = {"kind": "tagObjects", "bucket": bucket, "tags": {"a": "b"}}
        for wrong in (
            {"tags": {}},
            {"tags": {"aws:a": "b"}},
            {"tags": {f"k{number}": "v" for number in range(11)}},
            {"keys": ["a"], "prefix": "b/"},
            {"keys": [f"k{number}" for number in range(10_001)]},
            {"keys": ["k" * 1025]},
            {"kind": "deletePrefix"},
            {"kind": "deletePrefix", "tags": {}, "keys": ["a"]},
            {"toPrefix": "x/"},
        ):
            reply = self.call("POST", "jobs", {**wanted, **wrong})
            self.assertEqual(reply.status, 400, wrong)
        self.assertEqual(self.call("POST", "jobs", {**wanted, "bucket": "absent-1"}).status, 404)
        self.assertEqual(self.tags(bucket, "a"), {})

    @long("issues a key")
    def test_tagRights(self) -> None:
        """A key that may only read changes no tags."""
        bucket = self.fill("a")
        account = self.issueKey("root", "--policy", "readonly")
        wanted = {"kind": "tagObjects", "bucket": bucket, "keys": ["a"], "tags": {"a": "b"}}
        job = self.finish(account, **wanted)
        self.assertEqual((job["done"], job["failures"]), (1, 1))
        self.assertIn("AccessDenied", job["failed"][0]["error"])
        self.assertEqual(self.tags(bucket, "a"), {})

    def test_noKey(self) -> None:
        """An object whose copy would have an empty key stays as it is; the others are moved."""
        bucket = self.fill("a/", "a/b")
        job = self.finish(kind="movePrefix", bucket=bucket, prefix="a/")
        self.assertEqual((job["state"], job["done"], job["failures"]), ("done", 2, 1))
        self.assertEqual(self.keys(bucket), ["a/", "b"])

    def test_replaces(self) -> None:
        """A job that may not replace objects leaves both where they are, and names them."""
        bucket, target = self.fill("a/1", "a/2", "b/1"), self.fill("b/2")
        names = {"bucket": bucket, "prefix": "a/", "toPrefix": "b/", "replaces": False}
        job = self.finish(kind="copyPrefix", **names, toBucket=target)
        self.assertEqual((job["done"], job["failures"], job["replaces"]), (2, 1, False))
        self.assertEqual(
            job["failed"], [{"key": "a/2", "error": "ALREADY_EXISTS: b/2 already exists"}]
        )
        job = self.finish(kind="movePrefix", **names)
        self.assertEqual((job["state"], job["failures"]), ("done", 1))
        self.assertEqual(self.keys(bucket), ["a/1", "b/1", "b/2"])
        for home, key, body in ((bucket, "b/1", b"b/1"), (target, "b/2", b"b/2")):
            found = self.s3.get_object(Bucket=home, Key=key)["Body"].read()
            self.assertEqual(found, body)
        job = self.finish(kind="movePrefix", **{**names, "replaces": True})
        self.assertEqual((job["failures"], self.keys(bucket)), (0, ["b/1", "b/2"]))
        wrong = {"kind": "deletePrefix", "bucket": bucket, "replaces": False}
        self.assertEqual(self.call("POST", "jobs", wrong).status, 400)

    def test_upwards(self) -> None:
        """What would replace objects that are still to be moved or copied stays where it is."""
        for kind in ("movePrefix", "copyPrefix"):
            bucket = self.fill("a/x", "a/a/x", "a/b")
            job = self.finish(kind=kind, bucket=bucket, prefix="a/", toPrefix="")
            self.assertEqual((job["state"], job["done"], job["failures"]), ("done", 3, 1))
            [failed] = job["failed"]
            self.assertEqual(failed["key"], "a/a/x")
            self.assertIn("inside the source: a/x", failed["error"])
            left = ["a/a/x"] if kind == "movePrefix" else ["a/a/x", "a/b", "a/x"]
            self.assertEqual(self.keys(bucket), [*left, "b", "x"])
            for key, body in (("a/a/x", b"a/a/x"), ("b", b"a/b"), ("x", b"a/x")):
                found = self.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
                self.assertEqual(found, body)

    @long("takes seconds")
    def test_policy(self) -> None:
        """A job may do what its key may do, and a key sees only its own jobs."""
        bucket = self.fill("a/1")
        stranger = self.issueKey("jobless")
        wanted = {"kind": "deletePrefix", "bucket": bucket}
        self.assertEqual(self.call("POST", "jobs", wanted, stranger).status, 403)
        self.assertEqual(self.call("GET", "jobs", None, stranger).json["items"], [])
        long = "x" * 1025
        for wrong in (
            {**wanted, "kind": "x"},
            {**wanted, "toPrefix": "x"},
            {"kind": "x"},
            {**wanted, "prefix": long},
            {**wanted, "kind": "copyPrefix", "toPrefix": long},
        ):
            self.assertEqual(self.call("POST", "jobs", wrong).status, 400)
        reader = self.issueKey("reader", "--policy", "readonly")
        policy = {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Principal": "*",
                    "Action": "s3:*",
                    "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
                }
            ],
        }
        path = f"buckets/{bucket}/settings/policy"
        self.assertEqual(self.call("PUT", path, policy).status, 204)
        job = self.finish(reader, **wanted)
        self.assertEqual((job["state"], job["done"], job["failures"]), ("done", 1, 1))
        self.assertEqual(self.keys(bucket), ["a/1"])
