"""Nodes that are stopped in the middle of writes, for longer than their lease, and go on."""

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from socket import create_connection
from typing import Any
from urllib.parse import quote

from attrs import define, field

from tests.support.clients import ROOT
from tests.support.cluster import Cluster
from tests.support.daemon import Daemon
from tests.support.selection import long, rounds, soak
from tests.wire.cluster.case import ClusterCase, ask, get, put
from tests.wire.cluster.client import Answer
from tests.wire.s3.bulk import objectTarget

LEASE_SECONDS = 12
"""
The lease of the nodes here. A node keeps it while requests are held one after the other, although a
busy machine may stop the node for a third of this time and more.
"""

ROUNDS = rounds(1, 1, soak=50)

PAUSE_SECONDS = rounds(0, 0, soak=60)
"""A pause lasts for so long, and in any case until the lease is ended."""

OLD, STALE, NEWER = (bytes([letter]) * 50_000 for letter in b"osn")
SMALL = b"stale"

STEPS = ("row", "commit", "answer")


def _document(etag: str) -> bytes:
    part = f"<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
    return f"<CompleteMultipartUpload>{part}</CompleteMultipartUpload>".encode()


@define(eq=False)
class Paused:
    """
    A node with writes that wait, each at a step.

    @ivar stops: The directory that says where writes wait; see L{tests.wire.cluster.nodeprogram}.
    @ivar isLate: Whether they go on only when it has its next lease.
    @ivar calls: What the clients of the node will be answered, by key.
    @ivar uploads: The uploads of the keys that have one.
    """

    case: ClusterCase
    cluster: Cluster
    node: Daemon
    other: Daemon
    stops: Path
    bucket: str
    isLate: bool
    lease: int = 0
    stoppedAt: float = 0.0
    calls: "dict[str, Future[Answer]]" = field(factory=dict)
    uploads: dict[str, str] = field(factory=dict)
    held: int = 0

    def hold(
        self, key: str, method: str, query: str = "", body: bytes = b"", **headers: str
    ) -> None:
        """Begin a write, and wait until it waits."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        target = objectTarget(self.bucket, key) + query
        self.calls[key] = self.case.begin(
            ask, self.node, method, target, body, named, PAUSE_SECONDS + 300.0
        )
        self.held += 1
        file = self.stops / "held"

        def isHeld() -> bool:
            assert not self.calls[key].done(), f"{key}: {self.calls[key].result()}"
            return file.exists() and file.read_text().count("\n") == self.held

        self.case.waitFor(isHeld, f"{key} was not held")

    def begin(self, key: str) -> str:
        """Make an upload with a part, by the other node."""
        made = ask(self.other, "POST", objectTarget(self.bucket, key) + "?uploads=")
        found = re.search(rb"<UploadId>(.+?)</UploadId>", made.body)
        assert found is not None, made
        upload = self.uploads[key] = quote(found[1].decode())
        return f"?partNumber=1&uploadId={upload}"

    def holdAll(self) -> None:
        """Have every write wait at every step."""
        for step in STEPS:
            for name in ("small", "put", "copy", "delete", "complete", "part"):
                answer = put(self.other, self.bucket, f"{step}/{name}", OLD)
                assert answer.status == 200, answer
        puts = ("bytes", *(f"{step}/put" for step in STEPS))
        parts = {f"{step}/{name}": "" for step in STEPS for name in ("part", "complete")}
        for key in parts:
            parts[key] = self.begin(key)
            answer = ask(self.other, "PUT", objectTarget(self.bucket, key) + parts[key], STALE)
            assert answer.status == 200, answer
            etag = answer.headers["etag"]
        (self.stops / "hold").touch()
        for key in puts:
            if key == "bytes":
                (self.stops / "bytes").touch()
            self.hold(key, "PUT", body=STALE)
            (self.stops / "bytes").unlink(missing_ok=True)
        for step in STEPS:
            self.hold(f"{step}/small", "PUT", body=SMALL)
            self.hold(f"{step}/copy", "PUT", x_amz_copy_source=objectTarget(self.bucket, "source"))
            self.hold(f"{step}/delete", "DELETE")
            self.hold(f"{step}/create", "POST", "?uploads=")
            self.hold(f"{step}/part", "PUT", parts[f"{step}/part"], STALE + b"x")
            key = f"{step}/complete"
            query = f"?uploadId={self.uploads[key]}"
            self.hold(key, "POST", query, _document(etag))

    def stop(self) -> None:
        """Stop the node."""
        [(self.lease,)] = self.cluster.rows(
            "SELECT max(id) FROM leases WHERE alive AND node LIKE %s", f"%:{self.node.pid}"
        )
        self.stoppedAt = time.monotonic()
        self.cluster.suspend(self.node)

    def waitForEnd(self, seconds: float) -> None:
        """Wait until its lease is ended by the others, and for some seconds since L{stop}."""

        def isOver() -> bool:
            sql = "SELECT count(*) FROM leases WHERE id = %s AND alive"
            return bool(self.cluster.rows(sql, self.lease) == [(0,)])

        self.case.waitFor(isOver, "the lease is not ended")
        self.case.letPass(max(0.0, self.stoppedAt + seconds - time.monotonic()))

    def serves(self) -> bool:
        """Return whether the node serves."""
        return get(self.node, self.bucket, "source").status == 200

    def overwrite(self) -> None:
        """Write something newer by the other node."""
        for key in self.calls:
            if key.endswith("/part"):
                query = f"?partNumber=1&uploadId={self.uploads[key]}"
                answer = ask(self.other, "PUT", objectTarget(self.bucket, key) + query, NEWER)
                assert answer.status == 200, answer
            if not key.endswith("/create"):
                assert put(self.other, self.bucket, key, NEWER).status == 200, key

    def letGo(self) -> None:
        """Let what waits go on."""
        (self.stops / "hold").unlink()

    def answers(self) -> dict[str, Any]:
        """Return what the clients were answered: a status, or an error."""
        found: dict[str, Any] = {}
        for key, call in self.calls.items():
            try:
                found[key] = call.result(300).status
            except OSError as error:
                found[key] = type(error).__name__
        return found

    def overwritten(self) -> list[str]:
        """List the keys that do not hold what was written last."""
        found = [
            key
            for key in self.calls
            if not key.endswith("/create") and get(self.other, self.bucket, key).body != NEWER
        ]
        for key, upload in self.uploads.items():
            if key.endswith("/part"):
                listed = ask(
                    self.other, "GET", objectTarget(self.bucket, key) + f"?uploadId={upload}"
                ).body
                if b"<Size>%d<" % len(NEWER) not in listed:
                    found.append(f"{key}, the part")
        target = f"/{self.bucket}?uploads&prefix="
        for step in STEPS[:2]:
            if b"<UploadId>" in ask(self.other, "GET", f"{target}{step}/create").body:
                found.append(f"{step}/create")
        return found


@long("starts a cluster")
class PauseTests(ClusterCase):
    """C{SIGSTOP} of a node, with writes at each step."""

    def setUp(self) -> None:
        """Start a node that is never stopped."""
        super().setUp()
        self.cluster = self.makeCluster(options={"leaseSeconds": LEASE_SECONDS})
        self.other = self.startNode(self.cluster)

    def pausable(self, broken: str = "", isLate: bool = False) -> Paused:
        """
        Start a node that will be stopped.

        @param broken: The rules that do not hold for it.
        @param isLate: Whether its writes go on only when it has its next lease.
        """
        directory = self.cluster.directory / f"stops{len(self.cluster.nodes)}"
        directory.mkdir()
        node = self.startNode(self.cluster, broken, directory)
        bucket = f"pause{len(self.cluster.nodes)}"
        self.cluster.client(self.other).create_bucket(Bucket=bucket)
        answer = put(self.other, bucket, "source", STALE)
        assert answer.status == 200, answer
        return Paused(self, self.cluster, node, self.other, directory, bucket, isLate)

    def stopAll(self, *nodes: Paused) -> None:
        """
        Stop nodes in every step of every write, write something newer, and let them go on.
        """
        for paused in nodes:
            paused.holdAll()
        for paused in nodes:
            paused.stop()
        for paused in nodes:
            paused.waitForEnd(PAUSE_SECONDS)
            paused.overwrite()
        for paused in nodes:
            if not paused.isLate:
                paused.letGo()
            self.cluster.resume(paused.node)
        for paused in nodes:
            if paused.isLate:
                self.waitFor(paused.serves, "no new lease")
                paused.letGo()

    def assertRefused(self, paused: Paused) -> None:
        """Check that nothing of a stopped node has happened after the pause."""
        answers = paused.answers()
        late = {key: found for key, found in answers.items() if not key.startswith("answer/")}
        self.assertEqual(set(late.values()), {503}, late)
        self.assertEqual(paused.overwritten(), [])
        self.waitFor(paused.serves, "it serves no more")
        self.assertEqual(put(paused.node, paused.bucket, "row/put", OLD).status, 200)

    def test_everyStep(self) -> None:
        """
        What a node goes on with after its lease is refused, and what is newer stays: also where it
        has another lease by then, and where it does not see itself that its lease is over.
        """
        nodes = self.pausable(), self.pausable(isLate=True), self.pausable("clock")
        with self.sendHalf(nodes[0], "half", STALE * 100) as sendRest:
            self.stopAll(*nodes)
            put(self.other, nodes[0].bucket, "half", NEWER)
            self.assertIn(sendRest(), (b"503", b""))
        self.assertEqual(get(self.other, nodes[0].bucket, "half").body, NEWER)
        for paused in nodes:
            self.assertRefused(paused)
        self.settle(self.cluster.conninfos[0])
        self.assertAgreement(self.cluster)

    def test_brokenRules(self) -> None:
        """
        Without the fence of the server, and where requests are carried out under the lease of the
        moment, the test above fails.
        """
        unfenced, unleased = self.pausable("fence"), self.pausable("request", isLate=True)
        self.stopAll(unfenced, unleased)
        for paused, key in ((unfenced, "row/put"), (unleased, "row/small")):
            paused.answers()
            self.assertIn(key, paused.overwritten())

    @soak("takes minutes")
    def test_lapsing(self) -> None:
        """A write at the very end of a lease is carried out or refused, as it is answered."""
        paused = self.pausable()
        bucket, refused = paused.bucket, 0
        for number in range(ROUNDS):
            paused.calls.clear()
            (paused.stops / "hold").touch()
            keys = [f"row/{name}{number}" for name in ("small", "large")]
            for key in keys:
                paused.hold(key, "PUT", body=STALE if key.startswith("row/large") else SMALL)
            self.cluster.suspend(paused.node)
            for key in keys:
                self.assertEqual(put(self.other, bucket, key, NEWER).status, 200)
            paused.letGo()
            # Its lease is over after one of them at most, and is ended by another node soon after.
            self.letPass(self.random.uniform(0.8, 2.4) * LEASE_SECONDS)
            self.cluster.resume(paused.node)
            answers = paused.answers()
            for key in keys:
                found = get(self.other, bucket, key).body
                self.assertEqual(found == NEWER, answers[key] != 200, (key, answers, self.where))
                refused += answers[key] != 200
            self.waitFor(paused.serves, "it serves no more")
        self.settle(self.cluster.conninfos[0])
        self.assertAgreement(self.cluster)
        self.figures(f"lapsing: {refused} of {2 * ROUNDS} refused")

    @contextlib.contextmanager
    def sendHalf(self, paused: Paused, key: str, body: bytes) -> Iterator[Callable[[], bytes]]:
        """Send half of a body; what is yielded sends the rest, and returns the status, if any."""
        with create_connection(paused.node.address(), 60) as connection:
            head = [f"PUT {objectTarget(paused.bucket, key)} HTTP/1.1", "Host: n"]
            head += [f"{name}: {value}" for name, value in ROOT.plainHeaders().items()]
            head += ["Connection: close", f"Content-Length: {len(body)}", "", ""]
            connection.sendall("\r\n".join(head).encode() + body[: len(body) // 2])

            def sendRest() -> bytes:
                # The node may have ended the connection already.
                with contextlib.suppress(OSError):
                    connection.sendall(body[len(body) // 2 :])
                with contextlib.suppress(OSError):
                    return connection.recv(64)[9:12]
                return b""

            yield sendRest
