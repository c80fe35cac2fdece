"""What incomplete requests of gRPC hold, by what has come on their connections."""

import socket
from typing import Any

from attrs import define
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.heldbytes import HeldBytes, TooMuchHeld
from storagegate.rpc.pendingreads import (
    LEAST_SAMPLE_SECONDS,
    SAMPLE_SECONDS,
    PendingReads,
    receivedBytes,
)

MIB = 1 << 20


@define(eq=False)
class Read:
    """A call that waits for its request."""

    peer: str
    unread: dict[Any, float]
    error: TooMuchHeld | None = None
    isOpen: bool = False

    def open(self) -> None:
        """Note it."""
        self.isOpen = True

    def refuse(self, error: TooMuchHeld) -> None:
        """Note it."""
        self.error = error
        del self.unread[self]


class PendingReadsTests(SynchronousTestCase):
    """A budget of 8 MiB, and requests of 1 MiB at most: three begin the sampling."""

    def setUp(self) -> None:
        """Make the server's reads, and connections on which nothing has come."""
        self.clock = Clock()
        self.received: dict[str, int] | None = {}
        self.samples = 0
        self.budget = HeldBytes(8 * MIB, self.clock.seconds)
        self.unread: dict[Any, float] = {}
        self.reads = PendingReads(self.unread, self.budget, self.sample)
        self.reads.listens(self.clock, MIB)

    def sample(self) -> dict[str, int] | None:
        """Be the kernel."""
        self.samples += 1
        return None if self.received is None else dict(self.received)

    def begin(self, *peers: str) -> list[Read]:
        """Begin calls."""
        found = [Read(peer, self.unread) for peer in peers]
        for each in found:
            if self.received is not None:
                self.received.setdefault(each.peer, 0)
            self.unread[each] = 0.0
            if len(self.unread) > self.reads.quiet:
                self.reads.begin(each)
            else:
                each.open()
        return found

    def end(self, read: Read, size: int) -> None:
        """Let a request be complete."""
        del self.unread[read]
        if self.reads.isSampling:
            self.reads.received(read.peer, size)

    def come(self, **sizes: int) -> None:
        """Let bytes come, and be sampled."""
        assert self.received is not None
        for peer, size in sizes.items():
            self.received[peer] = self.received.get(peer, 0) + size
        # Twice: what comes is expected to go on.
        self.clock.pump([SAMPLE_SECONDS * 10] * 2)

    def test_few(self) -> None:
        """While few are incomplete, nothing is looked at."""
        for each in self.begin("a", "b"):
            self.end(each, 100)
        self.begin("c", "d")
        self.assertEqual((self.samples, self.clock.getDelayedCalls()), (0, []))

    def test_many(self) -> None:
        """With many, all connections are, until there are few again."""
        calls = self.begin("a", "b", "c")
        self.assertEqual(self.samples, 1)
        self.come(a=1000, b=2000)
        self.assertEqual((self.samples, self.budget.total), (3, 3000))
        self.end(calls[0], 1000)
        self.come()
        self.assertEqual((self.budget.total, self.budget._shares), (0, {}))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def opened(self, reads: list[Read]) -> int:
        """Count the reads that have begun."""
        return sum(each.isOpen for each in reads)

    def test_opened(self) -> None:
        """Reads that begin between two looks ask for half of the budget at most."""
        calls = self.begin(*map(str, range(20)))
        self.assertEqual(self.opened(calls), 2 + 4)
        # One that is complete lets the next begin.
        self.end(calls[0], 1000)
        self.assertEqual(self.opened(calls), 2 + 5)
        self.clock.advance(self.interval())
        self.assertEqual(self.opened(calls), 2 + 5 + 4)
        # Most of them are still incomplete: no more than are quiet begin.
        self.clock.advance(self.interval())
        self.assertEqual(self.opened(calls), 2 + 5 + 4 + 2)

    def test_allOpened(self) -> None:
        """Each read begins in the end; those that have ended before never do."""
        calls = self.begin(*map(str, range(20)))
        ended = calls[-1]
        del self.unread[ended]
        for each in calls[:-1]:
            self.end(each, 10)
        self.assertTrue(all(each.isOpen for each in calls[:-1]))
        self.clock.advance(self.interval())
        self.assertEqual((ended.isOpen, len(self.reads._queue)), (False, 0))

    def interval(self) -> float:
        """Return the seconds until the next look."""
        [call] = self.clock.getDelayedCalls()
        return float(call.getTime() - self.clock.seconds())

    def test_interval(self) -> None:
        """The first looks are quick; they get rare while little comes, and quick when much does."""
        self.clock.advance(5)
        self.begin("a", "b", "c")
        found = []
        for size in (0, 0, 0, 0, 0, MIB, MIB, MIB, MIB, 0):
            found.append(round(self.interval(), 6))
            assert self.received is not None
            self.received["a"] += size
            self.clock.advance(self.interval())
        self.assertEqual(found, [0.01, 0.02, 0.04, 0.08, 0.1, 0.1, 0.05, 0.025, 0.0125, 0.01])

    def test_intervalKept(self) -> None:
        """Many calls that come and go do not make the looks quick; a pause does."""
        self.clock.advance(5)
        for _ in range(10):
            calls = self.begin("a", "b", "c")
            seconds = self.interval()
            for each in calls:
                self.end(each, 0)
            self.clock.advance(seconds)
        self.assertAlmostEqual(seconds, SAMPLE_SECONDS)
        self.clock.advance(5)
        self.begin("a", "b", "c")
        self.assertAlmostEqual(self.interval(), LEAST_SAMPLE_SECONDS)

    def test_earlier(self) -> None:
        """What had come on a connection before does not count, but all on one that is new does."""
        self.come(a=50 * MIB)
        self.begin("a", "a", "a")
        self.come(a=10)
        self.assertEqual(self.budget.total, 10)
        self.begin("new")
        self.come(new=700)
        self.assertEqual(self.budget.total, 710)

    def test_idle(self) -> None:
        """What comes while no request is incomplete does not count either."""
        self.begin("a", "a", "a")
        self.come(a=10, b=30 * MIB)
        self.begin("b")
        self.come(b=20)
        self.assertEqual(self.budget.total, 30)

    def test_complete(self) -> None:
        """Messages that were complete are subtracted, also beside one that is not."""
        [stuck, quick, _] = self.begin("a", "a", "b")
        self.come(a=5000)
        self.end(quick, 4500)
        self.begin("a")
        self.come()
        self.assertTrue(0 < self.budget.total <= 500, self.budget.total)
        self.assertIsNone(stuck.error)

    def test_busy(self) -> None:
        """A connection with many short calls holds what has come lately, however long it lasts."""
        self.begin("b", "b", "b")
        for _ in range(50):
            calls = self.begin("a")
            self.come(a=50_000)
            self.assertLessEqual(self.budget.total, 100_000)
            self.end(calls[0], 0)

    def test_bounded(self) -> None:
        """No connection counts for more than its requests may have."""
        self.begin("a", "b", "c")
        self.come(a=5 * MIB)
        self.assertEqual(self.budget.total, MIB)

    def test_refused(self) -> None:
        """The connection with most is refused, all its requests together; others stay."""
        calls = self.begin("big", "big", "big", "big", "big", *"abcd")
        self.come(big=5 * MIB, a=MIB, b=MIB, c=MIB)
        self.assertEqual([each.error for each in calls], [None] * 9)
        self.come(d=1000)
        self.assertEqual([each.error is not None for each in calls], [True] * 5 + [False] * 4)
        self.assertEqual(self.budget.total, 3 * MIB + 1000)
        self.come(big=1000)
        self.assertEqual(self.budget.total, 3 * MIB + 1000)

    def test_gone(self) -> None:
        """A connection that is gone holds nothing."""
        calls = self.begin("a", "a", "a", "b")
        self.come(a=3000, b=100)
        assert self.received is not None
        del self.received["a"]
        for each in calls[:2]:
            self.end(each, 0)
        self.begin("b", "b")
        self.come()
        self.assertEqual(self.budget.total, 100)

    def test_unknown(self) -> None:
        """Where the system does not say, a request counts for as much as may come."""
        self.received = None
        self.begin("ipv4:a", "ipv4:b", "ipv4:b", "unix:c")
        self.assertEqual(self.budget.total, 3 * MIB)


