"""Signing in at an issuer, over HTTP, with a real issuer and a daemon of two workers."""

import atexit
import itertools
import json
import shlex
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.console.fixture import ConsoleCase, Reply
from tests.support.clients import Account
from tests.support.daemon import Daemon
from tests.support.documents import DOCS, codeBlocks
from tests.support.issuer import Issuer
from tests.support.selection import long
from tests.wire.s3.fixture import eventually, makeDaemon, ownDirectory, runStoragegate

ACCOUNT = "staff"

CONFIGURATION = """
[signIn.corporate]
issuer = "{url}"
clientId = "storagegate"
clientSecret = "client-secret"
label = "Example Corp"
account = "staff"
groupsClaim = "realm.groups"
roleClaim = "role"

[signIn.corporate.roles]
operators = "auditor"
owners = "admin"
"""

PAGE = DOCS / "signin.rst"
_numbers = itertools.count(1)

GROUPS, POLICIES = ["storagegate", "groups"], ["storagegate", "policies"]

READ = '{"Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}}'


@cache
def _servers() -> tuple[Issuer, Daemon]:
    """Start both servers, which run until the run ends."""
    issuer = Issuer().start()
    directory = ownDirectory("issuers")
    file = directory / "storagegate.toml"
    file.write_text(CONFIGURATION.format(url=issuer.url))
    daemon = makeDaemon(directory / "data", "--config", str(file), "--workers", "2")
    atexit.register(daemon.kill)
    return issuer, daemon.start()


class IssuerCase(ConsoleCase):
    """
    Tests of the daemon with an issuer.

    @ivar issuer: The issuer.
    """

    issuer: Any

    def setUp(self) -> None:
        """Use this daemon, with groups that see everything."""
        super().setUp()
        # Refused sign-ins of one test do not count in another.
        self.source = f"127.0.1.{next(_numbers)}"
        for group in ("engineers", "writers"):
            self.change("CreateGroup", 200, 409, groupName=group)
            self.change("PutGroupPolicy", groupName=group, policyName="all", policyDocument=READ)

    def startDaemon(self) -> Daemon:
        """Return the daemon with the issuer."""
        self.issuer, daemon = _servers()
        return daemon

    def change(self, operation: str, *statuses: int, **fields: Any) -> Any:
        """Change users of the account as the root pair."""
        body = {"account": ACCOUNT, **fields}
        reply = self.call("POST", f"identities/{operation}", body)
        self.assertIn(reply.status, statuses or (200, 204), reply.body)
        return reply


