"""An upload passes through a server's memory in small pieces, whatever its size."""

import hashlib
import json
import os
import socket
import subprocess
import sys
from http.client import HTTPResponse
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import daemonEnvironment
from tests.support.memory import forgetPeak, peakMemory
from tests.support.selection import long, soak

MIB = 1 << 20
RISE_LIMIT = 16 * MIB

# Longer than a gibibyte takes on a busy machine.
ANSWER_SECONDS = 300.0

_SERVER = """
import sys
from storagegate import server
from storagegate.http import upload

app = server.http()
takes = upload(sys.argv[1])
app.post("/", takes.single("file"), lambda req, res: res.json(req.file))
app.post("/filtered", upload(sys.argv[1], fileFilter=lambda *_: False).single("file"),
         lambda req, res: res.json(req.file))

from twisted.internet import reactor
app.listen(0).addCallback(lambda port: print(port.getHost().port, flush=True))
reactor.run()
"""


class UploadMemoryTests(SynchronousTestCase):
    """A server process of its own."""

    def setUp(self) -> None:
        """Start it."""
        self.directory = os.path.abspath(self.mktemp())
        self.server = subprocess.Popen(
            [sys.executable, "-c", _SERVER, self.directory],
            env=daemonEnvironment(),
            stdout=subprocess.PIPE,
        )
        self.addCleanup(self._stop)
        assert self.server.stdout is not None
        self.port = int(self.server.stdout.readline())

    def _stop(self) -> None:
        self.server.terminate()
        self.server.communicate()

    def send(self, size: int, path: str = "/") -> Any:
        """Send a file, all of it before anything is read; give the answer."""
        head = (
            b"--aB3x\r\nContent-Disposition: form-data; "
            b'name="file"; filename="large.bin"\r\nContent-Type: application/octet-stream\r\n\r\n'
        )
        end = b"\r\n--aB3x--\r\n"
        request = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            "Content-Type: multipart/form-data; boundary=aB3x\r\n"
            f"Content-Length: {len(head) + size + len(end)}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", self.port), ANSWER_SECONDS) as client:
            client.sendall(request.encode() + head)
            for _ in range(size // MIB):
                client.sendall(self.block)
            client.sendall(end)
            response = HTTPResponse(client, method="POST")
            response.begin()
            answer = response.read()
        self.assertEqual(response.status, 200, answer)
        return json.loads(answer)

    def assertFlat(self, size: int) -> None:
        """Send a file of this size; the peak may rise by 16 MiB, and every byte must be there."""
        self.block = os.urandom(MIB)
        forgetPeak(self.server.pid)
        before = peakMemory(self.server.pid)
        answer = self.send(size)
        self.assertLess(peakMemory(self.server.pid) - before, RISE_LIMIT)
        self.assertEqual(answer["size"], size)
        expected = hashlib.sha256()
        for _ in range(size // MIB):
            expected.update(self.block)
        with open(answer["path"], "rb") as stored:
            self.assertEqual(hashlib.file_digest(stored, "sha256").digest(), expected.digest())
        os.unlink(answer["path"])

    @long("takes seconds")
    def test_quarterGiB(self) -> None:
        """A file of 256 MiB raises the peak by less than 16 MiB."""
        self.assertFlat(256 * MIB)

    @soak("writes 1 GiB")
    def test_oneGiB(self) -> None:
        """A file of 1 GiB raises it no more."""
        self.assertFlat(1024 * MIB)

    def test_skipped(self) -> None:
        """A file that a filter skips is read, too, and kept nowhere."""
        self.block = bytes(MIB)
        forgetPeak(self.server.pid)
        before = peakMemory(self.server.pid)
        self.assertEqual(self.send(64 * MIB, "/filtered"), None)
        self.assertLess(peakMemory(self.server.pid) - before, RISE_LIMIT)
        self.assertEqual(os.listdir(self.directory), [])
