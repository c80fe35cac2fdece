"""C{docs/tutorial.rst}, followed by a reader who types every block and every command."""

import doctest
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import TestResult, defaultTestLoader
from urllib.request import Request, urlopen

from twisted.trial.unittest import SynchronousTestCase
from websockets.sync.client import connect

from storagegate import GrpcError
from storagegate.cli.commandline import parser
from storagegate.cli.main import main
from storagegate.http.testing import Client, CookieJar
from storagegate.rpc.testing import RPCTestClient
from tests.examples.support import EXAMPLES
from tests.support.daemon import Daemon
from tests.support.documents import (
    DOCS,
    FLAGS,
    Block,
    applyDiff,
    codeBlocks,
    commands,
    packageFile,
)
from tests.support.ports import heldPort, waitForPort
from tests.support.programs import needs
from tests.support.selection import long

PAGE = DOCS / "tutorial.rst"
STEPS = range(1, 10)
SECONDS = 60
ADA = {"name": "ada", "password": "correct horse"}


def blocksOf(step: int, *languages: str) -> list[Block]:
    """Return the blocks of a step in some languages."""
    text = PAGE.read_text()
    starts = [match.start() for match in re.finditer(r"^\d\. .*\n-+\n", text, re.MULTILINE)]
    assert len(starts) == len(STEPS), starts
    first, last = (
        text.count("\n", 0, start) for start in [*starts, len(text)][step - 1 : step + 1]
    )
    return [each for each in codeBlocks(PAGE, *languages) if first < each.line <= last]


def filesOf(step: int) -> dict[str, str]:
    """Return the files of the reader after a step, by path."""
    files = {"notes/__init__.py": ""}
    for number in range(1, step + 1):
        for block in blocksOf(number, "python", "diff"):
            path = packageFile(block)
            if path is None:
                applyDiff(block.code, files)
            else:
                files[path] = block.code.partition("\n")[2].rstrip("\n") + "\n"
    return files


