"""
Writers that load a server until it dies, and the reader that judges it when it is back.

Each writer has keys of its own, so that the journal's rule holds: one writer a key.
"""

import hashlib
import random
import re
from base64 import b64encode
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from threading import Event, Thread

from attrs import evolve, frozen

from storagegate.storage.records import COMPLIANCE, GOVERNANCE
from tests.support.clients import ROOT, botoClient
from tests.support.daemon import Daemon
from tests.support.journal import (
    Journal,
    Stack,
    State,
    Written,
    afterWrite,
    inParts,
    relocked,
    whole,
    without,
)
from tests.wire.s3.bulk import connect, objectTarget
from tests.wire.s3.fixture import eventually

MIB = 1 << 20
_NO_HEADERS: Mapping[str, str] = {}

# Chosen so that a second of load has all of them, and most are small: those share commits.
_KINDS = ("small", "small", "small", "small", "medium", "medium", "large", "delete", "parts")

_DEEPEST = 4
"""A key with so many versions gets no other until one is deleted: they all are read each round."""

_HOLD = "ON"
_PLACE = b"<LegalHold><Status>ON</Status></LegalHold>"
_RELEASE = b"<LegalHold><Status>OFF</Status></LegalHold>"
_LOCKS = ("", "", _HOLD, GOVERNANCE, COMPLIANCE)

_LOCK_LIMIT = 4_000
"""Bytes of a version that may be locked for ever: the disk of a test is small."""

_LOAD = 10
"""So many writes are acknowledged before the server may be harmed."""


class ServerAway(ConnectionError):
    """The server answers that it cannot serve now."""


@frozen
class Load:
    """
    How a server is loaded.

    @ivar writers: How many write at once.
    @ivar keys: How many keys each has: few, so that most writes are overwrites.
    @ivar status: Of the bucket's versioning; empty for none.
    @ivar isLocked: Whether it has object lock: some versions get a lock then.
    """

    address: tuple[str, int]
    bucket: str
    journal: Journal
    seed: int
    writers: int = 6
    keys: int = 12
    status: str = ""
    isLocked: bool = False


