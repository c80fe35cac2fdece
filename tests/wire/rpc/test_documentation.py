"""The programs and sessions of the page on gRPC, run as a reader would."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import grpc
from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import START_SECONDS, STOP_SECONDS, Daemon, daemonEnvironment
from tests.support.documents import DOCS, codeBlocks
from tests.support.sessions import runAwaitingBlocks
from tests.wire.rpc.support import RPCCase

PAGE = DOCS / "grpc.rst"

PORT = "50051"
"""Where the page's programs serve."""


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


class SessionTests(RPCCase):
    """What is typed in at a prompt."""

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
        self.addCleanup(sys.modules.pop, "greeter", None)
        sys.path.insert(0, os.getcwd())
        self.addCleanup(sys.path.remove, os.getcwd())
        names = await runAwaitingBlocks(PAGE)
        self.assertEqual(names["app"].activeCalls, 0)
        # What is to be seen in the log only.
        self.flushLoggedErrors()


class ProgramTests(SynchronousTestCase):
    """What is written into files, each run as a process."""

    def setUp(self) -> None:
        """Write the files, with a port that nobody has."""
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        for name, content in namedBlocks().items():
            port = self.address.partition(":")[2]
            (self.directory / name).write_text(content.replace(PORT, port))

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

    def test_testing(self) -> None:
        """The test of it passes with the command that the page has."""
        self.assertIn("``python -m twisted.trial test_greeter``", PAGE.read_text())
        said = self.python("-m", "twisted.trial", "test_greeter")
        self.assertRegex(said, r"PASSED \(successes=1\)")

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
