"""
Console sessions, their tickets, and the sign-ins that were used, for all workers and nodes.

A session has two halves: the id in a cookie, which page scripts cannot read, and a token, which the
browser sends to no other service of the same host. The record of a session holds the hashes of
both. It also holds a hash of the secret of the key, so a session ends when the secret changes.

A session of a person who signed in at an issuer has a grant instead of a key: the user, and the
role that the issuer named.

The records are in a file of the data directory or, in a cluster, in the catalog: see
L{storagegate.storage.consolerecords}.
"""

import hmac
from collections.abc import Callable
from hashlib import sha256
from secrets import token_urlsafe

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from storagegate.objects.accounts import AccountKey
from storagegate.storage.consolerecords import ConsoleRecord, IConsoleRecords, RecordLimits

IDLE_SECONDS = 30 * 60
"""A session ends after this time without use."""

LONGEST_SECONDS = 12 * 3600
"""A session ends at this age."""

_TOUCH_SECONDS = 60
"""The shortest interval between writes of the last use."""

_AHEAD_MS = 900_000
"""The most that the clock of the node that began a session may be ahead."""

_MOST = 10_000
"""Sessions, and sign-ins of the last minutes."""

_UNLIMITED = 1 << 40

_SESSIONS = RecordLimits(most=_MOST, mostOfOwner=100, mostBytesOfOwner=_UNLIMITED)
"""The limits in total and of a key; the sessions that end first are evicted."""

_TICKETS = RecordLimits(most=100_000, mostOfOwner=1000, mostBytesOfOwner=4 << 20)
"""The limits in total and of a session; the tickets that expire first are evicted."""

_SIGN_INS = RecordLimits(most=_MOST, mostOfOwner=_MOST, mostBytesOfOwner=_UNLIMITED, evicts=False)
"""A sign-in that was evicted could be used again."""

_SESSION, _TICKET, _SIGN_IN = "session", "ticket", "signIn"


class SignInGrant(Struct, frozen=True):
    """
    The grant of a session that began at an issuer.

    @ivar issuer: The name of the issuer in the configuration.
    @ivar user: The name of the user.
    @ivar role: The administration role that the issuer named.
    @ivar claimed: The groups that the issuer named, in part.
    @ivar isGrouped: Whether the issuer names groups.
    """

    issuer: str
    account: str
    user: str
    role: str
    claimed: list[str]
    isGrouped: bool


class ConsoleSession(Struct, frozen=True):
    """
    A session.

    @ivar id: The hash of the id in the cookie.
    @ivar token: The hash of the token.
    @ivar accessKey: The access key that signed in, or the path and name of a user.
    @ivar proof: A keyed hash of the secret of the key and the id.
    @ivar address: The client address at sign-in.
    @ivar agent: The C{User-Agent} at sign-in.
    @ivar grant: The grant of a person; L{None} for a session of a key.
    """

    id: str
    token: str
    accessKey: str
    proof: str
    createdMs: int
    usedMs: int
    address: str
    agent: str
    grant: SignInGrant | None = None

    def record(self) -> ConsoleRecord:
        """Make the record of the session, see L{readSession}."""
        document = msgspec.json.encode(self)
        return ConsoleRecord(_SESSION, self.id, self.accessKey, self.endMs(), document)

    def endMs(self) -> int:
        """Return when the session expires unless it is used before then."""
        return min(self.usedMs + IDLE_SECONDS * 1000, self.createdMs + LONGEST_SECONDS * 1000)

    def isValid(self, nowMs: int) -> bool:
        """
        Return whether the session has not expired. A session that a clock began that was far ahead
        would last too long, and a revocation before its beginning would not end it.
        """
        return self.createdMs <= nowMs + _AHEAD_MS and nowMs < self.endMs()

    def isOf(self, key: AccountKey) -> bool:
        """
        Return whether the session was begun with the secret of a key, and the sessions of its user
        were not revoked since.
        """
        rights = key.identity.rights
        user = None if rights is None else rights.user
        if user is not None and self.createdMs < user.revokedBeforeMs:
            return False
        return hmac.compare_digest(self.proof, _proof(self.id, key))

    def hasToken(self, token: str) -> bool:
        """Return whether a token is the session's."""
        return hmac.compare_digest(self.token, _hash(token))


