"""The matrix of calls once more, through a gateway that has none of the services itself."""

from typing import Any

from twisted.internet.threads import deferToThread

from storagegate.core.definitions import STREAMING
from storagegate.gateway.gateway import createProtocolGateway
from storagegate.gateway.transports.registry import transportNames
from tests.support.gatewayclients import CLIENTS
from tests.wire.gateway import test_matrix

METHODS = {
    f"{name}{kind.capitalize()}": {"streaming": kind}
    for name in ("ask", "limited")
    for kind in STREAMING
}
"""What the gateway in front is told of the methods."""


class ForwardedMatrixTests(test_matrix.MatrixTests):
    """Every cell answers as if the service were here."""

    async def setUp(self) -> None:
        """Put a gateway in front of the one that has the services."""
        await super().setUp()
        direct = self.clients
        port = direct["http"]._port
        service = {"methods": METHODS, "instances": [{"host": "127.0.0.1", "port": port}]}
        free = {"port": 0}
        front = createProtocolGateway(
            port=0, tcp=free, udp=free, grpc={"port": 0, "reflection": True}
        )
        names = ("Probe", "Guarded", "Forgiving")
        front.configureServiceDiscovery(services=dict.fromkeys(names, service))
        ports = await front.listen(reactor=self.reactor)
        self.addCleanup(front.stop, 0)
        self.clients: dict[str, Any] = {}
        for wire in transportNames():
            client = await deferToThread(CLIENTS[wire], ports[wire].getHost().port)
            self.addCleanup(deferToThread, client.close)
            self.clients[wire] = client
