"""Discovery: the instances of remote services, and the registration of this daemon's services."""

from typing import Any

from msgspec import Struct

from storagegate.console.call import ConsoleCall


class InstanceView(Struct):
    """
    The state of an instance in this process.

    @ivar state: C{healthy}, C{unhealthy} or C{ejected}.
    @ivar inFlight: The number of calls in flight.
    @ivar checkedMs: The end of the last health check; C{None} without one.
    @ivar isCheckGood: The result of that check.
    @ivar ejectedUntilMs: The time until which the instance gets no calls; C{None} if it gets calls.
    """

    id: str
    host: str
    port: int
    weight: int
    state: str
    inFlight: int
    connections: int
    checkedMs: int | None
    isCheckGood: bool | None
    ejectedUntilMs: int | None


class RemoteServiceView(Struct):
    """
    A service whose instances are remote.

    @ivar queued: Calls that wait for an instance.
    @ivar healthCheck: The path of health checks; empty without them.
    """

    name: str
    strategy: str
    queued: int
    healthCheck: str
    instances: list[InstanceView]


class EntryView(Struct):
    """A service of this daemon in the registry."""

    service: str
    id: str
    host: str
    port: int
    weight: int
    isSecure: bool
    tags: list[str]


class RegistrationView(Struct):
    """
    The registration of this daemon.

    @ivar isRegistered: Whether the registry has the entries, or may have them.
    @ivar problem: Empty if there is none.
    """

    registry: str
    isRegistered: bool
    problem: str
    entries: list[EntryView]


class DiscoveryView(Struct):
    """
    Discovery.

    @ivar provider: The provider of instances; empty without one.
    @ivar problem: Empty if there is none.
    """

    provider: str
    problem: str
    services: list[RemoteServiceView]
    registration: RegistrationView | None


async def showDiscovery(call: ConsoleCall) -> DiscoveryView:
    """List services, instances and the registration, as known to this process."""
    daemon = call.services.daemon.gateway
    if daemon is None or daemon.gateway.discovery is None:
        return DiscoveryView("", "", [], None)
    gateway = daemon.gateway
    now = call.services.now()
    passed = now - call.services.reactor.seconds()
    services = []
    if gateway.forwarding is not None:
        for name, cluster in gateway.forwarding.clusters.items():
            options = gateway.discovery.services[name]
            instances = [_instance(each, now, passed) for each in cluster.members.values()]
            services.append(
                RemoteServiceView(
                    name, options.strategy, cluster.queued, options.healthCheck or "", instances
                )
            )
    return DiscoveryView(
        gateway.discovery.provider or "",
        gateway.discoveryProblem or "",
        services,
        None if daemon.registration is None else _registration(daemon.registration),
    )


def _instance(member: Any, now: float, passed: float) -> InstanceView:
    """
    Describe an instance.

    @param passed: Offset from the reactor's clock to seconds since the epoch.
    """
    wait = member.breaker.waitSeconds
    checked = member.lastCheck
    return InstanceView(
        member.id,
        member.instance.host,
        member.instance.port,
        member.weight,
        member.state,
        member.active,
        member.connections.count,
        None if checked is None else int((checked[0] + passed) * 1000),
        None if checked is None else checked[1],
        None if wait is None else int((now + wait) * 1000),
    )


def _registration(registration: Any) -> RegistrationView:
    entries = [
        EntryView(
            each.service, each.id, each.host, each.port, each.weight, each.tls, list(each.tags)
        )
        for each in registration.entries
    ]
    return RegistrationView(
        registration.name, registration.isRegistered, registration.problem or "", entries
    )
