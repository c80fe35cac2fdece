"""Access control lists of objects, and whose they are, with real clients."""

import json
from pathlib import Path
from time import monotonic
from typing import Any

from storagegate.objects.access.acl import AUTHENTICATED_USERS
from tests.support.clients import (
    Account,
    awsEnvironment,
    botoClient,
    runTool,
    writeS3cmdConfig,
)
from tests.support.programs import needProgram
from tests.support.s3signer import Outgoing, exchange
from tests.support.selection import long
from tests.wire.s3.fixture import S3Case, makeDaemon, ownDirectory
from tests.wire.s3.forms import formRequest
from tests.wire.s3.test_access import ALL_USERS, AccessCase, statement

ENFORCED, PREFERRED = "BucketOwnerEnforced", "BucketOwnerPreferred"


class ObjectAclCase(AccessCase):
    """Three accounts, of which the second may write and read the first one's bucket."""

    def setUp(self) -> None:
        """Have the ids of accounts."""
        super().setUp()
        self.annId, self.bobId, self.eveId = (
            client.list_buckets()["Owner"]["ID"] for client in (self.ann, self.bob, self.eve)
        )

    def grants(self, client: Any, key: str = "k", **more: str) -> list[tuple[str, str]]:
        """Return who has which permission for an object."""
        acl = client.get_object_acl(Bucket=self.bucket, Key=key, **more)
        names = {self.annId: "ann", self.bobId: "bob", self.eveId: "eve", ALL_USERS: "all"}
        names[AUTHENTICATED_USERS] = "known"
        return [
            (names[each["Grantee"].get("ID") or each["Grantee"]["URI"]], each["Permission"])
            for each in acl["Grants"]
        ]

    def owner(self, client: Any, key: str) -> str:
        """Return who owns an object."""
        found: str = client.get_object_acl(Bucket=self.bucket, Key=key)["Owner"]["DisplayName"]
        return found

    def own(self, ownership: str) -> None:
        """Set the object ownership of the bucket."""
        rules = {"Rules": [{"ObjectOwnership": ownership}]}
        self.ann.put_bucket_ownership_controls(Bucket=self.bucket, OwnershipControls=rules)

    def letWrite(self) -> None:
        """Let bob write and list."""
        self.setPolicy(
            statement(self.bucket, {"AWS": "acbob"}, "s3:PutObject", "s3:ListBucket"),
        )


