"""
Rewrapping: the bucket keys of a store are wrapped under the last version of their master keys.

The bucket keys stay the same, so no object changes. Keys that the last version has wrapped are left
alone, so a repetition goes on where an interrupted one ended.
"""

from collections.abc import Awaitable, Callable, Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from storagegate.objects.encryption.bucketkeys import bindingOf, keysIn, proveWrapped
from storagegate.objects.encryption.interfaces import IMasterKeys
from storagegate.objects.errors import (
    MasterKeyDisabled,
    MasterKeyNotFound,
    WrongMasterKey,
)
from storagegate.storage.errors import NoSuchBucket, SettingsChanged
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.mutations import PutSettings
from storagegate.storage.records import BUCKET_KEY, KEYED

Put = Callable[[PutSettings], Awaitable[object]]

PAGE = 20
"""Buckets in a page: with Vault, each takes a few requests."""


class RewrapResult(Struct, frozen=True, kw_only=True):
    """
    The result of rewrapping the keys of some buckets.

    @ivar rewrapped: The number of rewrapped keys.
    @ivar current: The number of keys that needed nothing.
    @ivar failed: The keys that could not be rewrapped, each with its bucket and the reason.
    @ivar next: The name of the last bucket, after which the next page begins; L{None} on the last
        page.
    """

    rewrapped: int = 0
    current: int = 0
    failed: tuple[str, ...] = ()
    next: str | None = None

    def plus(self, other: "RewrapResult") -> "RewrapResult":
        """Add the result for further buckets."""
        return RewrapResult(
            rewrapped=self.rewrapped + other.rewrapped,
            current=self.current + other.current,
            failed=(*self.failed, *other.failed),
            next=other.next,
        )


async def rewrapPage(catalog: ICatalog, masterKeys: IMasterKeys, after: str) -> RewrapResult:
    """
    Rewrap the keys of a page of buckets.

    @param after: Buckets with names after this one; empty begins.
    @raise MasterKeysUnavailable: The provider cannot be reached; a repetition goes on here.
    """
    names = await catalog.bucketsWith(KEYED, after, PAGE)
    total = RewrapResult()
    if names:
        # The provider learns the last versions, for isCurrent.
        await masterKeys.keys()
    for name in names:
        try:
            _, documents = await catalog.settings(name)
        except NoSuchBucket:
            continue
        total = total.plus(await rewrapBucket(name, documents, masterKeys, catalog.commit))
    return replace(total, next=names[-1] if len(names) == PAGE else None)


async def rewrapBucket(
    bucket: str, documents: Mapping[str, bytes], masterKeys: IMasterKeys, put: Put
) -> RewrapResult:
    """
    Rewrap the keys of a bucket.

    @param documents: The settings of the bucket.
    @param put: Commits a change of settings.
    @raise MasterKeysUnavailable: The provider cannot be reached.
    """
    rewrapped = current = 0
    failed: list[str] = []
    for keyId, key in keysIn(documents).items():
        if masterKeys.isCurrent(key.masterKey, key.wrapped):
            current += 1
            continue
        binding = bindingOf(bucket, keyId)
        try:
            plain = await masterKeys.unwrap(key.masterKey, key.wrapped, binding)
            wrapped = await masterKeys.wrap(key.masterKey, plain, binding)
            await proveWrapped(masterKeys, key.masterKey, wrapped, binding, plain)
        except (MasterKeyNotFound, MasterKeyDisabled, WrongMasterKey) as error:
            failed.append(f"{bucket}: {key.masterKey}: {error.code}")
            continue
        setting = BUCKET_KEY + keyId
        document = msgspec.json.encode(replace(key, wrapped=wrapped))
        try:
            await put(PutSettings(bucket, {setting: document}, {setting: documents[setting]}))
        except SettingsChanged:
            # Another process has rewrapped it.
            current += 1
        except NoSuchBucket:
            break
        else:
            rewrapped += 1
    return RewrapResult(rewrapped=rewrapped, current=current, failed=tuple(failed))
