"""Every way to write a client's address gives one key."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.context import rateLimitKey


class KeyTests(SynchronousTestCase):
    """The keys of addresses."""

    def test_keys(self) -> None:
        """Every way to write an address gives one key."""
        for address, key in (
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("::FFFF:c000:0207", "192.0.2.7"),
            ("64:ff9b::192.0.2.7", "192.0.2.7"),
            ("64:FF9B:0::c000:207", "192.0.2.7"),
            ("64:ff9b:1::c000:207", "64:ff9b:1::/56"),
            ("2001:db8::1", "2001:db8::/56"),
            ("2001:0DB8:0:00ff:1:2:3:4", "2001:db8::/56"),
            ("2001:db8:1:2345:6:7:8:9", "2001:db8:1:2300::/56"),
            ("fe80::1%eth0", "fe80::/56"),
            ("::1", "::/56"),
            ("", ""),
            ("no:address", "no:address"),
        ):
            self.assertEqual(rateLimitKey(address), key)

    @given(st.ip_addresses(v=6))
    def test_network(self, address: Any) -> None:
        """An address and its network's first have one key, whichever they are."""
        key = rateLimitKey(str(address))
        if address.ipv4_mapped is None:
            self.assertEqual(rateLimitKey(key.removesuffix("/56")), key)
            self.assertEqual(rateLimitKey(address.exploded), key)
        else:
            self.assertEqual(key, str(address.ipv4_mapped))
