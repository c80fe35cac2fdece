"""The verification of the tokens of web identities."""

import json
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.auth.oauth import DocumentURL, MetadataFetcher
from storagegate.net.http.clientconnection import HTTPClientError
from storagegate.objects.access.context import PlainCaller
from storagegate.objects.accounts import AccessKeyStore
from storagegate.objects.errors import AccessDenied, InvalidIdentityToken, IssuerUnreachable
from storagegate.objects.identities.entities import AccountState, OIDCProvider, Role
from storagegate.objects.identities.providers import PROVIDERS_LIMIT
from storagegate.objects.identities.sts import AssumeRoleWithWebIdentity, perform
from storagegate.objects.identities.webidentity import WebIdentityVerifier, comparableClaims
from storagegate.objects.principals import ANONYMOUS
from storagegate.storage.accesskeys import AccessKeySnapshot
from tests.objects.identities.test_rights import StoredIdentities
from tests.support.tokens import claims, forged, jwks, rsaKey, signed

if TYPE_CHECKING:
    from storagegate.objects.service import ObjectService


ROLE_TRUST = json.dumps(
    {"Statement": [{"Effect": "Deny", "Principal": "*", "Action": "sts:*"}]},
)
"""A trust policy that trusts no one."""


class _Service:
    """What the operation needs of the domain, for one account that changes."""

    def __init__(self, state: AccountState) -> None:
        self.state = state
        self.webIdentities = WebIdentityVerifier(lambda account: ())
        snapshot = AccessKeySnapshot(StoredIdentities(), Clock())
        snapshot.start()
        self.accounts = AccessKeyStore(snapshot, "ROOT", "secret")

    @property
    def identities(self) -> "_Service":
        """The store of identities."""
        return self

    async def read(self, account: str) -> AccountState:
        """Read the account as it is now."""
        return self.state


class IssuerTests(SynchronousTestCase):
    """Tokens that anyone can send."""

    def setUp(self) -> None:
        """Have a provider in an account, whose issuer cannot be reached."""
        provider = OIDCProvider(name="sso.example.com", scheme="https", clientIds=("app",))
        self.state = AccountState(account="ada").withEntity(provider)
        self.fetched: list[str] = []

        async def fetch(fetcher: MetadataFetcher, url: DocumentURL) -> bytes:
            self.fetched.append(url.text)
            raise HTTPClientError("refused the connection")

        self.patch(MetadataFetcher, "fetch", fetch)
        self.verifier = WebIdentityVerifier(lambda account: ())

    def verify(self, issuer: str, state: AccountState | None = None) -> Any:
        """Verify a token that names an issuer."""
        token = forged({"alg": "RS256", "kid": "k"}, claims(iss=issuer, aud="app"))
        return Deferred.fromCoroutine(self.verifier.verify(state or self.state, token))

    def test_fetches(self) -> None:
        """However often its URL is spelled otherwise, the keys of an issuer are fetched rarely."""
        for slashes in range(20):
            made = self.verify("https://sso.example.com" + "/" * slashes)
            self.failureResultOf(made, IssuerUnreachable if slashes < 2 else InvalidIdentityToken)
        self.assertLessEqual(len(self.fetched), 2)

    def test_changed(self) -> None:
        """
        An issuer that answers late wins no time: the account counts as it is when the session is
        made, so a disabled role and a removed provider are refused.
        """
        held: list[Deferred[None]] = []

        async def fetch(fetcher: MetadataFetcher, url: DocumentURL) -> bytes:
            held.append(Deferred())
            await held[-1]
            document = {"issuer": issuer, "jwks_uri": f"{issuer}/keys"}
            return jwks(rsaKey()) if url.text.endswith("keys") else json.dumps(document).encode()

        self.patch(MetadataFetcher, "fetch", fetch)
        issuer = "https://sso.example.com"
        trust = {
            "Effect": "Allow",
            "Principal": {"Federated": issuer},
            "Action": "sts:AssumeRoleWithWebIdentity",
        }
        role = Role(name="ops", id="AROA", trust=json.dumps({"Statement": [trust]}))
        before = self.state.withEntity(role)
        provider = self.state.provider("sso.example.com")
        assert provider is not None
        for after, refusal in (
            (before, None),
            (self.state, AccessDenied),
            (before.withEntity(replace(role, disabled=True)), AccessDenied),
            (before.withEntity(replace(role, trust=ROLE_TRUST)), AccessDenied),
            (before.withoutEntity(provider), InvalidIdentityToken),
            (before.withEntity(replace(provider, clientIds=("web",))), InvalidIdentityToken),
        ):
            service = _Service(before)
            made = Deferred.fromCoroutine(
                perform(
                    cast("ObjectService", service),
                    PlainCaller(ANONYMOUS, "AssumeRoleWithWebIdentity"),
                    AssumeRoleWithWebIdentity(
                        roleArn="arn:aws:iam::ada:role/ops",
                        roleSessionName="work",
                        webIdentityToken=signed(
                            rsaKey(), "RS256", claims(iss=issuer, aud="app"), kid="rsa"
                        ),
                    ),
                )
            )
            self.assertNoResult(made)
            service.state = after
            while held:
                held.pop().callback(None)
            if refusal is None:
                self.assertEqual(self.successResultOf(made).subjectFromWebIdentityToken, "ann")
            else:
                self.failureResultOf(made, refusal)

    def test_tenants(self) -> None:
        """The issuers of a tenant, however many, do not displace those of another tenant."""
        self.failureResultOf(self.verify("https://sso.example.com"), IssuerUnreachable)
        names = [f"sso{number}.example.com" for number in range(PROVIDERS_LIMIT)]
        many = AccountState(account="eve").withEntities(
            OIDCProvider(name=name, scheme="https", clientIds=("app",)) for name in names
        )
        counts = []
        for _ in range(2):
            for name in names:
                for slash in ("", "/"):
                    made = self.verify(f"https://{name}{slash}", many)
                    self.failureResultOf(made, IssuerUnreachable)
            counts.append(len(self.fetched))
        # None of them is fetched again within the cooldown.
        before = 1 + 2 * PROVIDERS_LIMIT
        self.assertEqual(counts, [before, before])
        self.failureResultOf(self.verify("https://sso.example.com"), IssuerUnreachable)
        self.assertEqual(len(self.fetched), before)

    def test_audience(self) -> None:
        """A change of the audiences applies to the next token, without another fetch of keys."""
        for clients in (("app",), ("app", "more"), ("more",)):
            provider = OIDCProvider(name="sso.example.com", scheme="https", clientIds=clients)
            state = AccountState(account="ada").withEntity(provider)
            self.failureResultOf(self.verify("https://sso.example.com", state), IssuerUnreachable)
        self.assertEqual(len(self.fetched), 1)

    def test_claims(self) -> None:
        """Claims that are no Unicode text are refused as the token is."""
        for found in ({"name": "\ud800"}, {"\ud800": "x"}, {"groups": ["\ud800"]}):
            with self.assertRaises(InvalidIdentityToken):
                comparableClaims(found)
