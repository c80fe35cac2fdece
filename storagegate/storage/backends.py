"""
The back ends of a store by name: one table for catalogs, one for blobs.

A row names the function that opens the back end, as C{"module:function"}; the module is imported
when a store uses it. A new back end is a module of its own and a row here.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from storagegate.storage.clock import StoreClock
from storagegate.storage.files import FailStopLatch, Files
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.threadpool import BoundedThreadPool

CATALOGS = {
    "postgresql": "storagegate.storage.catalog.postgresql.sharded:openCatalog",
    "sqlite": "storagegate.storage.catalog.sqlite:openCatalog",
}
"""
Catalogs: C{openCatalog(context) -> OpenCatalog}. Blocks until the catalog is connected and has read
all that L{ICatalog} returns from memory.
"""

BLOBS = {
    "files": "storagegate.storage.blobs.filestore:openBlobs",
    "rados": "storagegate.storage.blobs.rados:openBlobs",
    "s3": "storagegate.storage.blobs.s3:openBlobs",
    "shared": "storagegate.storage.blobs.shared:openBlobs",
}
"""
Blobs: C{openBlobs(context, openCatalog) -> IBlobStore}. Blocks until files that a crash has left
are recovered, or until the store on the network is connected and claimed.
"""

DEFAULT_CATALOG = "sqlite"
DEFAULT_BLOBS = "files"

KnownBlobs = Callable[[Sequence[str]], Collection[str]]
"""Finds which of some blobs the catalog has, blocking: for recovery, before anything is served."""


@frozen
class BackEndContext:
    """
    The argument of a function that opens a back end.

    @ivar directory: The data directory of this machine; it exists and is locked.
    @ivar reactor: Provides C{IReactorFromThreads} and C{IReactorTime}.
    @ivar pool: The threads of the store.
    @ivar files: The operating system's calls.
    @ivar durability: C{"full"}, or C{"os"} for no fsyncs.
    @ivar random: C{os.urandom} or a replacement.
    @ivar onGarbage: Called with the blobs that have lost their last reference, after the commit.
    @ivar latch: Is set when this machine's disk fails.
    @ivar catalogState: The state that the embedded catalog shares with the other processes that
        serve the directory; L{None} if this process is alone.
    @ivar owner: The bytes that the ids of new blobs end with, if there are several processes.
    @ivar clock: Notices that the machine's clock was set; L{None}: all dates are trusted.
    @ivar options: What back ends on a network are configured with: C{blobs} is C{rados:POOL},
        C{s3:URL} or C{files:DIRECTORY}. The embedded ones ignore it.
    """

    directory: str
    reactor: Any
    pool: BoundedThreadPool
    files: Files
    durability: str
    random: Callable[[int], bytes]
    onGarbage: Callable[[Sequence[str]], object]
    latch: FailStopLatch
    catalogState: Any
    owner: bytes
    clock: StoreClock | None = None
    options: Mapping[str, Any] = field(factory=dict)


@frozen
class OpenCatalog:
    """
    A catalog that was opened, and what recovery needs of it, which blocks.

    @ivar knownBlobs: Returns those of the ids that the catalog has.
    @ivar settle: Called before the others are removed: no commit that names one of them may become
        visible after it.
    """

    catalog: ICatalog
    knownBlobs: KnownBlobs
    settle: Callable[[], object] = lambda: None
