"""The metrics page, without a socket."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from storagegate.telemetry.metrics import MetricFamily, MetricsRegistry
from storagegate.telemetry.prometheus import MetricsPage, prefersOpenMetrics, shareMeters

OPEN = "application/openmetrics-text"


def meters(amount: int = 1) -> MetricsRegistry:
    """Make meters of each kind."""
    made = MetricsRegistry()
    made.counter("storagegate_a_total", "Things.", ("kind",)).add(amount, ('a "b"\n',))
    made.gauge("storagegate_b_bytes", "Size.").set(amount)
    made.histogram("storagegate_c_seconds", "Time.", (), (0.1, 1)).observe(0.5)
    made.counter("storagegate_empty_total", "Nothing yet.", ("kind",))
    return made


class FakeLink:
    """
    Asks its own worker, and another if there is one. What they say goes through JSON.

    @ivar other: The other's.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.other: FakeLink | None = None
        self._answers: dict[str, Any] = {}

    def answer(self, topic: str, callback: Any) -> None:
        """Remember who answers."""
        self._answers[topic] = callback

    def ask(self, topic: str, payload: Any = None) -> Deferred[list[Any]]:
        """Give the answers."""
        links = [link for link in (self, self.other) if link is not None]
        return succeed([json.loads(json.dumps(link._answers[topic](payload))) for link in links])


class PageTests(SynchronousTestCase):
    """Answers to scrapes."""

    def ask(self, method: bytes = b"GET", accept: bytes = b"", snapshot: Any = None) -> Any:
        """Give status, fields and body."""
        page = MetricsPage(snapshot or meters().snapshot, maybeDeferred)
        answer = self.successResultOf(Deferred.fromCoroutine(page.respond(method, accept)))
        return answer[0], dict(answer[1]), answer[2].decode()

    def test_text(self) -> None:
        """The page is Prometheus's text: kinds, escaped labels, rising buckets."""
        code, fields, body = self.ask()
        self.assertEqual(code, 200)
        self.assertEqual(fields[b"content-type"], b"text/plain; version=0.0.4; charset=utf-8")
        self.assertEqual(fields[b"cache-control"], b"no-store")
        lines = body.splitlines()
        for line in (
            "# HELP storagegate_a_total Things.",
            "# TYPE storagegate_a_total counter",
            'storagegate_a_total{kind="a \\"b\\"\\n"} 1.0',
            "# TYPE storagegate_b_bytes gauge",
            "storagegate_b_bytes 1.0",
            "# TYPE storagegate_c_seconds histogram",
            'storagegate_c_seconds_bucket{le="0.1"} 0.0',
            'storagegate_c_seconds_bucket{le="1.0"} 1.0',
            'storagegate_c_seconds_bucket{le="+Inf"} 1.0',
            "storagegate_c_seconds_count 1.0",
            "storagegate_c_seconds_sum 0.5",
            "# TYPE storagegate_empty_total counter",
        ):
            self.assertIn(line, lines)

    def test_openMetrics(self) -> None:
        """Who prefers OpenMetrics gets a page that its parser reads."""
        from prometheus_client.openmetrics.parser import text_string_to_metric_families

        accept = b"application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2"
        code, fields, body = self.ask(accept=accept)
        self.assertEqual(code, 200)
        expected = b"application/openmetrics-text; version=1.0.0; charset=utf-8"
        self.assertEqual(fields[b"content-type"], expected)
        self.assertTrue(body.endswith("# EOF\n"))
        found = {family.name: family for family in text_string_to_metric_families(body)}
        [sample] = found["storagegate_a"].samples
        self.assertEqual((sample.labels, sample.value), ({"kind": 'a "b"\n'}, 1.0))
        self.assertEqual(found["storagegate_c_seconds"].type, "histogram")

    def test_preference(self) -> None:
        """OpenMetrics is for clients that prefer it; all others get text."""
        for accept, expected in (
            ("", False),
            ("*/*", False),
            ("text/html", False),
            (OPEN, True),
            (f"{OPEN};version=1.0.0;escaping=underscores;q=0.6,text/plain;q=0.5", True),
            (f"text/plain;q=0.5 , {OPEN.upper()} ; Q=0.7", True),
            (f"{OPEN};q=0.5,text/plain", False),
            (f"{OPEN};q=0", False),
            (f"{OPEN};q=none", False),
            (f"{OPEN};q=1e9", False),
            (f"{OPEN};q=-1", False),
        ):
            self.assertIs(prefersOpenMetrics(accept), expected, accept)

    @given(st.text(alphabet=f"{OPEN},;=q.01 \xff", max_size=60))
    def test_anyAccept(self, accept: str) -> None:
        """No field makes it fail."""
        self.assertIn(prefersOpenMetrics(accept), (True, False))

    def test_methods(self) -> None:
        """HEAD is answered as GET, whose body the connection leaves out; others are refused."""
        self.assertEqual(self.ask(b"HEAD"), self.ask())
        code, fields, body = self.ask(b"POST")
        self.assertEqual((code, fields[b"allow"], body), (405, b"GET, HEAD", ""))

    def test_later(self) -> None:
        """A snapshot that takes time is waited for."""
        waiting: Deferred[list[MetricFamily]] = Deferred()
        page = MetricsPage(lambda: waiting, maybeDeferred)
        asked = Deferred.fromCoroutine(page.respond(b"GET", b""))
        self.assertNoResult(asked)
        waiting.callback(meters().snapshot())
        self.assertIn(b"storagegate_b_bytes 1.0", self.successResultOf(asked)[2])

    def test_workers(self) -> None:
        """
        Workers are one page. What they have is added up, what they have counted is not: one that
        reads it must see which of them began anew.
        """
        one, other = FakeLink(0), FakeLink(1)
        shareMeters(other, meters(5))
        one.other = other
        body = self.ask(snapshot=shareMeters(one, meters(2)))[2]
        for line in (
            "storagegate_b_bytes 7.0",
            'storagegate_c_seconds_count{worker="0"} 1.0',
            'storagegate_c_seconds_count{worker="1"} 1.0',
            'storagegate_a_total{kind="a \\"b\\"\\n",worker="1"} 5.0',
            "storagegate_workers 2.0",
        ):
            self.assertIn(line, body.splitlines())
        self.assertEqual(body.count("# TYPE storagegate_a_total"), 1)

    def test_workerAway(self) -> None:
        """A worker that does not answer is left out, and the page says how many did."""
        body = self.ask(snapshot=shareMeters(FakeLink(0), meters(2)))[2]
        self.assertIn("storagegate_b_bytes 2.0", body)
        self.assertIn("storagegate_workers 1.0", body)
