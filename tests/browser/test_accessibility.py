"""The accessibility of all pages and dialogs by axe-core, narrow screens, and what a page loads."""

import json
from typing import Any
from urllib.parse import quote

from tests.browser.pages import BUCKET, DIALOGS, PAGES, SHEET, VIEWS, PagesCase
from tests.console.gatewayfixture import send
from tests.support.clients import Account, botoClient
from tests.support.nodepackages import AXE, nodeModules
from tests.support.selection import long

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]

PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}

COLOURS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
"""The rules whose result depends on the theme."""


@long("drives Chromium")
class AccessibilityTests(PagesCase):
    """Pages as axe-core judges them by the rules of WCAG 2.2 AA."""

    def setUp(self) -> None:
        """Have the rules."""
        self.source = (nodeModules(AXE) / "axe-core" / "axe.min.js").read_text()
        self.found: list[str] = []
        super().setUp()
        self.addCleanup(self.page.send, "Emulation.clearDeviceMetricsOverride")
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

    def look(self, place: str) -> None:
        """Judge what is shown now in both themes and on a phone; note what is wrong."""
        for theme in ("dark", "light"):
            self.theme(theme)
            self.found += self.violations(f"{place} {theme}", theme)
        self.page.send("Emulation.setDeviceMetricsOverride", **PHONE)
        self.found += self.violations(f"{place} phone")
        self.page.send("Emulation.clearDeviceMetricsOverride")

    def answer(self, path: str, status: int, document: Any) -> None:
        """
        Answer requests of the page for a path from now on, until it is loaded again.

        @param status: 0 to give no answer at all.
        """
        self.page.evaluate(
            "window.fetchReally ??= window.fetch; window.fetch = (place, ...more) =>"
            f" !RegExp('/api/v1/{path}($|[?])').test(place) ? fetchReally(place, ...more)"
            f" : {status} ? Promise.resolve(new Response(JSON.stringify({json.dumps(document)}),"
            f" {{status: {status or 200}, headers: {{'Content-Type': 'application/json'}}}}))"
            " : new Promise(() => {}); undefined"
        )

    def nothingFound(self) -> None:
        """Fail with all that is wrong."""
        self.assertEqual(self.found, [], "\n\n".join(self.found))

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
        """Every page of the table and views below them have no violation."""
        self.enter()
        for view in [*(name for name, _role in PAGES), *VIEWS.values()]:
            self.page.show(view)
            self.look(view)
        self.nothingFound()

    def test_states(self) -> None:
        """Pages that load, have nothing, have failed or are forbidden have none."""
        self.enter()
        nothing: dict[str, Any] = {"items": [], "next": None, "mayCreate": True}
        failed = {"error": "INTERNAL", "message": "The disk has failed"}
        refused = {"error": "PERMISSION_DENIED", "message": "", "details": {"role": "auditor"}}
        for name, status, document, shown in (
            ("first run", 200, nothing, ".firstBucket"),
            ("loading", 0, None, ".skeleton .bar:not(.blank)"),
            ("failed", 500, failed, "main .problem"),
            ("refused", 403, refused, "main .state"),
        ):
            self.page.show("about")
            self.answer("buckets", status, document)
            self.page.evaluate("location.hash = '#/buckets'")
            self.page.wait(f"document.querySelector('{shown}')")
            self.look(name)
        self.page.show("about")
        self.answer("keys", 200, nothing)
        self.page.show("keys")
        self.look("no keys")
        self.page.send("Emulation.setDeviceMetricsOverride", **PHONE)
        self.page.press("More")
        self.page.wait("document.querySelector('.side.open')")
        self.found += self.violations("all pages on a phone")
        self.nothingFound()

    def test_objects(self) -> None:
        """A selection, dropped files, uploads, a message, a search and versions have none."""
        page, s3, bucket = self.page, botoClient(self.daemon.url("s3")), "pages-versions"
        s3.create_bucket(Bucket=bucket)
        versions = {"Status": "Enabled"}
        s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration=versions)
        for name in ("deleted.txt", "stays.txt", "stays.txt"):
            s3.put_object(Bucket=bucket, Key=name, Body=b"some text")
        s3.delete_object(Bucket=bucket, Key="deleted.txt")
        self.enter()
        page.show(f"buckets/{bucket}/objects")
        page.wait("document.querySelector('#row-0 .pick')")
        page.evaluate("document.querySelector('#row-0 .pick').click()")
        page.wait("document.querySelector('.bulk')")
        self.look("selection")
        page.evaluate(
            "window.files = new DataTransfer();"
            " files.items.add(new File(['text'], 'sent.txt', {type: 'text/plain'}));"
            " window.dragging = setInterval(() => dispatchEvent("
            "new DragEvent('dragover', {dataTransfer: files})), 100)"
        )
        page.wait("document.querySelector('.dropping')")
        self.look("drop")
        page.evaluate("clearInterval(dragging)")
        page.wait("!document.querySelector('.dropping')")
        page.evaluate(
            "(() => { const input = document.querySelector('#files'); input.files = files.files;"
            " input.dispatchEvent(new Event('change', {bubbles: true})) })()"
        )
        page.wait("document.querySelector('.tray li')")
        self.look("tray")
        page.press("Delete")
        page.wait("document.querySelector('dialog[open]')")
        self.look("delete")
        page.press("Delete")
        page.wait("document.querySelector('.toast button')")
        page.evaluate("document.querySelector('.toast').dispatchEvent(new Event('mouseenter'))")
        self.look("message")
        page.show(f"buckets/{bucket}/objects?versions=1")
        page.waitText("Restore")
        self.look("versions")
        page.show(f"buckets/{bucket}/objects?contains=sent")
        page.waitText("1 found")
        self.look("search")
        self.nothingFound()

    def test_narrowed(self) -> None:
        """What a key of one folder sees has none."""
        key = {"account": "root", "policy": "readonly", "bucket": BUCKET, "prefix": "folder/*"}
        made = send(self.daemon, "POST", "keys", key).json
        self.enter(Account(made["accessKey"], made["secretKey"]))
        self.page.show(VIEWS["objects"])
        self.page.waitText("may only read")
        self.look("narrowed")
        self.nothingFound()

    def test_dialogs(self) -> None:
        """Dialogs, overlays and the tabs of an object have none."""
        self.enter()
        for view, button in DIALOGS:
            self.page.show(view)
            self.page.press(button)
            self.page.wait("document.querySelector('dialog[open]')")
            self.look(f"{view} {button}")
            self.page.key("Escape", 27)
            self.page.wait("!document.querySelector('dialog[open]')")
        for name, code, modifiers in (("k", 75, 2), ("?", 191, 8)):
            self.page.key(name, code, "" if modifiers == 2 else name, modifiers)
            self.page.wait(
                "document.querySelector('dialog[open]')?.contains(document.activeElement)"
            )
            self.look(f"overlay of {name}")
            self.page.key("Escape", 27)
            self.page.wait("!document.querySelector('dialog[open]')")
        for tab in ("tags", "metadata", "lockTitle", "code", "share"):
            self.page.show(f"{VIEWS['object']}&tab={tab}")
            self.page.wait("document.querySelector('.drawer .facts')")
            self.look(f"object, {tab}")
        self.page.show(VIEWS["newKey"])
        self.page.press("Create key")
        self.page.wait("document.querySelector('dialog #secretKey')")
        self.look("new secret")
        self.nothingFound()

    def test_bucketOverlays(self) -> None:
        """Menus, dialogs, refusals and previews of a bucket have none."""
        self.enter()
        page, look = self.page, self.look
        page.show(VIEWS["objects"])
        page.wait("document.querySelector('#row-0 .more')")
        page.evaluate("document.querySelector('#row-0 .more').click()")
        page.wait("document.querySelector('[role=menuitem]')")
        look("menu")
        page.evaluate(
            "[...document.querySelectorAll('[role=menuitem]')]"
            ".find((each) => each.innerText.startsWith('Copy')).click()"
        )
        page.wait("document.querySelectorAll('dialog [role=treeitem]').length > 1")
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
        page.press("Leave")
        page.press("Add rule")
        page.press("Save")
        page.wait("document.querySelector('[aria-invalid=true]')")
        look("lifecycle")
        page.show(VIEWS["objects"] + f"?prefix=folder%2F&object={quote(SHEET, safe='')}")
        page.press("Leave")
        page.wait("document.querySelector('.sheet td') && document.querySelector('#code-aws')")
        look("table")
        self.nothingFound()

    def test_beside(self) -> None:
        """A key and a request beside their lists, and the results of calls, have none."""
        self.enter()
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
            self.look(view)
        self.page.press("Compare all…")
        self.look("before a comparison")
        self.page.press("Call all 5")
        self.page.wait("document.querySelector('.isWide .bars')")
        self.look("comparison")
        self.nothingFound()

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
