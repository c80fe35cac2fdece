"""The targets of clients."""

from twisted.internet.endpoints import (
    HostnameEndpoint,
    TCP4ClientEndpoint,
    TCP6ClientEndpoint,
    UNIXClientEndpoint,
)
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.rpc.engine.native.target import readTarget


class TargetTests(SynchronousTestCase):
    """Targets and their endpoints."""

    def test_forms(self) -> None:
        """Each form has its authority, its name in certificates, and its endpoint."""
        for target, authority, host, kind in (
            ("dns:///a.example:443", "a.example:443", "a.example", HostnameEndpoint),
            ("dns:a.example:443", "a.example:443", "a.example", HostnameEndpoint),
            ("a.example:443", "a.example:443", "a.example", HostnameEndpoint),
            ("dns:///192.0.2.1:443", "192.0.2.1:443", "192.0.2.1", TCP4ClientEndpoint),
            ("[2001:db8::1]:443", "[2001:db8::1]:443", "2001:db8::1", TCP6ClientEndpoint),
            ("ipv4:192.0.2.1:1", "192.0.2.1:1", "192.0.2.1", TCP4ClientEndpoint),
            ("ipv4:192.0.2.1:1,192.0.2.2:2", "192.0.2.1:1", "192.0.2.1", HostnameEndpoint),
            ("ipv6:[::1]:1,[::2]:2", "[::1]:1", "::1", HostnameEndpoint),
            ("unix:/run/x", "localhost", "localhost", UNIXClientEndpoint),
            ("unix:///run/x", "localhost", "localhost", UNIXClientEndpoint),
            ("unix:x", "localhost", "localhost", UNIXClientEndpoint),
        ):
            found = readTarget(target)
            self.assertEqual((found.authority, found.host), (authority, host), target)
            self.assertIsInstance(found.endpoint(MemoryReactorClock(), 5.0), kind, target)

    def test_bad(self) -> None:
        """Others are refused, by their text."""
        for target in (
            "",
            "x",
            "x:0",
            "x:65536",
            "x:+1",
            "::1:5",
            "dns://8.8.8.8/x:1",
            "ipv4:x:1",
            "ipv4:192.0.2.1:1,",
            "ipv6:[192.0.2.1]:1",
            "unix:",
            "unix:a\0b",
            "xds:///x:1",
        ):
            error = self.assertRaises(ValueError, readTarget, target)
            self.assertLess(len(str(error)), 200)
