"""
Messages on a pair of pipes between two of our processes::

    message     = length value
    length      = 4OCTET                big-endian, of the value in bytes
    value       = *OCTET                MessagePack
"""

import os
import select
import time
from typing import Any

from msgspec import msgpack

_LENGTH = 4

_CHUNK = 65_536


class PipeTimeout(Exception):
    """Nothing came in time."""


class Pipe:
    """One end. Everything blocks."""

    def __init__(self, reading: int, writing: int) -> None:
        """
        @param reading: The descriptor to read from; the owner closes it.
        """
        self._reading = reading
        self._writing = writing

    def write(self, value: Any) -> None:
        """
        Send a value.

        @raise OSError: If nobody reads it.
        """
        body = msgpack.encode(value)
        rest = memoryview(len(body).to_bytes(_LENGTH, "big") + body)
        while rest:
            rest = rest[os.write(self._writing, rest) :]

    def read(self, seconds: float | None = None) -> Any:
        """
        Wait for a value.

        @param seconds: How long; C{None} for ever.
        @raise EOFError: If there are no more.
        @raise PipeTimeout: If none came in time.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        length = int.from_bytes(self._take(_LENGTH, deadline), "big")
        return msgpack.decode(self._take(length, deadline))

    def _take(self, length: int, deadline: float | None) -> bytes:
        taken = bytearray()
        while len(taken) < length:
            if deadline is not None:
                self._wait(deadline)
            data = os.read(self._reading, min(_CHUNK, length - len(taken)))
            if not data:
                raise EOFError("the pipe is closed")
            taken += data
        return bytes(taken)

    def _wait(self, deadline: float) -> None:
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise PipeTimeout("nothing came in time")
