"""Finding the identities that operations name, and describing them."""

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from storagegate.objects.errors import (
    AccessDenied,
    DeleteConflict,
    LimitExceeded,
    NoSuchEntity,
    UnmodifiableEntity,
    ValidationError,
)
from storagegate.objects.identities.answers import GroupView, Tag, Tags, UserView
from storagegate.objects.identities.awspolicies import AWS_POLICIES
from storagegate.objects.identities.entities import (
    AccountState,
    Entity,
    Group,
    IAMUser,
    ManagedPolicy,
    OIDCProvider,
    PolicyHolder,
    Role,
    makeId,
)
from storagegate.objects.principals import Identity
from storagegate.storage.records import AccessKey

INACTIVE = "Inactive"
"""The status of a disabled key, user or role; that of any other is C{Active}."""

E = TypeVar("E", bound=Entity)
R = TypeVar("R")
H = TypeVar("H", IAMUser, Role)


class IdentityRequest(Struct, frozen=True):
    """
    The circumstances of an operation.

    @ivar nowMs: Milliseconds since the epoch.
    @ivar identity: The caller; L{None} for an operator with the files of the store.
    @ivar role: The administration role of the caller.
    @ivar uses: When keys were last used, in milliseconds since the epoch, by access key.
    @ivar region: The region of the store.
    """

    nowMs: int
    identity: Identity | None = None
    role: str = "root"
    uses: Mapping[str, int] = {}
    region: str = ""


def operatorKey(state: AccountState, name: str) -> AccessKey | None:
    """
    Find the key of a user that is named as its key: a key that an operator issued for an account.

    @return: L{None} if there is none.
    """
    key = state.keys.get(name)
    return key if key is not None and not key.isBound else None


def userOf(state: AccountState, name: str) -> IAMUser:
    """
    Find a user by name, in any case.

    A key that an operator issued for the account is also a user, named as the key, which has no id
    and cannot be changed.

    @raise NoSuchEntity: There is none.
    """
    found = state.user(name)
    if found is not None:
        return found
    key = operatorKey(state, name)
    if key is None:
        raise NoSuchEntity(f"The user with name {name} cannot be found.")
    return IAMUser(name=name, createdMs=key.createdMs)


def changeableUser(state: AccountState, name: str) -> IAMUser:
    """
    Find a user that can be changed.

    @raise NoSuchEntity: There is none.
    @raise UnmodifiableEntity: The user is named as its key.
    """
    found = userOf(state, name)
    if not found.id:
        raise UnmodifiableEntity(
            f"The user {name} is an access key that an operator issued. It has the rights of its "
            "key, which the operator can change."
        )
    return found


def allUsers(state: AccountState) -> list[IAMUser]:
    """Return all users by name, including those that are named as their keys."""
    keys = [name for name in state.keys if operatorKey(state, name) and state.user(name) is None]
    return sorted([*state.users(), *(userOf(state, name) for name in keys)], key=lambda u: u.key)


def groupOf(state: AccountState, name: str) -> Group:
    """
    Find a group by name, in any case.

    @raise NoSuchEntity: There is none.
    """
    return _found(state.group(name), "group", name)


def roleOf(state: AccountState, name: str) -> Role:
    """
    Find a role by name, in any case.

    @raise NoSuchEntity: There is none.
    """
    return _found(state.role(name), "role", name)


def _found(entity: E | None, kind: str, name: str) -> E:
    if entity is None:
        raise NoSuchEntity(f"The {kind} with name {name} cannot be found.")
    return entity


def policyOf(state: AccountState, arn: str) -> ManagedPolicy:
    """
    Find a managed policy of the account, or one of every account.

    @raise NoSuchEntity: There is none.
    """
    found = AWS_POLICIES.get(arn) or state.policy(arn.rpartition("/")[2])
    if found is None or policyArn(state, found) != arn:
        raise NoSuchEntity(f"Policy {arn} does not exist or is not attachable.")
    return found


def ownPolicy(state: AccountState, arn: str) -> ManagedPolicy:
    """
    Find a managed policy of the account.

    @raise NoSuchEntity: There is none.
    @raise AccessDenied: The policy belongs to every account.
    """
    if arn in AWS_POLICIES:
        raise AccessDenied("The policies of Amazon cannot be changed.")
    return policyOf(state, arn)


def policyArn(state: AccountState, policy: ManagedPolicy) -> str:
    """Return the ARN of a managed policy."""
    return policy.arn("aws" if policy.id in _AWS_IDS else state.account)


_AWS_IDS = frozenset(policy.id for policy in AWS_POLICIES.values())


