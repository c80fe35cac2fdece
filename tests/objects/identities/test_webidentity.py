"""The verification of the tokens of web identities."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.auth.oauth import DocumentURL, MetadataFetcher
from storagegate.net.http.clientconnection import HTTPClientError
from storagegate.objects.errors import InvalidIdentityToken, IssuerUnreachable
from storagegate.objects.identities.entities import AccountState, OIDCProvider
from storagegate.objects.identities.providers import PROVIDERS_LIMIT
from storagegate.objects.identities.webidentity import WebIdentityVerifier, comparableClaims
from tests.support.tokens import claims, forged


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
