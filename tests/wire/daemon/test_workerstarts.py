"""Workers that do not start, or not now, or for ever: services are other people's programs."""

import os
import select
import signal
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import STOP_SECONDS, Daemon
from tests.support.selection import long
from tests.wire.daemon.test_workers import children

MODULE = """
import os, sys, threading

isWorker = sys.argv[0].endswith("worker.py")
# Line by line, and not by way of the log: it is to be seen at once.
os.write(2, b"IMPORTED\\n" if isWorker else b"REHEARSED\\n")
{more}

async def who(request, context):
    return {{}}

Probe = {{"name": "Probe", "methods": {{"who": who}}}}
"""

HANG = "isWorker and threading.Event().wait()"


class StartsCase(SynchronousTestCase):
    """A daemon with two workers and a module of services."""

    def setUp(self) -> None:
        """Make the daemon; it does not run yet."""
        self.modules = Path(self.mktemp()).absolute()
        self.modules.mkdir()
        self.daemon = self.make()

    def make(self, *arguments: str) -> Daemon:
        """Make a daemon that does not outlive the test."""
        daemon = Daemon(
            Path(self.mktemp()).absolute(),
            "--workers",
            "2",
            "--http",
            "tcp:0:interface=127.0.0.1",
            "--service",
            "starting:Probe",
            *arguments,
            directory=self.modules,
            expect=("http",),
            environment={
                "PYTHONDONTWRITEBYTECODE": "1",
                # So long that an end that waits for it comes too late.
                "STORAGEGATE_SHUTDOWN_GRACE_SECONDS": "3600",
            },
        )
        self.addCleanup(daemon.kill)
        return daemon

    def write(self, more: str = "") -> None:
        """Write the module."""
        (self.modules / "starting.py").write_text(MODULE.format(more=more))

    def workers(self, daemon: Daemon | None = None) -> list[int]:
        """Give what is open on the children of a daemon: it tells of their ends."""
        found = [os.pidfd_open(pid) for pid in children((daemon or self.daemon).pid)]
        for descriptor in found:
            self.addCleanup(os.close, descriptor)
        return found

    def assertEnded(self, processes: list[int]) -> None:
        """Check that processes end."""
        for process in processes:
            ended, _, _ = select.select([process], [], [], STOP_SECONDS)
            if not ended:
                signal.pidfd_send_signal(process, signal.SIGKILL)
            self.assertTrue(ended, "a worker stays")


class ForEverTests(StartsCase):
    """A module that never ends to be imported."""

    def start(self) -> list[int]:
        """Start, until a worker hangs."""
        self.write(HANG)
        self.daemon.launch()
        self.daemon.waitForLog(r"IMPORTED[\s\S]*IMPORTED")
        workers = self.workers()
        self.assertEqual(len(workers), 2)
        return workers

    @long("takes seconds")
    def test_stop(self) -> None:
        """SIGTERM ends it at once and in order."""
        workers = self.start()
        self.daemon.signal(signal.SIGTERM)
        self.assertEqual(self.daemon.wait(), 0)
        self.assertEnded(workers)
        self.assertNotRegex(self.daemon.log, "Traceback|Unhandled|serve")

    @long("takes seconds")
    def test_killed(self) -> None:
        """When the supervisor is killed, no worker stays with the sockets and the data."""
        workers = self.start()
        os.kill(self.daemon.pid, signal.SIGKILL)
        self.assertEnded(workers)

    @long("takes seconds")
    def test_rolling(self) -> None:
        """SIGTERM while a worker is replaced ends everything at once; that is no refusal."""
        self.write()
        self.daemon.start()
        self.write(HANG)
        self.daemon.signal(signal.SIGHUP)
        self.daemon.waitForLog(r"IMPORTED[\s\S]*IMPORTED[\s\S]*IMPORTED")
        workers = self.workers()
        self.assertEqual(len(workers), 3)
        self.daemon.signal(signal.SIGTERM)
        self.assertEqual(self.daemon.wait(), 0)
        self.assertEnded(workers)
        self.assertNotRegex(self.daemon.log, "Traceback|Unhandled|refused|ended")


class TablesTests(StartsCase):
    """What the configuration file says of the gateway."""

    def test_wrong(self) -> None:
        """A wrong option is told in one line before any port is open."""
        path = self.modules / "storagegate.toml"
        path.write_text("[gateway.discovery]\nnothing = 1\n")
        self.write()
        daemon = self.make("--config", str(path))
        daemon.launch()
        self.assertEqual(daemon.wait(), 1)
        self.assertIn("storagegate: gateway.discovery: there is no option nothing;", daemon.log)
        self.assertNotRegex(daemon.log, "listening name=|Traceback")

    @long("takes a second or more")
    def test_forEver(self) -> None:
        """A stop does not wait until it is found out whether one is wrong."""
        path = self.modules / "storagegate.toml"
        path.write_text("[gateway.monitoring.logging]\nlevel = 'warn'\n")
        self.write("threading.Event().wait()")
        daemon = self.make("--config", str(path))
        daemon.launch()
        daemon.waitForLog("REHEARSED")
        found = self.workers(daemon)
        daemon.signal(signal.SIGTERM)
        self.assertEqual(daemon.wait(), 0)
        self.assertEqual(len(found), 1)
        self.assertEnded(found)


class EndingTests(StartsCase):
    """A module that ends its process."""

    @long("takes seconds")
    def test_start(self) -> None:
        """The one line says how it ended; so does the one of a reload."""
        self.write("os._exit(3)")
        self.daemon.launch()
        self.assertEqual(self.daemon.wait(), 1)
        line = "storagegate: a worker exited during its start: exit code 3\n"
        self.assertIn(line, self.daemon.log)
        self.write("os.kill(os.getpid(), 9)")
        self.daemon.launch()
        self.assertEqual(self.daemon.wait(), 1)
        self.assertIn("a worker exited during its start: signal 9\n", self.daemon.log)
