"""The provider C{vault} with a real server: OpenBao's transit engine."""

import json
import re
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.task import deferLater
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import TestCase

from storagegate.objects.encryption.masterkeys.options import readVault
from storagegate.objects.encryption.masterkeys.vault import (
    CONCURRENT,
    PROBLEM_SECONDS,
    VaultMasterKeys,
)
from storagegate.objects.errors import (
    InvalidArgument,
    MasterKeyDisabled,
    MasterKeyExists,
    MasterKeyNotFound,
    MasterKeysUnavailable,
    WrongMasterKey,
)
from tests.support.certificates import Authority
from tests.support.documents import DOCS
from tests.support.openbao import sharedOpenBao
from tests.support.selection import long

PLAIN = bytes(range(32))
KEY = "storagegate"


class VaultCase(TestCase):
    """Providers of one server, which all tests share."""

    def setUp(self) -> None:
        """Find the server, and keep what is logged."""
        self.server = sharedOpenBao(KEY)
        self.logged: list[str] = []
        globalLogPublisher.addObserver(self._observe)
        self.addCleanup(globalLogPublisher.removeObserver, self._observe)

    def _observe(self, event: Mapping[str, Any]) -> None:
        self.logged.append(repr(dict(event)))

    def provider(self, **options: Any) -> VaultMasterKeys:
        """Open a provider."""
        wanted = {"address": self.server.url, "caFile": self.server.caFile, **options}
        if not {"token", "tokenFile", "appRole", "kubernetes"} & set(options):
            wanted["token"] = self.server.newToken("1h")
        made = VaultMasterKeys(readVault(wanted), reactor, maybeDeferred)
        self.addCleanup(lambda: Deferred.fromCoroutine(made.close()))
        return made

    async def refused(self, awaitable: Any, error: type[Exception]) -> Any:
        """Return the error of a coroutine."""
        return await self.assertFailure(Deferred.fromCoroutine(awaitable), error)

    async def pause(self, seconds: float) -> None:
        """Let timers and other connections run."""
        await deferLater(reactor, seconds, lambda: None)  # type: ignore[arg-type]

    async def until(self, holds: Any, seconds: float = 20) -> None:
        """Wait until a condition holds."""
        for _ in range(int(seconds / 0.05)):
            if holds():
                return
            await self.pause(0.05)
        self.fail("the condition does not hold")

    async def roundTrip(self, keys: VaultMasterKeys, name: str = KEY) -> None:
        """Wrap and unwrap a key."""
        wrapped = await keys.wrap(name, PLAIN, b"bucket")
        self.assertEqual(await keys.unwrap(name, wrapped, b"bucket"), PLAIN)


