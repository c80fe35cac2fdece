"""The certificates of listeners, and the sessions that clients resume, without sockets."""

import contextlib
import os
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.x509 import load_der_x509_certificate
from OpenSSL.SSL import Error, WantReadError
from twisted.internet.ssl import DiffieHellmanParameters
from twisted.internet.task import Clock
from twisted.python.filepath import FilePath

from storagegate.core.options import OptionError
from storagegate.net.certificates import ListenerCertificates, followDirectory, withOptions
from storagegate.net.servercontexts import TICKET_SECONDS
from storagegate.net.tls import ServerTLSOptions
from tests.support.certificates import Authority
from tests.support.log import LogCase

VERSIONS = (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2)


@frozen
class Handshake:
    """
    A completed handshake.

    @ivar isResumed: Whether it resumed the client's session.
    @ivar name: The name in the server's certificate.
    @ivar isECDSA: Whether its key is for ECDSA.
    @ivar peer: The name in the client's certificate; C{None} without one.
    """

    isResumed: bool
    name: str
    isECDSA: bool
    peer: str | None


class Client:
    """
    A client that connects again and again, and presents the session of its last connection.

    @ivar context: Its context.
    @ivar session: The session.
    """

    def __init__(
        self, version: ssl.TLSVersion, root: Path, pair: tuple[Path, Path] | None = None
    ) -> None:
        """
        @param root: The certificate of the authority that it trusts.
        @param pair: Its own certificate and key.
        """
        self.session: Any = None
        self.context = ssl.create_default_context(cafile=str(root))
        self.context.minimum_version = self.context.maximum_version = version
        self.context.check_hostname = False
        if pair is not None:
            self.context.load_cert_chain(*pair)

    def connect(
        self, certificates: ListenerCertificates, serverName: str | None = "localhost"
    ) -> Handshake:
        """
        Connect to a listener.

        @raise Error: If the server refuses the handshake.
        @raise ssl.SSLError: If the client does.
        """
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = self.context.wrap_bio(
            incoming, outgoing, server_hostname=serverName, session=self.session
        )
        server: Any = certificates.serverConnectionForTLS(None)
        server.set_accept_state()

        def exchange() -> None:
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
            if outgoing.pending:
                server.bio_write(outgoing.read())
            with contextlib.suppress(WantReadError):
                server.do_handshake()
            with contextlib.suppress(WantReadError):
                incoming.write(server.bio_read(65536))

        for _ in range(3):
            exchange()
        with contextlib.suppress(ssl.SSLWantReadError):
            # The tickets of TLS 1.3 follow the handshake.
            client.read(1)
        self.session = client.session
        found = load_der_x509_certificate(client.getpeercert(True) or b"")
        peer = server.get_peer_certificate()
        return Handshake(
            client.session_reused or False,
            found.subject.rfc4514_string().removeprefix("CN="),
            isinstance(found.public_key(), EllipticCurvePublicKey),
            None if peer is None else peer.get_subject().CN,
        )


class CertificateCase(LogCase):
    """Certificates in a directory."""

    def setUp(self) -> None:
        """Have an authority and a pair."""
        super().setUp()
        self.folder = Path(self.mktemp()).absolute()
        self.authority = Authority(self.folder / "authority")
        self.pair = self.authority.issue(file="own")
        self.clock = Clock()

    def listener(self, **options: Any) -> ListenerCertificates:
        """Make the certificates of a listener with the option C{tls}."""
        given = {"cert": self.pair[0], "key": self.pair[1], **options}
        return withOptions(ServerTLSOptions(**given), self.clock.seconds)

    def client(
        self, version: ssl.TLSVersion = VERSIONS[0], pair: tuple[Path, Path] | None = None
    ) -> Client:
        """Make a client that trusts the authority."""
        return Client(version, self.authority.path, pair)

    def assertResumed(
        self, client: Client, certificates: ListenerCertificates, isResumed: bool = True
    ) -> None:
        """Assert that a client resumes its session, or does not."""
        self.assertEqual(client.connect(certificates).isResumed, isResumed)


