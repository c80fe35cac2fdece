"""Objects by the API: lists, records, bytes, versions and uploads."""

from tests.console.fixture import ConsoleCase
from tests.support.clients import botoClient
from tests.support.selection import long

NAMES = ("plain.txt", "a b/ü.txt", "..", "../up", "a//b", "\x01\x7f\n", "%2F", "k" * 1024)


class ListTests(ConsoleCase):
    """Lists."""

    def test_noKeys(self) -> None:
        """What can be no key leaves nothing in a bucket with versions, not even a marker."""
        bucket = self.makeBucket()
        path = f"buckets/{bucket}/settings/versioning"
        self.assertEqual(self.call("PUT", path, {"Status": "Enabled"}).status, 204)
        for key in ("", "x" * 1025):
            for method in ("PUT", "DELETE"):
                reply = self.call(method, self.objectPath(bucket, key), b"x")
                self.assertEqual(reply.status, 400, (method, key[:9]))
            wanted = {"items": [{"key": key}, {"key": "absent"}]}
            reply = self.call("POST", f"buckets/{bucket}/delete", wanted)
            self.assertEqual((reply.json["done"], len(reply.json["failed"])), (1, 1), key[:9])
        items = self.call("GET", f"buckets/{bucket}/versions").json["items"]
        self.assertEqual({each["key"] for each in items}, {"absent"})

    def test_pages(self) -> None:
        """A list has objects and common prefixes, in pages that C{after} joins."""
        bucket = self.makeBucket()
        for key in ("a/1", "a/2", "b", "c", "d"):
            self.s3.put_object(Bucket=bucket, Key=key, Body=b"12345")
        path = f"buckets/{bucket}/objects?delimiter=/&limit=2"
        first = self.call("GET", path).json
        self.assertEqual((first["prefixes"], [row[0] for row in first["objects"]]), (["a/"], ["b"]))
        self.assertEqual(first["objects"][0][1], 5)
        rest = self.call("GET", f"{path}&after={first['next']}").json
        self.assertEqual([row[0] for row in rest["objects"]], ["c", "d"])
        self.assertIsNone(rest["next"])
        below = self.call("GET", f"buckets/{bucket}/objects?prefix=a/&after=a/1").json
        self.assertEqual([row[0] for row in below["objects"]], ["a/2"])

    def test_refusals(self) -> None:
        """A limit or a field that is none is refused, and so is a bucket that does not exist."""
        bucket = self.makeBucket()
        for query in ("limit=0", "limit=1001", "limit=x", "other=1"):
            self.assertEqual(self.call("GET", f"buckets/{bucket}/objects?{query}").status, 400)
        self.assertEqual(self.call("GET", "buckets/no-such-bucket/objects").status, 404)

    def test_versions(self) -> None:
        """Versions are listed by pages, deleted for good by their id, and made current again."""
        bucket = self.makeBucket()
        self.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        path = self.objectPath(bucket, "k")
        first = self.call("PUT", path, b"first").json["versionId"]
        self.call("PUT", path, b"second")
        marker = self.call("DELETE", path).json
        self.assertTrue(marker["isDeleteMarker"])
        self.assertEqual(self.call("GET", path).status, 404)
        page = self.call("GET", f"buckets/{bucket}/versions?limit=1").json
        self.assertEqual(page["items"][0]["versionId"], marker["versionId"])
        more = f"after={page['next']}&versionAfter={page['nextVersion']}"
        rest = self.call("GET", f"buckets/{bucket}/versions?{more}").json["items"]
        self.assertEqual(len(rest), 2)
        self.assertEqual(self.call("PATCH", f"{path}?versionId={first}", {}).status, 200)
        self.assertEqual(self.call("GET", f"{path}?bytes").body, b"first")
        gone = self.call("DELETE", f"{path}?versionId={first}").json
        self.assertEqual(gone, {"versionId": first, "isDeleteMarker": False})

    def test_movedVersion(self) -> None:
        """The current version can be moved by its id; another one is refused, and not copied."""
        bucket = self.makeBucket()
        self.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        path = self.objectPath(bucket, "k")
        first, second = (self.call("PUT", path, b"1").json["versionId"] for _ in range(2))
        body = {"toKey": "to", "move": True}
        refused = self.call("POST", f"{path}/copy?versionId={first}", body)
        self.assertEqual((refused.status, refused.json["error"]), (400, "INVALID_ARGUMENT"))
        self.assertEqual(self.call("GET", self.objectPath(bucket, "to")).status, 404)
        self.assertEqual(self.call("POST", f"{path}/copy?versionId={second}", body).status, 200)
        self.assertEqual(self.call("GET", path).status, 404)


