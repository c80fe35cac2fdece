"""
A gRPC client that exposes every frame, based only on C{hyperframe} and C{hpack}.

It blocks, and must be used in one thread, with C{deferToThread}. It answers SETTINGS and PING and
updates windows correctly, unless C{isSilent} is set; the caller does everything else.
"""

import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterable
from typing import Any, Self

from hpack import Decoder, Encoder
from hyperframe.frame import (
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_LENGTH = 9
FRAME_LENGTH = 16_384
WINDOW = 65_535


def framed(message: bytes, isCompressed: bool = False) -> bytes:
    """Prefix a message with the five bytes of gRPC."""
    return struct.pack(">?I", isCompressed, len(message)) + message


class H2Stream:
    """
    The received part of a stream.

    @ivar headers: The initial metadata, with lower-case names; the last value of repeated ones.
    @ivar trailers: The trailers, even if they arrived without headers.
    @ivar resetCode: The error of a RST_STREAM frame.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.headers: dict[str, str] = {}
        self.trailers: dict[str, str] = {}
        self.body = b""
        self.isEnded = False
        self.resetCode: int | None = None
        self.window = WINDOW

    @property
    def status(self) -> int | None:
        """Return the gRPC status."""
        value = self.trailers.get("grpc-status", self.headers.get("grpc-status"))
        return None if value is None else int(value)

    @property
    def messages(self) -> list[tuple[bool, bytes]]:
        """Return the complete messages, each with its compressed flag, as they were on the wire."""
        found, at = [], 0
        while at + 5 <= len(self.body):
            flag, length = struct.unpack_from(">?I", self.body, at)
            if at + 5 + length > len(self.body):
                break
            found.append((flag, self.body[at + 5 : at + 5 + length]))
            at += 5 + length
        return found


class H2Client:
    """
    A connection.

    @ivar frames: The received frames, in order.
    @ivar streams: The streams by number.
    @ivar isSilent: Whether frames are not answered, as by a hung peer.
    @ivar isClosed: Whether the server has closed the connection.
    """

    def __init__(
        self,
        port: int,
        host: str = "127.0.0.1",
        *,
        context: ssl.SSLContext | None = None,
        serverName: str = "localhost",
        settings: dict[int, int] | None = None,
        timeout: float = 60.0,
    ) -> None:
        """
        @param settings: The content of the first SETTINGS frame.
        @param timeout: Limit of a single wait, in seconds.
        """
        self.frames: list[Frame] = []
        self.streams: dict[int, H2Stream] = {}
        self.isSilent = False
        self.isClosed = False
        self._timeout = timeout
        self._buffer = b""
        self._encoder, self._decoder = Encoder(), Decoder()
        self._window = WINDOW
        self._streamWindow = WINDOW
        self._next = 1
        self._socket = socket.create_connection((host, port), timeout)
        if context is not None:
            context.set_alpn_protocols(["h2"])
            self._socket = context.wrap_socket(self._socket, server_hostname=serverName)
        self.sendBytes(PREFACE)
        self.send(SettingsFrame(0, settings=settings or {}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def sendBytes(self, data: bytes) -> None:
        """Send raw bytes."""
        self._socket.sendall(data)

    def send(self, frame: Frame) -> None:
        """Send a frame."""
        self._socket.sendall(frame.serialize())

    def ping(self, payload: bytes = b"01234567") -> None:
        """Send a PING."""
        self.send(PingFrame(0, opaque_data=payload))

    def reset(self, stream: H2Stream, code: int = 8) -> None:
        """Reset a stream; 8 is CANCEL."""
        self.send(RstStreamFrame(stream.number, error_code=code))

    def begin(
        self,
        path: str,
        metadata: Iterable[tuple[str, str]] = (),
        *,
        headers: Iterable[tuple[str, str]] | None = None,
        isEnded: bool = False,
    ) -> H2Stream:
        """
        Start a call.

        @param metadata: Metadata in addition to the usual headers.
        @param headers: The whole header block, in place of the usual headers.
        """
        stream = H2Stream(self._next)
        stream.window = self._streamWindow
        self._next += 2
        self.streams[stream.number] = stream
        usual = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        ]
        block = self._encoder.encode([*(usual if headers is None else headers), *metadata])
        flags = ["END_HEADERS", "END_STREAM"] if isEnded else ["END_HEADERS"]
        self.send(HeadersFrame(stream.number, data=block, flags=flags))
        return stream

    def sendMessage(
        self,
        stream: H2Stream,
        message: bytes,
        *,
        isCompressed: bool = False,
        isLast: bool = False,
    ) -> None:
        """Send a message, as fast as the server's windows allow."""
        self.sendData(stream, framed(message, isCompressed), isLast=isLast)

    def sendData(self, stream: H2Stream, data: bytes, *, isLast: bool = False) -> None:
        """Send bytes of a stream, as fast as the server's windows allow."""
        while not stream.isEnded:
            room = min(FRAME_LENGTH, self._window, stream.window)
            if room <= 0 and data:
                if self.read() is None:
                    return
                continue
            piece, data = data[:room], data[room:]
            flags = ["END_STREAM"] if isLast and not data else []
            self.send(DataFrame(stream.number, data=piece, flags=flags))
            self._window -= len(piece)
            stream.window -= len(piece)
            if not data:
                return

    def call(
        self, path: str, *messages: bytes, metadata: Iterable[tuple[str, str]] = ()
    ) -> H2Stream:
        """Make a complete call, and wait for its end."""
        stream = self.begin(path, metadata)
        for index, message in enumerate(messages):
            self.sendMessage(stream, message, isLast=index == len(messages) - 1)
        if not messages:
            self.send(DataFrame(stream.number, flags=["END_STREAM"]))
        return self.finish(stream)

    def finish(self, stream: H2Stream) -> H2Stream:
        """Read until the stream or the connection has ended."""
        self.readUntil(lambda: stream.isEnded)
        return stream

    def readUntil(self, condition: Callable[[], bool]) -> bool:
        """
        Read frames until a condition holds.

        @return: Whether the condition holds; if not, the connection has ended.
        @raise TimeoutError: If neither happens in time.
        """
        deadline = time.monotonic() + self._timeout
        while not condition():
            if self.read(deadline) is None:
                return condition()
        return True

    def waitFor(self, kind: type[Frame], start: int = 0) -> Any:
        """
        Return the first frame of a kind that is not an acknowledgement; C{None} at the end.

        @param start: The index in L{frames} to start from.
        """

        def found() -> list[Frame]:
            return [
                frame
                for frame in self.frames[start:]
                if isinstance(frame, kind) and "ACK" not in frame.flags
            ]

        self.readUntil(lambda: bool(found()))
        return next(iter(found()), None)

    def discard(self, timeout: float = 0.0) -> None:
        """
        Discard received bytes without answering; frames cannot be read afterwards.

        @param timeout: Seconds to wait for more; 0 reads only available bytes.
        @raise ConnectionError: If the server has closed the connection.
        """
        self._socket.settimeout(timeout)
        try:
            while self._socket.recv(65_536):
                pass
        except (BlockingIOError, TimeoutError):
            return
        finally:
            self._socket.settimeout(self._timeout)
        self.isClosed = True
        raise ConnectionError("the server has closed the connection")

    def readToEnd(self) -> None:
        """Read until the server has closed the connection."""
        self.readUntil(lambda: self.isClosed)

    def goAway(self) -> GoAwayFrame | None:
        """Wait for a GOAWAY."""
        frame: GoAwayFrame | None = self.waitFor(GoAwayFrame)
        return frame

    def read(self, deadline: float | None = None) -> Frame | None:
        """
        Read one frame, and answer it if required.

        @return: The frame; C{None} at the end of the connection.
        @raise TimeoutError: If no frame arrives in time.
        """
        if deadline is None:
            deadline = time.monotonic() + self._timeout
        head = self._take(HEAD_LENGTH, deadline)
        if head is None:
            return None
        frame, length = Frame.parse_frame_header(memoryview(head))
        body = self._take(length, deadline)
        if body is None:
            return None
        frame.parse_body(memoryview(body))
        self.frames.append(frame)
        self._heed(frame)
        return frame

    def _take(self, count: int, deadline: float) -> bytes | None:
        while len(self._buffer) < count:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self._socket.recv(65_536)
            except (ConnectionError, ssl.SSLEOFError):
                data = b""
            if not data:
                self.isClosed = True
                return None
            self._buffer += data
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def _heed(self, frame: Frame) -> None:
        stream = self.streams.get(frame.stream_id)
        if isinstance(frame, HeadersFrame) and stream is not None:
            # grpcio's header blocks fit into one frame, so CONTINUATION never follows.
            fields = dict(self._decoder.decode(frame.data))
            isTrailer = bool(stream.headers) or "END_STREAM" in frame.flags
            (stream.trailers if isTrailer else stream.headers).update(fields)
        elif isinstance(frame, DataFrame) and stream is not None:
            stream.body += frame.data
            if frame.data:
                self._answer(WindowUpdateFrame(0, window_increment=len(frame.data)))
                self._answer(WindowUpdateFrame(stream.number, window_increment=len(frame.data)))
        elif isinstance(frame, RstStreamFrame) and stream is not None:
            stream.resetCode = frame.error_code
            stream.isEnded = True
        elif isinstance(frame, PingFrame) and "ACK" not in frame.flags:
            self._answer(PingFrame(0, opaque_data=frame.opaque_data, flags=["ACK"]))
        elif isinstance(frame, SettingsFrame) and "ACK" not in frame.flags:
            self._adopt(frame.settings)
            self._answer(SettingsFrame(0, flags=["ACK"]))
        elif isinstance(frame, WindowUpdateFrame):
            if stream is not None:
                stream.window += frame.window_increment
            elif frame.stream_id == 0:
                self._window += frame.window_increment
        if stream is not None and "END_STREAM" in frame.flags:
            stream.isEnded = True

    def _adopt(self, settings: dict[int, int]) -> None:
        window = settings.get(SettingsFrame.INITIAL_WINDOW_SIZE)
        if window is not None:
            for stream in self.streams.values():
                stream.window += window - self._streamWindow
            self._streamWindow = window

    def _answer(self, frame: Frame) -> None:
        if self.isSilent:
            return
        try:
            self.send(frame)
        except OSError:
            # The server has closed the connection: the next read detects it.
            return
