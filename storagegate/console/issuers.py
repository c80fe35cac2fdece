"""
The OpenID Connect issuers at which people sign in to the console.

The secrets of a sign-in are sealed into a cookie, so each worker and each node can finish it::

    POST session/issuers/NAME    sets the cookie, returns the URL of the issuer
    the issuer                   sends the browser back to the console, with code and state
    POST session/code            needs the cookie, and begins the session
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from secrets import token_bytes, token_urlsafe
from typing import TYPE_CHECKING

import msgspec
from attrs import field, frozen
from msgspec import Struct
from twisted.logger import Logger

from storagegate.console.services import ConsoleServices
from storagegate.core.options import OptionError

if TYPE_CHECKING:
    from storagegate.auth.openid import OpenIDClient, SignInAttempt
    from storagegate.console.issueroptions import IssuerOptions

SIGN_IN_SECONDS = 600
"""Time from the click on an issuer's button until the browser is back."""

_log = Logger()

_NONCE_BYTES = 12
_SEAL = b"storagegate console sign-in 1"
_LONGEST_COOKIE = 4096


class PendingSignIn(Struct, frozen=True, forbid_unknown_fields=True):
    """
    A sign-in that an issuer has not answered yet.

    @ivar issuer: The name of the issuer in the configuration.
    """

    issuer: str
    state: str
    nonce: str
    verifier: str
    redirectURL: str
    expiresMs: int

    @property
    def attempt(self) -> "SignInAttempt":
        """The secrets of the sign-in."""
        from storagegate.auth.openid import SignInAttempt

        return SignInAttempt(self.state, self.nonce, self.verifier, self.redirectURL)


@frozen
class Issuer:
    """An issuer with its client."""

    name: str
    options: "IssuerOptions"
    client: "OpenIDClient" = field(repr=False)

    @property
    def label(self) -> str:
        """The name of the issuer for people."""
        return self.options.label or self.name


class Issuers:
    """
    The issuers, and the seal of sign-ins.

    @ivar byName: The issuers by their names in the configuration.
    """

    def __init__(self, byName: Mapping[str, Issuer], services: ConsoleServices) -> None:
        self.byName = byName
        self._services = services

    def begin(self, issuer: Issuer, redirectURL: str) -> PendingSignIn:
        """Make the secrets of a sign-in."""
        expiresMs = int((self._services.now() + SIGN_IN_SECONDS) * 1000)
        return PendingSignIn(
            issuer.name,
            state=token_urlsafe(24),
            nonce=token_urlsafe(24),
            # RFC 7636 section 4.1 requires at least 43 characters.
            verifier=token_urlsafe(48),
            redirectURL=redirectURL,
            expiresMs=expiresMs,
        )

    def seal(self, pending: PendingSignIn) -> str:
        """Encrypt a sign-in for the cookie."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = token_bytes(_NONCE_BYTES)
        sealed = AESGCM(self._services.sealKey).encrypt(nonce, msgspec.json.encode(pending), _SEAL)
        return urlsafe_b64encode(nonce + sealed).decode().rstrip("=")

    def open(self, cookie: str) -> PendingSignIn | None:
        """Decrypt a sign-in; L{None} if it is not authentic, or has expired."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if len(cookie) > _LONGEST_COOKIE or not cookie.isascii():
            return None
        try:
            wire = urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4))
            nonce, sealed = wire[:_NONCE_BYTES], wire[_NONCE_BYTES:]
            plain = AESGCM(self._services.sealKey).decrypt(nonce, sealed, _SEAL)
            pending = msgspec.json.decode(plain, type=PendingSignIn)
        except (ValueError, InvalidTag, msgspec.DecodeError):
            return None
        return pending if pending.expiresMs > self._services.now() * 1000 else None


def makeIssuers(services: ConsoleServices) -> Issuers:
    """Make the issuers of the configuration; none if the file of a secret has become unusable."""
    table = services.options.signIn
    if not table:
        return Issuers({}, services)
    # PyJWT and the client of issuers take megabytes, so they are imported only if needed.
    from storagegate.auth.oauth import MetadataFetcher
    from storagegate.auth.openid import OpenIDClient
    from storagegate.console.issueroptions import readIssuers

    found = {}
    try:
        read = readIssuers(table)
    except OptionError as error:
        # The configuration was valid at the start. Key pairs must still sign in.
        _log.error("console: sign-in at issuers is off: {error}", error=error)
        return Issuers({}, services)
    for name, options in read.items():
        fetcher = MetadataFetcher(services.reactor, frozenset({options.issuer.host}))
        client = OpenIDClient(
            options.issuer, options.clientId, options.secret(), options.scopes, fetcher
        )
        found[name] = Issuer(name, options, client)
    return Issuers(found, services)
