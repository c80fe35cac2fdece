"""What is not built, or cannot be meant: refused, and nothing is stored or answered instead."""

import base64
import json
from datetime import UTC, datetime, timedelta
from hashlib import md5

from tests.support.clients import ROOT
from tests.support.s3signer import Answer, Outgoing
from tests.wire.s3.fixture import S3Case
from tests.wire.s3.forms import formRequest
from tests.wire.s3.modeltable import TABLE
from tests.wire.s3.test_model import operationsOf

CUSTOMER_KEY = {
    "x-amz-server-side-encryption-customer-algorithm": "AES256",
    "x-amz-server-side-encryption-customer-key": base64.b64encode(b"k" * 32).decode(),
    "x-amz-server-side-encryption-customer-key-MD5": base64.b64encode(
        md5(b"k" * 32, usedforsecurity=False).digest()
    ).decode(),
}


class RefusalCase(S3Case):
    """A bucket with one object, C{held}."""

    def setUp(self) -> None:
        """Store the object."""
        super().setUp()
        self.bucket = self.makeBucket("refusing")
        self.s3.put_object(Bucket=self.bucket, Key="held", Body=b"before")

    def sent(
        self, method: str, target: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """Sign a request with the root pair and send it; the target follows the bucket."""
        return self.sendSigned(Outgoing(method, f"/{self.bucket}{target}", headers or {}, body))

    def assertUntouched(self) -> None:
        """Check that the bucket holds the object as it was and nothing else."""
        found = self.s3.list_objects_v2(Bucket=self.bucket)
        self.assertEqual([entry["Key"] for entry in found["Contents"]], ["held"])
        self.assertHolds(self.bucket, "held", b"before")


class QueryTests(RefusalCase):
    """Parameters that name another operation, or a version that cannot be written."""

    def test_session(self) -> None:
        """A session of a directory bucket is no list of a bucket."""
        self.assertAnswer(self.sent("GET", "?session"), 501, "NotImplemented")
        self.assertAnswer(self.sent("PUT", "?session"), 405, "MethodNotAllowed")

    def test_directoryBuckets(self) -> None:
        """A list of directory buckets is no list of plain ones."""
        answer = self.sendSigned(Outgoing("GET", "/?max-directory-buckets=5"))
        self.assertAnswer(answer, 501, "NotImplemented")

    def test_versionOfWrite(self) -> None:
        """A write that names a version does not replace the object."""
        copy = {"x-amz-copy-source": f"{self.bucket}/held"}
        for method, query, headers in (
            ("PUT", "?versionId=", {}),
            ("PUT", "?versionId=null", {}),
            ("PUT", "?versionId=abc", {}),
            ("PUT", "?versionId=null", copy),
            ("PUT", "?partNumber=1&uploadId=u&versionId=null", {}),
            ("PUT", "?partNumber=1&uploadId=u&versionId=null", copy),
            ("POST", "?uploads&versionId=null", {}),
            ("POST", "?uploadId=u&versionId=null", {}),
        ):
            answer = self.sent(method, f"/held{query}", headers, b"after")
            self.assertAnswer(answer, 400, "InvalidArgument")
            self.assertIn(b"<ArgumentName>versionId</ArgumentName>", answer.body)
        self.assertUntouched()

    def test_append(self) -> None:
        """An append does not replace the object."""
        for key in ("held", "absent"):
            answer = self.sent("PUT", f"/{key}?append&position=6", body=b"after")
            self.assertAnswer(answer, 501, "NotImplemented")
        self.assertUntouched()

    def test_rename(self) -> None:
        """A rename is refused whether or not its target is there, and moves nothing."""
        for key in ("held", "absent"):
            headers = {"x-amz-rename-source": f"{self.bucket}/held"}
            answer = self.sent("PUT", f"/{key}?renameObject", headers)
            self.assertAnswer(answer, 501, "NotImplemented")
        answer = self.sent("PUT", "/absent", {"x-amz-rename-source": "held"})
        self.assertAnswer(answer, 501, "NotImplemented")
        answer = self.sendSigned(Outgoing("PUT", f"/{self.makeName()}/k?renameObject"))
        self.assertAnswer(answer, 404, "NoSuchBucket")
        self.assertUntouched()


class CustomerKeyTests(RefusalCase):
    """Keys for objects that are not encrypted."""

    def test_reads(self) -> None:
        """A read that carries a customer's key is 400, whatever the range and the condition."""
        single = [{name: value} for name, value in CUSTOMER_KEY.items()]
        for key in (CUSTOMER_KEY, *single):
            code = "InvalidRequest" if len(key) == 3 else "InvalidArgument"
            for more in ({}, {"Range": "bytes=0-1"}, {"If-None-Match": "*"}):
                headers = {**key, **more}
                self.assertAnswer(self.sent("GET", "/held", headers), 400, code)
                self.assertEqual(self.sent("HEAD", "/held", headers).status, 400)
            attributes = {**key, "x-amz-object-attributes": "ETag"}
            answer = self.sent("GET", "/held?attributes", attributes)
            self.assertAnswer(answer, 400, code)
        self.assertAnswer(self.sent("GET", "/absent", CUSTOMER_KEY), 404, "NoSuchKey")

    def test_parts(self) -> None:
        """A list of the parts of an upload that is not encrypted takes no key; nor does its end."""
        named = {"Bucket": self.bucket, "Key": "k"}
        upload = self.s3.create_multipart_upload(**named)["UploadId"]
        etag = self.s3.upload_part(**named, UploadId=upload, PartNumber=1, Body=b"part")["ETag"]
        target = f"/k?uploadId={upload}"
        self.assertAnswer(self.sent("GET", target, CUSTOMER_KEY), 400, "InvalidRequest")
        part = f"<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
        body = f"<CompleteMultipartUpload>{part}</CompleteMultipartUpload>".encode()
        answer = self.sent("POST", target, CUSTOMER_KEY, body)
        self.assertAnswer(answer, 400, "InvalidRequest")
        answer = self.sent("DELETE", target, {"x-amz-if-match-initiated-time": "2026-01-01"})
        self.assertAnswer(answer, 501, "NotImplemented")
        self.assertUntouched()

    def test_copySource(self) -> None:
        """A key for the source of a copy is 400 where the source is not encrypted."""
        named = {"Bucket": self.bucket, "Key": "k"}
        upload = self.s3.create_multipart_upload(**named)["UploadId"]
        single = [{name: value} for name, value in CUSTOMER_KEY.items()]
        for key in (CUSTOMER_KEY, *single):
            code = "InvalidRequest" if len(key) == 3 else "InvalidArgument"
            headers = {
                name.replace("x-amz-", "x-amz-copy-source-"): value for name, value in key.items()
            }
            headers["x-amz-copy-source"] = f"{self.bucket}/held"
            for target in ("/copy", f"/k?partNumber=1&uploadId={upload}"):
                self.assertAnswer(self.sent("PUT", target, headers), 400, code)
        self.assertUntouched()


class TokenTests(RefusalCase):
    """Tokens of temporary keys, with keys that are not temporary."""

    def test_header(self) -> None:
        """A token in a header, signed or beside a plain key, is 400 C{InvalidToken}."""
        token = {"x-amz-security-token": "any"}
        self.assertAnswer(self.sent("GET", "/held", token), 400, "InvalidToken")
        plain = Outgoing("GET", f"/{self.bucket}/held", {**ROOT.plainHeaders(), **token})
        self.assertAnswer(self.send(plain), 400, "InvalidToken")

    def test_query(self) -> None:
        """A token in a presigned URL is 400, in any case of its name, or as a signed header."""
        for name in ("X-Amz-Security-Token", "x-amz-security-token"):
            url = self.signer.presign(Outgoing("GET", f"/{self.bucket}/held?{name}=any"))
            self.assertAnswer(self.send(url), 400, "InvalidToken")
        headers = {"x-amz-security-token": "any"}
        url = self.signer.presign(Outgoing("GET", f"/{self.bucket}/held", headers))
        self.assertAnswer(self.send(url), 400, "InvalidToken")

    def test_wrongKeys(self) -> None:
        """A token changes nothing of the refusal of a key or a signature."""
        token = {"x-amz-security-token": "any"}
        signed = self.signer.sign(Outgoing("GET", f"/{self.bucket}/held", token))
        signed.headers["Authorization"] = signed.headers["Authorization"][:-64] + "0" * 64
        self.assertAnswer(self.send(signed), 403, "SignatureDoesNotMatch")


class FormCase(RefusalCase):
    """A client that is given forms."""

    def post(self, headers: dict[str, str] | None = None, **fields: str) -> Answer:
        """Send a form whose policy allows these fields, with underscores for hyphens."""
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        stamp = self.signer.timestamp()
        scope = f"{stamp[:8]}/{self.signer.region}/s3/aws4_request"
        form = {
            "key": "form",
            "x-amz-algorithm": "AWS4-HMAC-SHA256",
            "x-amz-credential": f"{ROOT.accessKey}/{scope}",
            "x-amz-date": stamp,
            **named,
        }
        expiration = datetime.now(UTC) + timedelta(minutes=10)
        conditions = [{"bucket": self.bucket}, *({name: form[name]} for name in form)]
        policy = {"expiration": f"{expiration:%Y-%m-%dT%H:%M:%SZ}", "conditions": conditions}
        form["policy"] = base64.b64encode(json.dumps(policy).encode()).decode()
        form["x-amz-signature"] = self.signer.signPolicy(form["policy"], stamp[:8])
        return self.send(formRequest(self.bucket, form, b"file").adding(**(headers or {})))


class FormTests(FormCase):
    """Fields of a form, which are judged as the headers are."""

    def test_refused(self) -> None:
        """A field that asks for what is not built is 501, and the file is not stored."""
        for name, value in (
            ("acl", "aws-exec-read"),
            ("x_amz_acl", "log-delivery-write"),
            ("x_amz_server_side_encryption", "aws:kms:dsse"),
            ("x_amz_object_lock_event_hold", "ON"),
            ("x_amz_website_redirect_location", "/elsewhere"),
        ):
            self.assertAnswer(self.post(**{name: value}), 501, "NotImplemented")
        for name, status, code in (
            ("acl", 400, "InvalidArgument"),
            ("x_amz_object_lock_mode", 400, "InvalidArgument"),
            ("x_amz_grant_read", 400, "InvalidArgument"),
            ("x_amz_storage_class", 400, "InvalidStorageClass"),
            ("x_amz_security_token", 400, "InvalidToken"),
            ("x_amz_server_side_encryption", 400, "InvalidArgument"),
            ("x_amz_server_side_encryption_customer_algorithm", 400, "InvalidArgument"),
        ):
            self.assertAnswer(self.post(**{name: "unknown"}), status, code)
        self.assertAnswer(self.post(acl="private", x_amz_acl="private"), 400, "InvalidArgument")
        self.assertUntouched()

    def test_headers(self) -> None:
        """The headers of the request that carries a form are judged, too."""
        answer = self.post({"x-amz-server-side-encryption": "AES256"})
        self.assertAnswer(answer, 501, "NotImplemented")
        self.assertUntouched()

    def test_conditions(self) -> None:
        """Conditions and the expected owner are obeyed, as fields and as headers."""
        self.assertEqual(self.post().status, 204)
        for name, value, status, code in (
            ("If-None-Match", "*", 412, "PreconditionFailed"),
            ("If-Match", '"other"', 412, "PreconditionFailed"),
            ("x-amz-expected-bucket-owner", "a" * 64, 403, "AccessDenied"),
        ):
            self.assertAnswer(self.post({name: value}), status, code)
            self.assertAnswer(self.post(**{name.replace("-", "_"): value}), status, code)

    def test_asHeaders(self) -> None:
        """Each header that a PUT refuses is refused as a field, with the same answer."""
        for row in TABLE:
            rows = operationsOf(row, row.names[0]) if row.verdict == "refused" else ()
            for name in row.names if row.kind == "header" and "PutObject" in rows else ():
                answer = self.post(**{name.replace("-", "_"): row.sample})
                self.assertAnswer(answer, row.status, row.code)
        self.assertUntouched()

    def test_taken(self) -> None:
        """A field that changes nothing is taken."""
        for fields in ({"acl": "private"}, {"x_amz_acl": "bucket-owner-full-control"}):
            self.assertEqual(self.post(**fields).status, 204)
            self.assertHolds(self.bucket, "form", b"file")


class DocumentTests(RefusalCase):
    """Elements of documents."""

    def test_createBucket(self) -> None:
        """A bucket of a type or in a place that is not built is not created."""
        for content in (
            "<Bucket><Type>Directory</Type></Bucket>",
            "<Bucket><DataRedundancy>SingleAvailabilityZone</DataRedundancy></Bucket>",
            "<Location><Type>AvailabilityZone</Type><Name>usw2-az1</Name></Location>",
        ):
            name = self.makeName()
            body = f"<CreateBucketConfiguration>{content}</CreateBucketConfiguration>".encode()
            answer = self.sendSigned(Outgoing("PUT", f"/{name}", {}, body))
            self.assertAnswer(answer, 501, "NotImplemented")
            self.assertRefused(404, "404", self.s3.head_bucket, Bucket=name)

    def test_namespace(self) -> None:
        """A bucket in a namespace of its account is not created in the common one."""
        name = self.makeName()
        answer = self.sendSigned(
            Outgoing("PUT", f"/{name}", {"x-amz-bucket-namespace": "account-regional"})
        )
        self.assertAnswer(answer, 501, "NotImplemented")
        self.assertRefused(404, "404", self.s3.head_bucket, Bucket=name)

    def test_ownerOfACL(self) -> None:
        """An ACL that names another owner gives the object to nobody."""
        owner = self.s3.list_buckets()["Owner"]["ID"]
        grant = {
            "Grantee": {"ID": owner, "Type": "CanonicalUser"},
            "Permission": "FULL_CONTROL",
        }
        policy = {"Owner": {"ID": "a" * 64}, "Grants": [grant]}
        for call, target in (
            (self.s3.put_bucket_acl, {}),
            (self.s3.put_object_acl, {"Key": "held"}),
        ):
            self.assertRefused(
                403,
                "AccessDenied",
                call,
                **{"Bucket": self.bucket, "AccessControlPolicy": policy, **target},
            )
