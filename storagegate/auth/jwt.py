"""
JSON Web Tokens (RFC 7519) with a key that is configured.

PyJWT checks the signature and the claims. Here it is told what it does not insist on by itself:
that a token ends at some time, that a key is long enough, and that nobody chooses the algorithm but
whoever configured it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jwt
from attrs import field, frozen
from attrs.converters import optional

from storagegate.auth.jwks import ASYMMETRIC, VerificationKey, readPublicKey
from storagegate.auth.tokens import (
    TokenError,
    VerifiedTokenCache,
    extracted,
    looksLikeJWT,
    readExtract,
)
from storagegate.core.context import MAX_TOKEN_LENGTH, RequestContext
from storagegate.core.invoker import CallCredentials
from storagegate.core.options import OptionError, makeOptions

# RFC 7518 section 3.2: a key is at least as long as the hash.
_SECRET_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}
SYMMETRIC = tuple(_SECRET_BYTES)

LEEWAY_SECONDS = 5
"""How far clocks may differ: what NTP leaves, with room."""

MAX_LEEWAY_SECONDS = 300
"""Kerberos's five minutes; with more, the end of a token means little."""

# Base64url whose unused bits are zero: one token has one spelling (RFC 4648 section 3.5).
_PART = r"(?:[\w-]{4})*(?:[\w-][AQgw]|[\w-]{2}[AEIMQUYcgkosw048])?"
_EXACT = re.compile(rf"{_PART}\.{_PART}\.{_PART}", re.ASCII)


@frozen
class JWTProvider:
    """
    Knows tokens that were signed with a configured key; the user is their claims.

    @ivar key: A shared secret, or a public key.
    @ivar algorithms: Which may be used; all with a secret, or all with a public key.
    """

    key: Any = field(repr=False)
    algorithms: tuple[str, ...]
    audience: str | tuple[str, ...] | None = None
    issuer: str | None = None
    leeway: float = LEEWAY_SECONDS
    extract: Any = None
    _checked: VerifiedTokenCache = field(init=False, repr=False, eq=False)

    @_checked.default
    def _makeChecked(self) -> VerifiedTokenCache:
        return VerifiedTokenCache(self.leeway)

    def recognises(self, context: RequestContext, credentials: CallCredentials) -> str | None:
        """Give the token, if it looks like one of these."""
        token = extracted(self.extract, context.protocol, credentials)
        return token if token is not None and looksLikeJWT(token) else None

    def verify(self, token: str, context: RequestContext) -> dict[str, Any]:
        """
        Give the claims.

        @raise TokenError: If the token is not good.
        """
        return self._checked.claims(
            token,
            self.key,
            lambda: verifiedClaims(
                token, self.key, self.algorithms, self.audience, self.issuer, self.leeway
            ),
        )


def verifiedClaims(
    token: str,
    key: Any,
    algorithms: Sequence[str],
    audience: str | Sequence[str] | None,
    issuer: str | None,
    leeway: float,
) -> dict[str, Any]:
    """
    Give the claims of a token.

    @raise TokenError: If it is not good.
    """
    if len(token) > MAX_TOKEN_LENGTH:
        raise TokenError("it is too long")
    if not _EXACT.fullmatch(token):
        raise TokenError("it is not written as a token is")
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(algorithms),
            audience=audience,
            issuer=issuer,
            leeway=leeway,
            # Who has not said what it is called cannot tell whether it is meant.
            options={
                "require": ["exp"],
                "verify_aud": audience is not None,
                "enforce_minimum_key_length": True,
            },
        )
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
        # Not its text, which may quote the token.
        raise TokenError(type(error).__name__) from None
    return claims


def readLeeway(value: Any) -> float:
    """Read how far clocks may differ."""
    isNumber = isinstance(value, int | float) and not isinstance(value, bool)
    if not isNumber or not 0 <= value <= MAX_LEEWAY_SECONDS:
        raise ValueError(f"is a number of seconds from 0 to {MAX_LEEWAY_SECONDS}")
    return float(value)


