"""The programs and sessions of the page on gRPC, run as a reader would."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.core.errors import GRPC_NAMES
from storagegate.rpc.protos import loadProto, protoPath
from tests.support.daemon import START_SECONDS, STOP_SECONDS, Daemon, daemonEnvironment
from tests.support.documents import DOCS, codeBlocks, commands, literal, table
from tests.support.h2client import H2Client
from tests.support.ports import heldPort
from tests.support.prompts import runAwaitingBlocks
from tests.support.selection import long
from tests.wire.rpc.support import RPCCase

PAGE = DOCS / "grpc.rst"

PORTS = re.compile(r"\b5005[12]\b")
"""Where the daemon serves, and the page's own programs."""

SHORT, LONG = "deadlineMs=5000", "deadlineMs=50000"


def namedBlocks() -> dict[str, str]:
    """Give the page's files by the names in their first lines."""
    files = {}
    for block in codeBlocks(PAGE, "python", "proto"):
        named = re.match(r"(?:#|//) (\w+\.\w+)\n", block.code)
        if named is not None:
            files[named[1]] = block.code
    return files


def saidBy(program: str) -> str:
    """Give what the page says that a program prints: the block of text after it."""
    blocks = codeBlocks(PAGE, "python", "text")
    at = [block.code.startswith(f"# {program}\n") for block in blocks].index(True)
    said = blocks[at + 1]
    assert said.language == "text", program
    return said.code.strip() + "\n"


def refusals(client: H2Client) -> dict[str, list[int | None]]:
    """Do what is refused; give the statuses by what it is."""

    def packed(coding: str) -> int | None:
        stream = client.begin("/Probe/echo", [("grpc-encoding", coding)])
        client.sendMessage(stream, b"packed", isCompressed=True, isLast=True)
        return client.finish(stream).status

    def status(name: str, *messages: bytes, metadata: Any = ()) -> int | None:
        return client.call(name, *messages, metadata=metadata).status

    long = b"\x0a\x90\x4e" + 10_000 * b"x"
    found = {
        "an unknown service or method": [status("/Probe/no", b""), status("/No/no", b"")],
        "a method of a definition that has no handler": [status("/user.UserService/GetUser", b"")],
        "bytes that are no message": [status("/Probe/echo", b"\xff")],
        "no message where there has to be one": [status("/Probe/echo")],
        "several messages where there has to be one": [
            status("/Probe/wait", b"", b""),
            status("/Probe/many", b"", b""),
        ],
        "a message, or a response, over its limit": [
            status("/Probe/echo", long),
            status("/Probe/big", b""),
        ],
        "metadata over its limit": [status("/Probe/echo", b"", metadata=[("x-a", 20_000 * "a")])],
        "a message with an unknown compression": [packed("stones")],
        "a response that does not fit its message": [status("/Probe/wrong", b"")],
    }
    # From here on there is no room.
    client.sendMessage(client.begin("/Probe/wait"), b"", isLast=True)
    found["more calls than ``maxConcurrentRpcs``"] = [status("/Probe/echo", b"")]
    return found


class RefusalTests(RPCCase):
    """What the server says by itself."""

    async def test_refusals(self) -> None:
        """Whatever the table has is refused with the status that it has there."""
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}

        async def many(request: Any) -> Any:
            yield {}

        handlers: dict[str, Any] = {
            "many": many,
            "echo": lambda request: request,
            "big": lambda request: {"text": 10_000 * "x"},
            "wrong": lambda request: {"text": 5},
            "wait": lambda request: Deferred(),
        }
        limits = {"maxReceiveMessageLength": 9000, "maxSendMessageLength": 9000}
        app = server.grpc().withOptions(grpc={**limits, "maxConcurrentRpcs": 1})
        app.addService(
            name="Probe",
            methods={
                name: {"handler": handler, "input": schema, "output": schema}
                for name, handler in handlers.items()
            },
        )
        app.addService(definition=loadProto(protoPath() / "user.proto").UserService)
        port = await self.listen(app)

        def use() -> dict[str, list[int | None]]:
            with H2Client(port) as client:
                return refusals(client)

        found = await deferToThread(use)
        named = {what: {GRPC_NAMES[each or 0] for each in got} for what, got in found.items()}
        expected = {what: {literal(status)} for what, status in table(PAGE, "Refusals")}
        self.assertEqual(named, expected)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)


