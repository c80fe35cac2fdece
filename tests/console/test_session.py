"""Sessions: signing in, the two halves, and what ends them."""

from http.client import HTTPConnection

from msgspec.structs import replace
from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

import storagegate
from storagegate.console.sessions import (
    IDLE_SECONDS,
    LONGEST_SECONDS,
    ConsoleSessions,
    SignInGrant,
)
from storagegate.objects.accounts import AccountKey, Identity
from storagegate.objects.identities.entities import IAMUser
from storagegate.objects.identities.rights import Rights
from storagegate.storage.embedded.consolerecords import EmbeddedConsoleRecords
from tests.console.fixture import API, ConsoleCase
from tests.support.clients import ROOT
from tests.support.selection import long
from tests.wire.s3.fixture import eventually


class _Pool:
    """Runs at once what blocks."""

    def run(self, function, *arguments):  # type: ignore[no-untyped-def]
        """Call a function."""
        return succeed(function(*arguments))


class ConsoleSessionsTests(SynchronousTestCase):
    """The file of the sessions."""

    def setUp(self) -> None:
        """Have sessions of a time that the test sets."""
        self.now = 1_000_000.0
        path = self.mktemp()
        __import__("os").mkdir(path)
        records = EmbeddedConsoleRecords(path, _Pool())  # type: ignore[arg-type]
        self.sessions = ConsoleSessions(records, lambda: self.now)
        self.addCleanup(lambda: self.wait(self.sessions.close()))
        self.key = AccountKey(Identity("KEY", "account"), "secret")

    def wait(self, coroutine):  # type: ignore[no-untyped-def]
        """Return the result of a coroutine."""
        return self.successResultOf(Deferred.fromCoroutine(coroutine))

    def create(self) -> tuple[str, str]:
        """Begin a session; return id and token."""
        _, id, token = self.wait(self.sessions.create(self.key, "127.0.0.1", "agent"))
        return id, token

    def test_halves(self) -> None:
        """A session is found by its id; its token and the secret of its key are made sure of."""
        id, token = self.create()
        session = self.wait(self.sessions.find(id))
        self.assertTrue(session.hasToken(token))
        self.assertFalse(session.hasToken(self.create()[1]))
        self.assertTrue(session.isOf(self.key))
        self.assertFalse(session.isOf(AccountKey(self.key.identity, "another")))
        self.assertIsNone(self.wait(self.sessions.find(token)))
        self.assertNotIn(id, repr(session))
        self.assertNotIn(token, repr(session))

    def test_idle(self) -> None:
        """A session is over when it was not used for long, or is old."""
        id, _ = self.create()
        self.now += IDLE_SECONDS - 1
        self.assertIsNotNone(self.wait(self.sessions.find(id)))
        self.now += IDLE_SECONDS
        self.assertIsNone(self.wait(self.sessions.find(id)))
        id, _ = self.create()
        for _ in range(LONGEST_SECONDS // (IDLE_SECONDS - 60)):
            self.now += IDLE_SECONDS - 60
            self.assertIsNotNone(self.wait(self.sessions.find(id)))
        self.now += IDLE_SECONDS - 60
        self.assertIsNone(self.wait(self.sessions.find(id)))

    def test_clockAhead(self) -> None:
        """A session that began while the clock was ahead is refused once the clock is right."""
        self.now += 365 * 86400
        later, _ = self.create()
        self.assertIsNotNone(self.wait(self.sessions.find(later)))
        self.now -= 365 * 86400
        self.assertIsNone(self.wait(self.sessions.find(later)))
        self.assertEqual(self.wait(self.sessions.sessions()), [])
        # The clocks of nodes differ a little.
        self.now += 60
        id, _ = self.create()
        self.now -= 60
        self.assertIsNotNone(self.wait(self.sessions.find(id)))

    def test_tickets(self) -> None:
        """A ticket is of one session, and expires."""
        ticket = self.wait(self.sessions.addTicket("a", int(self.now * 1000) + 1000, b"x"))
        self.assertEqual(self.wait(self.sessions.ticket("a", ticket)), b"x")
        self.assertIsNone(self.wait(self.sessions.ticket("b", ticket)))
        self.now += 2
        self.assertIsNone(self.wait(self.sessions.ticket("a", ticket)))

    def test_ticketBytes(self) -> None:
        """Large tickets of a session replace older ones, of it alone."""
        later = int(self.now * 1000) + 1000
        other = self.wait(self.sessions.addTicket("b", later, b"x"))
        tickets = [
            self.wait(self.sessions.addTicket("a", later + number, bytes(1 << 20)))
            for number in range(6)
        ]
        kept = [self.wait(self.sessions.ticket("a", each)) is not None for each in tickets]
        self.assertEqual(kept, [False, False, True, True, True, True])
        self.assertIsNotNone(self.wait(self.sessions.ticket("b", other)))

    def test_signIns(self) -> None:
        """The state of a sign-in is used once."""
        expiresMs = int(self.now * 1000) + 600_000
        self.assertTrue(self.wait(self.sessions.useSignIn("state", expiresMs)))
        self.assertFalse(self.wait(self.sessions.useSignIn("state", expiresMs)))
        self.assertTrue(self.wait(self.sessions.useSignIn("other", expiresMs)))

    def test_revoked(self) -> None:
        """A session of a user ends if its sessions are revoked, and with another user."""
        user = IAMUser(name="ann", id="AIDA1")
        key = AccountKey(Identity("K", "a", rights=Rights("ann", user)), "AIDA1")
        grant = SignInGrant("corporate", "a", "ann", "none", ["x"], isGrouped=True)
        session, id, _ = self.wait(self.sessions.create(key, "127.0.0.1", "agent", grant))
        found = self.wait(self.sessions.find(id))
        self.assertEqual((found, found.grant), (session, grant))
        self.assertTrue(session.isOf(key))
        self.assertFalse(session.isOf(AccountKey(key.identity, "AIDA2")))
        revoked = replace(user, revokedBeforeMs=session.createdMs + 1)
        identity = Identity("K", "a", rights=Rights("ann", revoked))
        self.assertFalse(session.isOf(AccountKey(identity, "AIDA1")))

    def test_many(self) -> None:
        """A key that signs in again and again ends its own sessions, and those of no other key."""
        other = AccountKey(Identity("OTHER", "account"), "secret")
        _, kept, _ = self.wait(self.sessions.create(other, "127.0.0.1", "agent"))
        session, first, _ = self.wait(self.sessions.create(self.key, "127.0.0.1", "agent"))
        later = int(self.now * 1000) + 60_000
        ticket = self.wait(self.sessions.addTicket(session.id, later, b"x"))
        self.now += 1
        for _ in range(100):
            last, _ = self.create()
        self.assertIsNone(self.wait(self.sessions.find(first)))
        self.assertIsNone(self.wait(self.sessions.ticket(session.id, ticket)))
        self.assertIsNotNone(self.wait(self.sessions.find(last)))
        self.assertIsNotNone(self.wait(self.sessions.find(kept)))
        self.assertEqual(len(self.wait(self.sessions.sessions("KEY"))), 100)


class SignInTests(ConsoleCase):
    """The API."""

    def test_halves(self) -> None:
        """A request has both halves, of one session."""
        halves, other = self.signIn(), self.signIn()
        shown = self.send("GET", "session", None, halves).json
        self.assertEqual((shown["accessKey"], shown["role"]), (ROOT.accessKey, "root"))
        self.assertNotIn("token", shown)
        for wrong in (
            {},
            {"Cookie": halves["Cookie"]},
            {"X-Console-Token": halves["X-Console-Token"]},
            {**halves, "X-Console-Token": other["X-Console-Token"]},
        ):
            self.assertEqual(self.send("GET", "session", None, wrong).json, {"signedIn": False})
            reply = self.send("GET", "buckets", None, wrong)
            self.assertEqual((reply.status, reply.json["error"]), (401, "UNAUTHENTICATED"))

    def test_cookie(self) -> None:
        """Scripts cannot read the cookie, and other sites do not cause it to be sent."""
        pair = {"accessKey": ROOT.accessKey, "secretKey": ROOT.secretKey}
        field = self.send("POST", "session", pair).headers["Set-Cookie"]
        self.assertIn("HttpOnly", field)
        self.assertIn("SameSite=Strict", field)
        self.assertIn("Path=/console/", field)

    def test_signOut(self) -> None:
        """A session that was ended is over, also by another session of the key."""
        halves, other = self.signIn(), self.signIn()
        items = self.send("GET", "sessions", None, other).json["items"]
        self.assertEqual(sum(each["current"] for each in items), 1)
        self.assertEqual(self.send("DELETE", "session", None, halves).status, 204)
        self.assertEqual(self.send("GET", "buckets", None, halves).status, 401)
        current = next(each["id"] for each in items if each["current"])
        self.assertEqual(self.send("DELETE", f"sessions/{current}", None, other).status, 204)
        self.assertEqual(self.send("GET", "buckets", None, other).status, 401)

    def test_pages(self) -> None:
        """Sessions come in pages, the newest first."""
        account = self.issueKey("paged")
        made = [self.signIn(account) for _ in range(3)]
        first = self.send("GET", "sessions?limit=2", None, made[2]).json
        self.assertEqual(len(first["items"]), 2)
        rest = self.send("GET", f"sessions?limit=2&after={first['next']}", None, made[2]).json
        self.assertEqual((len(rest["items"]), rest["next"]), (1, None))
        items = [*first["items"], *rest["items"]]
        self.assertEqual(len({each["id"] for each in items}), 3)
        created = [each["createdMs"] for each in items]
        self.assertEqual(created, sorted(created, reverse=True))

    def test_version(self) -> None:
        """Who has signed in is told the version of the daemon, and nobody else."""
        found = self.send("GET", "session", None, self.signIn()).json
        self.assertEqual(found["version"], storagegate.__version__)
        self.assertEqual(self.send("GET", "session").json, {"signedIn": False})

    def test_largeBody(self) -> None:
        """A document that is too long is refused as others are, and logged as that."""
        refused = self.call("POST", "keys", b" " * (1 << 20) + b"{}")
        self.assertEqual((refused.status, refused.json["error"]), (413, "PAYLOAD_TOO_LARGE"))
        trace = refused.headers["X-Trace-Id"]
        outcome = self.daemon.waitForLog(f"trace {trace}: (.*)\n").group(1)
        self.assertEqual(outcome, "PAYLOAD_TOO_LARGE")

    @long("takes a second or more")
    def test_cutsUploads(self) -> None:
        """An upload ends with its session, though its client has stopped to send."""
        bucket, halves = self.makeBucket(), self.signIn()
        begun = self.send("POST", f"buckets/{bucket}/uploads", {"key": "k"}, halves).json
        path = f"{API}buckets/{bucket}/uploads/{begun['id']}/parts/1"
        connection = HTTPConnection(*self.admin, timeout=60)
        self.addCleanup(connection.close)
        connection.putrequest("PUT", path)
        for name, value in {**halves, "Content-Length": str(1 << 20)}.items():
            connection.putheader(name, value)
        connection.endheaders(b"x" * 1000)
        self.assertEqual(self.send("DELETE", "session", None, halves).status, 204)
        self.assertEqual(connection.getresponse().status, 401)
        parts = self.call("GET", f"buckets/{bucket}/uploads/{begun['id']}").json["items"]
        self.assertEqual(parts, [])

    @long("takes seconds")
    def test_endsWithKey(self) -> None:
        """A session ends when its key is disabled, remade or revoked."""
        for change in ({"disabled": True}, None):
            account = self.issueKey("leaver")
            halves = self.signIn(account)
            self.assertEqual(self.send("GET", "buckets", None, halves).status, 200)
            path = f"keys/{account.accessKey}"
            if change is None:
                self.assertEqual(self.call("DELETE", path).status, 204)
            else:
                self.assertEqual(self.call("PATCH", path, change).status, 200)
            gone = lambda: self.send("GET", "buckets", None, halves).status == 401  # noqa: B023, E731
            self.assertTrue(eventually(gone))

    def test_guard(self) -> None:
        """A foreign host is misdirected, and what another site causes is refused."""
        self.assertEqual(self.send("GET", "session", None, {"Host": "evil.example"}).status, 421)
        halves = self.signIn()
        bucket = self.makeName()
        foreign = {**halves, "Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
        self.assertEqual(self.send("POST", "buckets", {"name": bucket}, foreign).status, 403)

    def test_allow(self) -> None:
        """A method that a path does not support is 405 with the methods that it supports."""
        for method, path, allowed in (
            ("DELETE", "keys", "GET, POST, HEAD"),
            ("GET", "doctor", "POST"),
            ("PUT", "overview", "GET, HEAD"),
        ):
            reply = self.call(method, path)
            self.assertEqual((reply.status, reply.headers["Allow"]), (405, allowed), path)
            self.assertEqual(reply.json["error"], "METHOD_NOT_ALLOWED")

    def test_expiryInThePast(self) -> None:
        """A key that would never work is not issued, and no change makes one."""
        made = self.call("POST", "keys", {"account": "x", "expiresMs": 1_577_836_800_000})
        self.assertEqual((made.status, made.json["error"]), (400, "INVALID_ARGUMENT"))
        self.assertEqual(made.json["message"], "expiresMs: not a time in the future")
        path = f"keys/{self.issueKey('current').accessKey}"
        self.assertEqual(self.call("PATCH", path, {"expiresMs": 1}).status, 400)
        self.assertEqual(self.call("PATCH", path, {"expiresMs": 0}).status, 200)

    @long("takes a second or more")
    def test_roles(self) -> None:
        """A key without a role sees its own, and nothing of the administration."""
        halves = self.signIn(self.issueKey("plain"))
        keys = self.send("GET", "keys", None, halves).json["items"]
        self.assertEqual({each["account"] for each in keys}, {"plain"})
        new = {"account": "x"}
        self.assertEqual(self.send("POST", "keys", new, halves).status, 403)
