"""Initialisation of a cluster, once, and the check at each start of a node. All functions block."""

import secrets
from collections.abc import Coroutine, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from storagegate.cluster.counts import checkCounts
from storagegate.cluster.options import BACK_ENDS, ClusterOptions
from storagegate.storage.cluster.admin import ClusterSecrets, openForTools
from storagegate.storage.cluster.blobs.pieces import InPlace, IPieceStore
from storagegate.storage.cluster.blobs.remote import checkPieces, claimPieces
from storagegate.storage.errors import BlobsRefused, StoreBusy, StoreError
from storagegate.storage.identity import storeId

T = TypeVar("T")

AFFINITY_BYTES = 32


def blobsBackEnd(options: ClusterOptions) -> str:
    """Return the name of the blob back end in L{storagegate.storage.backends}."""
    return BACK_ENDS[options.blobs.partition(":")[0]]


def openPieces(options: ClusterOptions, reactor: Any) -> IPieceStore:
    """
    Connect to the blob store.

    @param reactor: The reactor, which need not run.
    @raise StoreError: If the blob store cannot be used; the text gives the reason in one line.
    """
    back = blobsBackEnd(options)
    if back == "shared":
        from storagegate.storage.cluster.blobs import shared

        return shared.openPieces(options.blobs, reactor)
    if back == "rados":
        from storagegate.storage.cluster.blobs import rados

        return rados.openPieces(options.blobs, reactor, InPlace())
    from storagegate.storage.cluster.blobs import s3

    return s3.openPieces(options.blobs, reactor, InPlace())


@contextmanager
def connectedPieces(options: ClusterOptions, reactor: Any) -> Iterator[IPieceStore]:
    """
    Connect to the blob store, and disconnect on exit.

    @param reactor: The reactor, which need not run.
    @raise StoreError: If the blob store cannot be used; the text gives the reason in one line.
    """
    pieces = openPieces(options, reactor)
    try:
        yield pieces
    except OSError as error:
        raise StoreError(f"{pieces.name} cannot be used: {error}") from error
    finally:
        pieces.detach()


def waitFor(pieces: IPieceStore, work: Coroutine[Any, Any, T]) -> T:
    """
    Wait for operations on a piece store.

    @param work: The coroutine that performs the operations.
    @raise StoreBusy: If the operations take too long; the text names the store in one line.
    """
    try:
        return pieces.wait(Deferred.fromCoroutine(work))
    except StoreBusy as error:
        if pieces.name in str(error):
            raise
        raise StoreBusy(f"{pieces.name}: {error}") from error


def checkCluster(options: ClusterOptions, reactor: Any, needsBlobs: bool = True) -> ClusterSecrets:
    """
    Check that the catalog and the blobs can be used and belong to the same store.

    @param reactor: The reactor, which need not run.
    @param needsBlobs: Whether an unresponsive blob store is an error; otherwise it is checked
        against the catalog before the first write.
    @return: The secrets of the nodes.
    @raise StoreError: If the check fails; the text gives the reason in one line. C{StoreBusy} if a
        retry may succeed.
    """
    with closing(openForTools(options.catalog)) as admin:
        found = admin.secrets()
        for shard in admin.shards():
            with admin.opened(shard):
                pass
    with connectedPieces(options, reactor) as pieces:
        try:
            waitFor(pieces, checkPieces(pieces, storeId(found.store)))
        except BlobsRefused as error:
            raise StoreError(str(error)) from error
        except StoreBusy:
            if needsBlobs:
                raise
    checkCounts(options.counts, options.catalog)
    return found


def initialise(
    options: ClusterOptions, accessKey: str, secretKey: str, reactor: Any
) -> tuple[str, bool]:
    """
    Create the schema of the catalog, claim the blob store, and create the secrets, skipping steps
    that are done already.

    @param accessKey: The access key of the root key pair, if the cluster has none yet; the same
        applies to C{secretKey}.
    @param reactor: The reactor, which need not run.
    @return: The id of the store, and whether the pair is its root key pair now.
    @raise StoreError: If initialisation fails, the blobs belong to another store, or an initialised
        cluster has its blobs elsewhere; the text gives the reason in one line.
    """
    with closing(openForTools(options.catalog, mayCreate=True)) as admin:
        store = storeId(admin.storeSecret())
        with connectedPieces(options, reactor) as pieces:
            # The first call has claimed the blob store of the cluster. After a configuration
            # mistake, another location must not become a second blob store.
            check = claimPieces if admin.root() is None else checkPieces
            waitFor(pieces, check(pieces, store))
        checkCounts(options.counts, options.catalog)
        # Last, because nodes start once the secrets exist.
        made = admin.makeSecrets(accessKey, secretKey, secrets.token_bytes(AFFINITY_BYTES))
    return store, made
