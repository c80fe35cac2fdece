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
                "Leases that are valid now: one a process and shard.",
                total(lambda node: node.keeper.problem is None),
            ),
            ("open_reads", "Reads that garbage waits for.", total(lambda node: len(node.reads))),
            (
                "garbage",
                "Blobs to remove, on the node that removes them.",
                total(lambda node: node.collector.backlog),
            ),
        ):
            yield gaugesFamily(f"storagegate_cluster_{name}", help, (), [((), value)])
        for name, help, value in (
            (
                "leases_taken",
                "Leases that were taken after another was lost.",
                total(lambda node: node.keeper.taken),
            ),
            (
                "collected",
                "Blobs without references that were removed.",
                total(lambda node: node.collector.removed),
            ),
            (
                "swept",
                "Blobs that ended leases may have left.",
                total(lambda node: node.sweeper.removed),
            ),
        ):
            yield counterFamily(f"storagegate_cluster_{name}_total", help, (), [((), value)])

    meters.watch(families)
