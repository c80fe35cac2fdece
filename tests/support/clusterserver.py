"""
The catalog's server in the model of a cluster: the statements of leases, cleanup and commits, in
memory, step by step.

A transaction that commits an object takes two steps: it has its locks and its number after the
first, and is visible after the second. All other transactions take one step.
"""

from collections.abc import Sequence
from copy import copy
from struct import pack, unpack
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred

from storagegate.storage.cluster.connection import StatementRefused
from storagegate.storage.cluster.databaselocks import LEASE_LOCKS

FOLDED = 4
"""References that are folded in one step."""

Step = tuple[Any, Any]


class Violation(Exception):
    """A rule of the cluster is violated."""


class Rows:
    """A result of libpq."""

    __slots__ = ("_rows", "ntuples")

    def __init__(self, *rows: Sequence[bytes]) -> None:
        self._rows = rows
        self.ntuples = len(rows)

    def get_value(self, row: int, column: int) -> bytes:
        """Return a value."""
        return self._rows[row][column]


def numbers(*values: int) -> list[bytes]:
    """Encode a row of numbers."""
    return [pack("!q", value) for value in values]


def number(value: bytes) -> int:
    """Decode a number."""
    return int.from_bytes(value, "big", signed=True)


def seconds(value: bytes) -> float:
    """Decode a time."""
    found: float = unpack("!d", value)[0]
    return found


def texts(value: bytes) -> list[str]:
    """Decode an array of ids."""
    found, place = [], 20
    while place < len(value):
        end = place + 4 + number(value[place : place + 4])
        found.append(value[place + 4 : end].decode())
        place = end
    return found


@define(eq=False)
class LeaseRow:
    """A row of C{leases}."""

    expires: float
    high: int
    readsFrom: int
    low: int = 0
    alive: bool = True


@define(eq=False)
class Mutation:
    """
    The change of a commit: a key gets a blob, or loses it.

    @ivar copied: The key whose blob is copied.
    @ivar version: The unique number of the mutation.
    """

    key: str
    blob: str | None
    version: int
    leases: Sequence[int]
    copied: str | None = None


@define(eq=False)
class Request:
    """A transaction that was sent."""

    steps: Sequence[Step]
    done: Deferred[list[Rows]] = field(factory=Deferred, init=False)
    result: Any = field(default=None, init=False)
    mutation: Mutation | None = field(default=None, init=False)
    xid: int = field(default=0, init=False)
    isSent: bool = field(default=True, init=False)


