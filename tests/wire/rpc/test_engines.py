"""The engines keep one contract, and the right one is chosen."""

import subprocess
import sys
import threading
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.rpc.engine.aio import AioChannel
from storagegate.rpc.engine.aioserver import AioServer
from storagegate.rpc.engine.client import ChannelEngine
from storagegate.rpc.engine.server import GrpcioServer
from tests.contract.rpcclientengine import ClientEngineContract
from tests.contract.rpcengine import ServerEngineContract
from tests.contract.rpcenginecase import OWN
from tests.support.daemon import daemonEnvironment


class NativeServerTests(ServerEngineContract):
    """The server's engine on grpc core."""

    def makeServer(self, arguments: Any, traffic: Any) -> Any:
        """Make the engine."""
        return GrpcioServer(self.reactor, arguments, traffic)


class AioServerTests(ServerEngineContract):
    """The server's engine on C{grpc.aio}."""

    def setUp(self) -> None:
        """See at the very end that no thread is left."""
        self.addCleanup(self.seeNoThread)
        super().setUp()

    def makeServer(self, arguments: Any, traffic: Any) -> Any:
        """Make the engine."""
        return AioServer(self.reactor, arguments, traffic)

    def seeNoThread(self) -> None:
        """See that the loop's thread has ended."""
        self.assertNotIn("storagegate-grpc-aio", [each.name for each in threading.enumerate()])


class NativeClientTests(ClientEngineContract):
    """The client's engine on grpc core."""

    def makeClient(self, target: str, credentials: Any) -> Any:
        """Make the engine."""
        return ChannelEngine(target, credentials, OWN, self.reactor)


class AioClientTests(ClientEngineContract):
    """The client's engine on C{grpc.aio}."""

    def makeClient(self, target: str, credentials: Any) -> Any:
        """Make the engine."""
        return AioChannel(target, credentials, OWN, self.reactor)


del ServerEngineContract, ClientEngineContract

SCRIPT = """
import os, sys
from grpc._cython import cygrpc
for name in sys.argv[1:]:
    delattr(cygrpc, name)

from twisted.internet.defer import Deferred
from twisted.internet.task import react
from twisted.logger import eventAsText, globalLogBeginner
from storagegate import server
from storagegate.rpc import createGrpcClient

lines = []
globalLogBeginner.beginLoggingTo(
    [lambda event: lines.append(eventAsText(event, includeTimestamp=False))],
    redirectStandardIO=False,
    discardBuffer=True,
)

async def main(reactor):
    # Two of each: the choice is made once.
    apps = [server.grpc().withOptions(grpc={"reflection": True}) for _ in range(2)]
    for app in apps:
        app.addService("Probe", {"echo": lambda request: request})
        port = await app.listen(0, "127.0.0.1", reactor=reactor)
        client = createGrpcClient(f"127.0.0.1:{port.getHost().port}", "insecure", "Probe")
        print(await client.echo(text="x"), type(client._engine).__name__)
        await client.close()
    for app in apps:
        await app.stop(0)
    print([line for line in lines if "grpc.aio" in line])

async def run(reactor):
    try:
        await main(reactor)
    except Exception as error:
        print(error)

react(lambda reactor: Deferred.fromCoroutine(run(reactor)))
"""


class ChoiceTests(SynchronousTestCase):
    """Which engine a process has."""

    def lines(self, *removed: str, **environment: str) -> list[str]:
        """Serve without some private names of grpcio; give the script's lines."""
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *removed],
            env=daemonEnvironment({"GRPC_VERBOSITY": "NONE", **environment}),
            capture_output=True,
            text=True,
            timeout=100,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()

    def test_native(self) -> None:
        """Where grpcio has its private names the native one is used, and nothing is logged."""
        self.assertEqual(self.lines(), ["{'text': 'x'} ChannelEngine"] * 2 + ["[]"])

    def test_missing(self) -> None:
        """Where one is missing C{grpc.aio} serves and calls, and the log says once why."""
        for name in ("channelz_get_servers", "CompletionQueue"):
            *answers, logged = self.lines(name)
            self.assertEqual(answers, ["{'text': 'x'} AioChannel"] * 2)
            self.assertEqual(logged.count("grpc.aio"), 1, logged)
            self.assertIn(name, logged)

    def test_named(self) -> None:
        """The environment names one, of those that there are."""
        lines = self.lines(STORAGEGATE_GRPC_ENGINE="aio")
        self.assertEqual(lines, ["{'text': 'x'} AioChannel"] * 2 + ["[]"])
        [problem] = self.lines(STORAGEGATE_GRPC_ENGINE="other")
        self.assertEqual(problem, "STORAGEGATE_GRPC_ENGINE is native or aio, not other")
