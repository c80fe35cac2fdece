"""
Access control lists (ACLs): grants, and the lists that clients name.

A request names the grants of a bucket or an object one by one, or by a I{canned} ACL such as
C{public-read}, whose grants depend on the owner.

An ACL is stored as JSON, C{[[grantee, permission], ...]}; the grantee is a canonical id or the URI
of a group. An absent ACL is the private ACL: full control for the owner, whose account needs no
grant.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import msgspec
from attrs import field, frozen

from storagegate.objects import errors
from storagegate.objects.access.actions import VERSION_ACTIONS
from storagegate.objects.principals import Identity, canonicalId

ALL_USERS = "http://acs.amazonaws.com/groups/global/AllUsers"
AUTHENTICATED_USERS = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers"
_LOG_DELIVERY = "http://acs.amazonaws.com/groups/s3/LogDelivery"

GROUPS = frozenset({ALL_USERS, AUTHENTICATED_USERS})
"""The groups that can have grants; a grant to any of them makes an ACL public."""

FULL_CONTROL = "FULL_CONTROL"
PERMISSIONS = ("READ", "WRITE", "READ_ACP", "WRITE_ACP", FULL_CONTROL)

GRANT_LIMIT = 100
"""Grants per ACL: Amazon's limit."""

_BUCKET_PERMISSIONS: Mapping[str, str] = {
    "s3:ListBucket": "READ",
    "s3:ListBucketVersions": "READ",
    "s3:ListBucketMultipartUploads": "READ",
    "s3:PutObject": "WRITE",
    "s3:DeleteObject": "WRITE",
    "s3:GetBucketAcl": "READ_ACP",
    "s3:PutBucketAcl": "WRITE_ACP",
}
_OBJECT_PERMISSIONS: Mapping[str, str] = {
    "s3:GetObject": "READ",
    "s3:GetObjectAcl": "READ_ACP",
    "s3:PutObjectAcl": "WRITE_ACP",
}


@frozen
class Grant:
    """
    A grant of an ACL.

    @ivar grantee: The canonical id of an account, or the URI of a group.
    @ivar permission: One of L{PERMISSIONS}.
    """

    grantee: str
    permission: str


@frozen
class AccessControlList:
    """
    The ACL of a bucket or an object.

    @ivar isPublic: Whether a group has a grant.
    """

    grants: tuple[Grant, ...]
    isPublic: bool = field(init=False)
    _grantees: Mapping[str, frozenset[str]] = field(init=False, repr=False, eq=False)

    @isPublic.default
    def _findPublic(self) -> bool:
        return any(grant.grantee in GROUPS for grant in self.grants)

    @_grantees.default
    def _findGrantees(self) -> Mapping[str, frozenset[str]]:
        return {
            permission: frozenset(
                grant.grantee
                for grant in self.grants
                if grant.permission in (permission, FULL_CONTROL)
            )
            for permission in PERMISSIONS
        }

    def grantsTo(self, permission: str, identity: Identity, *, withGroups: bool) -> bool:
        """
        Return whether an identity has a permission.

        @param permission: One of L{PERMISSIONS}.
        @param withGroups: Whether grants to groups count.
        """
        grantees = self._grantees[permission]
        if not identity.isAnonymous and canonicalId(identity.account) in grantees:
            return True
        return withGroups and (
            ALL_USERS in grantees or (not identity.isAnonymous and AUTHENTICATED_USERS in grantees)
        )


def bucketPermission(action: str) -> str | None:
    """Return the bucket permission that grants an action; L{None} if none does."""
    return _BUCKET_PERMISSIONS.get(action)


_VERSIONS = {version: action for action, version in VERSION_ACTIONS.items()}


def objectPermission(action: str) -> str | None:
    """Return the object permission that grants an action; L{None} if none does."""
    return _OBJECT_PERMISSIONS.get(_VERSIONS.get(action, action))


def privateList(owner: str) -> AccessControlList:
    """
    Make the private ACL of a bucket or an object.

    @param owner: The owner's account.
    """
    return AccessControlList((Grant(canonicalId(owner), FULL_CONTROL),))


def encodeList(acl: AccessControlList, owner: str) -> str | None:
    """
    Encode an ACL for the store.

    @param owner: The account that owns the bucket or the object.
    @return: L{None} for the private ACL.
    """
    if acl == privateList(owner):
        return None
    pairs = [(grant.grantee, grant.permission) for grant in acl.grants]
    return msgspec.json.encode(pairs).decode()


