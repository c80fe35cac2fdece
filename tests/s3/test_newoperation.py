"""A new operation on stored data: a row, a handler, a document and a method of the domain."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from storagegate.s3 import operations
from storagegate.s3.objects import ObjectService
from storagegate.s3.request import Operation, S3Request
from storagegate.s3.resource import makeS3Resource
from storagegate.s3.xml.writer import document, element
from storagegate.storage.backends import DEFAULT_BLOBS, DEFAULT_CATALOG
from storagegate.storage.store import ObjectStore
from tests.support.clients import REGION, ROOT


# s3/objects.py: the method of the domain.
async def countObjects(service: ObjectService, identity: Any, bucket: str) -> int:
    """Count a bucket's objects, up to a page."""
    page = await service.listObjects(identity, bucket, b"", b"", b"", 1000)
    return len(page.objects)


# s3/xml/documents.py: the document.
def objectCount(bucket: str, count: int) -> bytes:
    """Write ObjectCountResult."""
    return document("ObjectCountResult", element("Name", bucket) + element("Count", str(count)))


# s3/handlers/buckets.py: the handler.
async def getObjectCount(call: S3Request) -> None:
    """Respond with the number of a bucket's objects."""
    count = await countObjects(call.services.objects, call.identity, call.bucket)
    call.respondXML(objectCount(call.bucket, count))


# s3/operations.py: the row.
ROW = Operation("GetObjectCount", b"GET", "bucket", "list", getObjectCount, "count")


class NewOperationTests(TestCase):
    """The four pieces above suffice for an operation over HTTP."""

    async def setUp(self) -> None:
        """Serve a store with the new row in the table."""
        from twisted.internet import reactor

        store = ObjectStore.open(
            self.mktemp(), reactor, catalog=DEFAULT_CATALOG, blobs=DEFAULT_BLOBS
        )
        self.addCleanup(lambda: Deferred.fromCoroutine(store.close()))
        self.patch(operations, "_ROWS", {**operations._ROWS, (b"GET", "bucket", "count"): ROW})
        self.patch(operations, "_SELECTORS", operations._SELECTORS | {"count"})
        resource = makeS3Resource(
            store,
            region=REGION,
            s3Domain=None,
            rootAccessKey=ROOT.accessKey,
            rootSecretKey=ROOT.secretKey,
            reactor=reactor,  # type: ignore[arg-type]
        )
