"""
HTTP: its options, its metrics, and its configured routes.

A route is C{"GET /users/:id": "UserService.GetUser"}. The request of the method is the query, then
the body, then the parameters of the path; later ones win. All but the body is text, so where the
method's schema has a number, a truth value or a list, the text is read as that.
"""

import re
from collections.abc import Mapping
from typing import Any, TypedDict

from attrs import field, frozen
from attrs.converters import optional

from storagegate.core.options import (
    Hook,
    optionField,
    readFlag,
    readFunction,
    readNames,
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
from storagegate.net.tls import ServerTLSOptions, TLSOptionsDict, readTLS
from storagegate.telemetry.metrics import MetricsRegistry

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""What a route may be for. HEAD comes with GET, OPTIONS is answered for every route."""

BODILESS = ("GET", "DELETE")
"""Those of them whose body has no meaning (RFC 9110 sections 9.3.1 and 9.3.5)."""

_KEY = re.compile(r"([A-Za-z]+)[ \t]+(/\S*)")
_TARGET = re.compile(r"([^\s/]+)\.([^\s/.]+)")


@frozen
class HTTPRoute:
    """
    A configured route.

    @ivar verb: The method of HTTP.
    @ivar path: The pattern of the path.
    @ivar method: The name of the method without its service.
    """

    verb: str
    path: str
    service: str
    method: str

    @property
    def takesBody(self) -> bool:
        """Return whether the body of a request counts."""
        return self.verb not in BODILESS


def readRoutes(routes: Mapping[str, str]) -> tuple[HTTPRoute, ...]:
    """
    Read configured routes.

    @param routes: C{"METHOD /path"} to C{"Service.method"}.
    @raise ValueError: If one is none; the message is the rest of a sentence about them.
    """
    return tuple(_readRoute(key, target) for key, target in routes.items())


def _readRoute(key: str, target: str) -> HTTPRoute:
    match = _KEY.fullmatch(key.strip())
    verb = match[1].upper() if match is not None else ""
    if match is None or verb not in METHODS:
        raise ValueError(f'have keys such as "GET /users/:id", not {key!r}')
    # The last dot: a service may have some in its name, as in "user.UserService".
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

    @param query: Parameters of the query, as text.
    @param body: The decoded body.
    @param params: Parameters of the path; C{None} for an absent one.
    @param schema: The plain JSON Schema of the request.
    """
    named = {
        name: value for name, value in params.items() if isinstance(name, str) and value is not None
    }
    return {**convertTexts(query, schema), **body, **convertTexts(named, schema)}


PROTOCOL = "http"
"""The name of this transport."""

BEARER_SCHEME: Mapping[str, str] = {"type": "http", "scheme": "bearer"}
"""Bearer tokens as a security scheme of OpenAPI: authentication of HTTP (RFC 6750)."""


def _routes(value: Any) -> Mapping[str, str]:
    routes = readNames(value)
    readRoutes(routes)
    return routes


@frozen(kw_only=True)
class HTTPOptions:
    """
    How services are called over HTTP.

    @ivar basePath: Where they are: C{POST {basePath}/{Service}/{method}}.
    @ivar tls: The certificate of the listener, and whether clients need one; C{None} for clear
        text.
    @ivar enableCORS: Whether pages of every origin may call.
    @ivar routes: Further paths, C{"GET /users/:id"} to C{"UserService.GetUser"}; they are below
        C{basePath}, too.
    @ivar transformRequest: C{(req, method)} gives the request; the body is C{req.body}.
    @ivar transformResponse: C{(result, method, req)} gives what is sent.
    @ivar maxRequestBodySize: Bytes of a request, or of one line of a stream of them.
    @ivar docs: Whether C{basePath/docs} is a page that shows the services and calls them.
    """

    basePath: str = optionField("/api", readPath)
    tls: ServerTLSOptions | None = field(default=None, converter=readTLS)
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
    enableCORS: bool
    routes: Mapping[str, str]
    transformRequest: Hook | None
    transformResponse: Hook | None
    maxRequestBodySize: int | str
    docs: bool


AGENT_FAMILIES = (
    # The first match counts: browsers name others for compatibility, robots the browser that they
    # run, and Amazon's tools their libraries.
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
"""The parts of user agents that name a family of clients: a bounded set, as user agents are not."""


def countResponse(meter: TransportMetrics, status: int, agent: bytes) -> None:
    """
    Count a response, and the family of its client.

    @param status: The status code sent; 499 if the client left before.
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
    # The name is within the first 200 bytes, also of a browser.
    text = agent[:200].decode("latin-1").lower()
    for part, family in AGENT_FAMILIES:
        if part in text:
            return family
    return "other"


def _countStatus(
    meters: MetricsRegistry, counts: TransportMetrics, streaming: Streaming | None
) -> None:
    counts.responses = meters.counter(
        "storagegate_http_responses_total", "Answers by status.", ("status",)
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
