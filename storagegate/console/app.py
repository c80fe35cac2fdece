"""
The console as an application: guard, API, pages.

The application looks up the operation in the table, authenticates the principal by the two halves
of the session or by a key pair in the headers, then runs the handler.
"""

from typing import Any

import msgspec
from twisted.logger import Logger

from storagegate.auth.keyheaders import ACCESS_HEADER, SECRET_HEADER
from storagegate.console.call import ANSWERED, ConsoleCall, Principal
from storagegate.console.errors import asServiceError
from storagegate.console.guard import FIELDS, Guard, SignInThrottle, makeOriginCheck
from storagegate.console.operations import PREFIX, APIOperation, findOperation
from storagegate.console.pages import servePages
from storagegate.console.services import ConsoleServices
from storagegate.console.sessions import ConsoleSessions
from storagegate.core.errors import ServiceError, codedError
from storagegate.http.application import Application
from storagegate.http.errors import HTTPError
from storagegate.http.request import HTTPRequest
from storagegate.http.response import HTTPResponse
from storagegate.net.forwarded import compileTrust
from storagegate.objects.errors import DomainError
from storagegate.services.objects import domainErrors
from storagegate.storage.errors import StoreError
from storagegate.telemetry.tracecontext import tracingOfFields

COOKIE = "storagegate-console"

TOKEN_HEADER = "x-console-token"

_SESSION_TOKEN_HEADER = "x-amz-security-token"

_NO_SESSION_TOKENS = (
    "Temporary keys are not supported: use the pair of a permanent key, without a session token"
)

_DOCUMENT_LIMIT = 1 << 20
"""Largest JSON document, in bytes; object contents are streamed instead."""


