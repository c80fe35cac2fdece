"""What has to be true of a store that was killed, or lost its power, and is back."""

from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen
from xml.etree import ElementTree

from tests.support.clients import ROOT, botoClient
from tests.support.daemon import Daemon
from tests.support.journal import Journal, State, Version, fits
from tests.wire.s3.bulk import connect
from tests.wire.s3.workload import ServerAway, observe


class Broken(AssertionError):
    """The store broke its word; the text says where."""


def judge(daemon: Any, bucket: str, journal: Journal, where: str) -> None:
    """
    Compare a store with the journal, version by version and as lists, and settle what was open;
    abort the uploads that nobody will complete: they are kept over a crash, and take room.

    Every acknowledged version is whole under its ETag and its id, and above those before it; every
    other is whole or was never made; lists show what reads find, and nothing else.

    @param daemon: A L{Daemon}, or what has its C{url} and C{address}.
    @param where: For the text of the error.
    @raise AssertionError: If one of it is not so.
    """
    s3 = botoClient(daemon.url())
    try:
        _judge(s3, daemon.address(), bucket, journal)
    except AssertionError as error:
        raise AssertionError(f"{where}: {error}") from error
    pages = s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket)
    for upload in [upload for page in pages for upload in page.get("Uploads", [])]:
        s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])


def _judge(s3: Any, address: tuple[str, int], bucket: str, journal: Journal) -> None:
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    listed = {entry["Key"]: entry for page in pages for entry in page.get("Contents", [])}
    connection = connect(address)
    stacks = listStacks(connection, bucket)
    ghosts = {*listed, *stacks} - set(journal.written())
    if ghosts:
        raise Broken(f"listed, and never written: {sorted(ghosts)}")
    for key in journal.written():
        entries = stacks.get(key, [])
        stack = tuple(
            Version(
                entry["VersionId"],
                observe(connection, bucket, key, entry["VersionId"]) if "ETag" in entry else None,
            )
            for entry in entries
        )
        allowed = journal.allowed(key)
        if not any(fits(stack, each) for each in allowed):
            raise Broken(f"{key} has the versions {stack}; it may have {allowed}")
        latest = [entry["IsLatest"] == "true" for entry in entries]
        if latest != [number == 0 for number in range(len(entries))]:
            raise Broken(f"{key} has not one latest version: {entries}")
        for entry, version in zip(entries, stack, strict=True):
            _compare(key, entry, version.content)
        found = observe(connection, bucket, key)
        if found != (stack[0].content if stack else None):
            raise Broken(f"{key} holds {found}, and has the versions {stack}")
        if (key in listed) != (found is not None):
            raise Broken(f"{key} is {'' if key in listed else 'not '}listed, and holds {found}")
        _compare(key, listed.get(key, {}), found)
        journal.settle(key, stack)
    connection.close()


def listStacks(
    connection: HTTPConnection, bucket: str, prefix: str = ""
) -> dict[str, list[dict[str, str]]]:
    """List the versions of each key with a prefix, the newest first."""
    # Boto3 would give versions and delete markers apart.
    target = f"/{bucket}?versions&prefix={quote(prefix, safe='')}"
    connection.request("GET", target, headers=ROOT.plainHeaders())
    with connection.getresponse() as response:
        body = response.read()
        if response.status == 503:
            raise ServerAway(response.status)
        assert response.status == 200, response.status
        page = ElementTree.fromstring(body)
    found: dict[str, list[dict[str, str]]] = {}
    for element in page:
        entry = {child.tag.rpartition("}")[2]: child.text or "" for child in element}
        if "VersionId" in entry:
            found.setdefault(entry["Key"], []).append(entry)
    assert page.findtext("{*}IsTruncated") == "false", "one page has too few versions"
    return found


def _compare(key: str, entry: dict[str, Any], content: State) -> None:
    shown = (entry.get("ETag"), int(entry.get("Size", -1)))
    if shown != ((None, -1) if content is None else (content.etag, content.size)):
        raise Broken(f"{key} is listed as {entry}, and holds {content}")


def isCollected(daemon: Daemon) -> bool:
    """Return whether no garbage waits for its grace; what comes later is removed as it stops."""
    with urlopen(daemon.url("admin") + "/metrics") as page:
        lines = page.read().decode().splitlines()
    [backlog] = [line for line in lines if line.startswith("storagegate_store_reclaim_backlog ")]
    return float(backlog.rpartition(" ")[2]) == 0
