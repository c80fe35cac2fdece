"""
Access keys: the root pair of the configuration and the keys that the operator issued.

Issued keys live in the catalog, where another process adds and removes them; the store polls their
generation twice a second in the background, so a change takes effect within a second. A disabled or
expired key is treated as revoked.

The policy of an issued key is a kind of access, narrowed by a bucket and a key pattern. Patterns
are globs: C{*} matches any run of characters, including slashes; C{?} matches one character.
"""

import hmac
import time
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from hashlib import sha256
from math import inf
from typing import TYPE_CHECKING

from attrs import define, field, frozen
from msgspec import Struct
from msgspec.structs import force_setattr

from storagegate.objects import errors
from storagegate.storage.accesskeys import AccessKeySnapshot
from storagegate.storage.errors import StoreBusy
from storagegate.storage.records import AccessKey

if TYPE_CHECKING:
    from storagegate.objects.identities.rights import Rights
    from storagegate.objects.identities.sessions import SessionStore

_GRANTS = {
    "readwrite": frozenset({"read", "write", "list", "admin"}),
    "readonly": frozenset({"read", "list"}),
    "writeonly": frozenset({"write"}),
}

POLICIES = tuple(_GRANTS)
"""The names of the policies that a key can have."""

ROLES = ("none", "auditor", "admin", "root")
"""
Administration roles, from least to most: none; an auditor reads everything but objects; an admin
changes everything but the root pair; root changes everything and is reserved for the root pair.
"""


@lru_cache(maxsize=1024)
def globMatcher(pattern: str) -> Callable[[str], bool]:
    """
    Compile a glob.

    @param pattern: Empty matches everything.
    @return: A function that returns whether a whole text matches.
    """
    # Loaded by the first request, which an idle daemon does not have.
    from storagegate.objects.access.patterns import matcher, tokenise

    return matcher(tokenise(pattern or "*", wildcards=True, variables=False))


@frozen
class KeyPolicy:
    """
    The rights of one access key within its account.

    @ivar kind: One of L{POLICIES}.
    @ivar bucketPattern: A glob; empty for every bucket.
    @ivar prefixPattern: A glob of keys; empty for every key.
    @ivar parent: The policy of the key that bounds a service key, which must also grant an access.
    @ivar isUnlimited: Whether the policy grants every access.
    """

    kind: str = "readwrite"
    bucketPattern: str = ""
    prefixPattern: str = ""
    parent: "KeyPolicy | None" = None
    isUnlimited: bool = field(init=False, repr=False)
    _matchers: list[Callable[[str], bool]] = field(factory=list, init=False, repr=False, eq=False)

    @isUnlimited.default
    def _isUnlimited(self) -> bool:
        isOpen = self.kind == "readwrite" and not (self.bucketPattern or self.prefixPattern)
        return isOpen and (self.parent is None or self.parent.isUnlimited)

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
        if self.parent is not None and not self.parent.allows(access, bucket, key):
            return False
        if access == "admin" and self.prefixPattern:
            return False  # a bucket contains more than the matching keys
        matchesBucket, matchesKey = self._matchers or self._compile()
        if bucket is not None and not matchesBucket(bucket):
            return False
        return key is None or matchesKey(key)

    def coversPrefix(self, prefix: str) -> bool:
        """Return whether the pattern matches every key that begins with C{prefix}."""
        pattern = self.prefixPattern
        if self.parent is not None and not self.parent.coversPrefix(prefix):
            return False
        # A trailing star matches any continuation, so one match covers all keys.
        if not pattern:
            return True
        _, matchesKey = self._matchers or self._compile()
        return pattern.endswith("*") and matchesKey(prefix)

    def explain(self, access: str, bucket: str) -> errors.Refusal:
        """
        Return the limit of the key that refuses an access.

        @param bucket: Empty for the service itself.
        """
        parent = self.parent
        if parent is not None and not parent.allows(access, bucket or None, None):
            return parent.explain(access, bucket)
        if not KeyPolicy(self.kind).allows(access, bucket or None, None):
            return errors.Refusal(f"the policy {self.kind} of the key does not include {access}")
        if access == "admin" and self.prefixPattern:
            return errors.Refusal("a key that is limited to some objects cannot administer")
        if not KeyPolicy(self.kind, self.bucketPattern).allows(access, bucket or None, None):
            return errors.Refusal(f"the key is limited to buckets that match {self.bucketPattern}")
        if parent is not None and not self.prefixPattern:
            return parent.explain(access, bucket)
        return errors.Refusal(f"the key is limited to object keys that match {self.prefixPattern}")

    def _compile(self) -> list[Callable[[str], bool]]:
        """
        Compile both patterns, on the first authenticated request with this key.

        Compiling the patterns of a thousand keys takes 0.1 s. Compiling at look-up would reveal by
        its timing which keys exist.
        """
        self._matchers[:] = globMatcher(self.bucketPattern), globMatcher(self.prefixPattern)
        return self._matchers


