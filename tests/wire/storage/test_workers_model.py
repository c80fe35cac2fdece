"""Random operations on two processes and on the model: they must agree."""

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import asdict
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.lifecycle import LifecycleRule
from storagegate.storage.records import NULL_VERSION, WriteCondition
from tests.storage.test_lifecycle_model import liveOn
from tests.storage.test_store_model import StoreMachine
from tests.support.model import VersionSummary, etagOf
from tests.support.selection import long, rounds
from tests.support.stores import ALWAYS, fastDirectory
from tests.support.storeworkers import StoreProcess, StoreWorkers


class PairDriver:
    """
    The operations of L{tests.support.stores.StoreDriver}; each goes to the next process, and what
    is read must be the same in all.
    """

    def __init__(self, workers: StoreWorkers) -> None:
        self._workers = workers
        self._turn = 0

    def next(self) -> StoreProcess:
        """Say who does the next thing."""
        self._turn += 1
        return self._workers.processes[self._turn % len(self._workers.processes)]

    def open(self) -> None:
        """Open the store in all."""
        self._workers.openStores()

    def close(self) -> None:
        """Close it in all, once nothing is left to be done."""
        for process in self._workers.processes:
            process.do("idle")
        self._workers.closeStores()

    def createBucket(self, name: str) -> None:
        """Make a bucket."""
        self.next().do("createBucket", bucket=name)

    def deleteBucket(self, name: str) -> None:
        """Remove a bucket."""
        self.next().do("deleteBucket", bucket=name)

    def put(self, bucket: str, key: bytes, body: bytes, condition: WriteCondition = ALWAYS) -> None:
        """Store an object."""
        self.next().do(
            "put", bucket=bucket, key=key.decode(), body=body.decode(), condition=asdict(condition)
        )

    def setVersioning(self, bucket: str, versioning: str) -> None:
        """Enable or suspend versioning."""
        self.next().do("setVersioning", bucket=bucket, versioning=versioning)

    def setTime(self, nowMs: int) -> None:
        """Turn the clocks."""
        for process in self._workers.processes:
            process.do("setTime", nowMs=nowMs)

    def setRules(self, bucket: str, rules: tuple[LifecycleRule, ...]) -> None:
        """Give a bucket a life cycle."""
        self.next().do("setRules", bucket=bucket, rules=msgspec.json.encode(rules).decode())

    def scan(self) -> tuple[int, int]:
        """Do what the rules of all buckets say."""
        removed, kept = self.next().do("scan")
        return removed, kept

    def tag(self, bucket: str, key: bytes, age: int, tags: str) -> None:
        """Give a version tags."""
        version = self.versionId(bucket, key, age)
        self.next().do("tag", bucket=bucket, key=key.decode(), version=version, tags=tags)

    def setObjectLock(self, bucket: str, mode: str) -> None:
        """Enable object lock."""
        self.next().do("setObjectLock", bucket=bucket, mode=mode)

    def retain(
        self, bucket: str, key: bytes, age: int, mode: str, untilMs: int, bypass: bool
    ) -> None:
        """Change a retention."""
        version = self.versionId(bucket, key, age)
        name = {"bucket": bucket, "key": key.decode(), "version": version}
        self.next().do("retain", **name, mode=mode, untilMs=untilMs, bypass=bypass)

    def hold(self, bucket: str, key: bytes, age: int, isOn: bool) -> None:
        """Place or release a legal hold."""
        version = self.versionId(bucket, key, age)
        self.next().do("hold", bucket=bucket, key=key.decode(), version=version, isOn=isOn)

    def copy(self, bucket: str, source: bytes, key: bytes, age: int = 0) -> None:
        """Give the bytes of a version of an object a second name."""
        names = {"source": source.decode(), "key": key.decode()}
        version = self.versionId(bucket, source, age) if age else None
        self.next().do("copy", bucket=bucket, **names, version=version)

    def delete(self, bucket: str, keys: Sequence[bytes]) -> list[bool]:
        """Remove objects."""
        removed: list[bool] = self.next().do(
            "delete", bucket=bucket, keys=[key.decode() for key in keys]
        )
        return removed

    def deleteVersions(
        self, bucket: str, names: Sequence[tuple[bytes, int]], bypass: bool = False
    ) -> list[bool]:
        """Remove versions of keys, each the newest but so many of before."""
        versions = [self.versionId(bucket, key, age) for key, age in names]
        removed: list[bool] = self.next().do(
            "delete",
            bucket=bucket,
            keys=[key.decode() for key, _ in names],
            versions=versions,
            bypass=bypass,
        )
        return removed

    def listed(self, bucket: str) -> list[list[Any]]:
        """All versions: key, ETag, if it is the latest, id."""
        pages = [process.do("versions", bucket=bucket) for process in self._workers.processes]
        assert pages[0] == pages[1], pages
        found: list[list[Any]] = pages[0]
        return found

    def versions(self, bucket: str) -> list[VersionSummary]:
        """All versions, by key, the newest first."""
        return [
            (key.encode(), etag, id == NULL_VERSION, isLatest)
            for key, etag, isLatest, id in self.listed(bucket)
        ]

    def versionId(self, bucket: str, key: bytes, age: int) -> str:
        """The id of the newest version of a key but so many; one of none if there are fewer."""
        ids = [row[3] for row in self.listed(bucket) if row[0].encode() == key]
        return ids[age] if age < len(ids) else ""

    def listing(self, bucket: str, prefix: bytes) -> list[bytes]:
        """All keys with a prefix."""
        pages = [
            process.do("listing", bucket=bucket, prefix=prefix.decode())
            for process in self._workers.processes
        ]
        assert pages[0] == pages[1], pages
        return [key.encode() for key in pages[0]]

    def etag(self, bucket: str, key: bytes) -> str | None:
        """Read an object; say what its bytes come to."""
        found = [
            process.do("get", bucket=bucket, key=key.decode())
            for process in self._workers.processes
        ]
        assert found[0] == found[1], found
        assert found[0] is None or found[0][0] == found[0][1], found
        return None if found[0] is None else found[0][0]

    def createUpload(self, uploadId: str, bucket: str, key: bytes) -> None:
        """Begin a multipart upload."""
        self.next().do("createUpload", uploadId=uploadId, bucket=bucket, key=key.decode())

    def putPart(self, bucket: str, key: bytes, uploadId: str, number: int, body: bytes) -> None:
        """Store a part."""
        where = {"bucket": bucket, "key": key.decode(), "uploadId": uploadId}
        self.next().do("putPart", **where, number=number, body=body.decode())

    def complete(
        self, bucket: str, key: bytes, uploadId: str, parts: Sequence[tuple[int, bytes]]
    ) -> None:
        """Make an object of parts with these bodies."""
        where = {"bucket": bucket, "key": key.decode(), "uploadId": uploadId}
        named = [[number, etagOf(body)] for number, body in parts]
        etag = etagOf(b"".join(body for _, body in parts))
        self.next().do("complete", **where, parts=named, etag=etag)

    def abort(self, bucket: str, key: bytes, uploadId: str) -> None:
        """End an upload."""
        where = {"bucket": bucket, "key": key.decode(), "uploadId": uploadId}
        self.next().do("abort", **where)


