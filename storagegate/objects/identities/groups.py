"""Groups of an account, and their users."""

from msgspec.structs import replace

from storagegate.objects.errors import DeleteConflict, EntityAlreadyExists
from storagegate.objects.identities import operations
from storagegate.objects.identities.answers import GroupMembers, GroupPage, GroupResult
from storagegate.objects.identities.entities import AccountState, Entity, Group
from storagegate.objects.identities.lookup import (
    IdentityRequest,
    changeableUser,
    checkCount,
    checkUnattached,
    groupOf,
    newId,
    pageOf,
    viewGroup,
    viewUser,
)

GROUPS_LIMIT = 300
"""Groups of an account: Amazon's limit."""

GROUPS_OF_USER_LIMIT = 10
"""Groups of a user: Amazon's limit."""


def createGroup(
    state: AccountState, operation: operations.CreateGroup, request: IdentityRequest
) -> tuple[AccountState, GroupResult]:
    """Create a group."""
    _checkFree(state, operation.groupName)
    checkCount(len(state.groups()), "GroupsPerAccount", GROUPS_LIMIT)
    group = Group(
        name=operation.groupName,
        id=newId(state, Group),
        path=operation.path,
        createdMs=request.nowMs,
    )
    return state.withEntity(group), GroupResult(viewGroup(state, group))


def _checkFree(state: AccountState, name: str) -> None:
    if state.group(name) is not None:
        raise EntityAlreadyExists(f"Group with name {name} already exists.")


def getGroup(
    state: AccountState, operation: operations.GetGroup, request: IdentityRequest
) -> GroupMembers:
    """Return a group with a page of its users."""
    group = groupOf(state, operation.groupName)
    found = [user for user in state.users() if group.key in user.groups]
    rows, page = pageOf(found, lambda user: user.key, operation.marker, operation.maxItems)
    users = tuple(viewUser(state, user) for user in rows)
    return GroupMembers(group=viewGroup(state, group), users=users, **page)


def listGroups(
    state: AccountState, operation: operations.ListGroups, request: IdentityRequest
) -> GroupPage:
    """List groups by name."""
    found = [group for group in state.groups() if group.path.startswith(operation.pathPrefix)]
    rows, page = pageOf(found, lambda group: group.key, operation.marker, operation.maxItems)
    return GroupPage(groups=tuple(viewGroup(state, group) for group in rows), **page)


def updateGroup(
    state: AccountState, operation: operations.UpdateGroup, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Rename or move a group, which keeps its users and policies."""
    group = groupOf(state, operation.groupName)
    name = operation.newGroupName or group.name
    if name.lower() != group.key:
        _checkFree(state, name)
    changed = replace(group, name=name, path=operation.newPath or group.path)
    entities: list[Entity] = [changed]
    for user in state.users():
        if group.key in user.groups:
            groups = tuple(changed.key if each == group.key else each for each in user.groups)
            entities.append(replace(user, groups=groups))
    return state.withoutEntity(group).withEntities(entities), None


def deleteGroup(
    state: AccountState, operation: operations.DeleteGroup, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Delete a group without users and policies."""
    group = groupOf(state, operation.groupName)
    if any(group.key in user.groups for user in state.users()):
        raise DeleteConflict("Cannot delete entity, must remove users from group first.")
    checkUnattached(group)
    return state.withoutEntity(group), None


def addUserToGroup(
    state: AccountState, operation: operations.AddUserToGroup, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Add a user to a group; a user that is in it stays."""
    group = groupOf(state, operation.groupName)
    user = changeableUser(state, operation.userName)
    if group.key in user.groups:
        return state, None
    checkCount(len(user.groups), "GroupsPerUser", GROUPS_OF_USER_LIMIT)
    return state.withEntity(replace(user, groups=(*user.groups, group.key))), None


def removeUserFromGroup(
    state: AccountState, operation: operations.RemoveUserFromGroup, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Remove a user from a group; a user that is not in it stays out."""
    group = groupOf(state, operation.groupName)
    user = changeableUser(state, operation.userName)
    groups = tuple(each for each in user.groups if each != group.key)
    return state.withEntity(replace(user, groups=groups)), None
