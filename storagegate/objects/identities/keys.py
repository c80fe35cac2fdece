"""The access keys of users."""

from collections.abc import Callable

from attrs import evolve

from storagegate.objects.errors import (
    AccessDenied,
    EntityAlreadyExists,
    LimitExceeded,
    NoSuchEntity,
    ValidationError,
)
from storagegate.objects.identities import operations
from storagegate.objects.identities.answers import (
    AccessKeyPage,
    AccessKeyResult,
    AccessKeyView,
    LastUse,
    LastUseResult,
    NewAccessKeyView,
)
from storagegate.objects.identities.entities import AccountState
from storagegate.objects.identities.lookup import (
    INACTIVE,
    IdentityRequest,
    changeableUser,
    checkCount,
    pageOf,
    userOf,
)
from storagegate.objects.identities.rights import checkPolicy
from storagegate.objects.identities.users import callerName, userNameOf
from storagegate.objects.issuedkeys import generateKeyPair
from storagegate.objects.principals import ROLES
from storagegate.storage.records import AccessKey

KEYS_LIMIT = 2
"""Keys of a user: Amazon's limit. Service keys do not count."""

SERVICE_KEYS_LIMIT = 1000
"""Service keys of one parent. A person can make them without any right."""

SESSION_POLICY_LIMIT = 6144
"""Characters of the policy of a service key, without white space: as a managed policy."""


def createAccessKey(
    state: AccountState, operation: operations.CreateAccessKey, request: IdentityRequest
) -> tuple[AccountState, AccessKeyResult]:
    """
    Create a key of a user.

    A key that a service key makes is a service key of it: with another parent it would have more
    rights than its maker. So is each key of a user that is named as its key.
    """
    pair = generateKeyPair()
    key = AccessKey(
        accessKey=pair.accessKey,
        secretKey=pair.secretKey,
        account=state.account,
        createdMs=request.nowMs,
    )
    maker = None if request.identity is None else state.keys.get(request.identity.accessKey)
    isRoot = request.identity is not None and request.identity.isRoot
    name = callerName(state, operation.userName, request)
    user = None if isRoot and not operation.userName else userOf(state, name)
    name = name if user is None else user.name
    if user is None or not user.id:
        key = evolve(key, parent=f"key/{name}")
    else:
        checkCount(len(state.keysOf(user)), "AccessKeysPerUser", KEYS_LIMIT)
        key = evolve(key, userName=user.key)
    if maker is not None and maker.parent:
        _checkOwnUser(state, maker, name)
        key = evolve(key, userName="", parent=f"key/{maker.accessKey}")
    _checkServiceKeys(state, key.parent)
    view = NewAccessKeyView(
        userName=name,
        accessKeyId=key.accessKey,
        status="Active",
        secretAccessKey=key.secretKey,
        createDate=key.createdMs,
    )
    return state.withKey(key), AccessKeyResult(view)


def addIssuedKey(
    state: AccountState, key: AccessKey, rootKey: str = ""
) -> tuple[AccountState, AccessKey]:
    """
    Add a key that an operator issues for a user, or as a service key.

    @param key: The new key.
    @param rootKey: The root pair's access key, which can also be a parent.
    @return: The new state, and the key with the stored name of its user.
    @raise EntityAlreadyExists: The access key is taken.
    @raise NoSuchEntity: The user or the parent does not exist.
    @raise LimitExceeded: The user has two keys, the parent too many, or the policy is too long.
    @raise ValidationError: The key has both, an administration role, or a policy without a parent.
    @raise MalformedPolicyDocument: The policy is invalid.
    """
    if key.accessKey in state.keys:
        raise EntityAlreadyExists("The access key already exists.")
    if (key.userName and key.parent) or (key.sessionPolicy and not key.parent):
        raise ValidationError("A key has either a user or a parent, and a policy needs a parent")
    if key.role != "none":
        raise ValidationError("The key of a user and a service key have no administration role")
    if key.userName:
        user = changeableUser(state, key.userName)
        checkCount(len(state.keysOf(user)), "AccessKeysPerUser", KEYS_LIMIT)
        key = evolve(key, userName=user.key)
    if key.parent:
        key = evolve(key, parent=_parentOf(state, key.parent, rootKey))
        _checkServiceKeys(state, key.parent)
    if key.sessionPolicy:
        checkPolicy(key.sessionPolicy)
        if len("".join(key.sessionPolicy.split())) > SESSION_POLICY_LIMIT:
            raise LimitExceeded(f"Cannot exceed quota for PolicySize: {SESSION_POLICY_LIMIT}")
    return state.withKey(key), key


