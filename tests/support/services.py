"""The daemon's gateway, in the reactor of the tests."""

import os
from typing import Any

from twisted.internet.interfaces import IAddress
from twisted.trial.unittest import TestCase

from storagegate.daemon.config import load
from storagegate.daemon.gatewayservice import DaemonGatewayService
from storagegate.net.transport import HeldPort
from storagegate.objects.issuedkeys import KeyPair
from storagegate.storage.embedded.opening import openStore

ROOT = KeyPair("AKROOT", "the-root-secret")

PLACES = {
    "http": "tcp:0:interface=127.0.0.1",
    "grpc": "127.0.0.1:0",
    "tcp": "tcp:0:interface=127.0.0.1",
    "udp": "127.0.0.1:0",
}


class OpenRoom:
    """
    A gateway service with its own store.

    @ivar addresses: The addresses of its listeners, by name.
    """

    def __init__(self, directory: str, reactor: Any, names: tuple[str, ...], **flags: Any) -> None:
        """
        @param directory: The data directory, which is created if it is missing.
        @param names: The names of the enabled listeners.
        """
        os.makedirs(directory, exist_ok=True)
        places = {name: PLACES[name] if name in names else "off" for name in PLACES}
        given = {"data": directory, "s3": "off", "admin": "off", **places, **flags}
        configuration = load(given, {})
        self.room = DaemonGatewayService(configuration, reactor)
        self.addresses: dict[str, IAddress] = {
            name: self.open(name, PLACES[name]) for name in names
        }
        self.store = openStore(os.path.abspath(directory), reactor)
        self.room.attachStore(self.store, ROOT, "us-east-1", os.path.abspath(directory))

    def open(self, name: str, endpoint: str) -> Any:
        """Open a listener, which accepts connections at once; return its address."""
        address = self.room.open(name, endpoint)
        port = self.room.ports[name]
        if isinstance(port, HeldPort):
            port.beginListening()
        return address

    def port(self, name: str) -> int:
        """Return the port of a listener."""
        address: Any = self.addresses[name]
        return int(address.port)

    async def close(self, graceSeconds: float = 0) -> None:
        """Close the gateway service, then its store."""
        await self.room.close(graceSeconds)
        await self.store.close()


def openRoom(case: TestCase, *names: str, directory: str | None = None, **flags: Any) -> OpenRoom:
    """Open a gateway service until the test ends."""
    from twisted.internet import reactor
    from twisted.internet.defer import Deferred

    room = OpenRoom(directory or case.mktemp(), reactor, names, **flags)
    case.addCleanup(lambda: Deferred.fromCoroutine(room.close()))
    return room
