"""The pages of the console, in Chromium, against a daemon."""

from twisted.trial.unittest import SynchronousTestCase

from tests.browser.fixture import ConsoleBrowser
from tests.browser.pages import PagesCase
from tests.console.gatewayfixture import send
from tests.support.clients import ROOT
from tests.support.daemon import Daemon
from tests.support.programs import needs
from tests.support.selection import long
from tests.wire.s3.fixture import makeDaemon, ownDirectory

_NOTE_DELAYS = """window.delays = [];
const wait = setTimeout;
window.setTimeout = (act, ms, ...more) => { delays.push(ms); return wait(act, ms, ...more) }"""


@long("drives Chromium")
class TabTests(PagesCase):
    """Several tabs of one browser."""

    def test_session(self) -> None:
        """A session is handed to a new tab, and ends in all; without one no tab waits for it."""
        form, password = "document.querySelector('#content h1')", "input[name=password]"
        self.page.send("Page.addScriptToEvaluateOnNewDocument", source=_NOTE_DELAYS)
        self.page.visit("/console/?first")
        self.page.wait(f"document.querySelector('{password}')")
        self.assertNotIn(200, self.page.evaluate("delays"))
        self.enter()
        self.page.wait(form)
        tab = self.page.tab()
        tab.open(f"{self.page.origin}/console/#/about")
        tab.wait(f"{form}?.innerText === 'About'")
        self.page.press("Sign out")
        for each in (self.page, tab):
            each.wait(f"document.querySelector('{password}')")
        self.page.visit("/console/?after")
        self.page.wait(f"document.querySelector('{password}')")
        self.assertNotIn(200, self.page.evaluate("delays"))


