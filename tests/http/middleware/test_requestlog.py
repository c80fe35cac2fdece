"""One line for each request."""

import io
import sys
from typing import Any

from twisted.internet.defer import Deferred

from storagegate.http.middleware.requestlog import requestLog
from tests.http.middleware.support import AppCase

ALICE = "Basic YWxpY2U6c2VjcmV0"


class LogCase(AppCase):
    """An application that logs to memory."""

    def setUp(self) -> None:
        """Make the application and its log."""
        super().setUp()
        self.stream = io.StringIO()

    def log(self, format: Any = "tiny", **options: Any) -> None:
        """Install the middleware."""
        self.app.use(requestLog(format, stream=self.stream, **options))
        self.app.get("/", self.hello)

    def lines(self) -> list[str]:
        """Give what has been logged since the last call."""
        lines = self.stream.getvalue().splitlines()
        self.stream.seek(0)
        self.stream.truncate()
        return lines


class FormatTests(LogCase):
    """What is in a line."""

    def test_default(self) -> None:
        """By default a line is in Apache's combined format."""
        self.app.use(requestLog(stream=self.stream))
        self.app.get("/", self.hello)
        self.ask(path="/?a=b", Authorization=ALICE, Referer="http://x/", User_Agent="Test/1")
        self.assertEqual(
            self.lines(),
            [
                '192.0.2.7 - alice [14/Nov/2023:22:13:20 +0000] "GET /?a=b HTTP/1.1" 200 5 '
                '"http://x/" "Test/1"'
            ],
        )

    def test_mounted(self) -> None:
        """A line has the whole path, also below a mount."""
        self.app.use("/a", requestLog("tiny", stream=self.stream))
        self.ask(path="/a/b")
        self.assertEqual(self.lines(), ["GET /a/b 404 50 - 0.000 ms"])

    def test_responseTime(self) -> None:
        """The response time ends with the head, the total time with the response."""
        self.log(":response-time :total-time")

        def answer(req: Any, res: Any) -> None:
            self.clock.advance(0.25)
            res.write("a")
            self.clock.advance(0.5)
            res.end()

        self.app.get("/slow", answer)
        self.ask(path="/slow")
        self.assertEqual(self.lines(), ["250.000 750.000"])

    def test_lengths(self) -> None:
        """The length of a body is logged where it is known, also where it is only a HEAD."""
        self.log(":method :status :res[content-length]")
        self.app.get("/empty", lambda req, res: res.status(204).end())
        self.app.get("/stream", lambda req, res: [res.write("a"), res.end()])
        self.app.get("/known", lambda req, res: [res.header("Content-Length", 1), res.end("a")])
        self.ask()
        self.ask("HEAD")
        for path in ("/empty", "/stream", "/known"):
            self.ask(path=path)
        self.assertEqual(
            self.lines(), ["GET 200 5", "HEAD 200 5", "GET 204 -", "GET 200 -", "GET 200 1"]
        )

    def test_dev(self) -> None:
        """The format for development has colours."""
        self.log("dev")
        self.ask()
        self.ask(path="/missing")
        self.assertEqual(
            self.lines(),
            [
                "GET / \x1b[32m200\x1b[0m 5 - 0.000 ms",
                "GET /missing \x1b[33m404\x1b[0m 54 - 0.000 ms",
            ],
        )

    def test_function(self) -> None:
        """A function may write the line, or none; it stays one line."""
        self.log(lambda req, res: None if req.path == "/" else f"{res.statusCode}\n{req.get('x')}")
        self.ask()
        self.ask(path="/a", X="\x85b")
        self.assertEqual(self.lines(), ["404\\n\\u0085b"])

    def test_attack(self) -> None:
        """A client cannot end a line, close its quotes or speak to the terminal."""
        self.log("combined")
        self.ask(User_Agent='x" 200\x9b31m \x85', Referer="\\")
        self.assertEqual(
            self.lines(),
            [
                '192.0.2.7 - - [14/Nov/2023:22:13:20 +0000] "GET / HTTP/1.1" 200 5 '
                '"\\\\" "x\\" 200\\u009b31m \\u0085"'
            ],
        )


