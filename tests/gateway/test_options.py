"""The options of a gateway: which wires, what goes together, and what is said of wrong ones."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.core.definitions import DefinitionError
from storagegate.core.options import OptionError
from storagegate.gateway.gateway import ProtocolGateway, createProtocolGateway
from storagegate.gateway.transports.registry import transportNames


async def hook(*arguments: Any) -> Any:
    """Do nothing, where a function is asked for."""


class OptionTests(SynchronousTestCase):
    """What the options are, and what is said of wrong ones."""

    def test_wires(self) -> None:
        """C{protocols} is exact, and each C{enable} adds a wire or takes it away."""
        for options, expected in (
            ({}, transportNames()),
            ({"protocols": ["http", "tcp"]}, ("http", "tcp")),
            ({"protocols": ["http"], "enableUDP": True}, ("http", "udp")),
            ({"protocols": ["http", "tcp"], "enableTCP": False}, ("http",)),
            ({"enableGRPC": True}, ("grpc",)),
            ({"enableGRPC": True, "enableTCP": True, "enableHTTP": False}, ("grpc", "tcp")),
            ({"enableWebSocket": False}, ("http", "grpc", "udp", "tcp")),
            ({"protocols": []}, ()),
        ):
            self.assertEqual(ProtocolGateway(options).settings.enabled, expected, options)
            self.assertEqual(createProtocolGateway(**options).settings.enabled, expected)

    def test_merged(self) -> None:
        """A mapping and keywords go together, and what is not named stays as it was."""

        def other(*arguments: Any) -> None:
            """Do nothing else."""

        gateway = createProtocolGateway({"port": 1, "http": {"basePath": "/v1/"}}, hostname="::1")
        gateway.configureHTTP({"enableCORS": True}).configureHTTP(maxRequestBodySize="1kb")
        gateway.configureUDP({"port": 5, "protocol": {"parseMessage": hook}}, routeMessage=other)
        gateway.configureTCP(noDelay=False).configureTCP({"port": 6})
        gateway.configureGRPC({"reflection": True, "maxMessageSize": "1mb"})
        gateway.configureWebSocket(path="/").configureWebSocket(pingSeconds=5)
        settings = gateway.settings
        self.assertEqual((settings.port, settings.hostname), (1, "::1"))
        self.assertEqual(settings.of("http").basePath, "/v1")
        self.assertEqual(
            (settings.of("http").enableCORS, settings.of("http").maxRequestBodySize), (True, 1024)
        )
        self.assertEqual((settings.of("udp").port, settings.of("tcp").port), (5, 6))
        self.assertEqual(
            (settings.of("udp").parseMessage, settings.of("udp").routeMessage), (hook, other)
        )
        self.assertEqual((settings.of("tcp").noDelay, settings.of("tcp").keepAlive), (False, True))
        self.assertEqual(
            (settings.of("grpc").reflection, settings.of("grpc").maxMessageSize), (True, 1 << 20)
        )
        self.assertEqual(
            (settings.of("websocket").path, settings.of("websocket").pingSeconds), ("", 5)
        )

    def test_wrong(self) -> None:
        """A wrong option or value is refused, and the message names it."""
        gateway = createProtocolGateway()
        for configure, name, value, expected in (
            (createProtocolGateway, "prot", 1, "there is no option prot"),
            (createProtocolGateway, "port", "80", "the option port"),
            (createProtocolGateway, "protocols", ["smtp"], "the option protocols"),
            (createProtocolGateway, "protocols", "http", "the option protocols"),
            (createProtocolGateway, "enableUDP", 1, "the option enableUDP"),
            (createProtocolGateway, "http", 1, "the option http"),
            (createProtocolGateway, "http", {"basepath": "/"}, "there is no option http.basepath"),
            (gateway.configureHTTP, "basePath", "api", "the option http.basePath"),
            (gateway.configureHTTP, "routes", {"GET x": "A.b"}, "the option http.routes"),
            (gateway.configureHTTP, "routes", {"GET /x": "A"}, "the option http.routes"),
            (gateway.configureHTTP, "transformRequest", 1, "the option http.transformRequest"),
            (gateway.configureWebSocket, "messageFormat", "xml", "websocket.messageFormat"),
            (gateway.configureWebSocket, "allowedOrigins", ["x"], "websocket.allowedOrigins"),
            (gateway.configureWebSocket, "handleStreaming", {"both": hook}, "handleStreaming"),
            (gateway.configureGRPC, "protoFiles", "a.proto", "the option grpc.protoFiles"),
            (gateway.configureGRPC, "services", {"A": 1}, "the option grpc.services"),
            (gateway.configureGRPC, "keepUnknown", 1, "the option grpc.keepUnknown"),
            (gateway.configureGRPC, "naive", "local", 'the option grpc.naive is "" or "utc"'),
            (gateway.configureTCP, "keepAlive", "yes", "the option tcp.keepAlive"),
            (gateway.configureUDP, "maxPacketSize", 1, "the option udp.maxPacketSize"),
            (gateway.configureUDP, "protocol", 1, "the option udp.protocol"),
            (gateway.configureUDP, "protocol", {"parse": hook}, "there is no option udp.parse"),
            (gateway.configureAuthentication, "provider", {}, "authentication.provider"),
            (gateway.configureAuthentication, "rules", {"smtp": []}, "authentication.rules.smtp"),
            (gateway.configureErrorHandling, "transform", hook, "there is no option transform"),
            (gateway.configureErrorHandling, "transformError", 1, "the option transformError"),
            (gateway.configureGRPC, "protoFiles", 5, "the option grpc.protoFiles is a list"),
            (gateway.configureMonitoring, "metric", {}, "there is no option metric"),
            (gateway.configureMonitoring, "metrics", {"collectors": 5}, "collectors is a list"),
            (gateway.configureMonitoring, "metrics", {"collectors": ["x"]}, "metrics.collectors"),
            (gateway.configureMonitoring, "logging", {"fields": ["x"]}, "logging.fields"),
            (gateway.configureMonitoring, "logging", 1, "the option logging"),
            (gateway.configureMonitoring, "tracing", {"provider": "x"}, "tracing.provider"),
            (gateway.configureServiceDiscovery, "provider", "x", "the option provider"),
            (gateway.configureServiceDiscovery, "services", {"A": 1}, "the option services.A"),
            (gateway.configureServiceDiscovery, "services", {"A": {"x": 1}}, "services.A.x"),
            (gateway.configureServiceDiscovery, "routing", {"tcp": {}}, "routing.tcp"),
        ):
            for given in (({name: value},), ()):
                keywords = {} if given else {name: value}
                error = self.assertRaises(OptionError, configure, *given, **keywords)
                self.assertIn(expected, str(error))
        error = self.assertRaises(DefinitionError, gateway.configureRateLimit, requests=0, window=1)
        self.assertIn("the gateway", str(error))

    def test_groups(self) -> None:
        """Each C{getConfig} gives its wire's options under its name, with the gateway itself."""
        gateway = createProtocolGateway(tcp={"port": 7}, udp={"port": 8}, grpc={"port": 9})
        gateway.configureWebSocket(path="/socket")
        for config, name, option, value in (
            (gateway.getTCPConfig(), "tcp", "port", 7),
            (gateway.getUDPConfig(), "udp", "port", 8),
            (gateway.getGRPCConfig(), "grpc", "port", 9),
            (gateway.getWebSocketConfig(), "websocket", "path", "/socket"),
        ):
            self.assertEqual(list(config), [name])
            self.assertEqual(config[name][option], value)
            self.assertIs(config[name]["gateway"], gateway)

    def test_groupsOfApplications(self) -> None:
        """An application takes these groups, changed ones too, and nothing else under the names."""
        gateway = createProtocolGateway()
        server.http().withOptions(tcp={**gateway.getTCPConfig()["tcp"], "port": 7})
        self.assertEqual(gateway.settings.of("tcp").port, 7)
        for group in (1, {}, {"port": 7}, {"port": 7, "gateway": 1}):
            error = self.assertRaises(OptionError, server.http().withOptions, tcp=group)
            self.assertIn("the option tcp is the group that a gateway returns", str(error))
        wrong = {"gateway": gateway, "prot": 1}
        error = self.assertRaises(OptionError, server.http().withOptions, tcp=wrong)
        self.assertIn("there is no option tcp.prot", str(error))
