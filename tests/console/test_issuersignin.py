"""Signing in at an issuer, over HTTP, with a real issuer and a daemon of two workers."""

import atexit
import itertools
import json
import shlex
import socket
import subprocess
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from attrs import frozen

from tests.console.fixture import ConsoleCase, Reply
from tests.support.clients import ROOT, Account, botoClient
from tests.support.cluster import Cluster
from tests.support.contention import Stopwatch
from tests.support.daemon import Daemon
from tests.support.documents import DOCS, codeBlocks
from tests.support.issuer import Issuer
from tests.support.ports import waitForPort
from tests.support.programs import needProgram
from tests.support.s3signer import Outgoing, Signer, exchange
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
CLUSTER_PAGE = DOCS / "cluster.rst"
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
        return self.halvesOf(reply), reply.json

    def halvesOf(self, reply: Reply) -> dict[str, str]:
        """Return both halves of the session of a sign-in."""
        cookies = [each.partition(";")[0] for each in reply.headers.get_all("Set-Cookie")]
        (session,) = [each for each in cookies if each.startswith("storagegate-console=")]
        return {"Cookie": session, "X-Console-Token": reply.json["token"]}


@long("starts an issuer and a daemon")
class IssuerSignInTests(IssuerCase):
    """People of an issuer in the console."""

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

    def test_premade(self) -> None:
        """The keys of a user that was made with a person's name and path get none of its rights."""
        self.change("CreateUser", userName="gina", path="/corporate/")
        made = self.change("CreateAccessKey", userName="gina").json["accessKey"]
        pair = Account(made["accessKeyId"], made["secretAccessKey"]).plainHeaders()
        status = lambda headers: self.send("GET", "buckets", None, headers).status  # noqa: E731
        self.assertTrue(eventually(lambda: status(pair) == 403))
        halves, shown = self.person("gina", realm={"groups": ["engineers"]})
        self.assertRegex(shown["user"], r"\Agina=[0-9a-f]{20}\Z")
        self.assertEqual(status(halves), 200)
        # The other worker learns of the key within a second.
        self.assertTrue(eventually(lambda: status(pair) == 403))
        _, again = self.person("gina", realm={"groups": ["engineers"]})
        self.assertEqual(again["user"], shown["user"])

    def test_disabledUser(self) -> None:
        """A disabled user is signed out for good and cannot sign in; keys come back with it."""
        halves, _ = self.person("dave", realm={"groups": ["writers"]})
        made = self.send("POST", "keys", {"account": ACCOUNT, "parent": "user/dave"}, halves)
        pair = Account(made.json["accessKey"], made.json["secretKey"]).plainHeaders()
        status = lambda headers: self.send("GET", "buckets", None, headers).status  # noqa: E731
        self.assertTrue(eventually(lambda: status(pair) == 200))
        self.change("UpdateUserStatus", userName="dave", status="Inactive")
        self.assertTrue(eventually(lambda: status(halves) == 401 and status(pair) == 401))
        url, cookie = self.begin()
        reply = self.finish(cookie, self.issuer.authorize(url, "dave"))
        self.assertEqual(reply.status, 401)
        self.assertIn("is disabled", reply.json["message"])
        self.change("UpdateUserStatus", userName="dave", status="Active")
        self.assertTrue(eventually(lambda: status(pair) == 200))
        self.assertEqual(status(halves), 401)
        self.person("dave", realm={"groups": ["writers"]})

    def test_revokedSessions(self) -> None:
        """Revoking the sessions of a user ends its console sessions, too."""
        halves, _ = self.person("fay", realm={"groups": ["writers"]})
        status = lambda: self.send("GET", "buckets", None, halves).status  # noqa: E731
        self.assertEqual(status(), 200)
        self.change("RevokeUserSessions", userName="fay")
        self.assertTrue(eventually(lambda: status() == 401))
        self.person("fay", realm={"groups": ["writers"]})

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


