"""Checksums: values, headers, and objects in parts."""

import hashlib
import zlib
from base64 import b64encode

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

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
from storagegate.s3.checksums import (
    CHECKSUM_HEADERS,
    contentMD5,
    declared,
    expectedChecksum,
    requestedKind,
)
from storagegate.s3.chunked import AwsChunkedDecoder
from tests.s3.examples import S3Case
from tests.support.selection import rounds

CRCS = ("CRC32", "CRC32C", "CRC64NVME")


def value(algorithm: str, data: bytes) -> str:
    """Compute a checksum at once."""
    hasher = newHasher(algorithm)
    hasher.update(data)
    return encodeDigest(hasher.digest())


class HasherTests(S3Case):
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
        """The table's sizes are those of the values, and its headers those of the names."""
        for algorithm, known in ALGORITHMS.items():
            self.assertEqual(len(newHasher(algorithm).digest()), known.size)
            header = b"x-amz-checksum-" + algorithm.lower().encode()
            self.assertEqual(CHECKSUM_HEADERS[algorithm], header)

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
        error = self.refused("BadDigest", 400, BodyHasher(wrong).verify)
        self.assertEqual(
            error.message, "The CRC32 you specified did not match the calculated checksum."
        )
        wrong = replace(right, md5=bytes(16))
        error = self.refused("BadDigest", 400, BodyHasher(wrong).verify)
        self.assertEqual(error.fields["ExpectedDigest"], "AAAAAAAAAAAAAAAAAAAAAA==")
        wrong = replace(right, payloadHash="ab" * 32)
        error = self.refused("XAmzContentSHA256Mismatch", 400, BodyHasher(wrong).verify)
        self.assertEqual(error.fields["ClientComputedContentSHA256"], "ab" * 32)


class HeaderTests(S3Case):
    """What a request asks for."""

    def invalid(self, headers: dict[bytes, bytes]) -> str:
        """Assert that headers are refused and give the sentence."""
        return self.refused("InvalidRequest", 400, expectedChecksum, headers).message

    def test_none(self) -> None:
        """Settings of checksums are no checksum."""
        headers = {
            b"x-amz-checksum-algorithm": b"CRC32",
            b"x-amz-checksum-type": b"COMPOSITE",
            b"x-amz-checksum-mode": b"ENABLED",
        }
        self.assertIsNone(expectedChecksum(headers))

    def test_declared(self) -> None:
        """Each algorithm has its header."""
        for algorithm in ALGORITHMS:
            text = value(algorithm, b"")
            headers = {CHECKSUM_HEADERS[algorithm]: text.encode()}
            self.assertEqual(declared(headers), (algorithm, text))
            self.assertEqual(expectedChecksum(headers), ExpectedChecksum(algorithm, text))

    def test_trailing(self) -> None:
        """A trailer is announced by the name of its header, and brings the value."""
        headers = {b"x-amz-trailer": b"X-Amz-Checksum-CRC32"}
        self.assertEqual(expectedChecksum(headers), ExpectedChecksum("CRC32", None))
        decoder = AwsChunkedDecoder(0, None, (b"x-amz-checksum-crc32",))
        decoder.feed(b"0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n")
        expectation = BodyExpectation(checksum=expectedChecksum(headers), decoder=decoder)
        self.assertEqual(BodyHasher(expectation).verify()[1].value, "AAAAAA==")
        for trailers in ({}, {b"x-amz-checksum-crc32": b"AAAA"}):
            decoder.trailers = trailers
            error = self.refused("InvalidRequest", 400, BodyHasher(expectation).verify)
            self.assertEqual(
                error.message, "Value for x-amz-checksum-crc32 trailing header is invalid."
            )

    def test_badTrailer(self) -> None:
        """Anything but one known checksum cannot be announced."""
        for text in (b"", b"x-amz-meta-a", b"x-amz-checksum-md4", b"x-amz-checksum-crc32," * 2):
            self.invalid({b"x-amz-trailer": text})

    def test_several(self) -> None:
        """Two checksums are one too many, wherever they are."""
        crc32 = {b"x-amz-checksum-crc32": b"AAAAAA=="}
        self.invalid({**crc32, b"x-amz-checksum-crc32c": b"AAAAAA=="})
        self.invalid({**crc32, b"x-amz-trailer": b"x-amz-checksum-crc32"})

    def test_badValue(self) -> None:
        """A value that is none, and an algorithm that we do not have, are refused."""
        for text in (b"", b"AAAA", b"AAAAAA==, AAAAAA==", b"?"):
            message = self.invalid({b"x-amz-checksum-crc32": text})
            self.assertEqual(message, "Value for x-amz-checksum-crc32 header is invalid.")
        self.invalid({b"x-amz-checksum-md4": b"AAAAAA=="})

    def test_sdkAlgorithm(self) -> None:
        """What the SDK says it used has to be there and to agree."""
        name = b"x-amz-sdk-checksum-algorithm"
        headers = {b"x-amz-checksum-crc32": b"AAAAAA==", name: b"crc32"}
        self.assertEqual(expectedChecksum(headers), ExpectedChecksum("CRC32", "AAAAAA=="))
        headers = {b"x-amz-trailer": b"x-amz-checksum-crc32", name: b"CRC32"}
        self.assertEqual(expectedChecksum(headers), ExpectedChecksum("CRC32", None))
        self.invalid({**headers, name: b"CRC32C"})
        self.invalid({**headers, name: b""})
        self.invalid({name: b"CRC32"})

    def test_contentMD5(self) -> None:
        """C{Content-MD5} is 16 bytes in Base64."""
        self.assertIsNone(contentMD5({}))
        headers = {b"content-md5": b"1B2M2Y8AsgTpgAmY7PhCfg=="}
        self.assertEqual(contentMD5(headers), hashlib.md5(b"").digest())
        for bad in (b"", b"YWJj", b"1B2M2Y8AsgTpgAmY7PhCfg", b"d41d8cd98f00b204e9800998ecf8427e"):
            error = self.refused("InvalidDigest", 400, contentMD5, {b"content-md5": bad})
            self.assertEqual(error.fields["Content-MD5"], bad.decode())


class PartTests(S3Case):
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
            self.refused("InvalidRequest", 400, checksumKind, algorithm, kind)

    def test_requested(self) -> None:
        """The headers of CreateMultipartUpload."""
        algorithm, kind = b"x-amz-checksum-algorithm", b"x-amz-checksum-type"
        self.assertIsNone(requestedKind({}))
        self.assertEqual(requestedKind({algorithm: b"CRC32"}), ("CRC32", "COMPOSITE"))
        headers = {algorithm: b"crc32c", kind: b"full_object"}
        self.assertEqual(requestedKind(headers), ("CRC32C", "FULL_OBJECT"))
        for headers in ({kind: b"COMPOSITE"}, {algorithm: b"MD4"}, {algorithm: b"\xff"}):
            self.refused("InvalidRequest", 400, requestedKind, headers)
