"""
The answers of an S3 server, and of whatever answers in its place.

A proxy, a portal or a wrong address may answer any request with any status. An answer counts only
as far as it has the marks of S3::

    upload      200 with an ETag, and proof of the bytes: see ObjectDigest.judge
    read        200 or 206 with an ETag
    missing     404 with the code NoSuchKey in its body; for HEAD, which has no body, 404 with the
                id of the request, or else such an answer to GET
    removed     204, or missing

Proof of the bytes differs between servers. Amazon S3, MinIO, recent Ceph and R2 repeat the checksum
of the request. Google Cloud Storage has C{x-goog-hash}. The others, older Ceph among them, have the
MD5 as the ETag. With keys of a KMS or of the client the ETag is no MD5; such a server repeats the
checksum, or has it in the answer to HEAD with C{x-amz-checksum-mode}.
"""

import re
from collections.abc import Callable, Iterable
from hashlib import md5

from attrs import frozen

from storagegate.core.options import parseDecimal
from storagegate.net.transport import Buffer

SUMS_HEADER = "x-amz-meta-crc32c"
"""The metadata of a piece with its L{ChunkSums<storagegate.storage.blobs.chunksums.ChunkSums>}."""

CHECKSUM_HEADER = "x-amz-checksum-crc32c"

_LARGEST = 1 << 62
"""No object is as large."""

_CODE = re.compile(rb"<Error\b.{0,400}?<Code>([A-Za-z0-9.]{1,80})</Code>", re.DOTALL)

_GOOGLE_CRC = re.compile(r"(?:^|,)\s*crc32c=([A-Za-z0-9+/=]+)")

_PASSING = frozenset({408, 409, 412, 429})
"""Statuses of a conflict, or of a server that has too much to do."""

_REQUEST_IDS = ("x-amz-request-id", "x-amz-id-2")


@frozen
class S3Answer:
    """An answer of the server; the names of headers are lower-case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @classmethod
    def of(cls, status: int, headers: Iterable[tuple[str, str]], body: bytes) -> "S3Answer":
        """Make an answer; values of repeated headers are joined."""
        found: dict[str, str] = {}
        for name, value in headers:
            lower = name.lower()
            found[lower] = f"{found[lower]},{value}" if lower in found else value
        return cls(status, found, body)

    @property
    def size(self) -> int:
        """
        The size of the object, which the headers of any answer about it have.

        @raise ValueError: They do not have it.
        """
        _, _, total = self.headers.get("content-range", "").rpartition("/")
        return parseDecimal(total or self.headers.get("content-length", ""), _LARGEST)

    @property
    def code(self) -> str:
        """The code of an error; empty if there is none."""
        found = _CODE.search(self.body)
        return found[1].decode() if found else ""

    @property
    def etag(self) -> str:
        """The ETag without quotes; empty if there is none."""
        return self.headers.get("etag", "").strip().removeprefix("W/").strip('"').lower()

    @property
    def checksum(self) -> str:
        """The CRC-32C of the object in base64; empty if the answer does not have it."""
        found = _GOOGLE_CRC.search(self.headers.get("x-goog-hash", ""))
        return self.headers.get(CHECKSUM_HEADER, "") or (found[1] if found else "")

    @property
    def isRead(self) -> bool:
        """Whether the answer to a read is that of an S3 server."""
        return self.status in (200, 206) and bool(self.etag)

    @property
    def isMissing(self) -> bool:
        """Whether the server says that there is no such object."""
        return self.status == 404 and self.code == "NoSuchKey"

    @property
    def isRefusal(self) -> bool:
        """Whether the server refuses such requests: the same would be refused later, too."""
        isLasting = 300 <= self.status < 500 and self.status not in _PASSING
        return isLasting and (bool(self.code) or (self.status == 403 and self.hasRequestId))

    @property
    def hasRequestId(self) -> bool:
        """Whether the answer has the id that S3 gives to each request."""
        return any(name in self.headers for name in _REQUEST_IDS)

    @property
    def isRemoved(self) -> bool:
        """Whether the answer to DELETE says that the object is gone."""
        return self.status == 204 or self.isMissing


@frozen
class ObjectDigest:
    """
    The bytes of an upload.

    @ivar size: How many there are.
    @ivar checksum: Their CRC-32C in base64.
    """

    size: int
    checksum: str

    def judge(self, answer: S3Answer, digest: Callable[[], str] | None = None) -> str | None:
        """
        Judge the answer to an upload, or to HEAD after it.

        @param digest: Returns the MD5 of the bytes in hexadecimal; L{None}: it is not compared yet.
        @return: Empty: the bytes are confirmed. Else why the answer does not confirm them; L{None}:
            the answer says nothing about them.
        """
        if answer.status != 200 or not answer.etag:
            return f"answered {answer.status} without an ETag"
        if answer.code:
            return f"answered {answer.status} with the error {answer.code}"
        if answer.checksum:
            if answer.checksum == self.checksum:
                return ""
            return "has another checksum than the bytes"
        if digest is not None and answer.etag == digest():
            return ""
        return None


def hexMD5(buffers: Iterable[Buffer]) -> str:
    """Return the MD5 of buffers in hexadecimal. Any thread."""
    digest = md5(usedforsecurity=False)
    for buffer in buffers:
        digest.update(buffer)
    return digest.hexdigest()
