"""The trace that a call belongs to."""

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.context import Tracing
from storagegate.telemetry.tracecontext import (
    formatTraceparent,
    forwardedTracing,
    namedTracing,
    newSpanId,
    newTraceId,
    newTracing,
    parseTraceparent,
    receiveTracing,
)

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


class TraceparentTests(SynchronousTestCase):
    """C{traceparent}, W3C Trace Context section 3.2."""

    def test_read(self) -> None:
        """The caller's trace and span are known, and whether it records them."""
        for flags, sampled in (("01", True), ("00", False), ("02", False), ("03", True)):
            self.assertEqual(
                parseTraceparent(f"00-{TRACE}-{SPAN}-{flags}"), Tracing(TRACE, SPAN, sampled)
            )

    def test_newer(self) -> None:
        """Of a newer version what this one has is read, whatever follows it."""
        for rest in ("", "-", "-what comes later"):
            self.assertEqual(
                parseTraceparent(f"cc-{TRACE}-{SPAN}-01{rest}"), Tracing(TRACE, SPAN, True)
            )

    def test_refused(self) -> None:
        """What is none is none: it is not half of one."""
        for text in (
            "",
            "00",
            f"00-{TRACE}-{SPAN}",
            f"00-{TRACE}-{SPAN}-1",
            f"00-{TRACE}-{SPAN}-01-more",
            f"00-{TRACE}-{SPAN}-01\n",
            f" 00-{TRACE}-{SPAN}-01",
            f"00-{TRACE.upper()}-{SPAN}-01",
            f"00-{TRACE[1:]}-{SPAN}-01",
            f"00-{TRACE}-{SPAN}0-01",
            f"00-{'0' * 32}-{SPAN}-01",
            f"00-{TRACE}-{'0' * 16}-01",
            f"ff-{TRACE}-{SPAN}-01",
            f"cc-{TRACE}-{SPAN}-01more",
            f"00-{TRACE[1:]}\u0663-{SPAN}-01",
        ):
            self.assertIsNone(parseTraceparent(text), text)

    @given(st.text() | st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}.*"))
    @example(f"00-{TRACE}-{SPAN}-01")
    def test_any(self, text: str) -> None:
        """Any text is a trace of the right form, or none."""
        tracing = parseTraceparent(text)
        if tracing is not None:
            self.assertRegex(tracing.traceId, r"\A[0-9a-f]{32}\Z")
            self.assertRegex(tracing.spanId or "", r"\A[0-9a-f]{16}\Z")
            self.assertIn(f"-{tracing.traceId}-{tracing.spanId}-", text)


class StateTests(SynchronousTestCase):
    """C{tracestate}, section 3.3: it is handed on as it came."""

    def test_kept(self) -> None:
        """It stays with the trace that it came with."""
        for state in ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "a=1", "x" * 512):
            tracing = parseTraceparent(f"00-{TRACE}-{SPAN}-01", state)
            self.assertEqual(tracing, Tracing(TRACE, SPAN, True, state))

    def test_dropped(self) -> None:
        """What is too long, or no field of a header could carry, is left out, and that alone."""
        for state in ("x" * 513, "a=1\r\nX-Evil: 1", "a=\u20ac", "a=1\n", "\0"):
            tracing = parseTraceparent(f"00-{TRACE}-{SPAN}-01", state)
            self.assertEqual(tracing, Tracing(TRACE, SPAN, True))

    def test_alone(self) -> None:
        """Without a trace there is none."""
        self.assertIsNone(parseTraceparent("", "a=1"))
        self.assertEqual(receiveTracing("00-no", "a=1", TRACE), Tracing(TRACE))


