"""
The keys of buckets, which stand between master keys and object keys.

A bucket has one key for each master key that encrypts objects in it, kept wrapped as a setting of
the bucket. The key never changes: after a rotation of the master key only its wrapped form does. An
open key stays in memory for a limited time, so a provider of master keys gets one call for a bucket
in that time, not one for an object. A new key takes two: it is unwrapped before its first use.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from twisted.internet.defer import Deferred

from storagegate.core.cache import TTLCache
from storagegate.core.streams import SharedFuture
from storagegate.objects.encryption.interfaces import IMasterKeys
from storagegate.objects.encryption.sealing import KEY_BYTES
from storagegate.objects.errors import DomainError, MasterKeysUnavailable, WrongMasterKey
from storagegate.storage.errors import SettingsChanged
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.mutations import PutSettings
from storagegate.storage.records import BUCKET_KEY, KEYED

T = TypeVar("T")

_ID_BYTES = 8

_TRIES = 100
"""Attempts to make a key while keys of the same bucket are made for other master keys."""

OPEN_KEYS = 4096
"""The most bucket keys that are open in memory, a MiB."""


class BucketKey(Struct, frozen=True):
    """
    A wrapped bucket key, stored as JSON.

    @ivar masterKey: The name of the master key.
    @ivar wrapped: The key as the provider wrapped it, with the binding of L{bindingOf}.
    @ivar createdMs: When the key was made, in milliseconds since the epoch.
    """

    masterKey: str
    wrapped: str
    createdMs: int


readBucketKey = msgspec.json.Decoder(BucketKey).decode
"""Decodes the document of a bucket key."""


@lru_cache(maxsize=256)
def _settingPrefix(masterKey: str) -> str:
    """Return the first part of the names of settings with keys for a master key."""
    return f"{BUCKET_KEY}{hashlib.sha256(masterKey.encode()).hexdigest()[:16]}-"


def _keyFor(documents: Mapping[str, bytes], prefix: str) -> str | None:
    """Return the id of the key of a bucket whose setting has a prefix; L{None} if it has none."""
    for name in documents:
        if name.startswith(prefix):
            return name.removeprefix(BUCKET_KEY)
    return None


def bindingOf(bucket: str, keyId: str) -> bytes:
    """Return the binding of a wrapped bucket key, see L{IMasterKeys.wrap}."""
    return b"storagegate bucket key\0" + bucket.encode() + b"\0" + keyId.encode()


def keysIn(documents: Mapping[str, bytes]) -> dict[str, BucketKey]:
    """Return the wrapped keys in the settings of a bucket, by id."""
    return {
        name.removeprefix(BUCKET_KEY): readBucketKey(document)
        for name, document in documents.items()
        if name.startswith(BUCKET_KEY)
    }


async def proveWrapped(
    masterKeys: IMasterKeys, name: str, wrapped: str, binding: bytes, plain: bytes
) -> None:
    """
    Check that a wrapped bucket key opens again: nothing else keeps the key, and a provider may wrap
    for a client for which it does not unwrap.

    @param name: The name of the master key.
    @raise WrongMasterKey: It opens as another key.
    @raise DomainError: The errors of L{IMasterKeys.unwrap}.
    """
    if await masterKeys.unwrap(name, wrapped, binding) != plain:
        raise WrongMasterKey()


class BucketKeys:
    """
    The bucket keys of a store. Methods: reactor thread.

    @ivar hits: How many uses of a bucket key needed no call of the provider.
    @ivar calls: The number of calls of the provider, by operation and result.
    @ivar onForget: Called when all open keys are closed.
    """

    def __init__(
        self,
        catalog: ICatalog,
        masterKeys: Callable[[], IMasterKeys] | None,
        now: Callable[[], float],
        keyCacheSeconds: float,
        seconds: Callable[[], float],
    ) -> None:
        """
        @param masterKeys: Returns the provider; called with the first key.
        @param now: Returns seconds since the epoch.
        @param keyCacheSeconds: How long an open key stays in memory.
        @param seconds: Returns the monotonic time.
        """
        self._catalog: Any = catalog
        self._makeMasterKeys = masterKeys
        self._masterKeys: IMasterKeys | None = None
        self._now = now
        self._seconds, self._keyCacheSeconds = seconds, keyCacheSeconds
        self._open: TTLCache[tuple[str, bytes], bytes] = TTLCache(
            OPEN_KEYS, seconds, keyCacheSeconds
        )
        self._loading: dict[tuple[str, bytes | str], SharedFuture[Any]] = {}
        self.hits = 0
        self.onForget: Callable[[], object] = lambda: None
        self.calls: Counter[tuple[str, str]] = Counter()

    @property
    def masterKeys(self) -> IMasterKeys:
        """
        The provider of master keys.

        @raise MasterKeysUnavailable: The store has none.
        """
        if self._masterKeys is None:
            if self._makeMasterKeys is None:
                raise MasterKeysUnavailable()
            self._masterKeys = self._makeMasterKeys()
            self._masterKeys.onChange = self.forget
        return self._masterKeys

    def forget(self) -> None:
        """Close all open keys, so that the next use asks the provider."""
        self._open = TTLCache(OPEN_KEYS, self._seconds, self._keyCacheSeconds)
        self.onForget()

    def endOf(self, bucket: str, documents: Mapping[str, bytes], keyId: str) -> float | None:
        """
        Return when an open bucket key is closed, by the monotonic time; L{None} if it is not open.
        """
        document = documents.get(BUCKET_KEY + keyId)
        return None if document is None else self._open.endOf((bucket, document))

    def recall(self, bucket: str, documents: Mapping[str, bytes], keyId: str) -> bytes | None:
        """
        Return a bucket key if it is open, as it is for nearly all requests.

        @param documents: The settings of the bucket.
        """
        document = documents.get(BUCKET_KEY + keyId)
        opened = None if document is None else self._open.get((bucket, document))
        if opened is not None:
            self.hits += 1
        return opened

    def recallFor(
        self, bucket: str, documents: Mapping[str, bytes], masterKey: str
    ) -> tuple[str, bytes] | None:
        """Return what L{forMaster} returns, if the key is open."""
        keyId = _keyFor(documents, _settingPrefix(masterKey))
        opened = None if keyId is None else self.recall(bucket, documents, keyId)
        return None if keyId is None or opened is None else (keyId, opened)

    async def find(self, bucket: str, documents: Mapping[str, bytes], keyId: str) -> bytes:
        """
        Return an open bucket key.

        @param documents: The settings of the bucket.
        @raise WrongMasterKey: The bucket has no such key, or it does not open.
        @raise DomainError: The errors of L{IMasterKeys.unwrap}.
        """
        opened = self.recall(bucket, documents, keyId)
        if opened is not None:
            return opened
        document = documents.get(BUCKET_KEY + keyId)
        if document is None:
            # The settings may be older than the object.
            documents = await self._settings(bucket)
            document = documents.get(BUCKET_KEY + keyId)
            if document is None:
                raise WrongMasterKey()
            opened = self.recall(bucket, documents, keyId)
            if opened is not None:
                return opened
        wrapped = document
        return await self._shared((bucket, wrapped), lambda: self._unwrap(bucket, keyId, wrapped))

    async def forMaster(
        self, bucket: str, documents: Mapping[str, bytes], masterKey: str
    ) -> tuple[str, bytes]:
        """
        Return the id and the open key of a bucket for a master key; make the key if there is none.

        @param documents: See L{find}.
        @raise DomainError: The errors of L{IMasterKeys}.
        """
        prefix = _settingPrefix(masterKey)
        present = _keyFor(documents, prefix)
        if present is not None:
            return present, await self.find(bucket, documents, present)
        made, documents = await self._shared(
            (bucket, prefix), lambda: self._make(bucket, prefix, masterKey)
        )
        return made, await self.find(bucket, documents, made)

    async def _make(
        self, bucket: str, prefix: str, masterKey: str
    ) -> tuple[str, Mapping[str, bytes]]:
        """Make a key of a bucket, unless another process does; return its id and the settings."""
        setting = prefix + os.urandom(_ID_BYTES).hex()
        made = setting.removeprefix(BUCKET_KEY)
        key, opened, wrapped = os.urandom(KEY_BYTES), self._open, ""
        for _ in range(_TRIES):
            documents = await self._settings(bucket)
            keyId = _keyFor(documents, prefix)
            if keyId is not None:
                return keyId, documents
            if not wrapped:
                masterKeys, binding = self.masterKeys, bindingOf(bucket, made)
                with self._counted("wrap"):
                    wrapped = await masterKeys.wrap(masterKey, key, binding)
                with self._counted("unwrap"):
                    await proveWrapped(masterKeys, masterKey, wrapped, binding, key)
            document = msgspec.json.encode(BucketKey(masterKey, wrapped, int(self._now() * 1000)))
            # The setting that names the last key changes with each, so that two processes cannot
            # make one each.
            settings = {setting: document, KEYED: made.encode()}
            with suppress(SettingsChanged):
                await self._catalog.commit(
                    PutSettings(bucket, settings, {KEYED: documents.get(KEYED)})
                )
                opened.put((bucket, document), key, self._seconds() + self._keyCacheSeconds)
                return made, {setting: document}
        raise SettingsChanged

    async def _settings(self, bucket: str) -> Mapping[str, bytes]:
        documents: Mapping[str, bytes]
        _, documents = await self._catalog.settings(bucket)
        return documents

    async def _unwrap(self, bucket: str, keyId: str, document: bytes) -> bytes:
        kept = readBucketKey(document)
        # If a master key is disabled in the meantime, L{forget} replaces these.
        opened = self._open
        with self._counted("unwrap"):
            key = await self.masterKeys.unwrap(
                kept.masterKey, kept.wrapped, bindingOf(bucket, keyId)
            )
        if len(key) != KEY_BYTES:
            raise WrongMasterKey()
        opened.put((bucket, document), key, self._seconds() + self._keyCacheSeconds)
        return key

    @contextmanager
    def _counted(self, operation: str) -> Iterator[None]:
        """Count a call of the provider."""
        result = "error"
        try:
            yield
            result = "ok"
        except DomainError as error:
            result = error.code
            raise
        finally:
            self.calls[operation, result] += 1

    async def _shared(self, name: tuple[str, bytes | str], load: Callable[[], Awaitable[T]]) -> T:
        """Load a value; concurrent callers share one load, which goes on if they are cancelled."""
        future = self._loading.get(name)
        if future is None:
            future = self._loading[name] = SharedFuture()

            async def run(made: SharedFuture[Any]) -> None:
                try:
                    made.set(await load())
                except Exception as error:
                    made.fail(error)
                finally:
                    del self._loading[name]

            Deferred.fromCoroutine(run(future))
        found: T = await future.wait()
        return found
