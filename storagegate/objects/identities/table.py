"""
The table of the operations on identities, and the decision on access to them.

A function of the table reads the state of an account, or computes a new one, and gives the answer.
Only L{perform} calls them for a caller: it checks the values of the operation, then the right to
it, and then calls the function, again if the account has changed in the meantime.

The right to an operation is C{iam:} with its name, on the ARN of the identity that it names.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from storagegate.objects.access.context import withTags
from storagegate.objects.errors import AccessDenied, NoSuchEntity
from storagegate.objects.identities import (
    entitytags,
    groups,
    keys,
    operations,
    policies,
    providers,
    roles,
    simulation,
    users,
)
from storagegate.objects.identities.answers import (
    IdentityPage,
    NoCertificates,
    NoCredentials,
    NoDevices,
    NoInstanceProfiles,
    NoPublicKeys,
    Summary,
)
from storagegate.objects.identities.entities import AccountState
from storagegate.objects.identities.lookup import IdentityRequest, allUsers, holderOf, userOf
from storagegate.objects.identities.operations import IdentityOperation
from storagegate.objects.identities.rights import authoriseAction
from storagegate.objects.identities.store import BlockingIdentities, changeNow, readNow
from storagegate.objects.identities.validation import checkOperation

if TYPE_CHECKING:
    from storagegate.objects.access.context import Caller
    from storagegate.objects.service import ObjectService

T = TypeVar("T")

Function = Callable[[AccountState, Any, IdentityRequest], Any]
"""Returns the answer of a read, or the new state with the answer of a change."""


def _getAccountSummary(
    state: AccountState, operation: operations.GetAccountSummary, request: IdentityRequest
) -> Summary:
    """Count the identities of an account."""
    return Summary(
        {
            "Users": len(allUsers(state)),
            "UsersQuota": users.USERS_LIMIT,
            "Groups": len(state.groups()),
            "GroupsQuota": groups.GROUPS_LIMIT,
            "Roles": len(state.roles()),
            "RolesQuota": roles.ROLES_LIMIT,
            "Policies": len(state.managedPolicies()),
            "PoliciesQuota": policies.POLICIES_LIMIT,
            "Providers": len(state.providers()),
            "GroupsPerUserQuota": groups.GROUPS_OF_USER_LIMIT,
            "AccessKeysPerUserQuota": keys.KEYS_LIMIT,
            "AttachedPoliciesPerUserQuota": policies.ATTACHED_LIMIT,
            "AttachedPoliciesPerGroupQuota": policies.ATTACHED_LIMIT,
            "AttachedPoliciesPerRoleQuota": policies.ATTACHED_LIMIT,
            "UserPolicySizeQuota": policies.INLINE_LIMITS["user"],
            "GroupPolicySizeQuota": policies.INLINE_LIMITS["group"],
            "RolePolicySizeQuota": policies.INLINE_LIMITS["role"],
            "PolicySizeQuota": policies.MANAGED_LIMIT,
            "VersionsPerPolicyQuota": policies.VERSIONS_LIMIT,
            "PolicyVersionsInUse": sum(len(each.versions) for each in state.managedPolicies()),
            "PolicyVersionsInUseQuota": policies.VERSIONS_LIMIT * policies.POLICIES_LIMIT,
            "AccountAccessKeysPresent": 0,
            "AccountMFAEnabled": 0,
            "MFADevices": 0,
            "MFADevicesInUse": 0,
        }
    )


def _noLoginProfile(
    state: AccountState, operation: operations.GetLoginProfile, request: IdentityRequest
) -> None:
    userOf(state, operation.userName)
    raise NoSuchEntity(f"Login Profile for User {operation.userName} cannot be found.")


def _nothing(page: type[IdentityPage]) -> Function:
    """Return the function of a list that is always empty, of an identity that must exist."""

    def empty(state: AccountState, operation: Any, request: IdentityRequest) -> IdentityPage:
        if getattr(operation, "userName", None) != "":
            holderOf(state, operation)
        return page()

    return empty


READS: Mapping[type[IdentityOperation[Any]], Function] = {
    operations.GetUser: users.getUser,
    operations.ListUsers: users.listUsers,
    operations.ListUserTags: entitytags.listTags,
    operations.ListGroupsForUser: users.listGroupsForUser,
    operations.ListAccessKeys: keys.listAccessKeys,
    operations.GetAccessKeyLastUsed: keys.getAccessKeyLastUsed,
    operations.GetGroup: groups.getGroup,
    operations.ListGroups: groups.listGroups,
    operations.GetRole: roles.getRole,
    operations.ListRoles: roles.listRoles,
    operations.ListRoleTags: entitytags.listTags,
    operations.GetUserPolicy: policies.getInlinePolicy,
    operations.ListUserPolicies: policies.listInlinePolicies,
    operations.GetGroupPolicy: policies.getInlinePolicy,
    operations.ListGroupPolicies: policies.listInlinePolicies,
    operations.GetRolePolicy: policies.getInlinePolicy,
    operations.ListRolePolicies: policies.listInlinePolicies,
    operations.ListAttachedUserPolicies: policies.listAttachedPolicies,
    operations.ListAttachedGroupPolicies: policies.listAttachedPolicies,
    operations.ListAttachedRolePolicies: policies.listAttachedPolicies,
    operations.GetPolicy: policies.getPolicy,
    operations.ListPolicies: policies.listPolicies,
    operations.GetPolicyVersion: policies.getPolicyVersion,
    operations.ListPolicyVersions: policies.listPolicyVersions,
    operations.ListEntitiesForPolicy: policies.listEntitiesForPolicy,
    operations.ListPolicyTags: entitytags.listTags,
    operations.GetOpenIDConnectProvider: providers.getProvider,
    operations.ListOpenIDConnectProviders: providers.listProviders,
    operations.ListOpenIDConnectProviderTags: entitytags.listTags,
    operations.GetAccountSummary: _getAccountSummary,
    operations.SimulateCustomPolicy: simulation.simulateCustomPolicy,
    operations.SimulatePrincipalPolicy: simulation.simulatePrincipalPolicy,
    operations.GetLoginProfile: _noLoginProfile,
    operations.DeleteLoginProfile: _noLoginProfile,
    operations.ListMFADevices: _nothing(NoDevices),
    operations.ListSSHPublicKeys: _nothing(NoPublicKeys),
    operations.ListSigningCertificates: _nothing(NoCertificates),
    operations.ListServiceSpecificCredentials: _nothing(NoCredentials),
    operations.ListInstanceProfilesForRole: _nothing(NoInstanceProfiles),
}
"""The functions of reads, which return the answer."""

CHANGES: Mapping[type[IdentityOperation[Any]], Function] = {
    operations.CreateUser: users.createUser,
    operations.UpdateUser: users.updateUser,
    operations.DeleteUser: users.deleteUser,
    operations.UpdateUserStatus: users.updateUserStatus,
    operations.RevokeUserSessions: users.revokeUserSessions,
    operations.TagUser: entitytags.addTags,
    operations.UntagUser: entitytags.removeTags,
    operations.CreateAccessKey: keys.createAccessKey,
    operations.UpdateAccessKey: keys.updateAccessKey,
    operations.DeleteAccessKey: keys.deleteAccessKey,
    operations.CreateGroup: groups.createGroup,
    operations.UpdateGroup: groups.updateGroup,
    operations.DeleteGroup: groups.deleteGroup,
    operations.AddUserToGroup: groups.addUserToGroup,
    operations.RemoveUserFromGroup: groups.removeUserFromGroup,
    operations.CreateRole: roles.createRole,
    operations.UpdateRole: roles.updateRole,
    operations.UpdateRoleDescription: roles.updateRoleDescription,
    operations.UpdateAssumeRolePolicy: roles.updateAssumeRolePolicy,
    operations.DeleteRole: roles.deleteRole,
    operations.UpdateRoleStatus: roles.updateRoleStatus,
    operations.RevokeRoleSessions: roles.revokeRoleSessions,
    operations.TagRole: entitytags.addTags,
    operations.UntagRole: entitytags.removeTags,
    operations.PutUserPolicy: policies.putInlinePolicy,
    operations.DeleteUserPolicy: policies.deleteInlinePolicy,
    operations.PutGroupPolicy: policies.putInlinePolicy,
    operations.DeleteGroupPolicy: policies.deleteInlinePolicy,
    operations.PutRolePolicy: policies.putInlinePolicy,
    operations.DeleteRolePolicy: policies.deleteInlinePolicy,
    operations.AttachUserPolicy: policies.attachPolicy,
    operations.DetachUserPolicy: policies.detachPolicy,
    operations.AttachGroupPolicy: policies.attachPolicy,
    operations.DetachGroupPolicy: policies.detachPolicy,
    operations.AttachRolePolicy: policies.attachPolicy,
    operations.DetachRolePolicy: policies.detachPolicy,
    operations.CreatePolicy: policies.createPolicy,
    operations.DeletePolicy: policies.deletePolicy,
    operations.CreatePolicyVersion: policies.createPolicyVersion,
    operations.SetDefaultPolicyVersion: policies.setDefaultPolicyVersion,
    operations.DeletePolicyVersion: policies.deletePolicyVersion,
    operations.TagPolicy: entitytags.addTags,
    operations.UntagPolicy: entitytags.removeTags,
    operations.CreateOpenIDConnectProvider: providers.createProvider,
    operations.DeleteOpenIDConnectProvider: providers.deleteProvider,
    operations.AddClientIDToOpenIDConnectProvider: providers.addClient,
    operations.RemoveClientIDFromOpenIDConnectProvider: providers.removeClient,
    operations.UpdateOpenIDConnectProviderThumbprint: providers.updateThumbprints,
    operations.TagOpenIDConnectProvider: entitytags.addTags,
    operations.UntagOpenIDConnectProvider: entitytags.removeTags,
}
"""The functions of changes, which return the new state and the answer."""

OPERATIONS: Mapping[str, type[IdentityOperation[Any]]] = {
    kind.__name__: kind for kind in (*READS, *CHANGES)
}
"""The operations by name."""


async def perform(
    service: "ObjectService",
    caller: "Caller",
    operation: IdentityOperation[T],
    account: str | None = None,
) -> T:
    """
    Perform an operation for a caller that has the right to it.

    @param account: The account; L{None} for the caller's. Only the root pair and keys with the
        administration role C{admin} may name another; keys with the role C{auditor} may read it.
    @raise DomainError: The operation is refused, or one of its values is invalid.
    """
    checkOperation(operation)
    identity = caller.identity
    rights = identity.rights
    if rights is not None and rights.session is not None and rights.role is None:
        # As at Amazon. A key that such a session makes would outlive it, and its policy.
        raise AccessDenied("A session of a key cannot call IAM")
    role = _roleOf(service, caller)
    caller = withTags(caller, {tag.key: tag.value for tag in getattr(operation, "tags", ())})
    if account is None:
        account = identity.account
    kind = type(operation)
    isAudit = role == "auditor" and kind in READS
    isOwn = account == identity.account and not identity.isAnonymous
    if not (isOwn or isAudit or role in ("admin", "root")):
        raise AccessDenied()
    uses: Mapping[str, int] = {}
    if kind is operations.GetAccessKeyLastUsed:
        uses = await service.catalog.keyUses()
    request = IdentityRequest(service.nowMs(), identity, role, uses, service.region)

    def authorise(state: AccountState) -> None:
        if isAudit:
            return
        tagKeys = getattr(operation, "tagKeys", ())
        for resource in resourcesOf(state, operation, request):
            authoriseAction(caller, role, f"iam:{kind.__name__}", resource, tagKeys)

    def change(state: AccountState) -> tuple[AccountState, T]:
        authorise(state)
        found: tuple[AccountState, T] = CHANGES[kind](state, operation, request)
        return found

    if kind in CHANGES:
        return await service.identities.change(account, change)
    state = await service.identities.read(account)
    authorise(state)
    answer: T = READS[kind](state, operation, request)
    return answer


def performNow(
    admin: BlockingIdentities,
    account: str,
    operation: IdentityOperation[T],
    request: IdentityRequest,
) -> T:
    """
    Perform an operation for an operator with the files of the store, who may do everything. Blocks.

    @raise DomainError: As L{perform}, except C{AccessDenied}.
    """
    checkOperation(operation)
    kind = type(operation)
    answer: T
    if kind in CHANGES:
        answer = changeNow(admin, account, lambda state: CHANGES[kind](state, operation, request))
    else:
        answer = READS[kind](readNow(admin, account), operation, request)
    return answer


def _roleOf(service: "ObjectService", caller: "Caller") -> str:
    """Return the administration role of the caller's key."""
    if caller.identity.isRoot:
        return "root"
    if caller.identity.role:
        return caller.identity.role
    key = service.accounts.find(caller.identity.accessKey)
    return "none" if key is None else key.role