def providerOf(state: AccountState, arn: str) -> OIDCProvider:
    """
    Find a provider by its ARN.

    @raise NoSuchEntity: There is none.
    """
    found = state.provider(arn.partition(":oidc-provider/")[2])
    if found is None or providerArn(state, found) != arn:
        raise NoSuchEntity(f"OpenIDConnect Provider not found for arn {arn}")
    return found


def providerArn(state: AccountState, provider: OIDCProvider) -> str:
    """Return the ARN of a provider."""
    # Its path is the slash.
    return provider.arn(state.account)


def viewUser(state: AccountState, user: IAMUser, *, withTags: bool = False) -> UserView:
    """Describe a user."""
    return UserView(
        path=user.path,
        userName=user.name,
        # The policy variable aws:userid has the same value.
        userId=user.id or user.name,
        arn=user.arn(state.account),
        createDate=user.createdMs,
        tags=tagsOf(user) if withTags and user.tags else None,
        status=INACTIVE if user.disabled else None,
    )


def viewGroup(state: AccountState, group: Group) -> GroupView:
    """Describe a group."""
    return GroupView(
        path=group.path,
        groupName=group.name,
        groupId=group.id,
        arn=group.arn(state.account),
        createDate=group.createdMs,
    )


def holderOf(state: AccountState, operation: Any) -> PolicyHolder:
    """Find the user, group or role that an operation names; see L{userOf}."""
    if hasattr(operation, "userName"):
        return userOf(state, operation.userName)
    if hasattr(operation, "groupName"):
        return groupOf(state, operation.groupName)
    return roleOf(state, operation.roleName)


def changeableHolder(state: AccountState, operation: Any) -> PolicyHolder:
    """Find the user, group or role that an operation names; see L{changeableUser}."""
    if hasattr(operation, "userName"):
        return changeableUser(state, operation.userName)
    return holderOf(state, operation)


def checkCount(count: int, name: str, most: int) -> None:
    """
    Refuse one more of something.

    @param name: Amazon's name of the limit.
    @raise LimitExceeded: There are as many as may be.
    """
    if count >= most:
        raise LimitExceeded(f"Cannot exceed quota for {name}: {most}")


def checkUnattached(holder: PolicyHolder) -> None:
    """
    Check that an entity that is to be deleted has no policies.

    @raise DeleteConflict: It has some.
    """
    if holder.policies:
        raise DeleteConflict("Cannot delete entity, must delete policies first.")
    if holder.attached:
        raise DeleteConflict("Cannot delete entity, must detach all policies first.")


def withoutSessions(holder: H, request: IdentityRequest) -> H:
    """
    End all sessions of a user or a role.

    The clocks of nodes differ: an end that another node set stays if it is later, because sessions
    that it ended would begin again.
    """
    ended = max(holder.revokedBeforeMs, request.nowMs + 1)
    return replace(holder, revokedBeforeMs=ended)


def withStatus(holder: H, status: str, request: IdentityRequest) -> H:
    """Enable a user or a role, or disable it; both end its sessions."""
    disabled = status == INACTIVE
    if not (disabled or holder.disabled):
        return holder
    # Before it is enabled, another node can have made a session, not knowing that it is disabled.
    return replace(withoutSessions(holder, request), disabled=disabled)


def newId(state: AccountState, kind: type[Entity]) -> str:
    """Make the id of a new entity, which no other has."""
    taken = {entity.id for entity in state.entities.values()}
    while (made := makeId(kind.idPrefix)) in taken:
        pass
    return made


def tagsOf(entity: Entity) -> Tags:
    """Return the tags of an entity."""
    return tuple(Tag(key, value) for key, value in entity.tags.items())


def pageOf(rows: list[R], key: Any, marker: str, most: int) -> tuple[tuple[R, ...], dict[str, Any]]:
    """
    Cut a page from a list.

    @param rows: All rows, sorted by C{key}.
    @param key: Returns the position of a row, a text.
    @param marker: The position of the last row of the page before; empty for the first page.
    @param most: Largest number of rows.
    @return: The rows, and the fields of an C{IdentityPage}.
    @raise ValidationError: The marker is none of such a list.
    """
    if marker:
        position = readMarker(marker)
        rows = [row for row in rows if key(row) > position]
    page = rows[:most]
    if len(rows) == len(page):
        return tuple(page), {"isTruncated": False}
    return tuple(page), {"isTruncated": True, "marker": makeMarker(key(page[-1]))}


def makeMarker(position: str) -> str:
    """Encode a position in a list: clients must not read it as a name."""
    return position.encode().hex()


def readMarker(marker: str) -> str:
    """
    Decode a position in a list.

    @raise ValidationError: The text is no marker.
    """
    try:
        return bytes.fromhex(marker).decode()
    except ValueError:
        raise ValidationError("Invalid Marker.") from None
