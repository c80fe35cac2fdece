"""What is decided and recorded in the reactor's thread."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.context import ClientInfo, RequestContext, Tracing
from storagegate.core.errors import codedError
from storagegate.telemetry.tracecontext import forwardedTracing, newTracing
from storagegate.telemetry.tracing import (
    CallSpan,
    CallTracer,
    ForwardRecord,
    Record,
    Recorder,
    SpanTiming,
    Tracer,
    readRecord,
)
from tests.support.delayed import TurnedReactor

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


class KeptRecorder(Recorder):
    """Keeps what is put in."""

    def __init__(self) -> None:
        super().__init__(lambda: None, TurnedReactor())  # type: ignore[arg-type, return-value]
        self.kept: list[tuple[SpanTiming, Record]] = []

    def put(self, record: Any) -> None:
        """Keep a record as the other process reads it."""
        self.kept.append(readRecord(list(record)))


class TracerCase(SynchronousTestCase):
    """Tracers whose records are kept."""

    def setUp(self) -> None:
        """Make the recorder."""
        self.recorder = KeptRecorder()

    def tracer(self, sampleRatio: float = 1.0, spanAttributes: Any = None) -> Tracer:
        """Make a tracer."""
        return Tracer(self.recorder, sampleRatio, spanAttributes)

    def context(self, tracing: Tracing) -> RequestContext:
        """Make the context of a call."""
        client = ClientInfo("c", "127.0.0.1", 5000, "agent" * 100)
        return RequestContext("tcp", "S", "m", client, tracing)

    def call(self, tracer: Tracer, tracing: Tracing, error: Any = None) -> RequestContext:
        """Begin and end a call."""
        observer, context = CallTracer(tracer), self.context(tracing)
        observer.began(context)
        observer.ended(context, error, 0.25)
        return context


class SamplingTests(TracerCase):
    """Which calls are recorded."""

    def test_parent(self) -> None:
        """What the caller says holds, whatever the ratio."""
        for ratio in (0.0, 1.0):
            tracer = self.tracer(ratio)
            for isSampled in (True, False):
                tracing = tracer.decide(Tracing(TRACE, SPAN, isSampled, "a=1"))
                self.assertEqual(tracing.sampled, isSampled)
                self.assertEqual(tracing.ownId is not None, isSampled)
                self.assertEqual(
                    (tracing.traceId, tracing.spanId, tracing.state), (TRACE, SPAN, "a=1")
                )

    def test_root(self) -> None:
        """Of the others the ratio is recorded, and by the id of the trace: everywhere the same."""
        one, other = self.tracer(0.25), self.tracer(0.25)
        tracings = [newTracing() for _ in range(4000)]
        decided = [one.decide(tracing).sampled for tracing in tracings]
        self.assertEqual(decided, [other.decide(tracing).sampled for tracing in tracings])
        # Five times the deviation that chance has.
        self.assertTrue(860 < sum(decided) < 1140, sum(decided))
        self.assertEqual({self.tracer(1).decide(each).sampled for each in tracings}, {True})
        self.assertEqual({self.tracer(0).decide(each).sampled for each in tracings}, {False})

    def test_extremes(self) -> None:
        """The highest id is recorded at 1, the lowest not at 0."""
        self.assertTrue(self.tracer(1).decide(Tracing("f" * 32)).sampled)
        self.assertFalse(self.tracer(0).decide(Tracing("1" + "0" * 31)).sampled)

    def test_unrecorded(self) -> None:
        """A call that is not recorded costs nothing: its trace stays the same, nothing is put."""
        tracing = Tracing(TRACE, SPAN)
        context = self.call(self.tracer(), tracing)
        self.assertIs(context.tracing, tracing)
        self.assertEqual(self.recorder.kept, [])


class RecordTests(TracerCase):
    """What is kept."""

    def test_call(self) -> None:
        """A call's place in the trace, and what it was."""
        context = self.call(self.tracer(), Tracing(TRACE, SPAN, True, "a=1"))
        [(place, record)] = self.recorder.kept
        self.assertEqual(place[:4], (TRACE, context.tracing.ownId, SPAN, "a=1"))
        self.assertEqual(place.seconds, 0.25)
        self.assertEqual(
            record,
            CallSpan("tcp", "S", "m", "127.0.0.1", 5000, ("agent" * 100)[:256], None, 200, None),
        )

    def test_error(self) -> None:
        """Of an error its code and status, and nothing of its text."""
        self.call(self.tracer(), newTracing(), codedError("NOT_FOUND", "secret"))
        [(_place, record)] = self.recorder.kept
        self.assertEqual((record.error, record[-2]), ("NOT_FOUND", 404))
        self.assertNotIn("secret", repr(record))

    def test_forwarded(self) -> None:
        """An attempt elsewhere is a child of the call, if that is recorded."""
        tracer = self.tracer()
        context = self.call(tracer, newTracing())
        child = forwardedTracing(context.tracing)
        tracer.forwarded(child, "S", "m", ("10.0.0.1", 80), 0.5, "failed")
        place, record = self.recorder.kept[1]
        self.assertEqual((place.spanId, place.parentId), (child.ownId, context.tracing.ownId))
        self.assertEqual(record, ForwardRecord("S", "m", "10.0.0.1", 80, "failed"))
        tracer.forwarded(forwardedTracing(newTracing()), "S", "m", ("10.0.0.1", 80), 0.5, None)
        self.assertEqual(len(self.recorder.kept), 2)


class AttributeTests(TracerCase):
    """C{spanAttributes}."""

    def test_given(self) -> None:
        """It gets the context, at the end of the call, and only of calls that are recorded."""
        seen: list[Any] = []

        def attributes(context: RequestContext) -> dict[str, Any]:
            seen.append(context)
            return {"user": context.authentication, "wrong": object()}

        tracer = self.tracer(spanAttributes=attributes)
        observer, context = CallTracer(tracer), self.context(newTracing())
        observer.began(context)
        context.authentication = "ann"
        observer.ended(context, None, 0.1)
        self.call(tracer, Tracing(TRACE, SPAN, False))
        self.assertEqual(len(seen), 1)
        self.assertEqual(self.recorder.kept[0][1][-1], {"user": "ann"})

    def test_failing(self) -> None:
        """What it raises is logged once, and harms no call; a thing that is none is the same."""
        asynchronous = 0

        async def later(context: RequestContext) -> dict[str, Any]:
            nonlocal asynchronous
            asynchronous += 1
            return {}

        for wrong in (lambda context: 1 / 0, lambda context: 5, later):
            self.recorder.kept.clear()
            tracer = self.tracer(spanAttributes=wrong)
            for _ in range(3):
                self.call(tracer, newTracing())
            self.assertEqual([record[-1] for _place, record in self.recorder.kept], [None] * 3)
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError, TypeError)), 1)
            # Nor is there a word of a coroutine that nobody has waited for.
            self.assertEqual(self.flushWarnings(), [])
        self.assertEqual(asynchronous, 0)

    def test_none(self) -> None:
        """It may give nothing."""
        self.call(self.tracer(spanAttributes=lambda context: None), newTracing())
        self.assertEqual(self.recorder.kept[0][1][-1], None)
