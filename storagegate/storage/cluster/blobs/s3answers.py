"""
Responses of an S3 server, or of another server in its place.

A proxy, a portal or a wrong address may answer any request with any status. A response counts only
if it has the marks of S3::

    upload      200 with an ETag, and proof of the bytes: see ObjectDigest.judge
    read        200 or 206 with an ETag
    missing     404 with the code NoSuchKey in its body; for HEAD, which has no body, 404 with the
                request id, or otherwise such a response to GET
    removed     204, or missing

Servers prove the bytes in different ways. Amazon S3, MinIO, recent Ceph and R2 repeat the checksum
of the request. Google Cloud Storage sends C{x-goog-hash}. Others, such as older Ceph, send the MD5
as the ETag. With KMS or customer-provided keys the ETag is not an MD5; such a server repeats the
checksum or returns it for HEAD with C{x-amz-checksum-mode}.
"""

import re
from collections.abc import Callable, Iterable
from hashlib import md5

from attrs import frozen

from storagegate.core.options import parseDecimal
from storagegate.net.transport import Buffer

SUMS_HEADER = "x-amz-meta-crc32c"
"""
The metadata header with a piece's L{ChunkSums<storagegate.storage.chunksums.ChunkSums>}.
"""

CHECKSUM_HEADER = "x-amz-checksum-crc32c"

_LARGEST = 1 << 62
"""Larger than any object."""

_CODE = re.compile(rb"<Error\b.{0,400}?<Code>([A-Za-z0-9.]{1,80})</Code>", re.DOTALL)

_GOOGLE_CRC = re.compile(r"(?:^|,)\s*crc32c=([A-Za-z0-9+/=]+)")

_PASSING = frozenset({408, 409, 412, 429})
"""The statuses of a conflict or an overloaded server."""

_REQUEST_IDS = ("x-amz-request-id", "x-amz-id-2")


@frozen
class S3Answer:
    """A response of the server; header names are lower-case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @classmethod
    def of(cls, status: int, headers: Iterable[tuple[str, str]], body: bytes) -> "S3Answer":
        """Create a response; join the values of repeated headers."""
        found: dict[str, str] = {}
        for name, value in headers:
            lower = name.lower()
            found[lower] = f"{found[lower]},{value}" if lower in found else value
        return cls(status, found, body)

    @property
    def size(self) -> int:
        """
        The size of the object, from the headers of any response about it.

        @raise ValueError: The headers do not have the size.
        """
        _, _, total = self.headers.get("content-range", "").rpartition("/")
        return parseDecimal(total or self.headers.get("content-length", ""), _LARGEST)

    @property
    def code(self) -> str:
        """The error code; empty if there is none."""
        found = _CODE.search(self.body)
        return found[1].decode() if found else ""

    @property
    def etag(self) -> str:
        """The ETag without quotes; empty if there is none."""
        return self.headers.get("etag", "").strip().removeprefix("W/").strip('"').lower()

    @property
    def checksum(self) -> str:
        """The CRC-32C of the object in base64; empty if the response lacks it."""
        found = _GOOGLE_CRC.search(self.headers.get("x-goog-hash", ""))
        return self.headers.get(CHECKSUM_HEADER, "") or (found[1] if found else "")

    @property
    def isRead(self) -> bool:
        """Whether this is an S3 server's response to a successful read."""
        return self.status in (200, 206) and bool(self.etag)

    @property
    def isMissing(self) -> bool:
        """Whether the server reports that the object does not exist."""
        return self.status == 404 and self.code == "NoSuchKey"

    @property
    def isRefusal(self) -> bool:
        """Whether the server permanently refuses such requests, so that a retry would fail, too."""
        isLasting = 300 <= self.status < 500 and self.status not in _PASSING
        return isLasting and (bool(self.code) or (self.status == 403 and self.hasRequestId))

    @property
    def hasRequestId(self) -> bool:
        """Whether the response has an S3 request id."""
        return any(name in self.headers for name in _REQUEST_IDS)

    @property
    def isRemoved(self) -> bool:
        """Whether the response to DELETE reports that the object is gone."""
        return self.status == 204 or self.isMissing


@frozen
class ObjectDigest:
    """
    The size and checksum of an upload.

    @ivar size: The number of bytes.
    @ivar checksum: The CRC-32C of the bytes in base64.
    """

    size: int
    checksum: str

    def judge(self, answer: S3Answer, digest: Callable[[], str] | None = None) -> str | None:
        """
        Evaluate the response to an upload, or to a HEAD after it.

        @param digest: Returns the MD5 of the bytes in hexadecimal; L{None} to not compare it yet.
        @return: Empty if the bytes are confirmed; why the response does not confirm them; or
            L{None} if the response says nothing about them.
        """
        if answer.status != 200 or not answer.etag:
            return f"has the status {answer.status} and no ETag"
        if answer.code:
            return f"has the status {answer.status} and the error {answer.code}"
        if answer.checksum:
            if answer.checksum == self.checksum:
                return ""
            return "has a different checksum than the bytes sent"
        if digest is not None and answer.etag == digest():
            return ""
        return None


def hexMD5(buffers: Iterable[Buffer]) -> str:
    """Return the MD5 of buffers in hexadecimal. Any thread."""
    digest = md5(usedforsecurity=False)
    for buffer in buffers:
        digest.update(buffer)
    return digest.hexdigest()
