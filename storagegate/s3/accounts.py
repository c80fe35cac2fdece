"""
Access keys: the root pair of the configuration and the keys that the operator issued.

Issued keys live in the catalog, where another process adds and removes them; the store polls their
generation twice a second in the background, so a change takes effect within a second. A key that is
disabled or has expired is as good as revoked.

The policy of an issued key is a kind of access, narrowed by a bucket and a key pattern. Patterns
are globs: C{*} is any run of characters (slashes too), C{?} is one.
"""

import hmac
import time
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from math import inf

from attrs import define, field, frozen

from storagegate.s3.errors import S3Error
from storagegate.storage.errors import StoreBusy
from storagegate.storage.records import AccessKey
from storagegate.storage.store import AccessKeySnapshot

_GRANTS = {
    "readwrite": frozenset({"read", "write", "list", "admin"}),
    "readonly": frozenset({"read", "list"}),
    "writeonly": frozenset({"write"}),
}

POLICIES = tuple(_GRANTS)
"""The names of the policies that a key can have."""

ROLES = ("none", "auditor", "admin", "root")
"""
What the owner of a key may administer, each more than the one before: nothing; see everything but
objects; change everything but the root pair; everything, which only the root pair may.
"""


@lru_cache(maxsize=1024)
def globMatcher(pattern: str) -> Callable[[str], bool]:
    """
    Compile a glob.

    @param pattern: Empty for everything.
    @return: Tells whether a text as a whole matches.
    """
    # With the first request: an idle daemon has none to match.
    from storagegate.s3.access.patterns import matcher, tokenise

    return matcher(tokenise(pattern or "*", wildcards=True, variables=False))


@frozen
class KeyPolicy:
    """
    The rights of one access key within its account.

    @ivar kind: One of L{POLICIES}.
    @ivar bucketPattern: A glob; empty for every bucket.
    @ivar prefixPattern: A glob of keys; empty for every key.
    @ivar isUnlimited: Whether it grants every access.
    """

    kind: str = "readwrite"
    bucketPattern: str = ""
    prefixPattern: str = ""
    isUnlimited: bool = field(init=False, repr=False)
    _matchers: list[Callable[[str], bool]] = field(factory=list, init=False, repr=False, eq=False)

    @isUnlimited.default
    def _isUnlimited(self) -> bool:
        return self.kind == "readwrite" and not (self.bucketPattern or self.prefixPattern)

    def allows(self, access: str, bucket: str | None, key: str | None) -> bool:
        """
        Return whether an access is granted.

        @param access: C{"read"}, C{"write"}, C{"list"} or C{"admin"} (creating and deleting
            buckets, and their configuration).
        @param bucket: L{None} for the service itself.
        @param key: The object's key, or the prefix of a list; L{None} if no key is concerned.
        """
        if access not in _GRANTS[self.kind]:
            return False
        if access == "admin" and self.prefixPattern:
            return False  # a bucket is more than the keys that match
        matchesBucket, matchesKey = self._matchers or self._compile()
        if bucket is not None and not matchesBucket(bucket):
            return False
        return key is None or matchesKey(key)

    def coversPrefix(self, prefix: str) -> bool:
        """Return whether the pattern matches every key that begins with C{prefix}."""
        pattern = self.prefixPattern
        # A star at the end matches any continuation, so one match stands for all keys.
        if not pattern:
            return True
        _, matchesKey = self._matchers or self._compile()
        return pattern.endswith("*") and matchesKey(prefix)

    def _compile(self) -> list[Callable[[str], bool]]:
        """
        Compile both patterns, with the first request that has proved to be of this key.

        Those of a thousand keys take a tenth of a second; done with the look-up, it would show
        which keys exist.
        """
        self._matchers[:] = globMatcher(self.bucketPattern), globMatcher(self.prefixPattern)
        return self._matchers


FULL_ACCESS = KeyPolicy()


ROOT_ACCOUNT = "root"
"""The account of the root pair, which may use every bucket."""


ANONYMOUS_ACCOUNT = ""
"""The account of requests without credentials; no key can have it."""

_ANONYMOUS_ID = "65a011a29cdf8ec533ec3d1ccaae921c"
# Amazon's own, of half the length of others.


# The accounts of one page are few: with 256 a listing does not format each row's owner.
@lru_cache(maxsize=256)
def canonicalId(account: str) -> str:
    """Return an account's 64 hexadecimal digits, which follow from its name in every store."""
    if account == ANONYMOUS_ACCOUNT:
        return _ANONYMOUS_ID
    return sha256(b"storagegate account " + account.encode()).hexdigest()


@frozen
class Identity:
    """
    The account and the rights under which a request acts.

    @ivar account: The owner of new buckets and objects.
    @ivar isRoot: Whether buckets of other accounts may be used too.
    @ivar isAnonymous: Whether the request has no credentials.
    """

    accessKey: str
    account: str
    policy: KeyPolicy = FULL_ACCESS
    isRoot: bool = False
    isAnonymous: bool = False

    def authorise(
        self, access: str, bucket: str = "", key: bytes = b"", prefix: str | None = None
    ) -> None:
        """
        Decide on an access by the policy of the key.

        @param access: C{"read"}, C{"write"}, C{"list"} or C{"admin"}.
        @param bucket: Empty for the service itself.
        @param key: Empty if the access concerns the bucket or the service.
        @param prefix: The prefix of the keys that a list shows; L{None} if it shows none.
        @raise S3Error: C{AccessDenied}.
        """
        policy = self.policy
        if policy.isUnlimited:
            return
        name = key.decode("utf-8", "replace") if key else prefix
        covered = prefix is None or policy.coversPrefix(prefix)
        if not (covered and policy.allows(access, bucket or None, name)):
            raise S3Error("AccessDenied")


