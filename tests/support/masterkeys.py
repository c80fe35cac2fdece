"""Master keys in memory, for tests of what uses them."""

import os
from base64 import b64decode, b64encode
from collections.abc import Sequence
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from twisted.internet.defer import Deferred
from zope.interface import implementer

from storagegate.objects.encryption.interfaces import IMasterKeys, MasterKey
from storagegate.objects.errors import (
    MasterKeyDisabled,
    MasterKeyExists,
    MasterKeyNotFound,
    MasterKeysUnavailable,
    WrongMasterKey,
)


@implementer(IMasterKeys)
class MemoryMasterKeys:
    """
    A provider that counts its calls.

    @ivar wraps: Number of calls of C{wrap}.
    @ivar unwraps: Number of calls of C{unwrap}.
    @ivar problem: Set it to make all calls fail.
    @ivar gate: If set, calls wait for it.
    """

    def __init__(self, *names: str, defaultKey: str = "main") -> None:
        self.defaultKey = defaultKey
        self.problem: str | None = None
        self.wraps = self.unwraps = 0
        self.gate: Deferred[None] | None = None
        self._versions = {name: [_made(name, 1)] for name in (defaultKey, *names)}
        self._disabled: set[str] = set()

    async def wrap(self, name: str, plain: bytes, binding: bytes) -> str:
        """See L{IMasterKeys.wrap}."""
        self.wraps += 1
        versions = await self._find(name)
        nonce = os.urandom(12)
        sealed = nonce + AESGCM(versions[-1]).encrypt(nonce, plain, binding)
        return f"{len(versions)}:{b64encode(sealed).decode()}"

    async def unwrap(self, name: str, wrapped: str, binding: bytes) -> bytes:
        """See L{IMasterKeys.unwrap}."""
        self.unwraps += 1
        versions = await self._find(name)
        version, _, text = wrapped.partition(":")
        sealed = b64decode(text)
        try:
            return AESGCM(versions[int(version) - 1]).decrypt(sealed[:12], sealed[12:], binding)
        except InvalidTag as error:
            raise WrongMasterKey() from error

    def isCurrent(self, name: str, wrapped: str) -> bool:
        """See L{IMasterKeys.isCurrent}."""
        return wrapped.startswith(f"{len(self._versions[name])}:")

    async def newKey(self, name: str) -> None:
        """See L{IMasterKeys.newKey}."""
        if name in self._versions:
            raise MasterKeyExists()
        self._versions[name] = [_made(name, 1)]

    async def rotate(self, name: str) -> None:
        """See L{IMasterKeys.rotate}."""
        self._versions[name].append(_made(name, len(self._versions[name]) + 1))

    async def disable(self, name: str, disabled: bool) -> None:
        """See L{IMasterKeys.disable}."""
        (self._disabled.add if disabled else self._disabled.discard)(name)

    async def keys(self) -> Sequence[MasterKey]:
        """See L{IMasterKeys.keys}."""
        return [
            MasterKey(name, len(versions), 0, name in self._disabled, name == self.defaultKey)
            for name, versions in sorted(self._versions.items())
        ]

    async def close(self) -> None:
        """See L{IMasterKeys.close}."""

    async def _find(self, name: str) -> list[bytes]:
        if self.gate is not None:
            await self.gate
        if self.problem is not None:
            raise MasterKeysUnavailable()
        if name not in self._versions:
            raise MasterKeyNotFound()
        if name in self._disabled:
            raise MasterKeyDisabled()
        return self._versions[name]


def _made(name: str, version: int) -> bytes:
    return sha256(f"{name} {version}".encode()).digest()
