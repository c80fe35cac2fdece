"""
Blobs in a bucket of any S3 server, through the S3 client of awscrt.

The client's event loop signs, sends and retries. Responses arrive in its thread, and one wake-up of
the reactor serves all responses since the last. A piece is one object, sent in one request. Its
bytes stay in memory until the server has acknowledged them, so that an attempt can be repeated. A
piece is no larger than an upload buffer, and buffers shrink when there are many uploads.

Requests use path-style addressing. A put sends its CRC-32C, which servers that support the header
verify, and its chunk checksums as metadata, with which every read is compared. A response counts
only if it comes from S3: see L{storagegate.storage.cluster.blobs.s3answers}.
"""

import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from html import unescape
from io import SEEK_SET, RawIOBase
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from attrs import define, field, frozen
from awscrt import auth, common, http, io, s3
from twisted.internet.defer import CancelledError, Deferred, TimeoutError, fail, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.net.transport import Buffer
from storagegate.storage.backends import BackEndContext, OpenCatalog
from storagegate.storage.chunksums import CHUNK, ChunkSums, crcHeader
from storagegate.storage.cluster.blobs.completions import CompletionQueue
from storagegate.storage.cluster.blobs.pieces import (
    OPERATION_SECONDS,
    DamagedPiece,
    IPieceStore,
    MissingPiece,
    PieceRange,
)
from storagegate.storage.cluster.blobs.remote import RemoteBlobs, openRemote
from storagegate.storage.cluster.blobs.s3answers import (
    CHECKSUM_HEADER,
    SUMS_HEADER,
    ObjectDigest,
    S3Answer,
    hexMD5,
)
from storagegate.storage.errors import BlobsRefused, StoreBusy, StoreError, StoreFull
from storagegate.storage.threadpool import IWorkPool

T = TypeVar("T")

_BUFFER = 4 << 20
"""
Bytes of a buffer, and thus of a piece: a request costs a server as much as half a MiB of data.
"""

_BUFFERS = 64 << 20
"""Bytes of all buffers: sixteen uploads have buffers of full size."""

_GIGABITS = 4.0
"""The throughput from which awscrt derives its number of connections: some tens."""

_CLOSE_SECONDS = 5.0

_FULL = frozenset(
    {"InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"}
)
"""The error codes of servers without space; some send them with status 403."""

_IN_PLACE = 64 * 1024
"""The most bytes whose MD5 is computed in the reactor thread, in 0.1 ms."""

_KEY = re.compile(rb"<Key>([^<]*)</Key>")


@frozen
class BucketAddress:
    """
    The address of a bucket.

    @ivar host: The host as in the URL, including a port.
    @ivar isSecure: Whether TLS is used.
    @ivar bucket: The bucket, which must exist.
    @ivar prefix: The prefix of all keys with its trailing slash, or empty.
    @ivar region: The region for which requests are signed.
    @ivar authorities: The path of a PEM file of trusted authorities; empty for the system's.
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

        @raise ValueError: The text has another form; the message explains the error.
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
                "the URL of blobs contains credentials: put them into AWS_ACCESS_KEY_ID and"
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


class BufferStream(RawIOBase):
    """
    Presents buffers as a file. Joining them would copy each megabyte once more, into new pages.

    An awscrt thread reads it, from the start for each attempt.
    """

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self._buffers = buffers
        self._rest: deque[memoryview] = deque()
        self.seek(0)

    def readable(self) -> bool:
        """Return C{True}."""
        return True

    def readinto(self, target: Any) -> int:
        """Fill a buffer as far as bytes are available."""
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
        Rewind to the start.

        @param offset: 0.
        @param whence: C{SEEK_SET}.
        @raise ValueError: Any other position was requested.
        """
        if offset or whence != SEEK_SET:
            raise ValueError("can only seek to the beginning")
        self._rest = deque(memoryview(buffer) for buffer in self._buffers)
        return 0


@define(eq=False)
class _Exchange:
    """A request in progress. L{begun}, L{received} and L{done} run in an awscrt thread."""

    deferred: Deferred[S3Answer]
    _post: Callable[[Deferred[Any], object], None]
    request: Any = None
    timer: IDelayedCall | None = None
    _status: int = 0
    _headers: Sequence[tuple[str, str]] = ()
    _chunks: list[bytes] = field(factory=list)

    def begun(self, **named: Any) -> None:
        """Store the head of the response."""
        self._status, self._headers = named["status_code"], named["headers"]

    def received(self, **named: Any) -> None:
        """Store bytes of the body."""
        self._chunks.append(bytes(named["chunk"]))

    def done(self, **named: Any) -> None:
        """End the exchange."""
        self.request = None
        error, status, headers = named["error"], named["status_code"], named["error_headers"]
        result: object = error
        if error is None:
            chunks = self._chunks
            body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            result = S3Answer.of(status or self._status, self._headers, body)
        elif status is not None and headers is not None:
            result = S3Answer.of(status, headers, named["error_body"] or b"")
        self._post(self.deferred, result)


