"""The forms in which a gateway's options are given: a mapping wherever keywords are."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate import ProtocolGateway, createProtocolGateway
from storagegate.core.options import OptionError

OPTIONS = {
    "protocols": ["http", "websocket"],
    "port": 8081,
    "enableTCP": True,
    "http": {"basePath": "/v1", "enableCORS": True},
    "websocket": {"path": "/socket", "enableCompression": True},
    "grpc": {"reflection": True, "maxMessageSize": 1024},
    "udp": {"maxPacketSize": 512},
    "tcp": {"keepAlive": False, "noDelay": False},
}


class GatewayTests(SynchronousTestCase):
    """C{createProtocolGateway(options)}, C{ProtocolGateway(options)}, C{configureX(config)}."""

    def test_forms(self) -> None:
        """A mapping and keywords make the same gateway."""
        makers: list[Any] = [createProtocolGateway, ProtocolGateway]
        for make in makers:
            self.assertEqual(make(OPTIONS).settings, make(**OPTIONS).settings)
            self.assertEqual(make(OPTIONS, port=1).settings.port, 1)

    def test_configure(self) -> None:
        """Each C{configure} takes either form, and keywords win."""
        gateway = createProtocolGateway()
        gateway.configureHTTP({"basePath": "/a", "routes": {"GET /x": "A.b"}}, basePath="/b")
        self.assertEqual(gateway.settings.of("http").basePath, "/b")
        self.assertEqual(gateway.settings.of("http").routes, {"GET /x": "A.b"})

    def test_wrong(self) -> None:
        """What is unknown is named, and what is no mapping is refused."""
        gateway = createProtocolGateway()
        for call, problem in [
            (lambda: createProtocolGateway({"prot": 1}), "there is no option prot"),
            (lambda: ProtocolGateway({"tcp": {"prot": 1}}), "there is no option tcp.prot"),
            (lambda: gateway.configureUDP({"prot": 1}), "there is no option udp.prot"),
            (lambda: createProtocolGateway([]), "options are a mapping or keywords"),  # type: ignore
            (lambda: gateway.configureTCP([]), "options are a mapping or keywords"),  # type: ignore
        ]:
            error = self.assertRaises(OptionError, call)
            self.assertIn(problem, str(error))
