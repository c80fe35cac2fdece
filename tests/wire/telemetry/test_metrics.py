"""What a scrape of a real daemon gives, and whether a dashboard can be made of it."""

import http.client
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as readOpen
from prometheus_client.parser import text_string_to_metric_families as readText
from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import CHECKOUT, Daemon
from tests.support.http import connect, request
from tests.support.programs import needs
from tests.support.selection import long

EVERYTHING = (
    "--http",
    "tcp:0:interface=127.0.0.1",
    "--tcp",
    "tcp:0:interface=127.0.0.1",
    "--grpc",
    "127.0.0.1:0",
    "--udp",
    "127.0.0.1:0",
)

_CHOSEN = """
bucketMetrics = true
[gateway.monitoring.metrics.protocolMetrics]
http = ["status_codes", "user_agents"]
websocket = ["connection_duration", "message_frequency"]
grpc = ["stream_count", "rpc_latency"]
udp = ["packet_loss", "packet_size"]
tcp = ["connection_pool", "buffer_utilization"]
"""

_NAME = re.compile(r"\b(?:storagegate|process)_[a-z0-9_]+")

_DASHBOARD = CHECKOUT / "deploy" / "grafana.json"

_ALERTS = CHECKOUT / "deploy" / "alerts.yml"

# Metrics of several workers, of services with instances, and of the nodes of a cluster.
_ELSEWHERE = {
    "storagegate_workers",
    "storagegate_upstream_instances",
    "storagegate_cluster_leases_taken_total",
}


class ScrapeTests(SynchronousTestCase):
    """The metrics page of a daemon with all listeners."""

    timeout = 60

    def setUp(self) -> None:
        """Start it, and have it do something."""
        data = Path(self.mktemp()).absolute()
        config = data.with_suffix(".toml")
        config.write_text(_CHOSEN)
        self.daemon = Daemon(data, *EVERYTHING, "--config", str(config))
        self.addCleanup(self.daemon.kill)
        self.daemon.start()
        s3 = self.daemon.address("s3")
        for method, path, body in (
            ("PUT", "/bkt", None),
            ("PUT", "/bkt/big", b"x" * 200_000),
            ("GET", "/bkt/big", None),
            ("GET", "/bkt/none", None),
        ):
            request(s3, method, path, body)
        fields = {"content-type": "application/json"}
        for path in ("/api/UserService/ListUsers", "/api/Nothing/here"):
            request(self.daemon.address("http"), "POST", path, b"{}", fields)

    def scrape(self, accept: str = "", method: str = "GET") -> tuple[http.client.HTTPResponse, str]:
        """Ask for the page."""
        connection = connect(self.daemon.address("admin"))
        self.addCleanup(connection.close)
        connection.request(method, "/metrics", headers={"Accept": accept})
        response = connection.getresponse()
        return response, response.read().decode()

    def values(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Give all values by name and labels."""
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in readText(self.scrape()[1])
            for sample in family.samples
        }

    def test_values(self) -> None:
        """What was done is counted: S3, the store, the gateway and the process."""
        values = self.values()

        def value(name: str, **labels: str) -> float:
            return values[name, tuple(sorted(labels.items()))]

        get = {"operation": "GetObject"}
        self.assertEqual(value("storagegate_s3_requests_total", status="200", **get), 1)
        self.assertEqual(value("storagegate_s3_requests_total", status="404", **get), 1)
        self.assertGreater(value("storagegate_s3_bytes_total", direction="out", **get), 200_000)
        self.assertEqual(value("storagegate_s3_errors_total", code="NoSuchKey"), 1)
        self.assertGreaterEqual(value("storagegate_store_commits_total"), 2)
        self.assertEqual(value("storagegate_bucket_objects", bucket="bkt"), 1)
        self.assertEqual(value("storagegate_bucket_bytes", bucket="bkt"), 200_000)
        self.assertEqual(value("storagegate_access_keys"), 0)
        self.assertGreater(value("storagegate_store_fsync_seconds_count", kind="file"), 0)
        unknown = {"service": "unknown", "method": "unknown", "status": "NOT_FOUND"}
        self.assertEqual(value("storagegate_requests_total", protocol="http", **unknown), 1)
        self.assertEqual(value("storagegate_http_responses_total", status="404"), 1)
        self.assertEqual(value("storagegate_http_connections", listener="admin"), 1)
        self.assertGreater(value("process_resident_memory_bytes"), 20_000_000)
        self.assertEqual(value("storagegate_store_read_only"), 0)

    def test_forms(self) -> None:
        """Both formats tell the same names; HEAD tells none, and other methods are refused."""
        text, page = self.scrape()
        names = {family.name for family in readText(page)}
        self.assertEqual(text.getheader("Content-Type"), "text/plain; version=0.0.4; charset=utf-8")
        response, page = self.scrape("application/openmetrics-text;version=1.0.0,text/plain;q=0.1")
        self.assertIn("openmetrics", response.getheader("Content-Type") or "")
        self.assertEqual({family.name for family in readOpen(page)}, names)
        response, page = self.scrape(method="HEAD")
        self.assertEqual((response.status, page), (200, ""))
        response, page = self.scrape(method="POST")
        self.assertEqual((response.status, response.getheader("Allow")), (405, "GET, HEAD"))

    @needs("promtool")
    def test_promtool(self) -> None:
        """Prometheus's own tool has nothing to say against names, units and help texts."""
        page = self.scrape()[1]
        done = subprocess.run(
            ["promtool", "check", "metrics"],
            input=page.encode(),
            capture_output=True,
            timeout=60,
            check=False,
        )
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, b""))

    def test_dashboard(self) -> None:
        """Each metric that the dashboard or an alert asks for is there."""
        told = set()
        for family in readText(self.scrape()[1]):
            suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
            told |= {family.name + suffix for suffix in suffixes.get(family.type, [""])}
        asked = {
            name
            for panel in _panels()
            for target in panel.get("targets", ())
            for name in _NAME.findall(target["expr"])
        }
        self.assertGreater(len(asked), 20)
        self.assertEqual(asked - told, set())
        alerts = {name for rule in _rules() for name in _NAME.findall(rule["expr"])}
        self.assertEqual(alerts - told, _ELSEWHERE)


