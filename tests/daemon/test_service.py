"""What an operator reads at the start."""

from twisted.internet.address import HostnameAddress, IPv4Address, IPv6Address, UNIXAddress
from twisted.trial.unittest import SynchronousTestCase

from storagegate.daemon.service import clientURL, firstKeyText, isExposed
from storagegate.net.endpoints import formatAddress
from storagegate.objects.issuedkeys import KeyPair


class AddressTests(SynchronousTestCase):
    """Addresses and URLs."""

    def test_formats(self) -> None:
        """Each kind of address has one form."""
        self.assertEqual(formatAddress(IPv4Address("TCP", "127.0.0.1", 9000)), "127.0.0.1:9000")
        self.assertEqual(formatAddress(IPv6Address("TCP", "::1", 9000)), "[::1]:9000")
        self.assertEqual(formatAddress(UNIXAddress(b"/run/s3")), "unix:/run/s3")
        self.assertIn("localhost", formatAddress(HostnameAddress(b"localhost", 1)))

    def test_urls(self) -> None:
        """The URL is one that a client on this machine can use."""
        for description, address, url in (
            ("tcp:9000", IPv4Address("TCP", "0.0.0.0", 9000), "http://127.0.0.1:9000"),
            ("tcp:9000", IPv6Address("TCP", "::", 9000), "http://[::1]:9000"),
            ("ssl:9000", IPv4Address("TCP", "10.0.0.1", 9000), "https://10.0.0.1:9000"),
            ("tls:x:tcp:1", IPv4Address("TCP", "10.0.0.1", 9000), "https://10.0.0.1:9000"),
            ("unix:/run/s3", UNIXAddress(b"/run/s3"), None),
        ):
            self.assertEqual(clientURL(description, address), url)

    def test_exposed(self) -> None:
        """A listener is exposed where others reach it and TLS does not hide what they send."""
        for description, address, exposed in (
            ("tcp:9000", IPv4Address("TCP", "0.0.0.0", 9000), True),
            ("tcp:9000", IPv4Address("TCP", "10.0.0.1", 9000), True),
            ("tcp:9000", IPv6Address("TCP", "::", 9000), True),
            ("tcp:9000", IPv6Address("TCP", "fe80::1%eth0", 9000), True),
            ("systemd:domain=INET:index=0", IPv4Address("TCP", "10.0.0.1", 9000), True),
            ("tcp:9000", IPv4Address("TCP", "127.0.0.2", 9000), False),
            ("tcp:9000", IPv6Address("TCP", "::1", 9000), False),
            ("ssl:9000", IPv4Address("TCP", "0.0.0.0", 9000), False),
            ("tls:x:tcp:1", IPv4Address("TCP", "0.0.0.0", 9000), False),
            ("unix:/run/s3", UNIXAddress(b"/run/s3"), False),
        ):
            self.assertEqual(isExposed(description, address), exposed, (description, address))


class TextTests(SynchronousTestCase):
    """The longer texts."""

    def test_firstKey(self) -> None:
        """The commands configure aws-cli as they stand."""
        pair = KeyPair("AKEY", "SKEY")
        places = ("http://127.0.0.1:9000", "/data/root-credentials", "http://[::1]:9001/console/")
        text = firstKeyText(pair, "us-east-1", *places)
        self.assertEqual(
            text.splitlines(),
            [
                "generated the root key pair, shown only once and"
                " stored in /data/root-credentials:",
                "aws configure set aws_access_key_id AKEY",
                "aws configure set aws_secret_access_key SKEY",
                "aws configure set region us-east-1",
                "aws configure set endpoint_url http://127.0.0.1:9000",
                "sign in to the console with the pair: http://[::1]:9001/console/",
            ],
        )
