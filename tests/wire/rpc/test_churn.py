"""Thousands of calls, many of which are given up at any point, leave nothing behind."""

import contextlib
import gc
import inspect
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Any

import grpc
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from storagegate import server
from storagegate.rpc.call import Call, RequestStream
from storagegate.rpc.dispatch import CallDispatch
from storagegate.rpc.engine.server import ServerCall
from tests.support.rpcroutes import textService
from tests.support.selection import long, rounds
from tests.wire.rpc.support import RPCCase

CALLS = rounds(2_000, 2_000, soak=10_000)
AT_A_TIME = 50
SEED = 20_25

PATIENCE = 30.0
LOOKS = 500
"""So many are enough: a thread that has the last event of a call may have to wait for its turn."""


class ChurnService:
    """
    Handlers of all kinds, which count themselves.

    @ivar open: How many are at work.
    @ivar total: How many there have been.
    """

    def __init__(self, reactor: Any) -> None:
        self.open = self.total = 0
        self._reactor = reactor

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self.open += 1
        self.total += 1
        try:
            yield
        finally:
            self.open -= 1

    async def unary(self, call: Any) -> str:
        """Answer at once."""
        with self._counted():
            return "answer"

    async def later(self, call: Any) -> str:
        """Answer after a turn of the reactor or two."""
        with self._counted():
            await deferLater(self._reactor, 0.002)
            return "answer"

    async def never(self, call: Any) -> str:
        """Wait until the call is over."""
        with self._counted():
            await Deferred()
            return ""

    async def download(self, call: Any) -> AsyncIterator[str]:
        """Send for ever, now and then with a pause."""
        with self._counted():
            while True:
                for _ in range(5):
                    yield "item"
                await deferLater(self._reactor, 0.001)

    async def upload(self, call: Any) -> str:
        """Count what comes."""
        with self._counted():
            return str([request async for request in call].count("item"))

    async def chat(self, call: Any) -> AsyncIterator[str]:
        """Send back what comes."""
        with self._counted():
            async for request in call:
                yield request


class ChurnClient:
    """grpcio's stubs, some calls at a time. All of it blocks, in one thread."""

    def __init__(self, port: int) -> None:
        self._random = random.Random(SEED)
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._kinds: list[Callable[[], Callable[[], object]]] = [
            lambda: self._unary("Unary"),
            lambda: self._unary("Later"),
            lambda: self._unary("Never", self._random.uniform(0, 0.05)),
            self._download,
            self._upload,
            self._chat,
        ]

    def run(self) -> None:
        """Make all calls."""
        with self._channel:
            for _ in range(CALLS // AT_A_TIME):
                started = [self._random.choice(self._kinds)() for _ in range(AT_A_TIME)]
                for finish in started:
                    # What was cancelled says so. (By its bare name trial would take "suppress" for
                    # the warnings that this module does not want to see.)
                    with contextlib.suppress(grpc.RpcError, grpc.FutureCancelledError):
                        finish()

    def _path(self, method: str) -> str:
        return f"/test.Service/{method}"

    def _isGivenUp(self) -> bool:
        return self._random.random() < 0.5

    def _unary(self, method: str, timeout: float = PATIENCE) -> Callable[[], object]:
        future = self._channel.unary_unary(self._path(method)).future(b"", timeout=timeout)
        if self._isGivenUp():
            future.cancel()
        return future.result

    def _download(self) -> Callable[[], object]:
        responses = self._channel.unary_stream(self._path("Download"))(b"", timeout=PATIENCE)
        count = self._random.randrange(20)

        def finish() -> None:
            for _ in islice(responses, count):
                pass
            responses.cancel()

        return finish

    def _upload(self) -> Callable[[], object]:
        requests = iter([b"item"] * self._random.randrange(10))
        call = self._channel.stream_unary(self._path("Upload")).future(requests, timeout=PATIENCE)
        return call.cancel if self._isGivenUp() else call.result

    def _chat(self) -> Callable[[], object]:
        requests = [b"item"] * self._random.randrange(10)
        call = self._channel.stream_stream(self._path("Chat"))(iter(requests), timeout=PATIENCE)
        count = self._random.randrange(10) if self._isGivenUp() else None

        def finish() -> None:
            for _ in islice(call, count):
                pass
            call.cancel()

        return finish


def leftObjects() -> list[object]:
    """Give what is alive of any call: the room's own objects, and the handlers above."""
    gc.collect()
    kinds = (Call, CallDispatch, RequestStream, ServerCall)
    return [
        each
        for each in gc.get_objects()
        if isinstance(each, kinds)
        or (
            (inspect.iscoroutine(each) or inspect.isasyncgen(each))
            and each.__qualname__.startswith(ChurnService.__name__)
        )
    ]


def ownThreads() -> set[threading.Thread]:
    """Give the threads, apart from the reactor's own pool, which grows now and then."""
    return {each for each in threading.enumerate() if not each.name.startswith("PoolThread-")}


class ChurnTests(RPCCase):
    """One server, one client."""

    timeout = 240

    @long("takes seconds")
    async def test_nothingLeft(self) -> None:
        """No handler, object, thread or delayed call of thousands of calls is left."""
        service = ChurnService(self.reactor)
        kinds = {"Unary": "none", "Later": "none", "Never": "none", "Download": "server"}
        definition = textService(**kinds, Upload="client", Chat="bidirectional")
        app = server.grpc().withOptions(grpc={"health": False})
        app.addService(definition=definition, implementation=service)
        # After the first turn, in which trial sets its own timer.
        await deferToThread(bool)
        threads = ownThreads()
        delayed = set(self.reactor.getDelayedCalls())
        port = await self.listen(app)
        await deferToThread(ChurnClient(port).run)
        while app.activeCalls:
            await deferLater(self.reactor, 0.01)
        self.assertEqual(service.open, 0)
        # Some are cancelled before they get here.
        self.assertGreater(service.total, CALLS // 2)
        for _ in range(LOOKS):
            if not leftObjects():
                break
            # The reactor keeps the last event that came from a thread for the rest of its turn.
            await deferLater(self.reactor, 0.05)
        self.assertEqual(leftObjects(), [])
        # What looks for requests that do not arrive stays until the server stops.
        await app.stop(0)
        self.assertEqual(set(self.reactor.getDelayedCalls()) - delayed, set())
        while ownThreads() - threads:
            # The threads of a client's streams end when they come to it.
            await deferLater(self.reactor, 0.01)
