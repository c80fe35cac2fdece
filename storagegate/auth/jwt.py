"""
JSON Web Tokens (RFC 7519) with configured keys, and public keys in PEM and JWK form (RFC 7517).

PyJWT verifies signatures and claims. This module adds requirements: an expiry, a minimum key
length, and algorithms that the configuration and the key choose, never the token.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jwt
from attrs import field, frozen
from attrs.converters import optional
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from storagegate.auth.tokens import (
    TokenError,
    VerifiedTokenCache,
    extractedJWT,
    readExtract,
    readOptions,
)
from storagegate.core.context import MAX_TOKEN_LENGTH, RequestContext
from storagegate.core.invoker import CallCredentials
from storagegate.core.options import OptionError

RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVE_ALGORITHMS = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
ASYMMETRIC = (*RSA_ALGORITHMS, *_CURVE_ALGORITHMS.values(), "EdDSA")

MIN_RSA_BITS = 2048
"""The minimum of RFC 7518 section 3.3."""

MAX_RSA_BITS = 8192
"""A verification with such a key takes half a millisecond of the reactor thread."""

MAX_RSA_EXPONENT = 1 << 32
"""The usual exponent is 65537; the time of a verification grows with its length."""

MAX_KEYS = 100
"""Keys of a set: issuers have two or three, or dozens with one key per client."""

_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "RSA": RSAAlgorithm.from_jwk,
    "EC": ECAlgorithm.from_jwk,
    "OKP": OKPAlgorithm.from_jwk,
}


@frozen
class VerificationKey:
    """
    A public key.

    @ivar kid: The identifier of the key; C{None} for none.
    @ivar algorithms: The algorithms that the key may be used with.
    """

    kid: str | None
    key: Any
    algorithms: tuple[str, ...]


@frozen
class KeySet:
    """The keys of an issuer."""

    keys: tuple[VerificationKey, ...]

    def find(self, kid: str | None, algorithm: str) -> VerificationKey | None:
        """
        Return the key that a token names; C{None} if it is absent.

        @param kid: The identifier in the token; C{None} selects the only key of the algorithm.
        @param algorithm: The algorithm of the token.
        """
        found = [key for key in self.keys if algorithm in key.algorithms]
        if kid is None:
            return found[0] if len(found) == 1 else None
        return next((key for key in found if key.kid == kid), None)


def fittingAlgorithms(key: Any) -> tuple[str, ...]:
    """Return the algorithms for a public key; raise L{ValueError} if there are none."""
    if isinstance(key, RSAPublicKey):
        if not MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS:
            raise ValueError(
                f"has {key.key_size} bits; an RSA key has {MIN_RSA_BITS} to {MAX_RSA_BITS}"
            )
        if key.public_numbers().e > MAX_RSA_EXPONENT:
            raise ValueError("has an exponent that is too large")
        return RSA_ALGORITHMS
    if isinstance(key, EllipticCurvePublicKey) and key.curve.name in _CURVE_ALGORITHMS:
        return (_CURVE_ALGORITHMS[key.curve.name],)
    if isinstance(key, Ed25519PublicKey):
        return ("EdDSA",)
    raise ValueError("is a key of RSA, of P-256, P-384 or P-521, or of Ed25519")


def readPublicKey(value: Any) -> VerificationKey:
    """Read a public key in PEM; raise L{ValueError} if it is invalid."""
    if not isinstance(value, str | bytes):
        raise ValueError("is a public key in PEM")
    pem = value.encode() if isinstance(value, str) else value
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        if b"PRIVATE KEY" in pem:
            raise ValueError("is a private key; its public half belongs here") from None
        raise ValueError("is a public key in PEM") from None
    return VerificationKey(None, key, fittingAlgorithms(key))


def readKeySet(document: bytes) -> KeySet:
    """
    Parse a set of JSON Web Keys.

    Weak keys and keys for other purposes are ignored, as in RFC 7517 section 5.

    @raise ValueError: The document is not a key set, or is too large.
    """
    try:
        given = json.loads(document)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    entries = given.get("keys") if isinstance(given, dict) else None
    if not isinstance(entries, list):
        raise ValueError("it is no set of keys")
    if len(entries) > MAX_KEYS:
        raise ValueError(f"it has {len(entries)} keys, more than {MAX_KEYS}")
    return KeySet(tuple(key for key in map(_readKey, entries) if key is not None))


def _readKey(entry: Any) -> VerificationKey | None:
    # RFC 7517 section 4 defines the markers of keys for verifying signatures.
    if not isinstance(entry, Mapping) or entry.get("use", "sig") != "sig":
        return None
    operations = entry.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    parser = _PARSERS.get(str(entry.get("kty")))
    if parser is None:
        # Above all a shared secret, which a publication would disclose.
        return None
    if "d" in entry:
        # A private key (RFC 7518 sections 6.2.2 and 6.3.2). To compute the primes of a long one
        # would take the reactor hours.
        return None
    try:
        key = parser(dict(entry))
        algorithms = fittingAlgorithms(key)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError, UnsupportedAlgorithm):
        return None
    if "alg" in entry:
        algorithms = tuple(name for name in algorithms if name == entry["alg"])
    kid = entry.get("kid")
    if not algorithms or not isinstance(kid, str | None):
        return None
    return VerificationKey(kid, key, algorithms)


# RFC 7518 section 3.2: a key is at least as long as the hash output.
_SECRET_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}
SYMMETRIC = tuple(_SECRET_BYTES)

LEEWAY_SECONDS = 5
"""Tolerated clock difference: more than NTP leaves."""

MAX_LEEWAY_SECONDS = 300
"""Kerberos's five minutes; with a larger leeway, the expiry of a token means little."""

