"""
The store as dictionaries of stacks of versions: what every operation must do, without a disk.

Random sequences of operations run on this and on the real store, and must come to the same.
"""

import hashlib
from collections.abc import Sequence

from attrs import define, field

from storagegate.storage.errors import (
    BucketLocked,
    BucketNotEmpty,
    BucketNotLocked,
    BucketNotVersioned,
    InvalidPart,
    NoSuchBucket,
    NoSuchKey,
    NoSuchUpload,
    ObjectLocked,
    PreconditionFailed,
)
from storagegate.storage.records import (
    COMPLIANCE,
    GOVERNANCE,
    VERSIONING_ENABLED,
    WriteCondition,
)

MADE_MS, CHANGED_MS = 1, 2
"""When objects are written, and when they are removed and locks change."""

DEFAULT_MS = 1000 + 86_400_000
"""When the default of a day ends: with a whole second."""


@define
class ModelUpload:
    """A multipart upload in progress."""

    bucket: str
    key: bytes
    parts: dict[int, bytes] = field(factory=dict)


@define(eq=False)
class ModelVersion:
    """
    One version of a key.

    @ivar body: L{None} for a delete marker.
    @ivar isNull: Whether its id is C{null}.
    @ivar mode: Of its retention; empty without one.
    @ivar untilMs: When that ends.
    """

    body: bytes | None
    isNull: bool
    mode: str = ""
    untilMs: int = 0
    isHeld: bool = False

    def isLocked(self, bypass: bool) -> bool:
        """Whether it must not be removed."""
        isRetained = self.untilMs > CHANGED_MS and not (bypass and self.mode == GOVERNANCE)
        return isRetained or self.isHeld


@define
class ModelBucket:
    """
    The versions of a bucket.

    @ivar stacks: Of each key that has some, the newest last.
    @ivar defaultMode: Of the retention of new versions; empty for none.
    """

    versioning: str = ""
    isLocked: bool = False
    defaultMode: str = ""
    stacks: dict[bytes, list[ModelVersion]] = field(factory=dict)

    def push(self, key: bytes, body: bytes | None) -> None:
        """Put a version on top, as the versioning of this moment says."""
        stack = self.stacks.setdefault(key, [])
        isNull = self.versioning != VERSIONING_ENABLED
        if isNull:
            stack[:] = [each for each in stack if not each.isNull]
        stack.append(ModelVersion(body, isNull))
        if self.defaultMode and body is not None:
            stack[-1].mode, stack[-1].untilMs = self.defaultMode, DEFAULT_MS

    def objects(self) -> dict[bytes, bytes]:
        """The current objects by key."""
        tops = {key: stack[-1].body for key, stack in self.stacks.items()}
        return {key: body for key, body in tops.items() if body is not None}


VersionSummary = tuple[bytes, str | None, bool, bool]
"""Key, ETag (L{None} of a delete marker), whether it is C{null}, whether it is the latest."""


