"""The verification of the tokens of web identities."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.auth.oauth import DocumentURL, MetadataFetcher
from storagegate.net.http.clientconnection import HTTPClientError
from storagegate.objects.errors import InvalidIdentityToken, IssuerUnreachable
from storagegate.objects.identities.entities import AccountState, OIDCProvider
from storagegate.objects.identities.webidentity import comparableClaims, verifyToken
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

    def verify(self, issuer: str) -> Any:
        """Verify a token that names an issuer."""
        token = forged({"alg": "RS256", "kid": "k"}, claims(iss=issuer, aud="app"))
        return Deferred.fromCoroutine(verifyToken(self.state, token))

    def test_fetches(self) -> None:
        """However often its URL is spelled otherwise, the keys of an issuer are fetched rarely."""
        for slashes in range(20):
            made = self.verify("https://sso.example.com" + "/" * slashes)
            self.failureResultOf(made, IssuerUnreachable if slashes < 2 else InvalidIdentityToken)
        self.assertLessEqual(len(self.fetched), 2)

    def test_claims(self) -> None:
        """Claims that are no Unicode text are refused as the token is."""
        for found in ({"name": "\ud800"}, {"\ud800": "x"}, {"groups": ["\ud800"]}):
            with self.assertRaises(InvalidIdentityToken):
                comparableClaims(found)