FULL_ACCESS = KeyPolicy()


ROOT_ACCOUNT = "root"
"""The account of the root pair, which may use every bucket."""


ANONYMOUS_ACCOUNT = ""
"""The account of requests without credentials; no key can have it."""

_ANONYMOUS_ID = "65a011a29cdf8ec533ec3d1ccaae921c"
# Amazon's own id, half as long as other ids.


# A page lists few accounts: with 256 entries, a listing does not format the owner of each row.
@lru_cache(maxsize=256)
def canonicalId(account: str) -> str:
    """Return an account's canonical id: 64 hexadecimal digits, derived from its name."""
    if account == ANONYMOUS_ACCOUNT:
        return _ANONYMOUS_ID
    return sha256(b"storagegate account " + account.encode()).hexdigest()


def accountNames(keys: Iterable[AccessKey]) -> frozenset[str]:
    """
    Return the accounts that exist: the root account, and the account of each issued key, usable or
    not.
    """
    return frozenset({ROOT_ACCOUNT, *(key.account for key in keys)})


class Identity(Struct, frozen=True):
    """
    The account and the rights under which a request acts.

    @ivar account: The owner of new buckets and objects.
    @ivar isRoot: Whether the request may use the buckets of other accounts.
    @ivar isAnonymous: Whether the request has no credentials.
    @ivar rights: The rights of a user or a service key; L{None} for the root pair and other keys,
        which have all rights of their account.
    @ivar principal: The name in the ARN of the identity, C{user/PRINCIPAL}: the path and name of a
        user, or the access key of another key. A service key has the one of its parent.
    @ivar ownerAccount: The account whose buckets and objects need no permission, if no policy
        denies; empty for users and service keys. Compare it, and never C{account}, with the owner
        of a bucket or an object to skip a decision.
    """

    accessKey: str
    account: str
    policy: KeyPolicy = FULL_ACCESS
    isRoot: bool = False
    isAnonymous: bool = False
    rights: "Rights | None" = None
    principal: str = ""
    ownerAccount: str = ""

    def __post_init__(self) -> None:
        rights = self.rights
        force_setattr(self, "principal", self.accessKey if rights is None else rights.principal)
        force_setattr(self, "ownerAccount", self.account if rights is None else "")

    def authorise(
        self, access: str, bucket: str = "", key: bytes = b"", prefix: str | None = None
    ) -> None:
        """
        Check an access against the policy of the key.

        @param access: C{"read"}, C{"write"}, C{"list"} or C{"admin"}.
        @param bucket: Empty for the service itself.
        @param key: Empty if the access concerns the bucket or the service.
        @param prefix: The prefix of the keys that a list shows; L{None} for other operations.
        @raise AccessDenied: The policy does not grant it.
        """
        policy = self.policy
        if policy.isUnlimited:
            return
        name = key.decode("utf-8", "replace") if key else prefix
        covered = prefix is None or policy.coversPrefix(prefix)
        if not (covered and policy.allows(access, bucket or None, name)):
            raise errors.AccessDenied(explain=partial(policy.explain, access, bucket))


