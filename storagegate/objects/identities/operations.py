"""
The operations on the identities of an account, one frozen value each.

Operations and answers (L{storagegate.objects.identities.answers}) have Amazon's names, and so do
their fields, with a small first letter: a front end that speaks Amazon's protocol reads and writes
them by these names alone.
L{storagegate.objects.identities.table.perform} decides on access, and performs an operation. Each
may raise C{AccessDenied}, C{NoSuchEntity}, C{ValidationError} and C{SlowDown}.

Names are those of the caller's account. Users, groups, roles and policies are found by their names
in any case.
"""

from typing import Generic, TypeVar

from msgspec import UNSET, Struct, UnsetType

from storagegate.objects.identities.answers import (
    AccessKeyPage,
    AccessKeyResult,
    AttachedPolicyPage,
    Done,
    GroupMembers,
    GroupPage,
    GroupPolicyResult,
    GroupResult,
    LastUseResult,
    NewProvider,
    NoCertificates,
    NoCredentials,
    NoDevices,
    NoInstanceProfiles,
    NoPublicKeys,
    PolicyEntities,
    PolicyNamePage,
    PolicyPage,
    PolicyResult,
    PolicyVersionPage,
    PolicyVersionResult,
    ProviderPage,
    ProviderResult,
    RolePage,
    RolePolicyResult,
    RoleResult,
    SimulationPage,
    Summary,
    TagPage,
    Tags,
    UserPage,
    UserPolicyResult,
    UserResult,
)
from storagegate.objects.operations import Operation

T = TypeVar("T", covariant=True)

PAGE_ITEMS = 100
"""Rows of a page that names no number: Amazon's default."""


class IdentityOperation(Operation[T], Generic[T], frozen=True, kw_only=True):
    """An operation on the identities of the caller's account."""


class PagedOperation(IdentityOperation[T], Generic[T], frozen=True, kw_only=True):
    """
    A list in pages.

    @ivar marker: The marker of the page before; empty for the first page.
    @ivar maxItems: Largest number of rows.
    """

    marker: str = ""
    maxItems: int = PAGE_ITEMS


class UserOperation(IdentityOperation[T], Generic[T], frozen=True, kw_only=True):
    """An operation on a user."""

    userName: str


class OwnUserOperation(IdentityOperation[T], Generic[T], frozen=True, kw_only=True):
    """
    An operation on a user.

    @ivar userName: Empty for the user of the caller.
    """

    userName: str = ""


class GroupOperation(IdentityOperation[T], Generic[T], frozen=True, kw_only=True):
    """An operation on a group."""

    groupName: str


class RoleOperation(IdentityOperation[T], Generic[T], frozen=True, kw_only=True):
    """An operation on a role."""

    roleName: str


class PolicyOperation(IdentityOperation[T], Generic[T], frozen=True, kw_only=True):
    """An operation on a managed policy."""

    policyArn: str


class ProviderOperation(IdentityOperation[T], Generic[T], frozen=True, kw_only=True):
    """An operation on an OpenID Connect provider."""

    openIDConnectProviderArn: str


# Users.


class CreateUser(UserOperation[UserResult], frozen=True, kw_only=True):
    """
    Create a user, who has no rights and no keys.

    @raise EntityAlreadyExists: A user has this name, in any case.
    """

    path: str = "/"
    tags: Tags = ()


class GetUser(OwnUserOperation[UserResult], frozen=True, kw_only=True):
    """Return a user."""


class ListUsers(PagedOperation[UserPage], frozen=True, kw_only=True):
    """List the users whose paths have a prefix."""

    pathPrefix: str = "/"


class UpdateUser(UserOperation[None], frozen=True, kw_only=True):
    """Rename or move a user; empty fields stay."""

    newPath: str = ""
    newUserName: str = ""


class DeleteUser(UserOperation[None], frozen=True, kw_only=True):
    """
    Delete a user.

    @raise DeleteConflict: The user has keys, policies or groups.
    """


class TagUser(UserOperation[None], frozen=True, kw_only=True):
    """Add tags to a user, or replace those of the same keys."""

    tags: Tags


class UntagUser(UserOperation[None], frozen=True, kw_only=True):
    """Remove tags of a user."""

    tagKeys: tuple[str, ...]


class ListUserTags(PagedOperation[TagPage], frozen=True, kw_only=True):
    """List the tags of a user."""

    userName: str


