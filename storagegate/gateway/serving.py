"""A gateway as a server of a L{group<storagegate.serving.group>}."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred

from storagegate.gateway.gateway import ProtocolGateway
from storagegate.gateway.transports.registry import findTransport
from storagegate.net.endpoints import ListeningPort
from storagegate.serving.group import readEndpoint, readHostPort
from storagegate.serving.supervisor import SharedListener
from storagegate.serving.worker import ProgramWorker


class GatewayFront:
    """A gateway with the listeners of its transports."""

    kind = "gateway"

    def __init__(self, gateway: ProtocolGateway) -> None:
        self._gateway = gateway
        self._moved: dict[str, str] = {}

    @property
    def memory(self) -> Mapping[str, str]:
        """Return the makers of the memory that its workers share."""
        return self._gateway.sharedMemory()

    def prepare(self, reactor: Any) -> None:
        """Begin its access log."""
        self._gateway.logToStandardError(reactor)

    def accepts(self, flag: str) -> bool:
        """Return whether it has the listener of a transport."""
        return any(each.name == flag for each in self._gateway.sharedListeners())

    def relocate(self, flag: str, address: int | str) -> None:
        """Set the address of a transport."""
        read = readHostPort if findTransport(flag).address == "hostport" else readEndpoint
        self._moved[flag] = read(address, self._gateway.settings.hostname)

    def listeners(self) -> Sequence[SharedListener]:
        """Return the listeners of its transports."""
        return [
            evolve(each, endpoint=self._moved.get(each.name, each.endpoint))
            for each in self._gateway.sharedListeners()
        ]

    def open(
        self, reactor: Any, worker: ProgramWorker | None, places: Mapping[str, str]
    ) -> Deferred[Any]:
        """Listen, see L{Front<storagegate.serving.group.Front>}."""
        self._gateway.place({**self._moved, **places})
        return self._gateway.listen(reactor=reactor)

    def ports(self) -> Iterable[tuple[str, ListeningPort]]:
        """Return its ports by transport."""
        return self._gateway.ports.items()

    def close(self, graceMs: float, patienceMs: float) -> Deferred[Any]:
        """Stop serving."""
        return self._gateway.stop(graceMs, patienceMs)

    def warnings(self) -> Iterable[str]:
        """Return nothing: workers share the state of a gateway."""
        return ()
