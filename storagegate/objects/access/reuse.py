"""
New keys for removed accounts and users, which bucket policies and ACLs may still name.

An account exists while it has a key. A policy or a grant outlives the keys of the account that it
names, so a new account of the same name would inherit the rights of the removed one. A key for such
an account, or with the access key of a removed user, is issued only if the operator asks for it.

ACLs of objects and conditions of policies are not searched.
"""

from collections.abc import Iterable, Mapping

from attrs import define, field

from storagegate.core.errors import ServiceError
from storagegate.objects.access.acl import decodeList
from storagegate.objects.access.policy import principalsOf
from storagegate.objects.accounts import accountNames, canonicalId
from storagegate.objects.settings import ACL, POLICY
from storagegate.storage.errors import NoSuchBucket
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.records import AccessKey, Bucket

# An error names this many buckets; the search stops there.
_SHOWN = 10

# Policies of a page are parsed in one turn of the reactor: 20 of the largest take 10 ms.
_PAGE = 20


@define
class ReuseCheck:
    """
    Finds the buckets whose policy or ACL names the identity of a new key that no stored key has.

    @ivar isNeeded: Whether further buckets can change the result.
    """

    _key: AccessKey
    _isAccountNew: bool
    isNeeded: bool
    _found: list[str] = field(factory=list, init=False)

    @classmethod
    def of(cls, key: AccessKey, keys: Iterable[AccessKey]) -> "ReuseCheck":
        """
        Begin the search.

        @param key: The new key.
        @param keys: All issued keys. If one has the same access key, the search is not needed,
            because the new key cannot be issued.
        """
        known = tuple(keys)
        isTaken = any(each.accessKey == key.accessKey for each in known)
        return cls(key, key.account not in accountNames(known), not isTaken)

    def add(self, bucket: Bucket, documents: Mapping[str, bytes]) -> None:
        """Search the settings of a bucket."""
        if self._isNamed(bucket, documents):
            self._found.append(bucket.name)
            self.isNeeded = len(self._found) < _SHOWN

    def _isNamed(self, bucket: Bucket, documents: Mapping[str, bytes]) -> bool:
        account, accountId = self._key.account, canonicalId(self._key.account)
        policy, acl = documents.get(POLICY), documents.get(ACL)
        for each in () if policy is None else principalsOf(policy):
            if (account, self._key.accessKey) in each.users:
                return True
            if self._isAccountNew and (account in each.accounts or accountId in each.ids):
                return True
        # The ACL of a bucket always names its owner, who needs no grant.
        if acl is None or not self._isAccountNew or bucket.account == account:
            return False
        return any(grant.grantee == accountId for grant in decodeList(acl.decode()).grants)

    def finish(self) -> None:
        """
        End the search.

        @raise ServiceError: C{FAILED_PRECONDITION}, with the names of the buckets.
        """
        if not self._found:
            return
        account, names = self._key.account, ", ".join(self._found)
        who = (
            f"account {account}" if self._isAccountNew else f"user {account}/{self._key.accessKey}"
        )
        more = "" if self.isNeeded else " and possibly others"
        raise ServiceError(
            "FAILED_PRECONDITION",
            f"The removed {who} is still named in a policy or an ACL of: {names}{more}",
            409,
            {"buckets": self._found},
        )


async def checkReuse(catalog: ICatalog, key: AccessKey, keys: Iterable[AccessKey]) -> None:
    """
    Refuse a new key whose identity was removed while buckets name it.

    @param keys: All issued keys.
    @raise ServiceError: C{FAILED_PRECONDITION}.
    """
    check, after = ReuseCheck.of(key, keys), ""
    while check.isNeeded:
        page: list[Bucket] = await catalog.buckets(None, "", after, _PAGE)
        if not page:
            break
        for bucket in page:
            if bucket.generation and check.isNeeded:
                try:
                    _, documents = await catalog.settings(bucket.name)
                except NoSuchBucket:
                    continue
                check.add(bucket, documents)
        after = page[-1].name
    check.finish()


def checkReuseNow(
    settings: Iterable[tuple[Bucket, Mapping[str, bytes]]],
    key: AccessKey,
    keys: Iterable[AccessKey],
) -> None:
    """
    The same as L{checkReuse} without a reactor. Blocks.

    @param settings: The buckets and their settings, by name.
    """
    check = ReuseCheck.of(key, keys)
    if check.isNeeded:
        for bucket, documents in settings:
            check.add(bucket, documents)
            if not check.isNeeded:
                break
    check.finish()
