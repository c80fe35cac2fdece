"""Scripts and C{storagegate run} with workers, in real processes."""

import http.client
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.selection import long
from tests.support.servedprogram import SECONDS, ServedProgram

# Without a guard: each process that runs the script reaches run().
SCRIPT = """\
import os
from storagegate import server
from helper import WORD

with open("starts", "a") as starts:
    starts.write(f"{os.getpid()} ")
app = server.http()
app.get("/", lambda req, res: res.send(f"{WORD} {os.getpid()}"))
app.run(0, workers=2)
"""

MODULE = """\
import os
from storagegate import server
from storagegate.http import rateLimit, session
from helper import WORD

app = server.http()
app.use("/limited", rateLimit(60_000, max=5))
app.use("/session", session(secret="0123456789abcdef0123456789abcdef"))

@app.get("/")
def index(req, res):
    res.send(f"{WORD} {os.getpid()}")

@app.get("/limited")
def limited(req, res):
    res.send("admitted")

@app.get("/slow")
async def slow(req, res):
    res.write("begun")
    while not os.path.exists("go"):
        await app.runtime.run(os.stat, ".")
    res.end(" and ended")

heard = []
server.subscribe("news", heard.append)

@app.get("/tell")
def tell(req, res):
    server.broadcast("news", "hello")
    res.send("told")

@app.get("/heard")
def showHeard(req, res):
    res.json({"pid": os.getpid(), "heard": heard})

def create():
    return app
"""


class WorkersCase(SynchronousTestCase):
    """A test with programs in a directory of its own."""

    def setUp(self) -> None:
        """Make the directory."""
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        self.write("helper.py", 'WORD = "one"\n')

    def write(self, name: str, text: str) -> None:
        """Write a file as editors do: another one, renamed."""
        new = self.directory / (name + "~")
        new.write_text(text)
        os.replace(new, self.directory / name)

    def start(self, *arguments: str) -> ServedProgram:
        """Start C{storagegate run} with the module C{shop}."""
        self.write("shop.py", MODULE)
        return ServedProgram(self, self.directory, "-m", "storagegate", "run", *arguments)

    def pids(self, program: ServedProgram, count: int = 2) -> set[str]:
        """Ask until as many workers as expected have answered; return their process IDs."""
        found: set[str] = set()
        while len(found) < count:
            found.add(program.ask().split()[1])
        return found


