"""Each name of Amazon's model of S3 in our table, and each row of it as the daemon answers."""

from collections.abc import Iterator
from functools import cache

from attrs import evolve
from botocore.model import Shape

from storagegate.s3.handlers.buckets import StaticResponse
from storagegate.s3.operations import OPERATIONS
from storagegate.s3.request import S3Operation
from tests.s3.clientparser import serviceModel
from tests.support.s3signer import Answer, Outgoing
from tests.support.selection import long
from tests.wire.s3.fixture import S3Case
from tests.wire.s3.modeltable import REFUSED_WITH_OPERATION, TABLE, Row

# Operations of other services than a plain bucket's, and the answers to them.
_FOREIGN = {
    "GetObjectTorrent": (405, "MethodNotAllowed"),
    "ListDirectoryBuckets": (501, "NotImplemented"),
    "WriteGetObjectResponse": (404, "NoSuchBucket"),
}
_SETTINGS = {
    "PutBucketCors": (
        "<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin>"
        "<AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>"
    ),
    "PutBucketEncryption": (
        "<ServerSideEncryptionConfiguration><Rule><BlockedEncryptionTypes><EncryptionType>NONE"
        "</EncryptionType></BlockedEncryptionTypes></Rule></ServerSideEncryptionConfiguration>"
    ),
    **dict.fromkeys(
        ("PutBucketLifecycle", "PutBucketLifecycleConfiguration"),
        "<LifecycleConfiguration><Rule><Prefix/><Status>Enabled</Status><Expiration>"
        "<Days>1000</Days></Expiration></Rule></LifecycleConfiguration>",
    ),
    "PutBucketOwnershipControls": (
        "<OwnershipControls><Rule><ObjectOwnership>ObjectWriter</ObjectOwnership></Rule>"
        "</OwnershipControls>"
    ),
    "PutBucketPolicy": (
        '{"Statement": {"Effect": "Allow", "Principal": {"AWS": "root"}, "Action": "s3:GetObject",'
        ' "Resource": "arn:aws:s3:::{bucket}/*"}}'
    ),
    "PutObjectLegalHold": "<LegalHold><Status>OFF</Status></LegalHold>",
    "PutObjectLockConfiguration": (
        "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>"
        "</ObjectLockConfiguration>"
    ),
    "PutObjectRetention": "<Retention/>",
    "PutPublicAccessBlock": "<PublicAccessBlockConfiguration/>",
}
# What is asked of a bucket with object lock.
_LOCKED = {
    "GetObjectLegalHold",
    "GetObjectRetention",
    "PutObjectLegalHold",
    "PutObjectRetention",
    "PutObjectLockConfiguration",
}
# What stands in the path, and bodies that are no documents.
_ELSEWHERE = {"Body", "AnnotationPayload", "Policy"}


def rowOf(name: str) -> S3Operation:
    """Give the row of an operation by its name, or by an old one."""
    if name == "GetObjectAnnotation":
        return OPERATIONS["ListObjectAnnotations"]
    return OPERATIONS.get(name) or OPERATIONS[f"{name}Configuration"]


@cache
def refusedOperations() -> dict[str, tuple[int, str]]:
    """Give the operations that are refused whole: the status and the code of their answer."""
    found = dict(_FOREIGN)
    for name in set(serviceModel().operation_names) - set(_FOREIGN):
        handler = rowOf(name).handler
        if isinstance(handler, StaticResponse) and handler.code == "NotImplemented":
            found[name] = (501, handler.code)
    return found


def elementPaths(shape: Shape, path: str) -> Iterator[str]:
    """Iterate over the paths of the elements, and of an attribute, that hold text."""
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            yield from elementPaths(member, f"{path}/{member.serialization.get('name', name)}")
    elif shape.type_name == "list":
        inner = shape.member.serialization.get("name", "member")
        flat = shape.serialization.get("flattened")
        yield from elementPaths(shape.member, path if flat else f"{path}/{inner}")
    else:
        yield path


@cache
def modelNames() -> dict[tuple[str, str], set[str]]:
    """Give the kind and the name of everything that a request can carry, with the operations."""
    found: dict[tuple[str, str], set[str]] = {}
    for operation in serviceModel().operation_names:
        shape = serviceModel().operation_model(operation).input_shape
        for name, member in {} if shape is None else shape.members.items():
            location = member.serialization.get("location")
            sent = member.serialization.get("name", name)
            if location == "uri" or (location is None and name in _ELSEWHERE):
                continue
            names = [("query" if location == "querystring" else "header", sent)]
            if location is None and operation == "SelectObjectContent":
                names = [("element", "SelectObjectContentRequest")]
            elif location is None and operation in refusedOperations():
                names = [("element", sent)]
            elif location is None:
                names = [("element", path) for path in elementPaths(member, sent)]
            for each in names:
                found.setdefault(each, set()).add(operation)
    return found


def operationsOf(row: Row, name: str) -> set[str]:
    """Give the operations for which a row speaks: of a model's name, those that are built."""
    found = modelNames().get((row.kind, name), set()) - set(refusedOperations())
    return found & set(row.operations) if row.operations else found


