"""
Blobs in a pool of RADOS, the object store of Ceph.

Every operation is asynchronous. It completes in a librados thread, and one wake-up of the reactor
serves all completions since the last. librados reconnects by itself, and its own timeout ends an
operation while the cluster or the object's placement group is unavailable. A full cluster refuses a
write instead of queueing it.
"""

import ctypes
import errno
import os
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import count
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from attrs import define, frozen
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.net.transport import Buffer
from storagegate.storage.backends import BackEndContext, OpenCatalog
from storagegate.storage.blobwriter import BUFFER, BUFFERS
from storagegate.storage.cluster.blobs import librados
from storagegate.storage.cluster.blobs.completions import CompletionQueue
from storagegate.storage.cluster.blobs.pieces import (
    OPERATION_SECONDS,
    IPieceStore,
    MissingPiece,
    PieceRange,
)
from storagegate.storage.cluster.blobs.remote import RemoteBlobs, openRemote
from storagegate.storage.errors import StoreBusy, StoreError, StoreFull
from storagegate.storage.layout import DISK_FULL
from storagegate.storage.threadpool import IWorkPool

T = TypeVar("T")

PIECE = 4 << 20
"""Bytes of an object: the object size of RBD and CephFS, for which clusters are laid out."""

_PAGE = 1000
"""Names per page of a listing."""

_CONNECT_SECONDS = 10
"""The timeout of the monitors at startup."""

_SETTINGS = {
    "rados_osd_op_timeout": f"{OPERATION_SECONDS:g}",
    "rados_mon_op_timeout": f"{OPERATION_SECONDS:g}",
    "client_mount_timeout": f"{_CONNECT_SECONDS}",
    # Beyond these limits librados would block the reactor. Uploads and reads have lower limits of
    # their own.
    "objecter_inflight_ops": f"{1 << 16}",
    "objecter_inflight_op_bytes": f"{1 << 30}",
}

_UNREADABLE = frozenset({errno.EIO, errno.EILSEQ, errno.EEXIST})
"""The errors of a single object; all other errors are transient errors of the cluster."""


@frozen
class PoolAddress:
    """
    The address of a RADOS pool.

    @ivar pool: The name of the pool, which must exist.
    @ivar user: The name of the client without C{client.}.
    @ivar configuration: The path of C{ceph.conf}; empty for C{CEPH_CONF} or Ceph's default.
    @ivar namespace: The namespace in the pool; empty for the default.
    """

    pool: str
    user: str = "admin"
    configuration: str = ""
    namespace: str = ""

    @classmethod
    def parse(cls, text: str) -> "PoolAddress":
        """
        Parse C{rados:POOL?user=NAME&conf=PATH&namespace=NAME}.

        @raise ValueError: The text has another form; the message explains the error.
        """
        pool, _, query = text.removeprefix("rados:").partition("?")
        options = dict(parse_qsl(query, strict_parsing=bool(query)))
        unknown = sorted(options.keys() - {"user", "conf", "namespace"})
        if not pool or "/" in pool or unknown:
            raise ValueError(
                f"{text!r} is not rados:POOL?user=NAME&conf=PATH&namespace=NAME"
                + (f": {', '.join(unknown)}" if unknown else "")
            )
        return cls(
            pool,
            options.get("user", "admin"),
            options.get("conf", ""),
            options.get("namespace", ""),
        )


