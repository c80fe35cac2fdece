"""Deletion of objects and versions."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from storagegate.objects import errors
from storagegate.objects.errors import DomainError
from storagegate.objects.operations import DeleteEntry, DeleteObject, DeleteObjects
from storagegate.objects.service import ObjectService, invalidId
from storagegate.storage.errors import InvalidVersionId, NoSuchKey
from storagegate.storage.records import Bucket, Removal

if TYPE_CHECKING:
    from storagegate.objects.access.context import Caller


async def deleteObject(service: ObjectService, caller: "Caller", wanted: DeleteObject) -> Removal:
    """Delete one object or version."""
    entry = DeleteEntry(wanted.key, wanted.versionId, wanted.condition)
    (result,) = await _delete(service, caller, wanted.bucket, (entry,))
    if isinstance(result, Removal):
        return result
    if isinstance(result, NoSuchKey):
        raise errors.ObjectNotFound(key=wanted.key.decode(errors="replace"))
    if isinstance(result, InvalidVersionId):
        raise invalidId("versionId", wanted.versionId or "") from result
    raise result


async def deleteObjects(
    service: ObjectService, caller: "Caller", wanted: DeleteObjects
) -> list[Removal | Exception]:
    """Delete those objects or versions that the caller may delete."""
    return await _delete(service, caller, wanted.bucket, wanted.entries)


async def _delete(
    service: ObjectService, caller: "Caller", bucket: str, entries: Sequence[DeleteEntry]
) -> list[Removal | Exception]:
    """Delete objects; return the removal of each entry, or its error."""
    found = await service.find(bucket)
    identity = caller.identity
    results: dict[int, Removal | Exception] = {}
    if found.generation or found.account != identity.ownerAccount:
        results.update(await _refused(service, caller, found, entries))
    rows = []
    for position, entry in enumerate(entries):
        if position in results:
            continue
        try:
            if entry.versionId is not None:
                service.catalog.checkVersionId(entry.versionId)
            if entry.condition.compares:
                await service.checkComparison(
                    caller, found, entry.key, entry.condition, entry.versionId
                )
        except (InvalidVersionId, errors.AccessDenied) as error:
            results[position] = error
        else:
            condition = entry.condition
            if condition.bypass and not await service.mayBypass(
                caller, found, entry.key, entry.versionId
            ):
                condition = replace(condition, bypass=False)
            rows.append((entry.key, entry.versionId, condition))
    if not rows:
        return [results[position] for position in range(len(entries))]
    removed = await service.store.deleteObjects(bucket, rows, identity.account, service.nowMs())
    if not results:
        return removed
    done: Iterator[Removal | Exception] = iter(removed)
    return [
        results[position] if position in results else next(done) for position in range(len(entries))
    ]


async def _refused(
    service: ObjectService, caller: "Caller", bucket: Bucket, entries: Sequence[DeleteEntry]
) -> dict[int, Exception]:
    """Decide on each entry of a deletion; return the errors by position."""
    from storagegate.objects.access.context import withCondition

    refused: dict[int, Exception] = {}
    access = (await service.settings.find(bucket)).access
    isMany = caller.operationName != "DeleteObject"
    for position, entry in enumerate(entries):
        record = None
        asking = withCondition(caller, entry.condition.etags) if isMany else caller
        if access.acl is not None:
            # A writer through an ACL may delete only its own objects.
            _, record = await service.catalog.object(bucket.name, entry.key)
        try:
            access.decide(asking, bucket, entry.key, entry.versionId, record, "DeleteObject")
        except DomainError as error:
            refused[position] = error
    return refused
