"""
What the adapters of a gateway share.

Whose turn it is to read datagrams.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from attrs import Factory, field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from storagegate.core.context import RequestContext, Tracing
from storagegate.core.errors import ServiceError, asServiceError
from storagegate.core.invoker import InvocationObserver, Invoker
from storagegate.core.ratelimit import RateStoreMaker
from storagegate.gateway.options import GatewayOptions
from storagegate.gateway.transports.metrics import WireMeter
from storagegate.telemetry.log import BufferedLogWriter
from storagegate.telemetry.metrics import MetricsRegistry
from storagegate.telemetry.tracecontext import tracingOfFields


class SocketOwnership(Protocol):
    """
    Of the processes that have one socket for datagrams, one reads at a time.

    @ivar isWaiting: Whether another one reads still.
    @ivar entered: Is called when it does so no more.
    """

    isWaiting: bool
    entered: Callable[[], object]

    def leave(self) -> None:
        """Let another one read."""


ErrorHook = Callable[[ServiceError, str], Any]
"""C{transformError(error, protocol)}: gives another error, or a mapping of the wire's own shape."""

AnswerCacheMaker = Callable[[], Any]
"""
Makes an L{IAnswerCache<storagegate.gateway.transports.udp.replycache.IReplyCache>} when UDP is
opened.
"""

_log = Logger()


@frozen(kw_only=True)
class GatewayResources:
    """
    What a gateway is given of the process around it; alone it has its own.

    @ivar meters: What it counts with.
    @ivar logSink: Where the lines of calls go; C{None} for Twisted's log.
    @ivar tracer: What traces the requests of all rooms; C{None}: the gateway makes its own, if it
        is told to.
    @ivar rateStore: Makes what counts the calls of a method, see
        L{Invoker<storagegate.core.invoker.Invoker>}; C{None}: this process counts its own.
    @ivar makeAnswers: Makes what keeps the answers of UDP; C{None}: this process keeps its own.
    @ivar turn: Tells when this process may read datagrams; C{None}: it always may.
    @ivar affinitySecret: Gives what cookies of sticky sessions are signed with, the same for all
        processes that serve a client; C{None} makes one. Called when there is one to sign.
    """

    meters: MetricsRegistry = Factory(MetricsRegistry)
    logSink: BufferedLogWriter | None = None
    tracer: Any = None
    rateStore: RateStoreMaker | None = None
    makeAnswers: AnswerCacheMaker | None = None
    turn: SocketOwnership | None = None
    affinitySecret: Callable[[], bytes] | None = None


@frozen
class TransportContext:
    """
    What an adapter needs of the gateway that it belongs to.

    @ivar invoker: Calls the methods.
    @ivar clock: For deadlines and delays.
    @ivar run: Calls C{run(function, *arguments) -> Deferred} in a thread.
    @ivar meters: What is counted of wires, by protocol.
    @ivar unknown: Who is told of calls that are for no method, by a wire that knows their context.
    @ivar settings: The options of the gateway and of all its transports.
    @ivar reactor: The whole reactor: every transport needs another part of it to listen.
    @ivar resources: What the gateway shares with others.
    @ivar protos: Services of protos that are loaded already, by full name.
    @ivar apiKeyHeader: The header field that API keys are in.
    @ivar correlationHeader: The field of HTTP that has the id of a call's trace.
    @ivar traceName: The same in lower case.
    @ivar traceKey: The same as requests have it.
    """

    invoker: Invoker
    clock: IReactorTime
    run: Callable[..., Deferred[Any]]
    transformError: ErrorHook | None = None
    meters: Mapping[str, WireMeter] = field(factory=dict)
    correlationHeader: str = "X-Trace-ID"
    unknown: Iterable[InvocationObserver] = ()
    settings: GatewayOptions = field(factory=GatewayOptions)
    reactor: Any = None
    resources: GatewayResources = field(factory=GatewayResources)
    protos: Mapping[str, Any] = field(factory=dict)
    apiKeyHeader: str = "X-API-Key"
    traceName: str = field(init=False)
    traceKey: bytes = field(init=False)

    @traceName.default
    def _lowerName(self) -> str:
        return self.correlationHeader.lower()

    @traceKey.default
    def _lowerKey(self) -> bytes:
        return self.traceName.encode("ascii")

    def nameTrace(self, headers: Mapping[bytes, bytes], res: Any) -> Tracing:
        """
        Have an answer of HTTP name the trace that its request belongs to.

        @param headers: The fields of the request.
        @return: The trace.
        """
        tracing = tracingOfFields(headers, self.traceKey)
        res.setChecked({self.traceName: (self.correlationHeader, tracing.traceId)})
        return tracing

    def meter(self, protocol: str) -> WireMeter:
        """Give what an adapter counts with; where nobody looks, it counts for nobody."""
        return self.meters.get(protocol) or WireMeter()

    def refuse(self, context: RequestContext, error: Exception) -> None:
        """Have a call observed whose request cannot be read: it ends as it begins."""
        _observe(self.invoker.observers, context, error)

    def refuseUnknown(self, context: RequestContext, error: Exception) -> None:
        """Have a call observed that is for no method."""
        _observe(self.unknown, context, error)

    def describe(self, error: ServiceError, protocol: str) -> ServiceError | Mapping[str, Any]:
        """
        Give an error as clients of a wire are to see it.

        @return: The error itself, another one, or a mapping that is the wire's shape already.
        """
        if self.transformError is None:
            return error
        try:
            described = self.transformError(error, protocol)
        except Exception:
            _log.failure("transformError failed")
            return error
        if hasattr(described, "__await__"):
            described = self._settled(described)
        if isinstance(described, ServiceError | Mapping):
            return described
        if described is not None:
            _log.error("transformError gave {kind}, no error", kind=type(described).__name__)
        return error

    def _settled(self, described: Any) -> Any:
        """
        Give what an C{async} hook returns, if it does so at once.

        Errors are written where nobody can wait: often the call or its connection is over by then.
        """
        steps = described.__await__()
        try:
            next(steps)
        except StopIteration as returned:
            return returned.value
        except Exception:
            _log.failure("transformError failed")
            return None
        if hasattr(steps, "close"):
            steps.close()
        _log.error("transformError waits for something: errors cannot")
        return None


def _observe(
    observers: Iterable[InvocationObserver], context: RequestContext, error: Exception
) -> None:
    known = asServiceError(error)
    for observer in observers:
        observer.began(context)
        observer.ended(context, known, 0.0)
