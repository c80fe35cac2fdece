"""
Authentication with all that the gateway has: the provider C{oauth}, too, which needs HTTP::

    configureAuthentication({"providers": {"oauth": {
        "issuer": "https://login.example.com/",
        "audience": "orders",
    }}})

Its tokens are JSON Web Tokens that an issuer has signed with a key that it publishes; C{iss},
C{aud} and C{exp} are always checked.
"""

import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import urlsplit

from attrs import field, frozen
from attrs.converters import optional
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from storagegate.auth.authentication import Authentication, Rules, readAuthentication
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
    extracted,
    looksLikeJWT,
    readExtract,
    unverified,
)
from storagegate.core.context import RequestContext
from storagegate.core.errors import codedError
from storagegate.core.httpurls import HTTP
from storagegate.core.invoker import CallCredentials
from storagegate.core.options import OptionError, makeOptions
from storagegate.net.endpoints import processReactor
from storagegate.net.http.client import HTTPClient, HTTPStatusError
from storagegate.net.tls import ClientTLSOptions

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
    if url.scheme == HTTP and not _namesLoopback(url.host):
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
    if url.scheme == HTTP:
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
        if url.scheme == HTTP and self._issuer.scheme != HTTP:
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

    @ivar issuer: Its URL, exactly as tokens have it in C{iss}; its keys are fetched, and again when
        they change.
    @ivar audience: Whom tokens are for; without it those for any other service would do.
    @ivar algorithms: Those that tokens may be signed with.
    @ivar leeway: Seconds that clocks may differ by.
    @ivar jwksUri: Where the keys are, for an issuer that does not tell, or that names a place in a
        private network.
    @ivar extractToken: Finds the token elsewhere in the request, message or call of a wire; a
        mapping has one such function for each protocol.
    """

    issuer: DocumentURL = field(converter=_readIssuer)
    audience: str | tuple[str, ...] = field(converter=readAudience)
    algorithms: tuple[str, ...] = field(default=ASYMMETRIC, converter=_readPublicAlgorithms)
    leeway: float = field(default=LEEWAY_SECONDS, converter=readLeeway)
    jwksUri: DocumentURL | None = field(default=None, converter=optional(readURL))
    extractToken: Any = field(default=None, converter=optional(readExtract))


class OAuthProvider:
    """
    Knows the tokens of an issuer; the user is their claims.

    @ivar issuer: What they have in C{iss}.
    """

    def __init__(self, options: OAuthOptions, keys: JWKSCache) -> None:
        self.issuer = options.issuer.text
        self._options = options
        self._keys = keys
        self._checked = VerifiedTokenCache(options.leeway)

    def recognises(self, context: RequestContext, credentials: CallCredentials) -> str | None:
        """Give the token, if it looks like one of these."""
        token = extracted(self._options.extractToken, context.protocol, credentials)
        return token if token is not None and looksLikeJWT(token) else None

    def verify(self, token: str, context: RequestContext) -> Any:
        """
        Give the claims, at once if the key is here.

        @raise TokenError: If the token is not good.
        @raise ServiceError: C{UNAVAILABLE} if there is no key to check it with.
        """
        header = unverified(token, 0)
        kid, algorithm = header.get("kid"), header.get("alg")
        # All else that a header may say of keys is the caller's wish: jku, x5u, jwk, x5c.
        if algorithm not in self._options.algorithms or not isinstance(kid, str | None):
            raise TokenError("it names no algorithm, or a key by no name")
        if unverified(token, 1).get("iss") != self.issuer:
            # Said before the issuer is asked for keys that it has never had.
            raise TokenError("it is of another issuer")
        key = self._keys.known(kid, algorithm)
        if key is not None:
            return self._claims(token, key)
        return self._later(token, kid, algorithm)

    async def _later(self, token: str, kid: str | None, algorithm: str) -> dict[str, Any]:
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
    given: Any, fetch: Fetch | None = None, seconds: Callable[[], float] | None = None
) -> OAuthProvider:
    """
    Read the options of the provider C{oauth}, see L{OAuthOptions}.

    @param fetch: Gives a document; C{None} by HTTP.
    @raise OptionError: If there is no such option, or its value is none or not safe.
    """
    name = "authentication.providers.oauth"
    if not isinstance(given, Mapping):
        raise OptionError(f"the option {name} is a mapping")
    options = makeOptions(OAuthOptions, given, f"{name}.")
    trusted = {url.host for url in (options.issuer, options.jwksUri) if url is not None}
    more = {} if seconds is None else {"seconds": seconds}
    keys = JWKSCache(options.issuer, fetch or _fetcher(frozenset(trusted)), options.jwksUri, **more)
    return OAuthProvider(options, keys)


def _fetcher(trusted: frozenset[str]) -> Fetch:
    """Fetch by HTTP; the reactor is looked for when there is something to fetch."""
    fetchers: list[MetadataFetcher] = []

    async def fetch(url: DocumentURL) -> bytes:
        if not fetchers:
            fetchers.append(MetadataFetcher(processReactor(), trusted))
        return await fetchers[0].fetch(url)

    return fetch


def readProviders(config: Mapping[str, Any], defaults: Rules) -> Authentication:
    """
    Read the whole configuration of authentication: C{providers} and C{rules}.

    @param defaults: The providers of every wire that there is, unless a rule says otherwise.
    @raise OptionError: If there is no such option, or its value is none or not safe.
    """
    return readAuthentication(config, defaults, readOAuth)
