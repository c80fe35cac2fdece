"""Signatures of browser forms."""

import base64

from botocore.auth import S3SigV4PostAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from storagegate.s3.auth.sigv4 import SigningKeys, parseFormClaim, verifyForm
from tests.s3.examples import ACCESS_KEY, REGION, SECRET, S3Case

# Amazon's example of an upload by POST, byte for byte.
DOCUMENT = (
    '{ "expiration": "2015-12-30T12:00:00.000Z",\r\n'
    '  "conditions": [\r\n'
    '    {"bucket": "sigv4examplebucket"},\r\n'
    '    ["starts-with", "$key", "user/user1/"],\r\n'
    '    {"acl": "public-read"},\r\n'
    '    {"success_action_redirect": '
    '"http://sigv4examplebucket.s3.amazonaws.com/successful_upload.html"},\r\n'
    '    ["starts-with", "$Content-Type", "image/"],\r\n'
    '    {"x-amz-meta-uuid": "14365123651274"},\r\n'
    '    {"x-amz-server-side-encryption": "AES256"},\r\n'
    '    ["starts-with", "$x-amz-meta-tag", ""],\r\n'
    "\r\n"
    '    {"x-amz-credential": "AKIAIOSFODNN7EXAMPLE/20151229/us-east-1/s3/aws4_request"},\r\n'
    '    {"x-amz-algorithm": "AWS4-HMAC-SHA256"},\r\n'
    '    {"x-amz-date": "20151229T000000Z" }\r\n'
    "  ]\r\n"
    "}"
)
POLICY = base64.b64encode(DOCUMENT.encode()).decode()
FIELDS = {
    "policy": POLICY,
    "x-amz-algorithm": "AWS4-HMAC-SHA256",
    "x-amz-credential": f"{ACCESS_KEY}/20151229/{REGION}/s3/aws4_request",
    "x-amz-date": "20151229T000000Z",
    "x-amz-signature": "8afdbf4008c03f22c2cd3cdb72e4afbb1f6a588f3255ac628749a66d7f09699e",
}


def verifyFields(fields: dict[str, str], secret: str | None = SECRET) -> None:
    """Verify a form as the server would."""
    verifyForm(parseFormClaim(fields), fields["policy"], secret, REGION, SigningKeys())


class FormTests(S3Case):
    """Forms and their signatures."""

    def test_publishedExample(self) -> None:
        """Amazon's example is accepted."""
        verifyFields(FIELDS)

    def test_botocore(self) -> None:
        """What botocore signs is accepted."""
        request = AWSRequest("POST", "http://127.0.0.1:9000/bucket")
        fields: dict[str, str] = {}
        request.context["s3-presign-post-fields"] = fields
        request.context["s3-presign-post-policy"] = {"conditions": []}
        S3SigV4PostAuth(Credentials(ACCESS_KEY, SECRET), "s3", REGION).add_auth(request)
        verifyFields(fields)

    def test_tampered(self) -> None:
        """Another policy, signature or secret is refused."""
        self.refused("SignatureDoesNotMatch", 403, verifyFields, {**FIELDS, "policy": POLICY + "="})
        signature = FIELDS["x-amz-signature"][::-1]
        forged = {**FIELDS, "x-amz-signature": signature}
        error = self.refused("SignatureDoesNotMatch", 403, verifyFields, forged)
        self.assertEqual(error.fields["SignatureProvided"], signature)
        self.refused("SignatureDoesNotMatch", 403, verifyFields, FIELDS, SECRET[1:])
        self.refused("InvalidAccessKeyId", 403, verifyFields, FIELDS, None)

    def test_missing(self) -> None:
        """A form without a policy, or without any claim, is without credentials."""
        self.refused("AccessDenied", 403, parseFormClaim, {})
        self.refused("AccessDenied", 403, parseFormClaim, {"policy": POLICY})
        self.refused("AccessDenied", 403, parseFormClaim, {**FIELDS, "policy": ""})
        for name in FIELDS:
            if name != "policy":
                error = self.refused("InvalidArgument", 400, parseFormClaim, {**FIELDS, name: ""})
                self.assertEqual(error.fields["ArgumentName"], name)

    def test_wrongValues(self) -> None:
        """An algorithm, a date or a scope that is not ours is refused."""
        credential = FIELDS["x-amz-credential"]
        for name, value in (
            ("x-amz-algorithm", "AWS4-HMAC-SHA1"),
            ("x-amz-date", "2015-12-29"),
            ("x-amz-credential", ACCESS_KEY),
            ("x-amz-credential", credential.replace("aws4", "aws5")),
            ("x-amz-credential", credential.replace("us-", "eu-")),
            ("x-amz-credential", credential.replace("/s3/", "/sqs/")),
        ):
            self.refused("InvalidArgument", 400, verifyFields, {**FIELDS, name: value})
        other = {**FIELDS, "x-amz-date": "20151230T000000Z"}
        self.refused("SignatureDoesNotMatch", 403, verifyFields, other)
