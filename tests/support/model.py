"""
A model of the store: dictionaries of stacks of versions, which define the effect of each operation.

Random sequences of operations run on the model and on the real store, with the same result.
"""

import hashlib
from collections.abc import Sequence

from attrs import define, field

from storagegate.objects.lifecycle import LifecycleRule
from storagegate.objects.tags import decodeTags
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

DAY = 86_400_000
"""A day in milliseconds, in the time of the model and of lifecycle rules."""


@define
class ModelUpload:
    """A multipart upload in progress."""

    bucket: str
    key: bytes
    startedMs: int
    parts: dict[int, bytes] = field(factory=dict)


@define(eq=False)
class ModelVersion:
    """
    One version of a key.

    @ivar body: The bytes; C{None} for a delete marker.
    @ivar isNull: Whether its id is C{null}.
    @ivar mode: The mode of its retention; empty without one.
    @ivar untilMs: The end of the retention.
    @ivar noncurrentMs: The time since when it is noncurrent; C{None} if it is the newest.
    """

    body: bytes | None
    isNull: bool
    madeMs: int
    noncurrentMs: int | None = None
    tags: str = ""
    mode: str = ""
    untilMs: int = 0
    isHeld: bool = False

    def isLocked(self, atMs: int, bypass: bool = False) -> bool:
        """Return whether it must not be removed."""
        isRetained = self.untilMs > atMs and not (bypass and self.mode == GOVERNANCE)
        return isRetained or self.isHeld

    def passes(self, key: bytes, rule: LifecycleRule) -> bool:
        """Return whether a rule applies to it."""
        if not rule.isEnabled or not key.decode().startswith(rule.prefix or ""):
            return False
        if self.body is None:
            return not rule.tags and rule.greaterThan is None and rule.lessThan is None
        if rule.greaterThan is not None and len(self.body) <= rule.greaterThan:
            return False
        if rule.lessThan is not None and len(self.body) >= rule.lessThan:
            return False
        return set(rule.tags.items()) <= set(decodeTags(self.tags).items())

    def hasExpired(self, key: bytes, rule: LifecycleRule, atMs: int) -> bool:
        """Return whether a rule deletes it as the newest version."""
        isOld = rule.days is not None and midnights(self.madeMs, atMs) > rule.days
        isLate = rule.dateMs is not None and atMs >= rule.dateMs
        return self.passes(key, rule) and (isOld or isLate)


def midnights(sinceMs: int, atMs: int) -> int:
    """Count the starts of days after one time, up to another."""
    return atMs // DAY - sinceMs // DAY


