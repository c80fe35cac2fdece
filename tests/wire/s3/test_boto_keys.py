"""Keys are names, not paths: whatever UTF-8 of 1 to 1024 bytes goes in comes out."""

import os
import re
import unicodedata

from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.clients import ROOT
from tests.support.s3signer import Outgoing
from tests.support.selection import long, rounds
from tests.wire.s3.fixture import S3Case

ODD_KEYS = (
    "../x",
    "../../../../etc/passwd",
    "a/../b",
    "./a",
    ".",
    "..",
    "...",
    "a//b",
    "/",
    "//",
    "/leading",
    "trailing/",
    "trailing//",
    "back\\slash",
    "C:\\windows\\x",
    "a+b",
    "a b",
    " leading and trailing ",
    "a%2Bb",
    "%2e%2e%2f",
    "%00",
    "%",
    "100%",
    "?query=1",
    "#fragment",
    "&amp;<x>\"'",
    "ctl-\x01\x02\x1f\x7f",
    "line\nfeed\r\nand\ttab",
    "caf\u00e9",
    "cafe\u0301",
    "\u00fcml\u00e4ut/\u65e5\u672c\u8a9e/\U0001f600",
    "\u202eright to left",
    "\ufeffmark",
    "UPPER",
    "upper",
    "con",
    "a:b",
    "~user",
    "$HOME;`id`|*",
    "x" * 1024,
    "\u00fc" * 512,
    "catalog.sqlite",
    "../catalog.sqlite",
)


NO_XML = re.compile("[\x00-\x1f\x7f]")
"""What boto3 writes raw into the document that names keys to delete, where it is no XML."""


