"""Handlers that await asyncio's libraries, and programs of asyncio's that use clients of ours."""

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from itertools import product
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from websockets.sync.client import connect

from tests.support.asyncioprogram import ALL
from tests.support.daemon import Daemon, DaemonLog, daemonEnvironment
from tests.support.documents import DOCS, codeBlocks
from tests.support.gatewayclients import CLIENTS
from tests.support.gatewaygrpcclient import GRPCClient
from tests.support.ports import heldPort
from tests.support.postgresql import binaries
from tests.support.selection import long

_SECONDS = 100.0


class ProgramCase(SynchronousTestCase):
    """A server in a process."""

    log: DaemonLog
    process: "subprocess.Popen[bytes]"

    def start(self, kind: str, reactor: str = "asyncio") -> None:
        """Start L{tests.support.asyncioprogram}, and wait until it listens."""
        self.log = DaemonLog()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.asyncioprogram", kind, *reactor.split()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=daemonEnvironment(),
        )
        self.addCleanup(self.process.communicate)
        self.addCleanup(self.process.kill)
        assert self.process.stderr is not None
        expected = {"gateway": 5, "grpc": 1, "http": 1}[kind]
        while len(self.log.addresses) < expected:
            line = self.process.stderr.readline()
            assert line, self.log.text
            self.log.feed(line)

    def line(self) -> str:
        """Read a line of its standard output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().rstrip("\n")

    def end(self) -> tuple[int, str, str]:
        """Stop it in order; return its status and the rest of its output."""
        self.process.terminate()
        output, errors = self.process.communicate(timeout=_SECONDS)
        return self.process.returncode, output.decode(), errors.decode()


class FrameworkTests(ProgramCase):
    """Handlers of the framework."""

    def get(self, path: str) -> str:
        """Request a page."""
        host, port = self.log.address("http")
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=_SECONDS) as response:
            body: bytes = response.read()
            return body.decode()

    def abandon(self, path: str) -> None:
        """Request a page, and leave when its handler has begun."""
        with socket.create_connection(self.log.address("http"), _SECONDS) as client:
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            self.assertEqual(self.line(), "begun")

    def test_awaits(self) -> None:
        """Timeouts, groups, threads, Deferreds in tasks: all of it, in the handler's context."""
        self.start("http")
        self.assertEqual(self.get("/wait"), f"{ALL} 7")
        self.assertEqual(self.get("/stream"), "012")
        self.assertEqual(self.get("/httpx"), "plain")
        self.assertEqual(self.get(f"/aiofiles?path={__file__}"), Path(__file__).read_text())
        host, port = self.log.address("http")
        with connect(f"ws://{host}:{port}/socket", open_timeout=_SECONDS) as client:
            client.send("hello")
            self.assertEqual(client.recv(_SECONDS), "hello")
        # Of the middleware and the handler that counts: none is left behind by the others.
        self.assertEqual(self.get("/tasks"), '{"text":"1"}')
        self.assertEqual(self.end(), (0, "", ""))

    @long("takes a second or more")
    def test_asyncpg(self) -> None:
        """A pool of connections to PostgreSQL, whose queries are cancelled by a timeout."""
        path = self.postgres()
        self.start("http")
        self.assertEqual(self.get(f"/asyncpg?path={path}"), '{"found":42,"again":1}')
        self.assertEqual(self.end(), (0, "", ""))

    def postgres(self) -> str:
        """Start PostgreSQL; return the directory of its socket."""
        programs = binaries()
        directory = tempfile.mkdtemp(prefix="sgpg")
        self.addCleanup(shutil.rmtree, directory, True)
        # It refuses to run as root.
        user: dict[str, Any] = {}
        if os.getuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(directory, owner.pw_uid, owner.pw_gid)
            user = {"user": "postgres"}
        data = f"{directory}/data"
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **user}
        subprocess.run(
            [f"{programs}/initdb", "-D", data, "-U", "test", "-A", "trust", "--no-sync"],
            check=True,
            **quiet,
        )
        server = subprocess.Popen(
            [f"{programs}/postgres", "-D", data, "-k", directory, "-h", "", "-F"], **quiet
        )
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        ready = [f"{programs}/pg_isready", "-q", "-h", directory, "-t", "1"]
        while subprocess.run(ready).returncode:
            self.assertIsNone(server.poll())
        return directory

    def test_cancelled(self) -> None:
        """A client that leaves cancels its handler as asyncio does; C{finally} may wait."""
        self.start("http")
        for path in ("/hang/0", "/hang/1"):
            self.abandon(path)
            self.assertEqual(self.line(), "cancelled asyncio.exceptions")
            self.assertEqual(self.line(), "finally")
        self.assertEqual(self.get("/tasks"), '{"text":"1"}')
        self.assertEqual(self.end(), (0, "", ""))

    def test_failed(self) -> None:
        """An error of a task is a 500, and the log shows where it was raised."""
        self.start("http")
        with self.assertRaises(urllib.error.HTTPError) as caught:
            self.get("/fail")
        self.assertEqual(caught.exception.code, 500)
        caught.exception.close()
        _, _, errors = self.end()
        self.assertIn("in _fail", errors)
        self.assertIn("KeyError: 'from a task'", errors)

    def test_background(self) -> None:
        """A task that is left running is cancelled at the end, and waited for."""
        self.start("http")
        self.assertEqual(self.get("/background"), "begun")
        self.assertEqual(self.line(), "begun")
        status, output, errors = self.end()
        self.assertEqual((status, errors), (0, ""))
        self.assertEqual(output, "cancelled asyncio.exceptions\nfinally\n")

    def test_remedy(self) -> None:
        """Under another reactor the log says what to do."""
        self.start("http", "")
        for path in ("/wait", "/httpx", f"/aiofiles?path={__file__}"):
            with self.assertRaises(urllib.error.HTTPError) as caught:
                self.get(path)
            self.assertEqual(caught.exception.code, 500)
            caught.exception.close()
        _, _, errors = self.end()
        self.assertEqual(errors.count('app.run(reactor="asyncio")'), 3, errors)

    def test_tooLate(self) -> None:
        """A process that has another reactor already is refused in one line."""
        script = (
            "from twisted.internet import reactor; from storagegate import server;"
            " server.http().run(0, reactor='asyncio')"
        )
        ran = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            env=daemonEnvironment(),
            timeout=_SECONDS,
            text=True,
        )
        self.assertEqual((ran.returncode, ran.stderr.count("\n")), (1, 1))
        self.assertIn("EPollReactor is installed", ran.stderr)


