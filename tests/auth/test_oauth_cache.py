"""The keys of an issuer: when they are fetched, how often, and from where."""

import json
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, ensureDeferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from storagegate.auth.oauth import (
    COOLDOWN_SECONDS,
    MAX_AGE_SECONDS,
    MAX_STALE_SECONDS,
    REFRESH_SECONDS,
    DocumentURL,
    FetchError,
    JWKSCache,
    readURL,
)
from storagegate.core.errors import ServiceError
from storagegate.net.http.client import HTTPStatusError
from tests.support.tokens import ISSUER, ecKey, jwks, rsaKey

DISCOVERY = "https://login.example.com/.well-known/openid-configuration"
OLDER = "https://login.example.com/.well-known/oauth-authorization-server"
KEYS = "https://login.example.com/keys"


class Web:
    """
    Documents, some of them slow.

    @ivar documents: By URL: bytes, or an error.
    @ivar fetched: The URLs that were asked for.
    @ivar held: What those wait for that came while it was no C{None}.
    """

    def __init__(self) -> None:
        metadata = json.dumps({"issuer": ISSUER, "jwks_uri": KEYS}).encode()
        self.documents: dict[str, Any] = {DISCOVERY: metadata, KEYS: jwks(rsaKey())}
        self.fetched: list[str] = []
        self.held: Deferred[None] | None = None

    async def fetch(self, url: DocumentURL) -> bytes:
        """Give a document."""
        self.fetched.append(url.text)
        if self.held is not None:
            await self.held
        document = self.documents.get(url.text, HTTPStatusError(url.text, 404))
        if isinstance(document, Exception):
            raise document
        assert isinstance(document, bytes)
        return document


class IssuerKeysCase(SynchronousTestCase):
    """What the cases of this file share."""

    def setUp(self) -> None:
        """Make an issuer."""
        self.clock = Clock()
        self.clock.advance(1000)
        self.web = Web()
        self.keys = self.make()

    def make(self, issuer: str = ISSUER, keysURL: str | None = None) -> JWKSCache:
        """Make keys of an issuer."""
        where = None if keysURL is None else readURL(keysURL)
        return JWKSCache(readURL(issuer), self.web.fetch, where, self.clock.seconds)

    def ask(self, kid: str | None = "rsa", algorithm: str = "RS256") -> Deferred[Any]:
        """Ask for a key as the provider does."""

        async def ask() -> Any:
            return self.keys.known(kid, algorithm) or await self.keys.find(kid, algorithm)

        return ensureDeferred(ask())

    def found(self, kid: str | None = "rsa") -> bool:
        """Ask for a key; tell whether there is one."""
        return self.successResultOf(self.ask(kid)) is not None

    def away(self, asking: Deferred[Any] | None = None) -> None:
        """Look up a key while none can be fetched."""
        failure = self.failureResultOf(asking or self.ask(), ServiceError)
        self.assertEqual(failure.value.code, "UNAVAILABLE")


class FetchTests(IssuerKeysCase):
    """When they are fetched."""

    def test_first(self) -> None:
        """They are fetched when they are first needed: first where they are, then they."""
        self.assertEqual(self.web.fetched, [])
        self.assertTrue(self.found())
        self.assertEqual(self.web.fetched, [DISCOVERY, KEYS])

    def test_kept(self) -> None:
        """While they are young, nothing is fetched."""
        self.found()
        self.clock.advance(REFRESH_SECONDS - 1)
        for _ in range(100):
            self.assertTrue(self.found())
        self.assertEqual(len(self.web.fetched), 2)

    def test_refresh(self) -> None:
        """When they are older, they are fetched again, and no call waits for it."""
        self.found()
        self.clock.advance(REFRESH_SECONDS)
        self.web.held = Deferred()
        for _ in range(100):
            self.assertTrue(self.found())
        self.assertEqual(len(self.web.fetched), 3)
        self.web.documents[KEYS] = jwks(ecKey())
        self.web.held.callback(None)
        self.assertFalse(self.found())

    def test_withdrawn(self) -> None:
        """A key that was withdrawn is no good when its set is of age: calls wait for the new."""
        self.found()
        self.clock.advance(MAX_AGE_SECONDS)
        self.web.documents[KEYS] = jwks(ecKey())
        self.assertFalse(self.found())

    def test_newKey(self) -> None:
        """A token of a key that is not known has them fetched at once."""
        self.found()
        self.clock.advance(COOLDOWN_SECONDS)
        self.web.documents[KEYS] = jwks(rsaKey(), rsaKey("new"))
        self.assertTrue(self.found("new"))
        self.assertEqual(len(self.web.fetched), 4)

    def test_cooldown(self) -> None:
        """A thousand tokens of unknown keys have them fetched once in a cooldown."""
        self.found()
        for turn in range(3):
            self.clock.advance(COOLDOWN_SECONDS)
            for number in range(1000):
                self.assertFalse(self.found(f"' OR {number}=../../{number}"))
            self.assertEqual(self.web.fetched.count(KEYS), 2 + turn)
            self.assertTrue(self.found())

    def test_shared(self) -> None:
        """All who wait share one fetch."""
        self.web.held = Deferred()
        calls = [self.ask() for _ in range(50)]
        for call in calls:
            self.assertNoResult(call)
        self.web.held.callback(None)
        for call in calls:
            self.assertIsNotNone(self.successResultOf(call))
        self.assertEqual(len(self.web.fetched), 2)

    def test_cancel(self) -> None:
        """A call that is cancelled does not cancel the others: they get their keys."""
        self.web.held = Deferred()
        first, second, third = self.ask(), self.ask(), self.ask()
        first.cancel()
        self.failureResultOf(first, CancelledError)
        # One whose answer makes another one leave, while all are being told.
        second.addCallback(lambda key: third.cancel())
        fourth = self.ask()
        self.web.held.callback(None)
        self.successResultOf(second)
        self.failureResultOf(third, CancelledError)
        self.assertIsNotNone(self.successResultOf(fourth))
        self.assertTrue(self.found())