_LATEST = 1 << 53
"""The last second that C{exp} may name: JSON has larger numbers, which are no times."""

# Base64url with zero padding bits, so that each token has only one encoding (RFC 4648 section 3.5).
_PART = r"(?:[\w-]{4})*(?:[\w-][AQgw]|[\w-]{2}[AEIMQUYcgkosw048])?"
_EXACT = re.compile(rf"{_PART}\.{_PART}\.{_PART}", re.ASCII)


@frozen
class JWTProvider:
    """
    The provider C{jwt}: tokens that are signed with a configured key. The claims are the user.

    @ivar key: A shared secret, or a public key.
    @ivar algorithms: The allowed algorithms; all for a secret, or all for a public key.
    @ivar audience: The accepted values of C{aud}; C{None} accepts all.
    @ivar issuer: The accepted value of C{iss}; C{None} accepts all.
    @ivar leeway: Tolerated clock difference, in seconds.
    @ivar extract: Extracts the token, see L{readExtract}.
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
        """Return the token if it has the form of a JSON Web Token."""
        return extractedJWT(self.extract, context.protocol, credentials)

    def verify(self, token: str, context: RequestContext) -> dict[str, Any]:
        """
        Return the claims.

        @raise TokenError: The token is invalid.
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
    Verify a token, and return its claims.

    @param key: A shared secret, or a public key.
    @param algorithms: The allowed algorithms.
    @param audience: The accepted values of C{aud}; C{None} accepts all.
    @param issuer: The accepted value of C{iss}; C{None} accepts all.
    @param leeway: Tolerated clock difference, in seconds.
    @raise TokenError: The token is invalid.
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
            # An audience can only be compared with a configured name.
            options={
                "require": ["exp"],
                "verify_aud": audience is not None,
                "enforce_minimum_key_length": True,
            },
        )
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
        # The error's text may quote the token.
        raise TokenError(type(error).__name__) from None
    if int(claims["exp"]) > _LATEST:
        raise TokenError("its exp is no time")
    return claims


def readLeeway(value: Any) -> float:
    """Read the tolerated clock difference, in seconds."""
    isNumber = isinstance(value, int | float) and not isinstance(value, bool)
    if not isNumber or not 0 <= value <= MAX_LEEWAY_SECONDS:
        raise ValueError(f"is a number of seconds from 0 to {MAX_LEEWAY_SECONDS}")
    return float(value)


def readAudience(value: Any) -> str | tuple[str, ...]:
    """Read the audience of tokens: a name, or a list of names, one of which must match."""
    names = [value] if isinstance(value, str) else value
    isList = isinstance(names, list | tuple) and len(names) > 0
    if not isList or not all(isinstance(name, str) and name for name in names):
        raise ValueError("is a name, or a list of names")
    return value if isinstance(value, str) else tuple(names)


def readAlgorithms(value: Any) -> tuple[str, ...]:
    """Read names of algorithms: all for a secret, or all for a public key."""
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
    # With a public key as shared secret, its holders could sign tokens.
    if b"-----BEGIN" in secret or secret.startswith((b"ssh-", b"ecdsa-")):
        raise ValueError("is a shared secret; a key in PEM is a publicKey")
    return secret


@frozen
class JWTOptions:
    """
    The options of the provider C{jwt}.

    @ivar secret: The shared secret, at least as long as the algorithm's hash output, 32 bytes for
        C{HS256}; either this or C{publicKey}.
    @ivar publicKey: The public key of the signer, in PEM.
    @ivar algorithms: The allowed signature algorithms, all for secrets or all for public keys; by
        default C{HS256} for a secret, and the first suitable algorithm for a public key.
    @ivar audience: The audience of tokens; if absent, C{aud} is not checked.
    @ivar issuer: The issuer of tokens; if absent, C{iss} is not checked.
    @ivar leeway: Tolerated clock difference, in seconds.
    @ivar extractToken: Extracts the token from the request, message or call of a transport; a
        mapping has one such function per protocol.
    """

    secret: bytes | None = field(default=None, converter=optional(_readSecret), repr=False)
    publicKey: VerificationKey | None = field(default=None, converter=optional(readPublicKey))
    algorithms: tuple[str, ...] | None = field(default=None, converter=optional(readAlgorithms))
    audience: str | tuple[str, ...] | None = field(default=None, converter=optional(readAudience))
    issuer: str | None = field(default=None, converter=optional(_readIssuer))
    leeway: float = field(default=LEEWAY_SECONDS, converter=readLeeway)
    extractToken: Any = field(default=None, converter=optional(readExtract))


def readJWT(given: Any) -> JWTProvider:
    """Read the options of the provider C{jwt}, see L{JWTOptions}."""
    name = "authentication.providers.jwt"
    options = readOptions(JWTOptions, given, "jwt")
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