class PageTests(SynchronousTestCase):
    """The programs of C{docs/asyncio.rst}, as they stand."""

    @long("takes a second or more")
    def test_programs(self) -> None:
        """They print what the page says."""
        programs = [block.code for block in codeBlocks(DOCS / "asyncio.rst", "python")]
        outputs = [block.code for block in codeBlocks(DOCS / "asyncio.rst", "console")]
        port = heldPort(self)
        server = subprocess.Popen(
            [sys.executable, "-c", f"{programs[1]}\n{programs[0]}".replace("3000", str(port))],
            stderr=subprocess.PIPE,
            env=daemonEnvironment(),
        )
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        assert server.stderr is not None
        self.assertIn(b"listening", server.stderr.readline())
        url = f"http://127.0.0.1:{port}"
        for path in ("/slow", f"/forward?url={url}/slow"):
            with urllib.request.urlopen(f"{url}{path}", timeout=_SECONDS) as response:
                self.assertEqual(response.read().decode(), outputs[0].splitlines()[1])
        ran = subprocess.run(
            [sys.executable, "-c", programs[2]],
            capture_output=True,
            env=daemonEnvironment(),
            timeout=_SECONDS,
            text=True,
        )
        self.assertEqual((ran.stdout, ran.stderr), (outputs[1].strip("\n") + "\n", ""))


