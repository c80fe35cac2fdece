"""What is counted of lines, and what AsyncAPI says of them."""

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
    """The channel of lines, whose messages are those of WebSocket."""

    @property
    def address(self) -> None:  # type: ignore[override]
        """Return nothing: a socket has one channel."""
        return

    def server(self) -> dict[str, Any]:
        """Describe the server."""
        return {"host": self.options.address, "protocol": self.name}