@long("starts OpenBao")
class TransitTests(VaultCase):
    """The transit engine."""

    async def test_keys(self) -> None:
        """Keys are made, listed, rotated and disabled; a text is bound, and names its version."""
        keys = self.provider()
        await keys.newKey("photos")
        await self.refused(keys.newKey("photos"), MasterKeyExists)
        old = await keys.wrap("photos", PLAIN, b"a")
        self.assertTrue(keys.isCurrent("photos", old))
        await keys.rotate("photos")
        self.assertFalse(keys.isCurrent("photos", old))
        new = await keys.wrap("photos", PLAIN, b"a")
        self.assertTrue(keys.isCurrent("photos", new))
        for wrapped in (old, new):
            self.assertEqual(await keys.unwrap("photos", wrapped, b"a"), PLAIN)
        await self.refused(keys.unwrap("photos", old, b"b"), WrongMasterKey)
        await self.refused(keys.unwrap(KEY, old, b"a"), WrongMasterKey)
        changed = f"{old[:-6]}{'B' if old[-6] == 'A' else 'A'}{old[-5:]}"
        await self.refused(keys.unwrap("photos", changed, b"a"), WrongMasterKey)
        await self.refused(keys.unwrap("photos", "vault:v9:AAAA", b"a"), MasterKeyNotFound)
        await self.refused(keys.unwrap("photos", "file:v1:a:b", b"a"), WrongMasterKey)
        changes: list[int] = []
        keys.onChange = lambda: changes.append(1)
        await keys.disable("photos", True)
        self.assertEqual(changes, [1])
        await self.refused(keys.wrap("photos", PLAIN, b"a"), MasterKeyDisabled)
        await self.refused(keys.unwrap("photos", old, b"a"), MasterKeyDisabled)
        listed = {key.name: key for key in await keys.keys()}
        self.assertEqual((listed["photos"].versions, listed["photos"].disabled), (2, True))
        self.assertTrue(listed[KEY].isDefault)
        self.assertGreater(listed[KEY].createdMs, 1_700_000_000_000)
        await keys.disable("photos", False)
        await self.roundTrip(keys, "photos")

    async def test_noticed(self) -> None:
        """A check closes open bucket keys if a key in use was disabled or removed elsewhere."""
        keys, other = self.provider(), self.provider()
        await keys.newKey("noticed")
        wrapped = await keys.wrap("noticed", PLAIN, b"a")
        changes: list[int] = []
        keys.onChange = lambda: changes.append(1)
        await keys.check()
        self.assertEqual(changes, [])
        await other.disable("noticed", True)
        await keys.check()
        self.assertEqual(changes, [1])
        await other.disable("noticed", False)
        await keys.check()
        self.assertEqual(changes, [1, 1])
        self.assertIsNone(keys.problem)
        config = {"deletion_allowed": True}
        self.server.call("POST", "transit/keys/noticed/config", config)
        self.server.call("DELETE", "transit/keys/noticed")
        await keys.check()
        self.assertEqual(changes, [1, 1, 1])
        self.assertIsNone(keys.problem)
        await self.refused(keys.unwrap("noticed", wrapped, b"a"), MasterKeyNotFound)

    async def test_unknown(self) -> None:
        """An unknown key is refused and not made, though the token may; names are no paths."""
        keys = self.provider()
        await self.refused(keys.wrap("unknown", PLAIN, b""), MasterKeyNotFound)
        await self.refused(keys.unwrap("unknown", "vault:v1:AAAA", b""), MasterKeyNotFound)
        await self.refused(keys.rotate("unknown"), MasterKeyNotFound)
        before = len(self.server.paths())
        for name in ("../sys/seal", "a/b", "", ".", "..", "a?b", "a%2fb", "ä"):
            await self.refused(keys.wrap(name, PLAIN, b""), MasterKeyNotFound)
            await self.refused(keys.unwrap(name, "vault:v1:AAAA", b""), MasterKeyNotFound)
            await self.refused(keys.newKey(name), InvalidArgument)
        self.assertEqual(len(self.server.paths()), before)
        self.assertNotIn("unknown", [key.name for key in await keys.keys()])

    async def test_forbidden(self) -> None:
        """A policy that excludes a key hides it; one that excludes the default key is a problem."""
        self.server.allow("one", "transit/keys/one", "transit/+/one")
        self.server.call("POST", "transit/keys/one", {"type": "aes256-gcm96"})
        made = self.server.call("POST", "auth/token/create", {"policies": ["one"], "ttl": "1h"})
        token = made["auth"]["client_token"]
        keys = self.provider(token=token, defaultKey="one")
        await self.roundTrip(keys, "one")
        await self.refused(keys.wrap(KEY, PLAIN, b""), MasterKeyNotFound)
        await self.refused(keys.unwrap(KEY, "vault:v1:AAAA", b""), MasterKeysUnavailable)
        other = self.provider(token=token)
        await self.refused(other.wrap(KEY, PLAIN, b""), MasterKeysUnavailable)
        self.assertIn("no permission", other.problem or "")

    async def test_policy(self) -> None:
        """The policy in the documentation is enough for the store and for each command."""
        page = (DOCS / "encryption.rst").read_text()
        [policy] = re.findall(r"<<EOF\n(.*?)EOF", page, re.DOTALL)
        self.server.call("PUT", "sys/policies/acl/documented", {"policy": policy})
        wanted = {"policies": ["documented"], "ttl": "1h"}
        made = self.server.call("POST", "auth/token/create", wanted)
        keys = self.provider(token=made["auth"]["client_token"])
        await self.roundTrip(keys)
        await keys.newKey("documented")
        await keys.rotate("documented")
        await keys.disable("documented", True)
        await keys.disable("documented", False)
        self.assertIn("documented", [key.name for key in await keys.keys()])
        await self.roundTrip(keys, "documented")
        await keys.check()
        self.assertIsNone(keys.problem)

    async def test_mount(self) -> None:
        """A missing mount, and a missing default key, are problems that are named."""
        keys = self.provider(mount="elsewhere")
        await self.refused(keys.wrap(KEY, PLAIN, b""), MasterKeysUnavailable)
        self.assertIn("elsewhere", keys.problem or "")
        other = self.provider(defaultKey="absent")
        await other.check()
        self.assertIn("absent", other.problem or "")

    async def test_hidden(self) -> None:
        """No log line, error or description has a token, a secret id or a key."""
        role, secret = self.server.appRole("1h")
        token = self.server.newToken("1h")
        shown = []
        for options in ({"token": token}, {"appRole": {"roleId": role, "secretId": secret}}):
            keys = self.provider(**options)
            await self.roundTrip(keys)
            held = keys._token
            assert held is not None
            error = await self.refused(keys.unwrap(KEY, "vault:v1:AAAA", b""), WrongMasterKey)
            bad = self.provider(**options, mount="elsewhere")
            failed = await self.refused(bad.wrap(KEY, PLAIN, b""), MasterKeysUnavailable)
            shown += [repr(error), repr(failed), repr(vars(keys)), bad.problem or "", *self.logged]
            for each in (held.text, secret, token, "AAECAwQF"):
                self.assertFalse([text for text in shown if each in text])


