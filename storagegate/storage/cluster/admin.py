"""Access keys and secrets of a cluster, without a reactor, whether nodes are running or not."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any

import psycopg
from attrs import define, field, frozen

from storagegate.storage.blobids import SHARDS
from storagegate.storage.cluster.connection import UNREPLICATED
from storagegate.storage.cluster.interfaces import Backlog, NodeRow
from storagegate.storage.cluster.lookups import keyDocument, keyDocuments, readBucket, readKey
from storagegate.storage.cluster.primary import findPrimary, unreached
from storagegate.storage.cluster.schema import (
    CONNECT_SECONDS,
    UNINITIALISED,
    checkShard,
    migrate,
)
from storagegate.storage.cluster.statements import CLUSTER, STATUSES
from storagegate.storage.errors import CommitUnknown, NoStandby, StoreBusy
from storagegate.storage.mutations import PutIdentities
from storagegate.storage.records import AccessKey, AccountDocuments, Bucket
from storagegate.storage.rows import gatherIdentities
from storagegate.storage.sqlite import CatalogUnusable

_IDENTITIES = """
    SELECT a.account, a.revision, i.kind, i.name, i.document FROM identities AS a
    JOIN identities AS i ON i.account = a.account WHERE a.kind = 'account'
"""

_KEYS = "SELECT to_json(k)::text FROM issuedkeys AS k ORDER BY accesskey"

_SETTINGS = """
    SELECT b.described, s.name, s.document FROM (
        SELECT id, name, described FROM buckets WHERE generation > 0 AND name > %s
            ORDER BY name LIMIT 100) AS b
    LEFT JOIN bucketsettings AS s ON s.bucketid = b.id ORDER BY b.name
"""


ROOT, _AFFINITY = "root", "affinity"
"""Rows of C{meta}."""

_STANDBYS = """
    SELECT application_name, host(client_addr), state, sync_state,
        coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn), 0)::bigint,
        coalesce(extract(epoch FROM flush_lag), 0)::float8
    FROM pg_stat_replication ORDER BY 1, 2
