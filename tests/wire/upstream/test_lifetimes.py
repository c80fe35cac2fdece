"""What forwarded calls leave behind."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from twisted.internet.task import deferLater

from storagegate.core.errors import ServiceError
from tests.support.garbage import findCycles, withoutCollector
from tests.support.ports import heldPort
from tests.support.rawupstream import Answer, RawConnection
from tests.support.selection import long
from tests.wire.upstream.upstreamcase import CHUNKED, UpstreamCase, chunk

_ITEM = CHUNKED + chunk(b'{"data": 1}\n')

ANSWERS: dict[str, Answer] = {
    "result": lambda connection: connection.json(b'{"data": 1}'),
    "error": lambda connection: connection.json(b'{"error": "NOT_FOUND", "message": ""}', 404),
    "unavailable": lambda connection: connection.json(
        b'{"error": "UNAVAILABLE", "message": ""}', 503
    ),
    "nonsense": lambda connection: connection.json(b"nonsense"),
    "hangs up": RawConnection.close,
    "items": lambda connection: connection.write(_ITEM + chunk(b"")),
    "late error": lambda connection: connection.write(
        _ITEM + chunk(b'{"error": "NOT_FOUND", "message": ""}\n') + chunk(b"")
    ),
    "late nonsense": lambda connection: connection.write(_ITEM + chunk(b"nonsense\n")),
    "breaks off": lambda connection: (connection.write(_ITEM), connection.close()),
}


async def _requests() -> AsyncIterator[Any]:
    yield {"a": 1}


async def _broken() -> AsyncIterator[Any]:
    yield {"a": 1}
    raise ServiceError("SOLD_OUT", "", 409)


class LifetimeTests(UpstreamCase):
    """No call and no error is part of a reference cycle when it has ended."""

    async def findCycles(self, *calls: tuple[str, Callable[[], Any]]) -> dict[str, list[str]]:
        """
        Make calls twice, for the first time makes caches; return what the second has left.

        @param calls: Methods, and what makes their requests.
        """
        for method, requests in calls:
            await self.end(method, requests())
        found = {}
        # Once for all: it looks at every object of a process that has run thousands of tests.
        with withoutCollector(self):
            for method, requests in calls:
                await self.end(method, requests())
                await deferLater(self.reactor, 0.02)
                found[method] = findCycles()
        return {method: cycles for method, cycles in found.items() if cycles}

    async def end(self, method: str, request: Any) -> None:
        """Call, and wait for the end, whatever it is."""
        try:
            result = await self.call(method, request)
            if hasattr(result, "__aiter__"):
                async for _ in result:
                    pass
        except ServiceError:
            pass

    maxDiff = None

    @long("takes a second or more")
    async def test_responses(self) -> None:
        """Whatever the instance responds."""
        calls = [(method, dict) for method in ("unary", "safe", "server")]
        streams = [(method, _requests) for method in ("client", "bidirectional")]
        for name, answer in ANSWERS.items():
            self.serve(self.upstream(answer).port, ejectAfter=100)
            self.assertEqual(await self.findCycles(*calls, *streams), {}, name)

    @long("takes a second or more")
    async def test_unreachable(self) -> None:
        """If no instance can be reached."""
        self.serve(heldPort(self), heldPort(self), ejectAfter=100)
        self.assertEqual(await self.findCycles(("unary", dict)), {})

    async def test_requests(self) -> None:
        """If the caller's own stream fails."""
        self.serve(self.upstream(lambda connection: None).port)
        calls = [(method, _broken) for method in ("client", "bidirectional")]
        self.assertEqual(await self.findCycles(*calls), {})
