"""Processes that end with a server or a client open: none hangs, none crashes."""

import socket
import subprocess
import sys
from textwrap import dedent

from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import daemonEnvironment
from tests.support.modules import CHECKOUT
from tests.support.selection import long

SECONDS = 120.0
"""Far above what any of these takes."""

_BEGINNING = """
import gc, os, sys, threading
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from storagegate import server
from storagegate.rpc.client import createGrpcClient

async def wait(request):
    await Deferred()

async def stubborn(request):
    while True:
        try:
            await Deferred()
        except CancelledError:
            pass

async def endless(request):
    while True:
        yield {"text": "more"}

def makeApp():
    methods = {"wait": wait, "stubborn": stubborn, "endless": endless}
    return server.grpc().withOptions(grpc={"reflection": True}).addService("P", methods)

def call(port):
    # Every kind of call, under way on one connection.
    global client
    client = createGrpcClient(f"127.0.0.1:{port.getHost().port}", "insecure", "P")
    for name in ("wait", "stubborn"):
        client[name]({}).deferred().addErrback(lambda failure: None)

    async def take():
        async for _ in client.endless({}):
            if not begun.called:
                begun.callback(None)

    Deferred.fromCoroutine(take()).addErrback(lambda failure: None)

begun = Deferred()
app = makeApp()
"""


class ExitTests(SynchronousTestCase):
    """One script after the other."""

    def runScript(self, script: str, *arguments: str) -> tuple[int, str, str]:
        """Run a script to its end; give its exit code, what it said and what it complained of."""
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", _BEGINNING + dedent(script), *arguments],
            cwd=CHECKOUT,
            env=daemonEnvironment({"GRPC_VERBOSITY": "NONE"}),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def assertEnds(self, script: str, code: int = 0) -> str:
        """A script ends by itself with an exit code and without a complaint; give what it said."""
        found, said, complaint = self.runScript(script)
        self.assertEqual((found, complaint), (code, ""))
        return said

    def test_reactorStops(self) -> None:
        """The reactor stops with calls open: they are cancelled, and the server's thread ends."""
        said = self.assertEnds("""
            app.listen(0).addCallback(call)
            begun.addCallback(lambda none: reactor.stop())
            reactor.run()
            print([each.name for each in threading.enumerate()].count("storagegate-grpc"))
        """)
        self.assertEqual(said, "0\n")

    def test_reactorCrashes(self) -> None:
        """The reactor ends without a word to anybody, with calls open."""
        self.assertEnds("""
            app.listen(0).addCallback(call)
            begun.addCallback(lambda none: reactor.crash())
            reactor.run()
        """)

    @long("takes seconds")
    def test_neverRun(self) -> None:
        """A script that listens and has no reactor run ends as any other does."""
        self.assertEnds("app.listen(0)")
        self.assertEnds("app.listen(0); sys.exit(3)", 3)
        self.assertEnds("app.listen(0).addCallback(call)")

    def test_exception(self) -> None:
        """What a script dies of is what it says, and nothing else."""
        code, _, complaint = self.runScript('app.listen(0)\nraise ValueError("mine")')
        self.assertEqual(code, 1)
        self.assertTrue(complaint.endswith("ValueError: mine\n"), complaint)

    def test_exitInHandler(self) -> None:
        """C{os._exit} while threads wait is at once."""
        self.assertEnds(
            """
            app.listen(0).addCallback(call)
            begun.addCallback(lambda none: os._exit(5))
            reactor.run()
            """,
            5,
        )

    def test_dropped(self) -> None:
        """An application without references serves until its reactor stops."""
        self.assertEnds("""
            def drop(none):
                global app
                del app
                gc.collect()
                reactor.callLater(0, reactor.stop)

            app.listen(0).addCallback(call)
            begun.addCallback(drop)
            reactor.run()
        """)

    def test_stoppedLate(self) -> None:
        """C{stop} after the reactor has stopped has nothing to do."""
        said = self.assertEnds("""
            app.listen(0)
            reactor.callWhenRunning(reactor.stop)
            reactor.run()
            app.stop().addCallback(lambda none: print("stopped"))
        """)
        self.assertEqual(said, "stopped\n")

    def test_clientLeft(self) -> None:
        """A client that is not closed, with a waiting call, does not keep the process."""
        begin = """
            client = createGrpcClient("127.0.0.1:1", "insecure", "P")
            client["echo"]({}, waitForReady=True).deferred().addErrback(lambda failure: None)
            """
        self.assertEnds(begin)
        self.assertEnds(f"{begin}reactor.callLater(0.1, reactor.stop); reactor.run()")

    def test_signal(self) -> None:
        """SIGTERM ends C{run}, calls within its grace, with 0."""
        self.assertEnds("""
            import signal
            app.listen(0).addCallback(call)
            begun.addCallback(lambda none: os.kill(os.getpid(), signal.SIGTERM))
            app.run(graceMs=100, quiet=True)
        """)

    def test_portTaken(self) -> None:
        """A port that is taken ends C{run} with 1 and one line that names it."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            code, _, complaint = self.runScript(f"app.run({port})")
        self.assertEqual(code, 1)
        self.assertRegex(complaint, rf"\ACouldn't listen on 127\.0\.0\.1:{port}: .*in use\.\n\Z")
