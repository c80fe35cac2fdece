"""
C{Expect: 100-continue}, which boto3 and aws-cli send with every file.

In many versions a connection of theirs that once had a final answer with no C{100 Continue} before
it cannot read the answer to its next file: it waits for a minute and tries again. So who is not
told to go on has to be told that the connection ends.
"""

import socket
from io import BytesIO
from typing import Any

from botocore.exceptions import ClientError

from tests.support.clients import botoClient
from tests.support.s3signer import ANSWER_SECONDS, Outgoing, wireBytes
from tests.wire.s3.fixture import S3Case


class ExpectTests(S3Case):
    """Files that follow each other on one connection."""

    def setUp(self) -> None:
        """Have a bucket, and a client with one connection."""
        super().setUp()
        self.bucket = self.makeBucket("expect")
        self.client = botoClient(self.endpoint, connections=1)

    def put(self, body: bytes, **named: Any) -> int:
        """
        Put a file: that is what makes boto3 expect a C{100 Continue}.

        @return: How often boto3 had to try again.
        """
        answer = self.client.put_object(
            **{"Bucket": self.bucket, "Key": "k", "Body": BytesIO(body), **named}
        )
        attempts: int = answer["ResponseMetadata"]["RetryAttempts"]
        return attempts

    def assertGoesOn(self) -> None:
        """Check that files can be put, and are there, without a stall."""
        for body in (b"small", b"large" * 100_000):
            self.assertEqual(self.put(body), 0)
            self.assertHolds(self.bucket, "k", body)

    def test_afterAnEmptyFile(self) -> None:
        """An empty file, which needs no C{100 Continue}, does not stall the next."""
        self.put(b"")
        self.assertGoesOn()

    def test_afterARefusal(self) -> None:
        """A file that is refused before its body is read does not stall the next."""
        for body in (b"", b"refused", b"refused" * 100_000):
            with self.assertRaises(ClientError):
                self.put(body, Bucket=self.makeName("never"))
            self.assertGoesOn()

    def test_onTheWire(self) -> None:
        """Who expects a C{100 Continue} gets one, or is told that the connection ends."""
        for bucket in (self.bucket, self.makeName("never")):
            for body in (b"", b"body"):
                asked = {"Expect": "100-continue", "Connection": "keep-alive"}
                signed = self.signer.sign(Outgoing("PUT", f"/{bucket}/k", asked, body))
                head = wireBytes(signed, self.host).removesuffix(body)
                with (
                    socket.create_connection(self.address, ANSWER_SECONDS) as connection,
                    connection.makefile("r", newline="\r\n") as stream,
                ):
                    connection.sendall(head)
                    lines = {line.strip().lower() for line in iter(stream.readline, "\r\n")}
                told = lines & {"http/1.1 100 continue", "connection: close"}
                self.assertEqual(len(told), 1, (bucket, body, lines))

    def test_otherExpectations(self) -> None:
        """An empty C{Expect} is none; another one is 417, as a document of S3."""
        for value, status, code in (("", 200, ""), ("200", 417, "ExpectationFailed")):
            answer = self.sendSigned(Outgoing("PUT", f"/{self.bucket}/k", {"Expect": value}, b"x"))
            self.assertAnswer(answer, status, code)
        self.assertEqual(answer.headers["content-type"], "application/xml")
        self.assertIn(b"<Message>The expectation is not 100-continue</Message>", answer.body)
