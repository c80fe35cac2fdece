"""The service of C{examples/grpc_users.py}, called by the example itself and by grpcio."""

import subprocess
import sys
from pathlib import Path

import grpc
from twisted.trial.unittest import SynchronousTestCase

from tests.examples.support import EXAMPLES, Example
from tests.support.daemon import CHECKOUT, START_SECONDS
from tests.support.selection import long


class UsersTests(SynchronousTestCase):
    """What its two halves say."""

    def setUp(self) -> None:
        """Start the server."""
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        self.example = Example("grpc_users", directory)
        self.addCleanup(self.example.kill)
        self.example.start()
        self.port = self.example.place[1]

    def call(self) -> str:
        """Run the client, and give what it says."""
        ran = subprocess.run(
            [sys.executable, str(EXAMPLES / "grpc_users.py"), str(self.port), "call"],
            env={"PYTHONPATH": str(CHECKOUT)},
            capture_output=True,
            timeout=START_SECONDS,
            check=True,
            text=True,
        )
        self.assertEqual(ran.stderr, "")
        return ran.stdout

    @long("takes seconds")
    def test_client(self) -> None:
        """The client makes a call of each kind and shows an error; the server tells of each."""
        said = self.call().splitlines()
        self.assertEqual(
            said[:3],
            ["{'id': 1, 'name': 'Ada'}", "{'id': 3, 'name': 'Grace'}", "['Ada', 'Alan', 'Grace']"],
        )
        self.assertRegex(said[3], r"^\['A at 127\.0\.0\.1:\d+', 'B at 127\.0\.0\.1:\d+'\]$")
        details = "[{'path': 'name', 'message': 'is required'}]"
        self.assertEqual(said[4:], [f"INVALID_ARGUMENT: no name {details}"])
        for name in ("Create", "CreateAll", "List", "Greet", "Create"):
            self.example.waitForLog(rf"{name}\n")
        self.assertEqual(self.call().splitlines()[0], "{'id': 4, 'name': 'Ada'}")

    def test_stranger(self) -> None:
        """A client of grpcio's is served as well; a method that is not there is UNIMPLEMENTED."""
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            greet = channel.stream_stream("/Users/Greet")
            # Field 2 of the message, text of three letters.
            replies = list(greet(iter([b"\x12\x03Ada"] * 2), timeout=START_SECONDS))
            self.assertEqual([b"Ada at 127.0.0.1:" in reply for reply in replies], [True, True])
            nothing = channel.unary_unary("/Users/Nothing")
            error = self.assertRaises(grpc.RpcError, nothing, b"", timeout=START_SECONDS)
            self.assertEqual(error.code(), grpc.StatusCode.UNIMPLEMENTED)

    @long("takes a second or more")
    def test_stop(self) -> None:
        """SIGTERM ends it in order."""
        self.call()
        self.assertEqual(self.example.stop(), 0)
