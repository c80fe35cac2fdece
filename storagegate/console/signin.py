"""Sign-in, sign-out, and the list of sessions."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from storagegate.console.app import COOKIE, Console
from storagegate.console.call import ConsoleCall, Principal
from storagegate.console.paging import page
from storagegate.console.sessions import ConsoleSession
from storagegate.core.errors import codedError
from storagegate.version import __version__


class SignInForm(Struct, forbid_unknown_fields=True):
    """Credentials for a console session."""

    accessKey: str
    secretKey: str


class SignedIn(Struct, kw_only=True):
    """
    A session.

    @ivar version: The version of the daemon.
    @ivar token: Present only in the response to signing in.
    """

    accessKey: str
    account: str
    role: str
    expiresMs: int
    version: str = __version__
    signedIn: bool = True
    token: str | UnsetType = UNSET


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


class SessionsQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """A page of sessions."""

    after: str = ""
    limit: int = 100


class SessionPage(Struct):
    """A page of sessions, newest first."""

    items: list[ListedSession]
    next: str | None


_LATEST_MS = 10**15


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
    return SignedIn(
        accessKey=session.accessKey,
        account=principal.identity.account,
        role=principal.role,
        expiresMs=session.endMs(),
        token=token,
    )


async def signIn(call: ConsoleCall, body: SignInForm) -> SignedIn:
    """Begin a session with a key pair, always with a new id."""
    console = _console(call)
    console.guard.checkClear(call.request)
    call.note(accessKey=body.accessKey)
    principal = await console.prove(body.accessKey, body.secretKey, call.address)
    before = call.principal
    if before is not None and before.session is not None:
        await console.sessions.end(before.session.id)
    agent = call.request.get("user-agent") or ""
    session, id, token = await console.sessions.create(principal.key, call.address, agent)
    call.response.cookie(COOKIE, id, **_cookieOptions(call))
    return _signedIn(principal, session, token)


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
