"""The sealed secrets of a sign-in at an issuer."""

from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.console.issuers import SIGN_IN_SECONDS, Issuer, Issuers, makeIssuers

REDIRECT = "https://s3.example.com/console/"


class SealTests(SynchronousTestCase):
    """L{Issuers.seal} and L{Issuers.open}."""

    def setUp(self) -> None:
        """Have issuers at a time that the test sets."""
        self.now = 1_000_000.0
        self.issuers = self.make(bytes(32))
        issuer: Any = SimpleNamespace(name="corporate")
        self.pending = self.issuers.begin(issuer, REDIRECT)
        self.cookie = self.issuers.seal(self.pending)

    def make(self, key: bytes) -> Issuers:
        """Make the issuers of a process."""
        services: Any = SimpleNamespace(sealKey=key, now=lambda: self.now)
        issuers: dict[str, Issuer] = {}
        return Issuers(issuers, services)

    def test_open(self) -> None:
        """Any process with the key opens it, and the cookie shows none of its secrets."""
        self.assertEqual(self.make(bytes(32)).open(self.cookie), self.pending)
        for secret in (self.pending.state, self.pending.nonce, self.pending.verifier):
            self.assertNotIn(secret, self.cookie)
            self.assertGreaterEqual(len(secret), 32)
        self.assertRegex(self.cookie, r"\A[\w-]+\Z")

    def test_forged(self) -> None:
        """A cookie that was changed anywhere, or sealed with another key, is refused."""
        self.assertIsNone(self.make(b"1" * 32).open(self.cookie))
        for at in range(len(self.cookie) - 1):
            other = "A" if self.cookie[at] != "A" else "B"
            self.assertIsNone(self.issuers.open(self.cookie[:at] + other + self.cookie[at + 1 :]))
        for wrong in ("", "A", "%", "\u00e4", self.cookie[:-8], "A" * 5000):
            self.assertIsNone(self.issuers.open(wrong))

    def test_expired(self) -> None:
        """It is good for ten minutes."""
        self.now += SIGN_IN_SECONDS - 1
        self.assertIsNotNone(self.issuers.open(self.cookie))
        self.now += 1
        self.assertIsNone(self.issuers.open(self.cookie))

    def test_unusable(self) -> None:
        """A secret that has become unreadable turns off the issuers, and not the console."""
        table = {
            "corporate": {
                "issuer": "https://login.example.com/",
                "clientId": "console",
                "account": "staff",
                "clientSecretFile": "/nonexistent/secret",
            }
        }
        options = SimpleNamespace(signIn=table)
        services: Any = SimpleNamespace(options=options, sealKey=bytes(32), reactor=None)
        self.assertEqual(makeIssuers(services).byName, {})
        del table["corporate"]["clientSecretFile"]
        self.assertEqual(makeIssuers(services).byName["corporate"].label, "corporate")
