"""
Users of people who sign in at an OpenID Connect issuer.

A person is the user C{ISSUER/SUB}: its path is the name of the issuer in the configuration, and its
name is C{sub}. A C{sub} that cannot be the name of a user, or whose name another user has, gets a
name with a hash instead, C{TEXT=HASH}, and if that is taken, too, a number after it. The hash
contains the issuer and the whole C{sub}, so no two people have one name.

The user is found by the digest of the person, C{IAMUser.person}, which only a sign-in sets. So a
user that IAM made first, with keys of its maker, never becomes the user of a person, and a person
keeps a user that was renamed or moved.
"""

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import count
from typing import Any

from attrs import frozen
from msgspec.structs import replace

from storagegate.objects.identities.entities import AccountState, IAMUser
from storagegate.objects.identities.groups import GROUPS_OF_USER_LIMIT
from storagegate.objects.identities.lookup import checkCount, newId, operatorKey
from storagegate.objects.identities.users import USERS_LIMIT
from storagegate.objects.identities.validation import TAGS_LIMIT
from storagegate.objects.tags import isTagText

CLAIMS = ("email", "name", "preferred_username")
"""The claims that become tags of the user."""

CLAIMED_LIMIT = 1000
"""Groups of a claim; a person is a member of a few hundred in the largest directories."""

# Without an equals sign, so that no name of this form is one of the other form; in lower case,
# because names of users differ by more than case and subjects may not.
_PLAIN = re.compile(r"[a-z0-9_+,.@-]{1,64}")
_UNSAFE = re.compile(r"[^a-z0-9_+,.@-]+")
_TEXT_LENGTH = 40
_HASH_LENGTH = 20
_MARK_LENGTH = 32

_TAG_LENGTH = 256


@frozen
class Person:
    """
    A person, as an issuer describes it.

    @ivar source: The name of the issuer in the configuration.
    @ivar issuer: The URL of the issuer.
    @ivar subject: The C{sub} of the person, which is unique at the issuer.
    @ivar tags: Tags of the user.
    @ivar groups: The claimed names of groups; L{None} leaves the groups of the user as they are.
    """

    source: str
    issuer: str
    subject: str
    tags: Mapping[str, str]
    groups: tuple[str, ...] | None


def claimOf(claims: Mapping[str, Any], name: str) -> Any:
    """
    Return a claim.

    @param name: The name of a claim, or names of nested claims with dots between them.
    @return: L{None} if the claim is missing.
    """
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def claimedNames(claims: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the texts of a claim that is a text or a list of texts."""
    found = claimOf(claims, name)
    items = [found] if isinstance(found, str) else found if isinstance(found, list) else []
    named = items[:CLAIMED_LIMIT]
    return tuple(each for each in named if isinstance(each, str) and each and each.isprintable())


def claimedTags(claims: Mapping[str, Any]) -> dict[str, str]:
    """Return the claims that become tags, without values that no tag can have."""
    return {
        name: value
        for name in CLAIMS
        if isinstance(value := claims.get(name), str)
        and 0 < len(value) <= _TAG_LENGTH
        and isTagText(value, _TAG_LENGTH)
    }


def putPerson(state: AccountState, person: Person, nowMs: int) -> tuple[AccountState, IAMUser]:
    """
    Create the user of a person, or renew its groups and tags.

    Only groups that exist are joined.

    @return: The new state, and the user.
    @raise LimitExceeded: The account has too many users.
    """
    mark = _markOf(person)
    user = _userOf(state, mark)
    if user is None:
        checkCount(len(state.users()), "UsersPerAccount", USERS_LIMIT)
        # The name of a key of an operator is that of a user, too.
        taken = {key.lower() for key in state.keys if operatorKey(state, key)}
        name = next(
            each
            for each in _namesOf(person)
            if state.user(each) is None and each.lower() not in taken
        )
        user = IAMUser(
            name=name,
            id=newId(state, IAMUser),
            path=f"/{person.source}/",
            createdMs=nowMs,
            person=mark,
        )
    # Keys of tags differ by more than case.
    tags = {key: value for key, value in user.tags.items() if key.lower() not in CLAIMS}
    room = TAGS_LIMIT - len(tags)
    groups = user.groups
    if person.groups is not None:
        found = (state.group(name) for name in person.groups)
        keys = dict.fromkeys(group.key for group in found if group is not None)
        groups = tuple(keys)[:GROUPS_OF_USER_LIMIT]
    user = replace(user, tags={**tags, **dict(list(person.tags.items())[:room])}, groups=groups)
    return state.withEntity(user), user


def _namesOf(person: Person) -> Iterator[str]:
    """Yield the possible names of a person, the preferred one first."""
    subject = person.subject
    digest = sha256(f"{person.issuer}\0{subject}".encode()).hexdigest()[:_HASH_LENGTH]
    text = _UNSAFE.sub("-", subject.lower())[:_TEXT_LENGTH]
    if _PLAIN.fullmatch(subject):
        yield subject
    yield f"{text}={digest}"
    for number in count(2):
        suffix = f"={number}"
        yield f"{text[: _TEXT_LENGTH - len(suffix)]}={digest}{suffix}"


def _markOf(person: Person) -> str:
    """Return the digest of a person of an issuer of the configuration."""
    whole = f"{person.source}\0{person.issuer}\0{person.subject}"
    return sha256(whole.encode()).hexdigest()[:_MARK_LENGTH]


def _userOf(state: AccountState, mark: str) -> IAMUser | None:
    return next((user for user in state.users() if user.person == mark), None)
