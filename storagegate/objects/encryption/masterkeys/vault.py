"""
The provider C{vault}: master keys in the transit engine of Vault or OpenBao.

Requests, below C{ADDRESS/v1/}, with the token in C{X-Vault-Token}::

    GET  MOUNT/keys/NAME             versions; whether the key is disabled; 404 if there is none
    POST MOUNT/encrypt/NAME          {plaintext, associated_data} -> {ciphertext}
    POST MOUNT/decrypt/NAME          {ciphertext, associated_data} -> {plaintext}
    POST MOUNT/keys/NAME             create a key
    POST MOUNT/keys/NAME/rotate      add a version
    DELETE MOUNT/keys/NAME/soft-delete, POST MOUNT/keys/NAME/soft-delete-restore
                                     disable and enable a key: OpenBao only
    POST auth/approle/login          {role_id, secret_id} -> {auth: {client_token, lease_duration}}
    POST auth/kubernetes/login       {role, jwt}
    GET  auth/token/lookup-self      the remaining life of a configured token
    POST auth/token/renew-self

The engine creates a missing key when it encrypts, if the token may, so the first request of L{wrap}
asks whether the key exists.
"""

from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from attrs import field, frozen
from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.logger import Logger
from zope.interface import implementer

from storagegate.core.files import FileTooLong, readSmallFile
from storagegate.core.streams import SharedFuture
from storagegate.net.http.client import HTTPClient
from storagegate.net.http.clientconnection import HTTPClientError
from storagegate.net.tls import ClientTLSOptions
from storagegate.objects.encryption.interfaces import IMasterKeys, MasterKey
from storagegate.objects.encryption.masterkeys.keyfile import KEY_NAME
from storagegate.objects.encryption.masterkeys.options import VaultOptions
from storagegate.objects.errors import (
    DomainError,
    InvalidArgument,
    MasterKeyDisabled,
    MasterKeyExists,
    MasterKeyNotFound,
    MasterKeysUnavailable,
    UnsupportedFeature,
    WrongMasterKey,
)

CONCURRENT = 16
"""The most requests at a time of a process; each has a connection of its own."""

RETRY_SECONDS = 1.0
"""After a failed connection, further calls fail at once for this time."""

CHECK_SECONDS = 30.0
"""The interval of the checks that find a server that is away, and keys that were disabled."""

PROBLEM_SECONDS = 2.0
"""The interval of the checks while there is a problem."""

MOST_LISTED = 1000
"""Keys in a list: each takes a request."""

MOST_CHECKED = 50
"""Keys in use whose state L{VaultMasterKeys.check} reads: each takes a request."""

_LEAST_LIFE = 5.0
"""A token with less life, in seconds, is replaced before its next use."""

_KEY_TYPE = "aes256-gcm96"

# A token of a service account takes 1 to 2 kB.
_TOKEN_LIMIT = 64 * 1024

_REASON_LENGTH = 200

_FORBIDDEN = 403


@frozen
class _VaultToken:
    """
    A token.

    @ivar ends: When it ends, by the clock; L{None} if it does not.
    @ivar isRenewable: Whether its life can be prolonged.
    """

    text: str = field(repr=False)
    ends: float | None = None
    isRenewable: bool = False


@frozen
class _Reply:
    """A response: its status, its document, and the server's reasons."""

    status: int
    document: Mapping[str, Any] = field(repr=False)
    reasons: str = ""

    @property
    def data(self) -> Mapping[str, Any]:
        """The C{data} of the document."""
        return self._part("data")

    @property
    def auth(self) -> Mapping[str, Any]:
        """The C{auth} of the document, with the token of a login."""
        return self._part("auth")

    def _part(self, name: str) -> Mapping[str, Any]:
        found = self.document.get(name)
        return found if isinstance(found, Mapping) else {}


