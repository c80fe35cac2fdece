"""
What a mutation is, and the transaction that it runs in.

A mutation is a plain function of a L{Transaction} and the arguments of all its neighbours in the
batch: it checks first and writes after, so that one refusal (a C{StoreError} in its place of the
answer) leaves no trace and concerns nobody else. It takes a whole run at once because each
statement of a thread gives the interpreter lock away and may wait 5 ms to have it back from a busy
reactor: with one statement for each of 64 rows 6 rows/s were measured beside a busy reactor, with
one for all of them 1,800.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import msgspec
from attrs import frozen

from storagegate.storage.errors import StoreError
from storagegate.storage.sqlite import transact

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

# Numbers set aside for one transaction; one is used by each mutation that stores an object, so
# this is also the most that a batch may hold.
SEQUENCES = 512

# Rows in one statement. Beyond this a statement of its own costs less than it saves.
CHUNK = 64


class Transaction:
    """
    An open write transaction. Lives in the thread that owns the connection.

    @ivar garbage: Blobs that lost their last reference in it.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.garbage: list[str] = []
        self._next = 0
        self._end = 0

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> None:
        """Run a statement that returns nothing."""
        self.connection.execute(sql, parameters)

    def value(self, sql: str, parameters: Sequence[object] = ()) -> Any:
        """Run a statement and return the only column of its only row; L{None} without a row."""
        rows = self.connection.execute(sql, parameters).fetchall()
        return rows[0][0] if rows else None

    def takeSequence(self) -> int:
        """Give out the next number; unused ones of a transaction are lost, which harms nobody."""
        if self._next == self._end:
            self._end = self.value(
                "UPDATE meta SET value = value + ? WHERE name = 'sequence' RETURNING value",
                (SEQUENCES,),
            )
            self._next = self._end - SEQUENCES
        self._next += 1
        return self._next


Apply = Callable[[Transaction, Sequence[Any]], Sequence[object]]


@frozen(eq=False)
class Mutation:
    """
    A change that waits to be committed.

    @ivar apply: Takes the arguments of neighbouring mutations with the same function; returns for
        each its result, or the L{StoreError} that it failed with.
    @ivar frees: It gives room back, so it must work on a full disk.
    @ivar weight: Bytes of bulk that it carries.
    @ivar names: Bucket and key of the objects that it may change.
    """

    apply: Apply
    argument: object
    frees: bool = False
    weight: int = 0
    names: Sequence[tuple[str, bytes]] = ()


def oneByOne(function: Callable[[Transaction, T], R]) -> Apply:
    """Make an L{Apply} of a function of one argument that raises its refusal."""

    @wraps(function)
    def apply(transaction: Transaction, arguments: Sequence[T]) -> list[object]:
        outcomes: list[object] = []
        for argument in arguments:
            try:
                outcomes.append(function(transaction, argument))
            except StoreError as error:
                outcomes.append(error)
        return outcomes

    return apply


def chunks(items: Sequence[T], largest: int = CHUNK) -> Iterator[Sequence[T]]:
    """Cut into powers of two, so that few different statements are ever prepared."""
    start = 0
    while start < len(items):
        size = min(largest, 1 << ((len(items) - start).bit_length() - 1))
        yield items[start : start + size]
        start += size


def asJSON(value: object) -> str:
    """Encode for a text column, or for C{json_each}."""
    return msgspec.json.encode(value).decode()


def runAlone(connection: sqlite3.Connection, mutation: Mutation) -> tuple[object, list[str]]:
    """
    Run one mutation in a transaction of its own, and commit it.

    @return: The outcome and the blobs that became garbage.
    @raise sqlite3.Error: Nothing was changed.
    """
    (outcome,), garbage = runTogether(connection, [mutation])
    return outcome, garbage


def runTogether(
    connection: sqlite3.Connection, mutations: Sequence[Mutation]
) -> tuple[list[object], list[str]]:
    """
    Run mutations in order in one transaction, neighbours of one function at once, and commit.

    @return: An outcome for each, and the blobs that became garbage.
    @raise Exception: Whatever went wrong besides refusals; nothing was changed.
    """
    transaction = Transaction(connection)

    def act() -> list[object]:
        outcomes: list[object] = []
        start = 0
        while start < len(mutations):
            apply = mutations[start].apply
            end = start + 1
            while end < len(mutations) and mutations[end].apply is apply:
                end += 1
            arguments = [mutation.argument for mutation in mutations[start:end]]
            outcomes.extend(apply(transaction, arguments))
            start = end
        return outcomes

    return transact(connection, act), transaction.garbage
