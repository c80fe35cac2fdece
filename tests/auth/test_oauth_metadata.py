"""From where the documents of an issuer may be fetched."""

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IHostnameResolver
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from storagegate.auth.oauth import MetadataFetcher, addressAllowed, readURL
from storagegate.net.http.clientconnection import HTTPClientError

ISSUER = "login.example.com"
TRUSTED = frozenset({ISSUER})

METADATA = (
    "169.254.169.254",
    "169.254.0.1",
    "fe80::1",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    "0.0.0.0",
    "::",
    "224.0.0.1",
    "ff02::1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "::a9fe:a9fe",
)
PRIVATE = (
    "127.0.0.1",
    "::1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "fd12::1",
    "::ffff:10.1.2.3",
    "64:ff9b::a01:203",
    "64:ff9b:1::a01:203",
    "fec0::1",
    "::10.1.2.3",
    "::127.0.0.1",
)
PUBLIC = ("93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::5db8:d822")


class URLTests(SynchronousTestCase):
    """What is a URL of a document."""

    def test_good(self) -> None:
        """It is https, or http on this machine."""
        for text, scheme, host in (
            ("https://login.example.com", "https", ISSUER),
            ("https://Login.Example.COM:8443/a/b?c=d", "https", ISSUER),
            ("https://[2001:db8::1]/keys", "https", "2001:db8::1"),
            ("http://localhost:8080/", "http", "localhost"),
            ("http://127.0.0.1/", "http", "127.0.0.1"),
            ("http://[::1]:80/", "http", "::1"),
        ):
            url = readURL(text)
            self.assertEqual((url.text, url.scheme, url.host), (text, scheme, host))

    def test_bad(self) -> None:
        """Anything else is none."""
        for text in (
            "http://login.example.com/",
            "http://127.0.0.1.example.com/",
            "http://localhost.example.com/",
            "http://10.0.0.1/",
            "http://169.254.169.254/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://[::ffff:10.0.0.1]/",
            "HTTPS://login.example.com/",
            "https:///keys",
            "https://",
            "https://a:b@login.example.com/",
            "https://login.example.com@evil.example/",
            "https://login.example.com\\@evil.example/",
            "https://login.example.com/\\evil",
            "https://login.example.com/a b",
            "https://login.example.com/a\r\nX: y",
            "https://login.example.com/#a",
            "https://login.example.com:99999/",
            "https://login.example.com:/",
            "https://l\u00f6gin.example.com/",
            "https://login.example.com/" + "a" * 3000,
            " https://login.example.com/",
            "https://login.example.com/\n",
            "file:///etc/passwd",
            "",
            None,
            b"https://login.example.com/",
        ):
            self.assertRaises(ValueError, readURL, text)


class AddressTests(SynchronousTestCase):
    """Which addresses a host may lead to."""

    def allowed(self, address: str, url: str) -> bool:
        """Ask for one."""
        return addressAllowed(address, readURL(url), TRUSTED)

    def test_configured(self) -> None:
        """The configured host may be in a private network, but not where machines' secrets are."""
        for address in (*PUBLIC, *PRIVATE):
            self.assertTrue(self.allowed(address, f"https://{ISSUER}/"), address)
        for address in METADATA:
            self.assertFalse(self.allowed(address, f"https://{ISSUER}/"), address)

    def test_named(self) -> None:
        """A host that only a document names is in the public network, whatever its name."""
        for host in ("keys.example.com", "10.1.2.3", "169.254.169.254", "2130706433", "0x7f.1"):
            for address in PUBLIC:
                self.assertTrue(self.allowed(address, f"https://{host}/"), address)
            for address in (*PRIVATE, *METADATA):
                self.assertFalse(self.allowed(address, f"https://{host}/"), address)

    def test_literal(self) -> None:
        """An address that was configured itself is allowed, whichever it is."""
        for address in ("169.254.169.254", "10.1.2.3", "127.0.0.1"):
            url = readURL(f"https://{address}/")
            self.assertTrue(addressAllowed(address, url, frozenset({address})))
            self.assertFalse(addressAllowed("169.254.0.1", url, frozenset({address})))

    def test_loopback(self) -> None:
        """Without TLS, a name that leads anywhere but to this machine leads nowhere."""
        trusted = frozenset({"localhost"})
        url = readURL("http://localhost/")
        for address in ("127.0.0.1", "::1", "127.3.2.1"):
            self.assertTrue(addressAllowed(address, url, trusted))
        for address in (*PUBLIC, *METADATA, "10.1.2.3"):
            self.assertFalse(addressAllowed(address, url, trusted))


@implementer(IHostnameResolver)
class Names:
    """
    Leads every name to some addresses.

    @ivar addresses: Which; the next question may find others there.
    """

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self.asked = 0

    def resolveHostName(self, receiver: Any, hostName: str, portNumber: int = 0, *a: Any) -> Any:
        """Tell them."""
        self.asked += 1
        receiver.resolutionBegan(self)
        for address in self.addresses:
            receiver.addressResolved(IPv4Address("TCP", address, portNumber))
        receiver.resolutionComplete()
        return self


class ConnectionTests(SynchronousTestCase):
    """What is connected to."""

    def connect(self, url: str, *addresses: str) -> tuple[Any, list[Any]]:
        """Connect to the host of a URL; give the outcome, and what was connected to."""
        reactor = MemoryReactorClock()
        names = Names(*addresses)
        reactor.nameResolver = names
        fetcher = MetadataFetcher(reactor, TRUSTED)
        connecting = Deferred.fromCoroutine(fetcher.fetch(readURL(url)))
        reactor.advance(60)
        # A second resolution may have another result.
        self.assertEqual(names.asked, 1)
        return connecting, [client[:2] for client in reactor.tcpClients]

    def test_allowed(self) -> None:
        """An address that is allowed is connected to: that one, not the name."""
        connecting, places = self.connect("https://keys.example.com:444/", "93.184.216.34")
        self.assertEqual(places, [("93.184.216.34", 444)])
        connecting.addErrback(lambda failure: None)

    def test_refused(self) -> None:
        """Of a name that leads to others, too, only what is allowed is connected to."""
        connecting, places = self.connect("https://k.example.com/", "10.0.0.1", "169.254.169.254")
        error = self.failureResultOf(connecting, HTTPClientError).value
        self.assertIn("DNSLookupError", str(error))
        self.assertEqual(places, [])
        connecting, places = self.connect("https://k.example.com/", "127.0.0.1", "93.184.216.34")
        self.assertEqual(places, [("93.184.216.34", 443)])
        connecting.addErrback(lambda failure: None)

    def test_configured(self) -> None:
        """The configured host may be in a private network."""
        connecting, places = self.connect(f"https://{ISSUER}/", "10.0.0.1")
        self.assertEqual(places, [("10.0.0.1", 443)])
        connecting.addErrback(lambda failure: None)