@long("starts an issuer and two daemons")
class RedirectTests(IssuerCase):
    """The URL to which the issuer sends the browser."""

    def startDaemon(self) -> Daemon:
        """Start a daemon, whose configuration the test has set."""
        self.issuer, _ = _servers()
        return _configured(self.issuer.url, self.options)

    options = ("", "", '[gateway]\ntrustedProxies = "127.0.0.9"')

    def redirect(self, source: str = "", **fields: str) -> tuple[str, bool]:
        """Begin a sign-in; return the redirect URL, and whether the cookie needs TLS."""
        self.source = source
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        reply = self.send("POST", "session/issuers/corporate", None, named)
        self.assertEqual(reply.status, 200, reply.body)
        [url] = parse_qs(urlsplit(reply.json["url"]).query)["redirect_uri"]
        return url, "; secure" in reply.headers["Set-Cookie"].lower()

    def test_forwarded(self) -> None:
        """
        Without C{consoleUrl} it is the URL in use. Only a trusted proxy may say that the browser
        uses TLS, and no proxy may say another host.
        """
        host, port = self.admin
        own = f"{host}:{port}/console/"
        told = {"X_Forwarded_Proto": "https", "X_Forwarded_Host": "evil.example"}
        self.assertEqual(self.redirect(), (f"http://{own}", False))
        self.assertEqual(self.redirect("127.0.0.8", **told), (f"http://{own}", False))
        self.assertEqual(self.redirect("127.0.0.9", **told), (f"https://{own}", True))
        self.assertEqual(
            self.redirect("127.0.0.9", Host="localhost:9001"),
            ("http://localhost:9001/console/", False),
        )


@long("starts an issuer and two daemons")
class ConfiguredRedirectTests(RedirectTests):
    """C{consoleUrl} decides before everything that a request says, and C{redirectUrl} before it."""

    options = (
        'consoleUrl = "https://ops.example.com/store/"',
        """
[signIn.other]
issuer = "{url}"
clientId = "other"
account = "staff"
redirectUrl = "https://signin.example.com/console/"
""",
        '[gateway]\ntrustedProxies = "127.0.0.9"',
    )

    def test_forwarded(self) -> None:
        """No header changes the configured URL."""
        own = "https://ops.example.com/store/"
        for source in ("", "127.0.0.8", "127.0.0.9"):
            for fields in (
                {},
                {"Host": "ops.example.com"},
                {"X_Forwarded_Proto": "http", "X_Forwarded_Host": "evil.example"},
            ):
                self.assertEqual(self.redirect(source, **fields), (own, True))
        reply = self.send("POST", "session/issuers/other")
        [url] = parse_qs(urlsplit(reply.json["url"]).query)["redirect_uri"]
        self.assertEqual(url, "https://signin.example.com/console/")


@cache
def _configured(url: str, options: tuple[str, str, str]) -> Daemon:
    """Start a daemon with more options, which runs until the run ends."""
    directory = ownDirectory("redirects")
    file = directory / "storagegate.toml"
    head, tables, end = (each.replace("{url}", url) for each in options)
    file.write_text("\n".join([head, CONFIGURATION.format(url=url), tables, end]))
    daemon = makeDaemon(directory / "data", "--config", str(file))
    atexit.register(daemon.kill)
    return daemon.start()


def balancerFile(port: int, nodes: list[Daemon]) -> str:
    """Return the file of C{docs/cluster.rst}, without TLS, that says which node answers."""
    [block] = [each for each in codeBlocks(CLUSTER_PAGE, "haproxy") if "consoles" in each.code]
    places = ("10.0.0.1:9001 check", "10.0.0.2:9001 check")
    pairs = [("bind :443 ssl crt /etc/ssl/example.both.pem", f"bind 127.0.0.1:{port}")]
    for place, node in zip(places, nodes, strict=True):
        pairs.append((place, f"127.0.0.1:{node.address('admin')[1]} check"))
    pairs += [("server one", "server node0"), ("server two", "server node1")]
    text = block.code
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text.replace("balance", "http-response set-header X-Node %s\n    balance")


@frozen
class Nodes:
    """
    Two nodes of a cluster.

    @ivar configuration: The file for further nodes.
    @ivar port: The port of HAProxy, which sends each request to the next node.
    """

    cluster: Cluster
    configuration: Path
    nodes: list[Daemon]
    port: int