class ServiceTests(ProgramCase):
    """Methods of a gateway and of a gRPC application."""

    def check(self, client: Any) -> None:
        """Make calls of each kind."""

        def call(name: str, kind: str, requests: list[Any], **options: Any) -> Any:
            return client.begin("Probe", name, kind, requests, **options).finish()

        before = call("tasks", "none", [{"n": 1}])
        self.assertEqual(call("wait", "none", [{"n": 5}]).values, [{"text": ALL}])
        texts = [{"text": str(n)} for n in range(5)]
        self.assertEqual(call("count", "server", [{"n": 5}]).values, texts)
        requests = [{"n": n} for n in range(5)]
        self.assertEqual(call("echo", "bidirectional", requests).values, texts)
        self.assertIn(call("fail", "none", [{"n": 1}]).problem.code, ("INTERNAL", "INTERNAL_ERROR"))
        for n in (0, 1):
            answer = call("hang", "none", [{"n": n}], deadlineMs=1000)
            self.assertEqual(answer.problem.code, "DEADLINE_EXCEEDED")
            lines = [self.line() for _ in range(3)]
            self.assertEqual(lines, ["begun", "cancelled asyncio.exceptions", "finally"])
            begun = client.begin("Probe", "hang", "none", [{"n": n}])
            self.assertEqual(self.line(), "begun")
            begun.cancel()
            lines = [self.line() for _ in range(2)]
            self.assertEqual(lines, ["cancelled asyncio.exceptions", "finally"])
        self.assertEqual(call("tasks", "none", [{"n": 1}]), before)

    def checkEndless(self, client: Any) -> None:
        """End streams by their deadline and by the client."""
        for n, deadlineMs in product((0, 1), (500, None)):
            begun = client.begin("Probe", "tick", "server", [{"n": n}], deadlineMs=deadlineMs)
            self.assertEqual(self.line(), "begun")
            if deadlineMs is None:
                begun.cancel()
            else:
                self.assertEqual(begun.finish().problem.code, "DEADLINE_EXCEEDED")
            self.assertEqual(self.line(), "finally")

    @long("takes seconds")
    def test_gateway(self) -> None:
        """All of it over each transport."""
        self.start("gateway")
        for name, make in CLIENTS.items():
            client = make(self.log.address(name)[1])
            self.addCleanup(client.close)
            self.check(client)
            if name != "udp":
                # An address that is not known gets few datagrams for its one.
                self.checkEndless(client)
        status, _, errors = self.end()
        self.assertEqual(status, 0)
        self.assertEqual(errors.count("Traceback"), len(CLIENTS), errors)

    def test_remedy(self) -> None:
        """Under another reactor the log says what to do."""
        self.start("gateway", "")
        client = CLIENTS["http"](self.log.address("http")[1])
        problem = client.begin("Probe", "tasks", "none", [{"n": 5}]).finish().problem
        self.assertEqual((problem.code, problem.message), ("INTERNAL_ERROR", "Internal error"))
        self.assertEqual(self.end()[2].count('app.run(reactor="asyncio")'), 1)

    @long("takes a second or more")
    def test_grpc(self) -> None:
        """A gRPC application with middleware."""
        self.start("grpc")
        client = GRPCClient(self.log.address("grpc")[1])
        self.addCleanup(client.close)
        self.check(client)
        self.checkEndless(client)
        status, _, errors = self.end()
        self.assertEqual((status, errors.count("Traceback")), (0, 1), errors)


class ClientTests(SynchronousTestCase):
    """The client of a gateway in an asyncio program."""

    @long("starts a process")
    def test_calls(self) -> None:
        """Tasks of asyncio await calls and streams; nothing is left unhandled."""
        ran = subprocess.run(
            [sys.executable, "-m", "tests.support.asyncioclient"],
            env=daemonEnvironment(),
            capture_output=True,
            timeout=60,
            check=False,
            text=True,
        )
        lines = [
            f"{scheme} [0, 2, 4] [0, 1, 2] DEADLINE_EXCEEDED"
            for scheme in ("http", "ws", "tcp", "udp")
        ]
        self.assertEqual((ran.stdout.splitlines(), ran.stderr), (lines, ""))


