"""The daemon with its S3 listener, its data, and the load of signed requests."""

import hashlib
import os
import secrets
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from attrs import evolve, field, frozen

from bench import peers
from bench.cases import OURS, Load, MeasureError, Seen, Server, Started
from bench.loads import Outcome, Record, blastWords, bodyFile, runBlast
from bench.processes import Answer, Running
from bench.s3.requests import (
    BUCKET,
    GROUP,
    Work,
    freshPaths,
    listedKeys,
    puts,
    requestsOf,
    storedPaths,
)
from bench.s3.signing import (
    Authorizer,
    Credentials,
    Request,
    anonymous,
    encodeHead,
    fieldsOf,
    keyHeaders,
    signer,
    targetOf,
)

CREDENTIALS = Credentials("BENCHACCESSKEY", "bench-secret-key-of-the-bench")
FILL_CONNECTIONS = 64
FILL_ATTEMPTS = 3
SMALL_FILL_CONNECTIONS = 16
BATCH = 50_000
"""Requests of one file of a large fill: 25 MB for a bucket of any size."""

SERIAL_DELETES = 1_000
"""One connection deletes fewer, or a round with a slow server takes a minute."""


@frozen
class Traits:
    """
    The properties of an S3 server that its data depends on.

    @ivar credentials: Its key pair; L{None} if it checks no signature.
    @ivar plainFolders: Its buckets are directories below C{data}: large ones are made as files.
    @ivar quickHeaders: It takes the key pair in headers, so that lists are filled unsigned.
    @ivar protocol: The protocol to ask it over, where a case compares several.
    """

    credentials: Credentials | None = CREDENTIALS
    plainFolders: bool = False
    quickHeaders: bool = False
    protocol: str = ""


def ourEnvironment() -> dict[str, str]:
    """Return the variables of a daemon with the key pair of the benchmarks."""
    return {
        **peers.environment(),
        "STORAGEGATE_ACCESS_KEY": CREDENTIALS.access,
        "STORAGEGATE_SECRET_KEY": CREDENTIALS.secret,
    }


def runProgram(*words: object) -> None:
    """Run a module of ours that makes data, before a daemon opens it."""
    environment = {**os.environ, **ourEnvironment()}
    command = [sys.executable, "-m", *map(str, words)]
    subprocess.run(command, check=True, env=environment)


def daemonWords(running: Running, listeners: Mapping[str, object]) -> list[str]:
    """
    Return the command line of the daemon.

    @param listeners: The endpoint of each listener; all others are off.
    """
    twistd = [sys.executable, "-c", "from twisted.scripts.twistd import run; run()"]
    words = [*twistd, "-n", "--pidfile=", "storagegate", "--data", str(running.folder / "data")]
    for name in ("s3", "admin", "http", "grpc", "tcp", "udp"):
        words += [f"--{name}", str(listeners.get(name, "off"))]
    return words


def endpoint(port: int) -> str:
    """Return an endpoint on the loopback interface."""
    return f"tcp:{port}:interface=127.0.0.1"


def storagegate(
    name: str = OURS,
    works: Iterable[Work] = (),
    listeners: Callable[[Running], Mapping[str, object]] = lambda running: {},
    words: Callable[[Running], Sequence[object]] = lambda running: (),
    prepare: Callable[[Running], None] = lambda running: None,
    **changes: object,
) -> Server:
    """
    Return the daemon with an S3 listener.

    @param works: Lists whose buckets are filled before the start: by requests a million objects
        take minutes.
    @param listeners: Further listeners.
    @param words: Further words of the command line.
    @param prepare: Makes further data.
    @param changes: Other fields of the server.
    """

    def command(running: Running) -> list[object]:
        found = {"s3": endpoint(running.port), **listeners(running)}
        return [*daemonWords(running, found), "--durability", "full", *words(running)]

    def prepareAll(running: Running) -> None:
        for work in (each.scaled(running.session) for each in works):
            data, bucket = running.folder / "data", work.bucket[1:]
            runProgram("bench.s3.bulkfill", data, bucket, work.keys, work.size)
            filled(running)[work.bucket] = work.keys
        prepare(running)

    server = Server(
        name,
        command,
        version=peers.ourVersion,
        environment=ourEnvironment(),
        prepare=prepareAll,
        data=Traits(quickHeaders=True),
        isOurs=True,
    )
    return evolve(server, **changes) if changes else server  # type: ignore[arg-type]


