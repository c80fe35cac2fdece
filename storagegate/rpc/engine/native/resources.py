"""The limits, counts and timers of the calls of a server or a client, on all connections."""

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorThreads

from storagegate.core.heldbytes import HeldBytes
from storagegate.core.task import callInThread
from storagegate.rpc.engine.native.deadlines import Deadlines
from storagegate.rpc.interfaces import MessageByteCounter

_MAX_LENGTH = 2**31 - 1

_MESSAGE_LENGTH = 4 * 1024 * 1024


class MessageLimits(Struct, frozen=True):
    """
    The limits and the compression of messages.

    @ivar maxReceive: The maximum length of a received message in bytes.
    @ivar maxSend: The maximum length of a sent message in bytes.
    @ivar compression: The preferred encoding of sent messages; C{None} for no compression.
    @ivar level: The level of compression, from 1 to 9; -1 for zlib's default.
    """

    maxReceive: int
    maxSend: int
    compression: str | None = None
    level: int = -1


def messageLimits(options: Any) -> MessageLimits:
    """
    Return the limits of messages.

    @param options: L{GRPCServerOptions<storagegate.rpc.options.GRPCServerOptions>}.
    """

    def length(value: int | None) -> int:
        return {None: _MESSAGE_LENGTH, -1: _MAX_LENGTH}.get(value, value or 0)

    return MessageLimits(
        length(options.maxReceiveMessageLength),
        length(options.maxSendMessageLength),
        options.compression,
        options.compressionOptions.level or -1,
    )


class RPCResources:
    """
    The limits, counts and timers of calls.

    @ivar limits: The limits of messages.
    @ivar traffic: Counts the bytes of messages.
    @ivar clock: Provides C{IReactorTime}.
    @ivar budget: Counts the bytes of incomplete messages.
    @ivar deadlines: The deadlines of calls.
    @ivar run: Calls C{run(function, *arguments) -> Deferred} in a thread; C{None} without threads.
    """

    def __init__(
        self, limits: MessageLimits, clock: Any, traffic: MessageByteCounter, budget: HeldBytes
    ) -> None:
        self.limits = limits
        self.traffic = traffic
        self.clock = clock
        self.budget = budget
        self.deadlines = Deadlines(clock)
        self.run: Callable[..., Deferred[Any]] | None = None
        if IReactorThreads.providedBy(clock):
            self.run = partial(callInThread, clock)