class ReceivedTests(SynchronousTestCase):
    """What a wire hands over."""

    def test_order(self) -> None:
        """C{traceparent} wins over the id of a trace; its digits become small."""
        parent = f"00-{TRACE}-{SPAN}-01"
        self.assertEqual(receiveTracing(parent, "a=1", "1" * 32), Tracing(TRACE, SPAN, True, "a=1"))
        self.assertEqual(receiveTracing(None, None, TRACE.upper()), Tracing(TRACE))

    @given(
        st.none() | st.integers() | st.text(),
        st.none() | st.integers() | st.text(),
        st.none() | st.integers() | st.text() | st.from_regex(r"[0-9a-fA-F]{30,34}"),
    )
    @example(f"00-{TRACE}-{SPAN}-01", 5, "0" * 32)
    @example(None, None, "0" * 32)
    @example([], {}, b"")
    def test_any(self, traceparent: object, state: object, traceId: object) -> None:
        """Whatever it is, the call has a trace."""
        tracing = receiveTracing(traceparent, state, traceId)
        self.assertRegex(tracing.traceId, r"\A[0-9a-f]{32}\Z")
        self.assertNotEqual(tracing.traceId, "0" * 32)
        self.assertRegex(tracing.state, r"\A[ -~]{0,512}\Z")


class FormatTests(SynchronousTestCase):
    """What goes out."""

    def test_parent(self) -> None:
        """The parent is the call's own span, else the caller's, else a new one."""
        own = "1111111111111111"
        self.assertEqual(
            formatTraceparent(Tracing(TRACE, SPAN, True, "", own)), f"00-{TRACE}-{own}-01"
        )
        self.assertEqual(formatTraceparent(Tracing(TRACE, SPAN)), f"00-{TRACE}-{SPAN}-00")
        self.assertRegex(
            formatTraceparent(Tracing(TRACE)), rf"\A00-{TRACE}-(?!0{{16}})[0-9a-f]{{16}}-00\Z"
        )

    @given(st.booleans(), st.booleans(), st.from_regex(r"[ -~]{0,512}", fullmatch=True))
    def test_back(self, isSampled: bool, hasOwn: bool, state: str) -> None:
        """What is written is read again."""
        tracing = Tracing(TRACE, SPAN, isSampled, state, newSpanId() if hasOwn else None)
        self.assertEqual(
            parseTraceparent(formatTraceparent(tracing), state),
            Tracing(TRACE, tracing.ownId or SPAN, isSampled, state),
        )

    def test_forwarded(self) -> None:
        """A forwarded call is a child of the one that came in, each attempt another one."""
        tracing = Tracing(TRACE, SPAN, True, "a=1", newSpanId())
        one, other = forwardedTracing(tracing), forwardedTracing(tracing)
        self.assertEqual((one.traceId, one.spanId), (TRACE, tracing.ownId))
        self.assertEqual((one.sampled, one.state), (True, "a=1"))
        self.assertNotEqual(one.ownId, other.ownId)
        self.assertEqual(forwardedTracing(Tracing(TRACE, SPAN)).spanId, SPAN)


class NewTracingTests(SynchronousTestCase):
    """A trace that begins here."""

    def test_ids(self) -> None:
        """Ids are made many at a time, whole and each of them once."""
        ids = [newTraceId() for _ in range(1000)]
        self.assertEqual(len(set(ids)), 1000)
        for each in ids:
            self.assertRegex(each, rb"\A[0-9a-f]{32}\Z")

    def test_unnamed(self) -> None:
        """A request that names no trace has none of its caller's."""
        self.assertIsNone(namedTracing({b"tracestate": b"a=b"}))
        self.assertEqual(namedTracing({b"x-trace-id": TRACE.encode()}), Tracing(TRACE))

    def test_new(self) -> None:
        """It has an id of its own, no caller's span, and is not recorded by anybody."""
        first, second = newTracing(), newTracing()
        self.assertRegex(first.traceId, r"\A[0-9a-f]{32}\Z")
        self.assertNotEqual(first.traceId, second.traceId)
        self.assertEqual((first.spanId, first.sampled), (None, False))
