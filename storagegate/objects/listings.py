"""Listings of objects and their versions."""

from typing import TYPE_CHECKING

from storagegate.objects.operations import ListObjects, ListObjectVersions
from storagegate.objects.service import ObjectService, invalidId
from storagegate.storage.errors import InvalidVersionId
from storagegate.storage.records import ObjectListing, VersionListing

if TYPE_CHECKING:
    from storagegate.objects.access.context import Caller


async def listObjects(
    service: ObjectService, caller: "Caller", wanted: ListObjects
) -> ObjectListing:
    """List a page of a bucket."""
    await service.bucket(caller, wanted.page.bucket)
    return await service.catalog.listObjects(wanted.page)


async def listObjectVersions(
    service: ObjectService, caller: "Caller", wanted: ListObjectVersions
) -> VersionListing:
    """List a page of the versions of a bucket."""
    page = wanted.page
    await service.bucket(caller, page.bucket)
    if page.versionAfter is not None:
        try:
            service.catalog.checkVersionId(page.versionAfter)
        except InvalidVersionId as error:
            raise invalidId("versionAfter", page.versionAfter) from error
    return await service.catalog.listVersions(page)
