"""
HTTP: its options, its metrics, and its configured routes.

A route is C{"GET /users/:id": "UserService.GetUser"}. The request of the method merges the query,
the body and the path parameters; later ones take precedence. Query and path parameters are text,
which is parsed where the method's schema has a number, a boolean or a list.
"""

import re
from collections.abc import Mapping
from typing import Any, TypedDict

from attrs import field, frozen
from attrs.converters import optional
from msgspec import Struct

from storagegate.core.options import (
    Hook,
    optionField,
    readFlag,
    readFunction,
    readNames,
    readNumber,
    readPath,
    readSize,
)
from storagegate.core.schemas import convertTexts
from storagegate.gateway.transports.metrics import (
    ProtocolMetric,
    Streaming,
    TransportMetrics,
    byLabel,
)
from storagegate.net.http.interfaces import MAX_STREAMS
from storagegate.net.tls import ServerTLSOptions, TLSOptionsDict, readTLS
from storagegate.telemetry.metrics import MetricsRegistry

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""The HTTP methods of routes. GET includes HEAD, and OPTIONS is answered for every route."""

BODILESS = ("GET", "DELETE")
"""The methods whose body has no meaning (RFC 9110 sections 9.3.1 and 9.3.5)."""

_KEY = re.compile(r"([A-Za-z]+)[ \t]+(/\S*)")
_TARGET = re.compile(r"([^\s/]+)\.([^\s/.]+)")


class HTTPRoute(Struct, frozen=True):
    """
    A configured route.

    @ivar verb: The HTTP method.
    @ivar path: The pattern of the path.
    @ivar method: The name of the method without its service.
    """

    verb: str
    path: str
    service: str
    method: str

    @property
    def takesBody(self) -> bool:
        """Return whether the body of a request is read."""
        return self.verb not in BODILESS


def readRoutes(routes: Mapping[str, str]) -> tuple[HTTPRoute, ...]:
    """
    Read configured routes.

    @param routes: C{"METHOD /path"} to C{"Service.method"}.
    @raise ValueError: If a route is invalid; the message is a predicate about the routes.
    """
    return tuple(_readRoute(key, target) for key, target in routes.items())


def _readRoute(key: str, target: str) -> HTTPRoute:
    match = _KEY.fullmatch(key.strip())
    verb = match[1].upper() if match is not None else ""
    if match is None or verb not in METHODS:
        raise ValueError(f'have keys such as "GET /users/:id", not {key!r}')
    # Split at the last dot: the name of a service may contain dots, as in "user.UserService".
    found = _TARGET.fullmatch(target)
    if found is None:
        raise ValueError(f'have values such as "UserService.GetUser", not {target!r}')
    return HTTPRoute(verb, match[2], found[1], found[2])


def mergeRequest(
    query: Mapping[str, Any],
    body: Mapping[str, Any],
    params: Mapping[Any, Any],
    schema: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """
    Make the request of a configured route.

    @param query: The query parameters, as text.
    @param body: The decoded body.
    @param params: The path parameters; C{None} for an absent one.
    @param schema: The plain JSON Schema of the request.
    @raise ServiceError: C{VALIDATION_ERROR} if a text is no value of its type.
    """
    texts = {name: value for name, value in query.items() if name not in body}
    # A parameter of the path also replaces a member of the body.
    texts |= {
        name: value for name, value in params.items() if isinstance(name, str) and value is not None
    }
    return {**body, **convertTexts(texts, schema)}


PROTOCOL = "http"
"""The name of this transport."""

BEARER_SCHEME: Mapping[str, str] = {"type": "http", "scheme": "bearer"}
"""Bearer tokens (RFC 6750) as a security scheme of OpenAPI."""


def _routes(value: Any) -> Mapping[str, str]:
    routes = readNames(value)
    readRoutes(routes)
    return routes


@frozen(kw_only=True)
class HTTPOptions:
    """
    The options of calls over HTTP.

    @ivar basePath: The prefix of paths: C{POST {basePath}/{Service}/{method}}.
    @ivar tls: The certificate of the listener, and whether clients need one; C{None} for plain
        text.
    @ivar http2: Whether clients may speak HTTP/2 on the listener.
    @ivar http2MaxStreams: The maximum number of open streams of a connection of HTTP/2.
    @ivar enableCORS: Whether pages of any origin may make calls.
    @ivar routes: Further paths, C{"GET /users/:id"} to C{"UserService.GetUser"}; they are also
        served below C{basePath}.
    @ivar transformRequest: C{(req, method)} returns the request; the body is C{req.body}.
    @ivar transformResponse: C{(result, method, req)} returns the response to send.
    @ivar maxRequestBodySize: The maximum length of a request, or of one line of a stream, in bytes.
    @ivar docs: Whether to serve a page at C{basePath/docs} that documents and calls the services.
    """

    basePath: str = optionField("/api", readPath)
    tls: ServerTLSOptions | None = field(default=None, converter=readTLS)
    http2: bool = optionField(True, readFlag)
    http2MaxStreams: int = optionField(100, readNumber, 1, MAX_STREAMS, "streams")
    enableCORS: bool = optionField(False, readFlag)
    routes: Mapping[str, str] = field(factory=dict, converter=_routes)
    transformRequest: Hook | None = field(default=None, converter=optional(readFunction))
    transformResponse: Hook | None = field(default=None, converter=optional(readFunction))
    maxRequestBodySize: int = optionField(10 * 1024 * 1024, readSize)
    docs: bool = optionField(True, readFlag)


class HTTPOptionsDict(TypedDict, total=False):
    """The keywords of L{HTTPOptions}."""

    basePath: str
    tls: TLSOptionsDict | ServerTLSOptions | None
    http2: bool
    http2MaxStreams: int
    enableCORS: bool
    routes: Mapping[str, str]
    transformRequest: Hook | None
    transformResponse: Hook | None
    maxRequestBodySize: int | str
    docs: bool


AGENT_FAMILIES = (
    # The first match counts: browsers name other browsers for compatibility, robots name the
    # browser that they run, and Amazon's tools name their libraries.
    ("aws-", "aws"),
    ("boto", "python"),
    ("bot", "bot"),
    ("edg", "edge"),
    ("opr/", "opera"),
    ("firefox", "firefox"),
    ("chrome", "chrome"),
    ("safari", "safari"),
    ("curl", "curl"),
    ("wget", "wget"),
    ("python", "python"),
    ("aiohttp", "python"),
    ("okhttp", "java"),
    ("java", "java"),
    ("node", "node"),
    ("axios", "node"),
    ("undici", "node"),
    ("go-http", "go"),
    ("kube-probe", "kubernetes"),
    ("prometheus", "prometheus"),
)
"""Parts of user agents that identify a family of clients: a bounded set, unlike user agents."""


def countResponse(meter: TransportMetrics, status: int, agent: bytes) -> None:
    """
    Count a response, and the family of its client.

    @param status: The status code sent; 499 if the client disconnected first.
    @param agent: The field C{User-Agent}; empty if it is absent.
    """
    if meter.responses is not None:
        meter.responses.add(1, (str(status),))
    if meter.agents is not None:
        meter.agents.add(1, (agentFamily(agent),))


def agentFamily(agent: bytes) -> str:
    """
    Return the family of a user agent.

    @param agent: The field C{User-Agent}; empty if it is absent.
    """
    if not agent:
        return "none"
    # The name is within the first 200 bytes, even for a browser.
    text = agent[:200].decode("latin-1").lower()
    for part, family in AGENT_FAMILIES:
        if part in text:
            return family
    return "other"


def _countStatus(
    meters: MetricsRegistry, counts: TransportMetrics, streaming: Streaming | None
) -> None:
    counts.responses = meters.counter(
        "storagegate_http_responses_total", "Responses by status.", ("status",)
    )


def _countAgents(
    meters: MetricsRegistry, counts: TransportMetrics, streaming: Streaming | None
) -> None:
    counts.agents = meters.counter(
        "storagegate_http_user_agents_total", "Requests by family of clients.", ("family",)
    )


METRICS = (
    ProtocolMetric(name="status_codes", start=_countStatus, view=byLabel("http_responses_total")),
    ProtocolMetric(name="user_agents", start=_countAgents, view=byLabel("http_user_agents_total")),
)
