"""Random operations, on the store and on the model: they must agree."""

import errno
import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.lifecycle import LifecycleRule
from storagegate.storage.embedded.fsck import check
from storagegate.storage.errors import StoreBusy, StoreError, StoreFull, StoreReadOnly
from storagegate.storage.records import (
    COMPLIANCE,
    GOVERNANCE,
    RETENTION_MODES,
    VERSIONING_ENABLED,
    VERSIONING_SUSPENDED,
    WriteCondition,
)
from tests.contract.delayedcatalog import DELAYED
from tests.contract.rangedblobs import RANGED
from tests.support.faultyfiles import Fault, FaultyFiles
from tests.support.model import DAY, Model, etagOf
from tests.support.selection import long, rounds
from tests.support.stores import StoreDriver, fastDirectory

BUCKETS = st.sampled_from(["one", "two"])
KEYS = st.sampled_from([b"a", b"a/b", b"a/c", b"z\x00"])
BODIES = st.sampled_from([b"", b"inline", b"x" * 101, b"y" * 5000, b"z" * 1_200_000])
PARTS = st.sampled_from([b"", b"p" * 150, b"q" * 3000])
UPLOADS = st.sampled_from(["u1", "u2"])
NUMBERS = st.integers(1, 3)
CONDITIONS = st.one_of(
    st.just(WriteCondition()),
    st.sampled_from(
        [
            WriteCondition(absent=True),
            WriteCondition(etags=("*",)),
            WriteCondition(etags=(etagOf(b"inline"), etagOf(b"x" * 101))),
        ]
    ),
)
STATES = st.sampled_from([VERSIONING_ENABLED, VERSIONING_ENABLED, VERSIONING_SUSPENDED])
AGES = st.integers(0, 3)
TAGS = st.sampled_from(["", "t=1", "t=1&u=2"])
ALL_RULES = (
    LifecycleRule("days", True, days=1),
    LifecycleRule("prefix", True, prefix="a/", days=1, noncurrentDays=1),
    LifecycleRule("tag", True, tags={"t": "1"}, days=2, noncurrentDays=2),
    LifecycleRule("large", True, greaterThan=101, days=1, noncurrentDays=1),
    LifecycleRule("small", True, lessThan=6, noncurrentDays=1, newer=2),
    LifecycleRule("date", True, dateMs=3 * DAY, abortDays=1),
    LifecycleRule("old", True, noncurrentDays=1, newer=1),
    LifecycleRule("markers", True, markers=True, noncurrentDays=1),
    LifecycleRule("off", False, days=1, noncurrentDays=1, abortDays=1),
)
RULES = st.lists(st.sampled_from(ALL_RULES), max_size=3, unique_by=lambda rule: rule.id).map(tuple)
FAULTS = (StoreFull, StoreReadOnly, StoreBusy, OSError)


