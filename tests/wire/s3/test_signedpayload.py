"""With C{requireSignedPayload}, no body is taken that somebody on the way could have changed."""

from collections.abc import Iterator

from tests.support.clients import ROOT, botoClient
from tests.support.s3signer import (
    SIGNED_CHUNKS,
    UNSIGNED,
    UNSIGNED_TRAILER,
    Outgoing,
    Signer,
    exchange,
    unsignedChunks,
)
from tests.wire.s3.fixture import S3Case, makeDaemon, ownDirectory
from tests.wire.s3.forms import formRequest
from tests.wire.s3.test_boto_tls import writeCertificate

REQUIRED = {"STORAGEGATE_REQUIRE_SIGNED_PAYLOAD": "true"}


class SignedPayloadCase(S3Case):
    """A daemon that is strict."""

    flags: tuple[str, ...] = ()

    def setUp(self) -> None:
        """Start the daemon."""
        super().setUp()
        self.daemon = makeDaemon(ownDirectory("strict") / "data", *self.flags, **REQUIRED)
        self.addCleanup(self.daemon.kill)
        self.daemon.start()
        self._logStart = 0
        self.address = self.daemon.address()
        self.signer = Signer(f"{self.address[0]}:{self.address[1]}")


class PlainHTTPTests(SignedPayloadCase):
    """Without TLS."""

    def setUp(self) -> None:
        """Make a bucket."""
        super().setUp()
        self.s3 = botoClient(self.daemon.url(), patient=False)
        self.s3.create_bucket(Bucket="strict")

    def unsigned(self) -> Iterator[tuple[str, Outgoing]]:
        """Walk over one request for each way to send a body that nobody signed."""
        put = Outgoing("PUT", "/strict/new", {}, b"body")
        yield "unsigned", self.signer.sign(put, UNSIGNED)
        yield "presigned", self.signer.presign(put)
        yield "plain headers", put.adding(**ROOT.plainHeaders())
        stated = self.signer.sign(put).headers["x-amz-content-sha256"]
        yield (
            "plain headers, hash",
            put.adding(**ROOT.plainHeaders(), x_amz_content_sha256=stated),
        )
        chunked = Outgoing(
            "PUT",
            "/strict/new",
            {"content-encoding": "aws-chunked", "x-amz-decoded-content-length": "4"},
            unsignedChunks([b"body"]),
        )
        yield "chunks", self.signer.sign(chunked, UNSIGNED_TRAILER)
        undeclared = Outgoing(
            "PUT", "/strict/new", {"transfer-encoding": "chunked"}, b"4\r\nbody\r\n0\r\n\r\n"
        )
        yield "undeclared", self.signer.sign(undeclared, UNSIGNED)

    def test_refused(self) -> None:
        """Every body that is not signed for is 403, and nothing is stored."""
        for label, outgoing in self.unsigned():
            answer = exchange(self.address, outgoing)
            self.assertEqual((answer.status, answer.code), (403, "AccessDenied"), label)
        self.assertNotIn("Contents", self.s3.list_objects_v2(Bucket="strict"))

    def test_form(self) -> None:
        """A form's signature covers its policy and not its file."""
        form = self.s3.generate_presigned_post("strict", "new")
        answer = exchange(self.address, formRequest("strict", form["fields"], b"file"))
        self.assertEqual((answer.status, answer.code), (403, "AccessDenied"))
        self.assertNotIn("Contents", self.s3.list_objects_v2(Bucket="strict"))

    def test_signed(self) -> None:
        """What is signed is taken: whole, in chunks, and as boto3 sends it by itself."""
        self.s3.put_object(Bucket="strict", Key="boto", Body=b"boto")
        put = Outgoing("PUT", "/strict/whole", {}, b"whole")
        self.assertEqual(exchange(self.address, self.signer.sign(put)).status, 200)
        head = Outgoing(
            "PUT",
            "/strict/chunks",
            {"content-encoding": "aws-chunked", "x-amz-decoded-content-length": "6"},
        )
        signed = self.signer.sign(head, SIGNED_CHUNKS)
        body = b"".join(self.signer.chunkFrames(signed, [b"chunks"]))
        answer = exchange(self.address, Outgoing("PUT", head.target, signed.headers, body))
        self.assertEqual(answer.status, 200, answer)
        for key in ("boto", "whole", "chunks"):
            self.assertHolds("strict", key, key.encode())

    def test_noBody(self) -> None:
        """A request without a body has none to sign: presigned reads and plain headers go on."""
        self.s3.put_object(Bucket="strict", Key="k", Body=b"k")
        get = Outgoing("GET", "/strict/k")
        for outgoing in (
            self.signer.presign(get),
            self.signer.sign(get, UNSIGNED),
            get.adding(**ROOT.plainHeaders()),
        ):
            self.assertEqual(exchange(self.address, outgoing).body, b"k")


class TLSTests(SignedPayloadCase):
    """Over TLS nobody on the way can change anything."""

    def setUp(self) -> None:
        """Make a certificate first."""
        directory = ownDirectory("certificate")
        key, self.certificate = writeCertificate(directory)
        self.flags = (
            "--s3",
            f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={self.certificate}",
        )
        super().setUp()

    def test_taken(self) -> None:
        """boto3 leaves bodies unsigned over TLS, and they are taken."""
        client = botoClient(self.daemon.url("s3", "https"), cafile=str(self.certificate))
        client.create_bucket(Bucket="strict")
        client.put_object(Bucket="strict", Key="k", Body=b"over TLS")
        found = client.get_object(Bucket="strict", Key="k")["Body"].read()
        self.assertEqual(found, b"over TLS")
