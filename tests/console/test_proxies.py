"""The console behind nginx, haproxy and Caddy, with the files that docs/console.rst shows."""

import json
import re
import socket
import ssl
import subprocess
from http.client import HTTPConnection, HTTPResponse
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from twisted.trial.unittest import SynchronousTestCase

from tests.support.certificates import Authority
from tests.support.clients import ROOT
from tests.support.daemon import Daemon
from tests.support.documents import DOCS, codeBlocks
from tests.support.issuer import Issuer
from tests.support.ports import heldPort, waitForPort
from tests.support.programs import needs
from tests.support.selection import long
from tests.wire.s3.fixture import makeDaemon, ownDirectory

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

PREFIX = "/store/console/"

SECURE = "https://ops.example.com/store/console/"

PLAIN = "http://ops.example.com/store/console/"

SIGN_IN = """
[signIn.corporate]
issuer = "{url}"
clientId = "storagegate"
clientSecret = "client-secret"
account = "staff"
"""

TRUSTING = '[gateway]\ntrustedProxies = "127.0.0.1"\n'


class Browserlike:
    """
    A client that sends what a browser sends to the console at an origin.

    @ivar fields: Those of its session.
    """

    def __init__(self, origin: str, prefix: str, port: int, context: ssl.SSLContext | None) -> None:
        """
        @param prefix: Where the console is, with a slash at both ends.
        @param context: For TLS; L{None}: plain.
        """
        self.origin, self.prefix, self.fields = origin, prefix, {"Origin": origin}
        self._port, self._context = port, context

    def open(
        self, method: str, path: str, body: bytes | None = None, **more: str
    ) -> tuple[HTTPConnection, HTTPResponse]:
        """Send a request, and return when the head of the response is there."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=30)
        connection.sock = socket.create_connection(("127.0.0.1", self._port), 30)
        if self._context is not None:
            name = "ops.example.com"
            connection.sock = self._context.wrap_socket(connection.sock, server_hostname=name)
        fields = {"Host": self.origin.partition("//")[2], **self.fields}
        fields.update({name.replace("_", "-"): value for name, value in more.items()})
        connection.request(method, self.prefix + path, body, fields)
        return connection, connection.getresponse()

    def send(
        self, method: str, path: str, body: bytes | None = None, **more: str
    ) -> tuple[HTTPResponse, Any]:
        """Send a request; return the response with its document or its bytes."""
        connection, response = self.open(method, path, body, **more)
        try:
            raw = response.read()
        finally:
            connection.close()
        isJSON = response.headers.get("Content-Type", "").startswith("application/json")
        return response, json.loads(raw) if isJSON and raw else raw

    def signIn(self) -> HTTPResponse:
        """Sign in with the root pair."""
        pair = {"accessKey": ROOT.accessKey, "secretKey": ROOT.secretKey}
        response, found = self.send("POST", "api/v1/session", json.dumps(pair).encode())
        if response.status == 200:
            cookie = response.headers["Set-Cookie"].partition(";")[0]
            self.fields |= {"Cookie": cookie, "X-Console-Token": found["token"]}
        return response


class ConsoleProxyTests:
    """One proxy and the daemon behind it."""

    language = ""

    passesAddresses = True
    """Whether it keeps the addresses that a client claims to stand for."""

    stripped: ClassVar[tuple[tuple[str, str], ...]] = ()
    """What the file has in place of something, so that the proxy takes the prefix off."""

    secret: ClassVar[tuple[str, str]] = ("", "")
    """What the file has in place of something, so that the proxy listens without TLS."""

    def begin(
        self, url: str, keys: str = "", prefix: str = PREFIX, isStripped: bool = False
    ) -> Browserlike:
        """
        Start the daemon and the proxy.

        @param url: C{consoleUrl}.
        @param keys: More lines of the configuration.
        @param prefix: Where the proxy has the console.
        """
        self.directory = ownDirectory("proxy")
        configuration = self.directory / "storagegate.toml"
        configuration.write_text(f'consoleUrl = "{url}"\n{keys}\n{TRUSTING}')
        flag = f"--config={configuration}"
        self.daemon: Daemon = makeDaemon(self.directory / "data", flag).start()
        self.addCleanup(self.daemon.kill)  # type: ignore[attr-defined]
        isSecure = url.startswith("https:")
        authority = Authority(self.directory)
        certificate, key = authority.issue("ops.example.com")
        both = self.directory / "both.pem"
        both.write_bytes(certificate.read_bytes() + key.read_bytes())
        [block] = codeBlocks(DOCS / "console.rst", self.language)
        text = block.code
        for written, there in self.stripped if isStripped else ():
            text = self.replaced(text, written, there)
        if not isSecure:
            text = self.replaced(text, *self.secret)
        host, admin = self.daemon.address("admin")
        port = heldPort(self)
        for written, there in (
            ("127.0.0.1:9001", f"{host}:{admin}"),
            (PREFIX, prefix),
            ("/etc/ssl/example.both.pem", str(both)),
            ("/etc/ssl/example.pem", str(certificate)),
            ("/etc/ssl/example.key", str(key)),
        ):
            text = text.replace(written, there)
        text = re.sub(r"(?<=[ :])443\b", str(port), text)
        self.start(text)
        waitForPort(port, self.process)
        context = ssl.create_default_context(cafile=str(authority.path)) if isSecure else None
        return Browserlike(url[: url.index("/", 8)], prefix, port, context)

    def test_issuer(self) -> None:
        """A person signs in at an issuer, which sends the browser back through the proxy."""
        case: Any = self
        issuer = Issuer().start()
        case.addCleanup(issuer.stop)
        client = self.begin(SECURE, SIGN_IN.format(url=issuer.url))
        issuer.put("ann", {})
        response, started = client.send("POST", "api/v1/session/issuers/corporate")
        case.assertEqual(response.status, 200, started)
        [url] = parse_qs(urlsplit(started["url"]).query)["redirect_uri"]
        case.assertEqual(url, SECURE)
        cookie, *attributes = response.headers["Set-Cookie"].lower().split("; ")
        case.assertIn("secure", attributes)
        case.assertIn(f"path={PREFIX}", attributes)
        answer = issuer.authorize(started["url"], "ann")
        body = json.dumps({"code": answer["code"], "state": answer["state"]}).encode()
        cookie = response.headers["Set-Cookie"].partition(";")[0]
        response, found = client.send("POST", "api/v1/session/code", body, Cookie=cookie)
        case.assertEqual((response.status, found["user"]), (200, "ann"))

    def replaced(self, text: str, written: str, there: str) -> str:
        """Replace what is written in a text, once."""
        assert text.count(written) == 1, (written, text)
        return text.replace(written, there)

    def start(self, text: str) -> None:
        """Start the proxy."""
        raise NotImplementedError

    def runProxy(self, *command: str) -> None:
        """Run the proxy in the foreground."""
        with (self.directory / "proxy.log").open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.directory,
                env={"HOME": str(self.directory), "PATH": PATH},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.addCleanup(self.process.wait)  # type: ignore[attr-defined]
        self.addCleanup(self.process.terminate)  # type: ignore[attr-defined]

    def check(self, client: Browserlike, isSecure: bool) -> None:
        """All that a page does works, for this client's own origin and no other."""
        case: Any = self
        response, page = client.send("GET", "")
        case.assertEqual(response.status, 200, page)
        scripts = re.findall(rb'(?:src|href)="([^"]+)"', page)
        case.assertTrue(scripts)
        for name in scripts:
            response, _ = client.send("GET", name.decode())
            case.assertEqual(response.status, 200, name)
        response = client.signIn()
        case.assertEqual(response.status, 200)
        cookie = [each.strip() for each in response.headers["Set-Cookie"].split(";")]
        case.assertIn(f"path={client.prefix}", [each.lower() for each in cookie])
        case.assertEqual("secure" in [each.lower() for each in cookie], isSecure)
        named = {"X_Forwarded_For": "192.0.2.9"}
        response, _ = client.send("POST", "api/v1/buckets", b'{"name": "shelf"}', **named)
        case.assertEqual(response.status, 200)
        body = bytes(range(256)) * 8192
        for key in ("plain", "a%2Fb%20%C3%BC", "a%2F%2Fb", "100%25", "~..", "a%2F..%2Fb%3F"):
            at = f"api/v1/buckets/shelf/objects/{key}"
            response, found = client.send("PUT", at, body)
            case.assertEqual(response.status, 200, (key, found))
        _, found = client.send("GET", "api/v1/buckets/shelf/objects")
        names = [each[0] for each in found["objects"]]
        case.assertEqual(
            names,
            [
                "..",
                "100%",
                "a/../b?",
                "a//b",
                "a/b \N{LATIN SMALL LETTER U WITH DIAERESIS}",
                "plain",
            ],
        )
        wanted = {"bucket": "shelf", "key": "a/../b?", "purpose": "download"}
        _, ticket = client.send("POST", "api/v1/tickets", json.dumps(wanted).encode())
        response, found = client.send("GET", ticket["url"])
        case.assertEqual((response.status, found), (200, body))
        self.checkForeign(client)
        self.checkStream(client)
        # The proxy is trusted to name the client.
        [line] = [
            each
            for each in self.daemon.log.splitlines()
            if "createBucket" in each and "done" in each
        ]
        case.assertEqual("from 192.0.2.9," in line, self.passesAddresses, line)

    def checkForeign(self, client: Browserlike) -> None:
        """Neither another origin nor another host is served."""
        case: Any = self
        for more, status in (
            ({"Origin": "https://ops.example.com.evil.example"}, 403),
            ({"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}, 403),
            ({"Host": "evil.example"}, 421),
        ):
            response, found = client.send("POST", "api/v1/buckets", b'{"name": "other"}', **more)
            # A proxy may serve its own names only.
            allowed = (status,) if status == 403 else (status, 200, 404)
            case.assertIn(response.status, allowed, (more, found))
            if "Host" in more and response.status == 200:
                case.assertEqual(found, b"")

    def checkStream(self, client: Browserlike) -> None:
        """What happens reaches an open event stream at once."""
        case: Any = self
        connection, response = client.open("GET", "api/v1/events?topics=jobs,requests,health")
        try:
            case.assertEqual(response.status, 200)
            case.assertEqual(response.readline(), b": storagegate\n")
            found = b""
            while b"event: health" not in found or b"event: jobs" not in found:
                found += response.readline()
        finally:
            connection.close()

    def test_passed(self) -> None:
        """The file of the page: the path reaches the daemon as it came."""
        self.check(self.begin(SECURE), True)


class StrippingTests(ConsoleProxyTests):
    """A proxy that takes a prefix off before it decodes the path, as Caddy does not."""

    def test_stripped(self) -> None:
        """A proxy that takes off what is before C{/console/}, at another prefix, without TLS."""
        prefix = "/a/b~c/"
        url = "http://ops.example.com" + prefix
        client = self.begin(url, "consoleClearText = true", prefix=prefix, isStripped=True)
        self.check(client, False)


@long("starts nginx, HAProxy and Caddy")
@needs("nginx")
class NginxConsoleTests(StrippingTests, SynchronousTestCase):
    """nginx."""

    language = "nginx"
    secret = ("listen 443 ssl;", "listen 443;")
    stripped = (
        (
            "    upstream admin",
            "    map $request_uri $passed { ~^"
            + PREFIX
            + "(.*)$ /console/$1; }\n    upstream admin",
        ),
        ("proxy_pass http://admin;", "proxy_pass http://admin$passed;"),
    )

    def start(self, text: str) -> None:
        """Start it, its files in the directory of the test."""
        folders = "".join(
            f"{name}_temp_path {self.directory / name};\n"
            for name in ("client_body", "proxy", "fastcgi", "scgi", "uwsgi")
        )
        text = text.replace("http {\n", f"http {{\n{folders}access_log off;\n", 1)
        (self.directory / "nginx.conf").write_text(
            f"daemon off;\nuser root;\npid nginx.pid;\nerror_log stderr;\n{text}"
        )
        self.runProxy("nginx", "-p", str(self.directory), "-c", "nginx.conf", "-e", "stderr")

    def test_clearText(self) -> None:
        """Without TLS, signing in is refused, also if the proxy writes a C{Host} of its own."""
        client = self.begin(PLAIN)
        self.assertEqual(client.signIn().status, 403)
        direct = Browserlike(client.origin, "/console/", self.daemon.address("admin")[1], None)
        response, found = direct.send(
            "POST",
            "api/v1/session",
            json.dumps({"accessKey": ROOT.accessKey, "secretKey": ROOT.secretKey}).encode(),
            Host="localhost",
        )
        self.assertEqual((response.status, found["details"]), (403, {"reason": "clearText"}))


@long("starts nginx, HAProxy and Caddy")
@needs("haproxy")
class HaproxyConsoleTests(StrippingTests, SynchronousTestCase):
    """haproxy."""

    language = "haproxy"
    secret = (" ssl crt /etc/ssl/example.both.pem", "")
    stripped = (
        (
            "backend console\n",
            "backend console\n    http-request replace-uri [^?]*" + PREFIX + "(.*) /console/\\1\n",
        ),
    )

    def start(self, text: str) -> None:
        """Start it."""
        (self.directory / "haproxy.cfg").write_text(text)
        self.runProxy("haproxy", "-db", "-f", "haproxy.cfg")


@long("starts nginx, HAProxy and Caddy")
@needs("caddy")
class CaddyConsoleTests(ConsoleProxyTests, SynchronousTestCase):
    """Caddy."""

    language = "caddy"
    passesAddresses = False

    def start(self, text: str) -> None:
        """Start it without the listener of its own settings, and without one for redirects."""
        head = "{\n    admin off\n    auto_https disable_redirects\n}\n"
        (self.directory / "Caddyfile").write_text(head + text)
        self.runProxy("caddy", "run", "--config", "Caddyfile", "--adapter", "caddyfile")