@long("starts an issuer and a daemon")
class IssuerSignInTests(IssuerCase):
    """People of an issuer in the console."""

    def begin(self) -> tuple[str, str]:
        """Click the button; return the URL of the issuer, and the cookie."""
        reply = self.send("POST", "session/issuers/corporate")
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json["url"], reply.headers["Set-Cookie"].partition(";")[0]

    def finish(self, cookie: str, answer: dict[str, str]) -> Reply:
        """Return to the console with the answer of the issuer."""
        known = ("code", "state", "iss", "error", "errorDescription")
        body = {name: value for name, value in answer.items() if name in known}
        return self.send("POST", "session/code", body, {"Cookie": cookie} if cookie else {})

    def person(self, subject: str, **claims: Any) -> tuple[dict[str, str], Any]:
        """Sign a person in; return both halves of the session, and its description."""
        self.issuer.put(subject, claims)
        url, cookie = self.begin()
        reply = self.finish(cookie, self.issuer.authorize(url, subject))
        self.assertEqual(reply.status, 200, reply.body)
        cookies = [each.partition(";")[0] for each in reply.headers.get_all("Set-Cookie")]
        (session,) = [each for each in cookies if each.startswith("storagegate-console=")]
        return {"Cookie": session, "X-Console-Token": reply.json["token"]}, reply.json

    def test_group(self) -> None:
        """A member of a group uses its own buckets, without a role, and sees its session."""
        halves, shown = self.person("ann", realm={"groups": ["engineers"]}, email="a@example.com")
        self.assertEqual(
            (shown["accessKey"], shown["account"], shown["role"], shown["issuer"], shown["notice"]),
            ("user/corporate/ann", ACCOUNT, "none", "corporate", ""),
        )
        bucket = self.makeName()
        self.assertEqual(self.send("POST", "buckets", {"name": bucket}, halves).status, 200)
        items = self.send("GET", "buckets", None, halves).json["items"]
        self.assertIn(bucket, [each["name"] for each in items])
        path = self.objectPath(bucket, "a/b")
        self.assertEqual(self.send("PUT", path, b"x", halves).status, 200)
        self.assertEqual(self.send("GET", "overview", None, halves).status, 403)
        self.assertEqual(self.send("POST", "keys", {"account": "x"}, halves).status, 403)
        (listed,) = self.send("GET", "sessions", None, halves).json["items"]
        self.assertEqual((listed["issuer"], listed["current"]), ("corporate", True))
        user = self.call("GET", f"identities/GetUser?account={ACCOUNT}&userName=ann").json["user"]
        self.assertEqual(user["path"], "/corporate/")
        self.assertIn({"key": "email", "value": "a@example.com"}, user["tags"])
        self.assertEqual(self.send("DELETE", "session", None, halves).status, 204)
        self.assertEqual(self.send("GET", "buckets", None, halves).status, 401)

    def test_noGroup(self) -> None:
        """A person without a group that exists sees nothing, and reads why."""
        for groups, reason in (
            ([], "names no group of yours"),
            (["strangers"], "names only groups that do not exist here: strangers"),
        ):
            halves, shown = self.person("bob", realm={"groups": groups})
            self.assertIn(reason, shown["notice"])
            self.assertEqual(self.send("GET", "buckets", None, halves).status, 403)
            made = self.send("POST", "buckets", {"name": self.makeName()}, halves)
            self.assertEqual(made.status, 403)
            self.assertIn(reason, self.send("GET", "session", None, halves).json["notice"])

    def test_keys(self) -> None:
        """Keys made in the console are of the person, and lose their rights with its groups."""
        halves, _ = self.person("cleo", realm={"groups": ["engineers"]})
        made = self.send("POST", "keys", {"account": ACCOUNT, "parent": "user/cleo"}, halves)
        self.assertEqual((made.status, made.json["parent"]), (200, "user/cleo"))
        for other in ({"parent": "user/ann"}, {"user": "cleo"}, {"role": "admin"}, {}):
            refused = self.send("POST", "keys", {"account": ACCOUNT, **other}, halves)
            self.assertIn(refused.status, (403, 404), other)
        keys = self.send("GET", "keys", None, halves).json["items"]
        self.assertEqual([each["accessKey"] for each in keys], [made.json["accessKey"]])
        pair = Account(made.json["accessKey"], made.json["secretKey"]).plainHeaders()
        may = lambda: self.send("GET", "buckets", None, pair).status == 200  # noqa: E731
        self.assertTrue(eventually(may))
        # Without the group.
        again, shown = self.person("cleo", realm={"groups": []})
        self.assertTrue(shown["notice"])
        self.assertTrue(eventually(lambda: not may()))
        self.assertEqual(self.send("GET", "buckets", None, halves).status, 403)
        path = f"keys/{made.json['accessKey']}"
        self.assertEqual(self.send("DELETE", path, None, again).status, 204)
        self.assertEqual(self.send("DELETE", path, None, again).status, 403)

    def test_disabled(self) -> None:
        """A session ends when its user is deleted or loses its group, though it goes on."""
        halves, _ = self.person("dora", realm={"groups": ["writers"]})
        status = lambda: self.send("GET", "buckets", None, halves).status  # noqa: E731
        self.assertEqual(status(), 200)
        self.change("RemoveUserFromGroup", groupName="writers", userName="dora")
        self.assertTrue(eventually(lambda: status() == 403))
        self.change("DeleteUser", userName="dora")
        self.assertTrue(eventually(lambda: status() == 401))
        _, shown = self.person("dora", realm={"groups": ["writers"]})
        self.assertEqual(self.send("GET", "buckets", None, halves).status, 401)
        self.assertEqual(shown["notice"], "")

    def test_roles(self) -> None:
        """A claim names the role; the root role and unknown values count as none."""
        for given, role in (
            ("operators", "auditor"),
            (["operators", "owners"], "admin"),
            ("root", "none"),
            ("admin", "none"),
            (7, "none"),
        ):
            halves, shown = self.person("eve", role=given, realm={"groups": []})
            self.assertEqual(shown["role"], role, given)
            status = self.send("GET", "overview", None, halves).status
            self.assertEqual(status, 403 if role == "none" else 200)
        halves, _ = self.person("eve", role="owners", realm={"groups": []})
        body = {"groupName": self.makeName()}
        self.assertEqual(self.send("POST", "identities/CreateGroup", body, halves).status, 200)

    def test_bound(self) -> None:
        """A sign-in is finished once, in the browser that began it, with its state and code."""
        url, cookie = self.begin()
        answer = self.issuer.authorize(url, "finn")
        _, other = self.begin()
        for wrong, given in (
            ("", answer),
            (other, answer),
            (cookie[:-4] + "AAAA", answer),
            (cookie, {**answer, "state": "x"}),
        ):
            reply = self.finish(wrong, given)
            self.assertEqual((reply.status, reply.json["error"]), (401, "UNAUTHENTICATED"))
            self.assertIn("did not begin in this browser", reply.json["message"])
        self.assertEqual(self.finish(cookie, answer).status, 200)
        replayed = self.finish(cookie, answer)
        self.assertEqual(replayed.status, 401)
        self.assertIn("was used before", replayed.json["message"])
        # The code of another sign-in, though the state is this one's.
        url, cookie = self.begin()
        state = parse_qs(urlsplit(url).query)["state"][0]
        stolen = self.finish(cookie, {"state": state, "code": answer["code"]})
        self.assertEqual(stolen.status, 401)
        self.assertIn("refused the code", stolen.json["message"])

    def test_crossSite(self) -> None:
        """Another site can neither begin nor finish a sign-in, nor choose where it leads."""
        foreign = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
        for path in ("session/issuers/corporate", "session/code"):
            reply = self.send("POST", path, {"state": "x"}, foreign)
            self.assertEqual(reply.status, 403)
        misdirected = self.send("POST", "session/issuers/corporate", None, {"Host": "evil.example"})
        self.assertEqual(misdirected.status, 421)
        url, _ = self.begin()
        query = parse_qs(urlsplit(url).query)
        host, port = self.admin
        self.assertEqual(query["redirect_uri"], [f"http://{host}:{port}/console/"])
        self.assertEqual(query["code_challenge_method"], ["S256"])
        self.assertEqual(self.send("POST", "session/issuers/other").status, 404)

    def test_denied(self) -> None:
        """A refusal of the issuer is shown as text, but only to a browser that began a sign-in."""
        url, cookie = self.begin()
        answer = self.issuer.authorize(url, "")
        self.assertEqual(answer["error"], "access_denied")
        state = parse_qs(urlsplit(url).query)["state"][0]
        given = {"state": state, "error": "access_denied", "errorDescription": "<b>no\r\n"}
        reply = self.finish("", given)
        self.assertNotIn("<b>", reply.json["message"])
        for code, shown in (("access_denied", "access_denied"), ("<b>call", "no reason given")):
            reply = self.finish(cookie, {"error": code, "errorDescription": "<b>call"})
            self.assertEqual(
                reply.json["message"], f"The issuer refused the sign-in: {shown}", code
            )
        reply = self.finish(cookie, given)
        self.assertEqual(reply.status, 401)
        self.assertEqual(
            reply.json["message"],
            "Example Corp refused the sign-in: access_denied: <b>no  ",
        )

    def test_away(self) -> None:
        """Without the issuer the page says so, and key pairs still sign in."""
        self.issuer.stop()
        try:
            reply = self.send("POST", "session/issuers/corporate")
            if reply.status == 200:
                # A worker knows the metadata already; the code cannot be redeemed.
                cookie = reply.headers["Set-Cookie"].partition(";")[0]
                state = parse_qs(urlsplit(reply.json["url"]).query)["state"][0]
                reply = self.finish(cookie, {"state": state, "code": "x"})
            self.assertEqual((reply.status, reply.json["error"]), (424, "UNAVAILABLE"))
            self.assertIn("Example Corp cannot sign you in now", reply.json["message"])
            self.signIn()
        finally:
            self.issuer.start()


