"""The client for tests of gRPC servers: calls in memory, with their limits and statuses."""

import gc
from datetime import datetime
from pathlib import Path
from typing import Any
from weakref import ref

from twisted.internet.defer import CancelledError
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase

from storagegate import GrpcError, loadProto, server
from storagegate.rpc import ConversionError
from storagegate.rpc.testing import RPCTestClient
from tests.support.log import LogCase

NUMBER = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "text": {"type": "string"}},
}


class ClientTests(SynchronousTestCase):
    """Calls of the four kinds, and their ends."""

    def setUp(self) -> None:
        """Make a server and a client."""
        self.ends: list[str] = []
        self.app = server.grpc().withOptions(grpc={"maxReceiveMessageLength": 1000})

        def method(handler: Any, streaming: str = "none") -> dict[str, Any]:
            return {"handler": handler, "streaming": streaming, "input": NUMBER, "output": NUMBER}

        self.app.addService(
            name="Numbers",
            methods={
                "Double": method(self.double),
                "Wait": method(self.wait),
                "Count": method(self.count, "server"),
                "Sum": method(self.sum, "client"),
                "Echo": method(self.echo, "bidirectional"),
            },
        )
        self.client = RPCTestClient(self.app, address="192.0.2.1")

    async def double(self, request: Any, call: Any) -> Any:
        """Check the request, and answer."""
        if request["n"] < 0:
            raise GrpcError("OUT_OF_RANGE", "below 0")
        call.setTrailers({"peer": call.getPeer()})
        return {"n": 2 * request["n"]}

    async def wait(self, request: Any) -> Any:
        """Answer after some seconds."""
        try:
            await deferLater(self.client.clock, request["n"])
        except CancelledError:
            self.ends.append("cancelled")
            raise
        return {"n": 0}

    async def count(self, request: Any) -> Any:
        """Give numbers, one a second."""
        for n in range(request["n"]):
            await deferLater(self.client.clock, 1)
            yield {"n": n}

    async def sum(self, requests: Any) -> Any:
        """Add numbers."""
        return {"n": sum([request["n"] async for request in requests])}

    async def echo(self, requests: Any) -> Any:
        """Give back what comes."""
        async for request in requests:
            yield request

    def test_unary(self) -> None:
        """A call gives its response; the server knows the client's address."""
        call = self.client.start("Numbers/Double", {"n": 21})
        self.assertEqual(call.response, {"n": 42})
        trailers = self.successResultOf(call.call.trailers())
        self.assertEqual(trailers.get("peer"), ["192.0.2.1:50000"])
        self.assertEqual(self.client.call("/Numbers/double", {"n": 1}), {"n": 2})

    def test_error(self) -> None:
        """An error has its status; a method that is not there is a KeyError."""
        with self.assertRaises(GrpcError) as caught:
            self.client.call("Numbers/Double", {"n": -1})
        self.assertEqual(caught.exception.statusName, "OUT_OF_RANGE")
        self.assertRaises(KeyError, self.client.call, "Numbers/None")
        self.assertRaises(TypeError, self.client.call, "Numbers/Sum", {"n": 1})

    def test_streams(self) -> None:
        """Streams go both ways."""
        self.assertEqual(self.client.call("Numbers/Sum", [{"n": 1}, {"n": 2}]), {"n": 3})
        call = self.client.start("Numbers/Echo")
        for n in (1, 2):
            call.send({"n": n})
            self.client.flush()
            self.assertEqual(call.responses[-1], {"n": n})
        self.assertFalse(call.isDone)
        call.end()
        self.client.flush()
        self.assertTrue(call.isDone)

    def test_lists(self) -> None:
        """A stream of responses is a list, of however many."""
        for size in (0, 1, 2):
            requests = [{"n": n} for n in range(size)]
            self.assertEqual(self.client.call("Numbers/Echo", requests), requests)

    def test_time(self) -> None:
        """Time passes as the test says."""
        call = self.client.start("Numbers/Count", {"n": 3})
        self.client.advance(2)
        self.assertEqual(call.responses, [{"n": 0}, {"n": 1}])
        with self.assertRaisesRegex(AssertionError, "has no response yet"):
            call.response  # noqa: B018
        self.client.advance(1)
        self.assertEqual((call.isDone, len(call.responses)), (True, 3))

    def test_deadline(self) -> None:
        """A deadline ends a call on both sides."""
        call = self.client.start("Numbers/Wait", {"n": 60}, deadlineMs=5000)
        self.client.advance(6)
        assert isinstance(call.error, GrpcError)
        self.assertEqual((call.error.statusName, self.ends), ("DEADLINE_EXCEEDED", ["cancelled"]))

    def test_cancelled(self) -> None:
        """A client that gives up cancels the handler."""
        call = self.client.start("Numbers/Wait", {"n": 60})
        call.cancel()
        self.client.flush()
        assert isinstance(call.error, GrpcError)
        self.assertEqual((call.error.statusName, self.ends), ("CANCELLED", ["cancelled"]))

    def test_tooLong(self) -> None:
        """A request over the limit is refused."""
        with self.assertRaises(GrpcError) as caught:
            self.client.call("Numbers/Sum", [{"n": 1}, {"n": 1, "text": "y" * 2000}])
        self.assertEqual(caught.exception.statusName, "RESOURCE_EXHAUSTED")
        with self.assertRaises(ConversionError):
            self.client.call("Numbers/Sum", [{"unknown": 1}])

    def test_closed(self) -> None:
        """A client that is closed cancels its calls."""
        call = self.client.start("Numbers/Wait", {"n": 60})
        self.client.grpc.close()
        self.client.flush()
        self.assertTrue(call.isDone)
        self.assertEqual(self.app.activeCalls, 0)

    def test_backPressure(self) -> None:
        """A client that does not read lets the server wait."""
        given: list[int] = []

        async def flood(request: Any) -> Any:
            for n in range(10_000):
                given.append(n)
                yield {"n": n}

        self.app.addService(
            name="Floods",
            methods={"Flood": {"handler": flood, "streaming": "server", "output": NUMBER}},
        )
        call = self.client.grpc.service(self.app.services["Floods"])["Flood"]()
        self.client.flush()
        self.assertLess(len(given), 100)
        call.cancel()
        self.client.flush()
        self.assertEqual(self.app.activeCalls, 0)

    def test_freed(self) -> None:
        """What has ended is freed without the garbage collector."""
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        call = self.client.start("Numbers/Double", {"n": 1})
        found = ref(call)
        del call
        self.assertIsNone(found())


