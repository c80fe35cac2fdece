"""Access keys and buckets for commands, without a reactor, whether a daemon is running or not."""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from sqlite3 import Connection

from attrs import define

from storagegate.storage.embedded.buckets import (
    addAccessKey,
    createBucket,
    deleteBucket,
    putIdentities,
    putSettings,
    readAccessKeys,
    readIdentities,
    readKeyUses,
    readSettings,
    removeAccessKey,
)
from storagegate.storage.embedded.connections import Durability, Purpose, connect, prepare
from storagegate.storage.embedded.expiry import putProgress, readProgress
from storagegate.storage.embedded.groupcommit import Apply, QueuedMutation, runTogether
from storagegate.storage.embedded.lists import listBuckets
from storagegate.storage.embedded.usage import countOlder, readUsage
from storagegate.storage.errors import NoSuchBucket, StoreBusy, StoreFull
from storagegate.storage.files import checkFailStop
from storagegate.storage.mutations import PutIdentities, PutProgress, PutSettings
from storagegate.storage.records import (
    AccessKey,
    AccountDocuments,
    Bucket,
    OlderVersions,
    StoreUsage,
)
from storagegate.storage.sqlite import Fault, classify, leave


@define(eq=False)
class CatalogAdmin:
    """
    Changes access keys, buckets and the progress of background tasks. All methods block.

    If a running daemon has stopped writing, all changes raise L{StoreReadOnly}: they could be lost
    together with the daemon's last writes.

    @ivar _connection: The connection, which L{close} closes.
    @ivar _directory: The data directory.
    """

    _connection: Connection
    _directory: str

    def close(self) -> None:
        """Close the file."""
        leave(self._connection)

    def accessKeys(self) -> list[AccessKey]:
        """Read all issued keys."""
        return readAccessKeys(self._connection)[1]

    def addAccessKey(self, key: AccessKey) -> None:
        """
        Issue a key.

        @raise KeyExists: The access key is taken.
        """
        self._change(addAccessKey, key)

    def keyUses(self) -> dict[str, int]:
        """Read when each key was last used, in ms."""
        return readKeyUses(self._connection)

    def removeAccessKey(self, accessKey: str) -> bool:
        """Revoke a key; return whether it existed."""
        return self._change(removeAccessKey, accessKey) is True

    def identities(self) -> dict[str, AccountDocuments]:
        """Read the documents of all accounts."""
        return readIdentities(self._connection)[1]

    def putIdentities(self, mutation: PutIdentities) -> int:
        """
        Store documents and keys of an account; return its new revision.

        @raise IdentitiesChanged: The account has changed.
        @raise KeyExists: The access key of a new key is taken.
        """
        revision = self._change(putIdentities, mutation)
        assert isinstance(revision, int)
        return revision

    def buckets(self, prefix: str) -> list[Bucket]:
        """List all buckets with a name prefix, by name."""
        return listBuckets(self._connection, None, prefix, "", -1)

    def settings(self) -> Iterator[tuple[Bucket, dict[str, bytes]]]:
        """Read the buckets that have settings, and the settings of each, by name."""
        for bucket in self.buckets(""):
            if bucket.generation:
                with suppress(NoSuchBucket):
                    yield bucket, readSettings(self._connection, bucket.name)[1]

    def usage(self, limit: int) -> StoreUsage:
        """Read the usage of the C{limit} oldest buckets; see L{readUsage}."""
        return readUsage(self._connection, limit)

    def olderVersions(self, bucket: str, limit: int) -> OlderVersions | None:
        """Count the older versions in a bucket; see L{countOlder}."""
        return countOlder(self._connection, bucket, limit)

    def createBucket(self, bucket: Bucket) -> None:
        """
        Create a bucket.

        @raise BucketExists: The bucket already exists.
        """
        self._change(createBucket, bucket)

    def deleteBucket(self, name: str) -> None:
        """
        Remove a bucket.

        @raise NoSuchBucket: The bucket does not exist.
        @raise BucketNotEmpty: It holds objects, versions, delete markers or uploads.
        """
        self._change(deleteBucket, name)

    def putSettings(self, change: PutSettings) -> None:
        """
        Change settings of a bucket. No daemon may run: it would keep the former settings.

        @raise NoSuchBucket: The bucket does not exist.
        @raise SettingsChanged: A setting differs from the expected one.
        """
        self._change(putSettings, change)

    def progress(self, task: str) -> bytes | None:
        """Return the progress of a background task; L{None} if it has never stored any."""
        return readProgress(self._connection, task)

    def putProgress(self, task: str, document: bytes) -> None:
        """Store the progress of a background task."""
        self._change(putProgress, PutProgress(task, document))

    def _change(self, apply: Apply, argument: object) -> object:
        check = partial(checkFailStop, self._directory)
        try:
            (outcome,), _ = runTogether(
                self._connection, [QueuedMutation(apply, argument)], onCommit=check
            )
            # The daemon's sync may have failed just before this commit began.
            check()
        except Exception as error:
            fault = classify(error)
            if fault is Fault.BUSY:
                raise StoreBusy from error
            if fault is Fault.FULL:
                raise StoreFull from error
            raise
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def openForTools(path: str) -> CatalogAdmin:
    """
    Open a catalog, creating and migrating it as the daemon would.

    A catalog that a daemon has open is not migrated, because the daemon may be an earlier version.

    @param path: The C{catalog.sqlite} of a store.
    @raise CatalogUnusable: The catalog cannot be opened; the message is one line with the reason.
    @raise StoreReadOnly: The daemon has stopped writing, so reads could be wrong, too.
    """
    directory = os.path.dirname(os.path.abspath(path))
    checkFailStop(directory)
    prepare(path, Durability.FULL, isLocked=False)
    connection = connect(path, Durability.FULL, Purpose.WRITER)
    return CatalogAdmin(connection, directory)
