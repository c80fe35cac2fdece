"""A byte that changed on the disk: what a read gives out, with C{verifyReads} and without."""

import sqlite3
from http.client import HTTPConnection
from pathlib import Path

from tests.support.clients import ROOT
from tests.support.daemon import Daemon
from tests.support.s3signer import ANSWER_SECONDS, Answer, Outgoing, exchange
from tests.support.selection import long
from tests.wire.s3.fixture import S3Case, makeDaemon, ownDirectory

LARGE = bytes(range(256)) * 4096
SMALL = b"small enough for the catalog"


class RottenTests(S3Case):
    """A store in which one byte of each object has changed while nobody served it."""

    def setUp(self) -> None:
        """Store objects, stop, and damage them."""
        super().setUp()
        self.data = ownDirectory("rotten") / "data"
        with self.served("false") as daemon:
            self.send(daemon, "PUT", "/rotten")
            for key, body in (("large", LARGE), ("sound", LARGE), ("small", SMALL)):
                self.send(daemon, "PUT", f"/rotten/{key}", body)
            daemon.stop()
        self.damage()

    def served(self, verifyReads: str) -> Daemon:
        """Give a daemon on the data; it is not started."""
        return makeDaemon(self.data, STORAGEGATE_VERIFY_READS=verifyReads)

    def send(self, daemon: Daemon, method: str, target: str, body: bytes = b"") -> Answer:
        """Send a request, which must be answered 2xx to its end."""
        answer = exchange(daemon.address(), Outgoing(method, target, ROOT.plainHeaders(), body))
        self.assertEqual(answer.status // 100, 2, answer)
        return answer

    def damage(self) -> None:
        """Flip a bit in the middle of the large object, and one of the small object's."""
        connection = sqlite3.connect(self.data / "catalog.sqlite")
        with connection:
            ((segments,),) = connection.execute(
                "SELECT segments FROM objects WHERE key = CAST('large' AS BLOB)"
            )
            connection.execute("UPDATE inline SET bytes = ?", (self.flipped(SMALL),))
        connection.close()
        blob = segments.split('"')[1]
        (path,) = Path(self.data, "blobs").glob(f"*/*/{blob}")
        path.write_bytes(self.flipped(LARGE))

    def flipped(self, body: bytes) -> bytes:
        """Change one bit in the middle."""
        changed = bytearray(body)
        changed[len(body) // 2] ^= 1
        return bytes(changed)

    @long("takes a second or more")
    def test_default(self) -> None:
        """By default what is on the disk goes out, until a check has found the damage."""
        with self.served("false") as daemon:
            self.assertTrue(self.send(daemon, "GET", "/rotten/large").body == self.flipped(LARGE))
            self.assertEqual(self.send(daemon, "GET", "/rotten/small").body, self.flipped(SMALL))
            self.assertEqual(daemon.stop(), 0)

    @long("takes a second or more")
    def test_wholeIsCut(self) -> None:
        """A read that verifies ends before its last byte, which is logged and remembered."""
        with self.served("true") as daemon:
            received = self.receive(daemon, "/rotten/large")
            self.assertTrue(0 < len(received) < len(LARGE), len(received))
            daemon.waitForLog("blob [0-9a-f]{32} differs from the bytes that were written")
            for _ in range(2):
                self.refused(daemon, "/rotten/large")
                ready = exchange(daemon.address("admin"), Outgoing("GET", "/readyz"))
                self.assertEqual(ready.status, 200)
                self.assertIn(b"1 objects or blobs are corrupt", ready.body)
                self.assertTrue(self.send(daemon, "GET", "/rotten/sound").body == LARGE)
                self.assertEqual(daemon.stop(), 0)
                daemon.start()

    def receive(self, daemon: Daemon, target: str) -> bytes:
        """Read what comes of a body before the connection ends, however it does."""
        connection = HTTPConnection(*daemon.address(), timeout=ANSWER_SECONDS)
        self.addCleanup(connection.close)
        connection.request("GET", target, headers=ROOT.plainHeaders())
        response = connection.getresponse()
        self.assertEqual(response.getheader("content-length"), str(len(LARGE)))
        received = b""
        try:
            while piece := response.read1(1 << 16):
                received += piece
        except ConnectionResetError:
            pass  # The bytes before it are what is asked about.
        return received

    @long("takes a second or more")
    def test_range(self) -> None:
        """A range is not begun where another byte of its blob has changed."""
        with self.served("true") as daemon:
            sound = self.range(daemon, "/rotten/sound")
            self.assertEqual((sound.status, sound.body), (206, LARGE[1000:300_001]))
            self.assertEqual(self.range(daemon, "/rotten/large").status, 500)
            daemon.waitForLog("blob [0-9a-f]{32} differs from the bytes that were written")

    def range(self, daemon: Daemon, target: str) -> Answer:
        """Read some bytes of an object."""
        headers = {**ROOT.plainHeaders(), "range": "bytes=1000-300000"}
        return exchange(daemon.address(), Outgoing("GET", target, headers))

    @long("takes a second or more")
    def test_small(self) -> None:
        """Bytes that changed in the catalog are not given out, and the log says of what."""
        with self.served("true") as daemon:
            self.refused(daemon, "/rotten/small")
            daemon.waitForLog("object rotten/b'small' is damaged")

    def refused(self, daemon: Daemon, target: str) -> None:
        """Check that a read is an error of the server."""
        answer = exchange(daemon.address(), Outgoing("GET", target, ROOT.plainHeaders()))
        self.assertEqual((answer.status, answer.code), (500, "InternalError"))
