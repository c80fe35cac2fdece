"""
The operations of STS, which exchange credentials for temporary ones.

C{AssumeRole} without a role gives the rights of the caller, and so does C{GetSessionToken}. A
service key gives the rights that its own policies leave it. A session gives no other session,
except of a role whose trust policy and whose own rights allow it.
"""

from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from storagegate.objects.access.context import AccessContext, principalArn, userId, withTags
from storagegate.objects.access.trustpolicy import (
    TAG_SESSION,
    Trust,
    TrustPolicy,
    compileTrustPolicy,
)
from storagegate.objects.dates import isoSeconds
from storagegate.objects.errors import (
    AccessDenied,
    MalformedPolicy,
    PackedPolicyTooLarge,
    Refusal,
    UnauthenticatedCall,
    ValidationError,
)
from storagegate.objects.identities.answers import Tags
from storagegate.objects.identities.entities import Role
from storagegate.objects.identities.lookup import providerArn
from storagegate.objects.identities.operations import IdentityOperation
from storagegate.objects.identities.rights import checkPolicy
from storagegate.objects.identities.sessions import NewSession
from storagegate.objects.identities.tokens import SessionToken
from storagegate.objects.identities.validation import checkOperation, checkTags, invalid
from storagegate.objects.principals import ROOT_ACCOUNT, AccountKey, Identity

if TYPE_CHECKING:
    from storagegate.objects.access.context import Caller
    from storagegate.objects.service import ObjectService

T = TypeVar("T", covariant=True)

POLICY_LIMIT = 2048
"""Characters of a session policy: Amazon's limit."""

PACKED_LIMIT = 4608
"""Bytes of the policy and the tags of a session in its token, which is sent with each request."""

DEFAULT_SECONDS = 3600
LONGEST_SECONDS = 43_200

CHAINED_SECONDS = 3600
"""The longest session of a role that a session of a role assumes, as at Amazon."""


class Credentials(Struct, frozen=True, kw_only=True):
    """
    Temporary credentials.

    @ivar expiration: A time in ISO 8601.
    """

    accessKeyId: str
    secretAccessKey: str
    sessionToken: str
    expiration: str


class CallerIdentity(Struct, frozen=True, kw_only=True):
    """The identity of a caller."""

    userId: str
    account: str
    arn: str


class AssumedRoleUser(Struct, frozen=True, kw_only=True):
    """The identity of a session."""

    assumedRoleId: str
    arn: str


class SessionTokenResult(Struct, frozen=True, kw_only=True):
    """The session of a key."""

    credentials: Credentials


class WebIdentityRole(Struct, frozen=True, kw_only=True):
    """The session of a role for a web identity."""

    credentials: Credentials
    subjectFromWebIdentityToken: str
    assumedRoleUser: AssumedRoleUser
    provider: str
    audience: str
    packedPolicySize: int | None = None


class AssumedRole(Struct, frozen=True, kw_only=True):
    """
    The session of a role.

    @ivar packedPolicySize: The size of the policy and the tags, in percent of the limit.
    """

    assumedRoleUser: AssumedRoleUser
    credentials: Credentials
    packedPolicySize: int | None = None


class GetCallerIdentity(IdentityOperation[CallerIdentity], frozen=True, kw_only=True):
    """Name the caller. Every identity may."""


class SessionOperation(IdentityOperation[T], Generic[T], frozen=True, kw_only=True):
    """
    An operation that makes a session.

    @ivar durationSeconds: The length of the session; L{None} for the default.
    """

    durationSeconds: int | None = None


class GetSessionToken(SessionOperation[SessionTokenResult], frozen=True, kw_only=True):
    """Make a session with the rights of the caller."""


class AssumeRole(SessionOperation[AssumedRole], frozen=True, kw_only=True):
    """
    Make a session of a role.

    @ivar roleArn: The ARN of the role; empty, or no ARN of a role, for the rights of the caller.
    @ivar roleSessionName: The name of the session, which a role needs.
    @ivar policy: A policy that narrows the rights.
    @ivar externalId: A text that the trust policy can require.
    @ivar tags: The tags of the session, which the trust policy must allow by C{sts:TagSession}.
    @ivar transitiveTagKeys: The keys of tags that sessions of further roles inherit.
    """

    roleArn: str = ""
    roleSessionName: str = ""
    policy: str = ""
    externalId: str = ""
    tags: Tags = ()
    transitiveTagKeys: tuple[str, ...] = ()


class AssumeRoleWithWebIdentity(SessionOperation[WebIdentityRole], frozen=True, kw_only=True):
    """
    Make a session of a role for the token of an issuer. It needs no signature. The token can have
    tags of the session.

    @ivar webIdentityToken: A JSON Web Token.
    @ivar policy: A policy that narrows the rights.
    """

    roleArn: str
    roleSessionName: str
    webIdentityToken: str
    policy: str = ""


