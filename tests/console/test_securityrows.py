"""The rows of security: each operation of the table, as those ask who may not."""

import json
import re
import select
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from threading import Event
from typing import Any
from urllib.parse import quote

from storagegate.console.operations import OPERATIONS, APIOperation
from storagegate.objects.accounts import ROLES
from tests.console.fixture import API, ConsoleCase, Reply
from tests.support.clients import ROOT, Account
from tests.support.contention import Stopwatch
from tests.support.selection import long

_PARAMETERS = {"bucket": "no-such-bucket", "number": "1", "name": "tags"}

_SLOW_OR_ENDLESS = {"runDoctor", "streamEvents", "signOut", "reloadConfiguration"}
"""Operations that are not carried out here; each has tests of its own."""

_UNSIGNED = {
    "signIn",
    "showSession",
    "listIssuers",
    "beginSignIn",
    "finishSignIn",
    "sendBytes",
    "sendZip",
}
"""Operations without C{least}: no session, or a cookie and a ticket or a sealed sign-in."""

_OTHERS_KEYS = {("none", "showKey"), ("none", "judgeAccess"), ("none", "revokeKey")}
"""They are allowed for one's own keys only."""

_CUT_SECONDS = 10.0


def path(operation: APIOperation) -> str:
    """Return the path of an operation on what does not exist."""
    segments = [
        _PARAMETERS.get(each[1:-1], "none") if each.startswith("{") else each
        for each in operation.path.split("/")
    ]
    return "/".join(segments)


class RowsCase(ConsoleCase):
    """Many requests over one connection."""

    def setUp(self) -> None:
        """Open the connection."""
        super().setUp()
        self.connection = HTTPConnection(*self.admin, timeout=60)
        self.addCleanup(self.connection.close)

    def ask(self, operation: APIOperation, fields: dict[str, str], body: Any = None) -> Reply:
        """Send the request of an operation; C{host} replaces the host."""
        raw = None
        if operation.method in ("POST", "PUT", "PATCH"):
            raw = json.dumps({} if body is None else body)
        self.connection.request(operation.method, API + path(operation), raw, fields)
        response = self.connection.getresponse()
        return Reply(response.status, response.headers, response.read())

    def makeKey(self, role: str = "none", **more: Any) -> Account:
        """Issue a key by the API; it is known at once or a little later."""
        made = self.call("POST", "keys", {"account": f"rows-{role}", "role": role, **more})
        self.assertEqual(made.status, 200, made)
        account = Account(made.json["accessKey"], made.json["secretKey"])
        self.waitFor(lambda: self.call("GET", "session", None, account).status == 200)
        return account

    def waitFor(self, holds: Any) -> None:
        """Wait until something comes true."""
        watch = Stopwatch()
        while not holds():
            self.assertLess(watch.seconds(), _CUT_SECONDS)
            Event().wait(0.05)


