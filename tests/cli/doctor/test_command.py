"""The whole of C{storagegate doctor}."""

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from storagegate.daemon.config import ConfigurationError, load
from storagegate.daemon.configcheck import everyError
from tests.cli.test_main import ScriptCase
from tests.support.daemon import Daemon

QUIET = tuple(
    item for name in ("s3", "admin", "http", "grpc", "tcp", "udp") for item in (f"--{name}", "off")
)


class EveryErrorTests(SynchronousTestCase):
    """Every error of a configuration."""

    def setUp(self) -> None:
        """Name a file."""
        self.path = Path(self.mktemp()).absolute()

    def errors(self, text: str, *, flags: Mapping[str, object] = {}, **variables: str) -> list[str]:
        """Give the errors of a file, flags and variables; the first is also what stops a start."""
        self.path.write_text(text)
        given = {"config": str(self.path), **flags}
        found = everyError(given, variables)
        try:
            load(given, variables)
        except ConfigurationError as error:
            self.assertEqual(set(error.errors) - set(found), set())
        else:
            self.assertEqual(found, [])
        return found

    def test_none(self) -> None:
        """A configuration that is right has none."""
        self.errors('region = "eu"\n', flags={"s3": "off", "http": None}, HOME="/")

    def test_each(self) -> None:
        """Each wrong key and value is named with where it came from."""
        found = self.errors(
            'regoin = "eu"\ndurability = "fast"\ngateway = 1\nregion = "eu"\n',
            flags={"grpc": "x"},
            STORAGEGATE_WORKERS="many",
            STORAGEGATE_REGOIN="eu",
        )
        self.assertCountEqual(
            [line.split(" (")[0] for line in found],
            ["gateway", "'regoin'", "durability", "workers", "STORAGEGATE_REGOIN", "grpc"],
        )

    def test_file(self) -> None:
        """A file that cannot be read is one error, and the rest is looked at all the same."""
        self.assertEqual(len(self.errors("nonsense")), 1)
        [first, second] = self.errors("nonsense", STORAGEGATE_WORKERS="0")
        self.assertIn("config", first)
        self.assertIn("workers", second)

    def test_gateway(self) -> None:
        """Tables and services are checked though no listener of the gateway is enabled."""
        text = """
            durability = "fast"
            service = ["nowhere:Nothing", "os:path"]
            [gateway.http]
            bassPath = "/api"
            idleMs = 5
            port = 80
            transformRequest = "nowhere:f"
            [gateway.tcp]
            maxFrameSize = "none"
            [gateway.authentication.providers.jwtt]
            [gateway.authentication.providers.apikey]
            tokens = 1
            [gateway.https]
        """
        off = {each.removeprefix("--"): "off" for each in QUIET[::2]}
        self.path.write_text(text)
        found = everyError({"config": str(self.path), **off}, {})
        for mistake in (
            "durability (",
            "service: nowhere:Nothing: cannot import",
            "service: os:path: ",
            "gateway.http: there is no option http.bassPath",
            "gateway.http: there is no option http.idleMs",
            "gateway.http.port: ",
            "gateway.tcp: the option tcp.maxFrameSize ",
            "gateway.http: nowhere:f: cannot import",
            "gateway.authentication: there is no option authentication.providers.jwtt",
            "gateway.authentication: there is no option authentication.providers.apikey.tokens",
            "gateway.authentication: the option authentication.providers.apikey.validate is",
            "gateway.https: unknown key",
        ):
            self.assertEqual(len([each for each in found if each.startswith(mistake)]), 1, mistake)
        self.assertEqual(len(found), 12, found)

    def test_together(self) -> None:
        """What concerns two keys is found when each of them is right, and secrets stay secret."""
        [line] = self.errors('secretKey = "geheimnis"\n')
        self.assertIn("accessKey: missing", line)
        self.assertNotIn("geheimnis", " ".join(self.errors("secretKey = 1\n")))


# The speed and the free space of the disk under the tests are unknown.
DISK = " disk: "


def besidesDisk(found: list[str]) -> list[str]:
    """Give the lines of problems that are not this machine's own affair."""
    return [line for line in found if line.startswith("problem") and DISK not in line]


