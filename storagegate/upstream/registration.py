"""
Tells a registry where this daemon serves what, and goes on telling it: an entry lives for a time to
live, gets a sign of life three times in it, and is taken away when the daemon stops. A registry
that has forgotten an entry is told anew.
"""

from collections.abc import Iterable
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

SIGNS = 3
"""Signs of life in a time to live: one may get lost, and one may be late."""

_LEAVE_SECONDS = 2.0
"""For taking entries away: a stop does not wait longer for a registry that is away itself."""

_ANYWHERE = ("", "0.0.0.0", "::")

_log = Logger()


class Registry(Protocol):
    """Who is told of entries."""

    async def tell(self) -> None:
        """
        Tell of all entries, or that they still are.

        @raise SourceError: If that was not heard.
        """

    async def leave(self) -> None:
        """
        Take all entries away.

        @raise SourceError: If that was not heard.
        """


class Registration:
    """Keeps a registry informed."""

    def __init__(self, name: str, registry: Registry, ttlSeconds: int, reactor: Any) -> None:
        """
        @param name: That of the registry, for the log.
        """
        self._name = name
        self._registry = registry
        self._pause = ttlSeconds / SIGNS
        self._reactor = reactor
        self._trouble = ProblemReporter(f"registration with {name}", reactor.seconds)
        self._isTold = False
        self._follower = RetryLoop(reactor, self._step, self._failed, self._worked)

    @property
    def problem(self) -> str | None:
        """Tell what is wrong now; C{None} if nothing is."""
        return self._trouble.problem

    def start(self) -> None:
        """Begin to tell."""
        self._follower.start()

    def stop(self) -> Deferred[None]:
        """Take back what was told, if the registry listens."""
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await self._follower.stop()
        isTold, self._isTold = self._isTold, False
        if not isTold:
            return
        leaving = Deferred.fromCoroutine(self._registry.leave())
        try:
            await leaving.addTimeout(_LEAVE_SECONDS, self._reactor)
        except Exception as error:
            # Its time to live is over soon, and there is nobody left to try it again.
            _log.warn("{name} was not told that we leave: {error}", name=self._name, error=error)

    async def _step(self) -> float:
        # Said before: who is interrupted may have been heard.
        self._isTold = True
        await self._registry.tell()
        return self._pause

    def _failed(self, text: str) -> None:
        self._trouble.begin(self._name, text)

    def _worked(self) -> None:
        self._trouble.end(self._name)


def checkRegistration(options: DiscoveryOptions, services: Iterable[str], host: str | None) -> None:
    """
    Check that there is something to tell others.

    @param services: Those that are served here.
    @param host: Where HTTP is listened for, as far as it is known; C{None} if nowhere that has a
        port.
    @raise OptionError: If an option is missing, or does not fit the others.
    """
    checkDiscovery(options)
    register = options.register or RegisterOptions()
    if host is None and (register.address is None or register.port is None):
        raise OptionError("the options register.address and register.port are missing")
    if register.address is None and host in _ANYWHERE:
        raise OptionError("the option register.address is missing: http listens at all of them")
    for name in register.services or ():
        if name not in services:
            raise OptionError(f"the option register.services names {name}, which is not here")


def makeRegistration(
    options: DiscoveryOptions,
    services: Iterable[str],
    host: str | None,
    port: int | None,
    reactor: Any,
    member: str = "",
) -> Registration:
    """
    Make what tells a registry of services.

    @param services: Those that are served here.
    @param host: The address of the HTTP listener; C{None} without one.
    @param member: What tells this process from others that serve at the same place: an entry that
        one of them takes away is not that of another.
    @raise OptionError: If an option does not fit the others.
    """
    services = tuple(services)
    checkRegistration(options, services, host)
    register = options.register or RegisterOptions()
    entries = _entries(register, services, register.address or host, register.port or port, member)
    name = options.provider or ""
    registry: Registry
    if name == "consul":
        from storagegate.upstream.consul import ConsulRegistry

        registry = ConsulRegistry(reactor, options.consul, entries, register.ttlSeconds)
    else:
        from storagegate.upstream.etcd import EtcdRegistry

        registry = EtcdRegistry(reactor, options.etcd, entries, register.ttlSeconds)
    return Registration(name, registry, register.ttlSeconds, reactor)


def _entries(
    register: RegisterOptions,
    services: Iterable[str],
    host: str | None,
    port: int | None,
    member: str,
) -> list[Entry]:
    names = {name: name for name in services} if register.services is None else register.services
    place = formatAddress(host or "", port or 0)
    suffix = f"-{member}" if member else ""
    return [
        Entry(
            name,
            f"{name}-{place}{suffix}",
            host or "",
            port or 0,
            register.weight,
            register.tls,
            register.tags,
        )
        for name in names.values()
    ]
