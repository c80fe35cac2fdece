"""A daemon with all wires, and the calls of its console."""

import atexit
import json
from functools import cache
from http.client import HTTPConnection
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.console.fixture import API, Reply
from tests.support.clients import ROOT, Account
from tests.support.daemon import Daemon
from tests.wire.s3.fixture import makeDaemon, ownDirectory

WIRES = ("http", "websocket", "grpc", "udp", "tcp")

SERVICES = """
from twisted.internet import reactor
from twisted.internet.task import deferLater

HOSTILE = "<img src=x onerror=alert(1)>\\u202e"


async def echo(request, context):
    return {"text": request["text"].upper(), "protocol": context.protocol}


async def empty(request, context):
    return {"text": "", "protocol": "any", "tags": [], "nested": {"tags": []}}


async def count(request, context):
    for number in range(int(request["to"])):
        yield {"number": number}


async def collect(requests, context):
    return {"text": " ".join([each["text"] async for each in requests])}


async def chat(requests, context):
    async for each in requests:
        yield {"text": each["text"].upper()}


async def slow(request, context):
    await deferLater(reactor, 30)


async def steps(request, context):
    for number in range(3):
        yield {"number": number}
        await deferLater(reactor, 0.3)


async def hang(request, context):
    yield {"number": 1}
    await deferLater(reactor, 30)


async def large(request, context):
    return {"text": "x" * (2 << 20)}


async def traced(request, context):
    return {"text": context.headers.get("x-colour", "none")}


def known(key, context):
    return {"key": key} if key == "good-key" else None


TEXT = {"type": "object", "properties": {"text": {"type": "string", "required": True}}}
TO = {"type": "object", "properties": {"to": {"type": "integer", "required": True}}}
NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}}
SAID = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "protocol": {"type": "string"}},
}
TAGS = {"type": "array", "items": {"type": "string"}}
EMPTY = {
    "type": "object",
    "properties": {
        **SAID["properties"],
        "tags": TAGS,
        "nested": {"type": "object", "properties": {"tags": TAGS}},
    },
}
Probe = {
    "name": "Probe",
    "methods": {
        "echo": {"handler": echo, "input": TEXT, "output": SAID},
        "empty": {"handler": empty, "output": EMPTY},
        "count": {"handler": count, "input": TO, "output": NUMBER},
        "collect": {"handler": collect, "streaming": "client", "input": TEXT, "output": SAID},
        "chat": {"handler": chat, "streaming": "bidirectional", "input": TEXT, "output": SAID},
        "slow": slow,
        "steps": {"handler": steps, "output": NUMBER},
        "hang": {"handler": hang, "output": NUMBER},
        "large": {"handler": large, "output": SAID},
        "traced": {"handler": traced, "output": SAID},
        "private": {"handler": echo, "authentication": True, "input": TEXT, "output": SAID},
        "limited": {
            "handler": echo, "input": TEXT, "output": SAID,
            "rateLimit": {"requests": 2, "window": 3_600_000},
        },
    },
}
"""

CONFIGURATION = """
[gateway.authentication.providers.apikey]
validate = "probe:known"

[gateway.authentication.rules]
grpc = ["apikey"]
"""


def makeGateway(label: str, configuration: str = "", *flags: str) -> Daemon:
    """
    Prepare a daemon with all wires and the service C{Probe}; nothing is started yet.

    @param configuration: More of its file.
    """
    directory = ownDirectory(label)
    (directory / "probe.py").write_text(SERVICES)
    (directory / "config.toml").write_text(CONFIGURATION + configuration)
    daemon = makeDaemon(
        directory / "data",
        "--config",
        str(directory / "config.toml"),
        "--service",
        "probe:Probe",
        "--http",
        "tcp:0:interface=127.0.0.1",
        "--tcp",
        "tcp:0:interface=127.0.0.1",
        "--grpc",
        "127.0.0.1:0",
        "--udp",
        "127.0.0.1:0",
        *flags,
    )
    daemon._directory = directory
    daemon._expect = ("admin", "http", "tcp", "grpc", "udp")
    return daemon


@cache
def _shared(label: str, configuration: str, *flags: str) -> Daemon:
    """Start a daemon, for the rest of the run."""
    daemon = makeGateway(label, configuration, *flags).start()
    atexit.register(daemon.kill)
    return daemon


def send(
    daemon: Daemon, method: str, path: str, body: Any = None, account: Account = ROOT
) -> Reply:
    """Send a request with a key pair."""
    connection = HTTPConnection(*daemon.address("admin"), timeout=60)
    try:
        raw = None if body is None else json.dumps(body).encode()
        connection.request(method, API + path, raw, account.plainHeaders())
        response = connection.getresponse()
        return Reply(response.status, response.headers, response.read())
    finally:
        connection.close()


class GatewayCase(SynchronousTestCase):
    """
    Tests of calls of the console, with one daemon for all of a class.

    @cvar configuration: More of the configuration of the daemon.
    @cvar flags: More of its arguments.
    """

    configuration = ""
    flags: tuple[str, ...] = ()

    @property
    def daemon(self) -> Daemon:
        """The daemon, started with its first use."""
        return _shared(type(self).__name__, self.configuration, *self.flags)

    def tearDown(self) -> None:
        """Look for errors in the log."""
        log = self.daemon.log
        for word in ("Unhandled", "Traceback"):
            place = log.find(word)
            self.assertEqual(place, -1, log[max(place - 200, 0) : place + 2000])

    def send(self, method: str, path: str, body: Any = None, account: Account = ROOT) -> Reply:
        """Send a request with a key pair."""
        return send(self.daemon, method, path, body, account)

    def call(self, wire: str, method: str, *requests: Any, **more: Any) -> list[Any]:
        """Call a method; return the lines."""
        body = {"wire": wire, "service": "Probe", "method": method, "requests": requests, **more}
        reply = self.send("POST", "gateway/calls", body)
        self.assertEqual(reply.status, 200, reply)
        return [json.loads(line) for line in reply.body.splitlines()]

    def results(self, wire: str, method: str, *requests: Any, **more: Any) -> list[Any]:
        """Return the data of the items of a call that succeeds."""
        *items, end = self.call(wire, method, *requests, **more)
        self.assertEqual(end["at"], "end", (wire, end))
        self.assertEqual({each["at"] for each in items} - {"item"}, set())
        self.assertEqual(end["bytes"], sum(each["bytes"] for each in items))
        return [each["data"] for each in items]

    def failure(self, wire: str, method: str, *requests: Any, **more: Any) -> str:
        """Return the code of the error of a call that fails at once."""
        lines = self.call(wire, method, *requests, **more)
        self.assertEqual([each["at"] for each in lines], ["error"], (wire, lines))
        code: str = lines[0]["data"]["error"]
        return code
