"""Managed policies with their versions, inline policies, and attachments."""

from collections import Counter
from typing import Any

from msgspec.structs import replace

from storagegate.objects.access.identitypolicy import POLICY_LIMIT
from storagegate.objects.errors import (
    DeleteConflict,
    EntityAlreadyExists,
    LimitExceeded,
    NoSuchEntity,
)
from storagegate.objects.identities import operations
from storagegate.objects.identities.answers import (
    AttachedPolicy,
    AttachedPolicyPage,
    GroupPolicyResult,
    PolicyEntities,
    PolicyGroup,
    PolicyNamePage,
    PolicyPage,
    PolicyResult,
    PolicyRole,
    PolicyUser,
    PolicyVersionPage,
    PolicyVersionResult,
    PolicyVersionView,
    PolicyView,
    RolePolicyResult,
    UserPolicyResult,
)
from storagegate.objects.identities.awspolicies import AWS_POLICIES
from storagegate.objects.identities.entities import (
    AccountState,
    Group,
    IAMUser,
    ManagedPolicy,
    PolicyHolder,
    PolicyVersion,
    Role,
)
from storagegate.objects.identities.lookup import (
    IdentityRequest,
    changeableHolder,
    checkCount,
    holderOf,
    newId,
    ownPolicy,
    pageOf,
    policyArn,
    policyOf,
    tagsOf,
)
from storagegate.objects.identities.rights import checkPolicy

INLINE_LIMITS = {"user": 2048, "group": 5120, "role": 10_240}
"""Characters of all inline policies of an identity, without white space: Amazon's limits."""

_WHITE_SPACE = 4
"""
How many times larger all inline policies may be with white space, which every node keeps in memory.
"""

MANAGED_LIMIT = 6144
"""Characters of a managed policy, without white space: Amazon's limit."""

ATTACHED_LIMIT = 10
"""Managed policies of an identity: Amazon's limit."""

POLICIES_LIMIT = 1500
"""Managed policies of an account: Amazon's limit."""

VERSIONS_LIMIT = 5
"""Versions of a managed policy: Amazon's limit."""


def _length(*documents: str) -> int:
    return sum(len("".join(document.split())) for document in documents)


# Inline policies.


