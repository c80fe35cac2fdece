"""
The paths of seven requests through the package: the files that each enters, and their limits.

    python -m tests.support.walks [--route NAME]

The real daemon runs in a child process, with an HTTP and a gRPC application, and every entry of a
function of the package is recorded there (L{tests.support.walkprogram}). The clients share no code
with the package, keep their connections open, and write each request in one piece. Warm-up requests
initialise caches first. The most frequent recorded walk counts, because a timer may fire during any
request. The exit code is 1 if a walk is longer than its limit.
"""

import argparse
import json
import os
import socket
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from http.client import HTTPResponse
from itertools import count, groupby, pairwise
from pathlib import Path
from statistics import mode
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import grpc
from attrs import frozen
from websockets.sync.client import connect

from tests.support.clients import Account
from tests.support.daemon import ACCESS_KEY, SECRET_KEY, Daemon, DaemonFailed
from tests.support.s3signer import ANSWER_SECONDS, Outgoing, Signer
from tests.support.walkprogram import CONTROL

WARM_UP = 25
"""Warm-up requests: enough for caches, pools and compiled validators."""

RECORDED = 9
"""
Recorded requests; the most frequent walk counts. Neither a timer nor a pause of a thread on a busy
machine affects most of them.
"""

PROGRAM = "from tests.support.walkprogram import run; run()"

_LISTENERS = (
    "--http",
    "tcp:0:interface=127.0.0.1",
    "--grpc",
    "127.0.0.1:0",
    "--service",
    "tests.support.walkprogram:service",
)


@frozen
class Limit:
    """
    The limit of a walk.

    @ivar files: The number of distinct entered files.
    @ivar switches: The number of entries in another file than the previous entry of the same
        thread.
    """

    files: int
    switches: int


LIMITS = {
    "PUT 4 KiB": Limit(28, 74),
    "GET 4 KiB": Limit(20, 34),
    "gateway HTTP call": Limit(20, 42),
    "gateway gRPC unary": Limit(14, 28),
    "gateway WebSocket call": Limit(13, 26),
    "Express GET": Limit(12, 22),
    "gRPC application unary": Limit(8, 18),
}
"""
The walks of the architecture, counted by hand, plus a tenth; for shorter walks the current figures
with a small margin.
"""


@frozen
class Walk:
    """
    A recorded request.

    @ivar threads: The files in the order of their entries, for each thread.
    """

    threads: Sequence[Sequence[str]]

    @property
    def files(self) -> set[str]:
        """Return the distinct files."""
        return {file for entries in self.threads for file in entries}

    @property
    def switches(self) -> int:
        """Return how often an entry was in another file than the previous one in its thread."""
        return sum(a != b for entries in self.threads for a, b in pairwise(entries))

    @property
    def entries(self) -> int:
        """Return the number of entered functions."""
        return sum(len(entries) for entries in self.threads)

    @property
    def route(self) -> list[str]:
        """Return the files in the order of entry, one thread after another, without repetitions."""
        return [file for entries in self.threads for file, _ in groupby(entries)]

    @property
    def trip(self) -> list[str]:
        """Return the distinct files in the order of their first entry."""
        return list(dict.fromkeys(file for entries in self.threads for file in entries))

    def fits(self, limit: Limit) -> bool:
        """Return whether the walk is within a limit."""
        return len(self.files) <= limit.files and self.switches <= limit.switches


