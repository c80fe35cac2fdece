"""Access keys: listing, changes, and access checks for a key."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from attrs import evolve
from msgspec import UNSET, Struct, UnsetType

from storagegate.console.call import ConsoleCall
from storagegate.console.paging import MOST, Page, page
from storagegate.core.errors import codedError
from storagegate.objects.access.reuse import checkReuse
from storagegate.objects.accounts import ROLES, ROOT_ACCOUNT, AccountKey, KeyPolicy
from storagegate.objects.identities.keys import addIssuedKey, editOf
from storagegate.objects.issuedkeys import (
    generateKeyPair,
    readBucketPattern,
    readCredential,
    readExpiry,
    readKeyPattern,
    readName,
    readNote,
    readPolicy,
    readRole,
)
from storagegate.storage.errors import KeyExists
from storagegate.storage.mutations import AddAccessKey, RemoveAccessKey
from storagegate.storage.ranges import ObjectRange
from storagegate.storage.records import AccessKey

V = TypeVar("V")


class KeyView(Struct, kw_only=True):
    """
    A key, without its secret.

    @ivar bucket: A glob; empty for every bucket.
    @ivar prefix: A glob; empty for every key.
    @ivar lastUsedMs: 0 if the key was never used.
    @ivar user: The user whose rights the key has; empty for none.
    @ivar parent: The key, or C{user/NAME}, that bounds a service key; empty for other keys.
    """

    accessKey: str
    account: str
    role: str
    policy: str
    bucket: str
    prefix: str
    email: str
    note: str
    createdMs: int
    expiresMs: int
    lastUsedMs: int
    disabled: bool
    user: str
    parent: str


class NewKeyView(KeyView, kw_only=True):
    """A key with its secret, which is returned only once."""

    secretKey: str


class NewKey(Struct, kw_only=True, forbid_unknown_fields=True):
    """
    A key to issue; C{accessKey} and C{secretKey} are generated if they are absent.

    @ivar reuse: Whether to issue the key even if its account or user was removed and a policy or an
        ACL of a bucket still names it.
    @ivar user: The user whose key it becomes.
    @ivar parent: The key, or C{user/NAME}, that bounds a service key.
    @ivar sessionPolicy: A policy that must also allow each request of a service key, JSON.
    """

    account: str
    accessKey: str = ""
    secretKey: str = ""
    role: str = "none"
    policy: str = "readwrite"
    bucket: str = ""
    prefix: str = ""
    email: str = ""
    note: str = ""
    expiresMs: int = 0
    disabled: bool = False
    reuse: bool = False
    user: str = ""
    parent: str = ""
    sessionPolicy: str = ""


class KeyChange(Struct, kw_only=True, forbid_unknown_fields=True):
    """
    Changes of a key.

    @ivar newSecret: Whether to rotate the secret, which ends the sessions of the key.
    """

    role: str | UnsetType = UNSET
    policy: str | UnsetType = UNSET
    bucket: str | UnsetType = UNSET
    prefix: str | UnsetType = UNSET
    email: str | UnsetType = UNSET
    note: str | UnsetType = UNSET
    expiresMs: int | UnsetType = UNSET
    disabled: bool | UnsetType = UNSET
    newSecret: bool = False


class KeyPageQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """A page of keys; C{find} is part of the name, the account, the email address or the note."""

    after: str = ""
    limit: int = 100
    find: str = ""


class KeyPage(Struct):
    """A page of keys."""

    items: list[KeyView]
    next: str | None


class Access(Struct, kw_only=True, forbid_unknown_fields=True):
    """An access to check: C{read}, C{write}, C{delete}, C{list} or C{admin}."""

    access: str
    bucket: str
    key: str = ""


class AccessJudgement(Struct):
    """
    Whether an access is allowed, and the rule that decided.

    @ivar statement: The number of the deciding statement in the bucket's policy, from 1; 0 for
        another rule.
    """

    allowed: bool
    why: str
    statement: int


async def listKeys(call: ConsoleCall, query: KeyPageQuery) -> KeyPage:
    """List keys by name: all keys for an auditor, otherwise the caller's own keys."""
    uses = await call.services.store.catalog.keyUses()
    keys = call.services.store.accessKeys.keys
    names = sorted(name for name in keys if call.who.has("auditor") or _isOwn(call, keys[name]))
    wanted = query.find.lower()
    found = [
        keys[name]
        for name in names
        if not wanted
        or any(
            wanted in text.lower()
            for text in (name, keys[name].account, keys[name].email, keys[name].note)
        )
    ]
    some: Page[AccessKey] = page(found, query.after, query.limit, lambda key: key.accessKey)
    return KeyPage([viewKey(key, uses.get(key.accessKey, 0)) for key in some.items], some.next)