class WhenTests(LogCase):
    """When a line is written."""

    def test_atTheEnd(self) -> None:
        """A line is written when the response is over, and once."""
        self.log()
        waiting: list[Any] = []
        self.app.get("/later", lambda req, res: waiting.append(res))
        client = self.connect()
        client.send("GET", "/later", {})
        self.assertEqual(self.lines(), [])
        waiting[0].send("late")
        self.assertEqual(self.lines(), ["GET /later 200 4 - 0.000 ms"])
        client.lose()
        self.assertEqual(self.lines(), [])

    def test_lost(self) -> None:
        """A client that goes away before the answer logs no status, and once."""
        self.log()
        waiting: list[Any] = []
        self.app.get("/later", lambda req, res: waiting.append(res))
        client = self.connect()
        client.send("GET", "/later", {})
        client.lose()
        self.assertEqual(self.lines(), ["GET /later - - - - ms"])
        waiting[0].send("late")
        self.assertEqual(self.lines(), [])

    def test_lostMidway(self) -> None:
        """A client that goes away during the answer logs no status: it did not get it."""
        self.log()
        self.app.get("/half", lambda req, res: res.write("half"))
        client = self.connect()
        client.send("GET", "/half", {})
        client.lose()
        self.assertEqual(self.lines(), ["GET /half - - - 0.000 ms"])

    def test_errors(self) -> None:
        """A handler that fails is logged as what the client sees."""

        def fail(req: Any, res: Any) -> None:
            raise ZeroDivisionError

        self.log(":status")
        self.app.get("/fail", fail)
        self.ask(path="/fail")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(self.lines(), ["500"])

    def test_immediate(self) -> None:
        """A request may be logged when it comes, with nothing of its answer."""
        self.log(immediate=True)
        self.app.get("/later", lambda req, res: Deferred())
        self.connect().send("GET", "/later", {})
        self.assertEqual(self.lines(), ["GET /later - - - - ms"])
        self.ask()
        self.assertEqual(self.lines(), ["GET / - - - - ms"])

    def test_skip(self) -> None:
        """Requests can be left out, also for what their answer was."""
        self.log(":url", skip=lambda req, res: res.statusCode < 400)
        self.ask()
        self.ask(path="/missing")
        self.assertEqual(self.lines(), ["/missing"])


class OutputTests(LogCase):
    """Where lines go."""

    def test_standardOutput(self) -> None:
        """Without a stream, lines go to what is the standard output at the time."""
        self.app.use(requestLog(":method"))
        self.patch(sys, "stdout", self.stream)
        self.ask()
        self.assertEqual(self.lines(), ["GET"])

    def test_brokenStream(self) -> None:
        """A stream that fails harms no request, and is told of once until it works again."""
        self.log()
        self.stream.close()
        for _ in range(3):
            self.assertEqual(self.ask().body, b"hello")
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_recovered(self) -> None:
        """A stream that works again is told of again when it fails again."""

        class Full:
            failing = True

            def write(self, line: str) -> None:
                if self.failing:
                    raise OSError("no space left")

        stream = Full()
        self.app.use(requestLog("tiny", stream=stream))
        for failing in (True, False, True, True):
            stream.failing = failing
            self.ask()
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 2)

    def test_brokenFormat(self) -> None:
        """A function that fails, for the line or for leaving out, harms no request."""

        def fail(req: Any, res: Any) -> str:
            raise ZeroDivisionError

        for options in ({"format": fail}, {"skip": fail}, {"format": fail, "immediate": True}):
            self.app = self.makeApp()
            self.log(**options)
            self.assertEqual(self.ask().body, b"hello")
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_brokenFormatOfLost(self) -> None:
        """A line that cannot be written takes nothing from those who wait for a lost client."""

        def fail(req: Any, res: Any) -> str:
            raise ZeroDivisionError

        told: list[bool] = []
        self.log(fail)
        self.app.get("/later", lambda req, res: req.on("close", lambda: told.append(True)))
        client = self.connect()
        client.send("GET", "/later", {})
        client.lose()
        self.assertEqual(told, [True])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_setUp(self) -> None:
        """A format that is none, and options of another kind, are errors at once."""
        self.assertRaises(ValueError, requestLog, "combned")
        self.assertRaises(ValueError, requestLog, ":methd")
        self.assertRaises(TypeError, requestLog, None)
        self.assertRaises(TypeError, requestLog, lambda: "")
        self.assertRaises(TypeError, requestLog, stream="log.txt")
        self.assertRaises(TypeError, requestLog, skip=True)
