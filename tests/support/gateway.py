"""A gateway host with services for tests."""

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock, deferLater

from storagegate.core.context import RequestContext
from storagegate.core.definitions import STREAMING, readService
from storagegate.core.errors import ServiceError, codedError
from storagegate.core.invoker import CallCredentials, Invoker
from storagegate.gateway.host import ErrorHook, TransportContext

TOKEN = "token-of-ann"
"""A token that the fixture's authenticator accepts; its user is C{{"sub": "ann"}}."""


FORBIDDEN = "token-of-bob"
"""Another token, of a user that C{Guarded} does not admit."""

_USERS = {TOKEN: {"sub": "ann"}, FORBIDDEN: {"sub": "bob"}}


class Boom(Exception):
    """An unexpected error."""


class TokenAuthenticator:
    """Accepts some tokens, wherever they are given."""

    def authenticate(
        self, context: RequestContext, credentials: CallCredentials, methods: tuple[str, ...]
    ) -> Any:
        """Authenticate a call."""
        for token in (credentials.token, credentials.apiKey):
            if token in _USERS:
                return _USERS[token]
        if credentials.token is None and credentials.apiKey is None:
            return None
        raise codedError("UNAUTHENTICATED", "Invalid token")


class Probe:
    """
    A service with a method for each possible outcome of a call.

    @ivar begun: Names of methods that were called.
    @ivar hanging: Names of methods whose handlers wait forever.
    @ivar hung: Names of methods whose handlers have begun to wait forever.
    @ivar cancelled: Names of methods whose handlers were cancelled or closed.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.clock = clock
        self.begun: list[str] = []
        self.hanging: list[str] = []
        self.hung: list[str] = []
        self.cancelled: list[str] = []

    async def echo(self, request: Any, context: RequestContext) -> Any:
        """Return the request."""
        self.begun.append("echo")
        return request

    async def whoami(self, request: Any, context: RequestContext) -> Any:
        """Return data from the context."""
        return {
            "protocol": context.protocol,
            "user": context.authentication,
            "address": context.client.address,
            "traceId": context.tracing.traceId,
            "hasDeadline": "deadline" in context.metadata,
        }

    async def fail(self, request: Any, context: RequestContext) -> Any:
        """Raise an error with the code in the request, or an unexpected error."""
        code = request.get("code")
        if code is None:
            raise Boom("secret")
        status = request.get("statusCode", 400)
        raise ServiceError(code, "as asked", status, request.get("details"))

    async def slow(self, request: Any, context: RequestContext) -> Any:
        """Answer after C{seconds}."""
        self.begun.append("slow")
        try:
            await deferLater(self.clock, request.get("seconds", 3600))
        except BaseException:
            self.cancelled.append("slow")
            raise
        return request

    async def count(self, request: Any, context: RequestContext) -> AsyncIterator[Any]:
        """Count to C{to}, then raise if C{fail}, or wait forever if C{hang}."""
        try:
            for number in range(request.get("to", 3)):
                yield {"number": number}
            if request.get("fail"):
                raise codedError("NOT_FOUND", "no more numbers")
            if request.get("hang"):
                await Deferred()
        except BaseException:
            self.cancelled.append("count")
            raise

    async def collect(self, requests: AsyncIterable[Any], context: RequestContext) -> Any:
        """Return the C{text} of all requests."""
        try:
            return {"texts": [request["text"] async for request in requests]}
        except BaseException:
            self.cancelled.append("collect")
            raise

    async def chat(
        self, requests: AsyncIterable[Any], context: RequestContext
    ) -> AsyncIterator[Any]:
        """Answer each request, then say goodbye."""
        try:
            async for request in requests:
                yield {"text": request["text"].upper()}
            yield {"text": "goodbye"}
        except BaseException:
            self.cancelled.append("chat")
            raise

    # The same method for each kind of streaming: a request with C{mode} fails or waits.

    async def askNone(self, request: Any, context: RequestContext) -> Any:
        """Answer in capitals."""
        return await self._answer("askNone", request)

    async def askServer(self, request: Any, context: RequestContext) -> AsyncIterator[Any]:
        """Greet, then answer in capitals."""
        yield {"text": "hello"}
        yield await self._answer("askServer", request)

    async def askClient(self, requests: AsyncIterable[Any], context: RequestContext) -> Any:
        """Answer all requests at once."""
        answers = [await self._answer("askClient", request) async for request in requests]
        return {"text": " ".join(answer["text"] for answer in answers)}

    async def askBidirectional(
        self, requests: AsyncIterable[Any], context: RequestContext
    ) -> AsyncIterator[Any]:
        """Greet, then answer each request."""
        yield {"text": "hello"}
        async for request in requests:
            yield await self._answer("askBidirectional", request)

    async def _answer(self, name: str, request: Any) -> Any:
        mode = request.get("mode")
        if mode == "boom":
            raise Boom("secret")
        if mode == "hang":
            self.hanging.append(name)
            self.hung.append(name)
            try:
                await Deferred()
            finally:
                self.hanging.remove(name)
                self.cancelled.append(name)
        return {"text": request["text"].upper()}

    def _asked(self) -> dict[str, Any]:
        """Define these methods, each also in an idempotent variant."""
        string = {"type": "string"}
        asked = {
            "type": "object",
            "properties": {"text": {"type": "string", "required": True}, "mode": string},
        }
        answered = {"type": "object", "properties": {"text": string}}
        methods: dict[str, Any] = {}
        for kind in STREAMING:
            name = kind.capitalize()
            method = {
                "handler": getattr(self, f"ask{name}"),
                "streaming": kind,
                "input": asked,
                "output": answered,
            }
            methods[f"ask{name}"] = method
            methods[f"limited{name}"] = {**method, "rateLimit": {"requests": 2, "window": 60_000}}
        return methods

    def definition(self) -> dict[str, Any]:
        """Return the definition of the service C{Probe}."""
        text = {"type": "object", "properties": {"text": {"type": "string", "required": True}}}
        number = {"type": "object", "properties": {"number": {"type": "integer"}}}
        counting = {"type": "object", "properties": {"to": {"type": "integer"}}}
        return {
            "name": "Probe",
            "methods": {
                "echo": self.echo,
                "checked": {"handler": self.echo, "input": text, "output": text},
                "whoami": self.whoami,
                "private": {"handler": self.whoami, "authentication": True},
                "limited": {"handler": self.echo, "rateLimit": {"requests": 2, "window": 60_000}},
                "fail": self.fail,
                "slow": self.slow,
                "count": {"handler": self.count, "input": counting, "output": number},
                "countAnything": self.count,
                "collect": {"handler": self.collect, "streaming": "client", "input": text},
                "chat": {"handler": self.chat, "streaming": "bidirectional", "input": text},
                **self._asked(),
            },
        }


def guarded(probe: Probe) -> dict[str, Any]:
    """Define C{Guarded}: the same methods, for known users that C{authorize} admits."""
    definition = probe.definition()
    return {
        **definition,
        "name": "Guarded",
        "authentication": {
            "required": True,
            "authorize": lambda user, method, request: (
                user != _USERS[FORBIDDEN] and not (request or {}).get("forbidden")
            ),
        },
    }


def makeHost(
    clock: IReactorTime | None = None,
    services: Iterable[Any] | None = None,
    transformError: ErrorHook | None = None,
    **more: Any,
) -> tuple[TransportContext, Probe]:
    """
    Make a host that serves C{Probe}, C{Guarded} and other services.

    @param clock: The clock; the default is a new C{Clock}.
    @param more: Further arguments of the host.
    """
    clock = Clock() if clock is None else clock
    probe = Probe(clock)
    invoker = Invoker(TokenAuthenticator())
    for service in (probe.definition(), guarded(probe), *(services or ())):
        invoker.add(readService(service))

    def run(function: Any, *arguments: Any) -> Deferred[Any]:
        return Deferred.fromCoroutine(_call(function, *arguments))

    return TransportContext(invoker, clock, run, transformError, **more), probe


async def _call(function: Any, *arguments: Any) -> Any:
    return function(*arguments)
