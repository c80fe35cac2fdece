"""
JSON Web Tokens (RFC 7519) with a key that is configured.

PyJWT checks the signature and the claims. Here it is told what it does not insist on by itself:
that a token ends at some time, that a key is long enough, and that nobody chooses the algorithm but
whoever configured it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jwt
from attrs import frozen

from storagegate.core.context import RequestContext
from storagegate.core.invocation import CallCredentials
from storagegate.core.optionvalues import OptionError
from storagegate.core.tokens import MAX_TOKEN_LENGTH, extracted, looksLikeJWT

SYMMETRIC = ("HS256", "HS384", "HS512")
ASYMMETRIC = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)

LEEWAY_SECONDS = 5
"""How far clocks may differ: what NTP leaves, with room."""

# RFC 7518 section 3.2: a key is at least as long as the hash.
_KEY_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}


@frozen
class JWTProvider:
    """
    Knows tokens that were signed with a configured key; the user is their claims.

    @ivar key: A shared secret, or a public key in PEM.
    @ivar algorithms: Which may be used; all with a secret, or all with a public key.
    """

    key: str | bytes
    algorithms: tuple[str, ...]
    audience: str | tuple[str, ...] | None = None
    issuer: str | None = None
    leeway: float = LEEWAY_SECONDS
    extract: Any = None

    def recognises(self, context: RequestContext, credentials: CallCredentials) -> str | None:
        """Give the token, if it looks like one of these."""
        token = credentials.token
        if self.extract is not None:
            token = extracted(self.extract, context.protocol, credentials)
        return token if token is not None and looksLikeJWT(token) else None

    def verify(self, token: str, context: RequestContext) -> dict[str, Any]:
        """
        Give the claims.

        @raise ValueError: If the token is not good.
        """
        return verifiedClaims(
            token, self.key, self.algorithms, self.audience, self.issuer, self.leeway
        )


def verifiedClaims(
    token: str,
    key: Any,
    algorithms: Sequence[str],
    audience: Any,
    issuer: str | None,
    leeway: float,
) -> dict[str, Any]:
    """
    Give the claims of a token.

    @raise ValueError: If it is not good; the reason is for nobody but the log.
    """
    if len(token) > MAX_TOKEN_LENGTH:
        raise ValueError("it is too long")
    required = ["exp"]
    if audience is not None:
        required.append("aud")
    if issuer is not None:
        required.append("iss")
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(algorithms),
            audience=audience,
            issuer=issuer,
            leeway=leeway,
            # A token for somebody else is none for us, whether or not we have said who we are.
            options={"require": required, "verify_aud": audience is not None},
        )
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"the token is not good: {type(error).__name__}") from None
    return claims


def readJWT(given: Any) -> JWTProvider:
    """
    Read the options of the provider C{jwt}.

    @raise OptionError: If they are none, or not safe.
    """
    name = "authentication.providers.jwt"
    if not isinstance(given, Mapping):
        raise OptionError(f"the option {name} is a mapping")
    known = {
        "secret",
        "publicKey",
        "algorithms",
        "audience",
        "issuer",
        "leeway",
        "extractToken",
    }
    for key in given:
        if key not in known:
            raise OptionError(f"there is no option {name}.{key}; there are {sorted(known)}")
    secret, publicKey = given.get("secret"), given.get("publicKey")
    if (secret is None) == (publicKey is None):
        raise OptionError(f"{name} has either a secret or a publicKey")
    default = ("HS256",) if secret is not None else ("RS256", "ES256")
    algorithms = given.get("algorithms", default)
    if isinstance(algorithms, str) or not algorithms:
        raise OptionError(f"the option {name}.algorithms is a list of algorithms")
    allowed = SYMMETRIC if secret is not None else ASYMMETRIC
    for algorithm in algorithms:
        if algorithm not in allowed:
            kind = "a secret" if secret is not None else "a publicKey"
            raise OptionError(
                f"{name}.algorithms has {algorithm!r:.20}; with {kind} there are {allowed}"
            )
    if secret is not None:
        _checkSecret(name, secret, algorithms)
    leeway = given.get("leeway", LEEWAY_SECONDS)
    if isinstance(leeway, bool) or not isinstance(leeway, int | float) or not 0 <= leeway <= 300:
        raise OptionError(f"the option {name}.leeway is a number of seconds from 0 to 300")
    audience = given.get("audience")
    configured: Any = secret if secret is not None else publicKey
    return JWTProvider(
        configured,
        tuple(algorithms),
        tuple(audience) if isinstance(audience, list) else audience,
        given.get("issuer"),
        leeway,
        given.get("extractToken"),
    )


def _checkSecret(name: str, secret: Any, algorithms: Sequence[str]) -> None:
    if not isinstance(secret, str | bytes):
        raise OptionError(f"the option {name}.secret is text")
    length = len(secret.encode() if isinstance(secret, str) else secret)
    wanted = max(_KEY_BYTES[algorithm] for algorithm in algorithms)
    if length < wanted:
        raise OptionError(f"the option {name}.secret has {length} bytes; {wanted} are needed")