class StoreMachine(RuleBasedStateMachine):
    """The store beside L{Model}."""

    def __init__(self) -> None:
        super().__init__()
        self.cleanups: list[Callable[[], object]] = []
        self.directory = fastDirectory(self)
        self.files = FaultyFiles()
        self.driver: Any = self.makeDriver()
        self.model = Model()

    def makeDriver(self) -> Any:
        """Open the store."""
        return StoreDriver(self.directory, self.files)

    def addCleanup(self, function: Callable[..., object], *args: Any, **named: Any) -> None:
        """Keep what is to be done at the end, as a test case does."""
        self.cleanups.append(lambda: function(*args, **named))

    def agree(self, real: Callable[[], object], expected: Callable[[], object]) -> None:
        """Do one thing on both: the outcomes are the same, or a fault has left no trace."""
        outcome: object
        wanted: object
        try:
            outcome = real()
        except FAULTS as error:
            assert self.files.fault is not None, error
            return
        except StoreError as error:
            outcome = type(error)
        try:
            wanted = expected()
        except StoreError as error:
            wanted = type(error)
        assert outcome == wanted, (outcome, wanted)

    @initialize()
    def begin(self) -> None:
        """There is a bucket to begin with."""
        self.driver.setTime(self.model.nowMs)
        self.driver.createBucket("one")
        self.model.createBucket("one")

    @precondition(lambda self: "two" not in self.model.buckets)
    @rule()
    def createBucket(self) -> None:
        """Make the second bucket."""
        self.agree(lambda: self.driver.createBucket("two"), lambda: self.model.createBucket("two"))

    @rule(bucket=BUCKETS)
    def deleteBucket(self, bucket: str) -> None:
        """Remove a bucket, if it is empty."""
        self.agree(
            lambda: self.driver.deleteBucket(bucket), lambda: self.model.deleteBucket(bucket)
        )

    @rule(bucket=BUCKETS, key=KEYS, body=BODIES, condition=CONDITIONS)
    def put(self, bucket: str, key: bytes, body: bytes, condition: WriteCondition) -> None:
        """Store an object."""
        self.agree(
            lambda: self.driver.put(bucket, key, body, condition),
            lambda: self.model.put(bucket, key, body, condition),
        )

    @rule(bucket=BUCKETS, source=KEYS, key=KEYS)
    def copy(self, bucket: str, source: bytes, key: bytes) -> None:
        """Copy an object that is there."""
        self.copyVersion(bucket, source, key, 0)

    @rule(bucket=BUCKETS, source=KEYS, key=KEYS, age=AGES)
    def restore(self, bucket: str, source: bytes, key: bytes, age: int) -> None:
        """Copy an older version that is there."""
        self.copyVersion(bucket, source, key, age)

    def copyVersion(self, bucket: str, source: bytes, key: bytes, age: int) -> None:
        """Copy a version that is there."""
        if bucket in self.model.buckets and self.model.version(bucket, source, age) is not None:
            self.agree(
                lambda: self.driver.copy(bucket, source, key, age),
                lambda: self.model.copy(bucket, source, key, age),
            )

    @rule(bucket=BUCKETS, versioning=STATES)
    def setVersioning(self, bucket: str, versioning: str) -> None:
        """Enable or suspend versioning."""
        self.agree(
            lambda: self.driver.setVersioning(bucket, versioning),
            lambda: self.model.setVersioning(bucket, versioning),
        )

    @rule(bucket=BUCKETS, mode=st.sampled_from(["", "", GOVERNANCE, COMPLIANCE]))
    def setObjectLock(self, bucket: str, mode: str) -> None:
        """Enable object lock, with a default or none."""
        self.agree(
            lambda: self.driver.setObjectLock(bucket, mode),
            lambda: self.model.setObjectLock(bucket, mode),
        )

    @rule(
        name=st.tuples(BUCKETS, KEYS, AGES),
        retention=st.sampled_from(
            [("", 0), *((mode, at) for mode in RETENTION_MODES for at in (1, 2, 2 * DAY))]
        ),
        bypass=st.booleans(),
    )
    def retain(
        self, name: tuple[str, bytes, int], retention: tuple[str, int], bypass: bool
    ) -> None:
        """Change a retention: lift it, shorten or extend it, change its mode."""
        mode, after = retention
        untilMs = self.model.nowMs + after if mode else 0
        self.agree(
            lambda: self.driver.retain(*name, mode, untilMs, bypass),
            lambda: self.model.retain(*name, mode, untilMs, bypass),
        )

    @rule(bucket=BUCKETS, rules=RULES)
    def setRules(self, bucket: str, rules: tuple[LifecycleRule, ...]) -> None:
        """Give a bucket a life cycle."""
        self.agree(
            lambda: self.driver.setRules(bucket, rules), lambda: self.model.setRules(bucket, rules)
        )

    @rule(days=st.sampled_from([1, 1.5, 2, 4]))
    def scan(self, days: float) -> None:
        """Let time go by, and have a round of the scanner."""
        self.scanAfter(days)

    def scanAfter(self, days: float) -> tuple[int, int]:
        """The same, on a disk that works; say how much was removed, and how much was locked."""
        if self.files.fault is not None:
            self.restart()
        self.model.nowMs += int(days * DAY)
        self.driver.setTime(self.model.nowMs)
        locked = self.locked()
        counts = self.model.scan()
        self.agree(self.driver.scan, lambda: counts)
        self.compare()
        assert self.locked() == locked
        return counts

    def locked(self) -> set[int]:
        """The versions of the model that are locked."""
        return {
            id(version)
            for bucket in self.model.buckets.values()
            for stack in bucket.stacks.values()
            for version in stack
            if version.isLocked(self.model.nowMs)
        }

    @rule(name=st.tuples(BUCKETS, KEYS, AGES), tags=TAGS)
    def tag(self, name: tuple[str, bytes, int], tags: str) -> None:
        """Give a version tags."""
        self.agree(lambda: self.driver.tag(*name, tags), lambda: self.model.tag(*name, tags))

    @rule(name=st.tuples(BUCKETS, KEYS, AGES), isOn=st.booleans())
    def hold(self, name: tuple[str, bytes, int], isOn: bool) -> None:
        """Place or release a legal hold."""
        self.agree(lambda: self.driver.hold(*name, isOn), lambda: self.model.hold(*name, isOn))

    @rule(
        bucket=BUCKETS,
        names=st.lists(st.tuples(KEYS, AGES), max_size=4),
        bypass=st.booleans(),
    )
    def deleteVersions(self, bucket: str, names: list[tuple[bytes, int]], bypass: bool) -> None:
        """Remove versions by their ids, unless they are locked."""
        self.agree(
            lambda: self.driver.deleteVersions(bucket, names, bypass),
            lambda: self.model.deleteVersions(bucket, names, bypass),
        )

    @rule(bucket=BUCKETS)
    def versions(self, bucket: str) -> None:
        """List versions."""
        self.agree(lambda: self.driver.versions(bucket), lambda: self.model.versions(bucket))

    @rule(bucket=BUCKETS, keys=st.lists(KEYS, max_size=3, unique=True))
    def delete(self, bucket: str, keys: list[bytes]) -> None:
        """Remove objects."""
        self.agree(
            lambda: self.driver.delete(bucket, keys), lambda: self.model.delete(bucket, keys)
        )

    @rule(bucket=BUCKETS, prefix=st.sampled_from([b"", b"a", b"a/"]))
    def listing(self, bucket: str, prefix: bytes) -> None:
        """List objects."""
        self.agree(
            lambda: self.driver.listing(bucket, prefix), lambda: self.model.listing(bucket, prefix)
        )

    @rule(bucket=BUCKETS, key=KEYS, uploadId=UPLOADS)
    def createUpload(self, bucket: str, key: bytes, uploadId: str) -> None:
        """Begin an upload."""
        if uploadId not in self.model.uploads:
            self.agree(
                lambda: self.driver.createUpload(uploadId, bucket, key),
                lambda: self.model.createUpload(uploadId, bucket, key),
            )

    @rule(uploadId=UPLOADS, number=NUMBERS, body=PARTS)
    def putPart(self, uploadId: str, number: int, body: bytes) -> None:
        """Store a part."""
        self.agree(
            lambda: self.driver.putPart(*self.place(uploadId), uploadId, number, body),
            lambda: self.model.putPart(uploadId, number, body),
        )

    @rule(uploadId=UPLOADS, numbers=st.lists(NUMBERS, min_size=1, max_size=3, unique=True))
    def complete(self, uploadId: str, numbers: list[int]) -> None:
        """Make an object of some parts."""
        upload = self.model.uploads.get(uploadId)
        bodies = upload.parts if upload is not None else {}
        parts = [(number, bodies.get(number, b"none")) for number in sorted(numbers)]
        self.agree(
            lambda: self.driver.complete(*self.place(uploadId), uploadId, parts),
            lambda: self.model.complete(uploadId, sorted(numbers), WriteCondition()),
        )

    @rule(uploadId=UPLOADS)
    def abort(self, uploadId: str) -> None:
        """End an upload."""
        self.agree(
            lambda: self.driver.abort(*self.place(uploadId), uploadId),
            lambda: self.model.abort(uploadId),
        )

    @rule(
        at=st.integers(1, 12),
        code=st.sampled_from([errno.EIO, errno.ENOSPC, 0]),
        sticky=st.booleans(),
        lands=st.booleans(),
    )
    def failNext(self, at: int, code: int, sticky: bool, lands: bool) -> None:
        """One of the next file operations fails."""
        self.files.arm(Fault(at, code, sticky, lands))

    @rule()
    def restart(self) -> None:
        """Close the store and open it again, on a disk that works."""
        self.driver.close()
        self.files.arm(None)
        self.driver.open()
        self.compare()

    def compare(self) -> None:
        """Every object is whole, and no other is there."""
        for name, bucket in self.model.buckets.items():
            assert self.driver.listing(name, b"") == sorted(bucket.objects())
            assert self.driver.versions(name) == self.model.versions(name)
            for key, stack in bucket.stacks.items():
                assert self.driver.get(name, key) == stack[-1].body
                for age in range(len(stack)):
                    wanted = self.model.version(name, key, age)
                    versionId = self.driver.versionId(name, key, age)
                    assert self.driver.get(name, key, versionId) == (wanted or b""), (key, age)

    def place(self, uploadId: str) -> tuple[str, bytes]:
        """Bucket and key of an upload, or those of none."""
        upload = self.model.uploads.get(uploadId)
        return ("one", b"a") if upload is None else (upload.bucket, upload.key)

    def teardown(self) -> None:
        """After all, the disk holds what the catalog names and nothing else; a repair is idle."""
        try:
            self.restart()
            self.driver.close()
            assert self.files.opened == set()
            problems: list[str] = []
            assert check(self.directory, True, True, problems.append) == 0, problems
            assert not problems, problems
        finally:
            for cleanup in self.cleanups:
                cleanup()


