"""Checksums: values, and objects in parts."""

import hashlib
import zlib
from base64 import b64encode

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.checksums import (
    ALGORITHMS,
    BodyExpectation,
    BodyHasher,
    ExpectedChecksum,
    checksumKind,
    compositeChecksum,
    decodeDigest,
    encodeDigest,
    fullObjectChecksum,
    multipartETag,
    newHasher,
)
from storagegate.objects.errors import BadDigest, InvalidRequest, PayloadHashMismatch
from tests.support.selection import rounds

CRCS = ("CRC32", "CRC32C", "CRC64NVME")


def value(algorithm: str, data: bytes) -> str:
    """Compute a checksum at once."""
    hasher = newHasher(algorithm)
    hasher.update(data)
    return encodeDigest(hasher.digest())


class HasherTests(SynchronousTestCase):
    """Values of the algorithms."""

    def test_checkValues(self) -> None:
        """Each CRC of C{123456789} is the check value of its definition."""
        for algorithm, digest in (
            ("CRC32", "cbf43926"),
            ("CRC32C", "e3069283"),
            ("CRC64NVME", "ae8b14860a799888"),
        ):
            hasher = newHasher(algorithm)
            hasher.update(b"123456789")
            self.assertEqual(hasher.digest().hex(), digest)

    @settings(max_examples=rounds(10, 50), deadline=None)
    @given(st.lists(st.binary(max_size=100), max_size=5))
    def test_pieces(self, pieces: list[bytes]) -> None:
        """Pieces give the value of the whole, and the libraries of others the same."""
        data = b"".join(pieces)
        for algorithm in (*ALGORITHMS, "MD5"):
            hasher = newHasher(algorithm)
            for piece in pieces:
                hasher.update(piece)
            self.assertEqual(encodeDigest(hasher.digest()), value(algorithm, data))
            self.assertEqual(b64encode(hasher.digest()).decode(), value(algorithm, data))
        self.assertEqual(value("CRC32", data), b64encode(zlib.crc32(data).to_bytes(4)).decode())
        for algorithm in ("SHA1", "SHA256", "MD5"):
            expected = b64encode(hashlib.new(algorithm, data).digest()).decode()
            self.assertEqual(value(algorithm, data), expected)

    def test_sizes(self) -> None:
        """The table has the sizes of the values."""
        for algorithm, known in ALGORITHMS.items():
            self.assertEqual(len(newHasher(algorithm).digest()), known.size)

    def test_decodeDigest(self) -> None:
        """A value is strict Base64 of the right length."""
        self.assertEqual(decodeDigest(b"AAAAAA==", 4), bytes(4))
        for bad in (b"", b"AAAAAA=", b"AAAAAA", b"AAAAAAA=", b" AAAAAA==", b"AAAAAA==\n", b"AA=="):
            self.assertIsNone(decodeDigest(bad, 4), bad)
        self.assertIsNone(decodeDigest(b"\xff" * 8, 4))

    def test_mismatch(self) -> None:
        """A checksum, an MD5 or a payload that is another is refused, and named."""
        right = BodyExpectation(
            md5=hashlib.md5(b"").digest(),
            payloadHash=hashlib.sha256(b"").hexdigest(),
            checksum=ExpectedChecksum("CRC32", "AAAAAA=="),
        )
        BodyHasher(right).verify()
        wrong = replace(right, checksum=ExpectedChecksum("CRC32", "AAAAAQ=="))
        error = self.assertRaises(BadDigest, BodyHasher(wrong).verify)
        self.assertEqual(
            error.message, "The CRC32 you specified did not match the calculated checksum."
        )
        wrong = replace(right, md5=bytes(16))
        error = self.assertRaises(BadDigest, BodyHasher(wrong).verify)
        self.assertEqual(error.details["expectedDigest"], "AAAAAAAAAAAAAAAAAAAAAA==")
        wrong = replace(right, payloadHash="ab" * 32)
        error = self.assertRaises(PayloadHashMismatch, BodyHasher(wrong).verify)
        self.assertEqual(error.details["expectedHash"], "ab" * 32)


class PartTests(SynchronousTestCase):
    """Objects in parts."""

    @settings(max_examples=rounds(10, 50), deadline=None)
    @given(st.lists(st.binary(max_size=200), max_size=6))
    def test_fullObject(self, parts: list[bytes]) -> None:
        """CRCs of parts combine to the CRC of the whole."""
        for algorithm in CRCS:
            sizes = [(value(algorithm, part), len(part)) for part in parts]
            whole = value(algorithm, b"".join(parts))
            self.assertEqual(fullObjectChecksum(algorithm, sizes), whole)

    def test_fullObjectOfLargeParts(self) -> None:
        """Sizes of parts as large as S3 allows are combined."""
        size = 5 << 30
        one = fullObjectChecksum("CRC32", [("AAAAAQ==", 0), ("AAAAAA==", 2 * size)])
        half = fullObjectChecksum("CRC32", [("AAAAAQ==", 0), ("AAAAAA==", size)])
        self.assertEqual(fullObjectChecksum("CRC32", [(half, 0), ("AAAAAA==", size)]), one)

    def test_notCombined(self) -> None:
        """Hashes cannot be combined."""
        self.assertRaises(ValueError, fullObjectChecksum, "SHA256", [])
        self.assertRaises(ValueError, fullObjectChecksum, "CRC32", [("AAAA", 3)])

    def test_composite(self) -> None:
        """The checksum of the checksums, with the number of parts."""
        for algorithm in ALGORITHMS:
            parts = [b"one", b"two", b"three"]
            hasher = newHasher(algorithm)
            for part in parts:
                inner = newHasher(algorithm)
                inner.update(part)
                hasher.update(inner.digest())
            values = [value(algorithm, part) for part in parts]
            self.assertEqual(
                compositeChecksum(algorithm, values), f"{encodeDigest(hasher.digest())}-3"
            )

    def test_etag(self) -> None:
        """The ETag is the MD5 of the binary MD5s, with the number of parts."""
        etags = [hashlib.md5(part).hexdigest() for part in (b"a", b"b")]
        binary = hashlib.md5(b"a").digest() + hashlib.md5(b"b").digest()
        self.assertEqual(multipartETag(etags), hashlib.md5(binary).hexdigest() + "-2")

    def test_kinds(self) -> None:
        """Each algorithm allows what S3's table says, and has its default."""
        for algorithm in CRCS:
            self.assertEqual(checksumKind(algorithm, "FULL_OBJECT"), "FULL_OBJECT")
        for algorithm in ("CRC32", "CRC32C", "SHA1", "SHA256"):
            self.assertEqual(checksumKind(algorithm, None), "COMPOSITE")
            self.assertEqual(checksumKind(algorithm, "COMPOSITE"), "COMPOSITE")
        self.assertEqual(checksumKind("CRC64NVME", None), "FULL_OBJECT")
        for algorithm, kind in (
            ("CRC64NVME", "COMPOSITE"),
            ("SHA1", "FULL_OBJECT"),
            ("SHA256", "FULL_OBJECT"),
            ("CRC32", "HALF_OBJECT"),
        ):
            self.assertRaises(InvalidRequest, checksumKind, algorithm, kind)
