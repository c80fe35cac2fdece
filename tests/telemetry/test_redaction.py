"""What is taken out of the log."""

import base64
import json
from itertools import product
from time import process_time
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.telemetry.redaction import Redactor, _shapes

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"

SECRET = "f00BAR/5ecret+value"


NAMES = (
    "secret",
    "secretKey",
    "secret_access_key",
    "passwd",
    "password",
    "pwd",
    "passphrase",
    "token",
    "signature",
    "api-key",
    "private_key",
    "customerKey",
    "jwt",
    "session-id",
    "authorization",
    "Proxy-Authorization",
    "cookie",
    "Set-Cookie2",
    "Bearer",
    "Basic",
    "AWS",
    "https://me",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----",
    "monkey",
    "design",
    "author",
)
"""What comes before a secret, or looks like it."""

FORMS = (
    "{}={}",
    "{}={}\n",
    "{}: {}",
    "{}:{}",
    "{} {}",
    "{}\t{}",
    "{}\n{}",
    "{}/{}",
    "{}{}",
    '"{}":"{}"',
    "'{}','{}'",
    "(b'{}', b'{}')",
    '\\"{}\\": \\"{}\\"',
    "{} AKID:{}",
    "{}:{}@host",
)


class ShapeTests(SynchronousTestCase):
    """Unknown secrets, by their shape."""

    def test_hidden(self) -> None:
        """In every form that libraries, exceptions and handlers print, the secret is gone."""
        for text in (
            f"GET /b/k?X-Amz-Expires=60&X-Amz-Signature={SECRET}&x=1",
            f"GET /b/k?AWSAccessKeyId=A&Signature={quote(SECRET, safe='')}",
            f"Authorization: AWS4-HMAC-SHA256 Credential=A/x, Signature={SECRET}",
            f"authorization: AWS AKIDEXAMPLE:{SECRET}",
            f"AWS AKIDEXAMPLE:{SECRET}",
            f"the header was Bearer {SECRET}",
            f"Basic {base64.b64encode(SECRET.encode()).decode()} refused",
            f"a token {JWT} came",
            str({"authorization": f"Bearer {SECRET}"}),
            str({b"Authorization": [SECRET.encode()]}),
            str(("cookie", f"session=1; sid={SECRET}")),
            # The metadata of a call, as grpcio prints them.
            f"(_Metadatum(key='x-api-key', value='{SECRET}'),)",
            f"(_Metadatum(key='x-storage-secret-key', value=b'{SECRET}'),)",
            f"Cookie: a=b; sid={SECRET}",
            f"Set-Cookie: sid={SECRET}; HttpOnly",
            json.dumps({"id": 1, "auth": {"token": f"A:{SECRET}"}}),
            json.dumps(json.dumps({"auth": {"token": SECRET}})),
            f"Credentials(accessKey='A', secretKey='{SECRET}')",
            f"x-storage-secret-key: {SECRET}",
            f"X-Api-Key: {SECRET}",
            f"PUT /b/k?X-Amz-Server-Side-Encryption-Customer-Key={quote(SECRET, safe='')}&x=1",
            f"x-amz-copy-source-server-side-encryption-customer-key: {SECRET}",
            str({"SSECustomerKey": SECRET, "Key": "k"}),
            f"/login?user=me&password={SECRET}&next=/",
            f"password: {SECRET}",
            f"https://me:{SECRET.replace('/', '_')}@example.com/",
            f"-----BEGIN EC PRIVATE KEY-----\n{SECRET}\n-----END EC PRIVATE KEY-----",
        ):
            shown = Redactor().redact(text)
            self.assertIn("***", shown, text)
            for form in (SECRET, SECRET.replace("/", "_"), quote(SECRET, safe=""), "c2lnbmF0"):
                self.assertNotIn(form, shown, text)

    def test_kept(self) -> None:
        """What is no secret stays: a log is for reading."""
        for text in (
            "listening name=s3 address=127.0.0.1:9000",
            "a token was rejected: Signature has expired",
            "Invalid token: expired",
            "GET /b/k?prefix=a%2Fb&continuation-token",
            "generated the root key pair path=/srv/data/root-credentials",
            "https://example.com/a/b?c=d",
            "KeyError: 'password'",
            "the basic rules",
        ):
            self.assertEqual(Redactor().redact(text), text)

    def test_searched(self) -> None:
        """A shape is passed over only where it would find nothing."""
        hidden = set()
        for name, form, secret in product(NAMES, FORMS, (SECRET, JWT, "word", "a1b2c3d4")):
            for text in (form.format(name, secret), form.format(f"X-{name.upper()}", secret)):
                expected = text
                for pattern, replacement, _ in _shapes():
                    if pattern.search(expected) is not None:
                        hidden.add(pattern)
                    expected = pattern.sub(replacement, expected)
                self.assertEqual(Redactor().redact(text), expected)
        self.assertEqual(len(hidden), len(_shapes()))

    def test_linear(self) -> None:
        """No text takes more than linear time: the test ends."""
        for piece in ("\\", " ", '"', '\\"', '"key', "token:", "eyJaaaaa.", "secret", ":"):
            for before in ("", 'key: "', '"key":', '"key":\\"', "authorization: ", "://a:"):
                text = before + piece * (65_536 // len(piece))
                self.assertIsInstance(Redactor().redact(text), str)

    def test_surroundings(self) -> None:
        """Only the secret goes: what stands around it tells what happened."""
        self.assertEqual(
            Redactor().redact("GET /b/k?X-Amz-Signature=abc&x=1 was 403"),
            "GET /b/k?X-Amz-Signature=***&x=1 was 403",
        )
        self.assertEqual(
            Redactor().redact('{"password":"a\\"b","user":"me"}'),
            '{"password":***,"user":"me"}',
        )

    def test_begunTokens(self) -> None:
        """A token is found behind other characters of its alphabet, which stay."""
        self.assertEqual(Redactor().redact(f"a x-{JWT} b"), "a x-*** b")
        self.assertEqual(Redactor().redact(f"eyJ-{JWT}, {JWT}"), "***, ***")
        text = "x-eyJhbGciOiJIUzI1NiJ9 b.c"
        self.assertEqual(Redactor().redact(text), text)

    def test_hostile(self) -> None:
        """The time is in proportion to the text, which any client may choose."""
        length = 16 * 1024
        for text in (
            '"token":' + length * " " + ",",
            '"token": ' + length * "\n" + "[,",
            'token "' + length * "\\",
            '\\"token\\":' + length * "\\",
            length // 8 * "-eyJaaaa",
            length // 8 * '"token":',
        ):
            began = process_time()
            self.assertTrue(Redactor().redact(text))
            self.assertLess(process_time() - began, 0.5, text[:20])


class KnownTests(SynchronousTestCase):
    """Secrets that are known, wherever they stand."""

    def test_known(self) -> None:
        """A known secret is replaced in each form that it travels in."""
        redactor = Redactor([SECRET])
        for form in (
            SECRET,
            quote(SECRET, safe=""),
            quote(SECRET),
            base64.b64encode(SECRET.encode()).decode(),
        ):
            self.assertEqual(redactor.redact(f"said {form}!"), "said ***!")

    def test_learns(self) -> None:
        """Secrets may be learnt at any time, and the old ones stay hidden."""
        redactor = Redactor(["first-secret"])
        redactor.hide("second-secret", "")
        self.assertEqual(redactor.redact("first-secret second-secret"), "*** ***")

    def test_prefix(self) -> None:
        """A secret that begins as another one does is replaced whole."""
        self.assertEqual(Redactor(["long-secret", "long-secret-2"]).redact("long-secret-2"), "***")

    def test_short(self) -> None:
        """A short secret is replaced as a word, and does not tear words apart."""
        self.assertEqual(Redactor(["min"]).redact("min admin a=min"), "*** admin a=***")

    @given(st.text(min_size=8, max_size=40), st.text(max_size=40), st.text(max_size=40))
    def test_anywhere(self, secret: str, before: str, after: str) -> None:
        """Whatever a secret consists of and stands between, it is gone."""
        shown = Redactor([secret]).redact(before + secret + after)
        self.assertIn("***", shown)
        if secret not in before + "***" + after:
            self.assertNotIn(secret, shown)