@implementer(IMasterKeys)
class VaultMasterKeys:
    """
    Master keys in the transit engine. See L{IMasterKeys}.

    A token is obtained with the first call and renewed at half of its life. If it can be renewed no
    longer, or the server refuses it, the next one is obtained.
    """

    _log = Logger()

    def __init__(
        self,
        options: VaultOptions,
        reactor: Any,
        run: Callable[..., Awaitable[Any]],
    ) -> None:
        """
        @param reactor: The reactor for connections and timers.
        @param run: Runs a blocking function in a pool thread.
        """
        self.problem: str | None = None
        self.defaultKey = options.defaultKey
        self.onChange: Callable[[], object] | None = None
        self._options = options
        self._reactor = reactor
        self._run = run
        tls = ClientTLSOptions(caFile=options.caFile)
        self._client = HTTPClient(reactor, f"{options.address}/v1/", tls)
        self._slots = DeferredSemaphore(CONCURRENT)
        self._token: _VaultToken | None = None
        self._signingIn: SharedFuture[_VaultToken] | None = None
        self._timers: dict[str, Any] = {}
        self._awayUntil = 0.0
        self._versions: dict[str, int] = {}
        # Whether each key in use can be used, as last seen.
        self._states: dict[str, bool] = {}
        self._isClosed = False

    async def wrap(self, name: str, plain: bytes, binding: bytes) -> str:
        """Wrap a key; two requests."""
        await self._describe(name)
        reply = await self._send(
            "POST",
            f"encrypt/{name}",
            {"plaintext": _encode(plain), "associated_data": _encode(binding)},
        )
        wrapped = reply.data.get("ciphertext")
        if reply.status != 200 or not isinstance(wrapped, str) or not wrapped.isascii():
            raise self._refused(name, reply, MasterKeyNotFound)
        return wrapped

    async def unwrap(self, name: str, wrapped: str, binding: bytes) -> bytes:
        """Unwrap a key; one request."""
        _checkName(name)
        if not wrapped.startswith("vault:"):
            raise WrongMasterKey()
        reply = await self._send(
            "POST",
            f"decrypt/{name}",
            {"ciphertext": wrapped, "associated_data": _encode(binding)},
        )
        if reply.status != 200:
            raise self._refused(name, reply, MasterKeysUnavailable)
        self._saw(name, True)
        try:
            return b64decode(reply.data["plaintext"], validate=True)
        except (KeyError, TypeError, ValueError):
            raise self._unavailable("its answer has another form") from None

    def isCurrent(self, name: str, wrapped: str) -> bool:
        """Return whether the last known version of a key wrapped a text."""
        return wrapped.startswith(f"vault:v{self._versions.get(name, 0)}:")

    async def newKey(self, name: str) -> None:
        """Create a key, which can be neither exported nor deleted."""
        if not KEY_NAME.fullmatch(name):
            raise InvalidArgument("The name of a master key has 1 to 128 letters, digits, _ . -")
        try:
            await self._describe(name)
        except MasterKeyNotFound:
            pass
        else:
            raise MasterKeyExists()
        await self._change(name, "POST", f"keys/{name}", {"type": _KEY_TYPE})

    async def rotate(self, name: str) -> None:
        """Add a version to a key."""
        await self._describe(name)
        await self._change(name, "POST", f"keys/{name}/rotate", {})
        await self._describe(name)

    async def disable(self, name: str, disabled: bool) -> None:
        """
        Disable a key, or enable it again.

        @raise UnsupportedFeature: The server is Vault, whose keys cannot be disabled.
        """
        key = await self._describe(name)
        if "soft_deleted" not in key:
            raise UnsupportedFeature(
                "Vault has no disabled keys: refuse the key in the policy of the store's token"
            )
        if disabled:
            await self._change(name, "DELETE", f"keys/{name}/soft-delete", None)
        else:
            await self._change(name, "POST", f"keys/{name}/soft-delete-restore", {})

    async def keys(self) -> Sequence[MasterKey]:
        """List the keys of the mount."""
        reply = await self._send("GET", "keys?list=true")
        if reply.status == 404 and not reply.reasons:
            return []
        names = reply.data.get("keys")
        if reply.status != 200 or not isinstance(names, list):
            raise self._unavailable(f"it refuses to list keys with {reply.status}")
        found = []
        for name in names[:MOST_LISTED]:
            if isinstance(name, str) and KEY_NAME.fullmatch(name):
                key = await self._describe(name)
                found.append(self._view(name, key))
        return sorted(found, key=lambda key: key.name)

    async def check(self) -> None:
        """Find out whether the keys can be used, and check again periodically."""
        try:
            for name in [each for each in self._states if each != self.defaultKey]:
                with suppress(MasterKeyNotFound):
                    await self._describe(name)
            await self._describe(self.defaultKey)
            self._setProblem(None)
        except MasterKeysUnavailable:
            pass
        except MasterKeyNotFound:
            self._setProblem(
                f"there is no key {self.defaultKey}: run storagegate masterkeys create"
            )
        except DomainError as error:
            self._setProblem(f"the key {self.defaultKey}: {error.message}")
        seconds = CHECK_SECONDS if self.problem is None else PROBLEM_SECONDS
        self._schedule("check", seconds, self.check)

    async def close(self) -> None:
        """Stop the renewals, and forget the token."""
        self._isClosed = True
        self._token = None
        for timer in self._timers.values():
            if timer.active():
                timer.cancel()

    def _view(self, name: str, key: Mapping[str, Any]) -> MasterKey:
        times = key.get("keys")
        first = times.get("1") if isinstance(times, Mapping) else None
        seconds = first if isinstance(first, int) else 0
        return MasterKey(
            name,
            self._versions.get(name, 1),
            seconds * 1000,
            key.get("soft_deleted") is True,
            name == self.defaultKey,
        )

    async def _describe(self, name: str) -> Mapping[str, Any]:
        """
        Return the server's description of a key, which may be disabled.

        @raise MasterKeyNotFound: There is no such key, or the token must not use it.
        """
        _checkName(name)
        reply = await self._send("GET", f"keys/{name}")
        if reply.status != 200:
            self._saw(name, False)
            raise self._refused(name, reply, MasterKeyNotFound)
        self._saw(name, reply.data.get("soft_deleted") is not True)
        latest = reply.data.get("latest_version")
        if isinstance(latest, int) and (
            name in self._versions or len(self._versions) < MOST_LISTED
        ):
            self._versions[name] = latest
        return reply.data

    def _saw(self, name: str, isUsable: bool) -> None:
        """Note the state of a key, and close open bucket keys if it differs from the last one."""
        if self._states.get(name, isUsable) != isUsable and self.onChange is not None:
            self.onChange()
        if name in self._states or (isUsable and len(self._states) < MOST_CHECKED):
            self._states[name] = isUsable

    async def _change(self, name: str, method: str, path: str, body: object) -> None:
        reply = await self._send(method, path, body)
        if reply.status not in (200, 204):
            if reply.status == _FORBIDDEN:
                raise UnsupportedFeature("The store's token at Vault must not change this key.")
            raise self._refused(name, reply, MasterKeyNotFound)
        if self.onChange is not None:
            self.onChange()

    def _refused(
        self, name: str, reply: _Reply, forbidden: Callable[[], DomainError]
    ) -> DomainError:
        """
        Return the error for a refused request.

        @param forbidden: Makes the error if the policy of the token excludes the key.
        """
        reasons = reply.reasons
        if "soft-deleted" in reasons:
            return MasterKeyDisabled()
        if reply.status == _FORBIDDEN:
            problem = f"its token has no permission for {name} at {self._options.mount}"
            isOurs = name == self.defaultKey or forbidden is MasterKeysUnavailable
            return self._unavailable(problem) if isOurs else forbidden()
        if reply.status == 404:
            if "no handler" in reasons:
                return self._unavailable(f"nothing is mounted at {self._options.mount}")
            return MasterKeyNotFound()
        if reply.status == 400:
            if "key not found" in reasons or "version is too new" in reasons:
                return MasterKeyNotFound()
            if "too old" in reasons or "disallowed by policy" in reasons:
                return MasterKeyNotFound("Vault refuses the version that wrapped the key.")
            return WrongMasterKey()
        return self._unavailable(f"it answers with {reply.status}")

    # ---- Requests

    async def _send(self, method: str, path: str, body: object = None) -> _Reply:
        """
        Send a request to the transit engine. A refused token is replaced once.

        @raise MasterKeysUnavailable: There is no answer, or no token.
        """
        if self._isClosed or self._reactor.seconds() < self._awayUntil:
            raise MasterKeysUnavailable()
        path = f"{self._options.mount}/{path}"
        token = await self._freshToken()
        reply = await self._exchange(method, path, body, token.text)
        if reply.status == _FORBIDDEN and not await self._isValid(token):
            if self._token is token:
                self._token = None
            token = await self._freshToken()
            reply = await self._exchange(method, path, body, token.text)
        return reply

    async def _isValid(self, token: _VaultToken) -> bool:
        """Return whether the server knows a token, after it refused a request with it."""
        reply = await self._exchange("GET", "auth/token/lookup-self", None, token.text)
        return reply.status == 200

    async def _exchange(self, method: str, path: str, body: object, token: str = "") -> _Reply:
        """
        Send one request.

        @param token: The token; empty for a login.
        @raise MasterKeysUnavailable: There is no answer, or the server is sealed or a standby.
        """
        fields = {"X-Vault-Request": "true"}
        if token:
            fields["X-Vault-Token"] = token
        if self._options.namespace:
            fields["X-Vault-Namespace"] = self._options.namespace
        content = None
        if body is not None:
            content = msgspec.json.encode(body)
            fields["Content-Type"] = "application/json"
        await self._slots.acquire()
        try:
            if self._reactor.seconds() < self._awayUntil:
                # A request failed while this one waited, which must not wait as long again.
                raise MasterKeysUnavailable()
            seconds = float(self._options.timeoutSeconds)
            response = await self._client.request(method, path, fields, content, seconds)
        except (HTTPClientError, ValueError) as error:
            self._awayUntil = self._reactor.seconds() + RETRY_SECONDS
            raise self._unavailable(str(error)) from None
        finally:
            self._slots.release()
        try:
            document = msgspec.json.decode(response.body) if response.body else {}
        except (ValueError, RecursionError):
            document = {}
        if not isinstance(document, dict):
            document = {}
        errors = document.get("errors")
        reasons = "; ".join(map(str, errors)) if isinstance(errors, list) else ""
        if response.status >= 429 or response.status in range(300, 400):
            state = {503: "it is sealed", 501: "it is not initialised"}.get(response.status)
            raise self._unavailable(state or f"it answers with {response.status}")
        return _Reply(response.status, document, reasons)

    # ---- Tokens

    async def _freshToken(self) -> _VaultToken:
        """Return a token that has not ended, by a login if necessary; concurrent calls share it."""
        token = self._token
        now = self._reactor.seconds()
        if token is not None and (token.ends is None or token.ends - now > _LEAST_LIFE):
            return token
        if self._signingIn is None:
            future: SharedFuture[_VaultToken] = SharedFuture()
            self._signingIn = future

            async def signIn() -> None:
                try:
                    made = await self._signIn()
                except Exception as error:
                    self._awayUntil = self._reactor.seconds() + RETRY_SECONDS
                    future.fail(error)
                else:
                    self._keep(made)
                    future.set(made)
                finally:
                    self._signingIn = None

            Deferred.fromCoroutine(signIn())
            return await future.wait()
        return await self._signingIn.wait()

    async def _signIn(self) -> _VaultToken:
        options = self._options
        if options.appRole is not None:
            role = options.appRole
            secret = role.secretId
            if role.secretIdFile is not None:
                secret = await self._readFile(role.secretIdFile)
            body = {"role_id": role.roleId, **({} if secret is None else {"secret_id": secret})}
            return await self._login(role.mount, body)
        if options.kubernetes is not None:
            account = options.kubernetes
            jwt = await self._readFile(account.tokenFile)
            return await self._login(account.mount, {"role": account.role, "jwt": jwt})
        text = options.token
        if options.tokenFile is not None:
            text = await self._readFile(options.tokenFile)
        assert text is not None
        reply = await self._exchange("GET", "auth/token/lookup-self", None, text)
        if reply.status != 200:
            raise self._unavailable(f"it refuses the token with {reply.status}")
        return self._tokenOf(text, reply.data.get("ttl"), reply.data.get("renewable"))

    async def _login(self, mount: str, body: Mapping[str, str]) -> _VaultToken:
        reply = await self._exchange("POST", f"auth/{mount}/login", body)
        text = reply.auth.get("client_token")
        if reply.status != 200 or not isinstance(text, str) or not text:
            reason = reply.reasons[:_REASON_LENGTH] or "no reason"
            raise self._unavailable(
                f"it refuses the login at {mount} with {reply.status}: {reason}"
            )
        return self._tokenOf(text, reply.auth.get("lease_duration"), reply.auth.get("renewable"))

    def _tokenOf(self, text: str, seconds: object, isRenewable: object) -> _VaultToken:
        # The life of a root token is 0: it does not end.
        isBound = isinstance(seconds, int) and seconds > 0
        ends = self._reactor.seconds() + seconds if isBound else None
        return _VaultToken(text, ends, isRenewable is True)

    async def _readFile(self, path: str) -> str:
        """
        Read a credential from a file.

        @raise MasterKeysUnavailable: The file cannot be read, or is no text.
        """
        try:
            content: bytes = await self._run(readSmallFile, path, _TOKEN_LIMIT)
            text = content.decode("ascii").strip()
        except OSError as error:
            raise self._unavailable(f"{path}: {error.strerror}") from None
        except (FileTooLong, UnicodeDecodeError):
            text = ""
        if not text.isprintable() or not text:
            raise self._unavailable(f"{path}: it is no token")
        return text

    def _keep(self, token: _VaultToken) -> None:
        """Use a token, and renew it at half of its life."""
        if self._isClosed:
            return
        self._token = token
        if token.ends is not None:
            left = token.ends - self._reactor.seconds()
            self._schedule("renewal", max(left / 2, _LEAST_LIFE), self._renew)

    async def _renew(self) -> None:
        """Prolong the life of the token, or obtain another one."""
        token = self._token
        if token is None or token.ends is None:
            return
        left = token.ends - self._reactor.seconds()
        try:
            if token.isRenewable:
                reply = await self._exchange("POST", "auth/token/renew-self", {}, token.text)
                auth = reply.auth
                renewed = self._tokenOf(
                    token.text, auth.get("lease_duration"), auth.get("renewable")
                )
                # At its maximum life a renewal adds nothing.
                gained = None if renewed.ends is None else renewed.ends - token.ends
                if reply.status == 200 and (gained is None or gained > left / 2):
                    self._keep(renewed)
                    return
            self._keep(await self._signIn())
        except MasterKeysUnavailable:
            # The token still serves until its end, where the next call signs in.
            self._schedule("renewal", max(left / 4, _LEAST_LIFE), self._renew)

    def _schedule(self, name: str, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
        """Run a coroutine function later, instead of an earlier one of the same name."""
        if self._isClosed:
            return
        former = self._timers.get(name)
        if former is not None and former.active():
            former.cancel()

        async def perform() -> None:
            await act()

        def begin() -> None:
            Deferred.fromCoroutine(perform()).addErrback(
                lambda failure: self._log.failure("the {name} at Vault failed", failure, name=name)
            )

        self._timers[name] = self._reactor.callLater(seconds, begin)

    def _unavailable(self, problem: str) -> MasterKeysUnavailable:
        self._setProblem(f"Vault: {problem}")
        return MasterKeysUnavailable()

    def _setProblem(self, problem: str | None) -> None:
        if problem != self.problem:
            self.problem = problem
            if problem is not None:
                self._log.warn("the master keys cannot be used: {problem}", problem=problem)
                self._schedule("check", PROBLEM_SECONDS, self.check)


def _checkName(name: str) -> None:
    """
    @raise MasterKeyNotFound: No key can have this name, which would be another path.
    """
    if not KEY_NAME.fullmatch(name):
        raise MasterKeyNotFound()


def _encode(content: bytes) -> str:
    return b64encode(content).decode("ascii")