class CommandTests(ScriptCase):
    """The command."""

    timeout = 60

    def setUp(self) -> None:
        """Make a data directory that is right."""
        super().setUp()
        for path in (self.data, *self.data.iterdir()):
            path.chmod(0o700 if path.is_dir() else 0o600)

    def doctor(self, *arguments: str) -> tuple[int, list[str]]:
        """Run it with no listener that is not asked for; give exit code and lines."""
        code, output, errors = self.script("doctor", "--data", str(self.data), *QUIET, *arguments)
        self.assertEqual(errors, "")
        return code, output.splitlines()

    def state(self) -> Iterator[tuple[str, int, int]]:
        """Give names, modes and times of everything in the data directory."""
        for path in sorted([self.data, *self.data.rglob("*")]):
            status = path.stat()
            yield str(path), status.st_mode, status.st_mtime_ns

    def test_well(self) -> None:
        """A machine that is well is exit code 0, and it is as it was before."""
        before = list(self.state())
        code, found = self.doctor()
        self.assertEqual(code, int(any(line.startswith("problem") for line in found)), found)
        self.assertEqual(besidesDisk(found), [])
        self.assertEqual(list(self.state()), before)

    def test_problem(self) -> None:
        """One problem is exit code 1, and what else there is to say is said."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            place = f"tcp:{taken.getsockname()[1]}"
            code, found = self.doctor("--s3", place)
        self.assertEqual(code, 1)
        [line] = besidesDisk(found)
        self.assertIn(f"problem  ports: s3: {place} is in use by process {os.getpid()}", line)
        self.assertEqual(sum("disk: a sync takes" in line for line in found), 1)

    def test_configuration(self) -> None:
        """Without a configuration, what it says is not looked at; the machine is."""
        path = self.data.parent / "storagegate.toml"
        path.write_text("durability = 1\nregion = 2\n")
        code, found = self.doctor("--config", str(path))
        self.assertEqual(code, 1)
        self.assertEqual(sum(line.startswith("problem  configuration: ") for line in found), 2)
        checks = {line.split()[1] for line in found}
        self.assertTrue({"limits:", "clock:"} <= checks)
        self.assertFalse({"disk:", "ports:"} & checks)

    def test_services(self) -> None:
        """Services are imported as the daemon does; one that is none, or prints, does no harm."""
        path = self.data.parent / "storagegate.toml"
        path.write_text(
            'service = ["doctor_here:Orders", "doctor_here:Nothing", "nowhere_at_all:x"]\n'
            "[gateway.websocket]\nnonsense = 1\n[gateway.udp]\n[gateway.tpc]\n"
        )
        Path("doctor_here.py").write_text(
            'print("imported")\n'
            'Orders = {"name": "Orders", "methods": {"get": {"handler": lambda request: {}}}}\n'
        )
        self.addCleanup(os.unlink, "doctor_here.py")
        self.addCleanup(sys.modules.pop, "doctor_here", None)
        before = list(sys.path)
        code, output, errors = self.script(
            "doctor", "--data", str(self.data), *QUIET, "--config", str(path), "--json"
        )
        self.assertEqual((code, errors), (1, "imported\n"))
        found = json.loads(output)["findings"]
        said = {each["text"]: each["level"] for each in found if each["check"] == "services"}
        self.assertEqual(list(said.values()), ["ok", "problem", "problem"])
        tables = [each for each in found if "gateway." in each["text"]]
        self.assertEqual([each["level"] for each in tables], ["problem", "ok", "problem"])
        self.assertIn("nonsense", tables[0]["text"])
        keys = f"all keys outside the tables of the gateway are valid, in {path}"
        self.assertIn(keys, [each["text"] for each in found if each["check"] == "configuration"])
        self.assertEqual(sys.path, before)

    def test_exposure(self) -> None:
        """Clear text and methods for anybody are warned of where other machines reach them."""
        path = self.data.parent / "storagegate.toml"
        path.write_text('[gateway.tcp.tls]\ncert = "c.pem"\nkey = "k.pem"\n')
        places = (
            "--tcp",
            "tcp:0",
            "--http",
            "tcp:0",
            "--grpc",
            "localhost:0",
            "--udp",
            "0.0.0.0:0",
        )
        for names, methods in ((), ""), (("--service", "UserService"), "UserService.*"):
            _code, found = self.doctor("--config", str(path), *places, *names)
            lines = [line.partition("exposure: ")[2] for line in found if " exposure: " in line]
            clear = [line for line in lines if line.endswith("from other machines without TLS")]
            self.assertEqual([line.split(":")[0] for line in clear], ["http", "udp"])
            others = [line for line in lines if line not in clear]
            text = (
                "other machines can call these methods over http, udp, tcp"
                f" without credentials: {methods}"
            )
            self.assertEqual(others, [text] if methods else [])

    def test_gatewayOnS3(self) -> None:
        """The S3 listener is warned of if it serves the gateway, whose paths are checked."""
        path = self.data.parent / "storagegate.toml"
        flags = ("--config", str(path), "--s3", "tcp:0", "--service", "UserService")
        methods = "other machines can call these methods over s3 without credentials"
        for table, isValid in (('[gateway.http]\nbasePath = "/_api"\n', True), ("", False)):
            path.write_text("gatewayOnS3 = true\n" + table)
            _code, found = self.doctor(*flags)
            self.assertEqual(len([line for line in found if methods in line]), 1, found)
            wrong = [line for line in found if "gateway.http.basePath: with gatewayOnS3" in line]
            self.assertEqual(len(wrong), 0 if isValid else 1, found)

    def test_secretInFile(self) -> None:
        """A file with the secret key that everybody may read is a problem."""
        path = self.data.parent / "storagegate.toml"
        path.write_text('accessKey = "an-access-key"\nsecretKey = "geheimnis"\n')
        for mode, count in ((0o644, 1), (0o600, 0)):
            path.chmod(mode)
            code, found = self.doctor("--config", str(path))
            problems = besidesDisk(found)
            self.assertEqual(len(problems), count, found)
            self.assertGreaterEqual(code, count)

    def test_json(self) -> None:
        """As JSON it is one object: whether all is well, and each finding."""
        code, found = self.doctor("--json")
        [line] = found
        document = json.loads(line)
        levels = {finding["level"] for finding in document["findings"]}
        self.assertEqual((code == 0, document["ok"]), ("problem" not in levels,) * 2)
        for finding in document["findings"]:
            self.assertEqual(set(finding), {"level", "check", "text"})

    def test_running(self) -> None:
        """Beside the daemon that it is asked about, its ports and its files are right."""
        data = Path(self.mktemp()).absolute()
        daemon = Daemon(data)
        self.addCleanup(daemon.kill)
        daemon.start()
        self.data = data
        places = []
        for name in ("s3", "admin"):
            host, port = daemon.address(name)
            places += [f"--{name}", f"tcp:{port}:interface={host}"]
        _code, found = self.doctor(*places)
        self.assertEqual(besidesDisk(found), [])
        self.assertEqual(sum("is in use by the running daemon" in line for line in found), 2)
        daemon.signal(signal.SIGTERM)
        self.assertEqual(daemon.wait(), 0)
