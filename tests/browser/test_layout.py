"""Where things stand on the pages, at widths at which they once stood wrong."""

import json
from typing import Any

from tests.browser.pages import KEY, VIEWS, PagesCase
from tests.support.clients import botoClient
from tests.support.selection import long

_LINES = """[...document.querySelectorAll(%s)].filter((each) => each.offsetParent).map((each) => {
  const range = document.createRange();
  range.selectNodeContents(each);
  const tops = [...range.getClientRects()].map((box) => box.top + box.height / 2);
  return Math.max(...tops) - Math.min(...tops) < 10;
})"""
"""Whether the content of each of some elements takes one line."""


@long("drives Chromium")
class LayoutTests(PagesCase):
    """Pages with objects, keys and users."""

    def setUp(self) -> None:
        """Sign in, at a width that each test chooses."""
        super().setUp()
        self.enter()
        self.addCleanup(self.page.send, "Emulation.clearDeviceMetricsOverride")

    def width(self, pixels: int) -> None:
        """Set the width of the window; a narrow one is a phone."""
        self.page.send(
            "Emulation.setDeviceMetricsOverride",
            width=pixels,
            height=800,
            deviceScaleFactor=1,
            mobile=pixels < 500,
        )

    def lines(self, selector: str) -> list[bool]:
        """Return whether the content of elements takes one line each."""
        found: list[bool] = self.page.evaluate(_LINES % json.dumps(selector))
        self.assertTrue(found, selector)
        return found

    def box(self, selector: str) -> Any:
        """Return the place of an element."""
        return self.page.evaluate(
            f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()"
        )

    def test_rows(self) -> None:
        """The states and times of keys and buckets are not broken where there is little room."""
        self.width(1024)
        for view in ("keys", "buckets"):
            self.page.show(view)
            self.assertNotIn(False, self.lines("tbody .fixedText"), view)

    def test_tools(self) -> None:
        """The choice of the account stands beside the tabs, with its name."""
        self.width(1440)
        self.page.show("users")
        choice, tabs = self.box(".labelled select"), self.box(".pageHead .seg")
        self.assertLess(abs(choice["top"] - tabs["top"]), 8)
        self.assertLess(choice["width"], 400)
        label = self.page.evaluate("document.querySelector('.labelled').innerText")
        self.assertIn("Account", label)

    def test_drawer(self) -> None:
        """The page stays in place while an object is edited beside its list."""
        self.width(1280)
        self.page.show(VIEWS["object"])
        self.page.wait("document.querySelector('#part-tags .link')")
        self.page.evaluate("document.querySelector('#part-tags .link').click()")
        self.page.wait("document.querySelector('#part-tags .pairs')")
        overflow = "document.querySelector('main').scrollHeight - innerHeight"
        self.assertLessEqual(self.page.evaluate(overflow), 0)

    def test_request(self) -> None:
        """A request beside the live view takes 372 px, and all of a phone."""
        self.page.show("live")
        self.page.waitText("Connected")
        botoClient(self.daemon.url("s3")).get_object(Bucket="pages-bucket", Key=KEY)
        self.page.press("GetObject")
        for width, wanted in ((1280, 372), (390, 390)):
            self.width(width)
            self.page.wait(f"document.querySelector('.drawer').offsetWidth === {wanted}")
        # Headless Chromium denies the clipboard.
        self.page.press("Copy as JSON")
        self.page.waitText("The browser does not allow copying")

    def test_facts(self) -> None:
        """On a phone each fact that says nothing by itself has its name before it."""
        self.width(390)
        self.page.show("gateway")
        labels = self.page.evaluate(
            "[...document.querySelectorAll('.cards tbody tr:first-child td')].map((each) =>"
            " getComputedStyle(each, '::before').content)"
        )
        self.assertIn('"TLS "', labels)
        self.assertIn('"Rate limit "', labels)