ANONYMOUS = Identity("", ANONYMOUS_ACCOUNT, isAnonymous=True)
"""The identity of requests without credentials."""


@define(eq=False)
class AccountKey:
    """
    A secret and the identity that it proves.

    @ivar issued: The row of the catalog; C{None} for the root pair.
    @ivar isUsed: Whether the key has proved an identity since this was reset.
    @ivar parent: The key that bounds a service key, or whose rights a session has.
    """

    identity: Identity
    secretKey: str = field(repr=False)
    issued: AccessKey | None = None
    isUsed: bool = False
    parent: "AccountKey | None" = field(default=None, repr=False)

    @property
    def isTemporary(self) -> bool:
        """Whether the key is the temporary key of a session."""
        rights = self.identity.rights
        return rights is not None and rights.session is not None

    @property
    def role(self) -> str:
        """
        The administration role of the key's owner: one of L{ROLES}. A service key has none that its
        parent does not have, and a session has none.
        """
        if self.isTemporary:
            return "none"
        role = "root" if self.issued is None else self.issued.role
        return role if self.parent is None else min(role, self.parent.role, key=ROLES.index)


class AccessKeyStore:
    """Look up the credentials of access keys. Synchronous; must run in the reactor thread."""

    def __init__(
        self,
        keys: AccessKeySnapshot,
        rootAccessKey: str,
        rootSecretKey: str,
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        @param keys: The issued keys, which the store refreshes.
        @param rootSecretKey: The secret of C{rootAccessKey}.
        @param now: The time, in seconds since 1970.
        """
        self._keys = keys
        self._now = now
        self._generation = -1
        # Whether any key expires; if so, when the keys were evaluated, and when the next one
        # expires. Expired keys become valid again when a clock that ran ahead is corrected.
        self._areLimited = False
        self._judgedAt = 0.0
        self._expiry = inf
        self._issued: dict[str, AccountKey] = {}
        self._names: dict[str, str] = {}
        self._namesGeneration = -2
        self._sessions: SessionStore | None = None
        keys.users.add(self)
        self.setRoot(rootAccessKey, rootSecretKey)

    def setRoot(self, accessKey: str, secretKey: str) -> None:
        """Replace the root pair."""
        identity = Identity(accessKey, ROOT_ACCOUNT, isRoot=True)
        self._root = AccountKey(identity, secretKey)
        # Its service keys are bound again.
        self._generation = -1

    def find(self, accessKey: str) -> AccountKey | None:
        """
        Look up an access key; the root pair takes precedence over an issued key of the same name.

        @raise StoreBusy: The keys could not be read, so this key may have been revoked.
        """
        if accessKey == self._root.identity.accessKey:
            return self._root
        keys = self._keys
        if keys.isInDoubt:
            raise StoreBusy(f"cannot read access keys: {keys.problem or 'no answer'}")
        if keys.generation != self._generation or (
            self._areLimited and not self._judgedAt <= self._now() < self._expiry
        ):
            self._readKeys()
        return self._issued.get(accessKey)

    @property
    def sessions(self) -> "SessionStore":
        """The sessions, which are temporary keys."""
        if self._sessions is None:
            # Most stores have no sessions.
            from storagegate.objects.identities.sessions import SessionStore

            self._sessions = SessionStore(self._keys, self.find, self._now)
        return self._sessions

    def takeUsed(self) -> list[str]:
        """Return the issued keys that were used since the last call."""
        used = [name for name, each in self._issued.items() if each.isUsed]
        for name in used:
            self._issued[name].isUsed = False
        return used

    def _readKeys(self) -> None:
        """Load the keys that are valid now."""
        before, self._issued = self._issued, {}
        now, self._expiry = self._now(), inf
        self._judgedAt = now
        keys = self._keys.keys
        self._areLimited = any(key.expiresMs for key in keys.values())
        bound: list[AccessKey] = []
        for name, key in keys.items():
            expiry = key.expiresMs / 1000 if key.expiresMs else inf
            if key.disabled or expiry <= now:
                continue
            self._expiry = min(self._expiry, expiry)
            if key.userName or key.parent:
                bound.append(key)
                continue
            known = before.get(name)
            # An unchanged key keeps its compiled patterns.
            if known is None or known.issued != key:
                policy = KeyPolicy(key.policy, key.bucketPattern, key.prefixPattern)
                identity = Identity(key.accessKey, key.account, policy)
                known = AccountKey(identity, key.secretKey, key)
            self._issued[name] = known
        if bound:
            # Most stores have no users.
            from storagegate.objects.identities.rights import KeyBinder

            KeyBinder(bound, self._keys.identities, self._root, self._issued, before).bind()
        self._generation = self._keys.generation

    def isAccountId(self, accountId: str) -> bool:
        """
        Return whether a canonical id belongs to the root account or the account of an issued key.
        """
        return accountId in self._accounts()

    def hasAccount(self, account: str) -> bool:
        """Return whether an account of this name exists: the root account, or a key's account."""
        return canonicalId(account) in self._accounts()

    def hasUser(self, account: str, name: str) -> bool:
        """
        Return whether an account has a user, or a key of no user, usable or not.

        @param name: An access key, or the path and name of a user without the leading slash.
        """
        key = self._keys.keys.get(name)
        if key is not None and key.account == account and not key.userName:
            return True
        if account == ROOT_ACCOUNT and name == self._root.identity.accessKey:
            return True
        return self._hasEntity(account, "user", name)

    def hasRole(self, account: str, name: str) -> bool:
        """
        Return whether an account has a role.

        @param name: Its path and name without the leading slash.
        """
        return self._hasEntity(account, "role", name)

    def _hasEntity(self, account: str, kind: str, name: str) -> bool:
        documents = self._keys.identities.get(account)
        if documents is None:
            return False
        from storagegate.objects.identities.entities import readEntity

        last = name.rpartition("/")[2].lower()
        document = documents.documents.get((kind, last))
        return document is not None and readEntity(kind, document).resource == f"{kind}/{name}"

    async def refresh(self) -> None:
        """Reload the issued keys: another process may have issued one."""
        await self._keys.refresh()

    def accountsOf(self, email: str) -> list[str]:
        """
        Return the accounts that have a key with an email address.

        @param email: In lower case.
        """
        return sorted(
            {key.account for key in self._keys.keys.values() if key.email.lower() == email}
        )

    def nameOf(self, accountId: str) -> str | None:
        """Return the name of an account by its canonical id; L{None} if no key belongs to it."""
        return self._accounts().get(accountId)

    def _accounts(self) -> dict[str, str]:
        """Return the names of accounts by canonical id; only listings use them, which are rare."""
        keys = self._keys
        if keys.generation != self._namesGeneration:
            names = accountNames(keys.keys.values()) | {
                account for account, found in keys.identities.items() if found.documents
            }
            self._names = {canonicalId(name): name for name in names}
            self._namesGeneration = keys.generation
        return self._names

    def prove(self, accessKey: str, secretKey: bytes) -> Identity | None:
        """
        Return the identity of a key pair, in constant time.

        @param secretKey: The secret that the client sent.
        @return: L{None} for an unknown key or a wrong secret.
        """
        credential = self.find(accessKey)
        # An unknown key is compared too: its refusal takes as long as the refusal of a wrong
        # secret.
        expected = credential.secretKey.encode() if credential is not None else b"\0"
        matches = hmac.compare_digest(secretKey, expected)
        if credential is None or not matches:
            return None
        credential.isUsed = True
        return credential.identity


class Signing(Struct, frozen=True):
    """
    The signature of a request.

    @ivar version: C{AWS4-HMAC-SHA256}, or C{AWS} for version 2.
    @ivar kind: C{REST-HEADER}, C{REST-QUERY-STRING} or C{POST}.
    @ivar seconds: Time of the signature, since the epoch; L{None} if the signature has none.
    """

    version: str
    kind: str
    seconds: int | None = None
