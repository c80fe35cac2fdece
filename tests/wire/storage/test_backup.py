"""A copy that is taken from a daemon under load, and a daemon on the copy."""

import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from time import monotonic
from xml.etree import ElementTree

from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli.main import main
from tests.support.daemon import Daemon, daemonEnvironment
from tests.support.http import ROOT_HEADERS, connect, request
from tests.support.selection import long

# Above what is kept in the catalog: each is a blob.
SIZE = 70_000

# How many objects of each writer there are at any moment, give or take the one under way.
WINDOW = 5

WRITERS = 3


def bodyOf(name: str) -> bytes:
    """Give the content of the object of a name."""
    return (name.encode() + b" ") * (SIZE // (len(name) + 1) + 1)


class Writer(threading.Thread):
    """
    Stores one object after the other and removes the one C{WINDOW} before, until it is told to end.

    @ivar done: How many were stored.
    @ivar warm: Set when objects come and go.
    """

    def __init__(
        self, address: tuple[str, int], number: int, headers: Mapping[str, str] = ROOT_HEADERS
    ) -> None:
        super().__init__()
        self._headers = headers
        self.prefix = f"w{number}-"
        self.done = 0
        self.error: BaseException | None = None
        self._connection = connect(address)
        self._over = threading.Event()
        self.warm = threading.Event()

    def end(self) -> None:
        """End after the object under way."""
        self._over.set()
        self.join()
        self._connection.close()

    def run(self) -> None:
        """Write."""
        try:
            while not self._over.is_set():
                name = f"{self.prefix}{self.done:06}"
                self._ask("PUT", name, bodyOf(name), 200)
                if self.done >= WINDOW:
                    self._ask("DELETE", f"{self.prefix}{self.done - WINDOW:06}", None, 204)
                    self.warm.set()
                self.done += 1
        except BaseException as error:
            self.error = error

    def _ask(self, method: str, name: str, body: bytes | None, expected: int) -> None:
        self._connection.request(method, f"/bucket/{name}", body, self._headers)
        answer = self._connection.getresponse()
        answer.read()
        if answer.status != expected:
            raise AssertionError(f"{method} {name}: {answer.status}")


class BackupTests(SynchronousTestCase):
    """The whole way."""

    timeout = 120

    def names(self, daemon: Daemon) -> list[str]:
        """List the bucket."""
        status, text = request(daemon.address(), "GET", "/bucket?list-type=2")
        self.assertEqual(status, 200)
        keys = ElementTree.fromstring(text).iterfind("{*}Contents/{*}Key")
        return [str(each.text) for each in keys]

    def put(self, daemon: Daemon, name: str) -> None:
        """Store an object."""
        path = f"/bucket/{name}"
        self.assertEqual(request(daemon.address(), "PUT", path, bodyOf(name))[0], 200)

    def script(self, *arguments: str | Path) -> None:
        """Run the console script, which must succeed."""
        output = StringIO()
        with redirect_stdout(output), redirect_stderr(output):
            code = main([str(each) for each in arguments])
        self.assertEqual(code, 0, output.getvalue())

    @long("takes a second or more")
    def test_underLoad(self) -> None:
        """
        Each of three copies under load holds the objects of one moment, and a daemon on it serves
        every one of them, byte by byte.
        """
        data = Path(self.mktemp()).absolute()
        daemon = Daemon(data)
        self.addCleanup(daemon.kill)
        daemon.start()
        self.assertEqual(request(daemon.address(), "PUT", "/bucket")[0], 200)
        kept = [f"kept-{number}" for number in range(30)]
        for name in kept:
            self.put(daemon, name)
        writers = [Writer(daemon.address(), number) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
            self.addCleanup(writer.end)
        for writer in writers:
            self.assertTrue(writer.warm.wait(60), writer.error)
        copies = [Path(self.mktemp()).absolute() for _ in range(3)]
        counts = []
        for copy in copies:
            counts.append([writer.done for writer in writers])
            self.script("backup", "--data", data, "--to", copy, "--verify")
        counts.append([writer.done for writer in writers])
        for writer in writers:
            writer.end()
            self.assertIsNone(writer.error)
        self.assertEqual(daemon.stop(), 0)
        for index, copy in enumerate(copies):
            self.served(copy, kept, writers, counts[index], counts[index + 1])

    @long("takes a second or more")
    def test_copiedOverACrash(self) -> None:
        """
        A backup that is copied by hand over the directory of a daemon that was killed is the store
        of the backup, three times of three; its catalog alone is refused with one line.
        """
        data = Path(self.mktemp()).absolute()
        copy = Path(self.mktemp()).absolute()
        daemon = Daemon(data).start()
        self.addCleanup(daemon.kill)
        self.assertEqual(request(daemon.address(), "PUT", "/bucket")[0], 200)
        before = [f"before-{number}" for number in range(5)]
        for name in before:
            self.put(daemon, name)
        self.script("backup", "--data", data, "--to", copy)
        for turn in range(3):
            for number in range(5):
                self.put(daemon, f"after-{turn}-{number}")
                path = f"/bucket/before-{number}"
                self.assertEqual(request(daemon.address(), "DELETE", path)[0], 204)
            daemon.kill()
            crash = Path(f"{data}-{turn}")
            shutil.copytree(data, crash)
            shutil.copy(copy / "catalog.sqlite", crash)
            refused = Daemon(crash)
            refused.launch()
            self.assertGreater(refused.wait(), 0)
            self.assertIn("is the log of another catalog.sqlite", refused.log)
            with self.assertRaises(AssertionError) as caught:
                self.script("fsck", "--data", crash)
            self.assertIn("is the log of another", str(caught.exception))
            # A blob that the daemon had no time to remove is the same file as that of the backup.
            command = ["cp", "-a", "--remove-destination", f"{copy}/.", data]
            subprocess.run(command, check=True)
            daemon = Daemon(data).start()
            self.addCleanup(daemon.kill)
            self.assertEqual(self.names(daemon), before)
            for name in before:
                answer = request(daemon.address(), "GET", f"/bucket/{name}")
                self.assertEqual(answer, (200, bodyOf(name)))

    @long("takes a second or more")
    def test_killedRestore(self) -> None:
        """
        A restore that is killed at any moment leaves no directory or a whole one; with SIGTERM it
        leaves nothing beside it either. The next restore succeeds.
        """
        data, copy, place = (Path(self.mktemp()).absolute() for _ in range(3))
        daemon = Daemon(data).start()
        self.addCleanup(daemon.kill)
        self.assertEqual(request(daemon.address(), "PUT", "/bucket")[0], 200)
        for number in range(40):
            self.put(daemon, f"kept-{number}")
        daemon.stop()
        self.script("backup", "--data", data, "--to", copy)
        command = [sys.executable, "-m", "storagegate", "restore", "--from", copy, "--to", place]
        began = monotonic()
        subprocess.run(command, env=daemonEnvironment(), check=True, stdout=subprocess.DEVNULL)
        seconds = monotonic() - began
        self.script("fsck", "--data", place, "--verify")
        shutil.rmtree(place)
        ends = set()
        unfinished = Path(f"{place}.restore-unfinished")
        for turn in range(8):
            isKill = turn % 2 == 0
            # A process that ends while it starts does not remove what an earlier one left.
            wasLeft = unfinished.exists()
            running = subprocess.Popen(
                command,
                env=daemonEnvironment(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                running.wait(seconds * (0.3 + 0.1 * turn))
            except subprocess.TimeoutExpired:
                running.send_signal(signal.SIGKILL if isKill else signal.SIGTERM)
            ends.add(running.wait())
            if place.exists():
                self.script("fsck", "--data", place, "--verify")
                shutil.rmtree(place)
            elif not isKill:
                self.assertLessEqual(unfinished.exists(), wasLeft)
        self.assertIn(-signal.SIGKILL, ends)
        self.script("restore", "--from", copy, "--to", place, "--verify")
        self.script("fsck", "--data", place, "--verify")

    def served(
        self,
        copy: Path,
        kept: list[str],
        writers: list[Writer],
        before: list[int],
        after: list[int],
    ) -> None:
        """Start a daemon on a copy and read all that it has."""
        daemon = Daemon(copy)
        self.addCleanup(daemon.kill)
        daemon.start()
        names = self.names(daemon)
        self.assertEqual({name for name in names if name.startswith("kept")}, set(kept))
        for writer, least, most in zip(writers, before, after, strict=True):
            own = [name for name in names if name.startswith(writer.prefix)]
            mine = [int(name.rpartition("-")[2]) for name in own]
            # One after the other without a gap: so they were at one moment, and at no other.
            self.assertEqual(mine, list(range(mine[0], mine[0] + len(mine))))
            self.assertIn(len(mine), (WINDOW, WINDOW + 1))
            self.assertTrue(least - 1 <= mine[-1] <= most, (least, mine, most))
        for name in names:
            answer = request(daemon.address(), "GET", f"/bucket/{name}")
            self.assertEqual(answer, (200, bodyOf(name)))
        self.assertEqual(daemon.stop(), 0)
        self.script("fsck", "--data", copy, "--verify")
