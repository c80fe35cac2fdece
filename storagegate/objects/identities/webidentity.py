"""
C{AssumeRoleWithWebIdentity}: the token of an OpenID Connect issuer in exchange for a session.

The checks, in order; each failure is logged with its reason::

    1. The issuer is a provider of the account of the role.
    2. A key of the issuer signs the token; C{iss}, C{aud} and C{exp} are right.
    3. The trust policy of the role allows C{sts:AssumeRoleWithWebIdentity} for the issuer.

The keys of an issuer are fetched from public addresses by HTTPS alone. Only the providers of the
root account may be in a private network, or on this machine by HTTP: tenants choose the others.
"""

from collections.abc import Mapping
from functools import lru_cache
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

import msgspec
from twisted.logger import Logger

from storagegate.auth.oauth import JWKSCache, MetadataFetcher, OAuthOptions, OAuthProvider
from storagegate.auth.tokens import TokenError, unverified
from storagegate.core.addresses import HTTP
from storagegate.core.errors import ServiceError
from storagegate.objects.access.context import AccessContext
from storagegate.objects.access.trustpolicy import Trust, compileTrustPolicy
from storagegate.objects.errors import (
    AccessDenied,
    ExpiredWebIdentity,
    InvalidIdentityToken,
    IssuerUnreachable,
    MalformedPolicy,
    PackedPolicyTooLarge,
)
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

Claims = dict[str, str | list[str]]
"""The claims that conditions can compare: texts, numbers and lists of texts."""

_log = Logger()


async def verifyToken(state: AccountState, token: str) -> tuple[OIDCProvider, dict[str, Any]]:
    """
    Verify a token by the providers of an account.

    @return: The provider, and all claims of the token.
    @raise InvalidIdentityToken: The token is not valid here.
    @raise ExpiredWebIdentity: The token has expired.
    @raise IssuerUnreachable: The keys of the issuer cannot be fetched.
    """
    issuer = unverified(token, 1).get("iss") if token.count(".") == 2 else None
    provider = _providerOf(state, issuer)
    if provider is None or not isinstance(issuer, str):
        raise _invalid(f"no provider of the account {state.account} is the issuer", issuer)
    if not provider.clientIds:
        raise _invalid("the provider accepts no audience", issuer)
    try:
        verifier = _verifier(issuer, provider.clientIds, state.account == ROOT_ACCOUNT)
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


# The verification of a token of an issuer does not read the context of a call.
_CONTEXT: Any = None


def _providerOf(state: AccountState, issuer: Any) -> OIDCProvider | None:
    """Find the provider of an issuer, whose URL may have one slash more or less at its end."""
    if not isinstance(issuer, str):
        return None
    # Each spelling has its own keys, so any number of slashes would be any number of fetches.
    bare = issuer.removesuffix("/")
    for url in (bare, f"{bare}/"):
        found = state.provider(url.partition("://")[2])
        if found is not None and found.url == url:
            return found
    return None


def _invalid(reason: str, issuer: Any) -> InvalidIdentityToken:
    _log.info("a token of {issuer!a:.200} is refused: {reason}", issuer=str(issuer), reason=reason)
    return InvalidIdentityToken()


# An issuer in use keeps its keys.
@lru_cache(maxsize=64)
def _verifier(issuer: str, audience: tuple[str, ...], isTrusted: bool) -> OAuthProvider:
    """
    Return the verifier of an issuer.

    @param isTrusted: Whether the issuer may be in a private network.
    @raise ValueError: No keys may be fetched from the URL.
    """
    options = OAuthOptions(issuer=issuer, audience=audience)
    if options.issuer.scheme == HTTP and not isTrusted:
        raise ValueError("it is not an https URL")
    trusted = frozenset({options.issuer.host} if isTrusted else ())
    return OAuthProvider(options, JWKSCache(options.issuer, MetadataFetcher(None, trusted).fetch))


def comparableClaims(claims: Mapping[str, Any]) -> Claims:
    """
    Return the claims that conditions can compare.

    @raise PackedPolicyTooLarge: They are too large for the token of a session.
    @raise InvalidIdentityToken: One of them is no Unicode text.
    """
    found: Claims = {}
    for name, value in claims.items():
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
) -> None:
    """
    Check that the trust policy of a role allows a session for claims.

    @param name: The name of the session.
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
    values = {"sts:RoleSessionName": name, "sts:ExternalId": None}
    context = AccessContext(
        identity, caller, "", "", state.account, caller.operationName, values=values
    )
    names = frozenset({provider.name, provider.url, providerArn(state, provider)})
    try:
        policy = compileTrustPolicy(role.trust, state.account)
    except MalformedPolicy as error:
        reason = f"the trust policy cannot be used: {error.message}"
    else:
        found = policy.evaluateFederated(_ACTION, context, names)
        if found is Trust.CALLER:
            return
        verb = "denies" if found is Trust.DENIED else "does not allow"
        reason = f"the trust policy {verb} {_ACTION}"
    _log.info(
        "the role {role} is refused for a token of {issuer}: {reason}",
        role=role.name,
        issuer=provider.name,
        reason=reason,
    )
    raise AccessDenied("Not authorized to perform sts:AssumeRoleWithWebIdentity")
