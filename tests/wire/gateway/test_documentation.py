"""The programs and commands of the page on the gateway, run as a reader would."""

import json
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase
from websockets.sync.client import connect

from tests.support.daemon import START_SECONDS, daemonEnvironment
from tests.support.documents import DOCS, codeBlocks
from tests.support.ports import heldPort
from tests.support.prompts import runAwaitingBlocks

PAGE = DOCS / "gateway.rst"

PORTS = (8080, 50051, 9102)
DATAGRAMS = 9103

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
"""What curl sends unasked."""


def freePorts(case: TestCase) -> dict[int, int]:
    """Give a free port in place of each of the page's."""
    free = {number: heldPort(case) for number in PORTS}
    # Nobody shares one of datagrams, which others rarely take.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        free[DATAGRAMS] = taken.getsockname()[1]
    return free


class PageTests(TestCase):
    """Each command and each program of the page, in their order."""

    timeout = 120

    async def setUp(self) -> None:
        """Write the page with free ports, and serve what it serves."""
        ports = freePorts(self)
        directory = Path(self.mktemp())
        directory.mkdir()
        text = re.sub(
            r"\b(8080|50051|9102|9103)\b",
            lambda found: str(ports[int(found[1])]),
            PAGE.read_text().replace("settimeout(2)", f"settimeout({START_SECONDS})"),
        )
        self.page = directory / "gateway.rst"
        self.page.write_text(text)
        self.session = directory / "session.rst"
        self.blocks = codeBlocks(self.page, "python", "sh", "javascript", "text", "pycon")
        names: dict[str, Any] = {"__name__": "documentation"}
        exec(compile(self.blocks[0].code, str(PAGE), "exec"), names)
        gateway = names["gateway"]
        # The program has the defaults, which its text does not name.
        gateway.configureFor({"grpc": {"port": ports[50051]}, "tcp": {"port": ports[9102]}})
        gateway.configureFor({"port": ports[8080], "udp": {"port": ports[9103]}})
        self.addCleanup(gateway.stop, 0)
        await gateway.listen()

    async def test_page(self) -> None:
        """Every wire says what the page says that it says."""
        blocks = self.blocks[1:]
        said = [block.language for block in blocks]
        self.assertEqual((said.count("text"), said.count("pycon")), (5, 2))
        for at, block in enumerate(blocks):
            if block.language == "text":
                answer = await self.produce(blocks[at - 1])
                self.assertEqual(normal(answer), normal(block.code), block.line)
            elif block.language == "pycon":
                await self.prompt(block)

    async def produce(self, block: Any) -> str:
        """Do what a block says, and give what comes."""
        does = {"sh": self.command, "javascript": self.script, "python": self.program}
        return await deferToThread(does[block.language], block.code)

    def command(self, code: str) -> str:
        """Do what curl or nc would, which need not be there."""
        words = shlex.split(code)
        if words[0] == "echo":
            host, port = words[-2:]
            with socket.create_connection((host, int(port)), START_SECONDS) as peer:
                peer.sendall(words[1].encode() + b"\n")
                peer.shutdown(socket.SHUT_WR)
                with peer.makefile() as answer:
                    return answer.read()
        self.assertEqual(words[0], "curl")
        body = words[words.index("-d") + 1].encode() if "-d" in words else b""
        fields = FORM if body else {"Content-Length": "0"}
        with urlopen(Request(words[-1], body, fields), timeout=START_SECONDS) as response:
            return str(response.read().decode())

    def script(self, code: str) -> str:
        """Open the WebSocket and send the message that the script does."""
        [url], [message] = re.findall(r'"(ws://.*)"', code), re.findall(r"^ *(\{.*\})$", code, re.M)
        with connect(url, origin=url.replace("ws://", "http://").removesuffix("/ws")) as peer:
            peer.send(message)
            return str(peer.recv(START_SECONDS))

    def program(self, code: str) -> str:
        """Run a program."""
        ran = subprocess.run(
            [sys.executable, "-c", code],
            env=daemonEnvironment(),
            capture_output=True,
            timeout=START_SECONDS,
            check=True,
            text=True,
        )
        return ran.stdout

    async def prompt(self, block: Any) -> None:
        """Type in a session."""
        lines = "".join(f"    {line}\n" for line in block.code.splitlines())
        self.session.write_text(f".. code-block:: pycon\n\n{lines}")
        await runAwaitingBlocks(self.session)


def normal(said: str) -> list[Any]:
    """Read what was said, without the time at which it was."""
    return [
        {**json.loads(line), "timestamp": 0} if line.startswith("{") else line
        for line in said.strip().splitlines()
    ]
