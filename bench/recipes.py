"""How each server is started, and what it can be asked."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from string import Template

from attrs import field, frozen

from bench.cases import Case
from bench.places import BULK_FILL, CHECKOUT, NGINX_TEMPLATE, peersFolder
from bench.signing import Credentials

CREDENTIALS = Credentials("BENCHACCESSKEY", "bench-secret-key-of-the-bench")
MILLION = 1_000_000
WIRE_LIMIT = 100_000
"""Buckets with more keys are filled in bulk: by requests a million takes minutes."""


def _nothing(folder: Path, port: int) -> None:
    """Prepare nothing."""


@frozen
class Recipe:
    """
    A server to be.

    @ivar command: Makes the command line out of the server's folder and port.
    @ivar prepare: Makes what must lie in the folder before the start.
    @ivar listLimit: The largest bucket that it is asked to list; 0: none.
    @ivar plainFolders: Its buckets are folders under C{data}: large ones are made as plain files.
    @ivar quickHeaders: It takes the key pair in headers: lists are filled without signing.
    @ivar prefilled: The buckets to list that C{prepare} makes, and how many keys each has.
    @ivar describe: Gives its version.
    """

    name: str
    command: Callable[[Path, int], list[str]]
    describe: Callable[[], str]
    credentials: Credentials | None = None
    environment: Mapping[str, str] = field(factory=dict)
    prepare: Callable[[Path, int], None] = _nothing
    listLimit: int = 0
    plainFolders: bool = False
    quickHeaders: bool = False
    prefilled: Mapping[str, int] = field(factory=dict)


def _firstVersion(command: list[str]) -> str:
    """Run a program for its version and find that in the answer."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    match = re.search(r"[0-9]+(?:\.[0-9]+)+", done.stdout + done.stderr)
    return match[0] if match else "unknown"


def _program(name: str, *folders: Path) -> str:
    """
    Find a program in some folders or on the path.

    @raise FileNotFoundError: If it is nowhere; the message says how to get it.
    """
    places = os.pathsep.join([*map(str, folders), os.environ.get("PATH", ""), "/usr/sbin"])
    found = shutil.which(name, path=places)
    if found is None:
        raise FileNotFoundError(f"no {name}: run bench/setup_peers.sh")
    return found


def _storagegateVersion() -> str:
    """Say which commit runs, on which Twisted and Python."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--tags"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    python = ".".join(map(str, sys.version_info[:3]))
    commit = described.stdout.strip() or "unknown"
    return f"{commit} (Twisted {version('twisted')}, Python {python})"


def storagegate(durability: str, listLimit: int = MILLION, lists: Iterable[Case] = ()) -> Recipe:
    """
    Describe this checkout's daemon with the S3 listener alone.

    @param lists: The lists that it will be asked for; the large buckets among theirs are filled
        before the start.
    """
    large = {case.bucket: case for case in lists if WIRE_LIMIT < case.keys <= listLimit}
    # The checkout comes first, or an installed copy would be measured.
    environment = {
        "PYTHONPATH": str(CHECKOUT),
        "STORAGEGATE_ACCESS_KEY": CREDENTIALS.access,
        "STORAGEGATE_SECRET_KEY": CREDENTIALS.secret,
    }

    def prepare(folder: Path, port: int) -> None:
        for bucket, case in large.items():
            words = [sys.executable, str(BULK_FILL), str(folder / "data"), bucket[1:]]
            words += [str(case.keys), str(case.size)]
            subprocess.run(words, check=True, env={**os.environ, **environment})

    def command(folder: Path, port: int) -> list[str]:
        twistd = [sys.executable, "-c", "from twisted.scripts.twistd import run; run()"]
        words = [*twistd, "-n", "--pidfile=", "storagegate", "--data", str(folder / "data")]
        words += ["--durability", durability, "--s3", f"tcp:{port}:interface=127.0.0.1"]
        for listener in ("admin", "http", "grpc", "tcp", "udp"):
            words += [f"--{listener}", "off"]
        return words

    return Recipe(
        name="storagegate" if durability == "full" else f"storagegate-{durability}",
        command=command,
        describe=_storagegateVersion,
        credentials=CREDENTIALS,
        environment=environment,
        prepare=prepare,
        listLimit=listLimit,
        quickHeaders=True,
        prefilled={bucket: case.keys for bucket, case in large.items()},
    )


def rclone() -> Recipe:
    """Describe C{rclone serve s3} on a folder, with its defaults."""

    def find() -> str:
        return _program("rclone", peersFolder() / "s3rclone" / "bin", Path(sys.executable).parent)

    def command(folder: Path, port: int) -> list[str]:
        pair = f"{CREDENTIALS.access},{CREDENTIALS.secret}"
        words = [find(), "serve", "s3", "--auth-key", pair, "--addr", f"127.0.0.1:{port}"]
        return [*words, str(folder / "data")]

    def prepare(folder: Path, port: int) -> None:
        (folder / "data").mkdir()

    return Recipe(
        name="rclone",
        command=command,
        describe=lambda: _firstVersion([find(), "version"]),
        credentials=CREDENTIALS,
        environment={"RCLONE_CONFIG": os.devnull},
        prepare=prepare,
        listLimit=WIRE_LIMIT,
        plainFolders=True,
    )


def nginx() -> Recipe:
    """Describe nginx with WebDAV on a folder."""

    def command(folder: Path, port: int) -> list[str]:
        return [_program("nginx"), "-p", str(folder), "-c", str(folder / "nginx.conf")]

    def prepare(folder: Path, port: int) -> None:
        (folder / "data").mkdir()
        # Started as root, nginx would hand the work to a user that may not write here.
        user = "user root;" if os.geteuid() == 0 else ""
        text = Template(NGINX_TEMPLATE.read_text()).substitute(user=user, folder=folder, port=port)
        (folder / "nginx.conf").write_text(text)

    return Recipe(
        name="nginx",
        command=command,
        describe=lambda: _firstVersion([_program("nginx"), "-v"]),
        prepare=prepare,
        plainFolders=True,
    )


def chooseRecipes(names: Sequence[str], durability: str, cases: Iterable[Case]) -> list[Recipe]:
    """
    Choose the servers of a run.

    @param names: Of C{storagegate}, C{rclone}, C{nginx}.
    @param durability: C{full}, C{os} or C{both}. With both, only C{full} lists a million keys:
        reading does not depend on it.
    """
    lists = [case for case in cases if case.work == "list"]
    chosen = []
    if "storagegate" in names:
        if durability in ("full", "both"):
            chosen.append(storagegate("full", lists=lists))
        if durability == "both":
            chosen.append(storagegate("os", listLimit=WIRE_LIMIT, lists=lists))
        elif durability == "os":
            chosen.append(storagegate("os", lists=lists))
    if "rclone" in names:
        chosen.append(rclone())
    if "nginx" in names:
        chosen.append(nginx())
    return chosen
