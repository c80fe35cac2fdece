"""The error codes, errors and limits of HTTP/2."""

from msgspec import Struct


class ErrorCode:
    """The codes of RST_STREAM and GOAWAY (RFC 9113 section 7)."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class HTTP2Error(Exception):
    """
    The peer broke the protocol or a limit.

    @ivar code: An L{ErrorCode}.
    @ivar text: One line that describes the problem, without the peer's input.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class ConnectionFailure(HTTP2Error):
    """An error that ends the connection with GOAWAY (RFC 9113 section 5.4.1)."""


class StreamFailure(HTTP2Error):
    """An error that ends one stream with RST_STREAM (RFC 9113 section 5.4.2)."""


class StreamReset(Exception):
    """
    A stream ended early: the peer reset it, or it was never processed.

    @ivar code: The L{ErrorCode} of RST_STREAM or GOAWAY.
    @ivar isUnprocessed: Whether the peer has done nothing about the request, which may be repeated.
    """

    def __init__(self, code: int, isUnprocessed: bool = False) -> None:
        super().__init__(f"the stream was reset with code {code}")
        self.code = code
        self.isUnprocessed = isUnprocessed or code == ErrorCode.REFUSED_STREAM


class HTTP2Limits(Struct, frozen=True, kw_only=True):
    """
    The limits of a connection. Sizes are bytes.

    @ivar streams: Open streams of one connection (C{SETTINGS_MAX_CONCURRENT_STREAMS}); further ones
        are refused with REFUSED_STREAM. Browsers and proxies expect about 100.
    @ivar streamWindow: What a client may send on a stream before its reader takes it, at least
        65,535: the body buffer of HTTP/1.1.
    @ivar connectionWindow: What a client may send on all streams before we have seen it, at least
        65,535. It is granted again on receipt, because the windows of the streams limit what is
        kept.
    @ivar headerList: The header fields of a message with 32 bytes for each
        (C{SETTINGS_MAX_HEADER_LIST_SIZE}), as C{headSize} of HTTP/1.1.
    @ivar headerBlock: The compressed header block of a message in all its frames: larger blocks end
        the connection, as the decoder has to read them for its table.
    @ivar headerTable: The dynamic table of the decoder: the default of RFC 9113.
    @ivar frame: The payload of a received DATA frame (C{SETTINGS_MAX_FRAME_SIZE}). None is kept
        until it is complete, so a long one costs no memory, and fewer frames take less time. Other
        frames are limited by C{headerBlock}.
    @ivar queued: Bytes queued on a stream, after which its writer is paused.
    @ivar output: Frames that may wait to be sent; the client's next frames wait then, too. A turn
        of input seldom causes so many.
    @ivar unread: Bytes of frames other than DATA that are sent while the transport is full: heads,
        trailers and acknowledgements, which no window limits. A client that reads needs none.
    @ivar control: Frames that do no work (PING, SETTINGS, PRIORITY, empty DATA, CONTINUATION,
        WINDOW_UPDATE without DATA, streams that are refused, unknown types) that a client may send
        in a burst.
    @ivar controlRate: How many of these are forgiven each second.
    @ivar resets: Streams that a client may reset in a burst before their response ends, or that it
        makes us reset by a mistake. Each costs the start of a handler, as the limit on open streams
        does not apply.
    @ivar resetRate: How many resets are forgiven each second.
    @ivar progress: The number of bytes of a stream's output that counts as progress, as
        C{progressSize} of HTTP/1.1.
    @ivar stallTimeout: Timeout of a stream without progress, in seconds, as C{requestTimeout} of
        HTTP/1.1.
    """

    streams: int = 100
    streamWindow: int = 65_535
    connectionWindow: int = 4 * 1024 * 1024
    headerList: int = 16 * 1024
    headerBlock: int = 32 * 1024
    headerTable: int = 4096
    frame: int = 65_536
    queued: int = 64 * 1024
    output: int = 1000
    unread: int = 1024 * 1024
    control: int = 1000
    controlRate: int = 200
    resets: int = 1000
    resetRate: int = 50
    progress: int = 4 * 1024
    stallTimeout: float = 300.0

    def __post_init__(self) -> None:
        if min(self.streamWindow, self.connectionWindow) < 65_535 or self.headerTable < 4096:
            raise ValueError("a client may send by the first values until it has read smaller ones")
        if not 16_384 <= self.frame < 2**24:
            raise ValueError("a frame has at most 16,384 to 16,777,215 bytes")