class TutorialCase(SynchronousTestCase):
    """A test in the directory of the reader."""

    def setUp(self) -> None:
        """Make the directory the current one."""
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(directory)
        self.patch(sys, "path", [str(directory), *sys.path])
        # Files of one size that change within a second must not be taken from a cache.
        self.patch(sys, "dont_write_bytecode", True)
        self.addCleanup(self.forget)

    def forget(self) -> None:
        """Forget the imported modules of the reader."""
        for name in [each for each in sys.modules if each.partition(".")[0] == "notes"]:
            del sys.modules[name]
        importlib.invalidate_caches()

    def write(self, step: int) -> None:
        """Write the files of a step."""
        self.forget()
        Path("notes").mkdir(exist_ok=True)
        for path, text in filesOf(step).items():
            Path(path).write_text(text)

    def module(self, name: str) -> Any:
        """Import a module of the reader."""
        return importlib.import_module(f"notes.{name}")

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Make a client of the application, which closes at the end."""
        app = self.module("app").makeApplication()
        yield Client(app)
        self.successResultOf(app.close())


class SessionTests(TutorialCase):
    """The commands and their output, in order."""

    def test_sessions(self) -> None:
        """Each step prints what the page says, on the data of the steps before."""
        count = 0
        for step in STEPS:
            self.write(step)
            with self.client() as client:
                for block in blocksOf(step, "console"):
                    for command in commands(block.code):
                        output = self.runCommand(client, command.text)
                        said = doctest.OutputChecker().check_output(
                            command.output.strip() + "\n", output.strip() + "\n", FLAGS
                        )
                        self.assertTrue(said, f"step {step}: {command.text}\n{output}")
                        count += 1
        self.assertGreater(count, 15)

    def runCommand(self, client: Client, command: str) -> str:
        """Run a command of the reader, and return its output."""
        words = shlex.split(command)
        if words[0] == "curl":
            return self.curl(client, words[1:])
        if words[0] == "storagegate":
            with redirect_stdout(StringIO()) as output:
                main(words[1:])
            return output.getvalue()
        ran = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
        return ran.stdout

    def curl(self, client: Client, words: list[str]) -> str:
        """Do what curl does with these arguments."""
        flags = dict(zip(words[:-1:2], words[1:-1:2], strict=True))
        self.assertLessEqual(set(flags), {"-b", "-c", "-X", "-F", "--json"})
        path = "/" + words[-1].partition("/")[2]
        options: dict[str, Any] = {}
        if "--json" in flags:
            options = {"body": flags["--json"], "headers": {"content-type": "application/json"}}
        if "-F" in flags:
            name, _, file = flags["-F"].partition("=@")
            options = {"files": {name: (file, Path(file).read_bytes(), "text/plain")}}
        jar = client.cookies
        if not {"-b", "-c"} & set(flags):
            client.cookies = CookieJar(client.now)
        elif "-b" in flags:
            client.cookies.set("notes", Path("jar").read_text())
        response = client.request(flags.get("-X", "POST" if options else "GET"), path, **options)
        if "-c" in flags:
            Path("jar").write_text(client.cookies["notes"])
        client.cookies = jar
        return response.text

    def test_commands(self) -> None:
        """The command line understands the other commands."""
        lines = [
            line
            for step in STEPS
            for block in blocksOf(step, "sh")
            for line in block.code.splitlines()
            if line.startswith("storagegate ")
        ]
        self.assertEqual(len(lines), 2)
        for line in lines:
            options = parser().parse_args(shlex.split(line)[1:])
            self.assertEqual(options.command.path, "run")


class StepTests(TutorialCase):
    """The promises of each step beside its output."""

    def test_hello(self) -> None:
        """Step 1 has the page and a middleware."""
        self.write(1)
        with self.client() as client:
            response = client.get("/")
            self.assertEqual(response.headers["x-notes"], "1")
            self.assertIn("text/html", response.headers["content-type"])

    def test_typedNotes(self) -> None:
        """Step 2 names all mistakes, and describes its routes."""
        self.write(2)
        with self.client() as client:
            self.assertEqual(client.post("/notes", json={"text": "a"}).status, 201)
            details = client.post("/notes", json={"text": "", "tags": 7}).json()["details"]
            self.assertEqual([each["path"] for each in details], ["text", "tags"])
            self.assertEqual(client.get("/notes?limit=0").status, 400)
            self.assertIn("/notes/{id}", client.get("/openapi.json").json()["paths"])

    def test_store(self) -> None:
        """Step 3 keeps the notes, and changes no handler."""
        before, after = filesOf(2), filesOf(3)
        changed = {path for path in after if before.get(path) != after[path]}
        self.assertEqual(changed, {"notes/store.py"})
        self.write(3)
        for _run in range(2):
            with self.client() as client:
                client.post("/notes", json={"text": "a"})
                found = [note["id"] for note in client.get("/notes").json()]
        self.assertEqual(found, [1, 2])

    def logIn(self, client: Client) -> str:
        """Make an account and log in; return the token."""
        self.assertEqual(client.post("/users", json=ADA).status, 201)
        token: str = client.post("/login", json=ADA).json()["token"]
        return token

    def test_login(self) -> None:
        """Step 4 accepts the cookie and the token, and refuses another site."""
        self.write(4)
        with self.client() as client:
            token = self.logIn(client)
            self.assertEqual(client.post("/notes", json={"text": "a"}).status, 201)
            foreign = {"origin": "http://elsewhere.example"}
            refused = client.post("/notes", json={"text": "a"}, headers=foreign)
            self.assertEqual(refused.status, 403)
            client.cookies.clear()
            bearer = {"authorization": f"Bearer {token}"}
            self.assertEqual(client.delete("/notes/1", headers=bearer).status, 204)

    def test_uploads(self) -> None:
        """Step 5 removes the files of a removed note."""
        self.write(5)
        with self.client() as client:
            self.logIn(client)
            client.post("/notes", json={"text": "a"})
            files = {"file": ("a.txt", b"content", "text/plain")}
            self.assertEqual(client.post("/notes/1/attachments", files=files).status, 201)
            self.assertEqual(len(list(Path("notes-data/uploads").iterdir())), 1)
            self.assertEqual(client.delete("/notes/1").status, 204)
            self.assertEqual(list(Path("notes-data/uploads").iterdir()), [])
            self.assertEqual(client.get("/attachments/1").status, 404)

    def test_feed(self) -> None:
        """Step 6 sends a note to WebSockets."""
        self.write(6)
        with self.client() as client:
            self.logIn(client)
            socket = client.websocket("/feed")
            client.post("/notes", json={"text": "a"})
            self.assertEqual(socket.receiveJSON(), {"author": "ada", "text": "a"})
            socket.close()

    def test_calls(self) -> None:
        """Step 7 serves the same notes over gRPC, with the same login."""
        self.write(7)
        with self.client() as client:
            token = self.logIn(client)
            client.post("/notes", json={"text": "a"})
            server = self.module("calls").makeServer()
            server.dependencies = client.app.dependencies
            rpc = RPCTestClient(server)
            metadata = {"authorization": f"Bearer {token}"}
            [note] = rpc.call("Notes/find", {}, metadata=metadata)
            self.assertEqual((note["author"], note["text"]), ("ada", "a"))
            refused = self.assertRaises(GrpcError, rpc.call, "Notes/find", {})
            self.assertEqual(refused.statusName, "UNAUTHENTICATED")

    def test_tests(self) -> None:
        """The tests of step 8 pass there and in step 9, as many as the page says."""
        for step in (8, 9):
            self.write(step)
            result = TestResult()
            case = self.module("test_notes").NotesTests
            defaultTestLoader.loadTestsFromTestCase(case).run(result)
            self.assertTrue(result.wasSuccessful(), result.errors + result.failures)
            [count] = re.findall(r"``Ran (\d+) tests``", PAGE.read_text())
            self.assertEqual(result.testsRun, int(count))

    def test_example(self) -> None:
        """Step 9 is the example, file by file."""
        files = filesOf(9)
        folder = EXAMPLES / "notes"
        paths = [f"notes/{path.name}" for path in folder.glob("*.py")]
        self.assertEqual(sorted(files), sorted(paths))
        for path in set(files) - {"notes/__init__.py"}:
            self.assertEqual(files[path], (EXAMPLES / path).read_text(), path)


class Program(Daemon):
    """The program of step 9, with two workers on free ports."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, directory=directory, expect=("http", "grpc"))
        addresses = ["127.0.0.1:0", "127.0.0.1:0"]
        self._command = [sys.executable, "-m", "notes", *addresses, "2"]