class Writer:
    """
    Writes to its own keys, in a thread of its own, until the server is gone or it is told to stop.

    @ivar surprise: An exception that is no sign of a server that went away.
    """

    def __init__(self, load: Load, number: int, stop: Event) -> None:
        self.surprise: Exception | None = None
        self._load = load
        self._number = number
        self._halt = stop
        self._random = random.Random(f"{load.seed}/{number}")

    def write(self) -> None:
        """Write."""
        try:
            with closing(connect(self._load.address)) as connection:
                while not self._halt.is_set():
                    self._step(connection)
        except (OSError, HTTPException):
            pass  # The server went away, which is what this is about.
        except Exception as error:
            self.surprise = error

    def _step(self, connection: HTTPConnection) -> None:
        kind = self._random.choice(_KINDS)
        key = f"w{self._number}/{self._random.randrange(self._load.keys):03d}"
        stack = self._load.journal.newest(key)
        if self._load.status and len(stack) >= self._random.randint(1, _DEEPEST):
            self._dropVersion(connection, key, stack)
        elif kind == "delete":
            self._delete(connection, key)
        elif kind == "parts":
            self._putParts(connection, key)
        else:
            sizes = {"small": (0, 4_000), "medium": (60_000, 200_000), "large": (MIB, MIB)}
            self._put(connection, key, self._body(*sizes[kind]))

    def _body(self, smallest: int, largest: int) -> bytes:
        # Random words over and over: generating megabytes would be what is measured.
        word = self._random.randbytes(16)
        size = self._random.randint(smallest, largest)
        return (word * (size // 16 + 1))[:size]

    def _put(self, connection: HTTPConnection, key: str, body: bytes) -> None:
        content = self._locked(key, whole(body))
        after = self._after(key, content)
        self._write(connection, key, after, "PUT", body=body, headers=_lockHeaders(content.lock))

    def _delete(self, connection: HTTPConnection, key: str) -> None:
        self._write(connection, key, self._after(key, None), "DELETE")

    def _after(self, key: str, content: State) -> Stack:
        return afterWrite(self._load.journal.newest(key), self._load.status, content)

    def _dropVersion(self, connection: HTTPConnection, key: str, stack: Stack) -> None:
        # A locked one stays, and loses its lock if that is possible.
        version = self._random.choice(stack)
        lock = "" if version.content is None else version.content.lock
        query = f"?versionId={version.id}"
        if lock:
            target = objectTarget(self._load.bucket, key) + query
            self._ask(connection, "DELETE", target, status=403)
            free = relocked(stack, version.id, "")
            if lock == _HOLD:
                self._write(connection, key, free, "PUT", f"{query}&legal-hold", _RELEASE)
            elif lock == GOVERNANCE:
                body, bypass = b"<Retention/>", {"x-amz-bypass-governance-retention": "true"}
                self._write(connection, key, free, "PUT", f"{query}&retention", body, bypass)
        elif self._load.isLocked and version.content is not None and self._random.random() < 0.2:
            held = relocked(stack, version.id, _HOLD)
            self._write(connection, key, held, "PUT", f"{query}&legal-hold", _PLACE)
        else:
            self._write(connection, key, without(stack, version.id), "DELETE", query)

    def _write(
        self,
        connection: HTTPConnection,
        key: str,
        after: Stack,
        method: str,
        query: str = "",
        body: bytes = b"",
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> None:
        self._load.journal.attempt(key, after)
        target = objectTarget(self._load.bucket, key) + query
        versionId = self._ask(connection, method, target, body, headers)[1]
        self._load.journal.acknowledge(key, versionId)

    def _locked(self, key: str, content: Written) -> Written:
        if not self._load.isLocked:
            return content
        lock = self._random.choice(_LOCKS)
        stack = self._load.journal.newest(key)
        isKept = any(each.content is not None and each.content.lock == lock for each in stack)
        if lock == COMPLIANCE and (isKept or content.size > _LOCK_LIMIT):
            lock = ""
        return evolve(content, lock=lock)

    def _putParts(self, connection: HTTPConnection, key: str) -> None:
        target = objectTarget(self._load.bucket, key)
        parts = [self._body(5 * MIB, 5 * MIB), self._body(1, 300_000)]
        content = self._locked(key, inParts(parts))
        headers = _lockHeaders(content.lock)
        made, _ = self._ask(connection, "POST", f"{target}?uploads=", headers=headers)
        found = re.search(rb"<UploadId>(.+?)</UploadId>", made)
        assert found is not None, made
        upload = found[1].decode()
        listed = []
        for number, part in enumerate(parts, 1):
            self._ask(connection, "PUT", f"{target}?partNumber={number}&uploadId={upload}", part)
            etag = hashlib.md5(part, usedforsecurity=False).hexdigest()
            listed.append(f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>")
        document = f"<CompleteMultipartUpload>{''.join(listed)}</CompleteMultipartUpload>"
        query = f"?uploadId={upload}"
        after = self._after(key, content)
        self._write(connection, key, after, "POST", query, document.encode())

    def _ask(
        self,
        connection: HTTPConnection,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] = _NO_HEADERS,
        status: int = 0,
    ) -> tuple[bytes, str]:
        # Returns the body, and the id of the version.
        sent = {**ROOT.plainHeaders(), **headers}
        if method == "PUT":
            # Required of writes with a lock.
            digest = hashlib.md5(body, usedforsecurity=False).digest()
            sent["content-md5"] = b64encode(digest).decode()
        connection.request(method, target, body, sent)
        with connection.getresponse() as response:
            answer = response.read()
            if response.status >= 500:
                # The store has seen its disk go: it may say so before it goes itself.
                raise ConnectionError(response.status)
            expected = (status,) if status else (200, 204)
            assert response.status in expected, (method, target, response.status, answer)
            return answer, response.headers.get("x-amz-version-id", "")


def _lockHeaders(lock: str) -> dict[str, str]:
    if lock in ("", _HOLD):
        return {"x-amz-object-lock-legal-hold": lock} if lock else {}
    until = "2099-01-01T00:00:00Z"
    return {"x-amz-object-lock-mode": lock, "x-amz-object-lock-retain-until-date": until}


class Writers:
    """All writers of some loads; a context manager that stops them at its end."""

    def __init__(self, *loads: Load) -> None:
        self._journals = [load.journal for load in loads]
        self._stop = Event()
        self._writers = [
            Writer(load, number, self._stop) for load in loads for number in range(load.writers)
        ]
        self._threads = [Thread(target=writer.write, daemon=True) for writer in self._writers]

    def __enter__(self) -> "Writers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        for writer in self._writers:
            if writer.surprise is not None:
                raise writer.surprise

    def let(self, seconds: float) -> None:
        """
        Let them write until the server has acknowledged some writes, and for a time after that.

        @raise AssertionError: If it acknowledges nothing.
        """
        enough = [journal.acknowledged + _LOAD for journal in self._journals]

        def isLoaded() -> bool:
            return all(
                journal.acknowledged >= least
                for journal, least in zip(self._journals, enough, strict=True)
            )

        # How many a second there are is the disk's: that there were some makes it a load.
        assert eventually(isLoaded), "there is hardly any load"
        self._stop.wait(seconds)


def setVersioning(daemon: Daemon, bucket: str, number: int) -> str:
    """Enable versioning, or suspend it in each third round; return the status."""
    status = "Enabled" if number % 3 < 2 else "Suspended"
    botoClient(daemon.url()).put_bucket_versioning(
        Bucket=bucket, VersioningConfiguration={"Status": status}
    )
    return status


def encrypt(daemon: Daemon, bucket: str) -> None:
    """Encrypt all later objects of a bucket with keys of the store."""
    default = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    botoClient(daemon.url()).put_bucket_encryption(
        Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [default]}
    )


def observe(connection: HTTPConnection, bucket: str, key: str, versionId: str = "") -> State:
    """
    Read a key whole, or a version of it that is no delete marker.

    @raise AssertionError: If what was announced is not what comes.
    @raise ServerAway: It cannot be read now.
    """
    target = objectTarget(bucket, key) + (f"?versionId={versionId}" if versionId else "")
    connection.request("GET", target, headers=ROOT.plainHeaders())
    with connection.getresponse() as response:
        body = response.read()
        if response.status == 404:
            return None
        if response.status == 503:
            raise ServerAway(response.status)
        assert response.status == 200, (key, versionId, response.status, body[:300])
        length = int(response.headers["content-length"])
        assert length == len(body), (key, versionId, length, len(body))
        held = response.headers.get("x-amz-object-lock-legal-hold") == _HOLD
        lock = response.headers.get("x-amz-object-lock-mode", _HOLD if held else "")
        return Written(response.headers["etag"], length, hashlib.sha256(body).hexdigest(), lock)
