"""
Registration of this daemon's services at a registry.

An entry is renewed three times within its time to live, and removed when the daemon stops. An entry
that the registry has lost is registered again.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from storagegate.core.options import OptionError
from storagegate.upstream.options import (
    DiscoveryOptions,
    Entry,
    RegisterOptions,
    checkDiscovery,
    formatAddress,
)
from storagegate.upstream.provider import ProblemReporter, RetryLoop

RENEWALS = 3
"""Renewals within a time to live: one may get lost, and one may be late."""

_DEREGISTER_SECONDS = 2.0
"""Limit of the time to remove entries: a stop does not wait longer for an unreachable registry."""

_ANYWHERE = ("", "0.0.0.0", "::")

_log = Logger()


class Registry(Protocol):
    """A registry of instances."""

    async def register(self) -> None:
        """
        Register all entries, or renew them.

        @raise SourceError: If the registry has not confirmed the entries.
        """

    async def deregister(self) -> None:
        """
        Remove all entries.

        @raise SourceError: If the registry has not confirmed the removal.
        """


class Registration:
    """
    Keeps the entries of this daemon alive.

    @ivar name: The name of the registry.
    @ivar entries: The registered entries.
    @ivar isRegistered: Whether the registry has, or may have, the entries.
    """

    def __init__(
        self,
        name: str,
        registry: Registry,
        ttlSeconds: int,
        reactor: Any,
        entries: Sequence[Entry] = (),
    ) -> None:
        """
        @param ttlSeconds: The time to live of entries.
        @param reactor: Provides C{IReactorTime}.
        """
        self.name = name
        self.entries = entries
        self._registry = registry
        self._pause = ttlSeconds / RENEWALS
        self._reactor = reactor
        self._problems = ProblemReporter(f"registration with {name}", reactor.seconds)
        self.isRegistered = False
        self._loop = RetryLoop(
            reactor,
            self._step,
            lambda text: self._problems.begin(name, text),
            lambda: self._problems.end(name),
        )

    @property
    def problem(self) -> str | None:
        """Return the current problem with the registry; C{None} without one."""
        return self._problems.problem

    def start(self) -> None:
        """Register, and keep renewing."""
        self._loop.start()

    def stop(self) -> Deferred[None]:
        """Remove the entries, if the registry responds within two seconds."""
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await self._loop.stop()
        isRegistered, self.isRegistered = self.isRegistered, False
        if not isRegistered:
            return
        leaving = Deferred.fromCoroutine(self._registry.deregister())
        try:
            await leaving.addTimeout(_DEREGISTER_SECONDS, self._reactor)
        except Exception as error:
            # The entries expire soon; a stop does not try again.
            _log.warn(
                "the entries at {name} could not be removed: {error}", name=self.name, error=error
            )

    async def _step(self) -> float:
        # Set first: the registry may have received a request that is interrupted.
        self.isRegistered = True
        await self._registry.register()
        return self._pause


def checkRegistration(options: DiscoveryOptions, services: Iterable[str], host: str | None) -> None:
    """
    Check the options of registration.

    @param services: The names of the services of this daemon.
    @param host: The address of the HTTP listener, if known; C{None} if it has no port.
    @raise OptionError: If an option is missing, or options contradict each other.
    """
    checkDiscovery(options)
    register = options.register or RegisterOptions()
    if host is None and (register.address is None or register.port is None):
        raise OptionError("the options register.address and register.port are missing")
    if register.address is None and host in _ANYWHERE:
        raise OptionError("the option register.address is missing: http listens on all addresses")
    for name in register.services or ():
        if name not in services:
            raise OptionError(
                f"the option register.services names {name}, which this daemon does not serve"
            )


def makeRegistration(
    options: DiscoveryOptions,
    services: Iterable[str],
    host: str | None,
    port: int | None,
    reactor: Any,
    member: str = "",
) -> Registration:
    """
    Make the registration of services.

    @param services: The names of the services of this daemon.
    @param host: The address of the HTTP listener; C{None} without one.
    @param member: Identifies this process among the processes of the same address, so that their
        entries differ.
    @raise OptionError: If options contradict each other.
    """
    services = tuple(services)
    checkRegistration(options, services, host)
    register = options.register or RegisterOptions()
    host, port = register.address or host or "", register.port or port or 0
    names = services if register.services is None else register.services.values()
    suffix = f"{formatAddress(host, port)}{member and '-'}{member}"
    entries = [
        Entry(name, f"{name}-{suffix}", host, port, register.weight, register.tls, register.tags)
        for name in names
    ]
    registry: Registry
    if options.provider == "consul":
        from storagegate.upstream.consul import ConsulAPI, ConsulRegistry

        agent = ConsulAPI(reactor, options.consul)
        registry = ConsulRegistry(agent, entries, register.ttlSeconds)
    else:
        from storagegate.upstream.etcd import EtcdAPI, EtcdRegistry

        registry = EtcdRegistry(EtcdAPI(reactor, options.etcd), entries, register.ttlSeconds)
    return Registration(options.provider or "", registry, register.ttlSeconds, reactor, entries)
