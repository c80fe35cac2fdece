"""Calls to STS at the S3 listener, with the clients of its SDK, and the errors of the protocol."""

from typing import Any

import boto3
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

from tests.support.clients import REGION, ROOT
from tests.support.s3signer import Outgoing
from tests.wire.s3.fixture import S3Case


class QueryCallTests(S3Case):
    """Errors that these SDKs can read."""

    def client(self, service: str, **settings: Any) -> Any:
        """Make a client."""
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            aws_access_key_id=ROOT.accessKey,
            aws_secret_access_key=ROOT.secretKey,
            region_name=REGION,
            config=Config(retries={"total_max_attempts": 1}, **settings),
        )

    def test_documents(self) -> None:
        """The document has the namespace of its service; other requests get that of S3."""
        form = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
        call = Outgoing("POST", "/", form, b"Action=ListUsers&Version=2010-05-08")
        sts = b'<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error>'
        self.assertIn(sts, self.send(call).body)
        named = Outgoing("GET", "/?Action=GetCallerIdentity&Version=2011-06-15")
        self.assertIn(sts, self.send(named).body)
        for text in ("%C3%A9", "%FF", "%"):
            other = Outgoing("GET", f"/?Action=GetSessionToken&Name={text}")
            self.assertIn(sts, self.send(other).body)
        # minio-py's provider of web identities sends a POST without a body.
        token = "Version=2011-06-15&RoleArn=arn:aws:iam::root:role/r&RoleSessionName=web"
        other = Outgoing(
            "POST", f"/?Action=AssumeRoleWithWebIdentity&{token}&WebIdentityToken=abcd"
        )
        self.assertIn(b"<Code>InvalidIdentityToken</Code>", self.send(other).body)
        other = Outgoing(
            "POST", "/?Action=GetCallerIdentity", form, b"Action=Unknown&Version=2011-06-15"
        )
        self.assertIn(b"<Code>NotImplemented</Code>", self.send(other).body)
        other = Outgoing("POST", "/", form, b"Action=Unknown&Version=2011-06-15")
        self.assertIn(b"NotImplemented", self.send(other).body)
        scope = "Credential=AK/20260101/us-east-1/iam/aws4_request"
        signed = call.adding(authorization=f"AWS4-HMAC-SHA256 {scope}, Signature=0")
        iam = sts.replace(b"sts", b"iam").replace(b"2011-06-15", b"2010-05-08")
        self.assertIn(iam, self.send(signed).body)
        bucket = self.makeBucket()
        for other in (
            Outgoing("POST", "/", {}, b"x"),
            Outgoing("GET", "/"),
            Outgoing("POST", f"/{bucket}", form, b"Action=ListUsers"),
        ):
            answer = self.send(other)
            self.assertIn(b"<Error><Code>", answer.body)
            self.assertNotIn(b"ErrorResponse", answer.body)
        self.assertEqual(self.sendSigned(Outgoing("GET", "/?Action=x")).status, 200)

    def test_presigned(self) -> None:
        """
        A presigned call, which a program hands to another to prove its identity, performs no other
        call: its signature covers the body that it is sent with, in each method.
        """
        credentials = Credentials(ROOT.accessKey, ROOT.secretKey)
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        other = b"Action=GetSessionToken&Version=2011-06-15"
        action = "Action=GetCallerIdentity&Version=2011-06-15"
        for method, body, more, status, text in (
            ("GET", b"", "", 200, b"GetCallerIdentityResult"),
            ("GET", other, "", 200, b"GetCallerIdentityResult"),
            ("POST", b"", "", 200, b"GetCallerIdentityResult"),
            ("POST", other, "", 403, b"SignatureDoesNotMatch"),
            ("POST", other, "&X-Amz-Content-Sha256=UNSIGNED-PAYLOAD", 400, b"IncompleteSignature"),
        ):
            made = AWSRequest(method, f"{self.endpoint}/?{action}{more}", data=b"")
            SigV4QueryAuth(credentials, "sts", REGION).add_auth(made)
            path = str(made.url).removeprefix(self.endpoint)
            answer = self.send(Outgoing(method, path, form if body else {}, body))
            self.assertEqual(answer.status, status, (method, body, more))
            self.assertIn(text, answer.body)
            self.assertNotIn(b"SecretAccessKey", answer.body)
