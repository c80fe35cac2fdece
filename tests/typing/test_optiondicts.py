"""
The typed keywords of options, held against the options: a static type cannot be derived from a
class of attrs, so each has its C{TypedDict} beside it.
"""

from inspect import signature
from typing import Any

from attrs import fields
from twisted.trial.unittest import SynchronousTestCase

from storagegate.auth import authentication
from storagegate.core import definitions
from storagegate.gateway import gateway, monitoring
from storagegate.gateway import options as gatewayOptions
from storagegate.gateway.transports import grpc as grpctransport
from storagegate.gateway.transports import http as httptransport
from storagegate.gateway.transports import tcp as tcptransport
from storagegate.gateway.transports import udp as udptransport
from storagegate.gateway.transports import websocket as websockettransport
from storagegate.gateway.transports.registry import transportNames, transports
from storagegate.http import compression, cors, rateLimit, sendfile
from storagegate.http import options as httpOptions
from storagegate.net import tls
from storagegate.net.websocket import interfaces as websocketInterfaces
from storagegate.rpc import client
from storagegate.rpc import options as rpcOptions
from storagegate.upstream import options as discoveryOptions

CLASSES: list[tuple[Any, Any]] = [
    (httpOptions.OptionsDict, httpOptions.ApplicationOptions),
    (httpOptions.DevelopmentOptionsDict, httpOptions.DevelopmentOptions),
    (httpOptions.RouterOptionsDict, httpOptions.RouterOptions),
    (httpOptions.RouteDescriptionDict, httpOptions.RouteDescription),
    (httpOptions.WebSocketLimitsDict, websocketInterfaces.WebSocketLimits),
    (rpcOptions.RPCOptionsDict, rpcOptions.RPCOptions),
    (rpcOptions.GRPCSettingsDict, rpcOptions.GRPCServerOptions),
    (rpcOptions.MessageCompressionDict, rpcOptions.CompressionOptions),
    (tls.TLSOptionsDict, tls.ServerTLSOptions),
    (httptransport.HTTPOptionsDict, httptransport.HTTPOptions),
    (websockettransport.WebSocketOptionsDict, websockettransport.WebSocketOptions),
    (grpctransport.GRPCOptionsDict, grpctransport.GRPCOptions),
    (udptransport.UDPOptionsDict, udptransport.UDPOptions),
    (tcptransport.TCPOptionsDict, tcptransport.TCPOptions),
    (gateway.ErrorOptionsDict, gateway.ErrorOptions),
    (monitoring.MonitoringOptionsDict, monitoring.MonitoringOptions),
    (discoveryOptions.DiscoveryOptionsDict, discoveryOptions.DiscoveryOptions),
    (definitions.RateLimitDict, definitions.RateLimit),
]

FACTORIES: list[tuple[Any, Any]] = [
    (httpOptions.CORSOptionsDict, cors),
    (httpOptions.CompressionOptionsDict, compression),
    (httpOptions.RateLimitOptionsDict, rateLimit),
    (sendfile.FileOptionsDict, sendfile.readOptions),
]


def keys(typed: Any) -> set[str]:
    """Give the keys of a C{TypedDict}."""
    return set(typed.__required_keys__ | typed.__optional_keys__)


class KeywordTests(SynchronousTestCase):
    """The names; the types are held by the files that type checkers read."""

    def test_classes(self) -> None:
        """Each has exactly the options of its class."""
        for typed, kind in CLASSES:
            expected = {attribute.alias for attribute in fields(kind)}
            self.assertEqual(keys(typed), expected, typed.__name__)

    def test_factories(self) -> None:
        """Those of middleware that options install have exactly its parameters."""
        for typed, factory in FACTORIES:
            self.assertEqual(keys(typed), set(signature(factory).parameters), typed.__name__)

    def test_others(self) -> None:
        """So have those whose options are read without a class."""
        self.assertEqual(keys(client.ClientOptionsDict), set(client._OPTIONS))
        service = {attribute.alias for attribute in fields(definitions.ServiceDefinition)}
        self.assertEqual(keys(definitions.ServiceDefinitionDict), service - {"name"})
        self.assertEqual(keys(authentication.RulesDict), set(transportNames()))
        udp = {attribute.alias for attribute in fields(udptransport.UDPOptions)}
        self.assertEqual(keys(udptransport.UDPConfigurationDict), udp | {"protocol"})

    def test_gateway(self) -> None:
        """Those of a gateway are its own and, for each transport, a flag and a group."""
        own = {"protocols", "port", "hostname", "trustedProxies"}
        flags = {row.flag for row in transports()}
        self.assertEqual(
            keys(gatewayOptions.GatewayOptionsDict), own | flags | set(transportNames())
        )

    def test_all(self) -> None:
        """None is left out."""
        held = {typed for typed, _ in (*CLASSES, *FACTORIES)} | {gatewayOptions.GatewayOptionsDict}
        for module in (httpOptions, rpcOptions, gatewayOptions):
            for name, value in vars(module).items():
                if name.endswith("Dict") and hasattr(value, "__required_keys__"):
                    self.assertIn(value, held, name)
