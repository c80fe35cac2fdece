"""An example as a process of its own."""

import sys
from pathlib import Path
from typing import Any, Self

from treq.client import HTTPClient
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent

from storagegate.net.endpoints import processReactor
from tests.support.daemon import CHECKOUT, START_SECONDS, Daemon

EXAMPLES = CHECKOUT / "examples"


class Example(Daemon):
    """
    An example that is running.

    @ivar base: Its URL, without a slash at the end, or where there is none its address.
    """

    base: str

    def __init__(self, name: str, directory: Path) -> None:
        """
        @param name: That of the file, without its suffix.
        @param directory: Where it runs.
        """
        super().__init__(directory, directory=directory)
        self._command = [sys.executable, str(EXAMPLES / f"{name}.py"), "0"]

    def start(self) -> Self:
        """
        Start it, and wait until it says where it listens.

        @raise DaemonFailed: If it ends instead.
        """
        self.launch()
        self.base = self.waitForLog(r"listening on (\S+:\d+)\n", START_SECONDS)[1]
        return self

    @property
    def place(self) -> tuple[str, int]:
        """Give the address of its listener."""
        host, _colon, port = self.base.removeprefix("http://").rpartition(":")
        return host, int(port)


class ExampleCase(TestCase):
    """
    A test with a running example and a client that keeps cookies.

    @ivar name: That of the example.
    """

    name: str

    def setUp(self) -> None:
        """Start both."""
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        self.directory = directory
        self.example = Example(self.name, directory)
        self.addCleanup(self.example.kill)
        self.example.start()
        self.client = self.makeClient()

    def makeClient(self) -> HTTPClient:
        """Make a client with a jar of its own."""
        return HTTPClient(Agent(processReactor()))

    async def ask(self, method: str, path: str, **options: Any) -> Any:
        """Ask for something."""
        return await self.client.request(method, self.example.base + path, **options)
