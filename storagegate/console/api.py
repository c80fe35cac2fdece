"""
The API of the console as a router: a typed route for each row of the table.

A request passes these handlers::

    begin     header fields of every response
    admit     the principal and its role; the JSON document, for an operation that has one
    run       the handler of the operation, with query and document of their types

Errors go to L{ConsoleAPI._refuse}, which converts and logs them.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from twisted.logger import Logger

from storagegate.console.call import ANSWERED, ConsoleCall, Principal
from storagegate.console.errors import asServiceError
from storagegate.console.operations import OPERATIONS, APIOperation
from storagegate.console.services import ConsoleServices
from storagegate.core.errors import ServiceError, codedError
from storagegate.http.dispatch import MiddlewareHandler
from storagegate.http.errors import HTTPError
from storagegate.http.middleware.bodyparser import json
from storagegate.http.router import Router
from storagegate.net.http.message import READY, Completed
from storagegate.objects.errors import DomainError
from storagegate.services.objects import domainErrors
from storagegate.storage.errors import StoreError
from storagegate.telemetry.tracecontext import tracingOfFields

Authenticate = Callable[[Any, APIOperation], Awaitable[Principal | None]]
"""Returns the principal of a request for an operation, or raises C{ServiceError}."""

_DOCUMENT_LIMIT = 1 << 20
"""Largest JSON document, in bytes; object contents are streamed instead."""

_EMPTY_SEGMENT = re.compile(r"/(?=/|$)")

_DOTS = re.compile(r"~+\.{1,2}")


def _ready() -> Completed:
    return READY


_parseDocument = json(limit=_DOCUMENT_LIMIT, strict=False, type=lambda req: True)


class MethodNotAllowed(ServiceError):
    """
    The path exists, but not with this method: the status is 405.

    @ivar headers: C{Allow}, which RFC 9110 section 15.5.6 requires.
    """

    def __init__(self, methods: Sequence[str]) -> None:
        allowed = ", ".join([*methods, "HEAD"] if "GET" in methods else methods)
        super().__init__("METHOD_NOT_ALLOWED", f"This path supports {allowed}", 405)
        self.headers = {"Allow": allowed}


class ConsoleAPI:
    """
    The routes of the API.

    @ivar router: To be mounted at L{PREFIX<storagegate.console.operations.PREFIX>}.
    """

    _log = Logger()

    def __init__(self, services: ConsoleServices, authenticate: Authenticate) -> None:
        self._services = services
        self._authenticate = authenticate
        self.router = Router(caseSensitive=True, strict=True)
        self.router.use(self._begin)
        for operation in OPERATIONS:
            getattr(self.router, operation.method.lower())(
                operation.pattern,
                self._admission(operation),
                self._run,
                query=operation.queryType,
                body=operation.bodyType,
                response=operation.resultType,
                openapi=operation.describe,
            )
        self.router.use(self._refuseUnknown)
        self.router.use(self._refuse)

    def _begin(self, req: Any, res: Any, next: Any) -> Any:
        res.header("Cache-Control", "no-store")
        res.header("X-Trace-Id", tracingOfFields(req.raw.headers).traceId)
        return next()

    def _admission(self, operation: APIOperation) -> MiddlewareHandler:
        """
        Make the middleware that finds the principal, checks its role, and reads the JSON document.

        It raises C{UNAUTHENTICATED}, C{PERMISSION_DENIED} or C{INVALID_ARGUMENT}.
        """

        async def admit(req: Any, res: Any, next: Any) -> None:
            with domainErrors():
                principal = await self._authenticate(req, operation)
            params = {name: _unescaped(text) for name, text in req.params.items()}
            call = ConsoleCall(req, res, operation, params, self._services, principal)
            req.call = call
            if operation.least:
                call.require(operation.least)
            if "query" not in operation.types and req.query:
                name, *_ = req.query
                raise codedError("INVALID_ARGUMENT", f"{name}: there is no such parameter")
            if "body" in operation.types:
                if req.raw.contentLength == 0:
                    raise codedError("INVALID_ARGUMENT", "The body must be a JSON document")
                await _parseDocument(req, res, _ready)
            await next()
            # Without a line the client has disconnected: neither a result nor an error was sent.
            self._logChange(call, "CANCELLED")
            # No cycle is left to the garbage collector.
            req.call = None

        return admit

    async def _run(self, req: Any, res: Any) -> None:
        call: ConsoleCall = req.call
        operation = call.operation
        arguments = {}
        if "query" in operation.types:
            arguments["query"] = req.query
        if "body" in operation.types:
            arguments["body"] = req.body
        with domainErrors():
            result = await operation.function(call, **arguments)
        self._logChange(call, "done")
        # Sent here rather than returned: results are of our own types, and a check of a page of
        # 1,000 objects takes as long as the page.
        if result is ANSWERED:
            return
        if result is None:
            res.status(204).end()
        else:
            res.json(msgspec.to_builtins(result))

    def _refuseUnknown(self, req: Any, res: Any) -> None:
        """
        Refuse a request without a route.

        @raise ServiceError: C{NOT_FOUND}, C{INVALID_ARGUMENT}, or L{MethodNotAllowed}.
        """
        methods = self.router.getAllowedMethods(req.path)
        if methods:
            raise MethodNotAllowed(methods)
        filled = _EMPTY_SEGMENT.sub("/-", req.path)
        if filled != req.path and self.router.getAllowedMethods(filled):
            raise codedError("INVALID_ARGUMENT", "A segment of the path is empty")
        raise codedError("NOT_FOUND", "The API has no such operation")

    def _refuse(self, error: Any, req: Any, res: Any, next: Any) -> Any:
        """Convert an error to the one that the client gets, and log it."""
        call: ConsoleCall | None = getattr(req, "call", None)
        req.call = None
        refused = _asServiceError(error)
        if call is not None:
            self._logChange(call, "INTERNAL_ERROR" if refused is None else refused.code)
            if refused is None:
                self._log.error(
                    "console: {operation} failed, trace {trace}: {error!r}",
                    operation=call.operation.name,
                    trace=res.get("X-Trace-Id"),
                    error=error,
                )
        return next(error if refused is None else refused)

    def _logChange(self, call: ConsoleCall, outcome: str) -> None:
        """
        Log a change, or an attempt at one, with its principal, once.

        @param outcome: C{done}, or the code of the error.
        """
        if call.isLogged or not call.operation.changes:
            return
        call.isLogged = True
        principal = call.principal
        self._log.info(
            "console: {operation} {params} by {who} from {address}, trace {trace}: {outcome}",
            operation=call.operation.name,
            params={**call.params, **call.noted},
            who="-" if principal is None else principal.identity.accessKey,
            address=call.address,
            # The page shows it with an error.
            trace=call.response.get("X-Trace-Id"),
            outcome=outcome,
        )


def _unescaped(segment: str) -> str:
    """
    Remove the tilde before C{.} or C{..}. Browsers resolve these segments, escaped or not, as steps
    in the path, so both may be written with a leading tilde; a name that already has this form gets
    one more.
    """
    return segment[1:] if _DOTS.fullmatch(segment) else segment


def _asServiceError(error: Any) -> ServiceError | None:
    """Return the error that the client gets; L{None} for an internal error."""
    if isinstance(error, ServiceError):
        if error.code == "VALIDATION_ERROR":
            return codedError("INVALID_ARGUMENT", error.message, error.details)
        return error
    if isinstance(error, DomainError | StoreError):
        return asServiceError(error)
    if isinstance(error, HTTPError) and error.status < 500:
        # The body is too long, or was cut short.
        code = "PAYLOAD_TOO_LARGE" if error.status == 413 else "INVALID_ARGUMENT"
        return ServiceError(code, error.message, error.status)
    return None
