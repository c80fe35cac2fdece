"""What the console shows of the gateway and of discovery, and who may call."""

import json
from functools import cache
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.console.gatewayfixture import WIRES, GatewayCase, send
from tests.support.certificates import Authority
from tests.support.clients import ROOT, Account
from tests.support.selection import long
from tests.wire.s3.fixture import makeDaemon, ownDirectory


class DescriptionTests(GatewayCase):
    """The description."""

    configuration = """
[gateway.discovery]
provider = "static"

[gateway.discovery.services."Remote"]
instances = [{ host = "127.0.0.1", port = 9, weight = 3 }]
healthCheck = "/healthz"
healthIntervalMs = 100
ejectAfter = 1
ejectMs = 60000
strategy = "least_connections"
"""

    def test_services(self) -> None:
        """Services have their methods with kinds, schemas, authentication and limits."""
        found = self.send("GET", "gateway").json
        services = {each["name"]: each for each in found["services"]}
        methods = {each["name"]: each for each in services["Probe"]["methods"]}
        kinds = {name: methods[name]["streaming"] for name in ("echo", "count", "collect", "chat")}
        wanted = {"echo": "none", "count": "server", "collect": "client", "chat": "bidirectional"}
        self.assertEqual(kinds, wanted)
        schema = found["schemas"][methods["echo"]["input"]["$ref"].rpartition("/")[2]]
        self.assertEqual((schema["type"], schema["required"]), ("object", ["text"]))
        self.assertEqual(methods["slow"]["input"], {})
        public = [name for name in ("echo", "private") if methods[name]["isPublic"]]
        self.assertEqual(public, ["echo"])
        forwarded = [name for name in ("Probe", "Remote") if services[name]["isForwarded"]]
        self.assertEqual(forwarded, ["Remote"])

    def test_wires(self) -> None:
        """Wires have the addresses of their listeners, and the documents describe them."""
        found = self.send("GET", "gateway").json
        wires = {each["name"]: each for each in found["wires"]}
        self.assertEqual(tuple(wires), WIRES)
        for name in WIRES:
            listener = "http" if name == "websocket" else name
            host, port = self.daemon.address(listener)
            self.assertEqual(wires[name]["address"], f"{host}:{port}")
            self.assertEqual(wires[name]["providers"], ["apikey"])
            self.assertFalse(wires[name]["isSecure"])
        self.assertEqual((wires["http"]["path"], wires["websocket"]["path"]), ("/api", "/ws"))
        self.assertIn("/Probe/echo", found["openapi"]["paths"])
        self.assertEqual(set(found["asyncapi"]["channels"]), {"websocket", "udp", "tcp"})

    def test_reflection(self) -> None:
        """The services of gRPC are those of its reflection."""
        found = self.send("GET", "gateway").json["grpc"]
        self.assertEqual(found["problem"], "")
        [probe] = [each for each in found["services"] if each["name"].endswith("Probe")]
        methods = {each["name"].lower(): each["streaming"] for each in probe["methods"]}
        self.assertEqual((methods["chat"], methods["count"]), ("bidirectional", "server"))

    @long("takes a second or more")
    def test_limits(self) -> None:
        """A rate limit has its use by a client, and what was refused."""

        def limit(address: str = "") -> Any:
            found = self.send("GET", f"gateway?address={address}").json
            [probe] = [each for each in found["services"] if each["name"] == "Probe"]
            [method] = [each for each in probe["methods"] if each["name"] == "limited"]
            return method["rateLimit"]

        self.assertEqual((limit()["used"], limit()["requests"]), (0, 2))
        for _ in range(2):
            self.results("tcp", "limited", {"text": "a"})
        self.assertEqual(self.failure("tcp", "limited", {"text": "a"}), "RATE_LIMITED")
        # What is counted comes in once a second, with the next call.
        found = limit()
        self.assertEqual(found["used"], 3)
        self.assertGreater(found["endsMs"], 0)
        self.assertEqual(found["refused"], 1)
        self.assertEqual(limit("192.0.2.1")["used"], 0)

    @long("takes seconds")
    def test_discovery(self) -> None:
        """Instances have their state, the last check and the end of their ejection."""
        self.daemon.waitForLog("is unhealthy")
        found = self.send("GET", "discovery").json
        self.assertEqual((found["provider"], found["registration"]), ("static", None))
        [service] = found["services"]
        self.assertEqual((service["name"], service["strategy"]), ("Remote", "least_connections"))
        [instance] = service["instances"]
        self.assertEqual((instance["id"], instance["weight"]), ("127.0.0.1:9", 3))
        self.assertEqual((instance["state"], instance["isCheckGood"]), ("unhealthy", False))
        self.assertGreater(instance["checkedMs"], 0)
        self.assertIsNone(instance["ejectedUntilMs"])
        body = {"wire": "http", "service": "Remote", "method": "any", "requests": [{}]}
        lines = self.send("POST", "gateway/calls", body).body.splitlines()
        self.assertEqual(json.loads(lines[-1])["data"]["error"], "UNAVAILABLE")
        [instance] = self.send("GET", "discovery").json["services"][0]["instances"]
        self.assertGreater(instance["ejectedUntilMs"], instance["checkedMs"])

    def test_roles(self) -> None:
        """An auditor sees and may not call; other keys do not see."""

        def key(role: str) -> Account:
            made = self.send("POST", "keys", {"account": role, "role": role}).json
            return Account(made["accessKey"], made["secretKey"])

        body = {"wire": "http", "service": "Probe", "method": "echo", "requests": [{"text": "a"}]}
        for role, sees, calls in (("none", 403, 403), ("auditor", 200, 403), ("admin", 200, 200)):
            account = key(role)
            for path in ("gateway", "discovery"):
                self.assertEqual(self.send("GET", path, account=account).status, sees, role)
            status = self.send("POST", "gateway/calls", body, account).status
            self.assertEqual(status, calls, role)

    def test_log(self) -> None:
        """A call is a line of the log without its token."""
        self.results("tcp", "private", {"text": "a"}, token="good-key")
        match = self.daemon.waitForLog("callMethod .*'private'.* by " + ROOT.accessKey)
        self.assertNotIn("good-key", self.daemon.log)
        self.assertNotIn("Traceback", self.daemon.log)
        self.assertIn("done", self.daemon.log[match.start() :])


