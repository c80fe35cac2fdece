"""The daemon on sockets that were handed over, and within the limits of its unit file."""

import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from storagegate.gateway.messages.frames import PING, PONG, encodeFrame
from tests.support.certificates import Authority
from tests.support.confine import UNSUPPORTED
from tests.support.daemon import CHECKOUT, Daemon
from tests.support.http import REQUEST_SECONDS, askUnix, getJSON, request
from tests.support.ports import heldPort
from tests.support.programs import needs
from tests.support.selection import long
from tests.support.units import DEPLOY, serviceValue, systemCalls, unitValues

HANDOVER = str(CHECKOUT / "tests" / "support" / "handover.py")
CONFINE = str(CHECKOUT / "tests" / "support" / "confine.py")

VARIABLES = (
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
    "STORAGEGATE_ACCESS_KEY",
    "STORAGEGATE_SECRET_KEY",
)

ADOPTED = tuple(
    item
    for name in ("s3", "http", "tcp")
    for item in (f"--{name}", f"systemd:domain=INET:name={name}")
)


class SocketTests(SynchronousTestCase):
    """Endpoints C{systemd:}."""

    timeout = 120

    def daemon(
        self,
        *arguments: str,
        prefix: tuple[str, ...],
        expect: tuple[str, ...],
        descriptors: tuple[int, ...] = (),
        **more: Any,
    ) -> Daemon:
        """Make a daemon that does not outlive the test."""
        data = Path(self.mktemp()).absolute()
        daemon = Daemon(
            data, *arguments, prefix=prefix, expect=expect, descriptors=descriptors, **more
        )
        self.addCleanup(daemon.kill)
        return daemon

    def test_named(self) -> None:
        """S3, HTTP and TCP serve on sockets that were handed over by name."""
        places = [f"{name}=127.0.0.1:0" for name in ("tcp", "s3", "http")]
        daemon = self.daemon(
            *ADOPTED,
            prefix=(sys.executable, HANDOVER, *places, "--"),
            expect=("s3", "http", "tcp", "admin"),
        ).start()
        self.assertEqual(request(daemon.address("s3"), "PUT", "/bucket")[0], 200)
        self.assertEqual(request(daemon.address("s3"), "PUT", "/bucket/key", b"x" * 70_000)[0], 200)
        self.assertEqual(request(daemon.address("s3"), "GET", "/bucket/key")[1], b"x" * 70_000)
        with urllib.request.urlopen(
            f"{daemon.url('http')}/api/openapi.json", timeout=REQUEST_SECONDS
        ) as answer:
            self.assertEqual(answer.status, 200)
        with socket.create_connection(daemon.address("tcp"), REQUEST_SECONDS) as client:
            client.sendall(encodeFrame(PING, b"there?"))
            pong = encodeFrame(PONG, b"there?")
            self.assertEqual(client.recv(len(pong), socket.MSG_WAITALL), pong)
        self.assertEqual(daemon.stop(), 0)

    @long("takes a second or more")
    def test_keepsSocket(self) -> None:
        """Who comes while the daemon is away waits on the socket, and is served by the next one."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            host, port = listener.getsockname()
            daemon = Daemon(
                Path(self.mktemp()).absolute(),
                *ADOPTED[:2],
                prefix=(sys.executable, HANDOVER, f"s3={listener.fileno()}", "--"),
                descriptors=(listener.fileno(),),
            )
            self.addCleanup(daemon.kill)
            daemon.start()
            self.assertEqual(request((host, port), "GET", "/")[0], 200)
            self.assertEqual(daemon.stop(), 0)
            with socket.create_connection((host, port), REQUEST_SECONDS) as early:
                daemon.start()
                early.settimeout(REQUEST_SECONDS)
                early.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                self.assertIn(b" 403 ", early.recv(1024))

    @long("takes seconds")
    def test_unix(self) -> None:
        """
        A UNIX socket that was handed over is listened on, by one process and by workers; its file
        keeps its mode, and is there for the next start.
        """
        path = Path(self.mktemp()).absolute()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.relpath(path))
            path.chmod(0o600)
            listener.listen()
            for workers in ("1", "2"):
                daemon = Daemon(
                    Path(self.mktemp()).absolute(),
                    "--s3",
                    "systemd:domain=UNIX:name=s3",
                    "--workers",
                    workers,
                    prefix=(sys.executable, HANDOVER, f"s3={listener.fileno()}", "--"),
                    descriptors=(listener.fileno(),),
                )
                self.addCleanup(daemon.kill)
                daemon.start()
                self.assertEqual(askUnix(path), 403)
                self.assertEqual(daemon.stop(), 0)
                self.assertNotIn("Traceback", daemon.log)
                self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)

    @long("takes seconds")
    def test_workers(self) -> None:
        """Workers serve on sockets that were handed over, also those that replace others."""
        names = ("s3", "admin", "http", "tcp")
        daemon = self.daemon(
            *(item for name in names for item in (f"--{name}", f"systemd:domain=INET:name={name}")),
            "--workers",
            "2",
            prefix=(sys.executable, HANDOVER, *(f"{name}=127.0.0.1:0" for name in names), "--"),
            expect=names,
        ).start()
        for isNew in (False, True):
            if isNew:
                daemon.signal(signal.SIGHUP)
                daemon.waitForLog("2 workers replaced")
            self.assertEqual(request(daemon.address("s3"), "GET", "/")[0], 200)
            self.assertEqual(getJSON(daemon.address("admin"), "/readyz")[0], 200)
            self.assertEqual(getJSON(daemon.address("http"), "/api/openapi.json")[0], 200)
            with socket.create_connection(daemon.address("tcp"), REQUEST_SECONDS) as client:
                client.sendall(encodeFrame(PING, b"there?"))
                pong = encodeFrame(PONG, b"there?")
                self.assertEqual(client.recv(len(pong), socket.MSG_WAITALL), pong)
        self.assertEqual(daemon.stop(), 0)
        self.assertNotIn("Traceback", daemon.log)

    @long("takes seconds")
    def test_workersStop(self) -> None:
        """Who has connected as the stop begins is left to the workers, and they answer."""
        for family in ("INET", "UNIX"):
            daemon, workers, place, listener = self.withWorkers(family)
            for pid in workers:
                os.kill(pid, signal.SIGSTOP)
            with socket.socket(listener.family) as client:
                client.settimeout(REQUEST_SECONDS)
                client.connect(place)
                client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                daemon.signal(signal.SIGTERM)
                # By the supervisor, for no worker can say so now.
                daemon.waitForLog(r"\(.*Port .*Closed\)")
                for pid in workers:
                    os.kill(pid, signal.SIGCONT)
                self.assertIn(b" 403 ", client.recv(1024))
            self.assertEqual(daemon.wait(), 0)
            self.assertNotIn("Traceback", daemon.log)

    def withWorkers(self, family: str) -> tuple[Daemon, list[int], Any, socket.socket]:
        """Start a daemon with two workers on a socket that is handed over."""
        listener = socket.socket(getattr(socket, f"AF_{family}"))
        self.addCleanup(listener.close)
        listener.bind(("127.0.0.1", 0) if family == "INET" else os.path.relpath(self.mktemp()))
        listener.listen()
        daemon = self.daemon(
            "--s3",
            f"systemd:domain={family}:name=s3",
            "--admin",
            "off",
            "--workers",
            "2",
            prefix=(sys.executable, HANDOVER, f"s3={listener.fileno()}", "--"),
            expect=("s3",),
            descriptors=(listener.fileno(),),
            environment={"STORAGEGATE_LOG_LEVEL": "debug"},
        ).start()
        children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text()
        return daemon, [int(pid) for pid in children.split()], listener.getsockname(), listener

    @needs("systemd-socket-activate")
    def test_activate(self) -> None:
        """Systemd's own tool starts it at the first connection, on a socket without a name."""
        port = heldPort(self)
        daemon = self.daemon(
            "--s3",
            "systemd:domain=INET:name=s3",
            prefix=(
                "systemd-socket-activate",
                "-l",
                f"127.0.0.1:{port}",
                "--fdname=s3",
                # It hands over no variables that were not asked for.
                *(f"--setenv={name}" for name in VARIABLES),
            ),
            expect=("s3", "admin"),
        )
        daemon.launch()
        daemon.waitForLog("Listening on")
        self.assertEqual(request(("127.0.0.1", port), "GET", "/")[0], 200)
        self.assertEqual(daemon.address("s3"), ("127.0.0.1", port))
        self.assertEqual(daemon.stop(), 0)

    @long("takes seconds")
    def test_notHandedOver(self) -> None:
        """A socket that was not handed over stops the start with one line, for every listener."""
        for name in ("s3", "http", "tcp"):
            daemon = self.daemon(
                f"--{name}",
                "systemd:domain=INET:name=other",
                prefix=(sys.executable, HANDOVER, "s3=127.0.0.1:0", "--"),
                expect=(),
            )
            daemon.launch()
            self.assertEqual(daemon.wait(), 1)
            self.assertIn(f"cannot listen name={name} endpoint=systemd:", daemon.log)
            self.assertIn("systemd passed no such socket", daemon.log)
            self.assertNotIn("Traceback", daemon.log)


