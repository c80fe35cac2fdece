"""Keys of clients, which no answer, log, metric, trace or page of the console may show."""

import hashlib
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from urllib.parse import quote, urlencode
from urllib.request import urlopen

from tests.console.eventstream import EventStream
from tests.support.clients import ROOT, Account, botoClient
from tests.support.s3signer import Answer, Outgoing, Signer
from tests.support.selection import long
from tests.wire.s3.fixture import S3Case, makeDaemon, ownDirectory
from tests.wire.s3.forms import formRequest

KEYS = [hashlib.sha256(b"key %d" % number).digest() for number in range(3)]
PREFIX = "x-amz-server-side-encryption-customer-"
SOURCE = "x-amz-copy-source-server-side-encryption-customer-"


def customer(secret: bytes, prefix: str = PREFIX, **more: str) -> dict[str, str]:
    """Return the three fields of a key, with some of them replaced or left out."""
    digest = hashlib.md5(secret, usedforsecurity=False).digest()
    fields = {"algorithm": "AES256", "key": b64encode(secret).decode()}
    fields |= {"key-MD5": b64encode(digest).decode(), **more}
    return {prefix + name: value for name, value in fields.items() if value}


def forms(key: bytes) -> Iterator[str]:
    """Return the texts in which a key could be shown."""
    for each in (key, key[:31]):
        plain = b64encode(each).decode().rstrip("=")
        yield from (plain, plain[:20], plain[-20:], quote(plain, safe=""), each.hex())
        yield urlsafe_b64encode(each).decode().rstrip("=")
        yield repr(each)[2:-1]
        yield each.decode("latin-1")


@long("starts a daemon")
class KeyLeakTests(S3Case):
    """A daemon that logs all it can, asked with right, wrong and malformed keys everywhere."""

    def setUp(self) -> None:
        """Start the daemon, with a bucket and an object."""
        super().setUp()
        directory = ownDirectory("leaks")
        self.accessLog = directory / "access.log"
        self.daemon = makeDaemon(
            directory / "data",
            STORAGEGATE_LOG_LEVEL="debug",
            STORAGEGATE_ACCESS_LOG=str(self.accessLog),
        )
        self.addCleanup(self.daemon.kill)
        self.daemon.start()
        self._logStart = 0
        self.address = self.daemon.address("s3")
        self.host = self.daemon.url("s3").partition("://")[2]
        self.signer = Signer(self.host)
        self.impostor = Signer(self.host, Account(ROOT.accessKey, "not-the-secret"))
        self.s3 = botoClient(self.daemon.url("s3"))
        self.s3.create_bucket(Bucket="leaks")
        self.shown: list[str] = []
        self.stream = EventStream(
            self.daemon.address("admin"), "topics=requests", ROOT.plainHeaders()
        )
        self.addCleanup(self.stream.close)

    def ask(self, method: str, target: str, fields: dict[str, str], body: bytes = b"") -> Answer:
        """Send a signed request, and keep its answer."""
        return self.keep(self.sendSigned(Outgoing(method, target, fields, body)))

    def keep(self, answer: Answer) -> Answer:
        """Keep an answer."""
        self.shown.append(f"{answer.headers}\n{answer.body.decode('latin-1')}")
        return answer

    def test_requests(self) -> None:
        """Neither an answer nor anything that the daemon writes or serves has a key."""
        right, other, third = KEYS
        self.assertEqual(self.ask("PUT", "/leaks/k", customer(right), b"body").status, 200)
        self.assertEqual(self.ask("GET", "/leaks/k", customer(right)).body, b"body")
        raw = right.decode("latin-1")
        for fields in (
            customer(other),
            customer(right, algorithm="AES128"),
            customer(right, key=b64encode(right[:31]).decode()),
            customer(right, key=right.hex()),
            customer(right, key=b64encode(right).decode()[:-1] + "!"),
            customer(right, **{"key-MD5": b64encode(right).decode()}),
            customer(right, algorithm=""),
            {**customer(right), "x-amz-server-side-encryption": "aws:kms"},
        ):
            for method, target in (
                ("GET", "/leaks/k"),
                ("HEAD", "/leaks/k"),
                ("PUT", "/leaks/bad"),
                ("POST", "/leaks/bad?uploads"),
                ("GET", "/leaks/k?attributes"),
            ):
                self.assertNotEqual(self.ask(method, target, fields).status, 500)
        copy = {"x-amz-copy-source": "/leaks/k"}
        for source in (right, other):
            for target in (right, third):
                fields = {**copy, **customer(source, SOURCE), **customer(target)}
                self.ask("PUT", "/leaks/copy", fields)
        # SDKs move headers into the query of a presigned URL.
        for fields in (customer(right), customer(other), customer(right, key=raw)):
            for method in ("GET", "PUT"):
                outgoing = Outgoing(method, f"/leaks/k?{urlencode(fields, encoding='latin-1')}")
                self.keep(self.send(self.signer.presign(outgoing)))
                self.keep(self.send(outgoing))
                # The error of a wrong signature has the canonical request.
                answer = self.keep(self.send(self.impostor.presign(outgoing)))
                self.assertIn(answer.code, ("SignatureDoesNotMatch", "InvalidURI"))
        for fields in (customer(right), {**copy, **customer(right, SOURCE), **customer(other)}):
            answer = self.keep(self.send(self.impostor.sign(Outgoing("PUT", "/leaks/k", fields))))
            self.assertIn(b"customer-key-md5:", answer.body)
        for fields in (
            customer(right),
            customer(right, algorithm="AES128"),
            customer(right, key="x"),
        ):
            conditions = [{name: value} for name, value in fields.items()]
            form = self.s3.generate_presigned_post(
                "leaks", "form", Fields=dict(fields), Conditions=conditions
            )
            self.keep(self.send(formRequest("leaks", form["fields"], b"file")))
            bad = {**form["fields"], "key": "another"}
            self.keep(self.send(formRequest("leaks", bad, b"file")))
        self.assertHidden()

    def assertHidden(self) -> None:
        """Search what was answered, logged and measured."""
        with urlopen(self.daemon.url("admin") + "/metrics", timeout=10) as response:
            metrics = response.read().decode()
        self.assertIn("storagegate_", metrics)
        self.daemon.stop()
        events = str(list(self.stream))
        self.assertIn("'key': 'copy'", events)
        written = self.accessLog.read_text()
        self.assertIn("leaks", written)
        places = {
            "answer": "\n".join(self.shown),
            "metrics": metrics,
            "access log": written,
            "events": events,
        }
        places["log"] = self.daemon.log
        for path in (each for each in self.daemon.data.rglob("*") if each.is_file()):
            places[str(path)] = path.read_bytes().decode("latin-1")
        for place, text in places.items():
            for key in KEYS:
                for form in forms(key):
                    found = text.find(form)
                    context = text[max(0, found - 300) : found + 200]
                    self.assertLess(found, 0, f"{place}: {form!r} in {context!r}")
