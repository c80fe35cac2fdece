"""The sealed form: written vectors, chunk edges, and damage."""

import hmac
import os
from base64 import b64decode
from collections.abc import Sequence

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.hmacs import prepareKey
from storagegate.objects.encryption.requests import SSE_C, SSE_KMS, SSE_S3
from storagegate.objects.encryption.sealing import (
    CHUNK,
    SALT,
    SEALED_CHUNK,
    TAG,
    BlobOpener,
    BlobSealer,
    ObjectKey,
    Unopened,
    bindingOf,
    chunkCount,
    plainLength,
    sealedLength,
    unwrapKey,
    wrapKey,
)
from storagegate.storage.records import (
    Attributes,
    Checksum,
    Content,
    ObjectEncryption,
    ObjectRecord,
    PartSummary,
)

KEY = bytes(range(32))
EDGES = sorted(
    {max(0, n * CHUNK + d) for n in (0, 1, 2, 4, 5) for d in (-TAG, -1, 0, 1, TAG)} | {17}
)


def keyOf(kind: str = SSE_S3, key: bytes = KEY) -> ObjectKey:
    """Make an object key."""
    return ObjectKey(key, ObjectEncryption(kind, ""))


def sealWith(salt: bytes, plain: bytes) -> bytes:
    """Seal bytes with a given salt."""
    return b"".join(BlobSealer(keyOf(), salt).update((plain,), True))


def sealInSteps(plain: bytes, steps: Sequence[int]) -> tuple[bytes, int]:
    """Seal bytes in buffers of some sizes; return them and the counted size."""
    sealer = BlobSealer(keyOf())
    found, start = [], 0
    for step in steps:
        found += sealer.update((plain[start : start + step],), False)
        start += step
    found += sealer.update((plain[start:],), True)
    return b"".join(found), sealer.size


def openRange(sealed: bytes, start: int, end: int, key: ObjectKey | None = None) -> bytes:
    """Open a range of a sealed blob chunk by chunk, as a reader does."""
    opener = BlobOpener(key or keyOf(), chunkCount(plainLength(len(sealed))))
    opener.readSalt(sealed[:SALT])
    found = b""
    while start < end:
        number = start // CHUNK
        offset = SALT + number * SEALED_CHUNK if number else 0
        wanted = min(end, (number + 1) * CHUNK) - start
        opener.expect(number, start - number * CHUNK, wanted)
        opener.update(sealed[offset : SALT + (number + 1) * SEALED_CHUNK])
        if opener.isDamaged:
            raise Unopened()
        found += opener.plain
        start += wanted
    return found


class VectorTests(SynchronousTestCase):
    """Bytes that were written once stay readable."""

    def test_form(self) -> None:
        """The sealed form is the one that the module describes, by its primitives alone."""
        salt = bytes(range(100, 116))
        plain = bytes(CHUNK) + b"end"
        sealed = sealWith(salt, plain)
        cipher = AESGCM(hmac.digest(KEY, b"storagegate blob" + salt, "sha256"))
        first = cipher.encrypt(bytes(12), bytes(CHUNK), b"\1" + bytes(8) + b"\0")
        last = cipher.encrypt(bytes(11) + b"\1", b"end", b"\1" + bytes(7) + b"\1" + b"\1")
        self.assertEqual(sealed, salt + first + last)

    def test_written(self) -> None:
        """The bytes of small contents."""
        salt = bytes(range(100, 116))
        for plain, expected in ((b"", EMPTY), (b"plain text", SMALL)):
            sealed = sealWith(salt, plain)
            self.assertEqual(sealed.hex(), salt.hex() + expected)
            self.assertEqual(keyOf().open(bytes.fromhex(salt.hex() + expected)), plain)

    def test_wrapped(self) -> None:
        """The bytes of a wrapped key."""
        binding = bindingOf(SSE_KMS, "bucket", b"k\0y", "e30=")
        self.assertEqual(
            binding.hex(),
            "0100000007000000060000000300000004" + b"aws:kmsbucketk\0ye30=".hex(),
        )
        salt = bytes(range(200, 232))
        wrapped = wrapKey(prepareKey(bytes(32)), KEY, binding, salt)
        self.assertEqual(b64decode(wrapped).hex(), salt.hex() + WRAPPED)
        self.assertEqual(unwrapKey(bytes(32), wrapped, binding), KEY)

    def test_etag(self) -> None:
        """The bytes of an encrypted ETag; that of SSE-S3 stays the MD5."""
        etag = "d41d8cd98f00b204e9800998ecf8427e"
        self.assertEqual(keyOf().hidden(etag), etag)
        for kind in (SSE_KMS, SSE_C):
            hidden = keyOf(kind).hidden(etag)
            self.assertEqual(hidden, HIDDEN)
            self.assertEqual(keyOf(kind).shown(hidden), etag)
            self.assertEqual(keyOf(kind).hidden(f"{etag}-3"), f"{hidden}-3")
            self.assertEqual(keyOf(kind).shown(f"{hidden}-3"), f"{etag}-3")