PROTO = """
syntax = "proto3";
package notes;
import "google/protobuf/timestamp.proto";
message Why { string reason = 1; }
message Note { string text = 1; google.protobuf.Timestamp at = 2; }
service Notes { rpc Pass (Note) returns (Note); }
"""


class LoadedTests(LogCase):
    """Calls of a service with the messages of a file."""

    def serve(self, handler: Any, **options: Any) -> RPCTestClient:
        """Serve the method of the file, loaded with some options."""
        file = Path(self.mktemp()).with_suffix(".proto")
        file.write_text(PROTO, encoding="utf-8")
        self.loaded = loadProto(file.absolute(), **options)
        app = server.grpc()
        app.addService(self.loaded.Notes, {"pass": handler})
        return RPCTestClient(app)

    def test_keepUnknown(self) -> None:
        """A message that a handler passes on loses no field with C{keepUnknown}."""
        for keepUnknown in (False, True):
            client = self.serve(lambda call: call.request, keepUnknown=keepUnknown)
            newer = self.loaded.Note.FromString(b"\x0a\x01a\x18\x05")
            expected = {"text": "a", **({"@unknown": b"\x18\x05"} if keepUnknown else {})}
            self.assertEqual(client.call("notes.Notes/Pass", newer), expected)

    def test_naive(self) -> None:
        """A moment without a zone is an error of the handler, unless it is said to be in UTC."""
        moment = {"at": datetime(2026, 1, 2)}
        client = self.serve(lambda call: moment, naive="utc")
        at = {"at": "2026-01-02T00:00:00Z"}
        self.assertEqual(client.call("notes.Notes/Pass", {}), at)
        client = self.serve(lambda call: moment)
        error = self.assertRaises(GrpcError, client.call, "notes.Notes/Pass", {})
        self.assertEqual(error.statusName, "INTERNAL")
        self.flushLoggedErrors()
        self.assertRaises(ValueError, self.serve, None, naive="local")

    def test_details(self) -> None:
        """Details have the file's types; one that does not fit ends the call with INTERNAL."""

        for name, status, details in (
            ("reason", "ABORTED", {"@type": "type.googleapis.com/notes.Why", "reason": "r"}),
            ("reasons", "INTERNAL", None),
        ):

            def fail(call: Any, name: str = name) -> Any:
                raise GrpcError("ABORTED", "no", {"@type": "notes.Why", name: "r"})

            error = self.assertRaises(GrpcError, self.serve(fail).call, "notes.Notes/Pass", {})
            self.assertEqual((error.statusName, error.details), (status, details))
        self.assertIn("a detail does not fit notes.Why: reasons: is not a field", self.logged()[-1])
