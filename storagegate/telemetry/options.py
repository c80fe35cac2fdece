"""Where spans go, and which: the options, and what the environment says where they say nothing."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from attrs import field, frozen
from attrs.converters import optional

from storagegate.core.optionvalues import OptionError, readFlag, readFunction, readNumber, readWord

PROVIDERS = ("otlp", "jaeger", "zipkin")

_DEFAULT_PLACES: Mapping[str, tuple[str, str]] = {
    "otlp": ("http://127.0.0.1:4318", "/v1/traces"),
    # Jaeger has taken OTLP since 1.35, and nothing else since 2.0.
    "jaeger": ("http://127.0.0.1:4318", "/v1/traces"),
    "zipkin": ("http://127.0.0.1:9411", "/api/v2/spans"),
}

_OTLP_PLACE = "OTEL_EXPORTER_OTLP_ENDPOINT"
_OTLP_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
_SERVICE_NAME = "OTEL_SERVICE_NAME"

_PACKAGES: Mapping[str, str] = {
    "otlp": "opentelemetry.exporter.otlp.proto.http",
    "jaeger": "opentelemetry.exporter.otlp.proto.http",
    "zipkin": "opentelemetry.exporter.zipkin.json",
}


def _provider(value: Any) -> str:
    return readWord(value, PROVIDERS)


def _url(value: Any) -> str:
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise ValueError("is a URL")
    try:
        parts = urlsplit(value)
        isGood = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
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
            # The value may be a key: it is not shown.
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


def _spans(value: Any) -> int:
    return readNumber(value, 1, 1_000_000, "spans")


def _milliseconds(value: Any) -> int:
    return readNumber(value, 1, 600_000, "milliseconds")


@frozen(kw_only=True)
class TracingOptions:
    """
    Where calls are traced to.

    @ivar enabled: Whether spans are recorded, which needs C{pip install 'storagegate[tracing]'}.
    @ivar provider: How spans are sent; without it C{otlp}. C{jaeger} is sent OTLP as well.
    @ivar endpoint: The collector's URL; without it C{http://127.0.0.1:4318/v1/traces}, and
        C{http://127.0.0.1:9411/api/v2/spans} for C{zipkin}.
    @ivar headers: Header fields of what goes to the collector.
    @ivar serviceName: What the spans say who we are; without it C{storagegate}.
    @ivar sampleRatio: Which part is recorded of the calls whose callers do not say.
    @ivar correlationHeader: Which field of HTTP carries the id of the trace.
    @ivar spanAttributes: C{(context)} gives a mapping of attributes, at the end of a call.
    @ivar queueSize: How many spans wait for the collector; further ones are dropped.
    @ivar batchSize: How many of them are sent at a time.
    @ivar intervalMs: How long a span waits for others.
    @ivar timeoutMs: How long the collector may take for an answer.
    """

    enabled: bool = field(default=False, converter=readFlag)
    provider: str | None = field(default=None, converter=optional(_provider))
    endpoint: str | None = field(default=None, converter=optional(_url))
    headers: Mapping[str, str] = field(factory=dict, converter=_headers, repr=False)
    serviceName: str | None = field(default=None, converter=optional(_name))
    sampleRatio: float = field(default=1.0, converter=_ratio)
    correlationHeader: str = field(default="X-Trace-ID", converter=_fieldName)
    spanAttributes: Any = field(default=None, converter=optional(readFunction))
    queueSize: int = field(default=2048, converter=_spans)
    batchSize: int = field(default=512, converter=_spans)
    intervalMs: int = field(default=5000, converter=_milliseconds)
    timeoutMs: int = field(default=10_000, converter=_milliseconds)


@frozen(kw_only=True)
class Collector:
    """
    Who takes spans: what the options and the environment say together.

    @ivar serviceName: C{None} where neither names one.
    """

    provider: str
    endpoint: str
    headers: Mapping[str, str] = field(repr=False)
    serviceName: str | None
    timeoutSeconds: float


def readCollector(
    options: TracingOptions, environment: Mapping[str, str] = os.environ
) -> Collector:
    """
    Find out where spans go.

    @raise OptionError: If a variable of the environment says nothing that can be, or OpenTelemetry
        is not installed.
    """
    provider = options.provider or "otlp"
    _checkInstalled(_PACKAGES[provider])
    place, path = _DEFAULT_PLACES[provider]
    headers = options.headers
    if provider != "zipkin":
        headers = headers or _listedHeaders(environment.get(_OTLP_HEADERS, ""))
        named = environment.get(_OTLP_PLACE, "").strip()
        if named:
            try:
                place = _url(named)
            except ValueError as error:
                raise OptionError(f"the variable {_OTLP_PLACE} {error}") from None
    endpoint = options.endpoint
    if endpoint is None:
        # The variable names a server: other signals than traces have other paths there.
        endpoint = place.rstrip("/") + path
    elif urlsplit(endpoint).path in ("", "/"):
        endpoint = endpoint.rstrip("/") + path
    return Collector(
        provider=provider,
        endpoint=endpoint,
        headers=headers,
        serviceName=options.serviceName or environment.get(_SERVICE_NAME) or None,
        timeoutSeconds=options.timeoutMs / 1000,
    )


def _listedHeaders(text: str) -> Mapping[str, str]:
    """Read C{name=value,name=value}, the values escaped as in URLs."""
    from urllib.parse import unquote

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
            raise OptionError(
                f"the option tracing.enabled needs {name}: pip install 'storagegate[tracing]'"
            )
