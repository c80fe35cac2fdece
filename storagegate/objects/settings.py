"""
The settings of buckets: their documents by name, and their compiled form.

Each change gives a bucket's settings a new generation in the catalog, and every look-up of the
bucket returns the generation. So compiled settings are used while the generation is the same, and
processes need not be notified of changes.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from storagegate.objects.access.acl import decodeList
from storagegate.objects.access.decision import (
    NO_BLOCK,
    OBJECT_WRITER,
    BucketAccess,
    PublicAccessBlock,
)
from storagegate.objects.access.policy import compilePolicy
from storagegate.objects.cors import CORSRule
from storagegate.objects.encryption.requests import BucketEncryption
from storagegate.objects.lifecycle import LIFECYCLE, LifecycleRule
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.records import Bucket

POLICY: Final = "policy"
ACL: Final = "acl"
CORS: Final = "cors"
ENCRYPTION: Final = "encryption"
OWNERSHIP: Final = "ownershipControls"
PUBLIC_ACCESS_BLOCK: Final = "publicAccessBlock"
TAGS: Final = "tagging"

KEPT_BYTES = 8 << 20
"""Limit of the cache, in bytes of documents: 400 policies of the largest size."""

# The approximate size of a bucket's settings besides their documents.
_OVERHEAD = 1024


class BucketSettings(Struct, frozen=True, eq=False):
    """
    The settings of a bucket at one generation.

    @ivar documents: The stored documents by name.
    @ivar access: The access settings.
    @ivar cors: The CORS rules.
    @ivar lifecycle: The lifecycle rules.
    @ivar encryption: The encryption configuration; L{None} for none.
    """

    documents: Mapping[str, bytes]
    access: BucketAccess
    cors: tuple[CORSRule, ...] = ()
    lifecycle: tuple[LifecycleRule, ...] = ()
    encryption: BucketEncryption | None = None

    @property
    def size(self) -> int:
        """The approximate size in bytes, for the limit of the cache."""
        return _OVERHEAD + sum(map(len, self.documents.values()))


_decodeRules = msgspec.json.Decoder(tuple[CORSRule, ...]).decode
_decodeLifecycle = msgspec.json.Decoder(tuple[LifecycleRule, ...]).decode


def compileSettings(bucket: Bucket, documents: Mapping[str, bytes]) -> BucketSettings:
    """
    Compile the settings of a bucket.

    @param documents: The stored documents by name; empty for a bucket without settings.
    """
    policy, acl = documents.get(POLICY), documents.get(ACL)
    block = documents.get(PUBLIC_ACCESS_BLOCK)
    access = BucketAccess(
        bucket.account,
        None if policy is None else compilePolicy(policy, bucket.name),
        None if acl is None else decodeList(acl.decode()),
        NO_BLOCK if block is None else msgspec.json.decode(block, type=PublicAccessBlock),
        ownershipOf(bucket, documents) or OBJECT_WRITER,
    )
    rules, lifecycle = documents.get(CORS), documents.get(LIFECYCLE)
    encryption = documents.get(ENCRYPTION)
    return BucketSettings(
        documents,
        access,
        () if rules is None else _decodeRules(rules),
        () if lifecycle is None else _decodeLifecycle(lifecycle),
        None if encryption is None else msgspec.json.decode(encryption, type=BucketEncryption),
    )


# Users need a decision on each request, mostly for buckets without settings of few accounts.
@lru_cache(maxsize=256)
def _withoutSettings(account: str, ownership: str) -> BucketSettings:
    access = BucketAccess(account, ownership=ownership or OBJECT_WRITER)
    return BucketSettings({}, access, (), ())


def ownershipOf(bucket: Bucket, documents: Mapping[str, bytes]) -> str:
    """Return the object ownership of a bucket; empty if it has none."""
    document = documents.get(OWNERSHIP)
    return bucket.ownership if document is None else document.decode()


class SettingsCache:
    """
    The compiled settings of buckets. Must be used in the reactor thread.

    @ivar kept: Returns the settings of a generation if they are cached, else L{None}.
    """

    def __init__(self, catalog: ICatalog) -> None:
        self._catalog: Any = catalog
        self._kept: dict[int, BucketSettings] = {}
        # Each request with settings calls it twice: a method would double the time.
        self.kept = self._kept.get
        self._bytes = 0

    async def find(self, bucket: Bucket) -> BucketSettings:
        """
        Return the settings of a bucket, or a newer state of them.

        @param bucket: The bucket as just looked up.
        """
        kept = self.kept(bucket.generation)
        if kept is not None:
            return kept
        if not bucket.generation:
            return _withoutSettings(bucket.account, bucket.ownership)
        generation, documents = await self._catalog.settings(bucket.name)
        settings = compileSettings(bucket, documents)
        if generation and generation not in self._kept:
            self._kept[generation] = settings
            self._bytes += settings.size
        while self._bytes > KEPT_BYTES:
            # Evict the oldest; settings in use are compiled again.
            self._bytes -= self._kept.pop(next(iter(self._kept))).size
        return settings