class WorkersTests(SynchronousTestCase):
    """The metrics page of several workers."""

    timeout = 60

    @long("takes a second or more")
    def test_together(self) -> None:
        """Whichever worker answers tells what all of them have counted."""
        place = ("--http", "tcp:0:interface=127.0.0.1", "--workers", "2")
        daemon = Daemon(Path(self.mktemp()).absolute(), *place, expect=("s3", "admin", "http"))
        self.addCleanup(daemon.kill)
        daemon.start()
        daemon.waitForLog("2 workers are serving")
        for _ in range(40):
            request(daemon.address("http"), "POST", "/api/Nothing/here", b"{}")
        request(daemon.address("s3"), "PUT", "/bkt")
        for number in range(6):
            request(daemon.address("s3"), "PUT", f"/bkt/{number}", b"12345")
        for _ in range(10):
            page = wholePage(daemon)
            samples = [sample for family in readText(page.decode()) for sample in family.samples]
            calls = [each for each in samples if each.name == "storagegate_requests_total"]
            self.assertEqual(sum(each.value for each in calls), 40)
            self.assertLessEqual({each.labels["worker"] for each in calls}, {"0", "1"})
            self.assertEqual(
                [each.value for each in samples if each.name == "storagegate_workers"], [2]
            )
            self.assertEqual(page.count(b"storagegate_build_info{"), 1)
            held = [(s.labels, s.value) for s in samples if s.name == "storagegate_bucket_bytes"]
            # The names of buckets were not asked for.
            self.assertEqual(held, [({}, 30)])
            self.assertNotIn(b"bkt", page)


class TokenTests(SynchronousTestCase):
    """A daemon whose metrics need a token."""

    timeout = 60

    def test_token(self) -> None:
        """Without the token there are no metrics, and readiness has no details; probes work."""
        token = "t0ken-of-the-scraper"
        environment = {"STORAGEGATE_METRICS_TOKEN": token}
        daemon = Daemon(Path(self.mktemp()).absolute(), environment=environment)
        self.addCleanup(daemon.kill)
        daemon.start()
        admin = daemon.address("admin")
        for field, status in ((None, 401), ("Bearer wrong", 401), (f"Bearer {token}", 200)):
            fields = {} if field is None else {"Authorization": field}
            self.assertEqual(request(admin, "GET", "/metrics", None, fields)[0], status)
            found, body = request(admin, "GET", "/readyz", None, fields)
            self.assertEqual(found, 200)
            self.assertEqual("parts" in json.loads(body), status == 200)
            self.assertEqual(request(admin, "GET", "/healthz", None, fields)[0], 200)
        self.assertNotIn(token, daemon.log)