async def showKey(call: ConsoleCall) -> KeyView:
    """Describe a key."""
    key = _visible(call)
    uses = await call.services.store.catalog.keyUses()
    return viewKey(key, uses.get(key.accessKey, 0))


async def createKey(call: ConsoleCall, body: NewKey) -> NewKeyView:
    """
    Issue a key with a role no higher than the caller's. A person without a role can issue service
    keys of its own user.
    """
    key = makeKey(body, int(call.services.now() * 1000))
    if not _isOfPerson(call, key):
        call.require("admin")
    _checkRole(call, key.role)
    _checkRoot(call, key)
    call.note(accessKey=key.accessKey, account=key.account, role=key.role)
    if _isRoot(call, key.accessKey):
        raise codedError("ALREADY_EXISTS", "This is the root access key")
    if not body.reuse:
        # Another process may have revoked the last key of the account.
        await call.services.store.accessKeys.refresh()
        keys = call.services.store.accessKeys.keys.values()
        await checkReuse(call.services.store.catalog, key, keys)
    if key.isBound:
        parent = key.parent.removeprefix("key/")
        rootKey = parent if _isRoot(call, parent) else ""
        key = await call.services.objects.identities.change(
            key.account, lambda state: addIssuedKey(state, key, rootKey)
        )
        return viewNewKey(key)
    try:
        await call.services.store.catalog.commit(AddAccessKey(key))
    except KeyExists as error:
        raise codedError("ALREADY_EXISTS", "The access key already exists") from error
    await call.services.store.accessKeys.refresh()
    return viewNewKey(key)


async def changeKey(call: ConsoleCall, body: KeyChange) -> KeyView | NewKeyView:
    """Change a key; a new secret is returned only in this response."""
    # Another process may have changed the key just now; its change must not be undone.
    await call.services.store.accessKeys.refresh()
    key = _changeable(call)
    _checkRoot(call, key)
    changes = readChanges(body, key, int(call.services.now() * 1000))
    _checkRole(call, changes.get("role", "none"))
    call.note(changed=sorted(changes))
    edit = editOf(key.accessKey, lambda now: evolve(now, **changes))
    changed = await call.services.objects.identities.change(key.account, edit)
    uses = await call.services.store.catalog.keyUses()
    lastUsedMs = uses.get(key.accessKey, 0)
    return viewNewKey(changed, lastUsedMs) if body.newSecret else viewKey(changed, lastUsedMs)


async def revokeKey(call: ConsoleCall) -> None:
    """Revoke a key. A person without a role can revoke service keys of its own user."""
    key = _changeable(call)
    if not _isOfPerson(call, key):
        call.require("admin")
    if key.isBound:
        edit = editOf(key.accessKey, lambda now: None)
        await call.services.objects.identities.change(key.account, edit)
        return
    if not await call.services.store.catalog.commit(RemoveAccessKey(key.accessKey)):
        raise codedError("NOT_FOUND", "No such access key")
    await call.services.store.accessKeys.refresh()


class ReachQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """
    The limits of a key.

    @ivar bucket: A glob; empty for every bucket.
    @ivar prefix: A glob; empty for every key.
    """

    account: str
    bucket: str = ""
    prefix: str = ""


class Reach(Struct, kw_only=True):
    """
    What a key reaches by the ownership of buckets; policies of buckets can add to it.

    @ivar accounts: The accounts that own buckets or have keys, at most 1,000.
    @ivar owned: The buckets of the account.
    @ivar buckets: Those of them that the key reaches.
    @ivar objects: Current objects that the key reaches.
    @ivar isMore: Whether counting ended at the limit.
    """

    accounts: list[str]
    owned: list[str]
    buckets: list[str]
    objects: int
    bytes: int
    isMore: bool


_MOST_BUCKETS = 1000

_MOST_COUNTED = 20_000
"""Objects that one request counts, which takes about 0.1 s."""


