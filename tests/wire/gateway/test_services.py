"""The user's own services, served by the daemon, and what is wrong with them said at its start."""

import json
import re
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import Daemon
from tests.support.selection import long

ORDERS = """
from storagegate.core.definitions import ServiceDefinition, ServiceMethod


async def get(request, context):
    return {"id": request["id"], "protocol": context.protocol}


def known(key, context):
    return {"key": key} if key == "good" else None


def shout(error, protocol):
    return {"error": error.code, "message": error.message.upper()}


Orders = {
    "name": "Orders",
    "methods": {
        "get": {
            "handler": get,
            "input": {"type": "object", "properties": {"id": {"type": "string", "required": True}}},
        },
        "secret": {"handler": get, "authentication": True},
    },
}
Others = ServiceDefinition("Others", {"get": ServiceMethod(get)})
Wrong = {"name": "Wrong", "methods": {"get": 5}}
"""

CONFIGURATION = """
[gateway.http]
enableCORS = true
routes = { "GET /orders/:id" = "Orders.get" }

[gateway.authentication.providers.apikey]
validate = "orders:known"

[gateway.rateLimit]
requests = 5
window = 60000

[gateway.errorHandling]
transformError = "orders:shout"
"""


class ServiceCase(SynchronousTestCase):
    """A daemon with services of a module."""

    def setUp(self) -> None:
        """Write the module into the working directory."""
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        (self.directory / "orders.py").write_text(ORDERS)
        (self.directory / "broken.py").write_text("raise RuntimeError('no such luck')")

    def daemon(self, *arguments: str) -> Daemon:
        """Make a daemon that does not outlive the test."""
        daemon = Daemon(
            self.directory / "data",
            "--http",
            "tcp:0:interface=127.0.0.1",
            *arguments,
            expect=("http",),
            directory=self.directory,
        )
        self.addCleanup(daemon.kill)
        return daemon

    def ask(self, daemon: Daemon, verb: str, path: str, body: Any = None, **headers: str) -> Any:
        """Ask over HTTP; give the status and the body."""
        connection = HTTPConnection(*daemon.address("http"), timeout=60)
        fields = {key.replace("_", "-"): value for key, value in headers.items()}
        content = None if body is None else json.dumps(body)
        connection.request(verb, path, content, fields)
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
        return response.status, answer


class ServiceTests(ServiceCase):
    """C{--service} and C{[gateway.*]}."""

    def test_served(self) -> None:
        """Services are a mapping or a definition; with any of them the reference ones are not."""
        with self.daemon("--service", "orders:Orders", "--service", "orders:Others") as daemon:
            for name in ("Orders", "Others"):
                answer = self.ask(daemon, "POST", f"/api/{name}/get", {"id": "7"})
                self.assertEqual(answer, (200, {"data": {"id": "7", "protocol": "http"}}))
            status, error = self.ask(daemon, "POST", "/api/Orders/get", {})
            self.assertEqual((status, error["error"]), (400, "VALIDATION_ERROR"))
            status, error = self.ask(daemon, "POST", "/api/UserService/ListUsers", {})
            self.assertEqual((status, error["error"]), (404, "NOT_FOUND"))

    def test_tables(self) -> None:
        """The tables of the file configure the gateway; functions are named."""
        (self.directory / "config.toml").write_text(CONFIGURATION)
        config = str(self.directory / "config.toml")
        with self.daemon("--config", config, "--service", "orders:Orders") as daemon:
            self.assertEqual(self.ask(daemon, "GET", "/orders/9")[1]["data"]["id"], "9")
            secret = ("POST", "/api/Orders/secret", {"id": "1"})
            self.assertEqual(self.ask(daemon, *secret, X_API_Key="good")[0], 200)
            status, error = self.ask(daemon, *secret, X_API_Key="bad")
            self.assertEqual((status, error["message"]), (401, "INVALID TOKEN"))
            statuses = [self.ask(daemon, "GET", "/orders/9")[0] for _ in range(6)]
            self.assertEqual(statuses, [200] * 4 + [429] * 2)

    @long("takes seconds")
    def test_refused(self) -> None:
        """What cannot be served stops the start with one line, before a port is open."""
        (self.directory / "bad.toml").write_text("[gateway.websocket]\nmaxSize = 5\n")
        (self.directory / "worse.toml").write_text("[gateway.sockets]\n")
        (self.directory / "worst.toml").write_text('[gateway.http]\ntransformRequest = "no:no"\n')
        for arguments, words in (
            (("--service", "nothing:Orders"), "nothing:Orders: cannot import nothing"),
            (("--service", "orders:Nothing"), "orders:Nothing: orders has no Nothing"),
            (("--service", "orders:Wrong"), "Wrong.get"),
            (("--service", "broken:Orders"), "no such luck"),
            (("--service", "orders:Orders", "--service", "orders:Orders"), "Orders already"),
            (("--config", str(self.directory / "bad.toml")), "maxSize"),
            (("--config", str(self.directory / "worse.toml")), "gateway.sockets: unknown key"),
            (("--config", str(self.directory / "worst.toml")), "no:no: cannot import no"),
        ):
            daemon = self.daemon(*arguments)
            daemon.launch()
            self.assertEqual(daemon.wait(), 1, arguments)
            self.assertNotIn("Traceback", daemon.log)
            self.assertNotIn("listening name=", daemon.log)
            lines = [line for line in daemon.log.splitlines() if not re.search("#info", line)]
            self.assertEqual(len(lines), 1, daemon.log)
            self.assertIn(words, lines[0])


