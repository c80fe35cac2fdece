"""The servers that S3 is compared with."""

import os
import sys
from pathlib import Path

from attrs import evolve

from bench import peers
from bench.cases import Server
from bench.processes import Running
from bench.s3.recipe import CREDENTIALS, Traits
from bench.s3.tls import identity

_PAIR = (CREDENTIALS.access, CREDENTIALS.secret)


def _rclone() -> Server:
    """Return C{rclone serve s3} on a directory, with its defaults. It syncs nothing."""

    def find() -> str:
        folders = (peers.peersFolder() / "s3rclone" / "bin", Path(sys.executable).parent)
        return peers.program("rclone", *folders)

    def command(running: Running) -> list[object]:
        words = [find(), "serve", "s3", "--auth-key", ",".join(_PAIR), "--addr", running.host]
        return [*words, running.folder / "data"]

    return Server(
        "rclone",
        command,
        version=lambda: peers.firstVersion([find(), "version"]),
        environment={"RCLONE_CONFIG": os.devnull},
        prepare=lambda running: (running.folder / "data").mkdir(),
        data=Traits(plainFolders=True),
    )


RCLONE = _rclone()
_UNSIGNED = Traits(credentials=None, plainFolders=True)
NGINX = evolve(peers.nginx(), data=_UNSIGNED)
"""WebDAV: it checks no signature, syncs nothing and cannot list."""

NGINX_TLS = evolve(peers.nginx(identity=identity), data=_UNSIGNED)
"""The same over TLS, with tickets."""
