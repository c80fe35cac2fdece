"""Tickets, previews, zips and links."""

import io
import shutil
import subprocess
import time
import zipfile
from urllib.request import urlopen

from tests.console.fixture import ConsoleCase, Reply
from tests.support.clients import ROOT, Account

HOSTILE = ("../../etc/passwd", "a/../b", "/rooted", "a\\..\\b", "c:x", "a//b", "..", "x\x01y")


class TicketTests(ConsoleCase):
    """What the browser fetches itself."""

    def ticket(self, halves: dict[str, str], **wanted: object) -> str:
        """Make a ticket; return its path below the API."""
        reply = self.send("POST", "tickets", wanted, halves)
        self.assertEqual(reply.status, 200, reply)
        url: str = reply.json["url"]
        return url.removeprefix("api/v1/")

    def fetch(self, path: str, halves: dict[str, str], **more: str) -> Reply:
        """Fetch as a browser does: with the cookie, without the token."""
        return self.send("GET", path, None, {"Cookie": halves["Cookie"], **more})

    def test_download(self) -> None:
        """A ticket is good for its object, with the cookie of its session, until that ends."""
        bucket, halves = self.makeBucket(), self.signIn()
        self.s3.put_object(Bucket=bucket, Key="d/ü.txt", Body=b"0123456789")
        path = self.ticket(halves, bucket=bucket, key="d/ü.txt", purpose="download")
        reply = self.fetch(path, halves)
        self.assertEqual((reply.status, reply.body), (200, b"0123456789"))
        disposition = reply.headers["Content-Disposition"]
        self.assertEqual(disposition, "attachment; filename*=UTF-8''%C3%BC.txt")
        self.assertEqual(self.fetch(path, halves, Range="bytes=2-3").body, b"23")
        other = self.signIn()
        self.assertEqual(self.fetch(path, other).status, 404)
        self.assertEqual(self.send("GET", path).status, 401)
        self.assertEqual(self.fetch(path.replace("bytes/", "zip/"), halves).status, 404)
        self.assertEqual(self.fetch("bytes/none", halves).status, 404)
        self.assertEqual(self.send("DELETE", "session", None, halves).status, 204)
        self.assertEqual(self.fetch(path, halves).status, 401)

    def test_preview(self) -> None:
        """What may be shown is, in a sandbox; all else is saved."""
        bucket, halves = self.makeBucket(), self.signIn()
        shown = {"text/html": True, "image/svg+xml": True, "application/pdf": True}
        for kind, isShown in {**shown, "application/xhtml+xml": False, "x/y": False}.items():
            self.s3.put_object(Bucket=bucket, Key="k", Body=b"<script>", ContentType=kind)
            path = self.ticket(halves, bucket=bucket, key="k", purpose="preview")
            fields = self.fetch(path, halves).headers
            start = "inline" if isShown else "attachment"
            self.assertTrue(fields["Content-Disposition"].startswith(start), kind)
            policy = fields["Content-Security-Policy"]
            self.assertTrue(policy.startswith("sandbox; default-src 'none';"))
            self.assertEqual(fields["X-Content-Type-Options"], "nosniff")

    def test_refusals(self) -> None:
        """A ticket is made by a session that may read, for what there is."""
        bucket, halves = self.makeBucket(), self.signIn()
        wanted = {"bucket": bucket, "key": "k", "purpose": "download"}
        self.assertEqual(self.call("POST", "tickets", wanted).status, 400)
        self.assertEqual(self.send("POST", "tickets", wanted, halves).status, 404)
        wrong = {"bucket": bucket, "purpose": "zip"}
        self.assertEqual(self.send("POST", "tickets", wrong, halves).status, 400)
        self.s3.put_object(Bucket=bucket, Key="k", Body=b"")
        stranger = self.signIn(self.issueKey("stranger"))
        self.assertEqual(self.send("POST", "tickets", wanted, stranger).status, 403)

    def test_zip(self) -> None:
        """A folder is a zip that zipfile and unzip open, whose names stay where they belong."""
        bucket, halves = self.makeBucket(), self.signIn()
        bodies = {"d/ü.txt": b"abc", "d/e/big": bytes(3 << 20), "d/empty": b"", "d/f/": b""}
        for key, body in bodies.items():
            self.s3.put_object(Bucket=bucket, Key=key, Body=body)
        path = self.ticket(halves, bucket=bucket, prefix="d/", base="d/", purpose="zip")
        reply = self.fetch(path, halves)
        self.assertEqual((reply.status, reply.headers["Content-Type"]), (200, "application/zip"))
        with zipfile.ZipFile(io.BytesIO(reply.body)) as archive:
            self.assertIsNone(archive.testzip())
            found = {each.filename: archive.read(each) for each in archive.infolist()}
            self.assertEqual({each.date_time[0] > 2000 for each in archive.infolist()}, {True})
        self.assertEqual(found, {key[2:]: body for key, body in bodies.items()})
        self.assertUnzips(reply.body)
        some = {"keys": ["d/e/big", "d/empty"], "purpose": "zip"}
        for base, name in (("d/", "d.zip"), ("d/e/", "e.zip"), ("", f"{bucket}.zip")):
            path = self.ticket(halves, bucket=bucket, base=base, **some)
            disposition = self.fetch(path, halves).headers["Content-Disposition"]
            self.assertEqual(disposition, f"attachment; filename*=UTF-8''{name}")

    def assertUnzips(self, archive: bytes) -> None:
        """Check a zip with unzip, where that is installed."""
        if program := shutil.which("unzip"):
            file = self.makeDirectory("zip") / "a.zip"
            file.write_bytes(archive)
            run = subprocess.run([program, "-tq", file], capture_output=True, check=False)
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_hostileNames(self) -> None:
        """No name leads out of the directory, and each is there once."""
        bucket, halves = self.makeBucket(), self.signIn()
        for key in HOSTILE:
            self.call("PUT", self.objectPath(bucket, key), key.encode())
        path = self.ticket(halves, bucket=bucket, prefix="", purpose="zip")
        reply = self.fetch(path, halves)
        with zipfile.ZipFile(io.BytesIO(reply.body)) as archive:
            self.assertEqual(
                sorted(map(archive.read, archive.namelist())),
                sorted(key.encode() for key in HOSTILE),
            )
            for name in archive.namelist():
                parts = name.split("/")
                self.assertFalse({"", ".", ".."} & set(parts), name)
                self.assertFalse(set(name) & set("\\:\x01"), name)
            self.assertEqual(len(set(archive.namelist())), len(HOSTILE))
        self.assertUnzips(reply.body)

    def test_customerKeys(self) -> None:
        """Objects with clients' keys are named, and all others are in the archive."""
        bucket, halves = self.makeBucket(), self.signIn()
        customer = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": bytes(range(32))}
        for key, more in (("a", {}), ("b", customer), ("c", {"ServerSideEncryption": "AES256"})):
            self.s3.put_object(Bucket=bucket, Key=key, Body=key.encode(), **more)
        path = self.ticket(halves, bucket=bucket, prefix="", purpose="zip")
        with zipfile.ZipFile(io.BytesIO(self.fetch(path, halves).body)) as archive:
            self.assertEqual(archive.namelist(), ["a", "c", "NOT-INCLUDED.txt"])
            self.assertEqual(archive.read("c"), b"c")
            self.assertEqual(archive.read("NOT-INCLUDED.txt"), b"InvalidRequest: b\n")

    def test_selection(self) -> None:
        """A selection has keys and prefixes, each object once; what is gone is named."""
        bucket, halves = self.makeBucket(), self.signIn()
        for key in ("a", "d/1", "d/2"):
            self.s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
        wanted = {"keys": ["a", "d/1", "gone"], "prefixes": ["d/"]}
        path = self.ticket(halves, bucket=bucket, purpose="zip", **wanted)
        with zipfile.ZipFile(io.BytesIO(self.fetch(path, halves).body)) as archive:
            names = {"a", "d/1", "d/2", "NOT-INCLUDED.txt"}
            self.assertEqual(set(archive.namelist()), names)
            self.assertEqual(archive.read("NOT-INCLUDED.txt"), b"NoSuchKey: gone\n")
        self.s3.put_object(Bucket=bucket, Key="NOT-INCLUDED.txt", Body=b"own")
        wanted["keys"].append("NOT-INCLUDED.txt")
        path = self.ticket(halves, bucket=bucket, purpose="zip", **wanted)
        with zipfile.ZipFile(io.BytesIO(self.fetch(path, halves).body)) as archive:
            self.assertEqual(archive.read("NOT-INCLUDED.txt"), b"own")
            [other] = set(archive.namelist()) - names
            self.assertEqual(archive.read(other), b"NoSuchKey: gone\n")


