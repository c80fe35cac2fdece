"""The console by keyboard alone, links that lead back, and what fails a test by itself."""

import contextlib
import json
from unittest import TestResult

from tests.browser.pages import DIALOGS, PAGES, VIEWS, PagesCase
from tests.support.clients import ROOT, botoClient
from tests.support.selection import long
from tests.wire.s3.fixture import eventually

MADE = "by-keyboard"


@long("drives Chromium")
class KeyboardTests(PagesCase):
    """A person without a mouse."""

    def press(self, name: str, code: int, text: str = "", modifiers: int = 0) -> None:
        """Press a key once the page has had time for the one before."""
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        self.page.key(name, code, text, modifiers)

    def focused(self) -> str:
        """Return what has the focus, by its text or label."""
        found: str = self.page.evaluate(
            "(({activeElement: one}) => one.innerText || one.ariaLabel || one.name || '')(document)"
        ).strip()
        return found

    def tabTo(self, text: str) -> None:
        """Go on by Tab until something with a text or label has the focus."""
        for _ in range(80):
            if self.focused() == text:
                return
            self.press("Tab", 9)
        self.fail(f"{text} cannot be reached")

    def enterBy(self) -> None:
        """Sign in."""
        self.page.wait("document.activeElement.name === 'username'")
        self.page.type(ROOT.accessKey)
        self.press("Tab", 9)
        self.page.type(ROOT.secretKey)
        self.press("Enter", 13, "\r")
        self.page.wait("document.querySelector('#content h1')")

    def command(self, text: str) -> None:
        """Run a command of the palette."""
        self.press("k", 75, modifiers=2)
        self.page.wait("document.activeElement.role === 'combobox'")
        self.page.type(text)
        self.page.wait("document.querySelector('[role=combobox]').value !== ''")
        self.page.wait(
            "document.querySelector('[role=option]').innerText.toLowerCase()"
            f".includes({json.dumps(text)})"
            " && document.querySelectorAll('[role=option]').length < 4"
        )
        self.press("Enter", 13, "\r")
        self.page.wait("!document.querySelector('dialog[open]')")

    def test_firstKey(self) -> None:
        """The palette opens by a key that comes with the first drawing of the frame."""
        self.page.pressAtOnce("k", "document.querySelector('#content')")
        self.page.fill("input[name=username]", ROOT.accessKey)
        self.page.fill("input[name=password]", ROOT.secretKey)
        self.page.press("Sign in")
        self.page.wait("document.activeElement.role === 'combobox'")

    def test_bucket(self) -> None:
        """
        By keys alone one signs in, makes a bucket, chooses an object in it and deletes it, and
        deletes the bucket once its name is typed.
        """
        page = self.page
        self.enterBy()
        self.command("objects")
        page.waitText("New bucket")
        self.tabTo("New bucket")
        self.press("Enter", 13, "\r")
        page.wait("document.activeElement.name === 'bucket'")
        page.type(MADE)
        self.press("Enter", 13, "\r")
        page.waitText("No objects here")
        botoClient(self.daemon.url("s3")).put_object(Bucket=MADE, Key="a", Body=b"")
        self.command("sessions")
        page.waitText("This session")
        self.command(MADE)
        page.wait("document.querySelector('[role=grid]') === document.activeElement")
        self.press(" ", 32, " ")
        page.wait("document.querySelector('.listRow[aria-selected=true]')")
        self.press("Delete", 46)
        page.wait("document.querySelector('dialog[open]')")
        self.tabTo("Delete")
        self.press("Enter", 13, "\r")
        page.waitText("No objects here")
        self.command(MADE)
        page.waitText("No objects here")
        self.tabTo("Settings")
        self.press("Enter", 13, "\r")
        self.tabTo("Delete")
        self.press("Enter", 13, "\r")
        page.wait("document.querySelector('.card .danger')")
        page.evaluate("document.querySelector('.card h2').scrollIntoView()")
        self.press("Tab", 9)
        self.tabTo("Delete bucket…")
        self.press("Enter", 13, "\r")
        page.wait("document.querySelector('dialog[open] input')")
        self.tabTo("Close")
        self.press("Tab", 9)
        page.type(MADE)
        self.press("Enter", 13, "\r")
        page.wait("location.hash === '#/buckets'")

    def closes(self, opener: str) -> None:
        """Close the dialog, in which the focus is, and expect it at what opened it."""
        inside = "document.querySelector('dialog[open]')?.contains(document.activeElement)"
        self.page.wait(inside)
        self.press("Escape", 27)
        self.page.wait("!document.querySelector('dialog[open]')")
        # It comes back with the drawing after that.
        eventually(lambda: self.focused() == opener)
        self.assertEqual(self.focused(), opener)

    def test_overlays(self) -> None:
        """
        Commands, the list of keys and the dialogs of pages open and close by keys, and give the
        focus back to what opened them.
        """
        self.enterBy()
        for view, button in DIALOGS:
            self.page.show(view)
            self.page.evaluate("document.querySelector('main').focus()")
            self.tabTo(button)
            self.press("Enter", 13, "\r")
            self.closes(button)
        self.press("?", 191, "?", 8)
        self.page.wait("document.querySelector('dialog[open] kbd')")
        self.closes(button)
        self.press("k", 75, modifiers=2)
        self.page.wait("document.activeElement.role === 'combobox'")
        self.page.type("shortcuts")
        self.page.wait("document.querySelectorAll('[role=option]').length === 1")
        self.press("Enter", 13, "\r")
        self.page.wait("document.querySelector('dialog[open] kbd')")
        self.closes(button)
        self.press("k", 75, modifiers=2)
        self.page.wait("document.activeElement.role === 'combobox'")
        self.closes(button)

    def test_reload(self) -> None:
        """Each view is the same after a reload."""
        self.enter()
        heading = "document.querySelector('main h1').innerText"
        for view in [*(name for name, _role in PAGES), *VIEWS.values()]:
            self.page.show(view)
            before = self.page.evaluate(f"[location.hash, {heading}]")
            self.page.evaluate("window.isOld = true")
            self.page.send("Page.reload")
            # Loading has begun when the old page can be asked no more.
            with contextlib.suppress(AssertionError):
                self.page.evaluate("window.isOld && new Promise((done) => setTimeout(done, 3e4))")
            text = json.dumps(before, separators=(",", ":"), ensure_ascii=False)
            # The frame has the name of the page while its module comes.
            shown = f"JSON.stringify([location.hash, {heading}]) === {json.dumps(text)}"
            self.page.wait(f"!window.isOld && {shown}")
            self.assertEqual(self.page.evaluate(f"[location.hash, {heading}]"), before)


