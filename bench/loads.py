"""The load programs: their command lines, and their reports as L{Seen}."""

import json
import os
import re
import resource
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from attrs import frozen

from bench.cases import CLIENT_CORE, SERVER_CORE, MeasureError, Seen, Started
from bench.peers import compiled, environment, program
from bench.processes import ANSWER_SECONDS, Answer, Running

RUN_SECONDS = 300
"""The longest time that a load program may take; the slowest fill takes a tenth of it."""

WRK_LATE_SECONDS = 2
"""A response may come this much later than the end of the run before it counts as an error."""

HTTP1 = "HTTP 1.1"
"""The protocol of a server that a case asks over HTTP/1.1 beside others over HTTP/2."""

_WRK_SCRIPT = Path(__file__).with_name("clients") / "wrk.lua"
_RECORD = struct.Struct("<IIQ")
_HEAD_FLAG = 256
"""Bit of a record's tag: the response has no body, despite its Content-Length."""

_STATUS = re.compile(rb":status: ([0-9]+)")
_MEDIA_TYPE = re.compile(rb"content-type: ([^;\r\n]+)", re.IGNORECASE)
"""Fields in the output of nghttp."""

_H2LOAD = re.compile(
    rb"finished in ([0-9.]+)(s|ms|us),.*?([0-9]+) done,.*?([0-9]+) failed,.*?\(([0-9]+)\) data",
    re.DOTALL,
)
_UNITS = {b"s": 1, b"ms": 1000, b"us": 1_000_000}
"""How many of these are a second."""