@long("drives Chromium")
@needs("chromium")
class ConsolePagesTests(SynchronousTestCase):
    """A person at the console."""

    def test_keysAndBuckets(self) -> None:
        """
        After signing in a key is made, shown with its secret once, judged and revoked, and a
        bucket is made, set and deleted; a phone scrolls nothing sideways; signing out ends it.
        """
        with (
            makeDaemon(ownDirectory("console")) as daemon,
            ConsoleBrowser(daemon) as page,
        ):
            page.visit()
            page.fill("input[name=username]", ROOT.accessKey)
            page.fill("input[name=password]", "wrong")
            page.press("Sign in")
            page.waitText("is wrong")
            page.signIn(ROOT.accessKey, ROOT.secretKey)
            self._bucket(page)
            self._objects(page)
            self._key(page, daemon)
            for theme in ("Dark", "Light", "System"):
                page.evaluate("location.hash = '#/about'")
                page.waitText("preact 11")
                page.evaluate(
                    "(() => { const field = document.querySelector('select');"
                    f" field.value = '{theme.lower()}';"
                    " field.dispatchEvent(new Event('change', {bubbles: true})) })()"
                )
            self._narrow(page)
            page.send("Emulation.clearDeviceMetricsOverride")
            page.press("Sign out")
            page.wait("document.querySelector('input[name=password]')")
            self.assertIsNone(page.evaluate("sessionStorage.getItem('storagegate-token')"))

    def _bucket(self, page: ConsoleBrowser) -> None:
        page.waitText("Create the first bucket")
        page.fill("main input[name=bucket]", "Not a name")
        page.press("Create bucket")
        page.wait("document.querySelector('main input[name=bucket]').ariaInvalid === 'true'")
        page.fill("main input[name=bucket]", "made-here")
        page.press("Create bucket")
        page.waitText("No objects here")
        page.evaluate("location.hash = '#/buckets/made-here?setting=tags&view=json'")
        page.waitText("Not configured")
        document = '{"TagSet": {"Tag": [{"Key": "team", "Value": "blue"}]}}'
        page.fill("textarea", document)
        page.press("Save")
        page.wait(
            "document.querySelector('textarea')?.value.includes('blue') && "
            "!document.body.innerText.includes('Not configured')"
        )
        page.evaluate("location.hash = '#/buckets'")
        page.waitText("made-here")

    def _objects(self, page: ConsoleBrowser) -> None:
        page.evaluate("location.hash = '#/buckets/made-here/objects'")
        page.waitText("No objects here")
        page.evaluate(
            "(() => { const input = document.querySelector('input[type=file]');"
            " const files = new DataTransfer();"
            " files.items.add(new File(['some text'], '<b>..%2f.txt', {type: 'text/plain'}));"
            " input.files = files.files;"
            " input.dispatchEvent(new Event('change', {bubbles: true})) })()"
        )
        page.press("<b>..%2f.txt")
        page.waitText("text/plain")
        # A preview that is read while its object is deleted would be reported.
        page.waitText("some text")
        page.press("Share…")
        page.press("Create link")
        page.wait("document.querySelector('#link')?.innerText.includes('X-Amz-Signature')")
        page.press("Done")
        page.evaluate("document.querySelector('.drawer [aria-label=Delete]').click()")
        page.press("Delete")
        page.waitText("No objects here")

    def _key(self, page: ConsoleBrowser, daemon: Daemon) -> None:
        page.press("Keys")
        page.waitText("No access keys yet")
        page.evaluate("document.querySelector('.jump').click()")
        page.fill("dialog input", "made")
        page.waitText("Live, only made-here")
        option = "[...document.querySelectorAll('[role=option]')]"
        page.evaluate(f"{option}.find((each) => each.innerText.startsWith('New key for')).click()")
        page.wait("document.querySelector('select[name=bucket]')?.value === 'made-here'")
        page.fill("input[name=prefix]", "2026/")
        page.waitText("made-here/2026/* of root is empty")
        page.waitText("Other folders of made-here")
        page.choose("select[name=account]", "")
        page.fill("input[name=newAccount]", "colleague")
        page.choose("select[name=expiry]", "30")
        page.press("Create key")
        page.wait("document.querySelector('#secretKey')?.innerText.length > 20")
        made = page.evaluate("document.querySelector('#accessKey').innerText")
        page.press("I have stored it")
        page.waitText("The key reaches no object today: colleague owns no bucket")
        page.waitText("Client configuration")
        for action, state in (("Disable", "Disabled"), ("Enable", "Active")):
            page.wait("document.querySelector('.menuCell button')")
            page.evaluate("document.querySelector('.menuCell button').click()")
            page.press(action)
            for place in (".drawer > header", "tr.isOpen"):
                page.wait(f"document.querySelector('{place}').innerText.includes('{state}')")
        page.press("Rotate secret…")
        page.press("Rotate secret")
        page.wait("document.querySelector('#secretKey')?.innerText.length > 20")
        page.press("I have stored it")
        page.waitText("Check an access")
        page.fill("form input[required]", "made-here")
        page.press("Check")
        page.waitText("Refused")
        statement = {
            "Effect": "Allow",
            "Principal": {"AWS": "colleague"},
            "Action": "s3:GetObject",
            "Resource": "arn:aws:s3:::made-here/*",
        }
        send(daemon, "PUT", "buckets/made-here/settings/policy", {"Statement": statement})
        page.press("Revoke…")
        page.fill("dialog input", made)
        page.press("Revoke")
        page.wait("location.hash === '#/keys'")
        page.press("New key")
        page.choose("select[name=account]", "")
        page.fill("input[name=newAccount]", "colleague")
        page.press("Create key")
        page.waitText("The removed account colleague is still named in a policy or an ACL")
        page.evaluate("document.querySelector('main form .check input').click()")
        page.press("Create key")
        page.wait("document.querySelector('#secretKey')?.innerText.length > 20")
        page.press("I have stored it")

    def _narrow(self, page: ConsoleBrowser) -> None:
        page.send(
            "Emulation.setDeviceMetricsOverride",
            width=360,
            height=740,
            deviceScaleFactor=1,
            mobile=True,
        )
        for hash in ("buckets", "buckets/made-here", "keys", "sessions", "about"):
            page.evaluate(f"location.hash = '#/{hash}'")
            page.wait("document.querySelector('main h1') && !document.querySelector('.skeleton')")
            width = page.evaluate("document.documentElement.scrollWidth")
            self.assertLessEqual(width, 360, hash)
