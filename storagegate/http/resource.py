"""An application as the leaf resource of a site, and the default responses."""

import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.core.errors import ServiceError, errorBody
from storagegate.http.dispatch import WEBSOCKET, RequestDispatch, RouterDispatch
from storagegate.http.errors import bodyTooLarge, statusOf
from storagegate.http.fields import BODY_FIELDS
from storagegate.http.request import HTTPRequest
from storagegate.http.response import HTTPResponse
from storagegate.net.http.interfaces import BadRequest
from storagegate.net.http.message import ChannelRequest
from storagegate.net.http.site import NativeResource
from storagegate.net.websocket.handshake import UPGRADE_FIELDS, isUpgrade

_JSON_TYPE = b"application/json; charset=utf-8"

_PLAIN_ERROR = b'{"error":"Internal Server Error"}'

# The response to OPTIONS *, which concerns the server and not a path.
_SERVER_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

_log = Logger()


def describeRejection(error: BadRequest) -> tuple[bytes, bytes]:
    """Return the content type and the body of the response to a malformed request."""
    return _JSON_TYPE, msgspec.json.encode({"error": error.text})


class AppResource(NativeResource):
    """
    An application as a resource.

    @ivar app: The application; may be replaced while requests are in flight.
    """

    def __init__(self, app: Any) -> None:
        self.app = app

    def answer(self, raw: ChannelRequest) -> None:
        """Dispatch a request through the application."""
        app = self.app
        request = HTTPRequest(raw, app)
        request.res = response = HTTPResponse(raw, app, request)
        dispatch = RequestDispatch(request, response, _end)
        if b"upgrade" in raw.headers:
            dispatch.isWebSocket = raw.method == b"GET" and isUpgrade(raw.headers)
        run = RouterDispatch(app, dispatch, request.path)
        raw.handlerState = run
        length, limit = raw.contentLength, app.settings.maxRequestBodySize
        if limit is not None and length is not None and length > limit:
            run.next(bodyTooLarge(limit, length))
        else:
            run.next()


def _end(dispatch: RequestDispatch, error: object) -> None:
    """Respond to a request that no handler has responded to."""
    request, response = dispatch.request, dispatch.response
    try:
        if error is not None:
            _respondError(request, response, error)
        elif response.finished or response.headersSent or request.raw.disconnected:
            # A handler has responded and also called next().
            pass
        elif dispatch.allowed and not dispatch.matched:
            _respondAllowed(request, response, dispatch.allowed)
        elif request.method == "OPTIONS" and request.path == "*":
            _respondAllowed(request, response, _SERVER_METHODS)
        else:
            path = request.raw.path.decode("ascii")
            shape = {"error": "Not Found", "path": path, "method": request.method}
            response.status(404)
            _respondShape(request, response, shape)
    except Exception:
        # Hooks of middleware may also fail here.
        _log.failure("the fallback response failed")
        if request.raw.started:
            request.raw.abort()
        else:
            # Without the fields and hooks, any of which may have failed.
            request.raw.respond(500, [(b"Content-Type", _JSON_TYPE)], _PLAIN_ERROR)


def _respondAllowed(request: HTTPRequest, response: HTTPResponse, methods: Sequence[str]) -> None:
    if WEBSOCKET in methods and request.method in ("GET", "HEAD"):
        response.status(426).header(UPGRADE_FIELDS).json({"error": "This is a WebSocket"})
        return
    listed = list(dict.fromkeys(methods))
    if "GET" in listed and "HEAD" not in listed:
        listed.insert(listed.index("GET") + 1, "HEAD")
    listed = list(dict.fromkeys("GET" if method == WEBSOCKET else method for method in listed))
    allow = ", ".join(listed)
    response.header("Allow", allow)
    if request.method == "OPTIONS":
        response.status(200).type("txt").send(allow)
    else:
        response.status(405).json({"error": "Method Not Allowed"})


def _respondError(request: HTTPRequest, response: HTTPResponse, error: object) -> None:
    """Respond to an error that no handler has caught."""
    raw = request.raw
    own = statusOf(error)
    status = own or 500
    if raw.disconnected:
        # No response can reach the client; a truncated body, for example, is not a server error.
        if status >= 500:
            _report(raw, "a handler failed after its client had disconnected", error)
        return
    if not response.reopen():
        _report(raw, "a handler failed after its response had begun", error)
        if not raw.finished:
            raw.abort()
        return
    if status >= 500:
        _report(raw, "a handler failed", error)
    for name in BODY_FIELDS:
        response.remove(name)
    headers = getattr(error, "headers", None)
    if isinstance(headers, Mapping):
        response.header(headers)
    response.status(status)
    _respondShape(request, response, _shape(request, error, own))


def _respondShape(request: HTTPRequest, response: HTTPResponse, shape: dict[str, Any]) -> None:
    """Send an error as JSON; in development a browser gets a page that reloads itself."""
    development = request.app.settings.development
    if development and development.hmr and request.accepts("json", "html") == "html":
        from storagegate.http.development.console import errorPage

        response.html(errorPage(response.statusCode, shape))
    else:
        response.json(shape)


def _shape(request: HTTPRequest, error: object, status: int | None) -> dict[str, Any]:
    """
    Describe an error to the client.

    @param status: The error's own status; without one, its text is not sent to the client.
    """
    shape: dict[str, Any] = {"error": (status and str(error)) or request.res.phrase}
    if isinstance(error, ServiceError):
        shape = errorBody(error)
    development = request.app.settings.development and request.res.statusCode >= 500
    if development and isinstance(error, BaseException):
        shape["traceback"] = traceback.format_exception(error)
    return shape


def _report(raw: ChannelRequest, text: str, error: object) -> None:
    # Without the query, which may contain secrets.
    name = f"{raw.method.decode('ascii')} {raw.path.decode('ascii')}"
    if isinstance(error, BaseException):
        _log.failure("{name}: {text}", Failure(error), name=name, text=text)
    else:
        # Critical, as for an exception: a script that has not set up a log still prints it.
        _log.critical("{name}: {text}: {error!r}", name=name, text=text, error=error)
