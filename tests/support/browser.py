"""Headless Chromium, one process for all tests of a process, driven over its DevTools protocol."""

import atexit
import itertools
import json
import shutil
import subprocess
import urllib.request
from tempfile import mkdtemp
from types import TracebackType
from typing import Any, Self

from websockets.sync.client import connect

from tests.support.ports import heldPort, waitForPort
from tests.support.programs import needProgram

SECONDS = 60


class _Chromium:
    """
    A process of the browser.

    @ivar port: The port of its DevTools.
    """

    # The port is reserved until the process of the tests ends.
    addCleanup = staticmethod(atexit.register)

    def __init__(self) -> None:
        program = needProgram("chromium")
        directory = mkdtemp(prefix="storagegate-chromium-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        self._ids = itertools.count(1)
        self.port = heldPort(self)
        self._process = subprocess.Popen(
            [
                program,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--window-size=1280,800",
                f"--remote-debugging-port={self.port}",
                f"--user-data-dir={directory}",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        atexit.register(self._end)
        waitForPort(self.port, self._process)
        place = f"http://127.0.0.1:{self.port}/json/version"
        with urllib.request.urlopen(place, timeout=SECONDS) as found:
            address = json.load(found)["webSocketDebuggerUrl"]
        self._socket = connect(address, max_size=None, ping_interval=None).__enter__()

    @property
    def isRunning(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def command(self, method: str, **parameters: Any) -> Any:
        """Send a command to the browser itself, and return its result."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(2 * SECONDS))
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()


_started: list[_Chromium] = []


def _running() -> _Chromium:
    """Return the browser of this process; start it if it has not been started or has ended."""
    if not _started or not _started[-1].isRunning:
        _started.append(_Chromium())
    return _started[-1]


class Browser:
    """
    A page of Chromium in its own context, without cookies, storage or cache; a context manager.

    @ivar context: The id of the context.
    """

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self.context = ""

    def __enter__(self) -> Self:
        self._chromium = _running()
        command = self._chromium.command
        self.context = command("Target.createBrowserContext")["browserContextId"]
        return self._attach()

    def tab(self) -> "Browser":
        """Open another page in the same context, which ends with it."""
        page = Browser()
        page._chromium, page.context = self._chromium, self.context
        return page._attach()

    def _attach(self) -> Self:
        """Create the page in the context, and connect to it."""
        command = self._chromium.command
        target = command("Target.createTarget", url="about:blank", browserContextId=self.context)
        address = f"ws://127.0.0.1:{self._chromium.port}/devtools/page/{target['targetId']}"
        self._socket = connect(address, max_size=None, ping_interval=None).__enter__()
        # Only one window has the focus, and focus events come only there.
        self.send("Emulation.setFocusEmulationEnabled", enabled=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()
        self._chromium.command("Target.disposeBrowserContext", browserContextId=self.context)

    def send(self, method: str, **parameters: Any) -> Any:
        """Send a command, and return its result."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(2 * SECONDS))
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    def open(self, address: str) -> None:
        """Navigate to a page."""
        self.send("Page.navigate", url=address)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression; wait for it if it is a promise."""
        result = self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Wait until an expression is true, and return its value; raise if it stays false."""
        return self.evaluate(
            "new Promise((done, failed) => { const started = Date.now(); const look = () => {"
            f" let found; try {{ found = {expression} }} catch (error) {{ }}"
            f" if (found) done(found); else if (Date.now() - started > {SECONDS * 1000})"
            " failed(document.body ? document.body.innerText : 'nothing');"
            " else setTimeout(look, 20) }; look() })"
        )
