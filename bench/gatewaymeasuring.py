"""Measure one cell of the gateway bench: one wire, one server, one round."""

import json
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from attrs import frozen

from bench import grpcmeasuring
from bench.client import Started, runPinned
from bench.echoload import Load as EchoLoad
from bench.echoload import runEchoload
from bench.gatewaycases import CALL, FRAME, FRAMED_NOTE, INVOKER, MESSAGE, POSTED, TEXT, Case
from bench.gatewayrecipes import GatewayRecipe
from bench.grpccases import Case as GRPCCase
from bench.h2load import Load as H2Load
from bench.h2load import runH2load
from bench.measuring import MeasureError, aloneOnTheCores, underLoad
from bench.places import INVOKER_CLIENT
from bench.processes import Server
from bench.results import Cell
from bench.wrk import Load as WrkLoad
from bench.wrk import runWrk

ASK_SECONDS = 10
"""How long a server may take for an answer outside of any measurement."""

JSON = {"Content-Type": "application/json"}


class GatewayServer(Server):
    """
    A server of one wire that runs while the context lasts.

    @ivar warm: Whether it has been asked under load, so that compilers have done their work.
    """

    recipe: GatewayRecipe

    def __init__(self, recipe: GatewayRecipe, parent: Path) -> None:
        super().__init__(recipe, parent)
        self.warm = False

    def ask(self) -> None:
        """
        Have the bench's question answered.

        @raise OSError: If nobody answers yet.
        """
        try:
            _ANSWERS[self.recipe.wire](self)
        except (MeasureError, struct.error) as error:
            raise ConnectionError(str(error)) from error


@frozen
class Seen:
    """
    What a client saw of a run.

    @ivar complaint: What makes it invalid; nothing where it is valid.
    """

    calls: int
    seconds: float
    received: int
    p50Ms: float
    p99Ms: float
    complaint: str


# The right answer, outside of any measurement.


def _exchange(server: GatewayServer, kind: int, sent: bytes) -> bytes:
    """Send bytes on a socket, and read what comes at once."""
    with socket.socket(socket.AF_INET, kind) as client:
        client.settimeout(ASK_SECONDS)
        client.connect(("127.0.0.1", server.port))
        client.sendall(sent)
        return client.recv(65536)


def _askHTTP(server: GatewayServer) -> object:
    answer = server.exchange("POST", "/api/Echo/echo", POSTED, JSON)
    if answer.status != 200:
        raise MeasureError(f"answered {answer.status}")
    found = json.loads(answer.body)
    return found.get("data", found)


def _askFrame(server: GatewayServer, kind: int = socket.SOCK_STREAM) -> object:
    answer = _exchange(server, kind, FRAME)
    _, _, length = struct.unpack_from(">BBI", answer)
    return json.loads(answer[6 : 6 + length])["data"]


def _askDatagram(server: GatewayServer) -> object:
    return _askFrame(server, socket.SOCK_DGRAM)


def _askWebSocket(server: GatewayServer) -> object:
    from websockets.sync.client import connect

    path = "/ws" if server.recipe.name == "storagegate" else "/"
    with connect(f"ws://{server.host}{path}", open_timeout=ASK_SECONDS, proxy=None) as client:
        client.send(CALL.decode())
        return json.loads(client.recv(timeout=ASK_SECONDS))["data"]


def _askGRPC(server: GatewayServer) -> object:
    grpcmeasuring.check(server, _GRPC_CASE)  # type: ignore[arg-type]
    return {"text": TEXT}


@frozen
class _NoteCase(GRPCCase):
    """The unary call of the gRPC bench, with this bench's note."""

    @property
    def posted(self) -> bytes:
        """What a call sends."""
        return FRAMED_NOTE

    @property
    def wanted(self) -> bytes:
        """What it is answered."""
        return FRAMED_NOTE


_GRPC_CASE = _NoteCase("grpc", "Once", (64,))

_ANSWERS: Mapping[str, Callable[[GatewayServer], object]] = {
    "http": _askHTTP,
    "websocket": _askWebSocket,
    "grpc": _askGRPC,
    "tcp": _askFrame,
    "udp": _askDatagram,
}


def check(server: GatewayServer) -> None:
    """
    Check that a server gives the right answer, without which its time is worth nothing.

    @raise MeasureError: If it does not.
    """
    data = _ANSWERS[server.recipe.wire](server)
    # A bare echo gives the call back, with the text where it was.
    wanted = ({"text": TEXT}, json.loads(CALL)["data"])
    if data not in wanted:
        raise MeasureError(f"{server.recipe.wire}: answered {data!r:.200}")


# Loads, each by the client of its wire.


