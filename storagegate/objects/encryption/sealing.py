"""
The sealed form of bytes, and the keys of objects.

Blobs and inline contents have the same form, so that each describes itself::

    sealed     = salt *chunk
    salt       = 16 random bytes
    chunk      = AES-256-GCM of 64 KiB, less in the last chunk, with its tag of 16 bytes
    nonce      = the chunk's number, 12 bytes, big-endian
    associated = version (1 byte) number (8 bytes, big-endian) isLast (1 byte)
    key        = HMAC-SHA256(object key, "storagegate blob" salt)

Empty content has one empty chunk. Each sealing has its own salt, so a key never meets a nonce
twice, even if a part or an object is written again. An object key is wrapped under the key of its
bucket, or under the key of its client::

    wrapped    = salt AES-256-GCM(HMAC-SHA256(outer key, "storagegate wrap" salt), object key)
    salt       = 32 random bytes
    nonce      = 12 zero bytes
    associated = version 4length kind bucket key context
    length     = the length of each of these four texts, 4 bytes, big-endian

So it opens only for its object, and only with its encryption context.
"""

import os
from base64 import b64decode, b64encode
from binascii import a2b_base64, b2a_base64
from collections import deque
from collections.abc import Sequence
from struct import Struct
from threading import local

from attrs import define, field
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from msgspec.structs import replace

from storagegate.core.hmacs import PreparedKey, authenticate, hmacSHA256
from storagegate.net.transport import Buffer
from storagegate.objects.encryption.requests import RequestedEncryption, hidesDigests, mapChecksums
from storagegate.storage.blobinterfaces import Hasher
from storagegate.storage.errors import CorruptObject
from storagegate.storage.records import (
    Attributes,
    Checksum,
    ObjectEncryption,
    ObjectRecord,
    Part,
    PartSummary,
)

CHUNK = 64 * 1024
"""Plain bytes of a chunk."""

SALT = 16
"""Bytes of the salt of a blob."""

TAG = 16
"""Bytes of the tag of a chunk."""

SEALED_CHUNK = CHUNK + TAG

KEY_BYTES = 32

WRAP_SALT = 32
"""Bytes of the salt of a wrapped key."""

PIECE_CHUNKS = 4
"""Chunks of a piece: the most that a slow reader keeps in memory."""

MOST_CHUNKS = 2 * PIECE_CHUNKS
"""Chunks that one job of the pool reads and opens for a client that keeps up."""

MOST_PLAIN = MOST_CHUNKS * CHUNK
"""Plain bytes of such a job."""

MOST_SEALED = SALT + MOST_CHUNKS * SEALED_CHUNK
"""Bytes that such a job reads."""

_VERSION = b"\x01"
_WRAP = b"storagegate wrap"
_ZERO = bytes(12)
_LENGTHS = Struct(">IIII").pack


_ONLY = _VERSION + bytes(8) + b"\x01"
"""The associated data of the only chunk of small content."""


def sealedLength(size: int) -> int:
    """Return the length of the sealed form of a number of bytes."""
    return SALT + size + TAG * chunkCount(size)


