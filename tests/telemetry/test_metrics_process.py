"""What is told of the process and its listeners."""

import mmap
import os
import time
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.telemetry.metrics import (
    LAG_SECONDS,
    LAG_WINDOW,
    UNWATCHED_SECONDS,
    MetricsRegistry,
    ReactorLag,
    watchProcess,
    watchSites,
)
from storagegate.version import __version__


def valuesOf(meters: MetricsRegistry) -> dict[str, dict[tuple[str, ...], Any]]:
    """Give all values, by name and labels."""
    return {
        family.name: {tuple(labels): value for labels, value in family.samples}
        for family in meters.snapshot()
    }


class ReactorLagTests(SynchronousTestCase):
    """How late the reactor is."""

    def setUp(self) -> None:
        """Make it on a clock."""
        self.clock = Clock()
        self.lag = ReactorLag(self.clock)

    def run_(self, seconds: float) -> None:
        """Let time pass without any delay."""
        self.clock.pump([LAG_SECONDS] * round(seconds / LAG_SECONDS))

    def test_asleep(self) -> None:
        """Nothing is measured before the first scrape, and nothing long after the last."""
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.lag.worst()
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.run_(UNWATCHED_SECONDS - LAG_SECONDS)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.run_(LAG_SECONDS)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_worst(self) -> None:
        """A block shows for at least half a window, and not for more than a whole one."""
        self.assertEqual(self.lag.worst(), 0.0)
        self.clock.advance(LAG_SECONDS + 2)
        self.clock.advance(LAG_SECONDS + 0.25)
        self.assertEqual(self.lag.worst(), 2.0)
        self.run_(LAG_WINDOW / 2)
        self.assertEqual(self.lag.worst(), 2.0)
        self.run_(LAG_WINDOW / 2 + 1)
        self.assertEqual(self.lag.worst(), 0.0)

    def test_lookedAtAgain(self) -> None:
        """Who looks on keeps it awake; who comes back after a pause does not see the pause."""
        for _ in range(3):
            self.lag.worst()
            self.run_(UNWATCHED_SECONDS / 2)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.run_(UNWATCHED_SECONDS)
        self.clock.advance(1000)
        self.assertEqual(self.lag.worst(), 0.0)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)


class ProcessTests(SynchronousTestCase):
    """What the system and Python say."""

    def test_process(self) -> None:
        """Memory, time, descriptors and version are those of this process."""
        meters = MetricsRegistry()
        watchProcess(meters, Clock())
        before = valuesOf(meters)
        # So many that it does not count what else in this process opens or closes one.
        descriptors = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]
        # Pages of its own: what is taken from the heap may have been resident before.
        with mmap.mmap(-1, 32 * 1024 * 1024) as block:
            block.write(b"x" * len(block))
            after = valuesOf(meters)
            size = len(block)
        for descriptor in descriptors:
            os.close(descriptor)
        grown = (
            after["process_resident_memory_bytes"][()] - before["process_resident_memory_bytes"][()]
        )
        self.assertGreater(grown, size // 2)
        opened = after["process_open_fds"][()] - before["process_open_fds"][()]
        self.assertTrue(80 <= opened <= 120, opened)
        self.assertGreater(after["process_cpu_seconds_total"][()], 0)
        self.assertLess(abs(after["process_start_time_seconds"][()] - time.time()), 60)
        self.assertEqual(after["storagegate_build_info"], {(__version__,): 1})
        self.assertEqual(set(after["storagegate_gc_collections_total"]), {("0",), ("1",), ("2",)})
        self.assertEqual(after["storagegate_reactor_lag_seconds"], {(): 0.0})


@frozen
class _Site:
    connections: int
    requests: int
    http2Errors: Mapping[str, int] = field(factory=dict)


class SitesTests(SynchronousTestCase):
    """The listeners."""

    def test_sites(self) -> None:
        """Each listener tells its connections and requests, also one that came later."""
        meters, sites = MetricsRegistry(), {"s3": _Site(3, 2)}
        watchSites(meters, sites)
        sites["admin"] = _Site(1, 1, {"PROTOCOL_ERROR": 2})
        values = valuesOf(meters)
        self.assertEqual(values["storagegate_http_connections"], {("s3",): 3, ("admin",): 1})
        self.assertEqual(values["storagegate_http_requests_in_flight"], {("s3",): 2, ("admin",): 1})
        self.assertEqual(values["storagegate_http2_errors_total"], {("admin", "PROTOCOL_ERROR"): 2})