EMPTY = "e5242b9b4dc637d51c1c68bbf64cf84c"
SMALL = "8fcb45e874d5552e9c96e494707083c439110de9e1b1b37742ce"
WRAPPED = (
    "4f394ff76bc504ba72815337432e4946a3dfcd8a34d6e5e1d25dd06fe8741989"
    "50129332df868a48be00c278d580e855"
)
HIDDEN = "ad136dd061d583c74ea2c5490f65cd03"


class LengthTests(SynchronousTestCase):
    """The arithmetic of lengths."""

    @given(st.one_of(st.sampled_from(EDGES), st.integers(0, 1 << 50)))
    def test_inverse(self, size: int) -> None:
        """The length of a sealed form determines its plain length."""
        self.assertEqual(plainLength(sealedLength(size)), size)

    def test_noForm(self) -> None:
        """Lengths that no sealed form has are refused."""
        for length in (
            -1,
            0,
            SALT,
            SALT + TAG - 1,
            sealedLength(CHUNK) + 1,
            sealedLength(CHUNK) + 16,
        ):
            with self.assertRaises(ValueError):
                plainLength(length)

    def test_lengths(self) -> None:
        """The lengths at the edges of chunks."""
        for size in EDGES:
            sealed, counted = sealInSteps(bytes(size), [])
            self.assertEqual((len(sealed), counted), (sealedLength(size), sealedLength(size)))


