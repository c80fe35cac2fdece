"""Buckets with versions, as boto3 sees them."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from botocore.exceptions import ClientError

from tests.support.s3signer import Outgoing
from tests.wire.s3.fixture import S3Case

Entry = dict[str, Any]


class VersioningCase(S3Case):
    """Have a bucket that never had versioning."""

    def setUp(self) -> None:
        """Make the bucket."""
        super().setUp()
        self.bucket = self.makeBucket()

    def setVersioning(self, status: str) -> None:
        """Enable or suspend versioning."""
        self.s3.put_bucket_versioning(
            Bucket=self.bucket, VersioningConfiguration={"Status": status}
        )

    def put(self, body: bytes, key: str = "k") -> str | None:
        """Store an object; give its version id."""
        answer = self.s3.put_object(Bucket=self.bucket, Key=key, Body=body)
        found: str | None = answer.get("VersionId")
        return found

    def get(self, version: str | None = None, key: str = "k") -> tuple[bytes, str | None]:
        """Read an object, or a version of it; give the bytes, and the id in the answer."""
        named = {} if version is None else {"VersionId": version}
        answer = self.s3.get_object(Bucket=self.bucket, Key=key, **named)
        head = self.s3.head_object(Bucket=self.bucket, Key=key, **named)
        self.assertEqual(head.get("VersionId"), answer.get("VersionId"))
        return answer["Body"].read(), answer.get("VersionId")

    def delete(self, version: str | None = None, key: str = "k") -> tuple[bool, str | None]:
        """Delete an object or a version; give whether it is of a marker, and the id."""
        named = {} if version is None else {"VersionId": version}
        answer = self.s3.delete_object(Bucket=self.bucket, Key=key, **named)
        return answer.get("DeleteMarker", False), answer.get("VersionId")

    def versions(self, **query: Any) -> list[tuple[str, str, bool, bool]]:
        """List all versions: key, id, whether it is a marker, whether it is the latest."""
        found = []
        for page in self.s3.get_paginator("list_object_versions").paginate(
            Bucket=self.bucket, **query
        ):
            rows = [(each, False) for each in page.get("Versions", [])]
            rows += [(each, True) for each in page.get("DeleteMarkers", [])]
            found += [(e["Key"], e["VersionId"], isMarker, e["IsLatest"]) for e, isMarker in rows]
        return found

    def headersOf(self, refused: Any, **named: Any) -> dict[str, str]:
        """Make a request that is refused; give status and headers."""
        with self.assertRaises(ClientError) as caught:
            refused(Bucket=self.bucket, Key="k", **named)
        meta = caught.exception.response["ResponseMetadata"]
        headers: dict[str, str] = meta["HTTPHeaders"]
        return {**headers, "status": str(meta["HTTPStatusCode"])}


class StateTests(VersioningCase):
    """Never enabled, enabled, suspended."""

    def test_states(self) -> None:
        """A bucket shows its status, which is one of two once it has one."""
        self.assertNotIn("Status", self.s3.get_bucket_versioning(Bucket=self.bucket))
        for status in ("Enabled", "Suspended", "Enabled"):
            self.setVersioning(status)
            found = self.s3.get_bucket_versioning(Bucket=self.bucket)
            self.assertEqual(found["Status"], status)
        for body in (b"", b"<Status>enabled</Status>", b"<Status></Status>", b"<MfaDelete/>"):
            text = b"<VersioningConfiguration>%b</VersioningConfiguration>" % body
            answer = self.sendSigned(Outgoing("PUT", f"/{self.bucket}?versioning", {}, text))
            self.assertAnswer(answer, 400, "MalformedXML")
        self.s3.put_bucket_versioning(
            Bucket=self.bucket,
            VersioningConfiguration={"Status": "Enabled", "MFADelete": "Disabled"},
            MFA="1 2",
        )

    def test_never(self) -> None:
        """Without versioning a write replaces, a delete removes, and no answer has an id."""
        self.assertIsNone(self.put(b"1"))
        self.assertIsNone(self.put(b"2"))
        self.assertEqual(self.get(), (b"2", None))
        self.assertEqual(self.get("null"), (b"2", None))
        self.assertEqual(self.versions(), [("k", "null", False, True)])
        self.assertEqual(self.delete(), (False, None))
        self.assertEqual(self.versions(), [])

    def test_methodOfMarker(self) -> None:
        """The refusal of a delete marker names the method of the request."""
        self.setVersioning("Enabled")
        self.put(b"x")
        _, marker = self.delete()
        for method, parameter in (
            ("GET", "tagging&"),
            ("PUT", "tagging&"),
            ("DELETE", "tagging&"),
            ("GET", ""),
            ("GET", "acl&"),
            ("PUT", "acl&"),
            ("GET", "attributes&"),
        ):
            target = f"/{self.bucket}/k?{parameter}versionId={marker}"
            headers = {"x-amz-object-attributes": "ETag"}
            body = b""
            if parameter == "tagging&" and method == "PUT":
                body = b"<Tagging><TagSet/></Tagging>"
            answer = self.sendSigned(Outgoing(method, target, headers, body))
            self.assertAnswer(answer, 405, "MethodNotAllowed")
            self.assertIn(f"<Method>{method}</Method>".encode(), answer.body)

    def test_enabled(self) -> None:
        """Each write and each delete is a version; all can be read and removed by their ids."""
        self.put(b"before")
        self.setVersioning("Enabled")
        one, two = self.put(b"1"), self.put(b"2")
        isMarker, marker = self.delete()
        self.assertTrue(isMarker)
        self.assertEqual(len({one, two, marker, None, "null"}), 5)
        assert one is not None and two is not None and marker is not None
        self.assertEqual(
            self.versions(),
            [
                ("k", two, False, False),
                ("k", one, False, False),
                ("k", "null", False, False),
                ("k", marker, True, True),
            ],
        )
        for version, body in ((one, b"1"), (two, b"2"), ("null", b"before")):
            self.assertEqual(self.get(version), (body, version))
        headers = self.headersOf(self.s3.get_object)
        self.assertEqual((headers["status"], headers["x-amz-version-id"]), ("404", marker))
        self.assertEqual(headers["x-amz-delete-marker"], "true")
        for refused in (self.s3.get_object, self.s3.head_object, self.s3.get_object_acl):
            headers = self.headersOf(refused, VersionId=marker)
            self.assertEqual((headers["status"], headers["allow"]), ("405", "DELETE"))
            self.assertIn("last-modified", headers)
        self.assertEqual(self.s3.list_objects_v2(Bucket=self.bucket)["KeyCount"], 0)
        self.assertEqual(self.delete(marker), (True, marker))
        self.assertEqual(self.get(), (b"2", two))
        self.assertEqual(self.delete(two), (False, two))
        self.assertEqual(self.get(), (b"1", one))
        self.assertEqual(self.delete("null"), (False, "null"))
        self.assertEqual(self.delete(one), (False, one))
        self.assertEqual(self.versions(), [])
        self.s3.delete_bucket(Bucket=self.bucket)

    def test_suspended(self) -> None:
        """A write replaces the C{null} version wherever it is, and never another."""
        self.setVersioning("Enabled")
        one = self.put(b"1")
        self.setVersioning("Suspended")
        self.assertIsNone(self.put(b"2"))
        self.assertIsNone(self.put(b"3"))
        self.assertEqual(self.get(), (b"3", "null"))
        self.setVersioning("Enabled")
        four = self.put(b"4")
        self.setVersioning("Suspended")
        self.assertIsNone(self.put(b"5"))
        assert one is not None and four is not None
        current = [("k", "null", False, True), ("k", four, False, False), ("k", one, False, False)]
        self.assertEqual(self.versions(), current)
        for _ in range(2):
            self.assertEqual(self.delete(), (True, "null"))
            found = self.versions()
            self.assertEqual(found[:2], [("k", four, False, False), ("k", one, False, False)])
            self.assertEqual(found[2:], [("k", "null", True, True)])
        self.assertEqual(self.delete("null"), (True, "null"))
        self.assertEqual(self.get(), (b"4", four))

    def test_absentKey(self) -> None:
        """A delete of what is not there makes a marker; one of a version does not."""
        self.setVersioning("Enabled")
        isMarker, first = self.delete()
        self.assertTrue(isMarker)
        second = self.delete()[1]
        assert first is not None and second is not None
        self.assertEqual(self.versions(), [("k", second, True, True), ("k", first, True, False)])
        self.assertEqual(self.delete(first), (True, first))
        self.assertEqual(self.delete(first), (False, first))
        self.assertRefused(409, "BucketNotEmpty", self.s3.delete_bucket, Bucket=self.bucket)

    def test_ids(self) -> None:
        """An id that cannot be one is told from one that is gone."""
        self.setVersioning("Enabled")
        version = self.put(b"1")
        self.delete(version)
        get = self.s3.get_object
        named = {"Bucket": self.bucket, "Key": "k"}
        self.assertRefused(404, "NoSuchVersion", get, **named, VersionId=version)
        self.assertRefused(404, "NoSuchVersion", get, **named, VersionId="null")
        for text in ("x", "a" * 32, f"{version}=", "%00"):
            self.assertRefused(400, "InvalidArgument", get, **named, VersionId=text)
            delete = self.s3.delete_object
            self.assertRefused(400, "InvalidArgument", delete, **named, VersionId=text)

    def test_racingWriters(self) -> None:
        """Fifty writers of one key make fifty versions, one of which is the latest."""
        self.setVersioning("Enabled")
        with ThreadPoolExecutor(16) as pool:
            ids = list(pool.map(lambda n: self.put(b"%d" % n), range(50)))
        found = self.versions()
        self.assertEqual({version for _, version, _, _ in found}, set(ids))
        self.assertEqual([isLatest for *_, isLatest in found], [True] + [False] * 49)
        self.assertEqual(self.get()[1], found[0][1])


class WriteTests(VersioningCase):
    """The other writes, and conditions."""

    def setUp(self) -> None:
        """Have a bucket with two versions of an object."""
        super().setUp()
        self.setVersioning("Enabled")
        self.old, self.new = str(self.put(b"old")), str(self.put(b"new"))

    def test_restore(self) -> None:
        """A version that is named may be copied onto its own key, also the current one."""
        source = {"Bucket": self.bucket, "Key": "k", "VersionId": self.old}
        named = {"Bucket": self.bucket, "Key": "k"}
        copied = self.s3.copy_object(**named, CopySource=source)
        self.assertEqual(copied["CopySourceVersionId"], self.old)
        self.assertEqual(self.get(), (b"old", copied["VersionId"]))
        self.assertRefused(400, "InvalidRequest", self.s3.copy_object, **named, CopySource=named)
        current = {**named, "VersionId": copied["VersionId"]}
        again = self.s3.copy_object(**named, CopySource=current)["VersionId"]
        self.assertEqual(self.get(), (b"old", again))
        self.assertNotEqual(again, copied["VersionId"])
        marker = self.delete()[1]
        named = {"Bucket": self.bucket, "Key": "other"}
        source["VersionId"] = str(marker)
        self.assertRefused(400, "InvalidRequest", self.s3.copy_object, **named, CopySource=source)
        del source["VersionId"]
        self.assertRefused(404, "NoSuchKey", self.s3.copy_object, **named, CopySource=source)

    def test_multipart(self) -> None:
        """A completion makes a version, and repeated answers with the one that it made."""
        self.put(b"x" * (5 << 20), "source")
        named = {"Bucket": self.bucket, "Key": "k"}
        ids = []
        for _ in range(2):
            upload = self.s3.create_multipart_upload(**named)["UploadId"]
            source = {"Bucket": self.bucket, "Key": "k", "VersionId": self.old}
            part = self.s3.upload_part_copy(
                **named, UploadId=upload, PartNumber=1, CopySource=source
            )
            self.assertEqual(part["CopySourceVersionId"], self.old)
            parts = {"Parts": [{"PartNumber": 1, "ETag": part["CopyPartResult"]["ETag"]}]}
            complete = {**named, "UploadId": upload, "MultipartUpload": parts}
            made = self.s3.complete_multipart_upload(**complete)["VersionId"]
            ids.append((made, complete))
        self.put(b"newer")
        for made, complete in ids:
            again = self.s3.complete_multipart_upload(**complete)
            self.assertEqual(again["VersionId"], made)
            self.assertEqual(self.get(made), (b"old", made))
        self.delete(ids[0][0])
        self.assertRefused(404, "NoSuchUpload", self.s3.complete_multipart_upload, **ids[0][1])

    def test_attributes(self) -> None:
        """Attributes and the ACL are those of the version that is named."""
        named = {"Bucket": self.bucket, "Key": "k", "ObjectAttributes": ["ObjectSize"]}
        self.put(b"longer")
        found = self.s3.get_object_attributes(**named, VersionId=self.old)
        self.assertEqual((found["ObjectSize"], found["VersionId"]), (3, self.old))
        self.assertEqual(self.s3.get_object_attributes(**named)["ObjectSize"], 6)
        self.s3.get_object_acl(Bucket=self.bucket, Key="k", VersionId=self.old)

    def test_conditions(self) -> None:
        """Conditions judge the current version, to which a marker does not belong."""
        named = {"Bucket": self.bucket, "Key": "k"}
        put, delete = self.s3.put_object, self.s3.delete_object
        self.assertRefused(412, "PreconditionFailed", put, **named, IfNoneMatch="*")
        oldTag = self.s3.head_object(**named, VersionId=self.old)["ETag"]
        newTag = self.s3.head_object(**named)["ETag"]
        self.assertRefused(412, "PreconditionFailed", delete, **named, IfMatch=oldTag)
        self.assertRefused(
            412, "PreconditionFailed", delete, **named, VersionId=self.old, IfMatch=newTag
        )
        self.assertRefused(
            412, "PreconditionFailed", delete, **named, VersionId=self.old, IfMatchSize=1
        )
        delete(**named, VersionId=self.old, IfMatch=oldTag, IfMatchSize=3)
        self.delete()
        self.assertRefused(404, "NoSuchKey", put, **named, IfMatch=newTag)
        self.assertRefused(404, "NoSuchKey", delete, **named, IfMatch="*")
        put(**named, Body=b"again", IfNoneMatch="*")
        self.assertEqual(self.get()[0], b"again")

    def test_deleteMany(self) -> None:
        """Each entry of a delete-many is a delete of its own, and is told so."""
        marker = str(self.delete(key="gone")[1])
        entries = [
            {"Key": "k"},
            {"Key": "k", "VersionId": self.old},
            {"Key": "k", "VersionId": self.new},
            {"Key": "k", "VersionId": self.new},
            {"Key": "gone", "VersionId": marker},
            {"Key": "k", "VersionId": "malformed"},
            {"Key": "absent"},
        ]
        answer = self.s3.delete_objects(Bucket=self.bucket, Delete={"Objects": entries})
        [error] = answer["Errors"]
        self.assertEqual((error["VersionId"], error["Code"]), ("malformed", "NoSuchVersion"))
        deleted = answer["Deleted"]
        self.assertEqual([each["Key"] for each in deleted], ["k"] * 4 + ["gone", "absent"])
        made, *versions, removed, absent = deleted
        self.assertEqual([each["VersionId"] for each in versions], [self.old, self.new, self.new])
        self.assertTrue(made["DeleteMarker"] and absent["DeleteMarker"])
        self.assertEqual(removed["DeleteMarkerVersionId"], marker)
        self.assertEqual(
            self.versions(),
            [
                ("absent", absent["DeleteMarkerVersionId"], True, True),
                ("k", made["DeleteMarkerVersionId"], True, True),
            ],
        )

    def test_undelete(self) -> None:
        """A thousand versions of a few keys go with one request, and a bucket empties so."""
        for number in range(40):
            self.put(b"%d" % number, f"k{number % 4}")
        self.delete(key="k1")
        rows = self.versions()
        objects = [{"Key": key, "VersionId": version} for key, version, _, _ in rows]
        answer = self.s3.delete_objects(
            Bucket=self.bucket, Delete={"Objects": objects, "Quiet": True}
        )
        self.assertNotIn("Errors", answer)
        self.assertEqual(self.versions(), [])
        self.s3.delete_bucket(Bucket=self.bucket)


class ListTests(VersioningCase):
    """Lists of versions."""

    def setUp(self) -> None:
        """Have many versions of keys, in and out of groups."""
        super().setUp()
        self.setVersioning("Enabled")
        for key in ("a", "b/1", "b/2", "c d", "e"):
            for number in range(4):
                self.put(b"%d" % number, key)
            self.delete(key=key)

    def test_order(self) -> None:
        """Keys ascend, of each the newest is first, and one is the latest, in pages of any size."""
        whole: list[tuple[str, str]] = []
        answer = self.sendSigned(Outgoing("GET", f"/{self.bucket}?versions"))
        text = answer.body.decode()
        for piece in text.split("<Key>")[1:]:
            whole.append((piece.partition("<")[0], piece.split("<VersionId>")[1].split("<")[0]))
        self.assertEqual([key for key, _ in whole], sorted(key for key, _ in whole))
        rows = {row[1]: row for row in self.versions()}
        self.assertEqual(len(rows), 25)
        for position, (key, version) in enumerate(whole):
            isFirst = position % 5 == 0
            self.assertEqual(rows[version], (key, version, isFirst, isFirst))
        for size in (1, 3, 5, 24):
            paged = self.versions(PaginationConfig={"PageSize": size})
            self.assertEqual(sorted(paged), sorted(rows.values()), size)

    def test_groups(self) -> None:
        """A common prefix counts once, whatever is below it."""
        found = self.s3.list_object_versions(Bucket=self.bucket, Delimiter="/", MaxKeys=6)
        self.assertEqual([each["Key"] for each in found["Versions"]], ["a"] * 4)
        self.assertEqual(found["CommonPrefixes"], [{"Prefix": "b/"}])
        self.assertEqual(found["NextKeyMarker"], "b/")
        self.assertNotIn("NextVersionIdMarker", found)
        rest = self.s3.list_object_versions(Bucket=self.bucket, Delimiter="/", KeyMarker="b/")
        self.assertEqual([each["Key"] for each in rest["DeleteMarkers"]], ["c d", "e"])
        within = self.s3.list_object_versions(Bucket=self.bucket, Prefix="b/", Delimiter="/")
        self.assertEqual(len(within["Versions"]), 8)

    def test_goneBetween(self) -> None:
        """A list goes on where it was, also when the version of its marker is gone."""
        page = self.s3.list_object_versions(Bucket=self.bucket, MaxKeys=3)
        marker = {
            "KeyMarker": page["NextKeyMarker"],
            "VersionIdMarker": page["NextVersionIdMarker"],
        }
        rest = self.s3.list_object_versions(Bucket=self.bucket, **marker)
        self.delete(page["NextVersionIdMarker"], "a")
        self.put(b"newer", "a")
        again = self.s3.list_object_versions(Bucket=self.bucket, **marker)
        self.assertEqual(again["Versions"], rest["Versions"])
        self.assertEqual([each["Key"] for each in rest["Versions"]][:3], ["a", "a", "b/1"])

    def test_markers(self) -> None:
        """A version marker needs a key marker, and must be an id."""
        for query in (
            {"VersionIdMarker": "null"},
            {"KeyMarker": "a", "VersionIdMarker": ""},
            {"KeyMarker": "a", "VersionIdMarker": "x"},
        ):
            self.assertRefused(
                400,
                "InvalidArgument",
                self.s3.list_object_versions,
                Bucket=self.bucket,
                **query,
            )
        after = self.s3.list_object_versions(Bucket=self.bucket, KeyMarker="c d")
        self.assertEqual({each["Key"] for each in after["Versions"]}, {"e"})
