"""Clients of other languages, and typed ones, of a service whose messages are made of types."""

import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase

from storagegate import GrpcError, createGrpcClient, loadProto
from storagegate.cli.main import main
from tests.support.everytype import NOTE, SERVICE, Count, NoteId, Notes, Tag, makeServer
from tests.support.modules import CHECKOUT
from tests.support.nodepackages import nodeModules
from tests.support.selection import long

BUF = "@bufbuild/buf@1.75.0"

_SUPPORT = CHECKOUT / "tests" / "support"

_SECONDS = 60


def run(*command: str, **environment: str) -> str:
    """Run a program and return its output. Blocks."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), **environment},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def printed(folder: Path, target: str = "tests.support.everytype:app", *more: str) -> Path:
    """Print the file of a service."""
    path = folder / "notes.proto"
    lock = str(folder / "notes.proto.lock")
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        code = main(["proto", target, "--lock", lock, "--out", str(path), *more])
    assert code == 0
    return path


class TypedClientTests(TestCase):
    """A server, and the client that has its types."""

    timeout = 60

    async def setUp(self) -> None:
        """Serve."""
        from twisted.internet import reactor

        app = makeServer()
        port = await app.listen(0, "127.0.0.1", reactor=reactor)
        self.addCleanup(app.stop, 0)
        self.address = f"127.0.0.1:{port.getHost().port}"

    async def check(self, service: Any) -> None:
        """Call each method with a client."""
        async with createGrpcClient(
            self.address, credentials="insecure", service=service, types=Notes
        ) as client:
            calls = client.callsWith(deadlineMs=20_000)
            self.assertEqual(await calls.Get(NoteId(2)), NOTE)
            self.assertEqual(await calls.Echo(NOTE), NOTE)
            self.assertEqual([each async for each in calls.Watch(NoteId(2))], [NOTE, NOTE])

            async def notes() -> Any:
                yield NOTE
                yield NOTE

            self.assertEqual(await calls.Add(notes()), Count(2))
            self.assertEqual([each async for each in calls.Chat(notes())], [NOTE, NOTE])
            self.assertEqual(await calls.Tags(NoteId(2)), [Tag("a"), Tag("b")])
            self.assertEqual([await calls.Find(NoteId(each)) for each in (0, 1)], [None, Tag("a")])
            wrong: Any = "x"
            try:
                await client.calls.Get(NoteId(wrong))
            except ValueError as error:
                self.assertEqual(str(error), "id: expected int, got str")
            else:
                self.fail("the request fits")

    async def test_types(self) -> None:
        """Calls take and return instances."""
        await self.check(SERVICE)

    async def test_loaded(self) -> None:
        """So do they with the messages of the printed file."""
        folder = Path(self.mktemp())
        folder.mkdir()
        await self.check(loadProto(printed(folder)).Notes)

    async def test_error(self) -> None:
        """A failure is a C{GrpcError}."""
        async with createGrpcClient(
            self.address, credentials="insecure", service="notes.v1.Other", types=Notes
        ) as client:
            try:
                await client.calls.Get(NoteId(2))
            except GrpcError as error:
                self.assertEqual(error.statusName, "UNIMPLEMENTED")
            else:
                self.fail("there is no such service")

    @long("runs protoc and a program")
    async def test_stubs(self) -> None:
        """A client with stubs of protoc reads and sends every type."""
        folder = Path(self.mktemp())
        folder.mkdir()
        path = printed(folder)
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", str(path)]
        outputs = [f"--python_out={folder}", f"--grpc_python_out={folder}"]
        await deferToThread(run, *command, *outputs)
        program = str(_SUPPORT / "everytypeclient.py")
        found = json.loads(
            await deferToThread(run, sys.executable, program, str(folder), self.address)
        )
        self.assertEqual(
            found,
            {
                "isSame": True,
                "made": "2026-01-02T03:04:05.678901Z",
                "took": -86398.5,
                "color": "COLOR_DARK_BLUE",
                "shape": ["shape_square", 1.5],
                "byNumber": 3600,
                "child": 1,
                "maybe": [True, False],
                "watched": [True, True],
                "added": 2,
                "chatted": [True, True],
                "tags": ["a", "b"],
                "found": [False, True],
                "error": ["INVALID_ARGUMENT", "id is required"],
            },
        )

    @long("installs npm packages")
    async def test_node(self) -> None:
        """So does a client of node with the file itself."""
        modules = await deferToThread(nodeModules)
        folder = Path(self.mktemp())
        folder.mkdir()
        path = printed(folder)
        program = str(_SUPPORT / "everytypeclient.js")
        output = await deferToThread(
            run, "node", program, str(path), self.address, NODE_PATH=str(modules)
        )
        self.assertEqual(
            json.loads(output),
            {
                "color": "COLOR_DARK_BLUE",
                "shape": "shapeSquare",
                "side": 1.5,
                "took": [-86398, -500_000_000],
                "grid": [[1], [], [2, 3]],
                "byName": "x",
                "watched": 2,
            },
        )


@long("installs an npm package")
class BufTests(SynchronousTestCase):
    """The checks of buf."""

    def setUp(self) -> None:
        """Print the file where buf looks for its package."""
        self.buf = str(nodeModules(BUF) / ".bin" / "buf")
        self.root = Path(self.mktemp()).absolute()
        self.folder = self.root / "notes" / "v1"
        self.folder.mkdir(parents=True)
        printed(self.folder)

    def configure(self, **sections: Any) -> None:
        """Write buf's configuration."""
        (self.root / "buf.yaml").write_text(json.dumps({"version": "v2", **sections}))

    def test_lint(self) -> None:
        """It passes the standard rules, but those that a message for each method would need."""
        messages = ["RPC_REQUEST_STANDARD_NAME", "RPC_RESPONSE_STANDARD_NAME"]
        excepted = [*messages, "RPC_REQUEST_RESPONSE_UNIQUE", "SERVICE_SUFFIX"]
        self.configure(lint={"use": ["STANDARD"], "except": excepted})
        run(self.buf, "lint", str(self.root))

    def test_breaking(self) -> None:
        """A changed class, with the same lock, breaks neither the wire nor JSON."""
        self.configure(breaking={"use": ["WIRE_JSON"]})
        before = Path(self.mktemp()).absolute()
        (before / "notes" / "v1").mkdir(parents=True)
        for name in ("notes/v1/notes.proto", "buf.yaml"):
            (before / name).write_text((self.root / name).read_text())
        program = (CHECKOUT / "tests" / "support" / "everytype.py").read_text()
        changed = program.replace("    id: int\n    text: str\n", "    body: int\n    id: int\n")
        changed = changed.replace('        text="tea & \\u2603",\n', "        body=5,\n")
        changed = changed.replace("    darkBlue =", '    GREEN = "green"\n    darkBlue =')
        self.assertNotEqual(changed, program)
        (self.root / "changedtypes.py").write_text(changed)
        sys.path.insert(0, str(self.root))
        self.addCleanup(sys.path.remove, str(self.root))
        self.addCleanup(sys.modules.pop, "changedtypes", None)
        path = printed(self.folder, "changedtypes:app")
        self.assertIn('reserved "text";', path.read_text())
        run(self.buf, "breaking", str(self.root), "--against", str(before))
        # Without the lock, the same change breaks the wire.
        (self.folder / "notes.proto.lock").unlink()
        printed(self.folder, "changedtypes:app")
        self.assertRaises(
            AssertionError, run, self.buf, "breaking", str(self.root), "--against", str(before)
        )