class ReceivedBytesTests(SynchronousTestCase):
    """What the kernel says of sockets."""

    def test_received(self) -> None:
        """Both families are named as grpc core names them, and no descriptor is closed."""
        for family, host, kind in (
            (socket.AF_INET, "127.0.0.1", "ipv4:127.0.0.1"),
            (socket.AF_INET6, "::1", "ipv6:[::1]"),
        ):
            with socket.socket(family) as listener:
                listener.bind((host, 0))
                listener.listen()
                with socket.create_connection(listener.getsockname()[:2]) as client:
                    server, address = listener.accept()
                    with server:
                        client.sendall(b"x" * 1234)
                        server.recv(1)
                        found = receivedBytes()
                        assert found is not None
                        self.assertEqual(found[f"{kind}:{address[1]}"], 1234)
                        self.assertEqual(len(server.recv(2000)), 1233)

    def test_mapped(self) -> None:
        """A client of IPv4 at a socket for both is one of IPv4."""
        with socket.create_server(
            ("::", 0), family=socket.AF_INET6, dualstack_ipv6=True
        ) as listener:
            port = listener.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port)) as client:
                server, _ = listener.accept()
                with server:
                    client.sendall(b"x" * 10)
                    server.recv(10)
                    own = client.getsockname()[1]
                    self.assertEqual((receivedBytes() or {})[f"ipv4:127.0.0.1:{own}"], 10)
