"""Encryption as boto3 asks for it."""

import json
import socket
from base64 import b64encode
from collections.abc import Mapping
from hashlib import md5
from itertools import product
from typing import Any
from urllib.parse import urlencode

from attrs import evolve
from botocore.exceptions import ClientError
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.support.clients import botoClient
from tests.support.s3signer import Answer, Outgoing
from tests.support.selection import long
from tests.wire.s3.fixture import S3Case, makeDaemon, ownDirectory, runStoragegate
from tests.wire.s3.forms import formRequest


def rule(kind: str, keyId: str = "", **more: Any) -> dict[str, Any]:
    """Write the configuration of a bucket with this default."""
    default = {"SSEAlgorithm": kind, **({"KMSMasterKeyID": keyId} if keyId else {})}
    return {"Rules": [{"ApplyServerSideEncryptionByDefault": default, **more}]}


class ConfigurationTests(S3Case):
    """The default encryption of a bucket."""

    def setUp(self) -> None:
        """Have a bucket."""
        super().setUp()
        self.bucket = self.makeBucket("encrypting")

    def put(self, configuration: dict[str, Any]) -> None:
        """Set the configuration."""
        self.s3.put_bucket_encryption(
            Bucket=self.bucket, ServerSideEncryptionConfiguration=configuration
        )

    def test_kept(self) -> None:
        """Each configuration is given back as it was set, and can be removed."""
        arn = "arn:aws:kms:us-east-1:123456789012:key/absent"
        for configuration in (
            rule("AES256"),
            rule("aws:kms"),
            # The configuration does not look for the key.
            rule("aws:kms", arn, BucketKeyEnabled=True),
            rule("AES256", BucketKeyEnabled=False),
            rule("AES256", BlockedEncryptionTypes={"EncryptionType": ["SSE-C"]}),
            rule("aws:kms", "main", BlockedEncryptionTypes={"EncryptionType": ["NONE"]}),
            {"Rules": [{"BlockedEncryptionTypes": {"EncryptionType": ["SSE-C"]}}]},
        ):
            self.put(configuration)
            found = self.s3.get_bucket_encryption(Bucket=self.bucket)
            self.assertEqual(found["ServerSideEncryptionConfiguration"], configuration)
        for _ in range(2):
            self.s3.delete_bucket_encryption(Bucket=self.bucket)
            self.assertRefused(
                404,
                "ServerSideEncryptionConfigurationNotFoundError",
                self.s3.get_bucket_encryption,
                Bucket=self.bucket,
            )

    def test_refused(self) -> None:
        """A configuration that cannot be meant changes nothing."""
        self.put(rule("AES256"))
        client = self.impatient()
        for status, code, configuration in (
            (501, "NotImplemented", rule("aws:kms:dsse")),
            (400, "InvalidArgument", rule("AES256", "key")),
            (400, "MalformedXML", rule("AES128")),
            (400, "MalformedXML", {"Rules": []}),
            (400, "MalformedXML", {"Rules": rule("AES256")["Rules"] * 2}),
        ):
            self.assertRefused(
                status,
                code,
                client.put_bucket_encryption,
                Bucket=self.bucket,
                ServerSideEncryptionConfiguration=configuration,
            )
        answer = self.sendSigned(Outgoing("PUT", f"/{self.bucket}?encryption"))
        self.assertAnswer(answer, 400, "MissingRequestBodyError")
        found = self.s3.get_bucket_encryption(Bucket=self.bucket)
        self.assertEqual(found["ServerSideEncryptionConfiguration"], rule("AES256"))


KEY = bytes(range(32))
OTHER_KEY = bytes(32)

PAIRS = b64encode(b'{"team": "blue"}').decode()

PLAIN: dict[str, Any] = {}
SSE_S3 = {"ServerSideEncryption": "AES256"}
SSE_KMS = {"ServerSideEncryption": "aws:kms"}
SSE_C = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": KEY}
KINDS = {"plain": PLAIN, "s3": SSE_S3, "kms": SSE_KMS, "c": SSE_C}
OTHER = {**SSE_C, "SSECustomerKey": OTHER_KEY}

NAMES = ("ServerSideEncryption", "SSEKMSKeyId", "SSECustomerAlgorithm", "SSECustomerKeyMD5")


def digestOf(key: bytes) -> str:
    """Return the MD5 of a key as requests and responses have it."""
    return b64encode(md5(key, usedforsecurity=False).digest()).decode()


def reading(kind: str) -> dict[str, Any]:
    """Return the arguments that a read of an object of a kind needs."""
    return SSE_C if kind == "c" else {}


def copying(kind: str) -> dict[str, Any]:
    """Return the arguments that a copy of an object of a kind needs for its source."""
    return {f"CopySource{name}": value for name, value in reading(kind).items()}


