"""
A client of several nodes: writes to keys of its own by any node, reads back by any other, and
notes in its journal what was acknowledged.

A key has one writer. After a write whose outcome is unknown the key rests for longer than a node
may have carried it out, and is read before it is written again: so each state that is found there
afterwards is one that had to be.
"""

import hashlib
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException
from threading import Event

from attrs import define, field, frozen

from tests.support.clients import ROOT
from tests.support.journal import (
    Journal,
    Stack,
    State,
    Version,
    Written,
    afterWrite,
    fits,
    inParts,
    whole,
    without,
)
from tests.wire.s3.bulk import objectTarget
from tests.wire.s3.verdict import listStacks
from tests.wire.s3.workload import ServerAway, observe

PATIENCE_SECONDS = 20.0
"""After so long without an answer the outcome of a request is unknown."""

_SMALL, _MEDIUM, _LARGE = (0, 4_000), (40_000, 200_000), (5 << 20, (5 << 20) + 300_000)

_NO_HEADERS: Mapping[str, str] = {}

_PAUSE_SECONDS = 0.02
"""Before the next request to a node that could not serve one."""

_DEEPEST = 4


class Contradiction(Exception):
    """An answer that another contradicts; the text says which."""


class Unknown(Exception):
    """A request has no answer, or one that says nothing of what was done."""


class NotSent(Exception):
    """A request did not reach a node."""


@frozen
class Answer:
    """The answer to a request that was carried out, or refused for good."""

    status: int
    body: bytes
    headers: Mapping[str, str]


@define(eq=False)
class Nodes:
    """
    Where the nodes listen. Any thread.

    @ivar addresses: Replaced, never changed.
    """

    addresses: tuple[tuple[str, int], ...]


