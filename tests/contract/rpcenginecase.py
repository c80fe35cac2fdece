"""What the contracts of both ends of gRPC share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from storagegate.net.tls import ServerTLSOptions
from storagegate.rpc.credentials import GRPCClientTLS
from tests.support.certificates import Authority

PATIENCE = 30.0
CHUNK = bytes(64 * 1024)
OWN = [("grpc.use_local_subchannel_pool", 1)]

STALLED = 200
"""No engine has so many chunks in its own buffers and those of a connection."""


class EngineCase(TestCase):
    """What the contracts of both ends share."""

    timeout = 60

    def setUp(self) -> None:
        """Take the reactor that runs the tests."""
        from twisted.internet import reactor

        self.reactor: Any = reactor

    async def turn(self, condition: Callable[[], object]) -> None:
        """Wait for something; the test's own timeout is the limit."""
        while not condition():
            await deferLater(self.reactor, 0.002, lambda: None)

    def credentials(self) -> tuple[Any, Any]:
        """Make those of a server and of its client, which know each other."""
        authority = Authority(Path(self.mktemp()))
        cert, key = authority.issue()
        ownCert, ownKey = authority.issue("alice", "client")
        tls = ServerTLSOptions(
            cert=str(cert), key=str(key), ca=str(authority.path), clientAuth="require"
        )
        return tls, GRPCClientTLS(
            authority.path.read_bytes(), ownKey.read_bytes(), ownCert.read_bytes()
        )


def read(call: Any, ahead: int = 0) -> Deferred[bytes | None]:
    """Read a message of a call of either end."""
    message: Deferred[bytes | None] = Deferred()
    call.read(message.callback, *((ahead,) if ahead else ()))
    return message