@cache
def startNodes() -> tuple[Issuer, Nodes]:
    """Start an issuer, and two nodes behind HAProxy. All run until the run ends."""
    program = needProgram("haproxy")
    issuer = Issuer().start()
    cluster = Cluster()
    atexit.register(cluster.close)
    configuration = cluster.configuration(CONFIGURATION.format(url=issuer.url))
    nodes = [cluster.node(configuration=configuration) for _ in range(2)]
    for node in nodes:
        node.launch()
    for node in nodes:
        node.waitForListeners()
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    port = held.getsockname()[1]
    path = cluster.directory / "haproxy.cfg"
    path.write_text(balancerFile(port, nodes))
    process = subprocess.Popen([program, "-db", "-f", path])
    atexit.register(held.close)
    atexit.register(process.kill)
    waitForPort(port, process)
    return issuer, Nodes(cluster, configuration, nodes, port)


class NodesCase(IssuerCase):
    """Tests of the nodes of a cluster, behind a proxy that spreads the requests."""

    def startDaemon(self) -> Daemon:
        """Return the first node."""
        self.issuer, self.servers = startNodes()
        self.nodes = self.servers.nodes
        return self.nodes[0]

    def at(self, number: int, *request: Any) -> Reply:
        """Send a request to a node."""
        self.admin = self.nodes[number].address("admin")
        return self.send(*request)

    def status(self, number: int, halves: dict[str, str]) -> int:
        """Return the status of a request to a node."""
        return self.at(number, "GET", "buckets", None, halves).status

    def statuses(self, halves: dict[str, str]) -> list[int]:
        """Return the status of a request to each node."""
        return [self.status(number, halves) for number in (0, 1)]

    def balance(self) -> None:
        """Send requests through the proxy from now on."""
        self.admin = ("127.0.0.1", self.servers.port)


@long("starts PostgreSQL, HAProxy and an issuer")
class ClusterSignInTests(NodesCase):
    """Signing in at the nodes of a cluster."""

    def spread(self, subject: str, groups: list[str]) -> tuple[int, dict[str, str], Any]:
        """
        Sign a person in through the proxy, beginning at one node and ending at the other.

        @return: The number of the node where it ends, the session and its description.
        """
        self.balance()
        self.issuer.put(subject, {"realm": {"groups": groups}})
        started = self.send("POST", "session/issuers/corporate")
        cookie = started.headers["Set-Cookie"].partition(";")[0]
        reply = self.finish(cookie, self.issuer.authorize(started.json["url"], subject))
        self.assertEqual(reply.status, 200, reply.body)
        self.assertNotEqual(started.headers["X-Node"], reply.headers["X-Node"])
        return int(reply.headers["X-Node"][-1]), self.halvesOf(reply), reply.json

    def test_spread(self) -> None:
        """
        A sign-in that begins at one node ends at the other. The session, the user and its keys are
        valid on all nodes, and disabling the user ends everything within a second.
        """
        first, halves, shown = self.spread("ann", ["engineers"])
        # The turn of the nodes is the other way round after one more request.
        self.send("GET", "session")
        second, others, again = self.spread("ann", ["engineers"])
        self.assertEqual({first, second}, {0, 1})
        self.assertEqual((shown["user"], again["user"]), ("ann", "ann"))
        self.assertEqual((self.statuses(halves), self.statuses(others)), ([200, 200], [200, 200]))
        made = self.at(first, "POST", "keys", {"account": ACCOUNT, "parent": "user/ann"}, halves)
        self.assertEqual(made.status, 200, made.body)
        pair = Account(made.json["accessKey"], made.json["secretKey"]).plainHeaders()
        self.assertTrue(eventually(lambda: self.statuses(pair) == [200, 200]))
        own = Account(made.json["accessKey"], made.json["secretKey"])
        sts = botoClient(self.nodes[0].url(), own, patient=False, service="sts")
        given = sts.get_session_token()["Credentials"]
        temporary = Account(given["AccessKeyId"], given["SecretAccessKey"])
        signers = [Signer(node.url().partition("://")[2], temporary) for node in self.nodes]

        def answers() -> list[tuple[int, str]]:
            """Send a request with the temporary key to each node."""
            token = {"x-amz-security-token": given["SessionToken"]}
            sent = [each.sign(Outgoing("GET", "/", dict(token))) for each in signers]
            pairs = zip(self.nodes, sent, strict=True)
            found = [exchange(node.address(), outgoing) for node, outgoing in pairs]
            return [(each.status, each.code) for each in found]

        self.assertEqual(answers(), [(200, "")] * 2)
        self.admin = self.nodes[first].address("admin")
        self.change("UpdateUserStatus", userName="ann", status="Inactive")
        watch = Stopwatch()
        self.assertTrue(eventually(lambda: answers() == [(400, "InvalidToken")] * 2))
        ends = (halves, others, pair)
        self.assertTrue(eventually(lambda: all(self.statuses(each) == [401, 401] for each in ends)))
        self.assertLess(watch.seconds(), 1)
        self.change("UpdateUserStatus", userName="ann", status="Active")
        self.assertTrue(eventually(lambda: self.statuses(pair) == [200, 200]))
        self.assertEqual((self.statuses(halves), self.statuses(others)), ([401, 401], [401, 401]))
        self.assertEqual(answers(), [(400, "InvalidToken")] * 2)

    def test_replayed(self) -> None:
        """A response that was used at one node is refused by both, without asking the issuer."""
        self.balance()
        self.issuer.put("bob", {"realm": {"groups": ["engineers"]}})
        url, cookie = self.begin()
        answer = self.issuer.authorize(url, "bob")
        self.assertEqual(self.finish(cookie, answer).status, 200)
        nodes = set()
        for _ in range(2):
            reply = self.finish(cookie, answer)
            self.assertEqual(reply.status, 401)
            self.assertIn("was used before", reply.json["message"])
            nodes.add(reply.headers["X-Node"])
        self.assertEqual(len(nodes), 2)