def runPinned(
    command: Sequence[object],
    started: Started | None = None,
    core: str = CLIENT_CORE,
    variables: Mapping[str, str] | None = None,
) -> tuple[bytes, float]:
    """
    Run a program on one core until it ends.

    @return: Its output and its CPU seconds.
    @raise RuntimeError: It fails; with its messages.
    """
    before = _childrenSeconds()
    with subprocess.Popen(
        ["taskset", "-c", core, *map(str, command)],
        env={**os.environ, **environment(), **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        if started is not None:
            started(process.pid)
        try:
            output, complaint = process.communicate(timeout=RUN_SECONDS)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise RuntimeError(f"the load failed: {complaint.decode(errors='replace')[-600:]}")
    return output, _childrenSeconds() - before


def _childrenSeconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def helping(words: Sequence[object]) -> Iterator[subprocess.Popen[bytes]]:
    """
    Run a program beside the load, on its core, while the context lasts.

    @return: The program, after it has printed its first line.
    """
    with subprocess.Popen(
        ["taskset", "-c", CLIENT_CORE, sys.executable, *map(str, words)],
        env={**os.environ, **environment()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            if not process.stdout.readline():
                raise MeasureError(f"{words}: {process.stderr.read()[-300:]!r}")
            yield process
        finally:
            process.kill()


def finish(process: subprocess.Popen[bytes]) -> str:
    """
    Close the input of such a program, which ends it.

    @return: The rest of its output.
    @raise MeasureError: It fails.
    """
    output, complaint = process.communicate(timeout=120)
    if process.returncode:
        raise MeasureError(complaint.decode(errors="replace")[-300:])
    return output.decode()


# wrk: the same HTTP/1.1 request on each connection.


class _WrkErrors(msgspec.Struct):
    connect: int
    read: int
    write: int
    status: int
    timeout: int


class _WrkReport(msgspec.Struct):
    requests: int
    seconds: float
    received: int
    p50Ms: float
    p99Ms: float
    errors: _WrkErrors


def readWrk(output: bytes, size: int, clientSeconds: float = 0) -> Seen:
    """
    Read the report of wrk.

    @param size: The least size of an answer. Large answers are counted by their bytes, because
        whole ones are few and end together.
    """
    try:
        report = msgspec.json.decode(output.rstrip().rpartition(b"\n")[2], type=_WrkReport)
    except msgspec.DecodeError as error:
        raise RuntimeError(f"wrk's report cannot be read ({error}): {output[-300:]!r}") from error
    found = msgspec.structs.asdict(report.errors)
    fault = ", ".join(f"{count} errors of {name}" for name, count in found.items() if count)
    if not fault and not report.requests:
        fault = f"no answer was complete within {report.seconds:.1f} s"
    if not fault and report.received < report.requests * size:
        fault = "answers were short"
    requests = report.received / size if size >= 1 << 20 else report.requests
    return Seen(
        requests,
        report.seconds,
        report.received,
        report.p50Ms,
        report.p99Ms,
        clientSeconds,
        fault=fault,
    )


def wrk(
    running: Running, target: str, connections: int, body: bytes = b"", size: int = 0
) -> Callable[[float, Started | None], Seen]:
    """
    Return a load of wrk, which knows whole seconds only.

    @param body: The body of a POST; empty for a GET.
    """

    def run(seconds: float, started: Started | None) -> Seen:
        whole = max(1, round(seconds))
        words: list[object] = [program("wrk"), "-t1", f"-c{connections}", f"-d{whole}s"]
        words += ["--timeout", f"{whole + WRK_LATE_SECONDS}s", "-s", _WRK_SCRIPT]
        words.append(f"http://{running.host}{target}")
        if body:
            path = running.folder / "posted"
            path.write_bytes(body)
            words += ["--", path]
        output, used = runPinned(words, started)
        return readWrk(output, size, used)

    return run


# h2load: gRPC calls, or HTTP requests over HTTP/2 or HTTP/1.1.

_GRPC_FIELDS = {"content-type": "application/grpc", "te": "trailers"}


def readH2load(
    output: bytes, log: str, callBytes: int, messageBytes: int, clientSeconds: float = 0
) -> Seen:
    """
    Read the report of h2load and its log of calls.

    @param callBytes: The size of the answer to a call. A call that ends with an error is shorter.
    @param messageBytes: The size of a message. Messages are counted, those of calls that the end
        cut off included.
    """
    match = _H2LOAD.search(output)
    if match is None:
        raise RuntimeError(f"h2load's report cannot be read: {output[-300:]!r}")
    duration, unit, *counts = match.groups()
    seconds = float(duration) / _UNITS[unit]
    calls, failed, received = map(float, counts)
    # Columns: the start, the HTTP status, the microseconds of the call.
    took = sorted(int(line.split("\t")[2]) / 1000 for line in log.splitlines())
    fault = f"{failed:.0f} of {calls:.0f} calls failed" if failed else ""
    if not calls:
        fault = f"no call ended within {seconds:.1f} s"
    elif received < calls * callBytes:
        fault = fault or "answers were short"
    return Seen(
        received / messageBytes,
        seconds,
        received,
        took[len(took) // 2] if took else 0,
        took[len(took) * 99 // 100] if took else 0,
        clientSeconds,
        fault=fault,
    )


def h2load(
    running: Running,
    path: str,
    inFlight: int,
    posted: bytes,
    sizes: tuple[int, int],
    fields: Mapping[str, str] = _GRPC_FIELDS,
    isHTTP1: bool = False,
) -> Callable[[float, Started | None], Seen]:
    """
    Return a load of h2load: the same call, on one connection.

    @param posted: The body of a call; empty for a GET.
    @param sizes: The bytes of the answer to a call, and of a message.
    @param fields: The header fields of a call.
    @param isHTTP1: Whether to speak HTTP/1.1, with a connection for each call in flight.
    """

    def run(seconds: float, started: Started | None) -> Seen:
        body, log = running.folder / "posted", running.folder / "h2load.log"
        # h2load appends to it.
        log.unlink(missing_ok=True)
        words = [program("h2load"), "-t1", f"-D{max(1, round(seconds))}", f"--log-file={log}"]
        words += ["--h1", f"-c{inFlight}", "-m1"] if isHTTP1 else ["-c1", f"-m{inFlight}"]
        words += [f"--header={name}: {value}" for name, value in fields.items()]
        if posted:
            body.write_bytes(posted)
            words.append(f"--data={body}")
        output, used = runPinned([*words, running.url(path)], started)
        return readH2load(output, log.read_text(), *sizes, clientSeconds=used)

    return run


def askOverHTTP2(running: Running, target: str, fields: Mapping[str, str] | None = None) -> Answer:
    """
    Send one GET over HTTP/2, outside of any measurement.

    @raise MeasureError: The server does not answer over HTTP/2.
    """
    words = [*(f"-H{k}: {v}" for k, v in (fields or {}).items()), running.url(target)]
    shown = _nghttp("-nv", *words)
    status, kind = _STATUS.search(shown.stdout), _MEDIA_TYPE.search(shown.stdout)
    if shown.returncode or status is None:
        raise MeasureError(f"{target}: no answer over HTTP/2: {shown.stderr[-200:]!r}")
    body = _nghttp(*words).stdout
    return Answer(int(status[1]), kind[1].decode().lower() if kind else "", body)


def _nghttp(*words: str) -> subprocess.CompletedProcess[bytes]:
    command = [program("nghttp"), *words]
    return subprocess.run(command, capture_output=True, timeout=ANSWER_SECONDS, check=False)


# tlsload: a new TLS connection with a resumed session for each request.


class TLSReport(msgspec.Struct):
    """
    The report of tlsload.

    @ivar wrong: Answers that are errors or of another size, and connections that failed.
    @ivar full: Connections that did not resume a session.
    """

    calls: int
    wrong: int
    full: int
    seconds: float
    received: int
    p50Ms: float
    p99Ms: float


def readTLSload(output: bytes, clientSeconds: float = 0) -> Seen:
    """Read the report of tlsload; one full handshake makes the measurement invalid."""
    report = msgspec.json.decode(output, type=TLSReport)
    fault = f"{report.wrong} of {report.calls} answers were wrong" if report.wrong else ""
    if not fault and report.full:
        fault = f"{report.full} of {report.calls} connections did not resume their session"
    figures = (report.calls, report.seconds, report.received, report.p50Ms, report.p99Ms)
    return Seen(*figures, clientSeconds, fault=fault)


def tlsload(
    running: Running, request: bytes, connections: int, size: int, version: str
) -> Callable[[float, Started | None], Seen]:
    """
    Return a load of tlsload.

    @param request: A whole request that asks for C{Connection: close}.
    @param size: The size of the body of the answer.
    @param version: The version of TLS, C{1.2} or C{1.3}.
    """

    def run(seconds: float, started: Started | None) -> Seen:
        path = running.folder / "request"
        path.write_bytes(request)
        words = [compiled("tlsload"), "-p", running.port, "-c", connections, "-d", seconds]
        output, used = runPinned([*words, "-f", path, "-n", size, "-v", version], started)
        return readTLSload(output, used)

    return run


# echoload: one message in flight on each TCP connection, WebSocket or UDP address.


class EchoReport(msgspec.Struct):
    """
    The report of echoload.

    @ivar wrong: Answers that are errors, or not as long as the first.
    @ivar lost: Messages without an answer within a second.
    """

    calls: int
    wrong: int
    lost: int
    seconds: float
    received: int
    p50Ms: float
    p99Ms: float


def echoWords(
    port: int, mode: str, connections: int, seconds: float, message: Path, path: str = "/"
) -> list[str]:
    """Return the command line of echoload; C{mode} is C{tcp}, C{udp} or C{ws}."""
    words = [compiled("echoload"), "-m", mode, "-p", str(port), "-c", str(connections)]
    return [*words, "-d", str(seconds), "-f", str(message), "-u", path]


def echoload(
    running: Running, mode: str, connections: int, message: bytes, path: str = "/"
) -> Callable[[float, Started | None], Seen]:
    """Return a load of echoload."""

    def run(seconds: float, started: Started | None) -> Seen:
        file = running.folder / "message"
        file.write_bytes(message)
        words = echoWords(running.port, mode, connections, seconds, file, path)
        output, used = runPinned(words, started)
        report = msgspec.json.decode(output, type=EchoReport)
        fault = f"{report.wrong} answers were wrong" if report.wrong else ""
        fault = fault or (f"{report.lost} were lost" if report.lost else "")
        figures = (report.calls, report.seconds, report.received, report.p50Ms, report.p99Ms)
        return Seen(*figures, used, fault=fault)

    return run


# blast: HTTP/1.1 requests that were encoded and signed beforehand.


class Latency(msgspec.Struct, frozen=True):
    """Milliseconds from the first byte sent to the last byte received."""

    n: int
    p50: float
    p99: float
    max: float


class Outcome(msgspec.Struct, frozen=True):
    """The report of blast."""

    issued: int
    done: int
    bad: int
    lost: int
    reconnects: int
    laps: int
    seconds: float
    received: int
    sent: int
    clientCpu: float
    lastBadStatus: int
    tags: dict[str, Latency]


@frozen
class Record:
    """
    One request of a file for blast.

    @ivar tag: Selects the latency figures that the response counts for, 0 to 7.
    """

    head: bytes
    length: int = 0
    tag: int = 0
    isHead: bool = False

    def encode(self) -> bytes:
        """Encode it."""
        tag = self.tag | (_HEAD_FLAG if self.isHead else 0)
        return _RECORD.pack(tag, len(self.head), self.length) + self.head


def bodyFile(folder: Path, size: int) -> Path:
    """Make, once, a file of random bytes whose beginning serves as request body."""
    path = folder / f"body-{size}"
    if not path.exists():
        path.write_bytes(os.urandom(size))
    return path


def blastWords(
    port: int, requests: Path, body: Path, connections: int, seconds: float = 0
) -> list[str]:
    """
    Return the command line of blast.

    @param seconds: How long the requests repeat; 0 sends each once.
    """
    words = [compiled("blast"), "-p", str(port), "-c", str(connections)]
    words += ["-f", str(requests), "-b", str(body)]
    return [*words, "-d", str(seconds)] if seconds else words


def runBlast(words: Sequence[str], started: Started | None = None) -> Outcome:
    """Run blast until it ends."""
    return msgspec.json.decode(runPinned(words, started)[0], type=Outcome)


# Programs that measure themselves.


def selfMeasured(
    *words: object, variables: Mapping[str, str] | None = None
) -> Callable[[float, Started | None], Seen]:
    """
    Return a load that is a program of ours, which prints L{Seen} as JSON at its end.

    @param words: A module and its arguments; the seconds are added.
    @param variables: Further variables of its environment.
    """
    return measuredProgram([sys.executable, "-m", *words], variables)


def measuredProgram(
    command: Sequence[object], variables: Mapping[str, str] | None = None
) -> Callable[[float, Started | None], Seen]:
    """
    Return a load that is a program in any language, which prints the fields of L{Seen} as JSON.

    @param command: Its command line; the seconds are added.
    @param variables: See L{selfMeasured}.
    """

    def run(seconds: float, started: Started | None) -> Seen:
        output, _ = runPinned([*command, seconds], started, SERVER_CORE, variables)
        return Seen(**json.loads(output.splitlines()[-1]))

    return run


def report(
    times: Sequence[float], seconds: float, cpu: float, received: float = 0, requests: int = 0
) -> Seen:
    """
    Make the report of a program that measures itself.

    @param times: Seconds of each request.
    @param requests: The number of requests, if not each was timed.
    """
    ordered = sorted(times)
    return Seen(
        requests or len(ordered),
        seconds,
        received,
        ordered[len(ordered) // 2] * 1000,
        ordered[len(ordered) * 99 // 100] * 1000,
        serverSeconds=cpu,
    )


def prints(seen: Seen) -> str:
    """Encode a report for L{selfMeasured}."""
    found = ("requests", "seconds", "received", "p50Ms", "p99Ms", "serverSeconds")
    return json.dumps({name: getattr(seen, name) for name in found})
