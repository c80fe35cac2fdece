"""
Sessions: temporary keys, which are not stored, but are in their tokens.

A session of a key has the rights of this key, and a session of a role has the rights of the role,
both narrowed by its own policy. It ends at its expiry, and earlier when the key, its user or the
role is deleted or disabled, when the key gets another secret, or when an operator revokes it.
"""

import hmac
import secrets
from collections.abc import Callable, Mapping

from attrs import frozen
from msgspec import Struct

from storagegate.objects.errors import ExpiredToken, InvalidToken
from storagegate.objects.identities.entities import Role, readEntity
from storagegate.objects.identities.rights import Rights, documentsOf
from storagegate.objects.identities.tokens import SessionToken, TokenCipher
from storagegate.objects.principals import AccountKey, Identity, KeyPolicy
from storagegate.storage.accesskeys import AccessKeySnapshot
from storagegate.storage.records import AccountDocuments

KEY_PREFIX = "ASIA"
"""The beginning of temporary access keys, as at Amazon."""

_OPEN_LIMIT = 2048
"""Open sessions in memory, about 5 KB each; another one is opened in 50 microseconds."""

_AHEAD_MS = 900_000
"""The most that the clock of the node that made a session may be ahead, as that of a signer."""

_KEY_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_KEY_LENGTH = 16
_NOTHING: Mapping[str, str] = {}


@frozen
class NewSession:
    """The credentials of a new session."""

    session: SessionToken
    secretKey: str
    token: str


class _OpenSession(Struct, eq=False):
    """
    A session and its credential.

    @ivar parent: The key from which the credential of a session of a key was made.
    @ivar generation: The generation of keys for which a session of a role was last checked.
    @ivar documents: The documents of the account from which the rights of a role were made.
    """

    session: SessionToken
    secretKey: str
    credential: AccountKey | None = None
    parent: AccountKey | None = None
    generation: int = -1
    documents: AccountDocuments | None = None


