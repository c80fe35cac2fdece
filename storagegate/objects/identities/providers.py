"""The OpenID Connect providers of an account, whose tokens can be exchanged for sessions."""

from msgspec.structs import replace

from storagegate.objects.errors import EntityAlreadyExists
from storagegate.objects.identities import operations
from storagegate.objects.identities.answers import (
    NewProvider,
    ProviderArn,
    ProviderPage,
    ProviderResult,
)
from storagegate.objects.identities.entities import AccountState, OIDCProvider
from storagegate.objects.identities.lookup import (
    IdentityRequest,
    checkCount,
    providerArn,
    providerOf,
    tagsOf,
)

PROVIDERS_LIMIT = 100
"""Providers of an account: Amazon's limit."""

CLIENTS_LIMIT = 100
"""Audiences of a provider: Amazon's limit."""


def createProvider(
    state: AccountState,
    operation: operations.CreateOpenIDConnectProvider,
    request: IdentityRequest,
) -> tuple[AccountState, NewProvider]:
    """Create a provider."""
    scheme, _, name = operation.url.partition("://")
    if state.provider(name) is not None:
        raise EntityAlreadyExists(f"Provider with url {operation.url} already exists.")
    checkCount(len(state.providers()), "OpenIdConnectProviders", PROVIDERS_LIMIT)
    provider = OIDCProvider(
        name=name,
        scheme=scheme,
        createdMs=request.nowMs,
        clientIds=tuple(dict.fromkeys(operation.clientIDList)),
        thumbprints=operation.thumbprintList,
        tags={tag.key: tag.value for tag in operation.tags},
    )
    answer = NewProvider(providerArn(state, provider), operation.tags or None)
    return state.withEntity(provider), answer


def getProvider(
    state: AccountState, operation: operations.GetOpenIDConnectProvider, request: IdentityRequest
) -> ProviderResult:
    """Return a provider."""
    provider = providerOf(state, operation.openIDConnectProviderArn)
    return ProviderResult(
        url=provider.url,
        clientIDList=provider.clientIds,
        thumbprintList=provider.thumbprints,
        createDate=provider.createdMs,
        tags=tagsOf(provider) if provider.tags else None,
    )


def listProviders(
    state: AccountState, operation: operations.ListOpenIDConnectProviders, request: IdentityRequest
) -> ProviderPage:
    """List all providers."""
    return ProviderPage(
        tuple(ProviderArn(providerArn(state, provider)) for provider in state.providers())
    )


def deleteProvider(
    state: AccountState,
    operation: operations.DeleteOpenIDConnectProvider,
    request: IdentityRequest,
) -> tuple[AccountState, None]:
    """Delete a provider."""
    return state.withoutEntity(providerOf(state, operation.openIDConnectProviderArn)), None


def addClient(
    state: AccountState,
    operation: operations.AddClientIDToOpenIDConnectProvider,
    request: IdentityRequest,
) -> tuple[AccountState, None]:
    """Add an audience to a provider."""
    provider = providerOf(state, operation.openIDConnectProviderArn)
    clients = tuple(dict.fromkeys((*provider.clientIds, operation.clientID)))
    checkCount(len(clients) - 1, "ClientIdsPerOpenIdConnectProvider", CLIENTS_LIMIT)
    return state.withEntity(replace(provider, clientIds=clients)), None


def removeClient(
    state: AccountState,
    operation: operations.RemoveClientIDFromOpenIDConnectProvider,
    request: IdentityRequest,
) -> tuple[AccountState, None]:
    """Remove an audience of a provider."""
    provider = providerOf(state, operation.openIDConnectProviderArn)
    clients = tuple(each for each in provider.clientIds if each != operation.clientID)
    return state.withEntity(replace(provider, clientIds=clients)), None


def updateThumbprints(
    state: AccountState,
    operation: operations.UpdateOpenIDConnectProviderThumbprint,
    request: IdentityRequest,
) -> tuple[AccountState, None]:
    """Replace the thumbprints of a provider."""
    provider = providerOf(state, operation.openIDConnectProviderArn)
    return state.withEntity(replace(provider, thumbprints=operation.thumbprintList)), None
