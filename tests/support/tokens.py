"""Tokens signed by an independent library, and forged tokens."""

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from functools import cache
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from twisted.internet.defer import ensureDeferred
from twisted.python.failure import Failure

from storagegate.core.context import ClientInfo, RequestContext, Tracing

SECRET = "a secret of more than thirty-two bytes"
ISSUER = "https://login.example.com/"
AUDIENCE = "orders"


@cache
def rsaKey(kid: str = "rsa", bits: int = 2048) -> RSAKey:
    """Return an RSA key, cached by name, because generation is slow."""
    return RSAKey.generate_key(bits, {"kid": kid}, private=True)


@cache
def ecKey(kid: str = "ec", curve: str = "P-256") -> ECKey:
    """Return a key on an elliptic curve."""
    return ECKey.generate_key(curve, {"kid": kid}, private=True)


@cache
def edKey(kid: str = "ed") -> OKPKey:
    """Return an Ed25519 key."""
    return OKPKey.generate_key("Ed25519", {"kid": kid}, private=True)


def publicPEM(key: Any) -> str:
    """Encode a public key as PEM."""
    return bytes(key.as_pem(private=False)).decode()


def jwks(*keys: Any, **more: Any) -> bytes:
    """Encode the public keys as a key set."""
    return json.dumps({"keys": [{**key.as_dict(private=False), **more} for key in keys]}).encode()


def claims(**more: Any) -> dict[str, Any]:
    """Make claims that are valid for an hour; a claim that is C{None} is omitted."""
    good = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 3600, **more}
    return {name: value for name, value in good.items() if value is not None}


def signed(
    key: Any = SECRET,
    algorithm: str = "HS256",
    given: Mapping[str, Any] | None = None,
    **header: Any,
) -> str:
    """Sign claims."""
    if isinstance(key, str | bytes):
        key = OctKey.import_key(key)
    # Do not check headers with a meaning to libraries.
    registry = jwt.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    return jwt.encode({"alg": algorithm, **header}, dict(given or claims()), key, registry=registry)


def part(value: Any) -> str:
    """Encode a part of a token, from bytes or as JSON."""
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def forged(header: Any, given: Any = None, signature: bytes = b"") -> str:
    """Make a forged token."""
    return f"{part(header)}.{part(claims() if given is None else given)}.{part(signature)}"


def makeContext(protocol: str = "http", service: str = "Probe", **headers: str) -> RequestContext:
    """Make the context of a call."""
    tracing = Tracing("0" * 31 + "1")
    client = ClientInfo("1", "127.0.0.1", 5000)
    return RequestContext(protocol, service, "echo", client, tracing, headers)


def settled(value: Any) -> Any:
    """Return a value, or the result of an awaitable that is available already; raise its error."""
    if not hasattr(value, "__await__"):
        return value
    results: list[Any] = []
    ensureDeferred(value).addBoth(results.append)
    [result] = results
    if isinstance(result, Failure):
        result.raiseException()
    return result
