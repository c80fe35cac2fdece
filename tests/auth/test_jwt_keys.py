"""Sets of public keys: which of them signatures are checked with."""

import json
from time import process_time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc.jwk import OctKey
from twisted.trial.unittest import SynchronousTestCase

from storagegate.auth.jwt import MAX_KEYS, KeySet, readKeySet
from tests.support.selection import long, rounds
from tests.support.tokens import ecKey, edKey, jwks, rsaKey


def public(key: Any, **more: Any) -> dict[str, Any]:
    """Write a key's public half."""
    return {**key.as_dict(private=False), **more}


class KeySetTests(SynchronousTestCase):
    """A set that is read."""

    def read(self, *keys: Any) -> KeySet:
        """Read a set."""
        return readKeySet(json.dumps({"keys": keys}).encode())

    def unusable(self, *keys: Any) -> None:
        """Read a set of keys that are left out."""
        self.assertEqual(self.read(*keys).keys, ())
        # One that cannot be used takes none of the others with it.
        self.assertEqual(len(self.read(*keys, public(rsaKey())).keys), 1)

    def test_kinds(self) -> None:
        """Each key is good for the algorithms of its kind, and for no others."""
        keys = readKeySet(jwks(rsaKey(), ecKey(), ecKey("384", "P-384"), edKey()))
        for kid, algorithm in (
            ("rsa", "RS256"),
            ("rsa", "PS512"),
            ("ec", "ES256"),
            ("384", "ES384"),
            ("ed", "EdDSA"),
        ):
            self.assertIsNotNone(keys.find(kid, algorithm))
        for kid, algorithm in (
            ("rsa", "ES256"),
            ("ec", "ES384"),
            ("ec", "RS256"),
            ("rsa", "HS256"),
        ):
            self.assertIsNone(keys.find(kid, algorithm))

    def test_algorithm(self) -> None:
        """A key that says what it is for is for nothing else."""
        keys = self.read(public(rsaKey(), alg="RS512"))
        self.assertIsNotNone(keys.find("rsa", "RS512"))
        self.assertIsNone(keys.find("rsa", "RS256"))
        self.unusable(public(rsaKey(), alg="HS256"), public(rsaKey(), alg="none"))
        self.unusable(public(rsaKey(), alg=5), public(rsaKey(), alg=None))

    def test_unnamed(self) -> None:
        """A token that names no key means the only one that it can; of two it means none."""
        keys = self.read(public(rsaKey()), public(ecKey()))
        self.assertIsNotNone(keys.find(None, "RS256"))
        keys = self.read(public(rsaKey()), public(rsaKey("other")))
        self.assertIsNone(keys.find(None, "RS256"))

    def test_names(self) -> None:
        """Names are compared as they are, whatever is in them."""
        keys = readKeySet(jwks(rsaKey()))
        for kid in ("", "RSA", "rsa ", "' OR 1=1 --", "../../etc/passwd", "rsa\0"):
            self.assertIsNone(keys.find(kid, "RS256"))
        self.unusable(public(rsaKey(), kid=5), public(rsaKey(), kid=["rsa"]))

    def test_secret(self) -> None:
        """A shared secret that is published, or a private key, is none that counts."""
        secret = OctKey.generate_key(256, {"kid": "oct"}).as_dict(private=True)
        private = rsaKey().as_dict(private=True)
        self.unusable(secret, {**secret, "alg": "HS256"}, private)

    def test_hugePrivate(self) -> None:
        """A private key is left out before its primes are computed, which takes seconds."""
        number = "_" * 2730
        began = process_time()
        self.unusable(
            {"kty": "RSA", "e": "AQAB", "n": number, "d": number},
            ecKey().as_dict(private=True),
            edKey().as_dict(private=True),
        )
        self.assertLess(process_time() - began, 1.0)

    def test_otherUse(self) -> None:
        """Keys for something else are left out."""
        self.unusable(
            public(rsaKey(), use="enc"),
            public(rsaKey(), key_ops=["sign"]),
            public(rsaKey(), key_ops="verify"),
        )
        self.assertEqual(len(self.read(public(rsaKey(), use="sig", key_ops=["verify"])).keys), 1)

    def test_weak(self) -> None:
        """Keys that are weak, too slow, or on no known curve are left out."""
        huge = {"kty": "RSA", "kid": "big", "e": "AQAB", "n": "_" * 11000}
        slow = public(rsaKey(), e="_" * 300)
        self.unusable(public(rsaKey("weak", 1024)), huge, slow, public(ecKey("k", "secp256k1")))

    def test_broken(self) -> None:
        """Keys that are none are left out."""
        point = public(ecKey())
        self.unusable(
            None,
            5,
            "rsa",
            [],
            {},
            {"kty": "RSA"},
            {"kty": ["RSA"]},
            {"kty": "RSA", "n": "", "e": ""},
            {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
            {"kty": "RSA", "n": 5, "e": None},
            {"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"},
            {**point, "y": point["x"]},
            {"kty": "OKP", "crv": "Ed25519", "x": "AA"},
            {"kty": "OKP", "crv": "X25519", "x": "A" * 43},
        )

    def test_many(self) -> None:
        """A set has so many keys and no more."""
        self.assertEqual(len(self.read(*[public(edKey())] * MAX_KEYS).keys), MAX_KEYS)
        error = self.assertRaises(ValueError, self.read, *[{}] * (MAX_KEYS + 1))
        self.assertIn("101 keys", str(error))

    def test_noSet(self) -> None:
        """What is no set of keys is said to be none."""
        for document in (
            b"",
            b"{}",
            b"[]",
            b'{"keys": {}}',
            b'{"keys": null}',
            b"null",
            b"<html>",
            b"\xff\xfe\xff",
            b"[" * 100_000,
        ):
            self.assertRaises(ValueError, readKeySet, document)

    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=4,
    )

    @settings(max_examples=rounds(40, 200), deadline=None)
    @given(
        st.dictionaries(
            st.sampled_from(["kty", "kid", "alg", "use", "key_ops", "n", "e", "crv", "x", "y"]),
            values,
        ),
        st.sampled_from(["RSA", "EC", "OKP", None]),
    )
    @long("takes seconds")
    def test_anything(self, entry: dict[str, Any], kind: str | None) -> None:
        """Whatever a key is, it is left out and nothing worse."""
        self.assertEqual(self.read({**entry, "kty": kind}).keys, ())
