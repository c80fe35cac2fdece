"""A new operation on stored data: two rows, a handler, a document and a method of the domain."""

from storagegate.objects.access import actions
from storagegate.objects.access.context import Caller
from storagegate.objects.service import ObjectService
from storagegate.s3 import operations
from storagegate.s3.request import Operation, S3Request
from storagegate.s3.xml.writer import document, element
from tests.services.objectcase import StorageCase


# In objects/service.py: the method of the domain.
async def countObjects(service: ObjectService, caller: Caller, bucket: str) -> int:
    """Count a bucket's objects, up to a page."""
    page = await service.listObjects(caller, bucket, b"", b"", b"", 1000)
    return len(page.objects)


# In s3/xml/documents.py: the document.
def objectCount(bucket: str, count: int) -> bytes:
    """Write ObjectCountResult."""
    return document("ObjectCountResult", element("Name", bucket) + element("Count", str(count)))


# In s3/handlers/buckets.py: the handler.
async def getObjectCount(call: S3Request) -> None:
    """Respond with the number of a bucket's objects."""
    count = await countObjects(call.services.objects, call, call.bucket)
    call.respondXML(objectCount(call.bucket, count))


# In s3/operations.py: the row.
ROW = Operation("GetObjectCount", b"GET", "bucket", "list", getObjectCount, "count")

# In objects/access/actions.py: what it needs.
NEEDED = {"GetObjectCount": ("s3:ListBucket",)}


class NewOperationTests(StorageCase):
    """The five pieces above are all that a new operation needs."""

    async def test_served(self) -> None:
        """The row is found, authorised and handled; other methods of its selector are refused."""
        rows = {**operations._ROWS, (ROW.method, ROW.level, ROW.selector): ROW}
        self.patch(operations, "_ROWS", rows)
        self.patch(operations, "_SELECTORS", operations._SELECTORS | {ROW.selector})
        self.patch(actions, "OPERATION_ACTIONS", {**actions.OPERATION_ACTIONS, **NEEDED})
        await self.s3("PUT", "/box")
        for name in ("a", "b"):
            await self.s3("PUT", f"/box/{name}", b"data")
        answer = await self.s3("GET", "/box?count")
        self.assertIn(b"<Name>box</Name><Count>2</Count></ObjectCountResult>", answer.body)
        await self.s3("GET", "/none?count", status=404)
        refused = await self.s3("DELETE", "/box?count", status=405)
        self.assertEqual(dict(refused.headers)["allow"], "GET")
