"""The registry of transports: its rows, and what a row alone adds to a gateway."""

from typing import Any

from attrs import asdict, evolve, has
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyClass

from storagegate import server
from storagegate.core.options import OptionError
from storagegate.gateway.asyncapi import Channel, describeMessages
from storagegate.gateway.gateway import ProtocolGateway, createProtocolGateway
from storagegate.gateway.options import GatewayOptions
from storagegate.gateway.transports.metrics import ProtocolMetric, metricsOf
from storagegate.gateway.transports.registry import (
    ICarrier,
    IGuest,
    ITransport,
    defaultRules,
    findTransport,
    listenerTransports,
    loadReference,
    maxItemBytes,
    register,
    transportNames,
    transports,
    unregister,
)
from tests.support.linetransport import LINE, NAME, LineOptions

OWN = ("http", "websocket", "grpc", "udp", "tcp")


class RowTests(SynchronousTestCase):
    """The rows of the registry."""

    def test_names(self) -> None:
        """There are five, each found by its name."""
        self.assertEqual(transportNames(), OWN)
        self.assertEqual([findTransport(name).name for name in OWN], list(OWN))
        self.assertRaises(KeyError, findTransport, "line")

    def test_references(self) -> None:
        """What a row names is there, and is what the row says."""
        for row in transports():
            options = loadReference(row.options)
            self.assertTrue(has(options))
            self.assertEqual(asdict(options()), asdict(options()))
            made = loadReference(row.make)
            self.assertTrue(verifyClass(IGuest if row.shares else ITransport, made))
            self.assertTrue(
                all(isinstance(each, ProtocolMetric) for each in metricsOf(row.name).values())
            )
            if row.describe is not None:
                described = loadReference(row.describe)(row.name, GatewayOptions())
                self.assertIsInstance(described, Channel)

    def test_shared(self) -> None:
        """A row without a listener of its own shares one that carries others."""
        for row in transports():
            if row.shares is None:
                self.assertIn(row.address, ("endpoint", "hostport"))
                self.assertIn(row, listenerTransports())
            else:
                self.assertIsNone(row.address)
                self.assertNotIn(row, listenerTransports())
                carrier = loadReference(findTransport(row.shares).make)
                self.assertTrue(ICarrier.implementedBy(carrier))


class RegisterTests(SynchronousTestCase):
    """A sixth transport, of a row alone."""

    def setUp(self) -> None:
        """Add it to this process."""
        register(LINE)
        self.addCleanup(unregister, LINE)

    def test_once(self) -> None:
        """Its name and its flag are its own."""
        self.assertEqual(transportNames(), (*OWN, NAME))
        self.assertRaises(ValueError, register, LINE)
        self.assertRaises(ValueError, register, evolve(LINE, name="other"))
        self.assertRaises(ValueError, register, evolve(LINE, flag="enableOther"))

    def test_options(self) -> None:
        """It has a flag, a group of options and its place among the protocols."""
        gateway = createProtocolGateway(protocols=["http"], enableLine=True)
        self.assertEqual(gateway.settings.enabled, ("http", NAME))
        self.assertEqual(ProtocolGateway(protocols=[NAME]).settings.enabled, (NAME,))
        self.assertEqual(createProtocolGateway().settings.enabled, (*OWN, NAME))
        gateway.configure(NAME, maxLineBytes="1kb").configure(NAME, {"address": "unix:a"})
        expected = LineOptions(address="unix:a", maxLineBytes=1024)
        self.assertEqual(gateway.settings.of(NAME), expected)
        self.assertEqual(
            createProtocolGateway(line={"maxLineBytes": 5}).settings.of(NAME).maxLineBytes, 5
        )
        error = self.assertRaises(OptionError, gateway.configure, NAME, size=5)
        self.assertIn("line.size", str(error))
        self.assertRaises(OptionError, createProtocolGateway, enableLine="yes")

    def test_authentication(self) -> None:
        """It has default providers, rules, and its own way to find a token."""
        self.assertEqual(defaultRules()[NAME], ("apikey",))
        gateway = createProtocolGateway().configureAuthentication(
            providers={"apikey": {"validate": print, "extractToken": {NAME: print}}},
            rules={NAME: []},
        )
        self.assertEqual(gateway.authentication.rules[NAME], ())

    def test_items(self) -> None:
        """Services know how much an item may have."""
        self.assertEqual(maxItemBytes(), {"udp": 768, NAME: 16 * 1024})

    def test_metrics(self) -> None:
        """What is counted of it can be chosen, and nothing else."""
        gateway = createProtocolGateway(protocols=[NAME])
        gateway.configureMonitoring(metrics={"protocolMetrics": {NAME: ["line_count"]}})
        gateway.start(object())
        self.assertEqual(gateway.getMetrics()[NAME], {"line_count": {"in": 0, "out": 0}})
        error = self.assertRaises(
            OptionError,
            createProtocolGateway().configureMonitoring,
            metrics={"protocolMetrics": {NAME: ["speed"]}},
        )
        self.assertIn("line_count", str(error))

    def test_described(self) -> None:
        """It is a channel of AsyncAPI."""
        gateway = createProtocolGateway(protocols=[NAME], line={"address": "unix:/run/line"})
        gateway.addService("Probe", methods={"echo": _echo})
        methods = [gateway.invoker.find("Probe", "echo")]
        document = describeMessages(methods, gateway.settings)
        self.assertEqual(document["servers"], {NAME: {"host": "unix:/run/line", "protocol": NAME}})
        self.assertEqual(list(document["operations"]), ["line.Probe.echo"])

    def test_application(self) -> None:
        """An application takes its group, and gives it the options that were changed there."""
        gateway = createProtocolGateway(protocols=[NAME])
        config = gateway.getConfig(NAME)
        config[NAME]["maxLineBytes"] = 99
        app = server.http().withOptions(**config)
        self.assertEqual(gateway.settings.of(NAME).maxLineBytes, 99)
        self.assertEqual(app.settings.wires[NAME]["maxLineBytes"], 99)
        self.assertRaises(OptionError, app.withOptions, line={"gateway": object()})
        self.assertRaises(OptionError, app.withOptions, line=5)


async def _echo(request: Any, context: Any) -> Any:
    return request
