"""What open pages are told."""

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http.development import livereload
from storagegate.http.development.livereload import LiveReloadHub, developmentPages
from storagegate.http.fetch.handler import ResponseLost
from storagegate.http.testing import Client, TestCall

ERROR = {"title": "E: x", "file": "a.py", "line": 3, "text": "..."}


def events(call: TestCall) -> list[tuple[str, Any]]:
    """Read the events of a stream."""
    found = []
    for block in call.received.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "event" in fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


class HubTests(SynchronousTestCase):
    """Pages that listen."""

    def setUp(self) -> None:
        """Make an application with open pages."""
        self.hub = LiveReloadHub()
        app = server.http()
        app.use(developmentPages(self.hub))
        self.client = Client(app)

    def open(self, **options: Any) -> TestCall:
        """Let a page connect."""
        return self.client.start("GET", "/__storagegate/hmr", **options)

    def test_stream(self) -> None:
        """A page hears the version first, then of each reload, and is asked to come again soon."""
        page = self.open()
        self.assertEqual(events(page), [("hello", {"version": self.hub.version})])
        self.assertIn(b"retry: 500\n", page.received)
        self.hub.reload(["a.py"], isRepaired=True)
        told = {"version": self.hub.version, "files": ["a.py"]}
        self.assertEqual(events(page)[1:], [("reload", told)])
        self.assertEqual(events(self.open()), [("hello", {"version": self.hub.version})])

    def test_processes(self) -> None:
        """Another process has another version, so that pages see that it was restarted."""
        self.assertNotEqual(LiveReloadHub().version, LiveReloadHub().version)

    def test_error(self) -> None:
        """An error is told to all pages, and to those that open later until it is repaired."""
        page = self.open()
        self.hub.fail(ERROR)
        self.assertEqual(events(page)[1:], [("error", ERROR)])
        self.assertEqual(events(self.open())[1:], [("error", ERROR)])
        self.hub.reload(["a.css"], isRepaired=False)
        self.assertEqual(events(self.open())[1:], [("error", ERROR)])
        self.hub.reload(["a.py"], isRepaired=True)
        self.assertEqual(events(self.open())[1:], [])

    def test_beat(self) -> None:
        """A beat is a comment: it keeps connections alive and says nothing."""
        page = self.open()
        before = page.received
        self.hub.beat()
        self.assertEqual(page.received, before + b":\n\n")

    def test_gone(self) -> None:
        """A page that goes away makes room, and nothing is written to it."""
        for _ in range(livereload._MAX_STREAMS):
            page = self.open()
        self.assertEqual(self.open().response.status, 503)
        page.disconnect()
        self.client.flush()
        self.assertFalse(self.open().done)
        self.hub.reload([], isRepaired=True)

    def test_behind(self) -> None:
        """A page that reads nothing is dropped, and others are told."""
        slow = self.open(reading=False)
        page = self.open()
        for _ in range(100):
            self.hub.fail({"text": "x" * 10_000})
            page.collect()
        self.assertEqual(len(events(page)), 101)
        slow.reading = True
        self.client.flush()
        self.assertRaises(ResponseLost, lambda: slow.response)

    def test_endAll(self) -> None:
        """All streams can be ended in order."""
        page = self.open()
        self.hub.endAll()
        self.assertEqual(page.response.status, 200)
        self.hub.reload([], isRepaired=True)
