"""Attacks on presigned URLs: each is good for one request, for one time, as it was signed."""

import re

from attrs import evolve

from tests.support.s3signer import Outgoing
from tests.wire.s3.attacks import AttackCase

REFUSED = (400, 403)


class PresignedAttackTests(AttackCase):
    """What somebody does who was given one URL."""

    def setUp(self) -> None:
        """Sign a URL that reads the object under a header of the signer's choice."""
        super().setUp()
        asked = self.target(query="response-content-type=text%2Fplain")
        self.signed = self.signer.presign(Outgoing("GET", asked))

    def test_untampered(self) -> None:
        """The URL that all others here are made from is good."""
        answer = self.send(self.signed)
        self.assertEqual((answer.status, answer.body), (200, self.body))
        self.assertEqual(answer.headers["content-type"], "text/plain")

    def test_method(self) -> None:
        """A URL for reading does not write, delete or look."""
        for method in ("PUT", "DELETE", "POST", "HEAD"):
            answer = self.send(evolve(self.signed, method=method, body=b"x"))
            self.assertEqual(answer.status, 403, method)
        self.assertUntouched()

    def test_path(self) -> None:
        """No byte of the path may be another."""
        path, mark, query = self.signed.target.partition("?")
        self.s3.put_object(Bucket=self.bucket, Key="hele", Body=b"neighbour")
        for place in range(1, len(path)):
            other = "e" if path[place] != "e" else "f"
            changed = path[:place] + other + path[place + 1 :]
            answer = self.send(evolve(self.signed, target=changed + mark + query))
            self.assertRejected(answer, (403,), changed)
        self.s3.delete_object(Bucket=self.bucket, Key="hele")

    def test_queryValues(self) -> None:
        """No value of the query may be another, nor may one be added, dropped or doubled."""
        path, _, query = self.signed.target.partition("?")
        pairs = query.split("&")
        self.assertEqual(len(pairs), 7)
        for place, pair in enumerate(pairs):
            last = "1" if pair[-1] != "1" else "2"
            changed = pair[:-1] + last
            rest = pairs[:place], pairs[place + 1 :]
            for name, other in (
                ("changed", [*rest[0], changed, *rest[1]]),
                ("dropped", [*rest[0], *rest[1]]),
                ("doubled", [*pairs, pair]),
                ("contradicted", [*pairs, changed]),
                ("contradicted ahead", [changed, *pairs]),
            ):
                answer = self.send(evolve(self.signed, target=f"{path}?{'&'.join(other)}"))
                self.assertRejected(answer, REFUSED, (name, pair))
        added = evolve(self.signed, target=f"{self.signed.target}&versionId=null")
        self.assertRejected(self.send(added), (403,))

    def test_hostUnsigned(self) -> None:
        """A signature that leaves the host out is refused, though it is right."""
        plain = Outgoing("GET", self.target(), {"x-amz-meta-a": "1"})
        answer = self.send(self.signer.presign(plain, hostless=True))
        self.assertRejected(answer, REFUSED)
        self.assertNotEqual(answer.code, "SignatureDoesNotMatch")
        lowered = re.sub("SignedHeaders=[^&]*", "SignedHeaders=", self.signed.target)
        self.assertNotEqual(lowered, self.signed.target)
        self.assertRejected(self.send(evolve(self.signed, target=lowered)), REFUSED)

    def test_expires(self) -> None:
        """A life of nothing, less than nothing, over a week or no number is refused."""
        for expires in ("0", "-1", "604801", "abc", "", "1e3", "+600", "6_0"):
            answer = self.send(self.signer.presign(Outgoing("GET", self.target()), expires=expires))
            self.assertRejected(answer, REFUSED, expires)
        week = self.signer.presign(Outgoing("GET", self.target()), expires="604800")
        self.assertEqual(self.send(week).status, 200)

    def test_expired(self) -> None:
        """A URL is over when its time is, and may not come from the future."""
        for skew, expires, code in (
            (-700, "600", "AccessDenied"),
            (-700, "900", ""),
            (-100_000, "200000", ""),
            (14 * 60, "600", ""),
            (16 * 60, "600", "AccessDenied"),
        ):
            signer = evolve(self.signer, skewSeconds=skew)
            answer = self.send(signer.presign(Outgoing("GET", self.target()), expires=expires))
            self.assertAnswer(answer, 403 if code else 200, code)

    def test_twoSchemes(self) -> None:
        """A signature in the query and one in a header are one too many."""
        both = self.signed.adding(Authorization="AWS4-HMAC-SHA256 Credential=a")
        self.assertRejected(self.send(both), (400,))
        plain = evolve(
            self.signed, headers={**self.signed.headers, **self.signer.account.plainHeaders()}
        )
        self.assertRejected(self.send(plain), (400,))

    def test_unsignedHeaders(self) -> None:
        """Headers that change what is done have to be signed: the holder may not add them."""
        put = self.signer.presign(Outgoing("PUT", self.target("new")))
        for name, value in (
            ("x-amz-meta-a", "1"),
            ("x-amz-acl", "public-read"),
            ("x-amz-copy-source", f"{self.bucket}/held"),
            ("x-amz-storage-class", "GLACIER"),
            ("x-amz-tagging", "a=b"),
        ):
            added = evolve(put, headers={**put.headers, name: value}, body=b"x")
            self.assertAnswer(self.send(added), 403, "AccessDenied")
        self.assertUntouched()

    def test_keyOfNobody(self) -> None:
        """A key that was never issued is told as such, whatever the signature."""
        answer = self.send(self.signed.replacing("AKIAWIRE", "AKIAWARE"))
        self.assertAnswer(answer, 403, "InvalidAccessKeyId")