class SealingTests(SynchronousTestCase):
    """L{BlobSealer} and L{BlobOpener}."""

    @given(st.sampled_from(EDGES), st.lists(st.integers(0, 3 * CHUNK), max_size=4))
    def test_steps(self, size: int, steps: list[int]) -> None:
        """The sizes of buffers make no difference."""
        plain = os.urandom(size)
        sealed, counted = sealInSteps(plain, steps)
        self.assertEqual(counted, len(sealed))
        self.assertTrue(keyOf().open(sealed) == plain)

    @given(st.data())
    def test_ranges(self, data: st.DataObject) -> None:
        """Any range opens from its own chunks."""
        size = data.draw(st.sampled_from(EDGES))
        plain = os.urandom(size)
        sealed = keyOf().seal(plain)
        positions = st.one_of(
            st.sampled_from([each for each in EDGES if each <= size]), st.integers(0, size)
        )
        start, end = sorted((data.draw(positions), data.draw(positions)))
        self.assertTrue(openRange(sealed, start, end) == plain[start:end])

    def test_twice(self) -> None:
        """The same bytes sealed twice have nothing in common."""
        first, second = keyOf().seal(bytes(5 * CHUNK)), keyOf().seal(bytes(5 * CHUNK))
        blocks = [{each[i : i + 16] for i in range(0, len(each), 16)} for each in (first, second)]
        self.assertEqual(blocks[0] & blocks[1], set())
        self.assertEqual(len(blocks[0]), -(-len(first) // 16))

    def test_flipped(self) -> None:
        """Every flipped bit position of every byte is found."""
        sealed = keyOf().seal(os.urandom(40))
        for position in range(len(sealed)):
            damaged = bytearray(sealed)
            damaged[position] ^= 1 << position % 8
            with self.assertRaises(Unopened):
                keyOf().open(bytes(damaged))

    def test_moved(self) -> None:
        """Chunks that are swapped, repeated, cut off, appended or of another blob do not open."""
        key = keyOf()
        sealed, other = key.seal(os.urandom(3 * CHUNK)), key.seal(os.urandom(3 * CHUNK))
        salt, chunks = (
            sealed[:SALT],
            [sealed[SALT + n * SEALED_CHUNK : SALT + (n + 1) * SEALED_CHUNK] for n in range(3)],
        )
        foreign = other[SALT : SALT + SEALED_CHUNK]
        a, b, c = chunks
        for wrong in (
            (b, a, c),
            (a, a, c),
            (a, b),
            (a, b, c, c),
            (foreign, b, c),
            (a, b, c[:-1]),
        ):
            with self.assertRaises(Unopened):
                key.open(salt + b"".join(wrong))
        with self.assertRaises(Unopened):
            key.open(other[:SALT] + sealed[SALT:])
        self.assertEqual(len(key.open(sealed)), 3 * CHUNK)

    def test_otherKey(self) -> None:
        """Another key opens nothing."""
        with self.assertRaises(Unopened):
            keyOf(key=bytes(32)).open(keyOf().seal(b"text"))


class WrappingTests(SynchronousTestCase):
    """Wrapped object keys."""

    def test_flipped(self) -> None:
        """Every flipped byte of a wrapped key is found."""
        binding = bindingOf(SSE_S3, "b", b"k", "")
        wrapped = wrapKey(prepareKey(KEY), bytes(32), binding)
        self.assertEqual(unwrapKey(KEY, wrapped, binding), bytes(32))
        for position in range(len(wrapped)):
            for replaced in "A", "B", "-":
                damaged = wrapped[:position] + replaced + wrapped[position + 1 :]
                # The last digits have bits without meaning.
                if damaged == wrapped or position >= len(wrapped.rstrip("=")) - 1:
                    continue
                with self.assertRaises(Unopened):
                    unwrapKey(KEY, damaged, binding)

    @given(
        *[
            st.tuples(
                st.text(max_size=3), st.text(max_size=3), st.binary(max_size=3), st.text(max_size=3)
            )
        ]
        * 2
    )
    def test_binding(
        self, one: tuple[str, str, bytes, str], other: tuple[str, str, bytes, str]
    ) -> None:
        """Names that differ have bindings that differ."""
        self.assertEqual(bindingOf(*one) == bindingOf(*other), one == other)

    def test_checksums(self) -> None:
        """Checksums are sealed, of parts too, unless the kind is SSE-S3."""
        checksum = Checksum("CRC32", "AAAAAA==")
        attributes = Attributes(checksum=checksum, parts=(PartSummary(2, 9, checksum),))
        for kind in (SSE_KMS, SSE_C):
            sealed = keyOf(kind).sealAttributes(attributes)
            self.assertNotIn("AAAAAA", repr(sealed))
            self.assertEqual(sealed.encryption, ObjectEncryption(kind, ""))
            opened = keyOf(kind).openAttributes(sealed)
            self.assertEqual((opened.checksum, opened.parts), (checksum, attributes.parts))
        self.assertEqual(keyOf().sealAttributes(attributes).checksum, checksum)

    def test_checksumOfPart(self) -> None:
        """A read opens the checksum of the object and of the part that it names, and no other."""
        checksum = Checksum("CRC32", "AAAAAA==")
        parts = tuple(PartSummary(number, 9, checksum) for number in (2, 3, 5))
        plain = Attributes(checksum=checksum, parts=parts)
        key = keyOf(SSE_KMS)
        sealed = key.sealAttributes(plain)
        record = ObjectRecord("b", b"k", 27, "", 0, "", sealed, Content(27))
        for number in (None, 3, 4):
            found = key.openChecksums(record, number).attributes
            self.assertEqual(found.checksum, checksum)
            for one, before in zip(found.parts, sealed.parts, strict=True):
                wanted = checksum if one.number == number else before.checksum
                self.assertEqual(one.checksum, wanted)
