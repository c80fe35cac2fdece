"""The load programs: their input, and their reports. Nothing is timed."""

import json
import struct
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from bench import loads
from bench.cases import MeasureError
from bench.gateway import recipe as gateway
from bench.grpc.recipe import MESSAGE, PROTO, framed
from bench.http.recipe import ECHO, ECHO_SIZE, HELLO, lastRoute
from bench.instructions import readTotal
from bench.processes import Answer
from storagegate.gateway.messages.frames import REQUEST, decodeFrame
from storagegate.rpc import loadProto

WRK = (
    b"Running 1s test\n\n"
    b'{"requests":%d,"seconds":2.0,"received":%d,"p50Ms":1.5,"p99Ms":4.0,'
    b'"errors":{"connect":0,"read":0,"write":0,"status":%d,"timeout":0}}\n'
)
H2LOAD = (
    b"finished in 2.00s, 50.00 req/s, 1KB/s\n"
    b"requests: 100 total, 100 started, 100 done, %d succeeded, %d failed, 0 errored\n"
    b"traffic: 2KB (2000) total, 1KB (1000) headers (space savings 0%%), 3KB (%d) data\n"
)
LOG = "".join(f"1\t200\t{micros}\n" for micros in range(1000, 101_000, 1000))


class WrkTests(SynchronousTestCase):
    """The report of wrk."""

    def test_requests(self) -> None:
        """Small answers are counted one by one."""
        seen = loads.readWrk(WRK % (100, 2000, 0), 13, 0.5)
        self.assertEqual((seen.requests, seen.seconds, seen.received), (100, 2.0, 2000))
        self.assertEqual((seen.p50Ms, seen.p99Ms, seen.clientSeconds), (1.5, 4.0, 0.5))
        self.assertEqual(seen.fault, "")

    def test_large(self) -> None:
        """Large answers are counted by their bytes."""
        self.assertEqual(loads.readWrk(WRK % (1, 5 << 20, 0), 2 << 20).requests, 2.5)

    def test_faults(self) -> None:
        """Errors, short answers and a run without one make the measurement invalid."""
        for counts, fault in (
            ((100, 2000, 3), "3 errors of status"),
            ((0, 0, 0), "no answer was complete within 2.0 s"),
            ((100, 1299, 0), "answers were short"),
        ):
            self.assertEqual(loads.readWrk(WRK % counts, 13).fault, fault)
        self.assertRaises(RuntimeError, loads.readWrk, b"unable to connect", 0)


class H2loadTests(SynchronousTestCase):
    """The report of h2load."""

    def test_messages(self) -> None:
        """Messages are counted, also those of calls that the end cut off."""
        seen = loads.readH2load(H2LOAD % (100, 0, 3000), LOG, 30, 10)
        self.assertEqual((seen.requests, seen.seconds), (300, 2.0))
        self.assertEqual((seen.p50Ms, seen.p99Ms, seen.fault), (51.0, 100.0, ""))

    def test_units(self) -> None:
        """A run of less than a second is reported in milliseconds or microseconds."""
        for text, seconds in ((b"998.50ms", 0.9985), (b"250.00us", 0.00025)):
            report = (H2LOAD % (100, 0, 3000)).replace(b"2.00s", text)
            self.assertEqual(loads.readH2load(report, LOG, 30, 10).seconds, seconds)

    def test_faults(self) -> None:
        """Failed calls, and short answers, make the measurement invalid."""
        found = loads.readH2load(H2LOAD % (98, 2, 3000), LOG, 30, 10)
        self.assertEqual(found.fault, "2 of 100 calls failed")
        found = loads.readH2load(H2LOAD % (100, 0, 2999), LOG, 30, 10)
        self.assertEqual(found.fault, "answers were short")
        self.assertRaises(RuntimeError, loads.readH2load, b"nothing", "", 1, 1)