class ExposureTests(ServiceCase):
    """Addresses that other machines reach."""

    def exposed(self, *arguments: str) -> Daemon:
        """Make a daemon whose HTTP and UDP are on every address."""
        return self.daemon("--http", "tcp:0", "--udp", "0.0.0.0:0", *arguments)

    def createUser(self, daemon: Daemon) -> int:
        """Create a user without credentials; give the status."""
        user = {"name": "Ada", "email": "ada@example.com"}
        status: int = self.ask(daemon, "POST", "/api/UserService/CreateUser", user)[0]
        return status

    def lines(self, daemon: Daemon, text: str) -> list[str]:
        """Give the warnings that have a text."""
        return [line for line in daemon.log.splitlines() if text in line and "#warn" in line]

    @long("takes seconds")
    def test_unserved(self) -> None:
        """Without a name UserService is not served there, by one or many; a line says so."""
        for arguments in ((), ("--workers", "2")):
            with self.exposed(*arguments) as daemon:
                self.assertEqual(self.createUser(daemon), 404)
                found = self.ask(daemon, "POST", "/api/Storage/ListBuckets", {})
                self.assertEqual(found[0], 401)
            [line] = self.lines(daemon, "UserService is not served")
            self.assertIn("reach http, udp.", line)
            self.assertEqual(self.lines(daemon, "without credentials"), [])
            [line] = self.lines(daemon, "without TLS")
            self.assertRegex(line, r"without TLS: http 0\.0\.0\.0:\d+, udp 0\.0\.0\.0:\d+$")

    def test_named(self) -> None:
        """By its name it is served, with a warning of each method that needs no credentials."""
        names = ("--service", "UserService", "--service", "orders:Orders")
        with self.exposed(*names) as daemon:
            self.assertEqual(self.createUser(daemon), 200)
            status, error = self.ask(daemon, "POST", "/api/Storage/ListBuckets", {})
            self.assertEqual((status, error["error"]), (404, "NOT_FOUND"))
            self.assertEqual(self.ask(daemon, "POST", "/api/Orders/get", {"id": "7"})[0], 200)
        [line] = self.lines(daemon, "without credentials")
        self.assertIn("over http, udp without credentials: Orders.get, UserService.*", line)
        self.assertEqual(self.lines(daemon, "is not served"), [])

    def test_loopback(self) -> None:
        """On this machine's own address everything is served, and nothing is warned of."""
        with self.daemon() as daemon:
            self.assertEqual(self.createUser(daemon), 200)
        self.assertEqual(self.lines(daemon, ""), [])