@long("starts OpenBao")
class TokenTests(VaultCase):
    """Tokens that end."""

    async def test_renewed(self) -> None:
        """A token is renewed at half of its life, so keys stay usable long after its first end."""
        keys = self.provider(token=self.server.newToken("10s", period="10s"))
        await self.roundTrip(keys)
        await self.until(lambda: self.server.requests("auth/token/renew-self") >= 2)
        await self.pause(2)
        await self.roundTrip(keys)
        self.assertIsNone(keys.problem)

    async def test_appRole(self) -> None:
        """A login with AppRole goes on past the maximum life of its tokens."""
        role, secret = self.server.appRole("10s", token_max_ttl="12s")
        path = self.mktemp()
        Path(path).write_text(f"{secret}\n")
        keys = self.provider(appRole={"roleId": role, "secretIdFile": path})
        logins = "auth/approle/login"
        await gatherResults([Deferred.fromCoroutine(self.roundTrip(keys)) for _ in range(5)])
        # Calls at the same time share one login.
        self.assertEqual(self.server.requests(logins), 1)
        await self.until(lambda: self.server.requests(logins) >= 2)
        await self.pause(1)
        await self.roundTrip(keys)

    async def test_revoked(self) -> None:
        """A login replaces a revoked token at once; a bare token is a problem until it changes."""
        role, secret = self.server.appRole("1h")
        keys = self.provider(appRole={"roleId": role, "secretId": secret})
        await self.roundTrip(keys)
        assert keys._token is not None
        self.server.call("POST", "auth/token/revoke", {"token": keys._token.text})
        await self.roundTrip(keys)
        path = Path(self.mktemp())
        path.write_text(self.server.newToken("1h"))
        other = self.provider(tokenFile=str(path))
        await self.roundTrip(other)
        self.server.call("POST", "auth/token/revoke", {"token": path.read_text()})
        await self.refused(other.wrap(KEY, PLAIN, b""), MasterKeysUnavailable)
        self.assertIn("403", other.problem or "")
        path.write_text(self.server.newToken("1h"))
        await self.until(lambda: other.problem is None)
        await self.roundTrip(other)

    async def test_kubernetes(self) -> None:
        """The token of a service account signs in, and is read again for the next login."""
        reviews = _TokenReviews()
        self.addCleanup(reviews.close)
        if "kubernetes/" not in self.server.call("GET", "sys/auth"):
            self.server.call("POST", "sys/auth/kubernetes", {"type": "kubernetes"})
        config = {
            "kubernetes_host": reviews.url,
            "token_reviewer_jwt": _jwt("reviewer"),
            "disable_local_ca_jwt": True,
            "kubernetes_ca_cert": Authority(Path(self.mktemp())).path.read_text(),
        }
        self.server.call("POST", "auth/kubernetes/config", config)
        self.server.allow("store", "transit/*")
        role = {
            "bound_service_account_names": "storagegate",
            "bound_service_account_namespaces": "default",
            "token_policies": "store",
            "token_ttl": "10s",
            "token_max_ttl": "12s",
        }
        self.server.call("POST", "auth/kubernetes/role/store", role)
        path = Path(self.mktemp())
        path.write_text(_jwt("storagegate"))
        keys = self.provider(kubernetes={"role": "store", "tokenFile": str(path)})
        await keys.check()
        self.assertIsNone(keys.problem)
        await self.roundTrip(keys)
        path.write_text(_jwt("other"))
        await self.until(lambda: keys.problem is not None)
        self.assertIn("login at kubernetes", keys.problem or "")
        path.write_text(_jwt("storagegate"))
        await self.until(lambda: keys.problem is None)
        await self.roundTrip(keys)


