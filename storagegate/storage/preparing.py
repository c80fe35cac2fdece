"""What is done once for all the processes that are going to serve a store, before any of them."""

import os
import sqlite3
from contextlib import closing
from functools import partial

from storagegate.storage.blobs.durability import Durability
from storagegate.storage.blobs.layout import BlobLayout
from storagegate.storage.blobs.shards import Shards
from storagegate.storage.catalog import ledger
from storagegate.storage.catalog.connections import Durability as CatalogDurability
from storagegate.storage.catalog.connections import Purpose, connect, prepare
from storagegate.storage.catalog.faults import CatalogUnusable
from storagegate.storage.catalog.reserve import Reserve
from storagegate.storage.files import Files
from storagegate.storage.sweep import sweepStaging


def prepareStore(layout: BlobLayout, files: Files, syncs: Durability, durability: str) -> None:
    """
    Make the catalog if there is none, and sweep what a crash has left. Blocks.

    The caller has the data directory's lock.

    @raise StoreError: The store cannot be used; one line says why.
    """
    path = os.path.join(layout.data, "catalog.sqlite")
    kind = CatalogDurability(durability)
    prepare(path, kind)
    try:
        with closing(connect(path, kind, Purpose.WRITER)) as connection:
            Reserve(os.path.join(layout.data, "reserve")).ensure()
            shards = Shards(layout, files, syncs)
            known = partial(ledger.knownBlobs, connection)
            sweepStaging(layout, files, shards, syncs, known)
    except sqlite3.DatabaseError as error:
        raise CatalogUnusable(f"{path} cannot be opened: {error}") from error