@long("starts PostgreSQL, HAProxy and an issuer")
class ClusterSessionTests(NodesCase):
    """The sessions of key pairs at the nodes of a cluster."""

    def signIn(self, account: Account = ROOT, number: int = 0) -> dict[str, str]:
        """Sign in at a node; return both halves of the session."""
        self.admin = self.nodes[number].address("admin")
        return super().signIn(account)

    def issue(self) -> Account:
        """Issue a key at the first node, which the second may not know yet."""
        reply = self.at(0, "POST", "keys", {"account": ACCOUNT}, ROOT.plainHeaders())
        self.assertEqual(reply.status, 200, reply.body)
        return Account(reply.json["accessKey"], reply.json["secretKey"])

    def test_signOut(self) -> None:
        """A session is valid on both nodes at once, and signing out at one ends it on both."""
        for number in (0, 1):
            halves = self.signIn(self.issue(), 0)
            self.assertEqual(self.status(1, halves), 200)
            self.assertEqual(self.status(0, halves), 200)
            self.assertEqual(self.at(number, "DELETE", "session", None, halves).status, 204)
            self.assertEqual(
                (self.status(1 - number, halves), self.status(number, halves)), (401, 401)
            )

    def test_halves(self) -> None:
        """Every node needs both halves, and refuses those of two sessions."""
        one, two = self.signIn(number=0), self.signIn(number=1)
        mixed = {**one, "X-Console-Token": two["X-Console-Token"]}
        for wrong in ({"Cookie": one["Cookie"]}, mixed):
            self.assertEqual(self.statuses(wrong), [401, 401])

    def test_key(self) -> None:
        """A new secret of the key, and its removal, end its sessions on both nodes."""
        account = self.issue()
        before = self.signIn(account)
        self.assertEqual(self.statuses(before), [200, 200])
        path = f"keys/{account.accessKey}"
        renewed = self.at(1, "PATCH", path, {"newSecret": True}, ROOT.plainHeaders())
        self.assertEqual(renewed.status, 200, renewed.body)
        self.assertTrue(eventually(lambda: self.statuses(before) == [401, 401]))
        after = self.signIn(Account(account.accessKey, renewed.json["secretKey"]), 1)
        self.assertEqual(self.statuses(after), [200, 200])
        self.assertEqual(self.at(0, "DELETE", path, None, ROOT.plainHeaders()).status, 204)
        self.assertTrue(eventually(lambda: self.statuses(after) == [401, 401]))

    def test_ended(self) -> None:
        """Both nodes list the sessions of a key; one that is ended at the other node is over."""
        account = self.issue()
        mine, other = self.signIn(account, 0), self.signIn(account, 1)
        listed = [self.at(number, "GET", "sessions", None, mine).json["items"] for number in (0, 1)]
        self.assertEqual(listed[0], listed[1])
        [id] = [each["id"] for each in listed[0] if not each["current"]]
        self.assertEqual(self.at(0, "DELETE", f"sessions/{id}", None, mine).status, 204)
        self.assertEqual((self.statuses(other), self.statuses(mine)), ([401, 401], [200, 200]))

    def test_ticket(self) -> None:
        """A ticket of one node fetches the object from the other one, while the session lives."""
        halves = self.signIn()
        bucket = self.makeName()
        self.assertEqual(self.at(0, "POST", "buckets", {"name": bucket}, halves).status, 200)
        path = self.objectPath(bucket, "a")
        self.assertEqual(self.at(0, "PUT", path, b"bytes", halves).status, 200)
        wanted = {"bucket": bucket, "key": "a", "purpose": "download"}
        url = self.at(0, "POST", "tickets", wanted, halves).json["url"].removeprefix("api/v1/")
        cookie = {"Cookie": halves["Cookie"]}
        self.assertEqual(self.at(1, "GET", url, None, cookie).body, b"bytes")
        self.assertEqual(self.at(1, "GET", url, None, {}).status, 401)
        self.assertEqual(self.at(1, "DELETE", "session", None, halves).status, 204)
        self.assertEqual(self.at(0, "GET", url, None, cookie).status, 401)

    def test_jobs(self) -> None:
        """A job of one node is listed and stopped at the other one."""
        halves = self.signIn()
        bucket = self.makeName()
        self.assertEqual(self.at(0, "POST", "buckets", {"name": bucket}, halves).status, 200)
        s3 = botoClient(self.nodes[0].url(), ROOT, patient=False)
        for number in range(1500):
            s3.put_object(Bucket=bucket, Key=f"{number}", Body=b"")
        wanted = {"kind": "copyPrefix", "bucket": bucket, "toPrefix": "copy/", "prefix": ""}
        wanted = {**wanted, "toBucket": self.makeName()}
        self.at(0, "POST", "buckets", {"name": wanted["toBucket"]}, halves)
        id = self.at(0, "POST", "jobs", wanted, halves).json["id"]

        def states() -> list[str]:
            """Return the state of the job at each node."""
            found = [self.at(number, "GET", "jobs", None, halves).json for number in (0, 1)]
            return [job["state"] for each in found for job in each["items"] if job["id"] == id]

        self.assertEqual(states(), ["running", "running"])
        self.assertEqual(self.at(1, "DELETE", f"jobs/{id}", None, halves).status, 204)
        self.assertTrue(eventually(lambda: states() == ["cancelled", "cancelled"]))

    def test_killed(self) -> None:
        """The sessions of a node that was killed go on at the others."""
        node = self.servers.cluster.node(configuration=self.servers.configuration).start()
        self.admin = node.address("admin")
        halves = ConsoleCase.signIn(self)
        node.kill()
        self.assertEqual(self.statuses(halves), [200, 200])

    def test_secrets(self) -> None:
        """The catalog has neither half of a session, nor a secret, nor a ticket."""
        account = self.issue()
        halves = self.signIn(account)
        wanted = {"bucket": "none", "prefix": "", "purpose": "zip"}
        url = self.at(0, "POST", "tickets", wanted, halves).json["url"]
        rows = self.servers.cluster.rows("SELECT kind, id, owner, document FROM consolerecords")
        self.assertTrue({"session", "ticket"} <= {row[0] for row in rows})
        stored = b"\n".join(
            each if isinstance(each, bytes) else each.encode() for row in rows for each in row
        )
        self.assertIn(account.accessKey.encode(), stored)
        id = halves["Cookie"].partition("=")[2]
        for secret in (id, halves["X-Console-Token"], account.secretKey, url.rpartition("/")[2]):
            self.assertNotIn(secret.encode(), stored)


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