class ObjectAclTests(ObjectAclCase):
    """Lists of objects."""

    def test_document(self) -> None:
        """A list is read as it was set, opens what it grants, and is private again."""
        self.assertEqual(self.grants(self.ann), [("ann", "FULL_CONTROL")])
        self.ann.put_object_acl(Bucket=self.bucket, Key="k", ACL="public-read")
        self.assertEqual(self.statuses("get_object", Key="k"), [200] * 4)
        self.assertEqual(self.statuses("head_object", Key="k"), [200] * 4)
        self.assertEqual(self.statuses("get_object_acl", Key="k"), [200, 403, 403, 403])
        acl = self.ann.get_object_acl(Bucket=self.bucket, Key="k")
        self.assertEqual(self.grants(self.ann), [("all", "READ"), ("ann", "FULL_CONTROL")])
        self.ann.put_object_acl(
            Bucket=self.bucket,
            Key="k",
            GrantRead=f"id={self.bobId}",
            GrantWriteACP=f'id="{self.eveId}"',
        )
        self.assertEqual(self.statuses("get_object", Key="k"), [200, 200, 403, 403])
        self.assertEqual(self.grants(self.ann), [("bob", "READ"), ("eve", "WRITE_ACP")])
        # Who may write the list may open the object.
        owned = {name: acl[name] for name in ("Owner", "Grants")}
        self.eve.put_object_acl(Bucket=self.bucket, Key="k", AccessControlPolicy=owned)
        self.assertEqual(self.statuses("get_object", Key="k"), [200] * 4)
        self.ann.put_object_acl(Bucket=self.bucket, Key="k", ACL="authenticated-read")
        self.assertEqual(self.statuses("get_object", Key="k"), [200, 200, 200, 403])
        self.ann.put_object_acl(Bucket=self.bucket, Key="k", ACL="private")
        self.assertEqual(self.statuses("get_object", Key="k"), [200, 403, 403, 403])
        # A list changes no byte, and a new object has none.
        self.ann.put_object_acl(Bucket=self.bucket, Key="k", ACL="public-read")
        self.ann.put_object(Bucket=self.bucket, Key="k", Body=b"new")
        self.assertEqual(self.statuses("get_object", Key="k"), [200, 403, 403, 403])

    def test_errors(self) -> None:
        """What names no list, or two, or an account or an object that there is not."""
        missing = {"Key": "none", "ACL": "public-read"}
        self.assertCode("NoSuchKey", self.ann, "put_object_acl", **missing)
        self.assertCode("NoSuchKey", self.ann, "get_object_acl", Key="none")
        for arguments, code in (
            ({"GrantRead": "id=0"}, "InvalidArgument"),
            ({"GrantRead": "emailAddress=none@x.org"}, "UnresolvableGrantByEmailAddress"),
            ({"GrantRead": f"uri={ALL_USERS}", "ACL": "private"}, "InvalidRequest"),
            ({"ACL": "log-delivery-write"}, "NotImplemented"),
            ({"ACL": "none"}, "InvalidArgument"),
        ):
            for operation in "put_object_acl", "put_object", "create_multipart_upload":
                self.assertCode(code, self.ann, operation, Key="k", **arguments)
        self.assertCode("MissingSecurityHeader", self.ann, "put_object_acl", Key="k")
        other = {"Owner": {"ID": self.bobId}, "Grants": []}
        self.assertCode(
            "AccessDenied", self.ann, "put_object_acl", Key="k", AccessControlPolicy=other
        )

    def test_versions(self) -> None:
        """Each version has a list of its own, whichever is current."""
        status = {"Status": "Enabled"}
        self.ann.put_bucket_versioning(Bucket=self.bucket, VersioningConfiguration=status)
        first = self.ann.put_object(Bucket=self.bucket, Key="v", Body=b"1", ACL="public-read")[
            "VersionId"
        ]
        second = self.ann.put_object(Bucket=self.bucket, Key="v", Body=b"2")["VersionId"]
        named = {"Key": "v", "VersionId": first}
        self.assertEqual(self.statuses("get_object", **named), [200] * 4)
        self.assertEqual(self.statuses("get_object", Key="v"), [200, 403, 403, 403])
        self.ann.put_object_acl(Bucket=self.bucket, **named, ACL="private")
        self.ann.put_object_acl(Bucket=self.bucket, Key="v", ACL="authenticated-read")
        self.assertEqual(self.statuses("get_object", **named), [200, 403, 403, 403])
        self.assertEqual(self.statuses("get_object", Key="v"), [200, 200, 200, 403])
        self.assertEqual(self.grants(self.ann, "v", VersionId=first), [("ann", "FULL_CONTROL")])
        read = self.ann.get_object_acl(Bucket=self.bucket, **named)["ResponseMetadata"]
        self.assertEqual(read["HTTPHeaders"]["x-amz-version-id"], first)
        self.assertEqual(len(self.grants(self.ann, "v", VersionId=second)), 2)
        # The one below comes back with its own.
        self.ann.delete_object(Bucket=self.bucket, Key="v", VersionId=second)
        self.assertEqual(self.statuses("get_object", Key="v"), [200, 403, 403, 403])
        marker = self.ann.delete_object(Bucket=self.bucket, Key="v")["VersionId"]
        gone = {"Key": "v", "VersionId": marker, "ACL": "private"}
        self.assertCode("MethodNotAllowed", self.ann, "put_object_acl", **gone)

    def test_written(self) -> None:
        """Every kind of write gives its object a list; a copy does not take its source's."""
        target = {"Bucket": self.bucket, "Key": "w"}
        copied = {**target, "CopySource": f"{self.bucket}/w"}
        self.ann.put_object(**target, Body=b"x", ACL="public-read")
        self.assertEqual(self.statuses("get_object", Key="w"), [200] * 4)
        self.ann.copy_object(**{**copied, "Key": "copy"})
        self.assertEqual(self.statuses("get_object", Key="copy"), [200, 403, 403, 403])
        self.ann.copy_object(**{**copied, "Key": "copy"}, ACL="public-read")
        self.assertEqual(self.statuses("get_object", Key="copy"), [200] * 4)
        # A list is no change that a copy onto itself needs.
        same = {"Key": "w", "CopySource": f"{self.bucket}/w", "ACL": "public-read"}
        self.assertCode("InvalidRequest", self.ann, "copy_object", **same)
        upload = {"Bucket": self.bucket, "Key": "m"}
        upload["UploadId"] = self.ann.create_multipart_upload(
            **upload, GrantRead=f"uri={ALL_USERS}"
        )["UploadId"]
        self.complete(self.ann, upload)
        self.assertEqual(self.statuses("get_object", Key="m"), [200] * 4)
        self.assertEqual(self.grants(self.ann, "m"), [("all", "READ")])

    def complete(self, client: Any, upload: dict[str, str]) -> None:
        """Upload a part, and complete."""
        part = client.upload_part(**upload, PartNumber=1, Body=b"part")
        parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
        client.complete_multipart_upload(**upload, MultipartUpload=parts)

    def test_block(self) -> None:
        """The block of public access holds for objects, too."""
        self.ann.put_object_acl(Bucket=self.bucket, Key="k", ACL="public-read")
        for switch, expected in (("IgnorePublicAcls", 403), ("BlockPublicAcls", 200)):
            block = {switch: True}
            self.ann.put_public_access_block(
                Bucket=self.bucket, PublicAccessBlockConfiguration=block
            )
            self.assertEqual(self.status(self.anonymous, "get_object", Key="k"), expected)
        public = {"Key": "k", "ACL": "public-read"}
        self.assertCode("AccessDenied", self.ann, "put_object_acl", **public)
        self.assertCode("AccessDenied", self.ann, "put_object", **public, Body=b"x")
        self.assertCode("AccessDenied", self.ann, "create_multipart_upload", **public)
        self.ann.put_object_acl(Bucket=self.bucket, Key="k", GrantRead=f"id={self.bobId}")

    def test_denied(self) -> None:
        """A list in a header needs its own action."""
        deny = statement(self.bucket, "*", "s3:PutObjectAcl", Effect="Deny")
        self.setPolicy(deny)
        self.ann.put_object(Bucket=self.bucket, Key="k", Body=b"x")
        public = {"Key": "k", "ACL": "public-read"}
        for operation in "put_object", "put_object_acl", "create_multipart_upload":
            self.assertEqual(self.status(self.ann, operation, **public), 403)
        copy = {**public, "Key": "c", "CopySource": f"{self.bucket}/k"}
        self.assertEqual(self.status(self.ann, "copy_object", **copy), 403)


