"""
The answers of operations on identities, with Amazon's names.

Dates are milliseconds since the epoch. A field that is L{None} is absent.
"""

from collections.abc import Mapping

from msgspec import Struct


class Tag(Struct, frozen=True):
    """A tag of an identity."""

    key: str
    value: str


Tags = tuple[Tag, ...]


class UserView(Struct, frozen=True, kw_only=True):
    """
    A user.

    @ivar tags: L{None} in lists.
    @ivar status: C{"Inactive"} for a disabled user; L{None} for any other, as at Amazon.
    """

    path: str
    userName: str
    userId: str
    arn: str
    createDate: int
    tags: Tags | None = None
    status: str | None = None


class GroupView(Struct, frozen=True, kw_only=True):
    """A group, without its users."""

    path: str
    groupName: str
    groupId: str
    arn: str
    createDate: int


class RoleView(Struct, frozen=True, kw_only=True):
    """
    A role.

    @ivar tags: L{None} in lists.
    @ivar status: C{"Inactive"} for a disabled role; L{None} for any other, as at Amazon.
    """

    path: str
    roleName: str
    roleId: str
    arn: str
    createDate: int
    assumeRolePolicyDocument: str
    description: str | None = None
    maxSessionDuration: int
    tags: Tags | None = None
    status: str | None = None


class PolicyView(Struct, frozen=True, kw_only=True):
    """
    A managed policy, without its document.

    @ivar description: L{None} in lists.
    @ivar tags: L{None} in lists.
    """

    policyName: str
    policyId: str
    arn: str
    path: str
    defaultVersionId: str
    attachmentCount: int
    permissionsBoundaryUsageCount: int = 0
    isAttachable: bool = True
    description: str | None = None
    createDate: int
    updateDate: int
    tags: Tags | None = None


class PolicyVersionView(Struct, frozen=True, kw_only=True):
    """
    A version of a managed policy.

    @ivar document: L{None} in lists.
    """

    document: str | None = None
    versionId: str
    isDefaultVersion: bool
    createDate: int


class AccessKeyView(Struct, frozen=True, kw_only=True):
    """
    A key of a user.

    @ivar status: C{"Active"} or C{"Inactive"}.
    """

    userName: str
    accessKeyId: str
    status: str
    createDate: int


class NewAccessKeyView(AccessKeyView, frozen=True, kw_only=True):
    """A key with its secret, which is returned only once."""

    secretAccessKey: str

    def __repr__(self) -> str:
        return f"NewAccessKeyView({self.userName!r}, {self.accessKeyId!r})"


class LastUse(Struct, frozen=True, kw_only=True):
    """
    The last use of a key.

    @ivar lastUsedDate: L{None} if the key was never used.
    """

    lastUsedDate: int | None
    serviceName: str
    region: str


class AttachedPolicy(Struct, frozen=True):
    """A managed policy that is attached."""

    policyName: str
    policyArn: str


class UserResult(Struct, frozen=True):
    """One user."""

    user: UserView


class GroupResult(Struct, frozen=True):
    """One group."""

    group: GroupView


class RoleResult(Struct, frozen=True):
    """One role."""

    role: RoleView


class PolicyResult(Struct, frozen=True):
    """One managed policy."""

    policy: PolicyView


class PolicyVersionResult(Struct, frozen=True):
    """One version of a managed policy."""

    policyVersion: PolicyVersionView


class AccessKeyResult(Struct, frozen=True):
    """A new key."""

    accessKey: NewAccessKeyView


class LastUseResult(Struct, frozen=True):
    """The user of a key, and its last use."""

    userName: str
    accessKeyLastUsed: LastUse


class IdentityPage(Struct, frozen=True, kw_only=True):
    """
    A page of a list.

    @ivar marker: The marker of the next page; L{None} on the last.
    """

    isTruncated: bool = False
    marker: str | None = None


class UserPage(IdentityPage, frozen=True, kw_only=True):
    """Users by name."""

    users: tuple[UserView, ...]


class GroupPage(IdentityPage, frozen=True, kw_only=True):
    """Groups by name."""

    groups: tuple[GroupView, ...]


class GroupMembers(IdentityPage, frozen=True, kw_only=True):
    """A group, and a page of its users."""

    group: GroupView
    users: tuple[UserView, ...]


class RolePage(IdentityPage, frozen=True, kw_only=True):
    """Roles by name."""

    roles: tuple[RoleView, ...]


class PolicyPage(IdentityPage, frozen=True, kw_only=True):
    """Managed policies by name."""

    policies: tuple[PolicyView, ...]


class PolicyVersionPage(IdentityPage, frozen=True, kw_only=True):
    """The versions of a managed policy, newest first."""

    versions: tuple[PolicyVersionView, ...]


class AccessKeyPage(IdentityPage, frozen=True, kw_only=True):
    """The keys of a user."""

    accessKeyMetadata: tuple[AccessKeyView, ...]


class PolicyNamePage(IdentityPage, frozen=True, kw_only=True):
    """The names of inline policies."""

    policyNames: tuple[str, ...]


