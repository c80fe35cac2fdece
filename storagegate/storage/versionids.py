"""
The public ids of versions, made of the catalog's own numbers of writes::

    id   = base64url (number XOR mask) tag        32 characters
    tag  = 16 bytes of keyed BLAKE2b of the number
    mask = 8 bytes of keyed BLAKE2b of the tag

Only the store can make one, so that it cannot be guessed, and it tells nothing of the number. The
store reads the number out of it: to find one version among thousands of a key is a seek, and a list
goes on from a version that is gone.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from hmac import compare_digest

from storagegate.storage.errors import InvalidVersionId
from storagegate.storage.records import NULL_VERSION

_NUMBER = 8
_TAG = 16
_LENGTH = 32
"""Characters of an id: 24 bytes, which fill them."""


class VersionIds:
    """Makes and reads the ids of one store. Any thread."""

    def __init__(self, secret: bytes) -> None:
        """@param secret: The store's own random bytes."""
        self._tag = blake2b(key=secret, digest_size=_TAG, person=b"version tag")
        self._mask = blake2b(key=secret, digest_size=_NUMBER, person=b"version mask")

    def make(self, sequence: int) -> str:
        """Make the id of the version that a write has made."""
        number = sequence.to_bytes(_NUMBER, "big")
        hasher = self._tag.copy()
        hasher.update(number)
        tag = hasher.digest()
        return urlsafe_b64encode(self._masked(number, tag) + tag).decode()

    def read(self, versionId: str) -> int | None:
        """
        Read the number of the write that made a version.

        @param versionId: As a client sent it.
        @return: L{None} for C{null}, which names the version without an id.
        @raise InvalidVersionId: This store has made no such id.
        """
        if versionId == NULL_VERSION:
            return None
        try:
            if len(versionId) == _LENGTH:
                raw = urlsafe_b64decode(versionId.encode("ascii"))
                number = self._masked(raw[:_NUMBER], raw[_NUMBER:])
                sequence = int.from_bytes(number, "big")
                # The text and not its bytes: base64 can write the same bytes in many ways.
                if compare_digest(self.make(sequence), versionId):
                    return sequence
        except ValueError:
            pass
        raise InvalidVersionId(versionId)

    def _masked(self, number: bytes, tag: bytes) -> bytes:
        hasher = self._mask.copy()
        hasher.update(tag)
        mask = int.from_bytes(hasher.digest(), "big")
        return (int.from_bytes(number, "big") ^ mask).to_bytes(_NUMBER, "big")
