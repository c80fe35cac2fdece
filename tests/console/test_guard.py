"""The guard: clear text, paths of the cookie, and the throttle of signing in."""

from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.console.guard import Guard, SignInThrottle, isLoopback
from storagegate.console.services import ConsoleOptions
from storagegate.core.errors import ServiceError
from storagegate.core.ratelimit import MemoryRateLimitStore


def _request(host: str, client: str, secure: bool = False, origin: str = "") -> Any:
    raw = SimpleNamespace(clientHost=client, serverHost="192.0.2.1")
    fields = {"host": host, "origin": origin}
    return SimpleNamespace(get=fields.get, raw=raw, secure=secure, baseUrl="/console/api/v1")


class GuardTests(SynchronousTestCase):
    """What a request must be."""

    def refusal(self, check: Any, *arguments: Any) -> int:
        """Return the status with which a check refuses; 0 if it does not."""
        try:
            check(*arguments)
        except ServiceError as error:
            return error.statusCode
        return 0

    def test_clear(self) -> None:
        """Secrets go over TLS or loopback, unless the configuration says otherwise."""
        guard = Guard(ConsoleOptions())
        for request, status in (
            (_request("127.0.0.1:9001", "127.0.0.1"), 0),
            (_request("[::1]:9001", "::1"), 0),
            (_request("192.0.2.1:9001", "192.0.2.7"), 403),
            (_request("localhost", "192.0.2.7"), 403),
            (_request("192.0.2.1", "192.0.2.7", secure=True), 0),
            # A proxy here that has written its own Host.
            (_request("127.0.0.1:9001", "127.0.0.1", origin="http://ops.example.com"), 403),
            (_request("127.0.0.1:9001", "127.0.0.1", origin="http://localhost:9001"), 0),
            (_request("127.0.0.1:9001", "127.0.0.1", origin="null"), 0),
        ):
            self.assertEqual(self.refusal(guard.checkClear, request), status, request)
        allowed = Guard(ConsoleOptions(allowsClearText=True))
        self.assertEqual(self.refusal(allowed.checkClear, _request("x", "192.0.2.7")), 0)

    def test_host(self) -> None:
        """The host is loopback, the address of the listener, or that of consoleUrl."""
        guard = Guard(ConsoleOptions(url="https://ops.example.com/store/console/"))
        for host, status in (
            ("localhost:9001", 0),
            ("192.0.2.1:9001", 0),
            ("OPS.example.com", 0),
            ("ops.example.com.evil.example", 421),
            ("192.0.2.2", 421),
            ("", 421),
        ):
            request = _request(host, "127.0.0.1")
            self.assertEqual(self.refusal(guard.checkHost, request), status, host)
        self.assertEqual(guard.cookiePath(_request("x", "")), "/store/console/")
        self.assertTrue(guard.isSecure)
        self.assertFalse(isLoopback("127.0.0.1.evil.example"))

    async def refused(self, throttle: SignInThrottle, address: str) -> int:
        """Return the status with which a throttle refuses; 0 if it does not."""
        try:
            await throttle.check(address)
        except ServiceError as error:
            self.assertTrue(1 <= error.details["retryAfterSeconds"] <= 61, error.details)
            return error.statusCode
        return 0

    def test_throttle(self) -> None:
        """Ten failures of a network within a minute are the most, in all processes."""

        async def attempt() -> None:
            now = [1000.0]
            store = MemoryRateLimitStore(now=lambda: now[0])
            throttles = [
                SignInThrottle.make(lambda name, ms: store, lambda: now[0]) for _ in range(2)
            ]
            for number in range(10):
                self.assertEqual(await self.refused(throttles[0], "2001:db8::1"), 0)
                await throttles[number % 2].failed(f"2001:db8::{number + 2}")
            for throttle in throttles:
                self.assertEqual(await self.refused(throttle, "2001:db8:0:ff::9"), 429)
                self.assertEqual(await self.refused(throttle, "2001:db8:0:100::9"), 0)
                self.assertEqual(await self.refused(throttle, "192.0.2.1"), 0)
            now[0] += 61
            self.assertEqual(await self.refused(throttles[1], "2001:db8::1"), 0)

        self.successResultOf(Deferred.fromCoroutine(attempt()))
