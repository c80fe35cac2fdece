"""Attacks on the C{Authorization} field, on headers beside it, and on the plain scheme."""

from time import monotonic
from urllib.parse import urlencode

from attrs import evolve

from tests.support.clients import ROOT, Account
from tests.support.s3signer import Outgoing, exchange
from tests.wire.s3.attacks import AttackCase
from tests.wire.s3.fixture import makeDaemon, ownDirectory


class SignatureAttackTests(AttackCase):
    """Signatures that are not right, each for a reason of its own."""

    def setUp(self) -> None:
        """Sign a read."""
        super().setUp()
        self.plain = Outgoing("GET", self.target())
        self.signed = self.signer.sign(self.plain)

    def test_untampered(self) -> None:
        """The request that all others here are made from is good."""
        self.assertEqual(self.send(self.signed).body, self.body)

    def test_scope(self) -> None:
        """Region, service, ending and key of another scope have codes of their own."""
        for signer, status, code in (
            (evolve(self.signer, region="eu-west-1"), 400, "AuthorizationHeaderMalformed"),
            (evolve(self.signer, service="sqs"), 400, "AuthorizationHeaderMalformed"),
            (
                evolve(self.signer, account=Account("AKIANOBODY", ROOT.secretKey)),
                403,
                "InvalidAccessKeyId",
            ),
            (
                evolve(self.signer, account=Account(ROOT.accessKey.lower(), ROOT.secretKey)),
                403,
                "InvalidAccessKeyId",
            ),
            (
                evolve(self.signer, account=Account(ROOT.accessKey, ROOT.secretKey.lower())),
                403,
                "SignatureDoesNotMatch",
            ),
        ):
            self.assertAnswer(self.send(signer.sign(self.plain)), status, code)
        ending = self.signed.resigned("aws4_request", "aws4_reguest")
        self.assertAnswer(self.send(ending), 400, "AuthorizationHeaderMalformed")

    def test_regionIsTold(self) -> None:
        """Who signs for another region is told the right one: clients then sign again."""
        answer = self.send(evolve(self.signer, region="eu-west-1").sign(self.plain))
        self.assertIn(b"<Region>us-east-1</Region>", answer.body)

    def test_signature(self) -> None:
        """A signature with any digit changed, cut, doubled or empty opens nothing."""
        value = self.signed.headers["Authorization"]
        signature = value.rpartition("=")[2]
        for place in (0, 31, 63):
            other = "0" if signature[place] != "0" else "1"
            changed = signature[:place] + other + signature[place + 1 :]
            answer = self.send(self.signed.resigned(signature, changed))
            self.assertAnswer(answer, 403, "SignatureDoesNotMatch")
        for changed in ("", signature[:-1], signature * 2, "z" * 64):
            answer = self.send(self.signed.resigned(signature, changed))
            self.assertRejected(answer, (400, 403), changed)

    def test_clock(self) -> None:
        """14 minutes off are forgiven, 16 are not, in either direction."""
        for minutes, expected in ((14, 200), (-14, 200), (16, 403), (-16, 403)):
            signer = evolve(self.signer, skewSeconds=minutes * 60)
            answer = self.send(signer.sign(self.plain))
            self.assertEqual(answer.status, expected, (minutes, answer))
            if expected == 403:
                self.assertEqual(answer.code, "RequestTimeTooSkewed")

    def test_dates(self) -> None:
        """The day of the scope and the day of the request are one."""
        stamp = self.signed.headers["x-amz-date"]
        answer = self.send(self.signed.resigned(f"/{stamp[:8]}/", "/20200101/"))
        self.assertRejected(answer, (400, 403))
        other = self.signed.adding(x_amz_date="20200101T000000Z")
        self.assertRejected(self.send(other), (403,))

    def test_garbage(self) -> None:
        """A field that cannot be read is 400; an empty one is nobody."""
        for value in (
            "AWS4-HMAC-SHA256",
            "AWS4-HMAC-SHA256 Credential=a",
            "aws4-hmac-sha256 " + self.signed.headers["Authorization"].partition(" ")[2],
            "Basic dXNlcjpwYXNz",
            "AWS AKIAWIRETESTROOT0001:c2lnbmF0dXJl",
            "AWS4-ECDSA-P256-SHA256 Credential=a/b/c, SignedHeaders=host, Signature=x",
            self.signed.headers["Authorization"] + ", Signature=0",
            "\u00e4\u00f6\u00fc",
            "x" * 4000,
        ):
            answer = self.send(self.signed.adding(Authorization=value))
            self.assertRejected(answer, (400,), value)
        for nobody in (self.signed.adding(Authorization=""), self.plain):
            self.assertAnswer(self.send(nobody), 403, "AccessDenied")

    def test_unsignedHeaders(self) -> None:
        """An C{x-amz-} header that the signature does not cover is refused."""
        put = self.signer.sign(Outgoing("PUT", self.target("new"), {}, b"x"))
        for name, value in (
            ("x-amz-meta-a", "1"),
            ("x-amz-acl", "public-read"),
            ("x-amz-copy-source", f"{self.bucket}/held"),
            ("x-amz-checksum-crc32", "AAAAAA=="),
            ("x-amz-decoded-content-length", "1"),
        ):
            added = evolve(put, headers={**put.headers, name: value})
            self.assertAnswer(self.send(added), 403, "AccessDenied")
        self.assertUntouched()

    def test_changedHeaders(self) -> None:
        """A covered header may not be changed or left out, the host least of all."""
        put = self.signer.sign(
            Outgoing("PUT", self.target("new"), {"x-amz-meta-a": "1", "Content-Type": "a/b"}, b"x")
        )
        for changed in (
            put.adding(x_amz_meta_a="2"),
            put.without("x-amz-meta-a"),
            put.adding(host="evil.example"),
            put.adding(x_amz_content_sha256="UNSIGNED-PAYLOAD"),
        ):
            self.assertAnswer(self.send(changed), 403, "SignatureDoesNotMatch")
        self.assertUntouched()

    def test_forwarded(self) -> None:
        """What a proxy would say of the client is not believed: it is nobody's proxy."""
        forwarded = {
            "X-Forwarded-Host": "evil.example",
            "X-Forwarded-Proto": "https",
            "X-Forwarded-For": "203.0.113.9",
            "Forwarded": "host=evil.example;proto=https",
        }
        with_ = evolve(self.signed, headers={**self.signed.headers, **forwarded})
        self.assertEqual(self.send(with_).status, 200)
        elsewhere = evolve(self.signer, host="evil.example").sign(self.plain)
        moved = evolve(elsewhere, headers={**elsewhere.headers, **forwarded, "host": self.host})
        answer = self.send(moved)
        self.assertAnswer(answer, 403, "SignatureDoesNotMatch")
        made = self.sendSigned(Outgoing("PUT", f"/{self.makeName()}", forwarded))
        self.assertNotIn("evil.example", made.headers["location"])