@long("starts OpenBao")
class AwayTests(VaultCase):
    """A server that is away or sealed."""

    async def test_restarted(self) -> None:
        """While it is away calls fail fast; when it is back, they succeed, and the problem ends."""
        keys = self.provider()
        await self.roundTrip(keys)
        self.server.stop()
        try:
            for _ in range(20):
                await self.refused(keys.wrap(KEY, PLAIN, b""), MasterKeysUnavailable)
            self.assertIn("refused", keys.problem or "")
        finally:
            self.server.start()
        await self.until(lambda: keys.problem is None, PROBLEM_SECONDS * 3)
        await self.roundTrip(keys)

    async def test_sealed(self) -> None:
        """A sealed server is named as such."""
        keys = self.provider()
        self.server.seal()
        try:
            await self.refused(keys.wrap(KEY, PLAIN, b""), MasterKeysUnavailable)
            self.assertIn("sealed", keys.problem or "")
        finally:
            self.server.unseal()
        await self.until(lambda: keys.problem is None)

    async def test_untrusted(self) -> None:
        """A server whose certificate is not of the configured authority gets no token."""
        before = len(self.server.paths())
        keys = self.provider(caFile=str(Authority(Path(self.mktemp())).path), token="x")
        await self.refused(keys.wrap(KEY, PLAIN, b""), MasterKeysUnavailable)
        self.assertIn("certificate", (keys.problem or "").lower())
        self.assertEqual(len(self.server.paths()), before)

    async def test_silent(self) -> None:
        """A server that accepts connections and says nothing costs the timeout once."""
        silent = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
        self.addCleanup(silent.server_close)
        url = f"http://127.0.0.1:{silent.server_address[1]}"
        keys = self.provider(address=url, token="x", timeoutSeconds=1)
        await self.refused(keys.wrap(KEY, PLAIN, b""), MasterKeysUnavailable)
        self.assertIn("does not answer", keys.problem or "")
        await self.refused(keys.wrap(KEY, PLAIN, b""), MasterKeysUnavailable)


@long("waits for a timeout")
class HangingTests(TestCase):
    """A server that knows the token, and then says nothing more."""

    async def test_waiting(self) -> None:
        """The calls that wait for a connection fail with the first timeout."""
        server = _Hanging()
        self.addCleanup(server.close)
        options = readVault({"address": server.url, "token": "x", "timeoutSeconds": 1})
        keys = VaultMasterKeys(options, reactor, maybeDeferred)
        self.addCleanup(lambda: Deferred.fromCoroutine(keys.close()))
        calls = [
            self.assertFailure(
                Deferred.fromCoroutine(keys.unwrap(KEY, f"vault:v1:{number}", b"")),
                MasterKeysUnavailable,
            )
            for number in range(3 * CONCURRENT)
        ]
        await gatherResults(calls)
        self.assertLessEqual(len(server.decryptions), CONCURRENT)


class _Hanging:
    """
    A server that answers only the look-up of a token.

    @ivar decryptions: The paths of the requests to decrypt.
    """

    def __init__(self) -> None:
        outer, self._isOver = self, Event()
        self.decryptions: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def describe(self) -> None:
                body = b'{"data": {"ttl": 0, "renewable": false}}'
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                outer.decryptions.append(self.path)
                outer._isOver.wait()

            def log_message(self, *arguments: Any) -> None:
                """Say nothing."""

            do_GET = describe

        class Server(ThreadingHTTPServer):
            request_queue_size = 4 * CONCURRENT

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        """Stop the server."""
        self._isOver.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _TokenReviews:
    """
    The part of a Kubernetes API that verifies tokens of service accounts: it believes them.

    @ivar url: Its URL.
    """

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                name = _nameIn(sent["spec"]["token"])
                user = {"username": f"system:serviceaccount:default:{name}", "uid": "1"}
                sent["status"] = {"authenticated": True, "user": user}
                body = json.dumps(sent).encode()
                self.send_response(201)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        """Stop it."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


_NAME = "kubernetes.io/serviceaccount/service-account.name"


def _jwt(name: str) -> str:
    """Make the token of a service account."""
    claims = {
        "iss": "kubernetes/serviceaccount",
        "sub": f"system:serviceaccount:default:{name}",
        "kubernetes.io/serviceaccount/namespace": "default",
        "kubernetes.io/serviceaccount/service-account.uid": "1",
        _NAME: name,
    }
    return jwt.encode(claims, generate_private_key(SECP256R1()), algorithm="ES256")


def _nameIn(token: str) -> str:
    name: str = jwt.decode(token, options={"verify_signature": False})[_NAME]
    return name