@define
class ModelBucket:
    """
    The versions of a bucket.

    @ivar stacks: The versions of each key, the newest last.
    @ivar defaultMode: The default retention mode of new versions; empty without one.
    @ivar rules: The lifecycle rules.
    """

    versioning: str = ""
    isLocked: bool = False
    defaultMode: str = ""
    rules: tuple[LifecycleRule, ...] = ()
    stacks: dict[bytes, list[ModelVersion]] = field(factory=dict)

    def push(self, key: bytes, body: bytes | None, atMs: int) -> None:
        """Add a version on top, according to the current versioning."""
        stack = self.stacks.setdefault(key, [])
        isNull = self.versioning != VERSIONING_ENABLED
        if isNull:
            stack[:] = [each for each in stack if not each.isNull]
        if stack and stack[-1].noncurrentMs is None:
            stack[-1].noncurrentMs = atMs
        stack.append(ModelVersion(body, isNull, atMs))
        if self.defaultMode and body is not None:
            # A retention ends on a full second.
            stack[-1].mode, stack[-1].untilMs = self.defaultMode, -(-(atMs + DAY) // 1000) * 1000

    def pull(self, key: bytes, version: ModelVersion) -> None:
        """Remove a version; the newest remaining one becomes current."""
        left = [each for each in self.stacks[key] if each is not version]
        if left:
            left[-1].noncurrentMs = None
            self.stacks[key] = left
        else:
            del self.stacks[key]

    def scan(self, atMs: int) -> tuple[int, int]:
        """
        Apply the rules; return the number of removed versions and of versions that stay locked.
        """
        removed = kept = 0
        for key, stack in list(self.stacks.items()):
            top = stack[-1]
            doomed = []
            isExpired = any(top.hasExpired(key, rule, atMs) for rule in self.rules)
            hasMarkerRule = any(rule.markers and top.passes(key, rule) for rule in self.rules)
            if top.body is None and len(stack) == 1 and (isExpired or hasMarkerRule):
                doomed.append(top)
            left = 0
            for version in reversed(stack[:-1]):
                isDue = any(self._isOld(key, version, rule, left, atMs) for rule in self.rules)
                if isDue and not version.isLocked(atMs):
                    doomed.append(version)
                else:
                    kept += isDue
                    left += 1
            for version in doomed:
                self.pull(key, version)
            if isExpired and top.body is not None:
                removed += 1
                if self.versioning:
                    self.push(key, None, atMs)
                else:
                    del self.stacks[key]
            removed += len(doomed)
        return removed, kept

    def _isOld(
        self, key: bytes, version: ModelVersion, rule: LifecycleRule, newer: int, atMs: int
    ) -> bool:
        assert version.noncurrentMs is not None
        return (
            rule.noncurrentDays is not None
            and midnights(version.noncurrentMs, atMs) > rule.noncurrentDays
            and newer >= (rule.newer or 0)
            and version.passes(key, rule)
        )

    def objects(self) -> dict[bytes, bytes]:
        """Return the current objects by key."""
        tops = {key: stack[-1].body for key, stack in self.stacks.items()}
        return {key: body for key, body in tops.items() if body is not None}


VersionSummary = tuple[bytes, str | None, bool, bool]
"""Key, ETag (C{None} for a delete marker), whether the id is C{null}, whether it is the latest."""


@define
class Model:
    """
    Buckets of keys of versions, and uploads of numbered parts.

    Every method raises the same errors as the store, without changes. L{etagOf} returns the ETag of
    a body.

    @ivar nowMs: The time of writes; removals and changes are later by C{1}.
    """

    nowMs: int = 1
    buckets: dict[str, ModelBucket] = field(factory=dict)
    uploads: dict[str, ModelUpload] = field(factory=dict)

    def createBucket(self, name: str) -> None:
        """Create a bucket that does not exist."""
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
        """Enable object lock, with a default retention of a day unless the mode is empty."""
        found = self._bucket(bucket)
        if found.versioning != VERSIONING_ENABLED:
            raise BucketNotVersioned(bucket)
        found.isLocked, found.defaultMode = True, mode

    def setRules(self, bucket: str, rules: tuple[LifecycleRule, ...]) -> None:
        """Set the lifecycle rules of a bucket."""
        self._bucket(bucket).rules = rules

    def scan(self) -> tuple[int, int]:
        """Apply the rules of all buckets; return the numbers of removed and of locked versions."""
        counts = [bucket.scan(self.nowMs) for bucket in self.buckets.values()]
        aborted = [
            uploadId
            for uploadId, upload in self.uploads.items()
            for rule in self.buckets[upload.bucket].rules
            if rule.isEnabled
            and rule.abortDays is not None
            and upload.key.decode().startswith(rule.prefix or "")
            and midnights(upload.startedMs, self.nowMs) > rule.abortDays
        ]
        for uploadId in set(aborted):
            del self.uploads[uploadId]
        removed = sum(count for count, _ in counts) + len(set(aborted))
        return removed, sum(count for _, count in counts)

    def tag(self, bucket: str, key: bytes, age: int, tags: str) -> None:
        """Set the tags of the version of a key with the given age."""
        self._named(bucket, key, age).tags = tags

    def retain(
        self, bucket: str, key: bytes, age: int, mode: str, untilMs: int, bypass: bool
    ) -> None:
        """Change the retention of the version of a key with the given age."""
        found = self._lockable(bucket, key, age)
        isLonger = mode == found.mode and untilMs >= found.untilMs
        isBound = found.mode == COMPLIANCE or not bypass
        if found.untilMs > self.nowMs + 1 and isBound and not isLonger:
            raise ObjectLocked(key)
        found.mode, found.untilMs = mode, untilMs

    def hold(self, bucket: str, key: bytes, age: int, isOn: bool) -> None:
        """Place or release the legal hold of the version of a key with the given age."""
        self._lockable(bucket, key, age).isHeld = isOn

    def _lockable(self, bucket: str, key: bytes, age: int) -> ModelVersion:
        if not self._bucket(bucket).isLocked:
            raise BucketNotLocked(bucket)
        return self._named(bucket, key, age)

    def _named(self, bucket: str, key: bytes, age: int) -> ModelVersion:
        stack = self._bucket(bucket).stacks.get(key, [])
        if age >= len(stack) or stack[-1 - age].body is None:
            raise NoSuchKey(key)
        return stack[-1 - age]

    def put(self, bucket: str, key: bytes, body: bytes, condition: WriteCondition) -> None:
        """Store an object."""
        self._judge(bucket, key, condition)
        self.buckets[bucket].push(key, body, self.nowMs)

    def copy(self, bucket: str, source: bytes, key: bytes, age: int = 0) -> None:
        """Copy the version of a key with the given age."""
        body = self.version(bucket, source, age)
        if body is None:
            raise NoSuchKey(source)
        self.buckets[bucket].push(key, body, self.nowMs)

    def version(self, bucket: str, key: bytes, age: int) -> bytes | None:
        """
        Return the bytes of the version with the given age; C{None} for a marker or no version.
        """
        stack = self._bucket(bucket).stacks.get(key, [])
        return stack[-1 - age].body if age < len(stack) else None

    def delete(self, bucket: str, keys: Sequence[bytes]) -> list[bool]:
        """Remove objects; return which of them existed."""
        found = self._bucket(bucket)
        removed = []
        for key in keys:
            removed.append(key in found.objects())
            if found.versioning:
                found.push(key, None, self.nowMs + 1)
            else:
                found.stacks.pop(key, None)
        return removed

    def deleteVersions(
        self, bucket: str, names: Sequence[tuple[bytes, int]], bypass: bool = False
    ) -> list[bool]:
        """Remove versions, by key and age before the call; return which of them were removed."""
        bucketOf = self._bucket(bucket)
        stacks = bucketOf.stacks
        before = {key: list(stack) for key, stack in stacks.items()}
        removed = []
        for key, age in names:
            stack = before.get(key, [])
            # A version that is given twice is removed once.
            found = next(
                (e for e in stacks.get(key, ()) if age < len(stack) and e is stack[-1 - age]), None
            )
            removed.append(found is not None and not found.isLocked(self.nowMs + 1, bypass))
            if found is not None and removed[-1]:
                bucketOf.pull(key, found)
        return removed

    def listing(self, bucket: str, prefix: bytes) -> list[bytes]:
        """Return all keys with a prefix, in order."""
        return sorted(key for key in self._bucket(bucket).objects() if key.startswith(prefix))

    def versions(self, bucket: str) -> list[VersionSummary]:
        """Return all versions by key, the newest first."""
        return [
            (key, None if each.body is None else etagOf(each.body), each.isNull, each is stack[-1])
            for key, stack in sorted(self._bucket(bucket).stacks.items())
            for each in reversed(stack)
        ]

    def createUpload(self, uploadId: str, bucket: str, key: bytes) -> None:
        """Start a multipart upload."""
        self._bucket(bucket)
        self.uploads[uploadId] = ModelUpload(bucket, key, self.nowMs)

    def putPart(self, uploadId: str, number: int, body: bytes) -> None:
        """Store a part."""
        self._upload(uploadId).parts[number] = body

    def complete(self, uploadId: str, numbers: Sequence[int], condition: WriteCondition) -> None:
        """Complete an upload to an object."""
        upload = self._upload(uploadId)
        if any(number not in upload.parts for number in numbers):
            raise InvalidPart(uploadId)
        self._judge(upload.bucket, upload.key, condition)
        body = b"".join(upload.parts[number] for number in numbers)
        self.buckets[upload.bucket].push(upload.key, body, self.nowMs)
        del self.uploads[uploadId]

    def abort(self, uploadId: str) -> None:
        """Abort an upload."""
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
    """Return the ETag that tests give to a body."""
    return hashlib.md5(body, usedforsecurity=False).hexdigest()
