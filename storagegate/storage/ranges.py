"""
Pages of listings, as values. A front end makes one, and every layer down to the statement of a
catalog takes it.
"""

from msgspec import Struct

_BEYOND = b"\xff"


_NEXT = b"\x00"


class KeyRange(Struct, frozen=True):
    """
    A page of a listing by key: of keys, and of common prefixes, which group keys.

    @ivar bucket: The bucket's name.
    @ivar prefix: Only keys with this prefix.
    @ivar delimiter: The text that ends a common prefix, searched for after C{prefix}; empty for no
        groups.
    @ivar after: Start strictly after this. If it equals a common prefix of this range (starts with
        C{prefix}, ends with C{delimiter}), the whole group is skipped.
    @ivar limit: The most rows and common prefixes together; 0 for an empty page.
    """

    bucket: str
    prefix: bytes
    delimiter: bytes
    after: bytes
    limit: int

    def parameters(self, bucketId: int, most: int) -> dict[str, object]:
        """
        Return the named parameters of a walk.

        @param bucketId: The number of the bucket's row, not its name.
        @param most: The largest number of steps.
        """
        floor = b""
        if self.after:
            isGroup = self.groupOf(self.after) == self.after
            floor = self.after + (_BEYOND if isGroup else _NEXT)
        return {
            "bucket": bucketId,
            "floor": max(self.prefix, floor),
            "end": self.prefix + _BEYOND,
            # A byte that no key contains stands for no delimiter.
            "delimiter": self.delimiter or _BEYOND,
            "behind": len(self.prefix) + 1,
            "most": most,
        }

    def groupOf(self, text: bytes) -> bytes | None:
        """Return the group of a key, or a group unchanged; L{None} if there is none."""
        if not self.delimiter or not text.startswith(self.prefix):
            return None
        found = text.find(self.delimiter, len(self.prefix))
        return None if found < 0 else text[: found + len(self.delimiter)]


class ObjectRange(KeyRange, frozen=True):
    """
    A page of current objects in key order.

    @ivar contentTypes: Whether rows include content types, which are parsed from each row's
        attributes.
    """

    contentTypes: bool = False


class VersionRange(KeyRange, frozen=True):
    """
    A page of versions and delete markers by key, newest first within a key.

    @ivar versionAfter: With C{after}: include the versions of that key that are older than this
        one; L{None} excludes all versions of that key.
    """

    versionAfter: str | None = None


class UploadRange(KeyRange, frozen=True):
    """
    A page of uploads in progress, by key and then by id.

    @ivar idAfter: With C{after}: include uploads of that key with a greater id; empty for only keys
        strictly after C{after}.
    """

    idAfter: str = ""


class PartRange(Struct, frozen=True):
    """
    A page of the parts of an upload, by number.

    @ivar key: The key of the upload, in UTF-8.
    @ivar after: Numbers strictly after this one; 0 starts at the beginning.
    @ivar limit: The most parts.
    """

    bucket: str
    key: bytes
    uploadId: str
    after: int
    limit: int
