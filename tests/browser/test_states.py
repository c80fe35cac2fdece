"""The states of all pages: loading, empty, error, offline, forbidden, stale."""

import contextlib
import json
from base64 import b64encode
from collections.abc import Callable
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import quote

from tests.browser.pages import BUCKET, KEY, PAGES, READY, VIEWS, PagesCase
from tests.support.browser import SECONDS
from tests.support.selection import long

NOTHING = {"items": [], "next": None}

ABSENT = {"error": "NOT_FOUND", "message": "There is no gateway"}


class State(NamedTuple):
    """
    What a page shows.

    @ivar path: What it reads, below C{api/v1/}; none for a page without data.
    @ivar empty: A view of it in which there is nothing; none for a page that always has something.
    @ivar answer: The status and document with which that is read, if the daemon has another one.
    """

    path: str
    empty: str = ""
    answer: tuple[int, Any] | None = None


STATES = {
    "overview": State("overview"),
    "buckets": State("buckets", "buckets", (200, NOTHING)),
    "transfers": State("buckets", "transfers"),
    "keys": State("keys", "keys", (200, NOTHING)),
    "users": State("identities/ListUsers", "users/groups"),
    "gateway": State("gateway", "gateway", (404, ABSENT)),
    "live": State("events", "live?key=absent"),
    "jobs": State("jobs", "jobs", (200, {**NOTHING, "mayStart": True})),
    "maintenance": State("maintenance"),
    "configuration": State("config", "configuration?find=absent"),
    "sessions": State("sessions"),
    "about": State(""),
    VIEWS["bucket"]: State(f"buckets/{BUCKET}"),
    VIEWS["objects"]: State(f"buckets/{BUCKET}/objects", VIEWS["objects"] + "?prefix=absent"),
    VIEWS["objects"] + "?versions=1": State(f"buckets/{BUCKET}/versions"),
    VIEWS["access"]: State(f"buckets/{BUCKET}/settings/policy"),
    VIEWS["object"]: State(f"buckets/{BUCKET}/objects/{quote(KEY, safe='')}"),
    VIEWS["method"]: State("gateway"),
}
"""Views, by what the fragment says."""

_SKELETON = """new Promise((done) => {
  location.hash = %s;
  let last, since, heights;
  const find = () => {
    const now = document.querySelector('main .skeleton');
    if (now && now !== last) [last, since, heights] = [now, performance.now(), new Set()];
    return now;
  };
  // Frames of a busy machine are late.
  const observer = new MutationObserver(find);
  observer.observe(document.body, {childList: true, subtree: true});
  const look = () => {
    const now = find();
    if (now) heights.add(now.offsetHeight);
    if (!now?.querySelector('.bar:not(.blank)')) return requestAnimationFrame(look);
    observer.disconnect();
    done([performance.now() - since, heights.size, now.ariaBusy, now.innerText.trim()]);
  };
  look();
})"""
"""Go to a view; give the milliseconds until a skeleton is seen, and how many heights it had."""

_LATER = """Date.realNow ??= Date.now;
Date.now = () => Date.realNow() + 330_000;
document.dispatchEvent(new Event('visibilitychange'))"""

_FAST = """window.realTimeout ??= setTimeout;
window.setTimeout = (act, ms, ...more) => realTimeout(act, ms / 10, ...more); undefined"""

Reply = Callable[[Any], None]


