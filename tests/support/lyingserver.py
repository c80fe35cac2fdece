"""A server in a thread that answers each call with frames that the test provides."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    HeadersFrame,
    PingFrame,
    SettingsFrame,
)

from tests.support.h2client import FRAME_LENGTH, HEAD_LENGTH, PREFACE

Fields = list[tuple[str, str]]

Answer = Callable[["Lie"], None]
"""Answers one call."""


class Lie:
    """
    The server's end of one call.

    @ivar connection: The socket.
    @ivar stream: The number of the stream.
    """

    def __init__(self, connection: socket.socket, encoder: Encoder, stream: int) -> None:
        self.connection = connection
        self.stream = stream
        self._encoder = encoder

    def send(self, frame: Frame) -> None:
        """Send a frame."""
        self.connection.sendall(frame.serialize())

    def headers(self, fields: Fields, isLast: bool = False) -> None:
        """Send a header block, in as many frames as needed."""
        block = self._encoder.encode(fields)
        pieces = [block[at : at + FRAME_LENGTH] for at in range(0, len(block), FRAME_LENGTH)]
        first = HeadersFrame(self.stream, data=pieces[0])
        frames = [first, *(ContinuationFrame(self.stream, data=each) for each in pieces[1:])]
        if isLast:
            first.flags.add("END_STREAM")
        frames[-1].flags.add("END_HEADERS")
        for frame in frames:
            self.send(frame)

    def data(self, body: bytes, isLast: bool = False) -> None:
        """Send bytes of the body, ignoring the client's window."""
        pieces = [body[at : at + FRAME_LENGTH] for at in range(0, len(body), FRAME_LENGTH)]
        for at, piece in enumerate(pieces):
            isEnd = isLast and at == len(pieces) - 1
            self.send(DataFrame(self.stream, data=piece, flags=["END_STREAM"] if isEnd else []))


class LyingServer:
    """
    Listens, and answers calls.

    @ivar port: The port that it listens on.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def stop(self) -> None:
        """Close all sockets, and join the threads. Blocks."""
        # Nothing else wakes a thread in accept().
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        encoder = Encoder()
        with suppress(OSError, EOFError), connection.makefile("rb") as stream:
            _read(stream.read, len(PREFACE))
            connection.sendall(SettingsFrame(0).serialize())
            while True:
                frame, length = Frame.parse_frame_header(_read(stream.read, HEAD_LENGTH))
                frame.parse_body(_read(stream.read, length))
                if isinstance(frame, SettingsFrame | PingFrame) and "ACK" not in frame.flags:
                    answer = type(frame)(0, flags=["ACK"])
                    if isinstance(frame, PingFrame):
                        answer = PingFrame(0, opaque_data=frame.opaque_data, flags=["ACK"])
                    connection.sendall(answer.serialize())
                elif isinstance(frame, HeadersFrame):
                    self._answer(Lie(connection, encoder, frame.stream_id))


def _read(read: Callable[[int], bytes], count: int) -> memoryview:
    data = read(count)
    if len(data) < count:
        raise EOFError
    return memoryview(data)
