"""
Requests as other clients send them, byte by byte of their habits: for those that are not installed.

What each sends was recorded on the wire.
"""

import base64
import hashlib
import re
from email.header import decode_header

from awscrt import checksums

from tests.support.s3signer import (
    SIGNED_CHUNKS,
    UNSIGNED,
    UNSIGNED_TRAILER,
    Answer,
    Outgoing,
    unsignedChunks,
)
from tests.wire.s3.fixture import S3Case


def md5Of(body: bytes) -> str:
    """Write the C{Content-MD5} of a body."""
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()


class ReplicaTests(S3Case):
    """The habits of clients that nobody drives here."""

    def setUp(self) -> None:
        """Have a bucket."""
        super().setUp()
        self.bucket = self.makeBucket("replica")

    def sendChunked(self, outgoing: Outgoing, chunks: list[bytes], trailer: bytes = b"") -> Answer:
        """Send a body in unsigned chunks with a trailer."""
        framed = unsignedChunks(chunks, trailer)
        length = str(sum(map(len, chunks)))
        sent = outgoing.adding(Content_Encoding="aws-chunked", x_amz_decoded_content_length=length)
        signed = self.signer.sign(sent, UNSIGNED_TRAILER)
        return self.send(Outgoing(signed.method, signed.target, signed.headers, framed))

    def test_pyarrow(self) -> None:
        """PyArrow: parts for 5 bytes, a CRC64NVME trailer on plain HTTP, a directory marker."""
        target = f"/{self.bucket}/table.parquet"
        made = self.sendSigned(
            Outgoing("POST", f"{target}?uploads=", {"x-amz-checksum-algorithm": "CRC64NVME"})
        )
        found = re.search(rb"<UploadId>(.+?)</UploadId>", made.body)
        assert found is not None, made
        upload = found[1].decode()
        crc = base64.b64encode(checksums.crc64nvme(b"PAR1!").to_bytes(8, "big")).decode()
        part = self.sendChunked(
            Outgoing(
                "PUT",
                f"{target}?partNumber=1&uploadId={upload}",
                {"x-amz-trailer": "x-amz-checksum-crc64nvme"},
            ),
            [b"PAR1!"],
            f"x-amz-checksum-crc64nvme:{crc}\r\n".encode(),
        )
        self.assertEqual(part.status, 200, part)
        self.assertEqual(part.headers["x-amz-checksum-crc64nvme"], crc)
        document = (
            '<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Part>'
            f"<ETag>{part.headers['etag']}</ETag><PartNumber>1</PartNumber>"
            f"<ChecksumCRC64NVME>{crc}</ChecksumCRC64NVME></Part></CompleteMultipartUpload>"
        )
        done = self.sendSigned(
            Outgoing("POST", f"{target}?uploadId={upload}", {}, document.encode())
        )
        self.assertEqual(done.status, 200, done)
        self.assertHolds(self.bucket, "table.parquet", b"PAR1!")
        marker = self.sendSigned(
            Outgoing("PUT", f"/{self.bucket}/dir/", {"Content-Type": "application/x-directory"})
        )
        self.assertEqual(marker.status, 200, marker)
        probe = self.sendSigned(
            Outgoing("GET", f"/{self.bucket}?list-type=2&max-keys=1&prefix=dir%2F")
        )
        self.assertIn(b"<Key>dir/</Key>", probe.body)

    def test_javascript(self) -> None:
        """aws-sdk-js: a stream is unsigned chunks with a CRC32 trailer on plain HTTP."""
        body = [b"s" * 65_536, b"t" * 65_536, b"end"]
        whole = b"".join(body)
        crc = base64.b64encode(checksums.crc32(whole).to_bytes(4, "big")).decode()
        answer = self.sendChunked(
            Outgoing(
                "PUT",
                f"/{self.bucket}/stream?x-id=PutObject",
                {
                    "x-amz-trailer": "x-amz-checksum-crc32",
                    "x-amz-sdk-checksum-algorithm": "CRC32",
                    "Content-Type": "application/octet-stream",
                },
            ),
            body,
            f"x-amz-checksum-crc32:{crc}\r\n".encode(),
        )
        self.assertEqual(answer.status, 200, answer)
        self.assertHolds(self.bucket, "stream", whole)
        head = self.s3.head_object(Bucket=self.bucket, Key="stream", ChecksumMode="ENABLED")
        self.assertEqual(head["ChecksumCRC32"], crc)
        # The transfer's own framing is no property of the object.
        self.assertNotIn("ContentEncoding", head)

    def test_restic(self) -> None:
        """restic's library: signed chunks, with the C{Content-MD5} of what they hold."""
        body = [b"r" * 65_536, b"rest"]
        whole = b"".join(body)
        signed = self.signer.sign(
            Outgoing(
                "PUT",
                f"/{self.bucket}/signed",
                {
                    "Content-Encoding": "aws-chunked",
                    "Content-MD5": md5Of(whole),
                    "x-amz-decoded-content-length": str(len(whole)),
                },
            ),
            SIGNED_CHUNKS,
        )
        frames = b"".join(self.signer.chunkFrames(signed, body))
        answer = self.send(Outgoing("PUT", signed.target, signed.headers, frames))
        self.assertEqual(answer.status, 200, answer)
        self.assertHolds(self.bucket, "signed", whole)
        self.assertEqual(self.sendSigned(Outgoing("HEAD", f"/{self.bucket}/")).status, 200)
        listed = self.sendSigned(
            Outgoing("GET", f"/{self.bucket}/?delimiter=&fetch-owner=true&list-type=2&prefix=")
        )
        self.assertIn(b"<Key>signed</Key>", listed.body)

    def test_objectStore(self) -> None:
        """Rust's object_store: create only if absent, and deletes with two digests."""
        target = f"/{self.bucket}/created"
        once = Outgoing("PUT", target, {"If-None-Match": "*"}, b"first")
        self.assertEqual(self.sendSigned(once).status, 200)
        self.assertAnswer(self.sendSigned(once), 412, "PreconditionFailed")
        document = b"<Delete><Object><Key>created</Key></Object><Quiet>true</Quiet></Delete>"
        digest = base64.b64encode(hashlib.sha256(document).digest()).decode()
        gone = self.sendSigned(
            Outgoing(
                "POST",
                f"/{self.bucket}?delete",
                {"Content-MD5": md5Of(document), "x-amz-checksum-sha256": digest},
                document,
            )
        )
        self.assertEqual(gone.status, 200, gone)
        self.assertMissing(self.bucket, "created")

    def test_rclone(self) -> None:
        """rclone: an unsigned payload with a C{Content-MD5} on plain HTTP, buckets made again."""
        answer = self.sendSigned(
            Outgoing(
                "PUT",
                f"/{self.bucket}/k?x-id=PutObject",
                {"Content-MD5": md5Of(b"unsigned"), "x-amz-meta-mtime": "1767225600.123456789"},
                b"unsigned",
            ),
            UNSIGNED,
        )
        self.assertEqual(answer.status, 200, answer)
        head = self.s3.head_object(Bucket=self.bucket, Key="k")
        self.assertEqual(head["Metadata"], {"mtime": "1767225600.123456789"})
        again = self.sendSigned(
            Outgoing("PUT", f"/{self.bucket}", {"x-amz-bucket-object-lock-enabled": "false"})
        )
        self.assertEqual(again.status, 200, again)

    def test_duckdb(self) -> None:
        """duckdb: a HEAD, then the tail of the file by range, then a piece."""
        body = bytes(range(256)) * 400
        self.s3.put_object(Bucket=self.bucket, Key="f.parquet", Body=body)
        target = f"/{self.bucket}/f.parquet"
        head = self.sendSigned(Outgoing("HEAD", target))
        self.assertEqual(head.headers["content-length"], str(len(body)))
        tail = self.sendSigned(
            Outgoing("GET", target, {"Range": f"bytes={len(body) - 8}-{len(body) - 1}"})
        )
        self.assertEqual((tail.status, tail.body), (206, body[-8:]))

    def test_rawUTF8Metadata(self) -> None:
        """Metadata sent as bare UTF-8 comes back as an RFC 2047 word, for headers are ASCII."""
        answer = self.send(
            Outgoing(
                "PUT",
                f"/{self.bucket}/k",
                {**self.signer.account.plainHeaders(), "x-amz-meta-name": "Gr\u00fc\u00dfe"},
                b"x",
            )
        )
        self.assertEqual(answer.status, 200, answer)
        value = self.s3.head_object(Bucket=self.bucket, Key="k")["Metadata"]["name"]
        self.assertRegex(value, r"(?i)^=\?utf-8\?[bq]\?.+\?=$")
        [(word, charset)] = decode_header(value)
        self.assertEqual(word.decode(charset), "Gr\u00fc\u00dfe")

    def test_plainHeaders(self) -> None:
        """The scheme of the two headers does everything that a signature does."""
        headers = self.signer.account.plainHeaders()
        target = f"/{self.bucket}/plain"
        self.assertEqual(self.send(Outgoing("PUT", target, headers, b"plain")).status, 200)
        got = self.send(Outgoing("GET", target, headers))
        self.assertEqual((got.status, got.body), (200, b"plain"))
        self.assertEqual(self.send(Outgoing("HEAD", target, headers)).status, 200)
        listed = self.send(Outgoing("GET", f"/{self.bucket}?max-keys=5", headers))
        self.assertIn(b"<Key>plain</Key>", listed.body)
        self.assertEqual(self.send(Outgoing("DELETE", target, headers)).status, 204)
        self.assertEqual(self.send(Outgoing("DELETE", f"/{self.bucket}", headers)).status, 204)
