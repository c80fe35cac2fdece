"""The file with the listeners of a running daemon."""

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from storagegate.daemon.listenerfile import (
    NAME,
    ListenerRecord,
    RunningDaemon,
    ownCertificates,
    readListeners,
    removeListeners,
    writeListeners,
)

DAEMON = RunningDaemon(
    4711,
    "us-east-1",
    "",
    True,
    {"s3": ListenerRecord("127.0.0.1:9000", "http://127.0.0.1:9000"), "grpc": ListenerRecord("x")},
)


class ListenerFileTests(SynchronousTestCase):
    """Writing, reading and removing."""

    def setUp(self) -> None:
        """Make a data directory."""
        self.data = Path(self.mktemp())
        self.data.mkdir()

    def test_roundTrip(self) -> None:
        """Only the process that wrote the file is believed; others cannot read it."""
        writeListeners(str(self.data), DAEMON)
        self.assertEqual((self.data / NAME).stat().st_mode & 0o777, 0o600)
        self.assertEqual(readListeners(str(self.data), 4711), DAEMON)
        self.assertIsNone(readListeners(str(self.data), 4712))
        removeListeners(str(self.data))
        removeListeners(str(self.data))
        self.assertIsNone(readListeners(str(self.data), 4711))

    def test_invalid(self) -> None:
        """Another content is as no file."""
        for content in (b"", b"{", b"[]", b'{"pid": 4711}', b"\xff", b"x" * (1 << 20)):
            (self.data / NAME).write_bytes(content)
            self.assertIsNone(readListeners(str(self.data), 4711), content[:20])

    def test_certificates(self) -> None:
        """The certificates of an endpoint have absolute paths; keys are not among them."""
        for name in ("b.pem", "a.pem", "notes"):
            (self.data / name).write_text("")
        here = self.data.absolute()
        self.assertEqual(
            ownCertificates(f"tls:{here}:tcp\\:9000"), (str(here / "a.pem"), str(here / "b.pem"))
        )
        self.assertEqual(ownCertificates("ssl:0:privateKey=/k:certKey=/c"), ("/c",))
        self.assertEqual(ownCertificates("tcp:9000"), ())
