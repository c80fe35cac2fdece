"""Sign-in with a key pair or at an issuer, sign-out, and the list of sessions."""

from hmac import compare_digest
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from twisted.logger import Logger

from storagegate.console.app import COOKIE, Console
from storagegate.console.call import ConsoleCall, Principal
from storagegate.console.issuers import SIGN_IN_SECONDS, Issuer, PendingSignIn
from storagegate.console.paging import page
from storagegate.console.sessions import ConsoleSession, SignInGrant
from storagegate.core.addresses import HTTP, HTTPS
from storagegate.core.errors import ServiceError, codedError
from storagegate.objects.accounts import ROLES
from storagegate.version import __version__

SIGN_IN_COOKIE = "storagegate-signin"
"""The sealed secrets of a sign-in at an issuer."""


class SignInForm(Struct, forbid_unknown_fields=True):
    """Credentials for a console session."""

    accessKey: str
    secretKey: str


class SignedIn(Struct, kw_only=True):
    """
    A session.

    @ivar version: The version of the daemon.
    @ivar token: Present only in the response to signing in.
    @ivar issuer: The name of the issuer at which the person signed in; empty for a key.
    @ivar user: The name of that person's user.
    @ivar notice: Why the person has no rights; empty if there may be some.
    """

    accessKey: str
    account: str
    role: str
    expiresMs: int
    version: str = __version__
    signedIn: bool = True
    token: str | UnsetType = UNSET
    issuer: str = ""
    user: str = ""
    notice: str = ""


class NotSignedIn(Struct):
    """The response without a session."""

    signedIn: bool = False


class ListedSession(Struct):
    """A session, as listed for its owner and for administrators."""

    id: str
    accessKey: str
    createdMs: int
    usedMs: int
    expiresMs: int
    address: str
    agent: str
    current: bool
    issuer: str


class IssuerView(Struct):
    """An issuer, and the text of its button."""

    name: str
    label: str


class SignInStart(Struct):
    """The URL at which the person signs in."""

    url: str


class IssuerResponse(Struct, kw_only=True, forbid_unknown_fields=True):
    """
    The query with which an issuer sends the browser back.

    @ivar iss: The issuer; empty if it does not name itself.
    @ivar error: The error code of a refusal, with C{errorDescription}.
    """

    state: str = ""
    code: str = ""
    iss: str = ""
    error: str = ""
    errorDescription: str = ""


class SessionsQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """A page of sessions."""

    after: str = ""
    limit: int = 100


class SessionPage(Struct):
    """A page of sessions, newest first."""

    items: list[ListedSession]
    next: str | None


_ERROR_CODES = frozenset(
    (
        "access_denied",
        "consent_required",
        "interaction_required",
        "invalid_request",
        "invalid_scope",
        "login_required",
        "server_error",
        "temporarily_unavailable",
        "unauthorized_client",
        "unsupported_response_type",
    )
)
"""RFC 6749 section 4.1.2.1, and OpenID Connect Core 1.0 section 3.1.2.6."""

_LATEST_MS = 10**15

_log = Logger()


def _console(call: ConsoleCall) -> Console:
    found: Console = call.services.kept["console"]
    return found


def _cookieOptions(call: ConsoleCall) -> dict[str, Any]:
    guard = _console(call).guard
    return {
        "path": guard.cookiePath(call.request),
        "httpOnly": True,
        "sameSite": "strict",
        "secure": call.request.secure or guard.isSecure,
    }


def _signedIn(
    principal: Principal, session: ConsoleSession, token: str | UnsetType = UNSET
) -> SignedIn:
    grant = session.grant
    return SignedIn(
        accessKey=session.accessKey,
        account=principal.identity.account,
        role=principal.role,
        expiresMs=session.endMs(),
        token=token,
        issuer="" if grant is None else grant.issuer,
        user="" if grant is None else grant.user,
        notice="" if grant is None else _noticeOf(principal, grant),
    )


def _noticeOf(principal: Principal, grant: SignInGrant) -> str:
    """Return why a person has no rights; empty if the user has groups or policies."""
    rights = principal.identity.rights
    user = None if rights is None else rights.user
    if user is None or user.groups or user.policies or user.attached:
        return ""
    if not grant.isGrouped:
        reason = "no administrator has added you to a group"
    elif not grant.claimed:
        reason = f"{grant.issuer} names no group of yours"
    else:
        named = ", ".join(grant.claimed)
        reason = f"{grant.issuer} names only groups that do not exist here: {named}"
    return (
        f"You are signed in as {user.name} of the account {grant.account}, but you have no rights: "
        f"{reason}. Ask an administrator of this store."
    )


