"""The base of cases of all pages: a daemon and a browser for all, a context for each test."""

import atexit
import json
import re
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import quote

from twisted.trial.unittest import SynchronousTestCase

from tests.browser.fixture import ConsoleBrowser
from tests.console.gatewayfixture import makeGateway, send
from tests.support.browser import Browser
from tests.support.clients import ROOT, Account, botoClient
from tests.support.daemon import Daemon
from tests.support.programs import needs

SHELL = Path(__file__).resolve().parents[2] / "storagegate/console/web/shell.js"

PAGES: list[tuple[str, str]] = re.findall(
    r'^  \["(\w+)", "\w+", "(\w+)", \(\) => import', SHELL.read_text(), re.M
)
"""The name and the role of each row of the table of the pages."""

BUCKET = "pages-bucket"

KEY = "folder/<b>a.txt"

SHEET = "folder/sheet.csv"

VIEWS = {
    "bucket": f"buckets/{BUCKET}/settings",
    "access": f"buckets/{BUCKET}/access",
    "newKey": "keys?make=1",
    "objects": f"buckets/{BUCKET}/objects",
    "object": f"buckets/{BUCKET}/objects?prefix=folder%2F&object={quote(KEY, safe='')}",
    "method": "gateway/Probe/echo",
    "absent": "no-such-page",
}
"""Views below the pages, by a name."""

DIALOGS = (
    ("buckets", "New bucket"),
    (VIEWS["bucket"], "Enable versions…"),
    ("jobs", "New job"),
    ("configuration", "Reload configuration…"),
)
"""Views with a button that opens a dialog."""

READY = (
    "document.querySelector('#content h1') && !document.querySelector('.skeleton')"
    " && !document.querySelector('[aria-busy=true]')"
)

_LOADING_SECONDS = 20.0
"""The longest wait for requests; one whose end the browser does not report is not waited for."""

_SETTLED = "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 60)))"


class PagesBrowser(ConsoleBrowser):
    """
    The browser, whose page can be made anew in a context of its own.

    @ivar paused: The requests that C{Fetch.enable} holds.
    @ivar loading: The ids of the requests in flight, except streams of events.
    """

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon)
        self.paused: list[Any] = []
        self.loading: set[str] = set()

    def fresh(self) -> None:
        """Go on with a page of a new context, without cookies, storage or reports."""
        if self.context:
            Browser.__exit__(self, None, None, None)
        self.__enter__()
        self.requested.clear()
        self.allowed.clear()
        self._problems.clear()
        self.paused.clear()
        self.loading.clear()

    def _note(self, message: Any) -> None:
        method, values = message.get("method"), message.get("params", {})
        if method == "Fetch.requestPaused":
            self.paused.append(values)
        elif method == "Network.requestWillBeSent":
            if "/api/v1/events" not in values["request"]["url"]:
                self.loading.add(values["requestId"])
        elif method in ("Network.loadingFinished", "Network.loadingFailed"):
            self.loading.discard(values["requestId"])
        super()._note(message)

    def show(self, view: str) -> None:
        """Go to a view by its fragment, and wait until it is drawn and loads nothing more."""
        self.loading.clear()
        self.evaluate(f"location.hash = {json.dumps('#/' + view)}")
        end = monotonic() + _LOADING_SECONDS
        self.evaluate(_SETTLED)
        self.wait(READY)
        self.evaluate(_SETTLED)
        # Between the parts of a view there may be none that loads.
        while (self.loading or not self.evaluate(f"Boolean({READY})")) and monotonic() < end:
            self.evaluate(_SETTLED)

    def key(self, name: str, code: int, text: str = "", modifiers: int = 0) -> None:
        """
        Press a key of the keyboard.

        @param modifiers: 2 for Ctrl, 8 for Shift.
        """
        named = {"key": name, "code": name, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **named)
        self.send("Input.dispatchKeyEvent", type="keyUp", **named)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.send("Input.insertText", text=text)


@cache
def _shared() -> tuple[Daemon, PagesBrowser, Account]:
    """Start the daemon and the browser, and make what pages show: a bucket, an object, a key."""
    daemon = makeGateway("pages").start()
    atexit.register(daemon.kill)
    s3 = botoClient(daemon.url("s3"))
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key=KEY, Body=b"some text", ContentType="text/plain")
    s3.put_object(Bucket=BUCKET, Key=SHEET, Body=b"a,b\n1,2\n", ContentType="text/csv")
    made = send(daemon, "POST", "keys", {"account": "reader", "policy": "readonly"}).json
    return daemon, PagesBrowser(daemon), Account(made["accessKey"], made["secretKey"])


@needs("chromium")
class PagesCase(SynchronousTestCase):
    """Tests of all pages, each at the page to sign in."""

    def setUp(self) -> None:
        """Have a fresh page."""
        self.daemon, self.page, self.reader = _shared()
        self.page.fresh()
        self.addCleanup(self.page.check)
        self.page.visit()
        self.page.wait("document.querySelector('input[name=password]')")

    def enter(self, account: Account = ROOT) -> None:
        """Sign in."""
        self.page.signIn(account.accessKey, account.secretKey)
