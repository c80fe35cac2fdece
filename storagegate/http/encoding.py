"""
Content codings of responses: C{br}, C{zstd}, C{gzip} and C{deflate}.

An encoder's window bounds its memory. Windows are smaller than the codings allow: a server needs
one for each response in progress, and saving the last percent of a large text is not worth
megabytes for each. L{EncodedBody} passes a streamed body through an encoder; L{ResponseHooks} holds
the callbacks of middleware.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any
from zlib import DEFLATED, Z_SYNC_FLUSH, compressobj

import attrs
import msgspec
from twisted.internet.defer import Deferred, fail
from zope.interface import Attribute, Interface, classImplements

from storagegate.net.http.interfaces import ClientLost
from storagegate.net.http.message import READY

LEVELS = range(-1, 10)
"""The valid values of C{level}: zlib's range."""

# Express's default: it reaches the size of zlib's level 6 in half the time.
_BROTLI_QUALITY = 4

# 256 KiB; including tables, an encoder takes 2 MB, or 5 MB at the default of 22.
_BROTLI_WINDOW = 18

# 512 KiB; an encoder takes 1.6 MB, or 6 MB at level 9, and more than twice that by default.
_ZSTD_WINDOW = 19
_ZSTD_DEFAULT = 3

# 15 bits of window in zlib's frame; adding 16 selects gzip's frame.
_ZLIB_WINDOW = 15
_GZIP_FRAME = 16


def _jsonForm(value: Any) -> Any:
    """
    Convert a value that msgspec does not support, a mapping or a pydantic model, to one that it
    does.

    @raise TypeError: If the value has another type.
    """
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__qualname__} cannot be represented in JSON")


encodeJSON = msgspec.json.Encoder(enc_hook=_jsonForm).encode
"""Encode a value as JSON."""


class IBodyEncoder(Interface):
    """
    Applies a content coding to a body, piece by piece.

    The methods may be called in any thread, but only one at a time.
    """

    flushes: bool = Attribute("Whether every written chunk should be sent at once.")

    def feed(chunk: bytes) -> bytes:
        """Encode a piece; return the available output, possibly empty."""

    def flush() -> bytes:
        """Return the output that a decoder needs to decode everything fed so far."""

    def finish() -> bytes:
        """Return the rest of the encoded body. Nothing may be fed after it."""


@attrs.frozen(eq=False)
class BodyEncoder:
    """An L{IBodyEncoder} built from functions."""

    feed: Callable[[bytes], bytes]
    flush: Callable[[], bytes]
    finish: Callable[[], bytes]
    flushes: bool = False


classImplements(BodyEncoder, IBodyEncoder)


def _zlib(window: int, level: int, length: int | None, flushes: bool) -> BodyEncoder:
    coder = compressobj(level, DEFLATED, window)
    return BodyEncoder(coder.compress, lambda: coder.flush(Z_SYNC_FLUSH), coder.flush, flushes)


def _br(level: int, length: int | None, flushes: bool) -> BodyEncoder:
    import brotli

    coder = brotli.Compressor(quality=_BROTLI_QUALITY, lgwin=_BROTLI_WINDOW)
    return BodyEncoder(coder.process, coder.flush, coder.finish, flushes)


def _zstd(level: int, length: int | None, flushes: bool) -> BodyEncoder:
    import zstandard

    # A level sizes its tables by the length of the body: tables for a small body are built in a
    # fifth of the time, and tables for an endless one are no larger than the window needs.
    whole = 1 << _ZSTD_WINDOW
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _ZSTD_DEFAULT if level == -1 else max(level, 1),
        source_size=whole if length is None else min(length, whole),
        window_log=_ZSTD_WINDOW,
    )
    coder = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return BodyEncoder(
        coder.compress,
        lambda: coder.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK),
        coder.flush,
        flushes,
    )


_MAKERS: dict[str, Callable[[int, int | None, bool], BodyEncoder]] = {
    "br": _br,
    "zstd": _zstd,
    "gzip": partial(_zlib, _ZLIB_WINDOW + _GZIP_FRAME),
    # With zlib's frame, as in RFC 9110 section 8.4.1.2.
    "deflate": partial(_zlib, _ZLIB_WINDOW),
}

CODINGS = tuple(each for each in _MAKERS if each != "zstd" or find_spec("zstandard") is not None)
"""The codings with an encoder, the preferred one first."""


def makeEncoder(
    coding: str, level: int = -1, length: int | None = None, flushes: bool = False
) -> BodyEncoder:
    """
    Make an encoder for one body.

    @param coding: One of L{CODINGS}.
    @param level: From 0 (C{gzip} and C{deflate} only store, C{zstd} takes 1) to 9 (smallest), or
        -1, the coding's own default. C{br} always works at quality 4.
    @param length: The length of the body, if known.
    @param flushes: Whether to flush each chunk as soon as it is written.
    """
    return _MAKERS[coding](level, length, flushes)


ChooseEncoder = Callable[[int | None], IBodyEncoder | None]


