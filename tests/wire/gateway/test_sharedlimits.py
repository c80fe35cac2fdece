"""The daemon with several workers: its limits hold for all of them together."""

import http.client
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import Daemon
from tests.support.selection import long

SERVICE = """
import os
from storagegate.core.definitions import readService

async def who(request, context):
    return {"pid": os.getpid()}

probe = readService({
    "name": "Probe",
    "methods": {
        "who": who,
        "limited": {"handler": who, "rateLimit": {"requests": 7, "window": 600_000}},
    },
})
"""


class WorkersTests(SynchronousTestCase):
    """Three workers behind one port."""

    timeout = 60

    @long("takes seconds")
    def test_limit(self) -> None:
        """A limit lets through what it says, whichever worker a call comes to."""
        folder = Path(self.mktemp())
        folder.mkdir()
        (folder / "limitedprobe.py").write_text(SERVICE)
        arguments = ("--http", "tcp:0:interface=127.0.0.1", "--service", "limitedprobe:probe")
        daemon = Daemon(
            folder / "data",
            *arguments,
            "--workers",
            "3",
            expect=("http",),
            directory=folder,
        )
        with daemon:
            statuses = [self.call(daemon, "limited") for _ in range(30)]
        self.assertEqual(sorted(statuses), [200] * 7 + [429] * 23)

    def call(self, daemon: Daemon, method: str) -> int:
        """Call on a connection of its own, which any worker may take."""
        connection = http.client.HTTPConnection(*daemon.address("http"), timeout=60)
        try:
            connection.request("POST", f"/api/Probe/{method}", "{}")
            return connection.getresponse().status
        finally:
            connection.close()
