"""
Users, groups, roles and policies of an account.

The operations are those of IAM (L{storagegate.objects.identities.operations}), with their fields as
JSON. An administrator may name any account, and an auditor may read any.
"""

from collections.abc import Mapping
from time import time
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from storagegate.console.call import ConsoleCall
from storagegate.core.errors import codedError
from storagegate.objects.access.context import PlainCaller
from storagegate.objects.accounts import accountNames
from storagegate.objects.identities.operations import IdentityOperation, SimulationOperation
from storagegate.objects.identities.table import CHANGES, OPERATIONS, perform


class IdentityQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """
    The fields of a read; each read has some of them.

    @ivar account: Empty for the caller's.
    """

    account: str = ""
    userName: str = ""
    groupName: str = ""
    roleName: str = ""
    policyArn: str = ""
    policyName: str = ""
    versionId: str = ""
    accessKeyId: str = ""
    openIDConnectProviderArn: str = ""
    pathPrefix: str = ""
    scope: str = ""
    onlyAttached: bool = False
    entityFilter: str = ""
    marker: str = ""
    maxItems: int = 0


class AccountList(Struct):
    """The names of accounts."""

    accounts: list[str]


async def listAccounts(call: ConsoleCall) -> AccountList:
    """List the accounts that have keys or users."""
    keys = call.services.store.accessKeys
    # An edit of a key leaves an account without documents.
    named = (name for name, each in keys.identities.items() if each.documents)
    return AccountList(sorted({*accountNames(keys.keys.values()), *named}))


async def readIdentities(call: ConsoleCall, query: IdentityQuery) -> Any:
    """Perform an operation of IAM that reads."""
    given = {
        name: getattr(query, name)
        for name in query.__struct_fields__
        if name != "account" and getattr(query, name)
    }
    return await _perform(call, given, query.account, isChange=False)


async def changeIdentities(call: ConsoleCall, body: Any) -> Any:
    """Perform an operation of IAM that changes something, or a simulation, which has lists."""
    if not isinstance(body, dict):
        raise codedError("INVALID_ARGUMENT", "The body must be an object")
    given = dict(body)
    account = given.pop("account", "")
    if not isinstance(account, str):
        raise codedError("INVALID_ARGUMENT", "account: not a string", {"field": "account"})
    named = ("userName", "groupName", "roleName", "policyName", "policyArn", "accessKeyId")
    call.note(account=account, **{name: given[name] for name in named if name in given})
    return await _perform(call, given, account, isChange=True)


async def _perform(
    call: ConsoleCall, given: dict[str, Any], account: str, *, isChange: bool
) -> Any:
    operation = makeOperation(call.params["operation"], given)
    isPosted = type(operation) in CHANGES or isinstance(operation, SimulationOperation)
    if isPosted is not isChange:
        raise codedError("NOT_FOUND", "The API has no such operation")
    if call.services.store.admit is not None:
        call.services.store.admit()
    caller = PlainCaller(
        call.who.identity,
        type(operation).__name__,
        now=time(),
        address=call.address,
        secure=call.request.secure,
    )
    return await perform(call.services.objects, caller, operation, account or None)


def makeOperation(name: str, given: Mapping[str, Any]) -> IdentityOperation[Any]:
    """
    Make an operation of its fields.

    @raise ServiceError: C{NOT_FOUND} for another operation, C{INVALID_ARGUMENT} for other fields.
    """
    kind = OPERATIONS.get(name)
    if kind is None:
        raise codedError("NOT_FOUND", "The API has no such operation")
    unknown = set(given).difference(field.name for field in fields(kind))
    if unknown:
        first = min(unknown)
        raise codedError("INVALID_ARGUMENT", f"{name} has no field {first}", {"field": first})
    try:
        operation: IdentityOperation[Any] = msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise codedError("INVALID_ARGUMENT", str(error)) from error
    return operation
