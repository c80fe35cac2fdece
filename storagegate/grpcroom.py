"""
What the daemon serves over gRPC: the reference services, health and reflection.

Nothing here is imported unless the listener is on: grpcio alone takes 20 MB and 100 ms.
"""

import os
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress

from storagegate.core.definitions import ServiceDefinition
from storagegate.rpc.application import GRPCServer
from storagegate.rpc.gatewayform import implementService
from storagegate.rpc.protos import ourProto
from storagegate.services.users import makeUserService
from storagegate.services.userstore import SQLiteUserStore

USERS_FILE = "users.sqlite"
"""Where in the data directory the users are."""


class GRPCRoom:
    """The gRPC listener and the services behind it."""

    def __init__(self, directory: str, reactor: Any) -> None:
        """
        @param directory: The data directory.
        """
        self._reactor = reactor
        self._users = SQLiteUserStore(os.path.join(directory, USERS_FILE), reactor)
        self._server = GRPCServer().withOptions(grpc={"reflection": True})
        _addUsers(self._server, makeUserService(self._users))

    def open(self, place: str) -> IAddress:
        """
        Begin to listen, and to serve once the reactor runs.

        @param place: C{HOST:PORT}.
        @return: The address; port 0 has become another one.
        @raise CannotListenError: If the place cannot be had.
        """
        found: list[Any] = []
        self._server.listen(place, reactor=self._reactor).addBoth(found.append)
        [port] = found
        if hasattr(port, "raiseException"):
            port.raiseException()
        address: IAddress = port.getHost()
        return address

    def close(self, graceSeconds: float) -> Deferred[None]:
        """Let calls end, cancel them after the grace, and close the users' file."""
        return self._server.stop(graceSeconds * 1000).addBoth(lambda result: self._users.close())


def _addUsers(server: GRPCServer, definition: ServiceDefinition) -> None:
    service = ourProto("user.proto").UserService
    implementation = implementService(definition, service, {"CreateMultipleUsers": _withoutErrors})
    server.addService(definition=service, implementation=implementation)
    # By the name that it has on the other wires, too.
    server.setServingStatus(definition.name, "SERVING")


def _withoutErrors(result: dict[str, Any]) -> dict[str, Any]:
    """Leave out what the message CreateMultipleUsersResponse has no field for."""
    return {key: value for key, value in result.items() if key != "errors"}
