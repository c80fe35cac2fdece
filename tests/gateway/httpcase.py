"""An adapter of HTTP in an application, and a client of it."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

from twisted.internet.defer import DeferredQueue
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.gateway.host import ErrorHook
from storagegate.gateway.options import GatewayOptions, readOptions
from storagegate.gateway.transports.http.listener import HTTPTransport
from storagegate.http.application import Application
from storagegate.http.testing import Client, TestCall, TestResponse
from tests.support.gateway import makeHost

NDJSON = {"Content-Type": "application/x-ndjson"}
EVENTS = {"Accept": "text/event-stream"}


class Upload:
    """A body that is sent piece by piece, as the test says."""

    def __init__(self) -> None:
        self._pieces: DeferredQueue[bytes | None] = DeferredQueue()

    def send(self, piece: bytes) -> None:
        """Send a piece."""
        self._pieces.put(piece)

    def end(self) -> None:
        """Send the end."""
        self._pieces.put(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            yield piece


class HTTPCase(SynchronousTestCase):
    """A test of calls over HTTP."""

    def serve(
        self,
        services: Iterable[Any] = (),
        transformError: ErrorHook | None = None,
        **http: Any,
    ) -> Client:
        """
        Serve the services of tests and others.

        @param http: The options of HTTP.
        """
        self.clock = Clock()
        settings = readOptions(GatewayOptions(), {"http": http})
        self.host, self.probe = makeHost(self.clock, services, transformError, settings=settings)
        self.adapter = HTTPTransport(self.host, settings.of("http"))
        self.app = Application()
        self.adapter.install(self.app)
        self.client = Client(self.app, clock=self.clock)
        return self.client

    def call(self, method: str, request: Any = None, **options: Any) -> TestResponse:
        """Call a method of the probe."""
        if request is not None:
            options["json"] = request
        return self.client.post(f"/api/Probe/{method}", **options)

    def lines(self, *requests: bytes) -> dict[str, Any]:
        """Give the options of a request whose body is lines."""
        return {"body": b"\n".join(requests), "headers": NDJSON}

    def upload(self, method: str, **headers: str) -> tuple[Upload, TestCall]:
        """Begin to call a method with a stream."""
        body = Upload()
        self.addCleanup(body.end)
        path = f"/api/Probe/{method}"
        return body, self.client.start("POST", path, body=body, headers={**NDJSON, **headers})

    def assertError(self, response: TestResponse, status: int, code: str) -> Any:
        """See that a response is an error in its shape, and give its details."""
        shape = response.json()
        self.assertEqual((response.status, shape["error"]), (status, code))
        self.assertEqual(shape.keys() | {"details"}, {"error", "message", "details"})
        self.assertEqual(response.headers["content-type"], "application/json; charset=utf-8")
        return shape.get("details")
