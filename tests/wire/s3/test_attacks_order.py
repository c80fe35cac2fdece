"""The order of the questions: who comes before what, and a form opens one operation only."""

import base64
import json
from datetime import UTC, datetime, timedelta
from itertools import product

from attrs import evolve

from tests.support.clients import ROOT
from tests.support.s3signer import Outgoing
from tests.wire.s3.attacks import AttackCase
from tests.wire.s3.forms import formRequest

DELETE = b"<Delete><Object><Key>held</Key></Object></Delete>"


class OrderTests(AttackCase):
    """Nobody learns what there is before it is known who he is."""

    def test_nobody(self) -> None:
        """Without credentials every method and query is 403, also what no operation knows."""
        for method, path, query in product(
            ("GET", "PUT", "POST", "DELETE", "PATCH"),
            ("/", f"/{self.bucket}", f"/{self.bucket}/held"),
            ("", "?acl", "?delete", "?torrent", "?acl&policy", "?list-type=7"),
        ):
            answer = self.send(Outgoing(method, path + query))
            self.assertAnswer(answer, 403, "AccessDenied")
        for method, query in (("PATCH", ""), ("GET", "?torrent"), ("GET", "?acl&policy")):
            answer = self.send(Outgoing(method, f"/no-such-bucket/k{query}"))
            self.assertAnswer(answer, 403, "AccessDenied")

    def test_somebody(self) -> None:
        """With credentials, a method that a resource does not have is 405."""
        answer = self.sendSigned(Outgoing("PATCH", f"/{self.bucket}/held"))
        self.assertAnswer(answer, 405, "MethodNotAllowed")


class FormScopeTests(AttackCase):
    """What a form's signature opens."""

    def form(self) -> Outgoing:
        """Make a form that is signed for any key of the bucket, in version 2 or 4."""
        expiration = datetime.now(UTC) + timedelta(seconds=600)
        stamp = self.signer.timestamp()
        signing = {
            "x-amz-algorithm": "AWS4-HMAC-SHA256",
            "x-amz-credential": f"{ROOT.accessKey}/{stamp[:8]}/us-east-1/s3/aws4_request",
            "x-amz-date": stamp,
        }
        policy = {
            "expiration": expiration.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "conditions": [{"bucket": self.bucket}, ["starts-with", "$key", ""]]
            + [{name: value} for name, value in signing.items()],
        }
        encoded = base64.b64encode(json.dumps(policy).encode()).decode()
        signature = self.signer.signPolicy(encoded, stamp[:8])
        fields = {**signing, "key": "new", "policy": encoded, "x-amz-signature": signature}
        return formRequest(self.bucket, fields, DELETE)

    def test_storesItsFile(self) -> None:
        """The form is good for what it is for."""
        self.assertEqual(self.send(self.form()).status, 204)
        self.assertHolds(self.bucket, "new", DELETE)
        self.s3.delete_object(Bucket=self.bucket, Key="new")

    def test_opensNothingElse(self) -> None:
        """Sent to any other operation, a rightly signed form is refused."""
        form = self.form()
        for method, path, query, statuses in (
            ("POST", f"/{self.bucket}", "?delete", (403,)),
            ("POST", f"/{self.bucket}", "?delete=", (403,)),
            ("POST", f"/{self.bucket}", "?metadataTable", (403,)),
            ("POST", f"/{self.bucket}", "?policy", (403, 405)),
            ("POST", f"/{self.bucket}/held", "?uploads", (403,)),
            ("POST", f"/{self.bucket}/held", "", (403,)),
            ("PUT", f"/{self.bucket}/held", "", (403,)),
            ("PUT", f"/{self.bucket}", "", (403,)),
            ("DELETE", f"/{self.bucket}/held", "", (403,)),
            ("GET", f"/{self.bucket}/held", "", (403,)),
            ("POST", "/", "", (403,)),
        ):
            answer = self.send(evolve(form, method=method, target=path + query))
            self.assertRejected(answer, statuses, (method, path, query))
        self.assertUntouched()

    def test_otherCredentials(self) -> None:
        """A signed form with other credentials besides is one scheme too many."""
        answer = self.send(self.form().adding(**ROOT.plainHeaders()))
        self.assertAnswer(answer, 400, "InvalidArgument")
        self.assertUntouched()

    def test_signedPayload(self) -> None:
        """A form whose body is signed as a payload is refused rather than taken unread."""
        bare = formRequest(self.bucket, {"key": "new"}, b"file")
        signed = self.signer.sign(bare)
        other = formRequest(self.bucket, {"key": "new"}, b"other")
        self.assertRejected(self.send(evolve(signed, body=other.body)), (400,))
        self.assertUntouched()