class UpdateUserStatus(UserOperation[None], frozen=True, kw_only=True):
    """
    Enable or disable a user. While it is disabled, its keys and service keys are refused, and it
    cannot sign in; its sessions end for good. Amazon has no such operation.

    @ivar status: C{"Active"} or C{"Inactive"}.
    """

    status: str


class RevokeUserSessions(UserOperation[None], frozen=True, kw_only=True):
    """End all sessions of a user, and those of its service keys. Amazon has no such operation."""


class ListGroupsForUser(PagedOperation[GroupPage], frozen=True, kw_only=True):
    """List the groups of a user."""

    userName: str


# Keys.


class CreateAccessKey(OwnUserOperation[AccessKeyResult], frozen=True, kw_only=True):
    """
    Create a key of a user. A key that a service key makes is bound by it.

    @raise LimitExceeded: The user has two keys.
    """


class ListAccessKeys(PagedOperation[AccessKeyPage], frozen=True, kw_only=True):
    """List the keys of a user."""

    userName: str = ""


class UpdateAccessKey(OwnUserOperation[None], frozen=True, kw_only=True):
    """
    Enable or disable a key.

    @ivar status: C{"Active"} or C{"Inactive"}.
    """

    accessKeyId: str
    status: str


class DeleteAccessKey(OwnUserOperation[None], frozen=True, kw_only=True):
    """Delete a key."""

    accessKeyId: str


class GetAccessKeyLastUsed(IdentityOperation[LastUseResult], frozen=True, kw_only=True):
    """Return the user and the last use of a key, to the minute."""

    accessKeyId: str


# Groups.


class CreateGroup(GroupOperation[GroupResult], frozen=True, kw_only=True):
    """
    Create a group.

    @raise EntityAlreadyExists: A group has this name, in any case.
    """

    path: str = "/"


class GetGroup(PagedOperation[GroupMembers], frozen=True, kw_only=True):
    """Return a group with a page of its users."""

    groupName: str


class ListGroups(PagedOperation[GroupPage], frozen=True, kw_only=True):
    """List the groups whose paths have a prefix."""

    pathPrefix: str = "/"


class UpdateGroup(GroupOperation[None], frozen=True, kw_only=True):
    """Rename or move a group; empty fields stay."""

    newPath: str = ""
    newGroupName: str = ""


class DeleteGroup(GroupOperation[None], frozen=True, kw_only=True):
    """
    Delete a group.

    @raise DeleteConflict: The group has users or policies.
    """


class AddUserToGroup(GroupOperation[None], frozen=True, kw_only=True):
    """Add a user to a group."""

    userName: str


class RemoveUserFromGroup(GroupOperation[None], frozen=True, kw_only=True):
    """Remove a user from a group."""

    userName: str


# Roles.


class CreateRole(RoleOperation[RoleResult], frozen=True, kw_only=True):
    """
    Create a role.

    @ivar maxSessionDuration: In seconds.
    @raise EntityAlreadyExists: A role has this name, in any case.
    @raise MalformedPolicyDocument: The trust policy is invalid.
    """

    assumeRolePolicyDocument: str
    path: str = "/"
    description: str = ""
    maxSessionDuration: int = 3600
    tags: Tags = ()


class GetRole(RoleOperation[RoleResult], frozen=True, kw_only=True):
    """Return a role."""


class ListRoles(PagedOperation[RolePage], frozen=True, kw_only=True):
    """List the roles whose paths have a prefix."""

    pathPrefix: str = "/"


class UpdateRole(RoleOperation[Done], frozen=True, kw_only=True):
    """Change a role; unset fields stay."""

    description: str | UnsetType = UNSET
    maxSessionDuration: int | UnsetType = UNSET


class UpdateRoleDescription(RoleOperation[RoleResult], frozen=True, kw_only=True):
    """Change the description of a role."""

    description: str


class UpdateAssumeRolePolicy(RoleOperation[None], frozen=True, kw_only=True):
    """
    Replace the trust policy of a role.

    @raise MalformedPolicyDocument: The trust policy is invalid.
    """

    policyDocument: str


class UpdateRoleStatus(RoleOperation[None], frozen=True, kw_only=True):
    """
    Enable or disable a role. While it is disabled, it cannot be assumed; its sessions end for good.
    Amazon has no such operation.

    @ivar status: C{"Active"} or C{"Inactive"}.
    """

    status: str


