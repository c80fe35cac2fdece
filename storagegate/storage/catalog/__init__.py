"""
The embedded catalog: SQLite in WAL mode, one writer thread that commits in groups.

L{sqlite} has the L{ICatalog<storagegate.storage.interfaces.ICatalog>}; L{buckets} has
C{CatalogAdmin}, which opens the same file without a reactor.
"""

from storagegate.storage.catalog.buckets import CatalogAdmin, openForTools
from storagegate.storage.catalog.sqlite import SQLiteCatalog

__all__ = ["CatalogAdmin", "SQLiteCatalog", "openForTools"]