class TLSloadTests(SynchronousTestCase):
    """The report of tlsload."""

    REPORT = (
        b'{"calls": 100, "wrong": %d, "full": %d, "seconds": 2.0, "received": 4096,'
        b' "p50Ms": 1.5, "p99Ms": 4.0}'
    )

    def test_resumed(self) -> None:
        """Requests are counted if each connection resumed its session."""
        seen = loads.readTLSload(self.REPORT % (0, 0), 0.5)
        self.assertEqual((seen.requests, seen.seconds, seen.received), (100, 2.0, 4096))
        self.assertEqual((seen.p50Ms, seen.p99Ms, seen.clientSeconds), (1.5, 4.0, 0.5))
        self.assertEqual(seen.fault, "")

    def test_faults(self) -> None:
        """Wrong answers, and full handshakes, make the measurement invalid."""
        found = loads.readTLSload(self.REPORT % (2, 0))
        self.assertEqual(found.fault, "2 of 100 answers were wrong")
        found = loads.readTLSload(self.REPORT % (0, 3))
        self.assertEqual(found.fault, "3 of 100 connections did not resume their session")


class RecordTests(SynchronousTestCase):
    """The requests of blast, and the report of a program that measures itself."""

    def test_record(self) -> None:
        """A record is tag, sizes and head; a HEAD has a bit of its own."""
        put = loads.Record(b"head", 7, tag=1).encode()
        self.assertEqual(put, struct.pack("<IIQ", 1, 4, 7) + b"head")
        head = loads.Record(b"", isHead=True).encode()
        self.assertEqual(head, struct.pack("<IIQ", 256, 0, 0))

    def test_report(self) -> None:
        """Times are sorted; the printed report is read back."""
        times = [number / 1000 for number in range(100, 0, -1)]
        seen = loads.report(times, 2.0, 0.5, 700)
        self.assertEqual((seen.requests, seen.p50Ms, seen.p99Ms), (100, 51.0, 100.0))
        self.assertEqual(json.loads(loads.prints(seen))["serverSeconds"], 0.5)

    def test_instructions(self) -> None:
        """The total of a file of callgrind is read; a file without one is refused."""
        path = Path(self.mktemp())
        path.write_text("events: Ir\nsummary: 1234\n")
        self.assertEqual(readTotal(path), 1234)
        path.write_text("events: Ir\n")
        self.assertRaises(MeasureError, readTotal, path)


class PageTests(SynchronousTestCase):
    """The pages of the HTTP cases, and their right answers."""

    def test_right(self) -> None:
        """A right answer passes, and so does JSON in another spelling."""
        HELLO.check(Answer(200, "text/plain", b"Hello, World!"), Path())
        page = lastRoute(10)
        self.assertEqual(page.target, "/r9/abc")
        page.check(Answer(200, "application/json", b'{"id": "abc", "route": 9}'), Path())

    def test_wrong(self) -> None:
        """Another status, type or body is refused."""
        for answer in (
            Answer(404, "text/plain", b"Hello, World!"),
            Answer(200, "text/html", b"Hello, World!"),
            Answer(200, "text/plain", b"Hello"),
        ):
            self.assertRaises(MeasureError, HELLO.check, answer, Path())
        broken = Answer(200, "application/json", b"{")
        self.assertRaises(MeasureError, lastRoute(10).check, broken, Path())

    def test_echo(self) -> None:
        """The posted document has the size that it says."""
        self.assertEqual(len(ECHO.posted), ECHO_SIZE)


class MessageTests(SynchronousTestCase):
    """The messages of gRPC and of the gateway."""

    def test_sizes(self) -> None:
        """The JSON of every transport has 128 bytes; gRPC has the same text."""
        self.assertEqual((len(gateway.POSTED), len(gateway.CALL)), (128, 128))
        proto = loadProto(PROTO)
        note = proto.Note.FromString(gateway.NOTE)
        self.assertEqual((note.text, note.copies), (gateway.TEXT, 0))
        note = proto.Note.FromString(MESSAGE)
        self.assertEqual((note.text, note.copies), ("hello, hello, hello!", 1000))
        self.assertEqual(framed(b"abc"), b"\0\0\0\0\x03abc")

    def test_frame(self) -> None:
        """TCP and UDP have the call as a frame, with ten digits to count in."""
        frame = decodeFrame(gateway.FRAME, 1000)
        self.assertEqual((frame.type, frame.payload), (REQUEST, gateway.CALL))
        self.assertEqual(gateway.FRAME.count(b"0000000000"), 1)

    def test_message(self) -> None:
        """A WebSocket has it as masked text."""
        head, key, masked = gateway.MESSAGE[:4], gateway.MESSAGE[4:8], gateway.MESSAGE[8:]
        self.assertEqual(head, b"\x81\xfe\x00\x80")
        text = bytes(byte ^ key[index % 4] for index, byte in enumerate(masked))
        self.assertEqual(text, gateway.CALL)
