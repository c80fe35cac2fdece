"""A new operation on stored data: value and function, document and handler, and three rows."""

from storagegate.objects import table
from storagegate.objects.access import actions
from storagegate.objects.access.context import Caller
from storagegate.objects.operations import BucketOperation
from storagegate.objects.service import ObjectService
from storagegate.s3 import operations
from storagegate.s3.request import S3Operation, S3Request
from storagegate.s3.xml.writer import document, element
from storagegate.storage.ranges import ObjectRange
from tests.services.objectcase import StorageCase


# In objects/operations.py: the operation.
class GetObjectCount(BucketOperation[int], frozen=True):
    """Count a bucket's objects, up to a page."""


# In objects/listings.py: the function.
async def countObjects(service: ObjectService, caller: Caller, wanted: GetObjectCount) -> int:
    """Count a bucket's objects."""
    await service.bucket(caller, wanted.bucket)
    page = await service.catalog.listObjects(ObjectRange(wanted.bucket, b"", b"", b"", 1000))
    return len(page.objects)


# In objects/table.py: its row.
FUNCTION = table._row(GetObjectCount, countObjects)


# In s3/xml/documents.py: the document.
def objectCount(bucket: str, count: int) -> bytes:
    """Write ObjectCountResult."""
    return document("ObjectCountResult", element("Name", bucket) + element("Count", str(count)))


# In s3/handlers/buckets.py: the handler.
async def getObjectCount(call: S3Request) -> None:
    """Respond with the number of a bucket's objects."""
    call.respondXML(objectCount(call.bucket, await call.perform(GetObjectCount(call.bucket))))


# In s3/operations.py: the row.
ROW = S3Operation("GetObjectCount", b"GET", "bucket", "list", getObjectCount, "count")

# In objects/access/actions.py: what it needs.
NEEDED = {"GetObjectCount": ("s3:ListBucket",)}


class NewOperationTests(StorageCase):
    """The pieces above are all that a new operation needs."""

    async def test_served(self) -> None:
        """The row is found, authorised and handled; other methods of its selector are refused."""
        rows = {**operations._ROWS, (ROW.method, ROW.level, ROW.selector): ROW}
        self.patch(operations, "_ROWS", rows)
        self.patch(operations, "_SELECTORS", operations._SELECTORS | {ROW.selector})
        self.patch(actions, "OPERATION_ACTIONS", {**actions.OPERATION_ACTIONS, **NEEDED})
        self.patch(table, "FUNCTIONS", {**table.FUNCTIONS, FUNCTION[0]: FUNCTION[1]})
        await self.s3("PUT", "/box")
        for name in ("a", "b"):
            await self.s3("PUT", f"/box/{name}", b"data")
        answer = await self.s3("GET", "/box?count")
        self.assertIn(b"<Name>box</Name><Count>2</Count></ObjectCountResult>", answer.body)
        await self.s3("GET", "/none?count", status=404)
        refused = await self.s3("DELETE", "/box?count", status=405)
        self.assertEqual(dict(refused.headers)["allow"], "GET")
