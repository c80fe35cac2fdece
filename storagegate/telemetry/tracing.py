"""
Tracing of calls, requests and forwarded attempts: options, sampling and the attributes of spans.

The sampling decision of a caller is kept. Other calls are sampled by trace ID, so that every
process that handles the trace decides alike
(U{https://opentelemetry.io/docs/specs/otel/trace/sdk/#sampling}). The decision compares the text of
the ID, before any use of OpenTelemetry's SDK (L{storagegate.telemetry.otlp}).

Attributes follow OpenTelemetry's semantic conventions
(U{https://opentelemetry.io/docs/specs/semconv/}): C{rpc.*}, C{http.*}, C{url.*}, C{client.*},
C{error.type}; attributes without a standard name begin with C{storagegate.}.
"""

import os
from collections.abc import Container, Mapping
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote, urlsplit

from attrs import evolve, field, frozen
from attrs.converters import optional
from twisted.logger import Logger

from storagegate.core.addresses import SCHEMES
from storagegate.core.context import RequestContext
from storagegate.core.errors import ServiceError
from storagegate.core.extras import installHint
from storagegate.core.options import (
    OptionError,
    optionField,
    readFlag,
    readFunction,
    readNumber,
    readWord,
)

MAX_ATTRIBUTES = 112
"""Maximum number of attributes of a span from C{spanAttributes}: with ours, the SDK's limit of
128."""

MAX_TEXT = 1024
"""Maximum number of characters of an attribute's name or value, as spans wait in memory."""

MAX_ITEMS = 128
"""Maximum number of items of a list attribute."""

_INT64 = 1 << 63

_log = Logger()

_OTLP = ("http://127.0.0.1:4318", "/v1/traces", "opentelemetry.exporter.otlp.proto.http")

_PROVIDERS: Mapping[str, tuple[str, str, str]] = {
    "otlp": _OTLP,
    # Jaeger has accepted OTLP since 1.35, and nothing else since 2.0.
    "jaeger": _OTLP,
    "zipkin": ("http://127.0.0.1:9411", "/api/v2/spans", "opentelemetry.exporter.zipkin.json"),
}
"""The default server of each provider, the path on it, and the package of the exporter."""

_OTLP_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_OTLP_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"


def _url(value: Any) -> str:
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise ValueError("is a URL")
    try:
        parts = urlsplit(value)
        isGood = parts.scheme in SCHEMES and parts.hostname and parts.port != 0
    except ValueError:
        isGood = False
    if not isGood or parts.fragment:
        raise ValueError("is a URL such as http://127.0.0.1:4318/v1/traces")
    return value


def _fieldName(value: Any) -> str:
    if not isinstance(value, str) or not value.replace("-", "").isalnum() or not value.isascii():
        raise ValueError("is the name of a header field")
    return value