def readAudience(value: Any) -> str | tuple[str, ...]:
    """Read whom tokens are for: a name, or a list of names of which one is enough."""
    names = [value] if isinstance(value, str) else value
    isList = isinstance(names, list | tuple) and len(names) > 0
    if not isList or not all(isinstance(name, str) and name for name in names):
        raise ValueError("is a name, or a list of names")
    return value if isinstance(value, str) else tuple(names)


def readAlgorithms(value: Any) -> tuple[str, ...]:
    """Read names of algorithms: all of them for a secret, or all for a public key."""
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("is a list of algorithms")
    for name in value:
        if name not in SYMMETRIC and name not in ASYMMETRIC:
            raise ValueError(f"has {name!r:.20}; there are {', '.join((*SYMMETRIC, *ASYMMETRIC))}")
    if len({name in SYMMETRIC for name in value}) > 1:
        raise ValueError("mixes algorithms of a secret with those of a public key")
    return tuple(value)


def _readIssuer(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("is text")
    return value


def _readSecret(value: Any) -> bytes:
    if not isinstance(value, str | bytes):
        raise ValueError("is text")
    secret = value.encode() if isinstance(value, str) else value
    # Whoever gives a key as a secret means it for what publicKey is for; everybody may know it.
    if b"-----BEGIN" in secret or secret.startswith((b"ssh-", b"ecdsa-")):
        raise ValueError("is a shared secret; a key in PEM is a publicKey")
    return secret


@frozen
class JWTOptions:
    """
    The options of the provider C{jwt}.

    @ivar secret: What both sides know, as many bytes at least as the algorithm's hash has, 32 for
        C{HS256}; either this or C{publicKey}.
    @ivar publicKey: The key of whoever signs, in PEM.
    @ivar algorithms: Those that tokens may be signed with, all for secrets or all for public keys;
        without it C{HS256} for a secret, and for a public key the first that fits it.
    @ivar audience: Whom tokens are for; without it C{aud} is not looked at.
    @ivar issuer: Who has signed them; without it C{iss} is not looked at.
    @ivar leeway: Seconds that clocks may differ by.
    @ivar extractToken: Finds the token elsewhere in the request, message or call of a wire; a
        mapping has one such function for each protocol.
    """

    secret: bytes | None = field(default=None, converter=optional(_readSecret), repr=False)
    publicKey: VerificationKey | None = field(default=None, converter=optional(readPublicKey))
    algorithms: tuple[str, ...] | None = field(default=None, converter=optional(readAlgorithms))
    audience: str | tuple[str, ...] | None = field(default=None, converter=optional(readAudience))
    issuer: str | None = field(default=None, converter=optional(_readIssuer))
    leeway: float = field(default=LEEWAY_SECONDS, converter=readLeeway)
    extractToken: Any = field(default=None, converter=optional(readExtract))


def readJWT(given: Any) -> JWTProvider:
    """
    Read the options of the provider C{jwt}, see L{JWTOptions}.

    @raise OptionError: If there is no such option, or its value is none or not safe.
    """
    name = "authentication.providers.jwt"
    if not isinstance(given, Mapping):
        raise OptionError(f"the option {name} is a mapping")
    options = makeOptions(JWTOptions, given, f"{name}.")
    if options.secret is not None and options.publicKey is None:
        key, fitting, algorithms = options.secret, SYMMETRIC, options.algorithms or ("HS256",)
    elif options.publicKey is not None and options.secret is None:
        key, fitting = options.publicKey.key, options.publicKey.algorithms
        algorithms = options.algorithms or fitting[:1]
    else:
        raise OptionError(f"{name} has either a secret or a publicKey")
    for algorithm in algorithms:
        if algorithm not in fitting:
            raise OptionError(
                f"the option {name}.algorithms has {algorithm}; with this key there are "
                f"{', '.join(fitting)}"
            )
        if len(options.secret or b"") < _SECRET_BYTES.get(algorithm, 0):
            raise OptionError(
                f"the option {name}.secret is too short: {algorithm} needs "
                f"{_SECRET_BYTES[algorithm]} bytes"
            )
    return JWTProvider(
        key,
        algorithms,
        options.audience,
        options.issuer,
        options.leeway,
        options.extractToken,
    )