def encoded(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with the key as it is sent, for operations for which boto3 leaves it so."""
    if "SSECustomerKey" not in arguments:
        return arguments
    key = arguments["SSECustomerKey"]
    sent = {"SSECustomerKey": b64encode(key).decode(), "SSECustomerKeyMD5": digestOf(key)}
    return {**arguments, **sent}


def named(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of an answer that name the encryption."""
    return {name: answer[name] for name in NAMES if name in answer}


def shown(kind: str) -> dict[str, Any]:
    """Return the members of an answer about an object of a kind, with the tests' own key."""
    if kind == "c":
        return {"SSECustomerAlgorithm": "AES256", "SSECustomerKeyMD5": digestOf(KEY)}
    return KINDS[kind]


class EncryptionCase(S3Case):
    """A bucket without a default."""

    def setUp(self) -> None:
        """Create the bucket."""
        super().setUp()
        self.bucket = self.makeBucket("sealed")

    def put(self, key: str, body: bytes = b"plain bytes", **more: Any) -> dict[str, Any]:
        """Store an object."""
        answer: dict[str, Any] = self.s3.put_object(Bucket=self.bucket, Key=key, Body=body, **more)
        return answer

    def get(self, key: str, **more: Any) -> bytes:
        """Read an object."""
        body: bytes = self.s3.get_object(Bucket=self.bucket, Key=key, **more)["Body"].read()
        return body

    def setDefault(self, configuration: dict[str, Any] | None) -> None:
        """Set the default of the bucket; C{None} removes it."""
        if configuration is None:
            self.s3.delete_bucket_encryption(Bucket=self.bucket)
            return
        self.s3.put_bucket_encryption(
            Bucket=self.bucket, ServerSideEncryptionConfiguration=configuration
        )

    def refused(self, status: int, code: str, call: str, key: str = "k", **more: Any) -> Any:
        """Check that a call on a key of the bucket is refused."""
        function = getattr(self.impatient(), call)
        return self.assertRefused(status, code, function, Bucket=self.bucket, Key=key, **more)


class ObjectTests(EncryptionCase):
    """Objects of each kind."""

    def test_kinds(self) -> None:
        """Each kind is named by all answers, read back whole and in ranges, and has its ETag."""
        body = bytes(range(256)) * 600
        plain = md5(body, usedforsecurity=False).hexdigest()
        for kind, wanted in KINDS.items():
            put = self.put(kind, body, **wanted)
            self.assertEqual(named(put), shown(kind))
            head = self.s3.head_object(Bucket=self.bucket, Key=kind, **reading(kind))
            self.assertEqual((named(head), head["ContentLength"]), (shown(kind), len(body)))
            self.assertEqual((head["ETag"] == f'"{plain}"'), kind in ("plain", "s3"), kind)
            self.assertRegex(head["ETag"], '^"[0-9a-f]{32}"$')
            self.assertEqual(put["ETag"], head["ETag"])
            found = self.s3.get_object(Bucket=self.bucket, Key=kind, **reading(kind))
            self.assertEqual(named(found), shown(kind))
            self.assertTrue(found["Body"].read() == body)
            for first, last in ((0, 0), (65_535, 65_536), (100_000, 100_099), (153_000, 200_000)):
                part = self.get(kind, Range=f"bytes={first}-{last}", **reading(kind))
                self.assertTrue(part == body[first : last + 1], (kind, first))

    def test_attributes(self) -> None:
        """GetObjectAttributes shows the checksum and size of the plain bytes of every kind."""
        for kind, wanted in KINDS.items():
            put = self.put(kind, b"attributes", ChecksumAlgorithm="SHA256", **wanted)
            found = self.s3.get_object_attributes(
                Bucket=self.bucket,
                Key=kind,
                ObjectAttributes=["Checksum", "ObjectSize", "ETag"],
                **encoded(reading(kind)),
            )
            self.assertEqual(found["Checksum"]["ChecksumSHA256"], put["ChecksumSHA256"])
            self.assertEqual((found["ObjectSize"], f'"{found["ETag"]}"'), (10, put["ETag"]))
            head = self.s3.head_object(
                Bucket=self.bucket, Key=kind, ChecksumMode="ENABLED", **reading(kind)
            )
            self.assertEqual(head["ChecksumSHA256"], put["ChecksumSHA256"])

    def test_context(self) -> None:
        """A context is shown to its writer alone; a key id comes back as it came."""
        runStoragegate("masterkeys", "create", "team", *self.daemon.storeArguments)
        for keyId in ("team", "arn:aws:kms:us-east-1:123456789012:key/team"):
            wanted = {**SSE_KMS, "SSEKMSKeyId": keyId}
            put = self.put("k", SSEKMSEncryptionContext=PAIRS, BucketKeyEnabled=True, **wanted)
            self.assertEqual(put["SSEKMSEncryptionContext"], PAIRS)
            head = self.s3.head_object(Bucket=self.bucket, Key="k")
            self.assertEqual((named(head), head["BucketKeyEnabled"]), (wanted, True))
            self.assertNotIn("x-amz-server-side-encryption-context", str(head))
            self.assertEqual(self.get("k"), b"plain bytes")

    def test_masterKeys(self) -> None:
        """A write with an unknown key is 400; the configuration of the bucket does not ask."""
        absent = {**SSE_KMS, "SSEKMSKeyId": "absent"}
        self.refused(400, "KMS.NotFoundException", "put_object", Body=b"x", **absent)
        self.refused(400, "KMS.NotFoundException", "create_multipart_upload", **absent)
        self.setDefault(rule("aws:kms", "absent"))
        self.refused(400, "KMS.NotFoundException", "put_object", Body=b"x")
        # An explicit kind wins, whole.
        self.assertEqual(named(self.put("k", **SSE_KMS)), SSE_KMS)
        self.assertEqual(named(self.put("k", **SSE_S3)), SSE_S3)

    def test_keys(self) -> None:
        """An object needs the key it was written with: another is 403, none or one too many 400."""
        self.put("c", **SSE_C)
        self.put("s3", **SSE_S3)
        self.put("plain")
        attributes = {"ObjectAttributes": ["ETag"]}
        for call, more, form in (
            ("get_object", {}, dict),
            ("get_object_attributes", attributes, encoded),
        ):
            self.refused(403, "AccessDenied", call, "c", **form(OTHER), **more)
            self.refused(400, "InvalidRequest", call, "c", **more)
            for key in ("s3", "plain"):
                self.refused(400, "InvalidRequest", call, key, **form(SSE_C), **more)
        self.refused(403, "403", "head_object", "c", **OTHER)
        self.refused(400, "400", "head_object", "c")
        self.refused(400, "400", "head_object", "plain", **SSE_C)
        # A condition is judged after the key.
        self.refused(400, "InvalidRequest", "get_object", "c", IfNoneMatch="*")
        self.refused(403, "AccessDenied", "get_object", "c", Range="bytes=0-1", **OTHER)

    def test_incomplete(self) -> None:
        """A key without its algorithm or MD5, of another length, or damaged is 400."""
        whole = {
            "x-amz-server-side-encryption-customer-algorithm": "AES256",
            "x-amz-server-side-encryption-customer-key": b64encode(KEY).decode(),
            "x-amz-server-side-encryption-customer-key-MD5": digestOf(KEY),
        }
        wrong = [{each: whole[each] for each in whole if each != name} for name in whole]
        short = {**whole, "x-amz-server-side-encryption-customer-key": b64encode(KEY[1:]).decode()}
        other = {**whole, "x-amz-server-side-encryption-customer-key-MD5": digestOf(OTHER_KEY)}
        for headers in (*wrong, short, other):
            for method, target in (("PUT", "k"), ("GET", "c"), ("POST", "k?uploads")):
                self.put("c", **SSE_C)
                answer = self.sendSigned(Outgoing(method, f"/{self.bucket}/{target}", headers))
                self.assertAnswer(answer, 400, "InvalidArgument")
                self.assertNotIn(b64encode(KEY).decode(), answer.body.decode())
        self.assertMissing(self.bucket, "k")

    def test_conflicts(self) -> None:
        """Two kinds, a key id of no kind, and an unknown kind are 400; two layers are 501."""
        for status, code, headers in (
            (400, "InvalidArgument", {**SSE_S3, **SSE_C}),
            (400, "InvalidArgument", {**SSE_KMS, **SSE_C}),
            (400, "InvalidArgument", {"SSEKMSKeyId": "team"}),
            (400, "InvalidArgument", {**SSE_S3, "SSEKMSKeyId": "team"}),
            (400, "InvalidArgument", {"ServerSideEncryption": "AES128"}),
            (400, "InvalidArgument", {**SSE_KMS, "SSEKMSEncryptionContext": "none"}),
            (501, "NotImplemented", {"ServerSideEncryption": "aws:kms:dsse"}),
        ):
            self.refused(status, code, "put_object", Body=b"x", **headers)
            self.refused(status, code, "create_multipart_upload", **headers)
            source = f"{self.bucket}/source"
            self.put("source")
            self.refused(status, code, "copy_object", CopySource=source, **headers)
        self.assertMissing(self.bucket, "k")

    def test_kindsOfReads(self) -> None:
        """Only a request that makes an object names a kind."""
        self.put("s3", **SSE_S3)
        target = {"Bucket": self.bucket, "Key": "s3"}
        upload = self.s3.create_multipart_upload(**target, **SSE_S3)["UploadId"]
        for name, value in (
            ("x-amz-server-side-encryption", "AES256"),
            ("x-amz-server-side-encryption-aws-kms-key-id", "team"),
        ):
            for method, query in (
                ("GET", ""),
                ("HEAD", ""),
                ("GET", "?attributes"),
                ("PUT", f"?partNumber=1&uploadId={upload}"),
                ("POST", f"?uploadId={upload}"),
                ("GET", f"?uploadId={upload}"),
            ):
                headers = {name: value, "x-amz-object-attributes": "ETag"}
                outgoing = Outgoing(method, f"/{self.bucket}/s3{query}", headers)
                answer = self.sendSigned(outgoing)
                self.assertEqual(answer.status, 400, (method, query, answer))
                if method != "HEAD":
                    self.assertEqual(answer.code, "InvalidArgument")


class DefaultTests(EncryptionCase):
    """Every request and every default of a bucket."""

    @long("makes a hundred requests")
    def test_matrix(self) -> None:
        """A request has its own kind, whole, or else the default of the bucket."""
        runStoragegate("masterkeys", "create", "matrix", *self.daemon.storeArguments)
        own = {**SSE_KMS, "SSEKMSKeyId": "matrix"}
        requests = {**KINDS, "own": own}
        defaults: list[tuple[dict[str, Any] | None, dict[str, Any]]] = [
            (None, PLAIN),
            (rule("AES256"), SSE_S3),
            (rule("aws:kms"), SSE_KMS),
            (rule("aws:kms", "matrix"), own),
        ]
        for blocks in (False, True):
            for configuration, default in defaults:
                wanted = configuration
                if blocks:
                    blocked = {"BlockedEncryptionTypes": {"EncryptionType": ["SSE-C"]}}
                    rules = [{**(wanted["Rules"][0] if wanted else {}), **blocked}]
                    wanted = {"Rules": rules}
                self.setDefault(wanted)
                for kind, arguments in requests.items():
                    self._check(kind, arguments, default, blocks)

    def _check(
        self, kind: str, arguments: dict[str, Any], default: dict[str, Any], blocks: bool
    ) -> None:
        """Make objects by a put, a copy and an upload, and check what they are."""
        target = {"Bucket": self.bucket, "Key": "k"}
        source = {"CopySource": f"{self.bucket}/source"}
        if kind == "c" and blocks:
            self.refused(403, "AccessDenied", "put_object", Body=b"x", **arguments)
            self.refused(403, "AccessDenied", "create_multipart_upload", **arguments)
            self.refused(403, "AccessDenied", "copy_object", **source, **arguments)
            return
        expected = shown("c") if kind == "c" else arguments or default
        self.put("source", b"source")
        for answer in (
            self.s3.put_object(Body=b"put", **target, **arguments),
            self.s3.copy_object(**source, **target, **arguments),
        ):
            self.assertEqual(named(answer), expected)
            self.assertEqual(named(self.s3.head_object(**target, **reading(kind))), expected)
        self.assertEqual(self.get("k", **reading(kind)), b"source")
        upload = self.s3.create_multipart_upload(**target, **arguments)
        self.assertEqual(named(upload), expected)
        part = self.s3.upload_part(
            UploadId=upload["UploadId"], PartNumber=1, Body=b"part", **target, **reading(kind)
        )
        self.assertEqual(named(part), expected)
        done = self.s3.complete_multipart_upload(
            UploadId=upload["UploadId"],
            MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]},
            **target,
        )
        if kind != "c":
            self.assertEqual(named(done), expected)
        self.assertEqual(self.get("k", **reading(kind)), b"part")

    def test_blocked(self) -> None:
        """A block of clients' keys refuses writes; objects that exist are read on."""
        self.put("before", **SSE_C)
        self.put("plain")
        self.setDefault({"Rules": [{"BlockedEncryptionTypes": {"EncryptionType": ["SSE-C"]}}]})
        self.assertEqual(self.get("before", **SSE_C), b"plain bytes")
        source = {"CopySource": f"{self.bucket}/plain"}
        self.refused(403, "AccessDenied", "put_object", Body=b"x", **SSE_C)
        self.refused(403, "AccessDenied", "copy_object", **source, **SSE_C)
        self.refused(403, "AccessDenied", "create_multipart_upload", **SSE_C)
        copied = {"CopySource": f"{self.bucket}/before", **copying("c")}
        self.s3.copy_object(Bucket=self.bucket, Key="copy", **copied)
        self.assertEqual(self.get("copy"), b"plain bytes")

    def test_blockedUpload(self) -> None:
        """A block also stops an upload with a client's key that began before it."""
        begun = self.s3.create_multipart_upload(Bucket=self.bucket, Key="k", **SSE_C)
        upload = {"UploadId": begun["UploadId"]}
        part = {"PartNumber": 1, "Body": b"part", **SSE_C}
        etag = self.s3.upload_part(Bucket=self.bucket, Key="k", **upload, **part)["ETag"]
        done = {"MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": etag}]}, **upload}
        self.put("plain")
        copied = {"CopySource": f"{self.bucket}/plain", "PartNumber": 2, **SSE_C}
        block = {"Rules": [{"BlockedEncryptionTypes": {"EncryptionType": ["SSE-C"]}}]}
        self.setDefault(block)
        self.refused(403, "AccessDenied", "upload_part", **upload, **part)
        self.refused(403, "AccessDenied", "upload_part_copy", **upload, **copied)
        for key in ({}, SSE_C):
            self.refused(403, "AccessDenied", "complete_multipart_upload", **done, **key)
        self.assertMissing(self.bucket, "k")
        self.setDefault(None)
        self.s3.complete_multipart_upload(Bucket=self.bucket, Key="k", **done)
        self.setDefault(block)
        # The same completion again writes nothing.
        self.s3.complete_multipart_upload(Bucket=self.bucket, Key="k", **done)
        self.assertEqual(self.get("k", **SSE_C), b"part")
        begun = self.s3.create_multipart_upload(Bucket=self.bucket, Key="other")
        self.s3.abort_multipart_upload(Bucket=self.bucket, Key="other", UploadId=begun["UploadId"])