class ResumptionTests(CertificateCase):
    """Clients that connect again."""

    def test_resumed(self) -> None:
        """The second connection and the ones after it resume the session, in both versions."""
        certificates = self.listener()
        for version in VERSIONS:
            client = self.client(version)
            found = [client.connect(certificates).isResumed for _ in range(4)]
            self.assertEqual(found, [False, True, True, True])

    def test_lifetime(self) -> None:
        """A ticket ends after an hour, even if the client has renewed it; then there is another."""
        certificates = self.listener()
        for version in VERSIONS:
            client = self.client(version)
            self.assertResumed(client, certificates, False)
            self.assertEqual(client.session.ticket_lifetime_hint, TICKET_SECONDS)
            for _ in range(2):
                self.clock.advance(TICKET_SECONDS / 2 - 1)
                self.assertResumed(client, certificates)
            self.clock.advance(2)
            self.assertResumed(client, certificates, False)
            self.assertResumed(client, certificates)
            self.clock.advance(TICKET_SECONDS)

    def test_notRenewed(self) -> None:
        """If there cannot be another context, the old one stays, and the log says so once."""
        certificates = self.listener()
        client = self.client()
        client.connect(certificates)
        missing = DiffieHellmanParameters(FilePath("/nowhere"))
        certificates.content._more = {"dhParameters": missing}
        self.clock.advance(TICKET_SECONDS)
        for _ in range(2):
            self.assertFalse(self.client().connect(certificates).isResumed)
        self.assertEqual(sum("tickets stay in use" in text for text in self.logged()), 1)
        certificates.content._more = {}
        self.clock.advance(TICKET_SECONDS)
        self.assertResumed(client, certificates, False)

    def test_replaced(self) -> None:
        """A ticket ends with its certificate; unusable files change nothing."""
        certificates = self.listener()
        for version in VERSIONS:
            client = self.client(version)
            client.connect(certificates)
            own = self.pair[1].read_bytes()
            self.pair[1].write_bytes(b"no key")
            self.assertResumed(client, certificates)
            self.pair[1].write_bytes(own)
            os.replace(self.authority.issue(file="new")[0], self.pair[0])
            os.replace(self.pair[0].with_name("new.key"), self.pair[1])
            self.assertResumed(client, certificates, False)
            self.assertResumed(client, certificates)
        # Each mistake is logged, as well as each renewal.
        self.assertEqual(sum("stay in use" in text for text in self.logged()), 2)

    def test_apart(self) -> None:
        """A session is not resumed on another listener, even with the same certificate."""
        one, two = self.listener(), self.listener()
        for version in VERSIONS:
            client = self.client(version)
            client.connect(one)
            self.assertResumed(client, two, False)
            self.assertResumed(client, two)
            self.assertResumed(client, one, False)

    def test_clientCertificate(self) -> None:
        """A resumed session keeps the client's certificate."""
        certificates = self.listener(ca=self.authority.path)
        pair = self.authority.issue("caller")
        for version in VERSIONS:
            client = self.client(version, pair)
            for isResumed in (False, True, True):
                found = client.connect(certificates)
                self.assertEqual((found.isResumed, found.peer), (isResumed, "caller"))

    def test_noBypass(self) -> None:
        """A session of a listener for all clients does not open one that requires a certificate."""
        open_ = self.listener()
        closed = self.listener(ca=self.authority.path)
        other = Authority(self.folder / "other")
        for version in VERSIONS:
            client = self.client(version)
            self.assertIsNone(client.connect(open_).peer)
            self.assertRaises(Error, client.connect, closed)
            # A certificate of another authority opens only the listener that trusts it.
            client = self.client(version, other.issue("caller"))
            self.assertEqual(client.connect(self.listener(ca=other.path)).peer, "caller")
            self.assertRaises(Error, client.connect, closed)

    def test_authority(self) -> None:
        """A change of the authorities of clients ends the sessions of their clients."""
        trusted = self.folder / "trusted.pem"
        trusted.write_bytes(self.authority.path.read_bytes())
        certificates = self.listener(ca=trusted)
        for version in VERSIONS:
            client = self.client(version, self.authority.issue("caller"))
            client.connect(certificates)
            self.assertResumed(client, certificates)
            trusted.write_bytes(Authority(self.folder / "other").path.read_bytes())
            self.assertRaises(Error, client.connect, certificates)
            trusted.write_bytes(self.authority.path.read_bytes() + b"\n")
            self.assertResumed(client, certificates, False)


