"""Counters, gauges and histograms, and what several processes have of them together."""

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.telemetry import metrics
from storagegate.telemetry.metrics import (
    OTHER,
    MetricFamily,
    MetricsRegistry,
    asPlain,
    counterFamily,
    fromPlain,
    gaugeFamily,
    gaugesFamily,
    mergeFamilies,
)


class MetersCase(SynchronousTestCase):
    """A test with meters."""

    def setUp(self) -> None:
        """Make them."""
        self.meters = MetricsRegistry()

    def values(self, name: str, families: list[MetricFamily] | None = None) -> dict[Any, Any]:
        """Give the values of a meter by labels."""
        found = self.meters.snapshot() if families is None else families
        [family] = [each for each in found if each.name == name]
        return {tuple(labels): value for labels, value in family.samples}


class MeterTests(MetersCase):
    """What each kind counts."""

    def test_counter(self) -> None:
        """A counter adds up by labels."""
        counter = self.meters.counter("a_total", "help", ("x", "y"))
        counter.add(1, ("1", "2"))
        counter.add(2.5, ("1", "2"))
        counter.add(labels=("1", "3"))
        self.assertEqual(self.values("a_total"), {("1", "2"): 3.5, ("1", "3"): 1})

    def test_gauge(self) -> None:
        """A gauge is set, and goes up and down."""
        gauge = self.meters.gauge("g", "help")
        gauge.set(5)
        gauge.add(2)
        gauge.add(-4)
        self.assertEqual(self.values("g"), {(): 3})
        gauge.set(0)
        self.assertEqual(self.values("g"), {(): 0})

    def test_histogram(self) -> None:
        """A value counts for the first bucket that is not below it, and for the sum."""
        histogram = self.meters.histogram("h", "help", ("x",), (1, 2))
        for value in (0.5, 1, 1.5, 2, 7):
            histogram.observe(value, ("a",))
        self.assertEqual(self.values("h"), {("a",): [2, 2, 1, 12.0]})

    def test_snapshotStays(self) -> None:
        """What is counted later does not change a snapshot."""
        histogram = self.meters.histogram("h", "help", (), (1,))
        histogram.observe(0.5)
        snapshot = self.meters.snapshot()
        histogram.observe(0.5)
        self.assertEqual(self.values("h", snapshot), {(): [1, 0, 0.5]})

    def test_wrongLabels(self) -> None:
        """As many values as names, or it is an error that names the meter."""
        for meter, count in (
            (self.meters.counter("c", "help", ("x",)), "add"),
            (self.meters.gauge("g", "help", ("x",)), "set"),
            (self.meters.gauge("g", "help", ("x",)), "add"),
            (self.meters.histogram("h", "help", ("x",)), "observe"),
        ):
            error = self.assertRaises(ValueError, getattr(meter, count), 1, ())
            self.assertIn(meter.name, str(error))
            self.assertEqual(meter.values, {})

    def test_bounded(self) -> None:
        """Beyond its room a meter counts new labels together; known ones it still keeps apart."""
        counter = self.meters.counter("c_total", "help", ("x",))
        gauge = self.meters.gauge("g", "help", ("x",))
        histogram = self.meters.histogram("h", "help", ("x",), (1,))
        for meter in (counter, gauge, histogram):
            meter.maxSets = 2
        for label in ("a", "b", "c", "d", "a"):
            counter.add(1, (label,))
            gauge.add(1, (label,))
            histogram.observe(0, (label,))
        expected = {("a",): 2, ("b",): 1, (OTHER,): 2}
        self.assertEqual(self.values("c_total"), expected)
        self.assertEqual(self.values("g"), expected)
        counts = {labels: value[0] for labels, value in self.values("h").items()}
        self.assertEqual(counts, expected)

    def test_defaultRoom(self) -> None:
        """The bound holds for every meter."""
        counter = self.meters.counter("c_total", "help", ("x",))
        for number in range(metrics.MAX_LABEL_SETS + 50):
            counter.add(1, (str(number),))
        self.assertEqual(len(counter.values), metrics.MAX_LABEL_SETS + 1)
        self.assertEqual(counter.values[(OTHER,)], 50)