class AttachedPolicyPage(IdentityPage, frozen=True, kw_only=True):
    """The managed policies that are attached to an identity."""

    attachedPolicies: tuple[AttachedPolicy, ...]


class TagPage(IdentityPage, frozen=True, kw_only=True):
    """Tags by key."""

    tags: Tags


class PolicyUser(Struct, frozen=True):
    """A user with a managed policy."""

    userName: str
    userId: str


class PolicyGroup(Struct, frozen=True):
    """A group with a managed policy."""

    groupName: str
    groupId: str


class PolicyRole(Struct, frozen=True):
    """A role with a managed policy."""

    roleName: str
    roleId: str


class PolicyEntities(IdentityPage, frozen=True, kw_only=True):
    """The identities to which a managed policy is attached."""

    policyGroups: tuple[PolicyGroup, ...]
    policyUsers: tuple[PolicyUser, ...]
    policyRoles: tuple[PolicyRole, ...]


class UserPolicyResult(Struct, frozen=True):
    """An inline policy of a user."""

    userName: str
    policyName: str
    policyDocument: str


class GroupPolicyResult(Struct, frozen=True):
    """An inline policy of a group."""

    groupName: str
    policyName: str
    policyDocument: str


class RolePolicyResult(Struct, frozen=True):
    """An inline policy of a role."""

    roleName: str
    policyName: str
    policyDocument: str


class ProviderArn(Struct, frozen=True):
    """The ARN of a provider in a list."""

    arn: str


class ProviderPage(Struct, frozen=True):
    """All OpenID Connect providers."""

    openIDConnectProviderList: tuple[ProviderArn, ...]


class NewProvider(Struct, frozen=True):
    """A new OpenID Connect provider."""

    openIDConnectProviderArn: str
    tags: Tags | None = None


class ProviderResult(Struct, frozen=True, kw_only=True):
    """An OpenID Connect provider."""

    url: str
    clientIDList: tuple[str, ...]
    thumbprintList: tuple[str, ...]
    createDate: int
    tags: Tags | None = None


class Summary(Struct, frozen=True):
    """Numbers of identities and their limits, under Amazon's names."""

    summaryMap: Mapping[str, int]


class Done(Struct, frozen=True):
    """The answer of an operation that has an empty one."""


class NoDevices(IdentityPage, frozen=True, kw_only=True):
    """The MFA devices of a user, which do not exist."""

    mFADevices: tuple[str, ...] = ()


class NoPublicKeys(IdentityPage, frozen=True, kw_only=True):
    """The SSH keys of a user, which do not exist."""

    sSHPublicKeys: tuple[str, ...] = ()


class NoCertificates(IdentityPage, frozen=True, kw_only=True):
    """The signing certificates of a user, which do not exist."""

    certificates: tuple[str, ...] = ()


class NoCredentials(IdentityPage, frozen=True, kw_only=True):
    """The credentials of a user for other services, which do not exist."""

    serviceSpecificCredentials: tuple[str, ...] = ()


class NoInstanceProfiles(IdentityPage, frozen=True, kw_only=True):
    """The instance profiles of a role, which do not exist."""

    instanceProfiles: tuple[str, ...] = ()


class Position(Struct, frozen=True):
    """A position in the text of a policy, from 1."""

    line: int
    column: int


class StatementView(Struct, frozen=True, kw_only=True):
    """
    A statement that determined a decision.

    @ivar sourcePolicyId: The name of its policy.
    @ivar sourcePolicyType: C{"IAM Policy"} or C{"Resource Policy"}.
    """

    sourcePolicyId: str
    sourcePolicyType: str
    startPosition: Position
    endPosition: Position


class ResourceSpecificResult(Struct, frozen=True, kw_only=True):
    """
    The decision on an action on one resource.

    @ivar evalResourceDecision: C{"allowed"}, C{"explicitDeny"} or C{"implicitDeny"}.
    @ivar evalDecisionDetails: The decisions by type of policy, if the resource is of another
        account; otherwise empty.
    """

    evalResourceName: str
    evalResourceDecision: str
    matchedStatements: tuple[StatementView, ...]
    missingContextValues: tuple[str, ...]
    evalDecisionDetails: Mapping[str, str]


class EvaluationResult(Struct, frozen=True, kw_only=True):
    """
    The decision on an action: the most restrictive one on its resources.

    @ivar evalResourceName: The form of the ARNs of the resources; C{*} for every resource.
    @ivar evalDecisionDetails: See L{ResourceSpecificResult}; L{None} for every resource.
    @ivar resourceSpecificResults: The decisions by resource; L{None} for every resource.
    """

    evalActionName: str
    evalResourceName: str
    evalDecision: str
    matchedStatements: tuple[StatementView, ...]
    missingContextValues: tuple[str, ...]
    evalDecisionDetails: Mapping[str, str] | None = None
    resourceSpecificResults: tuple[ResourceSpecificResult, ...] | None = None


class SimulationPage(IdentityPage, frozen=True, kw_only=True):
    """The decisions on actions, in the order of the call."""

    evaluationResults: tuple[EvaluationResult, ...]
