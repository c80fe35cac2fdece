"""The overview and the live view of the console, in Chromium, against a daemon."""

import contextlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path

from botocore.exceptions import ClientError

from tests.browser.fixture import ConsoleBrowser
from tests.console.fixture import ConsoleCase
from tests.support.clients import ROOT, Account, botoClient
from tests.support.programs import needs
from tests.support.selection import long
from tests.wire.s3.fixture import eventually


@long("drives Chromium")
@needs("chromium")
class LivePagesTests(ConsoleCase):
    """Pages that show what happens."""

    def open(self) -> ConsoleBrowser:
        """Open the console."""
        page = ConsoleBrowser(self.daemon)
        page.__enter__()
        self.addCleanup(page.__exit__, None, None, None)
        page.visit()
        return page

    def test_pages(self) -> None:
        """
        The overview has the state, charts and wires; the live view shows a request that was
        refused, why, and what its key may; both follow the end of the session.
        """
        page = self.open()
        page.signIn(ROOT.accessKey, ROOT.secretKey)
        bucket = self.makeBucket()
        self._remember()
        page.press("Overview")
        page.waitText("Healthy")
        page.wait("document.querySelector('table tbody th')?.innerText === 'S3'")
        page.wait("document.querySelectorAll('.plot path.line0[d]').length >= 2")
        self.narrow(page)
        page.press("S3")
        page.waitText("Connected")
        page.evaluate(f"location.hash = '#/live?bucket={bucket}&status=error'")
        page.wait(
            f"document.querySelector('.chip[aria-pressed=true]')?.innerText.includes('{bucket}')"
        )
        page.waitText("Connected")
        key = "<b>\u202e"
        reader = self.issueKey("live", "--policy", "readonly")

        def sees() -> bool:
            with contextlib.suppress(ClientError):
                botoClient(self.endpoint, reader).put_object(Bucket=bucket, Key=key, Body=b"")
            # The list is drawn four times a second.
            page.evaluate("new Promise((done) => setTimeout(done, 50))")
            return bool(page.evaluate("document.querySelectorAll('.live tbody tr').length > 2"))

        self.assertTrue(eventually(sees))
        page.wait("document.querySelector('.live .target').innerText.includes('<b>')")
        page.press("Pause")
        page.press("PutObject")
        page.waitText("The policy readonly of the key does not include write")
        page.press("Check this access now")
        page.waitText("Refused: the policy readonly of the key does not include write")
        self.narrow(page)
        self._statement(page, bucket, reader)
        page.press("Sign out")
        page.wait("document.querySelector('input[name=password]')")

    def _remember(self) -> None:
        """Add a sample of two days ago, when the disk was all but empty."""
        self.assertEqual(self.call("GET", "overview").status, 200)
        usage = Path(self.daemon.data) / "usage.sqlite"
        with closing(sqlite3.connect(usage)) as connection, connection:
            connection.execute(
                "INSERT OR IGNORE INTO consoleUsage SELECT hour - 48, atMs - 172800000, objects,"
                " bytes, 1000, buckets FROM consoleUsage ORDER BY hour DESC LIMIT 1"
            )

    def _statement(self, page: ConsoleBrowser, bucket: str, reader: Account) -> None:
        """A refusal quotes the statement of the policy, and leads to it; so does the overview."""
        statement = {
            "Sid": "KeepAll",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:GetObject",
            "Resource": f"arn:aws:s3:::{bucket}/*",
        }
        self.s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Statement": [statement]}))
        with contextlib.suppress(ClientError):
            botoClient(self.endpoint, reader).get_object(Bucket=bucket, Key="a")
        page.press("Resume")
        row = (
            "[...document.querySelectorAll('.live tbody tr')].find((each) =>"
            f" each.innerText.includes('GetObject') && each.innerText.includes('{bucket}/a'))"
        )
        page.wait(row)
        page.evaluate(f"{row}.querySelector('button').click()")
        page.waitText(f"Statement KeepAll of the policy of {bucket} denies s3:GetObject")
        page.waitText('"Sid": "KeepAll"')
        page.press("Open in Access")
        page.wait(f"location.hash === '#/buckets/{bucket}/access?statement=1'")
        page.evaluate("location.hash = '#/overview'")
        page.press(f"Statement KeepAll of the policy of {bucket} denies s3:GetObject")
        page.wait(f"location.hash === '#/buckets/{bucket}/access?statement=1'")
        page.evaluate("location.hash = '#/overview'")
        page.press("Open in Live")
        page.waitText("GetObject")
        page.send("Page.reload")
        page.waitText("GetObject")
        page.evaluate("location.hash = '#/overview'")
        page.waitText("Full in about")

    def test_roles(self) -> None:
        """A key without a role has the live view, and no overview; one that is revoked is told."""
        account = self.issueKey("viewer")
        page = self.open()
        page.signIn(account.accessKey, account.secretKey)
        page.press("Live")
        page.waitText("Connected")
        page.evaluate("location.hash = '#/overview'")
        page.waitText("It requires the role auditor")
        page.evaluate("location.hash = '#/live'")
        page.waitText("Connected")
        self.assertEqual(self.call("DELETE", f"keys/{account.accessKey}").status, 204)
        page.waitText("Your session has ended")

    def narrow(self, page: ConsoleBrowser) -> None:
        """Assert that a phone scrolls nothing sideways."""
        metrics = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
        page.send("Emulation.setDeviceMetricsOverride", **metrics)
        page.wait("innerWidth <= 360 && document.querySelector('main h1')")
        # A chart follows the width with the next frame.
        page.wait("document.documentElement.scrollWidth <= 360")
        page.send("Emulation.clearDeviceMetricsOverride")