class SessionTests(RPCCase):
    """What is typed in at a prompt."""

    @long("takes seconds")
    async def test_blocks(self) -> None:
        """Every program of the page runs, and the sessions print what it says."""
        here = Path.cwd()
        directory = Path(self.mktemp())
        directory.mkdir()
        # The page's files are beside its programs.
        os.chdir(directory)
        self.addCleanup(os.chdir, here)
        for name, content in namedBlocks().items():
            Path(name).write_text(content)
        for module in ("greeter", "notes"):
            self.addCleanup(sys.modules.pop, module, None)
        sys.path.insert(0, os.getcwd())
        self.addCleanup(sys.path.remove, os.getcwd())
        names = await runAwaitingBlocks(PAGE)
        self.assertEqual(names["app"].activeCalls, 0)
        # What is to be seen in the log only.
        self.flushLoggedErrors()


class ProgramTests(SynchronousTestCase):
    """What is written into files, each run as a process."""

    def setUp(self) -> None:
        """Write the files, with a port of its own, and deadlines of a busy machine."""
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        port = str(heldPort(self))
        self.address = f"127.0.0.1:{port}"
        for name, content in namedBlocks().items():
            program = PORTS.sub(port, content).replace(SHORT, LONG)
            (self.directory / name).write_text(program)

    def python(self, *arguments: str) -> str:
        """Run Python; give what it prints, and fail the test if it fails."""
        ran = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.directory,
            env=daemonEnvironment(),
            capture_output=True,
            timeout=START_SECONDS,
            check=False,
            text=True,
        )
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout + ran.stderr

    def test_memory(self) -> None:
        """The test without a socket passes."""
        self.python("-m", "twisted.trial", "test_calls")

    @long("takes a second or more")
    def test_greeter(self) -> None:
        """The first server answers the first client, and SIGTERM ends it in order."""
        server = subprocess.Popen(
            [sys.executable, "greeter.py"], cwd=self.directory, env=daemonEnvironment()
        )
        self.addCleanup(server.wait, STOP_SECONDS)
        self.addCleanup(server.kill)
        with grpc.insecure_channel(self.address) as channel:
            grpc.channel_ready_future(channel).result(START_SECONDS)
        self.assertEqual(self.python("callgreeter.py"), saidBy("callgreeter.py"))
        server.terminate()
        self.assertEqual(server.wait(STOP_SECONDS), 0)

    @long("takes a second or more")
    def test_notes(self) -> None:
        """The typed client calls the service of types, and its file is as the page shows."""
        run = f"from typednotes import app; app.run({self.address.rpartition(':')[2]}, quiet=True)"
        server = subprocess.Popen(
            [sys.executable, "-c", run], cwd=self.directory, env=daemonEnvironment()
        )
        self.addCleanup(server.wait, STOP_SECONDS)
        self.addCleanup(server.kill)
        with grpc.insecure_channel(self.address) as channel:
            grpc.channel_ready_future(channel).result(START_SECONDS)
        self.assertEqual(self.python("callnotes.py"), saidBy("callnotes.py"))
        [printing, shown] = commands(codeBlocks(PAGE, "console")[0].code)
        self.assertTrue(printing.text.startswith("storagegate "))
        self.python("-m", *printing.text.split())
        found = subprocess.run(
            ["bash", "-c", shown.text],
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertEqual(found.stdout.strip(), shown.output.strip())

    def test_testing(self) -> None:
        """The test of it passes with the command that the page has."""
        self.assertIn("``python -m twisted.trial test_greeter``", PAGE.read_text())
        said = self.python("-m", "twisted.trial", "test_greeter")
        self.assertRegex(said, r"PASSED \(successes=1\)")

    @long("takes seconds")
    def test_users(self) -> None:
        """The client of the daemon's users prints what the page says."""
        daemon = Daemon(self.directory / "data", "--grpc", self.address, expect=("grpc",))
        self.addCleanup(daemon.kill)
        daemon.start()
        self.assertEqual(self.python("callusers.py"), saidBy("callusers.py"))
        self.assertEqual(
            self.python("callusers.py").splitlines()[0],
            "ALREADY_EXISTS: A user with the same email exists",
        )
