"""
URLs that the browser fetches without the token: contents, previews, zips; and links to share.

A ticket is valid for the objects that it names, for 10 minutes, and only with the cookie of the
session that made it. Its hash is stored beside the sessions, so any worker accepts it, and it ends
with the session.
"""

import re
from typing import Any, Literal
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct, field

from storagegate.console.call import ANSWERED, ConsoleCall
from storagegate.console.guard import isLoopback
from storagegate.console.reads import disposition, sendObject
from storagegate.console.zip import sendArchive
from storagegate.core.errors import ServiceError, codedError
from storagegate.objects.accounts import AccountKey
from storagegate.objects.issuedkeys import KeyPair

TICKET_SECONDS = 600

_LONGEST_SHARE = 7 * 24 * 3600

_MOST_NAMES = 10_000
"""Keys and prefixes of one zip."""


class NewTicket(Struct, kw_only=True, forbid_unknown_fields=True):
    """
    A ticket to make: for C{key} alone, or for a zip with C{prefix}, C{keys} and C{prefixes}.

    @ivar base: A leading part of the keys that the names in the zip omit.
    """

    bucket: str
    purpose: Literal["download", "preview", "zip"]
    key: str = ""
    versionId: str | None = None
    prefix: str | None = None
    keys: list[str] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    base: str = ""


class Ticket(Struct):
    """
    The URL of a ticket.

    @ivar url: The URL, relative to the pages of the console.
    """

    url: str
    expiresMs: int


class Share(Struct, kw_only=True, forbid_unknown_fields=True):
    """
    A link to make.

    @ivar download: Whether the browser saves the object instead of displaying it.
    """

    key: str
    expiresSeconds: int = 3600
    download: bool = False
    versionId: str | None = None


class Link(Struct):
    """
    A link that works without signing in.

    @ivar warning: The reason why the link may fail on other machines; empty for none.
    """

    url: str
    expiresMs: int
    warning: str


class ClientEndpoint(Struct):
    """
    The endpoint of S3 for clients.

    @ivar warning: The reason why it may fail on other machines; empty for none.
    """

    url: str
    region: str
    warning: str


async def showEndpoint(call: ConsoleCall) -> ClientEndpoint:
    """Return the endpoint of S3, for the commands that a page displays."""
    base, warning = _address(call)
    return ClientEndpoint(base, call.services.region, warning)


async def makeTicket(call: ConsoleCall, body: NewTicket) -> Ticket:
    """Make a URL that the browser may fetch with only the cookie of this session."""
    session = call.who.session
    if session is None:
        raise codedError(
            "INVALID_ARGUMENT", "Only sessions can use tickets: send the key pair instead"
        )
    call.note(bucket=body.bucket, key=body.key, purpose=body.purpose)
    if body.purpose == "zip":
        names = [*body.keys, *body.prefixes, *([] if body.prefix is None else [body.prefix])]
        if not names or len(names) > _MOST_NAMES or body.key:
            raise codedError(
                "INVALID_ARGUMENT",
                f"A zip file needs a prefix, or 1 to {_MOST_NAMES} keys and prefixes",
            )
        where = "zip"
    else:
        if not body.key or body.keys or body.prefixes or body.prefix is not None:
            raise codedError("INVALID_ARGUMENT", "A download or a preview needs exactly one key")
        caller = call.caller("GetObject", "read", body.bucket, body.key.encode())
        key = body.key.encode()
        await call.services.objects.object(caller, body.bucket, key, body.versionId)
        where = "bytes"
    expiresMs = int(call.services.now() * 1000) + TICKET_SECONDS * 1000
    sessions = call.services.kept["console"].sessions
    ticket = await sessions.addTicket(session.id, expiresMs, msgspec.json.encode(body))
    return Ticket(f"api/v1/{where}/{ticket}", expiresMs)


async def _redeem(call: ConsoleCall, isZip: bool) -> NewTicket:
    """
    Return the content of a ticket, and make the request act for its session.

    @raise ServiceError: C{UNAUTHENTICATED}: the request has no session. C{NOT_FOUND}: the session
        has no such ticket.
    """
    console = call.services.kept["console"]
    principal = await console.cookiePrincipal(call.request)
    if principal is None:
        raise codedError("UNAUTHENTICATED", "Not signed in")
    found = await console.sessions.ticket(principal.session.id, call.params["ticket"])
    wanted = None if found is None else msgspec.json.decode(found, type=NewTicket)
    if wanted is None or (wanted.purpose == "zip") != isZip:
        raise codedError("NOT_FOUND", "No such ticket, or it has expired")
    call.principal = principal
    return wanted


