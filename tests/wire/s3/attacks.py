"""The base of the attacks: whatever is sent, nothing may be stored, left behind or told."""

import itertools
from typing import Any

from tests.support.clients import ROOT
from tests.support.s3signer import Answer, Outgoing, exchange
from tests.wire.s3.fixture import S3Case, eventually, leftovers

_sources = itertools.cycle(range(2, 250))


class AttackCase(S3Case):
    """
    Attacks on one bucket that holds one object, C{held}.

    Every request comes from another loopback address: a server slows down a source that fails
    often, and these do nothing else.
    """

    body = b"what was there before"

    def setUp(self) -> None:
        """Store what the attacks are after."""
        super().setUp()
        self.bucket = self.makeBucket("attacked")
        self.s3.put_object(Bucket=self.bucket, Key="held", Body=self.body)
        self.addCleanup(self.assertNothingLeft)

    def target(self, key: str = "held", query: str = "") -> str:
        """Write the target of a key in the attacked bucket."""
        return f"/{self.bucket}/{key}{'?' if query else ''}{query}"

    def send(self, outgoing: Outgoing) -> Answer:
        """Put a request on the wire as it is, and see that the answer tells no secret."""
        answer = exchange(self.address, outgoing, f"127.0.0.{next(_sources)}")
        self.assertNotIn(ROOT.secretKey.encode(), answer.body)
        self.assertNotIn(b"Traceback", answer.body)
        return answer

    def assertRejected(self, answer: Answer, statuses: tuple[int, ...], what: Any = "") -> None:
        """Check that an answer is one of these refusals, and an S3 error document."""
        self.assertIn(answer.status, statuses, (what, answer))
        self.assertNotEqual(answer.code, "", (what, answer))
        self.assertNotIn(self.body, answer.body)

    def assertUntouched(self) -> None:
        """Check that the bucket holds what it held, and no upload was begun."""
        found = self.s3.list_objects_v2(Bucket=self.bucket)
        self.assertEqual([entry["Key"] for entry in found.get("Contents", [])], ["held"])
        self.assertHolds(self.bucket, "held", self.body)
        self.assertNotIn("Uploads", self.s3.list_multipart_uploads(Bucket=self.bucket))

    def assertNothingLeft(self) -> None:
        """Check that no file of a refused body stays behind."""
        self.assertTrue(eventually(lambda: not leftovers(self.daemon)), leftovers(self.daemon))
