"""What the service manager hears, on a real socket: from the notifier and from the whole daemon."""

import os
import re
import select
import signal
import socket
import time
from pathlib import Path
from tempfile import mkdtemp

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.systemd import Notifier
from tests.support.daemon import Daemon
from tests.support.log import LogCase
from tests.support.selection import long

MESSAGE_SECONDS = 60


class Manager:
    """The socket of a service manager, as systemd has one."""

    def __init__(self, place: str) -> None:
        """
        @param place: C{NOTIFY_SOCKET}: a path, or an abstract name behind C{@}.
        """
        self.place = place
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(MESSAGE_SECONDS)
        self._socket.bind("\0" + place[1:] if place.startswith("@") else place)

    def next(self) -> list[str]:
        """Give the lines of the next message."""
        return self._socket.recv(4096).decode().split("\n")

    def waiting(self) -> list[str]:
        """Give the messages that are there."""
        found = []
        while self.hears(0):
            found.append("\n".join(self.next()))
        return found

    def until(self, line: str) -> list[str]:
        """Wait for the message that has this line and give its lines."""
        while line not in (lines := self.next()):
            pass
        return lines

    def hears(self, seconds: float) -> bool:
        """Tell whether a message comes within a time."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def close(self) -> None:
        """Hear nothing any more."""
        self._socket.close()


class NotifierTests(LogCase):
    """The notifier alone, on a clock that is set by hand."""

    def setUp(self) -> None:
        """Make a manager."""
        super().setUp()
        self.clock = Clock()
        self.manager = self.listening(f"@storagegate-test-{os.getpid()}-{id(self)}")

    def listening(self, place: str) -> Manager:
        """Make a manager for this test."""
        manager = Manager(place)
        self.addCleanup(manager.close)
        return manager

    def notifier(self, **variables: str) -> Notifier:
        """Make a notifier that speaks to the manager."""
        notifier = Notifier(self.clock, {"NOTIFY_SOCKET": self.manager.place, **variables})
        self.addCleanup(notifier.close)
        return notifier

    def test_messages(self) -> None:
        """Each state is one datagram; a status stays on its line and has a length."""
        notifier = self.notifier()
        notifier.ready("serving s3")
        notifier.status("two\nlines " + "x" * 2000)
        notifier.stopping("stopping")
        ready, status, stopping = self.manager.waiting()
        self.assertEqual(ready, "READY=1\nSTATUS=serving s3")
        self.assertTrue(status.startswith("STATUS=two lines xxx"))
        self.assertEqual(len(status), len("STATUS=") + 1000)
        self.assertEqual(stopping, "STOPPING=1\nSTATUS=stopping")

    def test_reloading(self) -> None:
        """A reload carries the time of the monotonic clock at which it began."""
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self.notifier().reloading()
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        first, second = self.manager.next()
        self.assertEqual(first, "RELOADING=1")
        name, _, usec = second.partition("=")
        self.assertEqual(name, "MONOTONIC_USEC")
        self.assertTrue(before <= int(usec) <= after, usec)

    def test_path(self) -> None:
        """The socket may be a path."""
        directory = Path(mkdtemp(prefix="notify-", dir="/tmp"))
        self.addCleanup(directory.rmdir)
        self.addCleanup((directory / "socket").unlink)
        self.manager = self.listening(str(directory / "socket"))
        self.notifier().status("here")
        self.assertEqual(self.manager.waiting(), ["STATUS=here"])

    def test_nobody(self) -> None:
        """Without the variable, or with one that is no socket, nothing is sent and nothing runs."""
        for variables in ({}, {"NOTIFY_SOCKET": "vsock:2:1"}, {"NOTIFY_SOCKET": "@"}):
            notifier = Notifier(self.clock, {**variables, "WATCHDOG_USEC": "1000000"})
            notifier.ready("serving")
            notifier.stopping("stopping")
            self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.logged(), [])

    def test_takesVariables(self) -> None:
        """What this process starts does not inherit the right to speak for it."""
        environment = {
            "NOTIFY_SOCKET": self.manager.place,
            "WATCHDOG_USEC": "1",
            "WATCHDOG_PID": "1",
            "HOME": "/",
        }
        Notifier(self.clock, environment).close()
        self.assertEqual(environment, {"HOME": "/"})

    def test_watchdog(self) -> None:
        """From the first READY on, the watchdog is fed at half of its time, by the reactor."""
        notifier = self.notifier(WATCHDOG_USEC="3000000", WATCHDOG_PID=str(os.getpid()))
        self.clock.advance(10)
        self.assertEqual(self.manager.waiting(), [])
        notifier.ready("serving")
        notifier.ready("serving again")
        self.assertEqual(self.manager.waiting().count("WATCHDOG=1"), 1)
        self.clock.advance(1.4)
        self.assertEqual(self.manager.waiting(), [])
        for _ in range(3):
            self.clock.advance(1.5)
            self.assertEqual(self.manager.waiting(), ["WATCHDOG=1"])
        notifier.close()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_noWatchdog(self) -> None:
        """A watchdog of another process, or one without a time, is not fed."""
        for variables in (
            {"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid() + 1)},
            {"WATCHDOG_USEC": "soon"},
            {"WATCHDOG_USEC": "0"},
        ):
            self.notifier(**variables).ready("serving")
            self.assertEqual(self.manager.waiting(), ["READY=1\nSTATUS=serving"])
            self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_slowManager(self) -> None:
        """
        A manager that does not read blocks nothing; later it hears the newest status, in order,
        and what was said once among them.
        """
        notifier = self.notifier()
        for number in range(900):
            notifier.status(str(number))
        notifier.stopping("900")
        for number in range(901, 1000):
            notifier.status(str(number))
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        heard = self.manager.waiting()
        while self.clock.getDelayedCalls():
            self.clock.advance(0.1)
            heard += self.manager.waiting()
        self.assertIn("STOPPING=1\nSTATUS=900", heard)
        numbers = [int(line.rpartition("STATUS=")[2]) for line in heard]
        self.assertEqual(numbers, sorted(numbers))
        self.assertEqual(numbers[-1], 999)
        self.assertLess(len(numbers), 1000)

    def test_managerGone(self) -> None:
        """A manager that is gone is one line of the log; one that comes back is heard of."""
        notifier = self.notifier()
        self.manager.close()
        notifier.status("one")
        notifier.status("two")
        self.assertEqual(self.logged(), ["cannot notify the service manager: Connection refused"])
        self.manager = self.listening(self.manager.place)
        notifier.status("three")
        self.assertEqual(self.manager.waiting(), ["STATUS=three"])


class DaemonTests(SynchronousTestCase):
    """The daemon as systemd sees it."""

    timeout = 120

    def setUp(self) -> None:
        """Make a manager."""
        self.manager = Manager(f"@storagegate-daemon-{os.getpid()}-{id(self)}")
        self.addCleanup(self.manager.close)

    def daemon(self, *arguments: str, **variables: str) -> Daemon:
        """Start a daemon under the manager."""
        environment = {"NOTIFY_SOCKET": self.manager.place, **variables}
        daemon = Daemon(Path(self.mktemp()).absolute(), *arguments, environment=environment)
        self.addCleanup(daemon.kill)
        return daemon.start()

    def test_life(self) -> None:
        """READY names the listeners when they serve; a reload and a stop are told as they come."""
        daemon = self.daemon()
        host, port = daemon.address("s3")
        ready = self.manager.next()
        self.assertEqual(ready[0], "READY=1")
        self.assertRegex(ready[1], rf"STATUS=serving s3 {re.escape(host)}:{port}, admin ")
        socket.create_connection((host, port), MESSAGE_SECONDS).close()
        daemon.signal(signal.SIGHUP)
        self.assertEqual(self.manager.next()[0], "RELOADING=1")
        self.assertEqual(self.manager.next(), ready)
        daemon.signal(signal.SIGTERM)
        self.assertEqual(self.manager.next()[0], "STOPPING=1")
        self.assertEqual(daemon.wait(), 0)

    def test_refusedReload(self) -> None:
        """A reload that is refused ends, too: the manager would wait for it."""
        path = Path(self.mktemp()).absolute()
        path.write_text("")
        daemon = self.daemon(STORAGEGATE_CONFIG=str(path))
        self.manager.until("READY=1")
        path.write_text("nonsense = 1\n")
        daemon.signal(signal.SIGHUP)
        self.assertEqual(self.manager.next()[0], "RELOADING=1")
        self.assertEqual(self.manager.next()[0], "READY=1")
        daemon.waitForLog("reload refused")

    @long("takes seconds")
    def test_workers(self) -> None:
        """
        With workers it is the supervisor alone that speaks: READY when all serve, again when all
        have been replaced, and how many there are in between.
        """
        daemon = self.daemon("--workers", "2")
        ready = self.manager.until("READY=1")
        self.assertRegex(ready[1], r"^STATUS=serving s3 .*; 2 of 2 workers$")
        daemon.signal(signal.SIGHUP)
        self.manager.until("RELOADING=1")
        self.assertEqual(self.manager.until("READY=1"), ready)
        daemon.waitForLog("configuration reloaded")
        self.assertEqual(self.manager.waiting(), [])
        daemon.signal(signal.SIGTERM)
        self.assertEqual(self.manager.next()[0], "STOPPING=1")
        self.assertEqual(daemon.wait(), 0)
        self.assertEqual(self.manager.waiting(), [])

    @long("takes a second or more")
    def test_stuck(self) -> None:
        """The watchdog hears of a reactor that turns, and nothing of one that is stuck."""
        daemon = self.daemon(WATCHDOG_USEC="200000")
        for _ in range(3):
            self.manager.until("WATCHDOG=1")
        daemon.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, daemon.pid, os.WSTOPPED)
        self.manager.waiting()
        self.assertFalse(self.manager.hears(1.0))
        daemon.signal(signal.SIGCONT)
        self.manager.until("WATCHDOG=1")