async def showReach(call: ConsoleCall, body: ReachQuery) -> Reach:
    """Count the objects that a key with these limits would reach today."""
    from storagegate.console.buckets import literalStart

    catalog = call.services.store.catalog
    every = await catalog.buckets(None, "", "", _MOST_BUCKETS)
    keys = call.services.store.accessKeys.keys.values()
    accounts = {each.account for each in every} | {key.account for key in keys} | {ROOT_ACCOUNT}
    owned = [each.name for each in every if each.account == body.account]
    policy = KeyPolicy("readwrite", body.bucket, body.prefix)
    reached = [name for name in owned if policy.allows("list", name, None)]
    start = literalStart(body.prefix).encode()
    objects = size = counted = 0
    for name in reached:
        after: str | None = ""
        while after is not None and counted < _MOST_COUNTED:
            page = await catalog.listObjects(ObjectRange(name, start, b"", after.encode(), MOST))
            found = [each for each in page.objects if policy.allows("read", name, each.key)]
            objects += len(found)
            size += sum(each.size for each in found)
            counted += len(page.objects)
            after = page.last
    return Reach(
        accounts=sorted(accounts)[:_MOST_BUCKETS],
        owned=owned,
        buckets=reached,
        objects=objects,
        bytes=size,
        isMore=counted >= _MOST_COUNTED or len(every) == _MOST_BUCKETS,
    )


async def judgeAccess(call: ConsoleCall, body: Access) -> AccessJudgement:
    """Check an access by the rules of S3: the key, its policy, and the settings of the bucket."""
    from storagegate.console.judging import judge

    key = _visible(call)
    allowed, refusal = await judge(call, key, body.access, body.bucket, body.key)
    return AccessJudgement(allowed, refusal.rule, refusal.statement)


def makeKey(body: NewKey, nowMs: int) -> AccessKey:
    """
    Make a key from a request, without checking whether the caller may give its role.

    @param nowMs: The time of creation, in milliseconds since the epoch.
    @raise ServiceError: C{INVALID_ARGUMENT}, with the name of the field.
    """
    if bool(body.accessKey) != bool(body.secretKey):
        raise codedError("INVALID_ARGUMENT", "accessKey and secretKey must be given together")
    if body.sessionPolicy and not (body.user or body.parent):
        # Only the rights of a service key are evaluated with it: it would limit nothing.
        text = "sessionPolicy: a policy needs a parent"
        raise codedError("INVALID_ARGUMENT", text, {"field": "sessionPolicy"})
    generated = generateKeyPair()
    return AccessKey(
        accessKey=_read("accessKey", readCredential, body.accessKey or generated.accessKey),
        secretKey=_read("secretKey", readCredential, body.secretKey or generated.secretKey),
        account=_read("account", readName, body.account),
        policy=_read("policy", readPolicy, body.policy),
        bucketPattern=_read("bucket", readBucketPattern, body.bucket) if body.bucket else "",
        prefixPattern=_read("prefix", readKeyPattern, body.prefix) if body.prefix else "",
        email=_read("email", readName, body.email) if body.email else "",
        createdMs=nowMs,
        role=_read("role", readRole, body.role),
        expiresMs=_read("expiresMs", partial(readExpiry, nowMs=nowMs), body.expiresMs),
        disabled=body.disabled,
        note=_read("note", readNote, body.note),
        userName=_read("user", readName, body.user) if body.user else "",
        parent=_read("parent", readName, body.parent) if body.parent else "",
        sessionPolicy=body.sessionPolicy,
    )


def readChanges(body: KeyChange, key: AccessKey, nowMs: int) -> dict[str, Any]:
    """
    Return the fields of an L{AccessKey} that a change sets; whether the caller may give the role is
    not checked.

    @param key: The key to change. A form that repeats the expiry of an expired key is valid.
    @param nowMs: The time of the change, in milliseconds since the epoch.
    @raise ServiceError: C{INVALID_ARGUMENT}, with the name of the field.
    """
    changes: dict[str, Any] = {
        "policy": _changed("policy", readPolicy, body.policy),
        "bucketPattern": _changed("bucket", readBucketPattern, body.bucket),
        "prefixPattern": _changed("prefix", readKeyPattern, body.prefix),
        "email": _changed("email", readName, body.email),
        "note": _changed("note", readNote, body.note),
        "expiresMs": UNSET
        if isinstance(body.expiresMs, UnsetType) or body.expiresMs == key.expiresMs
        else _read("expiresMs", partial(readExpiry, nowMs=nowMs), body.expiresMs),
        "disabled": body.disabled,
        "role": UNSET if isinstance(body.role, UnsetType) else _read("role", readRole, body.role),
        "secretKey": generateKeyPair().secretKey if body.newSecret else UNSET,
    }
    if key.isBound and changes["role"] not in (UNSET, "none"):
        text = "role: the key of a user and a service key have none"
        raise codedError("INVALID_ARGUMENT", text, {"field": "role"})
    return {name: value for name, value in changes.items() if value is not UNSET}