ANONYMOUS = Identity("", ANONYMOUS_ACCOUNT, isAnonymous=True)
"""The identity of requests without credentials."""


@define(eq=False)
class AccountKey:
    """
    A secret and the identity that it proves.

    @ivar issued: The row that it was made of; C{None} for the root pair.
    @ivar isUsed: Whether it has proved an identity since this was set to false.
    """

    identity: Identity
    secretKey: str = field(repr=False)
    issued: AccessKey | None = None
    isUsed: bool = False

    @property
    def role(self) -> str:
        """What its owner may administer: one of L{ROLES}."""
        return "root" if self.issued is None else self.issued.role


class AccessKeyStore:
    """Find the credential of an access key. Reactor thread, synchronously."""

    def __init__(
        self,
        keys: AccessKeySnapshot,
        rootAccessKey: str,
        rootSecretKey: str,
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        @param keys: The issued keys of the store, which keeps them fresh.
        @param rootSecretKey: The secret of C{rootAccessKey}.
        @param now: The time, in seconds since 1970.
        """
        self._keys = keys
        self._now = now
        self._generation = -1
        # Whether any key expires; if so, when the keys were judged, and when the next one expires.
        # Expired keys are valid again when a clock that was ahead is set right.
        self._areLimited = False
        self._judgedAt = 0.0
        self._expiry = inf
        self._issued: dict[str, AccountKey] = {}
        self._names: dict[str, str] = {}
        self._namesGeneration = -2
        keys.users.add(self)
        self.setRoot(rootAccessKey, rootSecretKey)

    def setRoot(self, accessKey: str, secretKey: str) -> None:
        """Replace the root pair."""
        identity = Identity(accessKey, ROOT_ACCOUNT, isRoot=True)
        self._root = AccountKey(identity, secretKey)

    def find(self, accessKey: str) -> AccountKey | None:
        """
        Look an access key up; the root pair wins over an issued key of the same name.

        @raise StoreBusy: The keys are in doubt, so this one may have been revoked.
        """
        if accessKey == self._root.identity.accessKey:
            return self._root
        keys = self._keys
        if keys.isInDoubt:
            raise StoreBusy(f"access keys were not read: {keys.problem or 'no answer'}")
        if keys.generation != self._generation or (
            self._areLimited and not self._judgedAt <= self._now() < self._expiry
        ):
            self._readKeys()
        return self._issued.get(accessKey)

    def takeUsed(self) -> list[str]:
        """Return the issued keys that were used since this was called last."""
        used = [name for name, each in self._issued.items() if each.isUsed]
        for name in used:
            self._issued[name].isUsed = False
        return used

    def _readKeys(self) -> None:
        """Take over the keys that are valid now."""
        before, self._issued = self._issued, {}
        now, self._expiry = self._now(), inf
        self._judgedAt = now
        self._areLimited = any(key.expiresMs for key in self._keys.keys.values())
        for name, key in self._keys.keys.items():
            expiry = key.expiresMs / 1000 if key.expiresMs else inf
            if key.disabled or expiry <= now:
                continue
            self._expiry = min(self._expiry, expiry)
            known = before.get(name)
            # What has not changed stays, with its patterns compiled.
            if known is None or known.issued != key:
                policy = KeyPolicy(key.policy, key.bucketPattern, key.prefixPattern)
                identity = Identity(key.accessKey, key.account, policy)
                known = AccountKey(identity, key.secretKey, key)
            self._issued[name] = known
        self._generation = self._keys.generation

    def isAccountId(self, accountId: str) -> bool:
        """Return whether the root account or that of an issued key has a canonical id."""
        return accountId in self._accounts()

    def hasAccount(self, account: str) -> bool:
        """Return whether there is an account of this name: the root one, or that of a key."""
        return canonicalId(account) in self._accounts()

    def hasUser(self, account: str, accessKey: str) -> bool:
        """Return whether an account has a key, be it usable now or not."""
        key = self._keys.keys.get(accessKey)
        if key is not None:
            return key.account == account
        return account == ROOT_ACCOUNT and accessKey == self._root.identity.accessKey

    async def refresh(self) -> None:
        """Read the issued keys as they are now: another process may have issued one."""
        await self._keys.refresh()

    def accountsOf(self, email: str) -> list[str]:
        """
        Return the accounts whose keys carry an address.

        @param email: In lower case.
        """
        return sorted(
            {key.account for key in self._keys.keys.values() if key.email.lower() == email}
        )

    def nameOf(self, accountId: str) -> str | None:
        """Return the name of an account by its canonical id; L{None} if no key has it."""
        return self._accounts().get(accountId)

    def _accounts(self) -> dict[str, str]:
        """Return the names of accounts by canonical id; they are for lists only, which are rare."""
        keys = self._keys
        if keys.generation != self._namesGeneration:
            names = {ROOT_ACCOUNT, *(key.account for key in keys.keys.values())}
            self._names = {canonicalId(name): name for name in names}
            self._namesGeneration = keys.generation
        return self._names

    def prove(self, accessKey: str, secretKey: bytes) -> Identity | None:
        """
        Return the identity of a key pair, in constant time.

        @param secretKey: As the client sent it.
        @return: L{None} for an unknown key or a wrong secret.
        """
        credential = self.find(accessKey)
        # An unknown key is compared too: its refusal takes as long as that of a wrong secret.
        expected = credential.secretKey.encode() if credential is not None else b"\0"
        matches = hmac.compare_digest(secretKey, expected)
        if credential is None or not matches:
            return None
        credential.isUsed = True
        return credential.identity
