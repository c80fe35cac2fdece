"""C{AssumeRoleWithWebIdentity}, with an issuer on this machine."""

import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import boto3
import jwt
from botocore import UNSIGNED
from botocore.config import Config
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tests.support.clients import REGION, ROOT
from tests.wire.s3.test_iam import policy
from tests.wire.s3.test_sts import STSCase, trust

KEY, OTHER = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))


class _Issuer(BaseHTTPRequestHandler):
    """The two documents of an issuer."""

    def sendDocument(self) -> None:
        """Send a document."""
        url = f"http://127.0.0.1:{self.server.server_address[1]}"
        document = {"issuer": url, "jwks_uri": f"{url}/keys"}
        if self.path == "/keys":
            public = RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
            document = {"keys": [{**public, "kid": "k", "alg": "RS256"}]}
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = sendDocument

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


class WebIdentityTests(STSCase):
    """Tokens of an issuer."""

    def setUp(self) -> None:
        """Start the issuer; make its provider and a role in the root account."""
        super().setUp()
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Issuer)
        Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.issuer = f"http://127.0.0.1:{server.server_address[1]}"
        self.name = self.issuer.partition("://")[2]
        self.root = self.client(ROOT, "iam")
        self.provider = self.root.create_open_id_connect_provider(
            Url=self.issuer, ClientIDList=["app"], ThumbprintList=["0" * 40]
        )["OpenIDConnectProviderArn"]
        self.unsigned = boto3.client(
            "sts",
            endpoint_url=self.endpoint,
            region_name=REGION,
            config=Config(signature_version=UNSIGNED, retries={"total_max_attempts": 1}),
        )

    def token(self, key: Any = KEY, algorithm: str = "RS256", **claims: Any) -> str:
        """Sign a token; a claim of L{None} is absent."""
        now = int(time.time())
        found = {"iss": self.issuer, "aud": "app", "sub": "ann", "exp": now + 600, **claims}
        found = {name: value for name, value in found.items() if value is not None}
        return jwt.encode(found, key, algorithm, headers={"kid": "k"})

    def exchange(self, token: str, role: str, **more: Any) -> dict[str, Any]:
        """Exchange a token."""
        made: dict[str, Any] = self.unsigned.assume_role_with_web_identity(
            RoleArn=role, RoleSessionName="web", WebIdentityToken=token, **more
        )
        return made

    def makeWebRole(self, **conditions: Any) -> str:
        """Make a role in the root account that the issuer may give; return its ARN."""
        name = self.makeName("web")
        document = trust(
            {"Federated": self.provider}, "sts:AssumeRoleWithWebIdentity", **conditions
        )
        made = self.root.create_role(RoleName=name, AssumeRolePolicyDocument=document)
        self.root.put_role_policy(
            RoleName=name,
            PolicyName="p",
            PolicyDocument=policy(
                "s3:*", resource="arn:aws:s3:::${jwt:sub}-*", Version="2012-10-17"
            ).replace(', "Version": "2012-10-17"}]', "}]"),
        )
        arn: str = made["Role"]["Arn"]
        return arn

    def test_exchanged(self) -> None:
        """A token becomes a session, whose policies have its claims."""
        role = self.makeWebRole(
            Condition={
                "StringEquals": {f"{self.name}:aud": "app", "jwt:groups": "staff"},
                "StringLike": {f"{self.name}:sub": "a*"},
            }
        )
        made = self.exchange(self.token(groups=["other", "staff"]), role)
        self.assertEqual(made["SubjectFromWebIdentityToken"], "ann")
        self.assertEqual((made["Audience"], made["Provider"]), ("app", self.provider))
        s3 = self.using(made)
        s3.create_bucket(Bucket=self.makeName("ann"))
        self.assertRefused(403, "AccessDenied", s3.create_bucket, Bucket=self.makeName("bob"))
        for claims in ({"groups": ["other"]}, {}, {"groups": ["staff"], "sub": "bob"}):
            token = self.token(**claims)
            self.assertRefused(403, "AccessDenied", lambda token=token: self.exchange(token, role))

    def test_refused(self) -> None:
        """Each wrong token is refused, and the log says why."""
        role = self.makeWebRole()
        secret = "s" * 40
        past = int(time.time()) - 600
        none = jwt.encode({"iss": self.issuer, "aud": "app", "sub": "a"}, None, "none")
        for code, token in (
            ("InvalidIdentityToken", self.token(aud="other")),
            ("InvalidIdentityToken", self.token(aud=None)),
            ("InvalidIdentityToken", self.token(exp=None)),
            ("InvalidIdentityToken", self.token(sub=None)),
            ("InvalidIdentityToken", self.token(iss=f"{self.issuer}/x")),
            ("InvalidIdentityToken", self.token(iss=None)),
            ("InvalidIdentityToken", self.token(OTHER)),
            ("InvalidIdentityToken", self.token(secret, "HS256")),
            ("InvalidIdentityToken", none),
            ("InvalidIdentityToken", "no-token"),
            ("InvalidIdentityToken", self.token()[:-4] + "AAAA"),
            ("ExpiredTokenException", self.token(exp=past)),
        ):
            self.assertRefused(400, code, lambda token=token: self.exchange(token, role))
        self.assertIn("is refused: InvalidAudienceError", self.daemon.log)
        other = self.makeWebRole(Effect="Deny")
        self.assertRefused(403, "AccessDenied", lambda: self.exchange(self.token(), other))

    def test_tenants(self) -> None:
        """The keys of a tenant's provider are not fetched from this machine."""
        arn = self.iam.create_open_id_connect_provider(
            Url=self.issuer, ClientIDList=["app"], ThumbprintList=["0" * 40]
        )["OpenIDConnectProviderArn"]
        role = self.makeRole(trust({"Federated": arn}, "sts:AssumeRoleWithWebIdentity"))
        self.assertRefused(400, "IDPCommunicationError", lambda: self.exchange(self.token(), role))
