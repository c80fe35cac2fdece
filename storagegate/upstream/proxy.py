"""
Remote services: handlers that forward calls to the gateways of instances.

A call passes through rate limits, authentication and validation as any other; only its handler is
elsewhere. It is sent over HTTP, or HTTPS where the instance or the service is set so::

    POST http://{host}:{port}{basePath}/{Service}/{method}

Streams are lines of JSON, in both directions at the same time.
"""

import random
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Callable
from functools import partial
from random import Random
from typing import Any

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
from storagegate.upstream.cluster import CallSlot, Cluster, HealthChecks, healthChecker
from storagegate.upstream.connections import TLSConnector, connector
from storagegate.upstream.metrics import UpstreamMetrics
from storagegate.upstream.options import (
    DiscoveredService,
    DiscoveryOptions,
    RemoteMethod,
    checkDiscovery,
)
from storagegate.upstream.provider import InstanceProvider, MakeWatch
from storagegate.upstream.retry import CallPolicy, Upstream

_UNKNOWN = RemoteMethod()


class ProxiedService:
    """Defines one service whose calls are forwarded."""

    def __init__(
        self,
        upstream: Upstream,
        shared: AttemptContext,
        selector: AffinitySelector,
        options: DiscoveredService,
        now: Callable[[], float],
    ) -> None:
        """
        @param shared: The resources of all attempts.
        @param selector: Chooses instances for calls that stay together.
        @param now: Returns seconds since 1970, the clock of deadlines.
        """
        self._upstream = upstream
        self._shared = shared
        self._selector = selector
        self._options = options
        self._now = now

    def define(self, name: str, local: ServiceDefinition | None) -> ServiceDefinition:
        """
        Define the service.

        @param local: The local definition, which is used but for its handlers; C{None} without one.
        """
        known = {} if local is None else dict(local.methods)
        methods = {
            key: self._method(method, self._options.methods.get(key, _UNKNOWN))
            for key, method in known.items()
        }
        for key, remote in self._options.methods.items():
            if key not in methods:
                blank = ServiceMethod(_remoteHandler, remote.streaming)
                methods[key] = self._method(blank, remote)
        own = None if local is None else local.others
        others = self._method(own or ServiceMethod(_remoteHandler), _UNKNOWN)
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
        """Return how many seconds the caller waits; C{None} for no limit."""
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

        @param send: Sends it in an attempt, and returns the result.
        @param timeoutSeconds: The limit of the wait for an instance.
        @param isRepeatable: Whether it may be repeated after an instance may have received it.
        @param isTimed: Whether C{timeoutSeconds} also limits the response.
        """
        policy = CallPolicy(
            self._selector.strategy(context),
            self._selector.choose(context),
            isRepeatable,
            timeoutSeconds,
        )

        async def attempt(slot: CallSlot) -> Any:
            self._selector.chosen(context, slot)
            limit = timeoutSeconds if isTimed else None
            return await send(Attempt(self._shared, slot, context, self.left(context), limit))

        return await self._upstream.call(attempt, policy)


class _Handler:
    """The handlers of one method, one for each kind of streaming."""

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

        # Requests that were sent cannot be sent again.
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
        """Decode bytes from JSON text; an invalid result is refused later."""
        if self._output is None:
            return result
        try:
            return self._output.read(result)
        except ServiceError:
            return result


async def _remoteHandler(request: Any, context: RequestContext) -> Any:
    """Be the handler of a definition that L{ProxiedService} completes."""
    raise NotImplementedError


SECRET_BYTES = 32
"""Bytes of the key that signs cookies: as many as the hash has."""


class ProxiedServices:
    """
    The remote services of a gateway.

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
        tracer: Any = None,
    ) -> None:
        """
        @param run: Calls C{run(function, *arguments)} in a thread.
        @param now: Returns seconds since 1970, the clock of deadlines.
        @param apiKeyHeader: The header field of API keys, here and at the instances.
        @param maxSize: Bytes of a response, or of a line of a stream.
        @param secret: Returns the key that signs cookies, if the options have none; C{None} for a
            random one.
        @param tracer: Records attempts; C{None} for none.
        @raise OptionError: If an option does not fit the others.
        """
        checkDiscovery(options)
        self.clusters: dict[str, Cluster] = {}
        self._options = options
        self._reactor = reactor
        self._run = run
        self._now = now
        self._random = Random()
        self._metrics = UpstreamMetrics(meters)
        self._apiKeyHeader = apiKeyHeader
        self._maxSize = maxSize
        self._tracer = tracer
        self._readSecret = secret
        self._secret: bytes | None = None
        self._services: dict[str, ProxiedService] = {}
        self._connectors: list[TLSConnector] = []
        self._provider: InstanceProvider | None = None
        self._isStopped = False
        for name, service in options.services.items():
            self._services[name] = self._make(name, service)
        if any(service.instances is None for service in options.services.values()):
            self._provider = makeProvider(options, reactor, meters)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the services."""
        return tuple(self._services)

    @property
    def problem(self) -> str | None:
        """Return the problems with instances in one line; C{None} if there is none."""
        problems = [] if self._provider is None else [self._provider.problem]
        for name, cluster in self.clusters.items():
            members = cluster.members.values()
            if not members:
                problems.append(f"no instance of {name} is known")
            elif not any(member.state == "healthy" for member in members):
                problems.append(f"no instance of {name} is healthy")
        return "; ".join(each for each in problems if each) or None

    def define(self, name: str, local: ServiceDefinition | None) -> ServiceDefinition:
        """
        Define a service whose calls are forwarded.

        @param name: The name of the service, one of L{names}.
        @param local: The local definition, which is used but for its handlers; C{None} without one.
        """
        return self._services[name].define(name, local)

    def start(self) -> None:
        """Start discovery, health checks and calls."""
        for tls in self._connectors:
            tls.warn()
        for name, service in self._options.services.items():
            cluster = self.clusters[name]
            if service.instances is not None:
                cluster.setInstances(service.instances)
            elif self._provider is not None:
                self._provider.watch(name, cluster.setInstances)
        if self._provider is not None:
            # Later: a daemon is here before it has changed its user.
            self._reactor.callWhenRunning(self._startProvider)

    def _startProvider(self) -> None:
        if self._provider is not None and not self._isStopped:
            self._provider.start()

    def stop(self) -> Deferred[None]:
        """Stop discovery, and close all connections to instances."""
        self._isStopped = True
        stopping = [cluster.stop() for cluster in self.clusters.values()]
        stopping.append(succeed(None) if self._provider is None else self._provider.stop())
        return gatherResults(stopping).addCallback(lambda results: None)

    def _make(self, name: str, options: DiscoveredService) -> ProxiedService:
        routing = self._options.routing
        strategies = makeStrategies(options.strategy, routing)
        reactor, random, metrics = self._reactor, self._random, self._metrics
        tls = TLSConnector(name, options, reactor, self._certificateName(name, options))
        tls.check()
        self._connectors.append(tls)
        connect = connector(reactor, options.connectTimeoutMs / 1000, tls)
        cluster = Cluster(name, options, strategies, connect, reactor, random, metrics)
        self.clusters[name] = cluster
        if options.healthCheck is not None:
            check = healthChecker(connect, options.healthCheck)
            HealthChecks(cluster, check, reactor, random, metrics)
        heads = RequestHeads(options.basePath, name, self._apiKeyHeader)
        return ProxiedService(
            Upstream(cluster, reactor, random, metrics),
            AttemptContext(name, heads, reactor, self._run, metrics, self._maxSize, self._tracer),
            AffinitySelector(routing, partial(self._signer, name), strategies),
            options,
            self._now,
        )

    def _certificateName(self, name: str, options: DiscoveredService) -> str | None:
        """
        Return the name in the certificates of instances, if it is not that of their hosts.

        The names in a reply of DNS are not secure (RFC 9525, section 6.1): it is the queried name.
        """
        if self._options.provider != "dns" or options.instances is not None:
            return None
        labels = (options.name or name).rstrip(".").split(".")
        return ".".join(label for label in labels if not label.startswith("_"))

    def _signer(self, service: str) -> CookieSigner:
        """Make the signer of the cookies of a service."""
        if self._secret is None:
            given = self._options.routing.http.cookie_secret
            if given is not None:
                self._secret = given.encode()
            elif self._readSecret is not None:
                self._secret = self._readSecret()
            else:
                self._secret = secrets.token_bytes(SECRET_BYTES)
        return CookieSigner(self._secret, service)


def makeProvider(
    options: DiscoveryOptions,
    reactor: Any,
    meters: MetricsRegistry | None = None,
    uniform: Uniform = random.uniform,
) -> InstanceProvider:
    """
    Make the provider of the options. Only its module is imported.

    @param meters: The registry of its metrics; C{None} for a new one.
    @param uniform: Draws the delays after failures.
    @raise OptionError: If an option does not fit the others.
    """
    checkDiscovery(options)
    makeWatch: MakeWatch | None = None
    if options.provider == "dns":
        from storagegate.upstream.dns import DNSWatch

        makeWatch = partial(DNSWatch, reactor, options.dns)
    elif options.provider == "consul":
        from storagegate.upstream.consul import ConsulWatch

        makeWatch = partial(ConsulWatch, reactor, options.consul)
    elif options.provider == "etcd":
        from storagegate.upstream.etcd import EtcdWatch

        makeWatch = partial(EtcdWatch, reactor, options.etcd)
    elif options.provider == "kubernetes":
        from storagegate.upstream.kubernetes import KubernetesWatch

        makeWatch = partial(KubernetesWatch, reactor, options.kubernetes)
    registry = meters or MetricsRegistry()
    name = options.provider or "static"
    return InstanceProvider(name, options.services, makeWatch, reactor, registry, uniform)