# There are few distinct ACLs: a client mostly repeats the same one.
@lru_cache(maxsize=256)
def decodeList(text: str) -> AccessControlList:
    """Decode a stored ACL."""
    pairs = msgspec.json.decode(text, type=list[tuple[str, str]])
    return AccessControlList(tuple(Grant(*pair) for pair in pairs))


class AccountDirectory(Protocol):
    """The accounts that grants can name."""

    def isAccountId(self, accountId: str) -> bool:
        """Return whether a canonical id belongs to an account."""

    def accountsOf(self, email: str) -> Sequence[str]:
        """Return the accounts that have a key with an email address, in lower case."""


_OF_OWNER = ("OWNER", FULL_CONTROL)

# As in S3, groups come before the owner.
_CANNED: Mapping[str, tuple[tuple[str, str], ...]] = {
    "private": (_OF_OWNER,),
    "public-read": ((ALL_USERS, "READ"), _OF_OWNER),
    "public-read-write": ((ALL_USERS, "READ"), (ALL_USERS, "WRITE"), _OF_OWNER),
    "authenticated-read": ((AUTHENTICATED_USERS, "READ"), _OF_OWNER),
    "bucket-owner-read": (_OF_OWNER, ("BUCKET OWNER", "READ")),
    "bucket-owner-full-control": (_OF_OWNER, ("BUCKET OWNER", FULL_CONTROL)),
}
_UNSUPPORTED_CANNED = frozenset({"aws-exec-read", "log-delivery-write"})


def cannedList(name: str, owner: str, bucketOwner: str | None = None) -> AccessControlList:
    """
    Make a canned ACL.

    @param owner: The account that owns the bucket or the object.
    @param bucketOwner: The account that owns the bucket of an object; L{None} for a bucket itself,
        for which the canned ACLs that name the bucket owner are private.
    @raise InvalidArgument: The name is unknown.
    @raise UnsupportedFeature: Another service has a list of this name.
    """
    rows = _CANNED.get(name)
    if rows is None:
        if name in _UNSUPPORTED_CANNED:
            raise errors.UnsupportedFeature(argument="acl")
        raise errors.InvalidArgument(name="acl", value=name)
    ids = {"OWNER": canonicalId(owner), "BUCKET OWNER": canonicalId(bucketOwner or owner)}
    found: list[Grant] = []
    for grantee, permission in rows:
        grant = Grant(ids.get(grantee, grantee), permission)
        if grant not in found and Grant(grant.grantee, FULL_CONTROL) not in found:
            found.append(grant)
    return AccessControlList(tuple(found))


class RequestedList(Protocol):
    """The ACL that a request names; its grants may depend on the owner."""

    @property
    def canned(self) -> str | None:
        """The name of the canned ACL; L{None} for another form."""

    def ownedBy(self, owner: str, bucketOwner: str | None = None) -> AccessControlList:
        """
        Return the ACL.

        @param owner: The account that owns, or will own, the bucket or the object.
        @param bucketOwner: See L{cannedList}.
        @raise DomainError: The request names an invalid list.
        """


class GranteeReader:
    """Looks up the grantees that a request names."""

    def __init__(self, directory: AccountDirectory) -> None:
        self._directory = directory

    def account(self, text: str) -> str:
        """Parse a canonical id; raise C{InvalidArgument} if it is unknown."""
        if not self._directory.isAccountId(text):
            raise errors.InvalidArgument("Invalid id", name="accountId", value=text)
        return text

    def group(self, text: str) -> str:
        """Parse the URI of a group; raise C{InvalidArgument} if it is unknown."""
        if text == _LOG_DELIVERY:
            raise errors.UnsupportedFeature("Logs are not delivered")
        if text not in GROUPS:
            raise errors.InvalidArgument("Invalid group uri", name="group", value=text)
        return text

    def email(self, text: str) -> str:
        """Resolve an email address; raise C{UnresolvableGrantByEmailAddress} if it is unknown."""
        accounts = self._directory.accountsOf(text.lower())
        if not accounts:
            raise errors.UnresolvableGrantByEmailAddress(email=text)
        if len(accounts) > 1:
            raise errors.AmbiguousGrantByEmailAddress(email=text)
        return canonicalId(accounts[0])
