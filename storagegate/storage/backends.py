"""
The back ends of a store by name: where its catalog can be, and where its blobs.

A row says what opens the back end, as C{"module:function"}; the module is imported when a store
uses it. A new back end is a module of its own and a row here.
"""

from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from typing import Any

from attrs import frozen

from storagegate.storage.blobs.fsync import WriteFence
from storagegate.storage.files import Files
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.threadpool import IWorkPool

CATALOGS = {"sqlite": "storagegate.storage.catalog.sqlite:openCatalog"}
"""
Catalogs: C{openCatalog(context) -> OpenCatalog}. Blocks until the catalog is connected and has read
what L{ICatalog} answers from memory.
"""

BLOBS = {"files": "storagegate.storage.blobs.filestore:openBlobs"}
"""
Blobs: C{openBlobs(context, openCatalog) -> IBlobs}. Blocks until what a crash has left is
recovered.
"""

DEFAULT_CATALOG = "sqlite"
DEFAULT_BLOBS = "files"

KnownBlobs = Callable[[Sequence[str]], Collection[str]]
"""Finds which of some blobs the catalog has, blocking: for recovery, before anything is served."""


@frozen
class BackEndContext:
    """
    What a back end gets to open itself with.

    @ivar directory: The data directory of this machine; it is there, and locked.
    @ivar reactor: Provides C{IReactorFromThreads} and C{IReactorTime}.
    @ivar pool: The threads of the store.
    @ivar files: The operating system's calls.
    @ivar durability: C{"full"}, or C{"os"} for no fsyncs.
    @ivar random: C{os.urandom} or what replaces it.
    @ivar onGarbage: Called with the blobs that have lost their last reference, after the commit.
    @ivar latch: Falls when this machine's disk fails.
    @ivar commons: What the embedded catalog shares with the other processes that serve the
        directory; L{None} where this process is the only one.
    @ivar owner: What the ids of new blobs end with, where there are several.
    """

    directory: str
    reactor: Any
    pool: IWorkPool
    files: Files
    durability: str
    random: Callable[[int], bytes]
    onGarbage: Callable[[Sequence[str]], object]
    latch: WriteFence
    commons: Any
    owner: bytes


@frozen
class OpenCatalog:
    """A catalog that was opened, and the blocking look-up for recovery."""

    catalog: ICatalog
    knownBlobs: KnownBlobs


def loadBackEnd(rows: dict[str, str], name: str) -> Callable[..., Any]:
    """
    Import what opens a back end.

    @param rows: L{CATALOGS} or L{BLOBS}.
    @raise KeyError: There is no row of this name.
    """
    module, _, function = rows[name].partition(":")
    opener: Callable[..., Any] = getattr(import_module(module), function)
    return opener
