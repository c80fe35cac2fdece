"""
The durable marks of a migration, one in each catalog, from which an interrupted one goes on.

B{States.} The source is C{following} while it serves and its changes are noted, and C{moved} from
the switch on. The target is C{filling} until it has been switched to; then it has no mark, or is
C{opened} until all is removed that the migration needed. A source that is moved, and a target that
is filling, refuse to serve. The source is marked first: at no time do both serve.
"""

from secrets import token_hex

from msgspec import Struct
from msgspec.structs import replace

from storagegate.cluster.migration.tables import START, TABLES, Key, Table

FOLLOWING = "following"
MOVED = "moved"
FILLING = "filling"
OPENED = "opened"

_COMMAND = "storagegate cluster migrate"


class Mark(Struct, frozen=True):
    """
    What one catalog knows of a migration.

    @ivar id: Of the migration; both catalogs have the same.
    @ivar peer: The other store, for operators.
    @ivar refuses: Why nothing may serve the store; empty while it may be served.
    @ivar table: How many tables have been copied.
    @ivar after: The last key of the next one that has been copied; only of a target.
    """

    id: str
    state: str
    peer: str
    refuses: str = ""
    table: int = 0
    after: Key = START

    @property
    def position(self) -> tuple[Table | None, Key]:
        """The table that is being copied, if not all are, and the last key of it."""
        return (TABLES[self.table] if self.table < len(TABLES) else None), self.after

    def at(self, table: Table, after: Key | None) -> "Mark":
        """
        Return the mark with another position.

        @param table: The one that is being copied.
        @param after: The last key that was; L{None}: all were.
        """
        if after is None:
            return replace(self, table=table.number + 1, after=START)
        return replace(self, table=table.number, after=after)


def newMarks(source: str, target: str) -> tuple[Mark, Mark]:
    """Make the marks of a new migration: of the source, and of the target."""
    id = token_hex(16)
    text = (
        f"this store is being filled from {source}: it may be served when {_COMMAND} has switched"
        " to it"
    )
    return Mark(id, FOLLOWING, target), Mark(id, FILLING, source, text)


def movedMark(mark: Mark) -> Mark:
    """Return the mark of a source that has been switched away from."""
    text = f"this store has moved to {mark.peer}; if that does not serve yet, run {_COMMAND} again"
    return replace(mark, state=MOVED, refuses=text)
