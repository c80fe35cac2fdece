"""Calls of methods from the console, over each wire of a daemon."""

import json
from http.client import HTTPConnection
from time import monotonic
from typing import Any

from tests.console.fixture import API
from tests.console.gatewayfixture import WIRES, GatewayCase
from tests.support.clients import ROOT, Account
from tests.support.contention import Stopwatch
from tests.support.selection import long
from tests.wire.s3.fixture import eventually


class CallTests(GatewayCase):
    """Calls over all wires."""

    def test_kinds(self) -> None:
        """Each kind of streaming has its result over each wire."""
        texts = [{"text": "a"}, {"text": "ü"}]
        for wire in WIRES:
            self.assertEqual(
                self.results(wire, "echo", {"text": "ü"}), [{"text": "Ü", "protocol": wire}]
            )
            numbers = [{"number": 0}, {"number": 1}, {"number": 2}]
            self.assertEqual(self.results(wire, "count", {"to": 3}), numbers, wire)
            self.assertEqual(self.results(wire, "collect", *texts)[0]["text"], "a ü", wire)
            chatted = self.results(wire, "chat", *texts)
            self.assertEqual([each["text"] for each in chatted], ["A", "Ü"], wire)

    def test_measured(self) -> None:
        """Each line has its milliseconds and its bytes."""
        for wire in WIRES:
            item, end = self.call(wire, "echo", {"text": "abc"})
            self.assertGreater(item["bytes"], 3)
            self.assertTrue(0 < item["ms"] <= end["ms"], (item, end))

    def test_methodTime(self) -> None:
        """The end has the time until the server began, and the time of the method alone."""
        own = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
        for wire in WIRES:
            for metadata in ({}, own):
                _, end = self.call(wire, "echo", {"text": "a"}, metadata=metadata)
                self.assertGreater(end["sendMs"], 0, (wire, end))
                self.assertGreater(end["methodMs"], 0, (wire, end))
                self.assertLessEqual(end["sendMs"] + end["methodMs"], end["ms"] + 0.01, (wire, end))
            _, end = self.call(wire, "echo", {"text": "a"}, metadata={"traceparent": "none"})
            self.assertNotIn("methodMs", end, wire)

    def test_status(self) -> None:
        """An error has one status over all wires, even if they name it differently."""
        names = set()
        for wire in WIRES:
            *_, end = self.call(wire, "echo", {})
            self.assertEqual((end["at"], end["status"]), ("error", 3), (wire, end))
            names.add(end["data"]["error"])
        self.assertEqual(names, {"VALIDATION_ERROR", "INVALID_ARGUMENT"})

    @long("takes seconds")
    def test_slowMethod(self) -> None:
        """The pauses of a method count as its own time, and not as that of its protocol."""
        for wire in WIRES:
            watch = Stopwatch()
            *_, end = self.call(wire, "steps", {})
            most = 500 + watch.waitedSeconds() * 1000
            self.assertGreater(end["methodMs"], 800, (wire, end))
            self.assertLess(end["ms"] - end["methodMs"], most, (wire, end))

    @long("takes seconds")
    def test_streamed(self) -> None:
        """Items are sent as they come."""
        for wire in WIRES:
            # On a busy machine this process may be late for the first.
            self.assertTrue(any(self.secondsAfterFirst(wire) > 0.4 for _ in range(5)), wire)

    def secondsAfterFirst(self, wire: str) -> float:
        """Make a call with pauses; return the time from the first item to the end."""
        body = {"wire": wire, "service": "Probe", "method": "steps", "requests": [{}]}
        connection = HTTPConnection(*self.daemon.address("admin"), timeout=60)
        self.addCleanup(connection.close)
        fields = ROOT.plainHeaders()
        connection.request("POST", API + "gateway/calls", json.dumps(body), fields)
        response = connection.getresponse()
        first = json.loads(response.readline())
        began = monotonic()
        rest = [json.loads(line)["at"] for line in response]
        self.assertEqual(first["at"], "item", wire)
        self.assertEqual(rest, ["item", "item", "end"], wire)
        return monotonic() - began

    def test_tokens(self) -> None:
        """The token of the request counts, never the session's."""
        text = {"text": "a"}
        for wire in WIRES:
            self.assertEqual(self.failure(wire, "private", text), "UNAUTHENTICATED", wire)
            wrong = self.failure(wire, "private", text, token="bad-key")
            self.assertEqual(wrong, "UNAUTHENTICATED", wire)
            right = self.results(wire, "private", text, token="good-key")
            self.assertEqual(right[0]["text"], "A", wire)

    def test_unknown(self) -> None:
        """A method that does not exist is refused by the listener."""
        for wire in WIRES:
            code = self.failure(wire, "none", {})
            self.assertEqual(code, "UNIMPLEMENTED" if wire == "grpc" else "NOT_FOUND", wire)

    def test_invalid(self) -> None:
        """A request that does not fit is refused."""
        for wire in WIRES:
            code = self.failure(wire, "count", {"to": "x"})
            wanted = "INVALID_ARGUMENT" if wire == "grpc" else "VALIDATION_ERROR"
            self.assertEqual(code, wanted, wire)

    @long("takes seconds")
    def test_deadlines(self) -> None:
        """A call ends with its deadline."""
        for wire in WIRES:
            began = monotonic()
            code = self.failure(wire, "slow", {}, deadlineMs=200)
            self.assertEqual(code, "DEADLINE_EXCEEDED", wire)
            self.assertLess(monotonic() - began, 10)

    def test_tooMuch(self) -> None:
        """Of an answer 1,000 items and 1 MiB are shown."""
        for wire in WIRES:
            lines = self.call(wire, "count", {"to": 1500})
            self.assertEqual(len(lines), 1001, wire)
            self.assertEqual(lines[-1]["data"]["error"], "RESPONSE_TOO_LARGE", wire)
            code = self.failure(wire, "large", {})
            self.assertEqual(code, "RESPONSE_TOO_LARGE", wire)

    def test_manyRequests(self) -> None:
        """A stream of many requests arrives whole, except over UDP, where a window limits it."""
        texts = [{"text": "a"}] * 1000
        for wire in WIRES:
            if wire != "udp":
                found = self.results(wire, "collect", *texts)
                self.assertEqual(len(found[0]["text"].split()), 1000, wire)

    def test_metadata(self) -> None:
        """Metadata is sent where a wire has it, and refused where not."""
        colour = {"X-Colour": "blue"}
        for wire in ("http", "websocket", "grpc"):
            found = self.results(wire, "traced", {}, metadata=colour)
            self.assertEqual(found[0]["text"], "blue", wire)
        for wire in ("udp", "tcp"):
            self.assertEqual(self.failure(wire, "traced", {}, metadata=colour), "INVALID_ARGUMENT")
            trace = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
            self.assertEqual(len(self.results(wire, "traced", {}, metadata=trace)), 1)

    def test_smuggling(self) -> None:
        """Metadata cannot change how a request is framed."""
        for name, value in (
            ("Content-Length", "0"),
            ("transfer-encoding", "chunked"),
            ("host", "evil.example"),
            ("x\r\ny", "z"),
            ("x", "a\r\nb: c"),
            ("", "x"),
            ("x", "\u202e"),
        ):
            for wire in ("http", "websocket"):
                code = self.failure(wire, "echo", {"text": "a"}, metadata={name: value})
                self.assertEqual(code, "INVALID_ARGUMENT", (wire, name))

    def test_refusals(self) -> None:
        """What can be no call is refused before it is one."""
        good = {"wire": "http", "service": "Probe", "method": "echo", "requests": [{"text": "a"}]}
        refused: tuple[dict[str, Any], ...] = (
            {"wire": "smtp"},
            {"deadlineMs": 0},
            {"deadlineMs": 60_001},
            {"requests": [{}, {}]},
            {"requests": [{}] * 1001, "method": "collect"},
            {"token": "a\r\nb"},
            {"method": "a\nb"},
            {"other": 1},
        )
        for wrong in refused:
            reply = self.send("POST", "gateway/calls", {**good, **wrong})
            self.assertEqual((reply.status, reply.json["error"]), (400, "INVALID_ARGUMENT"), wrong)
        large = {**good, "requests": [{"text": "x" * (1 << 20)}]}
        self.assertEqual(self.send("POST", "gateway/calls", large).status, 413)

    def test_names(self) -> None:
        """Names are text: they lead to no other path of the listener."""
        for wire in WIRES:
            for name in ("../../x", "a/b", "<b>\u202e", "%2e%2e", "a b?c#d"):
                lines = self.call(wire, name, {})
                self.assertEqual([each["at"] for each in lines], ["error"], (wire, name))
                self.assertIn(lines[0]["data"]["error"], ("NOT_FOUND", "UNIMPLEMENTED"), lines)

    @long("takes a second or more")
    def test_revoked(self) -> None:
        """A call in flight ends with the key that has made it."""
        made = self.send("POST", "keys", {"account": "caller", "role": "admin"}).json
        account = Account(made["accessKey"], made["secretKey"])
        body = {"wire": "tcp", "service": "Probe", "method": "hang", "deadlineMs": 60_000}
        connection = HTTPConnection(*self.daemon.address("admin"), timeout=60)
        self.addCleanup(connection.close)
        fields = account.plainHeaders()
        connection.request("POST", API + "gateway/calls", json.dumps(body), fields)
        response = connection.getresponse()
        self.assertEqual(json.loads(response.readline())["at"], "item")
        began = monotonic()
        self.assertEqual(self.send("DELETE", f"keys/{account.accessKey}").status, 204)
        self.assertEqual(json.loads(response.read())["data"]["error"], "UNAUTHENTICATED")
        self.assertLess(monotonic() - began, 10)

    def test_left(self) -> None:
        """A browser that leaves gives its call up, and its place among those in flight."""
        body = {"wire": "tcp", "service": "Probe", "method": "slow", "deadlineMs": 60_000}
        for _ in range(20):
            connection = HTTPConnection(*self.daemon.address("admin"), timeout=60)
            connection.request("POST", API + "gateway/calls", json.dumps(body), ROOT.plainHeaders())
            connection.close()
        good, began = {**body, "method": "echo", "requests": [{"text": "a"}]}, monotonic()
        self.assertTrue(eventually(lambda: self.send("POST", "gateway/calls", good).status == 200))
        self.assertLess(monotonic() - began, 20)
