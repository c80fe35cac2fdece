"""API keys: where they stand on each wire, and keys that are known beforehand."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.auth.tokens import APIKeyProvider, readAPIKey, staticKeys
from storagegate.core.invoker import CallCredentials
from tests.support.invoking import CONTEXT
from tests.support.tokens import makeContext, settled


class PlaceTests(SynchronousTestCase):
    """Where a key is."""

    def key(
        self, credentials: CallCredentials, protocol: str, given: Any = None, **headers: str
    ) -> str | None:
        """Look for a key."""
        provider = readAPIKey({"validate": print, **(given or {})})
        credentials.hasFields = protocol in ("http", "grpc")
        return provider.recognises(makeContext(protocol, **headers), credentials)

    def test_ownPlace(self) -> None:
        """HTTP and gRPC have a place for keys: what stands in that of tokens is none."""
        for protocol in ("http", "grpc"):
            self.assertEqual(self.key(CallCredentials("token", "key"), protocol), "key")
            self.assertIsNone(self.key(CallCredentials("token"), protocol))

    def test_tokenPlace(self) -> None:
        """Elsewhere a key stands where a token would."""
        for protocol in ("websocket", "tcp", "udp"):
            self.assertEqual(self.key(CallCredentials("key"), protocol), "key")
            self.assertIsNone(self.key(CallCredentials(), protocol))

    def test_header(self) -> None:
        """Another field is looked up whatever its case, and then the usual one is not."""
        given = {"header": "X-Partner"}
        for protocol in ("http", "grpc"):
            key = self.key(CallCredentials(None, "usual"), protocol, given, **{"x-partner": "k"})
            self.assertEqual(key, "k")
            self.assertIsNone(self.key(CallCredentials(None, "usual"), protocol, given))
        self.assertEqual(self.key(CallCredentials("token"), "tcp", given), "token")

    def test_empty(self) -> None:
        """An empty key is none."""
        self.assertIsNone(self.key(CallCredentials(None, ""), "http"))
        self.assertIsNone(self.key(CallCredentials(""), "tcp"))

    def test_extract(self) -> None:
        """The user's own function finds it, on the wires that it is for."""
        given = {"extractToken": {"tcp": lambda message: message["key"]}}
        message = {"key": "mine"}
        self.assertEqual(self.key(CallCredentials("token", None, message), "tcp", given), "mine")
        self.assertIsNone(self.key(CallCredentials("token", None, {}), "tcp", given))
        self.assertEqual(self.key(CallCredentials("token", None, message), "udp", given), "token")
        for nothing in ("", None, 5, b"x"):
            found = self.key(CallCredentials("token", None, {"key": nothing}), "tcp", given)
            self.assertIsNone(found)

    def test_validate(self) -> None:
        """The function gets the key, and the context if it wants it."""
        context = makeContext()
        pair = APIKeyProvider(lambda apiKey, context: (apiKey, context)).verify("k", context)
        self.assertEqual(pair, ("k", context))
        self.assertEqual(APIKeyProvider(lambda key: key).verify("k", context), "k")

        async def later(apiKey: str, context: Any) -> str:
            return apiKey

        self.assertEqual(settled(APIKeyProvider(later).verify("k", context)), "k")


class StaticKeyTests(SynchronousTestCase):
    """Keys that are known beforehand."""

    def test_known(self) -> None:
        """Each key has its user; nothing like it has one."""
        validate = staticKeys({"first": "ann", "second": "bob", "d\u00e9j\u00e0": "eve"})
        for key, user in (("first", "ann"), ("second", "bob"), ("d\u00e9j\u00e0", "eve")):
            self.assertEqual(validate(key, CONTEXT), user)
        for key in ("", "firs", "first ", "First", "\ud800", "first\0"):
            self.assertIsNone(validate(key, CONTEXT))

    def test_nobody(self) -> None:
        """An empty key, or one with a falsy user, is a mistake."""
        self.assertRaises(ValueError, staticKeys, {"": "ann"})
        self.assertRaises(ValueError, staticKeys, {"key": None})
