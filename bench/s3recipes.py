"""How each S3 server is started, and what it can be asked."""

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

from bench import nginx as nginxServer
from bench.places import BULK_FILL, CHECKOUT, FLOOR, peersFolder
from bench.processes import FLOOR_NAME, Recipe
from bench.programs import firstVersion, program, storagegateVersion
from bench.s3cases import Case
from bench.signing import Credentials

CREDENTIALS = Credentials("BENCHACCESSKEY", "bench-secret-key-of-the-bench")
MILLION = 1_000_000
WIRE_LIMIT = 100_000
"""Buckets with more keys are filled in bulk: by requests a million takes minutes."""


FLOOR_LIST_LIMIT = 10_000
FLOOR_LARGEST = 32 * 1024
"""Larger objects are files with the daemon; the floor has none."""


@frozen
class S3Recipe(Recipe):
    """
    An S3 server to be.

    @ivar listLimit: The largest bucket that it is asked to list; 0: none.
    @ivar largest: The largest object that it takes, in bytes; L{None} where that does not matter.
    @ivar plainFolders: Its buckets are folders under C{data}: large ones are made as plain files.
    @ivar quickHeaders: It takes the key pair in headers: lists are filled without signing.
    @ivar prefilled: The buckets to list that C{prepare} makes, and how many keys each has.
    """

    credentials: Credentials | None = None
    listLimit: int = 0
    largest: int | None = None
    plainFolders: bool = False
    quickHeaders: bool = False
    prefilled: Mapping[str, int] = field(factory=dict)


def storagegate(durability: str, listLimit: int = MILLION, lists: Iterable[Case] = ()) -> S3Recipe:
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

    return S3Recipe(
        name="storagegate" if durability == "full" else f"storagegate-{durability}",
        command=command,
        describe=storagegateVersion,
        credentials=CREDENTIALS,
        environment=environment,
        prepare=prepare,
        listLimit=listLimit,
        quickHeaders=True,
        prefilled={bucket: case.keys for bucket, case in large.items()},
    )


def floor() -> S3Recipe:
    """Describe the floor: small objects, as the daemon keeps them in its catalog."""

    def command(folder: Path, port: int) -> list[str]:
        app = FLOOR / "s3_floor.py"
        pair = (CREDENTIALS.access, CREDENTIALS.secret)
        return [sys.executable, str(app), str(port), str(folder / "data"), *pair]

    return S3Recipe(
        name=FLOOR_NAME,
        command=command,
        describe=storagegateVersion,
        credentials=CREDENTIALS,
        listLimit=FLOOR_LIST_LIMIT,
        largest=FLOOR_LARGEST,
    )


def rclone() -> S3Recipe:
    """Describe C{rclone serve s3} on a folder, with its defaults."""

    def find() -> str:
        return program("rclone", peersFolder() / "s3rclone" / "bin", Path(sys.executable).parent)

    def command(folder: Path, port: int) -> list[str]:
        pair = f"{CREDENTIALS.access},{CREDENTIALS.secret}"
        words = [find(), "serve", "s3", "--auth-key", pair, "--addr", f"127.0.0.1:{port}"]
        return [*words, str(folder / "data")]

    def prepare(folder: Path, port: int) -> None:
        (folder / "data").mkdir()

    return S3Recipe(
        name="rclone",
        command=command,
        describe=lambda: firstVersion([find(), "version"]),
        credentials=CREDENTIALS,
        environment={"RCLONE_CONFIG": os.devnull},
        prepare=prepare,
        listLimit=WIRE_LIMIT,
        plainFolders=True,
    )


def nginx() -> S3Recipe:
    """Describe nginx with WebDAV on a folder."""
    return S3Recipe(
        name="nginx",
        command=nginxServer.command,
        describe=nginxServer.describe,
        prepare=nginxServer.prepare,
        plainFolders=True,
    )


def chooseRecipes(names: Sequence[str], durability: str, cases: Iterable[Case]) -> list[S3Recipe]:
    """
    Choose the servers of a run.

    @param names: Of C{storagegate}, C{floor}, C{rclone}, C{nginx}.
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
    if FLOOR_NAME in names:
        chosen.append(floor())
    if "rclone" in names:
        chosen.append(rclone())
    if "nginx" in names:
        chosen.append(nginx())
    return chosen
