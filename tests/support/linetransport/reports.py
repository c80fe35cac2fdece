"""The metrics of the line transport, and its AsyncAPI description."""

from collections.abc import Iterable
from typing import Any

from storagegate.gateway.transports.channels import WebSocketChannel
from storagegate.gateway.transports.metrics import ProtocolMetric, TransportMetrics, byLabel
from storagegate.telemetry.metrics import MetricFamily, counterFamily


def _lines(meter: TransportMetrics) -> Iterable[MetricFamily]:
    yield counterFamily(
        "storagegate_line_lines_total",
        "Lines of messages.",
        ("direction",),
        [(("in",), meter.messagesIn), (("out",), meter.messagesOut)],
    )


METRICS = (ProtocolMetric(name="line_count", collect=_lines, view=byLabel("line_lines_total")),)


class LineChannel(WebSocketChannel):
    """The channel of lines, which uses the messages of WebSocket."""

    @property
    def address(self) -> None:  # type: ignore[override]
        """Return C{None}: a socket has only one channel."""
        return

    def server(self) -> dict[str, Any]:
        """Describe the server."""
        return {"host": self.options.address, "protocol": self.name}