class _FoundRange(ctypes.Structure):
    """The results of a read operation besides the bytes."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        ("mtime", ctypes.c_int64),
        ("length", ctypes.c_size_t),
        ("statCode", ctypes.c_int),
        ("readCode", ctypes.c_int),
    )

    size: int
    length: int


_AT: dict[str, int] = {name: getattr(_FoundRange, name).offset for name, _ in _FoundRange._fields_}
"""The offsets of the fields."""


@define(eq=False)
class _PoolConnection:
    """A client of the cluster and its I/O context for the pool."""

    cluster: ctypes.c_void_p
    io: ctypes.c_void_p

    @classmethod
    def open(cls, address: PoolAddress) -> "_PoolConnection":
        """
        Connect. Blocks.

        @raise StoreError: The connection failed; one line gives the reason.
        """
        try:
            lib = librados.library()
        except OSError as error:
            raise StoreError(f"librados is not installed: {error}") from error
        cluster, io = ctypes.c_void_p(), ctypes.c_void_p()
        _check(lib.rados_create(ctypes.byref(cluster), address.user.encode()), "librados")
        try:
            path = address.configuration.encode() or None
            _check(lib.rados_conf_read_file(cluster, path), address.configuration or "ceph.conf")
            _check(lib.rados_conf_parse_env(cluster, None), "CEPH_ARGS")
            for name, value in _SETTINGS.items():
                _check(lib.rados_conf_set(cluster, name.encode(), value.encode()), name)
            _check(lib.rados_connect(cluster), "the Ceph cluster is unreachable")
            code = lib.rados_ioctx_create(cluster, address.pool.encode(), ctypes.byref(io))
            _check(code, f"pool {address.pool}")
        except StoreError:
            lib.rados_shutdown(cluster)
            raise
        lib.rados_ioctx_set_namespace(io, address.namespace.encode())
        lib.rados_set_osdmap_full_try(io)
        return cls(cluster, io)

    def close(self) -> None:
        """Disconnect. Blocks until no operation is in progress."""
        lib = librados.library()
        lib.rados_ioctx_destroy(self.io)
        lib.rados_shutdown(self.cluster)


def _check(code: int, what: str) -> None:
    if code < 0:
        raise StoreError(f"{what}: {os.strerror(-code)}")


@define(eq=False)
class _PoolOperation:
    """
    An operation in progress.

    @ivar finish: Converts the return code to the result. Runs in a librados thread.
    @ivar keep: Objects into which librados writes.
    """

    deferred: Deferred[Any]
    completion: ctypes.c_void_p
    finish: Callable[[int], object]
    keep: tuple[object, ...]


@implementer(IPieceStore)
class RadosPieces:
    """Pieces as objects of a pool. Methods: reactor thread."""

    _log = Logger()

    pieceSize = PIECE
    growsPieces = True
    bufferSize = BUFFER
    buffersSize = BUFFERS
    unconfirmedWrites = rereads = 0

    def __init__(self, address: PoolAddress, reactor: Any, pool: IWorkPool) -> None:
        """
        Connect. Blocks.

        @param reactor: Provides C{IReactorFromThreads} and C{IReactorTime}.
        @param pool: Runs blocking calls.
        @raise StoreError: The connection failed; one line gives the reason.
        """
        self.name = f"pool {address.pool}"
        if address.namespace:
            self.name += f", namespace {address.namespace}"
        self.onError: Callable[[StoreError], object] = lambda error: None
        self._address = address
        self._pool = pool
        self._clock: IReactorTime = reactor
        self._connection: _PoolConnection | None = _PoolConnection.open(address)
        self._waiting: list[Deferred[None]] = []
        self._lib = librados.library()
        self._completions = CompletionQueue(reactor)
        self._flying: dict[int, _PoolOperation] = {}
        self._numbers = count(1)
        # librados holds the address of this function, which must outlive it.
        self._callback = librados.Callback(self._complete)
        self._isConnecting = self._isClosed = False

    def put(self, name: str, offset: int, body: Sequence[Buffer], isLast: bool) -> Deferred[None]:
        """See L{IPieceStore.put}: every write is durable on all replicas when it completes."""
        # librados copies the bytes from a single buffer.
        whole = body[0] if len(body) == 1 else b"".join(body)
        data = whole if isinstance(whole, bytes) else bytes(whole)
        if not offset:
            return self._write(name, data)
        write = self._lib.rados_aio_write
        return self._begin(lambda io, done: write(io, name.encode(), done, data, len(data), offset))

    def get(self, name: str, offset: int, length: int) -> Deferred[PieceRange]:
        """See L{IPieceStore.get}: one operation reads the bytes and the size."""
        # Single-byte objects are shared; see newBuffer.
        buffer = librados.newBuffer(max(length, 2))
        found = _FoundRange()

        def finish(code: int) -> object:
            read = found.length
            return PieceRange(buffer if read == len(buffer) else buffer[:read], found.size)

        return self._read(name, found, (offset, length, buffer), finish)

    def size(self, name: str) -> Deferred[int]:
        """See L{IPieceStore.size}."""
        found = _FoundRange()
        return self._read(name, found, None, lambda code: found.size)

    def remove(self, name: str) -> Deferred[bool | None]:
        """See L{IPieceStore.remove}."""

        def missing(failure: Failure) -> bool:
            failure.trap(MissingPiece)
            return False

        lib = self._lib
        removed = self._begin(lambda io, done: lib.rados_aio_remove(io, name.encode(), done))
        return removed.addCallbacks(lambda _: True, missing)

    async def names(self) -> AsyncIterator[Sequence[str]]:
        """See L{IPieceStore.names}. Blocks for each page: for tools."""
        lib, entry, listing = self._lib, ctypes.c_char_p(), ctypes.c_void_p()
        assert self._connection is not None
        _check(lib.rados_nobjects_list_open(self._connection.io, ctypes.byref(listing)), self.name)
        try:
            page: list[str] = []
            while True:
                code = lib.rados_nobjects_list_next(listing, ctypes.byref(entry), None, None)
                if code == -errno.ENOENT:
                    break
                _check(code, self.name)
                page.append((entry.value or b"").decode("utf-8", "replace"))
                if len(page) == _PAGE:
                    yield page
                    page = []
            yield page
        finally:
            lib.rados_nobjects_list_close(listing)

    def create(self, name: str, body: bytes) -> Deferred[None]:
        """See L{IPieceStore.create}."""

        def exists(failure: Failure) -> None:
            failure.trap(FileExistsError)

        return self._write(name, body).addErrback(exists)

    def wait(self, result: Deferred[T]) -> T:
        """See L{IPieceStore.wait}."""
        return self._completions.wait(result, 2 * OPERATION_SECONDS)

    def detach(self) -> None:
        """See L{IPieceStore.detach}."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> Deferred[None]:
        """See L{IPieceStore.close}."""
        self._isClosed = True
        connection, self._connection = self._connection, None
        return succeed(None) if connection is None else self._pool.runAnyway(connection.close)

    def _write(self, name: str, data: bytes) -> Deferred[None]:
        """Write a new object."""
        lib = self._lib

        def start(io: ctypes.c_void_p, done: ctypes.c_void_p) -> int:
            op = lib.rados_create_write_op()
            lib.rados_write_op_create(op, librados.CREATE_EXCLUSIVE, None)
            lib.rados_write_op_write_full(op, data, len(data))
            code: int = lib.rados_aio_write_op_operate(op, io, done, name.encode(), None, 0)
            lib.rados_release_write_op(op)
            return code

        return self._begin(start)

    def _read(
        self,
        name: str,
        found: _FoundRange,
        buffer: tuple[int, int, bytes] | None,
        finish: Callable[[int], object],
    ) -> Deferred[Any]:
        """
        Read the size of an object and a range of it, given as offset, length and target buffer.
        """
        lib = self._lib
        size, mtime, length, statCode, readCode = (
            ctypes.addressof(found) + offset for offset in _AT.values()
        )

        def start(io: ctypes.c_void_p, done: ctypes.c_void_p) -> int:
            op = lib.rados_create_read_op()
            lib.rados_read_op_stat(op, size, mtime, statCode)
            if buffer is not None:
                lib.rados_read_op_read(op, *buffer, length, readCode)
            code: int = lib.rados_aio_read_op_operate(op, io, done, name.encode(), 0)
            lib.rados_release_read_op(op)
            return code

        return self._begin(start, finish, (found, buffer))

    def _begin(
        self,
        start: Callable[[ctypes.c_void_p, ctypes.c_void_p], int],
        finish: Callable[[int], object] = lambda code: None,
        keep: tuple[object, ...] = (),
    ) -> Deferred[Any]:
        """Begin an operation: C{start} is called with the I/O context and the completion."""
        if self._isClosed:
            return fail(StoreBusy("the store is closing"))
        if self._connection is None:
            return self._connect().addCallback(lambda _: self._begin(start, finish, keep))
        number, completion = next(self._numbers), ctypes.c_void_p()
        lib = self._lib
        code = lib.rados_aio_create_completion2(number, self._callback, ctypes.byref(completion))
        assert code == 0
        deferred: Deferred[Any] = Deferred()
        self._flying[number] = _PoolOperation(deferred, completion, finish, keep)
        code = start(self._connection.io, completion)
        if code < 0:
            del self._flying[number]
            lib.rados_aio_release(completion)
            self._completions.post(deferred, OSError(-code, os.strerror(-code)))
        return deferred.addErrback(self._failed)

    def _complete(self, completion: int, number: int) -> None:
        """Complete an operation. Runs in a librados thread."""
        operation = self._flying.pop(number)
        code = self._lib.rados_aio_get_return_value(completion)
        self._lib.rados_aio_release(completion)
        result: object
        if code < 0:
            result = OSError(-code, os.strerror(-code))
        else:
            result = operation.finish(code)
        self._completions.post(operation.deferred, result)

    def _failed(self, failure: Failure) -> Any:
        error = failure.value
        if not isinstance(error, OSError) or error.errno in _UNREADABLE:
            return failure
        if error.errno == errno.ENOENT:
            raise MissingPiece(self.name) from error
        problem: StoreError
        if error.errno in DISK_FULL:
            problem = StoreFull(f"{self.name} is full")
        else:
            problem = StoreBusy(f"{self.name}: {error.strerror}")
        self.onError(problem)
        if error.errno == errno.ESHUTDOWN:
            # The cluster has blocklisted this client permanently.
            self._startConnecting()
        raise problem from error

    def _connect(self) -> Deferred[None]:
        """Wait for the next connection, for at most the timeout of an operation."""

        def tookLong(result: object, seconds: float) -> None:
            problem = StoreBusy(f"{self.name}: no connection within {seconds:g} s")
            self.onError(problem)
            raise problem

        waiter: Deferred[None] = Deferred()
        self._waiting.append(waiter)
        self._startConnecting()
        return waiter.addTimeout(OPERATION_SECONDS, self._clock, tookLong)

    def _startConnecting(self) -> None:
        if not (self._isConnecting or self._isClosed):
            self._isConnecting = True
            connecting = self._pool.runAnyway(_PoolConnection.open, self._address)
            connecting.addCallbacks(self._connected, self._notConnected)

    def _connected(self, connection: _PoolConnection) -> None:
        self._isConnecting = False
        old, self._connection = self._connection, connection
        if self._isClosed:
            old, self._connection = connection, None
        if old is not None:
            self._pool.runAnyway(old.close).addErrback(self._logFailure)
        for waiter in self._takeWaiting():
            waiter.callback(None)

    def _notConnected(self, failure: Failure) -> None:
        self._isConnecting = False
        self._logFailure(failure)
        problem = StoreBusy(failure.getErrorMessage())
        self.onError(problem)
        for waiter in self._takeWaiting():
            waiter.errback(problem)

    def _takeWaiting(self) -> list[Deferred[None]]:
        waiting, self._waiting = self._waiting, []
        return [waiter for waiter in waiting if not waiter.called]

    def _logFailure(self, failure: Failure) -> None:
        self._log.error("{name}: {error}", name=self.name, error=failure.getErrorMessage())


def openPieces(blobs: str, reactor: Any, pool: IWorkPool) -> RadosPieces:
    """
    Connect to a pool, given as for L{PoolAddress.parse}. Blocks.

    @param reactor: See L{RadosPieces}; so is C{pool}.
    @raise StoreError: The connection failed; one line gives the reason.
    """
    try:
        address = PoolAddress.parse(blobs)
    except ValueError as error:
        raise StoreError(str(error)) from error
    return RadosPieces(address, reactor, pool)


def openBlobs(context: BackEndContext, opened: OpenCatalog) -> RemoteBlobs:
    """
    Open the blobs in the pool that the store's options name. Blocks.

    @param context: C{options["blobs"]} is C{rados:POOL}.
    @param opened: The catalog of the blobs.
    @raise ForeignBlobs: The blobs do not belong to the catalog.
    @raise StoreError: The pool cannot be used; one line gives the reason.
    """
    pieces = openPieces(context.options["blobs"], context.reactor, context.pool)
    return openRemote(context, opened, pieces)
