"""
Services that are elsewhere: where their instances are, and the road to them.

A call that a wire has taken goes the way of all calls, through rate limits, authentication and
checks; only where its handler would run, it is sent on to an instance's gateway, by HTTP::

    POST http://{host}:{port}{basePath}/{Service}/{method}

Streams go as lines of JSON, both ways at once. Instances that say so, or whose service does, are
spoken to over TLS.

The methods of a service that is elsewhere: handlers that forward their calls.
"""

import random
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Callable
from functools import partial
from random import Random
from typing import Any, Protocol

from attrs import evolve
from twisted.internet.defer import Deferred, gatherResults, succeed

from storagegate.core.backoff import Uniform
from storagegate.core.context import RequestContext
from storagegate.core.definitions import ServiceDefinition, ServiceMethod
from storagegate.core.errors import ServiceError
from storagegate.core.schemas import Schema
from storagegate.telemetry.metrics import MetricsRegistry
from storagegate.upstream.affinity import AffinitySelector, CookieSigner, makeStrategies
from storagegate.upstream.attempt import (
    Attempt,
    AttemptContext,
    RemoteItems,
    RequestHeads,
    encodeRequest,
)
from storagegate.upstream.cluster import CallSlot, Choose, Cluster, HealthChecks, healthAsker
from storagegate.upstream.connections import TLSConnector, connector
from storagegate.upstream.metrics import UpstreamMeters
from storagegate.upstream.options import (
    DiscoveredService,
    DiscoveryOptions,
    RemoteMethod,
    checkDiscovery,
)
from storagegate.upstream.provider import InstanceProvider, IProvider, MakeWatch
from storagegate.upstream.retry import CallPolicy, Upstream

_UNKNOWN = RemoteMethod()


class InstanceSelector(Protocol):
    """Says which instance the calls of a service go to."""

    def strategy(self, context: RequestContext) -> str:
        """Give the name of the strategy of a call."""

    def choose(self, context: RequestContext) -> Choose | None:
        """Give what chooses for a call that belongs to others; C{None} for the strategy."""

    def chosen(self, context: RequestContext, lease: CallSlot) -> None:
        """Take note of the instance that a call goes to."""


