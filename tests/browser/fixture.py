"""A page of the console in a browser, in which a report or an error fails the test."""

import json
from types import TracebackType
from typing import Any

from tests.support.browser import SECONDS, Browser
from tests.support.daemon import Daemon

_WATCHED = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")


class ConsoleBrowser(Browser):
    """
    The browser; what has been reported fails the test when it ends.

    @ivar requested: The addresses that pages have asked for.
    @ivar allowed: Parts of reports that a test provokes.
    """

    def __init__(self, daemon: Daemon) -> None:
        """@param daemon: Whose console it shows."""
        super().__init__()
        host, port = daemon.address("admin")
        self.origin = f"http://{host}:{port}"
        self.requested: list[str] = []
        self.allowed: list[str] = []
        self._problems: list[str] = []

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """
        End it.

        @raise AssertionError: Something has been reported, and nothing else has failed.
        """
        try:
            if kind is None:
                self.check()
        finally:
            super().__exit__(kind, error, traceback)

    def send(self, method: str, **parameters: Any) -> Any:
        """Send a command, and return its result; events on the way are noted."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(2 * SECONDS))
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def _note(self, message: Any) -> None:
        method, values = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requested.append(values["request"]["url"])
        elif method in _WATCHED:
            entry = values.get("entry", {})
            if entry.get("source") == "network" or entry.get("level") in ("info", "verbose"):
                # An answer such as 409 that a test provokes, or a remark on a field that was
                # filled in before the browser gave it the focus.
                return
            if values.get("type", "error") in ("error", "assert"):
                self._problems.append(json.dumps(values)[:2000])

    def visit(self, path: str = "/console/") -> None:
        """Open a page, with all that it reports being noted."""
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.send(f"{domain}.enable")
        self.open(self.origin + path)
        # Trial pages may still be shown until the new one is there.
        self.wait(f"location.href.startsWith({json.dumps(self.origin)})")

    def problems(self) -> list[str]:
        """Return what has been reported so far, with requests to other origins."""
        self.evaluate("1")
        elsewhere = [
            url for url in self.requested if not url.startswith((self.origin, "about:", "data:"))
        ]
        return [*self._problems, *elsewhere]

    def check(self) -> None:
        """
        Look whether something has been reported.

        @raise AssertionError: Something has, which no test provokes.
        """
        found = [each for each in self.problems() if not any(part in each for part in self.allowed)]
        assert not found, found

    def fill(self, selector: str, text: str) -> None:
        """Type into a field."""
        self.wait(f"document.querySelector({json.dumps(selector)})")
        self.evaluate(
            f"(() => {{ const field = document.querySelector({json.dumps(selector)});"
            f" field.focus(); field.value = {json.dumps(text)};"
            " field.dispatchEvent(new InputEvent('input', {bubbles: true})) })()"
        )

    def press(self, text: str) -> None:
        """Click the button or link with a text, which is waited for."""
        find = (
            "[...document.querySelectorAll('button, a')].findLast("
            f"(each) => each.innerText.trim() === {json.dumps(text)} && !each.disabled)"
        )
        self.wait(find + " !== undefined")
        self.evaluate(find + ".click()")

    def pressAtOnce(self, key: str, seen: str) -> None:
        """
        Press Ctrl and a key with the drawing that makes an expression true, before any frame.

        @param key: The key.
        @param seen: The expression, which is false now.
        """
        self.evaluate(
            "new MutationObserver((_, observer) => {"
            f" if (!({seen})) return;"
            " observer.disconnect();"
            " document.activeElement.dispatchEvent(new KeyboardEvent('keydown',"
            f" {{key: {json.dumps(key)}, ctrlKey: true, bubbles: true}}))"
            " }).observe(document.body, {childList: true, characterData: true, subtree: true})"
        )

    def waitText(self, text: str) -> None:
        """Wait until the page has a text."""
        self.wait(f"document.body.innerText.includes({json.dumps(text)})")

    def choose(self, selector: str, value: str) -> None:
        """Choose a value of a select."""
        self.wait(f"document.querySelector({json.dumps(selector)})")
        self.evaluate(
            f"(() => {{ const field = document.querySelector({json.dumps(selector)});"
            f" field.value = {json.dumps(value)};"
            " field.dispatchEvent(new Event('change', {bubbles: true})) })()"
        )

    def signIn(self, accessKey: str, secretKey: str) -> None:
        """Sign in."""
        self.fill("input[name=username]", accessKey)
        self.fill("input[name=password]", secretKey)
        self.press("Sign in")
        self.press("Objects")
