"""
The provider C{oauth}: JSON Web Tokens of an issuer that publishes its keys::

    configureAuthentication({"providers": {"oauth": {
        "issuer": "https://login.example.com/",
        "audience": "orders",
    }}})

C{iss}, C{aud} and C{exp} are always verified. The keys are found by OpenID Connect Discovery or
RFC 8414::

    issuer -> /.well-known/openid-configuration -> jwks_uri -> a set of keys

They are fetched on first use, refreshed periodically, and fetched when a token names an unknown
key, but never more often than the cooldown allows. Only these URLs are allowed::

    https://host[:port]/path        any allowed address
    http://localhost[:port]/path    this machine: also 127.0.0.0/8 and [::1]

The document of an issuer names another URL, and a name may resolve to any address, so the address
of each connection is checked. Redirections are not followed.
"""

import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import urlencode, urlsplit

from attrs import field, frozen
from attrs.converters import optional
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from storagegate.auth.jwt import (
    ASYMMETRIC,
    LEEWAY_SECONDS,
    KeySet,
    VerificationKey,
    readAlgorithms,
    readAudience,
    readKeySet,
    readLeeway,
    verifiedClaims,
)
from storagegate.auth.tokens import (
    TokenError,
    VerifiedTokenCache,
    extractedJWT,
    readExtract,
    readOptions,
    unverified,
)
from storagegate.core.addresses import HTTP, Address, readAddress
from storagegate.core.context import RequestContext
from storagegate.core.errors import codedError
from storagegate.core.invoker import CallCredentials
from storagegate.net.endpoints import processReactor
from storagegate.net.http.client import HTTPClient, HTTPStatusError
from storagegate.net.tls import ClientTLSOptions

MAX_DOCUMENT_BYTES = 256 * 1024
"""Bytes of a response: a hundred keys with certificates take half of it."""

TIMEOUT_SECONDS = 10.0
"""Timeout of one document, in seconds: calls wait for it, and a slower issuer counts as down."""

# Cloud metadata services, which serve credentials, besides the link-local 169.254.169.254: AWS over
# IPv6, Alibaba, Oracle and Azure.
_METADATA = frozenset(
    map(ip_address, ("fd00:ec2::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"))
)

# Addresses within a site, and the prefix of local translators (RFC 8215), which some versions of
# Python call global.
_LOCAL = (ip_network("fec0::/10"), ip_network("64:ff9b:1::/48"))

_URL = re.compile(
    r"(https?)://([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?"
    r"(/[!-~]{0,2000})?"
)


class FetchError(Exception):
    """A document is unusable; the text is the reason."""


@frozen
class DocumentURL:
    """
    The URL of a document.

    @ivar text: The URL in its original form.
    @ivar host: The name or address, without brackets, in lower case.
    """

    text: str
    scheme: str
    host: str


def readURL(value: Any) -> DocumentURL:
    """Read a URL from which documents may be fetched; raise L{ValueError} if it is invalid."""
    match = _URL.fullmatch(value) if isinstance(value, str) else None
    if match is None or "#" in value or "\\" in value or int(match[3] or 1) > 65535:
        raise ValueError("is an https URL")
    url = DocumentURL(value, match[1], match[2].strip("[]").lower())
    if url.scheme == HTTP and url.host != "localhost":
        address = _asAddress(url.host)
        if address is None or not address.is_loopback:
            raise ValueError("is an https URL; http is for this machine alone")
    return url


def addressAllowed(text: str, url: DocumentURL, trusted: frozenset[str]) -> bool:
    """
    Return whether a document may be fetched from an address of the URL's host.

    @param text: The resolved address of the host.
    @param url: The URL of the document.
    @param trusted: The configured hosts, which may be in a private network.
    """
    address = _bare(text)
    if url.host in trusted and _asAddress(url.host) == address:
        return True
    if url.scheme == HTTP:
        return address.is_loopback
    if address.is_link_local or address.is_unspecified or address.is_multicast:
        return False
    if address in _METADATA:
        return False
    isLocal = any(address in network for network in _LOCAL)
    return url.host in trusted or (address.is_global and not isLocal)


def _bare(text: str) -> Address:
    """
    Read an address; if it embeds an IPv4 address, also by 6to4 or as the low bits of C{::/96},
    return that address.
    """
    address = readAddress(text)
    if not isinstance(address, IPv6Address):
        return address
    if not address.is_loopback and 0 < int(address) < 1 << 32:
        return IPv4Address(int(address))
    return address.sixtofour or address


def _asAddress(host: str) -> Address | None:
    try:
        return _bare(host)
    except ValueError:
        return None


