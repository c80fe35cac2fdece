"""The base of cases of all pages: a daemon and a browser for all, a context for each test."""

import atexit
import json
import re
import urllib.request
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from twisted.trial.unittest import SynchronousTestCase
from websockets.sync.client import ClientConnection, connect

from tests.browser.fixture import ConsoleBrowser
from tests.console.gatewayfixture import makeGateway, send
from tests.support.browser import SECONDS, Browser
from tests.support.clients import ROOT, Account, botoClient
from tests.support.daemon import Daemon
from tests.support.programs import needs
from tests.wire.s3.fixture import ownDirectory

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
    ("configuration", "Reload configuration"),
)
"""Views with a button that opens a dialog."""

READY = (
    "document.querySelector('#content h1') && !document.querySelector('.skeleton')"
    " && !document.querySelector('[aria-busy=true]')"
)

_SETTLED = "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 60)))"


class PagesBrowser(ConsoleBrowser):
    """The browser, whose page can be made anew in a context of its own."""

    def __init__(self, case: Any, directory: Path, daemon: Daemon) -> None:
        super().__init__(case, directory, daemon)
        self._control: ClientConnection | None = None
        self._context = ""
        self.paused: list[Any] = []

    def _command(self, method: str, **parameters: Any) -> Any:
        """Send a command to the browser itself."""
        if self._control is None:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self._port}/json/version", timeout=SECONDS
            ) as found:
                address = json.load(found)["webSocketDebuggerUrl"]
            self._control = connect(address, max_size=None).__enter__()
        number = next(self._ids)
        self._control.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._control.recv(SECONDS))
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    def end(self) -> None:
        """End the browser."""
        Browser.__exit__(self, None, None, None)

    def fresh(self) -> None:
        """Go on with a page of a new context, without cookies, storage or reports."""
        before, self._context = (
            self._context,
            self._command("Target.createBrowserContext")["browserContextId"],
        )
        target = self._command(
            "Target.createTarget", url="about:blank", browserContextId=self._context
        )["targetId"]
        self._socket.close()
        address = f"ws://127.0.0.1:{self._port}/devtools/page/{target}"
        self._socket = connect(address, max_size=None).__enter__()
        if before:
            self._command("Target.disposeBrowserContext", browserContextId=before)
        self.requested.clear()
        self.allowed.clear()
        self._problems.clear()
        self.paused.clear()

    def _note(self, message: Any) -> None:
        if message.get("method") == "Fetch.requestPaused":
            self.paused.append(message["params"])
        super()._note(message)

    def show(self, view: str) -> None:
        """Go to a view by its fragment, and wait until it is drawn."""
        self.evaluate(f"location.hash = {json.dumps('#/' + view)}")
        self.evaluate(_SETTLED)
        self.wait(READY)
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


class _UntilTheEnd:
    """What holds the port of the browser until the run ends."""

    addCleanup = staticmethod(atexit.register)


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
    page = PagesBrowser(_UntilTheEnd, ownDirectory("browser"), daemon)
    page.__enter__()
    # Each test has looked for reports of its own.
    atexit.register(page.end)
    return daemon, page, Account(made["accessKey"], made["secretKey"])


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