class TableTests(S3Case):
    """The table and the model."""

    def test_complete(self) -> None:
        """Each name of the model is in the table, once for each operation that is built."""
        for (kind, name), operations in modelNames().items():
            built = operations - set(refusedOperations())
            if not built:
                self.assertIn(name, REFUSED_WITH_OPERATION, (kind, operations))
            rows = [row for row in TABLE if row.kind == kind and name in row.names]
            for operation in built:
                speaking = [row for row in rows if operation in operationsOf(row, name)]
                self.assertEqual(len(speaking), 1, (kind, name, operation))

    def test_nothingElse(self) -> None:
        """The table has no name and no operation that the model does not have."""
        known = {name for _, name in modelNames()}
        self.assertEqual(REFUSED_WITH_OPERATION - known, set())
        for row in TABLE:
            self.assertEqual(bool(row.reason), row.verdict == "harmless", row)
            for name in row.names:
                self.assertNotIn(name, REFUSED_WITH_OPERATION)
                found = operationsOf(row, name)
                self.assertEqual(
                    set(row.operations) - found if row.operations else not found,
                    set() if row.operations else False,
                    (row, name),
                )


class AnswerTests(S3Case):
    """The rows of the table and the daemon."""

    def setUp(self) -> None:
        """Have a bucket with objects, an upload, and what samples name of them."""
        super().setUp()
        self.samples: dict[str, str] = {}
        self.bucket = self.makeBucket("model")
        self.locked = self.makeName("model")
        self.s3.create_bucket(Bucket=self.locked, ObjectLockEnabledForBucket=True)
        for key in ("k-one", "old"):
            self.s3.put_object(Bucket=self.locked, Key=key, Body=b"before")
        self.renew()
        owner = self.s3.list_buckets()["Owner"]["ID"]
        self.samples["{owner}"] = owner

    def renew(self) -> None:
        """Store the objects, and begin an upload with one part."""
        for key in ("k-one", "k-up", "old"):
            self.s3.put_object(Bucket=self.bucket, Key=key, Body=b"before")
        named = {"Bucket": self.bucket, "Key": "k-up"}
        self.upload = self.s3.create_multipart_upload(**named)["UploadId"]
        part = {"UploadId": self.upload, "PartNumber": 1, "Body": b"part"}
        self.samples["{etag}"] = self.s3.upload_part(**named, **part)["ETag"]

    def filled(self, sample: str) -> str:
        """Put what is meant in the place of names in braces."""
        if "{modified}" in sample:
            found = self.sendSigned(Outgoing("HEAD", f"/{self.bucket}/k-one"))
            sample = sample.replace("{modified}", found.headers["last-modified"])
        for name, value in self.samples.items():
            sample = sample.replace(name, value)
        return sample

    def plain(self, operation: str) -> Outgoing:
        """Write a request that succeeds, or is what the operation's is at the least."""
        http = serviceModel().operation_model(operation).http
        key, query, headers, body = "k-one", "", {}, ""
        bucket = self.locked if operation in _LOCKED else self.bucket
        if operation in ("CreateBucket", "DeleteBucket", "PutBucketVersioning"):
            bucket = self.makeName("model")
            if operation != "CreateBucket":
                self.s3.create_bucket(Bucket=bucket)
        elif "Part" in operation or operation.endswith("MultipartUpload"):
            key = "k-up"
            if operation != "CreateMultipartUpload":
                query = f"uploadId={self.upload}"
            if operation in ("UploadPart", "UploadPartCopy"):
                query += "&partNumber=1"
        elif operation in ("GetObjectAttributes", "PutBucketAcl", "PutObjectAcl"):
            headers = {"x-amz-object-attributes": "ETag"} if "Get" in operation else {}
        elif operation.startswith(("PutObject", "CopyObject", "DeleteObject")):
            key = "old"
        elif operation == "ListDirectoryBuckets":
            query = "max-directory-buckets=1"
        elif "id" in str(http["requestUri"]) or operation.endswith("Configuration"):
            query = "id=seven" if "List" not in operation else ""
        documents = {
            "CompleteMultipartUpload": "CompleteMultipartUpload/Part/ETag",
            "DeleteObjects": "Delete/Object/Key",
            "PutBucketAcl": "AccessControlPolicy/Owner/DisplayName",
            "PutBucketTagging": "Tagging/TagSet/Tag/Key",
            "PutObjectTagging": "Tagging/TagSet/Tag/Key",
            "PutBucketVersioning": "VersioningConfiguration/Status",
            "PutObjectAcl": "AccessControlPolicy/Owner/DisplayName",
        }
        body = _SETTINGS.get(operation, "").replace("{bucket}", bucket)
        if operation in documents:
            [row] = [row for row in TABLE if documents[operation] in row.names]
            body = self.filled(row.sample.replace("<ETag>none<", "<ETag>{etag}<"))
            body = body.replace("!", "").replace("<Status>On<", "<Status>Enabled<")
        if "Copy" in operation:
            headers = {"x-amz-copy-source": f"{self.bucket}/k-one"}
            if operation == "CopyObject":
                headers["x-amz-metadata-directive"] = "REPLACE"
                headers["x-amz-tagging-directive"] = "REPLACE"
        target, _, fixed = http["requestUri"].partition("?")
        target = target.replace("{Bucket}", bucket).replace("{Key+}", key)
        whole = "&".join(filter(None, [fixed, query]))
        return Outgoing(http["method"], f"{target}?{whole}", headers, body.encode())

    def carrying(self, operation: str, row: Row, name: str) -> Outgoing:
        """Write the request of an operation that carries a row's sample."""
        outgoing, sample = self.plain(operation), self.filled(row.sample)
        if row.kind == "element":
            return evolve(outgoing, body=sample.encode())
        if row.kind == "header":
            return evolve(outgoing, headers={**outgoing.headers, name: sample})
        path, _, query = outgoing.target.partition("?")
        pairs = [each for each in query.split("&") if each and each.split("=")[0] != name]
        return evolve(outgoing, target=f"{path}?{'&'.join([*pairs, f'{name}={sample}'])}")

    def whole(self, answer: Answer) -> str:
        """Write the head and the body of an answer as one text."""
        head = "\n".join(f"{name}: {value}" for name, value in answer.headers.items())
        return f"{head}\n\n{answer.body.decode('latin-1')}"

    def stored(self, operation: str, answer: Answer) -> Answer:
        """Read the head of what an operation has stored, or begun to."""
        key = "old"
        if operation == "CreateMultipartUpload":
            key = "k-up"
            upload = answer.body.partition(b"<UploadId>")[2].partition(b"<")[0].decode()
            named = {"Bucket": self.bucket, "Key": key, "UploadId": upload}
            part = self.s3.upload_part(**named, PartNumber=1, Body=b"part")
            parts = [{"PartNumber": 1, "ETag": part["ETag"]}]
            self.s3.complete_multipart_upload(**named, MultipartUpload={"Parts": parts})
        return self.sendSigned(Outgoing("HEAD", f"/{self.bucket}/{key}"))

    def check(self, operation: str, row: Row, name: str) -> None:
        """Send a row's sample and judge the answer."""
        outgoing = self.carrying(operation, row, name)
        answer = self.sendSigned(outgoing)
        what = (operation, name, answer)
        if row.verdict == "harmless":
            self.restore(outgoing.method)
            plain = self.sendSigned(self.plain(operation))
            self.assertEqual((answer.status, answer.code), (plain.status, plain.code), what)
        elif row.status == 200:
            self.assertIn(answer.status, (200, 204), what)
        else:
            self.assertEqual(answer.status, row.status, what)
        if row.code and outgoing.method != "HEAD":
            self.assertEqual(answer.code, row.code, what)
        shown = self.whole(self.stored(operation, answer) if row.stored else answer)
        self.assertIn(row.shows, shown, what)
        if row.lacks:
            self.restore(outgoing.method)
            self.assertNotIn(row.lacks, shown, what)
            self.assertIn(row.lacks, self.whole(self.sendSigned(self.plain(operation))), what)
        self.restore(outgoing.method)

    def restore(self, method: str) -> None:
        """Undo what a request of this method may have done."""
        if method not in ("GET", "HEAD"):
            self.renew()

    def checkRows(self, kind: str, verdict: str) -> None:
        """Check all rows of a kind and a verdict."""
        for row in TABLE:
            for name in row.names if (row.kind, row.verdict) == (kind, verdict) else ():
                for operation in sorted(operationsOf(row, name)):
                    self.check(operation, row, name)

    @long("takes a second or more")
    def test_plain(self) -> None:
        """The requests to which the samples are added succeed, or are refused as a whole."""
        # What a setting that was never made is.
        absent = ("NoSuch", "NotFound", "InvalidRequest", "MetadataConfiguration")
        for operation in serviceModel().operation_names:
            answer = self.sendSigned(self.plain(operation))
            if operation in refusedOperations():
                self.assertAnswer(answer, *refusedOperations()[operation])
            elif answer.status not in (200, 204):
                self.assertTrue(any(part in answer.code for part in absent), answer)
            self.restore(rowOf(operation).method.decode() if operation not in _FOREIGN else "GET")

    @long("takes seconds")
    def test_obeyedHeaders(self) -> None:
        """A header that is obeyed changes the answer, or what is stored."""
        self.checkRows("header", "obeyed")

    def test_obeyedParameters(self) -> None:
        """A parameter that is obeyed changes the answer."""
        self.checkRows("query", "obeyed")

    @long("takes seconds")
    def test_obeyedElements(self) -> None:
        """An element that is obeyed changes the answer."""
        self.checkRows("element", "obeyed")

    @long("takes seconds")
    def test_harmless(self) -> None:
        """What is harmless changes nothing."""
        for kind in ("header", "query", "element"):
            self.checkRows(kind, "harmless")

    @long("takes seconds")
    def test_refused(self) -> None:
        """What is not built is refused."""
        for kind in ("header", "element"):
            self.checkRows(kind, "refused")