class ShareTests(ConsoleCase):
    """Links."""

    def test_share(self) -> None:
        """A link works without anything else, and says that it is of this machine only."""
        bucket = self.makeBucket()
        self.s3.put_object(Bucket=bucket, Key="d/ü x", Body=b"abc", ContentType="text/plain")
        path = f"buckets/{bucket}/share"
        shared = self.call("POST", path, {"key": "d/ü x", "expiresSeconds": 60, "download": True})
        self.assertIn("s3Url", shared.json["warning"])
        with urlopen(shared.json["url"]) as response:
            self.assertEqual(response.read(), b"abc")
            self.assertTrue(response.headers["Content-Disposition"].startswith("attachment"))
        for seconds in (0, 7 * 24 * 3600 + 1):
            wrong = {"key": "d/ü x", "expiresSeconds": seconds}
            self.assertEqual(self.call("POST", path, wrong).status, 400)
        self.assertEqual(self.call("POST", path, {"key": "gone"}).status, 404)
        self.assertNotIn(ROOT.secretKey, shared.json["url"])

    def test_expiringKey(self) -> None:
        """A link says that it ends with the key that signs it."""
        bucket = self.makeBucket()
        self.s3.put_object(Bucket=bucket, Key="k", Body=b"abc")
        expiresMs = int(time.time() * 1000) + 3600_000
        made = self.call("POST", "keys", {"account": "root", "expiresMs": expiresMs}).json
        account = Account(made["accessKey"], made["secretKey"])
        ends = []
        for seconds in (60, 86400):
            body = {"key": "k", "expiresSeconds": seconds}
            ends.append(
                self.call("POST", f"buckets/{bucket}/share", body, account).json["expiresMs"]
            )
        self.assertLess(ends[0], expiresMs)
        self.assertEqual(ends[1], expiresMs)
