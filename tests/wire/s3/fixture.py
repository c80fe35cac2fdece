"""
The base of all cases here: a running daemon, shared by all that ask nothing special of it.

What no test may do is judged after each: a traceback or a secret in the daemon's log.
"""

import atexit
import itertools
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from tempfile import mkdtemp
from threading import Event
from time import monotonic
from typing import Any

from botocore.exceptions import ClientError
from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli.main import main
from tests.support.balancednodes import BalancedNodes, balancedNodes
from tests.support.clients import (
    ROOT,
    Account,
    ToolFailed,
    botoClient,
    runTool,
    writeS3cmdConfig,
)
from tests.support.daemon import Daemon, daemonEnvironment
from tests.support.programs import needProgram
from tests.support.s3signer import ANSWER_SECONDS, Answer, Outgoing, Signer, exchange

ENVIRONMENT = {
    "STORAGEGATE_ACCESS_KEY": ROOT.accessKey,
    "STORAGEGATE_SECRET_KEY": ROOT.secretKey,
}

ISSUED_SECRET = "issued-secret-of-"
"""How the secrets of all keys begin that tests issue."""

_numbers = itertools.count(1)


def ownDirectory(label: str) -> Path:
    """Make an empty directory in the run's temporary one."""
    return Path(mkdtemp(prefix=f"{label}-", dir=Path.cwd()))


def makeDaemon(data: Path, *flags: str, backEnds: tuple[str, ...] = (), **variables: str) -> Daemon:
    """
    Prepare a daemon with the root key pair of the tests; nothing is started yet.

    @param backEnds: See L{tests.support.daemon.daemonCommand}.
    """
    return Daemon(data, *flags, environment={**ENVIRONMENT, **variables}, backEnds=backEnds)


def sharedDaemon(backEnds: tuple[str, ...] = ()) -> Daemon:
    """
    Give the daemon with these back ends of the store that runs until the whole run ends.

    Where the variable C{NODES_UNDER_TEST} is C{http} or C{tcp}, two nodes of a cluster take its
    place; see L{tests.support.balancednodes}.
    """
    mode = os.environ.get("NODES_UNDER_TEST")
    if mode and not backEnds:
        nodes: Daemon = balancedNodes(mode)
        return nodes
    return _sharedDaemon(backEnds)


@cache
def _sharedDaemon(backEnds: tuple[str, ...]) -> Daemon:
    daemon = makeDaemon(ownDirectory("daemon") / "data", backEnds=backEnds)
    atexit.register(daemon.kill)
    return daemon.start()


def eventually(holds: Callable[[], bool]) -> bool:
    """
    Return whether a condition becomes true before a hang is certain.

    The pauses between the checks grow to a tenth of a second: most conditions are requests, which
    take their time from the process that is waited for.
    """
    never, pause = Event(), 0.01
    end = monotonic() + ANSWER_SECONDS
    while not holds():
        if monotonic() > end:
            return holds()
        never.wait(pause)
        pause = min(pause * 1.3, 0.1)
    return True


def leftovers(daemon: Any) -> list[str]:
    """List the files of uploads that are in flight, or should be."""
    if isinstance(daemon, BalancedNodes):
        return daemon.leftovers()
    return os.listdir(daemon.data / "staging")


def runStoragegate(*arguments: str | Path, stdin: str = "") -> str:
    """Run the console script and give its output."""
    start = "import sys; from storagegate.cli.main import main; sys.exit(main())"
    return runTool([sys.executable, "-c", start, *arguments], daemonEnvironment(), stdin=stdin)


def runKeys(*arguments: str | Path, stdin: str = "") -> str:
    """Run C{storagegate keys}, see L{runCommand}."""
    return runCommand("keys", *arguments, stdin=stdin)


def runCommand(*arguments: str | Path, stdin: str = "") -> str:
    """
    Run C{storagegate} in this process, because a start of Python takes most of a second.

    @raise ToolFailed: If it fails.
    """
    before, sys.stdin = sys.stdin, StringIO(stdin)
    try:
        with redirect_stdout(StringIO()) as printed, redirect_stderr(StringIO()) as errors:
            code = main([*map(str, arguments)])
    finally:
        sys.stdin = before
    if code:
        raise ToolFailed(f"storagegate ended with {code}:\n{printed.getvalue()}{errors.getvalue()}")
    return printed.getvalue()


