"""A gRPC application with some options, and what a test calls on it."""

from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.struct_pb2 import Struct
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate import server
from tests.support.h2client import H2Client

T = TypeVar("T")

ECHO = "/Probe/echo"
BIG = "/Probe/big"
BIGS = "/Probe/bigs"
HOLD = "/Probe/hold"
WAIT = "/Probe/wait"


def struct(**values: Any) -> bytes:
    """Write a message of the service."""
    message = Struct()
    message.update(values)
    return message.SerializeToString(deterministic=True)


def sized(length: int) -> bytes:
    """Write a message of so many bytes, which does compress."""
    short = len(struct(text=""))
    # Lengths within the message take more bytes as they grow.
    for overhead in range(short, short + 16):
        message = struct(text="x" * (length - overhead))
        if len(message) == length:
            return message
    raise ValueError(f"there is no message of {length} bytes")


class OptionCase(TestCase):
    """
    A case that serves one application.

    @ivar app: The application that was started last.
    @ivar context: What TLS knew of the client of the last call.
    """

    timeout = 60

    async def serve(self, grpc: dict[str, Any] | None = None, **options: Any) -> int:
        """
        Start it.

        @return: Its port.
        """
        self.context: dict[str, list[bytes]] = {}
        self.waiting: list[Deferred[None]] = []
        app = server.grpc().withOptions(grpc={"health": False, **(grpc or {})}, **options)
        app.addService(
            name="Probe",
            methods={
                "echo": self.echo,
                "big": self.big,
                "bigs": {"handler": self.bigs, "streaming": "server"},
                "hold": {"handler": self.hold, "streaming": "bidirectional"},
                "wait": self.wait,
            },
        )
        self.app = app
        port = await app.listen(0)
        self.addCleanup(app.stop, 0)
        return int(port.getHost().port)

    def echo(self, request: Any, call: Any) -> Any:
        """Give the request back."""
        self.context = call.authContext
        return request

    def big(self, request: Any) -> Any:
        """Give a text of the length that is asked for."""
        return {"text": "x" * int(request["length"])}

    async def bigs(self, request: Any) -> Any:
        """Give one text after the other."""
        for length in request["lengths"]:
            yield {"text": "x" * int(length)}

    async def hold(self, requests: Any) -> Any:
        """Say that the call is open, and let it be until its client has said everything."""
        yield {}
        async for request in requests:
            yield request

    async def wait(self, request: Any) -> Any:
        """Answer when the test lets it."""
        waiting: Deferred[None] = Deferred()
        self.waiting.append(waiting)
        await waiting
        return request

    async def within(self, port: int, use: Callable[[H2Client], T], **options: Any) -> T:
        """Do something with a connection, in a thread."""

        def run() -> T:
            with H2Client(port, **options) as client:
                return use(client)

        return await deferToThread(run)
