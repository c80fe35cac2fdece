"""Checksums in header fields."""

from storagegate.objects.checksums import (
    ALGORITHMS,
    BodyExpectation,
    BodyHasher,
    ExpectedChecksum,
    encodeDigest,
    newHasher,
)
from storagegate.objects.documents.fields import CHECKSUM_HEADERS, declared
from storagegate.s3.checksums import expectedChecksum, requestedKind
from storagegate.s3.chunked import AwsChunkedDecoder
from tests.s3.examples import S3Case


def value(algorithm: str, data: bytes) -> str:
    """Compute a checksum at once."""
    hasher = newHasher(algorithm)
    hasher.update(data)
    return encodeDigest(hasher.digest())


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

    def test_names(self) -> None:
        """The header of a checksum has the name of its algorithm."""
        for algorithm in ALGORITHMS:
            header = b"x-amz-checksum-" + algorithm.lower().encode()
            self.assertEqual(CHECKSUM_HEADERS[algorithm], header)

    def test_requested(self) -> None:
        """The headers of CreateMultipartUpload."""
        algorithm, kind = b"x-amz-checksum-algorithm", b"x-amz-checksum-type"
        self.assertIsNone(requestedKind({}))
        self.assertEqual(requestedKind({algorithm: b"CRC32"}), ("CRC32", "COMPOSITE"))
        headers = {algorithm: b"crc32c", kind: b"full_object"}
        self.assertEqual(requestedKind(headers), ("CRC32C", "FULL_OBJECT"))
        for headers in ({kind: b"COMPOSITE"}, {algorithm: b"MD4"}, {algorithm: b"\xff"}):
            self.refused("InvalidRequest", 400, requestedKind, headers)
