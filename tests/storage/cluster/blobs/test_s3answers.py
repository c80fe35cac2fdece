"""What an answer of an S3 server proves."""

import hashlib

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.files import crc32c
from storagegate.storage.chunksums import CHUNK, ChunkSums
from storagegate.storage.cluster.blobs.s3answers import ObjectDigest, S3Answer, hexMD5
from tests.support.lyingupstream import crcOf, md5Of

BODY = b"some bytes"

CRC = ("X-Amz-Checksum-CRC32C", crcOf(BODY))


class UploadTests(SynchronousTestCase):
    """L{ObjectDigest.judge}."""

    def judge(self, *headers: tuple[str, str], status: int = 200, body: bytes = b"") -> str | None:
        """Judge an answer, without the MD5."""
        upload = ObjectDigest(len(BODY), crcOf(BODY))
        return upload.judge(S3Answer.of(status, headers, body))

    def test_checksum(self) -> None:
        """A checksum that is repeated decides, whatever the ETag is."""
        etag = ("ETag", '"of a KMS"')
        self.assertEqual(self.judge(etag, CRC), "")
        self.assertEqual(self.judge(etag, ("x-goog-hash", f"crc32c={crcOf(BODY)}")), "")
        hashes = (("x-goog-hash", "md5=AAAA"), ("x-goog-hash", f"crc32c={crcOf(BODY)}"))
        self.assertEqual(self.judge(etag, *hashes), "")
        self.assertIn("different checksum", str(self.judge(etag, (CRC[0], crcOf(b"other")))))

    def test_unknown(self) -> None:
        """Without a checksum the MD5 decides; an ETag that is another says nothing."""
        upload = ObjectDigest(len(BODY), crcOf(BODY))
        digest = lambda: hexMD5([BODY[:3], BODY[3:]])  # noqa: E731
        self.assertEqual(digest(), hashlib.md5(BODY, usedforsecurity=False).hexdigest())
        for etag, expected in ((md5Of(BODY), ""), (md5Of(b"other"), None), (md5Of(BODY)[:9], None)):
            answer = S3Answer.of(200, [("ETag", etag)], b"")
            self.assertEqual(upload.judge(answer, digest), expected)

    def test_refused(self) -> None:
        """Another status, no ETag, and an error in the body of a 200 are no confirmation."""
        etag = ("ETag", md5Of(BODY))
        error = b'<?xml version="1.0"?><Error><Code>InternalError</Code></Error>'
        self.assertIn("no ETag", str(self.judge(CRC)))
        self.assertIn("202", str(self.judge(etag, CRC, status=202)))
        self.assertIn("InternalError", str(self.judge(etag, CRC, body=error)))

    def test_codes(self) -> None:
        """A code counts inside of an error alone."""
        page = b"<html><Code>NoSuchKey</Code></html>"
        error = b"<Error xmlns='x'><Message>m</Message><Code>NoSuchKey</Code></Error>"
        self.assertFalse(S3Answer.of(404, [], page).isMissing)
        self.assertTrue(S3Answer.of(404, [], error).isMissing)
        for status, body, isRemoved in ((204, b"", True), (404, error, True), (404, page, False)):
            self.assertEqual(S3Answer.of(status, [], body).isRemoved, isRemoved)


class ChunkSumsTests(SynchronousTestCase):
    """L{ChunkSums}."""

    def test_sizes(self) -> None:
        """Bytes of any size in any buffers match, and no others."""
        for size in (0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 130 * CHUNK):
            body = bytes(size)
            sums, crc = ChunkSums.of("a", [body[:5], body[5:CHUNK], body[CHUNK:]])
            self.assertEqual(crc, crc32c(body))
            self.assertEqual(ChunkSums.parse(sums.text()), sums)
            self.assertLess(len(sums.text()), 1000)
            self.assertTrue(sums.matches("a", 0, body, size))
            if size:
                self.assertFalse(sums.matches("b", 0, body, size))
                self.assertFalse(sums.matches("a", 0, body[:-1] + b"x", size))
                self.assertFalse(sums.matches("a", 0, body, size + sums.chunk))

    def test_ranges(self) -> None:
        """A range matches in its own place, from the beginning of a chunk to the end of one."""
        body = bytes(3 * CHUNK + 5)
        sums, _ = ChunkSums.of("a", [body])
        last = body[2 * CHUNK :]
        self.assertTrue(sums.matches("a", 2 * CHUNK, last, len(body)))
        self.assertTrue(sums.matches("a", CHUNK, body[:CHUNK], len(body)))
        self.assertFalse(sums.matches("a", CHUNK, last, len(body)))
        self.assertFalse(sums.matches("a", CHUNK + 1, body[:CHUNK], len(body)))
        self.assertFalse(sums.matches("a", CHUNK, body[: CHUNK + 1], len(body)))

    def test_wrong(self) -> None:
        """A text of another form is refused."""
        for text in ("", "65536:x", "65536:AAAA", "1:AAAAAA==", "70000:AAAAAA==", "x:"):
            self.assertRaises(ValueError, ChunkSums.parse, text)
