"""A process that serves gRPC starts others."""

import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import daemonEnvironment

SCRIPT = """
import os
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import react
from storagegate.rpc import createGrpcClient
from storagegate.rpc.application import GRPCServer

def fork():
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, b"%d " % len(os.listdir("/proc/self/task")))
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with open(reader) as file:
        return file.read()

async def main(reactor):
    app = GRPCServer().withOptions(grpc={"reflection": True})
    app.addService(name="Probe", methods={"echo": lambda request: request})
    port = await app.listen(0, "127.0.0.1", reactor=reactor)
    client = createGrpcClient(f"127.0.0.1:{port.getHost().port}", "insecure")
    await client.echo(text="x")
    print("threads", fork(), fork(), os.environ.get("GRPC_ENABLE_FORK_SUPPORT"))
    print(await client.echo(text="y"))
    await client.close()
    await app.stop(0)

react(lambda reactor: Deferred.fromCoroutine(main(reactor)))
"""


class ForkTests(SynchronousTestCase):
    """Between C{fork} and C{exec} a child has one thread."""

    def run_(self, **environment: str) -> list[str]:
        """Run the script and give its lines."""
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=daemonEnvironment(environment),
            capture_output=True,
            text=True,
            timeout=100,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def test_alone(self) -> None:
        """
        A child has none of gRPC's threads: they would wait on descriptors that whoever starts a
        program closes, and abort the child.
        """
        self.assertEqual(self.run_(), ["threads 1  1  0", "{'text': 'y'}"])

    def test_wanted(self) -> None:
        """gRPC's support for forks can be enabled."""
        [threads, _answer] = self.run_(GRPC_ENABLE_FORK_SUPPORT="1")
        self.assertNotIn(" 1 ", threads)
