"""How often one client may call."""

from typing import Any

from twisted.internet.defer import Deferred, succeed

from storagegate.core.ratelimit import Count, MemoryRateLimitStore
from storagegate.rpc.call import hostOf
from storagegate.rpc.middleware import rateLimit
from tests.rpc.middlewarecase import MiddlewareCase

OTHER = "ipv4:192.0.2.8:5000"


class SlowStore:
    """A store elsewhere."""

    def __init__(self, store: MemoryRateLimitStore) -> None:
        self.store = store

    async def increment(self, key: str) -> Count:
        """Count, later."""
        return await succeed(self.store.increment(key))


class LimitCase(MiddlewareCase):
    """A case with a limit."""

    def limit(self, **options: Any) -> Any:
        """Make a limit on the clock of the case."""
        return rateLimit(now=self.clock.seconds, **options)

    def statuses(self, middleware: Any, count: int, **options: Any) -> list[str]:
        """Call several times."""
        return [self.status(middleware, self.makeCall(**options)) for _ in range(count)]


class WindowTests(LimitCase):
    """Who is refused, and when."""

    def test_max(self) -> None:
        """So many calls are answered; the one after is RESOURCE_EXHAUSTED and says till when."""
        middleware = self.limit(windowMs=10_000, max=2)
        self.assertEqual(self.statuses(middleware, 2), ["OK", "OK"])
        self.clock.advance(2.5)
        error = self.refusal(middleware)
        self.assertEqual(str(error), "RESOURCE_EXHAUSTED: Too many requests")
        self.assertEqual(error.details, {"retryAfterMs": 7500})
        self.assertEqual(len(self.handled), 2)

    def test_retry(self) -> None:
        """Who comes again when it was told to is let in, not a moment before."""
        middleware = self.limit(windowMs=10_000, max=1)
        self.answer(middleware)
        self.clock.advance(0.0001)
        remaining = self.refusal(middleware).details["retryAfterMs"]
        self.assertEqual(remaining, 10_000)
        self.clock.advance(9.999)
        self.assertEqual(self.refusal(middleware).details["retryAfterMs"], 1)
        self.clock.advance(0.001)
        self.answer(middleware)

    def test_defaults(self) -> None:
        """By default a hundred calls are let through in a minute."""
        middleware = self.limit()
        statuses = self.statuses(middleware, 101)
        self.assertEqual(statuses, ["OK"] * 100 + ["RESOURCE_EXHAUSTED"])
        self.clock.advance(59)
        self.assertEqual(self.statuses(middleware, 1), ["RESOURCE_EXHAUSTED"])
        self.clock.advance(1)
        self.assertEqual(self.statuses(middleware, 1), ["OK"])

    def test_none(self) -> None:
        """A limit of 0 refuses everybody."""
        self.assertEqual(self.statuses(self.limit(max=0), 1), ["RESOURCE_EXHAUSTED"])

    def test_methods(self) -> None:
        """All methods count together."""
        middleware = self.limit(max=1)
        self.assertEqual(self.statuses(middleware, 1, method="GetUser"), ["OK"])
        self.assertEqual(self.statuses(middleware, 1, method="List"), ["RESOURCE_EXHAUSTED"])

    def test_clockSetBack(self) -> None:
        """A store whose window is over already, by our clock, is no negative time to wait."""
        store = MemoryRateLimitStore(1000, now=lambda: self.clock.seconds() - 5)
        error = self.refusal(self.limit(max=0, store=store))
        self.assertEqual(error.details, {"retryAfterMs": 0})


