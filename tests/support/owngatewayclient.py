"""C{createGatewayClient} with the interface of L{tests.support.gatewayclients}."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import blockingCallFromThread

from storagegate import ServiceError, createGatewayClient
from storagegate.gateway.client import GatewayCall
from tests.support.gatewayanswers import Answer, readProblem, streams

URLS = {
    "http": "http://127.0.0.1:{}/api",
    "websocket": "ws://127.0.0.1:{}/ws",
    "tcp": "tcp://127.0.0.1:{}",
    "udp": "udp://127.0.0.1:{}",
}
"""The URLs by transport, with a place for the port."""


class OwnClient:
    """Calls by the client of the package, which runs in the reactor of the tests."""

    def __init__(self, reactor: Any, wire: str, port: int) -> None:
        self._reactor = reactor
        self._client: Any = blockingCallFromThread(
            reactor, lambda: createGatewayClient(URLS[wire].format(port), reactor=reactor)
        )

    def begin(
        self,
        service: str,
        method: str,
        kind: str,
        requests: Sequence[Any],
        *,
        token: str | None = None,
        deadlineMs: int | None = None,
        isOpen: bool = False,
    ) -> "OwnBegun":
        """
        Start a call.

        @param isOpen: Whether a stream of requests stays open after these.
        """
        isStream = streams(kind)[0]
        call = blockingCallFromThread(
            self._reactor,
            lambda: self._client.call(
                service,
                method,
                None if isStream else requests[0],
                requests=_give(requests, isOpen) if isStream else None,
                apiKey=token,
                deadlineMs=deadlineMs,
            ),
        )
        return OwnBegun(self._reactor, call)

    def close(self) -> None:
        """Close the client."""
        blockingCallFromThread(self._reactor, self._client.close)


async def _give(requests: Sequence[Any], isOpen: bool) -> AsyncIterator[Any]:
    for each in requests:
        yield each
    if isOpen:
        await Deferred()


class OwnBegun:
    """A call of the client."""

    def __init__(self, reactor: Any, call: GatewayCall) -> None:
        self._reactor = reactor
        self._call = call

    def cancel(self) -> None:
        """Cancel the call."""
        blockingCallFromThread(self._reactor, self._call.cancel)

    def finish(self) -> Answer:
        """Read the whole answer."""

        async def read() -> Answer:
            values = []
            try:
                async for each in self._call:
                    values.append(each)
            except ServiceError as error:
                return Answer(values, readProblem(error.code, error.message, error.details))
            return Answer(values)

        answer: Answer = blockingCallFromThread(
            self._reactor, lambda: Deferred.fromCoroutine(read())
        )
        return answer
