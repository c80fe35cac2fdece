"""
Who may come in: the root pair of the configuration and the keys that the operator issued.

Issued keys live in the catalog, where another process adds and removes them; the store polls their
generation twice a second in the background, so a running daemon obeys within a second.

What an issued key may do: a kind of access, narrowed by a bucket and a key pattern.

Patterns are globs of two signs: C{*} is any run of characters (slashes too), C{?} is one.
"""

import hmac
import re
from collections.abc import Callable
from functools import lru_cache

from attrs import field, frozen

from storagegate.s3.errors import S3Error
from storagegate.s3.operation import Operation
from storagegate.storage.accesskeys import AccessKeySnapshot
from storagegate.storage.errors import StoreBusy
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
    """Find the credential of an access key. Reactor thread, synchronously."""

    def __init__(self, keys: AccessKeySnapshot, rootAccessKey: str, rootSecretKey: str) -> None:
        """@param keys: The issued keys of the store, which keeps them fresh."""
        self._keys = keys
        self._generation = -1
        self._issued: dict[str, AccountKey] = {}
        self.setRoot(rootAccessKey, rootSecretKey)

    def setRoot(self, accessKey: str, secretKey: str) -> None:
        """Exchange the root pair, at once."""
        identity = Identity(accessKey, ROOT_ACCOUNT, isRoot=True)
        self._root = AccountKey(identity, secretKey)

    def find(self, accessKey: str) -> AccountKey | None:
        """
        Look an access key up; the root pair wins over an issued key of the same name.

        @raise StoreBusy: The catalog could not be read for the last time: a key may be revoked.
        """
        if accessKey == self._root.identity.accessKey:
            return self._root
        keys = self._keys
        if keys.problem is not None:
            raise StoreBusy(f"access keys were not read: {keys.problem}")
        if keys.generation != self._generation:
            self._issued = {name: _credentialOf(key) for name, key in keys.keys.items()}
            self._generation = keys.generation
        return self._issued.get(accessKey)

    def prove(self, accessKey: str, secretKey: bytes) -> Identity | None:
        """Give the identity of a whole key pair; how long it takes tells nothing of the secret."""
        credential = self.find(accessKey)
        # An unknown key is compared too: its refusal takes as long as a wrong secret's.
        expected = credential.secretKey.encode() if credential is not None else b"\0"
        matches = hmac.compare_digest(secretKey, expected)
        return credential.identity if credential is not None and matches else None


_LISTS = frozenset({"ListObjects", "ListObjectsV2", "ListObjectVersions", "ListMultipartUploads"})


def authorise(policy: KeyPolicy, access: str, bucket: str, key: bytes | None) -> None:
    """
    Ask a policy for one access.

    @param bucket: Empty for the service itself.
    @raise S3Error: C{AccessDenied}.
    """
    name = key.decode("utf-8", "replace") if key is not None else None
    if not policy.allows(access, bucket or None, name):
        raise S3Error("AccessDenied")


def authoriseOperation(
    policy: KeyPolicy, operation: Operation, bucket: str, key: bytes, prefix: str = ""
) -> None:
    """
    Ask a policy for what an operation does.

    A list is asked for by its prefix; what names several objects judges each of them itself.

    @param key: Empty where the bucket or the service is addressed.
    @param prefix: What a list is asked for by.
    @raise S3Error: C{AccessDenied}.
    """
    named: bytes | None = key or None
    if not key and operation.name in _LISTS:
        named = prefix.encode()
        if not policy.coversPrefix(prefix):
            raise S3Error("AccessDenied")
    authorise(policy, operation.access.value, bucket, named)
