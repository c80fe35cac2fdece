"""Encryption as boto3 asks for it."""

from typing import Any

from tests.support.s3signer import Outgoing
from tests.wire.s3.fixture import S3Case


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