@define(eq=False)
class Client:
    """
    One of the clients; its keys are those of its number.

    @ivar counts: How often each kind of answer came.
    @ivar acknowledgedAt: When each write was acknowledged, by the monotonic clock.
    @ivar status: Of the bucket's versioning; empty for none.
    @ivar restSeconds: How long a key rests after a write whose outcome is unknown.
    """

    _nodes: Nodes
    _bucket: str
    _number: int
    _journal: Journal
    _random: random.Random
    _halt: Event
    _restSeconds: float
    _status: str = ""
    _keys: int = 10
    counts: Counter[str] = field(factory=Counter, init=False)
    acknowledgedAt: list[float] = field(factory=list, init=False)
    _resting: dict[str, float] = field(factory=dict, init=False)
    _connections: dict[tuple[str, int], HTTPConnection] = field(factory=dict, init=False)

    def run(self) -> None:
        """
        Write and read until all is over.

        @raise Contradiction: A node gave a wrong answer.
        """
        while not self._halt.is_set():
            try:
                self._step()
            except Unknown:
                self.counts["unknown"] += 1
                self._halt.wait(_PAUSE_SECONDS)
            except (NotSent, ServerAway, OSError, HTTPException):
                self.counts["refused"] += 1
                self._disconnect()
                self._halt.wait(_PAUSE_SECONDS)
        self._disconnect()

    def _disconnect(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def _step(self) -> None:
        key = self._name(self._random.randrange(self._keys))
        if key in self._resting:
            if time.monotonic() < self._resting[key]:
                self._halt.wait(_PAUSE_SECONDS / 4)
                return
            self._settle(key)
            return
        self._choose()(key)

    def _choose(self) -> Callable[[str], None]:
        if self._status:
            kinds = (self._putSmall, self._putMedium, self._delete, self._dropVersion, self._read)
            return self._random.choices(kinds, (4, 2, 1, 3, 4))[0]
        chances = {
            self._putSmall: 5,
            self._putMedium: 4,
            self._putParts: 2,
            self._copy: 3,
            self._delete: 2,
            self._putIf: 3,
            self._putUnless: 1,
            self._read: 6,
            self._list: 1,
        }
        return self._random.choices(list(chances), list(chances.values()))[0]

    def _name(self, number: int) -> str:
        return f"c{self._number}/{number:03d}"

    def _body(self, smallest: int, largest: int) -> bytes:
        word = self._random.randbytes(16)
        size = self._random.randint(smallest, largest)
        return (word * (size // 16 + 1))[:size]

    def _newest(self, key: str) -> State:
        stack = self._journal.newest(key)
        return stack[0].content if stack else None

    def _putSmall(self, key: str) -> None:
        self._put(key, self._body(*_SMALL))

    def _putMedium(self, key: str) -> None:
        self._put(key, self._body(*_MEDIUM))

    def _put(self, key: str, body: bytes, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        stack = self._journal.newest(key)
        if self._status and len(stack) >= _DEEPEST:
            self._dropVersion(key)
            return
        after = afterWrite(stack, self._status, whole(body))
        self._write(key, after, "PUT", body=body, headers=headers)

    def _delete(self, key: str) -> None:
        stack = self._journal.newest(key)
        if self._status and len(stack) >= _DEEPEST:
            self._dropVersion(key)
            return
        self._write(key, afterWrite(stack, self._status, None), "DELETE")

    def _dropVersion(self, key: str) -> None:
        stack = self._journal.newest(key)
        if stack:
            version = self._random.choice(stack)
            after = without(stack, version.id)
            self._write(key, after, "DELETE", f"?versionId={version.id}")

    def _putIf(self, key: str) -> None:
        """Write under the condition that is true of the key: it must be carried out."""
        newest = self._newest(key)
        name = {"If-None-Match": "*"} if newest is None else {"If-Match": newest.etag}
        self._put(key, self._body(*self._random.choice((_SMALL, _MEDIUM))), name)

    def _putUnless(self, key: str) -> None:
        """Write under a condition that is not true of the key: it must be refused."""
        newest = self._newest(key)
        headers = {"If-Match": '"0"'} if newest is None else {"If-None-Match": "*"}
        target = objectTarget(self._bucket, key)
        answer = self._ask("PUT", target, b"never", headers)
        if answer.status not in (404, 412):
            raise Contradiction(f"{key} holds {newest}, and {headers} got {answer.status}")

    def _copy(self, key: str) -> None:
        names = [self._name(number) for number in range(self._keys)]
        found = [
            (name, newest)
            for name in names
            if name not in self._resting
            and (newest := self._newest(name)) is not None
            and "-" not in newest.etag
        ]
        if not found:
            return
        source, content = self._random.choice(found)
        if source == key:
            return
        headers = {"x-amz-copy-source": objectTarget(self._bucket, source)}
        if self._random.random() < 0.5:
            self._write(key, afterWrite((), "", content), "PUT", headers=headers)
        else:
            self._copyPart(key, content, headers)

    def _copyPart(self, key: str, content: Written, headers: Mapping[str, str]) -> None:
        upload = self._createUpload(key)
        answer = self._ask("PUT", self._target(key, 1, upload), b"", headers)
        if answer.status != 200:
            raise Contradiction(f"the part of {key} got {answer.status}: {answer.body!r}")
        etag = content.etag.strip('"')
        digest = hashlib.md5(bytes.fromhex(etag), usedforsecurity=False).hexdigest()
        copied = Written(f'"{digest}-1"', content.size, content.sha256)
        self._complete(key, upload, [etag], copied)

    def _putParts(self, key: str) -> None:
        parts = [self._body(*_MEDIUM)]
        if self._random.random() < 0.2:
            parts.insert(0, self._body(*_LARGE))
        upload = self._createUpload(key)
        etags = []
        for number, part in enumerate(parts, 1):
            answer = self._ask("PUT", self._target(key, number, upload), part)
            if answer.status != 200:
                raise Contradiction(f"a part of {key} got {answer.status}: {answer.body!r}")
            etags.append(answer.headers["etag"].strip('"'))
        self._complete(key, upload, etags, inParts(parts))

    def _createUpload(self, key: str) -> str:
        answer = self._ask("POST", objectTarget(self._bucket, key) + "?uploads=")
        found = re.search(rb"<UploadId>(.+?)</UploadId>", answer.body)
        if found is None:
            raise Contradiction(f"no upload of {key}: {answer}")
        return found[1].decode()

    def _target(self, key: str, number: int, upload: str) -> str:
        return f"{objectTarget(self._bucket, key)}?partNumber={number}&uploadId={upload}"

    def _complete(self, key: str, upload: str, etags: list[str], content: Written) -> None:
        listed = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
            for number, etag in enumerate(etags, 1)
        )
        body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
        self._write(key, afterWrite((), "", content), "POST", f"?uploadId={upload}", body)

    def _read(self, key: str) -> None:
        """Read by any node what was acknowledged by another."""
        connection = self._connection()
        found = observe(connection, self._bucket, key)
        if found != self._newest(key):
            raise Contradiction(f"{key} holds {found}, and {self._journal.newest(key)} was written")
        self.counts["read"] += 1

    def _list(self, key: str) -> None:
        """List by any node."""
        found = set(listStacks(self._connection(), self._bucket, f"c{self._number}/"))
        for number in range(self._keys):
            name = self._name(number)
            if name not in self._resting and (name in found) != bool(self._journal.newest(name)):
                raise Contradiction(
                    f"{name} is {'' if name in found else 'not '}listed, and"
                    f" {self._journal.newest(name)} was written"
                )
        self.counts["list"] += 1

    def _settle(self, key: str) -> None:
        """Find out what came of a write."""
        connection = self._connection()
        stack: Stack = ()
        if self._status:
            entries = listStacks(connection, self._bucket, key).get(key, [])
            stack = tuple(
                Version(
                    entry["VersionId"],
                    observe(connection, self._bucket, key, entry["VersionId"])
                    if "ETag" in entry
                    else None,
                )
                for entry in entries
            )
        elif (content := observe(connection, self._bucket, key)) is not None:
            stack = (Version("null", content),)
        allowed = self._journal.allowed(key)
        if not any(fits(stack, each) for each in allowed):
            raise Contradiction(f"{key} has the versions {stack}; it may have {allowed}")
        self._journal.settle(key, stack)
        del self._resting[key]
        self.counts["settled"] += 1

    def _write(
        self,
        key: str,
        after: Stack,
        method: str,
        query: str = "",
        body: bytes = b"",
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> None:
        self._journal.attempt(key, after)
        target = objectTarget(self._bucket, key) + query
        try:
            answer = self._ask(method, target, body, headers)
        except NotSent:
            self._journal.refuse(key)
            raise
        except Unknown:
            self._resting[key] = time.monotonic() + self._restSeconds
            raise
        if answer.status not in (200, 204) or b"<Error>" in answer.body:
            raise Contradiction(f"{method} {target} {headers} got {answer}")
        self._journal.acknowledge(key, answer.headers.get("x-amz-version-id", ""))
        self.acknowledgedAt.append(time.monotonic())
        self.counts["acknowledged"] += 1

    def _connection(self) -> HTTPConnection:
        """Connect to any of the nodes, or take the connection that is there."""
        address = self._random.choice(self._nodes.addresses)
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = HTTPConnection(
                *address, timeout=PATIENCE_SECONDS
            )
        if connection.sock is None:
            try:
                connection.connect()
            except OSError as error:
                raise NotSent from error
        return connection

    def _ask(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> Answer:
        connection = self._connection()
        try:
            connection.request(method, target, body, {**ROOT.plainHeaders(), **headers})
            with connection.getresponse() as response:
                answer = Answer(
                    response.status,
                    response.read(),
                    {name.lower(): value for name, value in response.getheaders()},
                )
        except (OSError, HTTPException) as error:
            connection.close()
            raise Unknown from error
        if answer.status >= 500:
            self.counts[str(answer.status)] += 1
            raise Unknown(answer.status)
        return answer
