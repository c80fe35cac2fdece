"""Daemons with and without a console, and the loads of its API."""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from attrs import frozen

from bench.cases import Load, MeasureError, Seen, Server, Started
from bench.loads import helping, report
from bench.processes import Running, freePort
from bench.s3.recipe import (
    CREDENTIALS,
    WorkLoad,
    endpoint,
    ourEnvironment,
    storagegate,
)
from bench.s3.requests import GROUP, LISTED_SIZE, MILLION, Work

API = "/console/api/v1/"
FIELDS = {"X-Storage-Access-Key": CREDENTIALS.access, "X-Storage-Secret-Key": CREDENTIALS.secret}
LISTED = Work("list", MILLION, LISTED_SIZE)
_LEAST_LISTS = 10

_READER = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=300)
connection.request("GET", sys.argv[2], headers={
    "X-Storage-Access-Key": sys.argv[3], "X-Storage-Secret-Key": sys.argv[4]})
response = connection.getresponse()
assert response.status == 200, response.read()
print("open", flush=True)
while response.read1(1 << 20):
    pass
"""
"""A program that reads the events of the console, and discards them."""


@frozen
class Setting:
    """
    A console.

    @ivar isUsed: Whether it has had a request.
    @ivar isLive: Whether its live view of all requests is open.
    """

    isUsed: bool = False
    isLive: bool = False


def daemon(name: str, hasConsole: bool = True, listed: tuple[Work, ...] = ()) -> Server:
    """Return a daemon with an admin listener."""

    def listeners(running: Running) -> Mapping[str, object]:
        running.notes["admin"] = freePort()
        return {"admin": endpoint(running.notes["admin"])}

    switch = {"STORAGEGATE_CONSOLE": "true" if hasConsole else "false"}
    return storagegate(name, listed, listeners, environment={**ourEnvironment(), **switch})


def request(running: Running, path: str) -> bytes:
    """
    Send a request to the console.

    @raise MeasureError: The status is not 200.
    """
    answer = running.exchange("GET", API + path, fields=FIELDS, port=running.notes["admin"])
    if answer.status != 200:
        raise MeasureError(f"{path}: {answer.status} {answer.body[:200]!r}")
    return answer.body


def besideConsole(work: Work, settings: Mapping[str, Setting]) -> WorkLoad:
    """
    Return the load of S3 requests beside a console.

    @param settings: The setting of each server, by its name.
    """

    def prepare(running: Running) -> None:
        if settings[running.server.name].isUsed:
            request(running, "overview")

    def options(running: Running, seconds: float) -> Mapping[str, object]:
        isLive = settings[running.server.name].isLive
        return {"beside": lambda: _watching(running)} if isLive else {}

    return WorkLoad(work, prepare, options=options)


@contextmanager
def _watching(running: Running) -> Iterator[None]:
    """Have the live view open."""
    words = ["-c", _READER, running.notes["admin"], f"{API}events?topics=requests"]
    with helping([*words, CREDENTIALS.access, CREDENTIALS.secret]) as process:
        yield
        if process.poll() is not None:
            raise MeasureError("the stream of events has ended")


def _repeat(move: Callable[[], int], least: int) -> Callable[[float, Started | None], Seen]:
    """Do something again and again from this process, at least a number of times."""

    def run(seconds: float, started: Started | None) -> Seen:
        times: list[float] = []
        received, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds or len(times) < least:
            start = time.perf_counter()
            received += move()
            times.append(time.perf_counter() - start)
        seen = report(times, time.perf_counter() - began, 0, received)
        return Seen(seen.requests, seen.seconds, received, seen.p50Ms, seen.p99Ms)

    return run


def lists(running: Running, connections: int, seconds: float) -> Load:
    """Return the load of pages of a list, each behind another key."""
    work = LISTED.scaled(running.session)

    def page() -> int:
        number = secrets.randbelow(work.keys - GROUP)
        after = f"f{number // GROUP:03d}-{number % GROUP:03d}"
        return len(request(running, f"buckets{work.bucket}/objects?limit=1000&after={after}"))

    page()
    return Load(_repeat(page, _LEAST_LISTS))
