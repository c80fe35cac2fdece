"""Options of rate limits, and stores that are given."""

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from storagegate.core.ratelimit import Count, IRateLimitStore, MemoryRateLimitStore
from storagegate.http.middleware.ratelimit import rateLimit
from tests.contract.ratelimitstore import WINDOW_MS, RateLimitStoreContract
from tests.http.middleware.support import NOON, LimitCase


@implementer(IRateLimitStore)
class SlowStore:
    """A store elsewhere: every answer has to be waited for."""

    def __init__(self, store: MemoryRateLimitStore) -> None:
        self.store = store

    async def increment(self, key: str) -> Count:
        """Count."""
        return await succeed(self.store.increment(key))

    def decrement(self, key: str) -> Deferred[None]:
        """Take back."""
        return succeed(self.store.decrement(key))

    def resetKey(self, key: str) -> Deferred[None]:
        """Forget."""
        return succeed(self.store.resetKey(key))

    async def get(self, key: str) -> Count | None:
        """Look."""
        return self.store.get(key)


class SlowContractTests(RateLimitStoreContract, TestCase):
    """The stand-in for a store elsewhere keeps the contract."""

    def setUp(self) -> None:
        """Make one on a clock."""
        self.clock = Clock()
        self.store = SlowStore(MemoryRateLimitStore(WINDOW_MS, now=self.clock.seconds))


class OptionTests(LimitCase):
    """What can be changed."""

    def test_message(self) -> None:
        """The message may be text, JSON, or what a function gives, now or later."""

        async def later(req: Any, res: Any) -> str:
            return await succeed("wait, " + req.ip)

        for message, body in (
            ("wait", b"wait"),
            ({"error": "wait"}, b'{"error":"wait"}'),
            (lambda req: "wait, " + req.ip, b"wait, 192.0.2.7"),
            (later, b"wait, 192.0.2.7"),
        ):
            self.app = self.makeApp()
            self.limit(max=0, message=message, statusCode=503)
            answer = self.ask()
            self.assertEqual((answer.status, answer.body), (503, body))

    def test_handler(self) -> None:
        """A handler may answer in place of the message, or let the request go on."""

        def decide(req: Any, res: Any, next: Any) -> Any:
            return next() if req.query.get("please") else res.status(420).end()

        self.limit(max=0, handler=decide)
        self.assertEqual(self.ask().status, 420)
        self.assertEqual(self.ask(path="/?please=1").status, 200)

    def test_limitByRequest(self) -> None:
        """The limit may be a function of the request, also one that takes its time."""

        async def later(req: Any) -> int:
            return await succeed(2)

        self.limit(max=lambda req: 3 if req.get("x-paid") else 1)
        self.assertEqual(self.statuses(2), [200, 429])
        self.assertEqual(self.statuses(2, X_Paid="1"), [200, 429])
        self.app = self.makeApp()
        self.limit(max=later)
        self.assertEqual(self.statuses(3), [200, 200, 429])

    def test_keyGenerator(self) -> None:
        """Whom a request counts for may be something else than its address."""

        async def later(req: Any, res: Any) -> str:
            return await succeed(str(req.get("x-user")))

        for generator in (lambda req: req.get("x-user"), lambda req, res: req.get("x-user"), later):
            self.app = self.makeApp()
            self.limit(max=1, keyGenerator=generator)
            self.assertEqual(self.statuses(2, X_User="a"), [200, 429])
            self.assertEqual(self.statuses(2, X_User="b"), [200, 429])

    def test_skip(self) -> None:
        """Requests that are skipped do not count, and are told nothing."""

        async def later(req: Any, res: Any) -> bool:
            return await succeed(req.query.get("skip") == "1")

        for skip in (lambda req: req.query.get("skip") == "1", later):
            self.app = self.makeApp()
            self.limit(max=1, skip=skip)
            self.assertEqual(self.statuses(3, path="/?skip=1"), [200] * 3)
            self.assertEqual(self.ask(path="/?skip=1").all("x-ratelimit-limit"), [])
            self.assertEqual(self.statuses(2), [200, 429])

    def test_skipFailedRequests(self) -> None:
        """Requests that fail can be taken back."""
        self.limit(max=1, skipFailedRequests=True)
        self.assertEqual(self.statuses(3, path="/broken"), [500] * 3)
        self.assertEqual(self.statuses(3, path="/missing"), [404] * 3)
        self.assertEqual(self.statuses(2), [200, 429])

    def test_skipSuccessfulRequests(self) -> None:
        """Requests that succeed can be taken back: for logins."""
        self.limit(max=1, skipSuccessfulRequests=True)
        self.assertEqual(self.statuses(3), [200] * 3)
        self.assertEqual(self.statuses(2, path="/broken"), [500, 429])

    def test_lostClients(self) -> None:
        """A request whose client went away has failed; it is taken back once."""
        waiting: list[Any] = []
        store = MemoryRateLimitStore(now=self.clock.seconds)
        self.app.use(rateLimit(max=5, store=store, skipFailedRequests=True))
        self.app.get("/", lambda req, res: waiting.append(res))
        for _ in range(2):
            client = self.connect()
            client.send("GET", "/", {})
        self.assertEqual(store.get("192.0.2.7"), (2, NOON + 60))
        client.lose()
        self.assertEqual(store.get("192.0.2.7"), (1, NOON + 60))
        waiting[1].status(500).end()
        self.assertEqual(store.get("192.0.2.7"), (1, NOON + 60))

    def test_lostClientsCount(self) -> None:
        """Where failed requests count, going away is no way out."""
        store = MemoryRateLimitStore(now=self.clock.seconds)
        self.app.use(rateLimit(store=store, skipSuccessfulRequests=True))
        self.app.get("/", lambda req, res: Deferred())
        client = self.connect()
        client.send("GET", "/", {})
        client.lose()
        self.assertEqual(store.get("192.0.2.7"), (1, NOON + 60))

    def test_takenBackTooLate(self) -> None:
        """A request that ends after its window takes nothing from the next one."""
        waiting: list[Any] = []
        store = MemoryRateLimitStore(now=self.clock.seconds)
        self.app.use(rateLimit(store=store, skipSuccessfulRequests=True))
        self.app.get("/", lambda req, res: waiting.append(res))
        self.connect().send("GET", "/", {})
        self.clock.advance(60)
        self.connect().send("GET", "/", {})
        waiting[0].end()
        self.assertEqual(store.get("192.0.2.7"), (1, NOON + 120))