@attrs.define(eq=False)
class ResponseHooks:
    """
    The callbacks that middleware adds to one response. Each is called once.

    @ivar beforeHead: Called before the head is built, the last one added first.
    @ivar choosers: Choose an encoder for the body, the last one added first.
    @ivar holds: Return awaitables that the end of the response waits for.
    """

    beforeHead: list[Callable[[], Any]] = attrs.field(factory=list)
    choosers: list[ChooseEncoder] = attrs.field(factory=list)
    holds: list[Callable[[], Awaitable[Any] | None]] = attrs.field(factory=list)

    def runBeforeHead(self) -> None:
        """Call the L{beforeHead} callbacks."""
        while self.beforeHead:
            self.beforeHead.pop()()

    def chooseEncoder(self, length: int | None) -> IBodyEncoder | None:
        """
        Return the encoder of the body.

        If there are several, each encodes the output of its predecessor, whose length is unknown.

        @param length: The length of the body in bytes; C{None} if unknown.
        """
        choosers, self.choosers = self.choosers, []
        chosen: IBodyEncoder | None = None
        for choose in reversed(choosers):
            encoder = choose(length)
            if encoder is not None:
                chosen = encoder if chosen is None else _chained(chosen, encoder)
                length = None
        return chosen

    def startHolds(self) -> list[Awaitable[Any]]:
        """Call the L{holds}, and return their awaitables."""
        holds, self.holds = self.holds, []
        waiting: list[Awaitable[Any]] = []
        for hold in holds:
            try:
                awaitable = hold()
            except Exception as error:
                # If one raises, the others are still called.
                awaitable = fail(error)
            if awaitable is not None:
                waiting.append(awaitable)
        return waiting


def _chained(first: IBodyEncoder, second: IBodyEncoder) -> IBodyEncoder:
    """Chain two encoders."""
    return BodyEncoder(
        lambda chunk: second.feed(first.feed(chunk)),
        lambda: second.feed(first.flush()) + second.flush(),
        lambda: second.feed(first.finish()) + second.finish(),
        first.flushes or second.flushes,
    )


async def waitForAll(waiting: list[Awaitable[Any]]) -> None:
    """
    Wait for all awaitables even if one fails, as another may have a session to save.

    @param waiting: Awaited one after another, in this order.
    @raise Exception: The first failure.
    """
    first: Exception | None = None
    for awaitable in waiting:
        try:
            await awaitable
        except Exception as error:
            first = first or error
    if first is not None:
        raise first


INLINE_SIZE = 64 * 1024
"""Bytes up to which pieces are encoded in the reactor, a few milliseconds of work. A larger piece
is encoded in a thread, and so is the next piece after as many bytes in small ones: highly
compressible text would never fill the connection, and a handler that never waits would block the
reactor."""


class EncodedBody:
    """
    Encodes pieces in order, most small ones synchronously, large ones in a thread.

    Pieces written while a thread works wait for it.
    """

    def __init__(
        self,
        encoder: IBodyEncoder,
        send: Callable[[bytes], Any],
        run: Callable[..., Deferred[Any]],
    ) -> None:
        """
        @param encoder: Used by one thread at a time.
        @param send: Sends bytes, and returns an awaitable until more may follow.
        @param run: Calls a function in a thread.
        """
        self._encoder = encoder
        self._send = send
        self._run = run
        self._queue: deque[tuple[Callable[[], bytes], Deferred[None]]] = deque()
        self._working = False
        self._lost = False
        self._error: Exception | None = None
        self._inline = 0

    def write(self, chunk: bytes) -> Any:
        """
        Encode a piece and send the output.

        @return: An awaitable until more may follow.
        """

        def encode() -> bytes:
            encoded = self._encoder.feed(chunk)
            return encoded + self._encoder.flush() if self._encoder.flushes else encoded

        return self._add(encode, len(chunk))

    def flush(self) -> Any:
        """Send the output that the encoder has buffered, as L{write}."""
        return self._add(self._encoder.flush, 0)

    def finish(self) -> Any:
        """
        Send the end of the body, as L{write}.

        @return: Fails if the encoder fails, or has failed: after a missing piece, the body must not
            end.
        """
        try:
            return self._add(self._encoder.finish, 0)
        except Exception as error:
            return fail(error)

    def _add(self, encode: Callable[[], bytes], size: int) -> Any:
        if self._lost:
            # The sender reports the loss: an encoder that buffers everything sends nothing.
            return self._send(b"")
        if self._error is not None:
            # An end after a gap would make the incomplete body look complete.
            raise self._error
        if not self._working:
            self._inline += size
            if self._inline <= INLINE_SIZE:
                try:
                    encoded = encode()
                except Exception as error:
                    self._error = error
                    raise
                return self._send(encoded) if encoded else READY
            self._inline = 0
        done: Deferred[None] = Deferred()
        self._queue.append((encode, done))
        if not self._working:
            self._working = True
            # Errors go to the Deferreds of the pieces.
            Deferred.fromCoroutine(self._work())
        return done

    async def _work(self) -> None:
        while self._queue:
            encode, done = self._queue.popleft()
            if self._error is None and not self._lost:
                try:
                    encoded = await self._run(encode)
                    if encoded:
                        await self._send(encoded)
                except ClientLost:
                    # Not an error, which nothing may handle: the next piece raises it.
                    self._lost = True
                except Exception as error:
                    # The client could not decode anything after this piece.
                    self._error = error
            if self._error is None:
                done.callback(None)
            else:
                done.errback(self._error)
        self._working = False


def encodeWhole(encoder: IBodyEncoder, body: bytes) -> bytes:
    """
    Encode a whole body. May be called in a thread.

    @param encoder: A fresh encoder, which is finished here.
    @param body: The whole body.
    """
    return encoder.feed(body) + encoder.finish()


def asBytes(chunk: Any) -> bytes:
    """
    Return a piece of a body as bytes; text is UTF-8.

    @raise TypeError: If it is neither text nor bytes, as C{bytes(7)} would be seven NULs.
    """
    if isinstance(chunk, str):
        return chunk.encode()
    if isinstance(chunk, bytes | bytearray | memoryview):
        return bytes(chunk)
    raise TypeError(f"a piece of a body is text or bytes, not {type(chunk).__name__}")
