"""
The durable marks of a migration, one in each catalog. An interrupted migration continues from them.

B{States.} The source is C{following} while it serves and notes changes, and C{moved} after the
switch. The target is C{filling} until the switch; after that it has no mark, or is C{opened} until
the migration's own data is removed. A C{moved} source and a C{filling} target refuse to serve. The
source is marked first, so that both never serve at the same time.
"""

from secrets import token_hex

from msgspec import Struct
from msgspec.structs import replace

from storagegate.cluster.tables import START, TABLES, Key, Table

FOLLOWING = "following"
MOVED = "moved"
FILLING = "filling"
OPENED = "opened"

_COMMAND = "storagegate cluster migrate"


class Mark(Struct, frozen=True):
    """
    The state of a migration in one catalog.

    @ivar id: The id of the migration, which is the same in both catalogs.
    @ivar peer: The other store, for operators.
    @ivar refuses: Why the store must not be served; empty if it may be.
    @ivar table: The number of tables that are completely copied.
    @ivar after: The last copied key of the next table; used only in a target.
    """

    id: str
    state: str
    peer: str
    refuses: str = ""
    table: int = 0
    after: Key = START

    @property
    def position(self) -> tuple[Table | None, Key]:
        """The table that is being copied, C{None} after the last one, and its last copied key."""
        return (TABLES[self.table] if self.table < len(TABLES) else None), self.after

    def at(self, table: Table, after: Key | None) -> "Mark":
        """
        Return the mark with another position.

        @param table: The table that is being copied.
        @param after: The last copied key; C{None} if the table is complete.
        """
        if after is None:
            return replace(self, table=table.number + 1, after=START)
        return replace(self, table=table.number, after=after)


def newMarks(source: str, target: str) -> tuple[Mark, Mark]:
    """Make the marks of a new migration: for the source and for the target."""
    id = token_hex(16)
    text = (
        f"this store is the target of a migration from {source}: it can be"
        f" served once {_COMMAND} has switched"
        " to it"
    )
    return Mark(id, FOLLOWING, target), Mark(id, FILLING, source, text)


def movedMark(mark: Mark) -> Mark:
    """Return the mark of a source after the switch."""
    text = (
        f"this store was migrated to {mark.peer}; if that does not serve yet, run {_COMMAND} again"
    )
    return replace(mark, state=MOVED, refuses=text)