class StoreTests(LimitCase):
    """Stores that are given."""

    def test_slow(self) -> None:
        """A store may take its time, for counting and for taking back."""
        store = SlowStore(MemoryRateLimitStore(now=self.clock.seconds))
        self.limit(max=1, store=store, skipFailedRequests=True)
        self.assertEqual(self.statuses(2, path="/broken"), [500, 500])
        self.assertEqual(self.statuses(2), [200, 429])
        self.assertEqual(store.store.get("192.0.2.7"), (1, NOON + 60))

    def test_reset(self) -> None:
        """A key that is reset in the store is free again."""
        store = MemoryRateLimitStore(now=self.clock.seconds)
        self.limit(max=1, store=store)
        self.assertEqual(self.statuses(2), [200, 429])
        store.resetKey("192.0.2.7")
        self.assertEqual(self.statuses(2), [200, 429])

    def test_broken(self) -> None:
        """A store that fails, at once or later, is an error of the application."""

        class Broken(SlowStore):
            async def increment(self, key: str) -> Count:
                raise ZeroDivisionError

        class BrokenAtOnce(SlowStore):
            def increment(self, key: str) -> Any:
                raise ZeroDivisionError

        for kind in (Broken, BrokenAtOnce):
            self.app = self.makeApp()
            self.limit(store=kind(MemoryRateLimitStore()))
            self.assertEqual(self.ask().status, 500)
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_brokenAfterwards(self) -> None:
        """A store that cannot take a request back is logged; the answer is out."""

        class Broken(SlowStore):
            async def decrement(self, key: str) -> None:  # type: ignore[override]
                raise ZeroDivisionError

        self.limit(store=Broken(MemoryRateLimitStore()), skipSuccessfulRequests=True)
        self.assertEqual(self.ask().body, b"hello")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
