"""
Access keys: the root pair of the configuration and the keys that the operator issued.

Issued keys live in the catalog, where another process adds and removes them; the store polls their
generation twice a second in the background, so a change takes effect within a second. A disabled or
expired key is treated as revoked.
"""

import hmac
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from storagegate.objects.principals import ANONYMOUS as ANONYMOUS
from storagegate.objects.principals import ANONYMOUS_ACCOUNT as ANONYMOUS_ACCOUNT
from storagegate.objects.principals import FULL_ACCESS as FULL_ACCESS
from storagegate.objects.principals import POLICIES as POLICIES
from storagegate.objects.principals import ROLES as ROLES
from storagegate.objects.principals import ROOT_ACCOUNT as ROOT_ACCOUNT
from storagegate.objects.principals import AccountKey as AccountKey
from storagegate.objects.principals import Identity as Identity
from storagegate.objects.principals import KeyPolicy as KeyPolicy
from storagegate.objects.principals import Signing as Signing
from storagegate.objects.principals import canonicalId as canonicalId
from storagegate.objects.principals import globMatcher as globMatcher
from storagegate.storage.accesskeys import AccessKeySnapshot
from storagegate.storage.errors import StoreBusy
from storagegate.storage.records import AccessKey, AccountDocuments

if TYPE_CHECKING:
    from storagegate.objects.identities.sessions import SessionStore


def accountNames(keys: Iterable[AccessKey]) -> frozenset[str]:
    """
    Return the accounts that exist: the root account, and the account of each issued key, usable or
    not.
    """
    return frozenset({ROOT_ACCOUNT, *(key.account for key in keys)})


_MOST_PEOPLE = 1000
"""People whose compiled policies are kept: as many as one console serves at once."""


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
        # The documents of accounts to which the keys are bound.
        self._identities: Mapping[str, AccountDocuments] = {}
        self._names: dict[str, str] = {}
        self._namesGeneration = -2
        self._people: dict[tuple[str, str, str], AccountKey] = {}
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

    def findPerson(self, account: str, name: str, role: str) -> AccountKey | None:
        """
        Look up a user who signed in at an issuer.

        @param name: The name of the user.
        @param role: The administration role that the issuer names.
        @return: The rights of the user, as a key that signs nothing: its access key is the path and
            name of the user, and its secret is the id of the user, which no other user ever has.
            L{None} if the user is missing or disabled.
        @raise StoreBusy: The users could not be read, so this user may have been disabled.
        """
        keys = self._keys
        if keys.isInDoubt:
            raise StoreBusy(f"cannot read users: {keys.problem or 'no answer'}")
        from storagegate.objects.identities.rights import bindPerson

        at = (account, name, role)
        found = bindPerson(account, name, role, keys.identities, self._people.get(at))
        if found is None:
            self._people.pop(at, None)
            return None
        if len(self._people) >= _MOST_PEOPLE and at not in self._people:
            self._people.clear()
        self._people[at] = found
        return found

    def renew(self, key: AccountKey) -> AccountKey | None:
        """
        Return the current state of a key or a person; L{None} if it is no longer valid.

        @raise StoreBusy: See L{find}.
        """
        identity, issued = key.identity, key.issued
        if identity.role and issued is not None:
            return self.findPerson(identity.account, issued.userName, identity.role)
        return self.find(identity.accessKey)

    @cached_property
    def sessions(self) -> "SessionStore":
        """The sessions, which are temporary keys."""
        # Most stores have no sessions.
        from storagegate.objects.identities.sessions import SessionStore

        return SessionStore(self._keys, self.find, self._now)

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
            if key.isBound:
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

            identities, former = self._keys.identities, self._identities
            KeyBinder(bound, identities, self._root, self._issued, before, former).bind()
        self._identities = self._keys.identities
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

    def hasRoleNamed(self, account: str, name: str) -> bool:
        """
        Return whether an account has a role of a name, in any path.

        @param name: Its name without the path.
        """
        from storagegate.objects.identities.sessions import findRole

        role = findRole(self._keys.identities.get(account), name.lower())
        return role is not None and role.name == name

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
