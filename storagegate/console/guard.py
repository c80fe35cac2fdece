"""
Checks of requests to the console before they are handled, and the header fields of its responses.

Pages of another site must not reach the console with this browser's cookie, under any name that
they give this machine (DNS rebinding). C{Host} must therefore be loopback, an address of the
listener, or the host of C{consoleUrl}.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from attrs import define, field

from storagegate.console.services import ConsoleOptions
from storagegate.core.addresses import readAddress
from storagegate.core.context import rateLimitKey
from storagegate.core.errors import ServiceError, codedError
from storagegate.core.ratelimit import IRateLimitStore, RateStoreMaker
from storagegate.http.middleware.securityheaders import parseOrigin, sameOrigin

FIELDS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' blob:; font-src 'self'; media-src 'self'; frame-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Permitted-Cross-Domain-Policies": "none",
}
"""Header fields of every response."""

_FAILURES = 10
"""Failed attempts to sign in per minute and address."""

_WINDOW_MS = 60_000.0


def isLoopback(host: str) -> bool:
    """Return whether a host is a name or an address of loopback."""
    bare = host.strip("[]")
    if bare == "localhost" or bare.endswith(".localhost"):
        return True
    try:
        return readAddress(bare).is_loopback
    except ValueError:
        return False


def makeOriginCheck(options: ConsoleOptions) -> Callable[..., Any]:
    """Make the middleware that refuses cross-site requests."""
    if not options.url:
        return sameOrigin()
    parts = urlsplit(options.url)
    return sameOrigin(allow=[f"{parts.scheme}://{parts.netloc}"])


@define(eq=False)
class Guard:
    """
    Checks the host and the connection of requests.

    @ivar _options: The options of the console.
    """

    _options: ConsoleOptions
    _named: str = field(init=False)

    @_named.default
    def _makeNamed(self) -> str:
        return (urlsplit(self._options.url).hostname or "") if self._options.url else ""

    @property
    def isSecure(self) -> bool:
        """Whether browsers use TLS, according to the configuration."""
        return self._options.url.startswith("https:")

    def cookiePath(self, request: Any) -> str:
        """Return the path of the console in the browser's URL."""
        if self._options.url:
            return urlsplit(self._options.url).path or "/"
        mounted: str = request.baseUrl.partition("/api/")[0]
        return mounted + "/"

    def checkHost(self, request: Any) -> None:
        """
        Refuse a host that is not the console's.

        @raise ServiceError: C{MISDIRECTED}, with the status 421.
        """
        host = (urlsplit("//" + (request.get("host") or "")).hostname or "").lower()
        ours = (self._named, request.raw.serverHost.removeprefix("::ffff:"))
        if host and (isLoopback(host) or host in ours):
            return
        raise ServiceError(
            "MISDIRECTED",
            "The host is not the console's: set consoleUrl to the URL in use",
            421,
        )

    def checkClear(self, request: Any) -> None:
        """
        Refuse secrets over a connection that others can read.

        @raise ServiceError: C{PERMISSION_DENIED}.
        """
        if request.secure or self.isSecure or self._options.allowsClearText:
            return
        host = urlsplit("//" + (request.get("host") or "")).hostname or ""
        # A proxy on this machine may set its own Host; the browser's Origin names the requested
        # host.
        origin = parseOrigin(request.get("origin") or "")
        asked = origin[1] if origin else host
        if all(isLoopback(each) for each in (host, asked, request.raw.clientHost)):
            return
        raise codedError(
            "PERMISSION_DENIED",
            "Signing in requires TLS, a loopback address, or consoleClearText",
            {"reason": "clearText"},
        )


@define(eq=False)
class SignInThrottle:
    """
    Counts failed attempts by the network of the client.

    @ivar _failures: Shared by all processes that serve the console.
    """

    _failures: IRateLimitStore
    _now: Callable[[], float]

    @classmethod
    def make(cls, makeStore: RateStoreMaker, now: Callable[[], float]) -> "SignInThrottle":
        """
        Make a throttle.

        @param now: Returns seconds since 1970.
        """
        return cls(makeStore("console.signIn", _WINDOW_MS), now)

    async def check(self, address: str) -> None:
        """
        Refuse an address with too many failures.

        @raise ServiceError: C{RATE_LIMITED}.
        """
        found: Any = self._failures.get(rateLimitKey(address))
        if hasattr(found, "__await__"):
            found = await found
        if found is not None and found[0] >= _FAILURES:
            details = {"retryAfterSeconds": max(0, int(found[1] - self._now())) + 1}
            raise codedError("RATE_LIMITED", "Too many failed attempts", details)

    async def failed(self, address: str) -> None:
        """Count a failure."""
        counted: Any = self._failures.increment(rateLimitKey(address))
        if hasattr(counted, "__await__"):
            await counted
