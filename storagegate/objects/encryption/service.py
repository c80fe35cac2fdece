"""The encryption of objects: the keys of writes and reads."""

import os
from collections.abc import Callable, Mapping

from storagegate.core.cache import TTLCache
from storagegate.core.hmacs import PreparedKey, prepareKey
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
    WRAP_SALT,
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

STORE_DEFAULT = RequestedEncryption(SSE_S3)
"""The encryption of writes that name none, if all writes are encrypted."""

_OpenKey = tuple[ObjectKey, str, bytes]
"""An object key, with the bucket and the key of its object."""

_Wrapping = tuple[RequestedEncryption, str, PreparedKey]
"""The encryption of writes to a bucket, with the id and the open key of the bucket."""


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
        seconds: Callable[[], float],
    ) -> None:
        """See L{BucketKeys}, and L{storagegate.objects.encryption.options.EncryptionOptions}."""
        self.bucketKeys = BucketKeys(catalog, masterKeys, now, keyCacheSeconds, seconds)
        self._encryptAll = encryptAll
        # Beside an open bucket key it keeps no secret that memory would not have. It saves half of
        # the work of a small read, and the read of the salt before a range. A wrapped key, by which
        # it finds them, never repeats.
        self._opened: TTLCache[str, _OpenKey] = TTLCache(OPEN_KEYS, seconds, keyCacheSeconds)
        # By bucket, generation of its settings, and requested kind.
        self._wrappings: TTLCache[tuple[str, int, str], _Wrapping] = TTLCache(
            OPEN_KEYS, seconds, keyCacheSeconds
        )
        self._seconds, self._keyCacheSeconds = seconds, keyCacheSeconds
        self.bucketKeys.onForget = self._forget

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
            bucketKey, outer = "", prepareKey(wanted.customerKey.key)
        else:
            master = masterKeyName(wanted) or self.bucketKeys.masterKeys.defaultKey
            keys = self.bucketKeys
            found = keys.recallFor(bucket.name, documents, master)
            if found is None:
                found = await keys.forMaster(bucket.name, documents, master)
            bucketKey, outer = found[0], prepareKey(found[1])
            end = keys.endOf(bucket.name, documents, bucketKey)
            if end is not None and (requested is None or requested == STORE_DEFAULT):
                name = (bucket.name, bucket.generation, "" if requested is None else SSE_S3)
                self._wrappings.put(name, (wanted, bucketKey, outer), end)
        return self._made(bucket.name, key, wanted, bucketKey, outer, requested, shared)

    def recallForWrite(
        self, bucket: Bucket, key: bytes, requested: RequestedEncryption | None
    ) -> ObjectKey | None:
        """
        Make the key of a new object, if the settings of its bucket and the key of the bucket are
        open in memory; see L{forWrite}. They are for nearly all writes that name no parameters.
        """
        if requested is not None and requested != STORE_DEFAULT:
            return None
        name = (bucket.name, bucket.generation, "" if requested is None else SSE_S3)
        found = self._wrappings.get(name)
        if found is None:
            return None
        wanted, bucketKey, outer = found
        self.bucketKeys.hits += 1
        return self._made(bucket.name, key, wanted, bucketKey, outer, requested)

    def _made(
        self,
        bucket: str,
        key: bytes,
        wanted: RequestedEncryption,
        bucketKey: str,
        outer: PreparedKey,
        requested: RequestedEncryption | None,
        shared: bytes | None = None,
    ) -> ObjectKey:
        """
        Make an object key, and wrap it.

        @param wanted: From L{chosen}.
        @param bucketKey: The id of the key of the bucket; empty for the client's key.
        @param outer: The key that wraps it.
        """
        random = os.urandom(KEY_BYTES + WRAP_SALT)
        plain = random[:KEY_BYTES] if shared is None else shared
        binding = bindingOf(wanted.kind, bucket, key, wanted.context)
        encryption = ObjectEncryption(
            wanted.kind,
            wrapKey(outer, plain, binding, random[KEY_BYTES:]),
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
        recalled = self.recall(bucket, key, encryption)
        if recalled is not None:
            return recalled
        keys, keyId = self.bucketKeys, encryption.bucketKey
        outer = keys.recall(bucket, documents, keyId) or await keys.find(bucket, documents, keyId)
        opened = self._unwrapped(outer, bucket, key, encryption, WrongMasterKey)
        # An object key is not kept for longer than the key of its bucket.
        end = keys.endOf(bucket, documents, keyId)
        if end is not None:
            self._opened.put(encryption.wrapped, (opened, bucket, key), end)
        return opened

    def recall(self, bucket: str, key: bytes, encryption: ObjectEncryption) -> ObjectKey | None:
        """
        Return the key of an object if it is open, as it is for most reads of the same objects.

        @param key: See L{open}. No key of a client is kept.
        """
        found = self._opened.get(encryption.wrapped)
        if found is None:
            return None
        opened, ofBucket, ofKey = found
        if key != ofKey or bucket != ofBucket or encryption != opened.encryption:
            return None
        self.bucketKeys.hits += 1
        return opened

    def _forget(self) -> None:
        self._opened = TTLCache(OPEN_KEYS, self._seconds, self._keyCacheSeconds)
        self._wrappings = TTLCache(OPEN_KEYS, self._seconds, self._keyCacheSeconds)

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
