"""The lists of objects and versions."""

from storagegate.s3.pagination import (
    ObjectsQuery,
    makeToken,
    parseListObjects,
    parseListObjectsV2,
    parseListVersions,
)
from storagegate.s3.request import S3Request
from storagegate.s3.xml import listings
from storagegate.storage.records import NULL_VERSION, ObjectListing


async def _page(
    call: S3Request, prefix: str, delimiter: str, after: str, limit: int
) -> ObjectListing:
    return await call.services.objects.listObjects(
        call.identity, call.bucket, prefix.encode(), delimiter.encode(), after.encode(), limit
    )


def _token(call: S3Request, page: ObjectListing) -> str | None:
    if page.last is None:
        return None
    return makeToken(call.services.tokenSecret, call.bucket, page.last)


async def _objects(call: S3Request, query: ObjectsQuery) -> ObjectListing:
    return await _page(call, query.prefix, query.delimiter, query.after, query.limit)


async def listObjects(call: S3Request) -> None:
    """List a page of a bucket, version 1."""
    query = parseListObjects(call.query, call.services.tokenSecret, call.bucket)
    page = await _objects(call, query)
    call.document(
        listings.listObjects(
            call.bucket, query, page.objects, page.prefixes, page.last, _token(call, page)
        )
    )


async def listObjectsV2(call: S3Request) -> None:
    """List a page of a bucket, version 2."""
    query = parseListObjectsV2(call.query, call.services.tokenSecret, call.bucket)
    page = await _objects(call, query)
    call.document(
        listings.listObjectsV2(call.bucket, query, page.objects, page.prefixes, _token(call, page))
    )


async def listObjectVersions(call: S3Request) -> None:
    """List a page of a bucket's versions: of each key the one that there is."""
    query = parseListVersions(call.query)
    page = await _page(call, query.prefix, query.delimiter, query.keyMarker, query.limit)
    version = None
    if page.objects and page.last == page.objects[-1].key:
        version = NULL_VERSION
    call.document(
        listings.listVersions(call.bucket, query, page.objects, page.prefixes, page.last, version)
    )
