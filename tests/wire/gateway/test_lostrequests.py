"""A client's stream that breaks off is never taken for a whole one."""

import math
from collections.abc import AsyncIterable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from storagegate.core.errors import isExpected
from storagegate.core.task import fromCoroutine
from storagegate.gateway.transports.registry import transportNames
from tests.support.gatewayclients import CLIENTS
from tests.support.selection import long
from tests.wire.gateway.test_matrix import MatrixCase

CAUSES = ("cancel", "reset", "deadline")
READERS = ("handler", "beside", "catching", "catchingBeside")


class LostRequestsTests(MatrixCase):
    """Five transports, three ways to lose a client's stream, four readers of it."""

    async def setUp(self) -> None:  # type: ignore[override]
        """Add a service whose handlers note how their streams end."""
        self.ends: list[BaseException | None] = []
        self.begun: list[str] = []
        await super().setUp()

    def service(self) -> dict[str, Any]:
        """Define a method for each reader."""

        def note(mode: str) -> Any:
            async def handler(requests: AsyncIterable[Any], context: Any) -> Any:
                read = catch if mode.startswith("catching") else iterate
                if mode in ("handler", "catching"):
                    await read(requests)
                else:
                    fromCoroutine(read(requests)).addErrback(lambda failure: None)
                    await Deferred()
                return {"text": "done"}

            return handler

        async def iterate(requests: AsyncIterable[Any]) -> None:
            try:
                async for _ in requests:
                    self.begun.append("item")
            except BaseException as error:
                self.ends.append(error)
                raise
            self.ends.append(None)

        async def catch(requests: AsyncIterable[Any]) -> None:
            items = aiter(requests)
            while True:
                try:
                    try:
                        await anext(items)
                    except StopAsyncIteration:
                        break
                    self.begun.append("item")
                except Exception:
                    continue
                except BaseException as error:
                    self.ends.append(error)
                    raise
            self.ends.append(None)

        return {
            "name": "Noting",
            "methods": {
                f"{mode}Client": {
                    "handler": note(mode),
                    "streaming": "client",
                    "input": {"type": "object", "properties": {"text": {"type": "string"}}},
                    "output": {"type": "object", "properties": {"text": {"type": "string"}}},
                }
                for mode in READERS
            },
        }

    def services(self) -> list[dict[str, Any]]:
        """Give the further services of the gateway."""
        return [self.service()]

    @long("takes seconds")
    async def test_table(self) -> None:
        """Every reader gets an error, and no C{except Exception} takes it for an item's."""
        found: dict[str, Any] = {}
        for wire in transportNames():
            for cause in CAUSES:
                for reader in READERS:
                    if (wire, cause) == ("udp", "reset"):
                        # A datagram has no connection to lose.
                        continue
                    self.ends.clear()
                    self.begun.clear()
                    await self.lose(wire, cause, reader)
                    end = self.ends[0]
                    if end is None or not isExpected(end):
                        found[f"{wire} {cause} {reader}"] = repr(end)
        self.assertEqual(found, {})

    async def lose(self, wire: str, cause: str, reader: str) -> None:
        """Begin a stream, send an item, and lose the rest."""
        client = await deferToThread(CLIENTS[wire], self.ports[wire].getHost().port)
        self.addCleanup(deferToThread, client.close)
        name, item = f"{reader}Client", {"text": "a"}
        # On a busy machine a short deadline may pass before the handler has begun.
        for deadlineMs in (100, 1000, 10_000) if cause == "deadline" else (None,):
            more = {} if deadlineMs is None else {"deadlineMs": deadlineMs}
            begun = await deferToThread(
                client.begin, "Noting", name, "client", [item], isOpen=True, **more
            )
            over = self.reactor.seconds() + (deadlineMs or math.inf) / 1000
            await self.until(lambda over=over: self.begun or self.reactor.seconds() > over)
            if self.begun:
                break
        if cause == "cancel":
            await deferToThread(begun.cancel)
        elif cause == "reset":
            await deferToThread(begun.cancel if wire == "http" else client.close)
        await self.until(lambda: self.ends)
