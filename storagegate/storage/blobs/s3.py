"""
Blobs in a bucket of any S3 server, by the S3 client of awscrt.

Its event loop signs, sends and retries; answers come in its thread, and one wake-up of the reactor
serves all that came since the last. A piece is one object, sent at once: its bytes are in memory
until the server has acknowledged them, so that a try can be repeated. A piece is no larger than a
buffer of an upload, and those become smaller when uploads become many.

Requests use the path style. A put has its CRC-32C, which servers verify that know the header.
"""

import base64
import re
from collections import deque
from collections.abc import Callable, Sequence
from io import SEEK_SET, RawIOBase
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit

from attrs import define, field, frozen
from awscrt import auth, common, http, io, s3
from twisted.internet.defer import CancelledError, Deferred, TimeoutError, fail, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.files import crc32c
from storagegate.core.options import parseDecimal
from storagegate.net.transport import Buffer
from storagegate.storage.backends import BackEndContext, OpenCatalog
from storagegate.storage.blobs.completions import CompletionQueue
from storagegate.storage.blobs.pieces import OPERATION_SECONDS, IPieceStore, MissingPiece
from storagegate.storage.blobs.remote import RemoteBlobs, openRemote
from storagegate.storage.errors import StoreBusy, StoreError, StoreFull
from storagegate.storage.threadpool import IWorkPool

T = TypeVar("T")

_BUFFER = 4 << 20
"""Bytes of a buffer, and so of a piece: a request costs a server as much as half a MiB of bytes."""

_BUFFERS = 64 << 20
"""Bytes of all buffers: sixteen uploads have buffers of full size."""

_GIGABITS = 4.0
"""From this awscrt derives how many connections it opens: some tens."""

_CLOSE_SECONDS = 5.0

_LARGEST = 1 << 62
"""No object is as large."""

_FULL = frozenset(
    {"InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"}
)
"""The error codes of servers that have no space; some have them with status 403."""

_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,80})</Code>")


@frozen
class BucketAddress:
    """
    Where the blobs are.

    @ivar host: The host as in the URL, with the port if the URL has one.
    @ivar isSecure: Whether TLS is used.
    @ivar bucket: The bucket, which exists.
    @ivar prefix: The beginning of all keys, with its slash; or empty.
    @ivar region: The region that requests are signed for.
    @ivar authorities: The path of a PEM file with the authorities to trust; empty: the system's.
    """

    host: str
    isSecure: bool
    bucket: str
    prefix: str = ""
    region: str = "us-east-1"
    authorities: str = ""

    @classmethod
    def parse(cls, text: str) -> "BucketAddress":
        """
        Parse C{s3:https://HOST/BUCKET/PREFIX?region=NAME&ca=PATH}.

        @raise ValueError: It is another text; the message says what is wrong with it.
        """
        url = urlsplit(text.removeprefix("s3:"))
        options = dict(parse_qsl(url.query, strict_parsing=bool(url.query)))
        bucket, _, prefix = url.path.removeprefix("/").partition("/")
        unknown = sorted(options.keys() - {"region", "ca"})
        isUrl = text.startswith(("s3:http://", "s3:https://"))
        if not (isUrl and url.hostname and bucket) or unknown:
            raise ValueError(
                f"{text!r} is not s3:https://HOST/BUCKET/PREFIX?region=NAME&ca=PATH"
                + (f": {', '.join(unknown)}" if unknown else "")
            )
        if url.username is not None:
            raise ValueError(
                "the URL of blobs holds credentials: they belong in AWS_ACCESS_KEY_ID and"
                " AWS_SECRET_ACCESS_KEY, or in a profile"
            )
        return cls(
            url.netloc,
            text.startswith("s3:https:"),
            bucket,
            prefix.rstrip("/") + "/" if prefix else "",
            options.get("region", "us-east-1"),
            options.get("ca", ""),
        )


