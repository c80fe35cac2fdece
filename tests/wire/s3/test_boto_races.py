"""Conditional writes are decided in the store, not before it."""

from functools import partial
from threading import Barrier

from botocore.exceptions import ClientError

from tests.support.clients import botoClient
from tests.support.s3signer import ANSWER_SECONDS, Outgoing
from tests.wire.s3.bulk import inParallel
from tests.wire.s3.fixture import S3Case

RACERS = 50


class RaceTests(S3Case):
    """Fifty writers at once."""

    def race(self, bucket: str, **condition: str) -> list[int]:
        """Put to one key from all racers at the same moment; number 200 is told for success."""
        client = botoClient(self.endpoint, patient=False, connections=RACERS)
        gate = Barrier(RACERS)

        def put(number: int) -> int:
            gate.wait(ANSWER_SECONDS)
            try:
                client.put_object(Bucket=bucket, Key="k", Body=b"%d" % number, **condition)
            except ClientError as error:
                status: int = error.response["ResponseMetadata"]["HTTPStatusCode"]
                return status
            return 200

        return inParallel([partial(put, number) for number in range(RACERS)])

    def test_create(self) -> None:
        """Of fifty that create a key only if it is not there, one succeeds; its body is there."""
        bucket = self.makeBucket()
        for _ in range(3):
            statuses = self.race(bucket, IfNoneMatch="*")
            self.assertEqual(statuses.count(200), 1, statuses)
            self.assertEqual(set(statuses) - {200, 409, 412}, set())
            winner = b"%d" % statuses.index(200)
            self.assertHolds(bucket, "k", winner)
            self.s3.delete_object(Bucket=bucket, Key="k")

    def test_replace(self) -> None:
        """Of fifty that replace what they have read, one succeeds."""
        bucket = self.makeBucket()
        for _ in range(3):
            etag = self.s3.put_object(Bucket=bucket, Key="k", Body=b"read by all")["ETag"]
            statuses = self.race(bucket, IfMatch=etag)
            self.assertEqual(statuses.count(200), 1, statuses)
            self.assertEqual(set(statuses) - {200, 409, 412}, set())
            self.assertHolds(bucket, "k", b"%d" % statuses.index(200))

    def test_conditions(self) -> None:
        """C{If-Match} on a write needs what it names: another ETag is 412, no object is 404."""
        bucket = self.makeBucket()
        self.assertRefused(
            404, "NoSuchKey", self.s3.put_object, Bucket=bucket, Key="k", Body=b"x", IfMatch='"0"'
        )
        etag = self.s3.put_object(Bucket=bucket, Key="k", Body=b"x", IfNoneMatch="*")["ETag"]
        refused: tuple[dict[str, str], ...] = (
            {"IfMatch": '"0"'},
            {"IfMatch": f"W/{etag}"},
            {"IfNoneMatch": "*"},
            {"IfNoneMatch": etag},
            {"IfNoneMatch": f'"0", W/{etag}'},
        )
        for condition in refused:
            self.assertRefused(
                412,
                "PreconditionFailed",
                self.s3.put_object,
                Bucket=bucket,
                Key="k",
                Body=b"y",
                **condition,
            )
        self.assertHolds(bucket, "k", b"x")
        self.s3.put_object(Bucket=bucket, Key="k", Body=b"y", IfMatch=etag)
        self.assertHolds(bucket, "k", b"y")
        for condition in ({"IfMatch": "*"}, {"IfNoneMatch": etag}, {"IfNoneMatch": '"0"'}):
            self.s3.put_object(Bucket=bucket, Key="k", Body=b"z", **condition)
        self.s3.put_object(Bucket=bucket, Key="new", Body=b"z", IfNoneMatch=etag)
        self.assertRefused(
            404, "NoSuchKey", self.s3.put_object, Bucket=bucket, Key="no", IfMatch="*"
        )
        answer = self.sendSigned(Outgoing("PUT", f"/{bucket}/k", {"If-None-Match": ""}, b"x"))
        self.assertAnswer(answer, 400, "InvalidArgument")

    def test_multipart(self) -> None:
        """Completing an upload only if the key is not there is decided when it completes."""
        bucket = self.makeBucket()
        upload = self.s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
        named = {"Bucket": bucket, "Key": "k", "UploadId": upload}
        part = self.s3.upload_part(**named, PartNumber=1, Body=b"part")
        listed = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
        etag = self.s3.put_object(Bucket=bucket, Key="k", Body=b"first")["ETag"]
        for value in ("*", etag):
            self.assertRefused(
                412,
                "PreconditionFailed",
                self.s3.complete_multipart_upload,
                **named,
                MultipartUpload=listed,
                IfNoneMatch=value,
            )
        self.assertHolds(bucket, "k", b"first")
        self.s3.complete_multipart_upload(**named, MultipartUpload=listed, IfMatch="*")
        self.assertHolds(bucket, "k", b"part")