async def signIn(call: ConsoleCall, body: SignInForm) -> SignedIn:
    """Begin a session with a key pair, always with a new id."""
    console = _console(call)
    console.guard.checkClear(call.request)
    call.note(accessKey=body.accessKey)
    principal = await console.prove(body.accessKey, body.secretKey, call.address)
    return await _begin(call, principal)


async def _begin(
    call: ConsoleCall, principal: Principal, grant: SignInGrant | None = None
) -> SignedIn:
    """Begin a session, and end the session of the request."""
    sessions = _console(call).sessions
    before = call.principal
    if before is not None and before.session is not None:
        await sessions.end(before.session.id)
    agent = call.request.get("user-agent") or ""
    session, id, token = await sessions.create(principal.key, call.address, agent, grant)
    call.response.cookie(COOKIE, id, **_cookieOptions(call))
    return _signedIn(principal, session, token)


async def listIssuers(call: ConsoleCall) -> list[IssuerView]:
    """List the issuers in the order of the configuration."""
    issuers = _console(call).issuers.byName.values()
    return [IssuerView(each.name, each.label) for each in issuers]


async def beginSignIn(call: ConsoleCall) -> SignInStart:
    """Keep the secrets of a sign-in in a cookie, and return the URL of the issuer."""
    console = _console(call)
    console.guard.checkClear(call.request)
    await console.throttle.check(call.address)
    issuer = console.issuers.byName.get(call.params["issuer"])
    if issuer is None:
        raise codedError("NOT_FOUND", "No such issuer")
    from storagegate.auth.openid import IssuerUnavailable

    pending = console.issuers.begin(issuer, _redirectURL(call, issuer))
    try:
        url = await issuer.client.authorizationURL(pending.attempt)
    except IssuerUnavailable as error:
        raise _unavailable(issuer, error) from error
    options = {**_cookieOptions(call), "maxAge": SIGN_IN_SECONDS * 1000}
    call.response.cookie(SIGN_IN_COOKIE, console.issuers.seal(pending), **options)
    return SignInStart(url)


def _redirectURL(call: ConsoleCall, issuer: Issuer) -> str:
    """Return the URL of the console, to which the issuer sends the browser."""
    console = _console(call)
    if issuer.options.redirectUrl is not None:
        return issuer.options.redirectUrl.text
    if call.services.options.url:
        return call.services.options.url
    # The guard has checked the host.
    scheme = HTTPS if call.request.secure else HTTP
    return f"{scheme}://{call.request.get('host')}{console.guard.cookiePath(call.request)}"


async def finishSignIn(call: ConsoleCall, body: IssuerResponse) -> SignedIn:
    """
    Begin a session with the response of an issuer.

    The response must be for the sign-in in this browser's cookie, and each is used once.
    """
    console = _console(call)
    if not console.issuers.byName:
        raise codedError("NOT_FOUND", "No issuer is configured")
    from storagegate.auth.openid import IssuerUnavailable, SignInError, issuerError

    console.guard.checkClear(call.request)
    await console.throttle.check(call.address)
    call.response.clearCookie(SIGN_IN_COOKIE, **_cookieOptions(call))
    try:
        if body.error and not body.state:
            # RFC 6749 section 4.1.2.1 requires the state. Without it, only known codes are shown.
            code = body.error if body.error in _ERROR_CODES else "no reason given"
            raise SignInError(f"The issuer refused the sign-in: {code}")
        pending, issuer = await _takePending(call, body.state)
        if body.error:
            # Shown only for a sign-in of this browser: any link could have such a text.
            text = issuerError(body.error, body.errorDescription)
            raise SignInError(f"{issuer.label} refused the sign-in: {text}")
        claims = await issuer.client.redeem(pending.attempt, body.code, body.iss)
        principal, grant = await _admit(call, issuer, claims)
    except IssuerUnavailable as error:
        raise _unavailable(issuer, error) from error
    except SignInError as error:
        _log.info("console: a sign-in was refused: {error}", error=error)
        await console.throttle.failed(call.address)
        raise codedError("UNAUTHENTICATED", str(error), {"reason": "issuer"}) from error
    call.note(issuer=issuer.name, account=grant.account, user=grant.user, role=grant.role)
    return await _begin(call, principal, grant)