class ObjectTests(ConsoleCase):
    """One object."""

    def test_anyKey(self) -> None:
        """Any key is stored, read, described and deleted."""
        bucket = self.makeBucket()
        for name in NAMES:
            path = self.objectPath(bucket, name)
            self.assertEqual(self.call("PUT", path, name.encode()).status, 200, name)
            self.assertEqual(self.call("GET", path).json["key"], name)
            self.assertEqual(self.call("GET", path + "?bytes").body, name.encode())
        found = self.call("GET", f"buckets/{bucket}/objects").json["objects"]
        self.assertEqual(sorted(row[0] for row in found), sorted(NAMES))
        for name in NAMES:
            self.assertEqual(self.call("DELETE", self.objectPath(bucket, name)).status, 200)
        self.assertEqual(self.call("GET", f"buckets/{bucket}/objects").json["objects"], [])
        self.assertEqual(self.call("PUT", self.objectPath(bucket, "k" * 1025), b"").status, 400)

    def test_dots(self) -> None:
        """Names that a browser takes for steps in the path have a spelling that it leaves alone."""
        bucket = self.makeBucket()
        for spelt, name in (
            ("~..", ".."),
            ("~.", "."),
            ("~~.", "~."),
            ("~...", "~..."),
            ("~", "~"),
        ):
            made = self.call("PUT", f"buckets/{bucket}/objects/{spelt}", b"")
            self.assertEqual((made.status, made.json["key"]), (200, name))

    def test_bytes(self) -> None:
        """Bytes obey ranges and conditions, and run no script."""
        bucket, body = self.makeBucket(), bytes(range(256)) * 4096
        path = self.objectPath(bucket, "big.html")
        made = self.call("PUT", path, body, Content_Type="text/html").json
        whole = self.call("GET", path + "?bytes")
        self.assertEqual((whole.status, whole.body), (200, body))
        self.assertTrue(whole.headers["Content-Security-Policy"].startswith("sandbox;"))
        self.assertEqual(whole.headers.get_all("X-Content-Type-Options"), ["nosniff"])
        self.assertEqual(whole.headers.get_all("Cache-Control"), ["no-store"])
        self.assertTrue(whole.headers["Content-Disposition"].startswith("attachment"))
        part = self.call("GET", path + "?bytes", Range="bytes=10-19")
        self.assertEqual((part.status, part.body), (206, body[10:20]))
        etag = f'"{made["etag"]}"'
        self.assertEqual(self.call("GET", path + "?bytes", If_None_Match=etag).status, 304)
        self.assertEqual(self.call("GET", path + "?bytes", If_Match='"x"').status, 412)
        self.assertEqual(self.call("GET", path + "?bytes", Range="bytes=9999999-").status, 416)
        head = self.call("HEAD", path + "?bytes")
        self.assertEqual(head.headers["Content-Length"], str(len(body)))

    def test_record(self) -> None:
        """The record has what S3 has, and a change is a copy that S3 sees."""
        bucket = self.makeBucket()
        path = self.objectPath(bucket, "k")
        fields = {"Content_Type": "text/plain", "X_Amz_Meta_Of": "x", "X_Amz_Tagging": "a=b"}
        self.call("PUT", path, b"abc", **fields)
        found = self.call("GET", path).json
        self.assertEqual(found["contentType"], "text/plain")
        self.assertEqual((found["metadata"], found["tags"]), ({"of": "x"}, {"a": "b"}))
        self.assertEqual(found["checksum"]["algorithm"], "CRC64NVME")
        changes = {"contentType": "text/css", "metadata": {"by": "ä"}}
        changed = self.call("PATCH", path, changes).json
        self.assertEqual((changed["contentType"], changed["metadata"]), ("text/css", {"by": "ä"}))
        self.assertEqual(changed["tags"], {"a": "b"})
        seen = self.s3.head_object(Bucket=bucket, Key="k")
        self.assertEqual(seen["ContentType"], "text/css")
        for wrong in ({"metadata": {"a b": "x"}}, {"contentType": "a\nb"}, {"other": 1}):
            self.assertEqual(self.call("PATCH", path, wrong).status, 400, wrong)

    def test_encryption(self) -> None:
        """A record names the encryption; changes, restorations and moves keep it."""
        bucket = self.makeBucket()
        other = self.makeBucket()
        body = b"sealed" * 20_000
        kms = {"kind": "aws:kms", "keyId": "default"}
        self.s3.put_object(
            Bucket=bucket, Key="k", Body=body, ServerSideEncryption="aws:kms", SSEKMSKeyId="default"
        )
        path = self.objectPath(bucket, "k")
        found = self.call("GET", path)
        self.assertEqual((found.json["encryption"], found.json["size"]), (kms, len(body)))
        self.assertIsNone(found.json["checksum"])
        content = self.call("GET", f"{path}?bytes")
        self.assertTrue(content.body == body)
        self.assertEqual(content.headers["x-amz-server-side-encryption"], "aws:kms")
        changed = self.call("PATCH", path, {"metadata": {"a": "b"}}).json
        self.assertEqual((changed["encryption"], changed["metadata"]), (kms, {"a": "b"}))
        for target, default, expected in (
            (bucket, None, kms),
            (other, None, kms),
            (other, "AES256", {"kind": "AES256", "keyId": ""}),
        ):
            if default is not None:
                rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": default}}
                setting = f"buckets/{target}/settings/encryption"
                self.assertEqual(self.call("PUT", setting, {"Rule": [rule]}).status, 204)
            wanted = {"toBucket": target, "toKey": f"copy-{default}"}
            copied = self.call("POST", f"{path}/copy", wanted).json
            self.assertEqual(copied["encryption"], expected, target)
            self.assertHolds(target, f"copy-{default}", body)
        self.assertIsNone(self.call("PUT", self.objectPath(bucket, "p"), b"x").json["encryption"])

    @long("issues a key")
    def test_encryptionPolicy(self) -> None:
        """A policy that requires encryption sees that a change names it, and an upload does not."""
        account = self.issueKey("naming")
        client = botoClient(self.endpoint, account)
        bucket = self.makeName()
        client.create_bucket(Bucket=bucket)
        client.put_object(Bucket=bucket, Key="k", Body=b"x", ServerSideEncryption="AES256")
        deny = {
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:PutObject",
            "Resource": f"arn:aws:s3:::{bucket}/*",
            "Condition": {"Null": {"s3:x-amz-server-side-encryption": "true"}},
        }
        policy = {"Version": "2012-10-17", "Statement": [deny]}
        setting = f"buckets/{bucket}/settings/policy"
        self.assertEqual(self.call("PUT", setting, policy, account).status, 204)
        path = self.objectPath(bucket, "k")
        changed = self.call("PATCH", path, {"metadata": {"c": "d"}}, account)
        self.assertEqual((changed.status, changed.json["metadata"]), (200, {"c": "d"}))
        moved = {"toKey": "moved", "move": True}
        self.assertEqual(self.call("POST", f"{path}/copy", moved, account).status, 200)
        upload = self.call("PUT", self.objectPath(bucket, "q"), b"x", account)
        self.assertEqual(upload.status, 403)

    @long("issues a key")
    def test_copySourceOfPolicy(self) -> None:
        """A policy can forbid copies of a source, as in S3: by a call, a change and a job."""
        account = self.issueKey("copying")
        client = botoClient(self.endpoint, account)
        bucket = self.makeName()
        client.create_bucket(Bucket=bucket)
        for key in ("open/k", "secret/k"):
            client.put_object(Bucket=bucket, Key=key, Body=b"x")
        deny = {
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:PutObject",
            "Resource": f"arn:aws:s3:::{bucket}/*",
            "Condition": {"StringLike": {"s3:x-amz-copy-source": f"{bucket}/secret/*"}},
        }
        policy = {"Version": "2012-10-17", "Statement": [deny]}
        setting = f"buckets/{bucket}/settings/policy"
        self.assertEqual(self.call("PUT", setting, policy, account).status, 204)
        for key, isAllowed in (("open/k", True), ("secret/k", False)):
            path = self.objectPath(bucket, key)
            copied = self.call("POST", f"{path}/copy", {"toKey": f"copy/{key}"}, account)
            changed = self.call("PATCH", path, {"metadata": {"c": "d"}}, account)
            wanted = (200, 200) if isAllowed else (403, 403)
            self.assertEqual((copied.status, changed.status), wanted, key)
        upload = self.call("PUT", self.objectPath(bucket, "secret/k"), b"y", account)
        self.assertEqual(upload.status, 200)

    def test_customerKey(self) -> None:
        """An object with a client's key is described and deleted, but not read or copied."""
        bucket = self.makeBucket()
        customer = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": bytes(range(32))}
        self.s3.put_object(Bucket=bucket, Key="k", Body=b"secret", **customer)
        path = self.objectPath(bucket, "k")
        found = self.call("GET", path).json
        self.assertEqual(found["encryption"], {"kind": "SSE-C", "keyId": ""})
        for method, target, body in (
            ("GET", f"{path}?bytes", None),
            ("PATCH", path, {"metadata": {"a": "b"}}),
            ("POST", f"{path}/copy", {"toBucket": bucket, "toKey": "copy"}),
        ):
            reply = self.call(method, target, body)
            self.assertEqual(reply.status, 400, reply)
            self.assertIn("Server Side Encryption", reply.json["message"])
        self.assertEqual(self.call("DELETE", path).status, 200)

    def test_conditions(self) -> None:
        """A write keeps its conditions, and a body that is not as declared is refused."""
        bucket = self.makeBucket()
        path = self.objectPath(bucket, "k")
        self.assertEqual(self.call("PUT", path, b"1", If_None_Match="*").status, 200)
        self.assertEqual(self.call("PUT", path, b"2", If_None_Match="*").status, 412)
        wrong = self.call("PUT", path, b"3", Content_MD5="AAAAAAAAAAAAAAAAAAAAAA==")
        self.assertEqual(wrong.status, 400)
        self.assertEqual(self.call("GET", path + "?bytes").body, b"1")

    def test_policy(self) -> None:
        """The policy of a key holds."""
        bucket = self.makeBucket()
        self.call("PUT", self.objectPath(bucket, "k"), b"1")
        other = self.issueKey("strange")
        for method, path in (
            ("GET", self.objectPath(bucket, "k")),
            ("GET", self.objectPath(bucket, "k") + "?bytes"),
            ("PUT", self.objectPath(bucket, "k")),
            ("DELETE", self.objectPath(bucket, "k")),
            ("GET", f"buckets/{bucket}/objects"),
            ("GET", f"buckets/{bucket}/versions"),
            ("GET", f"buckets/{bucket}/uploads"),
        ):
            self.assertEqual(self.call(method, path, account=other).status, 403, (method, path))

    @long("takes a second or more")
    def test_settings(self) -> None:
        """Tags, retention and legal hold of a version are stored as S3 stores them, and read."""
        bucket = self.makeBucket()
        self.s3.put_object(Bucket=bucket, Key="k", Body=b"1")
        path = self.objectPath(bucket, "k") + "/settings/"
        document = {"TagSet": {"Tag": [{"Key": "team", "Value": "a + b"}]}}
        self.assertEqual(self.call("PUT", path + "tags", document).status, 204)
        seen = self.s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"]
        self.assertEqual(seen, document["TagSet"]["Tag"])
        self.assertEqual(self.call("GET", path + "tags").json, document)
        self.assertEqual(self.call("DELETE", path + "tags").status, 204)
        self.assertEqual(self.s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"], [])
        self.assertEqual(self.call("PUT", path + "legalHold", {"Status": "ON"}).status, 400)
        self.assertEqual(self.call("GET", path + "other").status, 404)
        self.assertEqual(self.call("DELETE", path + "retention").status, 400)
        stranger = self.issueKey("strange")
        self.assertEqual(self.call("PUT", path + "tags", document, stranger).status, 403)

    def test_locks(self) -> None:
        """A governed version is deleted only where that is asked for; a held one never."""
        made = self.call("POST", "buckets", {"name": "locked-by-console", "locked": True})
        self.assertEqual(made.status, 200)
        bucket = "locked-by-console"
        version = self.s3.put_object(Bucket=bucket, Key="k", Body=b"1")["VersionId"]
        path = self.objectPath(bucket, "k")
        until = "2099-01-01T00:00:00Z"
        retention = {"Mode": "GOVERNANCE", "RetainUntilDate": until}
        where = f"{path}/settings/retention?versionId={version}"
        self.assertEqual(self.call("PUT", where, retention).status, 204)
        seen = self.s3.get_object_retention(Bucket=bucket, Key="k")["Retention"]
        self.assertEqual((seen["Mode"], seen["RetainUntilDate"].year), ("GOVERNANCE", 2099))
        self.assertEqual(self.call("PUT", where, {}).status, 403)
        hold = path + "/settings/legalHold"
        self.assertEqual(self.call("PUT", hold, {"Status": "ON"}).status, 204)
        self.assertEqual(self.call("GET", path).json["lock"]["legalHold"], True)
        items = [{"key": "k", "versionId": version}]
        wanted = {"items": items, "bypass": True}
        refused = self.call("POST", f"buckets/{bucket}/delete", wanted).json
        self.assertEqual((refused["done"], refused["failed"][0]["error"]), (0, "AccessDenied"))
        self.assertEqual(self.call("PUT", hold, {"Status": "OFF"}).status, 204)
        plain = self.call("POST", f"buckets/{bucket}/delete", {"items": items}).json
        self.assertEqual(plain["done"], 0)
        self.assertEqual(self.call("POST", f"buckets/{bucket}/delete", wanted).json["done"], 1)
        self.assertEqual(self.call("GET", path).status, 404)

    def test_copy(self) -> None:
        """An object is copied or moved to just one name, which must be free."""
        bucket, other = self.makeBucket(), self.makeBucket()
        for name in ("a", "ab", "taken"):
            self.s3.put_object(Bucket=bucket, Key=name, Body=name.encode(), Metadata={"m": "1"})
        path = self.objectPath(bucket, "a") + "/copy"
        refused = self.call("POST", path, {"toKey": "taken", "move": True})
        self.assertEqual((refused.status, refused.json["error"]), (409, "ALREADY_EXISTS"))
        copied = self.call("POST", path, {"toBucket": other, "toKey": "d/b"}).json
        self.assertEqual((copied["key"], copied["metadata"]), ("d/b", {"m": "1"}))
        self.assertEqual(self.call("POST", path, {"toKey": "moved", "move": True}).status, 200)
        names = [row[0] for row in self.call("GET", f"buckets/{bucket}/objects").json["objects"]]
        self.assertEqual(names, ["ab", "moved", "taken"])
        self.assertEqual(self.s3.get_object(Bucket=other, Key="d/b")["Body"].read(), b"a")
        reader = self.issueKey("root", "--policy", "readonly")
        denied = self.call("POST", self.objectPath(bucket, "ab") + "/copy", {"toKey": "x"}, reader)
        self.assertEqual(denied.status, 403)

    def test_markers(self) -> None:
        """The delete markers of a deletion are returned, and removing them undoes it."""
        bucket = self.makeBucket()
        self.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        self.s3.put_object(Bucket=bucket, Key="k", Body=b"x")
        where = f"buckets/{bucket}/delete"
        markers = self.call("POST", where, {"items": [{"key": "k"}]}).json["markers"]
        self.assertEqual([each["key"] for each in markers], ["k"])
        undone = self.call("POST", where, {"items": markers}).json
        self.assertEqual((undone["done"], undone["markers"]), (1, []))
        self.assertEqual(self.s3.get_object(Bucket=bucket, Key="k")["Body"].read(), b"x")

    def test_deleteMany(self) -> None:
        """Many are deleted by one request, each that the key allows."""
        bucket = self.makeBucket()
        for name in NAMES:
            self.s3.put_object(Bucket=bucket, Key=name, Body=b"")
        where = f"buckets/{bucket}/delete"
        items = [{"key": name} for name in NAMES]
        self.assertEqual(
            self.call("POST", where, {"items": items}, self.issueKey("strange")).json["done"], 0
        )
        done = self.call("POST", where, {"items": [*items, {"key": "absent"}]}).json
        self.assertEqual(done, {"done": len(NAMES) + 1, "failed": [], "markers": []})
        self.assertEqual(self.call("GET", f"buckets/{bucket}/objects").json["objects"], [])
        for wrong in ({"items": []}, {"items": items * 200}, {"items": [{"other": 1}]}):
            self.assertEqual(self.call("POST", where, wrong).status, 400)


class UploadTests(ConsoleCase):
    """Multipart uploads."""

    def test_upload(self) -> None:
        """An upload is begun, filled, found again, and completed, twice with one result."""
        bucket, part = self.makeBucket(), b"p" * (5 << 20)
        new = {"key": "a/ü", "contentType": "text/plain", "size": 100 << 30}
        begun = self.call("POST", f"buckets/{bucket}/uploads", new).json
        self.assertEqual(begun["partBytes"], 11 << 20)
        path = f"buckets/{bucket}/uploads/{begun['id']}"
        for number, body in ((2, b"end"), (1, part)):
            made = self.call("PUT", f"{path}/parts/{number}", body)
            self.assertEqual((made.status, made.json["size"]), (200, len(body)))
        listed = self.call("GET", f"buckets/{bucket}/uploads").json["items"]
        self.assertEqual([each["id"] for each in listed], [begun["id"]])
        shown = self.call("GET", path + "?limit=1").json
        self.assertEqual((len(shown["items"]), shown["next"]), (1, 1))
        parts = self.call("GET", path).json["items"]
        named = {"parts": [{"number": each["number"], "etag": each["etag"]} for each in parts]}
        done = self.call("POST", path + "/complete", named).json
        self.assertEqual((done["key"], done["size"]), ("a/ü", len(part) + 3))
        self.assertEqual(self.call("POST", path + "/complete", named).json, done)
        self.assertEqual(self.call("GET", path).status, 404)

    def test_sameFile(self) -> None:
        """
        An upload tells by which file it was begun, and how large its parts are: all that a browser
        needs to go on with it; the object has nothing of that.
        """
        bucket = self.makeBucket()
        file = {"size": 5, "lastModifiedMs": 1_700_000_000_123}
        new = {"key": "k", "metadata": {"of": "x"}, **file}
        begun = self.call("POST", f"buckets/{bucket}/uploads", new).json
        path = f"buckets/{bucket}/uploads/{begun['id']}"
        listed = self.call("GET", f"buckets/{bucket}/uploads?prefix=k").json["items"]
        for shown in (begun, *listed, self.call("GET", path).json):
            self.assertEqual({name: shown[name] for name in file}, file)
            self.assertEqual(shown["partBytes"], 8 << 20)
        self.call("PUT", path + "/parts/1", b"12345")
        self.assertEqual(self.call("POST", path + "/complete", {"size": 5}).status, 200)
        self.assertEqual(
            self.call("GET", self.objectPath(bucket, "k")).json["metadata"], {"of": "x"}
        )
        self.s3.create_multipart_upload(Bucket=bucket, Key="other")
        (other,) = self.call("GET", f"buckets/{bucket}/uploads").json["items"]
        self.assertEqual((other["size"], other["partBytes"]), (None, None))
        wrong = {"key": "k", "size": -1}
        self.assertEqual(self.call("POST", f"buckets/{bucket}/uploads", wrong).status, 400)

    def test_abort(self) -> None:
        """An upload is aborted; what is none is not found."""
        bucket = self.makeBucket()
        begun = self.call("POST", f"buckets/{bucket}/uploads", {"key": "k"}).json
        path = f"buckets/{bucket}/uploads/{begun['id']}"
        self.assertEqual(self.call("PUT", path + "/parts/0", b"").status, 400)
        self.assertEqual(self.call("DELETE", path).status, 204)
        self.assertEqual(self.call("DELETE", path).status, 404)
        for wrong in ("x", "x.!", "x.AA"):
            self.assertEqual(self.call("GET", f"buckets/{bucket}/uploads/{wrong}").status, 404)