@long("starts an issuer and a daemon")
class DocumentedSignInTests(ConsoleCase):
    """The first sign-in of C{docs/signin.rst}."""

    def startDaemon(self) -> Daemon:
        """Start a daemon with the file of the page, whose issuer has another port."""
        self.issuer = Issuer().start()
        self.addCleanup(self.issuer.stop)
        directory = ownDirectory("documented")
        file = directory / "storagegate.toml"
        [block] = codeBlocks(PAGE, "toml")
        text = block.code
        self.assertIn("http://127.0.0.1:9400", text)
        file.write_text(text.replace("http://127.0.0.1:9400", self.issuer.url))
        daemon = makeDaemon(directory / "data", "--config", str(file))
        self.addCleanup(daemon.kill)
        return daemon.start()

    def test_steps(self) -> None:
        """The commands of the page make a person who creates a bucket."""
        commands = [
            shlex.split(line)
            for block in codeBlocks(PAGE, "sh")
            for line in block.code.splitlines()
            if line
        ]
        made = [each[1:] for each in commands if each[:2] in (GROUPS, POLICIES)]
        self.assertEqual(len(made), 2)
        for arguments in made:
            runStoragegate(*arguments, "--data", self.daemon.data)
        [put] = [each for each in commands if each[0] == "curl"]
        self.assertTrue(put[-1].endswith("/users/ann"))
        self.issuer.put("ann", json.loads(put[put.index("-d") + 1]))
        reply = self.send("POST", "session/issuers/corporate")
        cookie = reply.headers["Set-Cookie"].partition(";")[0]
        answer = self.issuer.authorize(reply.json["url"], "ann")
        found = self.send("POST", "session/code", answer, {"Cookie": cookie})
        self.assertEqual((found.status, found.json["notice"]), (200, ""), found.body)
        session = found.headers.get_all("Set-Cookie")[-1].partition(";")[0]
        halves = {"Cookie": session, "X-Console-Token": found.json["token"]}
        made = self.send("POST", "buckets", {"name": self.makeName("documented")}, halves)
        self.assertEqual(made.status, 200)
