"""
A transport of httpx that calls an application in its own process, for tests that use httpx.

It is a L{Client<storagegate.http.testing.Client>} behind httpx's interface: functions for threads
run synchronously, and only C{transport.client.advance} moves the clock. httpx is not a requirement
of the package.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx

from storagegate.http.testing import Client, StillWaiting, TestCall

_POLL_SECONDS = 0.005
"""How often an asynchronous client looks for the response while the reactor runs."""

_PATIENCE_SECONDS = 30.0
"""How long it looks: more than a handler takes in a test."""


class TestTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """
    The transport.

    @ivar client: The test client, whose clock the test advances. Its cookies are not used.
    """

    __test__ = False

    def __init__(self, app: Any) -> None:
        self.client = Client(app)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """
        Send a request; called by httpx.

        @raise StillWaiting: If the application does not respond.
        """
        call = self._start(request, request.read())
        self.client.settle(lambda: call.head is not None or call.done)
        return self._response(call)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """
        Send a request; called by httpx. Waits for the response while the asyncio reactor runs.

        @raise StillWaiting: If the application does not respond.
        """
        call = self._start(request, await request.aread())
        await self._wait(lambda: call.head is not None or call.done)
        return self._response(call)

    def _start(self, request: httpx.Request, body: bytes) -> TestCall:
        # httpx has its own cookies.
        self.client.cookies.clear()
        url = request.url
        target = f"{url.scheme}://{url.netloc.decode('ascii')}{url.raw_path.decode('ascii')}"
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in request.headers.raw
            # The body is whole.
            if name.lower() not in (b"transfer-encoding", b"content-length")
        ]
        return self.client.start(request.method, target, headers=headers, body=body or None)

    async def _wait(self, isReady: Callable[[], bool]) -> None:
        self.client.settle(isReady)
        reactor: Any = sys.modules.get("twisted.internet.reactor")
        waited = 0.0
        while not isReady() and reactor is not None and reactor.running:
            if waited > _PATIENCE_SECONDS:
                return
            await asyncio.sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS
            self.client.flush()

    def _response(self, call: TestCall) -> httpx.Response:
        head = call.head
        if head is None:
            if call.done:
                # Raises the reason.
                return httpx.Response(call.response.status)
            raise StillWaiting(call.name, call)
        return httpx.Response(
            head.status,
            headers=[
                (name.encode("latin-1"), value.encode("latin-1")) for name, value in head.headers
            ],
            stream=_CallStream(self, call),
            extensions={
                "http_version": b"HTTP/1.1",
                "reason_phrase": head.phrase.encode("latin-1"),
            },
        )


class _CallStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of a response, as far as the application has sent it."""

    def __init__(self, transport: TestTransport, call: TestCall) -> None:
        self._transport = transport
        self._call = call
        self._position = 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self._transport.client.settle(self._isReady)
            piece = self._take()
            if not piece:
                return
            yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            await self._transport._wait(self._isReady)
            piece = self._take()
            if not piece:
                return
            yield piece

    def _isReady(self) -> bool:
        return self._call.done or len(self._call.received) > self._position

    def _take(self) -> bytes:
        """
        Return the next bytes; none at the end.

        @raise StillWaiting: If the application has not sent more.
        @raise ResponseLost: If the response was truncated.
        """
        piece = self._call.received[self._position :]
        self._position += len(piece)
        if piece:
            return piece
        if not self._call.done:
            raise StillWaiting(self._call.name, self._call)
        # Raises the reason of a truncated body.
        return self._call.response.body[self._position :]

    def close(self) -> None:
        """Disconnect, unless the response is complete."""
        if not self._call.done:
            self._call.disconnect()

    async def aclose(self) -> None:
        """Disconnect, unless the response is complete."""
        self.close()
