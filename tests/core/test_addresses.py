"""How addresses and networks are read."""

from ipaddress import ip_address, ip_network

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.addresses import readAddress, readNetwork


class AddressTests(SynchronousTestCase):
    """Addresses and networks."""

    @given(st.ip_addresses(v=4))
    def test_carried(self, address: object) -> None:
        """An address of IPv4 is read from each form that carries it."""
        for text in (f"{address}", f"::ffff:{address}", f"64:ff9b::{address}"):
            self.assertEqual(readAddress(text), address)
            self.assertEqual(readAddress(ip_address(text).exploded), address)

    def test_others(self) -> None:
        """Other addresses stay as they are, without their zone."""
        for text in ("::1", "2001:db8::ffff:10.9.9.9", "64:ff9b:1::10.9.9.9", "::10.9.9.9"):
            self.assertEqual(readAddress(text), ip_address(text))
        self.assertEqual(readAddress("fe80::1%eth0"), ip_address("fe80::1"))
        for wrong in ("", "a", "1.2.3", "1.2.3.4.5", "::1::", "1" * 4000, "::1%" + "x" * 100):
            self.assertRaises(ValueError, readAddress, wrong)

    def test_networks(self) -> None:
        """A network whose addresses carry those of IPv4 is that of IPv4."""
        for text, network in (
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("64:ff9b::a00:0/104", "10.0.0.0/8"),
            ("64:ff9b::/96", "0.0.0.0/0"),
            ("::ffff:10.9.9.9", "10.9.9.9/32"),
            ("64:ff9b::/95", "64:ff9b::/95"),
            ("2001:db8::/32", "2001:db8::/32"),
        ):
            self.assertEqual(readNetwork(text), ip_network(network), text)
        self.assertRaises(ValueError, readNetwork, "10.0.0.1/8")
        self.assertEqual(readNetwork("10.0.0.1/8", strict=False), ip_network("10.0.0.0/8"))
