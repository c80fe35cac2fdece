"""Where spans go: options and environment."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.options import OptionError, changeOptions
from storagegate.telemetry import otlp as module
from storagegate.telemetry.otlp import TracingOptions, readCollector


class CollectorTests(SynchronousTestCase):
    """What options and environment say together."""

    def test_defaults(self) -> None:
        """Without either it is what OpenTelemetry has."""
        for provider, endpoint in (
            (None, "http://127.0.0.1:4318/v1/traces"),
            ("otlp", "http://127.0.0.1:4318/v1/traces"),
            ("jaeger", "http://127.0.0.1:4318/v1/traces"),
            ("zipkin", "http://127.0.0.1:9411/api/v2/spans"),
        ):
            collector = readCollector(TracingOptions(provider=provider), {})
            self.assertEqual((collector.endpoint, collector.headers), (endpoint, {}))
            self.assertEqual((collector.serviceName, collector.timeoutSeconds), (None, 10))

    def test_environment(self) -> None:
        """The variables hold where no option says otherwise; the path is that of traces."""
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "https://otel.example:4318/in/",
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20x, a=b,,odd",
            "OTEL_SERVICE_NAME": "shop",
        }
        collector = readCollector(TracingOptions(), environment)
        self.assertEqual(collector.endpoint, "https://otel.example:4318/in/v1/traces")
        self.assertEqual(collector.headers, {"authorization": "Bearer x", "a": "b"})
        self.assertEqual(collector.serviceName, "shop")
        given = TracingOptions(
            endpoint="http://here:1/x", headers={"c": "d"}, serviceName="own", timeoutMs=1500
        )
        collector = readCollector(given, environment)
        self.assertEqual(collector.endpoint, "http://here:1/x")
        self.assertEqual(collector.headers, {"c": "d"})
        self.assertEqual((collector.serviceName, collector.timeoutSeconds), ("own", 1.5))
        collector = readCollector(TracingOptions(provider="zipkin"), environment)
        self.assertEqual(collector.endpoint, "http://127.0.0.1:9411/api/v2/spans")
        self.assertEqual(collector.headers, {})

    def test_path(self) -> None:
        """An endpoint without a path gets the provider's."""
        for endpoint in ("http://here:1", "http://here:1/"):
            collector = readCollector(TracingOptions(endpoint=endpoint), {})
            self.assertEqual(collector.endpoint, "http://here:1/v1/traces")

    def test_wrongEnvironment(self) -> None:
        """A variable that says nothing that can be is named; what is in it may be a key."""
        for name, value in (
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "here:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=se%0Acret"),
        ):
            error = self.assertRaises(OptionError, readCollector, TracingOptions(), {name: value})
            self.assertIn(f"the variable {name}", str(error))
            self.assertNotIn("cret", str(error))

    def test_notInstalled(self) -> None:
        """Without the packages the error names the extra."""
        self.patch(module, "find_spec", lambda name: None)
        error = self.assertRaises(OptionError, readCollector, TracingOptions(), {})
        self.assertIn("pip install 'storagegate[tracing]'", str(error))
        self.assertNotIn("\n", str(error))


class OptionTests(SynchronousTestCase):
    """The options themselves."""

    def test_refused(self) -> None:
        """What is none is refused by name."""
        for name, values in {
            "enabled": (1, "yes"),
            "provider": ("x", 5),
            "endpoint": ("", "x", "ftp://a/", "http://", "http://a:x/", "http://a\n/", 5),
            "headers": ([], {"a b": "c"}, {"a": "b\r\nc"}, {"a": 5}, {"a": "\u20ac"}),
            "serviceName": ("", " ", "a\n", 5),
            "sampleRatio": (-0.1, 1.1, "1", True, float("nan")),
            "correlationHeader": ("", "a b", "\u00e4"),
            "spanAttributes": ("x", 5),
            "queueSize": (0, -1, 1.5, True),
            "batchSize": (0, "5"),
            "intervalMs": (0, 1e9),
            "timeoutMs": (0, None),
        }.items():
            for value in values:
                error = self.assertRaises(
                    OptionError, changeOptions, TracingOptions(), {name: value}
                )
                self.assertIn(f"the option {name}", str(error))

    def test_secret(self) -> None:
        """Keys for the collector are not shown."""
        given = TracingOptions(headers={"authorization": "hidden-key"})
        self.assertNotIn("hidden-key", repr(given))
        self.assertNotIn("hidden-key", repr(readCollector(given, {})))
