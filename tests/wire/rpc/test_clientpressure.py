"""How far the client runs ahead, both ways."""

from collections.abc import AsyncIterator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from tests.support.selection import long
from tests.wire.rpc.clientcase import ClientCase, spawn, until

# More than HTTP/2 and the system's own buffers take before anybody has to wait: some 20 MB at most.
_BUFFERED = 32 * 1024 * 1024


class PressureTests(ClientCase):
    """Who is slow slows the other side down."""

    async def test_slowReader(self) -> None:
        """A consumer that takes no responses stops the server after a bounded number of them."""
        body = bytes(100_000)
        responses = aiter(self.client.split(count=100_000, body=body))
        first = await anext(responses)
        self.assertEqual(len(first["body"]), 100_000)
        echo = self.server.echo
        before = -1
        # A while without another one means that it has stopped.
        while before != echo.given:
            before = echo.given
            await deferToThread(echo.release.wait, 0.3)
        self.assertLess(echo.given * len(body), _BUFFERED)
        for _ in range(300):
            await anext(responses)
        self.assertGreater(echo.given, before)
        await responses.aclose()

    async def test_fewFetched(self) -> None:
        """Of the responses that have come, only a few are fetched before they are asked for."""
        call = self.client.split(count=1000)
        responses = aiter(call)
        await anext(responses)
        await until(lambda: len(call._messages) == 8)
        await deferToThread(self.server.echo.release.wait, 0.2)
        self.assertEqual(len(call._messages), 8)
        rest = [parcel["count"] async for parcel in responses]
        self.assertEqual(rest, list(range(1, 1000)))

    @long("takes a second or more")
    async def test_slowServer(self) -> None:
        """A server that does not read stops the requests after a bounded number of them."""
        taken = 0

        async def requests() -> AsyncIterator[Any]:
            nonlocal taken
            yield {"text": "deaf"}
            while taken < 2000:
                taken += 1
                yield {"body": bytes(100_000)}

        call = self.client.join(requests())
        before = -1
        while before != taken:
            before = taken
            await deferToThread(self.server.echo.release.wait, 0.3)
        self.assertLess(taken * 100_000, _BUFFERED)
        self.server.echo.release.set()
        self.assertEqual((await call)["count"], 2001)

    async def test_emptyRequests(self) -> None:
        """Empty messages take room, too: an endless iterable of them does not hold the reactor."""
        taken = 0

        def requests() -> Any:
            nonlocal taken
            yield {"text": "deaf"}
            while True:
                taken += 1
                yield {}

        call = self.client.join(requests())
        await until(lambda: taken > 100)
        call.cancel()
        await self.assertEnds(call, "CANCELLED")

    async def test_oneAtATime(self) -> None:
        """Responses are taken by one at a time; who else tries is told so."""
        call = self.client.split(text="wait")
        responses = aiter(call)

        async def take() -> Any:
            return await anext(responses)

        first: Deferred[Any] = spawn(take())
        await self.assertFailure(spawn(take()), RuntimeError)
        call.cancel()
        await self.assertFailure(first, Exception)