async def _takePending(call: ConsoleCall, state: str) -> tuple[PendingSignIn, Issuer]:
    """
    Return the sign-in of the cookie with its issuer, and use it up.

    @raise SignInError: The sign-in began elsewhere, has expired, or was used before.
    """
    from storagegate.auth.openid import SignInError

    console = _console(call)
    pending = console.issuers.open(call.request.cookies.get(SIGN_IN_COOKIE) or "")
    if pending is None or not compare_digest(pending.state.encode(), state.encode()):
        minutes = SIGN_IN_SECONDS // 60
        raise SignInError(
            f"The sign-in did not begin in this browser in the last {minutes} minutes. Try again."
        )
    issuer = console.issuers.byName.get(pending.issuer)
    if issuer is None:
        raise SignInError(f"The issuer {pending.issuer} is no longer configured")
    call.note(issuer=issuer.name)
    if not await console.sessions.useSignIn(pending.state, pending.expiresMs):
        raise SignInError("The response of the issuer was used before. Try again.")
    return pending, issuer


async def _admit(
    call: ConsoleCall, issuer: Issuer, claims: dict[str, Any]
) -> tuple[Principal, SignInGrant]:
    """
    Create or renew the user of a person.

    @raise SignInError: The user is disabled.
    """
    from storagegate.auth.openid import SignInError
    from storagegate.objects.identities.people import (
        Person,
        claimedNames,
        claimedTags,
        putPerson,
    )

    options, services = issuer.options, call.services
    if services.store.admit is not None:
        services.store.admit()
    groups = None if options.groupsClaim is None else claimedNames(claims, options.groupsClaim)
    person = Person(issuer.name, options.issuer.text, claims["sub"], claimedTags(claims), groups)
    nowMs = int(services.now() * 1000)
    user = await services.objects.identities.change(
        options.account, lambda state: putPerson(state, person, nowMs)
    )
    role = _roleOf(issuer, claims)
    key = services.accounts.findPerson(options.account, user.name, role)
    if key is None:
        raise SignInError(f"The user {user.name} of the account {options.account} is disabled")
    claimed = [each[:100] for each in (groups or ())[:10]]
    grant = SignInGrant(issuer.name, options.account, user.name, role, claimed, groups is not None)
    return Principal(key, None), grant


def _roleOf(issuer: Issuer, claims: dict[str, Any]) -> str:
    """Return the highest administration role that the claims name, but never root."""
    from storagegate.console.issueroptions import GIVEN_ROLES
    from storagegate.objects.identities.people import claimedNames

    options = issuer.options
    if options.roleClaim is None:
        return "none"
    roles = options.roles or {role: role for role in GIVEN_ROLES}
    named = [roles[each] for each in claimedNames(claims, options.roleClaim) if each in roles]
    return max(named, key=ROLES.index, default="none")


def _unavailable(issuer: Issuer, error: Exception) -> ServiceError:
    text = (
        f"{issuer.label} cannot sign you in now. Try again later, or use an access key. ({error})"
    )
    _log.warn("{issuer}: {error}", issuer=issuer.name, error=error)
    # Not 503: the console itself is available, and proxies and logs need not treat it as failed.
    return ServiceError("UNAVAILABLE", text, 424, {"reason": "issuer"})


async def showSession(call: ConsoleCall) -> SignedIn | NotSignedIn:
    """Describe the session of the request."""
    principal = call.principal
    if principal is None or principal.session is None:
        return NotSignedIn()
    return _signedIn(principal, principal.session)


async def signOut(call: ConsoleCall) -> None:
    """End the session of the request."""
    session = call.who.session
    if session is not None:
        await _console(call).sessions.end(session.id)
    call.response.clearCookie(COOKIE, **_cookieOptions(call))


async def listSessions(call: ConsoleCall, query: SessionsQuery) -> SessionPage:
    """List the sessions of the key, or of all keys for an administrator."""
    principal = call.who
    mine = None if principal.has("admin") else principal.identity.accessKey
    current = None if principal.session is None else principal.session.id
    found = await _console(call).sessions.sessions(mine)
    shown = page(sorted(found, key=_place), query.after, query.limit, _place)
    return SessionPage(
        [
            ListedSession(
                each.id,
                each.accessKey,
                each.createdMs,
                each.usedMs,
                each.endMs(),
                each.address,
                each.agent,
                each.id == current,
                "" if each.grant is None else each.grant.issuer,
            )
            for each in shown.items
        ],
        shown.next,
    )


def _place(session: ConsoleSession) -> str:
    """Return a sort key that puts newer sessions first."""
    return f"{_LATEST_MS - session.createdMs:016d}{session.id}"


async def endSession(call: ConsoleCall) -> None:
    """End a session of the key, or any session for an administrator."""
    console, principal = _console(call), call.who
    mine = None if principal.has("admin") else principal.identity.accessKey
    found = await console.sessions.sessions(mine)
    if not any(each.id == call.params["id"] for each in found):
        raise codedError("NOT_FOUND", "No such session")
    await console.sessions.end(call.params["id"])
