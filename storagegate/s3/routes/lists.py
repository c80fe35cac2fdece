"""The lists of objects and versions."""

from storagegate.s3 import listdocuments
from storagegate.s3.listing import (
    ObjectsQuery,
    parseListObjects,
    parseListObjectsV2,
    parseListVersions,
)
from storagegate.s3.routes.call import Call
from storagegate.s3.tokens import makeToken
from storagegate.storage.records import NULL_VERSION, Listing


async def _page(call: Call, prefix: str, delimiter: str, after: str, limit: int) -> Listing:
    return await call.services.objects.listObjects(
        call.identity, call.bucket, prefix.encode(), delimiter.encode(), after.encode(), limit
    )


def _token(call: Call, page: Listing) -> str | None:
    if page.last is None:
        return None
    return makeToken(call.services.tokenSecret, call.bucket, page.last)


async def _objects(call: Call, query: ObjectsQuery) -> Listing:
    return await _page(call, query.prefix, query.delimiter, query.after, query.limit)


async def listObjects(call: Call) -> None:
    """List a page of a bucket, version 1."""
    query = parseListObjects(call.query, call.services.tokenSecret, call.bucket)
    page = await _objects(call, query)
    call.document(
        listdocuments.listObjects(
            call.bucket, query, page.objects, page.prefixes, page.last, _token(call, page)
        )
    )


async def listObjectsV2(call: Call) -> None:
    """List a page of a bucket, version 2."""
    query = parseListObjectsV2(call.query, call.services.tokenSecret, call.bucket)
    page = await _objects(call, query)
    call.document(
        listdocuments.listObjectsV2(
            call.bucket, query, page.objects, page.prefixes, _token(call, page)
        )
    )


async def listObjectVersions(call: Call) -> None:
    """List a page of a bucket's versions: of each key the one that there is."""
    query = parseListVersions(call.query)
    page = await _page(call, query.prefix, query.delimiter, query.keyMarker, query.limit)
    version = None
    if page.objects and page.last == page.objects[-1].key:
        version = NULL_VERSION
    call.document(
        listdocuments.listVersions(
            call.bucket, query, page.objects, page.prefixes, page.last, version
        )
    )
