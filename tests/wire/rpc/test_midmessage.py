"""Clients that go while a message is on its way to them."""

from collections.abc import AsyncIterator
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from storagegate import server
from tests.support.h2client import H2Client, H2Stream
from tests.support.rpcroutes import textService
from tests.wire.rpc.support import RPCCase

LARGE = "x" * (1 << 20)
"""More than the window of a client that opens none."""


class LargeService:
    """
    Handlers that send more than fits.

    @ivar seen: What became of them.
    """

    def __init__(self, reactor: Any) -> None:
        self.seen: list[str] = []
        self._reactor = reactor

    async def waits(self, call: Any) -> AsyncIterator[str]:
        """Send something large, and wait for something else."""
        yield LARGE
        try:
            await Deferred()
        except CancelledError:
            self.seen.append("cancelled")
            raise

    async def sends(self, call: Any) -> AsyncIterator[str]:
        """Send large things for ever, and take a while to clean up."""
        try:
            while True:
                yield LARGE
        finally:
            await deferLater(self._reactor, 0.01)
            self.seen.append("clean")

    async def chats(self, call: Any) -> AsyncIterator[str]:
        """Send something large for each request."""
        try:
            async for _ in call:
                yield LARGE
        except CancelledError:
            self.seen.append("cancelled")
            raise


class MidMessageTests(RPCCase):
    """One server, and clients that take the beginning of a message."""

    timeout = 60

    async def setUp(self) -> None:  # type: ignore[override]
        """Serve."""
        super().setUp()
        self.service = LargeService(self.reactor)
        definition = textService(Waits="server", Sends="server", Chats="bidirectional")
        self.app = server.grpc().withOptions(grpc={"health": False})
        self.app.addService(definition=definition, implementation=self.service)
        self.port = await self.listen(self.app)

    async def gone(self, method: str, how: str) -> list[str]:
        """Begin to take a message, go, and wait for the handler's end; give what became of it."""

        def begin(*metadata: tuple[str, str]) -> tuple[H2Client, H2Stream]:
            client = H2Client(self.port)
            stream = client.begin(f"/test.Service/{method}", metadata)
            client.sendMessage(stream, b"", isLast=method != "Chats")
            client.isSilent = True
            client.readUntil(lambda: bool(stream.body) or stream.isEnded)
            return client, stream

        if how == "deadline":
            # On a busy machine a short deadline may pass before the message is on its way.
            for milliseconds in (200, 2000, 20_000):
                client, stream = await deferToThread(begin, ("grpc-timeout", f"{milliseconds}m"))
                if stream.body:
                    break
                client.close()
        else:
            client, stream = await deferToThread(begin)
        if how == "reset":
            client.reset(stream)
        elif how == "close":
            client.close()
        while self.app.activeCalls:
            await deferLater(self.reactor, 0.001)
        client.close()
        seen, self.service.seen = self.service.seen, []
        # Of those before the one whose message came, some may have begun late.
        return sorted(set(seen)) if how == "deadline" else seen

    async def test_waiting(self) -> None:
        """A handler that waits for something else is cancelled, however its client goes."""
        for how in ("reset", "close", "deadline"):
            self.assertEqual(await self.gone("Waits", how), ["cancelled"])

    async def test_reading(self) -> None:
        """So is one that waits for its client's next request."""
        for how in ("reset", "close", "deadline"):
            self.assertEqual(await self.gone("Chats", how), ["cancelled"])

    async def test_sending(self) -> None:
        """One that waits for room is closed, and has the time that it needs to clean up."""
        for how in ("reset", "close", "deadline"):
            self.assertEqual(await self.gone("Sends", how), ["clean"])
