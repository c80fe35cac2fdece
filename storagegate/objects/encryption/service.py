"""The encryption of objects: the keys of writes and reads."""

import os
from collections.abc import Callable, Mapping

from storagegate.core.cache import TTLCache
from storagegate.objects.encryption.bucketkeys import BucketKeys
from storagegate.objects.encryption.interfaces import IMasterKeys
from storagegate.objects.encryption.requests import (
    SSE_KMS,
    SSE_S3,
    BucketEncryption,
    CustomerKey,
    RequestedEncryption,
    checkAllowed,
    checkKeySent,
)
from storagegate.objects.encryption.sealing import (
    KEY_BYTES,
    ObjectKey,
    Unopened,
    bindingOf,
    unwrapKey,
    wrapKey,
)
from storagegate.objects.errors import AccessDenied, DomainError, WrongMasterKey
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.records import Bucket, ObjectEncryption

OPEN_KEYS = 1024
"""The most object keys that are open in memory: about the objects of the catalog's cache."""

_Name = tuple[bytes, str, bytes, ObjectEncryption]

STORE_DEFAULT = RequestedEncryption(SSE_S3)
"""The encryption of writes that name none, if all writes are encrypted."""


class Encryption:
    """
    The encryption of the objects of one store. L{EncryptionOptions
    <storagegate.objects.encryption.options.EncryptionOptions>} opens it with the first encrypted
    object.

    @ivar bucketKeys: The bucket keys of the store.
    """

    def __init__(
        self,
        catalog: ICatalog,
        masterKeys: Callable[[], IMasterKeys] | None,
        now: Callable[[], float],
        encryptAll: bool,
        keyCacheSeconds: float,
    ) -> None:
        """See L{BucketKeys}, and L{storagegate.objects.encryption.options.EncryptionOptions}."""
        self.bucketKeys = BucketKeys(catalog, masterKeys, now, keyCacheSeconds)
        self._encryptAll = encryptAll
        # Beside an open bucket key it keeps no secret that memory would not have. It saves half of
        # the work of a small read, and the read of the salt before a range.
        self._opened: TTLCache[_Name, ObjectKey] = TTLCache(OPEN_KEYS, now, keyCacheSeconds)
        self._now, self._seconds = now, keyCacheSeconds

    def chosen(
        self, configuration: BucketEncryption | None, requested: RequestedEncryption | None
    ) -> RequestedEncryption | None:
        """
        Choose the encryption of a write: the request's, the bucket's or the store's default.

        @param configuration: The encryption configuration of the bucket.
        @raise AccessDenied: The bucket blocks the kind that the request names.
        """
        if requested is None:
            default = None if configuration is None else configuration.default
            return default or (STORE_DEFAULT if self._encryptAll else None)
        checkAllowed(configuration, requested.kind)
        return requested

    async def forWrite(
        self,
        bucket: Bucket,
        configuration: BucketEncryption | None,
        documents: Mapping[str, bytes],
        key: bytes,
        requested: RequestedEncryption | None,
        shared: bytes | None = None,
    ) -> ObjectKey | None:
        """
        Make the key of a new object or upload.

        @param bucket: As just looked up.
        @param configuration: The encryption configuration of the bucket.
        @param documents: The settings of the bucket.
        @param key: The key of the object, in UTF-8.
        @param requested: The encryption that the request names.
        @param shared: The object key of the source, if a copy shares its blobs.
        @return: L{None} for plain bytes.
        @raise DomainError: The errors of L{chosen} and of L{IMasterKeys}.
        """
        wanted = self.chosen(configuration, requested)
        if wanted is None:
            return None
        if wanted.customerKey is not None:
            outer, bucketKey = wanted.customerKey.key, ""
        else:
            master = masterKeyName(wanted) or self.bucketKeys.masterKeys.defaultKey
            keys = self.bucketKeys
            found = keys.recallFor(bucket.name, documents, master)
            if found is None:
                found = await keys.forMaster(bucket.name, documents, master)
            bucketKey, outer = found
        plain = os.urandom(KEY_BYTES) if shared is None else shared
        binding = bindingOf(wanted.kind, bucket.name, key, wanted.context)
        encryption = ObjectEncryption(
            wanted.kind,
            wrapKey(outer, plain, binding),
            bucketKey,
            wanted.keyId,
            wanted.context,
            bool(wanted.bucketKeyEnabled),
        )
        return ObjectKey(plain, encryption, requested)

    async def open(
        self,
        bucket: str,
        documents: Mapping[str, bytes],
        key: bytes,
        encryption: ObjectEncryption | None,
        customerKey: CustomerKey | None,
    ) -> ObjectKey | None:
        """
        Open the key of an object or upload.

        @param documents: The settings of the bucket.
        @param key: The key of the object, in UTF-8.
        @param customerKey: The key that the client sent.
        @return: L{None} for plain bytes.
        @raise InvalidRequest: The client's key is missing or superfluous.
        @raise AccessDenied: The client's key is another than the object's.
        @raise WrongMasterKey: The wrapped key is damaged, or belongs to another object.
        @raise DomainError: The errors of L{IMasterKeys.unwrap}.
        """
        checkKeySent(encryption, customerKey)
        if encryption is None:
            return None
        if customerKey is not None:
            return self._unwrapped(customerKey.key, bucket, key, encryption, AccessDenied)
        # An object key is not kept for longer than the key of its bucket.
        keys, keyId = self.bucketKeys, encryption.bucketKey
        outer = keys.recall(bucket, documents, keyId) or await keys.find(bucket, documents, keyId)
        name = (outer, bucket, key, encryption)
        opened = self._opened.get(name)
        if opened is None:
            opened = self._unwrapped(outer, bucket, key, encryption, WrongMasterKey)
            self._opened.put(name, opened, self._now() + self._seconds)
        return opened

    def _unwrapped(
        self,
        outer: bytes,
        bucket: str,
        key: bytes,
        encryption: ObjectEncryption,
        refusal: type[DomainError],
    ) -> ObjectKey:
        """Unwrap an object key, or raise the refusal."""
        binding = bindingOf(encryption.kind, bucket, key, encryption.context)
        try:
            return ObjectKey(unwrapKey(outer, encryption.wrapped, binding), encryption)
        except Unopened as error:
            raise refusal() from error


def masterKeyName(requested: RequestedEncryption) -> str:
    """Return the name of the master key of a request: the last part of an ARN or alias."""
    if requested.kind != SSE_KMS:
        return ""
    keyId = requested.keyId
    isPath = keyId.startswith(("arn:", "alias/"))
    return keyId.rpartition("/")[2] if isPath else keyId