def _headers(value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of header fields")
    for name, text in value.items():
        _fieldName(name)
        if not isinstance(text, str) or not text.isascii() or not text.isprintable():
            # The value may be a key, so it is not shown.
            raise ValueError(f"has text as the value of {name}")
    return dict(value)


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError("is a name")
    return value


def _ratio(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError("is a number from 0 to 1")
    return float(value)


@frozen(kw_only=True)
class TracingOptions:
    """
    Options of tracing: sampling and the destination of spans.

    @ivar enabled: Whether spans are recorded, which needs the packages of C{pip install
        '.[tracing]'}.
    @ivar provider: The export protocol, C{otlp} by default. C{jaeger} also uses OTLP.
    @ivar endpoint: The collector's URL; by default C{http://127.0.0.1:4318/v1/traces}, and
        C{http://127.0.0.1:9411/api/v2/spans} for C{zipkin}.
    @ivar headers: Header fields of requests to the collector.
    @ivar serviceName: The name of the service in spans, C{storagegate} by default.
    @ivar sampleRatio: The sampled share of calls whose callers make no decision.
    @ivar correlationHeader: The HTTP header field with the trace ID.
    @ivar spanAttributes: A function C{(context)} that returns a mapping of attributes at the end of
        a call.
    @ivar queueSize: Maximum number of spans that wait for the collector; further ones are dropped.
    @ivar batchSize: Maximum number of spans per export.
    @ivar intervalMs: Maximum time that a span waits for others.
    @ivar timeoutMs: Timeout for the collector's response.
    """

    enabled: bool = optionField(False, readFlag)
    provider: str | None = optionField(None, readWord, tuple(_PROVIDERS))
    endpoint: str | None = optionField(None, _url)
    headers: Mapping[str, str] = field(factory=dict, converter=_headers, repr=False)
    serviceName: str | None = optionField(None, _name)
    sampleRatio: float = optionField(1.0, _ratio)
    correlationHeader: str = optionField("X-Trace-ID", _fieldName)
    spanAttributes: Any = field(default=None, converter=optional(readFunction))
    queueSize: int = optionField(2048, readNumber, 1, 1_000_000, "spans")
    batchSize: int = optionField(512, readNumber, 1, 1_000_000, "spans")
    intervalMs: int = optionField(5000, readNumber, 1, 600_000, "milliseconds")
    timeoutMs: int = optionField(10_000, readNumber, 1, 600_000, "milliseconds")


def readCollector(
    options: TracingOptions, environment: Mapping[str, str] = os.environ
) -> TracingOptions:
    """
    Complete the destination of spans: C{provider}, C{endpoint}, C{headers} and C{serviceName}.

    @param options: The options; their endpoint takes precedence over the environment.
    @param environment: The environment variables; the OTLP variables are ignored for Zipkin.
    @return: The options; only C{serviceName} may still be C{None}.
    @raise OptionError: If an environment variable is invalid, or OpenTelemetry is not installed.
    """
    provider = options.provider or "otlp"
    server, path, package = _PROVIDERS[provider]
    _checkInstalled(package)
    headers = options.headers
    if provider != "zipkin":
        headers = headers or _listedHeaders(environment.get(_OTLP_HEADERS, ""))
        named = environment.get(_OTLP_ENDPOINT, "").strip()
        if named:
            try:
                server = _url(named)
            except ValueError as error:
                raise OptionError(f"the variable {_OTLP_ENDPOINT} {error}") from None
    endpoint = options.endpoint
    if endpoint is None:
        # The variable names a server, which has other paths for other signals.
        endpoint = server.rstrip("/") + path
    elif urlsplit(endpoint).path in ("", "/"):
        endpoint = endpoint.rstrip("/") + path
    name = options.serviceName or environment.get("OTEL_SERVICE_NAME") or None
    return evolve(options, provider=provider, endpoint=endpoint, headers=headers, serviceName=name)


def _listedHeaders(text: str) -> Mapping[str, str]:
    """Parse C{name=value,name=value}, with percent-encoded values."""
    found = {}
    for each in text.split(","):
        name, separator, value = each.partition("=")
        if separator:
            found[name.strip()] = unquote(value.strip())
    try:
        return _headers(found)
    except ValueError as error:
        raise OptionError(f"the variable {_OTLP_HEADERS} {error}") from None


def _checkInstalled(package: str) -> None:
    for name in ("opentelemetry.sdk.trace", package):
        try:
            found = find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise OptionError(f"the option tracing.enabled needs {name}: {installHint(name)}")


def readAttributes(given: Mapping[Any, Any]) -> dict[str, Any]:
    """
    Return the attributes that a collector accepts: text, booleans, numbers, and lists of one of
    these types. Others are dropped.

    @param given: The result of the user's function; at most L{MAX_ATTRIBUTES} items are used.
    """
    found: dict[str, Any] = {}
    for name, value in given.items():
        if len(found) >= MAX_ATTRIBUTES:
            break
        if isinstance(value, list | tuple):
            items = [_readScalar(item) for item in value[:MAX_ITEMS]]
            isGood = len({type(item) for item in items}) == 1 and None not in items
            value = items if isGood else None
        else:
            value = _readScalar(value)
        if isinstance(name, str) and name and value is not None:
            found[boundedText(name)] = value
    return found


def _readScalar(value: Any) -> Any:
    if isinstance(value, str):
        return boundedText(value)
    if isinstance(value, bool | float):
        return value
    # OTLP has no larger integers: one would fail the whole batch.
    return value if isinstance(value, int) and -_INT64 <= value < _INT64 else None


def boundedText(value: str) -> str:
    """Return the first L{MAX_TEXT} characters of a text, with unencodable ones replaced."""
    return value[:MAX_TEXT].encode("utf-8", "replace").decode("utf-8")


class CallTracer:
    """An observer of the calls of services."""

    __slots__ = (
        "_bound",
        "_firstDigit",
        "_hasComplained",
        "_spanAttributes",
        "_statusProtocols",
        "_systems",
        "_tracer",
    )

    def __init__(
        self,
        tracer: Any,
        systems: Mapping[str, str] = {},
        statusProtocols: Container[str] = (),
    ) -> None:
        """
        @param tracer: The L{Tracer<storagegate.telemetry.otlp.Tracer>} that samples and records
            calls.
        @param systems: C{rpc.system.name} by protocol, where it is not C{storagegate}.
        @param statusProtocols: The protocols whose calls have an HTTP status.
        """
        self._tracer = tracer
        self._bound = tracer.bound
        self._firstDigit = tracer.bound[0]
        self._spanAttributes = tracer.spanAttributes
        self._hasComplained = False
        self._systems = systems
        self._statusProtocols = statusProtocols

    def callStarted(self, context: RequestContext) -> None:
        """
        Decide whether to record the call, before the handler runs.

        @param context: The context of the call; its trace is replaced if the call is recorded.
        """
        tracing = context.tracing
        if tracing.spanId is None:
            # At a low ratio, one digit decides 15 of 16 calls, and indexing allocates nothing.
            traceId = tracing.traceId
            if traceId[16] > self._firstDigit or traceId[16:] >= self._bound:
                return
        context.tracing = self._tracer.decide(tracing)

    def callEnded(
        self, context: RequestContext, error: ServiceError | None, seconds: float
    ) -> None:
        """
        Record the end of a call.

        @param error: The error that the caller receives, or C{None} on success.
        @param seconds: The duration of the call.
        """
        tracing = context.tracing
        if tracing.ownId is None:
            return
        tracer = self._tracer
        if not tracer.admit(tracing):
            return
        client, protocol = context.client, context.protocol
        name = f"{context.service}/{context.method}"
        # The user's attributes come first, so they cannot replace ours.
        attributes: dict[str, Any] = {}
        if self._spanAttributes is not None:
            attributes.update(self._extra(context))
        attributes["rpc.system.name"] = self._systems.get(protocol, "storagegate")
        attributes["rpc.method"] = name
        attributes["storagegate.protocol"] = protocol
        attributes["client.address"] = client.address
        if client.port:
            attributes["client.port"] = client.port
        if protocol in self._statusProtocols:
            attributes["http.response.status_code"] = 200 if error is None else error.statusCode
        if client.userAgent:
            attributes["user_agent.original"] = boundedText(client.userAgent[:MAX_TEXT])
        if error is not None:
            attributes["error.type"] = boundedText(error.code)
        # A client error is not a failure of the server.
        isFailed = error is not None and error.statusCode >= 500
        tracer.record(tracing, name, attributes, seconds, isFailed=isFailed)

    def _extra(self, context: RequestContext) -> Mapping[str, Any]:
        """Return the attributes from C{spanAttributes}; its first failure is logged."""
        try:
            found = self._spanAttributes(context)
            if found is None:
                return {}
            if isinstance(found, Mapping):
                return readAttributes(found)
            if hasattr(found, "close"):
                # A coroutine, which nothing here can await.
                found.close()
            raise TypeError(f"spanAttributes gives a mapping, not {type(found).__name__}")
        except Exception:
            if not self._hasComplained:
                self._hasComplained = True
                _log.failure("spanAttributes failed; further failures are not logged")
            return {}
