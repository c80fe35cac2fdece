"""Several servers in one program: one start, and one shutdown."""

import json
import signal
import socket
from pathlib import Path
from typing import Any

from twisted.internet.error import CannotListenError
from twisted.trial.unittest import SynchronousTestCase, TestCase

from storagegate import server
from storagegate.gateway.gateway import createProtocolGateway
from storagegate.serving.group import FrontFailed
from tests.support.selection import long
from tests.support.servedprogram import ServedProgram

PROGRAM = """\
import os
from storagegate import createProtocolGateway, server

def show(request):
    return {"pid": os.getpid()}

app = server.http()
app.get("/", lambda req, res: res.json(show(None)))
rpc = server.grpc().withOptions(grpc={"reflection": True})
rpc.addService(name="Probe", methods={"show": {
    "handler": show,
    "input": {"type": "object"},
    "output": {"type": "object", "properties": {"pid": {"type": "integer"}}},
}})
gateway = createProtocolGateway(protocols=["http", "grpc", "tcp", "udp"], port=0)
gateway.configureGRPC(port=0, reflection=True).configureTCP(port=0).configureUDP(port=0)
gateway.addService("Orders", {"methods": {"show": {
    "handler": show,
    "input": {"type": "object"},
    "output": {"type": "object", "properties": {"pid": {"type": "integer"}}},
}}})
everything = server.serve((app, 0), (rpc, 0), gateway)
if __name__ == "__main__":
    everything.run(workers=2)
"""


def makeServers() -> tuple[Any, Any, Any]:
    """Make an application, a gRPC server and a gateway, each at a free port."""
    gateway = createProtocolGateway(protocols=["http", "tcp"], port=0).configureTCP(port=0)
    app = server.http().withOptions(port=0)
    app.get("/", lambda req, res: res.send("hi"))
    return app, server.grpc().withOptions(port=0), gateway


class ServeTests(TestCase):
    """A group in a program that runs the reactor."""

    async def test_listen(self) -> None:
        """All listen, under the names of their servers, and all close together."""
        group = server.serve(*makeServers())
        ports = await group.listen()
        self.assertEqual(list(ports), ["http", "grpc", "gateway.http", "gateway.tcp"])
        numbers = [port.getHost().port for port in ports.values()]
        for number in numbers:
            socket.create_connection(("127.0.0.1", number)).close()
        await group.close(0)
        self.assertEqual(group.ports, {})
        for number in numbers:
            self.assertRaises(
                ConnectionRefusedError, socket.create_connection, ("127.0.0.1", number)
            )

    async def test_taken(self) -> None:
        """The error of a port that is taken names the server, and no port stays open."""
        app, rpc, _ = makeServers()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for servers, name in (
                ((app, (rpc, port)), "grpc"),
                ((rpc, (app, port)), "http"),
                ((app, createProtocolGateway(protocols=["http"], port=port)), "gateway"),
            ):
                group = server.serve(*servers)
                with self.assertRaises(CannotListenError) as caught:
                    await group.listen()
                self.assertIsInstance(caught.exception, FrontFailed)
                self.assertTrue(str(caught.exception).startswith(f"{name}: "))
                self.assertEqual(group.ports, {})


@long("starts processes")
class ProgramTests(SynchronousTestCase):
    """The same in a script, with workers."""

    def test_workers(self) -> None:
        """Two workers answer over every transport of every server; SIGHUP and SIGTERM reach all."""
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        (self.directory / "all.py").write_text(PROGRAM)
        program = ServedProgram(self, self.directory, "all.py")
        program.wait("2 workers are serving")
        names = ("http", "grpc", "gateway.http", "gateway.grpc", "gateway.tcp", "gateway.udp")
        ports = {name: program.port(name) for name in names}
        before = self.workers(ports)
        self.assertEqual(len(set().union(*before.values())), 2, before)
        program.signal(signal.SIGHUP)
        program.wait("reloaded the program")
        after = self.workers(ports)
        self.assertFalse(set().union(*before.values()) & set().union(*after.values()))
        self.assertEqual(program.stop(), 0)
        self.assertNotIn("Traceback", program.log)

    def workers(self, ports: dict[str, int]) -> dict[str, list[int]]:
        """Call each listener, from new clients, until two processes have answered."""
        client = ServedProgram(self, self.directory, "-c", CLIENT, json.dumps(ports))
        self.assertEqual(client.end(), 0, client.log)
        found: dict[str, list[int]] = json.loads(client.log.splitlines()[-1])
        return found


CLIENT = """\
import json, sys, urllib.request
from twisted.internet.defer import Deferred
from twisted.internet.task import react
from storagegate import createGatewayClient, createGrpcClient

async def call(name, port):
    if name == "http":
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as response:
            return json.load(response)["pid"]
    if name == "grpc":
        client = createGrpcClient(f"127.0.0.1:{port}", credentials="insecure")
        try:
            return (await client.show())["pid"]
        finally:
            await client.close()
    scheme = name.partition(".")[2]
    async with createGatewayClient(f"{scheme}://127.0.0.1:{port}") as client:
        return (await client.call("Orders", "show"))["pid"]

async def main():
    found = {}
    for name, port in json.loads(sys.argv[1]).items():
        pids = set()
        while len(pids) < 2:
            pids.add(await call(name, port))
        found[name] = sorted(pids)
    print(json.dumps(found))

react(lambda reactor: Deferred.fromCoroutine(main()))
"""
