"""Tokens that were good a moment ago."""

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.auth.jwt import readJWT
from storagegate.auth.tokens import MAX_CHECKED, TokenError, VerifiedTokenCache
from tests.support.tokens import SECRET, claims, forged, makeContext, signed


class CheckedTokenTests(SynchronousTestCase):
    """What is checked again."""

    def setUp(self) -> None:
        """Make one that remembers."""
        self.clock = Clock()
        self.tokens = VerifiedTokenCache(5, self.clock.seconds)
        self.key: Any = object()
        self.checks = 0

    def ask(self, end: int = 100, **more: Any) -> dict[str, Any]:
        """Ask for a token."""
        given = claims(exp=end, **more)

        def check() -> dict[str, Any]:
            self.checks += 1
            if self.clock.seconds() >= end + 5:
                raise TokenError("it has ended")
            return dict(given)

        return self.tokens.claims(forged({"alg": "HS256"}, given), self.key, check)

    def test_again(self) -> None:
        """A good token is checked once, and has the same claims the second time."""
        self.assertEqual(self.ask(), self.ask())
        self.assertEqual(self.checks, 1)

    def test_own(self) -> None:
        """Changes of the claims by one caller are not visible to others."""
        self.ask(roles=["reader"])
        for _ in range(2):
            given = self.ask(roles=["reader"])
            self.assertEqual(given["roles"], ["reader"])
            given["roles"].append("admin")
            given["sub"] = "root"
        self.assertEqual(self.ask(roles=["reader"])["sub"], "ann")
        self.assertEqual(self.checks, 1)

    def test_end(self) -> None:
        """It is checked when it has ended: with the leeway, and not a moment later."""
        self.ask()
        self.clock.advance(104.9)
        self.ask()
        self.assertEqual(self.checks, 1)
        self.clock.advance(0.1)
        self.assertRaises(TokenError, self.ask)

    def test_otherKey(self) -> None:
        """What was good with a key that has gone is checked with the new one."""
        self.ask()
        self.key = object()
        self.ask()
        self.assertEqual(self.checks, 2)

    def test_bad(self) -> None:
        """A bad token is checked each time, and takes no place."""
        for _ in range(3):
            self.assertRaises(TokenError, self.ask, -10)
        self.assertEqual(self.checks, 3)

    def test_bounded(self) -> None:
        """No more than some are remembered; the oldest is forgotten first."""
        for number in range(MAX_CHECKED + 1):
            self.ask(sub=str(number))
        self.checks = 0
        self.ask(sub=str(MAX_CHECKED))
        self.ask(sub="1")
        self.assertEqual(self.checks, 0)
        self.ask(sub="0")
        self.assertEqual(self.checks, 1)

    def test_provider(self) -> None:
        """A provider gives the claims of a token again and again, and never of one like it."""
        provider = readJWT({"secret": SECRET})
        token = signed()
        context = makeContext()
        self.assertEqual(provider.verify(token, context), provider.verify(token, context))
        changed = token[:-4] + ("AAAA" if token[-4:] != "AAAA" else "BBBA")
        self.assertRaises(TokenError, provider.verify, changed, context)
