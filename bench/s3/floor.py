"""
The floor of S3: signatures, rows and synced commits, and nothing that a store has beside them.

    python -m bench.s3.floor PORT FOLDER ACCESS SECRET

PUT, GET, HEAD and DELETE of small objects, their list, and PUT of a bucket. Each signature of
version 4 in the header is verified. Bodies lie in SQLite beside the rows; one thread writes,
commits what has come in meanwhile as one transaction, and each commit is synced before its requests
are answered. There are no conditions, ranges, checksums, policies, limits, metrics, or codes of
errors; buckets need not exist, hashes of bodies are not compared, a body that is replaced stays in
the file, and a client must wait for an answer before it asks again.
"""

import hashlib
import hmac
import itertools
import queue
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Sequence
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.sax.saxutils import escape

from twisted.internet.protocol import Factory, Protocol

from bench.directwrites import serve

BATCH = 256
"""Requests of one commit."""

PAGE = 1000
_TABLES = """
CREATE TABLE IF NOT EXISTS objects (
    bucket TEXT, key TEXT, size INTEGER, modified INTEGER, etag TEXT, type TEXT, body INTEGER,
    PRIMARY KEY (bucket, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bodies (id INTEGER PRIMARY KEY, content BLOB);
"""
_FIND = "SELECT size, modified, etag, type, body FROM objects WHERE bucket = ? AND key = ?"
_READ = (
    "SELECT size, modified, etag, type, content FROM objects JOIN bodies ON id = body "
    "WHERE bucket = ? AND key = ?"
)
_LIST = "SELECT key, size, modified, etag FROM objects WHERE bucket = ? ORDER BY key LIMIT ?"
_PUT = "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?, ?)"
_PUT_BODY = "INSERT INTO bodies VALUES (?, ?)"
_DELETE = "DELETE FROM objects WHERE bucket = ? AND key = ?"
_DELETE_BODY = "DELETE FROM bodies WHERE id = ?"

Statement = tuple[str, tuple[object, ...]]


class Store:
    """Rows and bodies in one file."""

    def __init__(self, folder: Path, reactor: Any) -> None:
        self._reactor = reactor
        folder.mkdir(exist_ok=True)
        self._path = folder / "objects.sqlite"
        self._writes: queue.SimpleQueue[tuple[Sequence[Statement], Callable[[], None]]] = (
            queue.SimpleQueue()
        )
        self._reader = self._connect()
        self._reader.executescript(_TABLES)
        self._ids = itertools.count(time.time_ns())
        threading.Thread(target=self._write, daemon=True).start()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        for setting in (
            "page_size = 8192",
            "journal_mode = WAL",
            "synchronous = FULL",
            "mmap_size = 1073741824",
            "wal_autocheckpoint = 4000",
        ):
            connection.execute(f"PRAGMA {setting}")
        return connection

    def _write(self) -> None:
        """Commit what comes. Runs in the thread."""
        connection = self._connect()
        while True:
            batch = [self._writes.get()]
            while len(batch) < BATCH and not self._writes.empty():
                batch.append(self._writes.get())
            connection.execute("BEGIN IMMEDIATE")
            for statements, _ in batch:
                for statement, values in statements:
                    connection.execute(statement, values)
            connection.execute("COMMIT")
            self._reactor.callFromThread(self._answer, batch)

    @staticmethod
    def _answer(batch: Sequence[tuple[Sequence[Statement], Callable[[], None]]]) -> None:
        for _, done in batch:
            done()

    def find(self, bucket: str, key: str) -> Any:
        """Look up an object: size, time, ETag, type, number of its body."""
        return self._reader.execute(_FIND, (bucket, key)).fetchone()

    def read(self, bucket: str, key: str) -> Any:
        """Look up an object with its body in place of the number."""
        return self._reader.execute(_READ, (bucket, key)).fetchone()

    def page(self, bucket: str) -> list[Any]:
        """Read the first page of a bucket, and a row more if there is one."""
        return self._reader.execute(_LIST, (bucket, PAGE + 1)).fetchall()

    def put(
        self, name: tuple[str, str], content: bytes, kind: str, done: Callable[[str], None]
    ) -> None:
        """
        Store an object.

        @param done: Called with the ETag when it is on the disk.
        """
        etag = hashlib.md5(content, usedforsecurity=False).hexdigest()
        body = next(self._ids)
        row = (*name, len(content), int(time.time()), etag, kind, body)
        statements = ((_PUT_BODY, (body, content)), (_PUT, row))
        self._writes.put((statements, lambda: done(etag)))

    def delete(self, name: tuple[str, str], done: Callable[[], None]) -> None:
        """Remove an object, if it is there."""
        statements: list[Statement] = [(_DELETE, name)]
        old = self.find(*name)
        if old is not None:
            statements.append((_DELETE_BODY, (old[4],)))
        self._writes.put((statements, done))