class SeveralTests(CertificateCase):
    """Certificates whose keys have different algorithms."""

    def setUp(self) -> None:
        """Have a pair for RSA, too, from another intermediate authority."""
        super().setUp()
        folder = self.folder / "chains"
        for number, isRSA in enumerate((True, False)):
            between = Authority(folder, f"between{number}", self.authority)
            paths = between.issue(file=f"chain{number}", isRSA=isRSA)
            paths[0].write_bytes(paths[0].read_bytes() + between.path.read_bytes())
        self.certs = [folder / f"chain{number}.crt" for number in range(2)]
        self.keys = [folder / f"chain{number}.key" for number in range(2)]

    def old(self) -> Client:
        """Make a client that supports RSA only."""
        client = self.client(ssl.TLSVersion.TLSv1_2)
        client.context.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
        return client

    def test_chosen(self) -> None:
        """A client gets a certificate that it supports, with its own chain, ECDSA first."""
        for order in (1, -1):
            certificates = self.listener(cert=self.certs[::order], key=self.keys[::order])
            clients: list[tuple[Callable[[], Client], bool]] = [(self.old, False)]
            clients += [(partial(self.client, version), True) for version in VERSIONS]
            for make, isECDSA in clients:
                client = make()
                for isResumed in (False, True):
                    found = client.connect(certificates)
                    self.assertEqual((found.isECDSA, found.isResumed), (isECDSA, isResumed))
            self.assertEqual(sorted(certificates.ends), [str(each) for each in self.certs])

    def test_followed(self) -> None:
        """Each of the files is followed."""
        certificates = self.listener(cert=self.certs, key=self.keys)
        before = dict(certificates.ends)
        fresh = self.authority.issue(file="fresh", days=9)
        os.replace(fresh[0], self.certs[1])
        os.replace(fresh[1], self.keys[1])
        self.assertTrue(self.client().connect(certificates).isECDSA)
        self.assertGreater(certificates.ends[str(self.certs[1])], before[str(self.certs[1])])
        self.assertEqual(certificates.ends[str(self.certs[0])], before[str(self.certs[0])])

    def test_refused(self) -> None:
        """Two keys of one algorithm, other numbers of files and mismatches are errors."""
        first = (self.certs[0], self.keys[0])
        for cert, key, expected in (
            ([self.pair[0], self.certs[1]], [self.pair[1], self.keys[1]], "different algorithms"),
            (self.certs, self.keys[:1], "one key for each certificate"),
            (self.certs, self.keys[::-1], "does not belong to the certificate"),
            ([], [], "is the path of a file"),
            ([first[0], 7], list(first), "is the path of a file"),
        ):
            with self.assertRaises((OptionError, ValueError)) as caught:
                self.listener(cert=cert, key=key)
            self.assertIn(expected, str(caught.exception))


