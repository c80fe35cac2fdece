"""Temporary keys at the authenticator: their tokens in header, query and form."""

import time

from botocore.auth import S3SigV4Auth, S3SigV4PostAuth, S3SigV4QueryAuth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.accounts import AccessKeyStore
from storagegate.objects.errors import DomainError
from storagegate.s3.auth.authenticator import Authenticated, S3Authenticator
from storagegate.s3.auth.sigv4 import SignedRequest
from storagegate.s3.errors import S3Error, asS3Error
from storagegate.storage.accesskeys import AccessKeySnapshot
from tests.objects.identities.test_sessions import Identities

REGION, PATH = "us-east-1", b"/bucket/key"


class SessionTests(SynchronousTestCase):
    """Requests that are signed with a temporary key."""

    def setUp(self) -> None:
        """Make a session of the root pair."""
        self.ahead = 0.0
        keys = AccessKeySnapshot(Identities(), Clock())
        keys.start()
        accounts = AccessKeyStore(keys, "ROOT", "rootsecret", self.now)
        self.gate = S3Authenticator(accounts, REGION, self.now)
        maker = accounts.find("ROOT")
        made = [accounts.sessions.issue("root", 900, maker) for _ in range(2)]
        self.keys, self.others = (
            Credentials(each.session.accessKey, each.secretKey, each.token) for each in made
        )

    def now(self) -> float:
        """Return the time, which the test can advance."""
        return time.time() + self.ahead

    def withToken(self, token: str | None, secret: str | None = None) -> Credentials:
        """Return the temporary key with another token or secret."""
        return Credentials(self.keys.access_key, secret or self.keys.secret_key, token)

    def byHeader(self, keys: Credentials) -> Authenticated:
        """Authenticate a request that is signed in its header."""
        request = AWSRequest("GET", "http://host" + PATH.decode())
        S3SigV4Auth(keys, "s3", REGION).add_auth(request)
        return self.gate.authenticate(b"GET", PATH, b"", self.headersOf(request))

    def byQuery(self, keys: Credentials) -> Authenticated:
        """Authenticate a presigned URL."""
        request = AWSRequest("GET", "http://host" + PATH.decode())
        S3SigV4QueryAuth(keys, "s3", REGION, expires=604_800).add_auth(request)
        query = request.prepare().url.partition("?")[2].encode()
        return self.gate.authenticate(b"GET", PATH, query, {b"host": b"host"})

    def byForm(self, keys: Credentials) -> Authenticated:
        """Authenticate a form."""
        request = AWSRequest("POST", "http://host/bucket")
        fields: dict[str, str] = {}
        request.context["s3-presign-post-fields"] = fields
        request.context["s3-presign-post-policy"] = {"conditions": []}
        S3SigV4PostAuth(keys, "s3", REGION).add_auth(request)
        return self.gate.authenticateForm(fields)

    def byCall(self, keys: Credentials) -> Authenticated:
        """Authenticate a call in the query protocol."""
        body = b"Action=GetCallerIdentity"
        request = AWSRequest("POST", "http://host/", data=body)
        SigV4Auth(keys, "sts", REGION).add_auth(request)
        sent = SignedRequest(b"POST", b"/", b"", self.headersOf(request))
        return self.gate.authenticateCall(sent, "sts", body)

    def headersOf(self, request: AWSRequest) -> dict[bytes, bytes]:
        """Return the header fields of a request."""
        sent = {name.lower().encode(): str(text).encode() for name, text in request.headers.items()}
        return {b"host": b"host", **sent}

    def assertRefused(self, status: int, code: str, keys: Credentials) -> None:
        """Check the refusal of a key in all places."""
        for enter in (self.byHeader, self.byQuery, self.byForm, self.byCall):
            with self.assertRaises((S3Error, DomainError)) as caught:
                enter(keys)
            error = asS3Error(caught.exception)
            self.assertEqual((error.status, error.code), (status, code), enter)

    def test_opens(self) -> None:
        """A temporary key opens with its token in all places."""
        for enter in (self.byHeader, self.byQuery, self.byForm, self.byCall):
            self.assertEqual(enter(self.keys).identity.accessKey, self.keys.access_key)

    def test_withoutToken(self) -> None:
        """A temporary key without its token is not known."""
        self.assertRefused(403, "InvalidAccessKeyId", self.withToken(None))

    def test_wrongToken(self) -> None:
        """A wrong token is refused: changed, of another session, or with a key of no session."""
        token = str(self.keys.token)
        for wrong in ("t", token[:-1], token + "A", self.others.token):
            self.assertRefused(400, "InvalidToken", self.withToken(wrong))
        self.assertRefused(400, "InvalidToken", Credentials("ROOT", "rootsecret", token))

    def test_wrongSecret(self) -> None:
        """The token is worth nothing without the secret key."""
        for secret in ("x", self.others.secret_key, "rootsecret"):
            self.assertRefused(
                403, "SignatureDoesNotMatch", self.withToken(self.keys.token, secret)
            )

    def test_unsignedToken(self) -> None:
        """A token that is added after the signature is refused."""
        request = AWSRequest("GET", "http://host" + PATH.decode())
        S3SigV4Auth(self.withToken(None), "s3", REGION).add_auth(request)
        headers = self.headersOf(request)
        headers[b"x-amz-security-token"] = str(self.keys.token).encode()
        with self.assertRaises(S3Error) as caught:
            self.gate.authenticate(b"GET", PATH, b"", headers)
        self.assertEqual(caught.exception.code, "AccessDenied")
        request = AWSRequest("GET", "http://host" + PATH.decode())
        S3SigV4QueryAuth(self.withToken(None), "s3", REGION).add_auth(request)
        query = f"{request.prepare().url.partition('?')[2]}&X-Amz-Security-Token={self.keys.token}"
        with self.assertRaises(S3Error) as caught:
            self.gate.authenticate(b"GET", PATH, query.encode(), {b"host": b"host"})
        self.assertEqual(caught.exception.code, "SignatureDoesNotMatch")

    def test_twoTokens(self) -> None:
        """Two tokens are refused, also if both are the right one."""
        request = AWSRequest("GET", "http://host" + PATH.decode())
        request.headers["X-Amz-Security-Token"] = self.keys.token
        S3SigV4QueryAuth(self.keys, "s3", REGION).add_auth(request)
        query = request.prepare().url.partition("?")[2]
        query += f"&x-amz-security-token={self.keys.token}"
        with self.assertRaises(DomainError) as caught:
            self.gate.authenticate(b"GET", PATH, query.encode(), self.headersOf(request))
        self.assertEqual(asS3Error(caught.exception).code, "InvalidToken")

    def test_expired(self) -> None:
        """A session ends, and so do its presigned URLs, however long they would be valid."""
        request = AWSRequest("GET", "http://host" + PATH.decode())
        S3SigV4QueryAuth(self.keys, "s3", REGION, expires=604_800).add_auth(request)
        query = request.prepare().url.partition("?")[2].encode()
        self.gate.authenticate(b"GET", PATH, query, {b"host": b"host"})
        self.ahead = 901
        with self.assertRaises(DomainError) as caught:
            self.gate.authenticate(b"GET", PATH, query, {b"host": b"host"})
        error = asS3Error(caught.exception)
        self.assertEqual((error.status, error.code), (400, "ExpiredToken"))
        self.assertRefused(400, "ExpiredToken", self.keys)
