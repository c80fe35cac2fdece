"""Calls in frames, on TCP connections in memory."""

from typing import Any

from storagegate.gateway.transports.tcp import TCPOptions
from storagegate.gateway.transports.tcp.listener import TCPTransport
from tests.support.gateway import TOKEN, Boom, makeHost
from tests.support.tcp import connect, frame
from tests.support.tcpcases import BAD, FrameCase


class CallTests(FrameCase):
    """The four kinds of calls."""

    def test_result(self) -> None:
        """A result is bare without an id; with one it is beside it, of the type it had."""
        self.client.call("echo", data={"a": [1, "\u00e9"]})
        self.client.call("echo", 5, data={"b": 2})
        self.client.call("echo", "5")
        self.assertReceived(
            (2, {"a": [1, "\u00e9"]}),
            (2, {"id": 5, "data": {"b": 2}}),
            (2, {"id": "5", "data": {}}),
        )

    def test_asReady(self) -> None:
        """Answers with ids come as they are ready, those without in order."""
        self.client.call("slow", data={"seconds": 2})
        self.client.call("echo", data={"n": 1})
        self.client.call("slow", 1, data={"seconds": 1})
        self.client.call("echo", 2)
        self.assertReceived((2, {"id": 2, "data": {}}))
        self.clock.pump([1, 1])
        self.assertReceived(
            (2, {"id": 1, "data": {"seconds": 1}}), (2, {"seconds": 2}), (2, {"n": 1})
        )

    def test_serverStream(self) -> None:
        """Items have type 4, the end 5, with the id if there is one."""
        self.client.call("count", data={"to": 2})
        self.client.call("count", 7, data={"to": 1})
        self.assertReceived(
            (4, {"number": 0}),
            (4, {"number": 1}),
            (5, {}),
            (4, {"id": 7, "data": {"number": 0}}),
            (5, {"id": 7}),
        )

    def test_failedStream(self) -> None:
        """An error takes the place of the end."""
        self.client.call("countAnything", 7, data={"to": 1, "fail": True})
        (item, error) = self.client.received()
        self.assertEqual(item, (4, {"id": 7, "data": {"number": 0}}))
        self.assertEqual(error, (3, {"id": 7, "error": "NOT_FOUND", "message": "no more numbers"}))

    def test_clientStream(self) -> None:
        """Items of a client have type 10, their end 11; the opening frame may have the first."""
        self.client.call("collect", 1, data={"text": "a"})
        self.client.call("collect", 2)
        self.client.send(10, {"id": 2, "data": {"text": "x"}})
        self.client.send(10, {"id": 1, "data": {"text": "b"}})
        self.client.send(11, {"id": 2})
        self.client.send(11, {"id": 1})
        self.assertReceived(
            (2, {"id": 2, "data": {"texts": ["x"]}}), (2, {"id": 1, "data": {"texts": ["a", "b"]}})
        )

    def test_clientStreamWithoutId(self) -> None:
        """Without an id an item is under data, or bare where it has neither data nor id."""
        self.client.call("collect")
        self.client.send(10, {"data": {"text": "a"}})
        self.client.send(10, {"text": "b"})
        self.client.send(11, {})
        self.assertReceived((2, {"texts": ["a", "b"]}))

    def test_bidirectional(self) -> None:
        """Answers come between the items of the client."""
        self.client.call("chat", 1)
        self.client.send(10, {"id": 1, "data": {"text": "a"}})
        self.assertReceived((4, {"id": 1, "data": {"text": "A"}}))
        self.client.send(11, {"id": 1})
        self.assertReceived((4, {"id": 1, "data": {"text": "goodbye"}}), (5, {"id": 1}))

    def test_cancel(self) -> None:
        """After a cancel nothing more comes for its id, and the handler is told."""
        self.client.call("slow", 1)
        self.client.call("slow")
        self.client.call("countAnything", 2, data={"to": 1, "hang": True})
        self.client.received()
        for payload in ({"id": 1}, {}, {"id": 2}, {"id": 3}):
            self.client.send(8, payload)
        self.client.send(10, {"id": 2, "data": 1})
        self.clock.advance(4000)
        self.assertReceived()
        self.assertEqual(self.probe.cancelled, ["slow", "slow", "count"])
        self.assertEqual(self.adapter.listener.calls, 0)

    def test_ping(self) -> None:
        """A pong has what its ping had, whatever that is; a pong itself says nothing."""
        for payload in (b"", b"{}", b"\x00\xff", b"x" * 1024):
            self.client.send(6, payload)
            self.assertReceived((7, payload))
        self.client.send(7, b"\xff")
        self.assertReceived()

    def test_anyPieces(self) -> None:
        """Frames come in any pieces."""
        wire = frame(1, {"service": "Probe", "method": "echo"}) * 3
        for byte in wire:
            self.client.connection.dataReceived(bytes([byte]))
        self.assertReceived((2, {}), (2, {}), (2, {}))

    def test_pipelined(self) -> None:
        """The answers to what came together go out together."""
        before = self.client.transport.writes
        wire = frame(1, {"id": 1, "service": "Probe", "method": "echo"}) * 15
        self.client.connection.dataReceived(wire)
        self.assertEqual(len(self.client.received()), 15)
        self.assertEqual(self.client.transport.writes - before, 1)