class DirectoryTests(CertificateCase):
    """The certificates of a C{tls:} endpoint."""

    def write(self, name: str, *paths: Path) -> Path:
        """Write a file of other files."""
        path = self.folder / "served" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"".join(each.read_bytes() for each in paths))
        return path

    def served(self) -> ListenerCertificates:
        """Make the certificates of the directory."""
        return followDirectory(str(self.folder / "served"), self.clock.seconds)

    def test_names(self) -> None:
        """A client gets the certificate for the name that it sends, and resumes with it."""
        for name in ("a.example", "*.b.example"):
            self.write(f"{name.strip('*.')}.pem", *self.authority.issue(name, name.strip("*.")))
        certificates = self.served()
        for version in VERSIONS:
            for sent, expected in (
                ("a.example", "a.example"),
                ("A.EXAMPLE", "a.example"),
                ("one.b.example", "*.b.example"),
                # Unknown names get the certificate of the first file.
                ("one.two.b.example", "a.example"),
                ("unknown.example", "a.example"),
                (None, "a.example"),
            ):
                client = self.client(version)
                for isResumed in (False, True):
                    found = client.connect(certificates, sent)
                    self.assertEqual((found.name, found.isResumed), (expected, isResumed), sent)

    def test_chains(self) -> None:
        """Intermediate certificates are found in any file, and the root does not end in a loop."""
        between = Authority(self.folder / "between", "between", self.authority)
        below = Authority(self.folder / "between", "below", between)
        self.write("key.pem", *below.issue(file="own"))
        self.write("more.pem", between.path, self.authority.path, below.path)
        self.assertEqual(self.client().connect(self.served()).name, "localhost")

    def test_several(self) -> None:
        """A name may have two certificates; of two for one algorithm, the one that ends later."""
        for days, file in ((3, "a"), (9, "b"), (5, "c")):
            self.write(f"{file}.pem", *self.authority.issue(file=file, days=days))
        self.write("rsa.pem", *self.authority.issue(file="rsa", isRSA=True))
        certificates = self.served()
        old = self.client(ssl.TLSVersion.TLSv1_2)
        old.context.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
        self.assertFalse(old.connect(certificates).isECDSA)
        for version in VERSIONS:
            self.assertTrue(self.client(version).connect(certificates).isECDSA)
        [best] = [each for each in certificates.content._default if "EC" in each.algorithm]
        after = best.certificate.to_cryptography().not_valid_after_utc.timestamp()
        self.assertEqual(after, certificates.ends[str(self.folder / "served" / "b.pem")])

    def test_changed(self) -> None:
        """A certificate that is added is served to the next client; the others keep no sessions."""
        self.write("a.pem", *self.authority.issue("a.example", "a"))
        certificates = self.served()
        client = self.client()
        client.connect(certificates, "a.example")
        self.write("b.pem", *self.authority.issue("b.example", "b"))
        self.assertEqual(self.client().connect(certificates, "b.example").name, "b.example")
        self.assertFalse(client.connect(certificates, "a.example").isResumed)

    def test_listed(self) -> None:
        """Files that come, go and move are noticed, in new directories and old ones, too."""
        one = self.write("a.pem", *self.authority.issue("a.example", "a"))
        certificates = self.served()
        # Nothing has changed for long.
        for path in (one.parent, one):
            os.utime(path, (1, 1))
        self.assertEqual(self.client().connect(certificates, "b.example").name, "a.example")
        below = one.parent / "below"
        below.mkdir()
        for path in (one.parent, below):
            os.utime(path, (2, 2))
        self.assertEqual(self.client().connect(certificates, "b.example").name, "a.example")
        self.write("below/b.pem", *self.authority.issue("b.example", "b"))
        self.assertEqual(self.client().connect(certificates, "b.example").name, "b.example")
        one.unlink()
        self.assertEqual(self.client().connect(certificates, "a.example").name, "b.example")
        self.assertEqual(list(certificates.ends), [str(below / "b.pem")])

    def test_unusable(self) -> None:
        """A missing directory and a key without its certificate are errors that name the place."""
        self.assertIn("is not a directory", str(self.assertRaises(ValueError, self.served)))
        one, two = self.authority.issue("a", "a"), self.authority.issue("b", "b")
        self.write("mixed.pem", one[0], two[1])
        self.assertIn("belongs to no certificate", str(self.assertRaises(ValueError, self.served)))

    def test_empty(self) -> None:
        """An empty directory refuses handshakes until there is a certificate."""
        self.write("nothing.txt")
        certificates = self.served()
        self.assertRaises(Error, self.client().connect, certificates)
        self.write("a.pem", *self.authority.issue("a.example", "a"))
        self.assertEqual(self.client().connect(certificates).name, "a.example")
