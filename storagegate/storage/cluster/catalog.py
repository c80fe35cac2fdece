"""
The catalog of a store over several machines, in PostgreSQL.

There are four connections to the primary: two for writes, one for look-ups and the lease, and one
for listings and notifications. A lost connection is reopened. A write is retried only if the server
reported that the first attempt did nothing.

Reads are not cached, so each read sees all earlier commits of all nodes. Buckets are cached only to
check writes; the bucket's revision then confirms or refuses the write at the commit.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import psycopg
from twisted.internet.defer import Deferred, fail
from zope.interface import implementer

from storagegate.storage.blobids import readBlobId
from storagegate.storage.clock import bootSeconds
from storagegate.storage.cluster import mutations
from storagegate.storage.cluster.connection import Connection
from storagegate.storage.cluster.consolerecords import ClusterConsoleRecords
from storagegate.storage.cluster.databaselocks import AdvisoryLocks, Locks
from storagegate.storage.cluster.eventfunctions import EVENTS
from storagegate.storage.cluster.events import ChangeJournal
from storagegate.storage.cluster.garbage import Cleanup
from storagegate.storage.cluster.interfaces import REQUEST_LEASE, IClusterCatalog
from storagegate.storage.cluster.leases import BLOCK, Leases
from storagegate.storage.cluster.lists import Lists
from storagegate.storage.cluster.lookups import Lookups
from storagegate.storage.cluster.primary import (
    PersistentConnection,
    Primary,
    findPrimary,
)
from storagegate.storage.cluster.schema import (
    CONNECT_SECONDS,
    checkShard,
    migrate,
    readShards,
)
from storagegate.storage.cluster.statements import CLUSTER, LISTS, LOOKUPS
from storagegate.storage.cluster.writer import PendingMutation, Writer
from storagegate.storage.errors import StoreBusy
from storagegate.storage.mutations import (
    NO_BLOBS,
    BlobMutation,
    Mutation,
    T,
    newBlobsOf,
    noteDamage,
)
from storagegate.storage.ranges import ObjectRange, PartRange, UploadRange, VersionRange
from storagegate.storage.records import (
    AccessKey,
    AccountDocuments,
    BlobRow,
    Bucket,
    ExpiryRow,
    InlineCheck,
    InlinePosition,
    MultipartUpload,
    ObjectListing,
    ObjectRecord,
    OlderVersions,
    Part,
    StoreUsage,
    UploadListing,
    VersionListing,
)
from storagegate.storage.sqlite import CatalogUnusable
from storagegate.storage.versionids import VersionIds

CHANNELS = ("buckets", "keys", "blobs")
"""
The C{NOTIFY} channels for changed buckets, changed access keys, and corrupt blobs that are intact
again.
"""


@implementer(IClusterCatalog)
class PostgreSQLCatalog:
    """
    The catalog. Methods: reactor thread, unless they say otherwise.

    @ivar leases: The lease of this node, which its owner renews.
    @ivar cleanup: The work for all nodes.
    @ivar journal: The changes of watched buckets.
    @ivar consoleRecords: The records of the console.
    @ivar primary: Finds the primary server.
    @ivar others: The conninfos of the additional shards, as of the opening of this one.
    @ivar onBucketChanged: Called with the name of a bucket that any node has changed, created or
        removed, and with an empty name if notifications may have been lost.
    @ivar onBlobCleared: Called with a blob that any node, or fsck, has found intact again.
    @ivar onKeysChanged: Called when any node has, or may have, changed the access keys.
    """

    isRemote = True

    keysStaleSeconds = 1.0
    graceSeconds = 0.0
    failure: str | None = None

    def __init__(
        self,
        reactor: Any,
        conninfos: Sequence[str],
        secret: bytes,
        corrupt: frozenset[str] = frozenset(),
        timeline: int = 0,
        clock: Callable[[], float] = bootSeconds,
        locks: Locks | None = None,
    ) -> None:
        """
        Start connecting.

        @param reactor: Provides C{IReactorFDSet}, C{IReactorTime} and C{IReactorPluggableResolver}.
        @param conninfos: The conninfos, one per server.
        @param secret: The store's secret.
        @param corrupt: The blobs that were marked as corrupt before.
        @param timeline: The timeline of the server from which the arguments were read.
        @param clock: See L{Leases}.
        @param locks: The kind of locks, the same on all nodes; L{None} for advisory locks.
        """
        locks = locks or AdvisoryLocks()
        self.onBucketChanged: Callable[[str], object] = lambda name: None
        self.onKeysChanged: Callable[[], object] | None = None
        self.onBlobCleared: Callable[[str], object] = lambda blob: None
        self.primary = Primary(reactor, conninfos, timeline)
        self.others: Mapping[int, Sequence[str]] = {}
        self._secret = secret
        self._corrupt = set(corrupt)
        self._ids = VersionIds(secret)
        self._forLookups = PersistentConnection(reactor, self.primary, LOOKUPS)
        self._forLists = PersistentConnection(
            reactor,
            self.primary,
            {**locks.statements, **LISTS, **CLUSTER, **EVENTS, **_LISTEN},
            onNotification=self._notified,
            onOpen=self._listen,
        )
        self._lookups = Lookups(reactor, self._forLookups, self._ids)
        self._lists = Lists(self._forLists, self._lookups, self._ids)
        self.leases = Leases(self._forLookups, clock)
        self.cleanup = Cleanup(self._forLists, locks)
        self.writer = Writer(reactor, self.primary, locks)
        self.journal = ChangeJournal(self._forLists, self._ids, self._submit)
        self.consoleRecords = ClusterConsoleRecords(self._forLookups, self._submit)
        self.writer.onUnknown = self.leases.giveUp
        self.primary.onPromotion = self._promoted
        for each in (self._forLookups, self._forLists, self.writer):
            each.open()
        self.primary.watch()

    def requireStandby(self) -> None:
        """See L{IClusterCatalog.requireStandby}."""
        self.writer.needsStandby = True

    def close(self) -> Deferred[None]:
        """Commit waiting mutations, then close. Call once."""
        return self.writer.close().addCallback(self._closed)

    def _promoted(self) -> None:
        """Leave the old primary, whose connections may still be open if it was only isolated."""
        self.leases.giveUp()
        for each in (self._forLookups, self._forLists, self.writer):
            each.reopen("another server was promoted")

    def _closed(self, _: None) -> None:
        self._forLookups.close()
        self._forLists.close()
        self.primary.close()

    @property
    def lease(self) -> int:
        """The number of the current lease; 0 if there is none."""
        return self.leases.number

    @property
    def waiting(self) -> int:
        """How many mutations wait for a commit."""
        return self.writer.waiting

    def measure(
        self, mutations: Callable[[int], object], seconds: Callable[[float], object]
    ) -> None:
        """See L{ICatalog.measure}."""
        self.writer.meters = (mutations, seconds)

    def health(self) -> Mapping[str, str | None]:
        """See L{ICatalog.health}."""
        reason = self.primary.failure
        return {
            "catalog": reason and f"the catalog does not respond: {reason}",
            "lease": None if self.lease else "this node holds no lease",
        }

    def secret(self) -> bytes:
        """Return the store's secret."""
        return self._secret

    def checkVersionId(self, versionId: str) -> None:
        """Check that this catalog may have issued a version id."""
        self._ids.read(versionId)

    def newBlobId(self, bucket: str = "") -> str:
        """Generate a blob id under the lease of this node."""
        return self.leases.newBlobId()

    def corruptBlobs(self) -> frozenset[str]:
        """Return the blobs that were marked before opening, or by this process."""
        return frozenset(self._corrupt)

    async def objectsOf(
        self, blobs: Sequence[str], limit: int
    ) -> list[tuple[str, bytes, str, str]]:
        """Find no objects: that would read all rows."""
        return []

    def recentBucket(self, name: str) -> tuple[Bucket, int] | None:
        """Return a bucket as it was last read."""
        return self._lookups.recent.get(name)

    async def bucket(self, name: str) -> Bucket | None:
        """Look up a bucket."""
        return await self._lookups.bucket(name)

    async def shard(self, bucket: str) -> int | None:
        """Look up the shard of a bucket."""
        return await self._lookups.shard(bucket)

    async def object(
        self, bucket: str, key: bytes, versionId: str | None = None, *, verify: bool = False
    ) -> tuple[Bucket | None, ObjectRecord | None]:
        """Look up a bucket and an object in it."""
        return await self._lookups.object(bucket, key, versionId, verify)

    async def deleteMarker(self, bucket: str, key: bytes) -> ObjectRecord | None:
        """Look up the newest version of a key if it is a delete marker."""
        return await self._lookups.deleteMarker(bucket, key)

    async def completed(self, bucket: str, key: bytes, uploadId: str) -> ObjectRecord | None:
        """Look up the version that an upload's completion created."""
        return await self._lookups.completed(bucket, key, uploadId)

    async def settings(self, bucket: str) -> tuple[int, Mapping[str, bytes]]:
        """Read the settings of a bucket and their generation."""
        return await self._lookups.settings(bucket)

    async def upload(self, bucket: str, key: bytes, uploadId: str) -> MultipartUpload | None:
        """Look up an upload."""
        return await self._lookups.upload(bucket, key, uploadId)

    async def accessKeys(self) -> tuple[int, list[AccessKey]]:
        """Read the issued keys and their generation."""
        return await self._lookups.accessKeys()

    async def keyUses(self) -> Mapping[str, int]:
        """Read when each key was last used."""
        return await self._lookups.keyUses()

    async def keysGeneration(self) -> int:
        """Read the generation of the keys."""
        return await self._lookups.keysGeneration()

    async def identities(self, after: int) -> tuple[int, Mapping[str, AccountDocuments]]:
        """Read the documents of the accounts that have changed after a revision."""
        return await self._lookups.identities(after)

    async def knownBlobs(self, ids: Sequence[str]) -> frozenset[str]:
        """Find which of these blobs have a row."""
        return await self._lookups.knownBlobs(ids)

    async def blobRow(self, id: str) -> BlobRow | None:
        """Look up a blob."""
        return await self._lookups.blobRow(id)

    async def usage(self, limit: int) -> StoreUsage:
        """Read the usage of the buckets."""
        return await self._lists.usage(limit)

    async def olderVersions(self, bucket: str, limit: int) -> OlderVersions | None:
        """Count the older versions in a bucket."""
        return await self._lists.olderVersions(bucket, limit)

    async def buckets(
        self, account: str | None, prefix: str, after: str, limit: int
    ) -> list[Bucket]:
        """List buckets."""
        return await self._lists.buckets(account, prefix, after, limit)

    async def listObjects(self, page: ObjectRange) -> ObjectListing:
        """List a page of objects."""
        return await self._lists.objects(page)

    async def listVersions(self, page: VersionRange) -> VersionListing:
        """List a page of versions."""
        return await self._lists.versions(page)

    async def parts(self, page: PartRange) -> list[Part]:
        """List a page of the parts of an upload."""
        return await self._lists.parts(page)

    async def uploads(self, page: UploadRange) -> UploadListing:
        """List a page of uploads in progress."""
        return await self._lists.uploads(page)

    async def referenced(self, ids: Sequence[str]) -> frozenset[str]:
        """
        Find which of these blobs have references, counting freed ones that are not yet folded.
        """
        return await self._lists.referenced(ids)

    async def garbage(self, after: str, limit: int) -> list[str]:
        """List blobs without references that no reader can still have found."""
        return await self._lists.garbage(after, limit)

    async def blobRows(self, after: str, limit: int) -> list[BlobRow]:
        """List all blobs."""
        return await self._lists.blobRows(after, limit)

    async def expiryPage(
        self, bucket: str, prefix: bytes, after: tuple[bytes, int] | None, limit: int
    ) -> list[ExpiryRow]:
        """Read a page of versions to find expired ones."""
        return await self._lists.expiryPage(bucket, prefix, after, limit)

    async def bucketsWith(self, setting: str, after: str, limit: int) -> list[str]:
        """List the names of buckets that have a setting."""
        return await self._lists.bucketsWith(setting, after, limit)

    async def progress(self, task: str) -> bytes | None:
        """Read the progress of a background task."""
        return await self._lookups.progress(task)

    async def checkInline(self, start: InlinePosition | None, limit: int) -> InlineCheck:
        """Check the inline bytes of a page of objects."""
        return await self._lists.checkInline(start, limit)

    def commit(self, mutation: Mutation[T]) -> Deferred[T]:
        """See L{ICatalog.commit<storagegate.storage.interfaces.ICatalog.commit>}."""
        if isinstance(mutation, BlobMutation):
            noteDamage(self._corrupt, mutation)
        prepared = mutations.MUTATIONS[type(mutation)](self._ids, mutation)
        return self._submit(prepared, newBlobsOf(mutation))

    def placeBucket(self, name: str) -> Deferred[int]:
        """Choose the shard of a new bucket, unless its name already has one, and return it."""
        return self._submit(mutations.placeBucket(name))

    def _submit(
        self, mutation: PendingMutation, newBlobs: Mapping[str, int] = NO_BLOBS
    ) -> Deferred[Any]:
        """
        Queue a mutation under the lease of the current request.

        @param newBlobs: The new blobs that are settled when the mutation is committed.
        """
        lease = REQUEST_LEASE.get() or self.lease
        if not lease:
            return fail(StoreBusy("this node holds no lease"))
        mutation.leases = (lease,)
        if newBlobs:
            # After a lease ends, its blobs without rows are swept.
            names = [readBlobId(blob) for blob in newBlobs]
            mutation.leases = (lease, *(name[0] for name in names if name is not None))
        done = self.writer.submit(mutation)
        if newBlobs:

            def settle(result: Any) -> Any:
                for blob in newBlobs:
                    self.leases.settle(blob)
                return result

            done.addCallback(settle)
        return done

    def _listen(self, connection: Connection) -> None:
        connection.run([(name, ()) for name in _LISTEN]).addCallbacks(
            lambda _: self._mayHaveChanged(),
            # The loss is logged, and the next connection listens.
            lambda failure: None,
        )
        self.journal.opened(connection)

    def _mayHaveChanged(self) -> None:
        self._lookups.recent.clear()
        self.onBucketChanged("")
        self._keysChanged()

    def _notified(self, channel: str, payload: str) -> None:
        if channel == "buckets":
            # The server would refuse writes checked against the old bucket, and they would be
            # checked again.
            self._lookups.recent.pop(payload, None)
            self.onBucketChanged(payload)
        elif channel == "keys":
            self._keysChanged()
        else:
            self._corrupt.discard(payload)
            self.onBlobCleared(payload)

    def _keysChanged(self) -> None:
        if self.onKeysChanged is not None:
            self.onKeysChanged()
        else:
            self.journal.onEvents()