def filled(running: Running) -> dict[str, int]:
    """Return the number of objects that each bucket and prefix was filled with."""
    found: dict[str, int] = running.notes.setdefault("filled", {})
    return found


def authorizer(running: Running) -> Authorizer:
    """Return the signer of requests to a server."""
    traits: Traits = running.server.data
    plain = signer(traits.credentials) if traits.credentials else anonymous
    found: Authorizer = running.notes.get("authorizer") or plain
    return found


def send(running: Running, request: Request, body: bytes | None = None) -> Answer:
    """Send one request, signed, outside of any measurement."""
    fields = fieldsOf(request, running.host, authorizer(running))
    if body is not None:
        # Some configurations of a bucket must have it, because the payload is not signed.
        digest = hashlib.md5(body, usedforsecurity=False).digest()
        fields["Content-MD5"] = b64encode(digest).decode()
    return running.exchange(request.method, targetOf(request), body, fields)


def writeRequests(path: Path, requests: Iterable[Request], host: str, sign: Authorizer) -> Path:
    """Sign requests and write them to a file for blast."""
    with path.open("wb") as file:
        for each in requests:
            head = encodeHead(each, host, sign)
            record = Record(head, each.length or 0, each.tag, each.method == "HEAD")
            file.write(record.encode())
    return path


def sendOnce(
    running: Running,
    requests: Iterable[Request],
    size: int,
    connections: int = SMALL_FILL_CONNECTIONS,
    sign: Authorizer | None = None,
) -> Outcome:
    """Send each request once, signed as the server expects."""
    path = running.folder / "once"
    writeRequests(path, requests, running.host, sign or authorizer(running))
    return runBlast(blastWords(running.port, path, bodyFile(running.folder, size), connections))


def requireAll(outcome: Outcome, expected: int, what: str) -> None:
    """Check that every request of a fill succeeded."""
    if (outcome.done, outcome.bad, outcome.lost) != (expected, 0, 0):
        raise MeasureError(f"{what}: {outcome}")


def createBucket(running: Running, bucket: str) -> None:
    """Make a bucket, once."""
    if bucket in filled(running):
        return
    if running.server.data.credentials is None:
        (running.folder / "data" / bucket[1:]).mkdir(exist_ok=True)
    else:
        answer = send(running, Request("PUT", bucket))
        if answer.status != 200:
            raise MeasureError(f"create {bucket}: {answer.status} {answer.body[:200]!r}")
    filled(running)[bucket] = 0


def fillListed(running: Running, work: Work) -> None:
    """Make the bucket to list, once."""
    if filled(running).get(work.bucket) == work.keys:
        return
    createBucket(running, work.bucket)
    traits: Traits = running.server.data
    keys = listedKeys(work.keys)
    if traits.plainFolders:
        body = b"x" * work.size
        for key in keys:
            (running.folder / "data" / work.bucket[1:] / key).write_bytes(body)
    else:
        quick = keyHeaders(traits.credentials) if traits.quickHeaders else None  # type: ignore[arg-type]
        while batch := [f"{work.bucket}/{key}" for key in islice(keys, BATCH)]:
            outcome = sendOnce(running, puts(batch, work.size), work.size, FILL_CONNECTIONS, quick)
            requireAll(outcome, len(batch), f"fill {work.bucket}")
    filled(running)[work.bucket] = work.keys