class OwnershipTests(ObjectAclCase):
    """Whose an object is that another account writes."""

    def test_writer(self) -> None:
        """It is the writer's, who opens it to the bucket's account or does not."""
        self.letWrite()
        self.bob.put_object(Bucket=self.bucket, Key="b", Body=b"x")
        self.assertEqual(self.statuses("get_object", Key="b"), [403, 200, 403, 403])
        full = {"Bucket": self.bucket, "Key": "b", "ACL": "bucket-owner-full-control"}
        self.bob.put_object(**full, Body=b"x")
        self.assertEqual(self.owner(self.ann, "b"), "acbob")
        self.assertEqual(self.statuses("get_object", Key="b"), [200, 200, 403, 403])
        self.bob.put_object(**{**full, "ACL": "bucket-owner-read"}, Body=b"x")
        self.assertEqual(self.statuses("get_object", Key="b"), [200, 200, 403, 403])
        self.assertEqual(self.statuses("get_object_acl", Key="b"), [403, 200, 403, 403])

    def test_preferred(self) -> None:
        """It is the bucket's account's where the list gives that the full control."""
        self.letWrite()
        self.own(PREFERRED)
        full = {"Bucket": self.bucket, "Key": "b", "ACL": "bucket-owner-full-control"}
        self.bob.put_object(**full, Body=b"x")
        self.assertEqual(self.owner(self.ann, "b"), "acann")
        self.assertEqual(self.grants(self.ann, "b"), [("ann", "FULL_CONTROL")])
        self.assertEqual(self.statuses("get_object", Key="b"), [200, 403, 403, 403])
        self.bob.put_object(Bucket=self.bucket, Key="b", Body=b"x")
        self.assertEqual(self.owner(self.bob, "b"), "acbob")
        upload = {"Bucket": self.bucket, "Key": "m"}
        upload["UploadId"] = self.bob.create_multipart_upload(**{**full, "Key": "m"})["UploadId"]
        ObjectAclTests.complete(self, self.bob, upload)  # type: ignore[arg-type]
        self.assertEqual(self.owner(self.ann, "m"), "acann")
        self.assertEqual(self.grants(self.ann, "m"), [("ann", "FULL_CONTROL")])

    def test_enforced(self) -> None:
        """All are the bucket's account's, and no list counts or can be set."""
        self.letWrite()
        self.ann.put_object_acl(Bucket=self.bucket, Key="k", ACL="public-read")
        self.own(ENFORCED)
        self.assertEqual(self.statuses("get_object", Key="k"), [200, 403, 403, 403])
        self.assertEqual(self.grants(self.ann), [("ann", "FULL_CONTROL")])
        self.bob.put_object(Bucket=self.bucket, Key="b", Body=b"x")
        full = {"Key": "b", "ACL": "bucket-owner-full-control"}
        # This list changes nothing.
        self.assertEqual(self.status(self.ann, "put_object", **full, Body=b"x"), 200)
        self.assertEqual(self.owner(self.ann, "b"), "acann")
        code = "AccessControlListNotSupported"
        for acl in ("public-read", "private", "bucket-owner-read"):
            for operation in "put_object", "put_object_acl", "create_multipart_upload":
                self.assertCode(code, self.ann, operation, Key="b", ACL=acl)
            copy = {"Key": "c", "CopySource": f"{self.bucket}/b"}
            self.assertCode(code, self.ann, "copy_object", **copy, ACL=acl)
        self.assertEqual(self.status(self.ann, "put_object_acl", **full), 200)
        # Without it, what was set before counts again, and what was written stays whose it was.
        self.ann.delete_bucket_ownership_controls(Bucket=self.bucket)
        self.assertEqual(self.statuses("get_object", Key="k"), [200] * 4)
        self.assertEqual(self.statuses("get_object", Key="b"), [200, 403, 403, 403])

    def test_listed(self) -> None:
        """Lists show the owner that an object has: the writer, or the bucket's account for all."""
        self.letWrite()
        self.bob.put_object(Bucket=self.bucket, Key="b", Body=b"x")
        upload = self.bob.create_multipart_upload(Bucket=self.bucket, Key="m")["UploadId"]
        parts = {"Bucket": self.bucket, "Key": "m", "UploadId": upload}
        for ownership, owner in (("ObjectWriter", "acbob"), (ENFORCED, "acann")):
            self.own(ownership)
            uploads = self.ann.list_multipart_uploads(Bucket=self.bucket)["Uploads"]
            for found in (
                *self.ann.list_objects(Bucket=self.bucket)["Contents"][:1],
                *self.ann.list_objects_v2(Bucket=self.bucket, FetchOwner=True)["Contents"][:1],
                *self.ann.list_object_versions(Bucket=self.bucket)["Versions"][:1],
                *uploads,
                self.bob.list_parts(**parts),
            ):
                self.assertEqual(found["Owner"]["DisplayName"], owner)
            for found in (*uploads, self.bob.list_parts(**parts)):
                self.assertEqual(found["Initiator"]["DisplayName"], "acbob")
        self.own(PREFERRED)
        full = {"Key": "full", "ACL": "bucket-owner-full-control"}
        upload = self.bob.create_multipart_upload(Bucket=self.bucket, **full)["UploadId"]
        uploads = self.ann.list_multipart_uploads(Bucket=self.bucket)["Uploads"]
        parts = {"Bucket": self.bucket, "Key": "full", "UploadId": upload}
        shown = {each["Key"]: each["Owner"]["DisplayName"] for each in uploads}
        self.assertEqual(shown, {"full": "acann", "m": "acbob"})
        for found in (uploads[0], self.bob.list_parts(**parts)):
            self.assertEqual(found["Owner"]["DisplayName"], "acann")
            self.assertEqual(found["Initiator"]["DisplayName"], "acbob")

    def test_initiator(self) -> None:
        """An upload is its initiator's to list and to abort, unless a policy denies it."""
        self.letWrite()
        target = {"Bucket": self.bucket, "Key": "m"}
        uploadId = self.bob.create_multipart_upload(**target)["UploadId"]
        named = {"Key": "m", "UploadId": uploadId}
        self.assertEqual(self.statuses("list_parts", **named), [200, 200, 403, 403])
        self.assertEqual(self.status(self.eve, "abort_multipart_upload", **named), 403)
        allow = statement(self.bucket, {"AWS": "acbob"}, "s3:PutObject")
        deny = statement(
            self.bucket,
            "*",
            "s3:AbortMultipartUpload",
            "s3:ListMultipartUploadParts",
            Effect="Deny",
        )
        self.setPolicy(allow, deny)
        for operation in "list_parts", "abort_multipart_upload":
            self.assertEqual(self.statuses(operation, **named), [403] * 4)
        self.setPolicy(allow)
        self.assertEqual(self.status(self.bob, "abort_multipart_upload", **named), 204)
        self.assertEqual(self.statuses("list_parts", **named), [404, 403, 403, 403])


