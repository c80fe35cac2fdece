"""
Authentication of calls: the token and key providers, and the rules of each transport::

    readAuthentication({
        "providers": {
            "jwt": {"secret": "...", "algorithms": ["HS256"]},
            "apikey": {"validate": validate},
        },
        "rules": {"http": ["jwt", "apikey"], "tcp": ["apikey"]},
    }, defaults)

The providers of a transport are tried in the order of its rule; the first provider that recognises
the credentials decides. Unrecognised credentials count as missing.

Both C{jwt} and C{oauth} verify JSON Web Tokens. If both are allowed, in either order, C{oauth}
verifies the tokens whose C{iss} is its issuer, and C{jwt} all others.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from storagegate.auth.throttle import AuthFailureThrottle
from storagegate.auth.tokens import (
    EXTRACT,
    TokenError,
    TokenProvider,
    noteKind,
    readAPIKey,
    unverified,
)
from storagegate.core.context import MAX_TOKEN_LENGTH, RequestContext
from storagegate.core.errors import GrpcError, ServiceError, asServiceError, codedError
from storagegate.core.invoker import CallCredentials
from storagegate.core.options import OptionError, readEach

PROVIDERS = ("jwt", "apikey", "oauth")
"""The kinds of providers."""

Rules = Mapping[str, tuple[str, ...]]
"""The names of the providers of each transport, in their order."""

INVALID = "Invalid token"
"""The message for an invalid token: a reason would help to forge one."""

_log = Logger()


class Authentication:
    """
    Authenticates calls by the rules of their transports.

    @ivar providers: The providers by name.
    @ivar rules: The names of the providers of each transport, in their order.
    @ivar ownKeys: The provider that replaces C{apikey}, by service.
    @ivar throttle: Slows down guessing; C{None} before the gateway serves.
    """

    def __init__(self, providers: Mapping[str, TokenProvider], rules: Rules) -> None:
        self.providers = providers
        self.rules = rules
        self.ownKeys: dict[str, TokenProvider] = {}
        self.throttle: AuthFailureThrottle | None = None
        self._oauthIssuer = getattr(providers.get("oauth"), "issuer", None)
        self._logged: set[str] = set()

    def authenticate(
        self, context: RequestContext, credentials: CallCredentials, methods: tuple[str, ...] = ()
    ) -> Any:
        """
        Authenticate a call.

        @param methods: The providers that the service allows; empty for all providers of the
            transport.
        @return: The user, an awaitable of it, or C{None} if no provider recognised the credentials.
        @raise ServiceError: C{UNAUTHENTICATED} if the credentials are invalid.
        """
        if credentials.token is not None and len(credentials.token) > MAX_TOKEN_LENGTH:
            raise codedError("UNAUTHENTICATED", INVALID)
        if not self.providers and not self.ownKeys:
            return None
        names = self.rules.get(context.protocol, ())
        if methods:
            names = tuple(name for name in names if name in methods)
        for name in names:
            provider = self.providers.get(name)
            if name == "apikey":
                provider = self.ownKeys.get(context.service, provider)
            if provider is None:
                continue
            token = provider.recognises(context, credentials)
            if token is None:
                continue
            if len(token) > MAX_TOKEN_LENGTH:
                raise codedError("UNAUTHENTICATED", INVALID)
            if not self._isOfOther(name, names, token):
                return self._verify(provider, token, context)
        return None

    def _isOfOther(self, name: str, names: tuple[str, ...], token: str) -> bool:
        """Return whether the other JSON Web Token provider must verify a token."""
        if name == "apikey" or self._oauthIssuer is None:
            return False
        if "jwt" not in self.providers or "jwt" not in names or "oauth" not in names:
            return False
        fromIssuer: bool = unverified(token, 1).get("iss") == self._oauthIssuer
        return fromIssuer != (name == "oauth")

    def _verify(self, provider: TokenProvider, token: str, context: RequestContext) -> Any:
        try:
            user = provider.verify(token, context)
            if hasattr(user, "__await__"):
                return self._verifyLater(user, context)
            return _checkUser(user)
        except Exception as error:
            refusal = self._errorFor(error)
        try:
            delay = self._delayOf(refusal, context)
            if delay:
                return self._refuseLater(refusal, delay)
            raise refusal
        finally:
            # The traceback of the error refers to this frame.
            del refusal

    async def _verifyLater(self, waiting: Any, context: RequestContext) -> Any:
        try:
            return _checkUser(await waiting)
        except Exception as error:
            refusal = self._errorFor(error)
        try:
            await self._refuseLater(refusal, self._delayOf(refusal, context))
        finally:
            del refusal

    def _delayOf(self, refusal: Exception, context: RequestContext) -> float:
        """Count an invalid token; return the delay of its refusal, in seconds."""
        if self.throttle is None or asServiceError(refusal).code != "UNAUTHENTICATED":
            return 0.0
        return self.throttle.failed(context.client.address)

    async def _refuseLater(self, refusal: Exception, delay: float) -> None:
        try:
            if self.throttle is not None:
                await self.throttle.wait(delay)
            raise refusal
        finally:
            del refusal

    def _errorFor(self, error: Exception) -> Exception:
        """Return the error for callers, which distinguishes an outage from an invalid token."""
        if isinstance(error, ServiceError | GrpcError | CancelledError):
            return error
        if isinstance(error, TokenError):
            _log.debug("a token was rejected: {reason}", reason=str(error))
        else:
            noteKind(_log, self._logged, error)
        return codedError("UNAUTHENTICATED", INVALID)


def _checkUser(user: Any) -> Any:
    if not user:
        raise codedError("UNAUTHENTICATED", INVALID)
    return user


def readRules(given: Any, defaults: Rules) -> dict[str, tuple[str, ...]]:
    """
    Read the providers of each transport; an unnamed transport keeps its default.

    @param given: Names of providers by transport.
    @param defaults: The rules of all transports.
    @raise OptionError: A name is unknown.
    """
    rules = dict(defaults)
    if not isinstance(given, Mapping):
        raise OptionError("the option authentication.rules is a mapping of protocols to lists")
    for protocol, names in given.items():
        if protocol not in defaults:
            raise OptionError(f"there is no protocol authentication.rules.{protocol}")
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise OptionError(f"the option authentication.rules.{protocol} is a list")
        rules[protocol] = tuple(names)
        for name in rules[protocol]:
            if name not in PROVIDERS:
                raise OptionError(
                    f"authentication.rules.{protocol} names {name!r:.40}; there are "
                    f"{', '.join(PROVIDERS)}"
                )
    return rules


class ProvidersDict(TypedDict, total=False):
    """The providers of authentication by name, with their options."""

    jwt: Mapping[str, Any]
    apikey: Mapping[str, Any]
    oauth: Mapping[str, Any]


class RulesDict(TypedDict, total=False):
    """The providers that each transport may use."""

    http: Sequence[Literal["jwt", "apikey", "oauth"]]
    websocket: Sequence[Literal["jwt", "apikey", "oauth"]]
    grpc: Sequence[Literal["jwt", "apikey", "oauth"]]
    udp: Sequence[Literal["jwt", "apikey", "oauth"]]
    tcp: Sequence[Literal["jwt", "apikey", "oauth"]]


class AuthenticationDict(TypedDict, total=False):
    """The keywords of the authentication configuration."""

    providers: ProvidersDict
    rules: RulesDict


def readAuthentication(
    config: Any, defaults: Rules, oauth: Callable[[Any], TokenProvider] | None = None
) -> Authentication:
    """
    Read the authentication configuration: C{providers} and C{rules}.

    @param defaults: The rules of all transports that the configuration does not set.
    @param oauth: Reads the options of the provider C{oauth}; C{None} for the default reader.
    @raise OptionError: An option is unknown, or its value is invalid or unsafe.
    """
    if not isinstance(config, Mapping):
        raise OptionError("the option authentication is a mapping of providers and rules")
    errors = [
        f"there is no option authentication.{key}; there are providers and rules"
        for key in config
        if key not in ("providers", "rules")
    ]
    given = config.get("providers", {})
    if not isinstance(given, Mapping):
        raise OptionError("the option authentication.providers is a mapping of names to options")

    def readProvider(name: str, options: Any) -> TokenProvider:
        if name not in PROVIDERS:
            raise OptionError(
                f"there is no option authentication.providers.{name}; there are {sorted(PROVIDERS)}"
            )
        provider = _readProvider(name, options, oauth)
        extract = options.get("extractToken")
        if isinstance(extract, Mapping) and not set(extract) <= set(defaults):
            raise OptionError(f"the option authentication.providers.{name}.extractToken {EXTRACT}")
        return provider

    try:
        providers = readEach(given, readProvider)
    except OptionError as error:
        errors += error.errors
    if errors:
        raise OptionError(*errors)
    rules = readRules(config.get("rules", {}), defaults)
    for protocol in config.get("rules", {}):
        for name in rules[protocol]:
            # A service may have its own API keys; a token provider without options is a mistake.
            if name != "apikey" and name not in providers:
                raise OptionError(
                    f"authentication.rules.{protocol} names {name}, "
                    f"and there is no authentication.providers.{name}"
                )
    return Authentication(providers, rules)


def _readProvider(
    name: str, options: Any, oauth: Callable[[Any], TokenProvider] | None
) -> TokenProvider:
    if name == "apikey":
        return readAPIKey(options)
    # PyJWT and the key-fetching client take megabytes, so they are imported only if needed.
    if name == "jwt":
        from storagegate.auth.jwt import readJWT

        return readJWT(options)
    if oauth is None:
        from storagegate.auth.oauth import readOAuth

        oauth = readOAuth
    return oauth(options)
