"""
What is done to a cluster before its nodes serve: it is made once, and checked at each start. All
functions block.
"""

import secrets
from collections.abc import Coroutine, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from storagegate.cluster.counts import checkCounts
from storagegate.cluster.options import BACK_ENDS, ClusterOptions
from storagegate.storage.blobs.pieces import InPlace, IPieceStore
from storagegate.storage.blobs.remote import checkPieces, claimPieces
from storagegate.storage.catalog.postgresql.admin import ClusterSecrets, openForTools
from storagegate.storage.errors import BlobsRefused, StoreBusy, StoreError
from storagegate.storage.identity import storeId

T = TypeVar("T")

AFFINITY_BYTES = 32


def blobsBackEnd(options: ClusterOptions) -> str:
    """Return the name of the back end of the blobs in L{storagegate.storage.backends}."""
    return BACK_ENDS[options.blobs.partition(":")[0]]


def openPieces(options: ClusterOptions, reactor: Any) -> IPieceStore:
    """
    Connect to the store of the blobs.

    @param reactor: Need not run.
    @raise StoreError: It cannot be used; one line gives the reason.
    """
    back = blobsBackEnd(options)
    if back == "shared":
        from storagegate.storage.blobs import shared

        return shared.openPieces(options.blobs, reactor)
    if back == "rados":
        from storagegate.storage.blobs import rados

        return rados.openPieces(options.blobs, reactor, InPlace())
    from storagegate.storage.blobs import s3

    return s3.openPieces(options.blobs, reactor, InPlace())


@contextmanager
def connectedPieces(options: ClusterOptions, reactor: Any) -> Iterator[IPieceStore]:
    """
    Connect to the store of the blobs, and disconnect.

    @param reactor: Need not run.
    @raise StoreError: It cannot be used; one line gives the reason.
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
    Wait for operations on a store of pieces.

    @param work: What the operations are a part of.
    @raise StoreBusy: They took too long; one line says where.
    """
    try:
        return pieces.wait(Deferred.fromCoroutine(work))
    except StoreBusy as error:
        if pieces.name in str(error):
            raise
        raise StoreBusy(f"{pieces.name}: {error}") from error


def checkCluster(options: ClusterOptions, reactor: Any, needsBlobs: bool = True) -> ClusterSecrets:
    """
    Check that the catalog and the blobs can be used, and are of one store.

    @param reactor: Need not run.
    @param needsBlobs: Whether blobs that do not answer are an error; otherwise they are compared
        with the catalog before anything is written to them.
    @return: The secrets of the nodes.
    @raise StoreError: They are not; one line gives the reason. C{StoreBusy} if time may mend it.
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
    Make the schema of the catalog, claim the store of the blobs, and make the secrets, as far as
    that has not been done.

    @param accessKey: Of the root key pair, if there is none yet; so is C{secretKey}.
    @param reactor: Need not run.
    @return: The id of the store, and whether the pair is its root key pair now.
    @raise StoreError: It is not possible, the blobs are another store's, or the cluster is made and
        its blobs are elsewhere; one line gives the reason.
    """
    with closing(openForTools(options.catalog, mayCreate=True)) as admin:
        store = storeId(admin.storeSecret())
        with connectedPieces(options, reactor) as pieces:
            # A cluster that is made has its blobs where the first call has claimed them. Another
            # place, after a slip in the configuration, must not become a second one.
            check = claimPieces if admin.root() is None else checkPieces
            waitFor(pieces, check(pieces, store))
        checkCounts(options.counts, options.catalog)
        # Last: nodes start when there are secrets.
        made = admin.makeSecrets(accessKey, secretKey, secrets.token_bytes(AFFINITY_BYTES))
    return store, made
