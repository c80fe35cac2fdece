"""
The keys of an issuer of tokens, as OpenID Connect Discovery and RFC 8414 have it::

    issuer -> /.well-known/openid-configuration -> jwks_uri -> a set of keys

They are fetched when they are first needed, anew after a while, and when a token names a key that
is not among them; never more often than the cooldown allows, whatever anybody sends.
"""

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from storagegate.core.errors import codedError
from storagegate.core.jsonwebkeys import KeySet, VerificationKey, readKeySet
from storagegate.gateway.documents import DocumentURL, FetchError, NotFetched, readURL

REFRESH_SECONDS = 300.0
"""From this age on keys are fetched anew while the old ones are still used."""

MAX_AGE_SECONDS = 600.0
"""From this age on calls wait for new ones: a withdrawn key is good no longer than this."""

MAX_STALE_SECONDS = 24 * 3600.0
"""As long as this keys are used if the issuer cannot be reached: an outage of a night."""

COOLDOWN_SECONDS = 15.0
"""Between two fetches: four in a minute are no burden, and a new key is known after this."""

_log = Logger()

Fetch = Callable[[DocumentURL], Awaitable[bytes]]


class IssuerKeys:
    """
    Knows the keys of an issuer.

    All who wait for keys share one fetch, and nobody who leaves ends it.
    """

    def __init__(
        self,
        issuer: DocumentURL,
        fetch: Fetch,
        keysURL: DocumentURL | None = None,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        @param fetch: Gives a document.
        @param keysURL: Where the keys are; C{None} asks the issuer.
        @param seconds: Gives seconds for measuring.
        """
        self._issuer = issuer
        self._fetch = fetch
        self._keysURL = keysURL
        self._seconds = seconds
        self._keys = KeySet(())
        self._fetchedAt = float("-inf")
        self._triedAt = float("-inf")
        self._fetching = False
        self._waiting: list[Deferred[None]] = []

    def known(self, kid: str | None, algorithm: str) -> VerificationKey | None:
        """Give a key if it is here and young enough to be used without asking."""
        age = self._seconds() - self._fetchedAt
        if age >= MAX_AGE_SECONDS:
            return None
        if age >= REFRESH_SECONDS:
            self._begin()
        return self._keys.find(kid, algorithm)

    async def find(self, kid: str | None, algorithm: str) -> VerificationKey | None:
        """
        Give a key, after asking the issuer if it has not been asked just now.

        @return: C{None} if it has no such key.
        @raise ServiceError: C{UNAVAILABLE} if nobody knows.
        """
        self._begin()
        if self._fetching:
            # Each has a Deferred of its own: cancelling it leaves the fetch alone.
            waiter: Deferred[None] = Deferred()
            self._waiting.append(waiter)
            await waiter
        if self._seconds() - self._fetchedAt >= MAX_STALE_SECONDS:
            raise codedError("UNAVAILABLE", "The issuer of tokens cannot be reached")
        return self._keys.find(kid, algorithm)

    def _begin(self) -> None:
        """Begin to fetch, unless that has been tried just now."""
        now = self._seconds()
        if self._fetching or now - self._triedAt < COOLDOWN_SECONDS:
            return
        self._triedAt = now
        self._fetching = True
        Deferred.fromCoroutine(self._refresh()).addErrback(self._failed).addBoth(self._ended)

    async def _refresh(self) -> None:
        url = self._keysURL or await self._discover()
        keys = readKeySet(await self._fetch(url))
        if not keys.keys:
            raise FetchError(f"{url.text} has no key that signatures can be checked with")
        self._keys = keys
        self._fetchedAt = self._seconds()

    async def _discover(self) -> DocumentURL:
        """Ask the issuer where its keys are."""
        first, second = _places(self._issuer)
        try:
            document = await self._fetch(first)
        except NotFetched as error:
            if error.status != 404:
                raise
            document = await self._fetch(second)
        try:
            metadata = json.loads(document)
        except RecursionError:
            raise FetchError("the issuer's document is nested too deeply") from None
        # RFC 8414 section 3.3: who says to be somebody else is not to be believed.
        if not isinstance(metadata, dict) or metadata.get("issuer") != self._issuer.text:
            raise FetchError(f"the document of {self._issuer.text} is about another issuer")
        url = readURL(metadata.get("jwks_uri"))
        if url.scheme == "http" and self._issuer.scheme != "http":
            raise FetchError("the issuer's keys are to be fetched without TLS")
        return url

    def _failed(self, failure: Any) -> None:
        _log.warn(
            "the keys of {issuer} could not be fetched: {kind}: {reason}",
            issuer=self._issuer.text,
            kind=failure.type.__name__,
            reason=failure.getErrorMessage()[:300],
        )

    def _ended(self, result: Any) -> None:
        self._fetching = False
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(None)


def _places(issuer: DocumentURL) -> tuple[DocumentURL, DocumentURL]:
    """Give where an issuer describes itself: after its path, or, RFC 8414 section 3.1, before."""
    path = urlsplit(issuer.text).path.rstrip("/")
    root = issuer.text[: len(issuer.text.rstrip("/")) - len(path)]
    return (
        readURL(f"{root}{path}/.well-known/openid-configuration"),
        readURL(f"{root}/.well-known/oauth-authorization-server{path}"),
    )