class PairMachine(StoreMachine):
    """Two processes beside the model; their disk has no faults."""

    workers: StoreWorkers

    def makeDriver(self) -> PairDriver:
        """Open a new store in the processes that are there."""
        self.workers.directory = self.directory
        driver = PairDriver(self.workers)
        driver.open()
        return driver

    failNext = None

    def compare(self) -> None:
        """Every object is whole in both, and no other is there."""
        for name, bucket in self.model.buckets.items():
            assert self.driver.listing(name, b"") == sorted(bucket.objects())
            assert self.driver.versions(name) == self.model.versions(name)
            for key, body in bucket.objects().items():
                assert self.driver.etag(name, key) == etagOf(body)


class PairModelTests(SynchronousTestCase):
    """Two processes beside the model of one store."""

    timeout = 60

    def setUp(self) -> None:
        """Start them, without a store."""
        # Their parent alone has the lock, for the store is checked while they live.
        workers = StoreWorkers(self, fastDirectory(self), inherits=False)
        workers.closeStores()
        self.machine = type("Machine", (PairMachine,), {"workers": workers})

    @long("takes a second or more")
    def test_lifecycle(self) -> None:
        """Rounds of the scanner, of whichever of them, remove what one would."""
        removed, _ = liveOn(self.machine, seeds=3, steps=50)
        self.assertGreater(removed, 10)

    @long("takes a second or more")
    def test_agree(self) -> None:
        """Two processes do what one would, whichever of them is asked."""
        run_state_machine_as_test(
            self.machine,
            settings=settings(
                max_examples=rounds(4, 12),
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