@needs("systemd-analyze")
class ConfinedTests(SynchronousTestCase):
    """The unit's C{SystemCallFilter} and C{RestrictAddressFamilies}, put on the real daemon."""

    timeout = 120

    def setUp(self) -> None:
        """Write down what the unit allows."""
        allowed: set[str] = set()
        for setting in unitValues(DEPLOY / "storagegate.service", "Service", "SystemCallFilter"):
            names = systemCalls(setting.removeprefix("~"))
            allowed = allowed - names if setting.startswith("~") else allowed | names
        self.limits = Path(self.mktemp()).absolute()
        families = serviceValue("RestrictAddressFamilies").split()
        self.limits.write_text(json.dumps({"calls": sorted(allowed), "families": families}))
        self.prefix = (sys.executable, CONFINE, str(self.limits))
        code, _ = self.confined("pass")
        if code == UNSUPPORTED:
            raise SkipTest("this system has no libseccomp")
        self.assertEqual(code, 0)

    def confined(self, script: str) -> tuple[int, str]:
        """Run a script within the limits and give its exit code and what it complained of."""
        result = subprocess.run(
            [*self.prefix, sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return result.returncode, result.stderr

    def test_limits(self) -> None:
        """The limits of this test are limits."""
        for script, word in (
            ("import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", "PermissionError"),
            ("import os; os.setuid(0)", "PermissionError"),
            ("import os; os.chroot('/')", "PermissionError"),
        ):
            code, errors = self.confined(script)
            self.assertEqual(code, 1, script)
            self.assertIn(word, errors)

    @long("takes seconds")
    def test_serves(self) -> None:
        """With every listener on, one of them with TLS, and workers, it serves and stops."""
        directory = Path(self.mktemp()).absolute()
        authority = Authority(directory)
        certificate, key = authority.issue()
        tls = f"ssl:0:privateKey={key}:certKey={certificate}:interface=127.0.0.1"
        daemon = Daemon(
            directory / "data",
            "--s3",
            tls,
            "--http",
            "tcp:0:interface=127.0.0.1",
            "--tcp",
            "tcp:0:interface=127.0.0.1",
            "--grpc",
            "127.0.0.1:0",
            "--udp",
            "127.0.0.1:0",
            "--workers",
            "2",
            prefix=self.prefix,
            expect=("s3", "admin", "http", "tcp", "grpc", "udp"),
        )
        self.addCleanup(daemon.kill)
        daemon.start()
        context = ssl.create_default_context(cafile=str(authority.path))
        with urllib.request.urlopen(
            f"{daemon.url('http')}/api/openapi.json", timeout=REQUEST_SECONDS
        ) as answer:
            self.assertEqual(answer.status, 200)
        with socket.create_connection(daemon.address("s3"), REQUEST_SECONDS) as client:
            secured = context.wrap_socket(client, server_hostname="localhost")
            secured.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            self.assertIn(b" 403 ", secured.recv(1024))
        self.assertEqual(getJSON(daemon.address("admin"), "/readyz")[0], 200)
        self.assertEqual(daemon.stop(), 0)
        self.assertNotIn("Traceback", daemon.log)
