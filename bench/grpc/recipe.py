"""
The service of the gRPC cases, C{apps/echo.proto}, and its load.

Every message is the same one, in requests and in responses: a text and a number, 25 bytes.
"""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from attrs import evolve, frozen

from bench import peers
from bench.cases import CLIENT_CORE, Load, MeasureError, Server
from bench.loads import finish, h2load, helping, measuredProgram
from bench.processes import Running, Session

APPS = Path(__file__).with_name("apps")
PROTO = APPS / "echo.proto"
LIBRARIES = ("grpcio", "protobuf")
COPIES = 1000
"""Messages of a stream: enough to make its start and end negligible."""

TEXT = b"hello, hello, hello!"
MESSAGE = b"\x0a%c%b\x10\xe8\x07" % (len(TEXT), TEXT)
"""A C{Note} with the text and the number of copies."""

SERVICE = "bench.Echo"
_HOLD = "Chat"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_CLIENT_SECONDS = 60
"""Longer than the client waits for an answer."""

OURS = peers.ourApp(APPS / "storagegate_app.py", packages=(*LIBRARIES, "twisted"))
NATIVE = evolve(
    peers.ourApp(APPS / "storagegate_app.py", "native", packages=("twisted",)),
    name="storagegate, native",
)
"""The same application on the native engine."""


def framed(message: bytes) -> bytes:
    """Put a message into its frame of gRPC, uncompressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def askHTTP2(running: Running) -> None:
    """
    Begin to speak HTTP/2.

    @raise OSError: The server does not answer.
    """
    with socket.create_connection(("127.0.0.1", running.port), timeout=_CLIENT_SECONDS) as client:
        client.sendall(_PREFACE)
        if not client.recv(1):
            raise ConnectionError("the server does not speak HTTP/2")


def checkCall(running: Running, path: str, posted: bytes, wanted: bytes) -> None:
    """
    Compare the answer to a call with the right one.

    @param posted: The frames of the request.
    @raise MeasureError: It differs.
    """
    words = [sys.executable, "-m", "bench.grpc.client", "ask", str(running.port), path]
    done = subprocess.run(
        words,
        input=posted,
        capture_output=True,
        timeout=_CLIENT_SECONDS,
        check=False,
        cwd=peers.CHECKOUT,
    )
    if done.returncode:
        raise MeasureError(f"{path}: {done.stderr.decode(errors='replace')[-300:]}")
    if done.stdout != wanted:
        raise MeasureError(f"{path}: {len(done.stdout)} bytes, not the right answer")


@frozen
class Call:
    """
    A call, as the load of h2load: on one connection.

    @ivar sent: Messages of a request.
    @ivar answered: Messages of its answer.
    @ivar held: Streams that are open meanwhile, each used once a second.
    """

    method: str
    message: bytes = MESSAGE
    sent: int = 1
    answered: int = 1
    held: int = 0

    def __call__(self, running: Running, connections: int, seconds: float) -> Load:
        """Check the answer, and return the load."""
        path, frame = f"/{SERVICE}/{self.method}", framed(self.message)
        posted, wanted = frame * self.sent, frame * self.answered
        checkCall(running, path, posted, wanted)
        run = h2load(running, path, connections, posted, (len(wanted), len(frame)))
        if not self.held:
            return Load(run)
        return Load(run, beside=lambda: holding(running, self.held))


@contextmanager
def holding(running: Running, streams: int) -> Iterator[float]:
    """
    Hold streams open, each in use, while the context lasts.

    @return: The growth of the server's memory.
    @raise MeasureError: One of them is not answered, or ends with an error.
    """
    before = running.memory()
    words = ["-m", "bench.grpc.client", "hold", running.port, f"/{SERVICE}/{_HOLD}", streams]
    with helping(words) as process:
        yield running.memory() - before
        finish(process)


def withHTTP2(server: Server) -> Server:
    """Return a server that is asked over HTTP/2."""
    return evolve(server, ask=askHTTP2)


# Clients: the measured side is the program of the load.


@contextmanager
def _answering(session: Session) -> Iterator[Running]:
    """Run the server of all clients, the fastest that there is, on the core of loads."""
    server = evolve(withHTTP2(NATIVE), cores=CLIENT_CORE)
    with Running(server, session) as running:
        yield running


def asClient(server: Server) -> Server:
    """
    Return a client, from the server that its program would be.

    The program gets the port of the server that answers it, and then the method, the calls in
    flight and the seconds.
    """

    def prepare(running: Running) -> None:
        server.prepare(running)
        session = running.session
        running.port = session.once("grpc/clients", partial(_answering, session)).port

    return evolve(server, command=None, prepare=prepare, data=server.command)


@frozen
class ClientLoad:
    """Calls of a client, each in flight followed by the next one."""

    method: str

    def __call__(self, running: Running, connections: int, seconds: float) -> Load:
        """Return the load."""
        words = [*running.server.data(running), self.method, connections]
        return Load(measuredProgram(words, running.server.environment))


def ourClient(engine: str, name: str) -> Server:
    """Return our client on an engine."""
    app = APPS / "client_storagegate.py"
    made = peers.ourApp(app, engine, packages=(*LIBRARIES, "twisted"))
    return asClient(evolve(made, name=name))


OUR_CLIENT = ourClient("grpcio", OURS.name)
NATIVE_CLIENT = ourClient("native", NATIVE.name)