class EnvelopeTests(FrameCase):
    """What goes with a request."""

    def test_token(self) -> None:
        """auth.token says who calls."""
        self.client.call("private", 1, auth={"token": TOKEN})
        ((_, payload),) = self.client.received()
        self.assertEqual(payload["data"]["user"], {"sub": "ann"})
        self.client.call("private", 2, auth={"token": "x"})
        self.client.call("private")
        self.assertErrors(("UNAUTHENTICATED", 2), ("UNAUTHENTICATED", None))

    def test_context(self) -> None:
        """The handler knows the wire, the client's address, its trace and its deadline."""
        trace = "0af7651916cd43dd8448eb211c80319c"
        more = {"traceparent": f"00-{trace}-b7ad6b7169203331-01", "deadlineMs": 50}
        self.client.call("whoami", **more)
        self.assertReceived(
            (
                2,
                {
                    "protocol": "tcp",
                    "user": None,
                    "address": "192.0.2.1",
                    "traceId": trace,
                    "hasDeadline": True,
                },
            )
        )

    def test_deadline(self) -> None:
        """deadlineMs ends a call."""
        self.client.call("slow", 1, deadlineMs=50)
        self.clock.advance(0.05)
        self.assertErrors(("DEADLINE_EXCEEDED", 1))
        self.assertEqual(self.probe.cancelled, ["slow"])

    def test_unknownKeys(self) -> None:
        """Keys that nobody knows are ignored."""
        self.client.call("echo", seq=1, data={"a": 1}, type="x", priority=None)
        self.assertReceived((2, {"a": 1}))


class ErrorTests(FrameCase):
    """What goes wrong, and leaves the connection as it was."""

    def test_shape(self) -> None:
        """An error has its code, its message, details if there are any, and the id."""
        self.client.call("fail", 1, data={"code": "ORDER_CLOSED", "details": {"at": 5}})
        self.client.call("fail", data={"code": "ORDER_CLOSED"})
        error = {"error": "ORDER_CLOSED", "message": "as asked"}
        self.assertReceived((3, {"id": 1, **error, "details": {"at": 5}}), (3, error))

    def test_unforeseen(self) -> None:
        """What nobody foresaw says nothing of itself."""
        self.client.call("fail", 1)
        self.assertReceived((3, {"id": 1, "error": "INTERNAL_ERROR", "message": "Internal error"}))
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)

    def test_calls(self) -> None:
        """Calls of nothing, without right, or with a wrong request are refused."""
        self.client.call("nothing", 1)
        self.client.send(1, {"id": 2, "service": "No", "method": "no"})
        self.client.send(1, {"id": 3, "service": ["Probe"], "method": 5})
        self.client.send(1, {"id": 4})
        self.client.call("checked", 5, data={"text": 5})
        self.client.send(
            1,
            {
                "id": 6,
                "service": "Guarded",
                "method": "echo",
                "auth": {"token": TOKEN},
                "data": {"forbidden": True},
            },
        )
        self.assertErrors(
            ("NOT_FOUND", 1),
            ("NOT_FOUND", 2),
            (BAD, 3),
            (BAD, 4),
            ("VALIDATION_ERROR", 5),
            ("PERMISSION_DENIED", 6),
        )

    def test_rateLimit(self) -> None:
        """Who is over the limit is told when to come back."""
        for _ in range(3):
            self.client.call("limited", 1)
        (*served, (type, error)) = self.client.received()
        self.assertEqual([each[0] for each in served], [2, 2])
        self.assertEqual((type, error["error"], error["id"]), (3, "RATE_LIMITED", 1))
        self.assertGreater(error["details"]["retryAfterMs"], 0)

    def test_unreadable(self) -> None:
        """A payload that is no JSON object is an error."""
        for payload in (b"", b"{", b"\xff", b'{"a":NaN}', b"[" * 900, b"[]", b"5", b'"a"', b"null"):
            for type in (1, 8, 11):
                self.client.send(type, payload)
                self.assertErrors((BAD, None))

    def test_badId(self) -> None:
        """An id is text or a whole number."""
        for id in (1.5, True, [], {}, "x" * 129):
            self.client.send(1, {"id": id, "service": "Probe", "method": "echo"})
            self.assertErrors((BAD, None))

    def test_sameId(self) -> None:
        """An id that is in use is refused; the call that has it goes on."""
        self.client.call("slow", 1, data={"seconds": 1})
        self.client.call("echo", 1)
        self.assertErrors((BAD, 1))
        self.clock.advance(1)
        self.assertReceived((2, {"id": 1, "data": {"seconds": 1}}))

    def test_unknownType(self) -> None:
        """A type that clients do not send is an error, with the id if there is one."""
        for type in (0, 2, 3, 4, 5, 9, 12, 13, 255):
            self.client.send(type, {"id": 5})
            self.client.send(type, b"\xff")
            self.assertErrors((BAD, 5), (BAD, None))

    def test_unwritable(self) -> None:
        """A result that JSON cannot carry is an error of ours, and logged; so is an item."""
        for method in ("unwritable", "unwritableItems"):
            self.client.send(1, {"id": 1, "service": "Odd", "method": method})
        item, *_ = received = self.client.received()[1:]
        self.assertEqual(item, (4, {"id": 1, "data": 1}))
        self.assertEqual([type for type, _ in received], [4, 3])
        self.assertEqual(received[1][1]["error"], "INTERNAL_ERROR")
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 2)

    def test_tooLargeResult(self) -> None:
        """A result that no frame of the listener holds is an error."""
        self.client.send(1, {"id": 1, "service": "Odd", "method": "large"})
        self.assertErrors(("RESPONSE_TOO_LARGE", 1))

    def test_transformed(self) -> None:
        """transformError gives another error, or the payload itself."""

        def transform(error: Any, protocol: str) -> Any:
            return {"oops": error.code, "wire": protocol}

        host, _ = makeHost(self.clock, transformError=transform)
        client = connect(TCPTransport(host, TCPOptions()))
        self.addCleanup(client.lose)
        client.call("nothing", 4)
        client.call("nothing")
        shape = {"oops": "NOT_FOUND", "wire": "tcp"}
        self.assertEqual(client.received(), [(3, {"id": 4, **shape}), (3, shape)])
