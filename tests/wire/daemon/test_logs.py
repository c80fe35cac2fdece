"""The log of real daemons: its lines, what is not in it, and what becomes of it under pressure."""

import http.client
import json
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from joserfc import jwt
from joserfc.jwk import OctKey
from twisted.trial.unittest import SynchronousTestCase

from storagegate import __version__
from storagegate.telemetry.log import FileOutput
from tests.support.clients import Account
from tests.support.daemon import (
    ACCESS_KEY,
    SECRET_KEY,
    STOP_SECONDS,
    Daemon,
    DaemonLog,
    daemonCommand,
    daemonEnvironment,
)
from tests.support.gatewayclients import CLIENTS
from tests.support.http import ROOT_HEADERS, request
from tests.support.s3signer import Outgoing, Signer, exchange
from tests.support.selection import long

WIRES = ("http", "websocket", "grpc", "tcp", "udp")

LISTENERS = (
    "--http",
    "tcp:0:interface=127.0.0.1",
    "--tcp",
    "tcp:0:interface=127.0.0.1",
    "--grpc",
    "127.0.0.1:0",
    "--udp",
    "127.0.0.1:0",
)

JWT_SECRET = "jwt-secret-of-more-than-32-characters"
PASSWORD = "hunter2-and-more"
OLDER = "b2xkZXIgc2lnbmF0dXJlIG9m%3D"
COOKIE = "session-cookie-value"
BASIC = "dXNlcjpwYXNzd29yZC1vZi11c2Vy"
FORGED = "x\n2026-01-01T00:00:00+0000 [-] forged\x1b[2J\u2028"

SERVICE = f"""
from twisted.logger import Logger

async def explode(request, context):
    print("asked with", context.headers, context.metadata)
    Logger().info("{{request}}", request=request)
    Logger().info("{{text}}", text=request["text"])
    raise RuntimeError(f"{{request}} {{dict(context.headers)}} secret={JWT_SECRET!r}")

Leaky = {{"name": "Leaky", "methods": {{"explode": explode}}}}
"""

CONFIGURATION = f"""
logLevel = "debug"
[gateway.authentication]
rules = {{ {", ".join(f'{wire} = ["jwt"]' for wire in WIRES)} }}
[gateway.authentication.providers.jwt]
secret = "{JWT_SECRET}"
[gateway.monitoring.logging]
level = "debug"
"""