@long("starts processes")
class ScriptTests(WorkersCase):
    """A script that calls C{run(workers=2)}."""

    def test_script(self) -> None:
        """
        Each worker runs the script once, and so does the first process, even without a guard; all
        end gracefully.
        """
        self.write("app.py", SCRIPT)
        program = ServedProgram(self, self.directory, "app.py")
        workers = self.pids(program)
        started = (self.directory / "starts").read_text().split()
        self.assertEqual(started[0], str(program.process.pid))
        self.assertEqual(set(started[1:]), workers)
        self.assertEqual(program.stop(), 0)
        self.assertEqual(len((self.directory / "starts").read_text().split()), 3)
        for pid in workers:
            self.assertRaises(ProcessLookupError, os.kill, int(pid), 0)

    def test_unrepeatable(self) -> None:
        """A program that cannot be started again is refused, and does not fork."""
        text = "from storagegate import server; server.http().run(0, workers=2)"
        program = ServedProgram(
            self,
            self.directory,
            "-c",
            f"import multiprocessing as m; m.set_start_method('spawn');"
            f"process = m.Process(target=exec, args=({text!r},)); process.start(); process.join()",
        )
        program.end()
        self.assertIn("workers need a program that can be started again", program.log)
        self.assertEqual(program.log.count("workers need"), 1)

    def test_taken(self) -> None:
        """A port that is taken ends the program before workers start, with its name."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.write("app.py", SCRIPT.replace("run(0,", f"run({port},"))
            program = ServedProgram(self, self.directory, "app.py")
            self.assertEqual(program.end(), 1)
        self.assertIn(f"cannot listen name=http endpoint=tcp:{port}", program.log)
        self.assertEqual(len((self.directory / "starts").read_text().split()), 1)

    def test_failedStart(self) -> None:
        """A worker that fails to start ends the program with its reason."""
        self.write(
            "app.py",
            SCRIPT.replace("app.run", "import helper\nhelper.check()\napp.run").replace(
                'starts.write(f"{os.getpid()} ")', "pass"
            ),
        )
        self.write(
            "helper.py",
            'import os\nWORD = "one"\ndef check():\n'
            '    if os.path.exists("checked"): raise OSError("the fuse has blown")\n'
            '    open("checked", "w").close()\n',
        )
        program = ServedProgram(self, self.directory, "app.py")
        self.assertEqual(program.end(), 1)
        self.assertIn("storagegate: OSError: the fuse has blown", program.log)


@contextmanager
def load(program: ServedProgram, answers: list[str]) -> Iterator[None]:
    """Make requests, on kept and on new connections, until the end; collect the bodies."""
    port = program.port()
    ending = threading.Event()
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            while not ending.is_set():
                with closing(
                    http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
                ) as client:
                    for _ in range(20):
                        client.request("GET", "/")
                        response = client.getresponse()
                        answers.append(response.read().decode())
                        if response.status != 200:
                            raise AssertionError(response.status)
                        if response.getheader("Connection") == "close":
                            break
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        for thread in threads:
            thread.join(SECONDS)
        if errors:
            raise errors[0]


@long("starts processes")
class ReloadTests(WorkersCase):
    """C{SIGHUP} and C{--reload}."""

    def test_underLoad(self) -> None:
        """A reload loses no request, and afterwards all workers have the new code."""
        program = self.start("shop:app", "--workers", "2", "--http", "0")
        program.wait("2 workers are serving")
        old = self.pids(program)
        answers: list[str] = []
        with load(program, answers):
            self.write("helper.py", 'WORD = "another"\n')
            program.signal(signal.SIGHUP)
            program.wait("reloaded the program")
            program.until(lambda text: text.startswith("another"))
        self.assertEqual({each.split()[0] for each in answers}, {"one", "another"})
        new = self.pids(program)
        self.assertFalse(old & new)
        self.assertTrue(all(program.ask().startswith("another") for _ in range(10)))
        self.assertEqual(program.stop(), 0)

    def test_broken(self) -> None:
        """Code that does not load leaves the old workers serving, with the reason in the log."""
        program = self.start("shop:app", "--workers", "2", "--http", "0")
        old = self.pids(program)
        self.write("helper.py", "WORD = \n")
        program.signal(signal.SIGHUP)
        found = program.wait("reload refused.*")
        self.assertIn("the old code continues to serve: SyntaxError: invalid syntax", found)
        self.assertEqual(self.pids(program), old)
        self.write("helper.py", 'WORD = "repaired"\n')
        program.signal(signal.SIGHUP)
        program.wait("reloaded the program")
        self.assertIn("repaired", program.ask())

    def test_newListener(self) -> None:
        """New code with another listener is refused: the supervisor has bound the old ones."""
        program = self.start("shop:create()", "--http", "0")
        program.wait("1 workers are serving")
        self.write(
            "shop.py",
            MODULE.replace("return app", "return server.serve(app, server.grpc())"),
        )
        program.signal(signal.SIGHUP)
        found = program.wait("reload refused.*")
        self.assertIn("the listener grpc is new: restart the program", found)
        self.assertIn("one", program.ask())

    def test_watched(self) -> None:
        """With C{--reload} a change of a source file is enough, also after a mistake."""
        program = self.start("shop:app", "--reload", "--http", "0")
        self.assertIn("one", program.ask())
        self.write("helper.py", "from missing import WORD\n")
        program.wait("reload refused.*No module named 'missing'")
        self.write("missing.py", 'WORD = "found"\n')
        program.wait("reloaded missing.py in")
        program.until(lambda text: text.startswith("found"))
        self.write("helper.py", 'WORD = "two"\n')
        program.wait("reloaded helper.py in")
        program.until(lambda text: text.startswith("two"))


@long("starts processes")
class RunTests(WorkersCase):
    """Two workers of C{storagegate run}."""

    def test_shared(self) -> None:
        """Rate limits are shared, sessions warn, and messages reach the other worker."""
        program = self.start("shop:app", "--workers", "2", "--http", "0")
        program.wait("2 workers are serving")
        self.assertEqual(program.log.count("each worker has its own"), 1)
        self.assertIn(
            "each worker has its own sessions; to share them, use session(store=SQLiteSessionStore",
            program.log,
        )
        statuses = [program.request("/limited")[0] for _ in range(12)]
        self.assertEqual(statuses.count(200), 5)
        program.ask("/tell")
        heard: dict[int, list[str]] = {}
        while len(heard) < 2 or not any(heard.values()):
            found = json.loads(program.ask("/heard"))
            heard[found["pid"]] = found["heard"]
        self.assertEqual(sorted(heard.values()), [[], ["hello"]])

    def test_dead(self) -> None:
        """A worker that dies is replaced, and the port stays open."""
        program = self.start("shop:app", "--workers", "2", "--http", "0")
        [first, second] = self.pids(program)
        os.kill(int(first), signal.SIGKILL)
        program.wait(r"worker \d ended")
        found = {second}
        while len(found) < 2:
            found.add(program.ask().split()[1])
        self.assertNotIn(first, found)

    def test_drains(self) -> None:
        """On C{SIGTERM} requests in flight complete, and new connections are refused."""
        program = self.start("shop:app", "--workers", "2", "--http", "0")
        port = program.port()
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)) as client:
            client.request("GET", "/slow")
            response = client.getresponse()
            self.assertEqual(response.read(5), b"begun")
            program.signal(signal.SIGTERM)
            program.wait("stopping, requests in flight have 30 s")
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                except ConnectionRefusedError:
                    break
            self.write("go", "")
            self.assertEqual(response.read(), b" and ended")
        self.assertEqual(program.end(), 0)

    def test_bounded(self) -> None:
        """A request that does not end is dropped after the grace."""
        program = self.start("shop:app", "--workers", "2", "--http", "0", "--grace", "0")
        with closing(
            http.client.HTTPConnection("127.0.0.1", program.port(), timeout=SECONDS)
        ) as client:
            client.request("GET", "/slow")
            client.getresponse().read(5)
            self.assertEqual(program.stop(), 0)

    def test_twice(self) -> None:
        """A second signal ends all processes at once, whatever is in flight."""
        program = self.start("shop:app", "--workers", "2", "--http", "0")
        with closing(
            http.client.HTTPConnection("127.0.0.1", program.port(), timeout=SECONDS)
        ) as client:
            client.request("GET", "/slow")
            client.getresponse().read(5)
            program.signal(signal.SIGTERM)
            program.wait("stopping, requests in flight have 30 s")
            program.signal(signal.SIGTERM)
            self.assertEqual(program.end(), -signal.SIGTERM)

    def test_orphans(self) -> None:
        """Workers end when their supervisor is killed."""
        program = self.start("shop:app", "--workers", "2", "--http", "0")
        self.pids(program)
        program.signal(signal.SIGKILL)
        # The workers hold the pipe of the output, whose end it waits for.
        self.assertEqual(program.end(), -signal.SIGKILL)

    def test_systemd(self) -> None:
        """It serves on a socket of systemd, and reports its state."""
        self.write("shop.py", MODULE)
        held = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(held.close)
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(manager.close)
        manager.settimeout(SECONDS)
        place = f"\0storagegate-test-{os.getpid()}"
        manager.bind(place)
        program = ServedProgram(
            self,
            self.directory,
            "-c",
            "import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ['LISTEN_FDS'] = '1';"
            "os.environ['LISTEN_FDNAMES'] = 'http';"
            "os.environ['LISTEN_PID'] = str(os.getpid());"
            "os.execv(sys.executable, [sys.executable, '-m', 'storagegate', 'run', 'shop:app',"
            " '--workers', '2', '--http', 'systemd:domain=INET:name=http'])",
            str(held.fileno()),
            environment={"NOTIFY_SOCKET": "@" + place[1:]},
            descriptors=(held.fileno(),),
        )
        messages: list[str] = []
        while not messages or not messages[-1].startswith("READY=1"):
            messages.append(manager.recv(4096).decode())
        port = held.getsockname()[1]
        self.assertIn(f"STATUS=serving http 127.0.0.1:{port}; 2 of 2 workers", messages[-1])
        self.assertIn("one", program.ask(port=port))
        program.signal(signal.SIGTERM)
        while not messages[-1].startswith("STOPPING=1"):
            messages.append(manager.recv(4096).decode())
        self.assertEqual(program.end(), 0)

    def test_noWorkers(self) -> None:
        """C{--workers 0} serves in the process itself."""
        program = self.start("shop:create()", "--workers", "0", "--http", "0")
        self.assertEqual(program.ask(), f"one {program.process.pid}")
        self.assertEqual(program.stop(), 0)

    def test_refused(self) -> None:
        """A target that cannot be served, or calls C{run} itself, is one line."""
        self.write("app.py", SCRIPT)
        program = ServedProgram(self, self.directory, "-m", "storagegate", "run", "app:app")
        self.assertEqual(program.end(), 1)
        self.assertEqual(
            program.log,
            "storagegate: app calls run() when it is imported: put the call under"
            ' if __name__ == "__main__":\n',
        )
