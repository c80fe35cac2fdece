"""
Sign-in of people at an OpenID Connect issuer: the authorization code flow with PKCE.

The client sends the browser to the issuer, which sends it back with a code::

    authorizationURL    response_type=code, state, nonce, code_challenge (S256)
    redeem              the code and the code_verifier, for an ID token

The ID token is verified as the provider C{oauth} verifies tokens: signature, C{iss}, C{aud} and
C{exp}. OpenID Connect Core 1.0 section 3.1.3.7 adds C{azp} and C{nonce}.
"""

import json
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Protocol
from urllib.parse import quote_plus, urlencode

from attrs import field, frozen
from twisted.internet.defer import DeferredLock

from storagegate.auth.oauth import (
    DocumentURL,
    FetchError,
    JWKSCache,
    OAuthOptions,
    OAuthProvider,
    fetchMetadata,
    readEndpoint,
)
from storagegate.auth.tokens import TokenError
from storagegate.core.errors import ServiceError
from storagegate.net.http.clientconnection import HTTPClientError

METADATA_SECONDS = 600.0
"""The age at which the metadata of an issuer is fetched again."""

_MAX_SUBJECT = 255
"""The longest C{sub} that OpenID Connect Core 1.0 section 2 permits."""

_MAX_ERROR = 300


class SignInError(Exception):
    """A sign-in failed; the text is a sentence for the person."""


class IssuerUnavailable(SignInError):
    """The issuer cannot be reached, or its responses are unusable."""


