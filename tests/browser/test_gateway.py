"""The page of the gateway, in Chromium: one method over five wires."""

from twisted.trial.unittest import SynchronousTestCase

from tests.browser.fixture import ConsoleBrowser
from tests.console.gatewayfixture import WIRES, makeGateway
from tests.support.clients import ROOT
from tests.support.programs import needs
from tests.support.selection import long

_DONE = "[...document.querySelectorAll('.answers section')].filter((each) => {})"


@long("drives Chromium")
@needs("chromium")
class GatewayPageTests(SynchronousTestCase):
    """An administrator at the page of the gateway."""

    def test_page(self) -> None:
        """A method is called over five wires, as a form and as JSON; what is shown is text."""
        daemon = makeGateway("page")
        with (
            daemon,
            ConsoleBrowser(daemon) as page,
        ):
            page.visit("/console/#/gateway")
            page.fill("input[name=username]", ROOT.accessKey)
            page.fill("input[name=password]", ROOT.secretKey)
            page.press("Sign in")
            page.waitText("Discovery")
            page.waitText("No service runs elsewhere")
            page.press("echo")
            page.fill("input[name=field-text]", "<b>ü\u202e</b>")
            self._compare(page)
            self._wait(page, "OK", "<B>Ü\u202e</B>")
            # Beside the form, or below it where there is no room.
            page.wait(
                "(({top}) => top > 0 && top < innerHeight / 2)"
                "(document.querySelector('.results').getBoundingClientRect())"
            )
            page.waitText(f"The results of {len(WIRES)} protocols differ")
            labels = page.evaluate(
                "[...document.querySelectorAll('svg.bars')]"
                ".map((each) => each.getAttribute('aria-label'))"
            )
            self.assertEqual(len(labels), len(WIRES))
            for label in labels:
                self.assertRegex(label, r"send [\d.]+ ms, Method, .* [\d.]+ ms, Receive [\d.]+ ms")
            form = "document.querySelector('.request').offsetParent !== null"
            self.assertFalse(page.evaluate(form))
            page.press("Back to the request")
            page.wait(form)
            self._editor(page)
            self._refused(page)
            page.fill("textarea[name=request]", "[")
            page.press("Call")
            page.waitText("This is not JSON")
            page.evaluate("location.hash = '#/gateway/Probe/chat'")
            page.waitText("Requests: a list")
            self._compare(page)
            self._wait(page, "messages: 2", "TEXT")
            page.waitText(f"{len(WIRES)} protocols gave the same result")
            page.evaluate("location.hash = '#/gateway/Probe/empty'")
            self._compare(page)
            self._wait(page, "OK", "any")
            page.waitText(f"{len(WIRES)} protocols gave the same result")
            page.waitText("gRPC leaves out fields that are empty")
            page.waitText("Same, without empty fields")
            page.evaluate("location.hash = '#/gateway/Probe/private'")
            page.waitText("credentials")
            self._compare(page)
            self._wait(page, "UNAUTHENTICATED", "")
            page.fill("input[name=token]", "good-key")
            self._compare(page)
            self._wait(page, "OK", "TEXT")
            page.evaluate("location.hash = '#/gateway/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E/x'")
            page.waitText("Method not found")
            page.waitText("<img src=x onerror=alert(1)>.x")
            self.assertIsNone(page.evaluate("document.querySelector('img')"))
            self._narrow(page)

    def _refused(self, page: ConsoleBrowser) -> None:
        """Errors that mean the same are the same, under any name."""
        page.press("JSON")
        page.fill("textarea[name=request]", "{}")
        self._compare(page)
        self._wait(page, "text", "")
        page.waitText("INVALID_ARGUMENT")
        page.waitText("VALIDATION_ERROR")
        page.waitText(f"{len(WIRES)} protocols gave the same result")
        page.press("Back to the request")
        page.send(
            "Emulation.setDeviceMetricsOverride",
            width=1280,
            height=800,
            deviceScaleFactor=1,
            mobile=False,
        )
        # A time or a protocol is not broken within, beside a long code.
        page.wait(
            "[...document.querySelectorAll('.history td:nth-child(odd)')].every((cell) => {"
            " const range = document.createRange(); range.selectNodeContents(cell);"
            " return new Set([...range.getClientRects()].map((each) => each.top)).size === 1 })"
        )

    def _editor(self, page: ConsoleBrowser) -> None:
        """What does not fit the schema is marked; a call of the history is there to call again."""
        page.press("JSON")
        page.fill("textarea[name=request]", '{"text": 7}')
        page.waitText("text should be string")
        page.fill("textarea[name=request]", "{}")
        page.waitText("text is missing")
        page.press("+ text")
        page.wait("document.querySelector('textarea[name=request]').value.includes('text')")
        rows = "document.querySelectorAll('.history tbody tr')"
        page.wait(f"{rows}.length === {len(WIRES)}")
        page.evaluate(f"{rows}[0].querySelector('button').click()")
        page.wait("document.querySelector('textarea[name=request]').value.includes('<b>')")

    def _compare(self, page: ConsoleBrowser) -> None:
        """Call over all wires."""
        page.press("Compare all…")
        page.press(f"Call all {len(WIRES)}")

    def _wait(self, page: ConsoleBrowser, state: str, text: str) -> None:
        """Wait until each wire shows a state and a text."""
        ready = f"each.innerText.includes({state!r}) && each.innerText.includes({text!r})"
        page.wait(f"{_DONE.format(ready)}.length === {len(WIRES)}")

    def _narrow(self, page: ConsoleBrowser) -> None:
        page.send(
            "Emulation.setDeviceMetricsOverride",
            width=360,
            height=740,
            deviceScaleFactor=1,
            mobile=True,
        )
        for hash in ("gateway/Probe/private", "gateway"):
            page.evaluate(f"location.hash = '#/{hash}'")
            page.wait("document.querySelector('main h2') && !document.querySelector('.skeleton')")
            width = page.evaluate("document.documentElement.scrollWidth")
            self.assertLessEqual(width, 360, hash)
