"""The daemon and the gateway: quiet, grown, with work beside, with monitoring, with workers."""

import json
import random
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec
from attrs import evolve, frozen

from bench.cases import BOTH_CORES, CLIENT_CORE, SERVER_CORE, Load, MeasureError, Server
from bench.gateway import recipe as gateway
from bench.gateway.recipe import JSON, POSTED, TCP, TEXT
from bench.growth.callers import callerOf
from bench.growth.keyfill import ACCOUNT, credentialsOf, signWithKeys
from bench.loads import Outcome, blastWords, bodyFile, finish, helping, wrk
from bench.processes import Running, freePort
from bench.s3.recipe import (
    WorkLoad,
    authorizer,
    createBucket,
    daemonWords,
    endpoint,
    filled,
    fillListed,
    ourEnvironment,
    requireAll,
    runProgram,
    send,
    sendOnce,
    storagegate,
    writeRequests,
)
from bench.s3.requests import (
    BUCKET,
    GROUP,
    LIST10K,
    LISTED_SIZE,
    MIB,
    PUT4K,
    Work,
    puts,
    requestsOf,
    storedPaths,
)
from bench.s3.signing import Request, signer
from storagegate.objects.documents.lifecycle import writeLifecycle
from storagegate.objects.lifecycle import LifecycleRule
from storagegate.s3.xml.writer import writeDocument

QUIET = "quiet"
GROWN = "grown"
"""The bucket of the other objects."""

ONE = Work("get", 1)
LIST1K = Work("list", 1_000, LISTED_SIZE)
RULES = (
    LifecycleRule("expire", True, prefix="", days=10_000_000),
    LifecycleRule("tagged", True, tags={"kind": "draft"}, days=30),
    LifecycleRule("old", True, noncurrentDays=10_000_000, newer=3),
)
"""None of them removes any object here, even where a day takes a second."""

_COLLECTOR = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
    def log_message(self, *arguments):
        pass
server = HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print("ready", flush=True)
server.serve_forever()
"""
"""A program that accepts spans, and keeps nothing."""

_SCRAPER = """
import select, socket, sys
reads = 0
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.5 if not reads else 1)[0]:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as client:
        client.sendall(b"GET /metrics HTTP/1.0\\r\\nHost: x\\r\\n\\r\\n")
        answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert b" 200 " in answer[:20], answer[:200]
    reads += 1