class TableTests(RowsCase):
    """All operations."""

    def rows(self) -> Iterator[APIOperation]:
        """Iterate over the operations that take a session."""
        found = [each for each in OPERATIONS if each.least]
        names = {each.name for each in OPERATIONS if not each.least}
        self.assertEqual(names, _UNSIGNED)
        return iter(found)

    def test_unsigned(self) -> None:
        """
        Without the cookie, without the token, with the token of another session, and after it has
        ended, no operation is carried out.
        """
        halves, other, ended = self.signIn(), self.signIn(), self.signIn()
        self.assertEqual(self.send("DELETE", "session", None, ended).status, 204)
        cookie, token = {"Cookie": halves["Cookie"]}, halves["X-Console-Token"]
        wrong = {
            "nothing": {},
            "cookie": cookie,
            "token": {"X-Console-Token": token},
            "another token": {**cookie, "X-Console-Token": other["X-Console-Token"]},
            "empty token": {**cookie, "X-Console-Token": ""},
            "ended": ended,
        }
        for operation in self.rows():
            for name, fields in wrong.items():
                reply = self.ask(operation, fields)
                found = (reply.status, reply.json["error"])
                self.assertEqual(found, (401, "UNAUTHENTICATED"), (operation, name))
                self.assertNotIn("Access-Control-Allow-Origin", reply.headers)
        self.assertEqual(self.send("GET", "session", None, halves).json["signedIn"], True)

    def test_otherSites(self) -> None:
        """
        What another site causes changes nothing; a foreign host is misdirected, whatever it asks
        for, and the pages themselves, too.
        """
        halves = self.signIn()
        foreign = (
            {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"},
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "same-site"},
        )
        for operation in OPERATIONS:
            if operation.changes:
                for fields in foreign:
                    reply = self.ask(operation, {**halves, **fields})
                    self.assertEqual(reply.status, 403, (operation, fields))
            for host in ("evil.example", "127.0.0.1.evil.example:80", "[::2]:80"):
                reply = self.ask(operation, {**halves, "Host": host})
                self.assertEqual(reply.status, 421, (operation, host))
        self.assertEqual(
            self.send("GET", "", None, {"Host": "evil.example"}, "/console/").status, 421
        )
        # All of the listener's other pages stay as they are.
        self.assertEqual(
            self.send("GET", "healthz", None, {"Host": "evil.example"}, "/").status, 200
        )

    def test_roles(self) -> None:
        """Each role may what the table says; all else is refused, with the role that it takes."""
        for role in ("none", "auditor", "admin"):
            halves = self.signIn(self.makeKey(role))
            for operation in self.rows():
                isEnough = ROLES.index(role) >= ROLES.index(operation.least)
                if isEnough and operation.name in _SLOW_OR_ENDLESS:
                    continue
                body = (
                    {"access": "read", "bucket": "b"} if operation.name == "judgeAccess" else None
                )
                reply = self.ask(operation, halves, body)
                self.assertNotEqual(reply.status, 401, (operation, role))
                if isEnough and (role, operation.name) not in _OTHERS_KEYS:
                    details = reply.json.get("details") if reply.status == 403 else None
                    self.assertNotIn("role", details or {}, (operation, role, reply))
                else:
                    found = (reply.status, reply.json["details"])
                    least = "auditor" if isEnough else operation.least
                    self.assertEqual(found, (403, {"role": least}), (operation, role))

    def test_unsignedOperations(self) -> None:
        """A ticket is good with the cookie of its session, for its purpose, until it ends."""
        bucket = self.makeBucket()
        self.s3.put_object(Bucket=bucket, Key="a", Body=b"1")
        halves, other = self.signIn(), self.signIn()
        tickets = {}
        for purpose, more in (("download", {"key": "a"}), ("zip", {"prefix": ""})):
            wanted = {"bucket": bucket, "purpose": purpose, **more}
            url = self.send("POST", "tickets", wanted, halves).json["url"]
            tickets[purpose] = url.removeprefix("api/v1/")
        swapped = {
            tickets["download"].replace("bytes/", "zip/"): 404,
            tickets["zip"].replace("zip/", "bytes/"): 404,
        }
        cookie = {"Cookie": halves["Cookie"]}
        for ticket in tickets.values():
            self.assertEqual(self.send("GET", ticket, None, cookie).status, 200)
            self.assertEqual(self.send("GET", ticket).status, 401)
            self.assertEqual(self.send("GET", ticket, None, other).status, 404)
            token = {"X-Console-Token": halves["X-Console-Token"]}
            self.assertEqual(self.send("GET", ticket, None, token).status, 401)
        for ticket, status in swapped.items():
            self.assertEqual(self.send("GET", ticket, None, cookie).status, status)
        self.assertEqual(self.send("DELETE", "session", None, halves).status, 204)
        for ticket in tickets.values():
            self.assertEqual(self.send("GET", ticket, None, cookie).status, 401)
            self.assertEqual(self.send("GET", ticket, None, other).status, 404)

    def test_nesting(self) -> None:
        """A document that is nested without an end is refused, like any other that is none."""
        path = f"buckets/{self.makeBucket()}/settings/policy"
        for document in (b"[" * 200_000, b'{"a":' * 100_000):
            reply = self.call("PUT", path, document)
            self.assertEqual((reply.status, reply.json["error"]), (400, "INVALID_ARGUMENT"))