class Server:
    """
    A server of the catalog.

    @ivar now: The time of the server.
    @ivar isPrimary: Whether its commits reach a standby; otherwise they wait until an operator
        cancels them.
    @ivar rules: The names of the broken rules.
    """

    def __init__(self, rules: frozenset[str] = frozenset()) -> None:
        self.rules = rules
        self.now = 0.0
        self.timeline = 1
        self.isPrimary = True
        self.leases: dict[int, LeaseRow] = {}
        self.objects: dict[str, tuple[str | None, int]] = {}
        self.blobs: dict[str, int] = {}
        self.freed: list[tuple[str, int]] = []
        self.holds: set[tuple[str, int]] = set()
        self.jobs: dict[str, tuple[int, float]] = {}
        self.inFlight: list[Request] = []
        self._lastLease = 0
        self._lastXid = 0

    def fork(self) -> "Server":
        """Return a promoted standby of this server, with all committed transactions."""
        made = copy(self)
        made.timeline += 1
        made.leases = {each: copy(row) for each, row in self.leases.items()}
        for name in ("objects", "blobs", "freed", "holds", "jobs"):
            setattr(made, name, copy(getattr(self, name)))
        made.inFlight = []
        self.isPrimary = False
        return made

    def xmin(self) -> int:
        """Return the oldest transaction in progress."""
        return min((each.xid for each in self.inFlight), default=self._lastXid + 1)

    def isBlocked(self, request: Request) -> bool:
        """Return whether a request waits for a lock or a standby."""
        first, values = request.steps[0]
        if first == "put":
            held = [each.mutation for each in self.inFlight if each.mutation is not None]
            # One transaction at a time may hold a key or copy: row locks are not modelled.
            return any(each.key == values.key or (each.copied and values.copied) for each in held)
        if first in _READS:
            return False
        if not self.isPrimary:
            # Transactions without changes do not wait for a standby.
            return first != b"fold" or bool(self._foldable(FOLDED))
        if first == b"lockalone" and "alone" not in self.rules:
            lease = number(values[0]) - LEASE_LOCKS
            return any(lease in each.mutation.leases for each in self.inFlight if each.mutation)
        if first in (b"fold", "forget"):
            return any(each.mutation.copied for each in self.inFlight if each.mutation)
        return False

    def execute(self, request: Request) -> None:
        """Execute the first step of a request."""
        name, values = request.steps[0]
        if name != "put":
            results = [
                getattr(self, f"_{name if isinstance(name, str) else name.decode()}")(*values)
                for name, values in request.steps
            ]
            request.result = results
            return
        self._lastXid += 1
        request.xid = self._lastXid
        if "fence" not in self.rules and not all(
            each in self.leases and self.leases[each].alive for each in values.leases
        ):
            request.result = StatementRefused("22012", "division by zero")
        elif values.copied is not None and not self._copies(values):
            request.result = StatementRefused("40001", "the source has changed")
        else:
            request.mutation = values
            self.inFlight.append(request)

    def commit(self, request: Request) -> None:
        """Execute the second step of a mutation."""
        self.inFlight.remove(request)
        made = request.mutation
        assert made is not None
        for each in made.leases:
            if self.isPrimary and not (each in self.leases and self.leases[each].alive):
                raise Violation(f"stale: {made.key} was committed under lease {each}, which ended")
        old, _ = self.objects.get(made.key, (None, 0))
        if old is not None:
            self.freed.append((old, request.xid))
        if made.blob is not None:
            self.blobs[made.blob] = self.blobs.get(made.blob, 0) + 1
        self.objects[made.key] = (made.blob, made.version)
        request.result = [Rows()]

    def abort(self, request: Request) -> None:
        """Abort a mutation."""
        self.inFlight.remove(request)

    def _copies(self, mutation: Mutation) -> bool:
        assert mutation.copied is not None
        mutation.blob, _ = self.objects.get(mutation.copied, (None, 0))
        return mutation.blob is not None and self.blobs.get(mutation.blob, 0) > 0

    def _takelease(self, node: bytes, valid: bytes, high: bytes) -> Rows:
        self._lastLease += 1
        row = LeaseRow(self.now + seconds(valid), number(high), self.xmin())
        self.leases[self._lastLease] = row
        return Rows(numbers(self._lastLease, row.readsFrom))

    def _renewlease(
        self, lease: bytes, valid: bytes, low: bytes, high: bytes, readsFrom: bytes
    ) -> Rows:
        row = self.leases.get(number(lease))
        if row is None or not row.alive:
            return Rows()
        row.expires = self.now + seconds(valid)
        row.low = number(low)
        if "high" not in self.rules:
            row.high = max(row.high, number(high))
        row.readsFrom = number(readsFrom)
        if "horizon" in self.rules:
            row.readsFrom = self._lastXid + 1
        return Rows(numbers(self.xmin()))

    def _reserve(self, lease: bytes, high: bytes) -> Rows:
        row = self.leases.get(number(lease))
        if row is None or not row.alive:
            return Rows()
        if "high" not in self.rules:
            row.high = max(row.high, number(high))
        return Rows(numbers(row.high))

    def _lapsed(self) -> Rows:
        found = [each for each, row in self.leases.items() if row.alive and row.expires < self.now]
        return Rows(*(numbers(each) for each in found))

    def _lockalone(self, lock: bytes) -> Rows:
        return Rows()

    def _endlease(self, lease: bytes, evenValid: bytes) -> Rows:
        row = self.leases.get(number(lease))
        if row is not None and (evenValid == b"\x01" or row.expires < self.now):
            row.alive = False
        return Rows()

    def _ended(self) -> Rows:
        return Rows(
            *(
                numbers(each, row.low, row.high)
                for each, row in self.leases.items()
                if not row.alive
            )
        )

    def _settled(self, lease: bytes, low: bytes) -> Rows:
        row = self.leases.get(number(lease))
        if row is not None and not row.alive:
            row.low = number(low)
        return Rows()

    def _forgetlease(self, lease: bytes) -> Rows:
        row = self.leases.get(number(lease))
        if row is not None and not row.alive:
            del self.leases[number(lease)]
        return Rows()

    def _forgetholds(self, lease: bytes) -> Rows:
        self.holds = {each for each in self.holds if each[1] != number(lease)}
        return Rows()

    def _foldable(self, most: int) -> list[tuple[str, int]]:
        horizon = min((row.readsFrom for row in self.leases.values() if row.alive), default=1 << 62)
        horizon = min(horizon, self.xmin())
        if "fold" in self.rules:
            horizon = self._lastXid + 1
        return [each for each in self.freed if each[1] < horizon][:most]

    def _fold(self, most: bytes) -> Rows:
        folded = self._foldable(number(most))
        for each in folded:
            self.freed.remove(each)
            self.blobs[each[0]] -= 1
        return Rows(numbers(len(folded), 0))

    def _foldusage(self) -> Rows:
        return Rows()

    def _trimevents(self, most: bytes) -> Rows:
        return Rows()

    def _dropwatches(self, lease: bytes) -> Rows:
        return Rows()

    def _hold(self, lease: bytes, ids: bytes) -> Rows:
        row = self.leases.get(number(lease))
        if row is not None and row.alive and "hold" not in self.rules:
            self.holds.update((each, number(lease)) for each in texts(ids))
        return Rows()

    def _release(self, lease: bytes, ids: bytes) -> Rows:
        self.holds.difference_update((each, number(lease)) for each in texts(ids))
        return Rows()

    def _claimjob(self, name: bytes, lease: bytes, valid: bytes) -> Rows:
        owner, until = self.jobs.get(name.decode(), (0, 0.0))
        row = self.leases.get(owner)
        isHeld = row is not None and row.alive and until >= self.now
        own = self.leases.get(number(lease))
        if own is None or not own.alive or (isHeld and owner != number(lease)):
            return Rows()
        self.jobs[name.decode()] = (number(lease), self.now + seconds(valid))
        return Rows(numbers(number(lease)))

    def _releasejob(self, name: bytes, lease: bytes) -> Rows:
        if self.jobs.get(name.decode(), (0, 0.0))[0] == number(lease):
            del self.jobs[name.decode()]
        return Rows()

    def _backlog(self) -> Rows:
        garbage = sum(1 for refs in self.blobs.values() if refs <= 0)
        return Rows(numbers(len(self.freed), garbage, len(self.holds)))

    def _object(self, key: str) -> tuple[str | None, int]:
        return self.objects.get(key, (None, 0))

    def _known(self, ids: Sequence[str]) -> frozenset[str]:
        return frozenset(self.blobs).intersection(ids)

    def _garbage(self, after: str, limit: int) -> list[str]:
        held = {blob for blob, _ in self.holds}
        found = [
            blob
            for blob, refs in self.blobs.items()
            if refs <= 0 and blob > after and blob not in held
        ]
        return sorted(found)[:limit]

    def _forget(self, ids: Sequence[str], leases: Sequence[int]) -> Rows:
        for each in leases:
            if each not in self.leases or not self.leases[each].alive:
                return Rows()
        for blob in ids:
            if self.blobs.get(blob, 1) <= 0:
                del self.blobs[blob]
        return Rows()


_READS = frozenset({"object", "known", "garbage", b"lapsed", b"ended", b"backlog"})
"""Statements that commit no changes, and so do not wait for a standby."""
