"""
The embedded catalog: SQLite in WAL mode, one writer thread that commits in groups.

L{sqlite} is the L{ICatalog<storagegate.storage.interfaces.ICatalog>}; L{tools} opens the same file
without a reactor.
"""

from storagegate.storage.catalog.sqlite import SQLiteCatalog
from storagegate.storage.catalog.tools import CatalogTools, openForTools

__all__ = ["CatalogTools", "SQLiteCatalog", "openForTools"]
