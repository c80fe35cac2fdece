"""An application as the leaf of a site: the way in, and the answers of last resort."""

import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.http.dispatch import RequestDispatch, RouterDispatch
from storagegate.http.errors import bodyTooLarge, statusOf
from storagegate.http.request import HTTPRequest
from storagegate.http.response import HTTPResponse
from storagegate.net.http.interfaces import BadRequest
from storagegate.net.http.message import ChannelRequest as LeanRequest
from storagegate.net.http.resource import NativeResource

_JSON_TYPE = b"application/json; charset=utf-8"

_PLAIN_ERROR = b'{"error":"Internal Server Error"}'

# Sent in answer to OPTIONS *, which is about the server and not about a path.
_SERVER_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

# What described the body that an error takes the place of. The rest stays: CORS fields, cookies.
_BODY_FIELDS = (
    "content-type",
    "content-length",
    "content-encoding",
    "content-language",
    "content-range",
    "content-disposition",
    "transfer-encoding",
    "etag",
    "last-modified",
    "cache-control",
    "accept-ranges",
)

_log = Logger()


def describeRejection(error: BadRequest) -> tuple[bytes, bytes]:
    """Give the content type and the body of an answer to what never reaches an application."""
    return _JSON_TYPE, msgspec.json.encode({"error": error.text})


class AppResource(NativeResource):
    """
    Lets an application answer.

    @ivar app: The application; may be exchanged while requests are being answered.
    """

    def __init__(self, app: Any) -> None:
        self.app = app

    def answer(self, lean: LeanRequest) -> None:
        """Send a request on its way through the application."""
        app = self.app
        request = HTTPRequest(lean, app)
        passage = RequestDispatch(request, None, _end)
        run = RouterDispatch(app, passage, request.path)
        request.res = passage.response = HTTPResponse(lean, app, request)
        lean.answerer = run
        length, limit = lean.contentLength, app.settings.maxRequestBodySize
        if limit is not None and length is not None and length > limit:
            run.next(bodyTooLarge(limit, length))
        else:
            run.next()


def _end(passage: RequestDispatch, error: object) -> None:
    """Answer what no handler has answered."""
    request, response = passage.request, passage.response
    try:
        if error is not None:
            _answerError(request, response, error)
        elif response.finished or response.headersSent or request.lean.disconnected:
            # It was answered by a handler that went on nevertheless.
            pass
        elif passage.allowed and not passage.matched:
            _answerAllowed(request, response, _allowed(passage.allowed))
        elif request.method == "OPTIONS" and request.path == "*":
            _answerAllowed(request, response, _SERVER_METHODS)
        else:
            path = request.lean.path.decode("ascii")
            shape = {"error": "Not Found", "path": path, "method": request.method}
            response.status(404)
            _answerShape(request, response, shape)
    except Exception:
        # Hooks of middleware fail here too.
        _log.failure("the answer of last resort failed")
        _answerPlainly(request.lean)


def _answerPlainly(lean: LeanRequest) -> None:
    """Say that something is wrong, without any of the fields and hooks that may be it."""
    if lean.started:
        lean.abort()
    else:
        lean.respond(500, [(b"Content-Type", _JSON_TYPE)], _PLAIN_ERROR)


def _allowed(methods: Sequence[str]) -> str:
    listed = list(dict.fromkeys(methods))
    if "GET" in listed and "HEAD" not in listed:
        listed.insert(listed.index("GET") + 1, "HEAD")
    return ", ".join(listed)


def _answerAllowed(request: HTTPRequest, response: HTTPResponse, allow: str) -> None:
    response.header("Allow", allow)
    if request.method == "OPTIONS":
        response.status(200).type("txt").send(allow)
    else:
        response.status(405).json({"error": "Method Not Allowed"})


def _answerError(request: HTTPRequest, response: HTTPResponse, error: object) -> None:
    """Answer an error that no handler has taken."""
    lean = request.lean
    told = statusOf(error)
    status = told or 500
    if lean.disconnected:
        # A body that is cut short, say, is the client's doing, and nobody is left to be told.
        if status >= 500:
            _report("a handler failed after its client had gone", error)
        return
    if not response.reopen():
        _report("a handler failed after its response had begun", error)
        if not lean.finished:
            lean.abort()
        return
    if status >= 500:
        _report("a handler failed", error)
    for name in _BODY_FIELDS:
        response.remove(name)
    headers = getattr(error, "headers", None)
    if isinstance(headers, Mapping):
        response.header(headers)
    response.status(status)
    _answerShape(request, response, _shape(request, error, told))


def _answerShape(request: HTTPRequest, response: HTTPResponse, shape: dict[str, Any]) -> None:
    """Tell what is wrong, as JSON; in development a browser gets a page that can be reloaded."""
    development = request.app.settings.development
    if development and development.hmr and request.accepts("json", "html") == "html":
        from storagegate.http.development.console import errorPage

        response.html(errorPage(response.statusCode, shape))
    else:
        response.json(shape)


def _shape(request: HTTPRequest, error: object, told: int | None) -> dict[str, Any]:
    """
    Describe an error to the client.

    @param told: The status that the error asks for; without one its text is not for the client.
    """
    shape: dict[str, Any] = {"error": (told and str(error)) or request.res.phrase}
    development = request.app.settings.development and request.res.statusCode >= 500
    if development and isinstance(error, BaseException):
        shape["traceback"] = traceback.format_exception(error)
    return shape


def _report(text: str, error: object) -> None:
    if isinstance(error, BaseException):
        _log.failure(text, Failure(error))
    else:
        # As an exception is: a script that has set up no log still prints it.
        _log.critical("{text}: {error!r}", text=text, error=error)
