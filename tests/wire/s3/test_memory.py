"""Memory is bounded by the number of uploads, never by their size."""

import hashlib
import socket
from collections.abc import Mapping
from functools import partial
from http.client import HTTPResponse
from pathlib import Path
from types import MappingProxyType

from tests.support.clients import ROOT
from tests.support.memory import peakMemory
from tests.support.s3signer import ANSWER_SECONDS
from tests.support.selection import long, soak
from tests.wire.s3.bulk import inParallel
from tests.wire.s3.fixture import S3Case, makeDaemon, ownDirectory

MIB = 1 << 20


def zeros(directory: Path, size: int) -> Path:
    """Make a file that holds nothing but zeros, and takes no room."""
    path = directory / f"zeros-{size}"
    with path.open("wb") as file:
        file.truncate(size)
    return path


class MemoryTests(S3Case):
    """
    A daemon of its own, whose peak nobody else has raised.

    @ivar peakMiB: The most memory.
    @ivar variables: Variables of its environment.
    """

    peakMiB = 300
    variables: Mapping[str, str] = MappingProxyType({})

    def setUp(self) -> None:
        """Start the daemon."""
        super().setUp()
        self.directory = ownDirectory("memory")
        self.measured = makeDaemon(self.directory / "data", **self.variables)
        self.addCleanup(self.measured.kill)
        self.measured.start()
        self.ask("PUT", "/memory")

    def ask(self, method: str, target: str, body: Path | None = None) -> str:
        """Send a request whose body the kernel reads from a file; give the answer's ETag."""
        length = body.stat().st_size if body is not None else 0
        fields = {**ROOT.plainHeaders(), "Host": "x", "Content-Length": str(length)}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        with socket.create_connection(self.measured.address(), ANSWER_SECONDS * 10) as connection:
            connection.sendall(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode())
            if body is not None:
                with body.open("rb") as file:
                    connection.sendfile(file)
            response = HTTPResponse(connection, method=method)
            response.begin()
            answer = response.read()
            self.assertEqual(response.status, 200, answer)
            return response.headers.get("etag", "")

    def uploadAtOnce(self, count: int, size: int) -> None:
        """Send this many bodies of this size at the same time, and look at the peak."""
        body = zeros(self.directory, size)
        uploads = [partial(self.ask, "PUT", f"/memory/k{number}", body) for number in range(count)]
        etags = inParallel(uploads)
        expected = hashlib.md5(bytes(size), usedforsecurity=False).hexdigest()
        self.assertEqual(set(etags), {f'"{expected}"'})
        self.assertLess(peakMemory(self.measured.pid), self.peakMiB * MIB)

    @long("takes seconds")
    def test_parallelUploads(self) -> None:
        """32 uploads of 16 MiB at once keep the process under 300 MiB."""
        self.uploadAtOnce(32, 16 * MIB)

    @soak("writes 10 GB")
    def test_hundredUploads(self) -> None:
        """100 uploads of 100 MiB at once keep the process under 300 MiB."""
        self.uploadAtOnce(100, 100 * MIB)

    @soak("writes 5 GiB")
    def test_fiveGiB(self) -> None:
        """One put of 5 GiB, the most that one may have, streams, and reads back in pieces."""
        size = 5 << 30
        etag = self.ask("PUT", "/memory/five", zeros(self.directory, size))
        digest = hashlib.md5(usedforsecurity=False)
        block = bytes(MIB)
        for _ in range(size // MIB):
            digest.update(block)
        self.assertEqual(etag, f'"{digest.hexdigest()}"')
        self.assertLess(peakMemory(self.measured.pid), self.peakMiB * MIB)


class SealedMemoryTests(MemoryTests):
    """Encrypted uploads, of which each has the sealed bytes beside the plain ones."""

    peakMiB = 320
    variables = MappingProxyType({"STORAGEGATE_ENCRYPT_ALL": "true"})
