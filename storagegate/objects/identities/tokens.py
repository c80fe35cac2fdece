"""
The tokens of sessions. A token holds everything about its session, sealed with the secret of the
store, so every worker and node can read it::

    token   = Base64url, without padding, of version nonce sealed
    version = %x01
    nonce   = 12 random bytes
    sealed  = AES-256-GCM of the SessionToken as JSON, with the version as associated data

    key of tokens = HMAC-SHA256(secret of the store, "storagegate session tokens")
    secret key    = HMAC-SHA256(key of secrets, access key), in Base64
"""

import hmac
import os
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field

from storagegate.objects.errors import InvalidToken

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

TOKEN_LIMIT = 12 * 1024
"""Characters of a token. The largest has a policy, tags and claims of 8 KB together."""

_VERSION = b"\x01"
_NONCE_BYTES = 12
_PROOF_BYTES = 16


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
    @ivar transitiveTags: More such tags, which a session of a role that this session assumes
        inherits.
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
    transitiveTags: dict[str, str] = field(default_factory=dict)
    issuer: str = ""
    claims: dict[str, str | list[str]] = field(default_factory=dict)


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