class ProxiedService:
    """Makes the definition of one service whose calls are forwarded."""

    def __init__(
        self,
        upstream: Upstream,
        road: AttemptContext,
        choosing: InstanceSelector,
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
        terms = CallPolicy(
            self._choosing.strategy(context),
            self._choosing.choose(context),
            isRepeatable,
            timeoutSeconds,
        )

        async def attempt(lease: CallSlot) -> Any:
            self._choosing.chosen(context, lease)
            limit = timeoutSeconds if isTimed else None
            return await send(Attempt(self._road, lease, context, self.left(context), limit))

        return await self._upstream.call(attempt, terms)


class _Handler:
    """The handlers of one method, one for each way to stream."""

    def __init__(
        self,
        service: ProxiedService,
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


SECRET_BYTES = 32
"""What cookies are signed with: as much as the hash has."""

MakeProvider = Callable[[DiscoveryOptions, Any, MetricsRegistry], Any]
"""Makes an L{IProvider<storagegate.upstream.provider.IProvider>}."""


class ProxiedServices:
    """
    The services of a gateway that are elsewhere.

    @ivar clusters: Their instances, by the name of the service.
    """

    def __init__(
        self,
        options: DiscoveryOptions,
        reactor: Any,
        meters: MetricsRegistry,
        *,
        run: Callable[..., Deferred[Any]],
        now: Callable[[], float],
        apiKeyHeader: str = "X-API-Key",
        maxSize: int = 10 * 1024 * 1024,
        secret: Callable[[], bytes] | None = None,
        provider: MakeProvider | None = None,
        tracer: Any = None,
    ) -> None:
        """
        @param run: Calls C{run(function, *arguments)} in a thread.
        @param now: Returns seconds since 1970, the clock of deadlines.
        @param apiKeyHeader: The field that API keys are in, here and there.
        @param maxSize: Bytes of an answer, or of a line of a stream of them.
        @param secret: Gives what cookies are signed with, if the options do not say; C{None} makes
            one that nobody else has.
        @param provider: Makes what knows the instances that the options do not name.
        @param tracer: Records what is forwarded; C{None} for nothing.
        @raise OptionError: If an option does not fit the others.
        """
        checkDiscovery(options)
        self.clusters: dict[str, Cluster] = {}
        self._options = options
        self._reactor = reactor
        self._run = run
        self._now = now
        self._random = Random()
        self._meters = UpstreamMeters(meters)
        self._apiKeyHeader = apiKeyHeader
        self._maxSize = maxSize
        self._tracer = tracer
        self._giveSecret = secret
        self._secret: bytes | None = None
        self._services: dict[str, ProxiedService] = {}
        self._securing: list[TLSConnector] = []
        self._provider: Any = None
        self._isStopped = False
        for name, service in options.services.items():
            self._services[name] = self._make(name, service)
        if any(service.instances is None for service in options.services.values()):
            self._provider = (provider or makeProvider)(options, reactor, meters)

    @property
    def names(self) -> tuple[str, ...]:
        """Give the names of the services."""
        return tuple(self._services)

    @property
    def problem(self) -> str | None:
        """Tell in one line what is wrong with where services are; C{None} if nothing is."""
        wrong = [] if self._provider is None else [self._provider.problem]
        for name, cluster in self.clusters.items():
            members = cluster.members.values()
            if not members:
                wrong.append(f"no instance of {name} is known")
            elif not any(member.state == "well" for member in members):
                wrong.append(f"no instance of {name} is well")
        return "; ".join(reason for reason in wrong if reason) or None

    def define(self, name: str, local: ServiceDefinition | None) -> ServiceDefinition:
        """
        Define a service whose calls are forwarded.

        @param local: What was said of it here: everything but its handlers holds.
        """
        return self._services[name].define(name, local)

    def start(self) -> None:
        """Begin to look for instances, and to look after them."""
        for securing in self._securing:
            securing.warn()
        for name, service in self._options.services.items():
            cluster = self.clusters[name]
            if service.instances is not None:
                cluster.setInstances(service.instances)
            else:
                self._provider.watch(name, cluster.setInstances)
        if self._provider is not None:
            # A daemon comes by here before it is the user that it stays.
            self._reactor.callWhenRunning(self._startProvider)

    def _startProvider(self) -> None:
        if not self._isStopped:
            self._provider.start()

    def stop(self) -> Deferred[None]:
        """Look no more, and close all connections to instances."""
        self._isStopped = True
        stopping = [cluster.stop() for cluster in self.clusters.values()]
        stopping.append(succeed(None) if self._provider is None else self._provider.stop())
        return gatherResults(stopping).addCallback(lambda results: None)

    def _make(self, name: str, options: DiscoveredService) -> ProxiedService:
        routing = self._options.routing
        strategies = makeStrategies(options.strategy, routing)
        reactor, random, meters = self._reactor, self._random, self._meters
        securing = TLSConnector(name, options, reactor, self._provedName(name, options))
        securing.check()
        self._securing.append(securing)
        connect = connector(reactor, options.connectTimeoutMs / 1000, securing)
        cluster = Cluster(name, options, strategies, connect, reactor, random, meters)
        self.clusters[name] = cluster
        if options.healthCheck is not None:
            asker = healthAsker(connect, options.healthCheck)
            HealthChecks(cluster, asker, reactor, random, meters)
        heads = RequestHeads(options.basePath, name, self._apiKeyHeader)
        return ProxiedService(
            Upstream(cluster, reactor, random, meters),
            AttemptContext(name, heads, reactor, self._run, meters, self._maxSize, self._tracer),
            AffinitySelector(routing, partial(self._signer, name), strategies),
            options,
            self._now,
        )

    def _provedName(self, name: str, options: DiscoveredService) -> str | None:
        """
        Give the name that instances have in their certificates, if it is not that of their hosts.

        What DNS answers is no proof (RFC 9525, section 6.1): it is the name that was asked for.
        """
        if self._options.provider != "dns" or options.instances is not None:
            return None
        labels = (options.name or name).rstrip(".").split(".")
        return ".".join(label for label in labels if not label.startswith("_"))

    def _signer(self, service: str) -> CookieSigner:
        """Make what makes the cookies of a service."""
        if self._secret is None:
            given = self._options.routing.http.cookie_secret
            if given is not None:
                self._secret = given.encode()
            elif self._giveSecret is not None:
                self._secret = self._giveSecret()
            else:
                self._secret = secrets.token_bytes(SECRET_BYTES)
        return CookieSigner(self._secret, service)


def makeProvider(
    options: DiscoveryOptions,
    reactor: Any,
    meters: MetricsRegistry | None = None,
    uniform: Uniform = random.uniform,
) -> IProvider:
    """
    Make a provider.

    @param uniform: Makes the waits after failures differ.
    @raise OptionError: If an option does not fit the others.
    """
    checkDiscovery(options)
    name = options.provider or "static"
    makeWatch: MakeWatch | None = None
    if name == "dns":
        from storagegate.upstream.dns import DNSWatch

        makeWatch = partial(DNSWatch, reactor, options.dns)
    elif name == "consul":
        from storagegate.upstream.consul import ConsulWatch

        makeWatch = partial(ConsulWatch, reactor, options.consul)
    elif name == "etcd":
        from storagegate.upstream.etcd import EtcdWatch

        makeWatch = partial(EtcdWatch, reactor, options.etcd)
    elif name == "kubernetes":
        from storagegate.upstream.kubernetes import KubernetesWatch

        makeWatch = partial(KubernetesWatch, reactor, options.kubernetes)
    return InstanceProvider(
        name, options.services, makeWatch, reactor, meters or MetricsRegistry(), uniform
    )
