"""
Public keys that signatures are checked with: PEM, and sets of JSON Web Keys (RFC 7517).

What a key may be used for follows from the key itself, never from a token that it is to check.

Fetches documents of an issuer of tokens, from nowhere else and never more than fits::

    https://host[:port]/path        anywhere that is allowed
    http://localhost[:port]/path    this machine: also 127.0.0.0/8 and [::1]

An issuer's document names another address, and a name may lead anywhere: so what counts is the
address that is connected to, not how it was written. No redirection is followed.

The keys of an issuer of tokens, as OpenID Connect Discovery and RFC 8414 have it::

    issuer -> /.well-known/openid-configuration -> jwks_uri -> a set of keys

They are fetched when they are first needed, anew after a while, and when a token names a key that
is not among them; never more often than the cooldown allows, whatever anybody sends.
"""

import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import urlsplit

from attrs import frozen
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt import PyJWTError
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from storagegate.core.errors import codedError
from storagegate.net.http.client import HTTPClient, HTTPStatusError
from storagegate.net.tls import ClientTLSOptions

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


MAX_DOCUMENT_BYTES = 256 * 1024
"""Of a response: a hundred keys with certificates have half of it."""

TIMEOUT_SECONDS = 10.0
"""For one document: calls wait for it, and an issuer that takes longer is down."""

Address = IPv4Address | IPv6Address

# Where clouds tell machines their secrets, besides the link-local 169.254.169.254: of AWS over
# IPv6, Alibaba, Oracle and Azure.
_METADATA = frozenset(
    map(ip_address, ("fd00:ec2::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"))
)

# RFC 6052: an IPv4 address in IPv6's clothes.
_NAT64 = IPv6Network("64:ff9b::/96")

_URL = re.compile(
    r"(https?)://([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?"
    r"(/[!-~]{0,2000})?"
)


class FetchError(Exception):
    """A document cannot be had, or not be used; the text says why."""


@frozen
class DocumentURL:
    """
    Where a document is.

    @ivar text: As it was written.
    @ivar host: A name or an address, without brackets, in lower case.
    """

    text: str
    scheme: str
    host: str


def readURL(value: Any) -> DocumentURL:
    """
    Read an address that documents may be fetched from.

    @raise ValueError: If it is none.
    """
    match = _URL.fullmatch(value) if isinstance(value, str) else None
    if match is None or "#" in value or "\\" in value or int(match[3] or 1) > 65535:
        raise ValueError("is an https URL")
    url = DocumentURL(value, match[1], match[2].strip("[]").lower())
    if url.scheme == "http" and not _namesLoopback(url.host):
        raise ValueError("is an https URL; http is for this machine alone")
    return url


def addressAllowed(text: str, url: DocumentURL, trusted: frozenset[str]) -> bool:
    """
    Tell whether a document may be fetched from an address that the URL's host has led to.

    @param trusted: The hosts that the configuration names: those may be in a private network.
    """
    address = _bare(ip_address(text.partition("%")[0]))
    if url.host in trusted and _asAddress(url.host) == address:
        return True
    if url.scheme == "http":
        return address.is_loopback
    if address.is_link_local or address.is_unspecified or address.is_multicast:
        return False
    if address in _METADATA:
        return False
    return url.host in trusted or address.is_global


def _bare(address: Address) -> Address:
    """Take off what an IPv4 address may be wrapped in."""
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return IPv4Address(address.packed[-4:])
        return address.ipv4_mapped or address.sixtofour or address
    return address


def _asAddress(host: str) -> Address | None:
    try:
        return _bare(ip_address(host))
    except ValueError:
        return None


def _namesLoopback(host: str) -> bool:
    address = _asAddress(host)
    return host == "localhost" if address is None else address.is_loopback


class MetadataFetcher:
    """Fetches documents of an issuer."""

    def __init__(
        self, reactor: Any, trusted: frozenset[str], tls: ClientTLSOptions | None = None
    ) -> None:
        """
        @param trusted: The hosts that the configuration names.
        @param tls: The trust roots; C{None} for those of the system.
        """
        self._reactor = reactor
        self._trusted = trusted
        self._tls = tls or ClientTLSOptions()

    async def fetch(self, url: DocumentURL) -> bytes:
        """
        Fetch a document.

        @raise HTTPStatusError: If the status of the response is not 200.
        @raise HTTPClientError: If there is no response from an allowed address.
        """

        def allows(address: str) -> bool:
            return addressAllowed(address, url, self._trusted)

        client = HTTPClient(self._reactor, url.text, self._tls, MAX_DOCUMENT_BYTES, allows)
        response = await client.request("GET", seconds=TIMEOUT_SECONDS)
        if response.status != 200:
            raise HTTPStatusError(url.text, response.status)
        return response.body


