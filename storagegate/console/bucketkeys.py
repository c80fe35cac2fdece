"""The access keys that reach a bucket."""

from bisect import bisect_right
from collections.abc import Mapping

from msgspec import Struct

from storagegate.console.call import ConsoleCall
from storagegate.console.paging import checkLimit
from storagegate.objects.access.decision import BucketAccess
from storagegate.objects.access.patterns import ANY, patternText
from storagegate.objects.accounts import Identity, KeyPolicy
from storagegate.storage.records import AccessKey, Bucket

_KINDS: Mapping[str, tuple[str, str]] = {
    "list": ("list", "s3:ListBucket"),
    "read": ("read", "s3:GetObject"),
    "write": ("write", "s3:PutObject"),
    "delete": ("write", "s3:DeleteObject"),
    "admin": ("admin", "s3:PutBucketPolicy"),
}
"""
The right of a key's policy, and the action of a bucket's policy, that represent a kind of access.
"""

_MOST_EXAMINED = 1000
"""Keys that one request examines, which takes about 30 ms."""

_MOST_PATTERNS = 10
"""Patterns that are listed for a key."""


class BucketKeysQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """A page of keys."""

    after: str = ""
    limit: int = 100


class KeyReach(Struct, kw_only=True):
    """
    What a key may do in a bucket.

    Conditions of statements, and denials of some objects only, are not evaluated.

    @ivar by: C{owner} if its account owns the bucket, else C{policy} or C{acl}; C{user} for the key
        of a user and for a service key, of which some objects may be out of reach.
    @ivar may: C{list}, C{read}, C{write}, C{delete} and C{admin}, as far as it may.
    @ivar keyPattern: The glob of object keys that limits the key; empty for every key.
    @ivar patterns: The globs of object keys for which the bucket's policy lets it in; empty for
        every key.
    @ivar isMore: Whether the policy has more of them.
    """

    accessKey: str
    account: str
    note: str
    by: str
    may: list[str]
    keyPattern: str
    patterns: list[str]
    isMore: bool


class BucketKeyPage(Struct):
    """
    A page of the keys that reach a bucket. It can be empty although there is a next one: a request
    examines at most 1,000 keys.
    """

    items: list[KeyReach]
    next: str | None


async def listBucketKeys(call: ConsoleCall, query: BucketKeysQuery) -> BucketKeyPage:
    """List the keys that reach a bucket, without those that are disabled or expired."""
    limit = checkLimit(query.limit)
    bucket = await call.services.objects.find(call.params["bucket"])
    access = await call.services.objects.accessOf(bucket)
    keys = call.services.store.accessKeys.keys
    nowMs = call.services.now() * 1000
    names = sorted(keys)
    start = bisect_right(names, query.after)
    found: list[KeyReach] = []
    last = None
    for name in names[start : start + _MOST_EXAMINED]:
        if len(found) == limit:
            break
        last, key = name, keys[name]
        if not key.disabled and not 0 < key.expiresMs <= nowMs:
            if key.isBound:
                known = call.services.accounts.find(name)
                reach = None if known is None else _reachOfUser(key, known.identity, bucket, access)
            else:
                reach = _reachOf(key, bucket.name, access)
            if reach is not None and reach.may:
                found.append(reach)
    return BucketKeyPage(found, last if last is not None and last != names[-1] else None)


def _reachOfUser(
    key: AccessKey, identity: Identity, bucket: Bucket, access: BucketAccess
) -> KeyReach:
    """Find out what the key of a user, or a service key, could do with some object of a bucket."""
    may = [
        kind
        for kind, (right, action) in _KINDS.items()
        if identity.policy.allows(right, bucket.name, None) and access.couldAllow(identity, action)
    ]
    return KeyReach(
        accessKey=key.accessKey,
        account=key.account,
        note=key.note or key.userName,
        by="user",
        may=may,
        keyPattern=identity.policy.prefixPattern,
        patterns=[],
        isMore=False,
    )


def _reachOf(key: AccessKey, bucket: str, access: BucketAccess) -> KeyReach:
    """Find out what a key may do in a bucket; it may be nothing."""
    policy = KeyPolicy(key.policy, key.bucketPattern, key.prefixPattern)
    identity = Identity(key.accessKey, key.account, policy)
    may, patterns = [], {}
    isByPolicy = False
    for kind, (right, action) in _KINDS.items():
        reached = access.reaches(identity, action) if policy.allows(right, bucket, None) else None
        if reached is None:
            continue
        may.append(kind)
        patterns.update(dict.fromkeys(map(patternText, reached)))
        isByPolicy = isByPolicy or (
            access.policy is not None and access.policy.allowedKeys(action, identity) is not None
        )
    isOwner = key.account == access.account
    isWhole = patternText((ANY,)) in patterns
    return KeyReach(
        accessKey=key.accessKey,
        account=key.account,
        note=key.note,
        by="owner" if isOwner else "policy" if isByPolicy else "acl",
        may=may,
        keyPattern=key.prefixPattern,
        patterns=[] if isWhole else list(patterns)[:_MOST_PATTERNS],
        isMore=not isWhole and len(patterns) > _MOST_PATTERNS,
    )
