"""
boto3 over TLS: it then leaves bodies unsigned and sends its checksum behind them, without telling
the length ahead.
"""

import hashlib
from datetime import UTC, datetime, timedelta
from io import BytesIO
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from minio import Minio
from minio.commonconfig import CopySource
from minio.sse import SseCustomerKey, SseKMS, SseS3
from minio.sseconfig import Rule, SSEConfig
from urllib3 import PoolManager

from tests.support.clients import ROOT, botoClient
from tests.support.selection import long
from tests.wire.s3.fixture import S3Case, makeDaemon, ownDirectory

MIB = 1 << 20


def writeCertificate(directory: Path) -> tuple[Path, Path]:
    """Make a certificate for 127.0.0.1 that signs itself; give the paths of its key and it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "storagegate tests")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    keyPath, certificatePath = directory / "key.pem", directory / "certificate.pem"
    keyPath.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    certificatePath.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return keyPath, certificatePath


class TLSTests(S3Case):
    """A daemon behind an C{ssl:} endpoint."""

    def setUp(self) -> None:
        """Start a daemon with a certificate, and a client that trusts it."""
        super().setUp()
        directory = ownDirectory("tls")
        key, certificate = writeCertificate(directory)
        self.certificate = certificate
        listener = f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}"
        self.daemon = makeDaemon(directory / "data", "--s3", listener)
        self.addCleanup(self.daemon.kill)
        self.daemon.start()
        self._logStart = 0
        self.s3 = botoClient(self.daemon.url("s3", "https"), cafile=str(certificate))
        self.bucket = self.makeBucket()

    def test_trailers(self) -> None:
        """Bodies of every size come whole, with the checksum that was sent behind them."""
        for size in (0, 1, 65_536, 65_537, 5 * MIB):
            body = bytes(range(256)) * (size // 256 + 1)
            body = body[:size]
            put = self.s3.put_object(Bucket=self.bucket, Key=str(size), Body=body)
            digest = hashlib.md5(body, usedforsecurity=False).hexdigest()
            self.assertEqual(put["ETag"], f'"{digest}"')
            self.assertIn("ChecksumCRC32", put)
            self.assertHolds(self.bucket, str(size), body)

    def test_transfer(self) -> None:
        """A file of 20 MB goes up in parts and comes down in ranges."""
        directory = self.makeDirectory()
        body = b"0123456789abcdef" * 1_250_000
        (directory / "up").write_bytes(body)
        self.s3.upload_file(str(directory / "up"), self.bucket, "k")
        self.s3.download_file(self.bucket, "k", str(directory / "down"))
        self.assertTrue((directory / "down").read_bytes() == body)

    @long("takes seconds")
    def test_headerWire(self) -> None:
        """What this file says of boto3 is so: the body it sends is chunked and unsigned."""
        seen: list[dict[str, str]] = []

        def note(request: object, **_: object) -> None:
            headers = request.headers  # type: ignore[attr-defined]
            seen.append({name.lower(): str(value) for name, value in headers.items()})

        self.s3.meta.events.register("before-send.s3.PutObject", note)
        self.addCleanup(self.s3.meta.events.unregister, "before-send.s3.PutObject", note)
        self.s3.put_object(Bucket=self.bucket, Key="k", Body=b"x")
        [headers] = seen
        self.assertIn("STREAMING-UNSIGNED-PAYLOAD-TRAILER", headers["x-amz-content-sha256"])
        self.assertNotIn("content-length", headers)
        self.assertIn("transfer-encoding", headers)

    def test_minioKeys(self) -> None:
        """minio-py sends clients' keys over TLS only, and knows the other kinds too."""
        address = self.daemon.url("s3", "https").partition("://")[2]
        pool = PoolManager(cert_reqs="CERT_REQUIRED", ca_certs=str(self.certificate))
        client = Minio(
            address, access_key=ROOT.accessKey, secret_key=ROOT.secretKey, http_client=pool
        )
        customer = SseCustomerKey(bytes(range(32)))
        body = b"minio" * 1_300_000
        for sse in (customer, SseS3(), SseKMS("default", {"team": "blue"})):
            client.put_object(
                self.bucket, "k", BytesIO(body), len(body), sse=sse, part_size=5 << 20
            )
            own = customer if sse is customer else None
            self.assertEqual(client.stat_object(self.bucket, "k", ssec=own).size, len(body))
            response = client.get_object(self.bucket, "k", offset=5_000_000, length=10, ssec=own)
            self.assertEqual(response.read(), b"minio" * 2)
            response.release_conn()
            client.copy_object(self.bucket, "copy", CopySource(self.bucket, "k", ssec=own), sse=sse)
            response = client.get_object(self.bucket, "copy", ssec=own)
            self.assertTrue(response.read() == body)
            response.release_conn()
        client.set_bucket_encryption(self.bucket, SSEConfig(Rule.new_sse_s3_rule()))
        found = client.get_bucket_encryption(self.bucket)
        assert found is not None
        self.assertEqual(found.rule.sse_algorithm, "AES256")
        client.delete_bucket_encryption(self.bucket)
        self.assertIsNone(client.get_bucket_encryption(self.bucket))
