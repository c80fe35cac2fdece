"""
The console as an application: guard, API, pages.

The console authenticates the principal of a request by the two halves of the session or by a key
pair in the headers.
"""

from typing import Any

from storagegate.auth.keyheaders import ACCESS_HEADER, SECRET_HEADER
from storagegate.console.api import ConsoleAPI
from storagegate.console.call import Principal
from storagegate.console.guard import FIELDS, Guard, SignInThrottle, makeOriginCheck
from storagegate.console.issuers import makeIssuers
from storagegate.console.operations import PREFIX, APIOperation
from storagegate.console.pages import servePages
from storagegate.console.services import ConsoleServices
from storagegate.console.sessions import ConsoleSession, ConsoleSessions
from storagegate.core.errors import ServiceError, codedError
from storagegate.http.application import Application
from storagegate.http.request import HTTPRequest
from storagegate.http.response import HTTPResponse
from storagegate.net.forwarded import compileTrust
from storagegate.objects.accounts import AccountKey

COOKIE = "storagegate-console"

TOKEN_HEADER = "x-console-token"

_SETTLED_MS = 2000
"""The age of a session at which all processes know its key or user: they poll twice a second."""

_SESSION_TOKEN_HEADER = "x-amz-security-token"

_NO_SESSION_TOKENS = (
    "Temporary keys are not supported: use the pair of a permanent key, without a session token"
)


class Console:
    """
    The application of the console and its state.

    @ivar app: The application.
    @ivar api: The routes of the API.
    @ivar guard: Checks hosts and connections.
    @ivar sessions: The sessions of signed-in clients.
    @ivar throttle: Limits failed attempts to sign in.
    @ivar issuers: The issuers at which people sign in.
    """

    def __init__(self, services: ConsoleServices, guard: Guard) -> None:
        self.services = services
        self.guard = guard
        self.sessions = ConsoleSessions(services.records, services.now)
        self.throttle = SignInThrottle.make(services.makeRates, services.now)
        self.issuers = makeIssuers(services)
        services.kept["console"] = self
        services.monitor.begin()
        self.api = ConsoleAPI(services, self.authenticate)
        self.app = Application()
        self.app.trust = compileTrust(services.options.trustedProxies)
        self.app.use(self._protect)
        self.app.use(makeOriginCheck(services.options))
        self.app.use("/" + PREFIX.rstrip("/"), self.api.router)
        servePages(self.app)

    async def close(self) -> None:
        """Close streams, jobs and the store of sessions."""
        live = self.services.kept.pop("live", None)
        if live is not None:
            live.close()
        jobs = self.services.kept.pop("jobs", None)
        if jobs is not None:
            await jobs.close()
        usage = self.services.kept.pop("usage", None)
        if usage is not None:
            await usage.close()
        await self.sessions.close()

    def _protect(self, req: HTTPRequest, res: HTTPResponse, next: Any) -> Any:
        res.header(FIELDS)
        try:
            self.guard.checkHost(req)
        except ServiceError as error:
            return next(error)
        return next()

    async def authenticate(self, req: HTTPRequest, operation: APIOperation) -> Principal | None:
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
        key = await self._keyOf(session)
        if key is None or not session.isOf(key):
            return None
        key.isUsed = True
        return Principal(key, session)

    async def _keyOf(self, session: ConsoleSession) -> AccountKey | None:
        """Return the current key or user of a session; L{None} if there is none."""
        accounts, grant = self.services.accounts, session.grant
        if self.services.now() * 1000 - session.createdMs < _SETTLED_MS:
            # Another process has just made the key or the user, or renewed the user's groups.
            await accounts.refresh()
        if grant is None:
            return accounts.find(session.accessKey)
        issuer = self.issuers.byName.get(grant.issuer)
        if issuer is None or issuer.options.account != grant.account:
            return None
        return accounts.findPerson(grant.account, grant.user, grant.role)

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