class KeyTests(LimitCase):
    """The keys that calls count for."""

    def test_peers(self) -> None:
        """Each address has a window of its own, whatever port it calls from."""
        middleware = self.limit(max=1)
        self.assertEqual(self.statuses(middleware, 1), ["OK"])
        self.assertEqual(
            self.statuses(middleware, 1, address="ipv4:192.0.2.7:5001"), ["RESOURCE_EXHAUSTED"]
        )
        self.assertEqual(self.statuses(middleware, 2, address=OTHER), ["OK", "RESOURCE_EXHAUSTED"])

    def test_networks(self) -> None:
        """An address of IPv6 counts as its network of 56 bits, a mapped one as that of IPv4."""
        middleware = self.limit(max=1)
        for address, status in (
            ("ipv6:[2001:db8:1:2200::1]:5000", "OK"),
            ("ipv6:[2001:db8:1:22ff:5::1]:5000", "RESOURCE_EXHAUSTED"),
            ("ipv6:[2001:db8:1:2300::1]:5000", "OK"),
            ("ipv6:[::ffff:192.0.2.7]:5000", "OK"),
            ("ipv4:192.0.2.7:5000", "RESOURCE_EXHAUSTED"),
            ("unix:", "OK"),
            ("unix:", "RESOURCE_EXHAUSTED"),
        ):
            self.assertEqual(self.statuses(middleware, 1, address=address), [status], address)

    def test_hosts(self) -> None:
        """A port is cut off wherever there is one."""
        for peer, host in (
            ("192.0.2.7:5000", "192.0.2.7"),
            ("[2001:db8::1]:5000", "2001:db8::1"),
            ("[fe80::1%eth0]:5000", "fe80::1%eth0"),
            ("unix:/tmp/socket", "unix:/tmp/socket"),
            ("unix:", "unix:"),
            ("unix:/tmp/a:5000", "unix:/tmp/a:5000"),
            ("192.0.2.7", "192.0.2.7"),
            ("2001:db8::1", "2001:db8::1"),
            ("", ""),
        ):
            self.assertEqual(hostOf(peer), host)

    def test_generator(self) -> None:
        """The key may be another, found now or later."""
        for keyGenerator in (
            lambda call: call.metadata.get("tenant")[0],
            lambda call: succeed(call.metadata.get("tenant")[0]),
        ):
            middleware = self.limit(max=1, keyGenerator=keyGenerator)
            self.assertEqual(self.statuses(middleware, 1, tenant="a"), ["OK"])
            self.assertEqual(self.statuses(middleware, 1, tenant="b"), ["OK"])
            self.assertEqual(
                self.statuses(middleware, 1, tenant="a", address=OTHER), ["RESOURCE_EXHAUSTED"]
            )


class OptionTests(LimitCase):
    """What can be changed."""

    def test_skipped(self) -> None:
        """Methods of a list, and calls that a function picks, are not counted."""
        for skip in (
            ["Other", "user.UserService/GetUser"],
            lambda call: call.method == "GetUser",
            lambda call: succeed(call.method == "GetUser"),
        ):
            middleware = self.limit(max=1, skip=skip)
            self.assertEqual(self.statuses(middleware, 3), ["OK"] * 3)
            self.assertEqual(
                self.statuses(middleware, 2, method="List"), ["OK", "RESOURCE_EXHAUSTED"]
            )

    def test_store(self) -> None:
        """The counts may be elsewhere: two limits can share them."""
        store = SlowStore(MemoryRateLimitStore(60_000, now=self.clock.seconds))
        one, other = self.limit(max=2, store=store), self.limit(max=2, store=store)
        self.assertEqual(self.statuses(one, 1) + self.statuses(other, 2)[:1], ["OK", "OK"])
        self.assertEqual(self.refusal(one).details, {"retryAfterMs": 60_000})

    def test_waits(self) -> None:
        """The handler waits for the store."""
        counted: Deferred[Count] = Deferred()

        class Store:
            def increment(self, key: str) -> Deferred[Count]:
                return counted

        answer = self.start(self.limit(store=Store()))
        self.assertNoResult(answer)
        self.assertEqual(self.handled, [])
        counted.callback((1, 0.0))
        self.assertEqual(self.successResultOf(answer), "answer")

    def test_values(self) -> None:
        """Values that cannot be are errors."""
        for options in (
            {"windowMs": 0},
            {"windowMs": "1"},
            {"windowMs": float("nan")},
            {"max": -1},
            {"max": "5"},
            {"max": True},
            {"skip": ["a/b/c"]},
        ):
            self.assertRaises(ValueError, rateLimit, **options)
        for options in ({"store": object()}, {"keyGenerator": "peer"}, {"skip": "GetUser"}):
            self.assertRaises(TypeError, rateLimit, **options)
