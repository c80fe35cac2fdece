"""Buckets: usage, settings, and the caller's rights in them."""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from storagegate.console.call import ConsoleCall
from storagegate.console.paging import checkLimit
from storagegate.console.settings import Target, readSetting, removeSetting, storeSetting
from storagegate.console.usagehistory import USAGE_LIMIT, usageHistory
from storagegate.core.errors import codedError
from storagegate.objects.access.decision import OWNERSHIPS
from storagegate.objects.accounts import Identity
from storagegate.objects.errors import DomainError
from storagegate.objects.operations import CreateBucket, DeleteBucket, ListBuckets
from storagegate.storage.records import Bucket, BucketUsage, OlderVersions

_ACCESSES = {
    "read": "s3:GetObject",
    "write": "s3:PutObject",
    "list": "s3:ListBucket",
    "admin": "s3:PutBucketPolicy",
}
"""The kinds of access, each with an action that represents it."""

NO_USAGE = BucketUsage("", 0, 0, 0, 0)

NO_OLDER = OlderVersions(0, 0)


class BucketView(Struct, kw_only=True):
    """
    A bucket. The figures of the whole bucket are L{None} for a key that reaches only some objects,
    and for a bucket after the oldest
    L{USAGE_LIMIT<storagegate.console.usagehistory.USAGE_LIMIT>}, whose usage is not read.

    @ivar objects: All versions, without delete markers; C{older} of them are not current.
    @ivar bytes: Bytes of all versions.
    @ivar older: The number of older versions; L{None} if they are too many to count for a request.
    @ivar olderBytes: Their bytes; L{None} as C{older}.
    @ivar uploadBytes: Bytes of the parts of all uploads in progress.
    @ivar growth: Bytes by which it has grown in 24 hours; L{None} if the history is too short.
    @ivar access: The access of others than the owner's account, by policy and ACL of the bucket:
        C{private}, C{shared}, C{publicList}, C{publicRead} or C{publicWrite}; L{None} if it was not
        determined.
    @ivar may: The access that the caller's key has, without regard to the bucket's settings.
    @ivar keyPattern: The glob of object keys that limits the caller's key; empty for every key.
    @ivar keyPrefix: The part of C{keyPattern} before its first wildcard, which the caller can list.
    """

    name: str
    account: str
    createdMs: int
    region: str
    versioning: str
    lockEnabled: bool
    objects: int | None
    bytes: int | None
    older: int | None
    olderBytes: int | None
    uploads: int | None
    uploadBytes: int | None
    growth: int | None
    access: str | None
    may: dict[str, bool]
    keyPattern: str
    keyPrefix: str


class BucketPageQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """A page of buckets whose names begin with C{prefix}."""

    after: str = ""
    limit: int = 100
    prefix: str = ""


class BucketPage(Struct):
    """
    A page of buckets.

    @ivar mayCreate: Whether the caller's key may create buckets.
    """

    items: list[BucketView]
    next: str | None
    mayCreate: bool


class NewBucket(Struct, kw_only=True, forbid_unknown_fields=True):
    """A bucket to create."""

    name: str
    locked: bool = False
    ownership: str = ""


async def listBuckets(call: ConsoleCall, query: BucketPageQuery) -> BucketPage:
    """List buckets by name: the account's own, or all buckets for an auditor."""
    limit = checkLimit(query.limit)
    catalog = call.services.store.catalog
    if call.who.has("auditor"):
        found = await catalog.buckets(None, query.prefix, query.after, limit + 1)
    else:
        caller = call.caller("ListBuckets", "list")
        wanted = ListBuckets(query.prefix, query.after, limit + 1)
        found = await call.services.objects.perform(caller, wanted)
    shown = found[:limit]
    usage, grown = await _usage(call)
    items = []
    left = _MOST_COUNTED
    for each in shown:
        older = await _older(call, each, min(left, MOST_COUNTED_EACH))
        left = max(0, left - (MOST_COUNTED_EACH if older is None else older.count))
        view = viewBucket(call.who.identity, each, usage.get(each.name), older)
        view.growth = None if view.bytes is None else grown.get(each.name)
        view.access = (await call.services.objects.accessOf(each)).exposure
        items.append(view)
    mayCreate = _mayCreate(call.who.identity)
    return BucketPage(items, shown[-1].name if len(found) > limit else None, mayCreate)


async def createBucket(call: ConsoleCall, body: NewBucket) -> BucketView:
    """Create a bucket that the caller's account owns."""
    call.note(bucket=body.name)
    if body.ownership and body.ownership not in OWNERSHIPS:
        raise codedError("INVALID_ARGUMENT", f"ownership must be one of {', '.join(OWNERSHIPS)}")
    caller = call.caller("CreateBucket", "admin", body.name)
    wanted = CreateBucket(body.name, ownership=body.ownership, locked=body.locked)
    made = await call.services.objects.perform(caller, wanted)
    return viewBucket(call.who.identity, made, NO_USAGE, NO_OLDER)


