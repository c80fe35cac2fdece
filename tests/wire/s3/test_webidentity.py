"""C{AssumeRoleWithWebIdentity}, with an issuer on this machine."""

import atexit
import json
import time
from collections.abc import Callable
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import boto3
import jwt
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tests.support.clients import REGION, ROOT
from tests.support.daemon import Daemon
from tests.support.selection import long
from tests.wire.s3.fixture import eventually, makeDaemon, ownDirectory, runCommand
from tests.wire.s3.test_iam import policy
from tests.wire.s3.test_sts import STSCase, trust

WITH_WEB_IDENTITY = "sts:AssumeRoleWithWebIdentity"

TAG_SESSION = "sts:TagSession"

TAGS = "https://aws.amazon.com/tags"

TEAM_RED = {"StringEquals": {"aws:PrincipalTag/team": "red"}}

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


def refusal(call: Callable[[], Any]) -> str | None:
    """Return the error code of a call; L{None} if it succeeds."""
    try:
        call()
    except ClientError as error:
        code: str = error.response["Error"]["Code"]
        return code
    return None


@cache
def _startIssuer() -> str:
    """Start an issuer, which runs until the run ends; return its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Issuer)
    Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


class WebIdentityCase(STSCase):
    """
    Tests with the tokens of an issuer.

    @ivar issuer: The URL of the issuer.
    @ivar name: The same without the scheme.
    """

    def setUp(self) -> None:
        """Start the issuer."""
        self.issuer = _startIssuer()
        self.name = self.issuer.partition("://")[2]
        super().setUp()
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

    def assertLogged(self, text: str) -> None:
        """Check that the daemon logs a text, which its log may get after the answer."""
        self.assertTrue(eventually(lambda: text in self.daemon.log), text)

    def exchange(self, token: str, role: str, **more: Any) -> dict[str, Any]:
        """Exchange a token."""
        made: dict[str, Any] = self.unsigned.assume_role_with_web_identity(
            RoleArn=role, RoleSessionName="web", WebIdentityToken=token, **more
        )
        return made


class WebIdentityTests(WebIdentityCase):
    """Tokens of a provider that IAM made."""

    def setUp(self) -> None:
        """Make the provider and a role in the root account."""
        super().setUp()
        self.root = self.client(ROOT, "iam")
        made = self.root.create_open_id_connect_provider(
            Url=self.issuer, ClientIDList=["app"], ThumbprintList=["0" * 40]
        )
        self.provider = made["OpenIDConnectProviderArn"]
        self.addCleanup(
            self.root.delete_open_id_connect_provider, OpenIDConnectProviderArn=self.provider
        )

    def makeWebRole(self, **conditions: Any) -> str:
        """Make a role in the root account that the issuer may give; return its ARN."""
        name = self.makeName("web")
        action = conditions.pop("action", WITH_WEB_IDENTITY)
        document = trust({"Federated": self.provider}, action, **conditions)
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
        self.assertLogged("is refused: InvalidAudienceError")
        other = self.makeWebRole(Effect="Deny")
        self.assertRefused(403, "AccessDenied", lambda: self.exchange(self.token(), other))

    def test_roles(self) -> None:
        """A role that is missing or disabled is refused alike, and the log says why."""
        role = self.makeWebRole()
        name = role.rpartition("/")[2]
        missing = role.replace(name, "missing")
        self.assertRefused(403, "AccessDenied", lambda: self.exchange(self.token(), missing))
        self.assertLogged("'missing' is refused for a token")
        session = self.using(self.exchange(self.token(), role), "sts")
        session.get_caller_identity()
        arguments = [*self.daemon.storeArguments, "--account", "root", "--role"]
        runCommand("users", "disable", name, *arguments)
        self.assertTrue(eventually(lambda: refusal(session.get_caller_identity) is not None))
        self.assertRefused(403, "AccessDenied", lambda: self.exchange(self.token(), role))
        self.assertLogged("it is disabled")
        runCommand("users", "enable", name, *arguments)
        self.assertTrue(
            eventually(lambda: refusal(lambda: self.exchange(self.token(), role)) is None)
        )
        self.assertRefused(403, "InvalidClientTokenId", session.get_caller_identity)

    def test_tenants(self) -> None:
        """The keys of a tenant's provider are not fetched from this machine."""
        arn = self.iam.create_open_id_connect_provider(
            Url=self.issuer, ClientIDList=["app"], ThumbprintList=["0" * 40]
        )["OpenIDConnectProviderArn"]
        role = self.makeRole(trust({"Federated": arn}, WITH_WEB_IDENTITY))
        self.assertRefused(400, "IDPCommunicationError", lambda: self.exchange(self.token(), role))

    def makeTaggedRole(self, **conditions: Any) -> str:
        """Make a role that reads the bucket with the tag of the principal, and gets tags."""
        arn = self.makeWebRole(action=[WITH_WEB_IDENTITY, TAG_SESSION], **conditions)
        name = arn.rpartition("/")[2]
        reading = policy("s3:GetObject", Condition=TEAM_RED)
        self.root.put_role_policy(RoleName=name, PolicyName="p", PolicyDocument=reading)
        return arn

    def makeRootBucket(self) -> Callable[[Any], bool]:
        """Make a bucket of the root account; return the test of whether a client may read it."""
        bucket = self.makeBucket()
        self.s3.put_object(Bucket=bucket, Key="k", Body=b"held")

        def mayRead(s3: Any) -> bool:
            try:
                s3.get_object(Bucket=bucket, Key="k")
            except ClientError as error:
                self.assertEqual(error.response["Error"]["Code"], "AccessDenied")
                return False
            return True

        return mayRead

    def test_tags(self) -> None:
        """The tags of a token, in each form, are tags of the principal and win over the role's."""
        mayRead = self.makeRootBucket()
        role = self.makeTaggedRole()
        self.root.tag_role(
            RoleName=role.rpartition("/")[2], Tags=[{"Key": "Team", "Value": "blue"}]
        )
        self.assertFalse(mayRead(self.using(self.exchange(self.token(), role))))
        for claims in (
            {TAGS: {"principal_tags": {"team": ["red"], "cost": ["7"]}}},
            {TAGS: {"principal_tags": {"team": "red"}, "transitive_tag_keys": ["team"]}},
            {TAGS: [{"principal_tags": {"TEAM": ["red"]}}]},
            {f"{TAGS}/principal_tags/team": "red", f"{TAGS}/transitive_tag_keys": ["Team"]},
        ):
            made = self.exchange(self.token(**claims), role)
            self.assertTrue(mayRead(self.using(made)), claims)
            self.assertGreaterEqual(made["PackedPolicySize"], 1)
        other = self.token(**{TAGS: {"principal_tags": {"team": ["green"]}}})
        self.assertFalse(mayRead(self.using(self.exchange(other, role))))

    def test_tagTrust(self) -> None:
        """The trust policy must allow C{sts:TagSession}, and can name tags and transitive keys."""
        red = self.token(
            **{TAGS: {"principal_tags": {"team": ["red"]}, "transitive_tag_keys": ["team"]}}
        )
        plain = self.makeWebRole()
        self.exchange(self.token(), plain)
        self.assertRefused(403, "AccessDenied", lambda: self.exchange(red, plain))
        self.assertLogged("does not allow sts:TagSession")
        for conditions, isAllowed in (
            ({"StringEquals": {"aws:RequestTag/team": "red"}}, True),
            ({"StringEquals": {"aws:RequestTag/team": "blue"}}, False),
            ({"ForAllValues:StringEquals": {"sts:TransitiveTagKeys": ["team"]}}, True),
            ({"ForAllValues:StringEquals": {"sts:TransitiveTagKeys": ["cost"]}}, False),
            ({"ForAllValues:StringEquals": {"aws:TagKeys": ["team", "cost"]}}, True),
            ({"ForAllValues:StringEquals": {"aws:TagKeys": ["cost"]}}, False),
        ):
            role = self.makeTaggedRole(Condition=conditions)
            if isAllowed:
                self.exchange(red, role)
            else:
                self.assertRefused(403, "AccessDenied", lambda role=role: self.exchange(red, role))

    @long("exchanges many tokens")
    def test_tagLimits(self) -> None:
        """Tags of a wrong form and more than Amazon allows are refused."""
        role = self.makeTaggedRole()
        for code, tags in (
            ("InvalidIdentityToken", "red"),
            ("InvalidIdentityToken", {"principal_tags": ["red"]}),
            ("InvalidIdentityToken", {"principal_tags": {"team": ["red", "blue"]}}),
            ("InvalidIdentityToken", {"principal_tags": {"team": 7}}),
            ("InvalidIdentityToken", {"principal_tags": {}, "transitive_tag_keys": [7]}),
            ("ValidationError", {"principal_tags": {}, "transitive_tag_keys": ["team"]}),
            ("ValidationError", {"principal_tags": {"k" * 129: ["v"]}}),
            ("ValidationError", {"principal_tags": {"k": ["v" * 257]}}),
            ("ValidationError", {"principal_tags": {"aws:k": ["v"]}}),
            ("ValidationError", {"principal_tags": {"k": ["v"], "K": ["v"]}}),
            ("ValidationError", {"principal_tags": {f"k{n}": ["v"] for n in range(51)}}),
            ("PackedPolicyTooLarge", {"principal_tags": {f"k{n}": ["v" * 200] for n in range(24)}}),
        ):
            token = self.token(**{TAGS: tags})
            self.assertRefused(400, code, lambda token=token: self.exchange(token, role))
        self.exchange(
            self.token(**{TAGS: {"principal_tags": {f"k{n}": "v" for n in range(50)}}}), role
        )

    def test_transitive(self) -> None:
        """A session of a further role inherits the transitive tags, and cannot replace them."""
        mayRead = self.makeRootBucket()
        both = {"team": ["red"], "cost": ["7"]}
        first = self.makeTaggedRole()
        self.root.put_role_policy(
            RoleName=first.rpartition("/")[2],
            PolicyName="chain",
            PolicyDocument=policy("sts:AssumeRole", TAG_SESSION),
        )
        second = self.makeName("next")
        document = trust({"AWS": "arn:aws:iam::root:root"}, ["sts:AssumeRole", TAG_SESSION])
        arn = self.root.create_role(RoleName=second, AssumeRolePolicyDocument=document)["Role"][
            "Arn"
        ]
        reading = policy("s3:GetObject", Condition=TEAM_RED)
        self.root.put_role_policy(RoleName=second, PolicyName="p", PolicyDocument=reading)
        for transitive, isInherited in (([], False), (["team"], True)):
            tags = {"principal_tags": both, "transitive_tag_keys": transitive}
            made = self.exchange(self.token(**{TAGS: tags}), first)
            sts = self.using(made, "sts")
            chained = self.assume(arn, sts)
            self.assertEqual(mayRead(self.using(chained)), isInherited)
            again = self.assume(arn, sts, Tags=[{"Key": "cost", "Value": "8"}])
            self.assertEqual(mayRead(self.using(again)), isInherited)
        self.assertNotAssumed(
            400, "ValidationError", arn, sts, Tags=[{"Key": "Team", "Value": "blue"}]
        )
        closed = trust({"AWS": "arn:aws:iam::root:root"})
        self.root.update_assume_role_policy(RoleName=second, PolicyDocument=closed)
        self.assertNotAssumed(403, "AccessDenied", arn, sts)