class DelayedStoreMachine(StoreMachine):
    """A store whose catalog answers look-ups late, beside L{Model}."""

    def makeDriver(self) -> Any:
        """Open the store."""
        return StoreDriver(self.directory, self.files, catalog=DELAYED)


class StoreModelTests(SynchronousTestCase):
    """The store beside its model."""

    machine: type[StoreMachine] = StoreMachine
    examples = 40

    @long("takes seconds")
    def test_agree(self) -> None:
        """The store does what the model does, whatever the order, the faults and the restarts."""
        run_state_machine_as_test(
            self.machine,
            settings=settings(
                max_examples=rounds(8, self.examples, soak=40),
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


@long("takes seconds")
class DelayedStoreModelTests(StoreModelTests):
    """The same with look-ups that come back late and out of order."""

    machine = DelayedStoreMachine
    # A step takes ten times as long, because each look-up waits for a thread.
    examples = 8


class RangedStoreMachine(DelayedStoreMachine):
    """A store whose blobs are read by ranges, too; its files are not those that fail."""

    def makeDriver(self) -> Any:
        """Open the store."""
        return StoreDriver(self.directory, self.files, catalog=DELAYED, blobs=RANGED)

    def teardown(self) -> None:
        """After all, the blobs are those that the catalog names."""
        try:
            self.restart()
            rows = self.driver.reactor.settle(self.driver.store.catalog.blobRows("", 1000))
            self.driver.close()
            left = set(os.listdir(os.path.join(self.directory, "ranged"))) - {"new"}
            assert {row.id for row in rows if row.refs} == left, left
        finally:
            for cleanup in self.cleanups:
                cleanup()


@long("takes seconds")
class RangedStoreModelTests(StoreModelTests):
    """The same where both halves of the store are reached over a network."""

    machine = RangedStoreMachine
    examples = 8
