"""The trace that a call belongs to."""

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.context import Tracing
from storagegate.core.tracing import newTracing, parseTraceparent

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


class NewTracingTests(SynchronousTestCase):
    """A trace that begins here."""

    def test_new(self) -> None:
        """It has an id of its own, no caller's span, and is not recorded by anybody."""
        first, second = newTracing(), newTracing()
        self.assertRegex(first.traceId, r"\A[0-9a-f]{32}\Z")
        self.assertNotEqual(first.traceId, second.traceId)
        self.assertEqual((first.spanId, first.sampled), (None, False))