@long("starts nginx and two workers")
@needs("nginx")
class ProductionTests(TutorialCase):
    """Step 9, behind nginx with the file of the page."""

    def test_feed(self) -> None:
        """A note that one worker takes reaches the WebSockets of both."""
        self.write(9)
        program = Program(Path.cwd())
        self.addCleanup(program.kill)
        program.start()
        program.waitForLog("2 workers are serving")
        port = self.startNginx(program.address("http")[1])
        self.post(port, "users", ADA)
        token = self.post(port, "login", ADA)["token"]
        login = {"Authorization": f"Bearer {token}"}
        place = f"ws://127.0.0.1:{port}/feed"
        # The kernel hands each connection to either worker.
        sockets = [
            self.enterContext(connect(place, additional_headers=login, open_timeout=SECONDS))
            for _each in range(8)
        ]
        for number in range(4):
            self.post(port, "notes", {"text": f"{number}"}, login)
        for socket in sockets:
            texts = [json.loads(socket.recv(SECONDS))["text"] for _each in range(4)]
            self.assertEqual(sorted(texts), ["0", "1", "2", "3"])
        for socket in sockets:
            socket.close()
        self.assertEqual(program.stop(), 0)

    def startNginx(self, there: int) -> int:
        """Start nginx before the port of the program; return its own port."""
        [block] = blocksOf(9, "nginx")
        port = heldPort(self)
        text = block.code.replace("127.0.0.1:8000", f"127.0.0.1:{port}")
        text = text.replace("127.0.0.1:3000", f"127.0.0.1:{there}")
        folders = "".join(
            f"{name}_temp_path {Path.cwd() / name};\n"
            for name in ("client_body", "proxy", "fastcgi", "scgi", "uwsgi")
        )
        text = text.replace("/run/notes-nginx.pid", "nginx.pid")
        text = text.replace("http {\n", f"http {{\n{folders}", 1)
        Path("nginx.conf").write_text(f"daemon off;\nuser root;\n{text}")
        with Path("nginx.log").open("wb") as log:
            process = subprocess.Popen(
                ["nginx", "-p", str(Path.cwd()), "-c", "nginx.conf", "-e", "stderr"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        waitForPort(port, process)
        return port

    def post(self, port: int, path: str, value: object, headers: Mapping[str, str] = {}) -> Any:
        """Send JSON, and return the JSON of the answer."""
        fields = {"Content-Type": "application/json", **headers}
        request = Request(f"http://127.0.0.1:{port}/{path}", json.dumps(value).encode(), fields)
        with urlopen(request, timeout=SECONDS) as response:
            return json.load(response)