class _Connection:
    """A connection for sequential HTTP requests."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.host = f"{address[0]}:{address[1]}"
        self._socket = socket.create_connection(address, ANSWER_SECONDS)

    def request(self, outgoing: Outgoing) -> bytes:
        """Send a request, and return the body of its response, which must succeed."""
        fields = {"host": self.host, **outgoing.headers}
        if outgoing.method != "GET":
            fields["content-length"] = str(len(outgoing.body))
        lines = [f"{outgoing.method} {outgoing.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode() + outgoing.body)
        with HTTPResponse(self._socket, method=outgoing.method) as response:
            response.begin()
            body = response.read()
        assert response.status == 200, (outgoing.method, response.status, body)
        return body

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class Client:
    """
    The clients of all walks.

    @ivar requests: The functions that make a request of each walk, by the names of L{LIMITS}.
    """

    def __init__(self, addresses: dict[str, tuple[str, int]]) -> None:
        """
        @param addresses: The addresses of C{s3}, C{http}, C{grpc}, C{express} and C{application}.
        """
        self._open = ExitStack()
        self._s3, self._http, self._express = (
            self._open.enter_context(closing(_Connection(addresses[name])))
            for name in ("s3", "http", "express")
        )
        self._signer = Signer(self._s3.host, Account(ACCESS_KEY, SECRET_KEY))
        channels = [
            self._open.enter_context(grpc.insecure_channel(f"{host}:{port}"))
            for host, port in (addresses["grpc"], addresses["application"])
        ]
        gateway = channels[0].unary_unary("/Echo/echo")
        application = channels[1].unary_unary("/Echo/Echo")
        # A compressed message enters other files.
        self._webSocket = self._open.enter_context(
            connect(f"ws://{self._http.host}/ws", compression=None)
        )
        self._body = os.urandom(4096)
        self._numbers = count(1)
        self._signed("PUT", "/walks")
        requests: tuple[Callable[[], None], ...] = (
            self._put,
            self._get,
            self._call,
            lambda: self._unary(gateway),
            self._message,
            self._route,
            lambda: self._unary(application),
        )
        self.requests = dict(zip(LIMITS, requests, strict=True))

    def close(self) -> None:
        """Close all connections."""
        self._open.close()

    def _signed(self, method: str, target: str, body: bytes = b"") -> bytes:
        return self._s3.request(self._signer.sign(Outgoing(method, target, body=body)))

    def _put(self) -> None:
        self._signed("PUT", f"/walks/{next(self._numbers)}", self._body)

    def _get(self) -> None:
        assert self._signed("GET", "/walks/1") == self._body

    def _call(self) -> None:
        fields = {"content-type": "application/json"}
        answer = self._http.request(Outgoing("POST", "/api/Echo/echo", fields, b'{"text":"hello"}'))
        assert json.loads(answer)["data"] == {"text": "hello"}, answer

    def _unary(self, call: Any) -> None:
        message = b"\x0a\x05hello"
        assert call(message, timeout=ANSWER_SECONDS, wait_for_ready=True) == message

    def _message(self) -> None:
        data = {"text": "hello"}
        message = {"id": 1, "service": "Echo", "method": "echo", "data": data}
        self._webSocket.send(json.dumps(message))
        answer = json.loads(self._webSocket.recv(ANSWER_SECONDS))
        assert answer["type"] == "response", answer

    def _route(self) -> None:
        assert json.loads(self._express.request(Outgoing("GET", "/users/7"))) == {"id": "7"}


class RecordedDaemon:
    """The daemon and the applications in a child process; a context manager."""

    def __init__(self, data: Path) -> None:
        """@param data: The data directory of the daemon, which need not exist."""
        self._control, theirs = socket.socketpair()
        self._control.settimeout(ANSWER_SECONDS)
        self._lines = self._control.makefile("rw")
        self._theirs = theirs
        self._daemon = Daemon(
            data,
            *_LISTENERS,
            environment={CONTROL: str(theirs.fileno())},
            expect=("s3", "http", "grpc"),
            descriptors=(theirs.fileno(),),
            program=PROGRAM,
        )

    def __enter__(self) -> Self:
        try:
            with self._theirs:
                self._daemon.start()
            ports = self._readLine()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.addresses = {name: self._daemon.address(name) for name in ("s3", "http", "grpc")}
        self.addresses |= {name: ("127.0.0.1", port) for name, port in ports.items()}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._daemon.kill()
        self._lines.close()
        self._control.close()

    def take(self) -> Walk:
        """Return the entries since the last call."""
        print("take", file=self._lines, flush=True)
        return Walk(self._readLine())

    def _readLine(self) -> Any:
        line = self._lines.readline()
        if not line:
            raise DaemonFailed(f"does not answer:\n{self._daemon.log}")
        return json.loads(line)


def usual(walks: Sequence[Walk]) -> Walk:
    """Return the walk with the most frequent figures; of several, the shortest."""
    sizes = [(each.switches, len(each.files), each.entries) for each in walks]
    return walks[sizes.index(mode(sorted(sizes)))]


def measure() -> dict[str, Walk]:
    """Make all walks; blocks for a few seconds."""
    found = {}
    with (
        TemporaryDirectory() as folder,
        RecordedDaemon(Path(folder, "data")) as daemon,
        closing(Client(daemon.addresses)) as client,
    ):
        for name, request in client.requests.items():
            for _ in range(WARM_UP):
                request()
            daemon.take()
            walks = []
            for _ in range(RECORDED):
                request()
                walks.append(daemon.take())
            found[name] = usual(walks)
    return found


def describeTrip(name: str, walk: Walk) -> str:
    """
    Format a walk's files in the order of their first entry, as on the page of the architecture.
    """
    text = " ".join(f"``{file}``" for file in walk.trip)
    return "\n".join([name, *(f"    {line}" for line in textwrap.wrap(text, 100))])


def main(arguments: Sequence[str]) -> int:
    """
    Print all walks beside their limits.

    @param arguments: The arguments of the command line, without the program.
    @return: The exit code.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.support.walks")
    parser.add_argument("--route", help="a walk, by a part of its name, whose files are printed")
    parser.add_argument(
        "--trips",
        action="store_true",
        help="the files of each walk, as docs/architecture.rst has them",
    )
    options = parser.parse_args(arguments)
    found = measure()
    if options.trips:
        print(*(describeTrip(name, found[name]) for name in LIMITS), sep="\n\n")
        return 0
    print(
        f"{'walk':<24}{'files':>7}{'most':>6}{'switches':>10}{'most':>6}{'entries':>9}{'threads':>9}"
    )
    for name, limit in LIMITS.items():
        walk = found[name]
        sizes = f"{len(walk.files):>7}{limit.files:>6}{walk.switches:>10}{limit.switches:>6}"
        mark = "" if walk.fits(limit) else "  exceeded"
        print(f"{name:<24}{sizes}{walk.entries:>9}{len(walk.threads):>9}{mark}")
    for name, walk in found.items():
        if options.route and options.route.lower() in name.lower():
            print(f"\n{name}:", *walk.route, sep="\n  ")
    return int(not all(found[name].fits(limit) for name, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
