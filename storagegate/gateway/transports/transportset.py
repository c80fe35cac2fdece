"""The transports of a gateway that are in use: made when they are wanted, opened, and closed."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.logger import Logger

from storagegate.core.definitions import ServiceDefinition
from storagegate.gateway.host import TransportContext
from storagegate.gateway.transports.registry import (
    Transport,
    findTransport,
    loadReference,
    transports,
)

_log = Logger()


class TransportSet:
    """
    The transports that a gateway has in use.

    A transport is imported when it is made: a gateway pays for those that it has.

    @ivar host: What they share.
    @ivar ports: The open ports by transport; one without a listener of its own has the port of the
        transport that it shares.
    """

    def __init__(self, host: TransportContext) -> None:
        self.host = host
        self.ports: dict[str, Any] = {}
        self._made: dict[str, Any] = {}
        self._services: list[ServiceDefinition] = []

    def add(self, service: ServiceDefinition) -> None:
        """Serve a service."""
        self._services.append(service)
        for each in self._made.values():
            each.add(service)

    def setHealth(self, services: Mapping[str, bool], overall: bool) -> None:
        """
        Publish the health of services, where a transport has a protocol for that.

        @param services: By name.
        @param overall: That of the server as a whole.
        """
        for each in self._made.values():
            each.setHealth(services, overall)

    def get(self, name: str) -> Any:
        """
        Return the C{ITransport} or C{IGuest} of a transport; make it if there is none.

        @raise KeyError: If there is no transport of that name.
        """
        made = self._made.get(name)
        if made is None:
            make = loadReference(findTransport(name).make)
            made = make(self.host, self.host.settings.of(name))
            for service in self._services:
                made.add(service)
            self._made[name] = made
        return made

    async def openAll(self, names: Iterable[str], hostname: str) -> dict[str, Any]:
        """
        Open transports at the addresses that the options name.

        @return: The ports by transport.
        @raise CannotListenError: If an address is taken: then no port is left open.
        """
        try:
            for name, address in self.addresses(tuple(names), hostname).items():
                await self.open(name, address)
        except Exception:
            await self.close(0)
            raise
        return dict(self.ports)

    def addresses(self, names: tuple[str, ...], hostname: str) -> dict[str, str]:
        """Return the address of each listener, as L{open} takes it."""
        rows = [row for row in transports() if row.name in names]
        return {
            row.name: self._address(row, hostname)
            for row in rows
            if row.shares is None or not self._isCarried(row, names)
        }

    def _isCarried(self, row: Transport, names: tuple[str, ...]) -> bool:
        """Return whether the listener that a row shares is opened by another of the names."""
        sharing = [each.name for each in transports() if each.shares == row.shares]
        first = next(name for name in (row.shares, *sharing) if name in names)
        return first != row.name

    def _address(self, row: Transport, hostname: str) -> str:
        settings = self.host.settings
        own = settings.of(row.name)
        address: str | None = getattr(own, "address", None)
        if address is not None:
            return address
        port = getattr(own, "port", settings.port)
        interface = getattr(own, "hostname", None)
        if row.address == "hostport":
            bracketed = f"[{hostname}]" if ":" in hostname else hostname
            return f"{interface or bracketed}:{port}"
        escaped = (interface or hostname).replace(":", "\\:")
        return f"tcp:{port}:interface={escaped}"

    def open(self, name: str, address: str) -> Deferred[Any]:
        """
        Open a listener.

        @param name: A transport, which is served with those enabled that share its listener; or one
            that shares a listener, which is served there alone.
        @param address: As the row of the listener says.
        @return: The port. Fails with C{CannotListenError} if the address is taken.
        """
        row = findTransport(name)
        carrier = self.get(row.shares or name)
        enabled = self.host.settings.enabled
        sharing = [each.name for each in transports() if each.shares == (row.shares or name)]
        guests = [each for each in sharing if each in enabled or each == name]
        if guests:
            carrier.carry([self.get(each) for each in guests], row.shares is None)

        def opened(port: Any) -> Any:
            self.ports.update(dict.fromkeys((name, *guests), port))
            return port

        opening: Deferred[Any] = carrier.open(address)
        return opening.addCallback(opened)

    async def close(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> None:
        """
        Close everything, each with the same grace; what fails is logged.

        @param idleGraceSeconds: How long clients are still served that are with this process, where
            another one serves the same addresses.
        """
        made = self._made
        # The connections of a carrier may still ask for the first one of these.
        guests = {name: each for name, each in made.items() if findTransport(name).shares}
        self._made = dict(guests)
        self.ports.clear()

        def close(name: str, closeOne: Callable[[], Any]) -> Deferred[Any]:
            return maybeDeferred(closeOne).addErrback(self._failed, name)

        await gatherResults(
            [
                close(name, partial(each.close, graceSeconds, idleGraceSeconds))
                for name, each in made.items()
            ]
        )
        await gatherResults([close(name, each.closeLate) for name, each in guests.items()])
        for name in guests:
            self._made.pop(name, None)

    def _failed(self, failure: Any, name: str) -> None:
        _log.failure("the wire {name} did not close in order", failure, name=name)