def checkListed(running: Running, work: Work) -> None:
    """Check that a page holds as many entries as it must."""
    answer = send(running, requestsOf(work, "")[0])
    element = b"<CommonPrefixes>" if work.delimiter else b"<Key>"
    entries = min(GROUP, work.keys // GROUP) if work.delimiter else GROUP
    found = answer.body.count(element)
    if answer.status != 200 or found != entries:
        raise MeasureError(f"{answer.status} with {found} entries instead of {entries}")


def writeAll(running: Running, work: Work, paths: list[str], what: str) -> None:
    """
    Write objects. A busy rclone refuses one in some thousands, so writes to a peer are repeated.
    """
    for left in range(1 if running.server.isOurs else FILL_ATTEMPTS, 0, -1):
        outcome = sendOnce(running, puts(paths, work.size), work.size)
        if not (outcome.bad or outcome.lost) or left == 1:
            requireAll(outcome, len(paths), f"{running.server.name}: {what}")
            break


def fillStored(running: Running, work: Work) -> None:
    """Make the objects that the work reads, once, and read one back."""
    paths = storedPaths(work)
    if filled(running).get(paths[0]) == len(paths):
        return
    writeAll(running, work, paths, paths[0])
    answer = send(running, Request("GET", paths[-1]))
    if answer.status != 200 or len(answer.body) != work.size:
        raise MeasureError(f"{paths[-1]}: {answer.status} with {len(answer.body)} bytes")
    filled(running)[paths[0]] = len(paths)


def prepareWork(running: Running, work: Work, paths: list[str]) -> None:
    """
    Make the data that a work needs.

    @param paths: The objects that a C{delete} will delete.
    """
    if work.kind == "list":
        fillListed(running, work)
        checkListed(running, work)
        return
    createBucket(running, BUCKET)
    if work.kind in ("get", "head", "mixed", "overwrite"):
        fillStored(running, work)
    elif work.kind == "delete":
        writeAll(running, work, paths, "write the objects to delete")


def doubtsOf(work: Work, outcome: Outcome) -> tuple[str, ...]:
    """Return the reasons to doubt a measurement."""
    found = []
    if outcome.bad or outcome.lost:
        found.append(f"{outcome.bad} bad ({outcome.lastBadStatus}), {outcome.lost} lost")
    if outcome.laps and work.kind == "put":
        found.append("names repeated")
    # The writes of a mixture have no body in their answers.
    written = outcome.tags["1"].n if "1" in outcome.tags else 0
    reads = outcome.done - outcome.bad - written
    if work.kind in ("get", "mixed") and outcome.received < reads * work.size:
        found.append("answers were short")
    return tuple(found)


def seenOf(work: Work, outcome: Outcome) -> Seen:
    """Convert the report of blast; latencies of a mixture are those of its reads."""
    latency = outcome.tags.get("0")
    return Seen(
        outcome.done,
        outcome.seconds,
        max(outcome.received, outcome.sent),
        latency.p50 if latency else 0,
        latency.p99 if latency else 0,
        outcome.clientCpu * outcome.seconds,
        doubts=doubtsOf(work, outcome),
    )


@frozen
class WorkLoad:
    """
    Makes the load of a work.

    @ivar prepare: Makes further data, before that of the work.
    @ivar instead: Returns requests in place of those of the work, if it is set.
    @ivar options: Fields of the load.
    """

    work: Work
    prepare: Callable[[Running], None] = lambda running: None
    instead: Callable[[Running, Work], list[Request] | None] = lambda running, work: None
    options: Callable[[Running, float], Mapping[str, object]] = field(
        default=lambda running, seconds: {}
    )

    def __call__(self, running: Running, connections: int, seconds: float) -> Load:
        """Make the data and the file of requests, and return the load."""
        work = self.work.scaled(running.session)
        self.prepare(running)
        nonce = secrets.token_hex(4)
        isDelete, issued = work.kind == "delete", 0
        requests = self.instead(running, work) or requestsOf(work, nonce)
        if isDelete and connections == 1:
            requests = requests[:SERIAL_DELETES]
        prepareWork(running, work, [request.path for request in requests])
        path = running.folder / "requests"
        writeRequests(path, requests, running.host, authorizer(running))

        def run(seconds: float, started: Started | None) -> Seen:
            nonlocal issued
            body, duration = bodyFile(running.folder, work.size), 0 if isDelete else seconds
            outcome = runBlast(blastWords(running.port, path, body, connections, duration), started)
            issued = outcome.issued
            return seenOf(work, outcome)

        def finish(seen: Seen) -> None:
            # Else the disk fills.
            if work.kind == "put":
                paths = freshPaths(work, nonce)[:issued]
                sendOnce(running, [Request("DELETE", each) for each in paths], 0)

        return Load(run, finish=finish, **self.options(running, seconds))  # type: ignore[arg-type]