@define
class Model:
    """
    Buckets of keys of versions, and uploads of numbered parts.

    Every method raises the error that the store would, and changes nothing then. The ETag of a
    body is what L{etagOf} says.
    """

    buckets: dict[str, ModelBucket] = field(factory=dict)
    uploads: dict[str, ModelUpload] = field(factory=dict)

    def createBucket(self, name: str) -> None:
        """Make a bucket that is not there."""
        self.buckets[name] = ModelBucket()

    def deleteBucket(self, name: str) -> None:
        """Remove an empty bucket."""
        if self._bucket(name).stacks or any(u.bucket == name for u in self.uploads.values()):
            raise BucketNotEmpty(name)
        del self.buckets[name]

    def setVersioning(self, bucket: str, versioning: str) -> None:
        """Enable or suspend versioning."""
        found = self._bucket(bucket)
        if found.isLocked and versioning != VERSIONING_ENABLED:
            raise BucketLocked(bucket)
        found.versioning = versioning

    def setObjectLock(self, bucket: str, mode: str) -> None:
        """Enable object lock, with a default of a day unless the mode is empty."""
        found = self._bucket(bucket)
        if found.versioning != VERSIONING_ENABLED:
            raise BucketNotVersioned(bucket)
        found.isLocked, found.defaultMode = True, mode

    def retain(
        self, bucket: str, key: bytes, age: int, mode: str, untilMs: int, bypass: bool
    ) -> None:
        """Change the retention of the newest version of a key but so many."""
        found = self._lockable(bucket, key, age)
        isLonger = mode == found.mode and untilMs >= found.untilMs
        isBound = found.mode == COMPLIANCE or not bypass
        if found.untilMs > CHANGED_MS and isBound and not isLonger:
            raise ObjectLocked(key)
        found.mode, found.untilMs = mode, untilMs

    def hold(self, bucket: str, key: bytes, age: int, isOn: bool) -> None:
        """Place or release the legal hold of the newest version of a key but so many."""
        self._lockable(bucket, key, age).isHeld = isOn

    def _lockable(self, bucket: str, key: bytes, age: int) -> ModelVersion:
        found = self._bucket(bucket)
        if not found.isLocked:
            raise BucketNotLocked(bucket)
        stack = found.stacks.get(key, [])
        if age >= len(stack) or stack[-1 - age].body is None:
            raise NoSuchKey(key)
        return stack[-1 - age]

    def put(self, bucket: str, key: bytes, body: bytes, condition: WriteCondition) -> None:
        """Store an object."""
        self._judge(bucket, key, condition)
        self.buckets[bucket].push(key, body)

    def copy(self, bucket: str, source: bytes, key: bytes, age: int = 0) -> None:
        """Store an object with the bytes of a version of a key, the newest but so many."""
        body = self.version(bucket, source, age)
        if body is None:
            raise NoSuchKey(source)
        self.buckets[bucket].push(key, body)

    def version(self, bucket: str, key: bytes, age: int) -> bytes | None:
        """The bytes of the newest version but so many; L{None} for a marker, and without one."""
        stack = self._bucket(bucket).stacks.get(key, [])
        return stack[-1 - age].body if age < len(stack) else None

    def delete(self, bucket: str, keys: Sequence[bytes]) -> list[bool]:
        """Remove objects; say which were there."""
        found = self._bucket(bucket)
        removed = []
        for key in keys:
            removed.append(key in found.objects())
            if found.versioning:
                found.push(key, None)
            else:
                found.stacks.pop(key, None)
        return removed

    def deleteVersions(
        self, bucket: str, names: Sequence[tuple[bytes, int]], bypass: bool = False
    ) -> list[bool]:
        """Remove versions of keys, each the newest but so many of before; say which were there."""
        stacks = self._bucket(bucket).stacks
        before = {key: list(stack) for key, stack in stacks.items()}
        removed = []
        for key, age in names:
            stack = before.get(key, [])
            # The same twice is removed once.
            found = next(
                (e for e in stacks.get(key, ()) if age < len(stack) and e is stack[-1 - age]), None
            )
            removed.append(found is not None and not found.isLocked(bypass))
            if found is not None and removed[-1]:
                stacks[key] = [each for each in stacks[key] if each is not found]
                if not stacks[key]:
                    del stacks[key]
        return removed

    def listing(self, bucket: str, prefix: bytes) -> list[bytes]:
        """All keys with a prefix, in order."""
        return sorted(key for key in self._bucket(bucket).objects() if key.startswith(prefix))

    def versions(self, bucket: str) -> list[VersionSummary]:
        """All versions, by key, the newest first."""
        return [
            (key, None if each.body is None else etagOf(each.body), each.isNull, each is stack[-1])
            for key, stack in sorted(self._bucket(bucket).stacks.items())
            for each in reversed(stack)
        ]

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
        self.buckets[upload.bucket].push(upload.key, body)
        del self.uploads[uploadId]

    def abort(self, uploadId: str) -> None:
        """End an upload."""
        self._upload(uploadId)
        del self.uploads[uploadId]

    def _bucket(self, name: str) -> ModelBucket:
        if name not in self.buckets:
            raise NoSuchBucket(name)
        return self.buckets[name]

    def _upload(self, uploadId: str) -> ModelUpload:
        if uploadId not in self.uploads:
            raise NoSuchUpload(uploadId)
        return self.uploads[uploadId]

    def _judge(self, bucket: str, key: bytes, condition: WriteCondition) -> None:
        objects = self._bucket(bucket).objects()
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
