"""
Public keys that signatures are checked with: PEM, and sets of JSON Web Keys (RFC 7517).

What a key may be used for follows from the key itself, never from a token that it is to check.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt import PyJWTError
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVE_ALGORITHMS = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
ASYMMETRIC = (*RSA_ALGORITHMS, *_CURVE_ALGORITHMS.values(), "EdDSA")

MIN_RSA_BITS = 2048
"""What RFC 7518 section 3.3 demands."""

MAX_RSA_BITS = 8192
"""A check with this one takes half a millisecond of the thread that serves everybody."""

MAX_RSA_EXPONENT = 1 << 32
"""Everybody uses 65537; the time that a check takes grows with its length."""

MAX_KEYS = 100
"""Keys of a set: issuers have two or three, those with a key for each client have dozens."""

_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "RSA": RSAAlgorithm.from_jwk,
    "EC": ECAlgorithm.from_jwk,
    "OKP": OKPAlgorithm.from_jwk,
}


@frozen
class VerificationKey:
    """
    A public key.

    @ivar kid: Its name, C{None} if it has none.
    @ivar algorithms: Those that it may be used with.
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
        Find the key that a token names.

        @param kid: C{None} if it names none: then there has to be only one that could be meant.
        """
        found = [key for key in self.keys if algorithm in key.algorithms]
        if kid is None:
            return found[0] if len(found) == 1 else None
        return next((key for key in found if key.kid == kid), None)


def fittingAlgorithms(key: Any) -> tuple[str, ...]:
    """
    Give the algorithms that a public key is good for.

    @raise ValueError: If there are none, for it is a private key above all, or it is weak.
    """
    if isinstance(key, RSAPublicKey):
        if not MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS:
            raise ValueError(
                f"has {key.key_size} bits; an RSA key has {MIN_RSA_BITS} to {MAX_RSA_BITS}"
            )
        if key.public_numbers().e > MAX_RSA_EXPONENT:
            raise ValueError("has an exponent that nobody uses")
        return RSA_ALGORITHMS
    if isinstance(key, EllipticCurvePublicKey) and key.curve.name in _CURVE_ALGORITHMS:
        return (_CURVE_ALGORITHMS[key.curve.name],)
    if isinstance(key, Ed25519PublicKey):
        return ("EdDSA",)
    raise ValueError("is a key of RSA, of P-256, P-384 or P-521, or of Ed25519")


def readPublicKey(value: Any) -> VerificationKey:
    """Read a public key in PEM."""
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
    Read a set of JSON Web Keys.

    Keys that are for something else or that are weak are left out, as RFC 7517 section 5 has it.

    @raise ValueError: If it is no such set, or too large.
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
    if not isinstance(entry, Mapping) or not _isForSignatures(entry):
        return None
    parser = _PARSERS.get(str(entry.get("kty")))
    if parser is None:
        # Above all a shared secret: what everybody can read is none.
        return None
    try:
        key = parser(dict(entry))
        algorithms = fittingAlgorithms(key)
    except (PyJWTError, ValueError, TypeError, KeyError, AttributeError, UnsupportedAlgorithm):
        return None
    if "alg" in entry:
        algorithms = tuple(name for name in algorithms if name == entry["alg"])
    kid = entry.get("kid")
    if not algorithms or not isinstance(kid, str | None):
        return None
    return VerificationKey(kid, key, algorithms)


def _isForSignatures(entry: Mapping[str, Any]) -> bool:
    """Tell whether a key is meant for checking signatures (RFC 7517 section 4)."""
    operations = entry.get("key_ops", ["verify"])
    return (
        entry.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations
    )