def wholePage(daemon: Daemon, count: int = 2) -> bytes:
    """
    Scrape until the page is that of so many workers: who does not answer the one that is asked
    within a second, for it has no turn, is not on it.
    """
    while True:
        _, page = request(daemon.address("admin"), "GET", "/metrics")
        told = re.findall(rb'process_cpu_seconds_total\{worker="(\d)"\}', page)
        if len(set(told)) == count:
            return page


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = json.loads(_DASHBOARD.read_text())["panels"]
    return panels


def _rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(_ALERTS.read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


# An alert; its series with their values in promtool's notation, a value a minute; the same when all
# is well; and the hours after which it is judged.
_LEASES = "storagegate_cluster_leases_taken_total"
_EXPIRY = "storagegate_tls_certificate_expiry_timestamp_seconds"
_SITUATIONS: tuple[tuple[str, dict[str, str], dict[str, str], int], ...] = (
    ("Down", {"up": "0x60"}, {"up": "1x60"}, 1),
    (
        "ReadOnly",
        {"storagegate_store_read_only": "1x60"},
        {"storagegate_store_read_only": "0x60"},
        1,
    ),
    ("Damaged", {"storagegate_store_damaged": "2x60"}, {"storagegate_store_damaged": "0x60"}, 1),
    (
        "DiskFull",
        {
            'storagegate_store_disk_bytes{kind="free"}': "9x60",
            'storagegate_store_disk_bytes{kind="total"}': "100x60",
        },
        {
            'storagegate_store_disk_bytes{kind="free"}': "11x60",
            'storagegate_store_disk_bytes{kind="total"}': "100x60",
        },
        1,
    ),
    (
        "DiskFullSoon",
        {'storagegate_store_disk_bytes{kind="free"}': "3000-1x600"},
        {'storagegate_store_disk_bytes{kind="free"}': "9000-1x600"},
        8,
    ),
    (
        "S3Errors",
        {
            'storagegate_s3_requests_total{status="200"}': "0+96x60",
            'storagegate_s3_requests_total{status="503"}': "0+4x60",
        },
        {
            'storagegate_s3_requests_total{status="200"}': "0+96x60",
            'storagegate_s3_requests_total{status="404"}': "0+4x60",
            'storagegate_s3_requests_total{status="500"}': "0+1x60",
        },
        1,
    ),
    (
        "CallErrors",
        {
            'storagegate_requests_total{status="OK"}': "0+96x60",
            'storagegate_errors_total{code="INTERNAL_ERROR"}': "0+4x60",
        },
        {
            'storagegate_requests_total{status="OK"}': "0+96x60",
            'storagegate_errors_total{code="NOT_FOUND"}': "0+4x60",
        },
        1,
    ),
    (
        "SlowSyncs",
        {
            'storagegate_store_fsync_seconds_bucket{kind="file",le="1"}': "0+5x60",
            'storagegate_store_fsync_seconds_bucket{kind="file",le="5"}': "0+9x60",
            'storagegate_store_fsync_seconds_bucket{kind="file",le="+Inf"}': "0+9x60",
        },
        {
            'storagegate_store_fsync_seconds_bucket{kind="file",le="0.1"}': "0+9x60",
            'storagegate_store_fsync_seconds_bucket{kind="file",le="+Inf"}': "0+9x60",
        },
        1,
    ),
    (
        "StoreWaits",
        {"storagegate_store_pool_lag_seconds": "2x60"},
        {"storagegate_store_pool_lag_seconds": "0.5x60"},
        1,
    ),
    (
        "ReactorBlocked",
        {"storagegate_reactor_lag_seconds": "0.6x60"},
        {"storagegate_reactor_lag_seconds": "0.1x60"},
        1,
    ),
    (
        "CertificateEnds",
        {"storagegate_tls_certificate_expiry_timestamp_seconds": "600000x60"},
        {"storagegate_tls_certificate_expiry_timestamp_seconds": "700000x60"},
        1,
    ),
    (
        "MemoryRefused",
        {"storagegate_held_refused_total": "0+1x60"},
        {"storagegate_held_refused_total": "7x60"},
        1,
    ),
    (
        "LogLinesLost",
        {"storagegate_log_lines_dropped_total": "0+1x60"},
        {"storagegate_log_lines_dropped_total": "7x60"},
        1,
    ),
    ("WorkersMissing", {"storagegate_workers": "4x30 3x30"}, {"storagegate_workers": "4x60"}, 1),
    (
        "LifecycleLate",
        {"storagegate_lifecycle_round_age_seconds": "200000x120"},
        {"storagegate_lifecycle_round_age_seconds": "80000x120"},
        2,
    ),
    (
        "InstancesAway",
        {'storagegate_upstream_instances{state="healthy"}': "0x60"},
        {
            'storagegate_upstream_instances{state="healthy"}': "1x60",
            'storagegate_upstream_instances{state="unhealthy"}': "0x60",
        },
        1,
    ),
    (
        "LeaseLost",
        {"storagegate_cluster_leases_taken_total": "0+1x60"},
        {"storagegate_cluster_leases_taken_total": "2x60"},
        1,
    ),
)


class AlertTests(SynchronousTestCase):
    """The rules of C{deploy/alerts.yml}."""

    def test_texts(self) -> None:
        """Each rule has a severity and says what to do; each is in the table of situations."""
        rules = _rules()
        names = [f"Storagegate{situation[0]}" for situation in _SITUATIONS]
        self.assertEqual([rule["alert"] for rule in rules], names)
        for rule in rules:
            self.assertIn(rule["labels"]["severity"], ("warning", "critical"))
            self.assertEqual(set(rule["annotations"]), {"summary", "description"})

    @long("starts promtool")
    @needs("promtool")
    def test_situations(self) -> None:
        """Each alert fires in its situation, alone, and does not if all is well."""
        self.assertEqual(self.promtool("check", "rules", str(_ALERTS)).returncode, 0)
        tests = []
        for name, wrong, well, hours in _SITUATIONS:
            fired = [{"labels": f'{{alertname="Storagegate{name}"}}', "value": 1}]
            for series, expected in ((wrong, fired), (well, [])):
                lines = [{"series": _labelled(each), "values": series[each]} for each in series]
                check = {
                    "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": f"{hours}h",
                    "exp_samples": expected,
                }
                tests.append(
                    {
                        "interval": "1m",
                        "name": name,
                        "input_series": lines,
                        "promql_expr_test": [check],
                    }
                )
        path = Path(self.mktemp()).with_suffix(".yml")
        # JSON is YAML.
        path.write_text(json.dumps({"rule_files": [str(_ALERTS)], "tests": tests}))
        done = self.promtool("test", "rules", str(path))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def promtool(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run Prometheus's own tool."""
        return subprocess.run(
            ["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False
        )


def _labelled(series: str) -> str:
    """Add the labels that Prometheus gives each series of a target."""
    name, _, labels = series.rstrip("}").partition("{")
    return f'{name}{{job="storagegate",instance="a:9001"{"," if labels else ""}{labels}}}'


class DashboardTests(SynchronousTestCase):
    """The dashboard as a document."""

    def test_schema(self) -> None:
        """It has what Grafana needs to import it, and its panels do not lie on each other."""
        document = json.loads(_DASHBOARD.read_text())
        for name in ("uid", "title", "schemaVersion", "templating", "time", "panels"):
            self.assertIn(name, document)
        variables = {each["name"] for each in document["templating"]["list"]}
        self.assertEqual(variables, {"datasource", "job", "instance"})
        panels = document["panels"]
        ids = [panel["id"] for panel in panels]
        self.assertEqual(len(ids), len(set(ids)))
        taken: set[tuple[int, int]] = set()
        for panel in panels:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            self.assertFalse(cells & taken, panel["title"])
            self.assertLessEqual(place["x"] + place["w"], 24)
            taken |= cells
            if panel["type"] != "row":
                self.assertEqual(panel["datasource"]["uid"], "${datasource}")
                refs = [target["refId"] for target in panel["targets"]]
                self.assertTrue(refs)
                self.assertEqual(len(refs), len(set(refs)))

    @needs("promtool")
    def test_expressions(self) -> None:
        """Prometheus can read each expression."""
        rules = [
            {"record": f"panel{panel['id']}:{target['refId']}", "expr": _plain(target["expr"])}
            for panel in _panels()
            for target in panel.get("targets", ())
        ]
        path = Path(self.mktemp()).with_suffix(".yml")
        # JSON is YAML.
        path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
        done = subprocess.run(
            ["promtool", "check", "rules", str(path)], capture_output=True, timeout=60, check=False
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


def _plain(expression: str) -> str:
    """Put something in the place of Grafana's own variables."""
    return expression.replace("$__rate_interval", "5m").replace("$", "")
