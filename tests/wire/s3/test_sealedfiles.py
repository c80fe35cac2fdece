"""All files of a daemon that encrypts, searched for what clients sent."""

import hashlib
from base64 import b64encode
from pathlib import Path
from typing import Any

from tests.support.clients import botoClient
from tests.support.selection import long
from tests.wire.s3.fixture import S3Case, makeDaemon, ownDirectory

MIB = 1 << 20
NEEDLE = b"this text must not reach any file"
SIZES = (len(NEEDLE), 4_000, 64 << 10, (64 << 10) + 1, 300_000, MIB)
KEY = hashlib.sha256(b"a key of a client").digest()


def pieces() -> list[bytes]:
    """Return all runs of 16 bytes of the text, which is sent over and over."""
    twice = NEEDLE + NEEDLE
    return [twice[start : start + 16] for start in range(len(NEEDLE))]


def text(size: int) -> bytes:
    """Return so many bytes of the text."""
    return (NEEDLE * (size // len(NEEDLE) + 1))[:size]


@long("starts a daemon")
class SealedFilesTests(S3Case):
    """A daemon with C{encryptAll}, killed in the middle of uploads."""

    def setUp(self) -> None:
        """Start the daemon."""
        super().setUp()
        self.data = ownDirectory("sealed") / "data"
        self.sealing = makeDaemon(self.data, STORAGEGATE_ENCRYPT_ALL="true")
        self.addCleanup(self.sealing.kill)
        self.sealing.start()
        self.s3: Any = botoClient(self.sealing.url())
        self.s3.create_bucket(Bucket="sealed")

    def load(self) -> None:
        """Write objects, copies and parts of all kinds."""
        md5 = b64encode(hashlib.md5(KEY, usedforsecurity=False).digest()).decode()
        customer = {
            "SSECustomerAlgorithm": "AES256",
            "SSECustomerKey": b64encode(KEY).decode(),
            "SSECustomerKeyMD5": md5,
        }
        kinds: dict[str, dict[str, str]] = {
            "default": {},
            "kms": {"ServerSideEncryption": "aws:kms"},
            "customer": customer,
        }
        for kind, fields in kinds.items():
            for size in SIZES:
                key = f"{kind}/{size}"
                self.s3.put_object(Bucket="sealed", Key=key, Body=text(size), **fields)
            sent = customer if fields is customer else {}
            upload = self.s3.create_multipart_upload(Bucket="sealed", Key=f"{kind}/p", **fields)
            name = {"Bucket": "sealed", "Key": f"{kind}/p", "UploadId": upload["UploadId"]}
            parts = [
                self.s3.upload_part(PartNumber=n, Body=text(5 * MIB + 7), **name, **sent)
                for n in (1, 2)
            ]
            listed = [{"PartNumber": n, "ETag": part["ETag"]} for n, part in enumerate(parts, 1)]
            self.s3.complete_multipart_upload(MultipartUpload={"Parts": listed}, **name, **sent)
            if not sent:
                source = {"Bucket": "sealed", "Key": f"{kind}/300000"}
                self.s3.copy_object(Bucket="sealed", Key=f"{kind}/c", CopySource=source, **customer)
        self.s3.create_multipart_upload(Bucket="sealed", Key="open")

    def test_files(self) -> None:
        """Catalog, log of writes, blobs, staging and the daemon's log have nothing of it."""
        self.load()
        self.assertNothing()
        for key in ("default/300000", "default/4000", "kms/65537"):
            body = self.s3.get_object(Bucket="sealed", Key=key)["Body"].read()
            self.assertEqual(body, text(int(key.partition("/")[2])))
        self.sealing.kill()
        self.assertNothing()
        self.sealing.start()
        self.assertNothing()

    def assertNothing(self) -> None:
        """Search all files and the log."""
        files = [each for each in Path(self.data).rglob("*") if each.is_file()]
        found = {str(each): each.read_bytes() for each in files if each.exists()}
        found["log"] = self.sealing.log.encode()
        self.assertGreater(sum(map(len, found.values())), 30 * MIB)
        for name, data in found.items():
            for piece in (*pieces(), KEY, b64encode(KEY)):
                self.assertNotIn(piece, data, name)