async def sendBytes(call: ConsoleCall) -> Any:
    """Respond with the content of the object of a ticket."""
    wanted = await _redeem(call, isZip=False)
    isPreview = wanted.purpose == "preview"
    await sendObject(call, wanted.bucket, wanted.key.encode(), wanted.versionId, isPreview)
    return ANSWERED


async def sendZip(call: ConsoleCall) -> Any:
    """Respond with a zip of the objects of a ticket."""
    wanted = await _redeem(call, isZip=True)
    prefixes = [*wanted.prefixes, *([] if wanted.prefix is None else [wanted.prefix])]
    only = prefixes[0] if len(prefixes) == 1 and not wanted.keys else ""
    name = only or wanted.base or wanted.bucket
    call.response.header(
        "Content-Disposition", disposition(f"{_name(name)}.zip".encode(), "attachment")
    )
    await sendArchive(call, wanted.bucket, wanted.keys, prefixes, wanted.base)
    return ANSWERED


def _name(text: str) -> str:
    return text.rstrip("/").rpartition("/")[2] or "objects"


async def shareObject(call: ConsoleCall, body: Share) -> Link:
    """Make a presigned S3 URL with the key of the session."""
    bucket, key = call.params["bucket"], body.key.encode()
    if not 1 <= body.expiresSeconds <= _LONGEST_SHARE:
        raise codedError(
            "INVALID_ARGUMENT", f"expiresSeconds must be a number from 1 to {_LONGEST_SHARE}"
        )
    call.note(key=body.key, expiresSeconds=body.expiresSeconds)
    caller = call.caller("GetObject", "read", bucket, key)
    await call.services.objects.object(caller, bucket, key, body.versionId)
    base, warning = _address(call)
    now = call.services.now()
    query = {}
    if body.versionId is not None:
        query["versionId"] = body.versionId
    if body.download:
        query["response-content-disposition"] = disposition(key, "attachment")
    signed = _signingKey(call)
    url = call.services.presign(
        KeyPair(signed.identity.accessKey, signed.secretKey),
        call.services.region,
        f"{base}/{quote(bucket)}/{quote(key)}",
        query,
        now,
        body.expiresSeconds,
    )
    expiresMs = (int(now) + body.expiresSeconds) * 1000
    if signed.issued is not None and signed.issued.expiresMs:
        # S3 refuses the link as soon as its key has expired.
        expiresMs = min(expiresMs, signed.issued.expiresMs)
    return Link(url, expiresMs, warning)


def _signingKey(call: ConsoleCall) -> AccountKey:
    """
    Return the key that signs URLs of the caller: for a person, a service key of its user.

    @raise ServiceError: C{FAILED_PRECONDITION}: the person has no such key.
    """
    key, rights = call.who.key, call.who.identity.rights
    if not call.who.identity.role or rights is None or rights.user is None:
        return key
    parent = f"user/{rights.user.key}"
    for row in call.services.store.accessKeys.keys.values():
        isPlain = row.policy == "readwrite" and not (
            row.bucketPattern or row.prefixPattern or row.sessionPolicy or row.expiresMs
        )
        if row.account == call.who.identity.account and row.parent == parent and isPlain:
            found = call.services.accounts.find(row.accessKey)
            if found is not None:
                return found
    text = "A key must sign the link: make a key of your user on the page Keys first"
    raise ServiceError("FAILED_PRECONDITION", text, 409)


def _address(call: ConsoleCall) -> tuple[str, str]:
    """
    Return the endpoint of S3, and a warning if other machines may not reach it.

    @raise ServiceError: C{FAILED_PRECONDITION}: no S3 listener is open, or it is on a UNIX socket;
        C{setting} of the details is the key of the configuration that changes it.
    """
    configured = call.services.options.s3Url
    if configured:
        return configured.rstrip("/"), ""
    address = call.services.daemon.listeners().get("s3", "")
    if not address:
        text = "S3 is off in this daemon, so nothing serves links to objects: set s3, or s3Url"
        raise ServiceError("FAILED_PRECONDITION", text, 409, {"setting": "s3"})
    if not re.fullmatch(r".+:[0-9]+", address):
        text = "The S3 listener is on a UNIX socket, which no link can name: set s3Url"
        raise ServiceError("FAILED_PRECONDITION", text, 409, {"setting": "s3Url"})
    host = urlsplit("//" + address).hostname or ""
    if host in ("0.0.0.0", "::"):
        # Listens on all addresses, including the one that this client used.
        port = address.rpartition(":")[2]
        host = urlsplit("//" + (call.request.get("host") or "")).hostname or "127.0.0.1"
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    warning = (
        "Only this machine can reach S3 at this address: set s3Url" if isLoopback(host) else ""
    )
    return f"http://{address}", warning
