"""
What an issued key may do: a kind of access, narrowed by a bucket and a key pattern.

Patterns are globs of two signs: C{*} is any run of characters (slashes too), C{?} is one.
"""

import re
from collections.abc import Callable
from functools import lru_cache

from attrs import frozen

_GRANTS = {
    "readwrite": frozenset({"read", "write", "list", "admin"}),
    "readonly": frozenset({"read", "list"}),
    "writeonly": frozenset({"write"}),
}

POLICIES = tuple(_GRANTS)
"""The names of the policies that a key can have."""


@lru_cache(maxsize=1024)
def _matcher(pattern: str) -> Callable[[str], object]:
    # Each middle piece is found leftmost and kept (an atomic group), as globs allow: so a pattern
    # of many stars cannot backtrack, and a match costs at most the text times the last piece.
    first, *rest = [re.escape(run).replace(r"\?", ".") for run in re.split(r"\*+", pattern)]
    if rest:
        *middle, last = rest
        first += "".join(f"(?>.*?{piece})" for piece in middle) + f".*{last}"
    return re.compile(first, re.DOTALL).fullmatch


def matchesGlob(pattern: str, text: str) -> bool:
    """Say whether C{text} as a whole matches C{pattern}; an empty pattern matches everything."""
    return not pattern or _matcher(pattern)(text) is not None


@frozen
class KeyPolicy:
    """
    What one key may do within its account.

    @ivar kind: One of L{POLICIES}.
    """

    kind: str = "readwrite"
    bucketPattern: str = ""
    prefixPattern: str = ""

    def allows(self, access: str, bucket: str | None, key: str | None) -> bool:
        """
        Judge one access.

        @param access: C{"read"}, C{"write"}, C{"list"} or C{"admin"} (creating and deleting
            buckets, and their configuration).
        @param bucket: L{None} for the service itself.
        @param key: The object's key, or for a list the prefix that is asked for; L{None} where
            no key is concerned.
        """
        if access not in _GRANTS[self.kind]:
            return False
        if access == "admin" and self.prefixPattern:
            return False  # a bucket is more than the keys that match
        if (
            bucket is not None
            and self.bucketPattern
            and not matchesGlob(self.bucketPattern, bucket)
        ):
            return False
        return key is None or not self.prefixPattern or matchesGlob(self.prefixPattern, key)

    def coversPrefix(self, prefix: str) -> bool:
        """Say whether every key that begins with C{prefix} is one that the key may see."""
        pattern = self.prefixPattern
        # The star at the end takes whatever follows: only so does one match stand for them all.
        return not pattern or (pattern.endswith("*") and matchesGlob(pattern, prefix))


FULL_ACCESS = KeyPolicy()
