"""
The entities of an account: users, groups, roles, managed policies and OIDC providers.

Each entity is stored as one JSON document. The names of one kind are unique within an account
without regard to case. An ARN has the name of the account where Amazon has its number, as in the
policies of buckets::

    arn:aws:iam::ACCOUNT:user/PATH/NAME
"""

import secrets
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from storagegate.storage.records import AccessKey, AccountDocuments

_ID_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_ID_LENGTH = 17


def makeId(prefix: str) -> str:
    """
    Make the unique id of a new entity, in Amazon's form.

    @param prefix: The four letters of the kind: L{Entity.idPrefix}.
    """
    return prefix + "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))


class Entity(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    An entity of an account.

    @cvar kind: The kind, as ARNs and the store name it.
    @cvar idPrefix: The beginning of its unique ids.
    @ivar id: The unique id, such as C{AIDA...}, which is never used again.
    @ivar path: Begins and ends with a slash.
    """

    kind: ClassVar[str]
    idPrefix: ClassVar[str]

    name: str
    id: str = ""
    path: str = "/"
    createdMs: int = 0
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The name in lower case, by which the entity is stored."""
        return self.name.lower()

    @property
    def resource(self) -> str:
        """The last part of the ARN, such as C{user/PATH/NAME}."""
        return f"{self.kind}{self.path}{self.name}"

    def arn(self, account: str) -> str:
        """Return the ARN of the entity in an account."""
        return f"arn:aws:iam::{account}:{self.resource}"


class PolicyHolder(Entity, frozen=True, kw_only=True, omit_defaults=True):
    """
    An entity with policies.

    @ivar policies: The documents of the inline policies, by name.
    @ivar attached: The ARNs of the attached managed policies, in the order of attachment.
    """

    policies: dict[str, str] = field(default_factory=dict)
    attached: tuple[str, ...] = ()


class IAMUser(PolicyHolder, frozen=True, kw_only=True, omit_defaults=True):
    """
    A user.

    @ivar groups: The stored names of its groups: L{Entity.key}.
    @ivar disabled: Whether all its keys and sessions are refused, and it may not sign in.
    @ivar revokedBeforeMs: Sessions that began before this time are refused.
    @ivar person: The digest of the person who signs in as this user; empty for none. Only a sign-in
        sets it.
    """

    kind: ClassVar[str] = "user"
    idPrefix: ClassVar[str] = "AIDA"

    groups: tuple[str, ...] = ()
    disabled: bool = False
    revokedBeforeMs: int = 0
    person: str = ""


class Group(PolicyHolder, frozen=True, kw_only=True, omit_defaults=True):
    """A group, whose policies apply to its users."""

    kind: ClassVar[str] = "group"
    idPrefix: ClassVar[str] = "AGPA"


class Role(PolicyHolder, frozen=True, kw_only=True, omit_defaults=True):
    """
    A role.

    @ivar trust: The document of the trust policy.
    @ivar maxSessionSeconds: The longest session.
    @ivar disabled: Whether it cannot be assumed.
    @ivar revokedBeforeMs: Sessions that began before this time are refused.
    """

    kind: ClassVar[str] = "role"
    idPrefix: ClassVar[str] = "AROA"

    trust: str = ""
    description: str = ""
    maxSessionSeconds: int = 3600
    disabled: bool = False
    revokedBeforeMs: int = 0


class PolicyVersion(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A version of a managed policy."""

    document: str
    createdMs: int = 0


class ManagedPolicy(Entity, frozen=True, kw_only=True, omit_defaults=True):
    """
    A managed policy.

    @ivar versions: The versions by id: C{v1}, C{v2} and so on.
    @ivar default: The id of the version that applies.
    @ivar lastVersion: The number of the newest version, which may have been deleted.
    @ivar updatedMs: When the policy, or its default version, last changed.
    """

    kind: ClassVar[str] = "policy"
    idPrefix: ClassVar[str] = "ANPA"

    versions: dict[str, PolicyVersion]
    default: str = "v1"
    lastVersion: int = 1
    description: str = ""
    updatedMs: int = 0

    @property
    def document(self) -> str:
        """The document that applies."""
        return self.versions[self.default].document


class OIDCProvider(Entity, frozen=True, kw_only=True, omit_defaults=True):
    """
    An issuer of tokens. Its name is its URL without the scheme.

    @ivar scheme: C{https}, or C{http} for an issuer on a trusted network.
    @ivar clientIds: The accepted audiences.
    """

    kind: ClassVar[str] = "oidc-provider"
    idPrefix: ClassVar[str] = ""

    scheme: str = "https"
    clientIds: tuple[str, ...] = ()
    thumbprints: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """The issuer."""
        return f"{self.scheme}://{self.name}"


E = TypeVar("E", bound=Entity)

KINDS: Mapping[str, type[Entity]] = {
    each.kind: each for each in (IAMUser, Group, Role, ManagedPolicy, OIDCProvider)
}
"""The type of each kind."""

Entities = Mapping[tuple[str, str], Entity]
"""Entities by kind and stored name: L{Entity.key}."""


class AccountState(Struct, frozen=True, kw_only=True):
    """
    The entities and access keys of an account at one time.

    A change makes a new state from this one; L{storagegate.objects.identities.store} stores the
    difference.

    @ivar revision: Changes with each change of an entity; 0 for an account without entities.
    @ivar entities: All entities.
    @ivar keys: The keys of the account by access key, including its service keys and the keys of no
        user.
    """

    account: str
    revision: int = 0
    entities: Entities = field(default_factory=dict)
    keys: Mapping[str, AccessKey] = field(default_factory=dict)

    def user(self, name: str) -> IAMUser | None:
        """Find a user by name, in any case."""
        return self._find(IAMUser, name)

    def group(self, name: str) -> Group | None:
        """Find a group by name, in any case."""
        return self._find(Group, name)

    def role(self, name: str) -> Role | None:
        """Find a role by name, in any case."""
        return self._find(Role, name)

    def policy(self, name: str) -> ManagedPolicy | None:
        """Find a managed policy of the account by name, in any case."""
        return self._find(ManagedPolicy, name)

    def provider(self, name: str) -> OIDCProvider | None:
        """Find an OIDC provider by the URL without C{https://}."""
        return self._find(OIDCProvider, name)

    def users(self) -> list[IAMUser]:
        """Return all users by name."""
        return self._all(IAMUser)

    def groups(self) -> list[Group]:
        """Return all groups by name."""
        return self._all(Group)

    def roles(self) -> list[Role]:
        """Return all roles by name."""
        return self._all(Role)

    def managedPolicies(self) -> list[ManagedPolicy]:
        """Return all managed policies of the account by name."""
        return self._all(ManagedPolicy)

    def providers(self) -> list[OIDCProvider]:
        """Return all OIDC providers by name."""
        return self._all(OIDCProvider)

    def keysOf(self, user: IAMUser) -> list[AccessKey]:
        """Return the keys of a user, without service keys, oldest first."""
        found = [key for key in self.keys.values() if key.userName.lower() == user.key]
        return sorted(found, key=lambda key: (key.createdMs, key.accessKey))

    def serviceKeysOf(self, parent: str) -> list[AccessKey]:
        """
        Return the service keys that one parent bounds, oldest first.

        @param parent: As in L{AccessKey.parent}.
        """
        found = [key for key in self.keys.values() if key.parent == parent]
        return sorted(found, key=lambda key: (key.createdMs, key.accessKey))

    def withEntity(self, entity: Entity) -> "AccountState":
        """Return a state in which an entity is added, or replaces the one of its name."""
        return self.withEntities((entity,))

    def withEntities(self, entities: Iterable[Entity]) -> "AccountState":
        """Return a state in which entities are added, or replace those of their names."""
        added = {(entity.kind, entity.key): entity for entity in entities}
        return replace(self, entities={**self.entities, **added})

    def withoutEntity(self, entity: Entity) -> "AccountState":
        """Return a state without an entity."""
        gone = (entity.kind, entity.key)
        return replace(self, entities={k: v for k, v in self.entities.items() if k != gone})

    def withKey(self, key: AccessKey) -> "AccountState":
        """Return a state in which a key is added, or replaces the one of its name."""
        return replace(self, keys={**self.keys, key.accessKey: key})

    def withoutKey(self, accessKey: str) -> "AccountState":
        """Return a state without a key."""
        return replace(self, keys={k: v for k, v in self.keys.items() if k != accessKey})

    def _find(self, kind: type[E], name: str) -> E | None:
        entities: Mapping[tuple[str, str], Any] = self.entities
        found: E | None = entities.get((kind.kind, name.lower()))
        return found

    def _all(self, kind: type[E]) -> list[E]:
        found: list[Any] = [
            each for key, each in sorted(self.entities.items()) if key[0] == kind.kind
        ]
        return found


# Decoding the entities of an unchanged account again costs only a look-up.
@lru_cache(maxsize=4096)
def readEntity(kind: str, document: bytes) -> Entity:
    """
    Decode an entity.

    @param kind: A key of L{KINDS}.
    """
    return msgspec.json.decode(document, type=KINDS[kind])


def readEntities(documents: AccountDocuments) -> dict[tuple[str, str], Entity]:
    """Decode the entities of an account."""
    return {
        key: readEntity(key[0], document)
        for key, document in documents.documents.items()
        if key[0] in KINDS
    }


def encodeEntity(entity: Entity) -> bytes:
    """Encode an entity for the store."""
    return msgspec.json.encode(entity)