class DaemonTests(SynchronousTestCase):
    """The key C{reactor}."""

    @long("takes seconds")
    def test_daemon(self) -> None:
        """Services of one process and of several may await asyncio's libraries."""
        for workers in ("1", "2"):
            arguments = (
                "--reactor",
                "asyncio",
                "--workers",
                workers,
                "--http",
                "tcp:0:interface=127.0.0.1",
                "--service",
                "tests.support.asyncioprogram:SERVICE",
            )
            with Daemon(self.mktemp(), *arguments, expect=("http",)) as daemon:
                client = CLIENTS["http"](daemon.address("http")[1])
                for n in range(4):
                    answer = client.begin("Probe", "wait", "none", [{"n": n}]).finish()
                    self.assertEqual(answer.values, [{"text": ALL}])


_CLIENT = """
import asyncio
from storagegate import createGrpcClient, server
from storagegate.http import Request

async def double(request):
    await asyncio.sleep(0.001)
    return {"n": request["n"] * 2}

async def countdown(request):
    for n in range(request["n"], 0, -1):
        await asyncio.sleep(0.001)
        yield {"n": n}

async def total(requests):
    n = 0
    async for request in requests:
        n += request["n"]
    return {"n": n}

async def numbers():
    for n in range(4):
        await asyncio.sleep(0.001)
        yield {"n": n}

async def read(call):
    return [item["n"] async for item in call]

async def main():
    rpc = server.grpc().withOptions(grpc={"reflection": True})
    rpc.addService("Numbers", {
        "double": double,
        "countdown": countdown,
        "total": {"handler": total, "streaming": "client"},
    })
    port = await rpc.listen(0)
    client = createGrpcClient(f"127.0.0.1:{port.getHost().port}", "insecure")
    assert await client.ready() is client
    call = client.double(n=21)
    assert await call == {"n": 42}
    await call.trailers()
    assert await asyncio.gather(client.double(n=1), client.double(n=2)) == [{"n": 2}, {"n": 4}]
    assert [item["n"] async for item in client.countdown(n=3)] == [3, 2, 1]
    assert await asyncio.create_task(read(client.countdown(n=2))) == [2, 1]
    assert await client.total(numbers()) == {"n": 6}
    try:
        async with asyncio.timeout(0.05):
            await asyncio.shield(asyncio.sleep(0))
            async for item in client.countdown(n=1_000_000):
                pass
    except TimeoutError:
        print("timeout")

    app = server.http()

    @app.post("/sum")
    async def add(req, res):
        await asyncio.sleep(0.001)
        return {"sum": sum([int(each) async for each in req])}

    fetch = app.createFetchHandler()
    response = await fetch(Request("http://localhost/sum", method="POST", body="12"))
    assert await response.json() == {"sum": 12}
    web = await app.listen(0)
    import httpx
    async with httpx.AsyncClient() as client2:
        found = await client2.post(f"http://127.0.0.1:{web.getHost().port}/sum", content="5")
    assert found.json() == {"sum": 5}
    await app.close()
    await client.close()
    await rpc.stop(0)
    print("end", flush=True)

"""


class ProgramTests(SynchronousTestCase):
    """C{asyncio.run}."""

    def runProgram(self, text: str) -> "subprocess.CompletedProcess[str]":
        """Run a program to its end."""
        return subprocess.run(
            [sys.executable, "-W", "always::ResourceWarning", "-c", text],
            capture_output=True,
            env=daemonEnvironment(),
            timeout=_SECONDS,
            text=True,
        )

    def test_run(self) -> None:
        """Clients and servers of ours are awaited as others are; the process ends by itself."""
        ran = self.runProgram(_CLIENT + "asyncio.run(main())")
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, "timeout\nend\n", ""))

    def test_again(self) -> None:
        """So they are in the next loop of the process, and by the tasks of any Runner."""
        text = "asyncio.run(main())\nwith asyncio.Runner() as runner:\n    runner.run(main())"
        ran = self.runProgram(_CLIENT + text)
        self.assertEqual((ran.returncode, ran.stdout), (0, "timeout\nend\n" * 2), ran.stderr)

    def test_otherReactor(self) -> None:
        """A reactor that is not on the running loop is refused, with the reason."""
        ran = self.runProgram(
            "from twisted.internet import reactor\n" + _CLIENT + "asyncio.run(main())"
        )
        self.assertEqual(ran.returncode, 1)
        self.assertIn("RuntimeError: EPollReactor is the process's reactor", ran.stderr)