class S3Case(SynchronousTestCase):
    """
    Tests of a daemon that runs as a process of its own.

    @cvar backEnds: Modules of C{tests.contract} whose back ends the daemon's store has.
    """

    backEnds: tuple[str, ...] = ()

    def setUp(self) -> None:
        """Have the daemon, and a client of it."""
        self.daemon = self.startDaemon()
        self.address = self.daemon.address("s3")
        self.endpoint = self.daemon.url("s3")
        self.host = self.endpoint.partition("://")[2]
        self.s3 = botoClient(self.endpoint)
        self.signer = Signer(self.host)
        self._logStart = len(self.daemon.log)
        self.addCleanup(self.assertLogIsClean)

    def startDaemon(self) -> Daemon:
        """Give the daemon, which runs until the whole run ends."""
        return sharedDaemon(self.backEnds)

    def assertLogIsClean(self) -> None:
        """Fail if the daemon wrote a traceback or a secret since the test began."""
        written = self.daemon.log[self._logStart :]
        self.assertNotIn("Traceback", written)
        self.assertNotIn(ROOT.secretKey, written)
        self.assertNotIn(ISSUED_SECRET, written)

    def makeName(self, label: str = "bucket") -> str:
        """Make up a bucket name that no other test has."""
        return f"{label}-{next(_numbers):05d}"

    def makeBucket(self, label: str = "bucket") -> str:
        """Create a bucket of its own for a test."""
        name = self.makeName(label)
        self.s3.create_bucket(Bucket=name)
        return name

    def makeDirectory(self, label: str = "files") -> Path:
        """Make an empty directory for a test."""
        return ownDirectory(label)

    def s3cmd(self, account: Account = ROOT) -> Callable[..., str]:
        """
        Prepare s3cmd, with nothing but its endpoint and a key pair set.

        @return: Runs it with arguments, and gives its output.
        """
        program, home = needProgram("s3cmd"), self.makeDirectory("s3cmd")
        writeS3cmdConfig(self.endpoint, home / "s3cfg", account)
        command = [program, "--config", home / "s3cfg", "--no-progress"]
        return lambda *arguments: runTool([*command, *arguments], {"HOME": str(home)})

    def impatient(self, account: Account = ROOT) -> Any:
        """Give a client that takes the first answer, for what is expected to fail."""
        return botoClient(self.endpoint, account, patient=False)

    def issueKey(self, name: str, *limits: str) -> Account:
        """
        Issue a key of an account named like it, and wait until the daemon knows it.

        @param limits: More flags of C{storagegate keys create}.
        """
        account = Account(f"KEY{name.upper()}{next(_numbers):05d}", f"{ISSUED_SECRET}{name}")
        arguments = ["create", *self.daemon.storeArguments, "--account", name]
        arguments += ["--access-key", account.accessKey, "--secret-stdin", *limits]
        runKeys(*arguments, stdin=f"{account.secretKey}\n")
        probe = Outgoing("GET", "/", account.plainHeaders())
        self.assertTrue(eventually(lambda: exchange(self.address, probe).status != 401))
        return account

    def send(self, outgoing: Outgoing) -> Answer:
        """Put a request on the wire as it is."""
        return exchange(self.address, outgoing)

    def sendSigned(self, outgoing: Outgoing, payloadHash: str | None = None) -> Answer:
        """Sign a request with the root pair, and send it."""
        return self.send(self.signer.sign(outgoing, payloadHash))

    def assertRefused(
        self, status: int, code: str, call: Callable[..., Any], **arguments: Any
    ) -> dict[str, Any]:
        """
        Check that a boto3 call is answered with this status and this S3 code.

        @return: The answer as boto3 read it.
        """
        with self.assertRaises(ClientError) as caught:
            call(**arguments)
        answer: dict[str, Any] = caught.exception.response
        found = (answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"])
        self.assertEqual(found, (status, code), answer)
        return answer

    def assertAnswer(self, answer: Answer, status: int, code: str) -> None:
        """Check an answer's status and S3 code."""
        self.assertEqual((answer.status, answer.code), (status, code), answer)

    def assertMissing(self, bucket: str, key: str) -> None:
        """Check that a key holds nothing."""
        self.assertRefused(404, "404", self.s3.head_object, Bucket=bucket, Key=key)

    def assertHolds(self, bucket: str, key: str, body: bytes) -> None:
        """Check that a key holds exactly this."""
        found = self.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        self.assertEqual(len(found), len(body))
        # Compared apart from the lengths, so that a failure does not print megabytes.
        self.assertTrue(found == body, f"{bucket}/{key} has other bytes")