@frozen
class _Answer:
    """An answer of the server; the names of headers are lower-case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def size(self) -> int:
        """The size of the object, which the headers of any answer about it have."""
        _, _, total = self.headers.get("content-range", "").rpartition("/")
        return parseDecimal(total or self.headers.get("content-length", ""), _LARGEST)

    @property
    def code(self) -> str:
        """The code of an error; empty if there is none."""
        found = _CODE.search(self.body)
        return found[1].decode() if found else ""


class BufferStream(RawIOBase):
    """
    Buffers as a file: to join them would copy each megabyte once more, into pages that are new.

    It is read in a thread of awscrt, from the beginning by each try.
    """

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self._buffers = buffers
        self._rest: deque[memoryview] = deque()
        self.seek(0)

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, target: Any) -> int:
        """Fill a buffer as far as there are bytes."""
        room, done = memoryview(target), 0
        while self._rest and done < len(room):
            buffer = self._rest.popleft()
            count = min(len(buffer), len(room) - done)
            room[done : done + count] = buffer[:count]
            done += count
            if count < len(buffer):
                self._rest.appendleft(buffer[count:])
        return done

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        """
        Go back to the beginning.

        @param offset: 0.
        @param whence: C{SEEK_SET}.
        @raise ValueError: It is another position.
        """
        if offset or whence != SEEK_SET:
            raise ValueError("only the beginning can be sought")
        self._rest = deque(memoryview(buffer) for buffer in self._buffers)
        return 0


@define(eq=False)
class _Exchange:
    """A request under way. L{begun}, L{received} and L{done} run in a thread of awscrt."""

    deferred: Deferred[_Answer]
    _post: Callable[[Deferred[Any], object], None]
    request: Any = None
    timer: IDelayedCall | None = None
    _status: int = 0
    _headers: Sequence[tuple[str, str]] = ()
    _chunks: list[bytes] = field(factory=list)

    def begun(self, **named: Any) -> None:
        """Keep the head of an answer."""
        self._status, self._headers = named["status_code"], named["headers"]

    def received(self, **named: Any) -> None:
        """Keep bytes of the body."""
        self._chunks.append(bytes(named["chunk"]))

    def done(self, **named: Any) -> None:
        """End the exchange."""
        self.request = None
        error, status, headers = named["error"], named["status_code"], named["error_headers"]
        result: object = error
        if error is None:
            chunks = self._chunks
            body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            result = _answer(status or self._status, self._headers, body)
        elif status is not None and headers is not None:
            result = _answer(status, headers, named["error_body"] or b"")
        self._post(self.deferred, result)


def _answer(status: int, headers: Sequence[tuple[str, str]], body: bytes) -> _Answer:
    return _Answer(status, {name.lower(): value for name, value in headers}, body)


@implementer(IPieceStore)
class BucketPieces:
    """Objects of a bucket. Methods: reactor thread."""

    pieceSize = _BUFFER
    growsPieces = False
    bufferSize = _BUFFER
    buffersSize = _BUFFERS

    def __init__(
        self,
        address: BucketAddress,
        reactor: Any,
        pool: IWorkPool,
        credentials: Any = None,
    ) -> None:
        """
        @param address: The bucket.
        @param reactor: Provides C{IReactorFromThreads} and C{IReactorTime}.
        @param pool: Runs what blocks.
        @param credentials: A provider of C{awscrt.auth}; L{None}: the variables, profiles and
            services where all programs of AWS look for them.
        """
        self.name = f"bucket {address.bucket} at {address.host}"
        self.onError: Callable[[StoreError], object] = lambda error: None
        self._address = address
        self._clock = reactor
        self._pool = pool
        self._completions = CompletionQueue(reactor)
        self._flying: set[_Exchange] = set()
        self._isClosed = False
        self._credentials = credentials
        self._client: Any = None

    def put(self, name: str, offset: int, body: Sequence[Buffer], isLast: bool) -> Deferred[None]:
        """See L{IPieceStore.put}."""
        return self._put(name, body, ()).addCallback(lambda _: None)

    def get(self, name: str, offset: int, length: int) -> Deferred[tuple[bytes, int]]:
        """See L{IPieceStore.get}."""
        ranged = ("Range", f"bytes={offset}-{offset + length - 1}")

        def read(answer: _Answer) -> tuple[bytes, int] | Deferred[tuple[bytes, int]]:
            isRange = "content-range" in answer.headers
            if answer.status == 416:
                if isRange:
                    return b"", answer.size
                return self.size(name).addCallback(lambda size: (b"", size))
            # Some servers answer a range with status 200, and some know none.
            body = answer.body if isRange else answer.body[offset : offset + length]
            if len(body) != max(0, min(length, answer.size - offset)):
                raise self._failed(StoreBusy(f"{self.name}: an answer was cut off"))
            return body, answer.size

        return self._send("GetObject", "GET", name, (ranged,), None, (416,)).addCallback(read)

    def size(self, name: str) -> Deferred[int]:
        """See L{IPieceStore.size}."""
        return self._send("HeadObject", "HEAD", name).addCallback(lambda answer: answer.size)

    def remove(self, name: str) -> Deferred[bool | None]:
        """See L{IPieceStore.remove}: servers do not say whether there was an object."""
        return self._send("DeleteObject", "DELETE", name, (), None, (404,)).addCallback(
            self._removed
        )

    def create(self, name: str, body: bytes) -> Deferred[None]:
        """See L{IPieceStore.create}: by a condition, where the server knows it."""

        def answered(answer: _Answer) -> Any:
            if answer.status == 501:
                return self._put(name, [body], ())
            return answer

        created = self._put(name, [body], (("If-None-Match", "*"),), (409, 412, 501))
        return created.addCallback(answered).addCallback(lambda _: None)

    def wait(self, result: Deferred[T]) -> T:
        """See L{IPieceStore.wait}."""
        return self._completions.wait(result, 2 * OPERATION_SECONDS)

    def detach(self) -> None:
        """See L{IPieceStore.detach}."""
        if self._client is not None:
            ended, self._client = self._client.shutdown_event, None
            ended.wait(_CLOSE_SECONDS)
            common.join_all_native_threads(timeout_sec=_CLOSE_SECONDS)

    def close(self) -> Deferred[None]:
        """See L{IPieceStore.close}."""
        self._isClosed = True
        for exchange in tuple(self._flying):
            exchange.deferred.cancel()
        if self._client is None:
            return succeed(None)
        ended, self._client = self._client.shutdown_event, None
        return self._pool.runAnyway(ended.wait, _CLOSE_SECONDS).addCallback(lambda _: None)

    def _newClient(self) -> Any:
        """Start the threads of a client."""
        address = self._address
        group = io.EventLoopGroup(1)
        bootstrap = io.ClientBootstrap(group, io.DefaultHostResolver(group))
        provider = self._credentials or auth.AwsCredentialsProvider.new_default_chain(bootstrap)
        options = None
        if address.isSecure:
            context = io.TlsContextOptions()
            if address.authorities:
                context.override_default_trust_store_from_path(None, address.authorities)
            options = io.ClientTlsContext(context).new_connection_options()
        mode = s3.S3RequestTlsMode
        return s3.S3Client(
            bootstrap=bootstrap,
            region=address.region,
            tls_mode=mode.ENABLED if address.isSecure else mode.DISABLED,
            tls_connection_options=options,
            # No object is larger, so that no read is split.
            part_size=2 * _BUFFER,
            throughput_target_gbps=_GIGABITS,
            signing_config=s3.create_default_s3_signing_config(
                region=address.region, credential_provider=provider
            ),
        )

    def _put(
        self,
        name: str,
        body: Sequence[Buffer],
        headers: Sequence[tuple[str, str]],
        expected: Sequence[int] = (),
    ) -> Deferred[_Answer]:
        crc = 0
        for buffer in body:
            crc = crc32c(buffer, crc)
        checksum = base64.b64encode(crc.to_bytes(4, "big")).decode()
        fields = (
            ("Content-Length", f"{sum(map(len, body))}"),
            ("x-amz-checksum-crc32c", checksum),
            *headers,
        )
        return self._send("PutObject", "PUT", name, fields, body, expected)

    def _send(
        self,
        operation: str,
        method: str,
        name: str,
        headers: Sequence[tuple[str, str]] = (),
        body: Sequence[Buffer] | None = None,
        expected: Sequence[int] = (),
    ) -> Deferred[_Answer]:
        """
        Send a request.

        @param operation: The name that S3 gives it.
        @param method: The method of HTTP.
        @param name: The name of the object, without the prefix.
        @param headers: Fields besides the host.
        @param body: The body of the request.
        @param expected: Error statuses that the caller handles.
        """
        if self._isClosed:
            return fail(StoreBusy("the store is closing"))
        path = quote(f"/{self._address.bucket}/{self._address.prefix}{name}")
        fields = http.HttpHeaders([("Host", self._address.host), *headers])
        stream = None if body is None else BufferStream(body)

        def cancel(_: object) -> None:
            if (request := exchange.request) is not None:
                request.cancel()

        deferred: Deferred[_Answer] = Deferred(cancel)
        exchange = _Exchange(deferred, self._completions.post)
        self._flying.add(exchange)
        exchange.timer = self._clock.callLater(OPERATION_SECONDS, self._timedOut, exchange)
        if self._client is None:
            self._client = self._newClient()
        types = s3.S3RequestType
        exchange.request = self._client.make_request(
            # The other way a body of 1 MiB takes 0.4 ms of CPU more.
            type=types.GET_OBJECT if method == "GET" else types.DEFAULT,
            operation_name=operation,
            request=http.HttpRequest(method, path, fields, stream),
            on_headers=exchange.begun,
            on_body=exchange.received,
            on_done=exchange.done,
        )
        deferred.addBoth(self._ended, exchange)
        return deferred.addCallbacks(self._check, self._broken, callbackArgs=(expected,))

    def _ended(self, result: Any, exchange: _Exchange) -> Any:
        self._flying.discard(exchange)
        if exchange.timer is not None and exchange.timer.active():
            exchange.timer.cancel()
        return result

    def _timedOut(self, exchange: _Exchange) -> None:
        request = exchange.request
        seconds = f"{OPERATION_SECONDS:g} s"
        if not exchange.deferred.called:
            exchange.deferred.errback(TimeoutError(f"no answer within {seconds}"))
        if request is not None:
            request.cancel()

    def _check(self, answer: _Answer, expected: Sequence[int]) -> _Answer:
        status = answer.status
        if status in (200, 204, 206) or status in expected:
            return answer
        code = answer.code
        if status == 404 and code != "NoSuchBucket":
            raise MissingPiece(self.name)
        if status == 507 or code in _FULL:
            raise self._failed(StoreFull(f"{self.name} is full"))
        raise self._failed(StoreBusy(f"{self.name} answered {status} {code}".rstrip()))

    def _broken(self, failure: Failure) -> Any:
        if failure.check(CancelledError):
            return failure
        raise self._failed(StoreBusy(f"{self.name}: {failure.value}")) from failure.value

    def _removed(self, answer: _Answer) -> None:
        if answer.code == "NoSuchBucket":
            raise self._failed(StoreBusy(f"{self.name} does not exist"))

    def _failed(self, error: StoreError) -> StoreError:
        self.onError(error)
        return error


def openPieces(blobs: str, reactor: Any, pool: IWorkPool) -> BucketPieces:
    """
    Make a client of the bucket that a text names, as in L{BucketAddress.parse}.

    @param reactor: See L{BucketPieces}; so is C{pool}.
    @raise StoreError: The text is another one.
    """
    try:
        address = BucketAddress.parse(blobs)
    except ValueError as error:
        raise StoreError(str(error)) from error
    return BucketPieces(address, reactor, pool)


def openBlobs(context: BackEndContext, opened: OpenCatalog) -> RemoteBlobs:
    """
    Open the blobs in the bucket that the options of the store name. Blocks.

    @param context: C{options["blobs"]} is C{s3:URL}.
    @param opened: The catalog of the blobs.
    @raise ForeignBlobs: They are not those of the catalog.
    @raise StoreError: The bucket cannot be used; one line gives the reason.
    """
    pieces = openPieces(context.options["blobs"], context.reactor, context.pool)
    return openRemote(context, opened, pieces)
