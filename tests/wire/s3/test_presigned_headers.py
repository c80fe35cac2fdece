"""Presigned URLs into which an SDK moved the headers that it signed."""

import base64

from attrs import evolve
from awscrt import checksums

from tests.support.s3signer import Answer, Outgoing
from tests.wire.s3.fixture import S3Case


class HoistedHeaderTests(S3Case):
    """URLs as aws-sdk-js and the Go SDK make them, in version 4."""

    def setUp(self) -> None:
        """Have a bucket."""
        super().setUp()
        self.bucket = self.makeBucket()

    def put(self, query: str, body: bytes = b"signed ahead") -> Answer:
        """Presign a PUT with these parameters and send it, with no headers of its own."""
        presigned = self.signer.presign(Outgoing("PUT", f"/{self.bucket}/k?{query}"))
        return self.send(Outgoing("PUT", presigned.target, {}, body))

    def test_attributes(self) -> None:
        """Metadata, storage class and ACL in the query, in any case, are the object's."""
        answer = self.put(
            "x-amz-meta-one=1&X-Amz-Meta-Two=two%20words&x-amz-storage-class=STANDARD_IA"
            "&x-amz-acl=private&x-id=PutObject"
        )
        self.assertEqual(answer.status, 200, answer)
        head = self.s3.head_object(Bucket=self.bucket, Key="k")
        self.assertEqual(head["Metadata"], {"one": "1", "two": "two words"})
        self.assertEqual(head["StorageClass"], "STANDARD_IA")

    def test_notTakenInSilence(self) -> None:
        """What is refused in a header is refused in the query."""
        for query in ("x-amz-acl=aws-exec-read", "X-Amz-Acl=log-delivery-write"):
            self.assertAnswer(self.put(query), 501, "NotImplemented")
        for query in ("x-amz-tagging=a%3D%21", "X-Amz-Tagging=a%3D%21"):
            self.assertAnswer(self.put(query), 400, "InvalidTag")
        self.assertAnswer(self.put("x-amz-storage-class=BEST"), 400, "InvalidStorageClass")
        self.assertAnswer(self.put("x-amz-meta-a=1%0D%0Ax%3Ay"), 400, "InvalidArgument")
        self.assertMissing(self.bucket, "k")

    def test_acl(self) -> None:
        """A list in the query is that of the object."""
        self.assertEqual(self.put("X-Amz-Acl=public-read").status, 200)
        found = self.send(Outgoing("GET", f"/{self.bucket}/k"))
        self.assertEqual((found.status, found.body), (200, b"signed ahead"))

    def test_checksum(self) -> None:
        """A checksum in the query is signed but not compared: aws-sdk-js has that of no body."""
        for value in ("AAAAAA%3D%3D", "none"):
            query = f"x-amz-checksum-crc32={value}&x-amz-sdk-checksum-algorithm=CRC32"
            answer = self.put(query)
            self.assertEqual(answer.status, 200, answer)
            self.assertHolds(self.bucket, "k", b"signed ahead")
        presigned = self.signer.presign(Outgoing("PUT", f"/{self.bucket}/k?{query}"))
        changed = Outgoing("PUT", presigned.target.replace("none", "other"), {}, b"x")
        self.assertAnswer(self.send(changed), 403, "SignatureDoesNotMatch")

    def test_checksumHeader(self) -> None:
        """A checksum that is signed as a header is compared."""
        right = base64.b64encode(checksums.crc32(b"signed ahead").to_bytes(4, "big")).decode()
        for value, code in (("AAAAAA==", "BadDigest"), (right, "")):
            sent = Outgoing("PUT", f"/{self.bucket}/k", {"x-amz-checksum-crc32": value})
            presigned = self.signer.presign(sent)
            answer = self.send(evolve(presigned, body=b"signed ahead"))
            self.assertAnswer(answer, 400 if code else 200, code)

    def test_copy(self) -> None:
        """A source in the query makes the request a copy."""
        self.s3.put_object(Bucket=self.bucket, Key="source", Body=b"copied")
        answer = self.put(f"x-amz-copy-source={self.bucket}%2Fsource", b"")
        self.assertIn(b"CopyObjectResult", answer.body)
        self.assertHolds(self.bucket, "k", b"copied")

    def test_tampered(self) -> None:
        """No such parameter can be changed or added behind the signature."""
        presigned = self.signer.presign(Outgoing("PUT", f"/{self.bucket}/k?x-amz-meta-a=1"))
        for target in (
            presigned.target.replace("meta-a=1", "meta-a=2"),
            presigned.target + "&x-amz-meta-b=1",
        ):
            answer = self.send(Outgoing("PUT", target, {}, b"x"))
            self.assertAnswer(answer, 403, "SignatureDoesNotMatch")
        unsigned = self.send(Outgoing("PUT", presigned.target, {"x-amz-meta-a": "2"}, b"x"))
        self.assertAnswer(unsigned, 403, "AccessDenied")
        self.assertMissing(self.bucket, "k")

    def test_onlyPresigned(self) -> None:
        """A request that is signed in its headers has none in its query."""
        answer = self.sendSigned(Outgoing("PUT", f"/{self.bucket}/k?x-amz-meta-a=1", {}, b"x"))
        self.assertEqual(answer.status, 200, answer)
        self.assertEqual(self.s3.head_object(Bucket=self.bucket, Key="k")["Metadata"], {})
