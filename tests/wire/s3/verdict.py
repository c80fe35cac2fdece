"""What has to be true of a store that was killed, or lost its power, and is back."""

from typing import Any
from urllib.request import urlopen

from tests.support.daemon import Daemon
from tests.support.journal import Journal
from tests.wire.s3.bulk import connect
from tests.wire.s3.workload import observe


class Broken(AssertionError):
    """The store broke its word; the text says where."""


def judge(s3: Any, address: tuple[str, int], bucket: str, journal: Journal) -> None:
    """
    Compare a store with the journal, key by key and as a list, and settle what was open.

    Every acknowledged write is whole under its ETag; every other is whole or was never made;
    lists show what reads find, and nothing else.

    @raise Broken: If one of it is not so.
    """
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    listed = {entry["Key"]: entry for page in pages for entry in page.get("Contents", [])}
    connection = connect(address)
    ghosts = set(listed) - set(journal.written())
    if ghosts:
        raise Broken(f"listed, and never written: {sorted(ghosts)}")
    for key in journal.written():
        found = observe(connection, bucket, key)
        allowed = journal.allowed(key)
        if found not in allowed:
            raise Broken(f"{key} holds {found}; it may hold {allowed}")
        shown = listed.get(key)
        if (shown is None) != (found is None):
            raise Broken(f"{key} is {'not ' if shown is None else ''}listed, and holds {found}")
        described = shown and (shown["ETag"], shown["Size"])
        if found is not None and described != (found.etag, found.size):
            raise Broken(f"{key} is listed as {shown}, and holds {found}")
        journal.settle(key, found)
    connection.close()


def endUploads(s3: Any, bucket: str) -> None:
    """Abort the uploads that nobody will complete: they are kept over a crash, and take room."""
    pages = s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket)
    for upload in [upload for page in pages for upload in page.get("Uploads", [])]:
        s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])


def isCollected(daemon: Daemon) -> bool:
    """Return whether no garbage waits for its grace; what comes later is removed as it stops."""
    with urlopen(daemon.url("admin") + "/metrics") as page:
        lines = page.read().decode().splitlines()
    [backlog] = [line for line in lines if line.startswith("storagegate_store_reclaim_backlog ")]
    return float(backlog.rpartition(" ")[2]) == 0
