"""Random changes of an embedded store, of every kind that a migration copies."""

import os
import random
import sqlite3
from contextlib import closing
from typing import Any

import msgspec
from attrs import evolve
from twisted.internet.defer import Deferred

from storagegate.storage.errors import StoreError
from storagegate.storage.files import Files
from storagegate.storage.mutations import (
    AddAccessKey,
    ChangeAccessKey,
    NoteKeyUses,
    PutAcl,
    PutIdentities,
    PutProgress,
    PutSettings,
    RemoveAccessKey,
    SetObjectLock,
)
from storagegate.storage.records import AccessKey, DefaultRetention
from tests.support.stores import StoreDriver

_BUCKETS = ("plain", "kept", "locked")
_KEYS = tuple(f"key/{number}".encode() for number in range(8))
_LARGE = 300_000


class StoreChanges:
    """
    Makes changes in an open store.

    @ivar driver: The driver of the store.
    """

    def __init__(self, directory: str, seed: int) -> None:
        """
        Create the store with three buckets.

        @param directory: The data directory of the store.
        """
        self.driver = StoreDriver(directory, Files(), durability="os")
        self._random = random.Random(seed)
        self._uploads: dict[str, tuple[str, bytes, list[tuple[int, bytes]]]] = {}
        self._count = 0
        driver = self.driver
        for name in _BUCKETS:
            driver.createBucket(name)
        for name in ("kept", "locked"):
            driver.setVersioning(name, "Enabled")
        lock = DefaultRetention("GOVERNANCE", days=1)
        driver.reactor.settle(driver.store.catalog.commit(SetObjectLock("locked", lock)))

    def change(self, times: int = 1) -> None:
        """Make random changes; refused ones are skipped."""
        for _ in range(times):
            self._count += 1
            self.driver.setTime(self._count)
            try:
                self._random.choice(_KINDS)(self)
            except StoreError:
                pass

    def close(self) -> None:
        """Close the store."""
        self.driver.close()

    def _bucket(self) -> str:
        return self._random.choice(_BUCKETS)

    def _key(self) -> bytes:
        return self._random.choice(_KEYS)

    def _body(self) -> bytes:
        size = self._random.choice((0, 50, 90, 101, 5000, _LARGE))
        return self._random.randbytes(size)

    def _settle(self, result: Any) -> Any:
        return self.driver.reactor.settle(result)

    def put(self) -> None:
        """Store an object, in the catalog or as a blob."""
        self.driver.put(self._bucket(), self._key(), self._body())

    def copy(self) -> None:
        """Copy an object."""
        age = self._random.randrange(3)
        self.driver.copy(self._bucket(), self._key(), self._key(), age)

    def delete(self) -> None:
        """Remove an object, or add a delete marker."""
        self.driver.delete(self._bucket(), [self._key()])

    def deleteVersion(self) -> None:
        """Remove a version or a marker, which may be the current one."""
        names = [(self._key(), self._random.randrange(3))]
        self.driver.deleteVersions(self._bucket(), names, bypass=True)

    def changeVersioning(self) -> None:
        """Suspend or enable versioning, which creates null versions."""
        self.driver.setVersioning("kept", self._random.choice(("Enabled", "Suspended")))

    def tag(self) -> None:
        """Change the tags of a version."""
        self.driver.tag(self._bucket(), self._key(), self._random.randrange(2), f"a={self._count}")

    def hold(self) -> None:
        """Place or release a legal hold."""
        isOn = self._random.random() < 0.5
        self.driver.hold("locked", self._key(), self._random.randrange(2), isOn)

    def retain(self) -> None:
        """Change a retention."""
        until = 90_000_000 + self._count
        self.driver.retain("locked", self._key(), 0, "GOVERNANCE", until, True)

    def setAcl(self) -> None:
        """Change an access control list."""
        bucket, key = self._bucket(), self._key()
        found = self.driver.find(bucket, key)
        if found is not None:
            catalog = self.driver.store.catalog
            self._settle(catalog.commit(PutAcl(bucket, key, found.sequence, f"[{self._count}]")))

    def begin(self) -> None:
        """Start an upload with one part."""
        id, bucket, key = f"upload{self._count}", self._bucket(), self._key()
        self.driver.createUpload(id, bucket, key)
        self._uploads[id] = (bucket, key, [])
        self._putPart(id)

    def putPart(self) -> None:
        """Add a part to an upload, or replace one."""
        if self._uploads:
            self._putPart(self._random.choice(sorted(self._uploads)))

    def _putPart(self, id: str) -> None:
        bucket, key, parts = self._uploads[id]
        number, body = self._random.randint(1, 3), self._random.randbytes(700)
        self.driver.putPart(bucket, key, id, number, body)
        parts[:] = sorted([part for part in parts if part[0] != number] + [(number, body)])

    def end(self) -> None:
        """Complete an upload, or abort it."""
        if self._uploads:
            id = self._random.choice(sorted(self._uploads))
            bucket, key, parts = self._uploads.pop(id)
            if self._random.random() < 0.5:
                self.driver.abort(bucket, key, id)
            else:
                self.driver.complete(bucket, key, id, parts)

    def changeBucket(self) -> None:
        """Create or remove a bucket, whose name is reused with another number."""
        try:
            self.driver.createBucket("passing")
        except StoreError:
            self.driver.deleteBucket("passing")

    def setSettings(self) -> None:
        """Change the settings of a bucket."""
        document = msgspec.json.encode([self._count]) if self._random.random() < 0.7 else None
        catalog = self.driver.store.catalog
        self._settle(catalog.commit(PutSettings(self._bucket(), {"cors": document})))

    def changeKeys(self) -> None:
        """Issue an access key and change it, or revoke one."""
        catalog, name = self.driver.store.catalog, f"KEY{self._random.randrange(3)}"
        if not self._settle(catalog.commit(RemoveAccessKey(name))):
            more = ("auditor", 1 << 50, self._count % 2 == 0, f"note {self._count}")
            key = AccessKey(name, "secret", "account", "readwrite", "", "", "", self._count, *more)
            self._settle(catalog.commit(AddAccessKey(key)))
            changed = evolve(key, note="changed")
            self._settle(catalog.commit(ChangeAccessKey(changed)))
            self._settle(catalog.commit(NoteKeyUses({name: self._count})))

    def changeIdentities(self) -> None:
        """Change the users of an account together with a key of one."""
        catalog, name = self.driver.store.catalog, f"user{self._random.randrange(3)}"
        _, found = self._settle(Deferred.fromCoroutine(catalog.identities(0)))
        revision = found["account"].revision if "account" in found else 0
        _, keys = self._settle(Deferred.fromCoroutine(catalog.accessKeys()))
        known = {key.accessKey for key in keys if key.userName}
        key = AccessKey(
            f"USER{self._random.randrange(3)}",
            "secret",
            "account",
            createdMs=self._count,
            userName=name,
            sessionPolicy=str(self._count),
        )
        isNew = key.accessKey not in known
        document = b"%d" % self._count if self._random.random() < 0.7 else None
        self._settle(
            catalog.commit(
                PutIdentities(
                    "account",
                    revision,
                    {("user", name): document, ("group", "all"): b"{}"},
                    [key] if isNew else [],
                    [] if isNew else [key],
                    sorted(known - {key.accessKey})[:1],
                )
            )
        )

    def progress(self) -> None:
        """Store the progress of a background task."""
        document = msgspec.json.encode(self._count)
        self._settle(self.driver.store.catalog.commit(PutProgress("task", document)))