class RevokeRoleSessions(RoleOperation[None], frozen=True, kw_only=True):
    """End all sessions of a role. Amazon has no such operation."""


class DeleteRole(RoleOperation[None], frozen=True, kw_only=True):
    """
    Delete a role.

    @raise DeleteConflict: The role has policies.
    """


class TagRole(RoleOperation[None], frozen=True, kw_only=True):
    """Add tags to a role, or replace those of the same keys."""

    tags: Tags


class UntagRole(RoleOperation[None], frozen=True, kw_only=True):
    """Remove tags of a role."""

    tagKeys: tuple[str, ...]


class ListRoleTags(PagedOperation[TagPage], frozen=True, kw_only=True):
    """List the tags of a role."""

    roleName: str


# Inline policies.


class PutUserPolicy(UserOperation[None], frozen=True, kw_only=True):
    """
    Add an inline policy to a user, or replace it.

    @raise MalformedPolicyDocument: The policy is invalid.
    @raise LimitExceeded: The inline policies of the user are too long.
    """

    policyName: str
    policyDocument: str


class GetUserPolicy(UserOperation[UserPolicyResult], frozen=True, kw_only=True):
    """Return an inline policy of a user."""

    policyName: str


class DeleteUserPolicy(UserOperation[None], frozen=True, kw_only=True):
    """Remove an inline policy of a user."""

    policyName: str


class ListUserPolicies(PagedOperation[PolicyNamePage], frozen=True, kw_only=True):
    """List the inline policies of a user."""

    userName: str


class PutGroupPolicy(GroupOperation[None], frozen=True, kw_only=True):
    """Add an inline policy to a group, or replace it; see L{PutUserPolicy}."""

    policyName: str
    policyDocument: str


class GetGroupPolicy(GroupOperation[GroupPolicyResult], frozen=True, kw_only=True):
    """Return an inline policy of a group."""

    policyName: str


class DeleteGroupPolicy(GroupOperation[None], frozen=True, kw_only=True):
    """Remove an inline policy of a group."""

    policyName: str


class ListGroupPolicies(PagedOperation[PolicyNamePage], frozen=True, kw_only=True):
    """List the inline policies of a group."""

    groupName: str


class PutRolePolicy(RoleOperation[None], frozen=True, kw_only=True):
    """Add an inline policy to a role, or replace it; see L{PutUserPolicy}."""

    policyName: str
    policyDocument: str


class GetRolePolicy(RoleOperation[RolePolicyResult], frozen=True, kw_only=True):
    """Return an inline policy of a role."""

    policyName: str


class DeleteRolePolicy(RoleOperation[None], frozen=True, kw_only=True):
    """Remove an inline policy of a role."""

    policyName: str


class ListRolePolicies(PagedOperation[PolicyNamePage], frozen=True, kw_only=True):
    """List the inline policies of a role."""

    roleName: str


# Attached policies.


class AttachUserPolicy(UserOperation[None], frozen=True, kw_only=True):
    """
    Attach a managed policy to a user.

    @raise LimitExceeded: Ten policies are attached.
    """

    policyArn: str


class DetachUserPolicy(UserOperation[None], frozen=True, kw_only=True):
    """Detach a managed policy from a user."""

    policyArn: str


class ListAttachedUserPolicies(PagedOperation[AttachedPolicyPage], frozen=True, kw_only=True):
    """List the managed policies of a user."""

    userName: str
    pathPrefix: str = "/"


class AttachGroupPolicy(GroupOperation[None], frozen=True, kw_only=True):
    """Attach a managed policy to a group; see L{AttachUserPolicy}."""

    policyArn: str


class DetachGroupPolicy(GroupOperation[None], frozen=True, kw_only=True):
    """Detach a managed policy from a group."""

    policyArn: str


class ListAttachedGroupPolicies(PagedOperation[AttachedPolicyPage], frozen=True, kw_only=True):
    """List the managed policies of a group."""

    groupName: str
    pathPrefix: str = "/"


class AttachRolePolicy(RoleOperation[None], frozen=True, kw_only=True):
    """Attach a managed policy to a role; see L{AttachUserPolicy}."""

    policyArn: str


class DetachRolePolicy(RoleOperation[None], frozen=True, kw_only=True):
    """Detach a managed policy from a role."""

    policyArn: str


