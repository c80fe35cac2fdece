"""Headless Chromium, driven over its DevTools protocol."""

import itertools
import json
import subprocess
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from websockets.sync.client import connect

from tests.support.ports import heldPort, waitForPort
from tests.support.programs import needProgram

SECONDS = 60


class Browser:
    """A page of Chromium; a context manager."""

    def __init__(self, case: Any, directory: Path) -> None:
        """@param directory: The directory of its profile."""
        program = needProgram("chromium")
        self._ids = itertools.count(1)
        self._port = heldPort(case)
        self._process = subprocess.Popen(
            [
                *(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
                *("--disable-dev-shm-usage", "--disable-background-networking"),
                "--window-size=1280,800",
                f"--remote-debugging-port={self._port}",
                f"--user-data-dir={directory}",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        waitForPort(self._port, self._process)
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/json", timeout=SECONDS) as page:
            target = next(each for each in json.load(page) if each["type"] == "page")
        self._socket = connect(target["webSocketDebuggerUrl"], max_size=None).__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def send(self, method: str, **parameters: Any) -> Any:
        """Send a command, and return its result."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(SECONDS))
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
            f" if (found) done(found); else if (Date.now() - started > {SECONDS * 500})"
            " failed(document.body ? document.body.innerText : 'nothing');"
            " else setTimeout(look, 20) }; look() })"
        )
