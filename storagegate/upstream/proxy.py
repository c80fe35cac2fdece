"""
Remote services: handlers that forward calls to the gateways of instances.

A call passes rate limits, authentication and validation as any other; only its handler runs
elsewhere. It is sent over HTTP, or over HTTPS if the instance or the service is configured for
TLS::

    POST http://{host}:{port}{basePath}/{Service}/{method}

Streams are lines of JSON, in both directions at the same time.
"""

import random
import secrets
from collections.abc import AsyncIterator, Callable
from functools import cached_property, partial
from importlib import import_module
from random import Random
from typing import Any

from attrs import define, evolve, field, frozen
from twisted.internet.defer import Deferred, gatherResults, succeed

from storagegate.core.backoff import Uniform
from storagegate.core.context import RequestContext
from storagegate.core.definitions import ServiceDefinition, ServiceMethod
from storagegate.core.errors import ServiceError
from storagegate.core.schemas import Schema
from storagegate.telemetry.metrics import MetricsRegistry
from storagegate.upstream.affinity import (
    SECRET_BYTES,
    AffinitySelector,
    CookieSigner,
    makeStrategies,
)
from storagegate.upstream.attempt import Attempt, AttemptContext, RequestHeads, encodeRequest
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


@define(eq=False)
class ProxiedService:
    """
    Defines one service whose calls are forwarded.

    @ivar now: Returns the time of deadlines, in seconds since 1970.
    """

    _upstream: Upstream
    _shared: AttemptContext
    _selector: AffinitySelector
    _options: DiscoveredService
    now: Callable[[], float]

    def define(self, name: str, local: ServiceDefinition | None) -> ServiceDefinition:
        """
        Define the service.

        @param local: The local definition, whose handlers are replaced; C{None} without one.
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
        forwarding = _Forwarding(self, method, isIdempotent, timeoutSeconds, output)
        handler = forwarding.stream if method.streamsResponses else forwarding.single
        return evolve(method, handler=handler, idempotent=isIdempotent)

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

        @param send: Sends the call in an attempt, and returns the result.
        @param timeoutSeconds: Limit of the wait for an instance.
        @param isRepeatable: Whether the call may be repeated after an instance may have received
            it.
        @param isTimed: Whether C{timeoutSeconds} also limits the response.
        """
        policy = CallPolicy(
            self._selector.strategy(context),
            self._selector.choose(context),
            isRepeatable,
            timeoutSeconds,
        )
        limit = timeoutSeconds if isTimed else None
        deadline = context.metadata.get("deadline")

        async def attempt(slot: CallSlot) -> Any:
            self._selector.chosen(context, slot)
            left = None if deadline is None else float(deadline) - self.now()
            return await send(Attempt(self._shared, slot, context, left, limit))

        return await self._upstream.call(attempt, policy)


@frozen(eq=False)
class _Forwarding:
    """The handlers of one method, for a single response and for a stream of responses."""

    _service: ProxiedService
    _method: ServiceMethod
    _isIdempotent: bool
    _timeout: float
    _output: Schema | None

    def _call(self, request: Any, context: RequestContext) -> Any:
        """Forward a call, with its request or a stream of them."""
        method = self._method
        body = None if method.streamsRequests else encodeRequest(request)

        async def send(attempt: Attempt) -> Any:
            await attempt.begin(body)
            if body is None:
                attempt.pump(request)
            return await (attempt.items() if method.streamsResponses else attempt.result())

        # Requests of a stream cannot be sent a second time.
        isRepeatable = self._isIdempotent and not method.streamsRequests
        isTimed = method.streaming == "none"
        return self._service.call(context, send, self._timeout, isRepeatable, isTimed)

    async def single(self, request: Any, context: RequestContext) -> Any:
        """Forward a call with one response."""
        return self._read(await self._call(request, context))

    async def stream(self, request: Any, context: RequestContext) -> AsyncIterator[Any]:
        """Forward a call with a stream of responses."""
        items = await self._call(request, context)
        try:
            async for item in items:
                yield self._read(item)
        finally:
            await items.aclose()

    def _read(self, result: Any) -> Any:
        """Decode bytes from JSON text; an invalid result is rejected later."""
        if self._output is None:
            return result
        try:
            return self._output.read(result)
        except ServiceError:
            return result


async def _remoteHandler(request: Any, context: RequestContext) -> Any:
    """Stand in as the handler of a definition that L{ProxiedService} completes."""
    raise NotImplementedError