class ListAttachedRolePolicies(PagedOperation[AttachedPolicyPage], frozen=True, kw_only=True):
    """List the managed policies of a role."""

    roleName: str
    pathPrefix: str = "/"


# Managed policies.


class CreatePolicy(IdentityOperation[PolicyResult], frozen=True, kw_only=True):
    """
    Create a managed policy, as version C{v1}.

    @raise EntityAlreadyExists: A policy has this name, in any case.
    @raise MalformedPolicyDocument: The policy is invalid.
    @raise LimitExceeded: The policy is too long.
    """

    policyName: str
    policyDocument: str
    path: str = "/"
    description: str = ""
    tags: Tags = ()


class GetPolicy(PolicyOperation[PolicyResult], frozen=True, kw_only=True):
    """Return a managed policy."""


class ListPolicies(PagedOperation[PolicyPage], frozen=True, kw_only=True):
    """
    List managed policies.

    @ivar scope: C{"All"}, C{"AWS"} for the policies of every account, or C{"Local"}.
    @ivar onlyAttached: Whether to list only the policies that are attached to an identity.
    @ivar policyUsageFilter: C{"PermissionsBoundary"} for none, since there are no boundaries.
    """

    scope: str = "All"
    onlyAttached: bool = False
    pathPrefix: str = "/"
    policyUsageFilter: str = ""


class DeletePolicy(PolicyOperation[None], frozen=True, kw_only=True):
    """
    Delete a managed policy.

    @raise DeleteConflict: It is attached, or has versions besides the default.
    """


class CreatePolicyVersion(PolicyOperation[PolicyVersionResult], frozen=True, kw_only=True):
    """
    Add a version to a managed policy.

    @ivar setAsDefault: Whether the version takes effect.
    @raise LimitExceeded: The policy has five versions.
    """

    policyDocument: str
    setAsDefault: bool = False


class GetPolicyVersion(PolicyOperation[PolicyVersionResult], frozen=True, kw_only=True):
    """Return a version of a managed policy."""

    versionId: str


class ListPolicyVersions(PagedOperation[PolicyVersionPage], frozen=True, kw_only=True):
    """List the versions of a managed policy."""

    policyArn: str


class SetDefaultPolicyVersion(PolicyOperation[None], frozen=True, kw_only=True):
    """Put a version of a managed policy into effect."""

    versionId: str


class DeletePolicyVersion(PolicyOperation[None], frozen=True, kw_only=True):
    """
    Delete a version of a managed policy.

    @raise DeleteConflict: It is the default version.
    """

    versionId: str


class ListEntitiesForPolicy(PagedOperation[PolicyEntities], frozen=True, kw_only=True):
    """
    List the identities to which a managed policy is attached.

    @ivar entityFilter: C{"User"}, C{"Group"} or C{"Role"}; empty for all.
    @ivar policyUsageFilter: As in L{ListPolicies}.
    """

    policyArn: str
    entityFilter: str = ""
    pathPrefix: str = "/"
    policyUsageFilter: str = ""


class TagPolicy(PolicyOperation[None], frozen=True, kw_only=True):
    """Add tags to a managed policy, or replace those of the same keys."""

    tags: Tags


class UntagPolicy(PolicyOperation[None], frozen=True, kw_only=True):
    """Remove tags of a managed policy."""

    tagKeys: tuple[str, ...]


class ListPolicyTags(PagedOperation[TagPage], frozen=True, kw_only=True):
    """List the tags of a managed policy."""

    policyArn: str


# OpenID Connect providers.


class CreateOpenIDConnectProvider(IdentityOperation[NewProvider], frozen=True, kw_only=True):
    """
    Create a provider.

    @ivar url: The issuer.
    @ivar clientIDList: The audiences of its tokens.
    @ivar thumbprintList: Kept and returned; not checked.
    @raise EntityAlreadyExists: There is a provider of this issuer.
    """

    url: str
    clientIDList: tuple[str, ...] = ()
    thumbprintList: tuple[str, ...] = ()
    tags: Tags = ()


class GetOpenIDConnectProvider(ProviderOperation[ProviderResult], frozen=True, kw_only=True):
    """Return a provider."""


class ListOpenIDConnectProviders(IdentityOperation[ProviderPage], frozen=True, kw_only=True):
    """List all providers."""


class DeleteOpenIDConnectProvider(ProviderOperation[None], frozen=True, kw_only=True):
    """Delete a provider."""