class CopyTests(EncryptionCase):
    """Copies from each kind to each."""

    @long("makes eighty copies")
    def test_everyPair(self) -> None:
        """A copy has the kind that it names and the bytes of its source."""
        for size in (0, 1, 1000, 1 << 20, 8 << 20):
            body = bytes(range(256)) * (size // 256) + bytes(size % 256)
            for kind, wanted in KINDS.items():
                self.put(f"from-{kind}", body, **wanted)
            for source, target in product(KINDS, KINDS):
                copy = self.s3.copy_object(
                    Bucket=self.bucket,
                    Key=f"to-{target}",
                    CopySource=f"{self.bucket}/from-{source}",
                    **copying(source),
                    **KINDS[target],
                )
                self.assertEqual(named(copy), shown(target), (source, target))
                found = self.s3.get_object(
                    Bucket=self.bucket, Key=f"to-{target}", **reading(target)
                )
                self.assertTrue(found["Body"].read() == body, (source, target, size))
                self.assertEqual(found["ETag"], copy["CopyObjectResult"]["ETag"])
                if target in ("plain", "s3"):
                    plain = md5(body, usedforsecurity=False).hexdigest()
                    self.assertEqual(found["ETag"], f'"{plain}"', (source, target))

    def test_sources(self) -> None:
        """A source needs its own key, whatever the target is."""
        self.put("c", **SSE_C)
        self.put("plain")
        other = {f"CopySource{name}": value for name, value in OTHER.items()}
        source = {"CopySource": f"{self.bucket}/c"}
        self.refused(403, "AccessDenied", "copy_object", **source, **other)
        self.refused(400, "InvalidRequest", "copy_object", **source)
        self.refused(400, "InvalidRequest", "copy_object", **source, **SSE_C)
        plain = {"CopySource": f"{self.bucket}/plain", **copying("c")}
        self.refused(400, "InvalidRequest", "copy_object", **plain)
        self.assertMissing(self.bucket, "k")

    def test_itself(self) -> None:
        """An object is encrypted, given another kind and made plain in its place."""
        self.put("k", Metadata={"name": "value"})
        source = {"CopySource": f"{self.bucket}/k"}
        before = "plain"
        for kind in ("s3", "kms", "c", "kms", "s3"):
            copied = {**source, **copying(before), **KINDS[kind]}
            self.s3.copy_object(Bucket=self.bucket, Key="k", **copied)
            head = self.s3.head_object(Bucket=self.bucket, Key="k", **reading(kind))
            self.assertEqual((named(head), head["Metadata"]), (shown(kind), {"name": "value"}))
            self.assertEqual(self.get("k", **reading(kind)), b"plain bytes")
            before = kind
        self.refused(400, "InvalidRequest", "copy_object", **source)

    @long("uploads parts of 5 MiB")
    def test_parts(self) -> None:
        """Parts of objects of every kind make an object of each, as Docker's registry does."""
        body = bytes(range(256)) * (24 << 10)
        for kind, wanted in KINDS.items():
            self.put(f"from-{kind}", body, **wanted)
        for target in KINDS:
            key = {"Bucket": self.bucket, "Key": f"moved-{target}"}
            upload = self.s3.create_multipart_upload(**key, **KINDS[target])["UploadId"]
            parts = []
            expected = b""
            for number, source in enumerate(KINDS, 1):
                first, last = number * 1000, number * 1000 + (5 << 20) - 1
                part = self.s3.upload_part_copy(
                    UploadId=upload,
                    PartNumber=number,
                    CopySource=f"{self.bucket}/from-{source}",
                    CopySourceRange=f"bytes={first}-{last}",
                    **key,
                    **copying(source),
                    **reading(target),
                )
                self.assertEqual(named(part), shown(target))
                parts.append({"PartNumber": number, "ETag": part["CopyPartResult"]["ETag"]})
                expected += body[first : last + 1]
            self.s3.complete_multipart_upload(
                UploadId=upload, MultipartUpload={"Parts": parts}, **key
            )
            self.assertTrue(self.get(f"moved-{target}", **reading(target)) == expected, target)


class MultipartTests(EncryptionCase):
    """Uploads in parts."""

    def begin(self, kind: str, **more: Any) -> dict[str, Any]:
        """Begin an upload; return the arguments that name it."""
        target = {"Bucket": self.bucket, "Key": f"upload-{kind}"}
        begun = self.s3.create_multipart_upload(**target, **KINDS[kind], **more)
        self.assertEqual(named(begun), shown(kind))
        return {**target, "UploadId": begun["UploadId"]}

    @long("uploads parts of 5 MiB")
    def test_kinds(self) -> None:
        """Parts of every kind are read back by ranges and part numbers, with their checksums."""
        sizes = (5 << 20, (5 << 20) + 1, 77)
        pieces = [bytes([number]) * size for number, size in enumerate(sizes, 1)]
        for kind in KINDS:
            upload = self.begin(kind, ChecksumAlgorithm="CRC32C")
            parts = []
            for number, piece in enumerate(pieces, 1):
                part = self.s3.upload_part(
                    PartNumber=number,
                    Body=piece,
                    ChecksumAlgorithm="CRC32C",
                    **upload,
                    **reading(kind),
                )
                self.assertEqual(named(part), shown(kind))
                each = {"PartNumber": number, "ETag": part["ETag"]}
                parts.append({**each, "ChecksumCRC32C": part["ChecksumCRC32C"]})
            listed = self.s3.list_parts(**upload, **encoded(reading(kind)))["Parts"]
            self.assertEqual([each["Size"] for each in listed], list(sizes))
            sums = [each["ChecksumCRC32C"] for each in parts]
            self.assertEqual([each["ChecksumCRC32C"] for each in listed], sums)
            done = self.s3.complete_multipart_upload(
                MultipartUpload={"Parts": parts}, **upload, **reading(kind)
            )
            self.assertRegex(done["ETag"], '^"[0-9a-f]{32}-3"$')
            self.assertIn("ChecksumCRC32C", done)
            key = upload["Key"]
            for number, piece in enumerate(pieces, 1):
                self.assertTrue(self.get(key, PartNumber=number, **reading(kind)) == piece)
                head = self.s3.head_object(
                    Bucket=self.bucket,
                    Key=key,
                    PartNumber=number,
                    ChecksumMode="ENABLED",
                    **reading(kind),
                )
                self.assertEqual(head["ChecksumCRC32C"], sums[number - 1])
            across = self.get(key, Range=f"bytes={sizes[0] - 2}-{sizes[0] + 1}", **reading(kind))
            self.assertEqual(across, b"\1\1\2\2")
            attributes = self.s3.get_object_attributes(
                Bucket=self.bucket,
                Key=key,
                ObjectAttributes=["ObjectParts", "Checksum"],
                **encoded(reading(kind)),
            )["ObjectParts"]["Parts"]
            self.assertEqual([each["ChecksumCRC32C"] for each in attributes], sums)

    def test_keyOfCreate(self) -> None:
        """All parts use the key of the creation, and parts of other kinds have none."""
        upload = self.begin("c")
        call = self.impatient().upload_part
        part = {**upload, "PartNumber": 1, "Body": b"x"}
        for more in ({}, OTHER):
            self.assertRefused(400, "InvalidRequest", call, **part, **more)
        copied = {"CopySource": f"{self.bucket}/plain", "PartNumber": 1, **upload}
        self.put("plain")
        for more in ({}, OTHER):
            copy = self.impatient().upload_part_copy
            self.assertRefused(400, "InvalidRequest", copy, **copied, **more)
        for kind in ("plain", "s3", "kms"):
            other = {**self.begin(kind), "PartNumber": 1, "Body": b"x"}
            self.assertRefused(400, "InvalidRequest", call, **other, **SSE_C)
        etag = self.s3.upload_part(**part, **SSE_C)["ETag"]
        parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
        complete = self.impatient().complete_multipart_upload
        self.assertRefused(
            400, "InvalidRequest", complete, MultipartUpload=parts, **upload, **OTHER
        )
        self.s3.complete_multipart_upload(MultipartUpload=parts, **upload)
        self.assertEqual(self.get("upload-c", **SSE_C), b"x")

    def test_keyOfChecksums(self) -> None:
        """An upload that named checksums needs its key for its list and its completion."""
        upload = self.begin("c", ChecksumAlgorithm="SHA1")
        part = self.s3.upload_part(
            PartNumber=1, Body=b"x", ChecksumAlgorithm="SHA1", **upload, **SSE_C
        )
        named = {name: part[name] for name in ("ETag", "ChecksumSHA1")}
        parts = {"Parts": [{"PartNumber": 1, **named}]}
        client = self.impatient()
        self.assertRefused(400, "InvalidRequest", client.list_parts, **upload)
        complete = {"MultipartUpload": parts, **upload}
        self.assertRefused(400, "InvalidRequest", client.complete_multipart_upload, **complete)
        [listed] = self.s3.list_parts(**upload, **encoded(SSE_C))["Parts"]
        self.assertEqual(listed["ChecksumSHA1"], part["ChecksumSHA1"])
        done = self.s3.complete_multipart_upload(**complete, **SSE_C)
        self.assertTrue(done["ChecksumSHA1"].endswith("-1"))


class FormTests(EncryptionCase):
    """Browser forms, whose fields name what headers name."""

    def post(self, **fields: str) -> Answer:
        """Send a form with these fields, with underscores for hyphens."""
        more = {name.replace("_", "-"): value for name, value in fields.items()}
        form = self.s3.generate_presigned_post(
            self.bucket, "form", Fields=more, Conditions=[{name: more[name]} for name in more]
        )
        return self.send(formRequest(self.bucket, form["fields"], b"file"))

    def test_kinds(self) -> None:
        """A form stores an object of each kind."""
        customer = {
            "x_amz_server_side_encryption_customer_algorithm": "AES256",
            "x_amz_server_side_encryption_customer_key": b64encode(KEY).decode(),
            "x_amz_server_side_encryption_customer_key_MD5": digestOf(KEY),
        }
        for kind, fields in (
            ("plain", {}),
            ("s3", {"x_amz_server_side_encryption": "AES256"}),
            ("kms", {"x_amz_server_side_encryption": "aws:kms"}),
            ("c", customer),
        ):
            answer = self.post(**fields)
            self.assertEqual(answer.status, 204, answer)
            expected = shown(kind).get("ServerSideEncryption")
            self.assertEqual(answer.headers.get("x-amz-server-side-encryption"), expected)
            head = self.s3.head_object(Bucket=self.bucket, Key="form", **reading(kind))
            self.assertEqual(named(head), shown(kind))
            self.assertEqual(self.get("form", **reading(kind)), b"file")
        self.setDefault(rule("AES256"))
        self.assertEqual(self.post().headers["x-amz-server-side-encryption"], "AES256")

    def test_injection(self) -> None:
        """A key id that no header can have is refused in a form and in the default of a bucket."""
        keyId = "arn:\r\nX-Injected: 1/default"
        answer = self.post(
            x_amz_server_side_encryption="aws:kms",
            x_amz_server_side_encryption_aws_kms_key_id=keyId,
        )
        self.assertAnswer(answer, 400, "InvalidArgument")
        for wrong in ("a\nb/default", "arn:\u20ac/default", "arn:\x7f/default", "k" * 2049):
            self.assertRefused(
                400,
                "MalformedXML",
                self.impatient().put_bucket_encryption,
                Bucket=self.bucket,
                ServerSideEncryptionConfiguration=rule("aws:kms", wrong),
            )
        self.assertMissing(self.bucket, "form")


class PresignedTests(EncryptionCase):
    """Presigned URLs of objects with clients' keys."""

    def test_headers(self) -> None:
        """The headers are signed along, and the client of the URL must send the key."""
        headers = {
            "x-amz-server-side-encryption-customer-algorithm": "AES256",
            "x-amz-server-side-encryption-customer-key": b64encode(KEY).decode(),
            "x-amz-server-side-encryption-customer-key-MD5": digestOf(KEY),
        }
        target = f"/{self.bucket}/k"
        put = self.signer.presign(Outgoing("PUT", target, headers, b"by a URL"))
        self.assertEqual(self.send(put).status, 200)
        get = self.signer.presign(Outgoing("GET", target, headers))
        self.assertEqual(self.send(get).body, b"by a URL")
        bare = evolve(get, headers={})
        self.assertEqual(self.send(bare).status, 403)
        other = {
            **headers,
            "x-amz-server-side-encryption-customer-key": b64encode(OTHER_KEY).decode(),
            "x-amz-server-side-encryption-customer-key-MD5": digestOf(OTHER_KEY),
        }
        wrong = self.signer.presign(Outgoing("GET", target, other))
        self.assertAnswer(self.send(wrong), 403, "AccessDenied")
        # A URL of the SDKs that has the headers in its query.
        query = urlencode(headers)
        moved = self.signer.presign(Outgoing("GET", f"{target}?{query}"))
        self.assertEqual(self.send(moved).body, b"by a URL")


@long("issues a key")
class PolicyTests(EncryptionCase):
    """Policies that require an encryption."""

    def setUp(self) -> None:
        """Have a client of another account, which may write and read."""
        super().setUp()
        self.account = self.issueKey("policies")
        self.other = botoClient(self.endpoint, self.account, patient=False)

    def require(self, *conditions: dict[str, Any]) -> None:
        """Deny writes that meet one of the conditions."""
        resource = f"arn:aws:s3:::{self.bucket}/*"
        allow = {
            "Effect": "Allow",
            "Principal": {"AWS": "policies"},
            "Action": ["s3:PutObject", "s3:GetObject"],
            "Resource": resource,
        }
        deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": resource}
        statements = [allow, *({**deny, "Condition": each} for each in conditions)]
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        self.s3.put_bucket_policy(Bucket=self.bucket, Policy=policy)

    def assertPuts(self, code: str, **more: Any) -> None:
        """Check what becomes of a put, a copy and a whole upload by the other account."""
        target = {"Bucket": self.bucket, "Key": "k"}
        source = {"CopySource": f"{self.bucket}/source"}
        calls = (
            (self.other.put_object, {"Body": b"x"}),
            (self.other.copy_object, source),
            (self.other.create_multipart_upload, {}),
        )
        if code:
            for call, arguments in calls:
                status = 403 if code == "AccessDenied" else 400
                self.assertRefused(status, code, call, **target, **arguments, **more)
            return
        for call, arguments in calls:
            answer = call(**target, **arguments, **more)
        upload = {**target, "UploadId": answer["UploadId"]}
        # No request after the creation can name a kind.
        key = {name: value for name, value in more.items() if "Customer" in name}
        etag = self.other.upload_part(PartNumber=1, Body=b"x", **upload, **key)["ETag"]
        copy = self.other.upload_part_copy(PartNumber=2, **source, **upload, **key)
        self.assertIn("CopyPartResult", copy)
        parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
        for _ in range(2):
            self.other.complete_multipart_upload(MultipartUpload=parts, **upload)

    def test_unencrypted(self) -> None:
        """Uploads without encryption are denied, with it allowed, also in parts."""
        self.put("source")
        name = "s3:x-amz-server-side-encryption"
        self.require({"Null": {name: "true"}}, {"StringNotEquals": {name: ["AES256", "aws:kms"]}})
        self.assertPuts("AccessDenied")
        # The default of the bucket is not what the request names.
        self.setDefault(rule("AES256"))
        self.assertPuts("AccessDenied")
        self.assertPuts("AccessDenied", **SSE_C)
        for kind in (SSE_S3, SSE_KMS):
            self.assertPuts("", **kind)
        # The policy is judged before the header.
        self.assertPuts("AccessDenied", ServerSideEncryption="aes256")
        self.require()
        self.assertPuts("InvalidArgument", ServerSideEncryption="aes256")

    def test_keyId(self) -> None:
        """A policy requires a master key by the id that requests name."""
        self.put("source")
        runStoragegate("masterkeys", "create", "policies", *self.daemon.storeArguments)
        name = "s3:x-amz-server-side-encryption-aws-kms-key-id"
        self.require({"StringNotEquals": {name: "policies"}})
        self.assertPuts("AccessDenied", **SSE_KMS)
        self.assertPuts("AccessDenied", **SSE_S3)
        self.assertPuts("AccessDenied", **SSE_KMS, SSEKMSKeyId="absent")
        self.assertPuts("", **SSE_KMS, SSEKMSKeyId="policies")

    def test_customerKeys(self) -> None:
        """A policy requires keys of clients, or refuses them."""
        self.put("source")
        name = "s3:x-amz-server-side-encryption-customer-algorithm"
        self.require({"Null": {name: "true"}})
        self.assertPuts("AccessDenied", **SSE_S3)
        self.assertPuts("", **SSE_C)
        self.require({"Null": {name: "false"}})
        self.assertPuts("AccessDenied", **SSE_C)
        self.assertPuts("", **SSE_S3)


def foreignAddress() -> str:
    """
    Return an address of this machine that is not loopback.

    @raise SkipTest: There is none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: the system only chooses the address of a route.
            probe.connect(("203.0.113.1", 9))
        except OSError as error:
            raise SkipTest(f"this machine has no address but loopback: {error}") from error
        address: str = probe.getsockname()[0]
    return address


@long("starts two daemons")
class ClearTextTests(SynchronousTestCase):
    """Keys of clients in clear text, from another address than loopback."""

    def test_remote(self) -> None:
        """They are refused unless the operator permits them; other kinds and loopback are not."""
        address = foreignAddress()
        for permitted, code in (("false", "InvalidRequest"), ("true", "")):
            directory = ownDirectory("cleartext")
            daemon = makeDaemon(
                directory / "data",
                "--s3",
                "tcp:0:interface=0.0.0.0",
                STORAGEGATE_CUSTOMER_KEYS_OVER_HTTP=permitted,
            )
            self.addCleanup(daemon.kill)
            daemon.start()
            port = daemon.address("s3")[1]
            near = botoClient(f"http://127.0.0.1:{port}", patient=False)
            far = botoClient(f"http://{address}:{port}", patient=False)
            near.create_bucket(Bucket="bucket")
            near.put_object(Bucket="bucket", Key="k", Body=b"secret", **SSE_C)
            far.put_object(Bucket="bucket", Key="other", Body=b"x", **SSE_S3)
            found = ""
            try:
                self.assertEqual(
                    far.get_object(Bucket="bucket", Key="k", **SSE_C)["Body"].read(), b"secret"
                )
            except ClientError as error:
                found = error.response["Error"]["Code"]
            self.assertEqual(found, code)
            daemon.stop()


@long("starts a daemon")
class BlockingDefaultTests(SynchronousTestCase):
    """New buckets as at Amazon since April 2026."""

    def test_newBuckets(self) -> None:
        """
        With C{blockCustomerKeys}, new buckets block clients' keys until they are allowed; buckets
        that exist, other kinds of encryption and other settings of new buckets stay as they are.
        """
        data = ownDirectory("blocking") / "data"
        daemon = makeDaemon(data)
        self.addCleanup(daemon.kill)
        s3 = botoClient(daemon.start().url(), patient=False)
        s3.create_bucket(Bucket="before")
        daemon.stop()
        daemon = makeDaemon(data, STORAGEGATE_BLOCK_CUSTOMER_KEYS="true")
        self.addCleanup(daemon.kill)
        s3 = botoClient(daemon.start().url(), patient=False)
        s3.put_object(Bucket="before", Key="k", Body=b"x", **SSE_C)
        tags = [{"Key": "team", "Value": "red"}]
        s3.create_bucket(Bucket="new", CreateBucketConfiguration={"Tags": tags}, ACL="public-read")
        self.assertEqual(s3.get_bucket_tagging(Bucket="new")["TagSet"], tags)
        self.assertEqual(len(s3.get_bucket_acl(Bucket="new")["Grants"]), 2)
        found = s3.get_bucket_encryption(Bucket="new")["ServerSideEncryptionConfiguration"]
        block = {"BlockedEncryptionTypes": {"EncryptionType": ["SSE-C"]}}
        self.assertEqual(found, {"Rules": [block]})
        with self.assertRaises(ClientError) as caught:
            s3.put_object(Bucket="new", Key="k", Body=b"x", **SSE_C)
        self.assertEqual(caught.exception.response["Error"]["Code"], "AccessDenied")
        s3.put_object(Bucket="new", Key="k", Body=b"x", **SSE_S3)
        s3.put_object(Bucket="new", Key="plain", Body=b"x")
        allowed = {"Rules": [{"BlockedEncryptionTypes": {"EncryptionType": ["NONE"]}}]}
        s3.put_bucket_encryption(Bucket="new", ServerSideEncryptionConfiguration=allowed)
        s3.put_object(Bucket="new", Key="k", Body=b"x", **SSE_C)
        daemon.stop()
