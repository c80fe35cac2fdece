"""Put objects where a case needs them. Nothing here is measured."""

from itertools import islice
from pathlib import Path

from bench.blast import Load, Outcome, bodyFile, runClient, writeRequests
from bench.measuring import MeasureError
from bench.s3cases import BUCKET, Case, deletes, listedKeys, puts, storedPaths
from bench.s3server import S3Server
from bench.signing import Request, keyHeaders

FILL_CONNECTIONS = 64
SMALL_FILL_CONNECTIONS = 16
BATCH = 50_000
"""Requests of one file of a large fill: 25 MB, whatever the bucket's size."""


class FillError(MeasureError):
    """The server did not take what a case needs."""


def sendOnce(
    server: S3Server, requests: list[Request], size: int, connections: int = SMALL_FILL_CONNECTIONS
) -> Outcome:
    """Send each request once, signed as the server wants."""
    path = server.folder / "requests"
    writeRequests(path, requests, server.host, server.authorizer)
    return runClient(server.port, Load(path, bodyFile(server.folder, size), connections))


def requireAll(outcome: Outcome, expected: int, what: str) -> None:
    """
    Check that all of a fill was taken.

    @raise FillError: If anything was refused or lost.
    """
    if outcome.bad or outcome.lost or outcome.done != expected:
        raise FillError(f"{what}: {outcome}")


def createBucket(server: S3Server, bucket: str) -> None:
    """
    Make a bucket once.

    @raise FillError: If the server refuses.
    """
    if server.recipe.credentials is None:
        (server.folder / "data" / bucket[1:]).mkdir(exist_ok=True)
        return
    answer = server.send(Request("PUT", bucket))
    if answer.status != 200:
        raise FillError(f"create {bucket}: {answer.status} {answer.body[:200]!r}")


def fillAsFiles(folder: Path, count: int, size: int) -> None:
    """Make the objects of a bucket to list as plain files, for a server that keeps them so."""
    body = b"x" * size
    for key in listedKeys(count):
        (folder / key).write_bytes(body)


def fillByRequests(server: S3Server, bucket: str, count: int, size: int) -> None:
    """
    Make the objects of a bucket to list through the server's own door, in batches.

    @raise FillError: If any is refused.
    """
    credentials = server.recipe.credentials
    quick = server.recipe.quickHeaders and credentials is not None
    authorizer = keyHeaders(credentials) if quick and credentials else server.authorizer
    keys = listedKeys(count)
    while batch := [f"{bucket}/{key}" for key in islice(keys, BATCH)]:
        path = server.folder / "requests"
        writeRequests(path, puts(batch, size), server.host, authorizer)
        load = Load(path, bodyFile(server.folder, size), FILL_CONNECTIONS)
        requireAll(runClient(server.port, load), len(batch), f"fill {bucket}")


def checkList(server: S3Server, case: Case, request: Request, entries: int) -> None:
    """
    Check that a list answer holds what it must, before its time is worth anything.

    @raise FillError: If it does not.
    """
    answer = server.send(request)
    element = b"<CommonPrefixes>" if case.delimiter else b"<Key>"
    found = answer.body.count(element)
    if answer.status != 200 or found != entries:
        raise FillError(f"{case.name}: {answer.status} with {found} entries instead of {entries}")


def fillBucketToList(server: S3Server, case: Case) -> None:
    """Make the bucket that a case lists, once."""
    if server.buckets.get(case.bucket) == case.keys:
        return
    createBucket(server, case.bucket)
    if server.recipe.plainFolders:
        fillAsFiles(server.folder / "data" / case.bucket[1:], case.keys, case.size)
    else:
        fillByRequests(server, case.bucket, case.keys, case.size)
    server.buckets[case.bucket] = case.keys


def fillStored(server: S3Server, case: Case) -> None:
    """Make the objects that a case reads, once, and read one back."""
    paths = storedPaths(case)
    if server.buckets.get(paths[0]) == len(paths):
        return
    requireAll(sendOnce(server, puts(paths, case.size), case.size), len(paths), paths[0])
    answer = server.send(Request("GET", paths[-1]))
    if answer.status != 200 or len(answer.body) != case.size:
        raise FillError(f"{paths[-1]}: {answer.status} with {len(answer.body)} bytes")
    server.buckets[paths[0]] = len(paths)


def makeRoom(server: S3Server, paths: list[str]) -> None:
    """
    Delete what a measurement wrote, so that the disk does not fill.

    What was refused when it was written is not there; that is the measurement's complaint.
    """
    sendOnce(server, deletes(paths), 0)


def ensureBenchBucket(server: S3Server) -> None:
    """Make the bucket that all but the lists work in, once."""
    if BUCKET not in server.buckets:
        createBucket(server, BUCKET)
        server.buckets[BUCKET] = 0
