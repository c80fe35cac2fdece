"""A daemon, of one process and of several, whose data directory is taken away."""

import os
import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import Daemon
from tests.support.http import getJSON, request
from tests.support.selection import long
from tests.support.stores import fastDirectory

SMALL, LARGE = b"small", b"large" * 100_000
MOVED = "was removed, moved or replaced"


class MovedFilesTests(SynchronousTestCase):
    """What is answered with 200 is where the next start looks for it."""

    timeout = 120

    def assertStops(self, *flags: str) -> None:
        """A PUT after the move is 503, C{/readyz} says why, and what was stored is there."""
        data = Path(fastDirectory(self))
        with Daemon(data, *flags) as daemon:
            address, admin = daemon.address(), daemon.address("admin")
            self.assertEqual(request(address, "PUT", "/bucket")[0], 200)
            self.assertEqual(request(address, "PUT", "/bucket/before", SMALL)[0], 200)
            os.rename(data, f"{data}.away")
            for body in (SMALL, LARGE, SMALL):
                status, answer = request(address, "PUT", "/bucket/after", body)
                self.assertIn(status, (500, 503) if body is LARGE else (503,), answer)
            status, document = getJSON(admin, "/readyz")
            self.assertEqual((status, document["status"]), (503, "unavailable"))
            for path, expected in (("/minio/health/ready", 503), ("/healthz", 200)):
                status, answer = request(address, "GET", path, headers={})
                self.assertEqual((status, b"parts" in answer), (expected, False), path)
            self.assertIn(MOVED, document["error"], document)
            stops = f"read-only until a restart: .* {MOVED}"
            daemon.waitForLog(stops)
            # The recorder of the clock may have found the same.
            self.assertEqual(len(re.findall(stops, daemon.log)), 1, daemon.log)
            self.assertEqual(request(address, "GET", "/bucket/before"), (200, SMALL))
            self.assertEqual(daemon.stop(), 0)
        os.rename(f"{data}.away", data)
        with Daemon(data, *flags) as daemon:
            self.assertEqual(request(daemon.address(), "GET", "/bucket/before"), (200, SMALL))

    @long("takes seconds")
    def test_oneProcess(self) -> None:
        """A daemon of one process."""
        self.assertStops()

    @long("takes seconds")
    def test_workers(self) -> None:
        """Workers of one daemon."""
        self.assertStops("--workers", "2")
