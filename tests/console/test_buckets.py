"""Buckets and their settings by the API."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from tests.console.fixture import ConsoleCase
from tests.support.selection import long

_LARGE = {
    "cors": {"CORSRule": [{"AllowedMethod": ["GET"], "AllowedOrigin": ["h" * 1000] * 80}]},
    "lifecycle": {"Rule": [{"ID": "r" * 1000}] * 600},
    "policy": {"Statement": [{"Sid": "s" * 100_000}]},
    "tags": {"TagSet": {"Tag": [1] * 200_000}},
}
"""Documents that are longer than S3 takes, most of them as XML only."""


class BucketTests(ConsoleCase):
    """Buckets."""

    @long("takes seconds")
    def test_narrowKey(self) -> None:
        """A key for some buckets of its account sees each of them, in pages."""
        owner = self.issueKey("narrow")
        for name in ("narrow-a", "narrow-b", "narrow-ya", "narrow-za"):
            self.assertEqual(self.call("POST", "buckets", {"name": name}, owner).status, 200)
        account = self.issueKey("narrow", "--bucket", "narrow-?a")
        names: list[str] = []
        after: str | None = ""
        while after is not None:
            page = self.call("GET", f"buckets?limit=1&after={after}", account=account).json
            names += [each["name"] for each in page["items"]]
            after = page["next"]
        self.assertEqual(names, ["narrow-ya", "narrow-za"])

    @long("issues several keys")
    def test_keyPrefix(self) -> None:
        """A key for some objects learns where they begin, and what it may create."""
        bucket = self.makeBucket()
        for pattern, start in (("2026/*", "2026/"), ("a?c", "a"), ("*", "")):
            account = self.issueKey("root", "--prefix", pattern)
            found = self.call("GET", f"buckets/{bucket}", account=account).json
            self.assertEqual((found["keyPattern"], found["keyPrefix"]), (pattern, start))
            self.assertFalse(self.call("GET", "buckets", account=account).json["mayCreate"])
        whole = self.call("GET", f"buckets/{bucket}").json
        self.assertEqual((whole["keyPattern"], whole["keyPrefix"]), ("", ""))
        self.assertTrue(self.call("GET", "buckets").json["mayCreate"])

    def test_older(self) -> None:
        """Current objects and older versions are told apart; a bucket without versions has none."""
        bucket = self.makeBucket()
        plain = self.call("GET", f"buckets/{bucket}").json
        self.assertEqual((plain["objects"], plain["older"], plain["olderBytes"]), (0, 0, 0))
        self.call("PUT", f"buckets/{bucket}/settings/versioning", {"Status": "Enabled"})
        for body in (b"1", b"22", b"333"):
            self.s3.put_object(Bucket=bucket, Key="k", Body=body)
        self.s3.delete_object(Bucket=bucket, Key="k")
        self.s3.put_object(Bucket=bucket, Key="l", Body=b"4444")
        found = self.call("GET", f"buckets/{bucket}").json
        page = self.call("GET", f"buckets?prefix={bucket}").json["items"]
        for each in (found, *page):
            self.assertEqual((each["objects"], each["bytes"]), (4, 10))
            self.assertEqual((each["older"], each["olderBytes"]), (3, 6))

    def test_access(self) -> None:
        """A bucket says who besides its account may use it, in the list and by itself."""
        bucket = self.makeBucket()
        self.assertEqual(self.shown(bucket, "access"), ["private", "private"])
        statement = {
            "Effect": "Allow",
            "Principal": "*",
            "Action": "s3:GetObject",
            "Resource": f"arn:aws:s3:::{bucket}/public/*",
        }
        self.s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Statement": statement}))
        self.assertEqual(self.shown(bucket, "access"), ["publicRead", "publicRead"])
        self.s3.put_public_access_block(
            Bucket=bucket, PublicAccessBlockConfiguration={"RestrictPublicBuckets": True}
        )
        self.assertEqual(self.shown(bucket, "access"), ["private", "private"])

    def test_growth(self) -> None:
        """The growth of a bucket is known from a sample of the day before."""
        bucket = self.makeBucket()
        self.s3.put_object(Bucket=bucket, Key="a", Body=bytes(5000))
        self.assertEqual(self.shown(bucket, "growth"), [None, None])
        self.call("GET", "overview")
        usage = Path(self.daemon.data) / "usage.sqlite"
        with closing(sqlite3.connect(usage)) as connection, connection:
            connection.execute(
                "INSERT INTO consoleUsage SELECT hour - 24, atMs - 86400000, 0, 0, 0, ?"
                " FROM consoleUsage ORDER BY hour DESC LIMIT 1",
                (msgspec.msgpack.encode({bucket: 7000}),),
            )
        try:
            self.assertEqual(self.shown(bucket, "growth"), [-2000, -2000])
        finally:
            with closing(sqlite3.connect(usage)) as connection, connection:
                connection.execute("DELETE FROM consoleUsage")

    def shown(self, bucket: str, field: str) -> list[Any]:
        """Return a field of a bucket as the list and as the bucket shows it."""
        [listed] = self.call("GET", f"buckets?prefix={bucket}").json["items"]
        return [listed[field], self.call("GET", f"buckets/{bucket}").json[field]]

    def test_ownership(self) -> None:
        """An ownership that S3 does not have is refused, and no bucket made."""
        made = self.call("POST", "buckets", {"name": "owned-by-x", "ownership": "x"})
        self.assertEqual(made.status, 400)
        self.assertEqual(self.call("GET", "buckets/owned-by-x").status, 404)


class SettingTests(ConsoleCase):
    """Their settings."""

    @long("takes seconds")
    def test_rights(self) -> None:
        """A key that only reads may read settings, as over S3, and change none."""
        bucket = self.makeBucket()
        reader = self.issueKey("root", "--policy", "readonly")
        path = f"buckets/{bucket}/settings/versioning"
        document: dict[str, Any] = {"Status": "Enabled"}
        self.assertEqual(self.call("PUT", path, document).status, 204)
        self.assertEqual(self.call("GET", path, account=reader).json, document)
        self.assertEqual(self.call("PUT", path, document, reader).status, 403)
        narrow = self.issueKey("root", "--prefix", "a/*")
        self.assertEqual(self.call("PUT", path, document, narrow).status, 403)

    def test_policyPlace(self) -> None:
        """A refused policy names the statement and its element."""
        bucket = self.makeBucket()
        right = {
            "Effect": "Allow",
            "Principal": "*",
            "Action": "s3:GetObject",
            "Resource": f"arn:aws:s3:::{bucket}/*",
        }
        address = {"IpAddress": {"aws:SourceIp": "nowhere"}}
        for changed, element in (
            ({"Principal": {"AWS": "nobody-here"}}, "Principal"),
            ({"Resource": "arn:aws:s3:::another/*"}, "Resource"),
            ({"Condition": address}, "Condition"),
        ):
            policy = {"Version": "2012-10-17", "Statement": [right, {**right, **changed}]}
            reply = self.call("PUT", f"buckets/{bucket}/settings/policy", policy)
            self.assertEqual(reply.status, 400)
            self.assertEqual(reply.json["details"], {"statement": 2, "element": element})

    def test_documents(self) -> None:
        """What is no object, or longer than S3 takes, is refused and changes nothing."""
        bucket = self.makeBucket()
        path = f"buckets/{bucket}/settings/"
        tags = {"TagSet": {"Tag": [{"Key": "team", "Value": "x"}]}}
        self.assertEqual(self.call("PUT", path + "tags", tags).status, 204)
        for name in ("tags", "publicAccessBlock", "policy", "cors"):
            for wrong in (b"null", b'"x"', b"1", b"[]"):
                self.assertEqual(self.call("PUT", path + name, wrong).status, 400, (name, wrong))
        for name, large in _LARGE.items():
            reply = self.call("PUT", path + name, large)
            self.assertEqual(reply.status, 400, name)
            self.assertIn("too big" if name != "policy" else "20480", reply.json["message"])
        self.assertEqual(self.call("GET", path + "tags").json, tags)