async def perform(service: "ObjectService", caller: "Caller", operation: IdentityOperation[T]) -> T:
    """
    Perform an operation for a caller.

    @raise DomainError: The operation is refused, or one of its values is invalid.
    """
    checkOperation(operation)
    if caller.identity.isAnonymous and type(operation) not in UNSIGNED:
        raise UnauthenticatedCall()
    caller = withTags(caller, {tag.key: tag.value for tag in getattr(operation, "tags", ())})
    answer: T = await FUNCTIONS[type(operation)](service, caller, operation)
    return answer


async def _getCallerIdentity(
    service: "ObjectService", caller: "Caller", operation: GetCallerIdentity
) -> CallerIdentity:
    identity = caller.identity
    return CallerIdentity(
        userId=userId(identity), account=identity.account, arn=sessionArn(identity)
    )


async def _getSessionToken(
    service: "ObjectService", caller: "Caller", operation: GetSessionToken
) -> SessionTokenResult:
    maker = _makerOf(service, caller, "GetSessionToken")
    seconds = operation.durationSeconds or LONGEST_SECONDS
    made = service.accounts.sessions.issue(maker.identity.account, seconds, maker)
    return SessionTokenResult(credentials=credentialsOf(made))


async def _assumeRole(
    service: "ObjectService", caller: "Caller", operation: AssumeRole
) -> AssumedRole:
    named = readRoleArn(operation.roleArn, caller.identity.account)
    if named is None:
        return _assumeNothing(service, caller, operation, checkSession(operation.policy))
    account, name = named
    rights = caller.identity.rights
    before = None if rights is None or rights.role is None else rights.session
    tags = splitTags(operation.tags, operation.transitiveTagKeys, before)
    size = checkSession(operation.policy, tags)
    if not operation.roleSessionName:
        raise invalid(None, "roleSessionName", "Member must not be null")
    state = await service.identities.read(account)
    role = state.role(name.rpartition("/")[2])
    if role is None or role.resource != f"role/{name}":
        # As at Amazon: a refusal does not tell whether the role exists.
        raise refused(f"there is no role {operation.roleArn}")
    if role.disabled:
        raise refused(f"the role {role.name} is disabled")
    context = describe(
        caller,
        account,
        operation.roleSessionName,
        operation.externalId,
        operation.transitiveTagKeys,
    )
    _checkTrust(role, account, context, "sts:AssumeRole")
    if any(tags):
        _checkTrust(role, account, context, TAG_SESSION)
    made = service.accounts.sessions.issue(
        account,
        lengthOf(operation, role, isChained=before is not None),
        role=role,
        name=operation.roleSessionName,
        policy=operation.policy,
        tags=tags.own,
        transitiveTags=tags.transitive,
    )
    return AssumedRole(
        assumedRoleUser=roleUser(role, account, operation.roleSessionName),
        credentials=credentialsOf(made),
        packedPolicySize=size,
    )


def _assumeNothing(
    service: "ObjectService", caller: "Caller", operation: AssumeRole, size: int | None
) -> AssumedRole:
    """Make a session with the rights of the caller."""
    if operation.tags or operation.transitiveTagKeys:
        raise ValidationError("Tags need a role, whose trust policy allows them")
    maker = _makerOf(service, caller, "AssumeRole")
    made = service.accounts.sessions.issue(
        maker.identity.account,
        operation.durationSeconds or DEFAULT_SECONDS,
        maker,
        policy=operation.policy,
    )
    identity, name = caller.identity, operation.roleSessionName
    return AssumedRole(
        assumedRoleUser=AssumedRoleUser(
            assumedRoleId=f"{userId(identity)}:{name}", arn=sessionArn(identity)
        ),
        credentials=credentialsOf(made),
        packedPolicySize=size,
    )