def editOf(
    accessKey: str, edit: Callable[[AccessKey], AccessKey | None]
) -> Callable[[AccountState], tuple[AccountState, AccessKey]]:
    """
    Return the change of an account in which an operator edits or revokes the key of a user, or a
    service key. Like each change, it starts from the present key, so neither it nor a change by IAM
    undoes the other.

    @param edit: Returns the new key, or L{None} to revoke it.
    """

    def change(state: AccountState) -> tuple[AccountState, AccessKey]:
        key = state.keys.get(accessKey)
        if key is None:
            raise NoSuchEntity(f"The Access Key with id {accessKey} cannot be found.")
        edited = edit(key)
        if edited is None:
            return state.withoutKey(accessKey), key
        return state.withKey(edited), edited

    return change


def _checkServiceKeys(state: AccountState, parent: str) -> None:
    """
    Refuse one more service key of a parent; empty for a key that is none.

    @raise LimitExceeded: The parent has as many as may be.
    """
    if parent:
        count = len(state.serviceKeysOf(parent))
        checkCount(count, "ServiceKeysPerParent", SERVICE_KEYS_LIMIT)


def _parentOf(state: AccountState, name: str, rootKey: str) -> str:
    """
    Return a parent as keys name it.

    @param name: An access key, or C{user/} and the name of a user.
    @raise NoSuchEntity: It does not exist.
    """
    if name.startswith("user/"):
        return f"user/{changeableUser(state, name.removeprefix('user/')).key}"
    name = name.removeprefix("key/")
    if name not in state.keys and (not rootKey or name != rootKey):
        raise NoSuchEntity(f"The Access Key with id {name} cannot be found.")
    return f"key/{name}"


def _checkOwnUser(state: AccountState, maker: AccessKey, name: str) -> None:
    """
    Refuse a service key that makes a key of another user, whose rights its own do not bound.

    @raise AccessDenied: The key belongs to another user.
    """
    if userNameOf(state, maker.accessKey).lower() != name.lower():
        raise AccessDenied("A service key can make keys of its own user only")


def keysOf(state: AccountState, name: str) -> list[AccessKey]:
    """
    Return the keys of a user with its service keys, oldest first.

    @param name: The name of the user, or of the key of an operator.
    """
    found = [
        key
        for key in state.keys.values()
        if userNameOf(state, key.accessKey).lower() == name.lower()
    ]
    return sorted(found, key=lambda key: (key.createdMs, key.accessKey))


def _namedKey(
    state: AccountState, name: str, accessKeyId: str, request: IdentityRequest
) -> AccessKey:
    """
    Find a key of a user.

    @param name: Empty for the user of the caller.
    @raise NoSuchEntity: The user has no such key.
    @raise AccessDenied: The key has an administration role that the caller does not have.
    """
    user = _existingName(state, name, request)
    key = state.keys.get(accessKeyId)
    if key is None or userNameOf(state, accessKeyId).lower() != user.lower():
        raise NoSuchEntity(f"The Access Key with id {accessKeyId} cannot be found.")
    if ROLES.index(key.role) > ROLES.index(request.role):
        raise AccessDenied("The key has a higher administration role")
    return key


def _existingName(state: AccountState, name: str, request: IdentityRequest) -> str:
    """Return the name of a user that exists; empty names the user of the caller."""
    return userOf(state, name).name if name else callerName(state, name, request)


def listAccessKeys(
    state: AccountState, operation: operations.ListAccessKeys, request: IdentityRequest
) -> AccessKeyPage:
    """List the keys of a user."""
    name = _existingName(state, operation.userName, request)
    found = sorted(keysOf(state, name), key=lambda key: key.accessKey)
    rows, page = pageOf(found, lambda key: key.accessKey, operation.marker, operation.maxItems)
    views = tuple(
        AccessKeyView(
            userName=name,
            accessKeyId=key.accessKey,
            status=INACTIVE if key.disabled else "Active",
            createDate=key.createdMs,
        )
        for key in rows
    )
    return AccessKeyPage(accessKeyMetadata=views, **page)


def updateAccessKey(
    state: AccountState, operation: operations.UpdateAccessKey, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Enable or disable a key."""
    key = _namedKey(state, operation.userName, operation.accessKeyId, request)
    return state.withKey(evolve(key, disabled=operation.status == INACTIVE)), None


def deleteAccessKey(
    state: AccountState, operation: operations.DeleteAccessKey, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Delete a key."""
    key = _namedKey(state, operation.userName, operation.accessKeyId, request)
    return state.withoutKey(key.accessKey), None


def getAccessKeyLastUsed(
    state: AccountState, operation: operations.GetAccessKeyLastUsed, request: IdentityRequest
) -> LastUseResult:
    """Return the user and the last use of a key."""
    if operation.accessKeyId not in state.keys:
        # As at Amazon, which says no more of keys of other accounts.
        raise AccessDenied()
    usedMs = request.uses.get(operation.accessKeyId)
    use = LastUse(
        lastUsedDate=usedMs or None,
        serviceName="s3" if usedMs else "N/A",
        region=request.region if usedMs else "N/A",
    )
    return LastUseResult(userNameOf(state, operation.accessKeyId), use)
