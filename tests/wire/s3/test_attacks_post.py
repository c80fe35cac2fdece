"""Attacks on browser forms: the policy holds for every field, or the form is refused."""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from attrs import evolve

from tests.support.clients import REGION, ROOT
from tests.support.s3signer import Answer
from tests.wire.s3.attacks import AttackCase
from tests.wire.s3.forms import formOf, formPart, formRequest


class PostAttackTests(AttackCase):
    """What somebody does who was given one form."""

    def fields(self, policy: Any, **fields: str) -> dict[str, str]:
        """Sign a policy, which is a mapping, text or bytes; make the fields that go with it."""
        if isinstance(policy, Mapping):
            policy = json.dumps(policy)
        raw = policy.encode() if isinstance(policy, str) else policy
        encoded = base64.b64encode(raw).decode()
        return {
            **self.signing,
            **fields,
            "policy": encoded,
            "x-amz-signature": self.signer.signPolicy(encoded, self.stamp[:8]),
        }

    def setUp(self) -> None:
        """Write a policy that uses every kind of condition, and a form that obeys it."""
        super().setUp()
        self.stamp = self.signer.timestamp()
        self.signing = {
            "x-amz-algorithm": "AWS4-HMAC-SHA256",
            "x-amz-credential": f"{ROOT.accessKey}/{self.stamp[:8]}/{REGION}/s3/aws4_request",
            "x-amz-date": self.stamp,
        }
        self.policy: dict[str, Any] = {
            "expiration": self.expiration(600),
            "conditions": [
                {"bucket": self.bucket},
                ["starts-with", "$key", "user/"],
                ["eq", "$x-amz-meta-exact", "right"],
                {"Content-Type": "text/plain"},
                ["starts-with", "$x-amz-meta-any", ""],
                ["content-length-range", 5, 10],
                *({name: value} for name, value in self.signing.items()),
            ],
        }
        self.obedient = {
            "key": "user/file",
            "x-amz-meta-exact": "right",
            "Content-Type": "text/plain",
            "x-amz-meta-any": "thing",
        }

    def expiration(self, seconds: int) -> str:
        """Write a time from now."""
        moment = datetime.now(UTC) + timedelta(seconds=seconds)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")

    def post(
        self, fields: Mapping[str, str], file: bytes = b"7 bytes", filename: str = "f"
    ) -> Answer:
        """Send a form."""
        return self.send(formRequest(self.bucket, fields, file, filename))

    def signedForm(self, **changes: str) -> dict[str, str]:
        """Make the form with fields changed, after the policy was signed."""
        renamed = {name.replace("_", "-"): value for name, value in changes.items()}
        return self.fields(self.policy, **{**self.obedient, **renamed})

    def test_obedient(self) -> None:
        """The form that all others here are made from is good, at both ends of the range."""
        for file in (b"5byte", b"10 bytes10"):
            self.assertEqual(self.post(self.signedForm(), file).status, 204)
            self.assertHolds(self.bucket, "user/file", file)
        self.s3.delete_object(Bucket=self.bucket, Key="user/file")

    def test_controlCharacters(self) -> None:
        """What responses cannot carry in a header is refused, not stored."""
        self.policy["conditions"].append(["starts-with", "$Cache-Control", ""])
        self.policy["conditions"].append(["starts-with", "$x-amz-meta-a b", ""])
        for changes in (
            {"x-amz-meta-any": "a\r\nSet-Cookie: b"},
            {"x-amz-meta-any": "a\x00"},
            {"Cache-Control": "no-store\n"},
            {"x-amz-meta-a b": "c"},
        ):
            fields = self.fields(self.policy, **{**self.obedient, **changes})
            self.assertAnswer(self.post(fields), 400, "InvalidArgument")
            self.assertMissing(self.bucket, "user/file")

    def test_violations(self) -> None:
        """Each condition, violated alone, refuses the form."""
        for changes in (
            {"key": "other/file"},
            {"key": "held"},
            {"x_amz_meta_exact": "righT"},
            {"x_amz_meta_exact": ""},
            {"Content_Type": "text/html"},
            {"x_amz_meta_unlisted": "1"},
            {"acl": "public-read"},
            {"success_action_redirect": "http://evil.example/"},
            {"x_amz_date": "20200101T000000Z"},
        ):
            self.assertRejected(self.post(self.signedForm(**changes)), (400, 403), changes)
            self.assertUntouched()
        for missing in ("x-amz-meta-exact", "Content-Type", "key", *self.signing):
            form = {name: value for name, value in self.signedForm().items() if name != missing}
            self.assertRejected(self.post(form), (400, 403), missing)
            self.assertUntouched()

    def test_sizes(self) -> None:
        """A byte under or over the range is refused, however the form counts."""
        for file, code in ((b"four", "EntityTooSmall"), (b"11 bytes...", "EntityTooLarge")):
            self.assertAnswer(self.post(self.signedForm(), file), 400, code)
        self.assertRejected(self.post(self.signedForm(), b"x" * 200_000), (400,))
        self.assertUntouched()

    def test_expired(self) -> None:
        """A policy that is over, or has no end, lets nobody in."""
        for expiration in (self.expiration(-60), "", "tomorrow", None):
            policy = {**self.policy, "expiration": expiration}
            answer = self.post(self.fields(policy, **self.obedient))
            self.assertRejected(answer, (400, 403), expiration)
        endless = {"conditions": self.policy["conditions"]}
        answer = self.post(self.fields(endless, **self.obedient))
        self.assertRejected(answer, (400, 403))
        self.assertUntouched()

    def test_otherBucket(self) -> None:
        """A form for one bucket is not good for another, nor one that names none."""
        other = self.makeBucket("attacked")
        answer = self.send(formRequest(other, self.signedForm(), b"7 bytes"))
        self.assertRejected(answer, (403,))
        self.assertNotIn("Contents", self.s3.list_objects_v2(Bucket=other))
        open_ = {**self.policy, "conditions": self.policy["conditions"][1:]}
        answer = self.post(self.fields(open_, **self.obedient))
        self.assertRejected(answer, (403,))
        self.assertUntouched()

    def test_signature(self) -> None:
        """A policy that was changed, not signed, or signed by nobody is refused."""
        form = self.signedForm()
        generous = json.dumps({**self.policy, "conditions": [{"bucket": self.bucket}]})
        for changes in (
            {"policy": base64.b64encode(generous.encode()).decode()},
            {"policy": form["policy"][:-4]},
            {"x-amz-signature": "0" * 64},
            {"x-amz-signature": ""},
            {"x-amz-credential": form["x-amz-credential"].replace("AKIA", "AKIB")},
            {"x-amz-algorithm": "none"},
        ):
            self.assertRejected(self.post({**form, **changes}), (400, 403), changes)
            self.assertUntouched()

    def test_noPolicy(self) -> None:
        """A form without a policy, or without any signature, is nobody's."""
        form = self.signedForm()
        for missing in (("policy",), ("policy", "x-amz-signature"), ("x-amz-signature",)):
            left = {name: value for name, value in form.items() if name not in missing}
            self.assertRejected(self.post(left), (400, 403), missing)
        self.assertRejected(self.post(self.obedient), (403,))
        self.assertUntouched()

    def test_badPolicies(self) -> None:
        """A policy that cannot be read is refused, though its signature is right."""
        for policy in (
            "",
            "null",
            "[]",
            "{",
            b"\xff\xfe",
            '{"expiration": 1, "conditions": []}',
            "[" * 100_000,
            {"expiration": self.expiration(600), "conditions": "all"},
            {"expiration": self.expiration(600), "conditions": [["or", "$key", "x"]]},
            {"expiration": self.expiration(600), "conditions": [["content-length-range", "a", 1]]},
        ):
            answer = self.post(self.fields(policy, **self.obedient))
            self.assertRejected(answer, (400, 403), str(policy)[:40])
        self.assertUntouched()

    def test_fileName(self) -> None:
        """A file's name fills in C{${filename}}, but leads nowhere that the policy does not."""
        form = self.signedForm(key="user/${filename}")
        for filename in ("../held", "..\\held", "/held", "C:\\x\\held", "a/../../held"):
            answer = self.post(form, filename=filename)
            self.assertEqual(answer.status, 204, (filename, answer))
            self.assertHolds(self.bucket, "user/held", b"7 bytes")
        self.s3.delete_object(Bucket=self.bucket, Key="user/held")
        outside = self.signedForm(key="${filename}")
        self.assertRejected(self.post(outside, filename="held"), (403,))
        self.assertUntouched()

    def test_headers(self) -> None:
        """No header of the request describes the object: no policy covers it."""
        form = formRequest(self.bucket, self.signedForm(), b"7 bytes")
        for name, value in (
            ("x-amz-acl", "public-read"),
            ("x-amz-acl", "private"),
            ("x-amz-grant-read", "uri=http://acs.amazonaws.com/groups/global/AllUsers"),
            ("x-amz-server-side-encryption", "AES256"),
        ):
            answer = self.send(evolve(form, headers={**form.headers, name: value}))
            self.assertAnswer(answer, 501, "NotImplemented")
        self.assertUntouched()
        self.policy["conditions"] += [{"if-none-match": "*"}, ["starts-with", "$host", ""]]
        fields = self.signedForm(if_none_match="*", host="evil.example")
        form = formRequest(self.bucket, fields, b"7 bytes")
        stored = self.send(form)
        self.assertEqual(stored.status, 204)
        self.assertEqual(stored.headers["location"], f"{self.endpoint}/{self.bucket}/user/file")
        for headers in ({}, {"If-None-Match": f'"{"0" * 32}"'}):
            answer = self.send(evolve(form, headers={**form.headers, **headers}))
            self.assertAnswer(answer, 412, "PreconditionFailed")
        self.s3.delete_object(Bucket=self.bucket, Key="user/file")

    def test_duplicates(self) -> None:
        """A field that comes twice is refused: the policy was held against one of them only."""
        form = self.signedForm()
        for name, value in (("key", "held"), ("KEY", "held"), ("policy", form["policy"])):
            fields = [formPart(field, content.encode()) for field, content in form.items()]
            again = formPart(name, value.encode())
            file = formPart("file", b"7 bytes", "f")
            for parts in ([again, *fields, file], [*fields, again, file]):
                answer = self.send(formOf(self.bucket, parts))
                self.assertRejected(answer, (400, 403), name)
        self.assertUntouched()

    def test_behindTheFile(self) -> None:
        """The file is the last field: one behind it was in no policy's sight."""
        form = self.signedForm()
        fields = [formPart(name, value.encode()) for name, value in form.items()]
        file = formPart("file", b"7 bytes", "f")
        for parts in (
            [*fields, file, formPart("x-amz-meta-late", b"1")],
            [*fields, file, file],
            fields,
            [file, *fields],
        ):
            answer = self.send(formOf(self.bucket, parts))
            self.assertRejected(answer, (400, 403))
        self.assertUntouched()

    def test_broken(self) -> None:
        """A form that ends early, has too much before the file, or no boundary is refused."""
        whole = formRequest(self.bucket, self.signedForm(), b"7 bytes")
        for body in (whole.body[:-30], whole.body[:200], b"", b"junk"):
            answer = self.send(type(whole)("POST", whole.target, whole.headers, body))
            self.assertRejected(answer, (400, 403), body[-40:])
        padded = self.signedForm(x_ignore_padding="p" * 100_000)
        self.assertRejected(self.post(padded), (400,))
        many = self.signedForm(**{f"x_ignore_{number}": "1" for number in range(2_000)})
        self.assertRejected(self.post(many), (400,))
        long = f"multipart/form-data; boundary={'b' * 1000}"
        for kind in (
            long,
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "text/plain",
            "",
        ):
            answer = self.send(type(whole)("POST", whole.target, {"Content-Type": kind}, b"x"))
            self.assertRejected(answer, (400, 403, 405, 412, 415), kind)
        self.assertUntouched()
