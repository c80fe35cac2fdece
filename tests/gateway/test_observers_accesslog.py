"""The lines of calls and of requests of S3, written to a sink."""

import io
import json
import time
from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.context import ClientInfo, RequestContext, Tracing
from storagegate.core.errors import ServiceError, codedError
from storagegate.gateway.gateway import createProtocolGateway
from storagegate.gateway.host import GatewayResources
from storagegate.gateway.monitoring import CallLog
from storagegate.s3.observers import NUMBERS, TEXTS, S3Log
from storagegate.telemetry.accesslog import FIELDS, MAX_TEMPLATES, AccessLog, Entry
from storagegate.telemetry.log import LATER_SECONDS, BufferedLogWriter, formatJSON
from tests.gateway.test_gateway import call, echo
from tests.support.log import Sink
from tests.support.s3records import TRACE, makeRecord


def entry(method: str, client: str = "c") -> Entry:
    """Make the entry of a call."""
    return (0.0, "tcp", "S", method, client, 0.001, "ok", TRACE.encode(), (), ())


class SinkCase(SynchronousTestCase):
    """What the cases of this file share."""

    def setUp(self) -> None:
        """Make a sink."""
        self.sink = Sink()

    def only(self) -> Any:
        """Give the one object that was written."""
        [line] = self.sink.lines
        return json.loads(line)


class CallTests(SinkCase):
    """Calls of services."""

    def context(self, client: str = "192.0.2.1:5") -> RequestContext:
        """Make the context of a call."""
        return RequestContext("tcp", "S", "get", ClientInfo(client, "192.0.2.1", 5), Tracing(TRACE))

    def test_fields(self) -> None:
        """A line has the specification's fields and the trace, in this order."""
        CallLog(AccessLog(sink=self.sink), lambda: 1.5).callEnded(self.context(), None, 0.0123456)
        line = self.only()
        self.assertEqual(tuple(line), FIELDS)
        self.assertEqual(
            list(line.values()),
            ["1970-01-01T00:00:01.500Z", "tcp", "S", "get", "192.0.2.1:5", 12.346, "ok", TRACE],
        )

    def test_failed(self) -> None:
        """A call that failed has the error's code for its status."""
        error = codedError("NOT_FOUND", "nothing")
        CallLog(AccessLog(fields=("status",), sink=self.sink)).callEnded(self.context(), error, 1)
        self.assertEqual(self.only(), {"status": "NOT_FOUND"})

    def test_level(self) -> None:
        """The daemon's level decides: calls that went well may be left out, failures stay."""
        log = CallLog(AccessLog(level="debug", fields=("status",), sink=self.sink))
        log.callEnded(self.context(), None, 1)
        log.callEnded(self.context(), codedError("NOT_FOUND", "nothing"), 1)
        self.assertEqual(self.only(), {"status": "NOT_FOUND"})
        self.sink.lowest = 0
        log.callEnded(self.context(), None, 1)
        self.assertEqual(len(self.sink.lines), 2)

    def test_client(self) -> None:
        """What a client is called is one field of one line, whatever it consists of."""
        for form in ("json", "text"):
            client = "a\nb\x1b\u2028\ud800 status=ok" + "x" * 1000
            CallLog(AccessLog(format=form, sink=self.sink)).callEnded(self.context(client), None, 1)
        for line in self.sink.lines:
            self.assertLess(len(line), 600)
            for forbidden in (b"\n", b"\x1b", "\u2028".encode()):
                self.assertNotIn(forbidden, line)
            line.decode()
        self.assertIn(rb'client_id="a\nb', self.sink.lines[1])

    @given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=8))
    def test_anyNames(self, client: str, code: str, trace: str) -> None:
        """
        A line says the same the first time and when its caller is known, whatever the names.

        What is no id of a trace is left out.
        """
        sink = Sink()
        log = CallLog(AccessLog(sink=sink), lambda: 1.5)
        context = self.context(client)
        context.tracing = Tracing(trace)
        for _ in range(2):
            log.callEnded(context, ServiceError(code, "no", 400), 0.001)
        first, second = sink.lines
        self.assertEqual(first, second)
        wanted = formatJSON(
            {
                "timestamp": "1970-01-01T00:00:01.500Z",
                "protocol": "tcp",
                "service": "S",
                "method": "get",
                "client_id": client,
                "duration": 1.0,
                "status": code,
                "trace_id": trace if trace.isalnum() else "",
            }
        )
        self.assertEqual(json.loads(first), json.loads(wanted))
        self.assertEqual(first.count(b"\n"), 0)

    def test_manyClients(self) -> None:
        """Of callers without number only some are remembered, and each is told by its own name."""
        lines = AccessLog(sink=self.sink)
        for number in range(2 * MAX_TEMPLATES + 5):
            lines.write([entry("get", f"c{number}")])
        self.assertLessEqual(len(lines.templates), MAX_TEMPLATES)
        names = [json.loads(line)["client_id"] for line in self.sink.lines]
        self.assertEqual(names, [f"c{number}" for number in range(2 * MAX_TEMPLATES + 5)])

    def test_turn(self) -> None:
        """Lines are put together a little later, many at once, in the order of their calls."""
        clock, output = Clock(), io.BytesIO()
        writer = BufferedLogWriter(output)
        writer.buffer(clock)
        lines = AccessLog(sink=writer)
        for number in range(3):
            lines.write([entry(f"m{number}")])
        self.assertEqual(lines.templates, {})
        clock.advance(LATER_SECONDS)
        lines.write([entry("m3")])
        clock.advance(LATER_SECONDS)
        methods = [json.loads(line)["method"] for line in output.getvalue().splitlines()]
        self.assertEqual(methods, ["m0", "m1", "m2", "m3"])

    def test_counted(self) -> None:
        """Where calls are counted they are logged from the same notes, soon and with their time."""
        clock, output, began = Clock(), io.BytesIO(), time.time()
        writer = BufferedLogWriter(output)
        writer.buffer(clock)
        gateway = createProtocolGateway(surroundings=GatewayResources(logSink=writer))
        gateway.addService("S", methods={"echo": echo}).configureMonitoring(logging={})
        gateway.start()
        self.assertEqual(len(gateway.invoker.observers), 1)
        self.successResultOf(call(gateway))
        self.failureResultOf(call(gateway, method="none"), ServiceError)
        self.assertEqual(output.getvalue(), b"")
        clock.advance(LATER_SECONDS)
        [line] = [json.loads(line) for line in output.getvalue().splitlines()]
        self.assertEqual((line["method"], line["status"]), ("echo", "ok"))
        ended = datetime.fromisoformat(line["timestamp"]).timestamp()
        self.assertTrue(began - 1 < ended < time.time() + 1, line)
        self.assertRegex(line["trace_id"], r"\A[0-9a-f]{32}\Z")
        self.assertEqual(sum(gateway.getMetrics()["requests_total"].values()), 1)

    def test_impossible(self) -> None:
        """A line that cannot be made is told, and costs no other line."""
        impossible: Any = object()
        AccessLog(sink=self.sink).write([(impossible, *entry("m")[1:]), entry("m")])
        self.assertEqual(self.only()["method"], "m")
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)

    def test_path(self) -> None:
        """A call for no method is told by what its caller named, which is not trusted."""
        context = self.context()
        context.metadata["path"] = '/no/"such\nthing'
        for format in ("json", "text"):
            log = CallLog(AccessLog(fields=("status",), format=format, sink=self.sink))
            log.callEnded(context, codedError("NOT_FOUND", "nothing"), 0.0)
        first, second = self.sink.lines
        expected = {"status": "NOT_FOUND", "path": context.metadata["path"]}
        self.assertEqual(json.loads(first), expected)
        self.assertEqual(second.count(b"\n"), 0)

    def test_gateway(self) -> None:
        """A gateway that has a sink logs its calls there."""
        gateway = createProtocolGateway(surroundings=GatewayResources(logSink=self.sink))
        gateway.addService("S", methods={"echo": echo}).configureMonitoring(logging={})
        gateway.start()
        self.successResultOf(call(gateway))
        self.assertEqual(self.only()["method"], "echo")