async def showBucket(call: ConsoleCall) -> BucketView:
    """Describe a bucket."""
    name = call.params["bucket"]
    if call.who.has("auditor"):
        bucket = await call.services.objects.find(name)
    else:
        caller = call.caller("HeadBucket", "list", name)
        bucket = await call.services.objects.bucket(caller, name)
    usage, grown = await _usage(call)
    older = await _older(call, bucket, _MOST_COUNTED)
    view = viewBucket(call.who.identity, bucket, usage.get(name), older)
    view.growth = None if view.bytes is None else grown.get(name)
    view.access = (await call.services.objects.accessOf(bucket)).exposure
    return view


async def deleteBucket(call: ConsoleCall) -> None:
    """Delete an empty bucket."""
    name = call.params["bucket"]
    caller = call.caller("DeleteBucket", "admin", name)
    await call.services.objects.perform(caller, DeleteBucket(name))


async def showSetting(call: ConsoleCall) -> Any:
    """Read a setting as the JSON form of its document; 404 if it was never made."""
    return await readSetting(call, Target(call.params["bucket"]), call.params["name"])


async def putSetting(call: ConsoleCall, body: Any) -> None:
    """Store a setting, with the checks of S3."""
    await storeSetting(call, Target(call.params["bucket"]), call.params["name"], body)


async def deleteSetting(call: ConsoleCall) -> None:
    """Remove a setting."""
    await removeSetting(call, Target(call.params["bucket"]), call.params["name"])


async def _usage(call: ConsoleCall) -> tuple[Mapping[str, BucketUsage], Mapping[str, int]]:
    """Return the usage of buckets, and the growth of those whose growth is known."""
    found = await call.services.store.catalog.usage(USAGE_LIMIT)
    history = usageHistory(call.services)
    grown = {} if history is None else await history.grown(found)
    return {each.bucket: each for each in found.buckets}, grown


_MOST_COUNTED = 100_000
MOST_COUNTED_EACH = 10_000
"""
Older versions that a request counts, in total and for each bucket of a list: 10,000 take some
milliseconds.
"""


async def _older(call: ConsoleCall, bucket: Bucket, limit: int) -> OlderVersions | None:
    """Count the older versions of a bucket; only one that ever had versions can have some."""
    if not bucket.versioning:
        return NO_OLDER
    return await call.services.store.catalog.olderVersions(bucket.name, limit)


def viewBucket(
    identity: Identity,
    bucket: Bucket,
    usage: BucketUsage | None,
    older: OlderVersions | None = None,
) -> BucketView:
    """
    Describe a bucket, without its growth and the access of others.

    @param identity: The identity whose access C{may} describes.
    @param usage: Its figures; L{None} if they are unknown.
    @param older: Its older versions; L{None} if they are not counted.
    """
    may = {}
    for access in _ACCESSES:
        try:
            identity.authorise(access, bucket.name)
            may[access] = identity.isRoot or _mayOwn(identity, bucket, access)
        except DomainError:
            may[access] = False
    view = BucketView(
        name=bucket.name,
        account=bucket.account,
        createdMs=bucket.createdMs,
        region=bucket.region,
        versioning=bucket.versioning,
        lockEnabled=bucket.lockEnabled,
        objects=None,
        bytes=None,
        older=None,
        olderBytes=None,
        uploads=None,
        uploadBytes=None,
        growth=None,
        access=None,
        may=may,
        keyPattern=identity.policy.prefixPattern,
        keyPrefix=literalStart(identity.policy.prefixPattern),
    )
    if usage is not None and identity.policy.coversPrefix(""):
        view.objects, view.bytes = usage.objects, usage.bytes
        view.uploads, view.uploadBytes = usage.uploads, usage.uploadBytes
        if older is not None:
            # Both figures are read at different times.
            view.older = min(older.count, usage.objects)
            view.olderBytes = min(older.bytes, usage.bytes)
    return view


def _mayOwn(identity: Identity, bucket: Bucket, access: str) -> bool:
    """Return whether an identity may have an access to the buckets of its account."""
    if bucket.account != identity.account:
        return False
    rights = identity.rights
    return rights is None or rights.couldAllow(identity, _ACCESSES[access]) is True


def _mayCreate(identity: Identity) -> bool:
    """Return whether an identity may create some bucket."""
    rights = identity.rights
    return identity.policy.allows("admin", None, None) and (
        rights is None or rights.couldAllow(identity, "s3:CreateBucket") is True
    )


def literalStart(pattern: str) -> str:
    """Return the part of a glob before its first wildcard: the prefix of everything it matches."""
    return re.split(r"[*?\[]", pattern, maxsplit=1)[0]
