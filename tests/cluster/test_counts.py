"""The stores that nodes share, over a server that is away at times."""

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from storagegate import server
from storagegate.cluster.counts import Counts, openCounts, readCounts
from storagegate.cluster.counts.interfaces import CountsUnavailable, ICountsServer, RecordedCall
from storagegate.cluster.counts.postgresql import PostgreSQLCounts
from storagegate.cluster.counts.stores import ClusterRateLimitStore, ClusterReplyCache
from storagegate.cluster.counts.valkey import ValkeyCounts
from storagegate.gateway.transports.udp.replycache import ReplyCacheUnavailable
from storagegate.http import rateLimit, session
from storagegate.http.testing import Client
from storagegate.telemetry.metrics import MetricsRegistry

KEY = (("127.0.0.1", 40_000), "1")


@implementer(ICountsServer)
class MemoryCounts:
    """
    A server in memory.

    @ivar failure: What every step fails with; L{None} for none.
    @ivar isUnknown: Whether a step that fails is done.
    @ivar steps: How often it was to do something.
    """

    def __init__(self) -> None:
        self.failure: str | None = None
        self.isUnknown = False
        self.steps = 0
        self.opened = self.closed = 0
        self._counts: dict[bytes, int] = {}
        self._sessions: dict[bytes, tuple[bytes, bytes]] = {}
        self._calls: dict[bytes, RecordedCall] = {}

    def open(self) -> None:
        """Note it."""
        self.opened += 1

    def close(self) -> None:
        """Note it."""
        self.closed += 1

    def expiry(self) -> None:
        """Remove nothing."""

    async def count(self, key: bytes, windowMs: float) -> tuple[int, float]:
        """Count."""
        return self._do(lambda: self._add(key, 1)), windowMs

    async def takeBack(self, key: bytes) -> None:
        """Subtract."""
        self._do(lambda: self._add(key, -1))

    async def removeCount(self, key: bytes) -> None:
        """Remove a count."""
        self._do(lambda: self._counts.pop(key, None))

    async def findCount(self, key: bytes) -> tuple[int, float] | None:
        """Return a count."""
        found = self._do(lambda: self._counts.get(key))
        return None if found is None else (found, 1000)

    async def findSession(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return a session."""
        return self._do(lambda: self._sessions.get(key))

    async def putSession(
        self, key: bytes, content: bytes, cookie: bytes, ms: float, mustExist: bool
    ) -> None:
        """Store a session."""
        self._do(lambda: self._sessions.update({key: (content, cookie)}))

    async def touchSession(self, key: bytes, cookie: bytes, ms: float) -> None:
        """Change a session."""
        self._do(lambda: self._sessions.update({key: (self._sessions[key][0], cookie)}))

    async def removeSession(self, key: bytes) -> None:
        """Remove a session."""
        self._do(lambda: self._sessions.pop(key, None))

    async def beginCall(
        self, key: bytes, owner: bytes, size: int, ms: float, isOwnNew: bool
    ) -> RecordedCall | None:
        """Record a request."""

        def act() -> RecordedCall | None:
            known = self._calls.get(key)
            if known is None or (isOwnNew and known.owner == owner and known.reply is None):
                self._calls[key] = RecordedCall(owner, size, None, False, ms)
                return None
            return known

        return self._do(act)

    async def endCall(self, key: bytes, owner: bytes, reply: bytes, isKnown: bool) -> None:
        """Keep a reply."""

        def act() -> None:
            known = self._calls.get(key)
            if known is not None and known.owner == owner and known.reply is None:
                self._calls[key] = RecordedCall(owner, known.size, reply, isKnown, known.leftMs)

        self._do(act)

    def _add(self, key: bytes, hits: int) -> int:
        self._counts[key] = self._counts.get(key, 0) + hits
        return self._counts[key]

    def _do(self, act: Callable[[], Any]) -> Any:
        self.steps += 1
        if self.failure is None:
            return act()
        if self.isUnknown:
            act()
        raise CountsUnavailable(self.failure, self.isUnknown)


class CountsCase(SynchronousTestCase):
    """Makes a server in memory, and counts on it."""

    def setUp(self) -> None:
        """Make them."""
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.server = MemoryCounts()
        self.meters = MetricsRegistry()
        self.counts = Counts(lambda reactor: self.server, self.clock, self.meters)

    def run_(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of a coroutine that does not wait."""
        return self.successResultOf(Deferred.fromCoroutine(coroutine))

    def failures(self) -> dict[str, float]:
        """Return how many steps were counted as failed, by kind."""
        [family] = self.meters.snapshot()
        self.assertEqual(family.name, "storagegate_counts_failures_total")
        return {labels[0]: value for labels, value in family.samples}

    def test_provides(self) -> None:
        """Both servers and that of these cases provide the interface."""
        self.assertTrue(verifyObject(ICountsServer, self.server))
        for where in ("postgresql://h/d", "valkey://h"):
            made = readCounts(where)(self.clock)
            self.assertTrue(verifyObject(ICountsServer, made))


class OutageTests(CountsCase):
    """The server is away."""

    def test_limitsGoOn(self) -> None:
        """A process counts by itself: it refuses nothing that the limit allows, and no more."""
        store = ClusterRateLimitStore(
            self.counts.open, "a", 10_000, self.clock.seconds, self.counts._countFailure
        )
        self.assertEqual(self.run_(store.increment("k"))[0], 1)
        self.assertEqual(self.run_(store.increment("k"))[0], 2)
        self.server.failure = "away"
        end = self.clock.seconds() + 10
        self.assertEqual(self.run_(store.increment("k")), (1, end))
        self.assertEqual(self.run_(store.increment("k")), (2, end))
        self.run_(store.decrement("k"))
        self.assertEqual(self.run_(store.get("k")), (1, end))
        self.run_(store.resetKey("k"))
        self.assertIsNone(self.run_(store.get("k")))
        self.assertEqual(self.failures(), {"rates": 6.0})
        self.server.failure = None
        self.assertEqual(self.run_(store.increment("k"))[0], 3)

    def test_sessionsFail(self) -> None:
        """A session can be neither read nor changed: the request is answered with 503."""
        store = self.counts.sessionStore()
        self.run_(store.set("id", {"cookie": {}, "a": 1}))
        self.server.failure = "away"
        for act in (
            lambda: store.get("id"),
            lambda: store.set("id", {"cookie": {}}),
            lambda: store.replace("id", {"cookie": {}}),
            lambda: store.touch("id", {"cookie": {}}),
            lambda: store.destroy("id"),
        ):
            failed = self.failureResultOf(Deferred.fromCoroutine(act()), CountsUnavailable)
            self.assertEqual(failed.value.statusCode, 503)  # type: ignore[attr-defined]
        self.assertEqual(self.failures(), {"sessions": 5.0})
        self.server.failure = None
        self.assertEqual(self.run_(store.get("id")), {"cookie": {}, "a": 1})

    def test_noneIsUsedYet(self) -> None:
        """It is connected to when the first store is used, once, and closed once."""
        store = self.counts.sessionStore()
        self.assertEqual(self.server.opened, 0)
        self.assertIsNone(self.counts.failure)
        self.run_(store.get("id"))
        self.run_(store.get("id"))
        self.assertEqual(self.server.opened, 1)
        self.server.failure = "away"
        self.assertEqual(self.counts.failure, "away")
        self.counts.close()
        self.assertEqual(self.server.closed, 1)

    def test_closedUnused(self) -> None:
        """What was closed before it was used does not connect."""
        self.counts.close()
        store = self.counts.sessionStore()
        self.failureResultOf(Deferred.fromCoroutine(store.get("id")), CountsUnavailable)
        self.assertEqual(self.server.opened, 0)


class ApplicationTests(CountsCase):
    """An application with the sessions and limits of its processes."""

    def test_outage(self) -> None:
        """A request with a session is answered with 503 while the server is away, and later not."""
        app = server.http()
        limits = self.counts.rateLimitStore("app", 60_000)
        app.use(rateLimit(60_000, max=100, store=limits))
        app.use(session(secret="x" * 32, store=self.counts.sessionStore(), resave=False))

        @app.get("/")
        def count(req: Any, res: Any) -> None:
            req.session.count = req.session.get("count", 0) + 1
            res.send(f"{req.session.count}")

        client = Client(app)
        texts = [client.get("/").text for _ in range(2)]
        self.assertEqual(texts, ["1", "2"])
        self.server.failure = "away"
        refused = client.get("/")
        self.assertEqual(refused.status, 503)
        self.assertEqual(refused.json(), {"error": "sessions are unavailable"})
        self.assertEqual(len(self.flushLoggedErrors(CountsUnavailable)), 1)
        self.server.failure = None
        self.assertEqual(client.get("/").text, "3")
        self.assertEqual(self.failures(), {"rates": 1.0, "sessions": 1.0})


class ReplyTests(CountsCase):
    """Requests over UDP."""

    def setUp(self) -> None:
        """Make the caches of two processes."""
        super().setUp()
        self.cache, self.other = self.make(), self.make()

    def make(self) -> ClusterReplyCache:
        """Make a cache as one more process has it."""
        return self.counts.replyCache(now=self.clock.seconds)

    def begin(self, cache: ClusterReplyCache, size: int = 100) -> Any:
        """Begin the request."""
        known = cache.begin(KEY, size)
        return self.run_(known) if hasattr(known, "__await__") else known

    def assertRefused(self, cache: ClusterReplyCache) -> None:
        """Assert that the request is dropped."""
        self.failureResultOf(Deferred.fromCoroutine(cache.begin(KEY, 100)), ReplyCacheUnavailable)

    def test_ownFirst(self) -> None:
        """What a process has seen itself it does not ask for."""
        self.assertIsNone(self.begin(self.cache))
        steps = self.server.steps
        self.assertIsNone(self.begin(self.cache).reply)
        self.run_(self.cache.end(KEY, b"reply", True))
        self.assertEqual(self.server.steps, steps + 1)
        self.assertEqual(self.begin(self.cache).reply, b"reply")
        self.assertEqual(self.server.steps, steps + 1)

    def test_others(self) -> None:
        """A request of another process is in flight, and has its reply as soon as that has it."""
        self.assertIsNone(self.begin(self.cache, 70))
        for _ in range(2):
            known = self.begin(self.other)
            self.assertEqual((known.size, known.reply, known.isKnown), (70, None, False))
        self.run_(self.cache.end(KEY, b"reply", True))
        known = self.begin(self.other)
        self.assertEqual((known.size, known.reply, known.isKnown), (70, b"reply", True))

    def test_othersEnd(self) -> None:
        """A process cannot reply to a request of another one."""
        self.assertIsNone(self.begin(self.cache))
        self.run_(self.other.end(KEY, b"wrong"))
        self.assertIsNone(self.begin(self.other).reply)

    def test_refused(self) -> None:
        """A request is refused while the server is away, and new again when it is back."""
        self.server.failure = "away"
        self.assertRefused(self.cache)
        self.assertRefused(self.cache)
        self.server.failure = None
        self.assertIsNone(self.begin(self.cache))
        self.assertIsNotNone(self.begin(self.other))
        self.assertEqual(self.failures(), {"calls": 2.0})

    def test_doubtful(self) -> None:
        """
        A request that was recorded although it was refused is new to the process that has refused
        it, once, and to no other.
        """
        self.server.failure, self.server.isUnknown = "cut", True
        self.assertRefused(self.cache)
        self.server.failure = None
        self.assertIsNotNone(self.begin(self.other))
        self.assertIsNone(self.begin(self.cache))
        self.cache._own.forget(KEY)
        self.assertIsNotNone(self.begin(self.cache))

    def test_doubtfulTwice(self) -> None:
        """A request that was refused by two processes is begun by one of them."""
        self.server.failure, self.server.isUnknown = "cut", True
        self.assertRefused(self.cache)
        self.assertRefused(self.other)
        self.server.failure = None
        begun = [self.begin(cache) is None for cache in (self.other, self.cache)]
        self.assertEqual(begun, [False, True])

    def test_replyDuringOutage(self) -> None:
        """A reply that cannot be kept is known here; to others the request stays in flight."""
        self.assertIsNone(self.begin(self.cache))
        self.server.failure = "away"
        self.run_(self.cache.end(KEY, b"reply"))
        self.assertEqual(self.begin(self.cache).reply, b"reply")
        self.server.failure = None
        self.assertIsNone(self.begin(self.other).reply)


class Network:
    """
    The way of a process to the server, on which steps are lost, executed without a reply, or
    executed much later.
    """

    def __init__(self, server: MemoryCounts, random: Random) -> None:
        self._server = server
        self._random = random
        self._late: list[Callable[[], Coroutine[Any, Any, Any]]] = []
        self.isGood = False

    def deliver(self) -> None:
        """Let the server execute a step that is late."""
        if self._late:
            step = self._late.pop(self._random.randrange(len(self._late)))
            Deferred.fromCoroutine(step())

    async def beginCall(self, *values: Any) -> RecordedCall | None:
        """Record a request, perhaps."""
        result: RecordedCall | None = await self._do(lambda: self._server.beginCall(*values))
        return result

    async def endCall(self, *values: Any) -> None:
        """Keep a reply, perhaps."""
        await self._do(lambda: self._server.endCall(*values))

    async def _do(self, step: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        fate = 0 if self.isGood else self._random.randrange(5)
        if fate == 1:
            raise CountsUnavailable("not connected")
        if fate == 2:
            await step()
        elif fate == 3:
            self._late.append(step)
        if fate > 1:
            raise CountsUnavailable("lost", True)
        return await step()


class AtMostOnceTests(SynchronousTestCase):
    """A request that is repeated to three processes, over networks that lose and delay steps."""

    def test_model(self) -> None:
        """It is begun once at most, and each reply that any process gives is that of its run."""
        begun = 0
        for seed in range(1500):
            begun += self.play(Random(seed))
        # Not by refusing everything.
        self.assertGreater(begun, 1000)

    def play(self, random: Random) -> int:
        """Repeat one request at random; return how often it was begun."""
        server = MemoryCounts()
        networks: list[Any] = [Network(server, random) for _ in range(3)]
        caches = [
            ClusterReplyCache(lambda network=network: network, "udp", Clock().seconds)  # type: ignore[misc]
            for network in networks
        ]
        begun: list[int] = []
        replied = False
        for step in range(40):
            at = random.randrange(3)
            networks[at].isGood = step > 30
            kind = random.randrange(4)
            if kind == 0:
                networks[at].deliver()
            elif kind == 1 and begun and not replied:
                replied = True
                self.run_(caches[begun[0]].end(KEY, b"reply%d" % begun[0]))
            else:
                known = self.run_(caches[at].begin(KEY, 100))
                if known is None:
                    begun.append(at)
                elif known != "refused" and known.reply is not None:
                    self.assertEqual(known.reply, b"reply%d" % begun[0])
        self.assertLessEqual(len(begun), 1)
        return len(begun)

    def run_(self, result: Any) -> Any:
        """Return a result, C{"refused"} if the request was dropped."""
        if not hasattr(result, "__await__"):
            return result
        done = Deferred.fromCoroutine(result)
        done.addErrback(lambda failure: failure.trap(ReplyCacheUnavailable) and "refused")
        return self.successResultOf(done)


class ReadTests(SynchronousTestCase):
    """What names the server."""

    def test_kinds(self) -> None:
        """A database, that of the catalog, or any address of Valkey, with its prefix or without."""
        clock = Clock()
        for where in ("postgresql://h/d", "postgres://h/d"):
            self.assertIsInstance(readCounts(where)(clock), PostgreSQLCounts)
        self.assertIsInstance(readCounts("postgresql", ["host=h"])(clock), PostgreSQLCounts)
        for where in ("valkey://h", "valkey:valkeys://h", "valkey:redis://h/1", "unix:/s"):
            self.assertIsInstance(readCounts(where)(clock), ValkeyCounts)

    def test_refused(self) -> None:
        """What is nothing of that is refused, and not shown."""
        for where in ("", "postgresql", "SECRET", "valkey:SECRET", "valkey://:SECRET@"):
            error = self.assertRaises(ValueError, openCounts, where)
            self.assertNotIn("SECRET", str(error))