def chunkCount(size: int) -> int:
    """Return the number of chunks of a number of plain bytes."""
    return -(-size // CHUNK) or 1


def plainLength(sealed: int) -> int:
    """
    Return the number of bytes of a sealed form.

    @raise ValueError: No sealed form has this length.
    """
    chunks = -(-(sealed - SALT) // SEALED_CHUNK)
    size = sealed - SALT - TAG * chunks
    if size < 0 or sealedLength(size) != sealed:
        raise ValueError(f"{sealed} bytes are no sealed form")
    return size


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")


def _associated(number: int, isLast: bool) -> bytes:
    return _VERSION + number.to_bytes(8, "big") + (b"\x01" if isLast else b"\x00")


@define(eq=False)
class BlobSealer:
    """
    Seals the bytes of one blob; see L{storagegate.storage.blobinterfaces.BlobFilter}.

    @ivar _salt: Must be new.
    @ivar size: Bytes of the sealed form so far.
    """

    _objectKey: "ObjectKey"
    _salt: bytes = field(factory=lambda: os.urandom(SALT))
    size: int = field(default=0, init=False)
    _cipher: AESGCM | None = field(default=None, init=False)
    _number: int = field(default=0, init=False)
    _pending: bytes = field(default=b"", init=False, repr=False)

    def update(self, buffers: Sequence[Buffer], isLast: bool) -> list[bytes]:
        """Seal the next bytes. May run in any thread, but never in two at a time."""
        sealed = []
        if self._cipher is None:
            self._cipher = self._objectKey.cipher(self._salt)
            sealed.append(self._salt)
        views = deque(memoryview(each) for each in (self._pending, *buffers) if each)
        left = sum(map(len, views))
        # A full chunk stays here until more bytes prove that it is not the last.
        count = chunkCount(left) - (not isLast)
        for index in range(count):
            chunk = _take(views, min(CHUNK, left))
            left -= len(chunk)
            associated = _associated(self._number, isLast and index + 1 == count)
            sealed.append(self._cipher.encrypt(_nonce(self._number), chunk, associated))
            self._number += 1
        self._pending = b"".join(views)
        self.size += sum(map(len, sealed))
        return sealed

    def whole(self, data: bytes) -> bytes:
        """Seal content that stays in its row."""
        return self._objectKey.seal(data)


def _take(views: deque[memoryview], size: int) -> Buffer:
    """Take bytes from the first of some views, with a copy only if they are in several."""
    if views and len(views[0]) >= size:
        first = views[0]
        if len(first) == size:
            return views.popleft()
        views[0] = first[size:]
        return first[:size]
    found = []
    while size:
        view = views.popleft()
        if len(view) > size:
            views.appendleft(view[size:])
            view = view[:size]
        found.append(view)
        size -= len(view)
    return b"".join(found)


@define(eq=False)
class BlobOpener:
    """
    Opens pieces of a sealed blob. The reader of the blob feeds each piece to L{update}, which may
    run in any thread, but never in two at a time.

    @ivar plain: The plain bytes of the last piece, in its buffer if it had one.
    @ivar isDamaged: Whether a piece did not open.
    @ivar _chunks: The number of chunks of the blob.
    @ivar _hashers: Receive the plain bytes.
    @ivar _blob: The id of the blob, by which the object key remembers its cipher.
    @ivar _number: The number of the next chunk.
    """

    _objectKey: "ObjectKey"
    _chunks: int
    _hashers: Sequence[Hasher] = ()
    _blob: str = ""
    plain: bytes | memoryview = field(default=b"", init=False, repr=False)
    isDamaged: bool = field(default=False, init=False)
    _number: int = field(default=0, init=False)
    _trims: tuple[int, int] = field(default=(0, CHUNK), init=False)
    _cipher: AESGCM | None = field(default=None, init=False)
    _buffer: memoryview | None = field(default=None, init=False, repr=False)

    def expect(
        self, number: int, skipped: int, wanted: int, buffer: memoryview | None = None
    ) -> None:
        """
        Describe the next piece.

        @param number: The number of its first chunk. The first chunk of a blob follows the salt,
            which the piece also has.
        @param skipped: Plain bytes at its start that are not wanted.
        @param wanted: Number of plain bytes that are wanted.
        @param buffer: Has room for all plain bytes of its chunks. By default, L{plain} is a copy,
            of at most L{PIECE_CHUNKS}.
        """
        self._buffer = buffer
        self.isDamaged, self._number = False, number
        self._trims = skipped, skipped + wanted

    def recall(self) -> bool:
        """Take the cipher from the object key; return whether it remembers that of the blob."""
        self._cipher = self._objectKey.recalled(self._blob)
        return self._cipher is not None

    def readSalt(self, salt: bytes) -> None:
        """Derive the key of the blob."""
        self._cipher = self._objectKey.cipher(salt)

    def update(self, data: Buffer, /) -> None:
        """Open a piece."""
        offset = 0
        if not self._number:
            self.readSalt(bytes(data[:SALT]))
            offset = SALT
        assert self._cipher is not None
        scratch = _scratch() if self._buffer is None else self._buffer
        decrypt, sealed, number, size = self._cipher.decrypt_into, memoryview(data), self._number, 0
        try:
            for begin in range(offset, len(data), SEALED_CHUNK):
                chunk = sealed[begin : begin + SEALED_CHUNK]
                end = size + len(chunk) - TAG
                associated = _associated(number, number + 1 == self._chunks)
                decrypt(_nonce(number), chunk, associated, scratch[size:end])
                number, size = number + 1, end
        except (InvalidTag, ValueError):
            self.isDamaged, self.plain = True, b""
            return
        if self._blob:
            self._objectKey.remember(self._blob, self._cipher)
        first, end = self._trims
        plain = scratch[first : min(end, size)]
        self.plain = bytes(plain) if self._buffer is None else plain
        for hasher in self._hashers:
            hasher.update(self.plain)


class _Scratch(local):
    """
    The buffer of a thread: a new one for each chunk takes twice the time, for its pages are mapped
    and cleared each time.
    """

    def __init__(self) -> None:
        self.view = memoryview(bytearray(PIECE_CHUNKS * CHUNK))


_scratches = _Scratch()


def _scratch() -> memoryview:
    return _scratches.view


class Unopened(CorruptObject):
    """Sealed bytes do not open: they are damaged, or belong to another key."""


@define(eq=False)  # frozen would take a microsecond more for each small object
class ObjectKey:
    """
    An open object key, under which all blobs of an object or upload are sealed.

    @ivar key: 32 bytes.
    @ivar encryption: The stored description, with the wrapped key.
    @ivar requested: The encryption that the write named; L{None} for the default of its bucket.
    """

    key: bytes = field(repr=False)
    encryption: ObjectEncryption
    requested: RequestedEncryption | None = field(default=None, repr=False)
    _recent: tuple[str | bytes, AESGCM] | None = field(default=None, init=False, repr=False)

    @property
    def hidesDigests(self) -> bool:
        """Whether digests of the plain bytes are secret: checksums are sealed, ETags encrypted."""
        return hidesDigests(self.encryption)

    def cipher(self, salt: bytes) -> AESGCM:
        """Return the cipher of a blob with its salt."""
        return AESGCM(hmacSHA256(self.key, b"storagegate blob" + salt))

    def remember(self, name: str | bytes, cipher: AESGCM) -> None:
        """Keep the cipher that opened a blob, by its id, or inline content, by its salt."""
        self._recent = (name, cipher)

    def recalled(self, name: str | bytes) -> AESGCM | None:
        """Return a cipher if it is the last one that L{remember} got. Any thread."""
        recent = self._recent
        return recent[1] if recent is not None and recent[0] == name else None

    def sealer(self) -> BlobSealer:
        """Return the sealer of a new blob."""
        return BlobSealer(self)

    def seal(self, plain: bytes) -> bytes:
        """Seal inline content."""
        if len(plain) > CHUNK:
            return b"".join(BlobSealer(self).update((plain,), True))
        salt = os.urandom(SALT)
        return salt + self.cipher(salt).encrypt(_ZERO, plain, _ONLY)

    def open(self, sealed: bytes) -> bytes:
        """
        Open inline content.

        @raise Unopened: The content is damaged.
        """
        try:
            if len(sealed) <= SALT + SEALED_CHUNK:
                # The tag tells whether the length is right.
                salt = sealed[:SALT]
                known = self.recalled(salt)
                cipher = known or self.cipher(salt)
                plain = cipher.decrypt(_ZERO, memoryview(sealed)[SALT:], _ONLY)
                if known is None:
                    self.remember(salt, cipher)
                return plain
            return self._openChunks(sealed, plainLength(len(sealed)))
        except (InvalidTag, ValueError) as error:
            raise Unopened("sealed bytes do not open") from error

    def _openChunks(self, sealed: bytes, size: int) -> bytes:
        """Open content of several chunks; raise C{InvalidTag}."""
        opener, found = BlobOpener(self, chunkCount(size)), []
        for number in range(0, chunkCount(size), PIECE_CHUNKS):
            begin = SALT + number * SEALED_CHUNK if number else 0
            opener.expect(number, 0, size)
            opener.update(sealed[begin : SALT + (number + PIECE_CHUNKS) * SEALED_CHUNK])
            if opener.isDamaged:
                raise InvalidTag
            found.append(opener.plain)
        return b"".join(found)

    def hidden(self, etag: str) -> str:
        """
        Encrypt an ETag, which looks random then. The same bytes keep the same ETag under one key.

        @param etag: 32 hexadecimal digits, and C{-N} for an object in parts.
        """
        if not self.hidesDigests:
            return etag
        cipher = self._ofETag().encryptor()
        return cipher.update(bytes.fromhex(etag[:32])).hex() + etag[32:]

    def shown(self, etag: str) -> str:
        """Decrypt an ETag."""
        if not self.hidesDigests:
            return etag
        cipher = self._ofETag().decryptor()
        return cipher.update(bytes.fromhex(etag[:32])).hex() + etag[32:]

    def _ofETag(self) -> "Cipher[ECB]":
        # A permutation of one block, which ECB is.
        return Cipher(AES(hmacSHA256(self.key, b"storagegate etag")), ECB())

    def sealChecksum(self, checksum: Checksum | None) -> Checksum | None:
        """Seal the value of a checksum, if digests are secret."""
        if checksum is None or not self.hidesDigests:
            return checksum
        return replace(checksum, value=b64encode(self.seal(checksum.value.encode())).decode())

    def openChecksum(self, checksum: Checksum | None) -> Checksum | None:
        """
        Open the value of a checksum.

        @raise Unopened: The value is damaged.
        """
        if checksum is None or not self.hidesDigests:
            return checksum
        return replace(checksum, value=self.open(b64decode(checksum.value)).decode())

    def openAttributes(self, attributes: Attributes) -> Attributes:
        """
        Open the checksums of an object and its parts.

        @raise Unopened: A value is damaged.
        """
        return mapChecksums(attributes, self.openChecksum) if self.hidesDigests else attributes

    def sealAttributes(self, attributes: Attributes) -> Attributes:
        """Set the encryption of an object, and seal its plain checksums."""
        found = replace(attributes, encryption=self.encryption)
        return mapChecksums(found, self.sealChecksum) if self.hidesDigests else found

    def openRecord(self, record: ObjectRecord) -> ObjectRecord:
        """Return a record with plain checksums; see L{openAttributes}."""
        return replace(record, attributes=self.openAttributes(record.attributes))

    def openChecksums(self, record: ObjectRecord, number: int | None) -> ObjectRecord:
        """
        Return a record with the plain checksum of the object, and of one part. The others stay
        sealed: to open those of 10,000 parts takes the reactor thread 80 ms.

        @param number: The number of the part; L{None} for no part.
        @raise Unopened: A value is damaged.
        """
        if not self.hidesDigests:
            return record
        attributes = record.attributes
        parts = attributes.parts
        if number is not None:
            parts = tuple(
                self._withChecksum(part) if part.number == number else part for part in parts
            )
        checksum = self.openChecksum(attributes.checksum)
        return replace(record, attributes=replace(attributes, checksum=checksum, parts=parts))

    def _withChecksum(self, part: PartSummary) -> PartSummary:
        return replace(part, checksum=self.openChecksum(part.checksum))

    def sealPart(self, part: Part) -> Part:
        """Return a part with a sealed checksum, if digests are secret."""
        return replace(part, checksum=self.sealChecksum(part.checksum))

    def openPart(self, part: Part) -> Part:
        """Return a part with a plain checksum; see L{openChecksum}."""
        return replace(part, checksum=self.openChecksum(part.checksum))


def wrapKey(outer: PreparedKey, key: bytes, binding: bytes, salt: bytes = b"") -> str:
    """
    Wrap an object key.

    @param outer: The key of the bucket or the client.
    @param binding: From L{bindingOf}.
    @param salt: 32 new bytes; random if empty.
    @return: Base64.
    """
    salt = salt or os.urandom(WRAP_SALT)
    sealed = AESGCM(authenticate(outer, _WRAP + salt)).encrypt(_ZERO, key, binding)
    return b2a_base64(salt + sealed, newline=False).decode()


def unwrapKey(outer: bytes, wrapped: str, binding: bytes) -> bytes:
    """
    Unwrap an object key.

    @raise Unopened: It was wrapped under another key or binding, or is damaged.
    """
    try:
        raw = a2b_base64(wrapped, strict_mode=True)
        cipher = AESGCM(hmacSHA256(outer, _WRAP + raw[:WRAP_SALT]))
        return cipher.decrypt(_ZERO, raw[WRAP_SALT:], binding)
    except (InvalidTag, ValueError) as error:
        raise Unopened() from error


def bindingOf(kind: str, bucket: str, key: bytes, context: str) -> bytes:
    """Return the associated data of a wrapped object key."""
    of, ofContext = f"{kind}{bucket}".encode(), context.encode()
    lengths = _LENGTHS(len(kind), len(of) - len(kind), len(key), len(ofContext))
    return b"%b%b%b%b%b" % (_VERSION, lengths, of, key, ofContext)
