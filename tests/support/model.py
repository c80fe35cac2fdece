"""
The store as a dictionary: what every operation must do, without a disk.

Random sequences of operations run on this and on the real store, and must come to the same.
"""

import hashlib
from collections.abc import Sequence

from attrs import define, field

from storagegate.storage.errors import (
    BucketNotEmpty,
    InvalidPart,
    NoSuchBucket,
    NoSuchKey,
    NoSuchUpload,
    PreconditionFailed,
)
from storagegate.storage.records import WriteCondition


@define
class ModelUpload:
    """A multipart upload in progress."""

    bucket: str
    key: bytes
    parts: dict[int, bytes] = field(factory=dict)


@define
class Model:
    """
    Buckets of keys of bytes, and uploads of numbered parts.

    Every method raises the error that the store would, and changes nothing then. The ETag of a
    body is what L{etagOf} says.
    """

    buckets: dict[str, dict[bytes, bytes]] = field(factory=dict)
    uploads: dict[str, ModelUpload] = field(factory=dict)

    def createBucket(self, name: str) -> None:
        """Make a bucket that is not there."""
        self.buckets[name] = {}

    def deleteBucket(self, name: str) -> None:
        """Remove an empty bucket."""
        if self._bucket(name) or any(u.bucket == name for u in self.uploads.values()):
            raise BucketNotEmpty(name)
        del self.buckets[name]

    def put(self, bucket: str, key: bytes, body: bytes, condition: WriteCondition) -> None:
        """Store an object."""
        self._judge(bucket, key, condition)
        self.buckets[bucket][key] = body

    def copy(self, bucket: str, source: bytes, key: bytes) -> None:
        """Store an object with another's bytes."""
        if source not in self._bucket(bucket):
            raise NoSuchKey(source)
        self.buckets[bucket][key] = self.buckets[bucket][source]

    def delete(self, bucket: str, keys: Sequence[bytes]) -> list[bool]:
        """Remove objects; say which were there."""
        objects = self._bucket(bucket)
        return [objects.pop(key, None) is not None for key in keys]

    def listing(self, bucket: str, prefix: bytes) -> list[bytes]:
        """All keys with a prefix, in order."""
        return sorted(key for key in self._bucket(bucket) if key.startswith(prefix))

    def createUpload(self, uploadId: str, bucket: str, key: bytes) -> None:
        """Begin a multipart upload."""
        self._bucket(bucket)
        self.uploads[uploadId] = ModelUpload(bucket, key)

    def putPart(self, uploadId: str, number: int, body: bytes) -> None:
        """Store a part."""
        self._upload(uploadId).parts[number] = body

    def complete(self, uploadId: str, numbers: Sequence[int], condition: WriteCondition) -> None:
        """Make an object of parts."""
        upload = self._upload(uploadId)
        if any(number not in upload.parts for number in numbers):
            raise InvalidPart(uploadId)
        self._judge(upload.bucket, upload.key, condition)
        body = b"".join(upload.parts[number] for number in numbers)
        self.buckets[upload.bucket][upload.key] = body
        del self.uploads[uploadId]

    def abort(self, uploadId: str) -> None:
        """End an upload."""
        self._upload(uploadId)
        del self.uploads[uploadId]

    def _bucket(self, name: str) -> dict[bytes, bytes]:
        if name not in self.buckets:
            raise NoSuchBucket(name)
        return self.buckets[name]

    def _upload(self, uploadId: str) -> ModelUpload:
        if uploadId not in self.uploads:
            raise NoSuchUpload(uploadId)
        return self.uploads[uploadId]

    def _judge(self, bucket: str, key: bytes, condition: WriteCondition) -> None:
        objects = self._bucket(bucket)
        if condition.absent and key in objects:
            raise PreconditionFailed(key)
        if condition.etags:
            if key not in objects:
                raise NoSuchKey(key)
            if "*" not in condition.etags and etagOf(objects[key]) not in condition.etags:
                raise PreconditionFailed(key)


def etagOf(body: bytes) -> str:
    """The ETag that tests give to a body."""
    return hashlib.md5(body, usedforsecurity=False).hexdigest()
