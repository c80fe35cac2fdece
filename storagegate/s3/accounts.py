"""
Who may come in: the root pair of the configuration and the keys that the operator issued.

Issued keys live in the catalog, where another process adds and removes them; a running daemon
looks at the catalog's generation number at most twice a second and so obeys within a second.

What an issued key may do: a kind of access, narrowed by a bucket and a key pattern.

Patterns are globs of two signs: C{*} is any run of characters (slashes too), C{?} is one.
"""

import hmac
import re
from collections.abc import Callable
from functools import lru_cache

from attrs import field, frozen
from twisted.internet.interfaces import IReactorTime

from storagegate.storage.interfaces import ICatalog
from storagegate.storage.records import AccessKey

_GRANTS = {
    "readwrite": frozenset({"read", "write", "list", "admin"}),
    "readonly": frozenset({"read", "list"}),
    "writeonly": frozenset({"write"}),
}

POLICIES = tuple(_GRANTS)
"""The names of the policies that a key can have."""


@lru_cache(maxsize=1024)
def _matcher(pattern: str) -> Callable[[str], object]:
    # Each middle piece is found leftmost and kept (an atomic group), as globs allow: so a pattern
    # of many stars cannot backtrack, and a match costs at most the text times the last piece.
    first, *rest = [re.escape(run).replace(r"\?", ".") for run in re.split(r"\*+", pattern)]
    if rest:
        *middle, last = rest
        first += "".join(f"(?>.*?{piece})" for piece in middle) + f".*{last}"
    return re.compile(first, re.DOTALL).fullmatch


def matchesGlob(pattern: str, text: str) -> bool:
    """Say whether C{text} as a whole matches C{pattern}; an empty pattern matches everything."""
    return not pattern or _matcher(pattern)(text) is not None


@frozen
class KeyPolicy:
    """
    What one key may do within its account.

    @ivar kind: One of L{POLICIES}.
    """

    kind: str = "readwrite"
    bucketPattern: str = ""
    prefixPattern: str = ""

    def allows(self, access: str, bucket: str | None, key: str | None) -> bool:
        """
        Judge one access.

        @param access: C{"read"}, C{"write"}, C{"list"} or C{"admin"} (creating and deleting
            buckets, and their configuration).
        @param bucket: L{None} for the service itself.
        @param key: The object's key, or for a list the prefix that is asked for; L{None} where
            no key is concerned.
        """
        if access not in _GRANTS[self.kind]:
            return False
        if access == "admin" and self.prefixPattern:
            return False  # a bucket is more than the keys that match
        if (
            bucket is not None
            and self.bucketPattern
            and not matchesGlob(self.bucketPattern, bucket)
        ):
            return False
        return key is None or not self.prefixPattern or matchesGlob(self.prefixPattern, key)

    def coversPrefix(self, prefix: str) -> bool:
        """Say whether every key that begins with C{prefix} is one that the key may see."""
        pattern = self.prefixPattern
        # The star at the end takes whatever follows: only so does one match stand for them all.
        return not pattern or (pattern.endswith("*") and matchesGlob(pattern, prefix))


FULL_ACCESS = KeyPolicy()


REFRESH_SECONDS = 0.5
"""Half of the second within which a revoked key must stop working."""

ROOT_ACCOUNT = "root"
"""The account of the root pair: it owns what it creates and may act on everything."""


@frozen
class Identity:
    """
    On whose behalf a request acts.

    @ivar account: The account that owns what is created.
    @ivar isRoot: Whether buckets of other accounts are open too.
    """

    accessKey: str
    account: str
    policy: KeyPolicy = FULL_ACCESS
    isRoot: bool = False


@frozen
class AccountKey:
    """A secret and the identity that it proves."""

    identity: Identity
    secretKey: str = field(repr=False)


def _credentialOf(key: AccessKey) -> AccountKey:
    policy = KeyPolicy(key.policy, key.bucketPattern, key.prefixPattern)
    return AccountKey(Identity(key.accessKey, key.account, policy), key.secretKey)


class AccessKeyStore:
    """Find the credential of an access key. Reactor thread."""

    def __init__(
        self, catalog: ICatalog, clock: IReactorTime, rootAccessKey: str, rootSecretKey: str
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._generation = -1
        self._checkAt = 0.0
        self._issued: dict[str, AccountKey] = {}
        self.setRoot(rootAccessKey, rootSecretKey)

    def setRoot(self, accessKey: str, secretKey: str) -> None:
        """Exchange the root pair, at once."""
        identity = Identity(accessKey, ROOT_ACCOUNT, isRoot=True)
        self._root = AccountKey(identity, secretKey)

    def find(self, accessKey: str) -> AccountKey | None:
        """Look an access key up; the root pair wins over an issued key of the same name."""
        if accessKey == self._root.identity.accessKey:
            return self._root
        now = self._clock.seconds()
        if now >= self._checkAt:
            self._refresh()
            self._checkAt = now + REFRESH_SECONDS
        return self._issued.get(accessKey)

    def prove(self, accessKey: str, secretKey: bytes) -> Identity | None:
        """Give the identity of a whole key pair; how long it takes tells nothing of the secret."""
        credential = self.find(accessKey)
        # An unknown key is compared too: its refusal takes as long as a wrong secret's.
        expected = credential.secretKey.encode() if credential is not None else b"\0"
        matches = hmac.compare_digest(secretKey, expected)
        return credential.identity if credential is not None and matches else None

    def _refresh(self) -> None:
        generation = self._catalog.keysGeneration()
        if generation != self._generation:
            keys = self._catalog.accessKeys()
            self._issued = {key.accessKey: _credentialOf(key) for key in keys}
            self._generation = generation
