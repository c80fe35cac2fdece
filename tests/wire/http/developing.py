"""A script in a process of its own, whose files a test changes."""

import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString, connectProtocol
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from tests.support.modules import CHECKOUT
from tests.support.ports import heldPort
from tests.wire.http.support import RawClient, get

APP = """\
from storagegate import server
from helper import WORD

app = server.http().withOptions(port={port}, development={{"hmr": True, "console": True}})


@app.get("/")
def index(req, res):
    res.type("txt").send(WORD)
"""
"""The beginning of a script; C{port} is to be put in."""


class Script(ProcessProtocol):
    """
    A running script.

    It is the supervisor, whose children write to the same outputs: it has ended when they have.

    @ivar output: All that it has written.
    @ivar status: Its exit code, if it has ended by itself.
    @ivar ended: Fires when it has ended.
    """

    def __init__(self) -> None:
        self.output = ""
        self.status: int | None = None
        self.ended: Deferred[None] = Deferred()

    def outReceived(self, data: bytes) -> None:
        """Take output."""
        self.output += data.decode()

    def errReceived(self, data: bytes) -> None:
        """Take output."""
        self.outReceived(data)

    def processEnded(self, reason: Failure) -> None:
        """Take note."""
        self.status = getattr(reason.value, "exitCode", None)
        self.ended.callback(None)

    def processorSeconds(self) -> float:
        """Return the processor time of the script and its children so far, in seconds."""
        pid: int = self.transport.pid  # type: ignore[union-attr]
        # In user mode and in the kernel, and those of children that have ended; see
        # proc_pid_stat(5), whose third field is the first here.
        ticks = sum(map(int, _statistics(pid)[11:15]))
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with suppress(OSError):
                ticks += sum(map(int, _statistics(int(child))[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def signal(self, name: str) -> None:
        """Send it a signal; harmless where it has ended."""
        try:
            self.transport.signalProcess(name)  # type: ignore[union-attr]
        except ProcessExitedAlready:
            pass


def _statistics(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


class Page:
    """An open page, as far as it listens to events."""

    def __init__(self, client: RawClient) -> None:
        self.client = client

    @property
    def events(self) -> list[tuple[str, Any]]:
        """Give what it has been told."""
        found = re.findall(rb"event: (\w+)\ndata: (.*)\n", self.client.received)
        return [(name.decode(), json.loads(data)) for name, data in found]


class DevelopCase(TestCase):
    """A test with a script in a directory of its own."""

    timeout = 180

    def setUp(self) -> None:
        """Make the directory, and choose a port that nobody has."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        self.port = heldPort(self)
        self.script = Script()

    def write(self, name: str, text: str) -> None:
        """Write a file as editors do: another one, renamed."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(path.name + "~")
        new.write_text(text)
        os.replace(new, path)

    async def start(self, *arguments: str, **environment: str) -> None:
        """Start Python with arguments, and wait until the script listens."""
        plain = {n: v for n, v in os.environ.items() if n not in ("NO_COLOR", "FORCE_COLOR")}
        self.reactor.spawnProcess(
            self.script,
            sys.executable,
            [sys.executable, "-u", *arguments],
            env={**plain, "PYTHONPATH": str(CHECKOUT), **environment},
            path=str(self.directory),
        )
        self.addCleanup(self.stop)
        await self.until(lambda: "listening" in self.script.output or self.script.ended.called)
        self.assertFalse(self.script.ended.called, self.script.output)

    def stop(self) -> Deferred[None]:
        """Kill the script, if it has not ended."""
        self.script.signal("KILL")
        return self.script.ended

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the reactor turn until something is the case; the test's timeout ends it else."""
        while not condition():
            await deferLater(self.reactor, 0.005)

    async def writes(self, text: str) -> None:
        """Wait until the script has written something."""
        await self.until(lambda: text in self.script.output)

    async def connect(self, port: int | None = None) -> RawClient:
        """Connect to the script, which must not refuse."""
        client = RawClient()
        description = f"tcp:127.0.0.1:{port or self.port}"
        await connectProtocol(clientFromString(self.reactor, description), client)
        self.addCleanup(self._drop, client)
        return client

    def _drop(self, client: RawClient) -> Deferred[bytes]:
        if not client.closed.called:
            client.drop()
        return client.closed

    async def ask(self, path: bytes = b"/", port: int | None = None) -> str:
        """Make a request on a connection of its own, and give the body of the answer."""
        client = await self.connect(port)
        client.write(get(path, b"Connection: close"))
        return (await client.closed).partition(b"\r\n\r\n")[2].decode()

    async def answers(self, text: str, path: bytes = b"/", port: int | None = None) -> None:
        """Ask until the answer is a certain one."""
        while await self.ask(path, port) != text:
            await deferLater(self.reactor, 0.02)

    async def openPage(self) -> Page:
        """Open a page, which listens to events from then on."""
        client = await self.connect()
        client.write(get(b"/__storagegate/hmr"))
        page = Page(client)
        await self.hears(page, "hello")
        return page

    async def hears(self, page: Page, name: str, count: int = 1) -> Any:
        """Wait until a page has been told something, and give what it was told last of it."""
        told = lambda: [data for event, data in page.events if event == name]  # noqa: E731
        await self.until(lambda: len(told()) >= count)
        return told()[-1]
