"""The accessibility of all pages and dialogs by axe-core, narrow screens, and what a page loads."""

import json
from typing import Any
from urllib.parse import quote

from tests.browser.pages import BUCKET, DIALOGS, PAGES, SHEET, VIEWS, PagesCase
from tests.support.clients import botoClient
from tests.support.nodepackages import AXE, nodeModules
from tests.support.selection import long

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]

COLOURS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
"""The rules whose result depends on the theme."""


@long("drives Chromium")
class AccessibilityTests(PagesCase):
    """Pages as axe-core judges them by the rules of WCAG 2.2 AA."""

    def setUp(self) -> None:
        """Have the rules."""
        self.source = (nodeModules(AXE) / "axe-core" / "axe.min.js").read_text()
        super().setUp()
        # Colours on their way to the ones of the other theme would be judged.
        still = [{"name": "prefers-reduced-motion", "value": "reduce"}]
        self.page.send("Emulation.setEmulatedMedia", features=still)
        self.addCleanup(self.page.send, "Emulation.setEmulatedMedia", features=[])

    def theme(self, name: str) -> None:
        """Choose the colours."""
        self.page.evaluate(f"document.documentElement.dataset.theme = '{name}'")

    def violations(self, place: str, theme: str = "light") -> list[str]:
        """Judge what is shown now, in dark only its colours; return what is wrong, a line each."""
        self.page.evaluate(f"if (!window.axe) {{ {self.source} }}; undefined")
        only = COLOURS if theme == "dark" else TAGS
        options: Any = {"runOnly": only, "resultTypes": ["violations"]}
        found = self.page.evaluate(
            f"axe.run(document, {json.dumps(options)})"
            ".then((all) => all.violations.flatMap((rule) =>"
            " rule.nodes.map((node) => rule.id + ': ' + node.html.slice(0, 200) + ' '"
            " + node.failureSummary)))"
        )
        return [f"{place}: {each}" for each in found]

    def judge(self, views: list[str], themes: tuple[str, ...]) -> None:
        """Judge some views, and fail with all that is wrong."""
        found = []
        for view in views:
            self.page.show(view)
            for theme in themes:
                self.theme(theme)
                found += self.violations(f"{view} {theme}", theme)
        self.assertEqual(found, [], "\n\n".join(found))

    def test_seesViolations(self) -> None:
        """A page that breaks a rule is found."""
        self.page.evaluate("document.querySelector('label').remove()")
        self.assertIn("label", "".join(self.violations("broken")))

    def test_signIn(self) -> None:
        """The page to sign in has none."""
        for theme in ("light", "dark"):
            self.theme(theme)
            self.assertEqual(self.violations(theme, theme), [])

    def test_pages(self) -> None:
        """Every page of the table and views below them have no violation, in light and dark."""
        self.enter()
        self.judge([*(name for name, _role in PAGES), *VIEWS.values()], ("light", "dark"))

    def test_dialogs(self) -> None:
        """Dialogs, overlays and the tabs of an object have none."""
        self.enter()
        found = []
        for view, button in DIALOGS:
            self.page.show(view)
            self.page.press(button)
            self.page.wait("document.querySelector('dialog[open]')")
            for theme in ("light", "dark"):
                self.theme(theme)
                found += self.violations(f"{view} {button} {theme}", theme)
            self.page.key("Escape", 27)
            self.page.wait("!document.querySelector('dialog[open]')")
        for name, code, modifiers in (("k", 75, 2), ("?", 191, 8)):
            self.page.key(name, code, "" if modifiers == 2 else name, modifiers)
            self.page.wait(
                "document.querySelector('dialog[open]')?.contains(document.activeElement)"
            )
            found += self.violations(f"overlay of {name}")
            self.page.key("Escape", 27)
            self.page.wait("!document.querySelector('dialog[open]')")
        for tab in ("tags", "metadata", "lockTitle", "code", "share"):
            self.page.show(f"{VIEWS['object']}&tab={tab}")
            self.page.wait("document.querySelector('.drawer .facts')")
            found += self.violations(f"object, {tab}")
        self.assertEqual(found, [], "\n\n".join(found))

    def test_bucketOverlays(self) -> None:
        """Menus, dialogs, refusals and previews of a bucket have none, on a phone neither."""
        self.enter()
        page, found = self.page, []
        phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        self.addCleanup(page.send, "Emulation.clearDeviceMetricsOverride")

        def look(place: str) -> None:
            for theme in ("light", "dark"):
                self.theme(theme)
                found.extend(self.violations(f"{place} {theme}"))
            page.send("Emulation.setDeviceMetricsOverride", **phone)
            found.extend(self.violations(f"{place} phone"))
            page.send("Emulation.clearDeviceMetricsOverride")

        page.show(VIEWS["objects"])
        page.wait("document.querySelector('#row-0 .more')")
        page.evaluate("document.querySelector('#row-0 .more').click()")
        page.wait("document.querySelector('[role=menuitem]')")
        look("menu")
        page.evaluate(
            "[...document.querySelectorAll('[role=menuitem]')]"
            ".find((each) => each.innerText.startsWith('Copy')).click()"
        )
        page.wait("document.querySelector('dialog[open]')")
        look("copy of a folder")
        page.key("Escape", 27)
        page.show(VIEWS["access"])
        page.press("Add statement")
        page.press("Save")
        page.wait("document.querySelector('[name=names][aria-invalid=true]')")
        look("statement")
        page.choose("select[name=who]", "anyone")
        page.press("Save…")
        page.wait("document.querySelector('dialog[open]')")
        look("consequence")
        page.key("Escape", 27)
        page.show(VIEWS["bucket"] + "?setting=lifecycle")
        page.press("Add rule")
        page.press("Save")
        page.wait("document.querySelector('[aria-invalid=true]')")
        look("lifecycle")
        page.show(VIEWS["objects"] + f"?prefix=folder%2F&object={quote(SHEET, safe='')}")
        page.wait("document.querySelector('.sheet td') && document.querySelector('#code-aws')")
        look("table")
        self.assertEqual(found, [], "\n\n".join(found))

    def test_beside(self) -> None:
        """A key and a request beside their lists, and the result of a call, have none."""
        self.enter()
        found = []
        self.page.show("live")
        self.page.waitText("Connected")
        botoClient(self.daemon.url("s3")).list_objects_v2(Bucket=BUCKET)
        self.page.press("ListObjectsV2")
        for view, shown in (
            ("", ".drawer .facts"),
            (f"keys/{self.reader.accessKey}", ".drawer .code"),
            (VIEWS["method"], ".answers pre"),
        ):
            if view:
                self.page.show(view)
            if view == VIEWS["method"]:
                self.page.press("Call")
            self.page.wait(f"document.querySelector('{shown}')")
            for theme in ("light", "dark"):
                self.theme(theme)
                found += self.violations(f"{view} {theme}")
        self.assertEqual(found, [], "\n\n".join(found))

    def test_narrow(self) -> None:
        """No view scrolls sideways on a screen of 360 px."""
        self.page.send(
            "Emulation.setDeviceMetricsOverride",
            width=360,
            height=740,
            deviceScaleFactor=1,
            mobile=True,
        )
        self.assertLessEqual(self.page.evaluate("document.documentElement.scrollWidth"), 360)
        self.enter()
        for view in [*(name for name, _role in PAGES), *VIEWS.values()]:
            self.page.show(view)
            width = self.page.evaluate("document.documentElement.scrollWidth")
            self.assertLessEqual(width, 360, view)
