"""What a user names as C{module:name}, and what is said of a name that stands for nothing."""

import sys
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.daemon.config import ConfigurationError, load
from storagegate.daemon.gatewayservice import (
    DaemonGatewayService,
    NamingError,
    configureGateway,
    loadObject,
)
from storagegate.gateway.gateway import createProtocolGateway

NUMBER = 5
EMPTY: dict[str, Any] = {"name": "Empty", "methods": {}}


class NamingTests(SynchronousTestCase):
    """Names."""

    def test_found(self) -> None:
        """A name is that of something in a module, and may have dots."""
        self.assertEqual(loadObject("tests.daemon.test_gatewayservice:NUMBER"), 5)
        self.assertIs(
            loadObject("tests.daemon.test_gatewayservice:NamingTests.test_found"),
            type(self).test_found,
        )

    def test_exits(self) -> None:
        """A module that ends the process when it is imported cannot be imported, like any other."""
        name = "storagegatenamingexits"
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        module = directory / f"{name}.py"
        module.write_text("raise SystemExit(3)\n")
        self.patch(sys, "path", [str(directory), *sys.path])
        error = self.assertRaises(NamingError, loadObject, f"{name}:X")
        self.assertEqual(str(error), f"{name}:X: cannot import {name}: SystemExit: 3")

    def test_noService(self) -> None:
        """What is named as a service and is none is said with its name."""
        for name, reason in (
            (
                "tests.daemon.test_gatewayservice:NUMBER",
                "a service is a mapping with methods, not 5",
            ),
            ("tests.daemon.test_gatewayservice:EMPTY", "the service Empty has no methods"),
            (
                "tests.daemon.test_gatewayservice:NOTHING",
                "tests.daemon.test_gatewayservice has no NOTHING",
            ),
        ):
            configuration = load({"service": [name], "data": self.mktemp()}, {})
            error = self.assertRaises(ConfigurationError, DaemonGatewayService, configuration, None)
            self.assertEqual(str(error), f"service: {name}: {reason}")


class TrustedProxiesTests(SynchronousTestCase):
    """The key of C{[gateway]} that is no table."""

    def test_set(self) -> None:
        """It is the option of the gateway; a value that names no network is said with its key."""
        gateway = createProtocolGateway()
        configureGateway(gateway, {"trustedProxies": ["10.0.0.0/8"], "http": {"basePath": "/v1"}})
        self.assertEqual(gateway.settings.trustedProxies, ["10.0.0.0/8"])
        wrong = {"trustedProxies": "nowhere"}
        error = self.assertRaises(ConfigurationError, configureGateway, gateway, wrong)
        self.assertIn("trustedProxies contains an invalid network", str(error))