class PlainSchemeAttackTests(AttackCase):
    """Attacks on the two plain headers."""

    def test_refused(self) -> None:
        """Half a pair, an unknown key and a wrong secret are each 401, with a challenge."""
        for headers, code in (
            ({"x-storage-access-key": ROOT.accessKey}, "SignatureDoesNotMatch"),
            ({"x-storage-secret-key": ROOT.secretKey}, "InvalidAccessKeyId"),
            (Account("AKIANOBODY", ROOT.secretKey).plainHeaders(), "InvalidAccessKeyId"),
            (Account(ROOT.accessKey, ROOT.secretKey[:-1]).plainHeaders(), "SignatureDoesNotMatch"),
            (Account(ROOT.accessKey, ROOT.secretKey + "x").plainHeaders(), "SignatureDoesNotMatch"),
            (Account(ROOT.accessKey, "").plainHeaders(), "SignatureDoesNotMatch"),
            (Account(ROOT.accessKey, "\u00e4").plainHeaders(), "SignatureDoesNotMatch"),
        ):
            for method in ("GET", "PUT", "DELETE"):
                answer = self.send(Outgoing(method, self.target(), headers, b"x"))
                self.assertAnswer(answer, 401, code)
                self.assertEqual(
                    answer.headers["www-authenticate"], 'StorageKey realm="storagegate"'
                )
        self.assertUntouched()

    def test_bothSchemes(self) -> None:
        """The plain pair and a signature at once are one too many, even if both are right."""
        signed = self.signer.sign(Outgoing("GET", self.target()))
        both = evolve(signed, headers={**signed.headers, **ROOT.plainHeaders()})
        self.assertAnswer(self.send(both), 400, "InvalidArgument")

    def test_guessesAreSlowed(self) -> None:
        """Who fails more than a hundred times is answered late; who succeeds is not his victim."""
        wrong = Outgoing("GET", self.target(), Account(ROOT.accessKey, "guess").plainHeaders())
        source = "127.0.0.251"
        for _ in range(100):
            self.assertEqual(exchange(self.address, wrong, source).status, 401)
        began = monotonic()
        self.assertEqual(exchange(self.address, wrong, source).status, 401)
        # Only the lower bound: how late a busy machine makes it is no promise.
        self.assertGreater(monotonic() - began, 0.2)
        right = Outgoing("GET", self.target(), ROOT.plainHeaders())
        self.assertEqual(exchange(self.address, right, source).body, self.body)

    def test_tokensAreSlowed(self) -> None:
        """Refused tokens of web identities, which come unsigned, count as failures too."""
        form = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": "arn:aws:iam::root:role/any",
            "RoleSessionName": "any",
            "WebIdentityToken": "e30.e30.AAAA",
        }
        fields = {"Content-Type": "application/x-www-form-urlencoded"}
        wrong = Outgoing("POST", "/", fields, urlencode(form).encode())
        source = "127.0.0.252"
        for _ in range(100):
            answer = exchange(self.address, wrong, source)
            self.assertEqual(answer.status, 400)
        self.assertIn(b"InvalidIdentityToken", answer.body)
        began = monotonic()
        self.assertEqual(exchange(self.address, wrong, source).status, 400)
        self.assertGreater(monotonic() - began, 0.2)

    def test_warning(self) -> None:
        """A start whose plain HTTP listener is reachable from outside warns of the plain scheme."""
        daemon = makeDaemon(ownDirectory("open") / "data", "--s3", "tcp:0")
        self.addCleanup(daemon.kill)
        daemon.start()
        self.assertRegex(daemon.log, r"(?i)warn.*(clear|plain|TLS)")
        self.assertNotRegex(self.daemon.log, r"(?i)warn.*(clear|plain|TLS)")