class Console:
    """
    The application of the console and its state.

    @ivar app: The application.
    @ivar guard: Checks hosts and connections.
    @ivar sessions: The sessions of signed-in clients.
    @ivar throttle: Limits failed attempts to sign in.
    """

    _log = Logger()

    def __init__(self, services: ConsoleServices, guard: Guard) -> None:
        self.services = services
        self.guard = guard
        self.sessions = ConsoleSessions(
            services.daemon.dataDirectory, services.store.pool, services.now
        )
        self.throttle = SignInThrottle.make(services.makeRates, services.now)
        services.kept["console"] = self
        services.monitor.begin()
        self.app = Application()
        self.app.trust = compileTrust(services.options.trustedProxies)
        self.app.use(self._protect)
        self.app.use(makeOriginCheck(services.options))
        self.app.use("/" + PREFIX.rstrip("/"), self._answer)
        servePages(self.app)

    async def close(self) -> None:
        """Close streams, jobs and the file of sessions."""
        live = self.services.kept.pop("live", None)
        if live is not None:
            live.close()
        jobs = self.services.kept.pop("jobs", None)
        if jobs is not None:
            await jobs.close()
        await self.sessions.close()

    def _protect(self, req: HTTPRequest, res: HTTPResponse, next: Any) -> Any:
        res.header(FIELDS)
        try:
            self.guard.checkHost(req)
        except ServiceError as error:
            return next(error)
        return next()

    async def _answer(self, req: HTTPRequest, res: HTTPResponse, next: Any) -> None:
        res.header("Cache-Control", "no-store")
        trace = tracingOfFields(req.raw.headers).traceId
        res.header("X-Trace-Id", trace)
        operation, params = findOperation(req.method, req.path.removeprefix("/"))
        principal = await self._principal(req, operation)
        call = ConsoleCall(req, res, operation, params, self.services, principal)
        try:
            if operation.least:
                call.require(operation.least)
            with domainErrors():
                result = await operation.function(call, **await self._arguments(req, operation))
        except Exception as error:
            refused = _asServiceError(error)
            self._logChange(call, trace, "INTERNAL_ERROR" if refused is None else refused.code)
            if refused is None:
                self._log.error(
                    "console: {operation} failed, trace {trace}: {error!r}",
                    operation=operation.name,
                    trace=trace,
                    error=error,
                )
                raise
            raise refused from error
        self._logChange(call, trace)
        if result is ANSWERED:
            return
        if result is None:
            res.status(204).end()
        else:
            res.json(msgspec.to_builtins(result))

    async def _arguments(self, req: HTTPRequest, operation: APIOperation) -> dict[str, Any]:
        """
        Read the arguments of a handler.

        @raise ServiceError: C{INVALID_ARGUMENT}.
        """
        arguments: dict[str, Any] = {}
        types = operation.types
        try:
            if "query" in types:
                query = dict(req.query.items())
                arguments["query"] = msgspec.convert(query, types["query"], strict=False)
            if "body" in types:
                body = await req.read(_DOCUMENT_LIMIT)
                arguments["body"] = msgspec.json.decode(body, type=types["body"])
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise codedError("INVALID_ARGUMENT", str(error)) from error
        except RecursionError:
            raise codedError("INVALID_ARGUMENT", "The document is nested too deeply") from None
        return arguments

    async def _principal(self, req: HTTPRequest, operation: APIOperation) -> Principal | None:
        """
        Find the principal of a request.

        @raise ServiceError: C{UNAUTHENTICATED}.
        """
        accessKey = req.get(ACCESS_HEADER.decode())
        if accessKey is not None:
            self.guard.checkClear(req)
            if req.get(_SESSION_TOKEN_HEADER) is not None:
                raise codedError("UNAUTHENTICATED", _NO_SESSION_TOKENS)
            return await self.prove(accessKey, req.get(SECRET_HEADER.decode()) or "", req.ip)
        found = await self.session(req)
        if found is None and operation.least:
            raise codedError("UNAUTHENTICATED", "Not signed in")
        return found

    async def session(self, req: HTTPRequest) -> Principal | None:
        """Return the principal of the session of a request; L{None} without a valid session."""
        id, token = req.cookies.get(COOKIE), req.get(TOKEN_HEADER)
        if not id or not token:
            return None
        found = await self.cookiePrincipal(req)
        if found is None or found.session is None or not found.session.hasToken(token):
            return None
        return found

    async def cookiePrincipal(self, req: HTTPRequest) -> Principal | None:
        """Return the principal of the cookie alone; its caller must also check a ticket."""
        id = req.cookies.get(COOKIE)
        session = await self.sessions.find(id) if id else None
        if session is None:
            return None
        key = self.services.accounts.find(session.accessKey)
        if key is None or not session.isOf(key):
            return None
        key.isUsed = True
        return Principal(key, session)

    async def prove(self, accessKey: str, secretKey: str, address: str) -> Principal:
        """
        Return the principal of a key pair.

        @param address: The address of the client, whose failures are counted.
        @raise ServiceError: C{UNAUTHENTICATED} or C{RATE_LIMITED}.
        """
        await self.throttle.check(address)
        accounts = self.services.accounts
        if accounts.prove(accessKey, secretKey.encode("utf-8", "surrogatepass")) is None:
            await self.throttle.failed(address)
            raise codedError("UNAUTHENTICATED", "The access key or the secret key is wrong")
        key = accounts.find(accessKey)
        assert key is not None
        return Principal(key, None)

    def _logChange(self, call: ConsoleCall, trace: str, code: str = "") -> None:
        """
        Log a change, or an attempt at one, with its principal.

        @param trace: The trace id, which the page shows with an error.
        @param code: The error code; empty for none.
        """
        if not call.operation.changes:
            return
        principal = call.principal
        self._log.info(
            "console: {operation} {params} by {who} from {address}, trace {trace}: {outcome}",
            operation=call.operation.name,
            params={**call.params, **call.noted},
            who="-" if principal is None else principal.identity.accessKey,
            address=call.address,
            trace=trace,
            outcome=code or "done",
        )


def _asServiceError(error: Exception) -> ServiceError | None:
    """Return the error that the client gets; L{None} for an internal error."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, DomainError | StoreError):
        return asServiceError(error)
    if isinstance(error, HTTPError) and error.status < 500:
        # The body is too long, or was cut short.
        code = "PAYLOAD_TOO_LARGE" if error.status == 413 else "INVALID_ARGUMENT"
        return ServiceError(code, error.message, error.status)
    return None
