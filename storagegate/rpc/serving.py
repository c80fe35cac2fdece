"""A gRPC server as a server of a L{group<storagegate.serving.group>}."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred

from storagegate.core.perprocess import perProcessWarning
from storagegate.net.endpoints import ListeningPort
from storagegate.rpc.application import LISTENER, GRPCServer
from storagegate.rpc.options import SETTLE_MS
from storagegate.serving.group import readHostPort
from storagegate.serving.supervisor import SharedListener
from storagegate.serving.worker import ProgramWorker

_PATH = "unix:"


class GRPCFront:
    """A gRPC server, whose workers each bind its port."""

    kind = LISTENER
    memory: Mapping[str, str] = {}

    def __init__(self, rpc: GRPCServer) -> None:
        self._rpc = rpc
        self._address: str | None = None

    def prepare(self, reactor: Any) -> None:
        """Do nothing: a gRPC server has no log of its own."""

    def accepts(self, flag: str) -> bool:
        """Return whether it has a listener of a kind."""
        return flag == self.kind

    def relocate(self, flag: str, address: int | str) -> None:
        """Set its address."""
        isPath = isinstance(address, str) and address.startswith(_PATH)
        hostname = self._rpc.settings.hostname
        self._address = str(address) if isPath else readHostPort(address, hostname)

    def listeners(self) -> Sequence[SharedListener]:
        """
        Return its listener.

        @raise ValueError: If it is a UNIX socket.
        """
        address = self._address or self._rpc.hostPort()
        if address.startswith(_PATH):
            raise ValueError(f"workers cannot share the UNIX socket of gRPC, {address}")
        return [SharedListener("", address, "reuseport")]

    def open(
        self, reactor: Any, worker: ProgramWorker | None, places: Mapping[str, str]
    ) -> Deferred[Any]:
        """Listen, see L{Front<storagegate.serving.group.Front>}."""
        if worker is not None:
            self._rpc.withOptions(grpc={"reusePort": True})
        return self._rpc.listen(places.get("", self._address), reactor=reactor)

    def ports(self) -> Iterator[tuple[str, ListeningPort]]:
        """Yield its ports."""
        for port in self._rpc.ports:
            yield "", port

    def close(self, graceMs: float, patienceMs: float) -> Deferred[Any]:
        """Stop serving."""
        return self._rpc.stop(graceMs, min(SETTLE_MS, patienceMs))

    def warnings(self) -> Iterator[str]:
        """Yield warnings about the state of its middleware."""
        yield from filter(None, map(perProcessWarning, self._rpc.middleware))
