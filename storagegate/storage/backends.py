"""
The back ends of a store by name: one table for catalogs, one for blobs.

Each entry names the function that opens the back end, as C{"module:function"}. The module is
imported when a store uses it. To add a back end, write a module and add an entry here.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from attrs import field, frozen
from msgspec import Struct

from storagegate.storage.clock import StoreClock
from storagegate.storage.files import FailStopLatch, Files
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.threadpool import BoundedThreadPool

CATALOGS = {
    "postgresql": "storagegate.storage.cluster.sharded:openCatalog",
    "sqlite": "storagegate.storage.embedded.catalog:openCatalog",
}
"""
Catalogs: C{openCatalog(context) -> OpenCatalog}. Blocks until the catalog is connected and has
loaded everything that L{ICatalog} returns from memory.
"""

BLOBS = {
    "files": "storagegate.storage.embedded.filestore:openBlobs",
    "rados": "storagegate.storage.cluster.blobs.rados:openBlobs",
    "s3": "storagegate.storage.cluster.blobs.s3:openBlobs",
    "shared": "storagegate.storage.cluster.blobs.shared:openBlobs",
}
"""
Blobs: C{openBlobs(context, openCatalog) -> IBlobStore}. Blocks until files left by a crash are
recovered, or until a store on the network is connected and claimed.
"""

DEFAULT_CATALOG = "sqlite"
DEFAULT_BLOBS = "files"

KnownBlobs = Callable[[Sequence[str]], Collection[str]]
"""
Returns the subset of blobs that the catalog has. Blocks; for recovery, before the store serves
requests.
"""


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
    @ivar onGarbage: Called after a commit with the blobs that have lost their last reference.
    @ivar latch: Set when this machine's disk fails.
    @ivar catalogState: The state that the embedded catalog shares with the other processes that
        serve the directory; L{None} if this process is alone.
    @ivar owner: The suffix of new blob ids, if there are several processes.
    @ivar clock: Detects steps of the machine's clock; L{None} to trust all dates.
    @ivar options: The configuration of back ends on a network: C{blobs} is C{rados:POOL}, C{s3:URL}
        or C{files:DIRECTORY}. Embedded back ends ignore it.
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


class OpenCatalog(Struct, frozen=True):
    """
    An open catalog and its blocking functions for recovery.

    @ivar knownBlobs: Returns the subset of ids that the catalog has.
    @ivar settle: Called before unknown blobs are removed. After it returns, no commit that names
        one of them can become visible.
    """

    catalog: ICatalog
    knownBlobs: KnownBlobs
    settle: Callable[[], object] = lambda: None