class KeyTests(S3Case):
    """Odd keys, in every operation that takes one."""

    def assertRoundTrip(self, bucket: str, key: str) -> None:
        """Store, read, find in lists, copy and delete one key."""
        body = b"under " + key.encode()
        self.s3.put_object(Bucket=bucket, Key=key, Body=body)
        self.assertEqual(self.s3.get_object(Bucket=bucket, Key=key)["Body"].read(), body)
        self.assertEqual(self.s3.head_object(Bucket=bucket, Key=key)["ContentLength"], len(body))
        for listing in (self.s3.list_objects_v2, self.s3.list_objects):
            found = listing(Bucket=bucket, Prefix=key)
            self.assertEqual([entry["Key"] for entry in found["Contents"]], [key])
        self.s3.copy_object(
            Bucket=bucket, Key="copy of it", CopySource={"Bucket": bucket, "Key": key}
        )
        self.assertHolds(bucket, "copy of it", body)
        self.s3.delete_object(Bucket=bucket, Key=key)
        self.assertMissing(bucket, key)
        if NO_XML.search(key) is None:
            self.s3.put_object(Bucket=bucket, Key=key, Body=body)
            done = self.s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key}]})
            self.assertEqual([entry["Key"] for entry in done["Deleted"]], [key])
            self.assertMissing(bucket, key)

    @long("takes seconds")
    def test_oddKeys(self) -> None:
        """Each odd key is the same key to put, get, head, list, copy and delete."""
        bucket = self.makeBucket()
        for key in ODD_KEYS:
            try:
                self.assertRoundTrip(bucket, key)
            except ClientError as error:
                self.fail(f"{key!r}: {error}")

    def test_allAtOnce(self) -> None:
        """No two odd keys are one: together they are listed in the order of their bytes."""
        bucket = self.makeBucket()
        for key in ODD_KEYS:
            self.s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
        for listing in (self.s3.list_objects_v2, self.s3.list_objects):
            found = [entry["Key"] for entry in listing(Bucket=bucket)["Contents"]]
            self.assertEqual(found, sorted(ODD_KEYS, key=str.encode))
        for key in ODD_KEYS:
            self.assertHolds(bucket, key, key.encode())

    def test_composedAndDecomposed(self) -> None:
        """A composed and a decomposed letter are two keys: nothing is normalised."""
        bucket = self.makeBucket()
        composed = unicodedata.normalize("NFC", "A\u030angstro\u0308m")
        decomposed = unicodedata.normalize("NFD", composed)
        self.s3.put_object(Bucket=bucket, Key=composed, Body=b"composed")
        self.assertMissing(bucket, decomposed)
        self.s3.put_object(Bucket=bucket, Key=decomposed, Body=b"decomposed")
        self.assertHolds(bucket, composed, b"composed")
        self.assertHolds(bucket, decomposed, b"decomposed")

    def test_tooLong(self) -> None:
        """A key of 1025 bytes is refused, however few characters it has."""
        bucket = self.makeBucket()
        for key in ("x" * 1025, "\u00fc" * 512 + "x"):
            self.assertRefused(
                400, "KeyTooLongError", self.s3.put_object, Bucket=bucket, Key=key, Body=b"x"
            )

    def test_escapes(self) -> None:
        """A path is decoded once: C{%252F} is three characters, C{+} is a plus."""
        bucket = self.makeBucket()
        for escaped, key in (
            ("a%252Fb", "a%2Fb"),
            ("a%2Fb", "a/b"),
            ("a%2fb", "a/b"),
            ("plus+plus", "plus+plus"),
            ("plus%2Bplus", "plus+plus"),
            ("space%20space", "space space"),
            ("%2e%2e%2fx", "../x"),
            ("%7e", "~"),
        ):
            # Not signed: a signature has an opinion of its own on how a path is spelt.
            answer = self.send(
                Outgoing("PUT", f"/{bucket}/{escaped}", ROOT.plainHeaders(), escaped.encode())
            )
            self.assertEqual(answer.status, 200, (escaped, answer))
            self.assertHolds(bucket, key, escaped.encode())

    def test_invalidPaths(self) -> None:
        """What is not UTF-8, or no escape, is 400 and stores nothing."""
        bucket = self.makeBucket()
        for path in ("%ff", "%c3%28", "%ed%a0%80", "%zz", "%4", "%", "%c0%af"):
            answer = self.send(Outgoing("PUT", f"/{bucket}/{path}", ROOT.plainHeaders(), b"x"))
            self.assertEqual(answer.status, 400, (path, answer))
        self.assertNotIn("Contents", self.s3.list_objects_v2(Bucket=bucket))

    @settings(max_examples=rounds(12, 60), deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).filter(
            # botocore replaces NUL in its own XML, and cannot send a bare dot segment otherwise.
            lambda key: "\x00" not in key
        )
    )
    @long("takes seconds")
    def test_anyKey(self, key: str) -> None:
        """Any text is the same key to put, list and get."""
        bucket = self._anyBucket()
        self.s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
        self.assertHolds(bucket, key, key.encode())
        found = self.s3.list_objects_v2(Bucket=bucket, Prefix=key)
        self.assertIn(key, [entry["Key"] for entry in found["Contents"]])
        self.s3.delete_object(Bucket=bucket, Key=key)
        self.assertMissing(bucket, key)

    def _anyBucket(self) -> str:
        """Make the bucket of the generated keys, once."""
        name = "generated-keys"
        if name not in [bucket["Name"] for bucket in self.s3.list_buckets()["Buckets"]]:
            self.s3.create_bucket(Bucket=name)
        return name

    def test_nothingOutside(self) -> None:
        """Whatever the keys are, files lie in the data directory only, under the server's names."""
        bucket = self.makeBucket("walked")
        canary = "canary-key-that-would-be-a-file-name"
        before = self._filesAround()
        for key in (*ODD_KEYS, f"../{canary}", f"../../{canary}/{canary}", f"{canary}/../x"):
            self.s3.put_object(Bucket=bucket, Key=key, Body=b"x" * 70_000)
        self.assertEqual(self._filesAround(), before)
        for directory, folders, files in os.walk(self.daemon.data):
            for name in (*folders, *files):
                self.assertRegex(name, r"^[0-9a-zA-Z._-]+$", directory)
                self.assertNotIn(canary, name)
                self.assertNotIn("walked", name)

    def _filesAround(self) -> set[str]:
        """List what lies two levels around the data directory, but not in it."""
        data = self.daemon.data.resolve()
        found = set()
        for parent in (data.parent, data.parent.parent):
            for entry in parent.iterdir():
                # Other tests' directories come and go beside that of this daemon.
                if parent == data.parent or "canary" in entry.name or entry.is_file():
                    found.add(str(entry))
        return found