@implementer(IPieceStore)
class BucketPieces:
    """
    Pieces as objects of a bucket. Methods: reactor thread.

    @ivar unconfirmedWrites: The number of uploads whose response did not confirm the bytes.
    @ivar rereads: The number of responses with wrong bytes, which were requested again.
    """

    _log = Logger()

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
        @param pool: Runs blocking calls.
        @param credentials: A provider of C{awscrt.auth}; L{None} for the default AWS chain of
            environment variables, profiles and services.
        """
        place = f"{address.bucket}/{address.prefix}".rstrip("/")
        self.name = f"bucket {place} at {address.host}"
        self.onError: Callable[[StoreError], object] = lambda error: None
        self._address = address
        self._clock = reactor
        self._pool = pool
        self._completions = CompletionQueue(reactor)
        self._flying: set[_Exchange] = set()
        self._isClosed = False
        self._credentials = credentials
        self._client: Any = None
        self.unconfirmedWrites = self.rereads = 0
        self._isDoubted = False

    def put(self, name: str, offset: int, body: Sequence[Buffer], isLast: bool) -> Deferred[None]:
        """See L{IPieceStore.put}."""
        return self._put(name, body, ()).addCallback(lambda _: None)

    def get(self, name: str, offset: int, length: int) -> Deferred[PieceRange]:
        """See L{IPieceStore.get}: whole chunks are read and verified with their checksums."""
        return self._get(name, offset, length, isLast=False)

    def size(self, name: str) -> Deferred[int]:
        """See L{IPieceStore.size}."""

        def found(answer: S3Answer) -> int | Deferred[int]:
            if answer.status != 404:
                return self._sizeOf(answer)
            if answer.hasRequestId:
                raise MissingPiece(self.name)
            # A HEAD response has no body, so only GET tells what is missing.
            ranged = ("Range", "bytes=0-0")
            return self._send("GetObject", "GET", name, (ranged,), None, (416,)).addCallback(
                lambda answer: 0 if answer.status == 416 else self._sizeOf(answer)
            )

        return self._send("HeadObject", "HEAD", name, (), None, (404,)).addCallback(found)

    def remove(self, name: str) -> Deferred[bool | None]:
        """See L{IPieceStore.remove}: servers do not report whether the object existed."""
        return self._send("DeleteObject", "DELETE", name, (), None, (404,)).addCallback(
            self._removed
        )

    async def names(self) -> AsyncIterator[Sequence[str]]:
        """See L{IPieceStore.names}."""
        prefix = self._address.prefix
        after = prefix
        while True:
            fields = {"list-type": 2, "prefix": prefix, "start-after": after}
            query = urlencode(fields, quote_via=quote)
            answer = await self._send("ListObjectsV2", "GET", None, query=query)
            if b"<ListBucketResult" not in answer.body:
                raise self._failed(StoreBusy(f"{self.name} did not respond with a list"))
            keys = [unescape(key.decode()) for key in _KEY.findall(answer.body)]
            yield [key.removeprefix(prefix) for key in keys]
            if b"<IsTruncated>true" not in answer.body:
                return
            if not keys or keys[-1] <= after:
                raise self._failed(StoreBusy(f"{self.name} did not continue its list"))
            after = keys[-1]

    def create(self, name: str, body: bytes) -> Deferred[None]:
        """See L{IPieceStore.create}: uses a conditional put if the server supports it."""

        def answered(answer: S3Answer) -> Any:
            if answer.status == 501:
                return self._put(name, [body], ())
            return None

        return self._put(name, [body], (("If-None-Match", "*"),), (409, 412, 501)).addCallback(
            answered
        )

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
            # Larger than any object, so that no read is split.
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
    ) -> Deferred[S3Answer]:
        """Write an object. The response has an expected status or confirms the bytes."""
        sums, crc = ChunkSums.of(name, body)
        upload = ObjectDigest(sum(map(len, body)), crcHeader(crc))
        fields = (
            ("Content-Length", f"{upload.size}"),
            (CHECKSUM_HEADER, upload.checksum),
            (SUMS_HEADER, sums.text()),
            *headers,
        )
        end = self._clock.seconds() + OPERATION_SECONDS

        def answered(answer: S3Answer) -> S3Answer | Deferred[S3Answer]:
            if answer.status in expected:
                return answer
            problem = upload.judge(answer)
            if problem is None:
                return Deferred.fromCoroutine(self._confirm(name, upload, body, answer, end))
            return self._confirmed(answer, problem)

        return self._send("PutObject", "PUT", name, fields, body, expected).addCallback(answered)

    async def _confirm(
        self, name: str, upload: ObjectDigest, body: Sequence[Buffer], answer: S3Answer, end: float
    ) -> S3Answer:
        """
        Verify that the server has the bytes, if its response does not repeat the checksum.

        @param end: The deadline of the operation.
        """
        if upload.size <= _IN_PLACE:
            digest = hexMD5(body)
        else:
            digest = await self._pool.runAnyway(hexMD5, body)
        problem = upload.judge(answer, lambda: digest)
        if problem is None:
            seconds = max(end - self._clock.seconds(), 0.1)
            mode = ("x-amz-checksum-mode", "ENABLED")
            found = await self._send("HeadObject", "HEAD", name, (mode,), None, (404,), seconds)
            problem = upload.judge(found)
            if problem is None:
                problem = "confirms neither with a checksum nor with an MD5"
            elif not problem and self._sizeOf(found) != upload.size:
                problem = "has a different size than the bytes sent"
        return self._confirmed(answer, problem)

    def _confirmed(self, answer: S3Answer, problem: str) -> S3Answer:
        """
        Return the response if it confirms the upload; otherwise count the upload as unconfirmed.

        @param problem: See L{ObjectDigest.judge}.
        @raise StoreBusy: The response does not confirm the bytes.
        """
        if not problem:
            self._isDoubted = False
            return answer
        self.unconfirmedWrites += 1
        text = f"{self.name} did not confirm an upload: the response {problem}"
        if not self._isDoubted:
            self._isDoubted = True
            self._log.error("{text}; such writes fail", text=text)
        raise self._failed(StoreBusy(text))

    def _get(self, name: str, offset: int, length: int, isLast: bool) -> Deferred[PieceRange]:
        """
        Read a range.

        @param isLast: Whether this is the second attempt, after a response with wrong bytes.
        """
        begin = offset - offset % CHUNK
        end = offset + length + -(offset + length) % CHUNK
        ranged = ("Range", f"bytes={begin}-{end - 1}")

        def read(answer: S3Answer) -> PieceRange | Deferred[PieceRange]:
            isRange = "content-range" in answer.headers
            if answer.status == 416:
                if isRange:
                    return PieceRange(b"", self._sizeOf(answer))
                return self.size(name).addCallback(lambda size: PieceRange(b"", size))
            size = self._sizeOf(answer)
            # Some servers answer a range request with status 200, and some ignore ranges.
            body = answer.body if isRange else answer.body[begin:end]
            if len(body) != max(0, min(end, size) - begin):
                raise self._failed(StoreBusy(f"{self.name}: a response was truncated"))
            isVerified = _matches(answer, name, begin, body, size)
            if isVerified is False:
                if isLast:
                    raise DamagedPiece(name)
                self.rereads += 1
                return self._get(name, offset, length, isLast=True)
            if begin != offset or len(body) > length:
                body = body[offset - begin : offset - begin + length]
            return PieceRange(body, size, bool(isVerified))

        return self._send("GetObject", "GET", name, (ranged,), None, (416,)).addCallback(read)

    def _sizeOf(self, answer: S3Answer) -> int:
        try:
            return answer.size
        except ValueError:
            raise self._failed(StoreBusy(f"{self.name} responded without a length")) from None

    def _send(
        self,
        operation: str,
        method: str,
        name: str | None,
        headers: Sequence[tuple[str, str]] = (),
        body: Sequence[Buffer] | None = None,
        expected: Sequence[int] = (),
        seconds: float = OPERATION_SECONDS,
        query: str = "",
    ) -> Deferred[S3Answer]:
        """
        Send a request.

        @param operation: The S3 name of the operation.
        @param method: The HTTP method.
        @param name: The name of the object without the prefix; L{None} for the bucket.
        @param headers: Header fields besides C{Host}.
        @param body: The body of the request.
        @param expected: Error statuses that the caller handles.
        @param seconds: The timeout of the response.
        @param query: The query string of the URL.
        """
        if self._isClosed:
            return fail(StoreBusy("the store is closing"))
        path = f"/{self._address.bucket}"
        if name is not None:
            path += f"/{self._address.prefix}{name}"
        path = quote(path) + (f"?{query}" if query else "")
        fields = http.HttpHeaders([("Host", self._address.host), *headers])
        stream = None if body is None else BufferStream(body)

        def cancel(_: object) -> None:
            if (request := exchange.request) is not None:
                request.cancel()

        deferred: Deferred[S3Answer] = Deferred(cancel)
        exchange = _Exchange(deferred, self._completions.post)
        self._flying.add(exchange)
        exchange.timer = self._clock.callLater(seconds, self._timedOut, exchange, seconds)
        if self._client is None:
            self._client = self._newClient()
        types = s3.S3RequestType
        exchange.request = self._client.make_request(
            # With DEFAULT, a body of 1 MiB takes 0.4 ms more CPU time.
            type=types.GET_OBJECT if operation == "GetObject" else types.DEFAULT,
            operation_name=operation,
            request=http.HttpRequest(method, path, fields, stream),
            on_headers=exchange.begun,
            on_body=exchange.received,
            on_done=exchange.done,
        )
        deferred.addBoth(self._ended, exchange)
        arguments = (method, name is not None, expected)
        return deferred.addCallbacks(self._check, self._broken, callbackArgs=arguments)

    def _ended(self, result: Any, exchange: _Exchange) -> Any:
        self._flying.discard(exchange)
        if exchange.timer is not None and exchange.timer.active():
            exchange.timer.cancel()
        return result

    def _timedOut(self, exchange: _Exchange, seconds: float) -> None:
        request = exchange.request
        if not exchange.deferred.called:
            exchange.deferred.errback(TimeoutError(f"no response within {seconds:g} s"))
        if request is not None:
            request.cancel()

    def _check(
        self, answer: S3Answer, method: str, isObject: bool, expected: Sequence[int]
    ) -> S3Answer:
        """
        Return a response if it comes from S3.

        @param isObject: Whether an object was requested, whose response must have an ETag.
        @param expected: See L{_send}.
        """
        status = answer.status
        if status in expected:
            return answer
        if answer.isRead if isObject and method in ("GET", "HEAD") else 200 <= status < 300:
            return answer
        if answer.isMissing:
            raise MissingPiece(self.name)
        code = answer.code
        if status == 507 or code in _FULL:
            raise self._failed(StoreFull(f"{self.name} is full"))
        text = code or ("without an ETag" if status < 300 else "")
        kind = BlobsRefused if answer.isRefusal else StoreBusy
        raise self._failed(kind(f"{self.name} answered {status} {text}".rstrip()))

    def _broken(self, failure: Failure) -> Any:
        if failure.check(CancelledError):
            return failure
        raise self._failed(StoreBusy(f"{self.name}: {failure.value}")) from failure.value

    def _removed(self, answer: S3Answer) -> None:
        if not answer.isRemoved:
            text = f"{self.name} responded to a removal with {answer.status} {answer.code}".rstrip()
            raise self._failed(StoreBusy(text))

    def _failed(self, error: StoreError) -> StoreError:
        self.onError(error)
        return error


def _matches(answer: S3Answer, name: str, begin: int, body: bytes, size: int) -> bool | None:
    """
    Compare a range with its chunk checksums.

    @return: Whether they match; L{None} if the object has no checksums, because an earlier version
        or another program wrote it.
    """
    text = answer.headers.get(SUMS_HEADER)
    if text is None:
        return None
    try:
        sums = ChunkSums.parse(text)
    except ValueError:
        return False
    return sums.matches(name, begin, body, size)


def openPieces(blobs: str, reactor: Any, pool: IWorkPool) -> BucketPieces:
    """
    Create a client of a bucket, given as for L{BucketAddress.parse}.

    @param reactor: See L{BucketPieces}; so is C{pool}.
    @raise StoreError: The text has another form.
    """
    try:
        address = BucketAddress.parse(blobs)
    except ValueError as error:
        raise StoreError(str(error)) from error
    return BucketPieces(address, reactor, pool)


def openBlobs(context: BackEndContext, opened: OpenCatalog) -> RemoteBlobs:
    """
    Open the blobs in the bucket that the store's options name. Blocks.

    @param context: C{options["blobs"]} is C{s3:URL}.
    @param opened: The catalog of the blobs.
    @raise ForeignBlobs: The blobs do not belong to the catalog.
    @raise StoreError: The bucket cannot be used; one line gives the reason.
    """
    pieces = openPieces(context.options["blobs"], context.reactor, context.pool)
    return openRemote(context, opened, pieces)
