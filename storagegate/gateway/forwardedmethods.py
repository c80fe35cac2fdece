"""The methods of a service that is elsewhere: handlers that forward their calls."""

from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import Any, Protocol

from attrs import evolve

from storagegate.balancing.cluster import Choose
from storagegate.balancing.members import Lease
from storagegate.balancing.upstream import Terms, Upstream
from storagegate.core.context import RequestContext
from storagegate.core.definitions import ServiceDefinition, ServiceMethod
from storagegate.core.errors import ServiceError
from storagegate.core.schemas import Schema
from storagegate.discovery.services import DiscoveredService, RemoteMethod
from storagegate.gateway.remotecalls import Attempt, RemoteItems, Road, encodeRequest

_UNKNOWN = RemoteMethod()


class Choosing(Protocol):
    """Says which instance the calls of a service go to."""

    def strategy(self, context: RequestContext) -> str:
        """Give the name of the strategy of a call."""

    def choose(self, context: RequestContext) -> Choose | None:
        """Give what chooses for a call that belongs to others; C{None} for the strategy."""

    def chosen(self, context: RequestContext, lease: Lease) -> None:
        """Take note of the instance that a call goes to."""


class ForwardedService:
    """Makes the definition of one service whose calls are forwarded."""

    def __init__(
        self,
        upstream: Upstream,
        road: Road,
        choosing: Choosing,
        options: DiscoveredService,
        now: Callable[[], float],
    ) -> None:
        """
        @param now: Gives seconds since 1970, as deadlines do.
        """
        self._upstream = upstream
        self._road = road
        self._choosing = choosing
        self._options = options
        self._now = now

    def define(self, name: str, local: ServiceDefinition | None) -> ServiceDefinition:
        """
        Define the service.

        @param local: What was said of it here: everything but its handlers holds.
        """
        known = {} if local is None else dict(local.methods)
        methods = {
            key: self._method(method, self._options.methods.get(key, _UNKNOWN))
            for key, method in known.items()
        }
        for key, remote in self._options.methods.items():
            if key not in methods:
                blank = ServiceMethod(_nobody, remote.streaming)
                methods[key] = self._method(blank, remote)
        said = None if local is None else local.others
        others = self._method(said or ServiceMethod(_nobody), _UNKNOWN)
        if local is None:
            return ServiceDefinition(name, methods, others=others)
        return evolve(local, methods=methods, others=others)

    def _method(self, method: ServiceMethod, remote: RemoteMethod) -> ServiceMethod:
        isIdempotent = method.idempotent or remote.idempotent
        timeoutSeconds = (remote.timeoutMs or self._options.timeoutMs) / 1000
        output = None if method.output is None else Schema(method.output, "an output", True)
        handler = _Handler(self, timeoutSeconds, isIdempotent, output)
        make = {
            "none": handler.unary,
            "server": handler.server,
            "client": handler.client,
            "bidirectional": handler.bidirectional,
        }[method.streaming]
        return evolve(method, handler=make, idempotent=isIdempotent)

    def left(self, context: RequestContext) -> float | None:
        """Tell how long the caller waits; C{None} for ever."""
        deadline = context.metadata.get("deadline")
        return None if deadline is None else float(deadline) - self._now()

    async def call(
        self,
        context: RequestContext,
        send: Callable[[Attempt], Any],
        timeoutSeconds: float,
        isRepeatable: bool,
        isTimed: bool,
    ) -> Any:
        """
        Forward a call.

        @param send: Sends it, and gives what came.
        @param isTimed: Whether the time holds for the answer, too, and not just for the wait for an
            instance.
        """
        terms = Terms(
            self._choosing.strategy(context),
            self._choosing.choose(context),
            isRepeatable,
            timeoutSeconds,
        )

        async def attempt(lease: Lease) -> Any:
            self._choosing.chosen(context, lease)
            limit = timeoutSeconds if isTimed else None
            return await send(Attempt(self._road, lease, context, self.left(context), limit))

        return await self._upstream.call(attempt, terms)


class _Handler:
    """The handlers of one method, one for each way to stream."""

    def __init__(
        self,
        service: ForwardedService,
        timeoutSeconds: float,
        isIdempotent: bool,
        output: Schema | None,
    ) -> None:
        self._service = service
        self._timeout = timeoutSeconds
        self._isIdempotent = isIdempotent
        self._output = output

    async def unary(self, request: Any, context: RequestContext) -> Any:
        """Forward a call."""
        body = encodeRequest(request)

        async def send(attempt: Attempt) -> Any:
            await attempt.begin(body)
            return await attempt.result()

        return self._read(await self._call(context, send, self._isIdempotent, isTimed=True))

    async def server(self, request: Any, context: RequestContext) -> AsyncIterator[Any]:
        """Forward a call with a stream of responses."""
        body = encodeRequest(request)

        async def send(attempt: Attempt) -> RemoteItems:
            await attempt.begin(body)
            return await attempt.items()

        async for item in self._items(await self._call(context, send, self._isIdempotent)):
            yield item

    async def client(self, requests: AsyncIterable[Any], context: RequestContext) -> Any:
        """Forward a call with a stream of requests."""

        async def send(attempt: Attempt) -> Any:
            await attempt.begin(None)
            attempt.pump(requests)
            return await attempt.result()

        # Requests that have gone out are not here any more to go out again.
        return self._read(await self._call(context, send, False))

    async def bidirectional(
        self, requests: AsyncIterable[Any], context: RequestContext
    ) -> AsyncIterator[Any]:
        """Forward a call with streams both ways."""

        async def send(attempt: Attempt) -> RemoteItems:
            await attempt.begin(None)
            attempt.pump(requests)
            return await attempt.items()

        async for item in self._items(await self._call(context, send, False)):
            yield item

    def _call(
        self, context: RequestContext, send: Any, isRepeatable: bool, isTimed: bool = False
    ) -> Any:
        return self._service.call(context, send, self._timeout, isRepeatable, isTimed)

    async def _items(self, items: RemoteItems) -> AsyncIterator[Any]:
        stream = items.each()
        try:
            async for item in stream:
                yield self._read(item)
        finally:
            await stream.aclose()  # type: ignore[attr-defined]

    def _read(self, result: Any) -> Any:
        """Make bytes of what JSON carried as text; a result that does not fit is refused later."""
        if self._output is None:
            return result
        try:
            return self._output.read(result)
        except ServiceError:
            return result


async def _nobody(request: Any, context: RequestContext) -> Any:
    """Stand for a handler that is elsewhere."""
    raise NotImplementedError
