"""Which proxies are believed."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.forwarded import clientAddresses, compileTrust


class TrustTests(SynchronousTestCase):
    """The C{trustProxy} option."""

    def client(self, option: object, forwarded: str, peer: str = "127.0.0.1") -> str:
        """Give the client's address as an application with this option sees it."""
        return clientAddresses(peer, forwarded, compileTrust(option))[-1]

    def test_nobody(self) -> None:
        """Without the option, what a client claims counts for nothing."""
        for option in (False, None, 0):
            self.assertEqual(self.client(option, "1.2.3.4"), "127.0.0.1")

    def test_everybody(self) -> None:
        """With True the outermost address counts."""
        self.assertEqual(self.client(True, "1.2.3.4, 10.0.0.1"), "1.2.3.4")

    def test_hops(self) -> None:
        """A number counts proxies: an address that the client made up lies beyond them."""
        self.assertEqual(self.client(1, "6.6.6.6, 1.2.3.4"), "1.2.3.4")
        self.assertEqual(self.client(2, "6.6.6.6, 1.2.3.4"), "6.6.6.6")
        self.assertEqual(self.client(5, "1.2.3.4"), "1.2.3.4")

    def test_networks(self) -> None:
        """Networks and their names are believed, the first address outside of them is it."""
        self.assertEqual(self.client("loopback", "6.6.6.6, 1.2.3.4"), "1.2.3.4")
        chain = "6.6.6.6, 1.2.3.4, 10.1.1.1"
        self.assertEqual(self.client(["loopback", "10.0.0.0/8"], chain), "1.2.3.4")
        self.assertEqual(self.client("loopback, uniquelocal", chain), "1.2.3.4")
        self.assertEqual(self.client("10.0.0.0/8", chain), "127.0.0.1")
        self.assertEqual(self.client("10.0.0.1", "1.2.3.4", "::ffff:10.0.0.1"), "1.2.3.4")
        self.assertEqual(self.client("loopback", "1.2.3.4", "::1"), "1.2.3.4")

    def test_notAnAddress(self) -> None:
        """What is no address is believed by no network, and leads no further."""
        self.assertEqual(self.client("loopback", "1.2.3.4, what"), "what")
        self.assertEqual(self.client("loopback", "1.2.3.4", ""), "")

    def test_function(self) -> None:
        """A function decides by address and distance."""
        asked = []

        def trust(address: str, hop: int) -> bool:
            asked.append((address, hop))
            return hop < 1

        self.assertEqual(self.client(trust, "6.6.6.6, 1.2.3.4"), "1.2.3.4")
        self.assertEqual(asked, [("127.0.0.1", 0), ("1.2.3.4", 1)])

    def test_bounded(self) -> None:
        """A field of thousands of addresses is not followed to its end."""
        addresses = clientAddresses("::1", ",".join(["1.1.1.1"] * 5000), compileTrust(True))
        self.assertLess(len(addresses), 60)

    def test_wrong(self) -> None:
        """A value that is none is refused when it is set."""
        for wrong in (-1, "nowhere", "10.0.0.0/99", ["::1", "x"], 1.5):
            self.assertRaises(ValueError, compileTrust, wrong)
