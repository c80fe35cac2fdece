"""The tags of users, roles, managed policies and OpenID Connect providers."""

from typing import Any

from msgspec.structs import replace

from storagegate.objects.identities.answers import Tag, TagPage
from storagegate.objects.identities.entities import AccountState, Entity
from storagegate.objects.identities.lookup import (
    IdentityRequest,
    changeableHolder,
    checkCount,
    holderOf,
    ownPolicy,
    pageOf,
    policyOf,
    providerOf,
)
from storagegate.objects.identities.validation import TAGS_LIMIT


def _changeable(state: AccountState, operation: Any) -> Entity:
    if hasattr(operation, "policyArn"):
        return ownPolicy(state, operation.policyArn)
    if hasattr(operation, "openIDConnectProviderArn"):
        return providerOf(state, operation.openIDConnectProviderArn)
    return changeableHolder(state, operation)


def addTags(
    state: AccountState, operation: Any, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Add tags, or replace those of the same keys, which differ by more than case."""
    entity = _changeable(state, operation)
    new = {tag.key.lower() for tag in operation.tags}
    tags = {key: value for key, value in entity.tags.items() if key.lower() not in new}
    tags |= {tag.key: tag.value for tag in operation.tags}
    checkCount(len(tags) - 1, "TagsPerEntity", TAGS_LIMIT)
    return state.withEntity(replace(entity, tags=tags)), None


def removeTags(
    state: AccountState, operation: Any, request: IdentityRequest
) -> tuple[AccountState, None]:
    """Remove tags by key; absent ones count as removed."""
    entity = _changeable(state, operation)
    gone = {key.lower() for key in operation.tagKeys}
    tags = {key: value for key, value in entity.tags.items() if key.lower() not in gone}
    return state.withEntity(replace(entity, tags=tags)), None


def listTags(state: AccountState, operation: Any, request: IdentityRequest) -> TagPage:
    """List tags by key."""
    entity: Entity
    if hasattr(operation, "policyArn"):
        entity = policyOf(state, operation.policyArn)
    elif hasattr(operation, "openIDConnectProviderArn"):
        entity = providerOf(state, operation.openIDConnectProviderArn)
    else:
        entity = holderOf(state, operation)
    found = sorted(entity.tags.items())
    rows, page = pageOf(found, lambda each: each[0], operation.marker, operation.maxItems)
    return TagPage(tags=tuple(Tag(key, value) for key, value in rows), **page)
