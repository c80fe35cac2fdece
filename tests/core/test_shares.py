"""The share of one address."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.shares import AddressShares, shareOf


class ShareTests(SynchronousTestCase):
    """What one address may have, and what it has."""

    def test_shareOf(self) -> None:
        """Three quarters, at least one; or what an option says."""
        self.assertEqual([shareOf(limit) for limit in (1, 2, 3, 4, 1024)], [1, 2, 3, 3, 768])
        self.assertEqual(shareOf(1024, 5), 5)

    def test_of(self) -> None:
        """An address, and a network of IPv6, has one share as long as something refers to it."""
        shares = AddressShares()
        first = shares.of("2001:db8::1")
        first.calls += 1
        self.assertIs(shares.of("2001:db8::2"), first)
        self.assertIsNot(shares.of("192.0.2.1"), first)
        del first
        self.assertEqual(shares.of("2001:db8::1").calls, 0)

    def test_sockets(self) -> None:
        """Clients of a UNIX socket are not one address."""
        shares = AddressShares()
        first = shares.of("")
        self.assertIsNot(shares.of(""), first)
