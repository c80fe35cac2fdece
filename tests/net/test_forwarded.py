"""Which proxies are believed, and what of the fields they write."""

from typing import Any

from twisted.internet.task import Clock
from twisted.logger import LogEvent, Logger, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.context import rateLimitKey
from storagegate.core.limitedlog import RateLimitedLog
from storagegate.net import forwarded
from storagegate.net.forwarded import clientAddresses, compileTrust, metadataAddress

# What a proxy writes, and the address that it names.
FORMS = (
    ("10.9.9.9", "10.9.9.9"),
    ("  10.9.9.9\t", "10.9.9.9"),
    ("10.9.9.9:4711", "10.9.9.9"),
    ("10.9.9.9:_hidden", "10.9.9.9"),
    ('"10.9.9.9"', "10.9.9.9"),
    ('"10.9.9.9:4711"', "10.9.9.9"),
    ('"10.9.9\\.9"', "10.9.9.9"),
    ("::ffff:10.9.9.9", "10.9.9.9"),
    ("[::ffff:10.9.9.9]:1", "10.9.9.9"),
    ("[::FFFF:0a09:0909]", "10.9.9.9"),
    ("64:ff9b::10.9.9.9", "10.9.9.9"),
    ('"[64:ff9b::a09:909]:4711"', "10.9.9.9"),
    ("2001:DB8:0::1", "2001:db8::1"),
    ("[2001:db8::1]", "2001:db8::1"),
    ("[2001:db8::1]:47011", "2001:db8::1"),
    ('"[2001:db8::1]:47011"', "2001:db8::1"),
    ("fe80::1%eth0", "fe80::1"),
)

# What names no address.
NONE = (
    "unknown",
    '"unknown"',
    "_hidden",
    "_SEVKISEK",
    "unknown:4711",
    "10.9.9.9:",
    "10.9.9.9:123456",
    "10.9.9.9:4711:4712",
    "10.9.9",
    "010.9.9.9",
    "10.9.9.9.",
    "[10.9.9.9]:1",
    "[::ffff:10.9.9.9",
    "::ffff:10.9.9.9]:1",
    "[]:1",
    '"',
    '"10.9.9.9',
    "client.example",
    "10.9.9.9 10.9.9.9",
    "\u0661.1.1.1",
    "fe80::1%" + "z" * 9000,
    "x" * 9000,
)


class TrustTests(SynchronousTestCase):
    """The C{trustProxy} option."""

    def client(self, option: object, chain: str, peer: str = "127.0.0.1") -> str:
        """Give the client's address as an application with this option sees it."""
        return clientAddresses(peer, compileTrust(option), chain)[-1]

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
        """What is no address ends the walk at the last trusted proxy."""
        for text in NONE:
            self.assertEqual(self.client("loopback", f"1.2.3.4, {text}"), "127.0.0.1", text)
            self.assertEqual(self.client(True, f"1.2.3.4, {text}, 10.0.0.1"), "10.0.0.1", text)
        self.assertEqual(self.client("loopback", "1.2.3.4", ""), "")

    def test_forms(self) -> None:
        """Ports, brackets, quotes and zones are taken off; IPv4 within IPv6 is IPv4."""
        for text, address in FORMS:
            self.assertEqual(self.client("loopback", f"1.2.3.4, {text}"), address, text)
            # And as that of a proxy, which leads further.
            chain = f"1.2.3.4, {text}"
            self.assertEqual(self.client(["loopback", address], chain), "1.2.3.4", text)

    def test_emptyElements(self) -> None:
        """Empty elements of the list are none."""
        for text in ("1.2.3.4,", "1.2.3.4, ,", "9.9.9.9,,1.2.3.4 ,"):
            self.assertEqual(self.client("loopback", text), "1.2.3.4", text)

    def test_embedded(self) -> None:
        """A trusted network of IPv4 holds for IPv6 that carries it, however either is written."""
        for network in ("10.0.0.0/8", "::ffff:10.0.0.0/104", "64:ff9b::10.0.0.0/104"):
            for peer in ("10.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1"):
                self.assertEqual(self.client(network, "1.2.3.4", peer), "1.2.3.4", (network, peer))
        for whole in ("64:ff9b::/96", "::ffff:0:0/96"):
            self.assertRaises(ValueError, compileTrust, whole)

    def test_forwarded(self) -> None:
        """The C{for} of C{Forwarded} counts where there is no C{X-Forwarded-For}."""
        trust = compileTrust("loopback")

        def client(field: str, forwardedFor: str = "") -> str:
            return clientAddresses("127.0.0.1", trust, forwardedFor, field)[-1]

        for text, address in FORMS:
            for element in (f"for={text}", f"proto=https;FOR={text}; by=_x"):
                self.assertEqual(client(f"for=1.2.3.4, {element}"), address, element)
        # An element that a client leaves open does not swallow that of the proxy behind it.
        self.assertEqual(client('for="1.2.3.4;x=", for=10.9.9.9'), "10.9.9.9")
        for none in ("for=unknown", "proto=https", "for=1.1.1.1;for=2.2.2.2", "10.9.9.9", 'for="'):
            self.assertEqual(client(f"for=1.2.3.4, {none}"), "127.0.0.1", none)
        self.assertEqual(client("for=1.2.3.4", "10.9.9.9"), "10.9.9.9")

    def test_metadata(self) -> None:
        """Over gRPC the values of repeated fields are one list."""
        metadata = [("x-forwarded-for", "6.6.6.6"), ("a", "b"), ("x-forwarded-for", "10.9.9.9:1")]
        trust = compileTrust("loopback")
        self.assertEqual(metadataAddress("127.0.0.1", trust, metadata), "10.9.9.9")
        self.assertEqual(metadataAddress("127.0.0.1", None, metadata), "127.0.0.1")
        self.assertEqual(metadataAddress("::1", trust, [("forwarded", "for=10.9.9.9")]), "10.9.9.9")

    def test_keys(self) -> None:
        """A client that comes by many ports and many forms counts as one, under a short key."""
        chains = [f"10.9.9.9:{port}" for port in range(50000, 50100)]
        chains += [text for text, address in FORMS if address == "10.9.9.9"]
        keys = {rateLimitKey(self.client("loopback", each)) for each in chains}
        self.assertEqual(keys, {"10.9.9.9"})
        keys = {rateLimitKey(self.client("loopback", each)) for each in NONE}
        self.assertEqual(keys, {"127.0.0.1"})

    def test_saidOnce(self) -> None:
        """What is no address is said in one short line, however often it comes."""
        events: list[LogEvent] = []
        observer: Any = events.append
        log = RateLimitedLog(Logger("test", observer=observer), Clock().seconds)
        self.patch(forwarded, "_limited", log)
        for each in range(500):
            self.assertEqual(self.client("loopback", f"{each:09000}"), "127.0.0.1")
        (line,) = map(formatEvent, events)
        self.assertLess(len(line), 200)
        self.assertIn("127.0.0.1", line)

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
        addresses = clientAddresses("::1", compileTrust(True), ",".join(["1.1.1.1"] * 5000))
        self.assertLess(len(addresses), 60)

    def test_wrong(self) -> None:
        """A value that is none is refused when it is set."""
        for wrong in (-1, "nowhere", "10.0.0.0/99", ["::1", "x"], 1.5):
            self.assertRaises(ValueError, compileTrust, wrong)