def putInlinePolicy(
    state: AccountState, operation: Any, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Add an inline policy to a user, group or role, or replace it."""
    holder = changeableHolder(state, operation)
    checkPolicy(operation.policyDocument)
    policies = {**holder.policies, operation.policyName: operation.policyDocument}
    most = INLINE_LIMITS[holder.kind]
    whole = sum(map(len, policies.values()))
    if _length(*policies.values()) > most or whole > max(POLICY_LIMIT, _WHITE_SPACE * most):
        raise LimitExceeded(
            f"Maximum policy size of {most} bytes exceeded for {holder.kind} {holder.name}"
        )
    return state.withEntity(replace(holder, policies=policies)), None


def _inlinePolicy(holder: PolicyHolder, name: str) -> str:
    found = holder.policies.get(name)
    if found is None:
        raise NoSuchEntity(f"The {holder.kind} policy with name {name} cannot be found.")
    return found


def getInlinePolicy(
    state: AccountState, operation: Any, request: IdentityRequest
) -> UserPolicyResult | GroupPolicyResult | RolePolicyResult:
    """Return an inline policy."""
    holder = holderOf(state, operation)
    document = _inlinePolicy(holder, operation.policyName)
    if isinstance(holder, IAMUser):
        return UserPolicyResult(holder.name, operation.policyName, document)
    if isinstance(holder, Group):
        return GroupPolicyResult(holder.name, operation.policyName, document)
    return RolePolicyResult(holder.name, operation.policyName, document)


def deleteInlinePolicy(
    state: AccountState, operation: Any, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Remove an inline policy."""
    holder = changeableHolder(state, operation)
    _inlinePolicy(holder, operation.policyName)
    policies = {
        name: each for name, each in holder.policies.items() if name != operation.policyName
    }
    return state.withEntity(replace(holder, policies=policies)), None


def listInlinePolicies(
    state: AccountState, operation: Any, request: IdentityRequest
) -> PolicyNamePage:
    """List the names of inline policies."""
    found = sorted(holderOf(state, operation).policies)
    rows, page = pageOf(found, str, operation.marker, operation.maxItems)
    return PolicyNamePage(policyNames=rows, **page)


# Attached policies.


def attachPolicy(
    state: AccountState, operation: Any, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Attach a managed policy; one that is attached stays."""
    holder = changeableHolder(state, operation)
    policyOf(state, operation.policyArn)
    if operation.policyArn in holder.attached:
        return state, None
    name = f"PoliciesPer{holder.kind.capitalize()}"
    checkCount(len(holder.attached), name, ATTACHED_LIMIT)
    attached = (*holder.attached, operation.policyArn)
    return state.withEntity(replace(holder, attached=attached)), None


def detachPolicy(
    state: AccountState, operation: Any, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Detach a managed policy."""
    holder = changeableHolder(state, operation)
    if operation.policyArn not in holder.attached:
        raise NoSuchEntity(f"Policy {operation.policyArn} was not found.")
    attached = tuple(each for each in holder.attached if each != operation.policyArn)
    return state.withEntity(replace(holder, attached=attached)), None


def listAttachedPolicies(
    state: AccountState, operation: Any, request: IdentityRequest
) -> AttachedPolicyPage:
    """List the managed policies of a user, group or role by name."""
    policies = [policyOf(state, arn) for arn in holderOf(state, operation).attached]
    found = [
        AttachedPolicy(policy.name, policyArn(state, policy))
        for policy in policies
        if policy.path.startswith(operation.pathPrefix)
    ]
    found.sort(key=lambda each: each.policyArn)
    rows, page = pageOf(found, lambda each: each.policyArn, operation.marker, operation.maxItems)
    return AttachedPolicyPage(attachedPolicies=rows, **page)


# Managed policies.


def _holders(state: AccountState, arn: str) -> list[PolicyHolder]:
    return [holder for holder in _allHolders(state) if arn in holder.attached]


def _allHolders(state: AccountState) -> list[PolicyHolder]:
    return [*state.groups(), *state.roles(), *state.users()]


def viewPolicy(
    state: AccountState, policy: ManagedPolicy, count: int, *, isWhole: bool = False
) -> PolicyView:
    """
    Describe a managed policy.

    @param count: The number of identities to which it is attached.
    @param isWhole: Whether to show description and tags, which lists omit.
    """
    arn = policyArn(state, policy)
    return PolicyView(
        policyName=policy.name,
        policyId=policy.id,
        arn=arn,
        path=policy.path,
        defaultVersionId=policy.default,
        attachmentCount=count,
        description=policy.description or None if isWhole else None,
        createDate=policy.createdMs,
        updateDate=policy.updatedMs or policy.createdMs,
        tags=tagsOf(policy) if isWhole and policy.tags else None,
    )


def _checkManaged(document: str) -> None:
    checkPolicy(document)
    if _length(document) > MANAGED_LIMIT:
        raise LimitExceeded(f"Cannot exceed quota for PolicySize: {MANAGED_LIMIT}")


def createPolicy(
    state: AccountState, operation: operations.CreatePolicy, request: IdentityRequest
) -> tuple[AccountState, PolicyResult]:
    """Create a managed policy."""
    if state.policy(operation.policyName) is not None:
        raise EntityAlreadyExists(
            f"A policy called {operation.policyName} already exists. Duplicate names are not "
            "allowed."
        )
    _checkManaged(operation.policyDocument)
    checkCount(len(state.managedPolicies()), "Policies", POLICIES_LIMIT)
    policy = ManagedPolicy(
        name=operation.policyName,
        id=newId(state, ManagedPolicy),
        path=operation.path,
        createdMs=request.nowMs,
        updatedMs=request.nowMs,
        description=operation.description,
        tags={tag.key: tag.value for tag in operation.tags},
        versions={"v1": PolicyVersion(document=operation.policyDocument, createdMs=request.nowMs)},
    )
    return state.withEntity(policy), PolicyResult(viewPolicy(state, policy, 0, isWhole=True))


def getPolicy(
    state: AccountState, operation: operations.GetPolicy, request: IdentityRequest
) -> PolicyResult:
    """Return a managed policy."""
    policy = policyOf(state, operation.policyArn)
    count = len(_holders(state, operation.policyArn))
    return PolicyResult(viewPolicy(state, policy, count, isWhole=True))


def listPolicies(
    state: AccountState, operation: operations.ListPolicies, request: IdentityRequest
) -> PolicyPage:
    """List managed policies by name."""
    found: list[ManagedPolicy] = []
    if operation.policyUsageFilter != "PermissionsBoundary":
        if operation.scope != "AWS":
            found += state.managedPolicies()
        if operation.scope != "Local":
            found += AWS_POLICIES.values()
    arns = {policy.id: policyArn(state, policy) for policy in found}
    # Counted once: an account has thousands of identities and policies.
    counts = Counter(arn for holder in _allHolders(state) for arn in holder.attached)
    found = sorted(
        (
            policy
            for policy in found
            if policy.path.startswith(operation.pathPrefix)
            and (not operation.onlyAttached or counts[arns[policy.id]])
        ),
        key=lambda policy: (policy.key, policy.id),
    )
    rows, page = pageOf(
        found, lambda policy: f"{policy.key} {policy.id}", operation.marker, operation.maxItems
    )
    views = tuple(viewPolicy(state, policy, counts[arns[policy.id]]) for policy in rows)
    return PolicyPage(policies=views, **page)


def deletePolicy(
    state: AccountState, operation: operations.DeletePolicy, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Delete a managed policy that is not attached, and has one version."""
    policy = ownPolicy(state, operation.policyArn)
    if _holders(state, operation.policyArn):
        raise DeleteConflict("Cannot delete a policy attached to entities.")
    if len(policy.versions) > 1:
        raise DeleteConflict(
            "This policy has more than one version. Before you delete a policy, you must delete "
            "the policy's versions. The default version is deleted with the policy."
        )
    return state.withoutEntity(policy), None


def createPolicyVersion(
    state: AccountState, operation: operations.CreatePolicyVersion, request: IdentityRequest
) -> tuple[AccountState, PolicyVersionResult]:
    """Add a version to a managed policy."""
    policy = ownPolicy(state, operation.policyArn)
    _checkManaged(operation.policyDocument)
    if len(policy.versions) >= VERSIONS_LIMIT:
        raise LimitExceeded(
            f"A managed policy can have up to {VERSIONS_LIMIT} versions. Before you create a new "
            "version, you must delete an existing version."
        )
    number = f"v{policy.lastVersion + 1}"
    version = PolicyVersion(document=operation.policyDocument, createdMs=request.nowMs)
    policy = replace(
        policy,
        versions={**policy.versions, number: version},
        lastVersion=policy.lastVersion + 1,
        default=number if operation.setAsDefault else policy.default,
        updatedMs=request.nowMs,
    )
    view = _viewVersion(policy, number, isWhole=False)
    return state.withEntity(policy), PolicyVersionResult(view)


def _viewVersion(policy: ManagedPolicy, number: str, *, isWhole: bool) -> PolicyVersionView:
    version = policy.versions.get(number)
    if version is None:
        raise NoSuchEntity(
            f"Policy {policy.name} version {number} does not exist or is not attachable."
        )
    return PolicyVersionView(
        document=version.document if isWhole else None,
        versionId=number,
        isDefaultVersion=number == policy.default,
        createDate=version.createdMs,
    )


def getPolicyVersion(
    state: AccountState, operation: operations.GetPolicyVersion, request: IdentityRequest
) -> PolicyVersionResult:
    """Return a version of a managed policy."""
    policy = policyOf(state, operation.policyArn)
    return PolicyVersionResult(_viewVersion(policy, operation.versionId, isWhole=True))


def listPolicyVersions(
    state: AccountState, operation: operations.ListPolicyVersions, request: IdentityRequest
) -> PolicyVersionPage:
    """List the versions of a managed policy, newest first."""
    policy = policyOf(state, operation.policyArn)

    def position(number: str) -> str:
        # The newest version has the smallest position.
        return f"{2**31 - int(number[1:]):010}"

    found = sorted(policy.versions, key=position)
    rows, page = pageOf(found, position, operation.marker, operation.maxItems)
    views = tuple(_viewVersion(policy, number, isWhole=False) for number in rows)
    return PolicyVersionPage(versions=views, **page)


def setDefaultPolicyVersion(
    state: AccountState, operation: operations.SetDefaultPolicyVersion, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Put a version of a managed policy into effect."""
    policy = ownPolicy(state, operation.policyArn)
    _viewVersion(policy, operation.versionId, isWhole=False)
    changed = replace(policy, default=operation.versionId, updatedMs=request.nowMs)
    return state.withEntity(changed), None


def deletePolicyVersion(
    state: AccountState, operation: operations.DeletePolicyVersion, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Delete a version of a managed policy."""
    policy = ownPolicy(state, operation.policyArn)
    _viewVersion(policy, operation.versionId, isWhole=False)
    if operation.versionId == policy.default:
        raise DeleteConflict("Cannot delete the default version of a policy.")
    versions = {name: each for name, each in policy.versions.items() if name != operation.versionId}
    return state.withEntity(replace(policy, versions=versions)), None


def listEntitiesForPolicy(
    state: AccountState, operation: operations.ListEntitiesForPolicy, request: IdentityRequest
) -> PolicyEntities:
    """List the identities to which a managed policy is attached: groups, then roles and users."""
    policyOf(state, operation.policyArn)
    found = [
        holder
        for holder in _holders(state, operation.policyArn)
        if holder.path.startswith(operation.pathPrefix)
        and operation.entityFilter.lower() in ("", holder.kind)
        and operation.policyUsageFilter != "PermissionsBoundary"
    ]
    found.sort(key=_position)
    rows, page = pageOf(found, _position, operation.marker, operation.maxItems)
    return PolicyEntities(
        policyGroups=tuple(PolicyGroup(e.name, e.id) for e in rows if isinstance(e, Group)),
        policyRoles=tuple(PolicyRole(e.name, e.id) for e in rows if isinstance(e, Role)),
        policyUsers=tuple(PolicyUser(e.name, e.id) for e in rows if isinstance(e, IAMUser)),
        **page,
    )


def _position(holder: PolicyHolder) -> str:
    return f"{holder.kind} {holder.key}"