_KINDS = (
    *[StoreChanges.put] * 4,
    StoreChanges.copy,
    StoreChanges.copy,
    StoreChanges.delete,
    StoreChanges.deleteVersion,
    StoreChanges.deleteVersion,
    StoreChanges.changeVersioning,
    StoreChanges.tag,
    StoreChanges.hold,
    StoreChanges.retain,
    StoreChanges.setAcl,
    StoreChanges.begin,
    StoreChanges.putPart,
    StoreChanges.end,
    StoreChanges.changeBucket,
    StoreChanges.setSettings,
    StoreChanges.changeKeys,
    StoreChanges.changeIdentities,
    StoreChanges.progress,
)


def dumpStore(directory: str) -> dict[str, list[Any]]:
    """Return all rows of a closed embedded store, including its secret, except garbage."""
    dumped: dict[str, list[Any]] = {}
    with closing(sqlite3.connect(os.path.join(directory, "catalog.sqlite"))) as connection:
        for (table,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_stat%'"
        ).fetchall():
            condition = {"blobs": "refs > 0", "meta": "name <> 'migration'"}.get(table, "TRUE")
            rows = connection.execute(f"SELECT * FROM {table} WHERE {condition}").fetchall()
            dumped[table] = sorted(rows, key=repr)
    return dumped
