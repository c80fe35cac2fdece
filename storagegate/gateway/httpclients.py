"""Who calls over HTTP, or has asked for a WebSocket there."""

from typing import Any

from storagegate.core.context import Client

_MAX_KNOWN = 1024
"""Clients that are remembered, as many as a busy gateway has connections; half a megabyte."""

_LONGEST_AGENT = 200
"""Bytes of a user agent: that of a browser has about a hundred."""


class Clients:
    """
    Makes the clients of requests.

    Those of a connection are the same again and again, and to make one anew takes a microsecond,
    four times as long as to find it.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, bytes | None], Client] = {}

    def of(self, req: Any) -> Client:
        """Give whoever sent a request of the application."""
        lean, address = req.lean, req.ip
        # Nobody tells the port that a proxy's client has.
        port = lean.clientPort if address == lean.clientHost else 0
        agent = lean.headers.get(b"user-agent")
        key = (address, port, agent)
        client = self._known.get(key)
        if client is None:
            client = Client(
                f"{address}:{port}" if port else address,
                address,
                port,
                None if agent is None else agent.decode("latin-1"),
            )
            if agent is None or len(agent) <= _LONGEST_AGENT:
                if len(self._known) >= _MAX_KNOWN:
                    self._known.clear()
                self._known[key] = client
        return client
