"""A service whose schemas are types, over every transport, in all four kinds."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from attrs import frozen
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate.core.definitions import STREAMING
from storagegate.gateway.gateway import createProtocolGateway
from storagegate.gateway.transports.registry import transportNames
from tests.support.gatewayanswers import Answer
from tests.support.gatewayclients import CLIENTS
from tests.support.http import getJSON

SECRET = "hunter2-in-the-clear"


@frozen
class Item:
    """What is asked for."""

    text: str
    note: str | None = None


@dataclass
class Shout:
    """What comes back."""

    text: str
    loud: bool = True


@dataclass
class StoredShout(Shout):
    """What the handlers return."""

    password: str = SECRET


async def unary(item: Item, context: Any) -> Shout:
    """Take an item, return another."""
    return StoredShout(item.text.upper())


async def server(item: Item) -> AsyncIterator[Shout]:
    """Return two."""
    yield StoredShout(item.text)
    yield StoredShout(item.text.upper())


async def client(items: AsyncIterator[Item]) -> Shout:
    """Take many."""
    return StoredShout(" ".join([item.text async for item in items]))


async def bidirectional(items: AsyncIterator[Item]) -> AsyncIterator[Shout]:
    """Take many, return as many."""
    async for item in items:
        yield StoredShout(item.text.upper())


METHODS = {"none": unary, "server": server, "client": client, "bidirectional": bidirectional}


class TypedTests(TestCase):
    """Handlers have instances, clients plain values."""

    timeout = 60

    async def setUp(self) -> None:
        """Serve it on every transport."""
        from twisted.internet import reactor

        free = {"port": 0}
        grpc = {"port": 0, "reflection": True}
        self.gateway = createProtocolGateway(port=0, tcp=free, udp=free, grpc=grpc)
        self.gateway.addService("Typed", {"methods": METHODS})
        self.ports = await self.gateway.listen(reactor=reactor)
        self.addCleanup(self.gateway.stop, 0)

    async def ask(self, transport: str, kind: str, *requests: Any) -> Answer:
        """Call the method of a kind."""

        def run() -> Answer:
            client = CLIENTS[transport](self.ports[transport].getHost().port)
            try:
                answer: Answer = client.begin("Typed", kind, kind, requests).finish()
                return answer
            finally:
                client.close()

        found: Answer = await deferToThread(run)
        return found

    async def test_calls(self) -> None:
        """All kinds on all transports."""
        wanted = {
            "none": ["A"],
            "server": ["a", "A"],
            "client": ["a b"],
            "bidirectional": ["A", "B"],
        }
        for transport in transportNames():
            for kind in STREAMING:
                texts = ("a", "b") if kind in ("client", "bidirectional") else ("a",)
                answer = await self.ask(transport, kind, *({"text": each} for each in texts))
                # The subclass of the handlers has a further field, which stays there.
                shouts = [{"text": text, "loud": True} for text in wanted[kind]]
                self.assertEqual(answer, Answer(shouts), (transport, kind))

    async def test_violation(self) -> None:
        """What is invalid is named by its path, on each transport."""
        for transport in transportNames():
            answer = await self.ask(transport, "none", {"note": "x"})
            assert answer.problem is not None, transport
            self.assertEqual(answer.problem.violations, ("text",), transport)

    async def test_described(self) -> None:
        """OpenAPI has the schemas of the types."""
        address = ("127.0.0.1", self.ports["http"].getHost().port)
        status, document = await deferToThread(getJSON, address, "/api/openapi.json")
        self.assertEqual(status, 200)
        request = document["components"]["schemas"]["Typed.none.request"]
        self.assertEqual(request["required"], ["text"])
        self.assertEqual(request["properties"]["text"], {"type": "string"})
        response = document["components"]["schemas"]["Typed.none.response"]
        self.assertEqual(list(response["properties"]), ["text", "loud"])
