"""
A RADOS cluster of one node on loopback: a monitor and an OSD with BlueStore in a file.

Debian's packages are downloaded once and unpacked into a folder of the user's cache, never
installed. They include all dependencies that the system lacks.
"""

import atexit
import ctypes
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest

from tests.support.ports import START_SECONDS, waitForPort

PACKAGES = ("ceph-mon", "ceph-osd", "librados2")

_DOWNLOAD_SECONDS = 300.0

_CONFIGURATION = """\
[global]
fsid = {fsid}
mon host = v1:127.0.0.1:{port}
mon initial members = a
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd crush chooseleaf type = 0
mon allow pool size one = true
mon data avail crit = 1
ms bind msgr2 = false
public addr = 127.0.0.1
run dir = {directory}/run
admin socket = {directory}/run/$name.$pid.asok
log file = {directory}/log/$name.log
plugin dir = {libraries}/ceph
erasure code dir = {libraries}/ceph/erasure-code
osd class dir = {libraries}/rados-classes
osd class load list = *
osd class default list = *
osd memory target = 939524096
bluestore block size = 4294967296
[mon.a]
mon data = {directory}/mon
[osd]
osd data = {directory}/osd$id
osd objectstore = bluestore
osd class update on start = false
osd crush update on start = false
"""


@cache
def unpackedCeph() -> Path:
    """
    Return the folder with the unpacked Debian packages.

    @raise SkipTest: If they are not available.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "storagegate-tests"
    root = home / "ceph"
    if root.is_dir():
        return root
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise SkipTest("Ceph is unpacked from Debian's packages, and this is no Debian")
    home.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="ceph-", dir=home))
    try:
        (draft / "archives" / "partial").mkdir(parents=True)
        command = ["apt-get", "install", "-y", "-q", "--download-only", "--no-install-recommends"]
        # Not the system's archive folder: packages that are already there would not be copied to
        # ours.
        command += ["-o", f"Dir::Cache::archives={draft}/archives/", "-o", "Debug::NoLocking=1"]
        done = subprocess.run(
            [*command, *PACKAGES], capture_output=True, timeout=_DOWNLOAD_SECONDS, check=False
        )
        archives = sorted((draft / "archives").glob("*.deb"))
        if done.returncode or not archives:
            reason = done.stderr.decode(errors="replace").strip().split("\n")[-1]
            raise SkipTest(f"Debian's packages of Ceph cannot be had here: {reason}")
        for archive in archives:
            subprocess.run(["dpkg-deb", "-x", archive, draft / "root"], check=True)
        # Two processes may do this at the same time: the first folder stays.
        with suppress(OSError):
            (draft / "root").rename(root)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return root


def libraryFolders() -> list[Path]:
    """Return the folders of the unpacked libraries."""
    root = unpackedCeph()
    [machine, *_] = (root / "usr" / "lib").glob("*-linux-gnu")
    return [machine, machine / "ceph", root / "usr" / "lib" / "ceph", root / "lib" / machine.name]


def cephEnvironment() -> dict[str, str]:
    """Return the environment variable with which a process finds the unpacked libraries."""
    return {"LD_LIBRARY_PATH": os.pathsep.join(map(str, libraryFolders()))}


@cache
def loadLibrados() -> ctypes.CDLL:
    """
    Load C{librados.so.2} into this process, so that later loads of this name find it.

    Its dependencies are loaded first, in their order.
    """
    folders = libraryFolders()
    failed = OSError()
    wanted = ["librados.so.2"]
    for _ in range(200):
        name = wanted[-1]
        try:
            paths = [folder / name for folder in folders if (folder / name).exists()]
            library = ctypes.CDLL(str(paths[0]) if paths else name, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            failed = error
            # "libfmt.so.9: cannot open shared object file: No such file or directory"
            wanted.append(str(error).partition(":")[0])
        else:
            wanted.pop()
            if not wanted:
                return library
    raise failed


def listObjects(io: ctypes.c_void_p) -> set[str]:
    """List the objects of a pool, in the namespace of an I/O context."""
    lib = loadLibrados()
    cursor = ctypes.c_void_p()
    assert lib.rados_nobjects_list_open(io, ctypes.byref(cursor)) == 0
    names = set()
    name = ctypes.c_char_p()
    while lib.rados_nobjects_list_next(cursor, ctypes.byref(name), None, None) == 0:
        names.add((name.value or b"").decode())
    lib.rados_nobjects_list_close(cursor)
    return names


class CephCluster:
    """
    A cluster. All methods block.

    @ivar configuration: The path of C{ceph.conf}.
    @ivar port: The port of the monitor.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.directory = Path(tempfile.mkdtemp(prefix="storagegate-ceph-"))
        self.configuration = self.directory / "ceph.conf"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._handle: ctypes.c_void_p | None = None

    def start(self) -> None:
        """Create and start the cluster."""
        for name in ("mon", "run", "log", "osd0"):
            (self.directory / name).mkdir()
        fsid = str(uuid.uuid4())
        self.configuration.write_text(
            _CONFIGURATION.format(
                fsid=fsid, port=self.port, directory=self.directory, libraries=libraryFolders()[0]
            )
        )
        address = f"[v1:127.0.0.1:{self.port}]"
        self._run("monmaptool", "--create", "--addv", "a", address, "--fsid", fsid, "monmap")
        self._run("ceph-mon", "-i", "a", "--mkfs", "--monmap", "monmap")
        self._begin("ceph-mon", "-i", "a", "-f")
        waitForPort(self.port, self._processes["ceph-mon"])
        self.command(prefix="osd create")
        # The OSD would do this itself, with a command that a new monitor sometimes refuses.
        self.command(prefix="osd crush add", id=0, weight=1.0, args=["root=default"])
        self._run("ceph-osd", "-i", "0", "--mkfs")
        self.startStorage()

    def startStorage(self) -> None:
        """Start the OSD, and wait until it is up."""
        self._begin("ceph-osd", "-i", "0", "-f")
        self._waitForStorage(1)

    def killStorage(self) -> None:
        """Kill the OSD: objects can no longer be read or written."""
        process = self._processes.pop("ceph-osd")
        process.kill()
        process.wait()
        self.command(prefix="osd down", ids=["0"])

    def pauseStorage(self) -> None:
        """Suspend the OSD: it accepts requests and does not answer."""
        process = self._processes["ceph-osd"]
        process.send_signal(signal.SIGSTOP)
        # Until all its threads have stopped it may answer.
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)

    def resumeStorage(self) -> None:
        """Resume the OSD."""
        self._processes["ceph-osd"].send_signal(signal.SIGCONT)

    def makePool(self, name: str) -> None:
        """Create a pool."""
        self.command(prefix="osd pool create", pool=name, pg_num=8)

    def names(self, pool: str) -> set[str]:
        """List the objects of a pool."""
        library, io = loadLibrados(), ctypes.c_void_p()
        handle = self._connected(library)
        assert library.rados_ioctx_create(handle, pool.encode(), ctypes.byref(io)) == 0
        try:
            return listObjects(io)
        finally:
            library.rados_ioctx_destroy(io)

    def setFull(self, isFull: bool) -> None:
        """Make the OSD report that it is full, or has space again."""
        # In this order no ratio exceeds the next one, which the OSD would correct.
        kinds = ("nearfull", "backfillfull", "full")
        ratios = (0.00001, 0.00002, 0.00003) if isFull else (0.85, 0.90, 0.95)
        pairs = list(zip(kinds, ratios, strict=True))
        for kind, ratio in pairs if isFull else reversed(pairs):
            self.command(prefix=f"osd set-{kind}-ratio", ratio=ratio)
        deadline = time.monotonic() + START_SECONDS
        while self._isFull() is not isFull:
            assert time.monotonic() < deadline, "the OSD did not see it"
            with suppress(subprocess.TimeoutExpired):
                self._processes["ceph-osd"].wait(0.1)

    def _isFull(self) -> bool:
        pools = self.command(prefix="osd dump")["pools"]
        return any("full" in pool["flags_names"].split(",") for pool in pools)

    def addressOf(self, handle: ctypes.c_void_p) -> str:
        """Return the address by which the cluster knows a client."""
        library = loadLibrados()
        text = ctypes.c_void_p()
        assert library.rados_getaddrs(handle, ctypes.byref(text)) == 0
        found = ctypes.string_at(text).decode()
        library.rados_buffer_free(text)
        return found

    def exclude(self, address: str) -> None:
        """Blocklist a client permanently."""
        self.command(prefix="osd blocklist", blocklistop="add", addr=address)

    def command(self, **words: Any) -> Any:
        """Run a command in the monitor; return its answer."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            code, text, why = self._send(json.dumps({**words, "format": "json"}).encode())
            # A client that connects too early gets a map without an id from the monitor.
            if why != b"wrong fsid" or time.monotonic() > deadline:
                break
            self._disconnect()
        assert code == 0, (words, code, why)
        return json.loads(text) if text.strip() else None

    def _send(self, line: bytes) -> tuple[int, bytes, bytes]:
        library = loadLibrados()
        handle = self._connected(library)
        lines = (ctypes.c_char_p * 1)(line)
        out, outLength = ctypes.c_void_p(), ctypes.c_size_t()
        status, statusLength = ctypes.c_void_p(), ctypes.c_size_t()
        code = library.rados_mon_command(
            handle,
            lines,
            ctypes.c_size_t(1),
            None,
            ctypes.c_size_t(0),
            ctypes.byref(out),
            ctypes.byref(outLength),
            ctypes.byref(status),
            ctypes.byref(statusLength),
        )
        text = ctypes.string_at(out, outLength.value) if out else b""
        why = ctypes.string_at(status, statusLength.value) if status else b""
        for buffer in (out, status):
            library.rados_buffer_free(buffer)
        return code, text, why

    def _disconnect(self) -> None:
        if self._handle is not None:
            loadLibrados().rados_shutdown(self._handle)
            self._handle = None

    def stop(self) -> None:
        """Stop all processes and remove their files."""
        self._disconnect()
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _connected(self, library: ctypes.CDLL) -> ctypes.c_void_p:
        if self._handle is None:
            handle = ctypes.c_void_p()
            assert library.rados_create(ctypes.byref(handle), b"admin") == 0
            path = str(self.configuration).encode()
            assert library.rados_conf_read_file(handle, path) == 0
            assert library.rados_conf_set(handle, b"client_mount_timeout", b"30") == 0
            code = library.rados_connect(handle)
            assert code == 0, f"the monitor did not answer: {code}"
            self._handle = handle
        return self._handle

    def _waitForStorage(self, count: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while self.command(prefix="osd stat")["num_up_osds"] != count:
            assert time.monotonic() < deadline, "the OSD did not come up"
            assert self._processes["ceph-osd"].poll() is None, "the OSD has ended"
            with suppress(subprocess.TimeoutExpired):
                self._processes["ceph-osd"].wait(0.1)

    def _command(self, program: str, arguments: tuple[str, ...]) -> list[str]:
        path = unpackedCeph() / "usr" / "bin" / program
        start = [str(path), *arguments]
        return start if program == "monmaptool" else [*start, "-c", str(self.configuration)]

    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, **cephEnvironment()}

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            self._command(program, arguments),
            cwd=self.directory,
            env=self._environment(),
            capture_output=True,
            timeout=START_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")

    def _begin(self, program: str, *arguments: str) -> None:
        with open(self.directory / "log" / f"{program}.out", "ab") as log:
            self._processes[program] = subprocess.Popen(
                self._command(program, arguments),
                cwd=self.directory,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


@cache
def runningCluster() -> CephCluster:
    """
    Return the cluster of this process, which is started on first use.

    @raise SkipTest: If Debian's packages are not available.
    """
    unpackedCeph()
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    cluster = CephCluster(port)
    atexit.register(cluster.stop)
    cluster.start()
    return cluster
