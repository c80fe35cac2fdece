"""Streams to and from instances, whose ends are not equally fast, or end before the other."""

from collections.abc import AsyncIterator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from storagegate.core.errors import codedError
from tests.support.rawupstream import RawConnection
from tests.wire.upstream.upstreamcase import CHUNKED, UpstreamCase, chunk


class PressureTests(UpstreamCase):
    """Streams whose ends are not equally fast."""

    async def test_slowInstance(self) -> None:
        """A caller's requests wait for an instance that does not read."""
        upstream = self.upstream(
            lambda connection: connection.transport.pauseProducing()  # type: ignore[union-attr]
        )
        self.serve(upstream.port)
        taken = 0

        async def requests() -> AsyncIterator[Any]:
            nonlocal taken
            while True:
                taken += 1
                yield {"text": "x" * 3000}
                await deferLater(self.reactor, 0)

        calling = self.call("client", requests())
        before = -1
        while before != taken:
            before = taken
            await deferLater(self.reactor, 0.2)
        # What the sockets of both ends hold, and no more.
        self.assertLess(taken * 3000, 16 * 1024 * 1024)
        calling.cancel()
        await self.refused(calling, "CANCELLED")

    async def test_slowCaller(self) -> None:
        """An instance waits for a caller that does not read."""
        sent = 0

        class Pusher:
            """Sends items as fast as they are taken."""

            def __init__(self, connection: RawConnection) -> None:
                self.connection = connection

            def resumeProducing(self) -> None:
                """Send one."""
                nonlocal sent
                sent += 1
                self.connection.write(chunk(b'{"data": "%b"}\n' % (b"x" * 3000)))

            def stopProducing(self) -> None:
                """Stop."""

        def answer(connection: RawConnection) -> None:
            connection.write(CHUNKED)
            pusher: Any = Pusher(connection)
            connection.transport.registerProducer(pusher, False)  # type: ignore[union-attr]

        upstream = self.upstream(answer)
        self.serve(upstream.port)
        items = await self.call("server")
        await items.__anext__()
        before = -1
        while before != sent:
            before = sent
            await deferLater(self.reactor, 0.2)
        self.assertLess(sent * 3000, 16 * 1024 * 1024)
        await items.__anext__()
        await items.aclose()


class EndTests(UpstreamCase):
    """Who ends first."""

    async def test_requestsFail(self) -> None:
        """What goes wrong with the requests is what the caller is told; the instance sees a cut."""
        upstream = self.upstream(lambda connection: None)
        self.serve(upstream.port)

        async def requests() -> AsyncIterator[Any]:
            yield {"a": 1}
            while not upstream.requests:
                await deferLater(self.reactor, 0.005)
            raise codedError("VALIDATION_ERROR", "this does not fit")

        ended = upstream.whenEnded()
        message = await self.refused(self.call("client", requests()), "VALIDATION_ERROR")
        self.assertEqual(message, "this does not fit")
        await ended
        # No instance that responded is to blame.
        self.assertEqual(self.value("attempts_total", "Probe", "cancelled"), 1)

    async def test_answeredEarly(self) -> None:
        """An instance that has said all need not hear the rest: the requests are closed."""
        body = b'{"error": "NOT_FOUND", "message": "no such place"}'
        upstream = self.upstream(lambda connection: connection.json(body, 404))
        self.serve(upstream.port)
        for method in ("client", "bidirectional"):
            closed: list[str] = []

            async def requests(closed: list[str] = closed) -> AsyncIterator[Any]:
                try:
                    yield {"a": 1}
                    await Deferred()
                finally:
                    closed.append("closed")

            async def call(method: str = method, given: Any = requests) -> Any:
                result = await self.call(method, given())
                return [each async for each in result]

            await self.refused(Deferred.fromCoroutine(call()), "NOT_FOUND")
            self.assertEqual(closed, ["closed"])
