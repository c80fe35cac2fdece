"""Where the listeners would listen, as the endpoints themselves say it, with nothing opened."""

import re
import socket
from typing import Any

from attrs import define, field, frozen
from twisted.internet.endpoints import serverFromString
from twisted.internet.protocol import Factory

from storagegate.config import Configuration

_NAMES = ("s3", "admin", "http", "grpc", "tcp", "udp")
_HOST_PORT = ("grpc", "udp")


# A colon, and what comes up to the next one that no backslash stands before.
_PARTS = re.compile(r":((?:\\.|[^:\\])*)", re.DOTALL)
_NAMED = re.compile(r"(\w+)=(.*)", re.DOTALL)


@frozen
class Place:
    """
    What a listener needs of the machine.

    @ivar description: As it was configured.
    @ivar host: The address; empty for all of them.
    @ivar port: 0 for any that is free; L{None} where there is none.
    @ivar path: That of a UNIX socket.
    @ivar error: Why there is no such place; everything else is empty then.
    """

    name: str
    description: str
    host: str = ""
    port: int | None = None
    path: str | None = None
    error: str | None = None


@define
class _Notes:
    """A reactor that notes where it is asked to listen, and opens nothing."""

    asked: list[dict[str, Any]] = field(factory=list)

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> None:
        """Take note."""
        self.asked.append({"port": port, "host": interface})

    def listenSSL(
        self,
        port: int,
        factory: Any,
        contextFactory: Any,
        backlog: int = 50,
        interface: str = "",
    ) -> None:
        """Take note."""
        self.asked.append({"port": port, "host": interface})

    def listenUNIX(
        self, address: str, factory: Any, backlog: int = 50, mode: int = 0o666, wantPID: int = 0
    ) -> None:
        """Take note."""
        self.asked.append({"path": address})


def placesOf(configuration: Configuration) -> list[Place]:
    """Give the place of each listener that is on."""
    found = []
    for name in _NAMES:
        description = getattr(configuration.listeners, name)
        if description is not None:
            found.append(_place(name, description))
    return found


def isHandedOver(description: str) -> bool:
    """Tell whether the socket comes from whoever starts the daemon."""
    return description.startswith("systemd:")


def arguments(description: str) -> tuple[list[str], dict[str, str]]:
    """
    Take an endpoint's description apart.

    A backslash keeps the character behind it from being a colon or an equals sign.
    """
    positional, named = [], {}
    for part in _PARTS.findall(description):
        match = _NAMED.fullmatch(part)
        if match is None:
            positional.append(_plain(part))
        else:
            named[match[1]] = _plain(match[2])
    return positional, named


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def _place(name: str, description: str) -> Place:
    if name in _HOST_PORT:
        host, _, port = description.rpartition(":")
        return Place(name, description, host.strip("[]"), int(port))
    if isHandedOver(description):
        return Place(name, description)
    notes = _Notes()
    try:
        endpoint = serverFromString(notes, description)
        endpoint.listen(Factory()).addErrback(lambda failure: None)
    except Exception as error:
        # Parsers of endpoints are plugins: each has its own way to say no.
        return Place(name, description, error=" ".join(str(error).split()) or type(error).__name__)
    if not notes.asked:
        return Place(name, description, error="this kind of endpoint is not known here")
    return Place(name, description, **notes.asked[0])


def addressesOf(place: Place, kind: socket.SocketKind) -> list[tuple[Any, ...]]:
    """
    Resolve the address of a place.

    @raise OSError: There is none of that name.
    """
    flags = socket.AI_PASSIVE
    return socket.getaddrinfo(place.host or "0.0.0.0", place.port, type=kind, flags=flags)
