"""The forms in which options of gRPC are given: a mapping wherever keywords are."""

from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from storagegate import rpc, server
from storagegate.core.options import OptionError
from storagegate.rpc import authentication, createGrpcClient, errorHandler, rateLimit, requestLog


class ServerTests(SynchronousTestCase):
    """C{withOptions({port, grpc: {...}})}."""

    def test_withOptions(self) -> None:
        """Every option of the specification may be given in one mapping."""
        app = server.grpc().withOptions(
            {
                "port": 50052,
                "grpc": {
                    "maxReceiveMessageLength": 1024,
                    "maxSendMessageLength": 2048,
                    "keepaliveTimeMs": 1000,
                    "keepaliveTimeoutMs": 500,
                    "keepalivePermitWithoutCalls": True,
                    "http2MaxPingsWithoutData": 2,
                    "http2MinTimeBetweenPingsMs": 100,
                    "http2MaxPingStrikes": 3,
                    "maxConnectionIdle": 10_000,
                    "maxConnectionAge": 20_000,
                    "maxConnectionAgeGrace": 1000,
                    "compression": "gzip",
                    "compressionOptions": {"level": 6, "threshold": 100},
                },
            }
        )
        self.assertEqual(app.settings.port, 50052)
        self.assertEqual(app.settings.grpc.maxReceiveMessageLength, 1024)
        self.assertEqual(app.settings.grpc.compressionOptions.threshold, 100)

    def test_both(self) -> None:
        """Keywords win, and what neither names stays."""
        app = server.grpc().withOptions({"port": 1, "hostname": "::1"}, port=2)
        app.withOptions({"grpc": {"reflection": True}})
        settings = app.settings
        self.assertEqual((settings.port, settings.hostname), (2, "::1"))
        self.assertTrue(settings.grpc.reflection)

    def test_wrong(self) -> None:
        """What is unknown is named."""
        app = server.grpc()
        for options, problem in [
            ({"prot": 1}, "there is no option prot"),
            ({"grpc": {"gzip": 1}}, "there is no option grpc.gzip"),
            ("port", "options are a mapping or keywords"),
        ]:
            error = self.assertRaises(OptionError, app.withOptions, options)
            self.assertIn(problem, str(error))

    def test_listen(self) -> None:
        """What is unknown in the place to listen at is named before a port is opened."""
        error = self.assertRaises(OptionError, server.grpc().listen, {"prot": 1})
        self.assertIn("there is no option prot", str(error))
        error = self.assertRaises(OptionError, server.grpc().listen, {"port": -1})
        self.assertIn("the option port is a number", str(error))


class ClientTests(SynchronousTestCase):
    """C{createGrpcClient({address, credentials})}."""

    def _make(self, *given: Any, **keywords: Any) -> Any:
        client = createGrpcClient(*given, **keywords)
        self.addCleanup(client.close)
        return client

    def test_mapping(self) -> None:
        """The address and the credentials may be in one mapping."""
        reactor = MemoryReactorClock()
        for given in [
            ({"address": "127.0.0.1:1", "credentials": "insecure"},),
            ("127.0.0.1:1", {"credentials": "insecure"}),
            ("127.0.0.1:1", {"credentials": "insecure", "options": {"compression": "gzip"}}),
        ]:
            client = self._make(*given, reactor=reactor)
            self.assertEqual(client.services, {})

    def test_credentials(self) -> None:
        """A mapping after the address that names a certificate is the credentials."""
        error = self.assertRaises(ValueError, createGrpcClient, "127.0.0.1:1", {"cert": "x"})
        self.assertIn("credentials.cert and credentials.key go together", str(error))

    def test_wrong(self) -> None:
        """What is unknown or missing is named."""
        for given, problem in [
            (({"adress": "x:1"},), "there is no option createGrpcClient.adress"),
            (("x:1", {"credentials": "tls", "servce": "A"}), "createGrpcClient.servce"),
            (({"credentials": "insecure"},), "the option createGrpcClient.address is missing"),
            (({"address": "x:1"},), "credentials are"),
        ]:
            error = self.assertRaises(ValueError, createGrpcClient, *given)
            self.assertIn(problem, str(error))


class MiddlewareTests(SynchronousTestCase):
    """The middleware of gRPC."""

    def test_mappings(self) -> None:
        """Every middleware takes its options as one mapping, and names what it does not know."""
        for factory, options in [
            (authentication, {"verify": lambda token: token, "publicMethods": ["Get"]}),
            (errorHandler, {"onError": lambda error, call: None}),
            (rateLimit, {"windowMs": 1000, "max": 2}),
            (requestLog, {"format": "{path}"}),
        ]:
            self.assertIn(factory.__name__, rpc.__all__)
            self.assertTrue(callable(factory(options)))
            error = self.assertRaises(OptionError, factory, {"nothing": 1})
            self.assertIn(f"there is no option {factory.__name__}.nothing", str(error))
