"""What one worker has acknowledged, the other answers by: settings of a bucket, and versions."""

import hashlib
import json
import os
import re
import socket
import sys
from base64 import b64encode
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.clients import ROOT
from tests.support.daemon import Daemon
from tests.support.selection import long
from tests.wire.s3.bulk import connect
from tests.wire.s3.fixture import eventually, makeDaemon, ownDirectory

ROUNDS = 15
"""Each has the settings changed by the worker that read them in the one before."""

READS = 3
"""The reader keeps what it compiles: each state is read so often."""

ORIGIN = "https://example.com"


def workerOf(daemon: Daemon, connection: HTTPConnection) -> int:
    """Return the process id of the worker that has a connection."""
    connection.request("GET", "/", headers=ROOT.plainHeaders())
    connection.getresponse().read()
    inode = _serverEnd(connection.sock)
    for pid in map(int, Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if os.readlink(descriptor) == f"socket:[{inode}]":
                    return pid
            except FileNotFoundError:
                continue
    raise AssertionError("no worker has the connection")


def _serverEnd(client: socket.socket) -> str:
    """
    Return the inode of the server's end of a connection.

    Each read returns a page of the table, which others change meanwhile: a row may be missing, or
    come twice.
    """
    ends = [_address(*client.getpeername()), _address(*client.getsockname())]
    found: set[str] = set()

    def isFound() -> bool:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        found.update(row[9] for row in rows if row[1:3] == ends)
        return bool(found)

    assert eventually(isFound), ends
    [inode] = found
    return inode


def _address(host: str, port: int) -> str:
    """Return an address as the kernel's table has it."""
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"


def connectToWorkers(case: SynchronousTestCase, daemon: Daemon) -> list[HTTPConnection]:
    """Connect to S3 at each of two workers; a cleanup of the case closes the connections."""
    found: dict[int, HTTPConnection] = {}
    while len(found) < 2:
        connection = connect(daemon.address("s3"))
        case.addCleanup(connection.close)
        found.setdefault(workerOf(daemon, connection), connection)
    return list(found.values())


class SettingsOfWorkersTests(SynchronousTestCase):
    """Two workers that change and use the settings of one bucket in turns."""

    def setUp(self) -> None:
        """Start both, and connect to each."""
        self.daemon = makeDaemon(ownDirectory("settings") / "data", "--workers", "2")
        self.addCleanup(self.daemon.kill)
        self.daemon.start()
        self.writer, self.reader = connectToWorkers(self, self.daemon)
        self.change("PUT", "/box")
        self.change("PUT", "/box/k", b"body")

    def ask(
        self,
        connection: HTTPConnection,
        method: str,
        target: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request, with the root key unless it has headers."""
        if headers is None:
            digest = b64encode(hashlib.md5(body).digest()).decode()
            headers = {**ROOT.plainHeaders(), "Content-MD5": digest}
        connection.request(method, target, body, headers)
        with closing(connection.getresponse()) as response:
            found = {name.lower(): value for name, value in response.headers.items()}
            return response.status, found, response.read()

    def change(self, method: str, target: str, body: bytes = b"") -> None:
        """Have the writer change something."""
        status, _, answer = self.ask(self.writer, method, target, body)
        self.assertIn(status, (200, 204), answer)

    def assertSeen(
        self, status: int, method: str, target: str, headers: dict[str, str] | None = None
    ) -> tuple[dict[str, str], bytes]:
        """The reader's next responses have this status; return the last."""
        for _ in range(READS):
            found = self.ask(self.reader, method, target, headers=headers)
            self.assertEqual(found[0], status, (method, target, found))
        return found[1:]

    def swap(self) -> None:
        """Have the other worker change things from here on."""
        self.writer, self.reader = self.reader, self.writer

    @long("takes a second or more")
    def test_policy(self) -> None:
        """Who may read by a policy, may not by the next, and not without."""
        for number in range(ROUNDS):
            key = f"k{number}"
            statement = {
                "Effect": "Allow",
                "Principal": "*",
                "Action": "s3:GetObject",
                "Resource": f"arn:aws:s3:::box/{key}",
            }
            self.assertSeen(403, "GET", f"/box/{key}", {})
            self.change("PUT", f"/box/{key}", b"body")
            self.change("PUT", "/box?policy", json.dumps({"Statement": statement}).encode())
            self.assertSeen(200, "GET", f"/box/{key}", {})
            self.assertSeen(403, "GET", "/box/k", {})
            statement["Resource"] = "arn:aws:s3:::box/k"
            self.change("PUT", "/box?policy", json.dumps({"Statement": statement}).encode())
            self.assertSeen(403, "GET", f"/box/{key}", {})
            self.assertSeen(200, "GET", "/box/k", {})
            self.change("DELETE", "/box?policy")
            self.assertSeen(403, "GET", "/box/k", {})
            self.swap()

    @long("takes a second or more")
    def test_acl(self) -> None:
        """A list that all may read is obeyed, and so is the block of such lists."""
        block = (
            b"<PublicAccessBlockConfiguration><IgnorePublicAcls>true</IgnorePublicAcls>"
            b"</PublicAccessBlockConfiguration>"
        )
        owner = b"<Owner><ID>%b</ID></Owner>"
        for _ in range(ROUNDS):
            self.assertSeen(403, "GET", "/box", {})
            status, _, answer = self.ask(self.writer, "GET", "/box?acl")
            self.assertEqual(status, 200)
            found = re.search(rb"<Owner>\s*<ID>(.*?)</ID>", answer)
            assert found is not None, answer
            group = (
                b'<Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="Group">'
                b"<URI>http://acs.amazonaws.com/groups/global/AllUsers</URI></Grantee>"
            )
            grant = b"<Grant>%b<Permission>READ</Permission></Grant>" % group
            lists = [
                b"<AccessControlPolicy>%b<AccessControlList>%b</AccessControlList>"
                b"</AccessControlPolicy>" % (owner % found[1], grants)
                for grants in (grant, b"")
            ]
            self.change("PUT", "/box?acl", lists[0])
            self.assertSeen(200, "GET", "/box", {})
            self.change("PUT", "/box?publicAccessBlock", block)
            self.assertSeen(403, "GET", "/box", {})
            self.change("DELETE", "/box?publicAccessBlock")
            self.assertSeen(200, "GET", "/box", {})
            self.change("PUT", "/box?acl", lists[1])
            self.swap()

    @long("takes a second or more")
    def test_cors(self) -> None:
        """Pages of another origin are let in by the newest rules."""
        rule = (
            b"<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod>"
            b"<AllowedOrigin>%b</AllowedOrigin></CORSRule></CORSConfiguration>"
        )
        preflight = {"Origin": ORIGIN, "Access-Control-Request-Method": "GET"}
        page = {**ROOT.plainHeaders(), "Origin": ORIGIN}
        for _ in range(ROUNDS):
            self.assertSeen(403, "OPTIONS", "/box/k", preflight)
            self.change("PUT", "/box?cors", rule % ORIGIN.encode())
            self.assertSeen(200, "OPTIONS", "/box/k", preflight)
            headers, _ = self.assertSeen(200, "GET", "/box/k", page)
            self.assertEqual(headers["access-control-allow-origin"], ORIGIN)
            self.change("PUT", "/box?cors", rule % b"https://other.example")
            self.assertSeen(403, "OPTIONS", "/box/k", preflight)
            self.change("DELETE", "/box?cors")
            headers, _ = self.assertSeen(200, "GET", "/box/k", page)
            self.assertNotIn("access-control-allow-origin", headers)
            self.swap()

    @long("takes a second or more")
    def test_versioning(self) -> None:
        """A write obeys the status that another worker has set."""
        for _ in range(ROUNDS):
            for status in ("Enabled", "Suspended"):
                document = (
                    f"<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>"
                )
                self.change("PUT", "/box?versioning", document.encode())
                headers, _ = self.assertSeen(200, "PUT", "/box/k")
                self.assertEqual("x-amz-version-id" in headers, status == "Enabled")
                headers, _ = self.assertSeen(204, "DELETE", "/box/k")
                self.assertEqual(headers["x-amz-version-id"] == "null", status == "Suspended")
            self.swap()

    @long("takes a second or more")
    def test_versionsByIds(self) -> None:
        """
        A version that a worker has read again and again is shown by it as another has changed it:
        gone, with other tags, and C{null} as the newest one.
        """
        enabled, suspended = (
            b"<VersioningConfiguration><Status>%b</Status></VersioningConfiguration>" % status
            for status in (b"Enabled", b"Suspended")
        )
        document = b"<Tagging><TagSet><Tag><Key>a</Key><Value>v</Value></Tag></TagSet></Tagging>"
        for number in range(ROUNDS):
            self.change("PUT", "/box?versioning", enabled)
            _, headers, _ = self.ask(self.writer, "PUT", "/box/k", b"old %d" % number)
            target = f"/box/k?versionId={headers['x-amz-version-id']}"
            self.change("PUT", "/box/k", b"new")
            _, body = self.assertSeen(200, "GET", target)
            self.assertEqual(body, b"old %d" % number)
            self.change("PUT", f"{target}&tagging", document)
            headers, _ = self.assertSeen(200, "GET", target)
            self.assertEqual(headers["x-amz-tagging-count"], "1")
            self.change("DELETE", target)
            self.assertSeen(404, "GET", target)
            self.change("PUT", "/box?versioning", suspended)
            for body in (b"null %d" % number, b"and %d" % number):
                self.change("PUT", "/box/k", body)
                _, found = self.assertSeen(200, "GET", "/box/k?versionId=null")
                self.assertEqual(found, body)
            self.change("DELETE", "/box/k?versionId=null")
            self.assertSeen(404, "GET", "/box/k?versionId=null")
            self.swap()

    @long("takes a second or more")
    def test_locks(self) -> None:
        """A version is shown with the legal hold that another worker has placed or released."""
        self.change(
            "PUT",
            "/box?versioning",
            b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>",
        )
        self.change(
            "PUT",
            "/box?object-lock",
            b"<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>"
            b"</ObjectLockConfiguration>",
        )
        _, headers, _ = self.ask(self.writer, "PUT", "/box/k", b"old")
        target = f"/box/k?versionId={headers['x-amz-version-id']}"
        self.change("PUT", "/box/k", b"new")
        for _ in range(ROUNDS):
            for status in ("ON", "OFF"):
                document = f"<LegalHold><Status>{status}</Status></LegalHold>"
                self.change("PUT", f"{target}&legal-hold", document.encode())
                headers, _ = self.assertSeen(200, "HEAD", target)
                self.assertEqual(headers["x-amz-object-lock-legal-hold"], status)
            self.swap()

    @long("takes a second or more")
    def test_tags(self) -> None:
        """Tags of a bucket and of an object are those that were set last."""
        document = b"<Tagging><TagSet>%b</TagSet></Tagging>"
        tag = b"<Tag><Key>%d</Key><Value>v</Value></Tag>"
        for number in range(ROUNDS):
            for target in ("/box?tagging", "/box/k?tagging"):
                self.change("PUT", target, document % (tag % number))
                _, body = self.assertSeen(200, "GET", target)
                self.assertIn(b"<Key>%d</Key>" % number, body)
            headers, _ = self.assertSeen(200, "HEAD", "/box/k")
            self.assertEqual(headers["x-amz-tagging-count"], "1")
            for target in ("/box?tagging", "/box/k?tagging"):
                self.change("DELETE", target)
            self.assertSeen(404, "GET", "/box?tagging")
            headers, _ = self.assertSeen(200, "HEAD", "/box/k")
            self.assertNotIn("x-amz-tagging-count", headers)
            self.swap()