REFRESH_SECONDS = 300.0
"""From this age on keys are fetched anew while the old ones are still used."""

MAX_AGE_SECONDS = 600.0
"""From this age on calls wait for new ones: a withdrawn key is good no longer than this."""

MAX_STALE_SECONDS = 24 * 3600.0
"""As long as this keys are used if the issuer cannot be reached: an outage of a night."""

COOLDOWN_SECONDS = 15.0
"""Between two fetches: four in a minute are no burden, and a new key is known after this."""

_log = Logger()

Fetch = Callable[[DocumentURL], Awaitable[bytes]]


class JWKSCache:
    """
    Knows the keys of an issuer.

    All who wait for keys share one fetch, and nobody who leaves ends it.
    """

    def __init__(
        self,
        issuer: DocumentURL,
        fetch: Fetch,
        keysURL: DocumentURL | None = None,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        @param fetch: Gives a document.
        @param keysURL: Where the keys are; C{None} asks the issuer.
        @param seconds: Gives seconds for measuring.
        """
        self._issuer = issuer
        self._fetch = fetch
        self._keysURL = keysURL
        self._seconds = seconds
        self._keys = KeySet(())
        self._fetchedAt = float("-inf")
        self._triedAt = float("-inf")
        self._fetching = False
        self._waiting: list[Deferred[None]] = []

    def known(self, kid: str | None, algorithm: str) -> VerificationKey | None:
        """Give a key if it is here and young enough to be used without asking."""
        age = self._seconds() - self._fetchedAt
        if age >= MAX_AGE_SECONDS:
            return None
        if age >= REFRESH_SECONDS:
            self._begin()
        return self._keys.find(kid, algorithm)

    async def find(self, kid: str | None, algorithm: str) -> VerificationKey | None:
        """
        Give a key, after asking the issuer if it has not been asked just now.

        @return: C{None} if it has no such key.
        @raise ServiceError: C{UNAVAILABLE} if nobody knows.
        """
        self._begin()
        if self._fetching:
            # Each has a Deferred of its own: cancelling it leaves the fetch alone.
            waiter: Deferred[None] = Deferred()
            self._waiting.append(waiter)
            await waiter
        if self._seconds() - self._fetchedAt >= MAX_STALE_SECONDS:
            raise codedError("UNAVAILABLE", "The issuer of tokens cannot be reached")
        return self._keys.find(kid, algorithm)

    def _begin(self) -> None:
        """Begin to fetch, unless that has been tried just now."""
        now = self._seconds()
        if self._fetching or now - self._triedAt < COOLDOWN_SECONDS:
            return
        self._triedAt = now
        self._fetching = True
        Deferred.fromCoroutine(self._refresh()).addErrback(self._failed).addBoth(self._ended)

    async def _refresh(self) -> None:
        url = self._keysURL or await self._discover()
        keys = readKeySet(await self._fetch(url))
        if not keys.keys:
            raise FetchError(f"{url.text} has no key that signatures can be checked with")
        self._keys = keys
        self._fetchedAt = self._seconds()

    async def _discover(self) -> DocumentURL:
        """Ask the issuer where its keys are."""
        first, second = _places(self._issuer)
        try:
            document = await self._fetch(first)
        except HTTPStatusError as error:
            if error.status != 404:
                raise
            document = await self._fetch(second)
        try:
            metadata = json.loads(document)
        except RecursionError:
            raise FetchError("the issuer's document is nested too deeply") from None
        # RFC 8414 section 3.3: who says to be somebody else is not to be believed.
        if not isinstance(metadata, dict) or metadata.get("issuer") != self._issuer.text:
            raise FetchError(f"the document of {self._issuer.text} is about another issuer")
        url = readURL(metadata.get("jwks_uri"))
        if url.scheme == "http" and self._issuer.scheme != "http":
            raise FetchError("the issuer's keys are to be fetched without TLS")
        return url

    def _failed(self, failure: Any) -> None:
        _log.warn(
            "the keys of {issuer} could not be fetched: {kind}: {reason}",
            issuer=self._issuer.text,
            kind=failure.type.__name__,
            reason=failure.getErrorMessage()[:300],
        )

    def _ended(self, result: Any) -> None:
        self._fetching = False
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(None)


def _places(issuer: DocumentURL) -> tuple[DocumentURL, DocumentURL]:
    """Give where an issuer describes itself: after its path, or, RFC 8414 section 3.1, before."""
    path = urlsplit(issuer.text).path.rstrip("/")
    root = issuer.text[: len(issuer.text.rstrip("/")) - len(path)]
    return (
        readURL(f"{root}{path}/.well-known/openid-configuration"),
        readURL(f"{root}/.well-known/oauth-authorization-server{path}"),
    )
