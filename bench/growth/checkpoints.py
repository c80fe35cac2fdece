"""
Make checkpoints of a database's WAL again and again, beside the process that writes it.

    python -m bench.growth.checkpoints DATABASE

Ends when its standard input is closed, and says how many pages were copied.
"""

import select
import sqlite3
import sys
from collections.abc import Sequence

PAUSE_SECONDS = 0.1
"""Between two: a hundred times as often as a daemon that is busy makes them."""


def main(arguments: Sequence[str]) -> None:
    """Run as a program."""
    [path] = arguments
    connection = sqlite3.connect(path, isolation_level=None)
    copied = 0
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
        [(_, _, pages)] = connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        copied += max(0, pages)
    print(copied)


if __name__ == "__main__":
    main(sys.argv[1:])