async def _assumeWithWebIdentity(
    service: "ObjectService", caller: "Caller", operation: AssumeRoleWithWebIdentity
) -> WebIdentityRole:
    # PyJWT and the client of HTTP are large.
    from storagegate.objects.identities import webidentity

    checkSession(operation.policy)
    named = readRoleArn(operation.roleArn, ROOT_ACCOUNT)
    if named is None:
        raise ValidationError(f"{operation.roleArn:.200} is invalid")
    account, path = named
    state = await service.identities.read(account)
    verifier = service.webIdentities
    provider, claims = await verifier.verify(state, operation.webIdentityToken)
    # The issuer may have taken seconds to answer, and the account may have changed since.
    state = await service.identities.read(account)
    verifier.checkCurrent(state, provider, claims["iss"])
    name = operation.roleSessionName
    role = state.role(path.rpartition("/")[2])
    if role is None or role.resource != f"role/{path}":
        raise webidentity.refused(path, provider, "there is no such role")
    if role.disabled:
        raise webidentity.refused(path, provider, "it is disabled")
    comparable = webidentity.comparableClaims(claims)
    found, transitive = webidentity.tagsOfClaims(claims)
    checkTags(found)
    tags = splitTags(found, transitive)
    size = checkSession(operation.policy, tags)
    tagged = withTags(caller, {tag.key: tag.value for tag in found})
    webidentity.checkTrust(tagged, state, role, provider, name, comparable, transitive)
    made = service.accounts.sessions.issue(
        account,
        lengthOf(operation, role),
        role=role,
        name=name,
        policy=operation.policy,
        tags=tags.own,
        transitiveTags=tags.transitive,
        issuer=provider.name,
        claims=comparable,
    )
    audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
    return WebIdentityRole(
        credentials=credentialsOf(made),
        subjectFromWebIdentityToken=claims["sub"],
        assumedRoleUser=roleUser(role, account, name),
        provider=providerArn(state, provider),
        audience=next(each for each in audiences if each in provider.clientIds),
        packedPolicySize=size,
    )


def _makerOf(service: "ObjectService", caller: "Caller", name: str) -> AccountKey:
    """
    Return the key whose rights a new session gets.

    @raise AccessDenied: The caller is a session, or its key has just been removed.
    """
    maker = service.accounts.find(caller.identity.accessKey)
    if maker is None:
        raise AccessDenied(f"Cannot call {name} with session credentials")
    return maker


def describe(
    caller: "Caller",
    account: str,
    name: str,
    externalId: str = "",
    transitiveTagKeys: tuple[str, ...] = (),
) -> AccessContext:
    """
    Describe a call for a trust policy.

    @param account: The account of the role.
    @param name: The name of the session.
    """
    values = {
        "sts:RoleSessionName": name,
        "sts:ExternalId": externalId or None,
        "sts:TransitiveTagKeys": transitiveTagKeys,
    }
    return AccessContext(
        caller.identity, caller, "", "", account, caller.operationName, values=values
    )


def trustOf(role: Role, account: str) -> TrustPolicy:
    """
    Compile the trust policy of a role.

    @raise AccessDenied: The stored policy cannot be used.
    """
    try:
        return compileTrustPolicy(role.trust, account)
    except MalformedPolicy as error:
        # A later version may have written a policy that this one does not know.
        rule = f"the trust policy of the role {role.name} cannot be used: {error.message}"
        raise AccessDenied(explain=lambda: Refusal(rule)) from None


def _checkTrust(role: Role, account: str, context: AccessContext, action: str) -> None:
    """
    Check that a caller may assume a role, or set the tags of its session.

    @raise AccessDenied: The trust policy, or the caller's own rights, do not allow it.
    """
    identity, name = context.identity, role.name
    found = trustOf(role, account).evaluate(action, context)
    if found in (Trust.DENIED, Trust.NONE):
        verb = "denies" if found is Trust.DENIED else "does not allow"
        raise refused(f"the trust policy of the role {name} {verb} {action}")
    if not identity.policy.isUnlimited:
        # The role would give the key more than its limits.
        raise refused("a key with a limited policy cannot assume a role")
    rights = identity.rights
    if rights is None:
        return
    resource = f"{account}:{role.resource}"
    own = rights.evaluate(action, context, resource)
    isNamed = found is Trust.CALLER and identity.account == account
    if own is False or (own is None and not isNamed):
        raise AccessDenied(explain=partial(rights.explain, action, context, resource))


def refused(rule: str) -> AccessDenied:
    """Make the error of a rule that refuses a call."""
    return AccessDenied(explain=lambda: Refusal(rule))


def lengthOf(operation: SessionOperation[Any], role: Role, *, isChained: bool = False) -> int:
    """
    Return the length of a new session of a role, in seconds.

    @param isChained: Whether a session of a role assumes it.
    @raise ValidationError: The call names a longer one than the role allows.
    """
    most = min(role.maxSessionSeconds, CHAINED_SECONDS if isChained else LONGEST_SECONDS)
    seconds = operation.durationSeconds
    if seconds is None:
        return min(DEFAULT_SECONDS, most)
    if seconds > most:
        reason = "set for this role"
        if isChained and most == CHAINED_SECONDS:
            reason = "of a role that another role assumes"
        raise ValidationError(
            f"The requested DurationSeconds exceeds the MaxSessionDuration {reason}: {most}."
        )
    return seconds