def viewKey(key: AccessKey, lastUsedMs: int) -> KeyView:
    """
    Describe a key without its secret.

    @param lastUsedMs: 0 if the key was never used.
    """
    return KeyView(
        accessKey=key.accessKey,
        account=key.account,
        role=key.role,
        policy=key.policy,
        bucket=key.bucketPattern,
        prefix=key.prefixPattern,
        email=key.email,
        note=key.note,
        createdMs=key.createdMs,
        expiresMs=key.expiresMs,
        lastUsedMs=lastUsedMs,
        disabled=key.disabled,
        user=key.userName,
        parent=key.parent.removeprefix("key/"),
    )


def viewNewKey(key: AccessKey, lastUsedMs: int = 0) -> NewKeyView:
    """
    Describe a key with its secret.

    @param lastUsedMs: 0 if the key was never used.
    """
    shown = viewKey(key, lastUsedMs)
    fields = {name: getattr(shown, name) for name in shown.__struct_fields__}
    return NewKeyView(**fields, secretKey=key.secretKey)


def _isRoot(call: ConsoleCall, accessKey: str) -> bool:
    found: AccountKey | None = call.services.accounts.find(accessKey)
    return found is not None and found.identity.isRoot


def _checkRoot(call: ConsoleCall, key: AccessKey) -> None:
    """
    Refuse to issue or change a key with the rights of the root pair, if the caller is not root.

    @raise ServiceError: C{PERMISSION_DENIED}.
    """
    keys = call.services.store.accessKeys.keys
    bounds: AccessKey | None = key
    seen = set()
    # Disabled keys count, because the caller could enable them later.
    while bounds is not None and bounds.parent and bounds.parent not in seen:
        seen.add(bounds.parent)
        name = bounds.parent.removeprefix("key/")
        if _isRoot(call, name):
            call.require("root")
        bounds = keys.get(name)


def _isOwn(call: ConsoleCall, key: AccessKey) -> bool:
    """Return whether a key is the caller's, or a service key of a person who signed in."""
    identity = call.who.identity
    isItself = not identity.role and key.accessKey == identity.accessKey
    return isItself or _isOfPerson(call, key)


def _isOfPerson(call: ConsoleCall, key: AccessKey) -> bool:
    """
    Return whether a key is a service key of the caller, a person who signed in. A caller with a key
    has no such keys: it could otherwise issue its own key again, with other rights.
    """
    identity = call.who.identity
    rights = identity.rights
    if not identity.role or rights is None or rights.user is None:
        return False
    parent = f"user/{rights.user.key}"
    return key.account == identity.account and key.parent.lower() == parent


def _visible(call: ConsoleCall) -> AccessKey:
    """
    Return the key of the path.

    @raise ServiceError: The key does not exist, or the caller is no auditor and does not own it.
    """
    name = call.params["key"]
    key = call.services.store.accessKeys.keys.get(name)
    if key is None or not _isOwn(call, key):
        call.require("auditor")
    if key is None:
        raise codedError("NOT_FOUND", "No such access key")
    return key


def _changeable(call: ConsoleCall) -> AccessKey:
    """
    Return the key of the path, whose role is no higher than the caller's.

    @raise ServiceError: The key does not exist, or may not be changed.
    """
    key = _visible(call)
    if not call.who.has(key.role):
        raise codedError("PERMISSION_DENIED", "The key has a higher role", {"role": key.role})
    return key


def _checkRole(call: ConsoleCall, role: str) -> None:
    """
    Refuse to give a role that is too high.

    @raise ServiceError: C{PERMISSION_DENIED}: the role is higher than the caller's own.
    """
    if ROLES.index(role) > ROLES.index(call.who.role):
        raise codedError("PERMISSION_DENIED", "The role is higher than your own", {"role": role})


def _changed(name: str, read: Callable[[str], str], value: str | UnsetType) -> str | UnsetType:
    """Read a text that may be unset or empty, which removes it."""
    return value if isinstance(value, UnsetType) or not value else _read(name, read, value)


def _read(name: str, read: Callable[[V], V], value: V) -> V:
    with _named(name):
        return read(value)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Turn the C{ValueError} of a reader into the error of a field."""
    try:
        yield
    except ValueError as error:
        raise codedError("INVALID_ARGUMENT", f"{name}: {error}", {"field": name}) from error