def _loadHTTP(server: GatewayServer, case: Case, connections: int, seconds: int) -> "Run":
    return postTo(server, case.target, connections, seconds)


def postTo(server: Server, target: str, connections: int, seconds: int) -> "Run":
    """Make what posts the bench's question to a path of a server again and again."""
    body = server.folder / "posted"
    body.write_bytes(POSTED)
    load = WrkLoad(target, connections, seconds, body)

    def run(started: Started | None) -> tuple[Seen, float]:
        report, cpu = runWrk(server.port, load, started)
        calls, errors = report.requests, str(report.errors)
        seen = (calls, report.seconds, report.received, report.p50Ms, report.p99Ms)
        return Seen(*seen, complaint=errors and f"errors: {errors}"), cpu

    return run


def _loadGRPC(server: GatewayServer, case: Case, connections: int, seconds: int) -> "Run":
    body = server.folder / "posted"
    body.write_bytes(FRAMED_NOTE)
    load = H2Load(case.target, connections, seconds, body)

    def run(started: Started | None) -> tuple[Seen, float]:
        report, cpu = runH2load(server.port, load, server.folder, started)
        isShort = report.received < report.calls * len(FRAMED_NOTE)
        complaint = f"{report.failed} calls failed" if report.failed else ""
        complaint = complaint or ("answers were short" if isShort else "")
        seen = (report.calls, report.seconds, report.received, report.p50Ms, report.p99Ms)
        return Seen(*seen, complaint=complaint), cpu

    return run


def _loadEcho(server: GatewayServer, case: Case, connections: int, seconds: int) -> "Run":
    isWebSocket = case.name == "websocket"
    message = server.folder / "message"
    message.write_bytes(MESSAGE if isWebSocket else FRAME)
    mode = "ws" if isWebSocket else case.name
    path = case.target if server.recipe.name == "storagegate" else "/"
    load = EchoLoad(mode, connections, seconds, message, path)

    def run(started: Started | None) -> tuple[Seen, float]:
        report, cpu = runEchoload(server.port, load, started)
        complaint = f"{report.wrong} answers were wrong" if report.wrong else ""
        complaint = complaint or (f"{report.lost} were lost" if report.lost else "")
        seen = (report.calls, report.seconds, report.received, report.p50Ms, report.p99Ms)
        return Seen(*seen, complaint=complaint), cpu

    return run


Run = Callable[[Started | None], tuple[Seen, float]]
_LOADS = {"http": _loadHTTP, "grpc": _loadGRPC}


def measure(
    server: GatewayServer, case: Case, connections: int, seconds: int, warmSeconds: int
) -> Cell:
    """
    Measure one cell.

    @param warmSeconds: How long the server is asked before, the first time that it is.
    @raise MeasureError: If answers are not right or not there.
    @raise RuntimeError: If the client fails.
    """
    check(server)
    makeLoad = _LOADS.get(case.name, _loadEcho)
    with aloneOnTheCores():
        if warmSeconds and not server.warm:
            makeLoad(server, case, connections, warmSeconds)(None)
            server.warm = True
        (seen, clientCpu), used = underLoad(server, makeLoad(server, case, connections, seconds))
    if seen.complaint or not seen.calls:
        raise MeasureError(f"{case.name}: {seen.complaint or 'no call was answered'}")
    return makeCell(server.recipe.name, case.name, connections, seen, used, clientCpu)


def makeCell(
    server: str, case: str, connections: int, seen: Seen, cpu: float, clientCpu: float
) -> Cell:
    """
    Draw the figures of a cell from what the client saw.

    @param cpu: Seconds that the server used.
    @param clientCpu: Seconds that the client used.
    """
    return Cell(
        server=server,
        case=case,
        connections=connections,
        rate=seen.calls / seen.seconds,
        megabytesPerSecond=seen.received / seen.seconds / 1e6,
        p50Ms=seen.p50Ms,
        p99Ms=seen.p99Ms,
        serverCpu=cpu / seen.seconds,
        clientCpu=clientCpu / seen.seconds,
        cpuMicrosPerRequest=cpu * 1e6 / seen.calls,
        requests=seen.calls,
    )


def measureInvoker(seconds: int) -> Cell:
    """
    Measure the invoker alone, in a process of its own.

    @raise RuntimeError: If that fails.
    """
    with aloneOnTheCores():
        finished = runPinned([sys.executable, str(INVOKER_CLIENT), str(seconds)])
    found = msgspec.json.decode(finished.output)
    took = found["seconds"] / found["calls"]
    seen = Seen(found["calls"], found["seconds"], 0, took * 1e3, took * 1e3, "")
    return makeCell("storagegate", INVOKER, 1, seen, found["seconds"], 0)
