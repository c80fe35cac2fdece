"""Roles of an account."""

from msgspec import UnsetType
from msgspec.structs import replace

from storagegate.objects.errors import EntityAlreadyExists
from storagegate.objects.identities import operations
from storagegate.objects.identities.answers import Done, RolePage, RoleResult, RoleView
from storagegate.objects.identities.entities import AccountState, Role
from storagegate.objects.identities.lookup import (
    INACTIVE,
    IdentityRequest,
    checkCount,
    checkUnattached,
    newId,
    pageOf,
    roleOf,
    tagsOf,
    withoutSessions,
    withStatus,
)
from storagegate.objects.identities.rights import checkTrustPolicy

ROLES_LIMIT = 1000
"""Roles of an account: Amazon's limit."""


def viewRole(state: AccountState, role: Role, *, isWhole: bool = False) -> RoleView:
    """
    Describe a role.

    @param isWhole: Whether to show the tags, which lists omit.
    """
    return RoleView(
        path=role.path,
        roleName=role.name,
        roleId=role.id,
        arn=role.arn(state.account),
        createDate=role.createdMs,
        assumeRolePolicyDocument=role.trust,
        description=role.description or None,
        maxSessionDuration=role.maxSessionSeconds,
        tags=tagsOf(role) if isWhole and role.tags else None,
        status=INACTIVE if role.disabled else None,
    )


def createRole(
    state: AccountState, operation: operations.CreateRole, request: IdentityRequest
) -> tuple[AccountState, RoleResult]:
    """Create a role."""
    if state.role(operation.roleName) is not None:
        raise EntityAlreadyExists(f"Role with name {operation.roleName} already exists.")
    checkTrustPolicy(operation.assumeRolePolicyDocument, state.account)
    checkCount(len(state.roles()), "RolesPerAccount", ROLES_LIMIT)
    role = Role(
        name=operation.roleName,
        id=newId(state, Role),
        path=operation.path,
        createdMs=request.nowMs,
        trust=operation.assumeRolePolicyDocument,
        description=operation.description,
        maxSessionSeconds=operation.maxSessionDuration,
        tags={tag.key: tag.value for tag in operation.tags},
    )
    return state.withEntity(role), RoleResult(viewRole(state, role, isWhole=True))


def getRole(
    state: AccountState, operation: operations.GetRole, request: IdentityRequest
) -> RoleResult:
    """Return a role."""
    return RoleResult(viewRole(state, roleOf(state, operation.roleName), isWhole=True))


def listRoles(
    state: AccountState, operation: operations.ListRoles, request: IdentityRequest
) -> RolePage:
    """List roles by name."""
    found = [role for role in state.roles() if role.path.startswith(operation.pathPrefix)]
    rows, page = pageOf(found, lambda role: role.key, operation.marker, operation.maxItems)
    return RolePage(roles=tuple(viewRole(state, role) for role in rows), **page)


def updateRole(
    state: AccountState, operation: operations.UpdateRole, request: IdentityRequest
) -> tuple[AccountState, Done]:
    """Change the description and the longest session of a role."""
    role = roleOf(state, operation.roleName)
    if not isinstance(operation.description, UnsetType):
        role = replace(role, description=operation.description)
    if not isinstance(operation.maxSessionDuration, UnsetType):
        role = replace(role, maxSessionSeconds=operation.maxSessionDuration)
    return state.withEntity(role), Done()


def updateRoleDescription(
    state: AccountState, operation: operations.UpdateRoleDescription, request: IdentityRequest
) -> tuple[AccountState, RoleResult]:
    """Change the description of a role."""
    role = replace(roleOf(state, operation.roleName), description=operation.description)
    return state.withEntity(role), RoleResult(viewRole(state, role, isWhole=True))


def updateAssumeRolePolicy(
    state: AccountState, operation: operations.UpdateAssumeRolePolicy, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Replace the trust policy of a role."""
    role = roleOf(state, operation.roleName)
    checkTrustPolicy(operation.policyDocument, state.account)
    return state.withEntity(replace(role, trust=operation.policyDocument)), None


def deleteRole(
    state: AccountState, operation: operations.DeleteRole, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Delete a role without policies."""
    role = roleOf(state, operation.roleName)
    checkUnattached(role)
    return state.withoutEntity(role), None


def updateRoleStatus(
    state: AccountState, operation: operations.UpdateRoleStatus, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Enable a role, or disable it and end its sessions."""
    role = roleOf(state, operation.roleName)
    return state.withEntity(withStatus(role, operation.status, request)), None


def revokeRoleSessions(
    state: AccountState, operation: operations.RevokeRoleSessions, request: IdentityRequest
) -> tuple[AccountState, None]:
    """End the sessions of a role that have begun by now."""
    role = roleOf(state, operation.roleName)
    return state.withEntity(withoutSessions(role, request)), None