class SecretTests(SynchronousTestCase):
    """A whole session with every kind of secret, over every wire, with errors and tracebacks."""

    timeout = 60

    def session(self, form: str) -> tuple[str, list[str]]:
        """Run a daemon and use it; give its log, and the secrets that it was told."""
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        (directory / "leaky.py").write_text(SERVICE)
        (directory / "config.toml").write_text(f'logFormat = "{form}"\n{CONFIGURATION}')
        self.token = str(jwt.encode({"alg": "HS256"}, {"sub": "a"}, OctKey.import_key(JWT_SECRET)))
        flags = ("--service", "leaky:Leaky", "--config", str(directory / "config.toml"))
        with Daemon(
            directory / "data",
            *LISTENERS,
            *flags,
            expect=("s3", "admin", *(wire for wire in WIRES if wire != "websocket")),
            directory=directory,
        ) as daemon:
            secrets = [*self.useServices(daemon), *self.useS3(daemon)]
            self.assertEqual(daemon.stop(), 0)
            return daemon.log, [SECRET_KEY, JWT_SECRET, PASSWORD, COOKIE, BASIC, *secrets]

    def useServices(self, daemon: Daemon) -> Iterator[str]:
        """Make calls that fail over each wire."""
        leaking = {"text": FORGED, "user": {"password": PASSWORD, "secretKey": PASSWORD}}
        for wire in WIRES:
            name = "http" if wire == "websocket" else wire
            client = CLIENTS[wire](daemon.address(name)[1])
            try:
                for token in (self.token, self.token[:-3] + "AAA"):
                    begun = client.begin("Leaky", "explode", "none", [leaking], token=token)
                    self.assertIsNotNone(begun.finish().problem)
            finally:
                client.close()
        headers = {"Authorization": f"Bearer {self.token}", "Cookie": f"sid={COOKIE}"}
        for each in (headers, {**headers, "Authorization": f"Basic {BASIC}"}):
            body = json.dumps(leaking).encode()
            path = "/api/Leaky/explode?" + urlencode({"password": PASSWORD})
            status, _ = request(
                daemon.address("http"),
                "POST",
                path,
                body,
                {**each, "Content-Type": "application/json"},
            )
            self.assertEqual(status, 500)
        yield self.token.rpartition(".")[2]

    def useS3(self, daemon: Daemon) -> Iterator[str]:
        """Make requests of S3 with signatures, good ones and bad ones."""
        address = daemon.address("s3")
        signer = Signer("{}:{}".format(*address), Account(ACCESS_KEY, SECRET_KEY))
        for outgoing in (
            signer.sign(Outgoing("PUT", "/logged")),
            signer.presign(Outgoing("GET", "/logged/none?password=" + PASSWORD)),
            signer.sign(Outgoing("GET", "/logged")).resigned("Signature=", "Signature=0"),
        ):
            exchange(address, outgoing)
            text = f"{outgoing.target} {outgoing.headers}"
            [found] = re.findall(r"Signature=(\w{64})", text)
            yield found
        # Where no secret belongs: in a key, and in the name of a client.
        agents = (f"wget http://h/b/k?AWSAccessKeyId=A&Expires=1&Signature={OLDER}", SECRET_KEY)
        for agent in (*agents, "x" * 245 + SECRET_KEY):
            request(address, "GET", f"/logged/{SECRET_KEY}", headers={"User-Agent": agent})
        request(address, "PUT", f"/logged/a-{SECRET_KEY}%0a?versionId=x")
        yield from (OLDER, SECRET_KEY[:9])
        for path in ("/logged", f"/logged/k?X-Amz-Security-Token={PASSWORD}"):
            request(address, "GET", path, headers={**ROOT_HEADERS, "Cookie": COOKIE})

    def grep(self, log: str, secrets: list[str]) -> None:
        """Look for each of the secrets."""
        for secret in secrets:
            lines = [line for line in log.split("\n") if secret in line]
            self.assertEqual(lines, [], secret)
        self.assertNotIn("\x1b", log)
        self.assertNotIn("\u2028", log)

    def test_json(self) -> None:
        """Every line is an object, none has a secret, and a call's line has its error's trace."""
        log, secrets = self.session("json")
        self.grep(log, secrets)
        lines = [json.loads(line) for line in log.split("\n") if line]
        calls = [line for line in lines if "protocol" in line]
        self.assertEqual({line["protocol"] for line in calls}, {*WIRES, "s3"})
        self.assertIn("CreateBucket", {line["method"] for line in calls})
        traced = {line["trace_id"] for line in calls}
        failures = [line for line in lines if "traceback" in line]
        self.assertEqual({line["message"] for line in failures}, {"Leaky.explode failed"})
        for line in failures:
            self.assertIn(line["trace_id"], traced)
            self.assertIn("RuntimeError", line["traceback"])
        self.assertIn("***", log)
        forged = [line for line in lines if line.get("message") == FORGED]
        self.assertEqual(len(forged), len(failures))

    def test_text(self) -> None:
        """Lines of text have no secret either, and no client makes a line."""
        log, secrets = self.session("text")
        self.grep(log, secrets)
        starts = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} \[[^ ]+\] |\t|\{"
        self.assertEqual(
            [line for line in log.split("\n") if line and not re.match(starts, line)], []
        )
        self.assertNotRegex(log, r"(?m)^2026-01-01")


class PlaceTests(SynchronousTestCase):
    """Where lines go."""

    timeout = 60

    def setUp(self) -> None:
        """Name a data directory."""
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()

    @long("takes a second or more")
    def test_fullPipe(self) -> None:
        """A daemon whose output is not read keeps serving, and stops in order."""
        process = subprocess.Popen(
            daemonCommand(self.directory / "data"),
            env=daemonEnvironment({"STORAGEGATE_LOG_FORMAT": "json"}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        assert process.stdout is not None
        self.addCleanup(process.stdout.close)
        log = DaemonLog()
        while not log.ready(("s3", "admin")):
            log.feed(os.read(process.stdout.fileno(), 65536))
        # Everybody who holds the pipe may fill it.
        filler = os.open(f"/proc/{process.pid}/fd/1", os.O_WRONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, filler)
        with self.assertRaises(BlockingIOError):
            while True:
                os.write(filler, b"x" * 4096)
        process.send_signal(signal.SIGHUP)
        self.assertEqual(request(log.address("s3"), "PUT", "/bucket")[0], 200)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(STOP_SECONDS), 0)

    def start(self, *arguments: str) -> int:
        """Start a daemon in the background that logs to a file; give its process id."""
        command = daemonCommand(self.directory / "data", arguments)
        place = command.index("-n")
        pid = self.directory / "pid"
        command[place : place + 2] = ["--pidfile", str(pid), "--logfile", str(self.path)]
        subprocess.run(command, env=daemonEnvironment(), cwd=self.directory, check=True, timeout=60)
        number = int(pid.read_text())
        self.addCleanup(self.kill, number)
        return number

    def kill(self, number: int) -> None:
        """End a daemon, if it is still there."""
        try:
            os.kill(number, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def lines(self) -> list[Any]:
        """Read the file."""
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def until(self, text: str, count: int = 1) -> list[Any]:
        """Read the file until a number of lines contain a text."""
        with subprocess.Popen(
            ["tail", "-n", "+1", "-F", str(self.path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as tail:
            assert tail.stdout is not None
            for line in tail.stdout:
                count -= text.encode() in line
                if not count:
                    break
            tail.kill()
        return self.lines()

    @long("takes seconds")
    def test_background(self) -> None:
        """
        In the background, lines go into the file; SIGUSR1 has it moved aside, and SIGHUP changes
        level and form.
        """
        self.path = self.directory / "daemon.log"
        config = self.directory / "config.toml"
        config.write_text('logFormat = "json"\n')
        number = self.start("--config", str(config))
        names = {line["logger"] for line in self.until("listening name=admin")}
        self.assertIn("storagegate.daemon.daemon.Daemon", names)
        os.kill(number, signal.SIGUSR1)
        os.kill(number, signal.SIGHUP)
        [line] = self.until("configuration reloaded")
        self.assertEqual(line["message"], "configuration reloaded")
        self.assertIn("listening name=s3", Path(f"{self.path}.1").read_text())
        config.write_text('logFormat = "json"\nlogLevel = "warn"\nverifyReads = true\n')
        os.kill(number, signal.SIGHUP)
        lines = self.until("needs a restart: verifyReads")
        self.assertEqual([line["level"] for line in lines].count("info"), 1)

    def test_worker(self) -> None:
        """A worker goes on in the file of its supervisor, and its lines say which one it is."""
        self.path = self.directory / "daemon.log"
        program = (
            "import sys\n"
            "from storagegate.daemon.config import load\n"
            "from storagegate.daemon.logs import Logs\n"
            "from twisted.internet import reactor\n"
            "logs = Logs()\n"
            "configuration = load({}, {'STORAGEGATE_LOG_FORMAT': 'json'})\n"
            "handed = {'log': [int(sys.argv[1]), sys.argv[2]]}\n"
            "logs.takeOver(handed, configuration, reactor, 1)\n"
            "print('from a handler')\n"
        )
        output = FileOutput(str(self.path))
        self.addCleanup(output.close)
        output.write(memoryview(b'{"worker":null}\n'))
        subprocess.run(
            [sys.executable, "-c", program, str(output.descriptor), str(self.path)],
            env=daemonEnvironment({"STORAGEGATE_ACCESS_KEY": "", "STORAGEGATE_SECRET_KEY": ""}),
            pass_fds=[output.descriptor],
            check=True,
            timeout=60,
        )
        first, second = self.lines()
        self.assertIsNone(first["worker"])
        self.assertEqual((second["worker"], second["message"]), (1, "from a handler"))

    @long("takes a second or more")
    def test_workers(self) -> None:
        """Workers log to the same file, and each line says which one it is from."""
        self.path = self.directory / "daemon.log"
        config = self.directory / "config.toml"
        config.write_text('logFormat = "json"\n[gateway.monitoring.logging]\n')
        number = self.start("--config", str(config), "--workers", "2")
        lines = self.until("workers are serving")
        self.assertEqual({line.get("worker") for line in lines}, {None})
        address = next(
            line["message"].rpartition("=")[2]
            for line in lines
            if line["message"].startswith("listening name=s3")
        )
        host, _, port = address.rpartition(":")
        for _ in range(8):
            self.assertEqual(request((host, int(port)), "HEAD", "/none")[0], 404)
        os.kill(number, signal.SIGTERM)
        # Each worker writes its last lines in its own time.
        lines = self.until('"protocol":"s3"', 8)
        self.assertEqual({line.get("worker") for line in lines}, {None, 0, 1})
        calls = [line for line in lines if line.get("protocol") == "s3"]
        self.assertEqual([line["status"] for line in calls], ["NoSuchBucket"] * 8)

    @long("takes seconds")
    def test_firstLine(self) -> None:
        """JSON output is so from its first line, which says what runs; no line has a secret."""
        config = self.directory / "config.toml"
        for number, workers in enumerate(("1", "2")):
            data = self.directory / f"first{number}"
            config.write_text(f'logFormat = "json"\nworkers = {workers}\n')
            with Daemon(
                data,
                "--config",
                str(config),
                environment={"STORAGEGATE_ACCESS_KEY": "", "STORAGEGATE_SECRET_KEY": ""},
            ) as daemon:
                self.assertEqual(daemon.stop(), 0)
            lines = [json.loads(line) for line in daemon.log.splitlines()]
            self.assertEqual(
                lines[0]["message"],
                f"storagegate {__version__} python={platform.python_version()}"
                f" platform={platform.system()}-{platform.release()}-{platform.machine()}"
                f" data directory={data}",
            )
            secret = (data / "root-credentials").read_text().rpartition("=")[2].strip()
            self.assertGreater(len(secret), 20)
            self.assertNotIn(secret, daemon.log)
            self.assertTrue([each for each in lines if "generated the root" in each["message"]])

    def test_audit(self) -> None:
        """The line of an S3 request says who did what to which object, and how it ended."""
        self.path = self.directory / "daemon.log"
        config = self.directory / "config.toml"
        config.write_text('logFormat = "json"\n[gateway.monitoring.logging]\n')
        number = self.start("--config", str(config))
        lines = self.until("listening name=s3")
        address = next(
            line["message"].rpartition("=")[2]
            for line in lines
            if line.get("message", "").startswith("listening name=s3")
        )
        host, _, port = address.rpartition(":")
        agent = {"User-Agent": "audited/1"}
        keyed = {**ROOT_HEADERS, **agent}
        form = (
            b'--x\r\nContent-Disposition: form-data; name="key"\r\n\r\nform/a\r\n'
            b'--x\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nhi\r\n'
            b"--x--\r\n"
        )
        requestIds = []
        for method, path, headers in (
            ("PUT", "/audited", keyed),
            ("PUT", "/audited/a%20b", keyed),
            ("GET", "/audited/a%20b", agent),
            ("DELETE", "/audited/none", {**keyed, "x-storage-secret-key": "wrong-secret"}),
            ("POST", "/audited", {**keyed, "Content-Type": "multipart/form-data; boundary=x"}),
        ):
            connection = http.client.HTTPConnection(host, int(port), timeout=60)
            connection.request(method, path, form if method == "POST" else None, headers)
            response = connection.getresponse()
            response.read()
            connection.close()
            requestIds.append(response.headers["x-amz-request-id"])
        os.kill(number, signal.SIGTERM)
        calls = [line for line in self.until("stopped") if line.get("protocol") == "s3"]
        # A line comes when its connection is done with the request; the ids count the requests.
        calls.sort(key=lambda line: line["request_id"])
        self.assertEqual([line["request_id"] for line in calls], requestIds)
        self.assertEqual(
            {(line["client_id"], line["user_agent"]) for line in calls},
            {("127.0.0.1", "audited/1")},
        )
        self.assertEqual(
            [
                [
                    line[name]
                    for name in (
                        "method",
                        "bucket",
                        "key",
                        "status_code",
                        "error_code",
                        "access_key",
                    )
                ]
                for line in calls
            ],
            [
                ["CreateBucket", "audited", "", 200, "", ACCESS_KEY],
                ["PutObject", "audited", "a b", 200, "", ACCESS_KEY],
                ["GetObject", "audited", "a b", 403, "AccessDenied", ""],
                ["DeleteObject", "audited", "none", 401, "SignatureDoesNotMatch", ""],
                ["PostObject", "audited", "form/a", 204, "", ACCESS_KEY],
            ],
        )
