"""
Walking over keys, with whole groups at one step.

A group is all the keys with one common prefix: up to and with the first delimiter behind the
query's own prefix. The walk seeks the next key from a key, and from a group the first key behind
it, so that its cost follows the answer's size. Keys are UTF-8, which never holds the byte FF:
whatever begins with C{x} lies before C{x || FF}, and the next key that can be after C{x} is
C{x || 00}.
"""

from collections.abc import Callable
from typing import TypeVar

from attrs import frozen

_BEYOND = b"\xff"
_NEXT = b"\x00"


@frozen
class Range:
    """
    Where a walk goes.

    @ivar prefix: What all keys begin with.
    @ivar delimiter: What ends a group; empty: there are no groups.
    @ivar after: Only what comes after this; where it is a group, after all of it.
    """

    prefix: bytes
    delimiter: bytes
    after: bytes

    def parameters(self, bucketId: int, most: int) -> dict[str, object]:
        """
        Give the named parameters of a walk.

        @param most: The most steps that it makes.
        """
        return {
            "bucket": bucketId,
            "floor": max(self.prefix, self._floor()),
            "end": self.prefix + _BEYOND,
            # The byte that no key holds stands for no delimiter.
            "delimiter": self.delimiter or _BEYOND,
            "behind": len(self.prefix) + 1,
            "most": most,
        }

    def groupOf(self, text: bytes) -> bytes | None:
        """Give the group that a key belongs to, or a group itself; L{None} where there is none."""
        if not self.delimiter or not text.startswith(self.prefix):
            return None
        found = text.find(self.delimiter, len(self.prefix))
        return None if found < 0 else text[: found + len(self.delimiter)]

    def _floor(self) -> bytes:
        if not self.after:
            return b""
        behindGroup = self.groupOf(self.after) == self.after
        return self.after + (_BEYOND if behindGroup else _NEXT)


def walkSQL(table: str) -> str:
    """
    Give a C{WITH} clause that defines C{step(n, key, part)}: the steps in order, C{part} the
    common prefix, or C{NULL} where the step is a key.

    @param table: A table with the columns C{bucketId} and C{key}, in the order of its index.
    """
    return f"""
    WITH RECURSIVE walk(n, key) AS (
        SELECT 1, (
            SELECT key FROM {table}
            WHERE bucketId = :bucket AND key >= :floor AND key < :end
            ORDER BY key LIMIT 1)
        UNION ALL
        SELECT n + 1, (
            SELECT next.key FROM {table} AS next
            WHERE next.bucketId = :bucket AND next.key < :end
            AND next.key >= CAST(coalesce({_PART} || x'ff', walk.key || x'00') AS BLOB)
            ORDER BY next.key LIMIT 1)
        FROM walk WHERE walk.key IS NOT NULL AND n < :most
    ), step(n, key, part) AS (
        SELECT n, key, {_PART} FROM walk WHERE key IS NOT NULL
    )
    """


# NULL where the delimiter is not there (nullif), for NULL spreads through the arithmetic.
_PART = """substr(walk.key, 1, :behind - 2 + length(:delimiter)
    + nullif(instr(substr(walk.key, :behind), :delimiter), 0))"""

_Row = TypeVar("_Row")
Place = tuple[str, str]
"""What a page is sorted by: a key or a common prefix, and an upload's id or nothing."""


def cutPage(
    rows: list[_Row], placeOf: Callable[[_Row], Place], prefixes: list[str], limit: int
) -> Place | None:
    """
    Drop what is beyond the first C{limit} of rows and common prefixes together.

    @param rows: In order. Changed in place, and so is C{prefixes}.
    @return: The place of the last that stays, if any was dropped.
    """
    if len(rows) + len(prefixes) <= limit:
        return None
    while len(rows) + len(prefixes) > limit:
        if not prefixes or (rows and placeOf(rows[-1]) > (prefixes[-1], "")):
            rows.pop()
        else:
            prefixes.pop()
    ends = [placeOf(row) for row in rows[-1:]] + [(part, "") for part in prefixes[-1:]]
    return max(ends)