class AddClientIDToOpenIDConnectProvider(ProviderOperation[None], frozen=True, kw_only=True):
    """Add an audience to a provider; one that it has stays."""

    clientID: str


class RemoveClientIDFromOpenIDConnectProvider(ProviderOperation[None], frozen=True, kw_only=True):
    """Remove an audience of a provider, if it has it."""

    clientID: str


class UpdateOpenIDConnectProviderThumbprint(ProviderOperation[None], frozen=True, kw_only=True):
    """Replace the thumbprints of a provider."""

    thumbprintList: tuple[str, ...]


class TagOpenIDConnectProvider(ProviderOperation[None], frozen=True, kw_only=True):
    """Add tags to a provider, or replace those of the same keys."""

    tags: Tags


class UntagOpenIDConnectProvider(ProviderOperation[None], frozen=True, kw_only=True):
    """Remove tags of a provider."""

    tagKeys: tuple[str, ...]


class ListOpenIDConnectProviderTags(PagedOperation[TagPage], frozen=True, kw_only=True):
    """List the tags of a provider."""

    openIDConnectProviderArn: str


class GetAccountSummary(IdentityOperation[Summary], frozen=True, kw_only=True):
    """Return numbers of identities, and their limits."""


class ContextEntry(Struct, frozen=True):
    """
    The value of a condition key in a simulation.

    @ivar contextKeyType: C{string}, C{numeric}, C{boolean}, C{ip}, C{binary} or C{date}; with
        C{List} for several values.
    """

    contextKeyName: str
    contextKeyValues: tuple[str, ...] = ()
    contextKeyType: str = "string"


class SimulationOperation(PagedOperation[SimulationPage], frozen=True, kw_only=True):
    """
    Decide by policies, as for a real request, on actions on resources; nothing is done.

    @ivar actionNames: The actions, such as C{s3:GetObject}; a page has a result for each.
    @ivar policyInputList: Further policies of the simulated caller.
    @ivar resourceArns: The resources; every resource if there are none.
    @ivar resourcePolicy: The policy of the bucket; empty for none.
    @ivar resourceOwner: C{arn:aws:iam::ACCOUNT:root}, the owner of the resources; empty for the
        account of the simulated caller.
    @ivar callerArn: The user or the role that condition keys and principals are about.
    @ivar contextEntries: The values of condition keys.
    @raise InvalidInput: A policy, an action, an ARN or a context key is invalid.
    """

    actionNames: tuple[str, ...]
    policyInputList: tuple[str, ...] = ()
    resourceArns: tuple[str, ...] = ()
    resourcePolicy: str = ""
    resourceOwner: str = ""
    callerArn: str = ""
    contextEntries: tuple[ContextEntry, ...] = ()


class SimulateCustomPolicy(SimulationOperation, frozen=True, kw_only=True):
    """Decide by policies that the call names."""

    policyInputList: tuple[str, ...]


class SimulatePrincipalPolicy(SimulationOperation, frozen=True, kw_only=True):
    """
    Decide by the policies of a user with those of its groups, of a group, or of a role.

    @ivar policySourceArn: The ARN of the user, the group or the role.
    """

    policySourceArn: str


# Reads of what does not exist here. Clients make them before they delete a user or a role.


class GetLoginProfile(UserOperation[None], frozen=True, kw_only=True):
    """Fail with C{NoSuchEntity}: users have no passwords."""


class DeleteLoginProfile(UserOperation[None], frozen=True, kw_only=True):
    """Fail with C{NoSuchEntity}: users have no passwords."""


class ListMFADevices(PagedOperation[NoDevices], frozen=True, kw_only=True):
    """List nothing."""

    userName: str = ""


class ListSSHPublicKeys(PagedOperation[NoPublicKeys], frozen=True, kw_only=True):
    """List nothing."""

    userName: str = ""


class ListSigningCertificates(PagedOperation[NoCertificates], frozen=True, kw_only=True):
    """List nothing."""

    userName: str = ""


class ListServiceSpecificCredentials(PagedOperation[NoCredentials], frozen=True, kw_only=True):
    """List nothing."""

    userName: str = ""
    serviceName: str = ""


class ListInstanceProfilesForRole(PagedOperation[NoInstanceProfiles], frozen=True, kw_only=True):
    """List nothing."""

    roleName: str
