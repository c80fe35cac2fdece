"""The files of TLS: what is refused, and what happens when they change."""

import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from storagegate.core.options import OptionError
from storagegate.net.tls import ServerTLSOptions
from storagegate.rpc.credentials import GRPCCertificates
from tests.support.certificates import Authority, keyText
from tests.support.log import LogCase


class FilesCase(LogCase):
    """A case with an authority and the files of a server."""

    def setUp(self) -> None:
        """Make them."""
        super().setUp()
        self.directory = Path(self.mktemp())
        self.authority = Authority(self.directory)
        self.cert, self.key = self.authority.issue()

    def options(self, **changes: Path) -> ServerTLSOptions:
        """Give options with these files, and others."""
        return ServerTLSOptions(**{"cert": self.cert, "key": self.key, **changes})

    def other(self, content: bytes) -> Path:
        """Write another file."""
        path = self.directory / "other"
        path.write_bytes(content)
        return path

    def exchange(self) -> None:
        """Put another certificate in the place of the one that is there."""
        cert, key = self.authority.issue(file="new")
        os.replace(cert, self.cert)
        os.replace(key, self.key)


class StartTests(FilesCase):
    """Files that a server is started with."""

    def refused(self, **changes: Path) -> str:
        """Give what is said of files that cannot be used."""
        error = self.assertRaises(OptionError, GRPCCertificates, self.options(**changes))
        return str(error)

    def test_good(self) -> None:
        """Good files are good for a server, whether clients need a certificate or not."""
        GRPCCertificates(self.options()).credentials()
        GRPCCertificates(self.options(ca=self.authority.path)).credentials()

    def test_missing(self) -> None:
        """A file that is not there is named, with its option."""
        gone = self.directory / "gone.pem"
        for name in ("cert", "key", "ca"):
            self.assertEqual(
                self.refused(**{name: gone}),
                f"the option tls.{name}: {gone}: No such file or directory",
            )

    def test_unreadable(self) -> None:
        """A directory is no file."""
        self.assertEqual(
            self.refused(cert=self.directory),
            f"the option tls.cert: {self.directory}: Is a directory",
        )

    def test_noPEM(self) -> None:
        """A file with something else is named, with its option."""
        for content in (b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n"):
            path = self.other(content)
            for name in ("cert", "ca"):
                self.assertEqual(
                    self.refused(**{name: path}),
                    f"the option tls.{name}: {path} is not a PEM certificate",
                )
            self.assertEqual(
                self.refused(key=path),
                f"the option tls.key: {path} is not a PEM key, or needs a password",
            )

    def test_exchanged(self) -> None:
        """A key in the place of the certificate is no certificate."""
        self.assertIn("tls.cert", self.refused(cert=self.key, key=self.cert))

    def test_mismatch(self) -> None:
        """A key of another certificate is refused, and both are named."""
        _, key = self.authority.issue("elsewhere")
        self.assertEqual(
            self.refused(key=key),
            f"the option tls.key: {key} does not belong to the certificate {self.cert}",
        )

    def test_password(self) -> None:
        """A key with a password is refused, without a prompt."""
        path = self.other(keyText(ec.generate_private_key(ec.SECP256R1()), b"secret"))
        self.assertIn("needs a password", self.refused(key=path))

    def test_long(self) -> None:
        """A file without end is not read to the end."""
        self.assertEqual(
            self.refused(cert=Path("/dev/zero")),
            "the option tls.cert: /dev/zero is longer than 1 MiB",
        )


class ReloadTests(FilesCase):
    """Files that change while they are in use."""

    def test_same(self) -> None:
        """Files that do not change are not read again."""
        files = GRPCCertificates(self.options())
        self.assertIsNone(files.fetch())
        self.assertEqual(self.logged(), [])

    def test_changed(self) -> None:
        """New files are taken once, and the log says so."""
        files = GRPCCertificates(self.options())
        self.exchange()
        self.assertIsNotNone(files.fetch())
        self.assertEqual(self.logged(), [f"new TLS files are in use: {self.cert}"])
        self.assertIsNone(files.fetch())

    def test_overwritten(self) -> None:
        """A file that is written anew, in the same place and as long as before, is seen too."""
        files = GRPCCertificates(self.options())
        text = self.authority.path.read_bytes()
        files = GRPCCertificates(self.options(ca=self.authority.path))
        os.utime(self.authority.path, ns=(1, 1))
        self.authority.path.write_bytes(text)
        self.assertIsNotNone(files.fetch())

    def test_bad(self) -> None:
        """Bad files change nothing, and are told of once until they change again."""
        files = GRPCCertificates(self.options())
        self.key.write_bytes(b"")
        self.assertIsNone(files.fetch())
        self.assertIsNone(files.fetch())
        (line,) = self.logged()
        self.assertIn(f"the old TLS files stay in use: the option tls.key: {self.key}", line)
        self.exchange()
        self.assertIsNotNone(files.fetch())

    def test_between(self) -> None:
        """A new certificate whose key is not there yet is not used until it is."""
        files = GRPCCertificates(self.options())
        cert, key = self.authority.issue(file="new")
        os.replace(cert, self.cert)
        self.assertIsNone(files.fetch())
        os.replace(key, self.key)
        self.assertIsNotNone(files.fetch())

    def test_gone(self) -> None:
        """Files that are taken away change nothing; when they are back, they are read."""
        files = GRPCCertificates(self.options())
        self.cert.rename(self.directory / "away")
        self.assertIsNone(files.fetch())
        self.assertIn("No such file", self.logged()[0])
        (self.directory / "away").rename(self.cert)
        self.assertIsNotNone(files.fetch())

    def test_written(self) -> None:
        """Files that change while they are checked are checked again at the next handshake."""

        cert = self.cert

        class Busy(GRPCCertificates):
            """Files that are being written whenever they are read."""

            def _stamp(self):  # type: ignore[no-untyped-def]
                os.utime(cert)
                return super()._stamp()

        files = Busy(self.options())
        self.exchange()
        self.assertIsNone(files.fetch())
        self.key.write_bytes(b"half of a k")
        self.assertIsNone(files.fetch())
        # It may well be whole by the next time: nothing to tell of yet.
        self.assertEqual(self.logged(), [])
