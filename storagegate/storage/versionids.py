"""
The public ids of versions, derived from the catalog's write numbers::

    id   = name (number XOR mask) tag             32 characters
    tag  = 16 bytes of keyed BLAKE2b of the number
    mask = 8 bytes of keyed BLAKE2b of the tag

A name is Base64, see L{storagegate.core.urlnames}.

Only the store can generate an id: it cannot be guessed and does not reveal the number. The store
decodes the number from it, so finding one version among thousands of a key is a seek, and a listing
can continue from a removed version.
"""

from hashlib import blake2b
from hmac import compare_digest

from storagegate.core.urlnames import decodeName, encodeName, normalName
from storagegate.storage.errors import InvalidVersionId
from storagegate.storage.records import NULL_VERSION

_NUMBER = 8
_TAG = 16
_LENGTH = 32
"""Characters of an id, which encode exactly 24 bytes."""


class VersionIds:
    """Encodes and decodes the version ids of one store. Any thread."""

    def __init__(self, secret: bytes) -> None:
        """
        @param secret: The store's secret random bytes.
        """
        self._tag = blake2b(key=secret, digest_size=_TAG, person=b"version tag")
        self._mask = blake2b(key=secret, digest_size=_NUMBER, person=b"version mask")

    def make(self, sequence: int) -> str:
        """Return the id of the version that a write created."""
        number = sequence.to_bytes(_NUMBER, "big")
        hasher = self._tag.copy()
        hasher.update(number)
        tag = hasher.digest()
        return encodeName(self._masked(number, tag) + tag)

    def read(self, versionId: str) -> int | None:
        """
        Return the number of the write that created a version.

        @param versionId: The id as sent by a client.
        @return: The number; L{None} for C{null}, which names the version without an id.
        @raise InvalidVersionId: This store has not issued the id.
        """
        if versionId == NULL_VERSION:
            return None
        try:
            if len(versionId) == _LENGTH:
                raw = decodeName(versionId)
                number = self._masked(raw[:_NUMBER], raw[_NUMBER:])
                sequence = int.from_bytes(number, "big")
                # The text is compared, because base64 can encode the same bytes in several ways.
                if compare_digest(self.make(sequence), normalName(versionId)):
                    return sequence
        except ValueError:
            pass
        raise InvalidVersionId(versionId)

    def _masked(self, number: bytes, tag: bytes) -> bytes:
        hasher = self._mask.copy()
        hasher.update(tag)
        mask = int.from_bytes(hasher.digest(), "big")
        return (int.from_bytes(number, "big") ^ mask).to_bytes(_NUMBER, "big")
