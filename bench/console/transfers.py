"""An object of many parts, sent and read back: through the console, or over S3."""

import http.client
import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import local

from attrs import field, frozen

from bench.cases import MeasureError

PART_BYTES = 8 << 20
"""What the page of the console takes for files of less than 80 GiB."""

_READ_BYTES = 1 << 20

_PATH = "bench/large"


@frozen
class Client:
    """
    Who sends and reads, with one connection a thread.

    @ivar fields: The fields of every request: the key pair.
    """

    port: int
    fields: Mapping[str, str]
    _own: local = field(factory=local)

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[bytes, str]:
        """
        Return the answer and its C{ETag}.

        @raise MeasureError: The status is none of success.
        """
        response = self._send(method, path, body)
        answer = response.read()
        if response.status >= 300:
            raise MeasureError(f"{method} {path}: {response.status} {answer[:200]!r}")
        return answer, response.getheader("ETag", "")

    def read(self, path: str) -> int:
        """Read an object to its end, and return how many bytes it had."""
        response = self._send("GET", path, b"")
        room = bytearray(_READ_BYTES)
        received = 0
        while count := response.readinto(room):
            received += count
        return received

    def _send(self, method: str, path: str, body: bytes) -> http.client.HTTPResponse:
        if not hasattr(self._own, "connection"):
            self._own.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection: http.client.HTTPConnection = self._own.connection
        connection.request(method, path, body or None, dict(self.fields))
        return connection.getresponse()


def uploadByConsole(client: Client, api: str, size: int, threads: int) -> None:
    """
    Store the object through the console.

    @param api: The path of its API, with a slash at the end.
    """
    uploads = f"{api}buckets/bench/uploads"
    begun, _ = client.ask("POST", uploads, json.dumps({"key": "large", "size": size}).encode())
    upload = f"{uploads}/{json.loads(begun)['id']}"
    _sendParts(lambda n, part: client.ask("PUT", f"{upload}/parts/{n}", part), size, threads)
    client.ask("POST", f"{upload}/complete", json.dumps({"size": size}).encode())


def uploadByS3(client: Client, size: int, threads: int) -> None:
    """Store the object over S3."""
    begun, _ = client.ask("POST", f"/{_PATH}?uploads")
    found = re.search(rb"<UploadId>([^<]+)<", begun)
    if found is None:
        raise MeasureError(f"no upload id: {begun[:200]!r}")
    place = f"/{_PATH}?uploadId={found[1].decode()}"
    put = f"{place}&partNumber="
    tags = _sendParts(lambda n, part: client.ask("PUT", f"{put}{n}", part)[1], size, threads)
    named = "".join(
        f"<Part><PartNumber>{n}</PartNumber><ETag>{tag}</ETag></Part>"
        for n, tag in enumerate(tags, 1)
    )
    document = f"<CompleteMultipartUpload>{named}</CompleteMultipartUpload>"
    client.ask("POST", place, document.encode())


def _sendParts(put: Callable[[int, bytes], object], size: int, threads: int) -> list[object]:
    """Send parts, so many at a time."""
    part = bytes(range(256)) * (PART_BYTES // 256)
    lengths = [min(PART_BYTES, size - at) for at in range(0, size, PART_BYTES)]
    with ThreadPoolExecutor(threads) as pool:
        sent = [pool.submit(put, n, part[:length]) for n, length in enumerate(lengths, 1)]
        return [each.result() for each in sent]
