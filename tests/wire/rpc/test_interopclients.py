"""The clients of the interoperability cases are right: they say of a known server what it is."""

import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import daemonEnvironment
from tests.support.interop.cases import CASES
from tests.support.interop.runs import (
    ClientRun,
    RunClient,
    runGrpcioClient,
    runGrpcJsClient,
    runGrpclibClient,
)
from tests.support.modules import CHECKOUT
from tests.support.selection import long

# What a server without services does as well as any other.
BARE = {"unimplemented_method", "unimplemented_service", "cancel_after_begin"}
# grpclib may give up by its own clock before it has sent anything.
EITHER = {"timeout_on_sleeping_server", "cancel_after_begin"}


@long("runs grpc-js")
class InteropClientTests(SynchronousTestCase):
    """Each client against grpcio's own server."""

    def runAgainst(self, client: RunClient, *arguments: str) -> ClientRun:
        """Run a client against a server process of its own."""
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.interop.reference", *arguments],
            cwd=CHECKOUT,
            env=daemonEnvironment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        # Its input ends, and so does it.
        self.addCleanup(server.communicate)
        assert server.stdout is not None
        port = int(server.stdout.readline())
        return client(port, port)

    def assertGood(self, run: ClientRun) -> None:
        """Every case passed, or is one that the client cannot express."""
        self.assertEqual(set(run.outcomes), set(CASES), run.complaint)
        self.assertEqual([each for each in run.outcomes.values() if each.ok is False], [])

    def assertBad(self, run: ClientRun) -> None:
        """Every case failed that needs a service."""
        self.assertEqual(set(run.outcomes), set(CASES), run.complaint)
        passed = {each.case for each in run.outcomes.values() if each.ok}
        self.assertEqual(passed - EITHER, BARE - EITHER)

    def test_grpcio(self) -> None:
        """grpcio's stubs pass every case with grpcio's server."""
        self.assertGood(self.runAgainst(runGrpcioClient))

    def test_grpclib(self) -> None:
        """grpclib passes every case that it can express."""
        self.assertGood(self.runAgainst(runGrpclibClient))

    def test_grpcJs(self) -> None:
        """grpc-js passes every case."""
        self.assertGood(self.runAgainst(runGrpcJsClient))

    def test_grpcioComplains(self) -> None:
        """The program with grpcio's stubs notices that a server has no such service."""
        self.assertBad(self.runAgainst(runGrpcioClient, "--bare"))

    def test_grpclibComplains(self) -> None:
        """The program with grpclib notices it."""
        self.assertBad(self.runAgainst(runGrpclibClient, "--bare"))

    def test_grpcJsComplains(self) -> None:
        """The program with grpc-js notices it."""
        self.assertBad(self.runAgainst(runGrpcJsClient, "--bare"))