class FormTests(ObjectAclCase):
    """Browser forms."""

    def post(self, **fields: str) -> int:
        """Send a form without credentials."""
        return exchange(self.address, formRequest(self.bucket, fields, b"file")).status

    def test_anonymous(self) -> None:
        """A form without credentials stores where a policy or a list lets all write."""
        self.assertEqual(self.post(key="f"), 403)
        self.setPolicy(statement(self.bucket, "*", "s3:PutObject"))
        self.assertEqual(self.post(key="f"), 204)
        self.assertEqual(self.post(key="f", acl="public-read"), 403)
        self.assertEqual(self.post(key="f", acl="nothing"), 403)
        self.ann.delete_bucket_policy(Bucket=self.bucket)
        self.assertEqual(self.post(key="f"), 403)
        self.ann.put_bucket_acl(Bucket=self.bucket, ACL="public-read-write")
        self.assertEqual(self.post(key="g"), 204)
        self.assertEqual(self.post(key="g", **{"x-amz-tagging": "a=b"}), 204)
        self.assertEqual(self.post(key="h", acl="public-read"), 204)
        self.assertEqual(self.statuses("get_object", Key="h"), [200] * 4)
        retention = {"x-amz-object-lock-legal-hold": "ON"}
        self.assertEqual(self.post(key="i", **retention), 403)
        for action in "s3:PutObjectTagging", "s3:PutObjectAcl":
            self.setPolicy(statement(self.bucket, "*", action, Effect="Deny"))
            denied = {"x-amz-tagging": "a=b"} if "Tag" in action else {"acl": "public-read"}
            self.assertEqual(self.post(key="j", **denied), 403)

    def test_halfSigned(self) -> None:
        """A form with a part of a signature is none without credentials, nor one with a policy."""
        self.setPolicy(statement(self.bucket, "*", "s3:PutObject"))
        for name in "x-amz-signature", "x-amz-credential", "signature", "awsaccesskeyid":
            self.assertNotEqual(self.post(key="f", **{name: "x"}), 204, name)
        self.assertEqual(self.post(key="f", policy="e30="), 403)
        self.assertEqual(self.post(key="f", **{"x-amz-security-token": "x"}), 400)
        self.assertEqual(self.status(self.ann, "head_object", Key="f"), 404)


