"""Users of an account, and their tags."""

from attrs import evolve
from msgspec.structs import replace

from storagegate.objects.errors import DeleteConflict, EntityAlreadyExists
from storagegate.objects.identities import operations
from storagegate.objects.identities.answers import (
    GroupPage,
    UserPage,
    UserResult,
    UserView,
)
from storagegate.objects.identities.entities import AccountState, IAMUser
from storagegate.objects.identities.lookup import (
    IdentityRequest,
    allUsers,
    changeableUser,
    checkCount,
    checkUnattached,
    newId,
    operatorKey,
    pageOf,
    userOf,
    viewGroup,
    viewUser,
    withoutSessions,
    withStatus,
)

USERS_LIMIT = 5000
"""Users of an account: Amazon's limit."""


def createUser(
    state: AccountState, operation: operations.CreateUser, request: IdentityRequest
) -> tuple[AccountState, UserResult]:
    """Create a user."""
    _checkFree(state, operation.userName)
    checkCount(len(state.users()), "UsersPerAccount", USERS_LIMIT)
    user = IAMUser(
        name=operation.userName,
        id=newId(state, IAMUser),
        path=operation.path,
        createdMs=request.nowMs,
        tags={tag.key: tag.value for tag in operation.tags},
    )
    return state.withEntity(user), UserResult(viewUser(state, user, withTags=True))


def _checkFree(state: AccountState, name: str) -> None:
    keys = (key.lower() for key in state.keys if operatorKey(state, key))
    if state.user(name) is not None or name.lower() in keys:
        raise EntityAlreadyExists(f"User with name {name} already exists.")


def getUser(
    state: AccountState, operation: operations.GetUser, request: IdentityRequest
) -> UserResult:
    """Return a user; without a name, the caller."""
    identity = request.identity
    if not operation.userName and identity is not None and identity.isRoot:
        arn = f"arn:aws:iam::{state.account}:root"
        return UserResult(
            UserView(path="/", userName="root", userId=state.account, arn=arn, createDate=0)
        )
    user = userOf(state, callerName(state, operation.userName, request))
    return UserResult(viewUser(state, user, withTags=True))


def callerName(state: AccountState, name: str, request: IdentityRequest) -> str:
    """
    Return the name of the user whom an operation concerns.

    @param name: The name that it names; empty for the user of the caller.
    """
    if name or request.identity is None:
        return name
    rights = request.identity.rights
    if request.identity.role and rights is not None and rights.user is not None:
        # A person who signed in has no key.
        found: str = rights.user.name
        return found
    return userNameOf(state, request.identity.accessKey)


def userNameOf(state: AccountState, accessKey: str) -> str:
    """
    Return the name of the user of a key: its own name for a key that an operator issued.

    @param accessKey: A service key belongs to the user of its parent.
    """
    key = state.keys.get(accessKey)
    seen = set()
    # A key that was deleted and issued again, with a child as its parent, makes a circle.
    while key is not None and key.parent and accessKey not in seen:
        seen.add(accessKey)
        kind, _, name = key.parent.partition("/")
        if kind == "user":
            user = state.user(name)
            return name if user is None else user.name
        accessKey, key = name, state.keys.get(name)
    if key is None or not key.userName:
        return accessKey
    user = state.user(key.userName)
    return key.userName if user is None else user.name


def listUsers(
    state: AccountState, operation: operations.ListUsers, request: IdentityRequest
) -> UserPage:
    """List users by name."""
    found = [user for user in allUsers(state) if user.path.startswith(operation.pathPrefix)]
    rows, page = pageOf(found, lambda user: user.key, operation.marker, operation.maxItems)
    return UserPage(users=tuple(viewUser(state, user) for user in rows), **page)


def updateUser(
    state: AccountState, operation: operations.UpdateUser, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Rename or move a user, who keeps the keys and policies."""
    user = changeableUser(state, operation.userName)
    name = operation.newUserName or user.name
    if name.lower() != user.key:
        _checkFree(state, name)
    changed = replace(user, name=name, path=operation.newPath or user.path)
    state = state.withoutEntity(user).withEntity(changed)
    for key in list(state.keys.values()):
        if key.userName == user.key:
            state = state.withKey(evolve(key, userName=changed.key))
        elif key.parent == f"user/{user.key}":
            state = state.withKey(evolve(key, parent=f"user/{changed.key}"))
    return state, None


def deleteUser(
    state: AccountState, operation: operations.DeleteUser, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Delete a user without keys, policies and groups."""
    user = changeableUser(state, operation.userName)
    if state.keysOf(user) or state.serviceKeysOf(f"user/{user.key}"):
        raise DeleteConflict("Cannot delete entity, must delete access keys first.")
    checkUnattached(user)
    if user.groups:
        raise DeleteConflict("Cannot delete entity, must remove users from group first.")
    return state.withoutEntity(user), None


def updateUserStatus(
    state: AccountState, operation: operations.UpdateUserStatus, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Enable a user, or disable it and end its sessions."""
    user = changeableUser(state, operation.userName)
    return state.withEntity(withStatus(user, operation.status, request)), None


def revokeUserSessions(
    state: AccountState, operation: operations.RevokeUserSessions, request: IdentityRequest
) -> tuple[AccountState, None]:
    """End the sessions of a user that have begun by now."""
    user = changeableUser(state, operation.userName)
    return state.withEntity(withoutSessions(user, request)), None


def listGroupsForUser(
    state: AccountState, operation: operations.ListGroupsForUser, request: IdentityRequest
) -> GroupPage:
    """List the groups of a user by name."""
    user = userOf(state, operation.userName)
    found = [group for group in state.groups() if group.key in user.groups]
    rows, page = pageOf(found, lambda group: group.key, operation.marker, operation.maxItems)
    return GroupPage(groups=tuple(viewGroup(state, group) for group in rows), **page)
