"""
Real PostgreSQL servers for tests: Debian's package, run in a temporary directory on loopback.

L{sharedServer} is a server for all tests of a process; each test uses a fresh database, copied from
a template that has the schema already. L{Server.standby} makes a standby of a server.
PostgreSQL refuses to run as root, so it runs as C{nobody} then.
"""

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import closing
from functools import cache
from glob import glob
from itertools import count
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

import psycopg

from storagegate.storage.cluster.schema import migrate
from tests.support.programs import missing

USER = "storagegate"
START_SECONDS = 60.0

_SETTINGS = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
max_connections = 100
shared_buffers = 64MB
dynamic_shared_memory_type = mmap
wal_level = replica
max_wal_senders = 8
wal_keep_size = 256MB
hot_standby = on
log_min_messages = warning
# The cases end servers, never the machine.
fsync = off
synchronous_commit = on
"""

_numbers = count()


@cache
def binaries() -> Path:
    """
    Return the directory of PostgreSQL's programs; the newest version if several are installed.

    @raise SkipTest: If PostgreSQL is not installed.
    """
    found = sorted(glob("/usr/lib/postgresql/*/bin"), key=lambda each: int(each.split("/")[-2]))
    if not found:
        raise missing("postgres")
    return Path(found[-1])


class Server:
    """
    A running server.

    @ivar directory: The data directory.
    @ivar port: The port on loopback.
    """

    def __init__(self) -> None:
        self.directory = _directory()
        # Bound as long as the server may be started, so that no other process gets its port.
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self.port: int = self._held.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def make(cls) -> "Server":
        """Create a server and start it."""
        made = cls()
        arguments = ["-U", USER, "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        _run("initdb", "-D", made.directory, *arguments)
        made._configure()
        made.start()
        return made

    def standby(self, name: str, isSynchronous: bool = True) -> "Server":
        """
        Create a standby of this server, and start it.

        @param name: The application name of the standby.
        @param isSynchronous: Whether commits of this server wait for it.
        """
        made = Server()
        made.follow(self, name, isSynchronous)
        return made

    def follow(
        self, primary: "Server", name: str, isSynchronous: bool = True, port: int = 0
    ) -> None:
        """
        Start this stopped server as a standby, with a copy of the primary's data.

        @param name: The application name of the standby.
        @param isSynchronous: Whether commits of the primary wait for it.
        @param port: The port of a proxy in front of the primary.
        """
        # The directory itself stays, because PostgreSQL's user does not own its parent.
        for each in Path(self.directory).iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        source = f"host=127.0.0.1 port={port or primary.port} user={USER} dbname=postgres"
        arguments = ["-R", "-X", "stream", "-c", "fast", "--no-sync"]
        source += f" application_name={name}"
        _run("pg_basebackup", "-D", self.directory, "-d", source, *arguments)
        self._configure()
        self.start()
        if isSynchronous:
            primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
            primary.execute("SELECT pg_reload_conf()")
            _until(lambda: primary.value("SELECT sync_state FROM pg_stat_replication") == "sync")

    def conninfo(self, database: str) -> str:
        """Return the conninfo of a database."""
        return f"host=127.0.0.1 port={self.port} user={USER} dbname={database}"

    def database(self, template: str = "template0", encoding: str = "UTF8") -> str:
        """Create a database; return its conninfo."""
        name = f"sg{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} ENCODING '{encoding}'")
        return self.conninfo(name)

    def store(self) -> str:
        """Create a database with the schema of the catalog; return its conninfo."""
        if not self.value("SELECT count(*) FROM pg_database WHERE datname = 'store'"):
            self.execute("CREATE DATABASE store TEMPLATE template0")
            migrate(self.conninfo("store"))
        return self.database("store")

    def execute(self, sql: str, *values: object, database: str = "postgres") -> list[Any]:
        """Run a statement; return its rows."""
        return execute(self.conninfo(database), sql, *values)

    def value(self, sql: str, *values: object) -> Any:
        """Run a statement; return the first column of its first row, or C{None} without rows."""
        rows = self.execute(sql, *values)
        return rows[0][0] if rows else None

    def start(self) -> None:
        """Start it unless it runs, and wait until it accepts connections."""
        if self._process is not None:
            return
        with open(os.path.join(self.directory, "log"), "ab") as log:
            command = [*asUser(), str(binaries() / "postgres"), "-D", self.directory]
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        _until(self._answers)

    def stop(self) -> None:
        """Stop it, without waiting for its clients."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Stop it immediately, like a crash."""
        self._end(signal.SIGQUIT)

    def suspend(self) -> None:
        """Suspend all its processes."""
        for process in self._processes():
            os.kill(process, signal.SIGSTOP)

    def resume(self) -> None:
        """Undo L{suspend}."""
        for process in self._processes():
            os.kill(process, signal.SIGCONT)

    def promote(self) -> None:
        """Promote a standby."""
        self.execute("SELECT pg_promote(true, 60)")

    def remove(self) -> None:
        """Stop it, and remove its data."""
        self._end(signal.SIGQUIT)
        self._held.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _configure(self) -> None:
        path = os.path.join(self.directory, "postgresql.conf")
        with open(path, "a", encoding="utf-8") as file:
            file.write(_SETTINGS.format(port=self.port))

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, Path(self.directory, "log").read_text()
        try:
            psycopg.connect(self.conninfo("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _processes(self) -> list[int]:
        assert self._process is not None
        # The wrapper that changes the user replaces itself with the server.
        first = self._process.pid
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return [first, *map(int, children)]

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(how)
            # A suspended server must be resumed to receive the signal.
            process.send_signal(signal.SIGCONT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                # One of its processes hangs in the kernel, on a busy disk.
                process.kill()
                process.wait(30)


@cache
def sharedServer(number: int = 0) -> Server:
    """
    Return a server of this process.

    @param number: 0 for the server of all tests; 1 for a second one, which a test may stop if it
        starts it again.
    """
    server = Server.make()
    atexit.register(server.remove)
    return server


def execute(conninfo: str, sql: str, *values: object) -> list[Any]:
    """Run a statement in a database; return its rows. Blocks."""
    with closing(psycopg.connect(conninfo, autocommit=True)) as connection:
        done = connection.execute(sql.encode(), values or None)
        return done.fetchall() if done.description else []


def _until(condition: Any) -> None:
    end = monotonic() + START_SECONDS
    while not condition():
        assert monotonic() < end, "it took too long"
        Event().wait(0.02)


def _directory() -> str:
    """Make a directory owned by PostgreSQL's user, with a name short enough for a socket."""
    made = tempfile.mkdtemp(prefix="sgpg")
    if os.getuid() == 0:
        found = pwd.getpwnam("nobody")
        os.chown(made, found.pw_uid, found.pw_gid)
    os.chmod(made, 0o700)
    return made


def asUser() -> list[str]:
    """Return a command prefix that ends a program with this process, and runs it without root."""
    command = ["setpriv", "--pdeathsig", "QUIT"]
    if os.getuid() == 0:
        found = pwd.getpwnam("nobody")
        command += [f"--reuid={found.pw_uid}", f"--regid={found.pw_gid}", "--clear-groups"]
    return command


def _run(program: str, *arguments: str) -> None:
    subprocess.run(
        [*asUser(), str(binaries() / program), *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        cwd="/",
        env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "HOME": "/nonexistent"},
    )