def readSession(record: ConsoleRecord) -> ConsoleSession:
    """Read the record of a session."""
    return _decode(record.document)


_decode = msgspec.json.Decoder(ConsoleSession).decode


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _proof(id: str, key: AccountKey) -> str:
    return hmac.digest(id.encode(), key.secretKey.encode(), "sha256").hex()


class ConsoleSessions:
    """The sessions of all processes of the console. Must run in the reactor thread."""

    def __init__(self, records: IConsoleRecords, now: Callable[[], float]) -> None:
        """
        @param records: Stores the sessions.
        @param now: Returns seconds since the epoch.
        """
        self._records = records
        self._now = now

    async def create(
        self, key: AccountKey, address: str, agent: str, grant: SignInGrant | None = None
    ) -> tuple[ConsoleSession, str, str]:
        """
        Begin a session.

        @param grant: The grant of a person; L{None} for a session of a key.
        @return: The session, its id for the cookie, and its token.
        """
        id, token = token_urlsafe(32), token_urlsafe(32)
        nowMs, hashed = self._nowMs(), _hash(id)
        session = ConsoleSession(
            hashed,
            _hash(token),
            key.identity.accessKey,
            _proof(hashed, key),
            nowMs,
            nowMs,
            address,
            agent[:200],
            grant,
        )
        await self._records.add(session.record(), _SESSIONS, nowMs)
        return session, id, token

    async def find(self, id: str) -> ConsoleSession | None:
        """
        Look up a valid session, and record its use.

        @param id: The id in the cookie.
        """
        session = await self._valid(_hash(id))
        nowMs = self._nowMs()
        if session is not None and nowMs - session.usedMs >= _TOUCH_SECONDS * 1000:
            session = replace(session, usedMs=nowMs)
            await self._records.replace(session.record())
        return session

    async def exists(self, id: str) -> bool:
        """
        Return whether a session is valid.

        @param id: The hash of the id.
        """
        return await self._valid(id) is not None

    async def sessions(self, accessKey: str | None = None) -> list[ConsoleSession]:
        """
        List valid sessions, most recently used first.

        @param accessKey: Return only the sessions of this key.
        """
        nowMs = self._nowMs()
        found = map(readSession, await self._records.records(_SESSION, accessKey))
        valid = [each for each in found if each.isValid(nowMs)]
        return sorted(valid, key=lambda each: (-each.usedMs, each.id))

    async def end(self, id: str) -> None:
        """
        End a session, with its tickets.

        @param id: The hash of the id.
        """
        await self._records.remove(_SESSION, id)

    async def useSignIn(self, state: str, expiresMs: int) -> bool:
        """
        Use the state of a sign-in at an issuer.

        @param expiresMs: When the state expires.
        @return: Whether this is its first use in all processes.
        """
        record = ConsoleRecord(_SIGN_IN, _hash(state), "", expiresMs, b"")
        return await self._records.add(record, _SIGN_INS, self._nowMs())

    async def addTicket(self, session: str, expiresMs: int, document: bytes) -> str:
        """
        Store a ticket of a session.

        @param session: The hash of the session's id.
        @param expiresMs: The time of expiry, in milliseconds since the epoch.
        @param document: The content of the ticket.
        @return: The id of the ticket.
        """
        id = token_urlsafe(24)
        record = ConsoleRecord(_TICKET, _hash(id), session, expiresMs, document)
        await self._records.add(record, _TICKETS, self._nowMs())
        return id

    async def ticket(self, session: str, id: str) -> bytes | None:
        """
        Return the document of a ticket; L{None} if the ticket is unknown or expired.

        @param session: The hash of the session's id.
        """
        found = await self._records.find(_TICKET, _hash(id))
        if found is None or found.owner != session or found.expiresMs <= self._nowMs():
            return None
        return found.document

    async def close(self) -> None:
        """Close the store of the sessions."""
        await self._records.close()

    async def _valid(self, id: str) -> ConsoleSession | None:
        found = await self._records.find(_SESSION, id)
        session = None if found is None else readSession(found)
        return session if session is not None and session.isValid(self._nowMs()) else None

    def _nowMs(self) -> int:
        return int(self._now() * 1000)
