"""A test case with an invoker, and streams for it."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from msgspec.structs import replace
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.context import ClientInfo, RequestContext, Tracing
from storagegate.core.definitions import readService
from storagegate.core.errors import ServiceError, codedError
from storagegate.core.invoker import ANONYMOUS, CallCredentials, Invoker

CONTEXT = RequestContext(
    "tcp", "Probe", "echo", ClientInfo("1", "127.0.0.1", 5000), Tracing("0" * 31 + "1")
)
GOOD, BAD = CallCredentials("good"), CallCredentials("bad")


class Boom(Exception):
    """An unexpected error."""


class Tokens:
    """Accepts the token C{good}. It is also an observer, to record the order of steps."""

    def __init__(self, steps: list[str]) -> None:
        self.steps = steps
        self.errors: list[str | None] = []
        self.seconds: list[float] = []

    def authenticate(
        self, context: RequestContext, credentials: CallCredentials, methods: tuple[str, ...]
    ) -> Any:
        """Authenticate a call."""
        self.steps.append(f"authenticate {methods}")
        if credentials.token == "good":
            return succeed({"sub": "ann"})
        raise codedError("UNAUTHENTICATED", "Invalid token")

    def callStarted(self, context: RequestContext) -> None:
        """Record the start."""
        self.steps.append("began")

    def callEnded(
        self, context: RequestContext, error: ServiceError | None, seconds: float
    ) -> None:
        """Record the end."""
        self.steps.append("ended")
        self.errors.append(None if error is None else error.code)
        self.seconds.append(seconds)


class InvokerCase(SynchronousTestCase):
    """The common base of the test cases of the invoker."""

    def setUp(self) -> None:
        """Make an invoker."""
        self.steps: list[str] = []
        self.clock = Clock()
        self.tokens = Tokens(self.steps)
        self.invoker = Invoker(
            self.tokens, [self.tokens], now=self.clock.seconds, seconds=self.clock.seconds
        )

    def add(
        self, handler: Any = None, *, service: Mapping[str, Any] | None = None, **more: Any
    ) -> None:
        """Add C{Probe} with a method C{echo}."""

        async def echo(request: Any, context: RequestContext) -> Any:
            self.steps.append("handler")
            return request

        methods = {"echo": {"handler": handler or echo, **more}}
        self.invoker.add(readService({"name": "Probe", "methods": methods, **(service or {})}))

    def call(self, request: Any = None, credentials: CallCredentials = ANONYMOUS) -> Any:
        """Call the method; return the result, which must be available immediately."""
        return self.successResultOf(self.begin(request, credentials))

    def begin(self, request: Any = None, credentials: CallCredentials = ANONYMOUS) -> Deferred[Any]:
        """Start a call."""
        self.context = replace(CONTEXT, metadata={})
        call = self.invoker.call(self.context, {} if request is None else request, credentials)
        return Deferred.fromCoroutine(call)

    def refused(
        self, request: Any = None, credentials: CallCredentials = ANONYMOUS
    ) -> ServiceError:
        """Call the method; return its error."""
        error = self.failureResultOf(self.begin(request, credentials)).value
        assert isinstance(error, ServiceError)
        return error


async def drain(results: Any) -> list[Any]:
    """Read a whole stream."""
    return [result async for result in results]


async def requests(*items: Any) -> AsyncIterator[Any]:
    """Make a client's stream."""
    for item in items:
        yield item