class ToolTests(ObjectAclCase):
    """aws-cli and s3cmd."""

    def setUp(self) -> None:
        """Have a directory."""
        super().setUp()
        self.files = self.makeDirectory()

    @long("takes seconds")
    def test_s3cmd(self) -> None:
        """setacl of objects, put with --acl-public, and cp, which sets the source's list."""
        program = needProgram("s3cmd")
        configuration = self.files / "s3cfg"
        writeS3cmdConfig(self.endpoint, configuration, self.accounts[0])

        def s3cmd(*arguments: str | Path) -> str:
            return runTool(
                [program, "--config", configuration, *arguments], {"HOME": str(self.files)}
            )

        target = f"s3://{self.bucket}/k"
        s3cmd("setacl", "--acl-public", target)
        self.assertEqual(self.statuses("get_object", Key="k"), [200] * 4)
        self.assertIn("*anon*: READ", s3cmd("info", target))
        s3cmd("setacl", "--acl-private", target)
        self.assertEqual(self.statuses("get_object", Key="k"), [200, 403, 403, 403])
        s3cmd("setacl", f"--acl-grant=read:{self.bobId}", target)
        self.assertEqual(self.statuses("get_object", Key="k"), [200, 200, 403, 403])
        s3cmd("setacl", f"--acl-revoke=read:{self.bobId}", target)
        self.assertEqual(self.statuses("get_object", Key="k"), [200, 403, 403, 403])
        file = self.files / "file"
        file.write_bytes(b"bytes")
        s3cmd("put", "--acl-public", file, f"s3://{self.bucket}/new")
        self.assertEqual(self.statuses("get_object", Key="new"), [200] * 4)
        s3cmd("cp", f"s3://{self.bucket}/new", f"s3://{self.bucket}/copy")
        self.assertEqual(self.status(self.ann, "get_object", Key="copy"), 200)

    @long("takes seconds")
    def test_aws(self) -> None:
        """put-object-acl, get-object-acl, and cp with --acl and with --grants."""
        program = needProgram("aws")
        environment = awsEnvironment(self.endpoint, self.files, self.accounts[0])

        def aws(*arguments: str) -> str:
            return runTool([program, *arguments], environment)

        named = ("--bucket", self.bucket, "--key", "k")
        aws("s3api", "put-object-acl", *named, "--acl", "public-read")
        self.assertEqual(self.statuses("get_object", Key="k"), [200] * 4)
        acl = json.loads(aws("s3api", "get-object-acl", *named, "--output", "json"))
        self.assertEqual([each["Permission"] for each in acl["Grants"]], ["READ", "FULL_CONTROL"])
        aws("s3api", "put-object-acl", *named, "--grant-read", f"id={self.bobId}")
        self.assertEqual(self.statuses("get_object", Key="k"), [200, 200, 403, 403])
        source, copy = f"s3://{self.bucket}/k", f"s3://{self.bucket}/copy"
        aws("s3", "cp", source, copy, "--acl", "public-read")
        self.assertEqual(self.statuses("get_object", Key="copy"), [200] * 4)
        aws("s3", "cp", source, copy, "--grants", f"read=id={self.bobId}")
        self.assertEqual(self.statuses("get_object", Key="copy"), [200, 200, 403, 403])


