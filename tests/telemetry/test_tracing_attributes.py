"""What can be an attribute of a span."""

import math

from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack
from twisted.trial.unittest import SynchronousTestCase

from storagegate.telemetry.tracing import (
    MAX_ATTRIBUTES,
    MAX_ITEMS,
    MAX_TEXT,
    CallSpan,
    ExchangeRecord,
    ForwardRecord,
    attemptAttributes,
    callAttributes,
    readAttributes,
    requestAttributes,
)

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()


class ReadTests(SynchronousTestCase):
    """What users give."""

    def test_taken(self) -> None:
        """Text, numbers, truth values and lists of one of these kinds stay as they are."""
        given = {"a": "b", "c": 1, "d": 1.5, "e": True, "f": ["x", "y"], "g": [1, 2], "h": [True]}
        self.assertEqual(readAttributes(given), given)
        self.assertEqual(readAttributes({"a": (1, 2)}), {"a": [1, 2]})

    def test_dropped(self) -> None:
        """What is none of these is left out, and nothing else."""
        for wrong in (None, object(), b"x", {"a": 1}, [], [1, "a"], [1, True], [[1]], [None]):
            self.assertEqual(readAttributes({"wrong": wrong, "a": 1}), {"a": 1})
        for huge in (1 << 63, -(1 << 63) - 1, [1 << 63]):
            self.assertEqual(readAttributes({"wrong": huge, "a": 1}), {"a": 1})
        self.assertEqual(readAttributes({5: 1, "": 1, None: 1}), {})

    def test_bounds(self) -> None:
        """Nothing is longer than it may be."""
        found = readAttributes({"a": "x" * 5000, "n" * 5000: 1, "l": list(range(5000))})
        self.assertEqual(len(found["a"]), MAX_TEXT)
        self.assertEqual(found["n" * MAX_TEXT], 1)
        self.assertEqual(len(found["l"]), MAX_ITEMS)
        many = {str(number): number for number in range(1000)}
        self.assertEqual(len(readAttributes(many)), MAX_ATTRIBUTES)

    def test_text(self) -> None:
        """Text that has no form in UTF-8 gets one: it would cost all that is sent with it."""
        self.assertEqual(readAttributes({"\ud800": ["\udfff"]}), {"?": ["?"]})

    @given(
        st.dictionaries(_SCALARS.filter(lambda each: each == each), _SCALARS | st.lists(_SCALARS))
    )
    def test_any(self, given: dict[object, object]) -> None:
        """Whatever is given, what is taken goes through the pipe."""
        found = readAttributes(given)
        again = msgpack.decode(msgpack.encode(found))
        self.assertEqual(set(again), set(found))
        for name, value in found.items():
            if not isinstance(value, float) or not math.isnan(value):
                self.assertEqual(repr(again[name]), repr(value))


class ConventionTests(SynchronousTestCase):
    """The names of attributes."""

    def test_call(self) -> None:
        """A call of a service is told as an RPC; a user cannot say what it was."""
        record = CallSpan(
            "http", "S", "m", "::1", 5, "curl", "NOT_FOUND", 404, {"a": 1, "rpc.method": "x"}
        )
        expected = {
            "rpc.system.name": "storagegate",
            "rpc.method": "S/m",
            "storagegate.protocol": "http",
            "client.address": "::1",
            "client.port": 5,
            "http.response.status_code": 404,
            "user_agent.original": "curl",
            "error.type": "NOT_FOUND",
            "a": 1,
        }
        self.assertEqual(callAttributes(record), expected)

    def test_message(self) -> None:
        """What a wire does not have is not told."""
        record = CallSpan("udp", "S", "m", "127.0.0.1", 0, None, None, 200, None)
        expected = {
            "rpc.system.name": "storagegate",
            "rpc.method": "S/m",
            "storagegate.protocol": "udp",
            "client.address": "127.0.0.1",
        }
        self.assertEqual(callAttributes(record), expected)

    def test_exchange(self) -> None:
        """A request of S3 is told as one of HTTP."""
        record = ExchangeRecord(
            "PutObject", b"PUT", b"/b/\xff", "::1", True, 403, "AccessDenied", 7, 9, "ID"
        )
        found = requestAttributes(record)
        self.assertEqual(found["url.path"], "/b/\xff")
        self.assertEqual(found["url.scheme"], "https")
        self.assertEqual(found["error.type"], "AccessDenied")
        self.assertEqual(
            (found["http.request.body.size"], found["rpc.method"]), (7, "S3/PutObject")
        )
        lost = record._replace(status=499, error=None)
        self.assertEqual(requestAttributes(lost)["error.type"], "499")

    def test_forward(self) -> None:
        """A forwarded call says who was asked."""
        found = attemptAttributes(ForwardRecord("S", "m", "10.0.0.1", 80, "UNAVAILABLE"))
        self.assertEqual((found["server.address"], found["server.port"]), ("10.0.0.1", 80))
        self.assertEqual((found["rpc.method"], found["error.type"]), ("S/m", "UNAVAILABLE"))
