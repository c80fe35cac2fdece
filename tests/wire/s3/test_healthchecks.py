"""Health checks on the S3 listener, unsigned, beside the buckets that have their names."""

import json
import socket

from storagegate.s3.resource import HEALTH_PATHS
from tests.support.s3signer import ANSWER_SECONDS, Answer, Outgoing, exchange
from tests.wire.s3.fixture import S3Case


class HealthCheckTests(S3Case):
    """The paths of health checks."""

    def get(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """Send an unsigned request."""
        return exchange(self.address, Outgoing(method, path, headers))

    def test_paths(self) -> None:
        """Each path answers GET and HEAD without a signature, and tells nothing but the status."""
        for path in HEALTH_PATHS:
            answer = self.get(path.decode())
            self.assertEqual((answer.status, json.loads(answer.body)), (200, {"status": "ok"}))
            self.assertEqual(answer.headers["cache-control"], "no-store")
            self.assertEqual(self.get(path.decode(), "HEAD").status, 200)

    def test_balancer(self) -> None:
        """HAProxy asks in HTTP/1.0, and names no host."""
        with socket.create_connection(self.address, ANSWER_SECONDS) as connection:
            connection.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
            self.assertTrue(connection.recv(100).startswith(b"HTTP/1.1 200 "))

    def test_others(self) -> None:
        """Any other request for these paths is one of S3."""
        for path, method in (
            ("/healthz/", "GET"),
            ("/healthz?location", "GET"),
            ("/healthz?", "GET"),
            ("/minio/health/live?x=1", "GET"),
            ("/minio/health", "GET"),
            ("/minio/health/live/", "GET"),
            ("//readyz", "GET"),
            ("/readyz", "PUT"),
            ("/minio/health/ready", "DELETE"),
        ):
            answer = self.get(path, method)
            self.assertIn(b"<Code>", answer.body, path)
        signed = self.sendSigned(Outgoing("GET", "/healthz"))
        self.assertAnswer(signed, 404, "NoSuchBucket")
        self.assertIn(b"<Code>", self.get("/healthz", authorization="AWS k:s").body)

    def test_buckets(self) -> None:
        """A bucket of the name wins over the check, and its objects over those of MinIO."""
        for bucket in ("healthz", "minio", "readyz"):
            self.s3.create_bucket(Bucket=bucket)
            self.addCleanup(self.s3.delete_bucket, Bucket=bucket)
        for path in HEALTH_PATHS:
            self.assertAnswer(self.get(path.decode()), 403, "AccessDenied")
        acl = {"ACL": "public-read"}
        self.s3.put_object(Bucket="minio", Key="health/live", Body=b"an object", **acl)
        self.addCleanup(self.s3.delete_object, Bucket="minio", Key="health/live")
        self.assertEqual(self.get("/minio/health/live").body, b"an object")