CONFIGURATION = """
[signIn.corporate]
issuer = "{url}"
clientId = "console"
clientSecret = "secret"
account = "{account}"

[signIn.partners]
issuer = "{url}"
clientId = "partners"
account = "{account}"

[signIn.others]
issuer = "{url}"
clientId = "others"
account = "others"
"""

ACCOUNT = "signin"


@cache
def _signInDaemon() -> Daemon:
    """Start a daemon whose console has the issuer; it runs until the run ends."""
    directory = ownDirectory("signin")
    file = directory / "storagegate.toml"
    file.write_text(CONFIGURATION.format(url=_startIssuer(), account=ACCOUNT))
    daemon = makeDaemon(directory / "data", "--config", str(file))
    atexit.register(daemon.kill)
    return daemon.start()


class SignInIssuerTests(WebIdentityCase):
    """Tokens of the issuers of the console."""

    def startDaemon(self) -> Daemon:
        """Return the daemon whose console has the issuer."""
        return _signInDaemon()

    def setUp(self) -> None:
        """Make a role of the issuer's account."""
        super().setUp()
        self.owner = self.issueKey(ACCOUNT, "--role", "admin")
        self.iam = self.client(self.owner)
        self.provider = f"arn:aws:iam::{ACCOUNT}:oidc-provider/{self.name}"

    def makeSignInRole(self, principal: str, **more: Any) -> str:
        """Make a role for the issuer; return its ARN."""
        document = trust({"Federated": principal}, WITH_WEB_IDENTITY, **more)
        made = self.iam.create_role(
            RoleName=self.makeName("web"), AssumeRolePolicyDocument=document
        )
        arn: str = made["Role"]["Arn"]
        return arn

    def test_exchanged(self) -> None:
        """Tokens for the console's clients become sessions of roles of the issuer's account."""
        for principal in (self.provider, self.name, self.issuer):
            role = self.makeSignInRole(
                principal, Condition={"StringEquals": {f"{self.name}:sub": "ann"}}
            )
            for client in ("console", "partners"):
                made = self.exchange(self.token(aud=client), role)
                self.assertEqual((made["Provider"], made["Audience"]), (self.provider, client))
            named = self.using(made, "sts").get_caller_identity()
            self.assertEqual(named["Account"], ACCOUNT)
            for aud in ("others", "app"):
                token = self.token(aud=aud)
                self.assertRefused(
                    400,
                    "InvalidIdentityToken",
                    lambda token=token, role=role: self.exchange(token, role),
                )
        other = self.makeSignInRole("arn:aws:iam::signin:oidc-provider/other.example")
        token = self.token(aud="console")
        self.assertRefused(403, "AccessDenied", lambda: self.exchange(token, other))

    def test_accounts(self) -> None:
        """Roles of other accounts do not trust the issuer, though they name it."""
        self.iam = self.client(self.admin)
        role = self.makeSignInRole(f"arn:aws:iam::{self.account}:oidc-provider/{self.name}")
        token = self.token(aud="console")
        self.assertRefused(400, "InvalidIdentityToken", lambda: self.exchange(token, role))

    def test_made(self) -> None:
        """A provider of IAM with the URL takes the place of the configured one."""
        self.assertEqual(self.iam.list_open_id_connect_providers()["OpenIDConnectProviderList"], [])
        arn = self.iam.create_open_id_connect_provider(
            Url=self.issuer, ClientIDList=["app"], ThumbprintList=["0" * 40]
        )["OpenIDConnectProviderArn"]
        self.assertEqual(arn, self.provider)
        role = self.makeSignInRole(arn)
        try:
            self.exchange(self.token(), role)
            token = self.token(aud="console")
            self.assertRefused(400, "InvalidIdentityToken", lambda: self.exchange(token, role))
        finally:
            self.iam.delete_open_id_connect_provider(OpenIDConnectProviderArn=arn)
        self.exchange(token, role)
