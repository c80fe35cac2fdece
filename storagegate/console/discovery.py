"""Discovery: the instances of services that are elsewhere, and the registration of those here."""

from typing import Any

from msgspec import Struct

from storagegate.console.call import ConsoleCall


class InstanceView(Struct):
    """
    An instance, as this process sees it.

    @ivar state: C{healthy}, C{unhealthy} or C{ejected}.
    @ivar inFlight: Its calls in flight.
    @ivar checkedMs: When its last check ended; C{None} without one.
    @ivar isCheckGood: The result of that.
    @ivar ejectedUntilMs: Until when it gets no calls; C{None} if it gets them.
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
    A service whose instances are elsewhere.

    @ivar queued: Calls that wait for an instance.
    @ivar healthCheck: The path of health checks; empty without them.
    """

    name: str
    strategy: str
    queued: int
    healthCheck: str
    instances: list[InstanceView]


class EntryView(Struct):
    """A service of this daemon, as it is registered."""

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

    @ivar provider: Where instances are looked up; empty without one.
    @ivar problem: Empty if there is none.
    """

    provider: str
    problem: str
    services: list[RemoteServiceView]
    registration: RegistrationView | None


async def showDiscovery(call: ConsoleCall) -> DiscoveryView:
    """List services, instances and the registration, as this process has them."""
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

    @param passed: What is added to the reactor's clock for seconds since the epoch.
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
