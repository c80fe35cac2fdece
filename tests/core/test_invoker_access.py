"""The invoker: who may call what, and how often."""

from typing import Any

from msgspec.structs import replace
from twisted.internet.defer import Deferred

from storagegate.core.context import ClientInfo
from storagegate.core.definitions import RateLimit
from storagegate.core.errors import ServiceError, codedError
from storagegate.core.invoker import ANONYMOUS, CallCredentials, Invoker
from storagegate.core.ratelimit import MemoryRateLimitStore
from tests.support.invoking import BAD, CONTEXT, GOOD, Boom, InvokerCase


class Remote(MemoryRateLimitStore):
    """
    Counts, and answers when the test says so.

    @ivar waiting: Answers that are to come.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.waiting: list[Deferred[None]] = []

    def increment(self, key: str) -> Any:
        """Count a call."""
        count = super().increment(key)
        self.waiting.append(Deferred())
        return self.waiting[-1].addCallback(lambda result: count)


class AccessTests(InvokerCase):
    """Who may call, and how often."""

    def test_required(self) -> None:
        """A service that needs a user refuses anonymous calls; a method may override it."""
        for service, method, isOpen in (
            (False, None, True),
            (True, None, False),
            (True, False, True),
            (False, True, False),
        ):
            self.setUp()
            more = {} if method is None else {"authentication": method}
            self.add(service={"authentication": {"required": service}}, **more)
            self.assertEqual(self.call({}, GOOD), {})
            for credentials in (ANONYMOUS, BAD):
                if isOpen:
                    self.assertEqual(self.call({}, credentials), {})
                    self.assertIsNone(self.context.authentication)
                else:
                    error = self.refused({}, credentials)
                    self.assertEqual((error.code, error.statusCode), ("UNAUTHENTICATED", 401))

    def test_badTokenLater(self) -> None:
        """On a public method a token that is found invalid later makes the call anonymous."""
        seen: list[Any] = []

        async def refuse(*arguments: Any) -> Any:
            raise codedError("UNAUTHENTICATED", "Invalid token")

        def authorize(user: Any, method: str, request: Any) -> bool:
            seen.append(user)
            return user is not None

        self.tokens.authenticate = refuse  # type: ignore[method-assign]
        self.add(service={"authentication": {"authorize": authorize}})
        self.assertEqual(self.refused({}, BAD).code, "PERMISSION_DENIED")
        self.assertEqual((seen, self.context.authentication), ([None], None))

    def test_whereOnlyProvidersLook(self) -> None:
        """Who sends no token where the wire has one may have it elsewhere: providers are asked."""
        self.add()
        self.call({}, CallCredentials(None, None, {"cookie": "..."}))
        self.assertIn("authenticate ()", self.steps)
        self.steps.clear()
        self.call({}, ANONYMOUS)
        self.assertNotIn("authenticate ()", self.steps)

    def test_authorize(self) -> None:
        """What authorize does not let in is PERMISSION_DENIED; it may be asynchronous."""

        async def authorize(user: Any, method: str, request: Any) -> bool:
            return user is not None

        self.add(service={"authentication": {"authorize": authorize}})
        self.assertEqual(self.call({}, GOOD), {})
        error = self.refused()
        self.assertEqual((error.code, error.statusCode), ("PERMISSION_DENIED", 403))

    def test_authorizeFails(self) -> None:
        """An authorize that fails refuses the call."""

        def authorize(user: Any, method: str, request: Any) -> bool:
            raise Boom

        self.add(service={"authentication": {"authorize": authorize}})
        self.assertEqual(self.refused().code, "INTERNAL_ERROR")
        self.assertNotIn("handler", self.steps)
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)

    def test_rate(self) -> None:
        """A window serves exactly as many calls as it allows, for each address."""
        self.add(rateLimit={"requests": 2, "window": 1000})
        self.call()
        self.call()
        error = self.refused()
        self.assertEqual((error.code, error.statusCode), ("RATE_LIMITED", 429))
        self.assertEqual(error.details, {"retryAfterMs": 1000})
        other = replace(CONTEXT, client=ClientInfo("2", "127.0.0.2", 1))
        self.successResultOf(Deferred.fromCoroutine(self.invoker.call(other, {})))
        self.clock.advance(1)
        self.call()

    def test_rates(self) -> None:
        """A method's own limit comes before its service's, and that before the gateway's."""
        self.invoker = Invoker(self.tokens, rateLimit=RateLimit(1, 1000), now=self.clock.seconds)
        self.add(service={"rateLimit": {"requests": 2, "window": 1000}})
        self.assertEqual(self.invoker.find("Probe", "echo").limit, RateLimit(2, 1000))

    def test_rateLater(self) -> None:
        """A store of counts may answer later: until then nothing of the call happens."""
        store = Remote(1000, now=self.clock.seconds)
        self.invoker = Invoker(self.tokens, rateStore=lambda name, windowMs: store)
        self.add(rateLimit={"requests": 1, "window": 1000})
        calls = [self.begin(), self.begin()]
        self.assertNotIn("handler", self.steps)
        for answer in store.waiting:
            answer.callback(None)
        self.assertEqual(self.successResultOf(calls[0]), {})
        self.assertEqual(self.failureResultOf(calls[1], ServiceError).value.code, "RATE_LIMITED")

    def test_rateFails(self) -> None:
        """A store of counts that fails refuses the call, and reveals no reason."""
        store = Remote(1000)
        self.invoker = Invoker(self.tokens, rateStore=lambda name, windowMs: store)
        self.add(rateLimit={"requests": 1, "window": 1000})
        call = self.begin()
        store.waiting[0].errback(Boom())
        self.assertEqual(self.failureResultOf(call, ServiceError).value.code, "INTERNAL_ERROR")
        self.assertNotIn("handler", self.steps)
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)

    def test_rateNames(self) -> None:
        """Each method that is limited has a store of its own, made by its whole name and window."""
        made: list[tuple[str, float]] = []

        def make(name: str, windowMs: float) -> MemoryRateLimitStore:
            made.append((name, windowMs))
            return MemoryRateLimitStore(windowMs)

        self.invoker = Invoker(self.tokens, rateStore=make)
        self.add(rateLimit={"requests": 1, "window": 1000})
        self.assertEqual(made, [("Probe.echo", 1000)])