@define(eq=False, slots=False)
class ProxiedServices:
    """
    The remote services of a gateway.

    @ivar run: Calls C{run(function, *arguments)} in a thread.
    @ivar now: Returns the time of deadlines, in seconds since 1970.
    @ivar apiKeyHeader: The header field of API keys, here and at the instances.
    @ivar maxSize: Limit of a response, or of a line of a stream, in bytes.
    @ivar secret: Returns the key that signs cookies if the options have none; C{None} for a random
        key.
    @ivar tracer: Records attempts; C{None} disables tracing.
    @ivar clusters: The instances by the name of their service.
    """

    options: DiscoveryOptions
    reactor: Any
    meters: MetricsRegistry
    run: Callable[..., Deferred[Any]] = field(kw_only=True)
    now: Callable[[], float] = field(kw_only=True)
    apiKeyHeader: str = field(default="X-API-Key", kw_only=True)
    maxSize: int = field(default=10 * 1024 * 1024, kw_only=True)
    secret: Callable[[], bytes] | None = field(default=None, kw_only=True)
    tracer: Any = field(default=None, kw_only=True)
    clusters: dict[str, Cluster] = field(factory=dict, init=False)
    _random: Random = field(factory=Random, init=False)
    _services: dict[str, ProxiedService] = field(factory=dict, init=False)
    _connectors: list[TLSConnector] = field(factory=list, init=False)
    _provider: InstanceProvider | None = field(default=None, init=False)
    _isStopped: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        """
        Make the clusters and the provider.

        @raise OptionError: If options contradict each other.
        """
        checkDiscovery(self.options)
        metrics = UpstreamMetrics(self.meters)
        services = self.options.services
        for name, service in services.items():
            self._services[name] = self._make(name, service, metrics)
        if any(service.instances is None for service in services.values()):
            self._provider = makeProvider(self.options, self.reactor, self.meters)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the services."""
        return tuple(self._services)

    @property
    def problem(self) -> str | None:
        """Return the problems with instances in one line; C{None} without problems."""
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
        @param local: The local definition, whose handlers are replaced; C{None} without one.
        """
        return self._services[name].define(name, local)

    def start(self) -> None:
        """Start discovery, health checks and calls."""
        for tls in self._connectors:
            tls.warn()
        for name, service in self.options.services.items():
            cluster = self.clusters[name]
            if service.instances is not None:
                cluster.setInstances(service.instances)
            elif self._provider is not None:
                self._provider.watch(name, cluster.setInstances)
        if self._provider is not None:
            # Deferred until the reactor runs: the daemon calls this before it has changed its user.
            self.reactor.callWhenRunning(self._startProvider)

    def _startProvider(self) -> None:
        if self._provider is not None and not self._isStopped:
            self._provider.start()

    def stop(self) -> Deferred[None]:
        """Stop discovery, and close all connections to instances."""
        self._isStopped = True
        stopping = [cluster.stop() for cluster in self.clusters.values()]
        stopping.append(succeed(None) if self._provider is None else self._provider.stop())
        return gatherResults(stopping).addCallback(lambda results: None)

    def _make(
        self, name: str, options: DiscoveredService, metrics: UpstreamMetrics
    ) -> ProxiedService:
        routing = self.options.routing
        strategies = makeStrategies(options.strategy, routing)
        reactor, random = self.reactor, self._random
        tls = TLSConnector(name, options, reactor, self._certificateName(name, options))
        tls.check()
        self._connectors.append(tls)
        connect = connector(reactor, options.connectTimeoutMs / 1000, tls)
        cluster = Cluster(name, options, strategies, connect, reactor, random, metrics)
        self.clusters[name] = cluster
        if options.healthCheck is not None:
            check = healthChecker(connect, options.healthCheck)
            HealthChecks(cluster, check, reactor, random, metrics)
        heads = RequestHeads(options.basePath, name, self.apiKeyHeader)
        return ProxiedService(
            Upstream(cluster, reactor, random, metrics),
            AttemptContext(name, heads, reactor, self.run, metrics, self.maxSize, self.tracer),
            AffinitySelector(routing, lambda: CookieSigner(self._secret, name), strategies),
            options,
            self.now,
        )

    def _certificateName(self, name: str, options: DiscoveredService) -> str | None:
        """
        Return the name that certificates of instances must have, if it is not their host name.

        Names in a DNS reply are not secure (RFC 9525, section 6.1), so the queried name counts.
        """
        if self.options.provider != "dns" or options.instances is not None:
            return None
        labels = (options.name or name).rstrip(".").split(".")
        return ".".join(label for label in labels if not label.startswith("_"))

    @cached_property
    def _secret(self) -> bytes:
        """The key of the options, else the constructor's function's result, else a random key."""
        given = self.options.routing.http.cookie_secret
        if given is not None:
            return given.encode()
        return secrets.token_bytes(SECRET_BYTES) if self.secret is None else self.secret()


_WATCHES = {
    "dns": "DNSWatch",
    "consul": "ConsulWatch",
    "etcd": "EtcdWatch",
    "kubernetes": "KubernetesWatch",
}
"""The class of each provider, in the module of the same name."""


def makeProvider(
    options: DiscoveryOptions,
    reactor: Any,
    meters: MetricsRegistry | None = None,
    uniform: Uniform = random.uniform,
) -> InstanceProvider:
    """
    Make the provider that the options name. No other provider's module is imported.

    @param meters: The registry of its metrics; C{None} for a new registry.
    @param uniform: Draws the delays after failures.
    @raise OptionError: If options contradict each other.
    """
    checkDiscovery(options)
    name = options.provider or "static"
    makeWatch: MakeWatch | None = None
    if name in _WATCHES:
        watch = getattr(import_module(f"storagegate.upstream.{name}"), _WATCHES[name])
        makeWatch = partial(watch, reactor, getattr(options, name))
    registry = meters or MetricsRegistry()
    return InstanceProvider(name, options.services, makeWatch, reactor, registry, uniform)