_LISTEN = {f"listen{channel}".encode(): f"LISTEN {channel}" for channel in CHANNELS}


def openPostgreSQL(
    reactor: Any,
    conninfos: Sequence[str],
    node: str,
    leaseSeconds: float,
    mayCreate: bool = True,
    locks: Locks | None = None,
    shard: int = 0,
    secret: bytes | None = None,
) -> PostgreSQLCatalog:
    """
    Migrate the database to this program's schema, take a lease, and connect. Blocks.

    @param reactor: See L{PostgreSQLCatalog}.
    @param conninfos: The conninfos, one per server.
    @param node: A name of this node, for operators.
    @param leaseSeconds: How long the lease is valid before it is renewed.
    @param locks: See L{PostgreSQLCatalog}.
    @param mayCreate: Whether to create the schema if it does not exist.
    @param shard: The number that the database must have.
    @param secret: The store's secret, if known.
    @raise CatalogUnusable: There is no primary, or it is unsuitable; the message is one line with
        the reason.
    """
    conninfo, timeline = findPrimary(conninfos)
    migrate(conninfo, mayCreate)
    began = bootSeconds()
    try:
        with closing(
            psycopg.connect(conninfo, autocommit=True, connect_timeout=CONNECT_SECONDS)
        ) as connection:
            checkShard(connection, shard, secret)
            others = readShards(connection)
            secrets = connection.execute("SELECT value FROM meta WHERE name = 'secret'").fetchall()
            damaged = connection.execute("SELECT id FROM blobs WHERE damaged").fetchall()
            taken = connection.execute(
                "INSERT INTO leases (node, expires, high, readsfrom) VALUES (%s,"
                " clock_timestamp() + %s * interval '1 s', %s,"
                " pg_snapshot_xmin(pg_current_snapshot())::text::bigint) RETURNING id, readsfrom",
                (node, leaseSeconds, BLOCK),
            ).fetchall()
    except psycopg.Error as error:
        raise CatalogUnusable(f"the catalog cannot be used: {' '.join(str(error).split())}") from (
            error
        )
    corrupt = frozenset(id for (id,) in damaged)
    catalog = PostgreSQLCatalog(reactor, conninfos, secrets[0][0], corrupt, timeline, locks=locks)
    catalog.others = others
    number, stamp = taken[0]
    catalog.leases.adopt(number, began + leaseSeconds, stamp)
    return catalog