class MetadataFetcher:
    """Fetches documents of an issuer."""

    def __init__(
        self, reactor: Any, trusted: frozenset[str], tls: ClientTLSOptions | None = None
    ) -> None:
        """
        @param reactor: C{None} for the process's reactor at the first fetch.
        @param trusted: The configured hosts, which may be in a private network.
        @param tls: The trust roots; C{None} for the system's.
        """
        self._reactor = reactor
        self._trusted = trusted
        self._tls = tls or ClientTLSOptions()

    async def fetch(self, url: DocumentURL) -> bytes:
        """
        Fetch a document.

        @raise HTTPStatusError: The status of the response is not 200.
        @raise HTTPClientError: No allowed address sent a response.
        """
        response = await self._client(url).request("GET", seconds=TIMEOUT_SECONDS)
        if response.status != 200:
            raise HTTPStatusError(url.text, response.status)
        return response.body

    async def send(
        self, url: DocumentURL, fields: Mapping[str, str], form: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """
        Send a request to an endpoint of the issuer.

        @param fields: Header fields.
        @param form: The form of a POST; C{None} for a GET.
        @return: The status and the body of the response.
        @raise HTTPClientError: No allowed address sent a response.
        """
        method, body, given = "GET", None, dict(fields)
        if form is not None:
            method, body = "POST", urlencode(form).encode()
            given["Content-Type"] = "application/x-www-form-urlencoded"
        client = self._client(url)
        response = await client.request(method, "", given, body, TIMEOUT_SECONDS)
        return response.status, response.body

    def _client(self, url: DocumentURL) -> HTTPClient:
        return HTTPClient(
            self._reactor or processReactor(),
            url.text,
            self._tls,
            MAX_DOCUMENT_BYTES,
            lambda address: addressAllowed(address, url, self._trusted),
        )


REFRESH_SECONDS = 300.0
"""The age at which keys are fetched again, while the old keys remain in use."""

MAX_AGE_SECONDS = 600.0
"""The age at which calls wait for new keys: a revoked key is accepted for this time."""

MAX_STALE_SECONDS = 24 * 3600.0
"""How long keys are used if the issuer is unreachable: an outage overnight."""

COOLDOWN_SECONDS = 15.0
"""The shortest time between two fetches, after which a new key is known."""

_log = Logger()

Fetch = Callable[[DocumentURL], Awaitable[bytes]]


async def fetchMetadata(issuer: DocumentURL, fetch: Fetch) -> dict[str, Any]:
    """
    Fetch the metadata of an issuer.

    @param fetch: Fetches a document.
    @raise HTTPClientError: The issuer cannot be reached, or the status of its response is not 200.
    @raise ValueError: The document is not JSON.
    @raise FetchError: The document is unusable.
    """
    path = urlsplit(issuer.text).path.rstrip("/")
    root = issuer.text[: len(issuer.text.rstrip("/")) - len(path)]
    try:
        url = readURL(f"{root}{path}/.well-known/openid-configuration")
        document = await fetch(url)
    except HTTPStatusError as error:
        if error.status != 404:
            raise
        # RFC 8414 section 3.1: the well-known segment precedes the path.
        url = readURL(f"{root}/.well-known/oauth-authorization-server{path}")
        document = await fetch(url)
    try:
        metadata = json.loads(document)
    except RecursionError:
        raise FetchError("the issuer's document is nested too deeply") from None
    # RFC 8414 section 3.3: a document of another issuer must not be used.
    if not isinstance(metadata, dict) or metadata.get("issuer") != issuer.text:
        raise FetchError(f"the document of {issuer.text} is about another issuer")
    return metadata


def readEndpoint(metadata: Mapping[str, Any], name: str, issuer: DocumentURL) -> DocumentURL:
    """
    Return a URL of an issuer's metadata.

    @param name: The name of the member, such as C{jwks_uri}.
    @raise FetchError: It is without TLS, though the issuer has TLS.
    @raise ValueError: It is missing or invalid.
    """
    url = readURL(metadata.get(name))
    if url.scheme == HTTP and issuer.scheme != HTTP:
        raise FetchError(f"the {name} of the issuer is without TLS")
    return url


class JWKSCache:
    """
    The keys of an issuer. All calls that wait for keys share one fetch, which none can cancel.
    """

    def __init__(
        self,
        issuer: DocumentURL,
        fetch: Fetch,
        keysURL: DocumentURL | None = None,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        @param issuer: The URL of the issuer.
        @param fetch: Fetches a document.
        @param keysURL: The URL of the keys; C{None} to discover it.
        @param seconds: Returns seconds of a monotonic clock.
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
        """Return a key from the cache; C{None} if it is absent or too old."""
        age = self._seconds() - self._fetchedAt
        if age >= MAX_AGE_SECONDS:
            return None
        if age >= REFRESH_SECONDS:
            self._begin()
        return self._keys.find(kid, algorithm)

    async def find(self, kid: str | None, algorithm: str) -> VerificationKey | None:
        """
        Fetch the keys, unless a fetch was tried within the cooldown, and return one of them.

        @param kid: See L{KeySet.find}.
        @param algorithm: The algorithm of the token.
        @return: C{None} if there is no such key.
        @raise ServiceError: C{UNAVAILABLE} if the keys cannot be fetched and no keys are cached.
        """
        self._begin()
        if self._fetching:
            # Each waiter has its own Deferred, so cancelling it does not affect the fetch.
            waiter: Deferred[None] = Deferred()
            self._waiting.append(waiter)
            await waiter
        if self._seconds() - self._fetchedAt >= MAX_STALE_SECONDS:
            raise codedError("UNAVAILABLE", "The issuer of tokens cannot be reached")
        return self._keys.find(kid, algorithm)

    def _begin(self) -> None:
        """Start a fetch, unless one was tried within the cooldown."""
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
        """Return the URL of the keys, from the metadata of the issuer."""
        metadata = await fetchMetadata(self._issuer, self._fetch)
        return readEndpoint(metadata, "jwks_uri", self._issuer)

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


def _readIssuer(value: Any) -> DocumentURL:
    url = readURL(value)
    if "?" in url.text:
        # RFC 8414 section 2.
        raise ValueError("is a URL without a query")
    return url


def _readPublicAlgorithms(value: Any) -> tuple[str, ...]:
    algorithms = readAlgorithms(value)
    if algorithms[0] not in ASYMMETRIC:
        raise ValueError("has algorithms of a secret; an issuer publishes public keys")
    return algorithms


@frozen
class OAuthOptions:
    """
    The options of the provider C{oauth}.

    @ivar issuer: The URL of the issuer, exactly as in the C{iss} of its tokens; its keys are
        fetched, and fetched again when they change.
    @ivar audience: The audience of tokens; without it, tokens for other services would be accepted.
    @ivar algorithms: The allowed signature algorithms.
    @ivar leeway: Tolerated clock difference, in seconds.
    @ivar jwksUri: The URL of the keys, for an issuer without metadata or with keys in a private
        network.
    @ivar extractToken: Extracts the token from the request, message or call of a transport; a
        mapping has one such function per protocol.
    """

    issuer: DocumentURL = field(converter=_readIssuer)
    audience: str | tuple[str, ...] = field(converter=readAudience)
    algorithms: tuple[str, ...] = field(default=ASYMMETRIC, converter=_readPublicAlgorithms)
    leeway: float = field(default=LEEWAY_SECONDS, converter=readLeeway)
    jwksUri: DocumentURL | None = field(default=None, converter=optional(readURL))
    extractToken: Any = field(default=None, converter=optional(readExtract))


class OAuthProvider:
    """
    The provider C{oauth}: tokens of an issuer. The claims are the user.

    @ivar issuer: The C{iss} of the tokens.
    """

    def __init__(self, options: OAuthOptions, keys: JWKSCache) -> None:
        self.issuer = options.issuer.text
        self._options = options
        self._keys = keys
        self._checked = VerifiedTokenCache(options.leeway)

    def recognises(self, context: RequestContext, credentials: CallCredentials) -> str | None:
        """Return the token if it has the form of a JSON Web Token."""
        return extractedJWT(self._options.extractToken, context.protocol, credentials)

    def verify(self, token: str, context: RequestContext) -> Any:
        """
        Return the claims, synchronously if the key is in the cache.

        @raise TokenError: The token is invalid.
        @raise ServiceError: C{UNAVAILABLE} if the keys of the issuer cannot be fetched.
        """
        return self.claims(token)

    def claims(self, token: str) -> Any:
        """The same as L{verify} for a token without a call."""
        header = unverified(token, 0)
        kid, algorithm = header.get("kid"), header.get("alg")
        # The header's own keys come from the caller and are ignored: jku, x5u, jwk, x5c.
        if algorithm not in self._options.algorithms or not isinstance(kid, str | None):
            raise TokenError("it names no algorithm, or a key by no name")
        if unverified(token, 1).get("iss") != self.issuer:
            # Checked first: the issuer's keys never verify tokens of others.
            raise TokenError("it is of another issuer")
        key = self._keys.known(kid, algorithm)
        if key is not None:
            return self._claims(token, key)
        return self._verifyLater(token, kid, algorithm)

    async def _verifyLater(self, token: str, kid: str | None, algorithm: str) -> dict[str, Any]:
        key = await self._keys.find(kid, algorithm)
        if key is None:
            raise TokenError("the issuer has no such key")
        return self._claims(token, key)

    def _claims(self, token: str, key: VerificationKey) -> dict[str, Any]:
        options = self._options
        algorithms = [name for name in key.algorithms if name in options.algorithms]
        return self._checked.claims(
            token,
            key,
            lambda: verifiedClaims(
                token, key.key, algorithms, options.audience, self.issuer, options.leeway
            ),
        )


def readOAuth(
    given: Any, fetch: Fetch | None = None, seconds: Callable[[], float] = time.monotonic
) -> OAuthProvider:
    """
    Read the options of the provider C{oauth}, see L{OAuthOptions}.

    @param fetch: Fetches a document; C{None} for HTTP.
    @param seconds: Returns seconds of a monotonic clock.
    @raise OptionError: An option is unknown, or its value is invalid or unsafe.
    """
    options = readOptions(OAuthOptions, given, "oauth")
    if fetch is None:
        trusted = {url.host for url in (options.issuer, options.jwksUri) if url is not None}
        fetch = MetadataFetcher(None, frozenset(trusted)).fetch
    return OAuthProvider(options, JWKSCache(options.issuer, fetch, options.jwksUri, seconds))
