"""What a gateway has in common with the rest of its process, or with other processes."""

from collections.abc import Callable
from typing import Any

from attrs import Factory, frozen

from storagegate.core.loglines import LineSink
from storagegate.core.meters import Meters
from storagegate.core.ratestores import RateStoreMaker
from storagegate.gateway.udpturns import Turn
from storagegate.gateway.wires import AnswerCacheMaker


@frozen(kw_only=True)
class Surroundings:
    """
    What a gateway is given of the process around it; alone it has its own.

    @ivar meters: What it counts with.
    @ivar logSink: Where the lines of calls go; C{None} for Twisted's log.
    @ivar tracer: What traces the requests of all rooms; C{None}: the gateway makes its own, if it
        is told to.
    @ivar rateStore: Makes what counts the calls of a method, see
        L{Invoker<storagegate.core.invocation.Invoker>}; C{None}: this process counts its own.
    @ivar makeAnswers: Makes what keeps the answers of UDP; C{None}: this process keeps its own.
    @ivar turn: Tells when this process may read datagrams; C{None}: it always may.
    @ivar affinitySecret: Gives what cookies of sticky sessions are signed with, the same for all
        processes that serve a client; C{None} makes one. Called when there is one to sign.
    """

    meters: Meters = Factory(Meters)
    logSink: LineSink | None = None
    tracer: Any = None
    rateStore: RateStoreMaker | None = None
    makeAnswers: AnswerCacheMaker | None = None
    turn: Turn | None = None
    affinitySecret: Callable[[], bytes] | None = None
