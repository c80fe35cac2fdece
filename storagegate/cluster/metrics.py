"""The metrics of a node."""

from collections.abc import Callable, Iterable, Sequence

from storagegate.cluster.node import ClusterNode
from storagegate.telemetry.metrics import (
    MetricFamily,
    MetricsRegistry,
    counterFamily,
    gaugesFamily,
)


def watchNode(nodes: Sequence[ClusterNode], meters: MetricsRegistry) -> None:
    """
    Register the metrics of a node.

    @param nodes: The nodes of this process, one per shard; their values are added.
    @param meters: The registry of the metrics.
    """

    def total(count: Callable[[ClusterNode], int]) -> int:
        return sum(map(count, nodes))

    def families() -> Iterable[MetricFamily]:
        for name, help, value in (
            (
                "leases",
                "Valid leases, one for each process and shard.",
                total(lambda node: node.keeper.problem is None),
            ),
            (
                "open_reads",
                "Reads that delay garbage collection.",
                total(lambda node: len(node.reads)),
            ),
            (
                "garbage",
                "Blobs to remove, on the node that collects garbage.",
                total(lambda node: node.collector.backlog),
            ),
        ):
            yield gaugesFamily(f"storagegate_cluster_{name}", help, (), [((), value)])
        for name, help, value in (
            (
                "leases_taken",
                "Leases acquired after a previous lease was lost.",
                total(lambda node: node.keeper.taken),
            ),
            (
                "collected",
                "Unreferenced blobs removed.",
                total(lambda node: node.collector.removed),
            ),
            (
                "swept",
                "Blob ids of expired leases that were swept.",
                total(lambda node: node.sweeper.removed),
            ),
        ):
            yield counterFamily(f"storagegate_cluster_{name}_total", help, (), [((), value)])

    meters.watch(families)