@cache
def _tls() -> str:
    """Make certificates; write the options that name them."""
    authority = Authority(ownDirectory("authority"))
    cert, key = authority.issue("store.example.com")
    files = f'cert = "{cert}"\nkey = "{key}"\n'
    strict = f'{files}ca = "{authority.path}"\n'
    tables = {"http": files, "tcp": strict, "grpc": strict}
    return "".join(f"[gateway.{name}.tls]\n{table}" for name, table in tables.items())


class SecureTests(GatewayCase):
    """Listeners with TLS that demand certificates of an authority of their own."""

    @property
    def configuration(self) -> str:  # type: ignore[override]
        """The options of TLS."""
        return _tls()

    def test_calls(self) -> None:
        """The daemon calls itself, though it is called by another name."""
        for wire in WIRES:
            self.assertEqual(self.results(wire, "echo", {"text": "a"})[0]["text"], "A", wire)
        found = self.send("GET", "gateway").json
        secure = {each["name"]: each["isSecure"] for each in found["wires"]}
        self.assertEqual(secure, {name: name != "udp" for name in WIRES})
        self.assertEqual(found["grpc"]["problem"], "")


class AddressTests(GatewayCase):
    """Listeners of sockets in a folder, and of all addresses."""

    flags = (
        "--http",
        "unix:http.socket",
        "--tcp",
        "tcp:0",
        "--grpc",
        "0.0.0.0:0",
        "--udp",
        "0.0.0.0:0",
    )

    def test_calls(self) -> None:
        """Each is called where this machine reaches it."""
        for wire in WIRES:
            self.assertEqual(self.results(wire, "echo", {"text": "a"})[0]["text"], "A", wire)


class WorkersTests(GatewayCase):
    """A daemon of two processes."""

    flags = ("--workers", "2")

    @long("takes seconds")
    def test_calls(self) -> None:
        """Each wire is called, and what all processes have refused is counted."""
        for wire in WIRES:
            self.assertEqual(self.results(wire, "echo", {"text": "a"})[0]["text"], "A", wire)
        calls = [self.call("tcp", "limited", {"text": "a"})[-1]["at"] for _ in range(8)]
        self.assertEqual(calls.count("error"), 6)
        [probe] = self.send("GET", "gateway").json["services"]
        [limit] = [each["rateLimit"] for each in probe["methods"] if each["name"] == "limited"]
        self.assertEqual((limit["used"], limit["refused"]), (8, 6))


class OwnTests(SynchronousTestCase):
    """The services of the daemon itself, and wires that are off."""

    def test_none(self) -> None:
        """Without listeners there is no gateway."""
        with makeDaemon(ownDirectory("none") / "data") as daemon:
            self.assertEqual(send(daemon, "GET", "gateway").status, 404)
            self.assertEqual(send(daemon, "GET", "discovery").json["services"], [])
            body = {"wire": "tcp", "service": "UserService", "method": "ListUsers"}
            self.assertEqual(send(daemon, "POST", "gateway/calls", body).status, 404)

    def test_own(self) -> None:
        """Services of protos are called like others, with a key pair as the token."""
        flags = ("--tcp", "tcp:0:interface=127.0.0.1", "--grpc", "127.0.0.1:0")
        daemon = makeDaemon(ownDirectory("own") / "data", *flags)
        with daemon:
            found = send(daemon, "GET", "gateway").json
            wires = {each["name"]: each for each in found["wires"]}
            self.assertEqual(wires["tcp"]["providers"], ["apikey"])
            self.assertEqual((wires["udp"]["address"], wires["http"]["address"]), ("", ""))
            schema = found["schemas"]["UserService.CreateUser.request"]
            self.assertEqual(schema["required"], ["name", "email"])
            described = found["openapi"]["components"]["schemas"]
            self.assertEqual(described["UserService.CreateUser.request"], schema)
            body = found["openapi"]["paths"]["/UserService/CreateUser"]["post"]["requestBody"]
            self.assertTrue(body["required"])
            described = found["asyncapi"]["components"]["schemas"]
            self.assertEqual(described["UserService.CreateUser.request"], schema)
            body = {"wire": "udp", "service": "UserService", "method": "ListUsers"}
            self.assertEqual(send(daemon, "POST", "gateway/calls", body).status, 404)
            pair = f"{ROOT.accessKey}:{ROOT.secretKey}"
            for wire in ("tcp", "grpc"):
                for service, method in (("UserService", "ListUsers"), ("Storage", "ListBuckets")):
                    body = {"wire": wire, "service": service, "method": method, "token": pair}
                    lines = send(daemon, "POST", "gateway/calls", body).body.splitlines()
                    self.assertEqual(json.loads(lines[-1])["at"], "end", lines)
            self.assertNotIn(ROOT.secretKey, daemon.log)
