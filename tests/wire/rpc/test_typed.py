"""Methods of a gRPC application whose messages are made of types."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from twisted.trial.unittest import TestCase

from storagegate import GrpcError, createGrpcClient, server


@dataclass
class Item:
    """A request."""

    text: str
    note: str | None = None


@dataclass
class Shout:
    """A response."""

    text: str


async def shout(item: Item) -> Shout:
    """Take an instance, return another."""
    if item.note == "bad":
        return Shout(3)  # type: ignore[arg-type]
    return Shout(item.text.upper())


async def chat(items: AsyncIterator[Item], call: Any) -> AsyncIterator[Shout]:
    """Take many, return as many."""
    async for item in items:
        yield Shout(item.text.upper())


class TypedTests(TestCase):
    """A server and a client that learns of it by reflection."""

    timeout = 60

    async def setUp(self) -> None:
        """Serve, and connect."""
        from twisted.internet import reactor

        app = server.grpc().withOptions(grpc={"reflection": True})
        app.addService(name="Typed", methods={"shout": shout, "chat": chat})
        port = await app.listen(0, "127.0.0.1", reactor=reactor)
        self.addCleanup(app.stop, 0)
        address = f"127.0.0.1:{port.getHost().port}"
        self.client = createGrpcClient(address, credentials="insecure", reactor=reactor)
        self.addCleanup(self.client.close)

    async def test_calls(self) -> None:
        """Handlers have instances, the client has mappings."""
        self.assertEqual(await self.client.shout(text="a"), {"text": "A"})
        call = self.client.chat([{"text": "a"}, {"text": "b"}])
        self.assertEqual([each async for each in call], [{"text": "A"}, {"text": "B"}])

    async def test_errors(self) -> None:
        """What the request lacks is named; a result that does not fit is an error of the server."""
        for request, code, text in (
            ({"note": "x"}, 3, "text is required"),
            ({"text": "a", "note": "bad"}, 13, ""),
        ):
            try:
                await self.client.shout(request)
            except GrpcError as error:
                self.assertEqual(error.code, code)
                self.assertIn(text, error.message)
            else:
                self.fail(code)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