@long("drives Chromium")
class ReportTests(PagesCase):
    """What fails a test by itself."""

    def test_cleanup(self) -> None:
        """A test that looks at nothing fails with what its page has reported."""

        class Forgetful(PagesCase):
            """A test that ends with a report."""

            def test_nothing(self) -> None:
                """Provoke one."""
                self.page.evaluate("console.error('not looked at')")

        result = TestResult()
        Forgetful("test_nothing").run(result)
        found = [text for _case, text in (*result.failures, *result.errors)]
        self.assertEqual(len(found), 1)
        self.assertIn("not looked at", found[0])
        self.page.allowed.append("not looked at")

    def provoke(self, script: str, report: str) -> None:
        """Run a script in the page, and expect a report."""
        self.page.evaluate(
            f"setTimeout(() => {{ {script} }}); new Promise((done) => setTimeout(done, 100))"
        )
        self.assertIn(report, "".join(self.page.problems()))
        self.page.allowed.append(report)

    def test_consoleError(self) -> None:
        """An error that a script writes."""
        self.provoke("console.error('wrong here')", "wrong here")

    def test_pageError(self) -> None:
        """An exception that is not caught."""
        self.provoke("throw new Error('thrown here')", "thrown here")

    def test_rejection(self) -> None:
        """A promise that fails, unseen."""
        self.provoke("Promise.reject(new Error('failed here'))", "failed here")

    def test_policy(self) -> None:
        """A style that the policy forbids."""
        self.provoke(
            "document.head.append(Object.assign(document.createElement('style'),"
            " {textContent: 'p {}'}))",
            "Content Security Policy",
        )

    def test_trustedTypes(self) -> None:
        """HTML that is made of text."""
        self.provoke("document.body.innerHTML = '<p>'", "TrustedHTML")

    def test_foreignRequest(self) -> None:
        """A request to another place, though the policy stops it."""
        self.provoke("new Image().src = 'http://192.0.2.1/'", "192.0.2.1")
