"""
A real server with Valkey's protocol for tests: Debian's C{redis-server}, in a temporary directory
on loopback.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

import hiredis

from tests.support.programs import needProgram

START_SECONDS = 30.0


class RedisServer:
    """
    A running server.

    @ivar port: The port on loopback, which a restart keeps.
    """

    def __init__(
        self, *options: str, certificate: Path | None = None, key: Path | None = None
    ) -> None:
        """
        Start it.

        @param options: Additional command line arguments.
        @param certificate: The certificate of the server, PEM, with its C{key}; the port then
            accepts only TLS.
        """
        self._program = needProgram("redis-server")
        self.directory = tempfile.mkdtemp(prefix="sgredis")
        # Bound as long as the server may be started, so that no other process gets its port.
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self.port: int = self._held.getsockname()[1]
        self._options = [*options, "--port", str(self.port)]
        if certificate is not None:
            self._options[-1:] = ["0", "--tls-port", str(self.port), "--tls-auth-clients", "no"]
            self._options += ["--tls-cert-file", str(certificate.absolute())]
            self._options += ["--tls-key-file", str(key and key.absolute())]
            self._options += ["--tls-ca-cert-file", str(certificate.absolute())]
        self._process: subprocess.Popen[bytes] | None = None
        self._password = _following(options, "--requirepass")
        self.start()

    @property
    def socketPath(self) -> str:
        """Return the path of its Unix socket."""
        return os.path.join(self.directory, "s")

    def start(self) -> None:
        """Start it, and wait until it responds."""
        command = ["setpriv", "--pdeathsig", "KILL", self._program, "--bind", "127.0.0.1"]
        command += ["--dir", self.directory, "--save", "", "--appendonly", "no"]
        command += ["--unixsocket", self.socketPath, *self._options]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        end = monotonic() + START_SECONDS
        while not self._serves():
            assert self._process.poll() is None, "redis-server did not start"
            assert monotonic() < end, "redis-server takes too long to start"
            Event().wait(0.01)

    def execute(self, *words: str | bytes | int) -> Any:
        """
        Execute a command; return its reply. Blocks.

        @raise hiredis.ReplyError: If the reply is an error.
        """
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(self.socketPath)
            reader = hiredis.Reader()
            if self._password is not None:
                _ask(connection, reader, "AUTH", self._password)
            reply = _ask(connection, reader, *words)
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        return reply

    def advance(self, seconds: float) -> None:
        """Make all keys expire this much earlier."""
        for key in self.execute("KEYS", "*"):
            left = self.execute("PTTL", key) - round(seconds * 1000)
            self.execute("PEXPIRE", key, left)

    def suspend(self) -> None:
        """Suspend the process."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Undo L{suspend}."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it, like a crash: all data is lost."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(30)

    def remove(self) -> None:
        """Stop it, and remove its directory."""
        self.kill()
        self._held.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _serves(self) -> bool:
        try:
            return bool(self.execute("PING") == b"PONG")
        except (OSError, hiredis.ReplyError):
            return False


def _ask(connection: socket.socket, reader: Any, *words: str | bytes | int) -> Any:
    connection.sendall(hiredis.pack_command(words))  # type: ignore[arg-type]
    while (reply := reader.gets()) is False:
        data = connection.recv(1 << 16)
        if not data:
            raise OSError("the server closed the connection")
        reader.feed(data)
    return reply


def _following(words: tuple[str, ...], name: str) -> str | None:
    return words[words.index(name) + 1] if name in words else None
