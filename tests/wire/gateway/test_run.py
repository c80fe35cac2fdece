"""Gateways and gRPC servers as scripts: C{run}."""

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request

from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import daemonEnvironment
from tests.support.selection import long

GATEWAY = """
from storagegate import createProtocolGateway
gateway = createProtocolGateway(
    port=0, grpc={{"port": 0}}, tcp={{"port": 0}}, udp={{"port": 0}}
)
gateway.addService("Echo", {{"methods": {{"echo": lambda data, context: data}}}})
gateway.configureMonitoring(logging={{}})
{before}
{run}
"""

FAILING = """
import weakref
from twisted.internet import reactor
from storagegate import createProtocolGateway, server
held = []
class Held: ...
def fail(*arguments):
    value = Held()
    held.append(weakref.ref(value))
    if len(held) == 10:
        reactor.callLater(0, tell)
    raise RuntimeError("broken")
def tell():
    print(len([each for each in held if each() is not None]), flush=True)
app = server.http()
app.get("/", fail)
rpc = server.grpc().withOptions(grpc={{"reflection": True}}).addService("Broken", {{"fail": fail}})
def callItself(port):
    from storagegate.rpc.client import createGrpcClient
    client = createGrpcClient(f"127.0.0.1:{{port.getHost().port}}", "insecure", "Broken")
    for number in range(10):
        client.fail({{}}).deferred().addErrback(lambda failure: None)
gateway = createProtocolGateway(protocols=["http", "grpc"], port=0, grpc={{"port": 0}})
gateway.addService("Broken", {{"methods": {{"fail": fail}}}})
{run}
"""

SECONDS = 100.0


class RunTests(SynchronousTestCase):
    """A script whose standard error is read."""

    def start(self, script: str) -> "subprocess.Popen[str]":
        """Start a script."""
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=daemonEnvironment(),
            text=True,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def lines(self, process: "subprocess.Popen[str]", count: int) -> list[str]:
        """Read lines of standard error."""
        assert process.stderr is not None
        return [process.stderr.readline() for _ in range(count)]

    def call(self, port: str) -> None:
        """Call the echo over HTTP."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/api/Echo/echo",
            data=b'{"a": 1}',
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            self.assertEqual(response.status, 200)

    def fails(self, url: str) -> None:
        """See ten requests fail."""
        for _ in range(10):
            data = b"{}" if "api" in url else None
            request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
            with self.assertRaises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=SECONDS)
            caught.exception.close()

    def end(self, process: "subprocess.Popen[str]") -> tuple[str, str]:
        """Stop a script in order and give the rest of its output."""
        process.terminate()
        rest = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, 0, rest)
        return rest

    def test_listeners(self) -> None:
        """A gateway says where each of its transports listens, and logs calls to standard error."""
        process = self.start(GATEWAY.format(before="", run="gateway.run()"))
        found = [
            re.fullmatch(r"listening name=(\w+) address=127\.0\.0\.1:(\d+)\n", line)
            for line in self.lines(process, 5)
        ]
        ports = {match[1]: match[2] for match in found if match is not None}
        self.assertEqual({*ports}, {"http", "websocket", "grpc", "tcp", "udp"})
        self.call(ports["http"])
        [line] = self.lines(process, 1)
        values = json.loads(line)
        self.assertEqual((values["method"], values["status"]), ("echo", "ok"))
        self.assertEqual(self.end(process), ("", ""))

    def test_quiet(self) -> None:
        """With C{quiet} nothing is said, and a log that the script has begun gets the calls."""
        before = (
            "import sys\n"
            "from twisted.logger import globalLogBeginner, textFileLogObserver\n"
            "globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stdout)],"
            " redirectStandardIO=False)\n"
            "from twisted.internet import reactor\n"
            "reactor.callWhenRunning(lambda: print(gateway.ports['http'].getHost().port))\n"
            "sys.stdout.reconfigure(line_buffering=True)"
        )
        process = self.start(GATEWAY.format(before=before, run="gateway.run(quiet=True)"))
        assert process.stdout is not None
        port = next(line.strip() for line in process.stdout if line.strip().isdigit())
        self.call(port)
        output, errors = self.end(process)
        self.assertEqual(errors, "")
        self.assertIn('"method":"echo"', output)

    def test_grpc(self) -> None:
        """A gRPC server says where it listens, unless it is quiet."""
        for arguments, count in (("0", 1), ("0, quiet=True", 0)):
            process = self.start(
                "from storagegate import server\n"
                "app = server.grpc()\n"
                "from twisted.internet import reactor\n"
                "reactor.callWhenRunning(lambda: print('ready', flush=True))\n"
                f"app.run({arguments})"
            )
            assert process.stdout is not None
            self.assertEqual(process.stdout.readline(), "ready\n")
            for line in self.lines(process, count):
                self.assertRegex(line, r"\Alistening name=grpc address=127\.0\.0\.1:\d+\n\Z")
            self.assertEqual(self.end(process)[1], "")

    @long("takes seconds")
    def test_failures(self) -> None:
        """Failures are logged to standard error, and nothing keeps the frames of the calls."""
        for run, path in (
            ("app.run(0)", "/"),
            ("gateway.run()", "/api/Broken/fail"),
            ("rpc.run(0, started=callItself)", None),
        ):
            process = self.start(FAILING.format(run=run))
            [line] = self.lines(process, 1)
            if path is not None:
                self.fails(f"http://127.0.0.1:{line.rsplit(':', 1)[1].strip()}{path}")
            assert process.stdout is not None
            self.assertEqual(process.stdout.readline(), "0\n", run)
            errors = self.end(process)[1]
            self.assertEqual(errors.count("RuntimeError: broken"), 10, errors)
