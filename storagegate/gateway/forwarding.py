"""
Services that are elsewhere: where their instances are, and the road to them.

A call that a wire has taken goes the way of all calls, through rate limits, authentication and
checks; only where its handler would run, it is sent on to an instance's gateway, by HTTP::

    POST http://{host}:{port}{basePath}/{Service}/{method}

Streams go as lines of JSON, both ways at once. Instances that say so, or whose service does, are
spoken to over TLS.
"""

import secrets
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, gatherResults, succeed

from storagegate.balancing.affinity import Signer
from storagegate.balancing.checking import HealthChecks, healthAsker
from storagegate.balancing.cluster import Cluster
from storagegate.balancing.connections import connector
from storagegate.balancing.securing import Securing
from storagegate.balancing.upstream import Upstream
from storagegate.balancing.upstreammeters import UpstreamMeters
from storagegate.core.definitions import ServiceDefinition
from storagegate.core.meters import Meters
from storagegate.discovery.options import DiscoveryOptions, checkDiscovery
from storagegate.discovery.services import DiscoveredService
from storagegate.gateway.forwardedmethods import ForwardedService
from storagegate.gateway.remotecalls import Road
from storagegate.gateway.remotechoosing import RoutedChoosing, makeStrategies
from storagegate.gateway.remoterequests import RequestHeads

SECRET_BYTES = 32
"""What cookies are signed with: as much as the hash has."""

MakeProvider = Callable[[DiscoveryOptions, Any, Meters], Any]
"""Makes an L{IProvider<storagegate.discovery.interfaces.IProvider>}."""


class Forwarding:
    """
    The services of a gateway that are elsewhere.

    @ivar clusters: Their instances, by the name of the service.
    """

    def __init__(
        self,
        options: DiscoveryOptions,
        reactor: Any,
        meters: Meters,
        *,
        run: Callable[..., Deferred[Any]],
        now: Callable[[], float],
        apiKeyHeader: str = "X-API-Key",
        maxSize: int = 10 * 1024 * 1024,
        secret: Callable[[], bytes] | None = None,
        makeProvider: MakeProvider | None = None,
        tracer: Any = None,
    ) -> None:
        """
        @param run: Calls C{run(function, *arguments)} in a thread.
        @param now: Returns seconds since 1970, the clock of deadlines.
        @param apiKeyHeader: The field that API keys are in, here and there.
        @param maxSize: Bytes of an answer, or of a line of a stream of them.
        @param secret: Gives what cookies are signed with, if the options do not say; C{None} makes
            one that nobody else has.
        @param makeProvider: Makes what knows the instances that the options do not name.
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
        self._services: dict[str, ForwardedService] = {}
        self._securing: list[Securing] = []
        self._provider: Any = None
        self._isStopped = False
        for name, service in options.services.items():
            self._services[name] = self._make(name, service)
        if any(service.instances is None for service in options.services.values()):
            self._provider = _makeProvider(makeProvider)(options, reactor, meters)

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

    def _make(self, name: str, options: DiscoveredService) -> ForwardedService:
        routing = self._options.routing
        strategies = makeStrategies(options.strategy, routing)
        reactor, random, meters = self._reactor, self._random, self._meters
        securing = Securing(name, options, reactor, self._provedName(name, options))
        securing.check()
        self._securing.append(securing)
        connect = connector(reactor, options.connectTimeoutMs / 1000, securing)
        cluster = Cluster(name, options, strategies, connect, reactor, random, meters)
        self.clusters[name] = cluster
        if options.healthCheck is not None:
            asker = healthAsker(connect, options.healthCheck)
            HealthChecks(cluster, asker, reactor, random, meters)
        heads = RequestHeads(options.basePath, name, self._apiKeyHeader)
        return ForwardedService(
            Upstream(cluster, reactor, random, meters),
            Road(name, heads, reactor, self._run, meters, self._maxSize, self._tracer),
            RoutedChoosing(routing, partial(self._signer, name), strategies),
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

    def _signer(self, service: str) -> Signer:
        """Make what makes the cookies of a service."""
        if self._secret is None:
            given = self._options.routing.http.cookie_secret
            if given is not None:
                self._secret = given.encode()
            elif self._giveSecret is not None:
                self._secret = self._giveSecret()
            else:
                self._secret = secrets.token_bytes(SECRET_BYTES)
        return Signer(self._secret, service)


def _makeProvider(given: MakeProvider | None) -> MakeProvider:
    if given is not None:
        return given
    from storagegate.discovery.providers import makeProvider

    return makeProvider
