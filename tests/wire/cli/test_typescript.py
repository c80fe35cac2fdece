"""The clients in TypeScript: compiled, and run in node and in Chromium against a gateway."""

import atexit
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from shutil import copy, rmtree
from tempfile import mkdtemp
from typing import Any

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase

from storagegate import server
from storagegate.cli.main import main
from storagegate.http import staticFiles
from tests.support import everygateway
from tests.support.browser import Browser
from tests.support.documents import DOCS, codeBlocks
from tests.support.modules import CHECKOUT
from tests.support.nodepackages import nodeModules
from tests.support.programs import needs
from tests.support.selection import long

TYPESCRIPT = "typescript@5.9.3"

_SECONDS = 120

_STRICT = (
    "--strict",
    "--declaration",
    "--noUnusedLocals",
    "--noUnusedParameters",
    "--noUncheckedIndexedAccess",
    "--exactOptionalPropertyTypes",
    "--target",
    "es2022",
    "--module",
    "esnext",
    "--moduleResolution",
    "bundler",
    "--lib",
    "es2022,dom,dom.iterable,dom.asynciterable",
)

_NODE = """
import { checkRoutes, checkServices } from "./everygatewayclient.js";
const [http, socket] = process.argv.slice(2);
console.log(JSON.stringify([
    await checkServices(`${http}/api`),
    await checkServices(socket),
    await checkRoutes(http),
]));
"""

WISH = {"name": "tea", "color": "red", "kind": None, "tags": []}

SERVICES: dict[str, Any] = {
    "isSame": True,
    "shape": 1.5,
    "color": "dark blue",
    "watched": 2,
    "added": {"count": 2},
    "chatted": [2, 2],
    "tags": ["a", "b"],
    "found": None,
    "wish": WISH,
    "failed": ["SOLD_OUT", "There is no tea", {"left": 0}],
    "invalid": [
        "VALIDATION_ERROR",
        "id expected int, got str",
        [{"path": "id", "message": "expected int, got str"}],
    ],
    "late": ["DEADLINE_EXCEEDED", "The deadline has passed", None],
    "cancelled": ["CANCELLED", "The call was cancelled", None],
    "ticks": 3,
    "broken": ["tea & \u2603"],
    "ended": ["ENOUGH", "One is enough", None],
    "token": [{"token": "t"}, {"token": "u"}],
    "evil": {"a": 1},
    "then": {"b": 1},
    "reopened": "a",
    "refused": "UNAVAILABLE",
}

ROUTES: dict[str, Any] = {
    "wishes": [["a/b c", "dark blue"]],
    "added": {**WISH, "tags": ["x"]},
    "failed": ["BAD_WISH", "It is bad", {"name": "bad"}],
    "removed": None,
}


def run(*command: str, folder: Path) -> str:
    """Run a program in a folder and return its output. Blocks."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@cache
def compiled() -> Path:
    """
    Print the clients, and compile them with the program that uses them. Blocks.

    @return: The folder of the compiled files.
    """
    folder = Path(mkdtemp(prefix="storagegate-typescript-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    modules = nodeModules(TYPESCRIPT)
    for name in ("gateway", "app"):
        out = str(folder / f"{name}.ts")
        with redirect_stdout(StringIO()):
            target = f"tests.support.everygateway:{name}"
            assert main(["client", target, "--typescript", "--out", out]) == 0
    copy(CHECKOUT / "tests" / "support" / "everygatewayclient.ts", folder)
    program = str(modules / "typescript" / "bin" / "tsc")
    run("node", program, *_STRICT, "everygatewayclient.ts", folder=folder)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "run.js").write_text(_NODE)
    (folder / "index.html").write_text("<!doctype html><title>calls</title>")
    return folder


@long("compiles TypeScript")
@needs("node", "npm")
class PageTests(SynchronousTestCase):
    """The example of the page on the gateway."""

    def test_compiles(self) -> None:
        """The program of the page fits the client of the service on the page."""
        page = DOCS / "gateway.rst"
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        [orders] = [
            block.code
            for block in codeBlocks(page, "python")
            if block.code.startswith("# orders.py\n")
        ]
        (folder / "orders.py").write_text(orders)
        [command] = [block.code for block in codeBlocks(page, "sh") if "--typescript" in block.code]
        run(sys.executable, "-m", *command.split(), folder=folder)
        [program] = codeBlocks(page, "typescript")
        (folder / "shop.ts").write_text(program.code)
        compiler = str(nodeModules(TYPESCRIPT) / "typescript" / "bin" / "tsc")
        run("node", compiler, *_STRICT, "shop.ts", folder=folder)


@long("compiles TypeScript")
@needs("node", "npm")
class ClientTests(TestCase):
    """One application with the routes, the gateway and the compiled files."""

    timeout = 240

    async def setUp(self) -> None:
        """Compile, and serve."""
        from twisted.internet import reactor

        self.folder = await deferToThread(compiled)
        app = server.http()
        app.use(everygateway.app)
        app.use("/api", everygateway.gateway.middleware())
        app.use("/files", staticFiles(str(self.folder)))
        app.withOptions(**everygateway.gateway.getWebSocketConfig())
        port = await app.listen(0, "127.0.0.1", reactor=reactor)
        self.addCleanup(app.close, 0)
        number = port.getHost().port
        self.http, self.socket = f"http://127.0.0.1:{number}", f"ws://127.0.0.1:{number}/ws"
        everygateway.ticking.clear()

    def check(self, text: str) -> None:
        """See that all calls had their results, and that streams that were left have ended."""
        overHTTP, overSocket, routes = json.loads(text)
        self.assertEqual(overHTTP, SERVICES)
        self.assertEqual(overSocket, SERVICES)
        self.assertEqual(routes, ROUTES)
        self.assertEqual(everygateway.ticking, ["ended", "ended"])

    async def test_node(self) -> None:
        """Every call over HTTP and WebSocket, in node."""
        command = ("node", "--experimental-websocket", "--no-warnings", "run.js")
        self.check(await deferToThread(run, *command, self.http, self.socket, folder=self.folder))

    @needs("chromium")
    async def test_chromium(self) -> None:
        """The same in a browser."""

        def browse() -> str:
            with Browser() as page:
                page.open(f"{self.http}/files/index.html")
                page.wait("location.pathname === '/files/index.html'")
                found: str = page.evaluate(
                    "import('/files/everygatewayclient.js').then(async (calls) => JSON.stringify(["
                    " await calls.checkServices('/api'),"
                    f" await calls.checkServices({self.socket!r}),"
                    " await calls.checkRoutes('')]))"
                )
                return found

        self.check(await deferToThread(browse))