class Signatures:
    """Verifies signatures of one key pair."""

    def __init__(self, access: str, secret: str) -> None:
        self._access = access
        self._secret = secret
        self._keys: dict[str, bytes] = {}

    def _signingKey(self, scope: str) -> bytes:
        key = self._keys.get(scope)
        if key is None:
            key = f"AWS4{self._secret}".encode()
            for part in scope.split("/"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._keys[scope] = key
        return key

    def verify(self, method: str, path: str, query: str, headers: dict[str, str]) -> bool:
        """Say whether a request is signed by the key."""
        try:
            claim = headers["authorization"].removeprefix("AWS4-HMAC-SHA256 ")
            fields = dict(field.strip().split("=", 1) for field in claim.split(","))
            access, scope = fields["Credential"].split("/", 1)
            signed = fields["SignedHeaders"]
            lines = "".join([f"{name}:{headers[name]}\n" for name in signed.split(";")])
            ordered = "&".join(sorted(query.split("&"))) if query else ""
            payload = headers["x-amz-content-sha256"]
            canonical = f"{method}\n{path}\n{ordered}\n{lines}\n{signed}\n{payload}"
            digest = hashlib.sha256(canonical.encode("latin-1")).hexdigest()
            text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{digest}"
            found = hmac.digest(self._signingKey(scope), text.encode(), "sha256").hex()
            return access == self._access and hmac.compare_digest(found, fields["Signature"])
        except (KeyError, ValueError):
            return False


class Connection(Protocol):
    """A connection; a request at a time."""

    factory: "Connections"
    _received = b""
    _left = 0

    def connectionMade(self) -> None:
        """Send small answers at once."""
        self.transport.setTcpNoDelay(True)
        self.transport.bufferSize = 1 << 18

    def dataReceived(self, data: bytes) -> None:
        """Read a head, or a piece of a body."""
        if self._left:
            self._readBody(data)
            return
        if self._received:
            data = self._received + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._received = data
            return
        self._received = b""
        start, *lines = data[:end].decode("latin-1").split("\r\n")
        method, target, _ = start.split(" ")
        path, _, query = target.partition("?")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if not self.factory.signatures.verify(method, path, query, headers):
            self._respond(403)
            return
        bucket, _, key = path[1:].partition("/")
        self._name = bucket, unquote(key)
        if method == "PUT" and key:
            self._kind = headers.get("content-type", "")
            self._pieces: list[bytes] = []
            self._left = int(headers["content-length"])
            if "expect" in headers:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._readBody(data[end + 4 :])
        elif method in ("GET", "HEAD"):
            self._get(method == "HEAD")
        elif method == "DELETE":
            self.factory.store.delete(self._name, lambda: self._respond(204))
        else:
            self._respond(200)

    def _readBody(self, data: bytes) -> None:
        self._left -= len(data)
        self._pieces.append(data)
        if not self._left:
            content = b"".join(self._pieces)
            self.factory.store.put(self._name, content, self._kind, self._stored)

    def _stored(self, etag: str) -> None:
        self._respond(200, fields=f'ETag: "{etag}"\r\n')

    def _get(self, isHead: bool) -> None:
        store = self.factory.store
        if not self._name[1]:
            self._respond(200, self._document(), "Content-Type: application/xml\r\n")
            return
        found = store.find(*self._name) if isHead else store.read(*self._name)
        if found is None:
            self._respond(404)
            return
        size, modified, etag, kind, content = found
        fields = (
            f'ETag: "{etag}"\r\nContent-Type: {kind}\r\n'
            f"Last-Modified: {self.factory.dateOf(modified)}\r\n"
        )
        if isHead:
            self._respond(200, fields=fields, size=size)
        else:
            self._respond(200, content, fields)

    def _document(self) -> bytes:
        """Write a page of the bucket as XML."""
        rows = self.factory.store.page(self._name[0])
        stamps: dict[int, str] = {}
        entries = []
        for key, size, modified, etag in rows[:PAGE]:
            stamp = stamps.get(modified)
            if stamp is None:
                stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(modified))
                stamps[modified] = stamp
            entries.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>{stamp}</LastModified>"
                f"<ETag>&quot;{etag}&quot;</ETag><Size>{size}</Size>"
                "<StorageClass>STANDARD</StorageClass></Contents>"
            )
        isCut = "true" if len(rows) > PAGE else "false"
        return (
            f"<ListBucketResult><IsTruncated>{isCut}</IsTruncated>{''.join(entries)}"
            "</ListBucketResult>"
        ).encode()

    def _respond(
        self, code: int, body: bytes = b"", fields: str = "", size: int | None = None
    ) -> None:
        length = len(body) if size is None else size
        shared = self.factory
        self.transport.write(
            b"HTTP/1.1 %d X\r\nDate: %b\r\nx-amz-request-id: %016X\r\n"
            b"Content-Length: %d\r\n%b\r\n%b"
            % (code, shared.now(), next(shared.ids), length, fields.encode(), body)
        )


class Connections(Factory):
    """What all connections share."""

    protocol = Connection

    def __init__(self, store: Store, signatures: Signatures) -> None:
        self.store = store
        self.signatures = signatures
        self.ids = itertools.count(1)
        self._dates: dict[int, str] = {}
        self._second = 0
        self._now = b""

    def dateOf(self, second: int) -> str:
        """Write a time of an object as HTTP has it."""
        text = self._dates.get(second)
        if text is None:
            if len(self._dates) > PAGE:
                self._dates.clear()
            text = self._dates[second] = formatdate(second, usegmt=True)
        return text

    def now(self) -> bytes:
        """Write the time of now."""
        second = int(time.time())
        if second != self._second:
            self._second, self._now = second, formatdate(second, usegmt=True).encode()
        return self._now


def main(port: int, folder: Path, access: str, secret: str) -> None:
    """Serve until the end."""
    from twisted.internet import reactor

    serve(port, Connections(Store(folder, reactor), Signatures(access, secret)))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
