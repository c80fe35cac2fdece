"""
Identities: the account and the rights under which requests act, and the limits of access keys.

The policy of an issued key is a kind of access, narrowed by a bucket and a key pattern. Patterns
are globs: C{*} matches any run of characters, including slashes; C{?} matches one character.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any, Protocol

from attrs import define, field, frozen
from msgspec import Struct
from msgspec.structs import force_setattr

from storagegate.objects import errors
from storagegate.storage.records import AccessKey

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


class IdentityRights(Protocol):
    """What the domain needs of L{Rights<storagegate.objects.identities.rights.Rights>}."""

    @property
    def isUser(self) -> bool:
        """Whether a user's policies must allow each request."""

    @property
    def isWhole(self) -> bool:
        """Whether the rights are all rights of an account."""

    @property
    def isRoot(self) -> bool:
        """Whether the rights are those of the root pair, narrowed."""

    @property
    def principal(self) -> str:
        """See L{Identity.principal}."""

    @property
    def user(self) -> Any:
        """The user; L{None} for a service key of another key."""

    @property
    def role(self) -> Any:
        """The role; L{None} for the rights of a key."""

    @property
    def session(self) -> Any:
        """The session; L{None} for an access key."""

    @property
    def serviceKeys(self) -> tuple[str, ...]:
        """The service key, and the service keys that bound it."""

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags of the user."""

    def evaluate(self, action: str, context: Any, resource: str | None = None) -> bool | None:
        """Evaluate the policies for a request."""

    def covers(
        self, operation: str, bucket: str, key: bytes, headers: Mapping[bytes, bytes]
    ) -> bool:
        """Return whether the policies are known to allow a request for an object."""

    def denies(self, action: str, context: Any, resource: str | None = None) -> bool:
        """Return whether a statement denies a request."""

    def couldAllow(self, identity: "Identity", action: str) -> bool | None:
        """Return what L{evaluate} could return for some resource."""

    def explain(self, action: str, context: Any, resource: str | None = None) -> errors.Refusal:
        """Find the rule by which L{evaluate} has not returned L{True}."""


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
    @ivar role: The administration role of a person who signed in at an issuer; empty for keys.
    @ivar ownerAccount: The account whose buckets and objects need no permission, if no policy
        denies; empty for users, and for keys and sessions with a policy of their own. Compare it,
        and never C{account}, with the owner of a bucket or an object to skip a decision.
    """

    accessKey: str
    account: str
    policy: KeyPolicy = FULL_ACCESS
    isRoot: bool = False
    isAnonymous: bool = False
    rights: IdentityRights | None = None
    role: str = ""
    principal: str = ""
    ownerAccount: str = ""

    def __post_init__(self) -> None:
        rights = self.rights
        force_setattr(self, "principal", self.accessKey if rights is None else rights.principal)
        isWhole = rights is None or rights.isWhole
        force_setattr(self, "ownerAccount", self.account if isWhole else "")

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
    """

    identity: Identity
    secretKey: str = field(repr=False)
    issued: AccessKey | None = None
    isUsed: bool = False

    @property
    def isTemporary(self) -> bool:
        """Whether the key is the temporary key of a session."""
        rights = self.identity.rights
        return rights is not None and rights.session is not None

    @property
    def role(self) -> str:
        """
        The administration role of the key's owner: one of L{ROLES}. The key of a user and a service
        key have none: an administrator can issue keys that no policy bounds. Only a person has the
        role that the issuer names.
        """
        if self.identity.rights is not None:
            return self.identity.role or "none"
        return "root" if self.issued is None else self.issued.role


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
