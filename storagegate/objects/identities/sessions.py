"""
Sessions: temporary keys, which are not stored. The token of a session holds everything about it,
sealed with the secret of the store, so every worker and node can read it::

    token   = Base64url, without padding, of version nonce sealed
    version = %x01
    nonce   = 12 random bytes
    sealed  = AES-256-GCM of the SessionToken as JSON, with the version as associated data

    key of tokens = HMAC-SHA256(secret of the store, "storagegate session tokens")
    secret key    = HMAC-SHA256(key of secrets, access key), in Base64

A session of a key has the rights of this key, and a session of a role has the rights of the role,
both narrowed by its own policy. It ends at its expiry, and earlier when the key, its user or the
role is deleted or disabled, when the key gets another secret, or when an operator revokes it.
"""

import hmac
import os
import secrets
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec
from attrs import frozen
from msgspec import Struct, field

from storagegate.objects.errors import ExpiredToken, InvalidToken
from storagegate.objects.identities.entities import Role, readEntity
from storagegate.objects.identities.rights import Rights, documentsOf
from storagegate.objects.principals import AccountKey, Identity, KeyPolicy
from storagegate.storage.accesskeys import AccessKeySnapshot
from storagegate.storage.records import AccountDocuments

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_PREFIX = "ASIA"
"""The beginning of temporary access keys, as at Amazon."""

TOKEN_LIMIT = 12 * 1024
"""Characters of a token. The largest has a policy, tags and claims of 2 KB each."""

_OPEN_LIMIT = 2048
"""Open sessions in memory, about 5 KB each; another one is opened in 50 microseconds."""

_VERSION = b"\x01"
_NONCE_BYTES = 12
_PROOF_BYTES = 16
_KEY_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_KEY_LENGTH = 16
_NOTHING: Mapping[str, str] = {}


class SessionToken(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The content of a token.

    @ivar accessKey: The temporary access key.
    @ivar issuedMs: When the session began, in milliseconds since the epoch.
    @ivar expiresMs: When it ends.
    @ivar key: The access key whose rights the session has; empty for a session of a role.
    @ivar proof: A digest of the secret of C{key}.
    @ivar role: The stored name of the role: L{Entity.key
        <storagegate.objects.identities.entities.Entity.key>}.
    @ivar roleId: The id of the role, which no later role has.
    @ivar name: The name of a session of a role.
    @ivar policy: The policy that narrows the rights; empty for none.
    @ivar tags: The tags of the session, which are tags of the principal.
    @ivar issuer: The issuer of the token of the web identity; empty without one.
    @ivar claims: The claims of that token.
    """

    accessKey: str
    account: str
    issuedMs: int
    expiresMs: int
    key: str = ""
    proof: str = ""
    role: str = ""
    roleId: str = ""
    name: str = ""
    policy: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    issuer: str = ""
    claims: dict[str, str] = field(default_factory=dict)


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


class TokenCipher:
    """Seals and opens the tokens of a store."""

    def __init__(self, secret: bytes) -> None:
        """@param secret: The secret of the store."""
        self._key = hmac.digest(secret, b"storagegate session tokens", "sha256")
        self._secrets = hmac.digest(secret, b"storagegate session secrets", "sha256")
        self._cipher: AESGCM | None = None

    def _aead(self) -> "AESGCM":
        if self._cipher is None:
            # Most processes have no sessions, and this library takes 5 MB.
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._cipher = AESGCM(self._key)
        return self._cipher

    def seal(self, session: SessionToken) -> str:
        """Return the token of a session."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._aead().encrypt(nonce, msgspec.json.encode(session), _VERSION)
        return urlsafe_b64encode(_VERSION + nonce + sealed).rstrip(b"=").decode("ascii")

    def open(self, token: str) -> SessionToken:
        """
        Return the session of a token.

        @raise InvalidToken: This store has not made the token.
        """
        try:
            if len(token) > TOKEN_LIMIT:
                raise ValueError("too long")
            wire = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
            # Otherwise several texts would be the same token.
            if urlsafe_b64encode(wire).rstrip(b"=").decode("ascii") != token:
                raise ValueError("not canonical")
            version, nonce = wire[:1], wire[1 : 1 + _NONCE_BYTES]
            if version != _VERSION or len(nonce) != _NONCE_BYTES:
                raise ValueError("another version")
            cipher = self._aead()
        except ValueError:
            raise InvalidToken() from None
        from cryptography.exceptions import InvalidTag

        try:
            content = cipher.decrypt(nonce, wire[1 + _NONCE_BYTES :], _VERSION)
            return msgspec.json.decode(content, type=SessionToken)
        except (InvalidTag, ValueError):
            raise InvalidToken() from None

    def secretKey(self, accessKey: str) -> str:
        """Return the secret key of a temporary access key: 44 characters."""
        digest = hmac.digest(self._secrets, accessKey.encode(), "sha256")
        return b64encode(digest).decode("ascii")

    def proof(self, secretKey: str) -> str:
        """Return the digest of the secret of a key, by which its sessions end with it."""
        digest = hmac.digest(self._secrets, b"key " + secretKey.encode(), "sha256")
        return digest[:_PROOF_BYTES].hex()


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
        self._open: dict[str, _OpenSession] = {}

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
        issuer: str = "",
        claims: Mapping[str, str] = _NOTHING,
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
        found = self._open.get(token)
        if found is None:
            session = self.cipher.open(token)
            found = _OpenSession(session, self.cipher.secretKey(session.accessKey))
            if len(self._open) >= _OPEN_LIMIT:
                del self._open[next(iter(self._open))]
            self._open[token] = found
        session = found.session
        if session.accessKey != accessKey:
            raise InvalidToken()
        if self._now() * 1000 >= session.expiresMs:
            raise ExpiredToken()
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