print(reads)
"""
"""A program that reads the metrics once a second until its input ends."""

UPLOAD_SIZE = 64 * MIB
UPLOADS = 50
_WRITERS = 8
_LONGER_SECONDS = 0.5
"""Work beside a load lasts longer than the load by this."""

_ENABLED = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"


@frozen
class Setting:
    """
    The load that a server already has.

    @ivar objects: The number of other objects, or of versions, or of keys with versions.
    @ivar hasKeys: Whether a thousand keys with policies take turns.
    @ivar beside: The work that is done meanwhile: C{upload}, C{list} or C{put}.
    @ivar history: The versions that C{versionfill.py} makes: C{versions}, C{deleted} or C{deep};
        C{enabled} makes none.
    @ivar isOld: Whether versions are requested in place of objects: a page of them, or one.
    @ivar statements: The number of statements of the bucket's policy; L{None} if the root key
        signs, which no policy restricts.
    @ivar isScanned: Whether the other objects are scanned for expired ones all the time.
    @ivar isSealed: Whether all objects are encrypted.
    @ivar caller: The key that signs, one of L{CALLERS<bench.growth.callers.CALLERS>}; empty for the
        root key.
    """

    name: str
    objects: int = 0
    hasKeys: bool = False
    beside: str = ""
    history: str = ""
    isOld: bool = False
    statements: int | None = None
    isScanned: bool = False
    isSealed: bool = False
    caller: str = ""


_PREFILLED: Mapping[str, Mapping[str, int]] = {
    "versions": {LIST10K.bucket: 10_000},
    "deleted": {LIST1K.bucket: 1_000},
    "deep": {BUCKET: 0, storedPaths(ONE)[0]: 1},
}


def policyOf(count: int) -> bytes:
    """
    Write a policy.

    @param count: Its statements. The last one allows everything to the account of the issued keys,
        and half of the others are about the same objects.
    """
    bucket = BUCKET[1:]
    statements: list[dict[str, object]] = [
        {
            "Sid": f"s{number}",
            "Effect": "Deny" if number % 2 else "Allow",
            "Principal": "*" if number % 4 == 1 else {"AWS": "arn:aws:iam::root:root"},
            "Action": ["s3:GetObject", "s3:PutObject"],
            "Resource": f"arn:aws:s3:::{bucket}/{'' if number % 4 < 2 else f'team{number}/'}*",
            "Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}},
        }
        for number in range(count - 1)
    ]
    statements.append(
        {
            "Effect": "Allow",
            "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"},
            "Action": "s3:*",
            "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
        }
    )
    return json.dumps({"Version": "2012-10-17", "Statement": statements}).encode()


def daemon(setting: Setting) -> Server:
    """Return a daemon with a setting."""
    # A round of the scanner takes longer than such a day, so that the next one follows at once.
    options = {"STORAGEGATE_LIFECYCLE_DAY_SECONDS": "1"} if setting.isScanned else {}
    if setting.isSealed:
        options["STORAGEGATE_ENCRYPT_ALL"] = "true"

    def prepare(running: Running) -> None:
        data = running.folder / "data"
        running.notes["setting"] = setting
        objects = setting.objects
        # The keys of a list are as many as the case says.
        if setting.history != "versions":
            objects //= running.session.scale
        running.notes["objects"] = objects
        if setting.history not in ("", "enabled"):
            runProgram("bench.growth.versionfill", data, setting.history, objects)
            filled(running).update(_PREFILLED[setting.history])
        elif objects:
            runProgram("bench.s3.bulkfill", data, GROWN, objects, LISTED_SIZE)
        if setting.hasKeys or setting.statements is not None or setting.caller:
            runProgram("bench.growth.keyfill", data)

    return storagegate(setting.name, prepare=prepare, environment={**ourEnvironment(), **options})


def settingOf(running: Running) -> Setting:
    """Return the setting of a daemon."""
    found: Setting = running.notes["setting"]
    return found


def grown(work: Work) -> WorkLoad:
    """Return the load of a work beside the setting of a daemon."""
    return WorkLoad(work, _prepare, _instead, _besides)


def ranged(size: int, count: int) -> WorkLoad:
    """
    Return the load of reads of 4 KiB in one large object.

    @param size: The size of the object, of which a quick run has a tenth.
    @param count: The number of different ranges.
    """
    path = f"{BUCKET}/ranged"
    work = Work("range", count)

    def sizeFor(running: Running) -> int:
        return size // running.session.scale

    def prepare(running: Running) -> None:
        _prepare(running)
        if path not in filled(running):
            large = sizeFor(running)
            requireAll(sendOnce(running, puts([path], large), large, 1), 1, path)
            filled(running)[path] = 1

    def instead(running: Running, work: Work) -> list[Request]:
        chance = random.Random(7)
        starts = [chance.randrange(sizeFor(running) - work.size) for _ in range(count)]
        return [
            Request("GET", path, range=f"bytes={start}-{start + work.size - 1}") for start in starts
        ]

    return WorkLoad(work, prepare, instead)


def _prepare(running: Running) -> None:
    """Configure the buckets, once, and fill the one that is listed beside."""
    setting = settingOf(running)
    if setting.hasKeys:
        running.notes["authorizer"] = signWithKeys
    elif setting.statements is not None:
        running.notes["authorizer"] = signer(credentialsOf(0))
    elif setting.caller:
        running.notes["authorizer"] = signer(callerOf(running, setting.caller))
    createBucket(running, BUCKET)
    if not running.notes.setdefault("isConfigured", False):
        running.notes["isConfigured"] = True
        if setting.statements:
            _configure(running, "policy", policyOf(setting.statements))
        if setting.history == "enabled":
            _configure(running, "versioning", _ENABLED)
        if setting.isScanned:
            _configure(running, "lifecycle", writeDocument(writeLifecycle(RULES)), f"/{GROWN}")
    if setting.beside == "list":
        fillListed(running, LIST10K)


def _configure(running: Running, name: str, document: bytes, bucket: str = BUCKET) -> None:
    request = Request("PUT", bucket, ((name, ""),), length=len(document))
    answer = send(running, request, document)
    if answer.status not in (200, 204):
        raise MeasureError(f"{name}: {answer.status} {answer.body[:200]!r}")


def _instead(running: Running, work: Work) -> list[Request] | None:
    """Return requests for versions, if the setting wants them."""
    if not settingOf(running).isOld:
        return None
    if work.kind == "list":
        page = Request("GET", work.bucket, (("versions", ""), ("max-keys", str(GROUP))))
        found = send(running, page).body.count(b"<VersionId>")
        if found != GROUP:
            raise MeasureError(f"a page of versions has {found}")
        return [page]
    [path] = storedPaths(work)
    # Half of the versions are newer than the requested one.
    place, marker = "", ()
    for _ in range(running.notes["objects"] // 2 // GROUP + 1):
        query = (("versions", ""), ("prefix", path.removeprefix(f"{BUCKET}/")), *marker)
        body = send(running, Request("GET", BUCKET, query)).body.decode()
        place = re.findall("<VersionId>(.*?)</VersionId>", body)[-1]
        marker = (("key-marker", query[1][1]), ("version-id-marker", place))
    return [Request("GET", path, (("versionId", place),))]


def _besides(running: Running, seconds: float) -> Mapping[str, object]:
    kind = settingOf(running).beside
    if not kind:
        return {}
    return {"beside": lambda: _working(running, kind, seconds + _LONGER_SECONDS)}


@contextmanager
def _working(running: Running, kind: str, seconds: float) -> Iterator[None]:
    """Run a second load beside the one that is measured."""
    size, connections = 0, 1
    if kind == "upload":
        size = UPLOAD_SIZE
        requests = puts([f"{BUCKET}/upload-{number:06d}" for number in range(UPLOADS)], size)
    elif kind == "list":
        requests = requestsOf(LIST10K, "")
    else:
        requests, size, connections = requestsOf(PUT4K, "beside"), PUT4K.size, _WRITERS
    path = running.folder / "beside"
    writeRequests(path, requests, running.host, authorizer(running))
    words = blastWords(running.port, path, bodyFile(running.folder, size), connections, seconds)
    pinned = ["taskset", "-c", CLIENT_CORE, *words]
    with subprocess.Popen(pinned, stdout=subprocess.PIPE) as process:
        try:
            yield
            output, _ = process.communicate(timeout=120)
        finally:
            process.kill()
    outcome = msgspec.json.decode(output, type=Outcome)
    if not outcome.done or outcome.bad or outcome.lost:
        raise MeasureError(f"beside it: {outcome}")


# Idle connections.


def idleGateway(name: str, idle: int) -> Server:
    """Return a gateway over TCP that accepts so many idle connections, and others."""
    return gateway.storagegate("tcp", 2 * idle + 1000, name=name)


def besideIdle(idle: Mapping[str, int]) -> Callable[[Running, int, float], Load]:
    """
    Return the load of calls over TCP beside idle connections.

    @param idle: Their number for each server, by its name.
    """

    def load(running: Running, connections: int, seconds: float) -> Load:
        count = idle[running.server.name] // running.session.scale
        plain = TCP(running, connections, seconds)
        return evolve(plain, beside=lambda: _holding(running, count)) if count else plain

    return load


@contextmanager
def _holding(running: Running, count: int) -> Iterator[None]:
    with helping(["-m", "bench.growth.idleconnections", running.port, count]) as process:
        yield
        left = int(finish(process))
    if left != count:
        raise MeasureError(f"{left} of {count} idle connections were left")


# Monitoring and workers.


@frozen
class Monitoring:
    """
    The parts of a daemon's monitoring.

    @ivar sampleRatio: The share of calls that are traced; L{None} for no tracing.
    """

    metrics: bool = False
    logs: bool = False
    sampleRatio: float | None = None

    def document(self, collector: int) -> str:
        """
        Write a configuration file.

        @param collector: The port that takes spans.
        """
        lines = ['logFormat = "json"'] if self.logs else []
        lines += ["[gateway.monitoring.metrics]", f"enabled = {str(self.metrics).lower()}"]
        if self.logs:
            lines += ["[gateway.monitoring.logging]", 'format = "json"']
        if self.sampleRatio is not None:
            lines += ["[gateway.monitoring.tracing]", "enabled = true"]
            lines += [f'endpoint = "http://127.0.0.1:{collector}"']
            lines += [f"sampleRatio = {self.sampleRatio}"]
        return "\n".join(lines) + "\n"


def monitored(
    name: str, isS3: bool, monitoring: Monitoring | None = None, workers: int = 1
) -> Server:
    """
    Return a daemon with one listener.

    @param isS3: Whether it serves S3, not the service over HTTP.
    @param monitoring: Its monitoring; none by default, and then it may use both cores.
    """
    parts = monitoring or Monitoring()

    def prepare(running: Running) -> None:
        collector = 0
        if parts.sampleRatio is not None:
            collector = running.session.once("collector", _collecting)
        (running.folder / "storagegate.toml").write_text(parts.document(collector))

    def command(running: Running) -> list[object]:
        listeners: dict[str, object] = {"s3" if isS3 else "http": endpoint(running.port)}
        if parts.metrics:
            running.notes["admin"] = freePort()
            listeners["admin"] = endpoint(running.notes["admin"])
        words: list[object] = [*daemonWords(running, listeners)]
        words += ["--config", running.folder / "storagegate.toml"]
        if not isS3:
            words += ["--service", "bench.growth.service:service"]
        return [*words, "--workers", workers] if workers > 1 else words

    return evolve(
        storagegate(name),
        command=command,
        prepare=prepare,
        cores=SERVER_CORE if monitoring else BOTH_CORES,
    )


@contextmanager
def _collecting() -> Iterator[int]:
    """Run a stand-in for a collector of spans beside the load; return its port."""
    port = freePort()
    with helping(["-c", _COLLECTOR, port]):
        yield port


@contextmanager
def _scraped(running: Running) -> Iterator[None]:
    """Have the metrics read once a second, if the daemon has any."""
    if "admin" not in running.notes:
        yield
        return
    with helping(["-c", _SCRAPER, running.notes["admin"]]) as process:
        yield
        if not int(finish(process)):
            raise MeasureError("the metrics were not read")


def postTo(target: str) -> Callable[[Running, int, float], Load]:
    """Return the load of calls of a service over HTTP."""

    def load(running: Running, connections: int, seconds: float) -> Load:
        answer = running.exchange("POST", target, POSTED, JSON)
        if answer.status != 200 or json.loads(answer.body).get("data") != {"text": TEXT}:
            raise MeasureError(f"answered {answer.status} {answer.body[:200]!r}")
        run = wrk(running, target, connections, POSTED)
        return Load(run, beside=lambda: _scraped(running))

    return load


def monitoredWork(work: Work) -> WorkLoad:
    """Return the load of S3 requests to a monitored daemon."""
    return WorkLoad(work, options=lambda running, seconds: {"beside": lambda: _scraped(running)})