@long("drives Chromium")
class StatesTests(PagesCase):
    """Each row of the table of the pages; requests are held, fail or are answered here."""

    reply: Reply | None = None

    def catch(self, reply: Reply | None, pattern: str = "*/console/api/v1/*") -> None:
        """Hold requests from now on, or pass them to a function."""
        self.reply = reply
        self.page.send("Fetch.enable", patterns=[{"urlPattern": pattern}])

    def release(self) -> None:
        """Let all requests pass."""
        self.page.send("Fetch.disable")
        self.page.paused.clear()

    def until(self, expression: str) -> None:
        """Answer requests until an expression is true."""
        end = monotonic() + SECONDS
        while monotonic() < end:
            while self.reply and self.page.paused:
                # One that the page has given up by now cannot be answered.
                with contextlib.suppress(AssertionError):
                    self.reply(self.page.paused.pop(0))
            if self.page.evaluate(f"Boolean({expression})"):
                return
            self.page.evaluate("new Promise((done) => requestAnimationFrame(done))")
        self.fail(f"{expression}: {self.page.evaluate('document.body.innerText')}")

    def lose(self, request: Any) -> None:
        """Fail a request as without a connection."""
        self.page.send(
            "Fetch.failRequest", requestId=request["requestId"], errorReason="ConnectionRefused"
        )

    def answering(self, path: str, status: int, document: Any) -> Reply:
        """Return what answers requests for a path by a document, and lets others pass."""

        def reply(request: Any) -> None:
            number = request["requestId"]
            if request["request"]["url"].partition("/api/v1/")[2].partition("?")[0] != path:
                self.page.send("Fetch.continueRequest", requestId=number)
                return
            self.page.send(
                "Fetch.fulfillRequest",
                requestId=number,
                responseCode=status,
                responseHeaders=[{"name": "X-Trace-Id", "value": "0123abcd"}],
                body=b64encode(json.dumps(document).encode()).decode(),
            )

        return reply

    def goTo(self, view: str) -> None:
        """Go to a view by its fragment."""
        self.page.evaluate(f"location.hash = {json.dumps('#/' + view)}")

    def eachPage(self, step: Callable[[str, State], None]) -> None:
        """Do a step for each page that has data, coming from one without."""
        self.enter()
        for view, state in STATES.items():
            if not state.path:
                continue
            self.page.show("about")
            try:
                step(view, state)
            except Exception as error:
                error.add_note(f"on the page {view}")
                raise
            self.release()

    def test_table(self) -> None:
        """No page is missing here."""
        names = [view for view in STATES if "/" not in view]
        self.assertEqual(sorted(names), sorted(name for name, _role in PAGES))

    def test_loading(self) -> None:
        """While it is loaded a page has a skeleton after 200 ms, and nothing jumps by it."""

        def step(view: str, _state: State) -> None:
            self.catch(None)
            ms, heights, busy, text = self.page.evaluate(_SKELETON % json.dumps("#/" + view))
            # The clocks of timers and of pages are rounded.
            self.assertGreater(ms, 150)
            self.assertEqual((heights, busy, text), (1, "true", "Loading"))
            self.release()
            self.page.wait(READY)

        self.eachPage(step)

    def test_empty(self) -> None:
        """A page with nothing to show says what to do next, by one button."""

        def step(_view: str, state: State) -> None:
            if not state.empty:
                return
            if state.answer:
                self.catch(self.answering(state.path, *state.answer))
            self.goTo(state.empty)
            self.until("document.querySelector('main .state h2')")
            count = "document.querySelectorAll('main .state :is(button, a.button)').length"
            self.assertEqual(self.page.evaluate(count), 1)

        self.eachPage(step)

    def test_error(self) -> None:
        """What failed is said with its code and trace; the page goes on by "Retry"."""
        document = {"error": "INTERNAL", "message": "The disk has failed"}

        def step(view: str, state: State) -> None:
            self.catch(self.answering(state.path, 500, document))
            self.goTo(view)
            self.until("document.querySelector('main .problem')")
            text = self.page.evaluate("document.querySelector('main .problem').innerText")
            for each in ("The disk has failed", "Code INTERNAL", "Trace 0123abcd", "Retry"):
                self.assertIn(each, text)
            self.assertTrue(self.page.evaluate("document.querySelector('main h1').innerText"))
            self.release()
            self.page.press("Retry")
            self.page.wait(f"!document.querySelector('main .problem') && {READY}")

        self.eachPage(step)

    def test_offline(self) -> None:
        """Without a connection there is a bar; with the next one the page goes on by itself."""

        def step(view: str, _state: State) -> None:
            self.page.evaluate(_FAST)
            self.catch(self.lose)
            self.goTo(view)
            self.until("document.querySelector('.offline')?.innerText.includes('not answer')")
            self.release()
            self.page.wait(
                "!document.querySelector('.offline, main .problem')"
                f" && document.title !== 'About · storagegate' && {READY}"
            )

        self.eachPage(step)

    def test_forbidden(self) -> None:
        """A role that was lowered meanwhile is said, with the one that it takes."""
        document = {"error": "PERMISSION_DENIED", "message": "no", "details": {"role": "auditor"}}

        def step(view: str, state: State) -> None:
            self.catch(self.answering(state.path, 403, document))
            self.goTo(view)
            self.until("document.querySelector('main .state')")
            self.assertIn(
                "It requires the role auditor; yours is root.",
                self.page.evaluate("document.querySelector('main .state').innerText"),
            )

        self.eachPage(step)

    def test_roles(self) -> None:
        """A key without a role is not led to other pages, and reads there which role it lacks."""
        self.enter(self.reader)
        for name, role in PAGES:
            self.page.show(name)
            text = self.page.evaluate("document.querySelector('main').innerText")
            self.assertEqual(f"It requires the role {role}" in text, role != "none", name)
            isLed = self.page.evaluate(
                f"document.querySelector('nav [href=\"#/{name}\"]') !== null"
            )
            self.assertEqual(isLed, role == "none", name)

    def test_stale(self) -> None:
        """What is older than a minute shows its age, and is loaded again by a button."""

        def step(view: str, _state: State) -> None:
            self.page.show(view)
            self.catch(None)
            if view == "live":
                # What follows the server is as old as its last connection.
                self.goTo("live?key=absent")
                self.page.wait("document.querySelector('main').innerText.includes('Connecting')")
            self.page.evaluate(_LATER)
            self.page.wait("document.querySelector('main .stale')?.innerText.includes('5 minutes')")
            self.release()
            self.page.evaluate("Date.now = Date.realNow")
            self.page.evaluate(
                "for (const each of document.querySelectorAll('main .stale button')) each.click()"
            )
            self.page.wait("!document.querySelector('main .stale')")

        self.eachPage(step)

    def test_errorKeepsData(self) -> None:
        """What was loaded stays, with its age, when it cannot be loaded again."""
        document = {"error": "INTERNAL", "message": "The disk has failed"}
        self.enter()
        self.page.show("gateway")
        self.catch(self.answering("gateway", 500, document))
        self.page.evaluate("document.querySelector('.pageActions button').click()")
        self.until("document.querySelector('main .problem')")
        text = self.page.evaluate("document.querySelector('main').innerText")
        self.assertIn("As of ", text)
        self.assertIn("Probe", text)

    def test_folderJob(self) -> None:
        """A job of a folder is stopped where it is shown, and is run again for the rest."""
        job: dict[str, Any] = {
            "id": "00ff",
            "kind": "copyPrefix",
            "bucket": BUCKET,
            "prefix": "folder/",
            "toBucket": "",
            "toPrefix": "copy/",
            "accessKey": "",
            "error": "",
            "state": "running",
            "startedMs": 1,
            "endedMs": None,
            "done": 1200,
            "failures": 1,
            "failed": [{"key": "folder/x", "error": "AccessDenied: no"}],
        }
        sent: list[tuple[str, str, str]] = []

        def reply(request: Any) -> None:
            asked, number = request["request"], request["requestId"]
            path = asked["url"].partition("/api/v1/")[2].partition("?")[0]
            if not path.startswith("jobs"):
                self.page.send("Fetch.continueRequest", requestId=number)
                return
            if asked["method"] == "DELETE":
                job["state"] = "cancelled"
            if asked["method"] != "GET":
                sent.append((asked["method"], path, asked.get("postData", "")))
            body = {"items": [job]} if asked["method"] == "GET" else job
            self.page.send(
                "Fetch.fulfillRequest",
                requestId=number,
                responseCode=200,
                body=b64encode(json.dumps(body).encode()).decode(),
            )

        self.enter()
        self.page.show(VIEWS["objects"])
        self.catch(reply)
        click = "[...document.querySelectorAll({})].findLast((each) => {}).click()"
        self.until("document.querySelector('#row-0 .more')")
        self.page.evaluate("document.querySelector('#row-0 .more').click()")
        self.until("document.querySelector('[role=menuitem]')")
        self.page.evaluate(click.format("'[role=menuitem]'", "each.innerText.startsWith('Copy')"))
        self.until("document.querySelector('dialog input[name=toFolder]')")
        self.page.fill("dialog input[name=toFolder]", "copy")
        copies = click.format("'dialog button'", "each.innerText === 'Copy folder'")
        self.page.evaluate(copies)
        text = "document.querySelector('.job')?.innerText"
        self.until(f"{text}.includes('Copying folder/ to copy/: 1,199 done')")
        self.assertIn("1 failed, the first: folder/x", self.page.evaluate(text))
        self.page.evaluate(click.format("'.job button'", "each.innerText === 'Stop'"))
        self.until(f"{text}.includes('stopped')")
        self.page.evaluate(click.format("'.job button'", "each.innerText === 'Run again'"))
        end = monotonic() + SECONDS
        while len(sent) < 3 and monotonic() < end:
            self.until("true")
            self.page.evaluate("new Promise((done) => setTimeout(done, 20))")
        self.assertEqual(
            [each[:2] for each in sent],
            [
                ("POST", "jobs"),
                ("DELETE", "jobs/00ff"),
                ("POST", "jobs"),
            ],
        )
        self.assertEqual(json.loads(sent[0][2]), json.loads(sent[2][2]))

    def test_realError(self) -> None:
        """An error of the daemon itself has a code and a trace, too."""
        self.enter()
        self.page.show("buckets/absent-bucket/settings")
        text = self.page.evaluate("document.querySelector('main .problem').innerText")
        self.assertRegex(text, r"Code \w+ · Trace \w+")

    def test_module(self) -> None:
        """A page whose file cannot be had says so, and is there as soon as it can."""
        self.enter()
        self.catch(self.lose, "*/assets/about.*")
        self.goTo("about")
        self.until("document.querySelector('main .problem')")
        text = self.page.evaluate("document.querySelector('main').innerText")
        self.assertIn("Reload the whole page", text)
        self.assertIn("About", text)
        self.release()
        self.page.press("Retry")
        self.page.waitText("preact 11")
