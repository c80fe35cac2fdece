"""The event stream and the figures of a daemon with two workers and all wires."""

import contextlib
import json
import os
import signal
from http.client import HTTPConnection
from pathlib import Path
from threading import Event, Thread
from typing import Any

from tests.console.eventstream import EventStream
from tests.console.gatewayfixture import WIRES, GatewayCase
from tests.support.clients import ROOT
from tests.support.selection import long
from tests.wire.s3.fixture import eventually


class WorkersTests(GatewayCase):
    """What all processes do is seen through any of them."""

    flags = ("--workers", "2")

    def open(self, query: str) -> EventStream:
        """Open a stream with any of the workers."""
        stream = EventStream(self.daemon.address("admin"), query, ROOT.plainHeaders())
        self.addCleanup(stream.close)
        self.assertEqual(stream.status, 200)
        return stream

    def listBuckets(self) -> None:
        """List the buckets by a new connection, which any of the workers accepts."""
        connection = HTTPConnection(*self.daemon.address("s3"), timeout=60)
        try:
            connection.request("GET", "/", headers=ROOT.plainHeaders())
            connection.getresponse().read()
        finally:
            connection.close()

    def assertBoth(self, stream: EventStream) -> None:
        """Assert that a stream has requests of both workers, while others send some."""
        isSeen = Event()

        def load() -> None:
            while not isSeen.wait(0.02):
                with contextlib.suppress(OSError):
                    self.listBuckets()

        thread = Thread(target=load, daemon=True)
        thread.start()
        try:
            seen: set[int] = set()
            while len(seen) < 2:
                seen.add(stream.next("requests").get("worker"))
        finally:
            isSeen.set()
            thread.join()

    @long("asks several workers")
    def test_methodTime(self) -> None:
        """A call is timed, whichever worker serves it."""

        def isTimed(wire: str) -> bool:
            _, end = self.call(wire, "echo", {"text": "a"})
            return "methodMs" in end

        # A worker times calls from its first message of the console on.
        self.assertTrue(eventually(lambda: all(isTimed("http") for _ in range(6))))
        for wire in WIRES:
            for _ in range(4):
                self.assertTrue(isTimed(wire), wire)

    def test_wires(self) -> None:
        """Calls over each wire are events, with the error of those that fail."""
        stream = self.open("topics=requests")
        # A worker that does not know yet of the stream sends it nothing.
        self.assertBoth(stream)
        for wire in WIRES:
            self.results(wire, "echo", {"text": "a"})
        seen: dict[str, Any] = {}
        while len(seen) < len(WIRES):
            event = stream.next("requests")
            if event["operation"] == "Probe.echo":
                seen[event["wire"]] = event
        self.assertEqual(set(seen), set(WIRES))
        self.assertEqual({event["status"] for event in seen.values()}, {200})
        refused = self.open("topics=requests&status=error")
        self.failure("http", "private", {"text": "a"})
        event = refused.next("requests")
        while event["operation"] != "Probe.private":
            # A call by gRPC asks for descriptions first, which can end later.
            event = refused.next("requests")
        found = (event["wire"], event["operation"], event["status"], event["code"])
        self.assertEqual(found, ("http", "Probe.private", 401, "UNAUTHENTICATED"))
        self.assertTrue(event["reason"])

    def test_overview(self) -> None:
        """Each worker shows the refusals of both, and one history of the usage."""
        self.send("GET", "overview")

        def seen() -> set[int]:
            self.failure("http", "private", {"text": "a"})
            found = self.send("GET", "overview").json
            return {each["worker"] for each in found["refusals"]}

        self.assertTrue(eventually(lambda: all(seen() == {0, 1} for _ in range(6))))
        firsts = {
            self.send("GET", "overview").json["growth"]["series"]["atMs"][0] for _ in range(6)
        }
        self.assertEqual(len(firsts), 1)

    def test_throttle(self) -> None:
        """Attempts to sign in that fail are counted by both workers together."""
        content = json.dumps({"accessKey": "AKIAX", "secretKey": "wrong"})
        seen = []
        for _ in range(30):
            # The other tests come from another address.
            connection = HTTPConnection(
                *self.daemon.address("admin"), timeout=60, source_address=("127.0.0.9", 0)
            )
            try:
                connection.request("POST", "/console/api/v1/session", content)
                seen.append(connection.getresponse().status)
            finally:
                connection.close()
        self.assertEqual(seen, [401] * 10 + [429] * 20)

    @long("takes seconds")
    def test_killed(self) -> None:
        """
        A stream has the requests of both workers, also after one was killed; the figures of the
        time before are known to the one that took its place.
        """
        stream = self.open("topics=requests&wire=s3")
        self.assertBoth(stream)

        def steps() -> int:
            found = self.send("GET", "metrics").json["series"]
            return len(found["memory"]) if found.get("workers", [None])[-1] == 2 else 0

        self.assertTrue(eventually(lambda: steps() >= 1))
        before = steps()
        os.kill(int(self.workers()[0]), signal.SIGKILL)
        self.daemon.waitForLog(r"worker \d ended")
        self.assertTrue(eventually(lambda: len(self.workers()) == 2))
        try:
            self.assertBoth(stream)
        except AssertionError:
            # It was with the worker that was killed: a page opens it again.
            stream = self.open("topics=requests&wire=s3")
            self.assertBoth(stream)
        self.assertTrue(eventually(lambda: all(steps() > before for _ in range(8))))

    def workers(self) -> list[str]:
        """Return the processes of the workers."""
        pid = self.daemon.pid
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()

    @long("asks several workers")
    def test_mostStreams(self) -> None:
        """The limit of streams is that of all workers together."""
        for _ in range(16):
            self.open("topics=jobs")

        def isRefused() -> bool:
            address = self.daemon.address("admin")
            stream = EventStream(address, "topics=jobs", ROOT.plainHeaders())
            status = stream.status
            stream.close()
            return status == 429

        # A worker has heard of the last one a moment later.
        self.assertTrue(eventually(lambda: all(isRefused() for _ in range(8))))
