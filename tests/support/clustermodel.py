"""
A model of a cluster in memory that runs step by step: lost connections, late writes to the blob
store, promotions of a standby, and nodes that are suspended, resumed and killed. The components of
a node are the real ones.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from storagegate.cluster import collector as collecting
from storagegate.cluster import sweeper as sweeping
from storagegate.cluster.collector import Collector
from storagegate.cluster.jobs import Job
from storagegate.cluster.lease import LeaseKeeper
from storagegate.cluster.reads import OpenRead, OpenReads
from storagegate.cluster.sweeper import Sweeper
from storagegate.storage.blobids import readBlobId
from storagegate.storage.cluster import leases as leasing
from storagegate.storage.cluster.connection import ConnectionLost, StatementRefused
from storagegate.storage.cluster.databaselocks import AdvisoryLocks
from storagegate.storage.cluster.garbage import Cleanup
from storagegate.storage.cluster.leases import Leases
from storagegate.storage.errors import CommitUnknown, StoreBusy, StoreError, StoreReadOnly
from storagegate.storage.mutations import ForgetBlobs
from tests.support.clusterserver import FOLDED, Mutation, Request, Rows, Server, Step, Violation

LEASE_SECONDS = 3.0
LATE_SECONDS = 6.0
LONG_SECONDS = 4.0
BLOCK = 8
STEP = 5


@contextmanager
def smallSteps() -> Iterator[None]:
    """Use the small step sizes of the model for reservations, sweeping and collecting."""
    changed = ((leasing, "BLOCK", BLOCK), (sweeping, "STEP", STEP), (collecting, "FOLDED", FOLDED))
    before = [getattr(module, name) for module, name, _ in changed]
    for module, name, value in changed:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(changed, before, strict=True):
            setattr(module, name, value)


class ModelConnection:
    """
    A persistent connection of a node.

    @ivar isCut: Whether it stays closed.
    """

    isCut = False

    def __init__(self, cluster: "Cluster", node: "Node") -> None:
        self._cluster = cluster
        self._node = node
        self.server = cluster.server
        self.isOpen = True
        self.queue: deque[Request] = deque()
        self.answered: deque[Request] = deque()
        self._waiting: list[Deferred[Any]] = []

    @property
    def connection(self) -> "ModelConnection | None":
        """See L{PersistentConnection.connection}."""
        return self if self.isOpen else None

    @property
    def isAwaited(self) -> bool:
        """Whether callers wait for it to open."""
        return bool(self._waiting)

    async def opened(self) -> "ModelConnection":
        """See L{PersistentConnection.opened}."""
        if not self.isOpen:
            waiting: Deferred[Any] = Deferred()
            self._waiting.append(waiting)
            await waiting
        return self

    def run(self, steps: Sequence[Step]) -> Deferred[list[Rows]]:
        """See L{Connection.run}."""
        if not self.isOpen:
            return fail(ConnectionLost("not connected"))
        request = Request(tuple(steps))
        self.queue.append(request)
        return request.done

    async def ask(self, name: str, *values: Any) -> Any:
        """Run one statement; return its result."""
        await self.opened()
        (result,) = await self.run([(name, values)])
        return result

    def canExecute(self) -> bool:
        """Return whether the server can continue."""
        if not self.queue:
            return False
        first = self.queue[0]
        if first.mutation is not None:
            return self.server.isPrimary
        return not self.server.isBlocked(first)

    def execute(self) -> None:
        """Execute one step in the server."""
        first = self.queue[0]
        if first.mutation is None:
            self.server.execute(first)
        else:
            self.server.commit(first)
        if first.result is not None:
            self.answered.append(self.queue.popleft())

    def deliver(self) -> None:
        """Deliver a response to the node."""
        request = self.answered.popleft()
        if isinstance(request.result, Exception):
            request.done.errback(request.result)
        else:
            request.done.callback(request.result)

    def lose(self, dice: Random) -> None:
        """Lose the connection; the server has executed some of the requests."""
        self.isOpen = False
        while dice.random() < 0.5 and self.canExecute():
            self.execute()
        for request in self.queue:
            if request.mutation is not None:
                self._cluster.orphans.append((self.server, request))
        lost = [*self.answered, *self.queue]
        self.answered.clear()
        self.queue.clear()
        for request in lost:
            if self._node.isAlive:
                request.done.errback(ConnectionLost("it was lost"))

    def cancel(self) -> None:
        """Cancel a commit that waits for a standby, as an operator would."""
        first = self.queue[0]
        if first.mutation is None:
            self.server.execute(first)
        if first.mutation is not None:
            self.server.commit(first)
        if not isinstance(first.result, Exception):
            first.result = CommitUnknown("canceling wait for synchronous replication")
        self.answered.append(self.queue.popleft())

    def open(self) -> None:
        """Reconnect to the newest server."""
        if self.server.timeline != self._cluster.server.timeline:
            self._node.promoted(self._cluster.server.timeline)
        self.server = self._cluster.server
        self.isOpen = True
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)

    def expire(self) -> None:
        """Fail the callers that wait for a connection."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.errback(ConnectionLost("the catalog does not respond"))


