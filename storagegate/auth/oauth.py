"""
Authentication with all that the gateway has: the provider C{oauth}, too, which needs HTTP::

    configureAuthentication({"providers": {"oauth": {
        "issuer": "https://login.example.com/",
        "audience": "orders",
    }}})

Its tokens are JSON Web Tokens that an issuer has signed with a key that it publishes; C{iss},
C{aud} and C{exp} are always checked.
"""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen
from attrs.converters import optional

from storagegate.auth.authentication import Authentication, readAuthentication
from storagegate.auth.jwks import (
    ASYMMETRIC,
    DocumentURL,
    Fetch,
    JWKSCache,
    MetadataFetcher,
    VerificationKey,
    readURL,
)
from storagegate.auth.jwt import (
    LEEWAY_SECONDS,
    readAlgorithms,
    readAudience,
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
from storagegate.core.invoker import CallCredentials
from storagegate.core.options import OptionError, makeOptions
from storagegate.net.endpoints import processReactor


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


def readProviders(config: Mapping[str, Any]) -> Authentication:
    """
    Read the whole configuration of authentication: C{providers} and C{rules}.

    @raise OptionError: If there is no such option, or its value is none or not safe.
    """
    return readAuthentication(config, readOAuth)