class S3Tests(SinkCase):
    """Requests of S3."""

    def test_fields(self) -> None:
        """A request has the same fields, and its bytes and access key behind them."""
        exchange = makeRecord(queryString=b"versionId=null", operation="GetObject", seconds=0.002)
        exchange.status, exchange.bytesIn, exchange.bytesOut = 206, 1, 4096
        exchange.accessKey = "AK"
        exchange.bucket, exchange.key = "photos", "a b/\u00fc".encode()
        lines = AccessLog(sink=self.sink, numbers=NUMBERS, texts=TEXTS, hasMembers=True)
        S3Log(lines, now=lambda: 0).observe([exchange])
        self.assertEqual(
            self.only(),
            {
                "timestamp": "1970-01-01T00:00:00.000Z",
                "protocol": "s3",
                "service": "S3",
                "method": "GetObject",
                "client_id": "192.0.2.7",
                "duration": 2.0,
                "status": "206",
                "trace_id": TRACE,
                "status_code": 206,
                "bytes_in": 1,
                "bytes_out": 4096,
                "error_code": "",
                "bucket": "photos",
                "key": "a b/\u00fc",
                "version_id": "null",
                "request_id": "1",
                "access_key": "AK",
                "user_agent": "aws-cli/2 \u00ff",
            },
        )

    def test_refused(self) -> None:
        """A request that was refused before its operation was looked up has it nevertheless."""
        for method, bucket, key, query, expected in (
            (b"GET", "b", b"k", b"", ("GetObject", "b", "k")),
            (b"PUT", "b", b"k", b"partNumber=1&uploadId=u", ("UploadPart", "b", "k")),
            (b"GET", None, None, b"", ("ListBuckets", "", "")),
            (b"DELETE", "b", None, b"policy", ("DeleteBucketPolicy", "b", "")),
            (b"BREW", "b", b"k", b"", ("Unknown", "b", "k")),
            (b"GET", "b", b"k", b"a=1&a=2", ("Unknown", "b", "k")),
        ):
            self.sink.lines.clear()
            log = S3Log(AccessLog(sink=self.sink, numbers=NUMBERS, texts=TEXTS, hasMembers=True))
            record = makeRecord(method=method, queryString=query, errorCode="AccessDenied")
            record.status, record.bucket, record.key = 403, bucket, key
            log.observe([record])
            line = self.only()
            self.assertEqual((line["method"], line["bucket"], line["key"]), expected)
            self.assertEqual((line["status_code"], line["error_code"]), (403, "AccessDenied"))
            self.assertEqual(line["access_key"], "")

    def test_failed(self) -> None:
        """A request that failed has the error's code, and is logged where others are not."""
        lines = AccessLog("debug", sink=self.sink, numbers=NUMBERS, texts=TEXTS, hasMembers=True)
        log = S3Log(lines)
        log.observe(
            [
                makeRecord(operation="GetObject", status=status, errorCode=code)
                for status, code in ((200, None), (404, "NoSuchKey"), (499, None))
            ]
        )
        statuses = [json.loads(line)["status"] for line in self.sink.lines]
        self.assertEqual(statuses, ["NoSuchKey", "499"])
