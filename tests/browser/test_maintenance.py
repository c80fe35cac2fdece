"""The pages of maintenance, configuration and jobs, in Chromium."""

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.browser.fixture import ConsoleBrowser
from tests.support.clients import ROOT, botoClient
from tests.support.programs import needs
from tests.support.selection import long
from tests.wire.s3.fixture import makeDaemon, ownDirectory


@long("drives Chromium")
@needs("chromium")
class MaintenancePagesTests(SynchronousTestCase):
    """An administrator at the console."""

    def test_pages(self) -> None:
        """
        The doctor is run, the configuration is searched and read again, and objects are deleted by
        a job after the name of their bucket is typed; a phone scrolls nothing sideways.
        """
        directory = ownDirectory("console")
        file = directory / "storagegate.toml"
        file.write_text('region = "us-east-1"\n')
        with (
            makeDaemon(directory / "data", "--config", str(file)) as daemon,
            ConsoleBrowser(daemon) as page,
        ):
            s3 = botoClient(daemon.url("s3"))
            s3.create_bucket(Bucket="work-here")
            for key in ("a/<b>1", "a/2", "b"):
                s3.put_object(Bucket="work-here", Key=key, Body=b"x")
            page.visit()
            page.signIn(ROOT.accessKey, ROOT.secretKey)
            self._maintenance(page)
            self._configuration(page, file)
            self._jobs(page)
            found = s3.list_objects_v2(Bucket="work-here")
            self.assertEqual([each["Key"] for each in found["Contents"]], ["c/2", "c/<b>1"])
            self._narrow(page)

    def _maintenance(self, page: ConsoleBrowser) -> None:
        page.press("Maintenance")
        page.waitText("No known damage")
        page.waitText("Never run: storagegate backup")
        page.waitText("Commit")
        page.press("Run the doctor")
        page.waitText("all keys are valid")

    def _configuration(self, page: ConsoleBrowser, file: Path) -> None:
        page.press("Configuration")
        page.fill("input[type=search]", "secretkey")
        page.waitText("variable STORAGEGATE_SECRET_KEY")
        self.assertNotIn(ROOT.secretKey, page.evaluate("document.body.innerText"))
        page.fill("input[type=search]", "")
        page.evaluate("document.querySelector('input[type=checkbox]').click()")
        page.wait("!document.body.innerText.includes('lifecycleDaySeconds')")
        page.waitText(f"file {file}")
        file.write_text('region = "us-east-1"\nlogLevel = "debug"\ndurability = "os"\n')
        page.press("Reload configuration")
        page.wait("document.querySelector('dialog')")
        page.press("Reload configuration")
        page.waitText("Applied: logLevel")
        page.waitText("Requires a restart: durability")
        file.write_text("region = 7\n")
        page.press("Reload configuration")
        page.wait("document.querySelector('dialog')")
        page.press("Reload configuration")
        page.wait("document.querySelector('dialog [role=alert]')?.innerText.includes('region')")
        page.press("Cancel")

    def _jobs(self, page: ConsoleBrowser) -> None:
        page.evaluate("location.hash = '#/buckets/work-here/objects?prefix=a/'")
        page.evaluate("location.hash = '#/jobs?kind=copyPrefix&bucket=work-here&prefix=a/'")
        page.fill("input[name=toPrefix]", "c/")
        page.press("Start")
        page.waitText("Copy objects\nwork-here/a/")
        page.waitText("done")
        for prefix in ("b", "a/"):
            page.press("New job")
            page.fill("input[name=bucket]", "work-here")
            page.fill("input[name=prefix]", prefix)
            page.press("Start")
            page.waitText(f"Delete objects\nwork-here/{prefix}")
        page.press("New job")
        page.fill("input[name=bucket]", "work-here")
        page.press("Start")
        page.waitText("Type work-here to confirm")
        start = "[...document.querySelectorAll('dialog button')].at(-1).disabled"
        page.wait(start)
        page.fill("input[name=typed]", "work-here")
        page.wait(f"!{start}")
        page.press("Cancel")
        page.wait("!document.body.innerText.includes('running')")

    def _narrow(self, page: ConsoleBrowser) -> None:
        page.send(
            "Emulation.setDeviceMetricsOverride",
            width=360,
            height=740,
            deviceScaleFactor=1,
            mobile=True,
        )
        for hash in ("maintenance", "configuration", "jobs"):
            page.evaluate(f"location.hash = '#/{hash}'")
            page.wait("document.querySelector('main h1') && !document.querySelector('.skeleton')")
            width = page.evaluate("document.documentElement.scrollWidth")
            self.assertLessEqual(width, 360, hash)