"""


@frozen
class ClusterSecrets:
    """
    The secrets that all nodes of a cluster share.

    @ivar store: The store's secret; see C{ICatalog.secret}.
    @ivar accessKey: The access key of the root key pair.
    @ivar secretKey: The secret key of the root key pair.
    @ivar affinity: The key that signs the gateway's affinity cookies.
    @ivar servers: The conninfos of the additional shards.
    """

    store: bytes = field(repr=False)
    accessKey: str
    secretKey: str = field(repr=False)
    affinity: bytes = field(repr=False)
    servers: tuple[str, ...] = field(repr=False)


@frozen
class Standby:
    """
    A standby server of the primary.

    @ivar syncState: C{sync} or C{quorum} if commits wait for it.
    @ivar lagBytes: Bytes of the WAL that it has not confirmed.
    @ivar lagSeconds: How long the last confirmation took, in seconds.
    """

    name: str
    address: str | None
    state: str
    syncState: str
    lagBytes: int
    lagSeconds: float


@frozen
class Shard:
    """
    A database that holds complete buckets.

    @ivar servers: The conninfos of its servers; the configuration has the conninfos of the first
        shard.
    @ivar takesBuckets: Whether new buckets are created in it.
    """

    number: int
    servers: tuple[str, ...] = field(repr=False)
    takesBuckets: bool


@define(eq=False)
class ClusterAdmin:
    """
    Issues and revokes access keys, with immediate notification of all nodes, and reads status for
    operators. All methods block, and raise C{StoreBusy} if the catalog does not respond, and
    C{CommitUnknown} if a change was not replicated, because its wait was cancelled.

    @ivar conninfo: The primary's conninfo.
    @ivar timeline: The primary's timeline.
    @ivar connection: The connection, which L{close} closes.
    @ivar needsStandby: Whether changes of keys are refused if commits wait for no standby.
    """

    conninfo: str
    timeline: int
    connection: psycopg.Connection[tuple[Any, ...]]
    needsStandby: bool = False
    _warning: str = field(default="", init=False)

    def __attrs_post_init__(self) -> None:
        self.connection.add_notice_handler(self._noticed)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def accessKeys(self) -> list[AccessKey]:
        """Read all issued keys."""
        return [readKey(document) for (document,) in self._run(_KEYS)]

    def keyUses(self) -> dict[str, int]:
        """Read when each key was last used, in ms."""
        return dict(self._run("SELECT accesskey, lastusedms FROM keyuses"))

    def addAccessKey(self, key: AccessKey) -> None:
        """
        Issue a key.

        @raise KeyExists: The access key is taken.
        """
        [(status,)] = self._change("SELECT addaccesskey(%s::json)", keyDocument(key).decode())
        if status:
            raise STATUSES[status]()

    def removeAccessKey(self, accessKey: str) -> bool:
        """Revoke a key; return whether it existed."""
        [(found,)] = self._change("SELECT removeaccesskey(%s)", accessKey)
        return found is True

    def identities(self) -> dict[str, AccountDocuments]:
        """Read the documents of all accounts."""
        return gatherIdentities(self._run(_IDENTITIES))

    def putIdentities(self, mutation: PutIdentities) -> int:
        """
        Store documents and keys of an account; return its new revision.

        @raise IdentitiesChanged: The account has changed.
        @raise KeyExists: The access key of a new key is taken.
        """
        [(status, revision)] = self._change(
            "SELECT rstatus, rrevision FROM putidentities(%s, %s, %s::text[], %s::text[],"
            " %s::bytea[], %s::json, %s::json, %s::text[])",
            mutation.account,
            mutation.revision,
            [kind for kind, _ in mutation.documents],
            [name for _, name in mutation.documents],
            list(mutation.documents.values()),
            keyDocuments(mutation.addedKeys).decode(),
            keyDocuments(mutation.changedKeys).decode(),
            list(mutation.removedKeys),
        )
        if status:
            raise STATUSES[status]()
        return int(revision)

    def settings(self) -> Iterator[tuple[Bucket, dict[str, bytes]]]:
        """Read the buckets that have settings, and the settings of each, by shard and name."""
        for shard in self.shards():
            with self.opened(shard) as admin:
                after = ""
                while rows := admin.rows(_SETTINGS, after):
                    for described, found in groupby(rows, itemgetter(0)):
                        bucket, _ = readBucket(described.encode())
                        yield bucket, {name: document for _, name, document in found if name}
                        after = bucket.name

    def secrets(self) -> ClusterSecrets:
        """
        Read the secrets.

        @raise CatalogUnusable: The secrets do not exist yet.
        """
        found = dict(self._run("SELECT name, value FROM meta"))
        if ROOT not in found:
            raise CatalogUnusable(UNINITIALISED)
        accessKey, secretKey = found[ROOT].decode().split("\n")
        servers = tuple(each for shard in self.shards() for each in shard.servers)
        return ClusterSecrets(found["secret"], accessKey, secretKey, found[_AFFINITY], servers)

    def root(self) -> tuple[str, str] | None:
        """Read the root key pair; L{None} if there is none yet."""
        found = self._run("SELECT value FROM meta WHERE name = %s", ROOT)
        if not found:
            return None
        accessKey, secretKey = found[0][0].decode().split("\n")
        return accessKey, secretKey

    def storeSecret(self) -> bytes:
        """Read the store's secret, which is created with the schema."""
        [(secret,)] = self._run("SELECT value FROM meta WHERE name = 'secret'")
        return bytes(secret)

    def makeSecrets(self, accessKey: str, secretKey: str, affinity: bytes) -> bool:
        """
        Write the secrets unless they exist; return whether they were written. See
        L{ClusterSecrets}.

        @param accessKey: The access key of the root key pair; C{secretKey} is its secret key.
        """
        made = self._run(
            "INSERT INTO meta (name, value) VALUES (%s, %s), (%s, %s)"
            " ON CONFLICT DO NOTHING RETURNING name",
            ROOT,
            f"{accessKey}\n{secretKey}".encode(),
            _AFFINITY,
            affinity,
        )
        return bool(made)

    def shards(self) -> list[Shard]:
        """List the shards."""
        return [
            Shard(number, tuple(servers), takesBuckets)
            for number, servers, takesBuckets in self._run(
                "SELECT number, servers, takesbuckets FROM shards ORDER BY number"
            )
        ]

    @contextmanager
    def opened(self, shard: Shard) -> Iterator["ClusterAdmin"]:
        """
        Connect to a shard, unless it is the first one.

        @raise CatalogUnusable: The shard cannot be used; the message names it.
        """
        if not shard.number:
            yield self
            return
        try:
            admin = openForTools(shard.servers)
        except CatalogUnusable as error:
            raise type(error)(f"shard {shard.number}: {error}") from error
        with closing(admin):
            checkShard(admin.connection, shard.number, self.storeSecret())
            yield admin

    def addShard(self, conninfos: Sequence[str]) -> int:
        """
        Add a database as the next shard. It does not take new buckets yet, because running nodes do
        not know it.

        @param conninfos: The conninfos of its servers.
        @return: The shard's number.
        @raise CatalogUnusable: The database cannot be used, or belongs to another store.
        @raise StoreBusy: The catalog did not answer.
        """
        conninfo, _ = findPrimary(conninfos)
        migrate(conninfo)
        secret = self.storeSecret()
        try:
            with (
                closing(
                    psycopg.connect(conninfo, autocommit=True, connect_timeout=CONNECT_SECONDS)
                ) as added,
                self.connection.transaction(),
            ):
                # Once this is committed, no row of the directory is removed.
                self.connection.execute("LOCK TABLE shards, directory IN SHARE ROW EXCLUSIVE MODE")
                [(number,)] = self._run("SELECT max(number) + 1 FROM shards")
                if number >= SHARDS:
                    raise CatalogUnusable(f"the limit of {SHARDS} shards is reached")
                _claimShard(added, number, secret)
                self.connection.execute(
                    "INSERT INTO shards VALUES (%s, %s, false)", (number, list(conninfos))
                )
        except psycopg.Error as error:
            raise StoreBusy(" ".join(str(error).split())) from error
        self._checkReplicated()
        return int(number)

    def openShard(self, number: int, isOpen: bool) -> None:
        """
        Choose whether a shard takes new buckets.

        @raise CatalogUnusable: The shard does not exist, or a node does not know it yet.
        """
        found = {each.number: each for each in self.shards()}.get(number)
        if found is None:
            raise CatalogUnusable(f"no such shard: {number}")
        if isOpen and number:
            with self.opened(found) as other:
                known = {each.node for each in other.nodes() if each.isAlive}
            unknown = sorted({each.node for each in self.nodes() if each.isAlive} - known)
            if unknown:
                raise CatalogUnusable(
                    f"shard {number} is unknown to {', '.join(unknown)}: restart these nodes"
                )
        self.execute("UPDATE shards SET takesbuckets = %s WHERE number = %s", isOpen, number)

    def nodes(self) -> list[NodeRow]:
        """List all leases."""
        return [
            NodeRow(number, node, isAlive, expires, low, high)
            for number, node, isAlive, expires, low, high in self._run(CLUSTER[b"nodes"])
        ]

    def backlog(self) -> Backlog:
        """Count the backlog of garbage collection."""
        return Backlog(*self._run(CLUSTER[b"backlog"])[0])

    def standbys(self) -> list[Standby]:
        """List the standbys of the primary."""
        return [Standby(*row) for row in self._run(_STANDBYS)]

    def synchronousNames(self) -> str:
        """Return C{synchronous_standby_names}."""
        [(names,)] = self._run("SELECT current_setting('synchronous_standby_names')")
        return str(names)

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """
        Run a query.

        @param sql: The query, with C{%s} for each value.
        @param values: The parameters of the query.
        """
        return self._run(sql, *values)

    def execute(self, sql: str, *values: object) -> None:
        """Run a statement without a result; see L{rows}."""
        try:
            self.connection.execute(sql.encode(), values or None)
        except psycopg.Error as error:
            raise StoreBusy(" ".join(str(error).split())) from error
        self._checkReplicated()

    def _change(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """
        Run a change that a user relies on.

        @raise NoStandby: Commits wait for no standby, although they must.
        """
        if self.needsStandby and not self.synchronousNames():
            raise NoStandby
        return self._run(sql, *values)

    def _run(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            found = self.connection.execute(sql.encode(), values or None).fetchall()
        except psycopg.Error as error:
            raise StoreBusy(" ".join(str(error).split())) from error
        self._checkReplicated()
        return found

    def _noticed(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.source_function == UNREPLICATED.decode():
            self._warning = notice.message_primary or "the change was not replicated"

    def _checkReplicated(self) -> None:
        warning, self._warning = self._warning, ""
        if warning:
            raise CommitUnknown(warning)


def _claimShard(
    connection: psycopg.Connection[tuple[Any, ...]], number: int, secret: bytes
) -> None:
    """
    Write a shard's number and its store's secret to a database.

    @raise CatalogUnusable: The database belongs to another shard, or is the catalog of a store.
    """
    with connection.transaction():
        [(found, known, root)] = connection.execute(
            "SELECT s.number, (SELECT value FROM meta WHERE name = 'secret'),"
            " (SELECT value FROM meta WHERE name = %s) FROM meta AS s WHERE s.name = 'shard'"
            " FOR UPDATE",
            (ROOT,),
        ).fetchall()
        if known == secret and found == number:
            # An earlier command was interrupted.
            return
        [(used,)] = connection.execute(
            "SELECT EXISTS (SELECT FROM buckets) OR EXISTS (SELECT FROM leases)"
        ).fetchall()
        if root is not None or found or used:
            raise CatalogUnusable("the database is already the catalog of a store, or a shard")
        connection.execute("UPDATE meta SET number = %s WHERE name = 'shard'", (number,))
        connection.execute("UPDATE meta SET value = %s WHERE name = 'secret'", (secret,))
        connection.execute("DELETE FROM shards")
        connection.execute(f"ALTER TABLE leases ALTER id RESTART WITH {SHARDS + number}".encode())


def openForTools(
    conninfos: Sequence[str], mayCreate: bool = False, evenMoved: bool = False
) -> ClusterAdmin:
    """
    Open the catalog of a cluster, migrating its schema as a node would.

    @param conninfos: The conninfos, one per server.
    @param mayCreate: Whether to create the schema if it does not exist.
    @param evenMoved: Whether to accept a store that has moved away or is being filled.
    @raise CatalogUnusable: The catalog cannot be opened; the message is one line with the reason.
    """
    conninfo, timeline = findPrimary(conninfos)
    migrate(conninfo, mayCreate, evenMoved)
    try:
        return ClusterAdmin(
            conninfo,
            timeline,
            psycopg.connect(conninfo, autocommit=True, connect_timeout=CONNECT_SECONDS),
        )
    except psycopg.Error as error:
        raise unreached(error) from error
