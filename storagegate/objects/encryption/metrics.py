"""The metrics of encryption."""

from collections.abc import Iterable

from storagegate.objects.encryption.options import EncryptionOptions
from storagegate.telemetry.metrics import MetricFamily, MetricsRegistry, counterFamily

CALLS = "storagegate_master_key_calls_total"
HITS = "storagegate_bucket_key_cache_hits_total"


def watchEncryption(options: EncryptionOptions, meters: MetricsRegistry) -> None:
    """Add the calls of the provider of master keys, and the uses of open bucket keys."""

    def collect() -> Iterable[MetricFamily]:
        opened = options.opened
        if opened is None:
            return []
        keys = opened.bucketKeys
        return [
            MetricFamily(
                CALLS,
                "Calls of the provider of master keys.",
                "counter",
                ("operation", "result"),
                (),
                "sum",
                [(labels, count) for labels, count in sorted(keys.calls.items())],
            ),
            counterFamily(
                HITS, "Uses of bucket keys that were open in memory.", (), [((), keys.hits)]
            ),
        ]

    meters.watch(collect)
