"""Which members of etcd C{cluster status} finds missing, for answers of all kinds."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli.cluster import _etcdLines
from storagegate.cli.etcdmembers import EtcdMember, readMembers
from tests.support.ports import heldPort

HEALTHY = (200, b'{"health":"true","reason":""}')


class _Handler(BaseHTTPRequestHandler):
    server: "StandInMember"

    def answer(self) -> None:
        """Answer what the test says."""
        status, body = self.server.health if self.path == "/health" else self.server.members
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answerMessage(self) -> None:
        """Answer after the message."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer()

    def beSilent(self, *given: Any) -> None:
        """Print nothing."""

    do_GET, do_POST, log_message = answer, answerMessage, beSilent


class StandInMember(HTTPServer):
    """A member whose answers a test sets."""

    def __init__(self, case: SynchronousTestCase) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.health = HEALTHY
        self.members = (200, b'{"members":[]}')
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        case.addCleanup(self.server_close)
        case.addCleanup(self.shutdown)

    @property
    def url(self) -> str:
        """Its client URL."""
        return f"http://127.0.0.1:{self.server_port}"

    def list(self, *members: tuple[str, str, str]) -> None:
        """Set the list: name, peer URL and client URL of each; an empty one is left out."""
        found = []
        for name, peer, client in members:
            member: dict[str, Any] = {"ID": "1", "peerURLs": [peer]}
            if client:
                member |= {"name": name, "clientURLs": [client]}
            found.append(member)
        self.members = (200, json.dumps({"members": found}).encode())


class MemberTests(SynchronousTestCase):
    """L{readMembers}."""

    def setUp(self) -> None:
        """Start two members; the third one is away."""
        self.one, self.two = StandInMember(self), StandInMember(self)
        self.away = f"http://127.0.0.1:{heldPort(self)}"
        for each in (self.one, self.two):
            each.list(
                ("one", "http://10.0.0.1:2380", self.one.url),
                ("two", "http://10.0.0.2:2380", self.two.url),
                ("three", "http://10.0.0.3:2380", self.away),
            )

    def read(self, *urls: str) -> dict[str, str | None]:
        """Return the problem of each member, by its name or its URL."""
        return {each.name or each.url: each.problem for each in readMembers(urls)}

    def test_away(self) -> None:
        """A member that does not answer is named, also one that the configuration lacks."""
        expected = {"one": None, "two": None, "three": "does not respond: Connection refused"}
        self.assertEqual(self.read(self.one.url, self.two.url, self.away), expected)
        self.assertEqual(self.read(f"{self.one.url}/"), expected)
        self.assertEqual(self.read(), {})

    def test_noneAnswers(self) -> None:
        """Without a member that lists the others, the URLs of the configuration are named."""
        refused = "does not respond: Connection refused"
        self.assertEqual(self.read(self.away), {self.away: refused})

    def test_unhealthy(self) -> None:
        """A member without a leader, or out of space, and one whose answers are not etcd's."""
        self.one.health = (503, b'{"health":"false","reason":"RAFT NO LEADER"}')
        self.assertEqual(
            self.read(self.one.url, self.two.url)["one"], "is unhealthy RAFT NO LEADER"
        )
        for status, body, expected in (
            (200, b"<html>", "does not respond like etcd"),
            (200, b"[]", "does not respond like etcd"),
            (200, b"{}", "does not respond like etcd"),
            (404, b"", "responds with the status 404"),
        ):
            self.one.health = (status, body)
            self.assertEqual(self.read(self.one.url, self.two.url)["one"], expected)
        self.one.health = HEALTHY
        self.one.members = (404, b"no gateway")
        self.assertEqual(self.read(self.one.url)[self.one.url], "responds with the status 404")
        # The next member lists them.
        self.assertEqual(
            self.read(self.one.url, self.two.url)["one"], "responds with the status 404"
        )

    def test_added(self) -> None:
        """A member that was added and never started is one, beside its URL in the configuration."""
        peer = self.away.replace("127.0.0.1", "127.0.0.9")
        for each in (self.one, self.two):
            each.list(
                ("one", "http://10.0.0.1:2380", self.one.url),
                ("two", "http://10.0.0.2:2380", self.two.url),
                ("", peer, ""),
            )
        client = self.away.replace("127.0.0.1", "127.0.0.9")
        self.assertEqual(
            self.read(self.one.url, self.two.url, client),
            {"one": None, "two": None, peer: "was added but never started"},
        )

    def test_removed(self) -> None:
        """A URL that answers and belongs to no member is named."""
        self.one.list(("one", "http://10.0.0.1:2380", self.one.url))
        self.assertEqual(
            self.read(self.one.url, self.two.url), {"one": None, self.two.url: "is no member"}
        )

    def test_lines(self) -> None:
        """One line each, and a warning if one is missing."""
        healthy = EtcdMember("one", "http://a:1", None)
        self.assertEqual(_etcdLines([healthy]), ["etcd one http://a:1 healthy"])
        self.assertEqual(_etcdLines([]), [])
        [_, second, warning] = _etcdLines([healthy, EtcdMember("", "http://b:1", "is no member")])
        self.assertEqual(second, "etcd without a name http://b:1 is no member")
        self.assertTrue(warning.startswith("warning: 1 of 2 members of etcd are missing: "))
