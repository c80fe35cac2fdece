"""HTTP: its options, and what OpenAPI calls its authentication."""

from collections.abc import Mapping
from typing import Any, TypedDict

from attrs import field, frozen
from attrs.converters import optional

from storagegate.core.options import Hook, readFlag, readFunction, readNames, readPath, readSize
from storagegate.gateway.transports.http.routes import readRoutes

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
    @ivar enableCORS: Whether pages of every origin may call.
    @ivar routes: Further places, C{"GET /users/:id"} to C{"UserService.GetUser"}; they are below
        C{basePath}, too.
    @ivar transformRequest: C{(req, method)} gives the request; the body is C{req.body}.
    @ivar transformResponse: C{(result, method, req)} gives what is sent.
    @ivar maxRequestBodySize: Bytes of a request, or of one line of a stream of them.
    """

    basePath: str = field(default="/api", converter=readPath)
    enableCORS: bool = field(default=False, converter=readFlag)
    routes: Mapping[str, str] = field(factory=dict, converter=_routes)
    transformRequest: Hook | None = field(default=None, converter=optional(readFunction))
    transformResponse: Hook | None = field(default=None, converter=optional(readFunction))
    maxRequestBodySize: int = field(default=10 * 1024 * 1024, converter=readSize)


class HTTPOptionsDict(TypedDict, total=False):
    """The keywords of L{HTTPOptions}."""

    basePath: str
    enableCORS: bool
    routes: Mapping[str, str]
    transformRequest: Hook | None
    transformResponse: Hook | None
    maxRequestBodySize: int | str
