"""An application as a server of a L{group<storagegate.serving.group>}."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred

from storagegate.core.perprocess import perProcessWarning
from storagegate.http.application import Application
from storagegate.http.dispatch import WEBSOCKET
from storagegate.net.endpoints import ListeningPort
from storagegate.serving.group import readEndpoint
from storagegate.serving.supervisor import SharedListener
from storagegate.serving.worker import ProgramWorker

_SOCKETS = (
    "each worker has its own WebSockets; to send a message to all of them, use"
    " storagegate.server.broadcast"
)


class ApplicationFront:
    """An application, with the transports of gateways that its options open."""

    kind = "http"

    def __init__(self, app: Application) -> None:
        self._app = app
        self._endpoint: str | None = None

    @property
    def memory(self) -> Mapping[str, str]:
        """Return the makers of the memory that its gateways share between workers."""
        made: dict[str, str] = {}
        for gateway, names in self._app.gateways():
            made.update(gateway.sharedMemory(names))
        return made

    def prepare(self, reactor: Any) -> None:
        """Begin the logs of its gateways."""
        for gateway, _names in self._app.gateways():
            gateway.logToStandardError(reactor)

    def accepts(self, flag: str) -> bool:
        """Return whether it has a listener of a kind."""
        return flag == "http"

    def relocate(self, flag: str, address: int | str) -> None:
        """Set its address."""
        self._endpoint = readEndpoint(address, self._app.settings.hostname)

    def listeners(self) -> Sequence[SharedListener]:
        """Return its listener, and those of its gateways."""
        endpoint = self._endpoint or self._app.endpoint()
        found = [SharedListener("", endpoint)]
        for gateway, names in self._app.gateways():
            found += gateway.sharedListeners(names)
        return found

    def open(
        self, reactor: Any, worker: ProgramWorker | None, places: Mapping[str, str]
    ) -> Deferred[Any]:
        """Listen, see L{Front<storagegate.serving.group.Front>}."""
        for gateway, _names in self._app.gateways():
            gateway.place(places)
        place = places.get("", self._endpoint)
        return self._app.listen(place, reactor=reactor)

    def ports(self) -> Iterator[tuple[str, ListeningPort]]:
        """Yield its ports, and those of its gateways."""
        for port in self._app.ports:
            yield "", port
        for gateway, names in self._app.gateways():
            yield from ((name, gateway.ports[name]) for name in names if name in gateway.ports)

    def close(self, graceMs: float, patienceMs: float) -> Deferred[Any]:
        """Stop serving."""
        return self._app.close(int(graceMs), int(patienceMs))

    def warnings(self) -> Iterable[str]:
        """Yield warnings about the state of its middleware, and about its WebSockets."""
        for layer in self._app.allLayers():
            yield from filter(None, map(perProcessWarning, layer.functions()))
            if layer.route is not None and WEBSOCKET in layer.route.counted:
                yield _SOCKETS
