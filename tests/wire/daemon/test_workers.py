"""The daemon with two workers: one store, one set of limits, one log, and no client is refused."""

import contextlib
import json
import os
import re
import select
import signal
import socket
import stat
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import STOP_SECONDS, Daemon
from tests.support.http import REQUEST_SECONDS, ROOT_HEADERS, askUnix, getJSON, request
from tests.support.load import Load
from tests.support.selection import long
from tests.wire.telemetry.test_metrics import wholePage

EVERYTHING = (
    "--http",
    "tcp:0:interface=127.0.0.1",
    "--tcp",
    "tcp:0:interface=127.0.0.1",
    "--grpc",
    "127.0.0.1:0",
    "--udp",
    "127.0.0.1:0",
)

SERVICE = """
import os

NAME = {name!r}

async def who(request, context):
    return {{"name": NAME, "pid": os.getpid()}}

Probe = {{
    "name": "Probe",
    "methods": {{
        "who": who,
        "limited": {{"handler": who, "rateLimit": {{"requests": 5, "window": 600_000}}}},
    }},
}}
"""


def children(pid: int) -> list[int]:
    """Give the processes that a process has started."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(each) for each in path.read_text().split()]


class WorkersCase(SynchronousTestCase):
    """A daemon with two workers."""

    def setUp(self) -> None:
        """Name a data directory, and a module of services."""
        self.data = Path(self.mktemp()).absolute()
        self.modules = Path(self.mktemp()).absolute()
        self.modules.mkdir()
        self.write("one")

    def write(self, name: str) -> None:
        """Write the module of the service."""
        (self.modules / "probing.py").write_text(SERVICE.format(name=name))

    def daemon(self, *arguments: str) -> Daemon:
        """Make a daemon that does not outlive the test."""
        expect = ("s3", "admin", "http", "grpc", "tcp", "udp")
        daemon = Daemon(
            self.data,
            "--workers",
            "2",
            *EVERYTHING,
            *arguments,
            directory=self.modules,
            expect=expect,
            environment={"PYTHONDONTWRITEBYTECODE": "1"},
        )
        self.addCleanup(daemon.kill)
        return daemon

    def call(self, daemon: Daemon, method: str) -> tuple[int, Any]:
        """Call a method of the service over HTTP, by a new connection."""
        status, body = request(daemon.address("http"), "POST", f"/api/Probe/{method}", b"{}")
        return status, json.loads(body)

    def both(self, daemon: Daemon) -> set[int]:
        """Ask until both workers have answered; give their process ids."""
        pids: set[int] = set()
        while len(pids) < 2:
            pids.add(self.call(daemon, "who")[1]["data"]["pid"])
        return pids


class ServingTests(WorkersCase):
    """What several workers are together."""

    @long("takes seconds")
    def test_together(self) -> None:
        """
        Both serve on every listener, and the process that started them does not; an object that
        was stored by one is there for the other; limits hold for both together; metrics are those
        of both; an answer to a datagram is known to the worker that receives it again.
        """
        with self.daemon("--service", "probing:Probe") as daemon:
            pids = self.both(daemon)
            self.assertEqual(pids, set(children(daemon.pid)))
            self.limits(daemon)
            self.objects(daemon)
            self.datagrams(daemon)
            self.counts(daemon)
            status, document = getJSON(daemon.address("admin"), "/readyz")
            self.assertEqual((status, document["status"]), (200, "ok"))
            self.assertEqual(daemon.stop(), 0)
        self.assertNotRegex(daemon.log, "Traceback|Unhandled")
        for pid in pids:
            self.assertFalse(Path(f"/proc/{pid}").exists())

    def limits(self, daemon: Daemon) -> None:
        """Five calls are admitted, whichever worker serves them."""
        # One after the other: who finds the other at the count does not wait, but counts by itself.
        statuses = [self.call(daemon, "limited")[0] for _ in range(30)]
        self.assertEqual(statuses.count(200), 5)
        self.assertEqual(statuses.count(429), 25)

    def objects(self, daemon: Daemon) -> None:
        """Whatever is acknowledged is there at once, also by another connection."""
        address = daemon.address()
        self.assertEqual(request(address, "PUT", "/bucket")[0], 200)

        def there(number: int) -> bool:
            body = b"%d" % number * 20_000
            path = f"/bucket/{number}"
            self.assertEqual(request(address, "PUT", path, body)[0], 200)
            return all(request(address, "GET", path) == (200, body) for _ in range(3))

        with ThreadPoolExecutor(8) as pool:
            self.assertTrue(all(pool.map(there, range(40))))

    def datagrams(self, daemon: Daemon) -> None:
        """The same id gets the same answer."""
        payload = json.dumps({"id": 7, "service": "Probe", "method": "who", "data": {}}).encode()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(REQUEST_SECONDS)
            client.connect(daemon.address("udp"))
            answers = []
            for _ in range(3):
                client.send(struct.pack("!BBI", 1, 1, len(payload)) + payload)
                answers.append(client.recv(2000))
        self.assertEqual(len(set(answers)), 1)

    def counts(self, daemon: Daemon) -> None:
        """A scrape gives the calls of both."""
        text = wholePage(daemon).decode()
        pattern = r'storagegate_requests_total\{[^}]*method="limited"[^}]*\} (\S+)'
        self.assertEqual(sum(float(each) for each in re.findall(pattern, text)), 30.0)

    @long("takes seconds")
    def test_killed(self) -> None:
        """A worker that is killed is replaced; who was not with it notices nothing."""
        with self.daemon("--service", "probing:Probe") as daemon:
            victim, other = self.both(daemon)
            os.kill(victim, signal.SIGKILL)
            daemon.waitForLog(r"worker \d ended")
            while victim in (now := self.both(daemon)) or now == {other}:
                pass
            self.assertIn(other, now)
            self.assertEqual(daemon.stop(), 0)

    @long("takes seconds")
    def test_orphans(self) -> None:
        """When the supervisor is killed, its workers end, and the data can be opened again."""
        daemon = self.daemon("--service", "probing:Probe").start()
        ends = [os.pidfd_open(pid) for pid in self.both(daemon)]
        for end in ends:
            self.addCleanup(os.close, end)
        os.kill(daemon.pid, signal.SIGKILL)
        # Its output is at its end when the last worker has let go of it.
        daemon.wait()
        for end in ends:
            self.assertEqual(select.select([end], [], [], STOP_SECONDS)[0], [end])
        with daemon:
            self.assertEqual(daemon.stop(), 0)


class ReplacingTests(WorkersCase):
    """SIGHUP."""

    @long("takes seconds")
    def test_reload(self) -> None:
        """
        SIGHUP reads everything again and replaces the workers one by one; under load on S3 and
        HTTP nothing fails. What the store of all of them is made with needs a restart. A
        configuration that cannot be changes nothing.
        """
        path = self.modules / "storagegate.toml"
        path.write_text('service = ["probing:Probe"]\n')
        with self.daemon("--config", str(path)) as daemon:
            before = self.both(daemon)
            self.assertEqual(request(daemon.address(), "PUT", "/bucket")[0], 200)
            self.assertEqual(request(daemon.address(), "PUT", "/bucket/key", b"x" * 9000)[0], 200)
            http = Load(daemon.address("http")[1], "/api/Probe/who", "POST", b"{}")
            objects = Load(daemon.address()[1], "/bucket/key", headers=ROOT_HEADERS)
            try:
                http.waitFor(100)
                self.write("two")
                path.write_text('service = ["probing:Probe"]\nverifyReads = true\n')
                daemon.signal(signal.SIGHUP)
                daemon.waitForLog("2 workers replaced")
                daemon.waitForLog("needs a restart: verifyReads")
                http.waitFor(100)
                objects.waitFor(100)
            finally:
                http.end()
                objects.end()
            self.assertEqual(http.failures + objects.failures, [])
            self.assertEqual({status for status, _ in http.answered + objects.answered}, {200})
            self.assertFalse(before & self.both(daemon))
            self.assertEqual(self.call(daemon, "who")[1]["data"]["name"], "two")
            now = self.both(daemon)
            path.write_text('service = ["probing:Nothing"]\n')
            daemon.signal(signal.SIGHUP)
            daemon.waitForLog("reload refused: service: .*Nothing")
            self.assertEqual(self.both(daemon), now)
            self.assertEqual(daemon.stop(), 0)

    @long("takes seconds")
    def test_unix(self) -> None:
        """
        A UNIX socket keeps the mode that was asked for and its file, whichever workers go; when
        all stop, the file is gone.
        """
        # As seen from the daemon, for the kernel takes no more than 107 bytes of a path.
        path = self.modules / "http.sock"
        with self.daemon("--http", "unix:http.sock:mode=600") as daemon:
            self.assertEqual(askUnix(path, "/api/openapi.json"), 200)
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
            daemon.signal(signal.SIGHUP)
            daemon.waitForLog("2 workers replaced")
            for victim in children(daemon.pid):
                # Those that were replaced may have gone meanwhile.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
            self.assertEqual(askUnix(path, "/api/openapi.json"), 200)
            self.assertEqual(daemon.stop(), 0)
        self.assertFalse(path.exists())
        self.assertNotIn("Traceback", daemon.log)


class RefusalTests(WorkersCase):
    """What stops a start."""

    @long("takes seconds")
    def test_lines(self) -> None:
        """A service that is none, or a place that is taken: one line, and no process is left."""
        daemon = self.daemon("--service", "probing:Nothing")
        daemon.launch()
        self.assertEqual(daemon.wait(), 1)
        self.assertRegex(daemon.log, "storagegate: service: .*Nothing")
        self.assertNotIn("listening name=", daemon.log)
        for listener, kind in (("--grpc", socket.SOCK_STREAM), ("--udp", socket.SOCK_DGRAM)):
            with socket.socket(socket.AF_INET, kind) as taken:
                taken.bind(("127.0.0.1", 0))
                if kind == socket.SOCK_STREAM:
                    taken.listen()
                place = f"127.0.0.1:{taken.getsockname()[1]}"
                daemon = self.daemon(listener, place)
                daemon.launch()
                self.assertEqual(daemon.wait(), 1)
                self.assertRegex(daemon.log, f"storagegate: cannot listen name={listener[2:]}")