def resourcesOf(
    state: AccountState, operation: IdentityOperation[Any], request: IdentityRequest
) -> Iterator[str]:
    """
    Give the ARNs of the identities on which an operation needs its right.

    An identity that does not exist counts with the path C{/}, so a refusal does not tell whether it
    exists.
    """
    arn = f"arn:aws:iam::{state.account}:"
    path = getattr(operation, "path", "/")
    if isinstance(operation, operations.GetAccessKeyLastUsed):
        user = users.userNameOf(state, operation.accessKeyId)
        yield arn + _resource(state.user(user), "user", "/", user)
    elif isinstance(operation, operations.CreatePolicy):
        yield f"{arn}policy{path}{operation.policyName}"
    elif isinstance(operation, operations.CreateOpenIDConnectProvider):
        yield f"{arn}oidc-provider/{operation.url.partition('://')[2]}"
    elif hasattr(operation, "groupName"):
        group = state.group(operation.groupName)
        yield arn + _resource(group, "group", path, operation.groupName)
        if isinstance(operation, operations.UpdateGroup) and group is not None:
            yield arn + _renamed(group, operation.newPath, operation.newGroupName)
    elif hasattr(operation, "roleName"):
        role = state.role(operation.roleName)
        yield arn + _resource(role, "role", path, operation.roleName)
    elif hasattr(operation, "userName"):
        name = users.callerName(state, operation.userName, request)
        found = state.user(name)
        yield arn + _resource(found, "user", path, name)
        if isinstance(operation, operations.UpdateUser) and found is not None:
            yield arn + _renamed(found, operation.newPath, operation.newUserName)
    elif hasattr(operation, "policyArn"):
        yield operation.policyArn
    elif hasattr(operation, "policySourceArn"):
        yield simulation.sourceArn(state, operation.policySourceArn)
    elif hasattr(operation, "openIDConnectProviderArn"):
        yield operation.openIDConnectProviderArn
    else:
        kind = _LISTED.get(type(operation))
        yield "*" if kind is None else f"{arn}{kind}{getattr(operation, 'pathPrefix', '/')}"


_LISTED = {
    operations.ListUsers: "user",
    operations.ListGroups: "group",
    operations.ListRoles: "role",
    operations.ListOpenIDConnectProviders: "oidc-provider",
}


def _resource(entity: Any, kind: str, path: str, name: str) -> str:
    return f"{kind}{path}{name}" if entity is None else str(entity.resource)


def _renamed(entity: Any, path: str, name: str) -> str:
    return f"{entity.kind}{path or entity.path}{name or entity.name}"
