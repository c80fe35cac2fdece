"""
How many connections a server of grpcio has, by grpc core's own account of them.

grpc core tells its users of calls, never of connections; but it keeps a book of its servers and
their sockets (channelz, U{https://github.com/grpc/proposal/blob/master/A14-channelz.md}), which
costs nothing while nobody reads it. To read of 1,000 connections takes 1 millisecond.
"""

import json
from typing import Any

from grpc._cython import cygrpc

COUNTED = ("grpc.enable_channelz", 1)
"""What has a server entered in the book."""

_PAGE = 500
"""Connections that are read at a time: 40 kB of text."""


class ServerConnections:
    """
    Counts the connections of a server, which has no name in the book.

    It is the one that was not there before: this is made, then the server, then L{find} is called.
    """

    def __init__(self) -> None:
        self._others = _servers()
        self._server: int | None = None

    def find(self) -> None:
        """Look which server is new; where another thread has made one as well, nobody knows."""
        found = _servers() - self._others
        if len(found) == 1:
            (self._server,) = found

    def count(self) -> int:
        """Count the connections, of a server that has not been destroyed."""
        if self._server is None:
            return 0
        total = first = 0
        while True:
            page = json.loads(cygrpc.channelz_get_server_sockets(self._server, first, _PAGE))
            sockets = page.get("socketRef", ())
            total += len(sockets)
            if page.get("end") or not sockets:
                return total
            first = int(sockets[-1]["socketId"]) + 1


def _servers() -> set[int]:
    """Give the numbers of all servers of this process."""
    found: set[int] = set()
    while True:
        page: Any = json.loads(cygrpc.channelz_get_servers(max(found, default=0) + 1))
        servers = page.get("server", ())
        found.update(int(each["ref"]["serverId"]) for each in servers)
        if page.get("end") or not servers:
            return found
