"""Attacks on bodies: what was signed, counted or summed is what is stored, or nothing is."""

import base64
import socket

from attrs import evolve
from awscrt import checksums

from tests.support.s3signer import (
    SIGNED_CHUNKS,
    SIGNED_CHUNKS_TRAILER,
    UNSIGNED,
    UNSIGNED_TRAILER,
    Answer,
    Outgoing,
    unsignedChunks,
    wireBytes,
)
from tests.wire.s3.attacks import AttackCase

LARGE = b"large" * 40_000
"""Over the 64 KiB that live in a row, so that a file is staged."""


class PayloadAttackTests(AttackCase):
    """Bodies that are not what their head says."""

    def test_hashMismatch(self) -> None:
        """A body with another hash than the signed one is never visible."""
        for body in (b"small", LARGE):
            signed = self.signer.sign(Outgoing("PUT", self.target("new"), {}, body))
            for forged in (body[:-1] + b"X", body.upper()):
                answer = self.send(evolve(signed, body=forged))
                self.assertAnswer(answer, 400, "XAmzContentSHA256Mismatch")
        self.assertUntouched()

    def test_hashMismatchOverwrites(self) -> None:
        """A refused overwrite leaves what was there."""
        signed = self.signer.sign(Outgoing("PUT", self.target("held"), {}, LARGE))
        answer = self.send(evolve(signed, body=LARGE.upper()))
        self.assertAnswer(answer, 400, "XAmzContentSHA256Mismatch")
        self.assertUntouched()

    def test_hashMismatchOfAPart(self) -> None:
        """A part with another hash is not there."""
        upload = self.s3.create_multipart_upload(Bucket=self.bucket, Key="new")["UploadId"]
        named = {"Bucket": self.bucket, "Key": "new", "UploadId": upload}
        target = self.target("new", f"partNumber=1&uploadId={upload}")
        signed = self.signer.sign(Outgoing("PUT", target, {}, LARGE))
        answer = self.send(evolve(signed, body=LARGE.upper()))
        self.assertAnswer(answer, 400, "XAmzContentSHA256Mismatch")
        self.assertNotIn("Parts", self.s3.list_parts(**named))
        self.s3.abort_multipart_upload(**named)
        self.assertUntouched()

    def test_cutShort(self) -> None:
        """A body that ends before its length, because the client went away, is not there."""
        for body in (b"small body", LARGE):
            signed = self.signer.sign(Outgoing("PUT", self.target("new"), {}, body))
            with socket.create_connection(self.address) as connection:
                connection.sendall(wireBytes(signed, self.host)[:-1])
                connection.shutdown(socket.SHUT_WR)
                # Whatever is said now, the connection ends: there will be no last byte.
                while connection.recv(65_536):
                    pass
        self.assertUntouched()


