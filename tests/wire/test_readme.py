"""The README's examples, run as a reader would: in a shell, copied and pasted."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from unittest import skipUnless

from twisted.trial.unittest import SynchronousTestCase

from tests.support.clients import TOOL_SECONDS
from tests.support.daemon import CHECKOUT, Daemon, daemonEnvironment
from tests.support.documents import codeBlocks

README = (CHECKOUT / "README.rst").read_text()

# Where the README's daemon listens.
ENDPOINT = "127.0.0.1:9000"
ADMIN = "127.0.0.1:9001"

SCRIPTS = Path(sys.executable).parent


def blocks() -> list[str]:
    """Give the README's shell blocks."""
    found = re.findall(r"^\.\. code-block:: sh\n\n((?:    .*\n|\n)+)", README, re.MULTILINE)
    return [textwrap.dedent(block) for block in found]


class BlockTests(SynchronousTestCase):
    """What is run."""

    def test_blocks(self) -> None:
        """There are four blocks of examples: aws-cli, curl, keys and operation."""
        starts = ["aws s3", "curl", "storagegate keys", "storagegate backup"]
        self.assertEqual(len(blocks()), 4)
        for block, start in zip(blocks(), starts, strict=True):
            self.assertRegex(block, rf"(?m)^{start}")


class ReadmeCase(SynchronousTestCase):
    """One daemon, and a shell beside it in the same directory."""

    def setUp(self) -> None:
        """Start the daemon as the README says, but for the port."""
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        self.daemon = Daemon(
            self.directory / "storagegate-data",
            *self.flags(),
            directory=self.directory,
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
        environment = daemonEnvironment()
        # Nothing of the machine's own configuration of S3 clients may help or hinder.
        environment = {n: v for n, v in environment.items() if not n.startswith("AWS_")}
        environment["HOME"] = str(self.directory)
        environment["PATH"] = os.pathsep.join([str(self.scripts()), environment["PATH"]])
        result = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", block],
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TOOL_SECONDS,
            check=False,
        )
        self.assertEqual(result.returncode, 0, result.stdout)
        return result.stdout

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
    """Its first pages."""

    @skipUnless((SCRIPTS / "aws").exists(), "aws-cli is not installed")
    def test_aws(self) -> None:
        """aws-cli makes the first bucket and finds its object there."""
        printed = self.shell(blocks()[0])
        self.assertIn("make_bucket: first", printed)
        self.assertRegex(printed, r"(?m) 6 hello\.txt\nhello$")

    @skipUnless(shutil.which("curl"), "curl is not installed")
    def test_curl(self) -> None:
        """curl makes a bucket with the key pair in headers, and signs a read."""
        self.assertTrue(self.shell(blocks()[1]).endswith("hello"))

    def test_keys(self) -> None:
        """Keys are made while the daemon runs, and listed without their secrets."""
        printed = self.shell(blocks()[2])
        secrets = re.findall(r"AWS_SECRET_ACCESS_KEY=(\S+)", printed)
        self.assertEqual(len(secrets), 2)
        for secret in secrets:
            self.assertEqual(printed.count(secret), 1)
        self.assertRegex(printed, r"root +readonly +fir\*")


class OperationTests(ReadmeCase):
    """The daemon of the section on operation, with the file that it shows."""

    def flags(self) -> tuple[str, ...]:
        """Write the file."""
        [block] = codeBlocks(CHECKOUT / "README.rst", "toml")
        (self.directory / "storagegate.toml").write_text(block.code)
        return ("--config", "storagegate.toml")

    @skipUnless(shutil.which("curl"), "curl is not installed")
    def test_operation(self) -> None:
        """Two workers are ready, tell their metrics, and are copied while they serve."""
        commands, doctor, _ = blocks()[3].partition("storagegate doctor")
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
