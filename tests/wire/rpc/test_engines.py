"""The engine keeps its contract, and does not start on a grpcio that it does not fit."""

import subprocess
import sys
from typing import Any

import grpc
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.heldbytes import HeldBytes
from storagegate.rpc import engine
from storagegate.rpc.engine.client import ChannelEngine
from storagegate.rpc.engine.native.channel import NativeChannel
from storagegate.rpc.engine.native.server import NativeServer
from storagegate.rpc.engine.server import GrpcioServer
from storagegate.rpc.options import GRPCServerOptions
from tests.contract.rpcclientengine import ClientEngineContract
from tests.contract.rpcengine import ServerEngineContract
from tests.contract.rpcenginecase import OWN
from tests.support.daemon import daemonEnvironment


class ServerTests(ServerEngineContract):
    """The server's engine on grpc core."""

    def makeServer(self, options: Any, traffic: Any) -> Any:
        """Make the engine."""
        return GrpcioServer(self.reactor, options.channelArguments(), traffic)


class NativeServerTests(ServerEngineContract):
    """The server's engine on our own HTTP/2."""

    holdsResponses = False

    def makeServer(self, options: Any, traffic: Any) -> Any:
        """Make the engine."""
        return NativeServer(self.reactor, options, traffic, HeldBytes())


class ClientTests(ClientEngineContract):
    """The client's engine on grpc core."""

    def makeClient(self, target: str, tls: Any) -> Any:
        """Make the engine."""
        return ChannelEngine(target, tls, OWN, self.reactor)


class NativeClientTests(ClientEngineContract):
    """The client's engine on our own HTTP/2."""

    def makeClient(self, target: str, tls: Any) -> Any:
        """Make the engine."""
        return NativeChannel(target, tls, GRPCServerOptions(), self.reactor)


del ServerEngineContract, ClientEngineContract

SCRIPT = """
import sys
from grpc._cython import cygrpc
for name in sys.argv[1:]:
    delattr(cygrpc, name)

from twisted.logger import globalLogBeginner, textFileLogObserver

globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stdout)], redirectStandardIO=False)

from storagegate.rpc import createGrpcClient

try:
    client = createGrpcClient("127.0.0.1:1", "insecure", "Probe")
    print("uses", type(client._engine).__name__)
except ValueError as error:
    print(error)
"""


SERVER_SCRIPT = """
import sys
from grpc._cython import cygrpc
for name in sys.argv[1:]:
    delattr(cygrpc, name)

import grpc
from twisted.internet import reactor
from twisted.internet.threads import deferToThread
from twisted.logger import globalLogBeginner, textFileLogObserver

globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stdout)], redirectStandardIO=False)

from storagegate import server

app = server.grpc().addService("Probe", {"echo": lambda request: request})

def call(port):
    with grpc.insecure_channel(f"127.0.0.1:{port.getHost().port}") as channel:
        print("called", channel.unary_unary("/Probe/echo")(b"", timeout=60))

def listening(port):
    calling = deferToThread(call, port)
    return calling.addBoth(lambda result: (print(result), app.stop(0))[1])

app.listen(0).addCallback(listening).addCallback(lambda ignored: reactor.stop())
reactor.run()
"""


class CheckTests(SynchronousTestCase):
    """The check before the first server or client."""

    def line(self, *removed: str, script: str = SCRIPT, **environment: str) -> str:
        """Make a client without some private names of grpcio; return the script's output."""
        done = subprocess.run(
            [sys.executable, "-c", script, *removed],
            env=daemonEnvironment({"GRPC_VERBOSITY": "NONE", **environment}),
            capture_output=True,
            text=True,
            timeout=100,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.strip()

    def test_missing(self) -> None:
        """Without a private name of grpcio, the log names it, and a version that has it."""
        lines = self.line("channelz_get_servers")
        self.assertIn("the native engine makes gRPC calls: grpcio", lines)
        self.assertIn("because it has no channelz_get_servers: install", lines)
        self.assertIn(f"grpcio=={engine.KNOWN_GRPCIO}", lines)
        self.assertIn(grpc.__version__, lines)
        self.assertIn("uses NativeChannel", lines)
        self.assertIn("CompletionQueue", self.line("CompletionQueue"))

    def test_native(self) -> None:
        """A server takes the native engine then, and says so; calls are as ever."""
        lines = self.line("channelz_get_servers", script=SERVER_SCRIPT)
        self.assertIn("the native engine serves gRPC: grpcio", lines)
        self.assertIn("called b''", lines)
        self.assertNotIn("native", self.line(script=SERVER_SCRIPT))

    def test_variable(self) -> None:
        """The variable that selected another engine is refused."""
        for name, line in (
            ("native", "uses ChannelEngine"),
            ("aio", "unset STORAGEGATE_GRPC_ENGINE: there is no engine aio of gRPC"),
        ):
            self.assertEqual(self.line(STORAGEGATE_GRPC_ENGINE=name), line)