@define(eq=False)
class BlobOperation:
    """
    A write or removal that was sent to the blob store.

    @ivar node: The node that sent it.
    @ivar deadline: It takes effect before this time of the cluster, or never.
    @ivar isLate: Whether it takes effect at the last moment.
    """

    node: "Node"
    blobs: Sequence[str]
    isWrite: bool
    done: Deferred[None] = field(factory=Deferred, init=False)
    deadline: float = field(default=1e9, init=False)
    isLate: bool = field(default=False, init=False)
    isDone: bool = field(default=False, init=False)


class NodeBlobs:
    """The part of L{IBlobStore} that the sweeper and the collector use."""

    def __init__(self, node: "Node") -> None:
        self._node = node

    def remove(self, blobs: Sequence[str]) -> Deferred[None]:
        """Remove blobs."""
        return self.send(blobs, False)

    def send(self, blobs: Sequence[str], isWrite: bool) -> Deferred[None]:
        """Send an operation."""
        if not blobs:
            return succeed(None)
        operation = BlobOperation(self._node, tuple(blobs), isWrite)
        self._node.cluster.operations.append(operation)
        return operation.done


class NodeCatalog:
    """The part of L{IClusterCatalog} that the sweeper and the collector use."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self.leases = node.leases
        self.cleanup = node.cleanup

    async def knownBlobs(self, ids: Sequence[str]) -> frozenset[str]:
        """Return the blobs that have a row."""
        if "known" in self._node.cluster.rules:
            return frozenset()
        found: frozenset[str] = await self._node.lookups.ask("known", ids)
        return found

    async def garbage(self, after: str, limit: int) -> list[str]:
        """List garbage."""
        found: list[str] = await self._node.lists.ask("garbage", after, limit)
        return found

    def commit(self, mutation: ForgetBlobs) -> Deferred[None]:
        """Remove rows."""
        return Deferred.fromCoroutine(
            self._node.write("forget", list(mutation.ids), [self._node.leases.number])
        )


class BreakableReads(OpenReads):
    """Open reads whose rules can be broken."""

    rules: frozenset[str] = frozenset()

    def oldest(self) -> int | None:
        """Return the oldest stamp."""
        return None if "oldest" in self.rules else super().oldest()

    def end(self) -> None:
        """End all reads."""
        if "ended" not in self.rules:
            super().end()

    def beat(self) -> None:
        """Name the blobs of long reads."""
        if "named" not in self.rules:
            super().beat()
            return
        # The broken rule: not recorded in the catalog.
        for read in [*self._open]:
            if read.since <= self._clock.seconds() - LONG_SECONDS:
                del self._open[read]


class RowsFirst(Collector):
    """A collector that removes in the wrong order."""

    async def _remove(self, ids: Sequence[str]) -> None:
        await self._catalog.commit(ForgetBlobs(ids))
        await self._blobs.remove(ids)


class Node:
    """
    A node: the real lease keeper, reads, jobs, sweeper and collector, on the model's connections.

    @ivar behind: How long it has been suspended, in seconds.
    """

    def __init__(self, cluster: "Cluster", index: int) -> None:
        self.cluster = cluster
        self.index = index
        self.isAlive = True
        self.isStopped = False
        self.behind = 0.0
        self.timeline = cluster.server.timeline
        self.clock = Clock()
        self.lookups = ModelConnection(cluster, self)
        self.lists = ModelConnection(cluster, self)
        self.writer = ModelConnection(cluster, self)
        self.connections = (self.lookups, self.lists, self.writer)
        lists: Any = self.lists
        lookups: Any = self.lookups
        self.leases = Leases(lookups, self.bootSeconds)
        self.cleanup = Cleanup(lists, AdvisoryLocks())
        self.blobs = NodeBlobs(self)
        catalog: Any = NodeCatalog(self)
        blobs: Any = self.blobs
        self.catalog = catalog
        rules = cluster.rules
        self.reads = BreakableReads(self.leases, self.cleanup, self.clock, LONG_SECONDS)
        self.reads.rules = rules
        self.keeper = LeaseKeeper(
            self.leases, self.cleanup, self.reads, self.clock, f"node{index}", LEASE_SECONDS
        )
        self.keeper._random = cluster.dice.uniform
        self.jobs = [self._job("sweep"), self._job("collect")]
        late = 0.0 if "late" in rules else LATE_SECONDS
        self.sweeper = Sweeper(catalog, blobs, self.clock, self.jobs[0].confirm, late, 1.0)
        self.collector = (RowsFirst if "rows" in rules else Collector)(
            catalog, blobs, self.clock, self.jobs[1].confirm
        )
        self.keeper.start()
        self.jobs[0].start(self.sweeper)
        self.jobs[1].start(self.collector)

    def bootSeconds(self) -> float:
        """Return the clock of the lease, which continues while the process is suspended."""
        return 0.0 if "gate" in self.cluster.rules else self.clock.seconds() + self.behind

    def advance(self, amount: float) -> None:
        """Let time pass."""
        if self.isStopped:
            self.behind += amount
        elif self.isAlive:
            self.clock.advance(amount)

    def resume(self) -> None:
        """Resume after a suspension."""
        self.isStopped = False
        behind, self.behind = self.behind, 0.0
        self.clock.advance(behind)

    def promoted(self, timeline: int) -> None:
        """Record a new server, as the catalog does before it uses a connection to it."""
        if timeline != self.timeline:
            self.timeline = timeline
            self.leases.giveUp()

    async def write(self, name: str, *values: Any) -> None:
        """
        Commit.

        @raise StoreError: If the commit is refused, or its outcome is unknown.
        """
        if not self.writer.isOpen:
            raise StoreBusy("the catalog does not respond")
        try:
            await self.writer.run([(name, values[0] if name == "put" else values)])
        except StatementRefused as error:
            raise StoreBusy(str(error)) from error
        except (ConnectionLost, CommitUnknown) as error:
            if "giveup" not in self.cluster.rules:
                self.leases.giveUp()
            raise CommitUnknown(str(error)) from error

    def _job(self, name: str) -> Job:
        made = Job(name, self.leases, self.cleanup, self.clock, LEASE_SECONDS)
        made._random = self.cluster.dice.uniform
        return made


@define(eq=False)
class Read:
    """A read in progress."""

    node: Node
    held: OpenRead
    blob: str

    @property
    def isAllowed(self) -> bool:
        """Whether the blob must exist."""
        return self.node.isAlive and self.held.isOpen and bool(self.node.leases.number)


class Cluster:
    """
    The whole cluster.

    @ivar acknowledged: The acknowledged writes of each key: version, start and end.
    @ivar refused: The versions of writes that have definitely failed.
    @ivar rules: The names of the broken rules.
    """

    def __init__(self, seed: int, rules: frozenset[str] = frozenset()) -> None:
        self.dice = Random(seed)
        self.rules = rules
        self.now = 0.0
        self.server = Server(rules)
        self.servers = [self.server]
        self.stored: set[str] = set()
        self.operations: list[BlobOperation] = []
        self.orphans: list[tuple[Server, Request]] = []
        self.reads: list[Read] = []
        self.nodes: list[Node] = []
        self.acknowledged: dict[str, list[tuple[int, int, int]]] = {}
        self.refused: set[int] = set()
        self._version = 0
        self._ticks = 0

    def spawn(self) -> Node:
        """Start a node."""
        made = Node(self, len(self.nodes))
        self.nodes.append(made)
        return made

    # Client operations

    def begin(self, work: Any) -> None:
        """Run a request; only store errors may end it."""

        def ended(failure: Failure) -> None:
            failure.trap(StoreError)

        Deferred.fromCoroutine(work).addErrback(ended)

    async def put(self, node: Node, key: str) -> None:
        """Store an object."""
        lease = self._admit(node)
        blob = node.leases.newBlobId()
        version, began = self._newVersion()
        try:
            await node.blobs.send([blob], True)
            name = readBlobId(blob)
            assert name is not None
            await node.write("put", Mutation(key, blob, version, sorted({lease, name[0]})))
        except CommitUnknown:
            if "unknown" in self.rules:
                await self._drop(node, blob)
            raise
        except StoreError:
            self.refused.add(version)
            await self._drop(node, blob)
            raise
        node.leases.settle(blob)
        self._acknowledge(key, version, began)

    async def change(self, node: Node, key: str, source: str | None) -> None:
        """Delete an object, or copy another object to it."""
        lease = self._admit(node)
        version, began = self._newVersion()
        try:
            await node.write("put", Mutation(key, None, version, [lease], source))
        except CommitUnknown:
            raise
        except StoreError:
            self.refused.add(version)
            raise
        self._acknowledge(key, version, began)

    async def get(self, node: Node, key: str) -> None:
        """Start to read an object."""
        self._admit(node)
        blob, _ = await node.lookups.ask("object", key)
        if blob is not None:
            self.reads.append(Read(node, node.reads.hold([blob]), blob))

    def _admit(self, node: Node) -> int:
        lease = node.leases.number
        if not lease:
            raise StoreReadOnly("no lease")
        return lease

    async def _drop(self, node: Node, blob: str) -> None:
        await node.blobs.remove([blob])
        node.leases.settle(blob)

    def _newVersion(self) -> tuple[int, int]:
        """Return the version and the start time of a new write."""
        self._version += 1
        self._ticks += 1
        return self._version, self._ticks

    def _acknowledge(self, key: str, version: int, began: int) -> None:
        self._ticks += 1
        self.acknowledged.setdefault(key, []).append((version, began, self._ticks))

    def check(self) -> None:
        """
        Check the remaining objects.

        @raise Violation: If an acknowledged write was lost, or a refused write took effect.
        """
        for key, (blob, version) in self.server.objects.items():
            if blob is not None and blob not in self.stored:
                raise Violation(f"lost: the blob of {key} is gone")
            if version in self.refused:
                raise Violation(f"stale: {key} has version {version}, which was refused")
            done = self.acknowledged.get(key, [])
            ended = next((end for each, _, end in done if each == version), self._ticks)
            if any(began > ended for _, began, _ in done):
                raise Violation(f"lost: {key} has version {version} again")
        for key in self.acknowledged:
            if key not in self.server.objects:
                raise Violation(f"lost: {key}")

    # Events

    def happen(self, operation: BlobOperation, takesPlace: bool = True) -> None:
        """Let a blob operation take effect, or lose it."""
        operation.isDone = True
        if not takesPlace:
            return
        if operation.isWrite:
            self.stored.update(operation.blobs)
            return
        self.stored.difference_update(operation.blobs)
        gone = frozenset(operation.blobs)
        for key, (blob, _) in self.server.objects.items():
            if blob in gone:
                raise Violation(f"lost: the blob of {key} was removed")
        for read in self.reads:
            if read.blob in gone and read.isAllowed:
                raise Violation(f"read: node {read.node.index} lost the blob that it reads")

    def answer(self, operation: BlobOperation) -> None:
        """Deliver the result of an operation to its node."""
        self.operations.remove(operation)
        operation.done.callback(None)

    def advance(self, amount: float) -> None:
        """Advance the time of nodes and servers."""
        self.now += amount
        for server in self.servers:
            server.now = self.now
        for operation in [*self.operations]:
            if operation.deadline <= self.now:
                self.operations.remove(operation)
                if not operation.isDone:
                    self.happen(operation, self.dice.random() < 0.5)
        for node in self.nodes:
            node.advance(amount)

    def kill(self, node: Node) -> None:
        """Kill a node; its pending blob operations may take effect late."""
        node.isAlive = False
        for operation in self.operations:
            if operation.node is node:
                operation.deadline = self.now + LATE_SECONDS - 0.5
                operation.isLate = self.dice.random() < 0.5
        for connection in node.connections:
            if connection.isOpen:
                connection.lose(self.dice)

    def promote(self) -> None:
        """Promote the standby, while the old primary continues without one."""
        old = self.server
        for request in [*old.inFlight]:
            # Some have reached the standby.
            if self.dice.random() < 0.5:
                self._commitOf(old, request)
        self.server = old.fork()
        self.servers.append(self.server)

    def _commitOf(self, server: Server, request: Request) -> None:
        for node in self.nodes:
            for connection in node.connections:
                if connection.queue and connection.queue[0] is request:
                    connection.execute()
                    return
        self.orphans = [each for each in self.orphans if each[1] is not request]
        server.commit(request)

    def drain(self) -> None:
        """Run all events that need no time."""
        for _ in range(400):
            isOver = True
            for node in self.nodes:
                if node.isAlive and not node.isStopped:
                    for connection in node.connections:
                        isOver &= not self._drain(connection)
            if isOver:
                events = self.events()
                if not events:
                    return
                events[0]()

    def _drain(self, connection: ModelConnection) -> bool:
        """Answer all pending requests; return whether there were any."""
        hadAny = False
        while connection.isOpen and (connection.answered or connection.canExecute()):
            hadAny = True
            if connection.answered:
                connection.deliver()
            else:
                connection.execute()
        return hadAny

    def events(self) -> list[Callable[[], object]]:
        """Return the events that may happen next."""
        found: list[Callable[[], object]] = []
        for node in self.nodes:
            for connection in node.connections:
                if not connection.isOpen:
                    if node.isAlive and not node.isStopped and not connection.isCut:
                        found.append(connection.open)
                        if connection.isAwaited:
                            found.append(connection.expire)
                    continue
                if connection.canExecute():
                    found.append(connection.execute)
                if connection.answered and not node.isStopped:
                    found.append(connection.deliver)
        for operation in self.operations:
            if not operation.isDone:
                if not operation.isLate:
                    found.append(lambda operation=operation: self.happen(operation))
            elif operation.node.isAlive and not operation.node.isStopped:
                found.append(lambda operation=operation: self.answer(operation))
        for orphan in self.orphans:
            found.append(lambda orphan=orphan: self._finishOrphan(orphan))
        return found

    def _finishOrphan(self, orphan: tuple[Server, Request]) -> None:
        server, request = orphan
        if server.isPrimary or self.dice.random() < 0.5:
            self.orphans.remove(orphan)
            if server.isPrimary and self.dice.random() < 0.7:
                server.commit(request)
            else:
                server.abort(request)


class History:
    """One run of a cluster, from a seed: a few minutes of random events, then the final checks."""

    def __init__(self, seed: int, rules: frozenset[str] = frozenset(), steps: int = 120) -> None:
        self.cluster = Cluster(seed, rules)
        self._steps = steps

    def run(self) -> None:
        """
        Run.

        @raise Violation: If a rule is violated.
        """
        with smallSteps():
            for _ in range(2):
                self.cluster.spawn()
            for _ in range(self._steps):
                self._step()
            self._settle()

    def _step(self) -> None:
        cluster, dice = self.cluster, self.cluster.dice
        chance = dice.random()
        if chance < 0.56:
            for _ in range(dice.randrange(1, 6)):
                events = cluster.events()
                if events:
                    dice.choice(events)()
        elif chance < 0.74:
            self._request()
        elif chance < 0.78:
            if cluster.reads:
                read = cluster.reads.pop(dice.randrange(len(cluster.reads)))
                if read.isAllowed and read.blob not in cluster.stored:
                    raise Violation(f"read: node {read.node.index} finds no blob")
                read.held.release()
        elif chance < 0.95:
            cluster.advance(dice.choice((0.1, 0.3, 0.5, 1.0, 1.0, 2.0)))
        else:
            self._fault()

    def _request(self) -> None:
        cluster, dice = self.cluster, self.cluster.dice
        able = [node for node in cluster.nodes if node.isAlive and not node.isStopped]
        if not able:
            return
        node, key = dice.choice(able), dice.choice("abc")
        chance = dice.random()
        if chance < 0.5:
            cluster.begin(cluster.put(node, key))
        elif chance < 0.6:
            cluster.begin(cluster.change(node, key, None))
        elif chance < 0.7:
            cluster.begin(cluster.change(node, key, dice.choice("abc")))
        else:
            cluster.begin(cluster.get(node, key))

    def _fault(self) -> None:
        cluster, dice = self.cluster, self.cluster.dice
        node = dice.choice(cluster.nodes)
        chance = dice.random()
        if len(cluster.servers) > 1 and dice.random() < 0.5:
            self._cancel(node)
        elif not node.isAlive:
            if sum(each.isAlive for each in cluster.nodes) < 3:
                cluster.spawn()
        elif chance < 0.35:
            connection = dice.choice(node.connections)
            if connection.isOpen and not node.isStopped:
                connection.lose(dice)
        elif chance < 0.65:
            if node.isStopped:
                node.resume()
            else:
                node.isStopped = True
        elif chance < 0.8:
            cluster.kill(node)
        elif len(cluster.servers) < 3:
            cluster.promote()

    def _cancel(self, node: Node) -> None:
        """Cancel a commit that waits for the former standby."""
        cancelled = [
            each
            for each in node.connections
            if each.queue and not each.server.isPrimary and not each.canExecute()
        ]
        if cancelled:
            self.cluster.dice.choice(cancelled).cancel()

    def _settle(self) -> None:
        """Let all nodes recover, and check the final state."""
        cluster = self.cluster
        for node in cluster.nodes:
            if node.isStopped and node.isAlive:
                node.resume()
        if not any(node.isAlive for node in cluster.nodes):
            cluster.spawn()
        for node in cluster.nodes:
            for connection in node.connections:
                if node.isAlive and connection.isOpen and not connection.server.isPrimary:
                    connection.lose(cluster.dice)
        for _ in range(80):
            cluster.drain()
            while cluster.reads:
                cluster.reads.pop().held.release()
            if not self._left():
                break
            cluster.advance(0.5)
        else:
            raise Violation(f"left: {self._left()}")
        cluster.check()

    def _left(self) -> str:
        """Return the first difference from the expected final state."""
        cluster, server = self.cluster, self.cluster.server
        named = [blob for blob, _ in server.objects.values() if blob is not None]
        alive = sum(node.isAlive for node in cluster.nodes)
        if cluster.stored - set(named):
            return f"orphans {cluster.stored - set(named)}"
        if server.blobs != {blob: named.count(blob) for blob in named}:
            return f"rows of blobs {server.blobs}, not {named}"
        if server.freed or server.holds or cluster.operations:
            return f"{server.freed} {server.holds} {cluster.operations}"
        if len(server.leases) != alive:
            return f"{len(server.leases)} leases of {alive} nodes"
        return ""
