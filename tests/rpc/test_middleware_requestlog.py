"""One line for each call."""

from typing import Any

from twisted.internet.defer import Deferred

from storagegate.core.errors import GrpcError, ServiceError
from storagegate.rpc.middleware import GRPCCallRecord, requestLog
from tests.rpc.middlewarecase import NOON, MiddlewareCase, raising

LINE = "2023-11-14T22:13:20.000Z 192.0.2.7:5000 /user.UserService/GetUser"


class LineCase(MiddlewareCase):
    """A case that keeps the lines."""

    def setUp(self) -> None:
        """Keep lines."""
        super().setUp()
        self.lines: list[str] = []

    def log(self, *args: Any, **options: Any) -> Any:
        """Make a request log on the clock of the case."""
        options = {"write": self.lines.append, **options}
        return requestLog(*args, now=self.clock.seconds, monotonic=self.clock.seconds, **options)


class LineTests(LineCase):
    """What a line says."""

    def test_line(self) -> None:
        """A line has when, who, what, how it went and how long it took; it comes at the end."""
        waiting: Deferred[Any] = Deferred()
        answer = self.start(self.log(), handler=lambda: waiting)
        self.clock.advance(0.0125)
        self.assertEqual(self.lines, [])
        waiting.callback("answer")
        self.assertEqual(self.successResultOf(answer), "answer")
        self.assertEqual(self.lines, [f"{LINE} OK 12.500 ms"])

    def test_statuses(self) -> None:
        """Errors pass as they are; the line has the status that they become."""
        for error, status in (
            (GrpcError("NOT_FOUND", "secret"), "NOT_FOUND"),
            (ServiceError("X", "m", 409), "ALREADY_EXISTS"),
            (type("ValidationError", (Exception,), {})(), "INVALID_ARGUMENT"),
            (KeyError("secret"), "INTERNAL"),
        ):
            answer = self.start(self.log(), handler=raising(error))
            self.assertIs(self.failureResultOf(answer).value, error)
            self.assertEqual(self.lines.pop(), f"{LINE} {status} 0.000 ms")

    def test_cancelled(self) -> None:
        """A call whose client left is CANCELLED, also if its handler went on to its end."""
        answer = self.start(self.log(), handler=Deferred)
        answer.cancel()
        self.failureResultOf(answer)
        call = self.makeCall()
        self.start(self.log(), call, self.wire.leave)
        self.assertEqual(self.lines, [f"{LINE} CANCELLED 0.000 ms"] * 2)

    def test_deadline(self) -> None:
        """One whose deadline has come is DEADLINE_EXCEEDED."""
        for deadline, status in ((NOON + 5, "DEADLINE_EXCEEDED"), (NOON + 9, "CANCELLED")):
            self.clock.advance(NOON - self.clock.seconds())
            call = self.makeCall(deadline=deadline)
            answer = self.start(self.log(), call, Deferred)
            self.clock.advance(5)
            answer.cancel()
            self.failureResultOf(answer)
            self.assertEqual(self.lines.pop(), f"{LINE} {status} 5000.000 ms")

    def test_closed(self) -> None:
        """A call that is thrown away in the middle has its line, too."""
        call = self.makeCall()
        coroutine = self.log()(call, Deferred)
        coroutine.send(None)
        coroutine.close()
        self.assertEqual(self.lines, [f"{LINE} CANCELLED 0.000 ms"])

    def test_escaped(self) -> None:
        """What a peer sends ends no line and speaks to no terminal."""
        evil = "a\r\n\x1b[31m\x85\u2028"
        call = self.makeCall(method=evil, service=evil, address="unix:" + evil)
        self.answer(self.log(), call)
        self.answer(self.log(lambda record: record.path + "\n\x00"), call)
        for line in self.lines:
            self.assertEqual(len(line.splitlines()), 1)
            self.assertTrue(line.isprintable(), line)
        self.assertIn("a\\r\\n\\u001b[31m\\u0085\\u2028", self.lines[0])


class FormatTests(LineCase):
    """Lines of another look."""

    def test_text(self) -> None:
        """A format is text with the names of values."""
        self.answer(self.log("{service} {method} {status:>5} {{{durationMs:.0f}}}"))
        self.assertEqual(self.lines, ["user.UserService GetUser    OK {0}"])

    def test_function(self) -> None:
        """Or a function of the record, which may leave calls out."""

        def write(record: GRPCCallRecord) -> str | None:
            return None if record.status == "OK" else f"{record.method} {record.status}"

        self.answer(self.log(write))
        self.failureResultOf(self.start(self.log(write), handler=raising(GrpcError(5))))
        self.assertEqual(self.lines, ["GetUser NOT_FOUND"])

    def test_skipped(self) -> None:
        """Methods of a list, and calls that a function picks, are left out."""
        for skip in (["GetUser"], lambda call: call.method == "GetUser"):
            self.answer(self.log("{method}", skip=skip))
            self.answer(self.log("{method}", skip=skip), self.makeCall("Other"))
        self.assertEqual(self.lines, ["Other"] * 2)

    def test_failing(self) -> None:
        """A log that fails is told of, and does no harm to calls."""
        for options in (
            {"format": raising(ZeroDivisionError())},
            {"write": raising(ZeroDivisionError())},
            {"skip": raising(ZeroDivisionError())},
        ):
            self.assertEqual(self.answer(self.log(**options)), "answer")
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_refused(self) -> None:
        """A format that cannot be is an error at once."""
        for format in ("{user}", "{}", "{0}", "{status", "{status:d}", "{status.x}"):
            self.assertRaises(ValueError, requestLog, format)
        for options in ({"format": 1}, {"write": "stdout"}, {"skip": "GetUser"}):
            self.assertRaises(TypeError, requestLog, **options)


class EventTests(LineCase):
    """Lines in Twisted's log."""

    def test_event(self) -> None:
        """Without somewhere else to go, lines are events with their values beside the text."""
        secret = {"authorization": "Bearer secret", "secret": "secret"}
        call = self.makeCall(**secret)
        call.request = {"password": "secret"}
        self.answer(self.log(write=None), call)
        [event] = self._logEvents
        self.assertEqual(self.logged(), [f"{LINE} OK 0.000 ms"])
        values = {
            name: event[name]
            for name in ("timestamp", "peer", "path", "service", "method", "status", "durationMs")
        }
        self.assertEqual(
            values,
            {
                "timestamp": "2023-11-14T22:13:20.000Z",
                "peer": "192.0.2.7:5000",
                "path": "/user.UserService/GetUser",
                "service": "user.UserService",
                "method": "GetUser",
                "status": "OK",
                "durationMs": 0.0,
            },
        )
        self.assertNotIn("secret", repr(event))