class SessionStore:
    """Makes sessions, and looks them up. Must run in the reactor thread."""

    def __init__(
        self,
        keys: AccessKeySnapshot,
        findKey: Callable[[str], AccountKey | None],
        now: Callable[[], float],
    ) -> None:
        """
        @param findKey: Looks up a key, and raises L{StoreBusy} if the keys are in doubt.
        @param now: Returns seconds since the epoch.
        """
        self._keys = keys
        self._findKey = findKey
        self._now = now
        self._cipher: TokenCipher | None = None
        self._open: dict[bytes, _OpenSession] = {}

    @property
    def cipher(self) -> TokenCipher:
        """The cipher of this store."""
        if self._cipher is None:
            self._cipher = TokenCipher(self._keys.secret())
        return self._cipher

    def issue(
        self,
        account: str,
        seconds: int,
        maker: AccountKey | None = None,
        role: Role | None = None,
        name: str = "",
        policy: str = "",
        tags: Mapping[str, str] = _NOTHING,
        transitiveTags: Mapping[str, str] = _NOTHING,
        issuer: str = "",
        claims: Mapping[str, str | list[str]] = _NOTHING,
    ) -> NewSession:
        """
        Make a session of a key or a role.

        @param seconds: Its length.
        @param maker: The key whose rights the session has; L{None} for a session of a role.
        """
        cipher = self.cipher
        nowMs = int(self._now() * 1000)
        accessKey = KEY_PREFIX + "".join(secrets.choice(_KEY_ALPHABET) for _ in range(_KEY_LENGTH))
        session = SessionToken(
            accessKey=accessKey,
            account=account,
            issuedMs=nowMs,
            expiresMs=nowMs + seconds * 1000,
            key="" if maker is None else maker.identity.accessKey,
            proof="" if maker is None else cipher.proof(maker.secretKey),
            role="" if role is None else role.key,
            roleId="" if role is None else role.id,
            name=name,
            policy=policy,
            tags=dict(tags),
            transitiveTags=dict(transitiveTags),
            issuer=issuer,
            claims=dict(claims),
        )
        return NewSession(session, cipher.secretKey(accessKey), cipher.seal(session))

    def find(self, accessKey: str, token: str) -> AccountKey:
        """
        Look up the credential of a temporary key.

        @raise InvalidToken: The token is not the one of this key, or the session has ended early.
        @raise ExpiredToken: The session has expired.
        @raise StoreBusy: The keys could not be read, so the session may have ended.
        """
        wire = token.encode(errors="replace")
        found = self._open.get(wire)
        if found is None:
            session = self.cipher.open(token)
            found = _OpenSession(session, self.cipher.secretKey(session.accessKey))
            if len(self._open) >= _OPEN_LIMIT:
                del self._open[next(iter(self._open))]
            self._open[wire] = found
        if found.session.accessKey != accessKey:
            raise InvalidToken()
        return self._current(found)

    def recall(self, accessKey: str, token: bytes) -> AccountKey | None:
        """
        Return what L{find} returns, if the session is open in memory, as it is for nearly all
        requests.

        @param token: As sent in a header.
        """
        found = self._open.get(token)
        if found is None or found.session.accessKey != accessKey:
            return None
        return self._current(found)

    def _current(self, found: _OpenSession) -> AccountKey:
        """Return the credential of an open session by the present keys; see L{find}."""
        session = found.session
        nowMs = self._now() * 1000
        if nowMs >= session.expiresMs:
            raise ExpiredToken()
        if session.issuedMs > nowMs + _AHEAD_MS:
            # It would last too long, and a revocation before its beginning would not end it.
            raise InvalidToken()
        # This reads changed keys, too.
        parent = self._findKey(session.key)
        known = found.credential
        if session.key:
            if known is None or parent is None or found.parent is not parent:
                known = found.credential = self._ofKey(found, parent)
        elif known is None or found.generation != self._keys.generation:
            known = found.credential = self._ofRole(found)
        return known

    def _ofKey(self, found: _OpenSession, parent: AccountKey | None) -> AccountKey:
        """Make the credential of a session of a key."""
        session, found.credential = found.session, None
        if (
            parent is None
            or parent.identity.account != session.account
            or not hmac.compare_digest(self.cipher.proof(parent.secretKey), session.proof)
        ):
            raise InvalidToken()
        above = parent.identity
        bound = above.rights
        assert bound is None or isinstance(bound, Rights)
        user = None if bound is None else bound.user
        if user is not None and session.issuedMs < user.revokedBeforeMs:
            raise InvalidToken()
        rights = Rights(
            above.principal,
            parent=bound,
            sources=(parent,),
            isRoot=above.isRoot,
            session=session,
        )
        identity = Identity(session.accessKey, session.account, above.policy, rights=rights)
        found.parent = parent
        return AccountKey(identity, found.secretKey)

    def _ofRole(self, found: _OpenSession) -> AccountKey:
        """Make the credential of a session of a role."""
        session, known = found.session, found.credential
        account = self._keys.identities.get(session.account)
        if known is not None and account is found.documents:
            found.generation = self._keys.generation
            return known
        found.credential = None
        role = findRole(account, session.role)
        if (
            account is None
            or role is None
            or role.disabled
            or role.id != session.roleId
            or session.issuedMs < role.revokedBeforeMs
        ):
            raise InvalidToken()
        found.documents, found.generation = account, self._keys.generation
        identity = roleIdentity(session, role, account)
        return AccountKey(identity, found.secretKey)


def findRole(account: AccountDocuments | None, name: str) -> Role | None:
    """Find a role in the documents of an account by its stored name."""
    document = None if account is None else account.documents.get(("role", name))
    if document is None:
        return None
    role = readEntity("role", document)
    assert isinstance(role, Role)
    return role


def roleIdentity(session: SessionToken, role: Role, documents: AccountDocuments) -> Identity:
    """
    Return the identity of a session of a role.

    @param documents: The documents of the account.
    """
    rights = Rights(
        # No user has a colon in its name.
        f"{role.resource}:{session.name}",
        role,
        documentsOf(role, session.account, documents),
        session=session,
    )
    return Identity(session.accessKey, session.account, KeyPolicy(), rights=rights)