class ConfiguredTests(S3Case):
    """A daemon whose new buckets have an ownership, and which believes a proxy."""

    def setUp(self) -> None:
        """Start the daemon."""
        super().setUp()
        directory = ownDirectory("configured")
        file = directory / "file.toml"
        file.write_text(f'objectOwnership = "{ENFORCED}"\n[gateway]\ntrustedProxies = "loopback"\n')
        self.daemon = makeDaemon(directory / "data", "--config", str(file))
        self.addCleanup(self.daemon.kill)
        self.daemon.start()
        self._logStart = 0
        self.address = self.daemon.address()
        self.s3 = botoClient(self.daemon.url(), patient=False)

    def test_ownership(self) -> None:
        """A new bucket has the ownership, unless it names another one."""
        self.s3.create_bucket(Bucket="plain")
        self.s3.create_bucket(Bucket="named", ObjectOwnership="ObjectWriter", ACL="public-read")
        for bucket, expected in (("plain", ENFORCED), ("named", "ObjectWriter")):
            found = self.s3.get_bucket_ownership_controls(Bucket=bucket)["OwnershipControls"]
            self.assertEqual(found, {"Rules": [{"ObjectOwnership": expected}]})
        for code, operation, more in (
            ("InvalidBucketAclWithObjectOwnership", self.s3.create_bucket, {"Bucket": "other"}),
            ("AccessControlListNotSupported", self.s3.put_object, {"Bucket": "plain", "Key": "k"}),
        ):
            self.assertRefused(400, code, operation, **more, ACL="public-read")

    def test_forwarded(self) -> None:
        """A policy sees the address that the proxy names, and no other that a client does."""
        self.s3.create_bucket(Bucket="plain")
        self.s3.put_object(Bucket="plain", Key="k", Body=b"x")
        near = {"IpAddress": {"aws:SourceIp": "203.0.113.0/24"}}
        allow = statement("plain", "*", "s3:GetObject", Condition=near)
        self.s3.put_bucket_policy(Bucket="plain", Policy=json.dumps({"Statement": [allow]}))
        for addresses, status in (
            ("203.0.113.7", 200),
            ("198.51.100.1, 203.0.113.7", 200),
            ("203.0.113.7, 198.51.100.1", 403),
            ("203.0.113.7, 127.0.0.1", 200),
            ("203.0.113.7, nonsense", 403),
            ("", 403),
        ):
            get = Outgoing("GET", "/plain/k", {"X-Forwarded-For": addresses} if addresses else {})
            self.assertEqual(exchange(self.address, get).status, status, addresses)
        # A form's fields are no headers of a proxy.
        allow = statement("plain", "*", "s3:PutObject", Condition=near)
        self.s3.put_bucket_policy(Bucket="plain", Policy=json.dumps({"Statement": [allow]}))
        fields = {"key": "f", "X-Forwarded-For": "203.0.113.7"}
        self.assertEqual(exchange(self.address, formRequest("plain", fields, b"x")).status, 403)

    @long("takes a second or more")
    def test_failures(self) -> None:
        """Failed credentials count for the client, whichever proxy it comes through."""
        headers = {"X-Forwarded-For": "203.0.113.7", **Account("AKIDNONE", "none").plainHeaders()}
        wrong = Outgoing("GET", "/", headers)
        for _ in range(100):
            self.assertEqual(exchange(self.address, wrong, "127.0.0.251").status, 401)
        began = monotonic()
        self.assertEqual(exchange(self.address, wrong, "127.0.0.252").status, 401)
        # Only the lower bound: how late a busy machine makes it is no promise.
        self.assertGreater(monotonic() - began, 0.2)