class RegistryTests(MetersCase):
    """The meters of a process."""

    def test_sameName(self) -> None:
        """A name returns the meter that exists."""
        first = self.meters.counter("c", "help", ("x",))
        self.assertIs(self.meters.counter("c", "help", ("x",)), first)

    def test_anotherOfTheName(self) -> None:
        """A name is one kind, with the same labels and buckets."""
        self.meters.histogram("h", "help", ("x",), (1, 2))
        for make in (
            lambda: self.meters.counter("h", "help", ("x",)),
            lambda: self.meters.histogram("h", "help", (), (1, 2)),
            lambda: self.meters.histogram("h", "help", ("x",), (1, 3)),
        ):
            error = self.assertRaises(ValueError, make)
            self.assertIn("h", str(error))

    def test_sorted(self) -> None:
        """A snapshot is by name, what was watched among the rest."""
        self.meters.counter("b", "help")
        self.meters.watch(lambda: [gaugeFamily("c", "help", 1), gaugeFamily("a", "help", 2)])
        self.assertEqual([each.name for each in self.meters.snapshot()], ["a", "b", "c"])

    def test_watchedTwice(self) -> None:
        """What two watchers tell under one name is one family."""
        for value in (1, 2):
            self.meters.watch(lambda value=value: [gaugeFamily("g", "help", value)])
        self.assertEqual(self.values("g"), {(): 3})

    def test_watcherFails(self) -> None:
        """A watcher that fails is logged, and takes nothing else with it."""

        def collect() -> Iterator[MetricFamily]:
            yield gaugeFamily("early", "help", 1)
            raise ZeroDivisionError

        self.meters.watch(collect)
        self.meters.watch(lambda: [gaugeFamily("late", "help", 1)])
        self.assertEqual([each.name for each in self.meters.snapshot()], ["early", "late"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


SNAPSHOTS = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=6), max_size=4
)


class MergeTests(MetersCase):
    """What several processes have together."""

    def test_sums(self) -> None:
        """Counters and gauges add up by labels, histograms bucket by bucket."""
        snapshots = []
        for amount in (1, 10):
            one = MetricsRegistry()
            one.counter("c_total", "help", ("x",)).add(amount, ("a",))
            one.counter("c_total", "help", ("x",)).add(amount, (str(amount),))
            one.gauge("g", "help").set(amount)
            one.histogram("h", "help", (), (1,)).observe(amount)
            snapshots.append(one.snapshot())
        merged = mergeFamilies(snapshots)
        self.assertEqual(self.values("c_total", merged), {("a",): 11, ("1",): 1, ("10",): 10})
        self.assertEqual(self.values("g", merged), {(): 11})
        self.assertEqual(self.values("h", merged), {(): [1, 1, 11.0]})

    def test_max(self) -> None:
        """What all see alike is not added up."""
        snapshots = [
            [gaugesFamily("g", "help", ("x",), [(("a",), value)], "max")] for value in (2, 5, 3)
        ]
        self.assertEqual(self.values("g", mergeFamilies(snapshots)), {("a",): 5})

    def test_onlyOneHas(self) -> None:
        """What one of them has alone is there."""
        family = counterFamily("c_total", "help", (), [((), 4)])
        self.assertEqual(mergeFamilies([[], [family], []]), [family])

    @given(SNAPSHOTS)
    def test_totals(self, counts: list[list[tuple[str, int]]]) -> None:
        """Through JSON and together, nothing is lost and nothing is counted twice."""
        snapshots = []
        expected: dict[tuple[str, ...], int] = {}
        for each in counts:
            one = MetricsRegistry()
            for label, amount in each:
                one.counter("c_total", "help", ("x",)).add(amount, (label,))
                expected[(label,)] = expected.get((label,), 0) + amount
            plain = json.loads(json.dumps(asPlain(one.snapshot())))
            snapshots.append(fromPlain(plain))
        merged = mergeFamilies(snapshots)
        found = self.values("c_total", merged) if expected else {}
        self.assertEqual(found, expected)

    def test_plain(self) -> None:
        """JSON carries a snapshot whole."""
        self.meters.histogram("h", "help", ("x",), (1, 2)).observe(1.5, ("a",))
        self.meters.gauge("g", "what it is", merge="max").set(3)
        plain = json.loads(json.dumps(asPlain(self.meters.snapshot())))
        [gauge, histogram] = mergeFamilies([fromPlain(plain)])
        self.assertEqual((gauge.kind, gauge.help, gauge.merge), ("gauge", "what it is", "max"))
        self.assertEqual((histogram.kind, list(histogram.buckets)), ("histogram", [1, 2]))
        self.assertEqual(
            (list(histogram.labels), histogram.samples), (["x"], [(("a",), [0, 1, 0, 1.5])])
        )