class LogTests(RowsCase):
    """The lines of changes."""

    def test_lines(self) -> None:
        """
        Each change, also one that fails, is a line: who, what, on what, from where, outcome. No
        secret, token, cookie or ticket is in the log, nor what an object has.
        """
        halves = self.signIn()
        bodies = {
            "signIn": {"accessKey": "AKIANONE", "secretKey": "typed-secret-1"},
            "createKey": {"account": "x", "secretKey": "typed-secret-2", "role": "nonsense"},
            "changeKey": {"newSecret": True, "note": "typed-note"},
            "callMethod": {
                "wire": "http",
                "service": "None",
                "method": "None",
                "requests": [{"secret": "typed-secret-3"}],
                "metadata": {"authorization": "typed-secret-4"},
                "token": "typed-secret-5",
            },
        }
        for operation in OPERATIONS:
            if not operation.changes or operation.name in _SLOW_OR_ENDLESS:
                continue
            start = len(self.daemon.log)
            reply = self.ask(operation, halves, bodies.get(operation.name))
            code = reply.json["error"] if reply.status >= 400 else "done"
            line = re.compile(rf" from 127\.0\.0\.1, trace [0-9a-f]{{32}}: {code}\n")
            self.waitFor(lambda start=start, line=line: line.search(self.daemon.log[start:]))
            written = self.daemon.log[start:]
            self.assertIn(f"console: {operation.name} ", written)
            self.assertIn(f" by {ROOT.accessKey} ", written)
            if "{bucket}" in operation.path:
                self.assertIn("no-such-bucket", written)
        self._secrets(halves)

    def _secrets(self, halves: dict[str, str]) -> None:
        bucket = self.makeBucket()
        key = f"buckets/{bucket}/objects/{quote('a/b', safe='')}"
        self.assertEqual(self.send("PUT", key, b"typed-secret-6", halves).status, 200)
        wanted = {"bucket": bucket, "key": "a/b", "purpose": "download"}
        url = self.send("POST", "tickets", wanted, halves).json["url"]
        shared = self.send("POST", f"buckets/{bucket}/share", {"key": "a/b"}, halves).json["url"]
        self.assertEqual(self.send("GET", url.removeprefix("api/v1/"), None, halves).status, 200)
        made = self.call("POST", "keys", {"account": "x"}).json
        self.assertEqual(self.send("DELETE", "session", None, halves).status, 204)
        self.waitFor(lambda: "console: signOut" in self.daemon.log[self._logStart :])
        written = self.daemon.log[self._logStart :]
        self.assertIn("'key': 'a/b'", written)
        for hidden in (
            *(f"typed-secret-{number}" for number in range(1, 7)),
            halves["X-Console-Token"],
            halves["Cookie"].partition("=")[2],
            url.rpartition("/")[2],
            shared.rpartition("=")[2],
            made["secretKey"],
            ROOT.secretKey,
        ):
            self.assertNotIn(hidden, written)


class CutTests(RowsCase):
    """What is in flight when a key ends."""

    def begin(self, bucket: str, account: Account) -> socket.socket:
        """Begin an upload of which only the head is sent."""
        halves = self.signIn(account)
        fields = {"Host": "127.0.0.1", "Content-Length": str(1 << 30), **halves}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        connection = socket.create_connection(self.admin, 60)
        self.addCleanup(connection.close)
        target = f"{API}buckets/{bucket}/objects/{account.accessKey}"
        connection.sendall(f"PUT {target} HTTP/1.1\r\n{head}\r\n".encode())
        return connection

    @long("takes a second or more")
    def test_uploads(self) -> None:
        """
        Uploads in flight are cut when their key is revoked, disabled, expired or made anew, and
        when its session is ended; one whose key is still good goes on.
        """
        bucket = self.makeBucket()
        policy = {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Principal": "*",
                    "Action": "s3:*",
                    "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
                }
            ],
        }
        settings = f"buckets/{bucket}/settings/policy"
        self.assertEqual(self.call("PUT", settings, policy).status, 204)
        ends = ("revoked", "disabled", "expired", "remade", "signed out", "good")
        accounts = {name: self.makeKey() for name in ends}
        uploads = {name: self.begin(bucket, each) for name, each in accounts.items()}
        for upload in uploads.values():
            upload.sendall(bytes(256 * 1024))
        of = lambda name: f"keys/{accounts[name].accessKey}"  # noqa: E731
        sessions = self.call("GET", "sessions").json["items"]
        signedOut = accounts["signed out"].accessKey
        [id] = [each["id"] for each in sessions if each["accessKey"] == signedOut]
        # The API refuses a time in the past.
        soon = int(time.time() * 1000) + 3000
        for method, target, body in (
            ("PATCH", of("expired"), {"expiresMs": soon}),
            ("DELETE", of("revoked"), None),
            ("PATCH", of("disabled"), {"disabled": True}),
            ("PATCH", of("remade"), {"newSecret": True}),
            ("DELETE", f"sessions/{id}", None),
        ):
            self.assertIn(self.call(method, target, body).status, (200, 204), target)
        cut = self._sendUntilCut(uploads, len(ends) - 1)
        self.assertEqual(set(cut), set(ends) - {"good"})
        for name, answer in cut.items():
            self.assertTrue(not answer or b" 401 " in answer.partition(b"\r\n")[0], (name, answer))
        uploads["good"].close()
        found = self.call("GET", f"buckets/{bucket}/objects").json["objects"]
        self.assertEqual(found, [])

    def _sendUntilCut(self, uploads: dict[str, socket.socket], count: int) -> dict[str, bytes]:
        """Go on with uploads until so many are over; return what each has been answered."""
        watch = Stopwatch()
        cut: dict[str, bytes] = {}
        while len(cut) < count and watch.seconds() < _CUT_SECONDS:
            for name, upload in uploads.items():
                if name in cut:
                    continue
                readable, _, _ = select.select([upload], [], [], 0.02)
                try:
                    if readable:
                        cut[name] = upload.recv(4096)
                    else:
                        upload.sendall(bytes(4096))
                except OSError:
                    cut[name] = b""
        return cut