class IFetcher(Protocol):
    """The requests to an issuer: L{MetadataFetcher<storagegate.auth.oauth.MetadataFetcher>}."""

    async def fetch(self, url: DocumentURL) -> bytes:
        """Fetch a document."""

    async def send(
        self, url: DocumentURL, fields: Mapping[str, str], form: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Send a request to an endpoint; return the status and the body."""


@frozen
class Metadata:
    """
    The metadata of an issuer.

    @ivar userinfo: L{None} without such an endpoint.
    @ivar isSecretInForm: Whether the client secret belongs in the form instead of C{Authorization}.
    @ivar sendsIssuer: Whether each response names the issuer (RFC 9207).
    """

    authorization: DocumentURL
    token: DocumentURL
    userinfo: DocumentURL | None
    isSecretInForm: bool
    sendsIssuer: bool


@frozen
class SignInAttempt:
    """
    The secrets of one sign-in.

    @ivar state: Ties the response of the issuer to the browser.
    @ivar nonce: Ties the ID token to the sign-in.
    @ivar verifier: Ties the code to the sign-in (RFC 7636).
    @ivar redirectURL: The URL to which the issuer sends the browser.
    """

    state: str
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)
    redirectURL: str


class OpenIDClient:
    """A client of an issuer. Methods: reactor thread."""

    def __init__(
        self,
        issuer: DocumentURL,
        clientId: str,
        clientSecret: str,
        scopes: tuple[str, ...],
        fetcher: IFetcher,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        @param clientSecret: Empty for a public client.
        @param seconds: Returns seconds of a monotonic clock.
        """
        self._issuer = issuer
        self._clientId = clientId
        self._clientSecret = clientSecret
        self._scopes = scopes
        self._fetcher = fetcher
        self._seconds = seconds
        self._metadata: Metadata | None = None
        self._fetchedAt = float("-inf")
        # Failed fetches of the metadata, and the text of the last failure.
        self._failures = 0
        self._reason = ""
        self._lock = DeferredLock()
        self._provider = OAuthProvider(
            OAuthOptions(issuer=issuer.text, audience=clientId),
            JWKSCache(issuer, fetcher.fetch, seconds=seconds),
        )

    async def authorizationURL(self, attempt: SignInAttempt) -> str:
        """
        Return the URL at which the person signs in.

        @raise IssuerUnavailable: The metadata cannot be fetched.
        """
        metadata = await self._discovered()
        digest = sha256(attempt.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self._clientId,
            "redirect_uri": attempt.redirectURL,
            "scope": " ".join(self._scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        url = metadata.authorization.text
        return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"

    async def redeem(self, attempt: SignInAttempt, code: str, issuer: str) -> dict[str, Any]:
        """
        Exchange the code for an ID token, and return its claims.

        @param issuer: The C{iss} of the response; empty if it has none.
        @return: The claims of the ID token, and the claims of the userinfo endpoint besides.
        @raise SignInError: The issuer refuses the code, or its ID token is invalid.
        """
        metadata = await self._discovered()
        if (issuer or metadata.sendsIssuer) and issuer != self._issuer.text:
            raise SignInError("The response is of another issuer")
        fields = {"Accept": "application/json"}
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": attempt.redirectURL,
            "code_verifier": attempt.verifier,
            "client_id": self._clientId,
        }
        if self._clientSecret and metadata.isSecretInForm:
            form["client_secret"] = self._clientSecret
        elif self._clientSecret:
            # RFC 6749 section 2.3.1 encodes both parts as in a form.
            pair = f"{quote_plus(self._clientId)}:{quote_plus(self._clientSecret)}"
            fields["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        found = await self._request(self._fetcher.send(metadata.token, fields, form))
        token = found.get("id_token")
        if not isinstance(token, str):
            raise SignInError("The issuer sent no ID token: the scopes must include openid")
        claims = await self._verified(token, attempt.nonce)
        access = found.get("access_token")
        if metadata.userinfo is not None and isinstance(access, str) and access.isascii():
            more = await self._userinfo(metadata.userinfo, access)
            # OpenID Connect Core 1.0 section 5.3.4.
            if more.get("sub") == claims["sub"]:
                claims = {**more, **claims}
        return claims

    async def _verified(self, token: str, nonce: str) -> dict[str, Any]:
        try:
            found = self._provider.claims(token)
            claims: dict[str, Any] = dict(await found if isinstance(found, Awaitable) else found)
            given = claims.get("nonce")
            if (
                not isinstance(given, str)
                or not given.isascii()
                or not compare_digest(given, nonce)
            ):
                raise TokenError("its nonce is of another sign-in")
            audience = claims.get("aud")
            party = claims.get("azp")
            isShared = isinstance(audience, list) and len(audience) > 1
            if (party is not None or isShared) and party != self._clientId:
                raise TokenError("its azp is another client")
            subject = claims.get("sub")
            isText = isinstance(subject, str) and subject.isascii() and subject.isprintable()
            if not (isText and 0 < len(str(subject)) <= _MAX_SUBJECT):
                raise TokenError("it has no valid sub")
        except TokenError as error:
            raise SignInError(f"The ID token of the issuer is invalid: {error}") from error
        except ServiceError as error:
            raise IssuerUnavailable("The keys of the issuer cannot be fetched") from error
        return claims

    async def _userinfo(self, url: DocumentURL, token: str) -> dict[str, Any]:
        """Return the claims of the userinfo endpoint; none if it sends a signed or no document."""
        fields = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        try:
            return await self._request(self._fetcher.send(url, fields))
        except SignInError:
            return {}

    async def _request(self, response: Awaitable[tuple[int, bytes]]) -> dict[str, Any]:
        """Return the document of a response."""
        try:
            status, body = await response
        except HTTPClientError as error:
            raise IssuerUnavailable(f"The issuer cannot be reached: {error}") from error
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise IssuerUnavailable(f"The issuer answered {status} without a JSON document")
        if status != 200:
            text = issuerError(found.get("error"), found.get("error_description"))
            raise SignInError(f"The issuer refused the code: {text}")
        return found

    async def _discovered(self) -> Metadata:
        failures = self._failures
        await self._lock.acquire()
        try:
            known = self._metadata
            if known is not None and self._seconds() - self._fetchedAt < METADATA_SECONDS:
                return known
            if self._failures != failures:
                # Otherwise each of many calls that wait would wait for a timeout of its own.
                raise IssuerUnavailable(self._reason)
            try:
                metadata = self._metadata = await self._discover()
            except IssuerUnavailable as error:
                self._failures += 1
                self._reason = str(error)
                raise
            self._fetchedAt = self._seconds()
            return metadata
        finally:
            self._lock.release()

    async def _discover(self) -> Metadata:
        issuer = self._issuer
        try:
            found = await fetchMetadata(issuer, self._fetcher.fetch)
            methods = found.get("token_endpoint_auth_methods_supported")
            known = methods if isinstance(methods, list) else ["client_secret_basic"]
            hasUserinfo = found.get("userinfo_endpoint") is not None
            return Metadata(
                readEndpoint(found, "authorization_endpoint", issuer),
                readEndpoint(found, "token_endpoint", issuer),
                readEndpoint(found, "userinfo_endpoint", issuer) if hasUserinfo else None,
                "client_secret_basic" not in known and "client_secret_post" in known,
                found.get("authorization_response_iss_parameter_supported") is True,
            )
        except (HTTPClientError, FetchError, ValueError) as error:
            raise IssuerUnavailable(f"The issuer cannot be reached: {error}") from error


def issuerError(code: object, description: object) -> str:
    """Return an error of the issuer as one line of printable text, of limited length."""
    parts = [part for part in (code, description) if isinstance(part, str) and part]
    text = ": ".join(parts) or "no reason given"
    return "".join(each if each.isprintable() else " " for each in text[:_MAX_ERROR])