class SessionTags(NamedTuple):
    """
    The tags of a new session.

    @ivar transitive: The tags that a session of another role inherits from this one.
    """

    own: Mapping[str, str]
    transitive: Mapping[str, str]


_NO_TAGS = SessionTags({}, {})


def splitTags(
    tags: Tags, transitiveKeys: Collection[str], before: SessionToken | None = None
) -> SessionTags:
    """
    Return the tags of a new session, with those that it inherits.

    @param before: The session of a role that makes it; L{None} for none.
    @raise ValidationError: A transitive key is no tag, or a tag is inherited.
    """
    inherited: Mapping[str, str] = {} if before is None else before.transitiveTags
    transitive = {key.lower() for key in transitiveKeys}
    unknown = transitive - {tag.key.lower() for tag in tags}
    if unknown:
        raise ValidationError("The specified transitive tag key must be among the requested tags.")
    taken = {key.lower() for key in inherited}
    if any(tag.key.lower() in taken for tag in tags):
        raise ValidationError("A session tag has the key of a tag that the session inherits.")
    return SessionTags(
        {tag.key: tag.value for tag in tags if tag.key.lower() not in transitive},
        {**inherited, **{tag.key: tag.value for tag in tags if tag.key.lower() in transitive}},
    )


def checkSession(policy: str, tags: SessionTags = _NO_TAGS) -> int | None:
    """
    Check the policy and the tags of a new session.

    @return: Their size in percent of the limit; L{None} without both.
    @raise PackedPolicyTooLarge: They are too large.
    @raise MalformedPolicyDocument: The policy is invalid.
    """
    if not policy and not any(tags):
        return None
    size = len(msgspec.json.encode((policy, *tags)))
    if len(policy) > POLICY_LIMIT or size > PACKED_LIMIT:
        raise PackedPolicyTooLarge(
            f"The policy has more than {POLICY_LIMIT} characters, or is with the tags larger than "
            f"{PACKED_LIMIT} bytes"
        )
    if policy:
        checkPolicy(policy)
    return max(1, size * 100 // PACKED_LIMIT)


def readRoleArn(arn: str, account: str) -> tuple[str, str] | None:
    """
    Read the ARN of a role.

    @param arn: C{arn:aws:iam::ACCOUNT:role/PATH/NAME}, or the same without the account.
    @param account: The account of a role whose ARN names none.
    @return: The account, and the path and name without the leading slash; L{None} for no role: an
        empty text, or the placeholder of clients of MinIO, C{arn:xxx:xxx:xxx:xxxx}.
    @raise ValidationError: The text is another ARN of Amazon.
    """
    if not arn.startswith("arn:aws:"):
        if arn and not arn.startswith("arn:"):
            raise ValidationError(f"{arn:.200} is invalid")
        return None
    rest = arn.removeprefix("arn:aws:iam::")
    owner, colon, name = rest.rpartition(":role/")
    if rest == arn or not colon or not name:
        raise ValidationError(f"{arn:.200} is invalid")
    return owner or account, name


def roleUser(role: Role, account: str, name: str) -> AssumedRoleUser:
    """Name a session of a role."""
    return AssumedRoleUser(
        assumedRoleId=f"{role.id}:{name}",
        arn=f"arn:aws:sts::{account}:assumed-role/{role.name}/{name}",
    )


def sessionArn(identity: Identity) -> str:
    """Return the ARN of an identity that is not anonymous; of a role, the ARN of the session."""
    rights = identity.rights
    if rights is not None and rights.role is not None and rights.session is not None:
        return roleUser(rights.role, identity.account, rights.session.name).arn
    return principalArn(identity) or ""


def credentialsOf(made: NewSession) -> Credentials:
    """Return the credentials of a new session."""
    return Credentials(
        accessKeyId=made.session.accessKey,
        secretAccessKey=made.secretKey,
        sessionToken=made.token,
        expiration=isoSeconds(made.session.expiresMs // 1000),
    )


FUNCTIONS: Mapping[type[IdentityOperation[Any]], Callable[..., Coroutine[Any, Any, Any]]] = {
    GetCallerIdentity: _getCallerIdentity,
    GetSessionToken: _getSessionToken,
    AssumeRole: _assumeRole,
    AssumeRoleWithWebIdentity: _assumeWithWebIdentity,
}
"""The function of each operation."""

UNSIGNED: frozenset[type[IdentityOperation[Any]]] = frozenset({AssumeRoleWithWebIdentity})
"""The operations that need no signature."""

OPERATIONS: Mapping[str, type[IdentityOperation[Any]]] = {kind.__name__: kind for kind in FUNCTIONS}
"""The operations by name."""
