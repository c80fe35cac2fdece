"""The list of buckets, the menu of a row, and the keys that reach a bucket, in Chromium."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from botocore.exceptions import ClientError

from tests.browser.test_objects import BrowserCase
from tests.support.clients import ROOT, Account
from tests.support.selection import long


@long("drives Chromium")
class BucketListTests(BrowserCase):
    """The row of a bucket."""

    def showList(self) -> None:
        """Go to the list, narrowed to the bucket of the test."""
        self.page.evaluate("location.hash = '#/overview'")
        self.page.evaluate(f"location.hash = '#/buckets?prefix={self.bucket}'")
        self.page.wait("document.querySelectorAll('main tbody tr').length === 1")

    def become(self, **limits: str) -> None:
        """Sign in with a key of the root account."""
        made = self.call("POST", "keys", {"account": "root", **limits}).json
        self.page.press("Sign out")
        account = Account(made["accessKey"], made["secretKey"])
        self.page.signIn(account.accessKey, account.secretKey)

    def cell(self, column: str) -> str:
        """Return the text of a column of the row."""
        found: str = self.page.evaluate(
            "(() => { const heads = [...document.querySelectorAll('main thead th')]"
            ".map((each) => each.innerText.trim());"
            " return document.querySelector('main tbody tr')"
            f".children[heads.indexOf({json.dumps(column)})].innerText.trim() }})()"
        )
        return found

    def items(self) -> list[str]:
        """Open the menu of the row; return its items."""
        self.page.wait("document.querySelector('.menuCell button')")
        self.page.evaluate("document.querySelector('.menuCell button').click()")
        self.page.wait("document.querySelector('[role=menuitem]')")
        found: list[str] = self.page.evaluate(
            "[...document.querySelectorAll('[role=menuitem]')].map((each) => each.innerText.trim())"
        )
        return found

    def stored(self) -> Any:
        """Return the versions, delete markers and uploads that there are, by kind."""
        versions = self.s3.list_object_versions(Bucket=self.bucket)
        uploads = self.s3.list_multipart_uploads(Bucket=self.bucket)
        return [
            len(each.get(name, []))
            for each, name in (
                (versions, "Versions"),
                (versions, "DeleteMarkers"),
                (uploads, "Uploads"),
            )
        ]

    def test_columns(self) -> None:
        """The list says who may use a bucket, and its growth where a day is known."""
        self.put("a", body=bytes(3_000_000))
        self.showList()
        self.assertEqual(self.cell("Access"), "Private")
        self.assertNotIn("Growth", self.page.evaluate("document.querySelector('thead').innerText"))
        statement = {
            "Effect": "Allow",
            "Principal": "*",
            "Action": "s3:GetObject",
            "Resource": f"arn:aws:s3:::{self.bucket}/*",
        }
        self.s3.put_bucket_policy(Bucket=self.bucket, Policy=json.dumps({"Statement": statement}))
        self.call("GET", "overview")
        usage = Path(self.daemon.data) / "usage.sqlite"
        with closing(sqlite3.connect(usage)) as connection, connection:
            connection.execute(
                "INSERT INTO consoleUsage SELECT hour - 24, atMs - 86400000, 0, 0, 0, ?"
                " FROM consoleUsage ORDER BY hour DESC LIMIT 1",
                (msgspec.msgpack.encode({self.bucket: 1_000_000}),),
            )
        try:
            self.showList()
        finally:
            with closing(sqlite3.connect(usage)) as connection, connection:
                connection.execute("DELETE FROM consoleUsage")
        self.assertEqual(self.cell("Access"), "Public read")
        self.assertEqual(self.cell("Growth, 24 h"), "+2 MB")

    def test_menu(self) -> None:
        """The menu offers what the key may do, and no more."""
        self.showList()
        every = ["Open", "Settings", "Access", "Empty bucket…", "Delete bucket…"]
        self.assertEqual(self.items(), every)
        self.page.press("Access")
        self.page.wait("document.querySelector('#policyText')")
        for limits, expected in (
            ({"policy": "readonly"}, ["Open"]),
            ({"prefix": "2026/*", "bucket": self.bucket}, ["Open"]),
            ({"bucket": self.bucket}, every),
        ):
            self.become(**limits)
            self.showList()
            self.assertEqual(self.items(), expected, limits)
            self.page.key("Escape")
            self.page.wait("!document.querySelector('[role=menuitem]')")

    def test_empty(self) -> None:
        """Emptying asks for the name, removes versions and uploads, and then allows deleting."""
        self.s3.put_bucket_versioning(
            Bucket=self.bucket, VersioningConfiguration={"Status": "Enabled"}
        )
        self.put("a", "a", "b")
        self.s3.delete_object(Bucket=self.bucket, Key="b")
        self.s3.create_multipart_upload(Bucket=self.bucket, Key="c")
        self.showList()
        self.items()
        self.page.press("Delete bucket…")
        self.page.fill("dialog input", self.bucket)
        self.page.press("Delete")
        self.page.waitText(
            "holds 1 object, 2 older versions, all delete markers, and 1 unfinished upload (27 B)"
        )
        self.page.press("Cancel")
        self.items()
        self.page.press("Empty bucket…")
        self.page.waitText("Deletes 1 object, 2 older versions")
        disabled = "document.querySelector('dialog .button.danger').disabled"
        self.assertTrue(self.page.evaluate(disabled))
        self.page.fill("dialog input", self.bucket)
        self.page.press("Empty bucket")
        self.page.waitText(f"Emptied {self.bucket}: 5 versions, markers and uploads")
        self.assertEqual(self.stored(), [0, 0, 0])
        self.items()
        self.page.press("Delete bucket…")
        self.page.fill("dialog input", self.bucket)
        self.page.press("Delete")
        self.page.waitText("No bucket has a name that begins so")
        self.assertRaises(ClientError, self.s3.head_bucket, Bucket=self.bucket)

    def test_emptySettings(self) -> None:
        """The settings empty a bucket, too; the job is shown with the objects, and what it left."""
        bucket = self.makeName("locked")
        self.s3.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        self.s3.put_object(Bucket=bucket, Key="held", Body=b"x", ObjectLockLegalHoldStatus="ON")
        self.addCleanup(
            self.s3.put_object_legal_hold, Bucket=bucket, Key="held", LegalHold={"Status": "OFF"}
        )
        self.page.evaluate(f"location.hash = '#/buckets/{bucket}/settings?setting=delete'")
        self.page.press("Empty bucket…")
        self.page.waitText("a retention or a legal hold protects stays")
        self.page.fill("dialog input", bucket)
        self.page.press("Empty bucket")
        self.page.waitText("1 failed, the first: held: AccessDenied")
        self.assertIn("/objects", self.page.evaluate("location.hash"))
        self.page.waitRow("held")

    def test_keys(self) -> None:
        """The tab of access lists the keys that reach the bucket, with what they may do."""
        made = self.call(
            "POST",
            "keys",
            {
                "account": "root",
                "note": "ci-deploy",
                "policy": "readonly",
                "bucket": self.bucket,
                "prefix": "2026/*",
            },
        ).json
        self.addCleanup(self.call, "DELETE", f"keys/{made['accessKey']}")
        auditor = self.call("POST", "keys", {"account": "root", "role": "auditor"}).json
        self.addCleanup(self.call, "DELETE", f"keys/{auditor['accessKey']}")
        plain = self.call("POST", "keys", {"account": "root"}).json
        self.addCleanup(self.call, "DELETE", f"keys/{plain['accessKey']}")
        self.page.evaluate(f"location.hash = '#/buckets/{self.bucket}/access'")
        self.page.waitText("Keys that reach this bucket")
        row = (
            "[...document.querySelectorAll('main tbody tr')]"
            ".find((each) => each.innerText.includes('ci-deploy'))"
        )
        self.page.wait(row)
        text = " ".join(self.page.evaluate(f"{row}.innerText").split())
        self.assertEqual(text, "ci-deploy root Owner List and read 2026/*")
        self.page.press("ci-deploy")
        self.page.wait("document.querySelector('.drawer')")
        for account, expected in ((auditor, True), (plain, False)):
            self.page.press("Sign out")
            self.page.signIn(account["accessKey"], account["secretKey"])
            self.page.evaluate(f"location.hash = '#/buckets/{self.bucket}/access'")
            self.page.wait("document.querySelector('#policyText')")
            shown = "document.body.innerText.includes('Keys that reach this bucket')"
            self.assertIs(self.page.evaluate(shown), expected, account["role"])
        self.page.press("Sign out")
        self.page.signIn(ROOT.accessKey, ROOT.secretKey)


_LATE_LIST = """
const original = fetch;
window.fetch = async (url, ...rest) => {
  if (String(url).includes('/objects?'))
    while (!document.querySelector('.drawer .facts')) await new Promise(requestAnimationFrame);
  return original(url, ...rest);
};
"""


@long("drives Chromium")
class DeepLinkTests(BrowserCase):
    """An address that leads to an object."""

    def test_arrows(self) -> None:
        """The arrows to the objects before and after are there once the list is, which is last."""
        self.put("a", "b", "c")
        self.page.send("Page.addScriptToEvaluateOnNewDocument", source=_LATE_LIST)
        link = f"#/buckets/{self.bucket}/objects?object=b"
        # From a page of the same document, only the fragment would change.
        self.page.open("about:blank")
        self.page.wait("location.href === 'about:blank'")
        self.page.visit(f"/console/{link}")
        self.page.wait(
            "document.querySelector('.drawer .facts') && document.querySelector('.listRow')"
        )
        arrows = (
            "[...document.querySelectorAll('.drawer header a')]"
            ".map((each) => new URLSearchParams(each.hash.split('?')[1]).get('object')).join()"
        )
        self.page.wait(f"{arrows} === 'a,c'")
        self.page.evaluate("document.querySelector('.drawer header a[aria-label^=Next]').click()")
        self.page.wait("document.querySelector('.drawer h2')?.title === 'c'")
        self.page.wait(f"{arrows} === 'b'")

    def test_far(self) -> None:
        """The neighbour of an object counts although its row is not drawn."""
        names = [f"{number:03}" for number in range(120)]
        self.put(*names)
        self.page.show(self.bucket, object="099")
        arrows = (
            "[...document.querySelectorAll('.drawer header a')]"
            ".map((each) => new URLSearchParams(each.hash.split('?')[1]).get('object')).join()"
        )
        self.page.wait(f"{arrows} === '098,100'")
