"""
C{AssumeRoleWithWebIdentity}: the token of an OpenID Connect issuer in exchange for a session.

The checks, in order; each failure is logged with its reason::

    1. The issuer is a provider of the account of the role, made by IAM or configured.
    2. A key of the issuer signs the token; C{iss}, C{aud} and C{exp} are right.
    3. The trust policy of the role allows C{sts:AssumeRoleWithWebIdentity} for the issuer, and
       C{sts:TagSession} if the token has tags.

The keys of an issuer are fetched from public addresses by HTTPS alone. Only the providers of the
root account, and configured ones, may be in a private network, or on this machine by HTTP: tenants
choose the others.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from attrs import define
from twisted.logger import Logger

from storagegate.auth.oauth import JWKSCache, MetadataFetcher, OAuthOptions, OAuthProvider
from storagegate.auth.tokens import TokenError, unverified
from storagegate.core.addresses import HTTP
from storagegate.core.errors import ServiceError
from storagegate.objects.access.context import AccessContext
from storagegate.objects.access.trustpolicy import TAG_SESSION, Trust, compileTrustPolicy
from storagegate.objects.errors import (
    AccessDenied,
    ExpiredWebIdentity,
    InvalidIdentityToken,
    IssuerUnreachable,
    MalformedPolicy,
    PackedPolicyTooLarge,
)
from storagegate.objects.identities.answers import Tag, Tags
from storagegate.objects.identities.entities import AccountState, OIDCProvider, Role
from storagegate.objects.identities.lookup import providerArn
from storagegate.objects.identities.rights import Rights
from storagegate.objects.identities.tokens import SessionToken
from storagegate.objects.principals import ROOT_ACCOUNT, Identity

if TYPE_CHECKING:
    from storagegate.objects.access.context import Caller

CLAIMS_LIMIT = 3072
"""Bytes of the claims in the token of a session, which is sent with each request."""

_ACTION = "sts:AssumeRoleWithWebIdentity"

_TAGS = "https://aws.amazon.com/tags"
"""The claim of session tags, and the beginning of its flat form."""

T = TypeVar("T")

Claims = dict[str, str | list[str]]
"""The claims that conditions can compare: texts, numbers and lists of texts."""

_log = Logger()


Providers = Callable[[str], Sequence[OIDCProvider]]
"""Returns the configured providers of an account."""

_ISSUERS_LIMIT = 256
"""
Issuers of an account whose keys are kept: more than its 100 providers in both spellings, and the
configured ones. One that is forgotten could be fetched with each token.
"""

_ACCOUNTS_LIMIT = 256
"""Accounts whose issuers are kept. An account usually has one, which takes 10 KB."""


@define
class _KnownIssuer:
    """
    An issuer with its keys.

    @ivar isTrusted: Whether it may be in a private network.
    @ivar verifier: Verifies tokens for C{audience}.
    """

    isTrusted: bool
    keys: JWKSCache
    audience: tuple[str, ...]
    verifier: OAuthProvider


class WebIdentityVerifier:
    """
    Verifies the tokens of issuers, and keeps the keys of those in use. The issuers of one account
    never displace those of another.
    """

    def __init__(self, configured: Providers) -> None:
        self._configured = configured
        self._accounts: dict[str, dict[str, _KnownIssuer]] = {}

    async def verify(self, state: AccountState, token: str) -> tuple[OIDCProvider, dict[str, Any]]:
        """
        Verify a token by the providers of an account.

        @return: The provider, and all claims of the token.
        @raise InvalidIdentityToken: The token is not valid here.
        @raise ExpiredWebIdentity: The token has expired.
        @raise IssuerUnreachable: The keys of the issuer cannot be fetched.
        """
        issuer = unverified(token, 1).get("iss") if token.count(".") == 2 else None
        configured = self._configured(state.account)
        provider = _providerOf(state, configured, issuer)
        if provider is None or not isinstance(issuer, str):
            raise _invalid(f"no provider of the account {state.account} is the issuer", issuer)
        if not provider.clientIds:
            raise _invalid("the provider accepts no audience", issuer)
        isTrusted = state.account == ROOT_ACCOUNT or any(each.url == issuer for each in configured)
        try:
            verifier = self._verifier(state.account, issuer, provider.clientIds, isTrusted)
        except ValueError as error:
            _log.warn(
                "the keys of {issuer} are not fetched: {reason}", issuer=issuer, reason=str(error)
            )
            raise IssuerUnreachable() from None
        try:
            claims = verifier.verify(token, _CONTEXT)
            if isawaitable(claims):
                claims = await claims
        except TokenError as error:
            if str(error) == "ExpiredSignatureError":
                _log.info("a token of {issuer} is refused: it has expired", issuer=issuer)
                raise ExpiredWebIdentity() from None
            raise _invalid(str(error), issuer) from None
        except ServiceError as error:
            raise IssuerUnreachable() from error
        if not isinstance(claims.get("sub"), str) or not claims["sub"]:
            raise _invalid("it has no sub", issuer)
        return provider, dict(claims)

    def checkCurrent(self, state: AccountState, provider: OIDCProvider, issuer: str) -> None:
        """
        Check that an account still has the provider by which a token was verified.

        @raise InvalidIdentityToken: It was removed or changed.
        """
        if _providerOf(state, self._configured(state.account), issuer) != provider:
            raise _invalid("the provider was changed during the verification", issuer)

    def _verifier(
        self, account: str, issuer: str, audience: tuple[str, ...], isTrusted: bool
    ) -> OAuthProvider:
        """
        Return the verifier of an issuer.

        @raise ValueError: No keys may be fetched from the URL.
        """
        issuers = _used(self._accounts, account, _ACCOUNTS_LIMIT, dict)
        known = issuers.get(issuer)
        if known is not None and known.isTrusted == isTrusted and known.audience == audience:
            # The most recently used one is the last.
            issuers[issuer] = issuers.pop(issuer)
            return known.verifier
        options = OAuthOptions(issuer=issuer, audience=audience)
        if options.issuer.scheme == HTTP and not isTrusted:
            raise ValueError("it is not an https URL")
        if known is None or known.isTrusted != isTrusted:
            trusted = frozenset({options.issuer.host} if isTrusted else ())
            keys = JWKSCache(options.issuer, MetadataFetcher(None, trusted).fetch)
        else:
            keys = known.keys
        made = _KnownIssuer(isTrusted, keys, audience, OAuthProvider(options, keys))
        issuers.pop(issuer, None)
        return _used(issuers, issuer, _ISSUERS_LIMIT, lambda: made).verifier


def _used(kept: dict[str, T], name: str, most: int, make: Callable[[], T]) -> T:
    """Return an entry of a cache, and make it the most recently used one."""
    found = kept.pop(name, None)
    if found is None:
        found = make()
        if len(kept) >= most:
            del kept[next(iter(kept))]
    kept[name] = found
    return found


# The verification of a token of an issuer does not read the context of a call.
_CONTEXT: Any = None


def _providerOf(
    state: AccountState, configured: Sequence[OIDCProvider], issuer: Any
) -> OIDCProvider | None:
    """
    Find the provider of an issuer. One that IAM made comes first, and its URL may have one slash
    more or less at its end.
    """
    if not isinstance(issuer, str):
        return None
    # Each spelling has its own keys, so any number of slashes would be any number of fetches.
    bare = issuer.removesuffix("/")
    for url in (bare, f"{bare}/"):
        found = state.provider(url.partition("://")[2])
        if found is not None and found.url == url:
            return found
    return next((each for each in configured if each.url == issuer), None)


def _invalid(reason: str, issuer: Any) -> InvalidIdentityToken:
    _log.info("a token of {issuer!a:.200} is refused: {reason}", issuer=str(issuer), reason=reason)
    return InvalidIdentityToken()


def tagsOfClaims(claims: Mapping[str, Any]) -> tuple[Tags, frozenset[str]]:
    """
    Return the session tags in claims, and the keys of the transitive ones. Amazon has two forms::

        {"https://aws.amazon.com/tags": {
            "principal_tags": {KEY: VALUE / [VALUE]}, "transitive_tag_keys": [KEY]}}
        {"https://aws.amazon.com/tags/principal_tags/KEY": VALUE / [VALUE],
         "https://aws.amazon.com/tags/transitive_tag_keys": [KEY]}

    @raise InvalidIdentityToken: A claim has another form, or a tag more than one value.
    """
    nested = claims.get(_TAGS, {})
    if isinstance(nested, list) and len(nested) == 1:
        # The form that Ceph documents, and that a mapper of Keycloak makes.
        nested = nested[0]
    issuer = claims.get("iss")
    if not isinstance(nested, Mapping):
        raise _invalid(f"its claim {_TAGS} is no object", issuer)
    given = nested.get("principal_tags", {})
    if not isinstance(given, Mapping):
        raise _invalid("its principal_tags are no object", issuer)
    prefix = f"{_TAGS}/principal_tags/"
    flat = {name[len(prefix) :]: each for name, each in claims.items() if name.startswith(prefix)}
    tags = []
    for key, value in (*given.items(), *flat.items()):
        only = value[0] if isinstance(value, list) and len(value) == 1 else value
        if not isinstance(only, str):
            raise _invalid(f"its tag {key!a:.200} does not have a single text as its value", issuer)
        tags.append(Tag(key, only))
    transitive = frozenset(_transitive(nested.get("transitive_tag_keys", []), issuer)) | frozenset(
        _transitive(claims.get(f"{_TAGS}/transitive_tag_keys", []), issuer)
    )
    return tuple(tags), transitive


def _transitive(given: Any, issuer: Any) -> Iterator[str]:
    for key in given if isinstance(given, list) else [given]:
        if not isinstance(key, str):
            raise _invalid("its transitive_tag_keys are no list of texts", issuer)
        yield key


def comparableClaims(claims: Mapping[str, Any]) -> Claims:
    """
    Return the claims that conditions can compare, without those of session tags.

    @raise PackedPolicyTooLarge: They are too large for the token of a session.
    @raise InvalidIdentityToken: One of them is no Unicode text.
    """
    found: Claims = {}
    for name, value in claims.items():
        if name == _TAGS or name.startswith(f"{_TAGS}/"):
            continue
        if isinstance(value, bool):
            found[name] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            found[name] = str(value)
        elif isinstance(value, list) and all(isinstance(each, str) for each in value):
            found[name] = list(value)
    try:
        size = len(msgspec.json.encode(found))
    except UnicodeEncodeError:
        # JSON can escape half of a surrogate pair.
        raise _invalid("a claim is no Unicode text", claims.get("iss")) from None
    if size > CLAIMS_LIMIT:
        raise PackedPolicyTooLarge(f"The claims of the token have more than {CLAIMS_LIMIT} bytes")
    return found


def checkTrust(
    caller: "Caller",
    state: AccountState,
    role: Role,
    provider: OIDCProvider,
    name: str,
    claims: Claims,
    transitive: frozenset[str] = frozenset(),
) -> None:
    """
    Check that the trust policy of a role allows a session for claims, and its tags.

    @param caller: Its request has the tags of the session.
    @param name: The name of the session.
    @param transitive: The keys of the transitive tags.
    @raise AccessDenied: It does not.
    """
    session = SessionToken(
        accessKey="",
        account=state.account,
        issuedMs=0,
        expiresMs=0,
        role=role.key,
        roleId=role.id,
        name=name,
        issuer=provider.name,
        claims=claims,
    )
    rights = Rights(role.resource, role, session=session)
    identity = Identity("", state.account, rights=rights)
    values = {
        "sts:RoleSessionName": name,
        "sts:ExternalId": None,
        "sts:TransitiveTagKeys": tuple(transitive),
    }
    context = AccessContext(
        identity, caller, "", "", state.account, caller.operationName, values=values
    )
    names = frozenset({provider.name, provider.url, providerArn(state, provider)})
    actions = (_ACTION, TAG_SESSION) if caller.requestTags else (_ACTION,)
    reason = ""
    try:
        policy = compileTrustPolicy(role.trust, state.account)
    except MalformedPolicy as error:
        reason = f"the trust policy cannot be used: {error.message}"
    else:
        for action in actions:
            found = policy.evaluateFederated(action, context, names)
            if found is not Trust.CALLER:
                verb = "denies" if found is Trust.DENIED else "does not allow"
                reason = f"the trust policy {verb} {action}"
                break
    if reason:
        raise refused(role.name, provider, reason)


def refused(role: str, provider: OIDCProvider, reason: str) -> AccessDenied:
    """
    Make the error for a role that a token does not get. It has no reason, which is logged.

    @param role: The name of the role, which need not exist.
    """
    _log.info(
        "the role {role!a:.200} is refused for a token of {issuer}: {reason}",
        role=role,
        issuer=provider.name,
        reason=reason,
    )
    return AccessDenied(f"Not authorized to perform {_ACTION}")