class ChunkAttackTests(AttackCase):
    """Bodies in chunks, signed and unsigned, that were changed under way."""

    chunks = (b"a" * 65_536, b"b" * 65_536, b"c" * 1000)

    def setUp(self) -> None:
        """Sign a head and its chunks."""
        super().setUp()
        self.length = sum(map(len, self.chunks))
        self.signed = self.signHead(str(self.length))
        self.frames = self.signer.chunkFrames(self.signed, self.chunks)

    def signHead(self, length: str) -> Outgoing:
        """Sign the head of a body in signed chunks."""
        headers = {"Content-Encoding": "aws-chunked", "x-amz-decoded-content-length": length}
        return self.signer.sign(Outgoing("PUT", self.target("new"), headers), SIGNED_CHUNKS)

    def sendFrames(self, frames: list[bytes], head: Outgoing | None = None) -> Answer:
        """Send frames behind a head that was signed."""
        return self.send(evolve(head or self.signed, body=b"".join(frames)))

    def test_untampered(self) -> None:
        """The body that all others here are made from is good."""
        self.assertEqual(self.sendFrames(self.frames).status, 200)
        self.assertHolds(self.bucket, "new", b"".join(self.chunks))

    def test_tampered(self) -> None:
        """Bytes changed, chunks swapped, left out or doubled, no end: nothing is there."""
        first, second, third, last = self.frames
        flipped = first.replace(b"aaa", b"aba", 1)
        signature = second.partition(b"=")[2][:64]
        for name, frames in (
            ("data", [flipped, second, third, last]),
            ("swapped", [second, first, third, last]),
            ("left out", [first, third, last]),
            ("doubled", [first, first, second, third, last]),
            ("no end", [first, second, third]),
            ("cut", [first, second, third[:-10]]),
            ("signature", [first, second.replace(signature, b"0" * 64), third, last]),
            ("no signature", [first, b"10000\r\n" + self.chunks[1] + b"\r\n", third, last]),
            ("end unsigned", [first, second, third, b"0\r\n\r\n"]),
            ("end forged", [first, second, third, b"0;chunk-signature=" + b"0" * 64 + b"\r\n\r\n"]),
            ("junk after", [first, second, third, last, b"junk"]),
        ):
            self.assertRejected(self.sendFrames(frames), (400, 403), name)
            self.assertUntouched()

    def test_lengths(self) -> None:
        """The length that was signed is a length, and the length that comes."""
        for length in (
            *(str(self.length + off) for off in (-1, 1, -self.length)),
            "-1",
            "abc",
            "1e3",
            "",
            "9" * 23,
        ):
            head = self.signHead(length)
            frames = self.signer.chunkFrames(head, self.chunks)
            self.assertRejected(self.sendFrames(frames, head), (400,), length)
        self.assertUntouched()

    def test_badFraming(self) -> None:
        """Sizes that cannot be and lines that do not end are refused before they are believed."""
        for name, body in (
            ("1 TiB", b"10000000000\r\nabc\r\n0\r\n\r\n"),
            ("20 digits", b"fffffffffffffffffff\r\nabc\r\n0\r\n\r\n"),
            ("long line", b"3;x=" + b"y" * 5000 + b"\r\nabc\r\n0\r\n\r\n"),
            ("endless line", b"3" * 70_000),
            ("sign", b"+3\r\nabc\r\n0\r\n\r\n"),
            ("prefix", b"0x3\r\nabc\r\n0\r\n\r\n"),
            ("underscore", b"0_3\r\nabc\r\n0\r\n\r\n"),
            ("space", b" 3\r\nabc\r\n0\r\n\r\n"),
            ("bare LF", b"3\nabc\n0\n\n"),
            ("no CRLF", b"3\r\nabcX0\r\n\r\n"),
            ("empty", b""),
            ("long trailer", b"3\r\nabc\r\n0\r\n" + b"x: " + b"y" * 9000 + b"\r\n\r\n"),
        ):
            headers = {"Content-Encoding": "aws-chunked", "x-amz-decoded-content-length": "3"}
            outgoing = Outgoing("PUT", self.target("new"), headers)
            signed = self.signer.sign(outgoing, UNSIGNED_TRAILER)
            self.assertRejected(self.send(evolve(signed, body=body)), (400,), name)
        self.assertUntouched()

    def test_trailers(self) -> None:
        """A checksum behind the body is right, there, and of the name that was announced."""
        right = base64.b64encode(checksums.crc32(b"abc").to_bytes(4, "big")).decode()
        for body, trailer in (
            (LARGE, f"x-amz-checksum-crc32:{right}"),
            (b"abc", "x-amz-checksum-crc32:AAAAAA=="),
            (b"abc", "x-amz-checksum-crc32:"),
            (b"abc", "x-amz-checksum-crc32:!!!!"),
            (b"abc", f"x-amz-checksum-crc32c:{right}"),
            (b"abc", f"x-amz-checksum-crc32:{right}\r\nx-amz-checksum-crc32:{right}"),
            (b"abc", "x-amz-meta-a:1"),
            (b"abc", ""),
        ):
            headers = {
                "Content-Encoding": "aws-chunked",
                "x-amz-decoded-content-length": str(len(body)),
                "x-amz-trailer": "x-amz-checksum-crc32",
            }
            signed = self.signer.sign(
                Outgoing("PUT", self.target("new"), headers), UNSIGNED_TRAILER
            )
            framed = unsignedChunks([body], f"{trailer}\r\n".encode() if trailer else b"")
            self.assertRejected(self.send(evolve(signed, body=framed)), (400,), trailer)
        self.assertUntouched()

    def test_signedTrailer(self) -> None:
        """A signed trailer is as it was signed, signed at all, and true."""
        right = base64.b64encode(checksums.crc32(b"abc").to_bytes(4, "big"))
        headers = {
            "Content-Encoding": "aws-chunked",
            "x-amz-decoded-content-length": "3",
            "x-amz-trailer": "x-amz-checksum-crc32",
        }
        head = self.signer.sign(Outgoing("PUT", self.target("new"), headers), SIGNED_CHUNKS_TRAILER)

        def frames(value: bytes) -> list[bytes]:
            return self.signer.chunkFrames(head, [b"abc"], b"x-amz-checksum-crc32:" + value)

        data, end, trailer = frames(right)
        signature = trailer.partition(b"signature:")[2][:64]
        unsigned = trailer.partition(b"x-amz-trailer")[0] + b"\r\n"
        for name, sent in (
            ("untrue", frames(b"AAAAAA==")),
            ("changed", [data, end, trailer.replace(right, b"AAAAAA==")]),
            ("forged", [data, end, trailer.replace(signature, b"0" * 64)]),
            ("unsigned", [data, end, unsigned]),
            ("left out", [data, end, b"\r\n"]),
            ("cut", [data, end, trailer[:-2]]),
        ):
            self.assertRejected(self.sendFrames(sent, head), (400, 403), name)
            self.assertUntouched()
        self.assertEqual(self.sendFrames(frames(right), head).status, 200)
        found = self.s3.head_object(Bucket=self.bucket, Key="new", ChecksumMode="ENABLED")
        self.assertEqual(found["ChecksumCRC32"], right.decode())

    def test_undeclaredFraming(self) -> None:
        """Chunk framing in a body that was not announced as such is just bytes of it."""
        framed = unsignedChunks([b"abc"])
        self.assertEqual(
            self.sendSigned(Outgoing("PUT", self.target("new"), {}, framed), UNSIGNED).status, 200
        )
        self.assertHolds(self.bucket, "new", framed)