class OutageTests(IssuerKeysCase):
    """An issuer that cannot be reached."""

    def test_never(self) -> None:
        """Without any keys the result is unknown, and that is no fault of the token."""
        self.web.documents[DISCOVERY] = OSError("away")
        self.away()
        fetched = len(self.web.fetched)
        for _ in range(100):
            self.away()
        self.assertEqual(len(self.web.fetched), fetched)
        self.web.documents[DISCOVERY] = Web().documents[DISCOVERY]
        self.clock.advance(COOLDOWN_SECONDS)
        self.assertTrue(self.found())

    def test_stale(self) -> None:
        """Old keys are used while the issuer is away, for a day."""
        self.found()
        good = dict(self.web.documents)
        for broken in (OSError("away"), b"<html>", jwks(), b'{"keys": [{}]}'):
            self.web.documents[KEYS] = broken
            self.clock.advance(MAX_AGE_SECONDS)
            self.assertTrue(self.found())
        self.clock.advance(MAX_STALE_SECONDS)
        self.away()
        self.web.documents = good
        self.clock.advance(COOLDOWN_SECONDS)
        self.assertTrue(self.found())

    def test_logged(self) -> None:
        """Each try that fails is in the log, with the reason."""
        self.web.documents[DISCOVERY] = FetchError("it is away")
        with capturedLogs() as logged:
            for _ in range(10):
                self.away()
        self.assertEqual(
            [(event["log_level"].name, event["reason"]) for event in logged],
            [("warn", "it is away")],
        )


class DiscoveryTests(IssuerKeysCase):
    """Where the keys are."""

    def test_older(self) -> None:
        """An issuer that knows no OpenID is asked as RFC 8414 has it."""
        self.web.documents[OLDER] = self.web.documents.pop(DISCOVERY)
        self.assertTrue(self.found())
        self.assertEqual(self.web.fetched, [DISCOVERY, OLDER, KEYS])

    def test_otherError(self) -> None:
        """Only for a document that is not there another one is asked for."""
        self.web.documents[OLDER] = self.web.documents[DISCOVERY]
        self.web.documents[DISCOVERY] = HTTPStatusError(DISCOVERY, 500)
        self.away()
        self.assertEqual(self.web.fetched, [DISCOVERY])

    def test_path(self) -> None:
        """An issuer may have a path; with or without a slash at its end."""
        root = "https://login.example.com"
        for path in ("/realms/shop", "/realms/shop/", "", "/"):
            self.clock.advance(COOLDOWN_SECONDS)
            self.web.fetched.clear()
            self.web.documents.clear()
            self.keys = self.make(root + path)
            self.away()
            short = path.rstrip("/")
            self.assertEqual(
                self.web.fetched,
                [
                    f"{root}{short}/.well-known/openid-configuration",
                    f"{root}/.well-known/oauth-authorization-server{short}",
                ],
            )

    def test_otherIssuer(self) -> None:
        """A document that is about another issuer, to the letter, is not believed."""
        for issuer in (ISSUER[:-1], "https://evil.example/", None, [ISSUER]):
            self.web.documents[DISCOVERY] = json.dumps(
                {"issuer": issuer, "jwks_uri": KEYS}
            ).encode()
            self.keys = self.make()
            self.away()
            self.assertNotIn(KEYS, self.web.fetched)

    def test_badPlace(self) -> None:
        """Keys are fetched over TLS, by HTTP, from a place that is one."""
        for place in (
            "http://login.example.com/keys",
            "http://127.0.0.1/keys",
            "http://localhost/keys",
            "file:///etc/passwd",
            "ftp://login.example.com/keys",
            "//login.example.com/keys",
            "/keys",
            "https://user:pw@login.example.com/keys",
            "",
            None,
            5,
        ):
            document = json.dumps({"issuer": ISSUER, "jwks_uri": place}).encode()
            self.web.documents[DISCOVERY] = document
            self.keys = self.make()
            self.away()
        self.assertEqual(set(self.web.fetched), {DISCOVERY})

    def test_noDocument(self) -> None:
        """A document that is none is an outage."""
        for document in (b"", b"[]", b"[" * 100_000, b"\xff", b'"x"'):
            self.web.documents[DISCOVERY] = document
            self.keys = self.make()
            self.away()

    def test_configured(self) -> None:
        """Where the URL is configured, no metadata is fetched."""
        self.keys = self.make(keysURL=KEYS)
        self.assertTrue(self.found())
        self.assertEqual(self.web.fetched, [KEYS])
